"""Ablations: what each part is worth, one table for each question (a study that can be resumed).

Run: python benchmarks/ablations.py --data DIR [DIR ...] [--only TABLE or ROW ...]
Writes results/ablations.json. The questions are those of Gupta et al. (ICLR 2024, arXiv 2310.10636: losses, negatives)
and Kharbanda et al. (2024, arXiv 2405.03714: positives in the pool, its size, symmetric losses, heads, pairs of losses,
costs), asked of our CPU recipes. All rows but those of the flagship have vectors of 128 numbers and three epochs, so
that a row takes minutes also where every label is in the loss. A run that belongs to several tables is one row.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from _study import Row, arguments, run_study
from megalabel.errors import SettingError, nearest
from megalabel.recipes.load_recipe import load_recipe

DIM = 128
SHORT, OFTEN = "training.epochs=3", "batching.refresh={start: 1, every: 1}"
FLAGSHIP = "auto"
FLAGSHIP_SHORT = ("training.epochs=3", "training.refit=false")

LONG = ("training.epochs=15",)
PAPER_CAP = 3000  # labels in the pool of UniDEC
LEARNT = (
    "{value: 0.0556, learn: true, learn_as: inverse, share: both}"  # UniDEC: one inverse for both heads, from 18 on
)

DS, SUP_CON = "decoupled_softmax", "sup_con"
MEAN_BCE = {"kind": "bce", "reduction": "cells"}  # of two heads; a sum over labels alone would train their encoder


def short(name: str, recipe: str, *changes: str, dim: int = DIM) -> Row:
    """Return a row of few epochs and small vectors."""
    often = (OFTEN,) if load_recipe(recipe).batching.refresh_count(epochs=10) else ()
    return Row(name, recipe, (f"encoder.options.dim={dim}", SHORT, *often, *changes))


def dexml(name: str, loss: Mapping[str, Any], *changes: str) -> Row:
    """Return DEXML over all labels with another loss."""
    return short(f"DEXML, {name}", "dexml-cpu", loss_of("dual", loss), *changes)


def depsl(beta: int, eta: int) -> Row:
    """Return DePSL with so many positives and hard negatives per query in the pool."""
    return short(f"DePSL, beta {beta}, eta {eta}", "depsl-cpu", f"batching.positives.count={beta}", mined(eta))


def pool(name: str, *changes: str) -> Row:
    """Return DePSL with six hard negatives per query and another size of the pool."""
    return short(f"DePSL, {name}", "depsl-cpu", "batching.positives.count=3", mined(6), *changes)


def symmetric(name: str, loss: str, weight: float | None) -> Row:
    """Return DePSL with a loss that labels as anchors may add to."""
    return short(f"DePSL, {name}", "depsl-cpu", loss_of("dual", {"kind": loss, "symmetric": weight}))


def pair(name: str, dual: str, classifier: str, bce: float = 0.0, *changes: str) -> Row:
    """Return UniDEC with a loss for each head."""
    losses = (loss_of("dual", {"kind": dual}), loss_of("classifier", {"kind": classifier, "bce": bce}))
    return short(f"UniDEC, {name}", "unidec-cpu", *losses, *changes)


def unnormalised(name: str, *changes: str) -> Row:
    """Return UniDEC whose classifier is trained by BCE on plain inner products, and searched so."""
    plain = ("heads.classifier.normalise=false", "heads.classifier.temperature.value=1.0")
    losses = (loss_of("dual", {"kind": DS}), loss_of("classifier", MEAN_BCE))
    return short(f"UniDEC, {name}", "unidec-cpu", *losses, *plain, *changes)


def untrained(system: str, recipe: str) -> Row:
    """Return a system as it is before its first step: one epoch of steps too small to change a number."""
    still = ("training.encoder.lr=1.0e-30", "training.tables.lr=1.0e-30", "training.epochs=1")
    refresh = () if recipe == "dexml-cpu" else ("batching.refresh={start: 0, every: 1}",)
    return short(f"{system}, untrained", recipe, *still, *refresh)


def soft_top(alpha: int, *changes: str, after: str = "") -> Row:
    """Return DEXML with soft top-5 of another slope."""
    name = f"SoftTop-5, alpha {alpha}{after}"
    return dexml(name, {"kind": "soft_top_k", "k": 5, "alpha": float(alpha)}, *changes)


def mined(count: int) -> str:
    """Return the change to so many hard negatives per query."""
    return f"batching.negatives.mined={count}"


def loss_of(head: str, settings: Mapping[str, Any]) -> str:
    """Return the change to another loss of a head."""
    return f"heads.{head}.loss={json.dumps(settings)}"


def without(head: str) -> Row:
    """Return the flagship without one head; a memory that read its vectors reads those of the next head."""
    recipe = load_recipe(FLAGSHIP)
    heads = {
        name: settings.model_dump(mode="json", exclude_defaults=True) | {"kind": settings.kind}
        for name, settings in recipe.heads.items()
        if name != head
    }
    for settings in heads.values():
        if settings.get("features") == head:
            settings["features"] = next(name for name in recipe.dense_heads if name != head)
    return Row(f"{FLAGSHIP} without {head}", FLAGSHIP, (*FLAGSHIP_SHORT, f"heads={json.dumps(heads)}"))


def removable() -> list[str]:
    """Return the heads the flagship can do without: all fitted ones, and those of the network if there are several."""
    recipe = load_recipe(FLAGSHIP)
    return [name for name in recipe.heads if name in recipe.fitted_heads or len(recipe.dense_heads) > 1]


ALL = dexml("decoupled softmax", {"kind": DS})
IN_BATCH = short("DEXML, in batch", "dexml-hnm-cpu", "batching.negatives={}", "batching.refresh={}")
HARD = short("DEXML, in batch + 10 hard", "dexml-hnm-cpu", mined(10), "batching.negatives.top=100")
DEPSL, DEPSL_WIDE = depsl(3, 3), depsl(3, 6)
UNIDEC = pair("DS / DS", DS, DS)

TABLES: dict[str, list[Row]] = {
    "losses": [
        untrained("DEXML", "dexml-cpu"),
        dexml("BCE", {"kind": "bce"}),
        dexml("BCE, bias", {"kind": "bce"}, "heads.dual.bias=true", "heads.dual.temperature.learn=true"),
        dexml("softmax", {"kind": "softmax"}),
        ALL,
        soft_top(1),
        dexml("SoftTop-5", {"kind": "soft_top_k", "k": 5}),
        soft_top(4),
        dexml("SoftTop-100", {"kind": "soft_top_k", "k": 100}),
    ],
    "longer": [
        untrained("DEXML", "dexml-cpu"),
        dexml("softmax, 15 epochs", {"kind": "softmax"}, *LONG),
        dexml("decoupled softmax, 15 epochs", {"kind": DS}, *LONG),
        *(soft_top(alpha, *LONG, after=", 15 epochs") for alpha in (1, 2, 4)),
        dexml("SoftTop-100, 15 epochs", {"kind": "soft_top_k", "k": 100}, *LONG),
    ],
    "negatives": [IN_BATCH, HARD, ALL],
    "positives": [depsl(beta, eta) for beta in (1, 3, 5) for eta in (0, 3, 6)],
    "pool": [
        *(pool(f"cap {cap}", f"batching.cap={cap}") for cap in (500, 1000, 2000)),
        DEPSL_WIDE,
        *(pool(f"{count} drawn", f"batching.negatives.uniform={count}") for count in (4096, 16384)),
    ],
    "symmetric": [
        untrained("DePSL", "depsl-cpu"),
        symmetric("SupCon", SUP_CON, None),
        symmetric("SupCon + sym", SUP_CON, 0.5),
        DEPSL,
        symmetric("DS + sym", DS, 0.5),
    ],
    "heads": [
        UNIDEC,
        short("UniDEC, no hard negatives", "unidec-cpu", mined(0)),
        short(
            "UniDEC, no hard negatives, filled",
            "unidec-cpu",
            mined(0),
            f"batching.cap={PAPER_CAP}",
            "batching.fill=positives",
        ),
    ],
    "pairs": [
        untrained("UniDEC", "unidec-cpu"),
        pair("SupCon / SupCon", SUP_CON, SUP_CON),
        pair("SupCon / SupCon + BCE", SUP_CON, SUP_CON, 1.0),
        short("UniDEC, DS / BCE", "unidec-cpu", loss_of("dual", {"kind": DS}), loss_of("classifier", MEAN_BCE)),
        unnormalised("DS / BCE, unnormalised"),
        unnormalised("DS / BCE, unnormalised, bias", "heads.classifier.bias=true"),
        UNIDEC,
        pair(
            "DS / DS, learnt temperature",
            DS,
            DS,
            0.0,
            f"heads.dual.temperature={LEARNT}",
            f"heads.classifier.temperature={LEARNT}",
        ),
        pair("DS / DS + BCE", DS, DS, 1.0),
        pair(
            "DS / DS + BCE, bias", DS, DS, 1.0, "heads.classifier.bias=true", "heads.classifier.temperature.learn=true"
        ),
    ],
    "costs": [IN_BATCH, HARD, DEPSL, UNIDEC, ALL],
    "dimensions": [
        short("DePSL, 64 numbers", "depsl-cpu", dim=64),
        DEPSL,
        short("DePSL, 256 numbers", "depsl-cpu", dim=256),
        short("DePSL, 384 numbers", "depsl-cpu", dim=384),
        short("UniDEC, 2 x 64 numbers", "unidec-cpu", dim=64),
        UNIDEC,
        short("UniDEC, 2 x 192 numbers", "unidec-cpu", dim=192),
    ],
    "flagship": [Row(FLAGSHIP, FLAGSHIP, FLAGSHIP_SHORT), *(without(head) for head in removable())],
}
ROWS = list({row.name: row for rows in TABLES.values() for row in rows}.values())


def chosen(wanted: Sequence[str] | None, tables: Mapping[str, Iterable[Row]] = TABLES) -> list[str] | None:
    """Return the names of the rows asked for: by their own name, or all of a table."""
    if wanted is None:
        return None
    known = {row.name for rows in tables.values() for row in rows}
    for name in wanted:
        if name not in tables and name not in known:
            raise SettingError(f"there is no table or row {name!r}", remedy=nearest(name, [*tables, *known]))
    return [row for name in wanted for row in ([one.name for one in tables[name]] if name in tables else [name])]


def main() -> int:
    """Run what is missing."""
    options: argparse.Namespace = arguments(__doc__.splitlines()[0])
    try:
        options.only = chosen(options.only)
    except SettingError as error:
        raise SystemExit(str(error)) from None
    return run_study("ablations", ROWS, options)


if __name__ == "__main__":
    sys.exit(main())
