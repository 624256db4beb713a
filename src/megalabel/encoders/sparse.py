"""Texts as sparse rows: hashed words, pairs of words and character n-grams, weighted by tf-idf."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np
from scipy import sparse

from megalabel.encoders._arrays import read_part, write_part
from megalabel.encoders._features import Features
from megalabel.errors import DataError, SettingError
from megalabel.progress import progress
from megalabel.types import Tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike

    from numpy.typing import NDArray

__all__ = ["SparseEncoder"]

_Counts: TypeAlias = "tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]"
_CHUNK = 4_096  # texts at a time
_KINDS = ("words", "bigrams", "characters")


class SparseEncoder:
    r"""Encode a text as a sparse row of length 1, each feature weighted by tf-idf.

    .. math::
        x_t \propto c_{\text{kind}(t)} (1 + \log n_{tx})
        \frac{1 + \log((n + 1) / (n_t + 1))}{1 + \log(n + 1)}

    with n_tx how often text x has feature t, n_t the number of texts of ``fit`` with it, out
    of n, and c the weight of its kind (Salton and Buckley 1988, "Term-weighting approaches in
    automatic text retrieval"). Features are whole words, pairs of neighbouring words and
    character n-grams of words, all in lower case and hashed, so no vocabulary is stored
    (Weinberger et al., ICML 2009). It is fitted by counting; nothing is trained.

    Args:
        words, bigrams, characters: columns of whole words, word pairs and n-grams; a power of
            two, 0 leaves them out. Features with the same column count as one.
        ngrams: lengths of the character n-grams.
        weights: c of words, bigrams and characters, in this order.
        split: where words end, ``"scripts"`` or ``"spaces"``, as of :class:`megalabel.encoders.BagEncoder`.
        sublinear: take 1 + log n_tx as above; n_tx itself otherwise.
        min_df: ignore features that occur in fewer texts of ``fit``.

    >>> encoder = SparseEncoder(words=256, bigrams=256, characters=0).fit(["red shoe", "a red shoe", "blue hat"])
    >>> rows = encoder.encode(["red shoe", "blue shoe", ""])
    >>> rows.shape, rows.getnnz(axis=1).tolist()
    ((3, 512), [3, 2, 0])
    >>> bool(rows[0] @ rows[1].T > 0)
    True
    """

    kind: ClassVar[str] = "sparse"

    def __init__(
        self,
        *,
        words: int = 2**18,
        bigrams: int = 2**20,
        characters: int = 2**20,
        ngrams: Sequence[int] = (3, 4, 5),
        weights: Sequence[float] = (1.0, 1.0, 0.5),
        split: str = "scripts",
        sublinear: bool = True,
        min_df: int = 1,
    ) -> None:
        self.words, self.bigrams, self.characters = words, bigrams, characters
        self.ngrams, self.weights = list(ngrams), list(weights)
        self.split, self.sublinear, self.min_df = split, sublinear, min_df
        self.idf_: NDArray[np.float32] | None = None  # [columns], 0 for a feature left out
        self._check()
        self.features = Features(
            None, words=words, bigrams=bigrams, characters=characters, ngrams=self.ngrams, split=split
        )

    @property
    def columns(self) -> int:
        """Number of columns F of the rows."""
        return self.features.rows

    def tokenise(self, texts: Sequence[str]) -> Tokens:
        """Return the features of the texts, for texts that are encoded more than once."""
        return self.features.tokenise(texts)

    def fingerprint(self) -> str:
        """Return a hash of everything the features of a text depend on."""
        return self.features.fingerprint()

    def fit(self, texts: Sequence[str] | Tokens) -> Self:
        """Count the texts with each feature; pass the texts of train and labels together."""
        if len(texts) == 0:
            raise DataError("there are no texts to count features in")
        seen = np.zeros(self.columns, dtype=np.int64)
        for _, features, _ in self._counts(texts, "counting features"):
            seen += np.bincount(features, minlength=self.columns)
        n = len(texts)
        weights = (1 + np.log((n + 1) / (seen + 1))) / (1 + np.log(n + 1))
        weights *= np.repeat(self.weights, [getattr(self, kind) for kind in _KINDS])
        weights[seen < self.min_df] = 0
        self.idf_ = weights.astype(np.float32)
        return self

    def encode(self, texts: Sequence[str] | Tokens) -> sparse.csr_matrix:
        """Return rows [n, columns] float32 of length 1, columns sorted; a text without features gives an empty one."""
        if self.idf_ is None:
            raise SettingError("the features have no weights yet", remedy="call fit with texts of train and labels")
        parts = [self._weigh(counts, self.idf_) for counts in self._counts(texts, "encoding")]
        return parts[0] if len(parts) == 1 else sparse.csr_matrix(sparse.vstack(parts, format="csr"))

    def config(self) -> dict[str, Any]:
        """Return ``kind`` and the arguments of the constructor, ready for JSON."""
        return {"kind": self.kind} | {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def save(self, folder: str | PathLike[str]) -> None:
        """Write a folder for ``load``, replacing an older one."""
        if self.idf_ is None:
            raise SettingError("the features have no weights yet", remedy="call fit before save")
        write_part(folder, self.kind, self.config(), {"idf": self.idf_})

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Self:
        """Return the encoder that ``save`` wrote."""
        settings, arrays = read_part(folder, cls.kind, inspect.signature(cls).parameters, ["idf"])
        encoder = cls(**{"split": "spaces"} | settings)  # a model that is older than this setting
        if arrays["idf"].shape != (encoder.columns,) or arrays["idf"].dtype != np.float32:
            remedy = "the settings must be those the weights were made with"
            raise DataError(f"idf is {arrays['idf'].shape}, not [{encoder.columns}]", path=folder, remedy=remedy)
        encoder.idf_ = arrays["idf"]
        return encoder

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.config().items() if name != "kind")
        return f"SparseEncoder({arguments})"

    def _counts(self, texts: Sequence[str] | Tokens, what: str) -> Iterator[_Counts]:
        """Yield how often each text of a chunk has each feature: indptr, features ascending in a text, counts."""
        from megalabel.encoders._counts import count_features

        with progress(what, total=len(texts), unit="texts") as step:
            for start in range(0, max(1, len(texts)), _CHUNK):  # without texts, one empty chunk
                stop = min(start + _CHUNK, len(texts))
                if isinstance(texts, Tokens):
                    tokens = texts.take(np.arange(start, stop))
                else:
                    tokens = self.features.tokenise(texts if len(texts) <= _CHUNK else texts[start:stop])
                indptr, features, counts, _ = count_features(np.asarray(tokens.ids), np.asarray(tokens.offsets))
                yield indptr, features, counts
                step(stop - start)

    def _weigh(self, counts: _Counts, idf: NDArray[np.float32]) -> sparse.csr_matrix:
        """Turn counts into weights of length 1."""
        indptr, features, values = counts
        if self.sublinear:
            values = 1 + np.log(values)
        values = values * idf[features]
        used = values != 0
        if not used.all():
            indptr = np.concatenate([[0], np.cumsum(used)]).astype(np.int32)[indptr]
            features, values = features[used], values[used]
        rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        lengths = np.sqrt(np.bincount(rows, weights=values.astype(np.float64) ** 2, minlength=len(indptr) - 1))
        parts = (values / lengths[rows]).astype(np.float32), features, indptr
        weighed = sparse.csr_matrix(parts, shape=(len(indptr) - 1, self.columns))
        weighed.has_canonical_format = True  # as counted; a check would take longer than all this
        return weighed

    def _check(self) -> None:
        for name in _KINDS:
            size = getattr(self, name)
            if size < 0 or size & (size - 1):
                near = 1 << max(0, size - 1).bit_length()
                raise SettingError(
                    f"{name} is {size}", remedy=f"give a power of two such as {near}, or 0 to leave them out"
                )
        if self.words + self.bigrams + self.characters == 0:
            raise SettingError("there are no features", remedy="give words, bigrams or characters a size")
        if self.characters and (not self.ngrams or min(self.ngrams) < 1):
            raise SettingError(f"ngrams is {self.ngrams}", remedy="give lengths such as [3, 4, 5], or characters: 0")
        if len(self.weights) != len(_KINDS) or not all(0 < weight < np.inf for weight in self.weights):
            remedy = "give three numbers above 0, of words, bigrams and characters"
            raise SettingError(f"weights is {self.weights}", remedy=remedy)
        if self.min_df < 1:
            raise SettingError(f"min_df must be at least 1, not {self.min_df}")
