"""Fitted heads: they train no encoder and are fitted after the network, saved with it and scored beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.augment.gandalf import TargetKind, gandalf
from megalabel.encoders._arrays import read_part, write_part
from megalabel.encoders.sparse import SparseEncoder
from megalabel.errors import DataError, MegalabelError
from megalabel.files import make_folder
from megalabel.heads.head import NGRAMS, Changed, FittedHead, FittedSettings, RowSettings
from megalabel.heads.live import Live
from megalabel.network.texts import TextTokens
from megalabel.network.vectors import query_side
from megalabel.progress import announced

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy import sparse

    from megalabel.data.dataset import Dataset, Split
    from megalabel.heads.answers import Answers
    from megalabel.heads.head import HeadSettings, Queries
    from megalabel.network.network import Network

__all__ = ["Fitted", "fit_heads", "fit_ngrams", "make_ngrams"]

COUNTS = "counts"
WORTH_SECONDS = 2.0  # a head that took less is not worth a checkpoint
SHORT = 20  # mean words per text; longer texts need no character n-grams


@dataclass(frozen=True)
class Fitted:
    """The fitted heads of a model.

    Args:
        counts: [L] training points of each label.
        heads: by name.
        ngrams: turns texts into sparse rows; None if no head reads them.
    """

    counts: NDArray[np.int64]
    heads: Mapping[str, FittedHead] = field(default_factory=dict)
    ngrams: SparseEncoder | None = None

    def answers(self, queries: Queries, live: Callable[[str], Live]) -> dict[str, Answers]:
        """Return the scores of each head for the queries over the current labels."""
        return {name: head.answers(queries, live(name)) for name, head in self.heads.items()}

    def grown(self, live: Callable[[str], Live]) -> Fitted:
        """Return the heads over all labels, with those changed after training merged in."""
        return replace(self, heads={name: head.grown(live(name)) for name, head in self.heads.items()})

    def save(self, folder: Path) -> None:
        """Write every part into its own folder."""
        write_part(folder / COUNTS, COUNTS, {"kind": COUNTS}, {COUNTS: self.counts})
        if self.ngrams is not None:
            self.ngrams.save(folder / NGRAMS)
        for name, head in self.heads.items():
            head.save(folder / name)

    @classmethod
    def load(cls, folder: Path, heads: Mapping[str, HeadSettings]) -> Fitted:
        """Read the fitted heads among these from the folder that :meth:`save` wrote."""
        fitted = {name: settings for name, settings in heads.items() if isinstance(settings, FittedSettings)}
        loaded = {name: settings.load(folder / name) for name, settings in fitted.items()}
        for name, settings in fitted.items():
            for key in type(settings).model_fields:
                if getattr(loaded[name], key, getattr(settings, key)) != getattr(settings, key):
                    raise DataError(f"{key} of the head {name!r} differs from the recipe", path=folder / name)
        _, arrays = read_part(folder / COUNTS, COUNTS, (), [COUNTS])
        reads = any(settings.reads_ngrams for settings in fitted.values())
        return cls(arrays[COUNTS], loaded, SparseEncoder.load(folder / NGRAMS) if reads else None)


def fit_heads(
    heads: Mapping[str, HeadSettings],
    ngrams: Mapping[str, Any],
    network: Network,
    data: Dataset,
    *,
    seed: int,
    say: Callable[[str], None],
    known: Mapping[str, FittedHead] | None = None,
    changed: Changed | None = None,
    keep: bool = False,
    checkpoints: Path | None = None,
) -> Fitted:
    """Fit the fitted heads among ``heads`` on the train rows of a data set without augmentation.

    The points of a label are counted before validation rows are held out: among labels with few points left in
    train, those with a validation point are over-represented.

    Args:
        heads: settings by name; dense heads are skipped.
        ngrams: options of :class:`~megalabel.encoders.SparseEncoder`.
        network: the trained network.
        data: the data set.
        seed: random seed.
        say: called with a line for each head that takes longer than two seconds.
        known: heads over the same labels, fitted on nearly the same rows, to start from.
        changed: with ``known``, how the rows differ from those.
        keep: whether the heads keep what another call may start from, if they are its ``known``.
        checkpoints: folder of heads fitted by the same call before it was killed: they are read from there, and heads
            that took long are saved there, each completely or not at all.
    """
    wanted = {name: settings for name, settings in heads.items() if isinstance(settings, FittedSettings)}
    encoder = None
    if any(settings.reads_ngrams for settings in wanted.values()):
        encoder = fit_ngrams(ngrams, data)
    source = _FitData(data, seed, network, encoder)
    fitted = {}
    for name, settings in wanted.items():
        saved = None if checkpoints is None else _saved(settings, checkpoints / name, say)
        if saved is not None:
            fitted[name] = saved if keep else saved.finished()
            continue
        begin = time.monotonic()
        with announced(f"fitting {name}", say):
            if known is None or changed is None:
                head = settings.fit(source)
            else:
                head = settings.refit(source, known[name], changed)
            fitted[name] = head if keep else head.finished()
        if checkpoints is not None and time.monotonic() - begin >= WORTH_SECONDS:
            make_folder(checkpoints)
            fitted[name].save(checkpoints / name)
    train = data.train if data.before is None else data.before.train
    counted = train.without(train.filter).targets
    counts = np.bincount(counted.indices, minlength=len(data.labels)).astype(np.int64)
    return Fitted(counts, fitted, encoder)


def _saved(settings: FittedSettings, folder: Path, say: Callable[[str], None]) -> FittedHead | None:
    """Return a head that was saved before the run was killed, or None; a damaged one is fitted again."""
    if not folder.exists():
        return None
    try:
        head = settings.load(folder)
    except MegalabelError as error:
        say(f"the head {folder.name} is fitted again: {error.what}")
        return None
    say(f"the head {folder.name} was fitted before")
    return head


def fit_ngrams(options: Mapping[str, Any], data: Dataset) -> SparseEncoder:
    """Return the encoder of n-grams, fitted on the texts of train and labels."""
    texts = data.train.texts
    words = sum(len(text.split()) for text in texts) / max(1, len(texts))
    return make_ngrams(options, words).fit([*texts, *data.labels.texts])


def make_ngrams(options: Mapping[str, Any], words: float) -> SparseEncoder:
    """Return the unfitted encoder of n-grams for texts of this mean number of words.

    By default, it has character n-grams only if texts are short, so that words alone say little.
    """
    return SparseEncoder(**{**({} if words <= SHORT else {"characters": 0}), **options})


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
        kind: TargetKind = "conditional" if settings.labels == "gandalf" else settings.labels
        known, limit = settings.known, settings.max_targets
        return gandalf(self.data, targets=kind, known=known, max_targets=limit, seed=self.seed).train

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
