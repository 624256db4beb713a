"""What published systems used, and what the same recipes are planned to take here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from megalabel.data.official_sets import OFFICIAL_SETS
from megalabel.encoders.text_size import TextSize
from megalabel.plan.memory import largest_stage
from megalabel.plan.sizes import Sizes
from megalabel.plan.workload import Workload
from megalabel.recipes.load_recipe import load_recipe

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["PUBLISHED", "PublishedCost", "nearest_published"]

_TABLE = "Kharbanda 2024, Table 2.3"
_LONG = ("encoder.query_length=128", "encoder.label_length=128", "training.chunk_size=512")


@dataclass(frozen=True)
class PublishedCost:
    """One line of a paper; memory is that of the GPUs that were used, not how much of it was needed."""

    system: str
    batch: int
    pool: int | None
    gigabytes: int | None
    hours: float | None
    data: str
    points: int
    labels: int
    labels_per_point: float
    tokens: float  # per text, 1.3 per word; at most as many as are read
    source: str = _TABLE
    hardware: str = ""
    recipe: str | None = None  # of the same system here
    changes: Sequence[str] = ()

    def ours(self) -> float | None:
        """Return the bytes that the recipe takes on one GPU; None if there is no such recipe."""
        if self.recipe is None:
            return None
        text = TextSize.of_tokens(self.tokens)
        sizes = Sizes(self.points, self.labels, self.labels_per_point, text, text)
        recipe = load_recipe(self.recipe, [*self.changes, f"batching.batch_size={self.batch}"])
        return largest_stage(Workload(recipe, sizes, gpu=True))[1].peak()[1]

    def document(self) -> dict[str, Any]:
        """Return the line for JSON."""
        names = ("system", "data", "points", "labels", "batch", "pool", "gigabytes", "hours", "hardware", "source")
        return {name: getattr(self, name) for name in names} | {"recipe": self.recipe, "ours_bytes": self.ours()}


def _on(data: str, labels_per_point: float, tokens: float) -> partial[PublishedCost]:
    official = OFFICIAL_SETS[data]
    return partial(
        PublishedCost,
        data=data,
        points=official.train,
        labels=official.labels,
        labels_per_point=labels_per_point,
        tokens=tokens,
    )


_amazon131 = _on("LF-Amazon-131K", 2.29, 128)
_see_also = _on("LF-WikiSeeAlso-320K", 2.11, 128)
_wikipedia = _on("LF-Wikipedia-500K", 4.77, 128)
_titles = _on("LF-AmazonTitles-1.3M", 22.20, 11.4)
_PLAIN = ("heads.dual.normalise=false", "heads.dual.temperature.value=1.0")
_TEN = ("batching.negatives.mined=10", "batching.negatives.top=100")
_QUERY2BID = PublishedCost(
    "DePSL", 2048, None, None, None, "Query2Bid-450M", 52_029_024, 454_608_650, 3.96, 10,
    source="Kharbanda 2024, chapter 2", hardware="8 V100, under 48 h, dim 64", recipe="depsl",
    changes=["encoder.query_length=12", "encoder.label_length=12", "encoder.options.projection=64",
             "heads.dual.dim=null", "heads.dual.projection=none", "heads.dual.dropout=0.0",
             "training.heads.weight_decay=0"],
)  # fmt: skip

PUBLISHED: tuple[PublishedCost, ...] = (
    _amazon131("Renee", 512, 131_073, 128, 58),
    _amazon131("UniDEC", 576, 3000, 48, 24, hardware="one A6000", recipe="unidec", changes=_LONG),
    _see_also("Renee", 2048, 312_330, 128, 81),
    _see_also("UniDEC", 677, 3500, 48, 39, hardware="one A6000", recipe="unidec",
              changes=(*_LONG, "batching.cap=3500")),
    _wikipedia("DEXML, all labels", 2048, 501_070, 320, 39, recipe="dexml",
               changes=(*_LONG, *_PLAIN)),
    _wikipedia("DEXML, 10 hard negatives", 2048, 22_528, 160, None, recipe="dexml-hnm",
               changes=(*_LONG, *_PLAIN, *_TEN)),
    _wikipedia("Renee", 2048, 501_070, 320, 39),
    _wikipedia("DePSL", 221, 3000, 48, 55, hardware="one A6000", recipe="depsl",
               changes=(*_LONG, "batching.cap=3000")),
    _titles("DEXML, all labels", 8192, 1_305_265, 640, 66, hardware="16 A100", recipe="dexml", changes=_PLAIN),
    _titles("DEXML, 10 hard negatives", 8192, 90_112, 320, None, recipe="dexml-hnm", changes=(*_PLAIN, *_TEN)),
    _titles("Renee", 1024, 1_305_265, 256, 105),
    _titles("UniDEC", 1098, 3000, 48, 78, hardware="one A6000", recipe="unidec",
            changes=("heads.dual.dim=256", "heads.classifier.dim=256")),
    _titles("DePSL", 2196, 4000, 48, 53, hardware="one A6000", recipe="depsl", changes=("heads.dual.dim=384",)),
    _QUERY2BID,
)  # fmt: skip


def nearest_published(labels: int) -> list[PublishedCost]:
    """Return the lines of the data set with the nearest number of labels, and the one with the most memory."""
    data = min(PUBLISHED, key=lambda line: abs(math.log(line.labels / labels))).data
    largest = max(PUBLISHED, key=lambda line: line.gigabytes or 0)
    return [line for line in PUBLISHED if line.data == data or line is largest]
