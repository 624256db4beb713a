"""The card of a data set: its size and shape on one page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.data.items import match_items, reverse_share
from megalabel.data.problems import Problems, find_problems

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset

__all__ = ["Card", "card"]

QUANTILES = (0, 10, 25, 50, 75, 90, 99, 100)  # percent
SHOWN_SOURCES = 3  # packages named in the table
HEAD, TORSO = 100, 10  # a head label has more train points than HEAD, a torso label at least TORSO


@dataclass(frozen=True, slots=True)
class Card:
    """Facts about a data set that matter before training on it.

    Head labels have more than 100 train points, torso labels 10 to 100, tail labels fewer
    than 10. ``reverse_shares`` is None where points and labels are different things.
    """

    name: str
    about: str
    licence: str
    points: dict[str, int]  # by split
    labels: int
    labels_per_point: dict[str, float]  # mean by split
    points_per_label: float  # mean over all labels, train
    words_per_point: float  # mean over all splits
    words_per_label: float
    frequency_quantiles: dict[str, float]  # train points of a label, "50%": the median
    label_shares: dict[str, float]  # of the labels, how many are head, torso, tail
    pair_shares: dict[str, float]  # of the train pairs, how many go to head, torso, tail labels
    labels_without_train: int
    propensity: tuple[float, float]  # A, B
    reverse_shares: dict[str, float] | None  # by split: pairs whose reverse is a train pair
    filter_pairs: dict[str, int]  # by split
    sources: dict[str, str]  # packages the set was made from, with their versions; empty if not known
    problems: Problems

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self) | {"propensity": list(self.propensity)}

    def table(self) -> str:
        """Return the card as aligned text, a line for each fact."""
        bands = ("head", "torso", "tail")
        rows = [
            ("name", self.name),
            ("about", self.about or "-"),
            ("licence", self.licence or "-"),
            ("points", ", ".join(f"{name} {size:,}" for name, size in self.points.items())),
            ("labels", f"{self.labels:,} ({self.labels_without_train:,} without a train point)"),
            ("labels per point", ", ".join(f"{name} {mean:.2f}" for name, mean in self.labels_per_point.items())),
            ("points per label", f"{self.points_per_label:.2f} in train"),
            ("words", f"{self.words_per_point:.1f} per point, {self.words_per_label:.1f} per label"),
            ("train points of a label", ", ".join(f"{q} {n:,.0f}" for q, n in self.frequency_quantiles.items())),
            (
                "labels by frequency",
                _shares(self.label_shares, f"head (>{HEAD})", f"torso ({TORSO}-{HEAD})", f"tail (<{TORSO})"),
            ),
            ("train pairs by frequency", _shares(self.pair_shares, *bands)),
            ("propensity constants", "A {:g}, B {:g}".format(*self.propensity)),
            ("pairs reversed in train", self._reversed()),
            ("filter pairs", ", ".join(f"{name} {count:,}" for name, count in self.filter_pairs.items())),
        ]
        if self.sources:
            rows.append(("made from", self._made_from()))
        problems = self.problems.lines() or ["none found"]
        rows += [("problems" if place == 0 else "", line) for place, line in enumerate(problems)]
        width = max(len(title) for title, _ in rows)
        return "\n".join(f"{title:<{width}}  {value}" for title, value in rows)

    def _made_from(self) -> str:
        shown = [f"{name} {version}" for name, version in list(self.sources.items())[:SHOWN_SOURCES]]
        left = len(self.sources) - len(shown)
        return ", ".join(shown) + (f" and {left:,} more packages (all in card.json)" if left else "")

    def _reversed(self) -> str:
        if self.reverse_shares is None:
            return "- (points and labels are different things)"
        return ", ".join(f"{name} {share:.1%}" for name, share in self.reverse_shares.items())


def card(data: Dataset) -> Card:
    """Return the card of a set.

    >>> from megalabel import load
    >>> summary = card(load("synthetic:points=300,labels=40"))
    >>> summary.points, summary.labels, summary.labels_per_point["train"]
    ({'train': 240, 'test': 60}, 40, 5.0)
    >>> print(summary.table().splitlines()[3])
    points                    train 240, test 60
    """
    parts = data.splits
    counts = np.bincount(data.train.targets.indices, minlength=len(data.labels))
    bands = {"head": counts > HEAD, "torso": (counts >= TORSO) & (counts <= HEAD), "tail": counts < TORSO}
    symmetric = bool(np.any(match_items(data.train, data.labels) >= 0))
    words = sum(_words(split.texts) for split in parts.values())
    return Card(
        name=data.name,
        about=data.about,
        licence=data.licence,
        points={name: len(split) for name, split in parts.items()},
        labels=len(data.labels),
        labels_per_point={name: split.targets.nnz / len(split) for name, split in parts.items()},
        points_per_label=data.train.targets.nnz / len(data.labels),
        words_per_point=words / sum(len(split) for split in parts.values()),
        words_per_label=_words(data.labels.texts) / len(data.labels),
        frequency_quantiles={
            f"{q}%": float(n) for q, n in zip(QUANTILES, np.percentile(counts, QUANTILES), strict=True)
        },
        label_shares={name: float(band.mean()) for name, band in bands.items()},
        pair_shares={name: float(counts[band].sum() / counts.sum()) for name, band in bands.items()},
        labels_without_train=int(np.count_nonzero(counts == 0)),
        propensity=data.propensity,
        reverse_shares={name: reverse_share(data, split) for name, split in parts.items()} if symmetric else None,
        filter_pairs={name: len(split.filter) for name, split in parts.items()},
        sources=dict(data.sources),
        problems=find_problems(data),
    )


def _words(texts: Sequence[str]) -> int:
    return sum(len(text.split()) for text in texts)


def _shares(shares: dict[str, float], *titles: str) -> str:
    return ", ".join(f"{title} {share:.1%}" for title, share in zip(titles, shares.values(), strict=True))
