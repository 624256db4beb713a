"""Heads that train no encoder: fitted once the network stands, saved and asked beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.augment.gandalf import gandalf
from megalabel.encoders._arrays import read_part, write_part
from megalabel.encoders.sparse import SparseEncoder
from megalabel.heads.head import NGRAMS, FittedHead, FittedSettings, RowSettings
from megalabel.heads.live import Live
from megalabel.network.texts import TextTokens
from megalabel.network.vectors import query_side

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy import sparse

    from megalabel.data.dataset import Dataset, Split
    from megalabel.heads.answers import Answers
    from megalabel.heads.head import HeadSettings, Queries
    from megalabel.network.network import Network

__all__ = ["Fitted", "fit_heads"]

COUNTS = "counts"
SHORT = 20  # words of a text on average


@dataclass(frozen=True)
class Fitted:
    """The fitted heads of a model.

    Args:
        counts: [L] points of each label among the rows that were fitted on.
        heads: by name.
        ngrams: turns texts into sparse rows; None if no head reads them.
    """

    counts: NDArray[np.int64]
    heads: Mapping[str, FittedHead] = field(default_factory=dict)
    ngrams: SparseEncoder | None = None

    def answers(self, queries: Queries, live: Callable[[str], Live]) -> dict[str, Answers]:
        """Return what each head says of the queries, over the labels as they are now."""
        return {name: head.answers(queries, live(name)) for name, head in self.heads.items()}

    def grown(self, live: Callable[[str], Live]) -> Fitted:
        """Return the heads over all labels, with those changed after training among the others."""
        return replace(self, heads={name: head.grown(live(name)) for name, head in self.heads.items()})

    def save(self, folder: Path) -> None:
        """Write every part into a folder of its own."""
        write_part(folder / COUNTS, COUNTS, {"kind": COUNTS}, {COUNTS: self.counts})
        if self.ngrams is not None:
            self.ngrams.save(folder / NGRAMS)
        for name, head in self.heads.items():
            head.save(folder / name)

    @classmethod
    def load(cls, folder: Path, heads: Mapping[str, HeadSettings]) -> Fitted:
        """Read what :meth:`save` wrote for the fitted heads among these."""
        own = {name: settings for name, settings in heads.items() if isinstance(settings, FittedSettings)}
        loaded = {name: settings.load(folder / name) for name, settings in own.items()}
        _, arrays = read_part(folder / COUNTS, COUNTS, (), [COUNTS])
        reads = any(settings.reads_ngrams for settings in own.values())
        return cls(arrays[COUNTS], loaded, SparseEncoder.load(folder / NGRAMS) if reads else None)


def fit_heads(
    heads: Mapping[str, HeadSettings],
    ngrams: Mapping[str, Any],
    network: Network,
    data: Dataset,
    *,
    seed: int,
    say: Callable[[str], None],
) -> Fitted:
    """Fit the fitted heads among ``heads`` on the train rows of a data set without augmentation.

    Points of a label are counted with those of a validation part that was held out: it never takes the last one, so
    that of the labels with few points left, too many would be right in it.

    Args:
        heads: settings by name; dense heads are passed over.
        ngrams: options of :class:`~megalabel.encoders.SparseEncoder`.
        network: the trained network.
        data: the data set.
        seed: of everything that is drawn.
        say: is told which head is being fitted.
    """
    own = {name: settings for name, settings in heads.items() if isinstance(settings, FittedSettings)}
    encoder = None
    if any(settings.reads_ngrams for settings in own.values()):
        options = _default_ngrams(data.train.texts) | dict(ngrams)
        encoder = SparseEncoder(**options).fit([*data.train.texts, *data.labels.texts])
    source = _FitData(data, seed, network, encoder)
    fitted = {}
    for name, settings in own.items():
        say(f"fitting {name}")
        fitted[name] = settings.fit(source)
    train = data.train if data.before is None else data.before.train
    known = train.without(train.filter).targets
    counts = np.bincount(known.indices, minlength=len(data.labels)).astype(np.int64)
    return Fitted(counts, fitted, encoder)


def _default_ngrams(texts: Sequence[str]) -> dict[str, Any]:
    """Return options for n-grams: those of characters only where texts are short, so that words alone say little."""
    words = sum(len(text.split()) for text in texts) / max(1, len(texts))
    return {} if words <= SHORT else {"characters": 0}


@dataclass
class _FitData:
    """See :class:`megalabel.heads.head.FitData`; features of a split are computed once."""

    data: Dataset
    seed: int
    network: Network
    ngrams: SparseEncoder | None
    _cache: dict[tuple[str, int], Any] = field(default_factory=dict)

    def rows(self, settings: RowSettings) -> Split:
        if settings.labels == "none":
            return self.data.train
        kind = "self" if settings.labels == "self" else "conditional"
        return gandalf(self.data, targets=kind, max_targets=settings.max_targets, seed=self.seed).train  # type: ignore[arg-type]

    def features(self, name: str, split: Split) -> sparse.csr_matrix | NDArray[np.float32]:
        key = name, len(split)  # a split is train alone, or train and all label texts
        if key not in self._cache:
            if name == NGRAMS:
                assert self.ngrams is not None
                self._cache[key] = self.ngrams.encode(split.texts)
            else:
                texts = TextTokens.stored(split.texts, dict(self.network.encoders.items()))
                self._cache[key] = query_side(self.network, texts)[name].cpu().numpy()
        return self._cache[key]  # type: ignore[no-any-return]
