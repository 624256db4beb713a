"""The public data sets behind published figures: their sizes, and which of their texts are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from megalabel.errors import SettingError, nearest

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset

__all__ = ["OFFICIAL_SETS", "OfficialSet", "find_official_set", "recognise"]

SHORT = 20.0  # mean words per point; shorter texts are titles


@dataclass(frozen=True, slots=True)
class OfficialSet:
    """A data set of the extreme classification repository or the DEXML code."""

    name: str
    labels: int
    train: int
    test: int
    fields: Literal["title", "title+content"]  # of the JSON files
    filtered: bool  # it has filter files; without them figures cannot be compared
    layout: Literal["xmc-json", "dexml"] = "xmc-json"  # of the files it comes in

    @property
    def source(self) -> str:
        """Where to download it."""
        return {
            "xmc-json": "the extreme classification repository",
            "dexml": "the notebook of the DEXML code, which makes them from the bundle of X-Transformer",
        }[self.layout]

    @property
    def files(self) -> list[str]:
        """The expected files; any other format that megalabel reads works too."""
        names = {
            "xmc-json": ["trn.json.gz", "tst.json.gz", "lbl.json.gz"],
            "dexml": ["raw/trn_X.txt", "raw/tst_X.txt", "raw/Y.txt", "Y.trn.npz", "Y.tst.npz"],
        }[self.layout]
        return [*names, *(["filter_labels_train.txt", "filter_labels_test.txt"] if self.filtered else [])]

    @property
    def size(self) -> str:
        """Its sizes as text."""
        return f"{self.labels:,} labels, {self.train:,} train and {self.test:,} test points"


OFFICIAL_SETS = {
    known.name: known
    for known in (
        OfficialSet("EURLex-4K", 3_956, 15_449, 3_865, "title+content", False, "dexml"),
        OfficialSet("LF-AmazonTitles-131K", 131_073, 294_805, 134_835, "title", True),
        OfficialSet("LF-Amazon-131K", 131_073, 294_805, 134_835, "title+content", True),
        OfficialSet("LF-WikiSeeAlsoTitles-320K", 312_330, 693_082, 177_515, "title", True),
        OfficialSet("LF-WikiSeeAlso-320K", 312_330, 693_082, 177_515, "title+content", True),
        OfficialSet("LF-WikiTitles-500K", 501_070, 1_813_391, 783_743, "title", False),
        OfficialSet("LF-Wikipedia-500K", 501_070, 1_813_391, 783_743, "title+content", False),
        OfficialSet("LF-AmazonTitles-1.3M", 1_305_265, 2_248_619, 970_237, "title", True),
    )
}


def find_official_set(name: str) -> OfficialSet:
    """Return a set by its name, ignoring case.

    >>> find_official_set("lf-amazontitles-131k").labels
    131073
    """
    official = {key.lower(): entry for key, entry in OFFICIAL_SETS.items()}.get(name.lower())
    if official is None:
        raise SettingError(f"there is no official set {name!r}", remedy=nearest(name, OFFICIAL_SETS))
    return official


def recognise(data: Dataset) -> OfficialSet | None:
    """Return the official set with the sizes of this one; the length of texts decides between titles and full texts.

    Validation rows count as train rows, since they were held out of train.
    """
    train = len(data.train) + (0 if data.val is None else len(data.val))
    sizes = (len(data.labels), train, len(data.test))
    matches = [
        official for official in OFFICIAL_SETS.values() if (official.labels, official.train, official.test) == sizes
    ]
    if len(matches) < 2:
        return matches[0] if matches else None
    words = sum(len(text.split()) for text in data.test.texts) / len(data.test)
    fields = "title" if words < SHORT else "title+content"
    return next(official for official in matches if official.fields == fields)
