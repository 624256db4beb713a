import pytest
import torch
from pydantic import ValidationError

from megalabel.losses import BCE, DecoupledSoftmax, ProbabilisticContrastive, Softmax, SquaredHinge
from megalabel.losses.settings import LOSSES, build_loss
from megalabel.settings import Settings
from megalabel.testing import check_loss

SCORES = torch.rand(3, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2 - 1
TARGETS = torch.zeros(3, 9, dtype=torch.float64)
TARGETS[0, 0] = TARGETS[0, 2] = TARGETS[1, 1] = TARGETS[2, 4] = 1
TARGETS[2, 2] = 0.4
# a value that differs from the default, for every setting of every kind
CHANGES = {
    "bce": {"symmetric": 0.3, "reduction": "sum"},
    "softmax": {"symmetric": 0.3, "bce": 0.5, "positives": "sum"},
    "decoupled_softmax": {"symmetric": 0.3, "bce": 0.5, "positives": "count"},
    "soft_top_k": {"symmetric": 0.3, "bce": 0.5, "k": "positives", "alpha": 3.0},
    "sup_con": {"symmetric": 0.3, "bce": 0.5, "balanced": True},
    "triplet": {
        "symmetric": 0.3, "bce": 0.5, "margin": 0.5, "k": 1, "positives": 1, "weights": "hinge", "temperature": 0.5,
    },
    "squared_hinge": {"symmetric": 0.3, "bce": 0.5, "margin": 0.5, "reduction": "sum"},
    "probabilistic_contrastive": {
        "symmetric": 0.3, "bce": 0.5, "c": 0.9, "d": 1.5, "k": 1, "threshold": 0.0, "scaled": False,
    },
    "truncated_softmax": {"symmetric": 0.3, "bce": 0.5, "scale": 1.0},
}  # fmt: skip


@pytest.mark.parametrize("kind", LOSSES)
def test_the_kind_alone_builds_a_loss(kind):
    few = {"scale": 1.5} if kind == "truncated_softmax" else {}  # ten labels of nine have all they need
    check_loss(build_loss({"kind": kind, **few}))
    settings = LOSSES[kind](kind=kind)
    assert build_loss({"kind": kind}) == build_loss(settings) == build_loss(kind)
    assert settings.model_dump(exclude_defaults=True) == {"kind": kind}


def test_every_setting_is_tried():
    assert {kind: set(changes) | {"kind"} for kind, changes in CHANGES.items()} == {
        kind: set(settings.model_fields) for kind, settings in LOSSES.items()
    }


@pytest.mark.parametrize(("kind", "key"), [(kind, key) for kind, changes in CHANGES.items() for key in changes])
def test_every_setting_has_an_effect(kind, key):
    few = {"k": 1} if kind == "soft_top_k" and key != "k" else {}  # five places in a row of five labels hold all
    few |= {"scale": 1.0} if kind == "truncated_softmax" and key != "scale" else {}  # ten times a ninth is enough
    before, after = (build_loss({"kind": kind, **few, **changes}) for changes in ({}, {key: CHANGES[kind][key]}))
    gradients = []
    for loss in (before, after):
        scores = SCORES.clone().requires_grad_()
        loss(scores, TARGETS).backward()
        gradients.append(scores.grad)
    assert not torch.allclose(*gradients)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"kind": "decoupled_softmax", "margin": 0.5}, "margin"),
        ({"kind": "decoupled_softmax", "reduction": "sum"}, "reduction"),
        ({"kind": "bce", "cells": True}, "reduction: cells"),
        ({"kind": "triplet", "weights": "hinge", "temperature": 0.2}, "temperature"),
        ({"kind": "triplet", "k": 1, "weights": "hinge"}, "one negative has all the weight"),
        ({"kind": "triplet", "k": 1, "temperature": 0.2}, "one negative has all the weight"),
        ({"kind": "bce", "bce": 1.0}, "bce"),
        ({"kind": "softmax", "positives": "all"}, "positives"),
        ({"kind": "decoupled_softmax", "positives": "number"}, "positives"),
        ({"kind": "bce", "positives": "count"}, "positives"),
        ({"kind": "sup_con", "positives": "count"}, "positives"),
        ({"kind": "squared_hinge", "positives": "count"}, "positives"),
        ({"kind": "soft_top_k", "k": 0}, "k"),
        ({"kind": "soft_top_k", "k": "labels"}, "k"),
        ({"kind": "probabilistic_contrastive", "c": 1.0}, "c"),
        ({"kind": "triplet", "symmetric": 2}, "symmetric"),
        ({"kind": "triplet", "k": 1, "temperature": 0.5}, "temperature has no effect: k is 1"),
        ({"kind": "softmx"}, "softmax"),
        ({}, "kind"),
    ],
)
def test_wrong_settings_are_refused(settings, key):
    with pytest.raises(ValidationError, match=key):
        build_loss(settings)


def test_an_added_bce_is_the_mean_over_cells():
    loss = build_loss({"kind": "decoupled_softmax", "bce": 0.5})
    expected = DecoupledSoftmax()(SCORES, TARGETS) + 0.5 * BCE()(SCORES, TARGETS) / SCORES.shape[1]
    torch.testing.assert_close(loss(SCORES, TARGETS), expected)


@pytest.mark.parametrize(("kind", "loss"), [("bce", BCE()), ("squared_hinge", SquaredHinge())])
def test_a_loss_can_be_the_mean_over_cells(kind, loss):
    mean = build_loss({"kind": kind, "reduction": "cells"})
    torch.testing.assert_close(mean(SCORES, TARGETS), loss(SCORES, TARGETS) / SCORES.shape[1])


def test_the_two_reductions_of_softmax_and_the_two_stages_of_siamesexml():
    assert build_loss("softmax") == Softmax(positives="mean")
    assert build_loss({"kind": "softmax", "positives": "sum"}) == Softmax(positives="sum")
    assert build_loss("probabilistic_contrastive") == ProbabilisticContrastive()
    first = {"c": 0.9, "d": 1.5, "k": 2, "threshold": 0.0, "scaled": False}
    assert build_loss({"kind": "probabilistic_contrastive", **first}) == ProbabilisticContrastive(**first)


def test_a_registered_kind_can_be_named(monkeypatch):
    class Own(Settings):
        kind: str = "own"

        def build(self):
            return BCE(reduction="sum")

    monkeypatch.setitem(LOSSES, "own", Own)
    assert build_loss("own") == BCE(reduction="sum")
