"""Multi-label losses for ``SentenceTransformerTrainer``: several positives per query, no false negatives.

The swap, for someone who trains with ``MultipleNegativesRankingLoss``::

    from megalabel.integrations.sentence_transformers import MultiLabelLoss, training_rows

    rows = training_rows(data)                            # data: megalabel.Dataset
    loss = MultiLabelLoss(model, relevance=data)          # instead of MultipleNegativesRankingLoss(model)
    SentenceTransformerTrainer(model=model, train_dataset=rows, loss=loss).train()

A data set of plain (anchor, positive) texts works too, without ``training_rows`` and ``relevance``:
equal texts in a batch then count as the same text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn.functional import normalize

from megalabel.errors import DataError, MissingExtraError, SettingError
from megalabel.losses import DecoupledSoftmax, streamed
from megalabel.network import GradientCache
from megalabel.types import Targets

if TYPE_CHECKING:
    from collections.abc import Sequence

    import datasets
    from numpy.typing import NDArray

    from megalabel.data.dataset import Dataset
    from megalabel.types import Loss

__all__ = ["MultiLabelLoss", "training_rows"]


class MultiLabelLoss(nn.Module):
    """Train a SentenceTransformer with a multi-label loss, gradient-cached, on in-batch labels.

    The first text column is the query, every other column a label; the collator passes their
    ids in the column ``label``: one list per row, the query's id, then the id of each label
    in the order of the columns (:func:`training_rows` builds such rows). Each query and each
    label of the batch is encoded once, all queries are scored against all labels, and the
    targets are read from ``relevance``: a label of the batch is a positive of every query
    that has it, never a negative. Labels are compared by id, not by vector: with dropout, the
    same text has two different vectors.

    Without a ``label`` column, equal texts share an id, the second column is the positive of
    the first, and further columns are negatives, as for ``MultipleNegativesRankingLoss``; a
    positive of the query that occurs elsewhere in the batch is a positive too.

    Args:
        model: the SentenceTransformer, also the one inside ``DistributedDataParallel``; each
            process scores its own batch.
        loss: any loss of :mod:`megalabel.losses`; :class:`~megalabel.losses.DecoupledSoftmax` by default.
        relevance: relevance of all queries and labels: the data set given to :func:`training_rows`, whose
            filter pairs are masked, or a csr matrix [N, L] indexed by the ids.
        temperature: scores are divided by it; 0.05 is ``scale=20`` of sentence-transformers. A
            ``torch.nn.Parameter`` is learnt.
        chunk_size: texts whose activations are in memory at once (see :class:`~megalabel.network.GradientCache`).
        normalise: cosine when True, dot product otherwise.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss | None = None,
        *,
        relevance: Dataset | sparse.csr_matrix | None = None,
        temperature: float | nn.Parameter = 0.05,
        chunk_size: int = 32,
        normalise: bool = True,
    ) -> None:
        super().__init__()
        self.model = model
        self.loss = DecoupledSoftmax() if loss is None else loss
        self.relevance = relevance
        self.temperature = temperature
        self.chunk_size = chunk_size
        self.normalise = normalise
        self._matrices: tuple[sparse.csr_matrix, sparse.csr_matrix] | None = None

    def forward(self, sentence_features: Iterable[Mapping[str, Any]], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch in the form of the trainer: features per text column, ids [n, columns]."""
        columns = [_Column(features) for features in sentence_features]
        if len(columns) < 2:
            raise DataError("MultiLabelLoss needs two text columns, query and label", remedy="see training_rows()")
        ids = _ids_of_texts(columns) if labels is None else _checked(labels, columns)
        queries, query_ids = self._encode(columns[:1], ids[:1])
        pool, pool_ids = self._encode(columns[1:], ids[1:])
        targets, mask = self._targets(query_ids, pool_ids, ids, named=labels is not None)
        mask = None if mask is None else mask.to(queries.device)
        value: Tensor = streamed(
            self.loss, queries, pool, targets.to(queries.device), temperature=self.temperature, mask=mask
        )
        return value

    def _encode(self, columns: list[_Column], ids: list[NDArray[np.int64]]) -> tuple[Tensor, NDArray[np.int64]]:
        """Encode each id of the columns once; return vectors [n, d] and their ids [n]."""
        seen = np.empty(0, dtype=np.int64)
        vectors = []
        for column, names in zip(columns, ids, strict=True):
            new, rows = np.unique(names, return_index=True)
            fresh = ~np.isin(new, seen)
            rows = rows[fresh][np.argsort(column.lengths[rows[fresh]], kind="stable")]  # similar lengths share a chunk
            if len(rows):
                vectors.append(GradientCache(self.chunk_size).encode(self._embed, column.pick(rows)))
                seen = np.concatenate([seen, names[rows]])
        encoded = torch.cat(vectors)
        return (normalize(encoded, dim=1) if self.normalise else encoded), seen

    def _embed(self, features: dict[str, Any]) -> Tensor:
        """Run the model on a chunk, without the columns that are padding in all rows."""
        mask = features.get("attention_mask")
        if mask is not None and mask.dim() == 2:
            used = mask.any(0).nonzero()
            width = int(used.max()) + 1 if len(used) else mask.shape[1]
            features = {
                key: value[:, :width] if isinstance(value, Tensor) and value.shape[1:2] == mask.shape[1:] else value
                for key, value in features.items()
            }
        vectors: Tensor = self.model(features)["sentence_embedding"]
        return vectors

    def _targets(
        self, rows: NDArray[np.int64], cols: NDArray[np.int64], ids: list[NDArray[np.int64]], *, named: bool
    ) -> tuple[Targets, Tensor | None]:
        """Return the targets [B, P] of the batch and the mask of its filter pairs."""
        if self.relevance is None:
            if named and len(ids) > 2:
                raise SettingError("several labels per row, but not which are positive", remedy="give relevance=")
            return _pairs_as_targets(rows, cols, ids[0], ids[1]), None
        if not named:
            raise SettingError("relevance= needs a column 'label' with ids", remedy="use training_rows()")
        relevance, ignored = self._relevance(self.relevance)
        if rows.max() >= relevance.shape[0] or cols.max() >= relevance.shape[1] or min(rows.min(), cols.min()) < 0:
            raise DataError(f"ids up to query {rows.max()}, label {cols.max()} do not fit relevance {relevance.shape}")
        targets = relevance[rows][:, cols]
        if targets.nnz == 0:
            raise DataError(
                "no label of the batch is relevant to any of its queries", remedy="check the column 'label'"
            )
        masked = ignored[rows][:, cols]
        return Targets.from_csr(targets), torch.from_numpy(~masked.toarray()) if masked.nnz else None

    def _relevance(self, source: Dataset | sparse.csr_matrix) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
        """Return relevant and masked pairs, both [N, L]; built on first use."""
        if self._matrices is None:
            if sparse.issparse(source):
                relevance, pairs = source.tocsr(), np.empty((0, 2), dtype=np.int64)
            else:
                points = reduce(add, source.splits.values())
                relevance, pairs = points.targets, points.filter
            ones = np.ones(len(pairs), dtype=bool)
            self._matrices = relevance, sparse.csr_matrix((ones, (pairs[:, 0], pairs[:, 1])), shape=relevance.shape)
        return self._matrices

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings for the model card."""
        return {
            "loss": repr(self.loss),
            "temperature": float(torch.as_tensor(self.temperature).detach()),
            "chunk_size": self.chunk_size,
            "normalise": self.normalise,
        }


def training_rows(
    data: Dataset, *, split: str = "train", positives: int = 1, negatives: NDArray[np.int64] | None = None
) -> datasets.Dataset:
    """Return a data set for :class:`MultiLabelLoss` that holds ids and looks up texts when read.

    A row has the columns ``anchor``, ``positive_1`` ... ``positive_m``, then ``negative_1`` ... if
    ``negatives`` [N, n] holds label ids for every query (for example mined ones; relevant ones do
    no harm), and ``label`` with all ids. A query with more positives than ``positives`` has
    several rows; a short row is filled up with its other positives, which costs nothing, since
    the loss encodes each label once. Query ids continue from train to val and test, so that
    evaluation rows work with the same loss.

    Raises:
        MissingExtraError: the package ``datasets`` is not installed.
    """
    try:
        import datasets
    except ImportError:
        raise MissingExtraError("datasets", extra="hf", what="training with sentence-transformers") from None
    if positives < 1:
        raise SettingError(f"positives is {positives}", remedy="give at least 1")
    points = data.split(split)
    counts = np.diff(points.targets.indptr)
    groups = -(-counts // positives)  # rows per query
    queries = np.repeat(np.arange(len(points)), groups)
    first = np.concatenate([np.arange(n) for n in groups]) * positives if len(queries) else np.empty(0, dtype=np.int64)
    places = (first[:, None] + np.arange(positives)) % counts[queries][:, None]
    labels = points.targets.indices[points.targets.indptr[queries][:, None] + places]
    mined = np.empty((len(points), 0), dtype=np.int64) if negatives is None else np.asarray(negatives)
    ids = np.hstack([queries[:, None], labels, mined[queries]]).astype(np.int64)
    kinds = ["positive"] * positives + ["negative"] * mined.shape[1]
    names = ["anchor", *(f"{kind}_{kinds[:place].count(kind) + 1}" for place, kind in enumerate(kinds))]
    splits = list(data.splits)
    before = sum(len(data.splits[name]) for name in splits[: splits.index(split)])
    rows = datasets.Dataset.from_dict({"label": ids + np.array([before] + [0] * len(kinds))})
    return rows.with_transform(_Lookup(points.texts, before, data.labels.texts, names))


@dataclass(frozen=True)
class _Lookup:
    """Turns a batch of ids into a batch of texts and ids; a class, so that worker processes can receive it."""

    queries: Sequence[str]
    before: int  # id of the first query
    labels: Sequence[str]
    names: Sequence[str]

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        texts = {self.names[0]: [self.queries[row[0] - self.before] for row in batch["label"]]}
        for place, name in enumerate(self.names[1:], 1):
            texts[name] = [self.labels[row[place]] for row in batch["label"]]
        return {**texts, "label": batch["label"]}


class _Column:
    """The features of one text column, row by row."""

    def __init__(self, features: Mapping[str, Any]) -> None:
        self.features = features
        tensors = {key: value for key, value in features.items() if isinstance(value, Tensor) and value.dim() > 0}
        rows = {len(value) for value in tensors.values()}
        if len(rows) != 1:
            raise DataError(
                f"features {', '.join(tensors)} do not have one row per text",
                remedy="use a model with padded inputs, without flattening or static embeddings",
            )
        self.rows = rows.pop()
        mask = features.get("attention_mask")
        self.lengths = np.zeros(self.rows) if mask is None else mask.sum(1).cpu().numpy()

    def pick(self, rows: NDArray[np.int64]) -> dict[str, Any]:
        """Return the features of the given rows; values without rows are kept."""
        return {
            key: value[torch.from_numpy(rows).to(value.device)]
            if isinstance(value, Tensor) and value.dim() > 0
            else value
            for key, value in self.features.items()
        }

    def texts(self) -> list[tuple[int, ...]]:
        """Return the tokens of each row without padding."""
        if "input_ids" not in self.features:
            raise DataError("inputs without token ids cannot be compared", remedy="give ids in a column 'label'")
        tokens = self.features["input_ids"].tolist()
        mask = self.features.get("attention_mask")
        if mask is None:
            return [tuple(row) for row in tokens]
        return [
            tuple(token for token, real in zip(row, keep, strict=True) if real)
            for row, keep in zip(tokens, mask.tolist(), strict=True)
        ]


def _ids_of_texts(columns: list[_Column]) -> list[NDArray[np.int64]]:
    """Number the distinct texts: those of the first column, and those of all others together."""
    numbers: tuple[dict[tuple[int, ...], int], ...] = ({}, {})
    ids = []
    for place, column in enumerate(columns):
        number_of = numbers[min(place, 1)]
        ids.append(np.array([number_of.setdefault(text, len(number_of)) for text in column.texts()], dtype=np.int64))
    return ids


def _checked(labels: Tensor, columns: list[_Column]) -> list[NDArray[np.int64]]:
    """Return the ids of each column."""
    if labels.dim() != 2 or labels.shape[1] != len(columns) or labels.is_floating_point():
        each = f"shape {tuple(labels.shape[1:])}, {labels.dtype}"
        raise DataError(
            f"the column 'label' ({each}) does not name the texts of {len(columns)} columns",
            remedy="give a list of whole numbers: query id, then one label id per further column",
        )
    return list(labels.cpu().numpy().astype(np.int64).T)


def _pairs_as_targets(
    rows: NDArray[np.int64], cols: NDArray[np.int64], queries: NDArray[np.int64], positives: NDArray[np.int64]
) -> Targets:
    """Return targets of 1 for the pairs of the batch; rows and cols are the ids in the order of the scores."""
    row_of, col_of = {id_: i for i, id_ in enumerate(rows)}, {id_: i for i, id_ in enumerate(cols)}
    pairs = sorted({(row_of[query], col_of[label]) for query, label in zip(queries, positives, strict=True)})
    at = torch.tensor(pairs, dtype=torch.int64)
    return Targets(at[:, 0], at[:, 1], torch.ones(len(pairs)), (len(rows), len(cols)))
