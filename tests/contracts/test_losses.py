"""Every loss and wrapper keeps the public contract, and the contract check catches broken losses."""

from dataclasses import dataclass

import pytest
import torch

import megalabel.losses
from megalabel.losses import (
    BCE,
    DecoupledSoftmax,
    ProbabilisticContrastive,
    Softmax,
    SoftTopK,
    SquaredHinge,
    Sum,
    SupCon,
    Symmetric,
    Triplet,
    TruncatedSoftmax,
)
from megalabel.testing import check_loss

LOSSES = [
    BCE(),
    BCE(reduction="cells"),
    BCE(reduction="sum"),
    SquaredHinge(),
    Softmax(),
    Softmax(positives="sum"),
    Softmax(positives="count"),
    Softmax(balanced=True),
    SupCon(),
    SupCon(balanced=True),
    DecoupledSoftmax(),
    DecoupledSoftmax(reduction="none"),
    DecoupledSoftmax(positives="count"),
    DecoupledSoftmax(positives="sum"),
    SoftTopK(1),
    SoftTopK(3, alpha=1.0),
    SoftTopK("positives"),
    Triplet(),
    Triplet(k=3),
    Triplet(k=3, weights="violators"),
    Triplet(margin=0.2, k=5, positives=2, weights="hinge"),
    ProbabilisticContrastive(),
    ProbabilisticContrastive(c=0.9, d=1.5, k=4, threshold=0.0, scaled=False),
    TruncatedSoftmax(scale=1.0),
    TruncatedSoftmax(scale=1.5),
    Symmetric(DecoupledSoftmax()),
    Symmetric(BCE(), weight=0.3),
    Symmetric(BCE(reduction="cells"), weight=0.3),
    Symmetric(SoftTopK(2)),
    Symmetric(Triplet()),
    Sum((DecoupledSoftmax(), BCE()), weights=(1.0, 0.1)),
    Sum((Symmetric(DecoupledSoftmax()), BCE(reduction="cells"))),
    Sum((Triplet(), SoftTopK(2), Softmax())),
    Sum((Symmetric(SupCon()), Sum((BCE(), Triplet())))),
]


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_contract(loss):
    check_loss(loss)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_repr_is_runnable_python(loss):
    again = eval(repr(loss), dict(vars(megalabel.losses)))  # noqa: S307 - our own text
    assert again == loss
    assert hash(again) == hash(loss)


@dataclass(frozen=True)
class Broken:
    """Softmax with one thing wrong."""

    how: str

    def __call__(self, scores, targets, mask=None):
        targets = targets if isinstance(targets, torch.Tensor) else targets.dense()
        if self.how == "mutates":
            scores.detach()[0, 1] = -100
        if self.how == "sign":
            scores = -scores
        if self.how == "last" and scores.shape[1] > 1:
            scores = torch.cat([scores[:, :-1], scores[:, -1:].detach()], 1)
        if self.how == "mask":
            mask = None
        if self.how == "minus 100" and mask is not None:
            scores = torch.where(mask, scores, scores * 0 - 1)
            mask = None
        if self.how == "order":
            scores = scores * torch.linspace(1, 2, scores.shape[1], dtype=scores.dtype)
        if self.how == "overflow":
            inside = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
            total = (scores.exp() * inside).sum(1, keepdim=True).log()
            return ((total - scores) * (inside & (targets > 0))).sum(1).mean()
        return Softmax()(scores, targets, mask)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("mutates", "changed its scores"),
        ("sign", "pushes a lone positive down"),
        ("last", "gradient is not that of the value|last label"),
        ("mask", "masked column|sparse"),
        ("minus 100", "masked column"),
        ("order", "order of columns"),
        ("overflow", "1e4"),
    ],
)
def test_check_catches(how, message):
    with pytest.raises(AssertionError, match=message):
        check_loss(Broken(how))


def test_check_passes_a_plain_third_party_loss():
    check_loss(Broken("nothing"))
