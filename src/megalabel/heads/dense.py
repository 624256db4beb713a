"""What all dense heads share: the two sides of a score, projection, bias, temperature, normalisation."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
import torch
from pydantic import ConfigDict, Field, PositiveInt, model_validator
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import dropout, embedding, normalize, relu

from megalabel.heads.cost import HeadCost, dense_cost
from megalabel.heads.head import HeadSettings
from megalabel.losses.settings import LOSSES
from megalabel.settings import Dropout, PositiveFloat, Settings, one_of
from megalabel.types import LABELS

if TYPE_CHECKING:
    from megalabel.heads.cost import HeadWorkload
    from megalabel.heads.head import InitData, NewTexts
    from megalabel.heads.live import Part
    from megalabel.losses.settings import LossSettings

    OptionalLoss: TypeAlias = LossSettings | None
else:
    OptionalLoss = one_of(lambda: LOSSES, optional=True)

__all__ = [
    "CandidateSettings",
    "DenseHead",
    "DenseSettings",
    "Temperature",
    "TemperatureSettings",
    "embed_rows",
    "new_table",
    "unit_rows",
]

_MANY = 65_536  # rows from which on memory counts more than speed
_BLOCK = 16_384  # rows worked on at once
_NEAR_ZERO = 0.02  # size of a residual layer at the start


class TemperatureSettings(Settings):
    """What scores are divided by; heads that name the same ``share`` have one temperature between them."""

    value: PositiveFloat = 0.05
    learn: bool = False
    share: str | None = None


class CandidateSettings(Settings):
    """Candidates from the scores of another head in the same step.

    Each query is scored against the ``top`` labels of that head and its own positives. If that head scores
    groups of labels, the candidates are all labels of the ``top`` groups and of the groups of its positives.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_by_name=True, validate_by_alias=True)

    source: str = Field(alias="from")
    top: PositiveInt


class DenseSettings(HeadSettings):
    """Settings of all heads that are trained by steps: score = <query(h), label_l> / temperature + bias_l."""

    trained: ClassVar[bool] = True
    renamed: ClassVar[dict[str, str]] = {"tower": "kind", "start": "init"}

    encoder: str | None = None  # of the queries (and label texts); None is the first of the recipe
    layer: PositiveInt | None = None  # of a transformer, from 1; None is the output of the encoder
    space: str | None = None  # the label space it scores; None is the labels themselves
    candidates: CandidateSettings | None = None  # None: the batch decides
    dim: PositiveInt | None = None  # None keeps the encoder's
    projection: Literal["none", "linear", "tanh", "residual"] = "none"
    dropout: Dropout = 0.0  # of the projection
    query_matrix: bool = False
    normalise: bool = True
    search_normalise: bool | None = None  # None follows normalise
    bias: bool = False
    temperature: TemperatureSettings = TemperatureSettings()
    loss: OptionalLoss  # null: the head stays as it is initialised
    weight: PositiveFloat = 1.0  # of the loss

    @model_validator(mode="after")
    def _check_dense(self) -> Self:
        self.require(self.projection != "none", "dropout", "projection is none")
        self.require(self.projection not in ("none", "residual"), "dim", f"projection is {self.projection}")
        untrained = "loss is null, the head is not trained"
        self.require(self.loss is not None, "weight candidates dropout", untrained)
        self.require(self.loss is not None or self.bias, "temperature", untrained)
        if self.space is not None and self.reads_text:
            raise ValueError(f"groups of labels have no text: a head of kind {self.kind} scores the labels themselves")
        same = self.search_normalise is not None and self.search_normalise == self.normalise
        if same:
            raise ValueError("search_normalise has no effect: it is the same as normalise")
        if self.candidates is not None and getattr(self.loss, "symmetric", None) is not None and self.space:
            raise ValueError("loss.symmetric pairs labels, not groups of labels: leave space or symmetric out")
        return self

    @property
    def label_space(self) -> str:
        """The name of the label space it scores."""
        return self.space or LABELS

    def cost(self, workload: HeadWorkload) -> HeadCost:
        """Return the weights of projection, query matrix, table and bias, and what a step keeps of label vectors."""
        return dense_cost(self, workload.encoder_dim(self), all_labels=workload.all_labels)

    def build(
        self, *, size: int, encoder_dim: int, own: range | None = None, temperature: Temperature | None = None
    ) -> DenseHead:
        """Return the head at its start.

        Args:
            size: labels in its space.
            encoder_dim: size of encoder vectors.
            own: the labels whose rows this process holds; None is all of them.
            temperature: a temperature shared with other heads.
        """
        raise NotImplementedError


class DenseHead(nn.Module):
    """Scores queries and labels from encoder vectors: <query(h), label_l> / temperature + bias_l.

    A kind says where label vectors come from: :meth:`label_rows` in a step, :meth:`init_table` before the first
    step, :meth:`new_vectors` for a label nobody trained on.

    With ``own``, the process holds the rows of these labels only, and a pool is numbered from the first of them.

    >>> from megalabel.heads.free import FreeSettings
    >>> head = FreeSettings(dim=4, projection="linear", loss="bce").build(size=5, encoder_dim=8)
    >>> vectors, bias = head.labels(torch.tensor([1, 3]), None)
    >>> head.query(torch.randn(2, 8)).shape, vectors.shape, bias
    (torch.Size([2, 4]), torch.Size([2, 4]), None)
    """

    table: nn.Parameter | None  # [own labels, d], for kinds with a free vector per label

    def __init__(
        self,
        settings: DenseSettings,
        *,
        size: int,
        encoder_dim: int,
        own: range | None = None,
        temperature: Temperature | None = None,
    ) -> None:
        super().__init__()
        self.settings, self.size, self.own = settings, size, range(size) if own is None else own
        self.dim = settings.dim or encoder_dim
        self.register_parameter("table", None)
        self.normalise = settings.normalise
        self.search_normalise = settings.normalise if settings.search_normalise is None else settings.search_normalise
        self.projection = _projection(settings.projection, encoder_dim, self.dim, settings.dropout)
        self.query_matrix = nn.Parameter(torch.eye(self.dim)) if settings.query_matrix else None
        self.bias = nn.Parameter(torch.zeros(len(self.own))) if settings.bias else None
        self.temperature = Temperature.of(settings.temperature) if temperature is None else temperature
        self.loss = None if settings.loss is None else settings.loss.build()

    @property
    def needs_text(self) -> bool:
        """Whether label texts must be encoded to score labels."""
        return self.settings.reads_text

    @property
    def label_encoder(self) -> str | None:
        """The encoder of label texts; None is the encoder of the queries."""
        return None

    def support(self, pool: Tensor | None) -> Tensor | None:
        """Return the label ids whose text is needed to score a pool, ascending; None stands for every label."""
        return pool

    def query(self, encoded: Tensor, *, search: bool = False) -> Tensor:
        """Return the query side [B, d] of encoder vectors [B, encoder_dim]."""
        projected: Tensor = self.projection(encoded)
        return self._scaled(projected if self.query_matrix is None else projected @ self.query_matrix, search)

    def labels(
        self, pool: Tensor | None, encoded: Tensor | None, *, search: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Return label vectors [P, d] and bias [P] or None; ``pool`` None is every label.

        ``encoded`` are the texts of ``support(pool)``; None for a head that reads none.
        """
        projected = self.projection(encoded) if self.needs_text and encoded is not None else None
        vectors = self._scaled(self.label_rows(pool, projected), search)
        if self.bias is None:
            return vectors, None
        return vectors, self.bias if pool is None else self.bias.index_select(0, pool)

    @abstractmethod
    def label_rows(self, pool: Tensor | None, projected: Tensor | None) -> Tensor:
        """Return label vectors [P, d] before normalisation, given the projected texts of ``support(pool)``."""

    @torch.no_grad()
    def init(self, data: InitData) -> None:
        """Set table and bias before the first step.

        A bias starts where the label's mean score over the train points is the log of its frequency,
        log((n_l + 1) / (N + 1)), n_l the sum of its relevance: a pool of thousands of negatives then begins with
        a loss of a few units, and an adaptive optimiser is not misled by its first steps.
        """
        mean = self.init_table(data)
        if self.bias is None:
            return
        if mean is None:
            mean = self.add_points(data, None)
        self.bias.zero_()
        scores = data.label_vectors() @ mean.to(data.label_vectors().device)
        targets, own = data.targets, data.own
        counts = np.bincount(targets.indices, targets.data, minlength=self.size)[own.start : own.stop]
        wanted = torch.from_numpy(np.log((counts + 1) / (targets.shape[0] + 1))).to(scores)
        self.bias.copy_(wanted - scores)

    def init_table(self, data: InitData) -> Tensor | None:
        """Set the free vectors, where there are any; return the mean query vector if it was computed on the way."""
        return None

    def add_points(self, data: InitData, table: Tensor | None) -> Tensor:
        """Put the relevance-weighted mean of each label's points into a table; return the mean of all points.

        Block by block, so the vectors of all points are never held.
        """
        sums = None if table is None else table.detach().cpu().numpy()
        if sums is not None:
            sums[:] = 0
        total: Tensor | None = None
        for rows, vectors in data.points():
            if sums is not None:
                by_label = data.targets[rows].T.tocsr()[data.own.start : data.own.stop]
                present = np.flatnonzero(np.diff(by_label.indptr))  # few of millions of labels have a point in a block
                points = vectors.cpu().numpy()
                for start in range(0, len(present), 4 * _BLOCK):
                    block = present[start : start + 4 * _BLOCK]
                    sums[block] += by_label[block] @ points
            total = vectors.sum(dim=0) + (torch.zeros(()).to(vectors) if total is None else total)
        if table is not None and sums is not None:
            weights = self.point_weights(data)
            sums *= np.divide(1.0, weights, out=np.zeros_like(weights), where=weights > 0)[:, None]
            table.copy_(torch.from_numpy(sums))
        assert total is not None, "there are no train points"
        return total / data.targets.shape[0]

    @staticmethod
    def point_weights(data: InitData) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Return the sum of the relevance of each own label."""
        weights = np.asarray(data.targets.sum(axis=0), dtype=np.float32).ravel()
        return weights[data.own.start : data.own.stop]

    @torch.no_grad()
    def new_rows(self, new: NewTexts) -> dict[str, Part]:
        """Return what is kept of added or renamed labels: ``vectors`` to search, ``bias``, and parts of the kind."""
        vectors, parts = self.new_vectors(new)
        scaled = normalize(vectors, dim=1) if self.search_normalise else vectors
        kept: dict[str, Part] = {"vectors": scaled, **parts}
        if self.bias is not None:
            if new.added:  # as the rarest labels have it
                kept["bias"] = self.bias[new.rare].median().expand(len(new.texts)).clone()
            else:
                kept["bias"] = self.bias[torch.from_numpy(new.ids).to(self.bias.device)]
        return kept

    @abstractmethod
    def new_vectors(self, new: NewTexts) -> tuple[Tensor, dict[str, Part]]:
        """Return the vectors of added or renamed labels before normalisation, and further parts to keep."""

    def row_parameters(self) -> dict[str, str]:
        """Return the parameters with a row per label, by the part of :meth:`new_rows` that goes into them."""
        names = {"free": "table", "bias": "bias"}
        return {part: name for part, name in names.items() if getattr(self, name) is not None}

    def _scaled(self, vectors: Tensor, search: bool) -> Tensor:
        if not (self.search_normalise if search else self.normalise):
            return vectors
        return normalize(vectors, dim=1) if len(vectors) <= _MANY else unit_rows(vectors)


class Temperature(nn.Module):
    """A positive number, learnt on a log scale if asked to, bounded below so it cannot blow up.

    UniDEC learns one inverse temperature for both of its heads, started at 18 (Kharbanda et al. 2024); DEXML
    keeps 0.05 fixed. As in CLIP, the learnt scale is bounded: the temperature never falls below ``minimum``.

    >>> round(Temperature(0.05)().item(), 4)
    0.05
    """

    def __init__(self, value: float, *, learn: bool = False, minimum: float = 0.01) -> None:
        super().__init__()
        self.value, self.learn, self.minimum = value, learn, minimum
        start = torch.tensor(math.log(value))
        self.log_value: Tensor
        if learn:
            self.log_value = nn.Parameter(start)
        else:
            self.register_buffer("log_value", start, persistent=False)

    @classmethod
    def of(cls, settings: TemperatureSettings) -> Temperature:
        """Return the temperature a recipe asks for."""
        return cls(settings.value, learn=settings.learn)

    def forward(self) -> Tensor:
        """Return the temperature, a scalar tensor."""
        return self.log_value.clamp(min=math.log(self.minimum)).exp()


def _projection(kind: str, encoder_dim: int, dim: int, rate: float) -> nn.Module:
    """Return the projection of queries and label texts.

    ``linear`` (Linear, Dropout) and ``tanh`` (Linear, Tanh, Dropout) are g2 and g1 of UniDEC (Kharbanda et al.
    2024); ``residual`` is the fine stage of DeepXML (Dahiya et al., WSDM 2021).
    """
    if kind == "none":
        return nn.Identity()
    if kind == "residual":
        return _Residual(dim, rate)
    tanh = [nn.Tanh()] if kind == "tanh" else []
    return nn.Sequential(nn.Linear(encoder_dim, dim), *tanh, nn.Dropout(rate))


class _Residual(nn.Module):
    """h + dropout(relu(W h)), with W near zero at the start: for features that are good already."""

    def __init__(self, dim: int, rate: float) -> None:
        super().__init__()
        self.layer = nn.Linear(dim, dim, bias=False)
        nn.init.normal_(self.layer.weight, std=_NEAR_ZERO * dim**-0.5)
        self.drop = nn.Dropout(rate)

    def forward(self, encoded: Tensor) -> Tensor:
        output: Tensor = encoded + self.drop(relu(self.layer(encoded)))
        return output


# ------------------------------------------------------------------ tables with a row per label


def new_table(size: int, dim: int, own: range | None) -> nn.Parameter:
    """Return a table with Xavier-uniform rows; with ``own``, those rows of the whole table and no others."""
    table = nn.Parameter(torch.empty(size if own is None else len(own), dim))
    if own is None:
        nn.init.xavier_uniform_(table)
        return table
    bound = math.sqrt(3.0) * math.sqrt(2.0 / (size + dim))  # to the last bit
    with torch.no_grad():
        for start in range(0, size, _BLOCK):  # rows of other processes are drawn and dropped
            rows = table.new_empty(min(_BLOCK, size - start), dim).uniform_(-bound, bound)
            first, last = max(start, own.start), min(start + len(rows), own.stop)
            if first < last:
                table[first - own.start : last - own.start] = rows[first - start : last - start]
    return table


def embed_rows(table: Tensor, pool: Tensor | None, rate: float, *, training: bool) -> Tensor:
    """Return the rows of a pool with a sparse gradient, or all rows with a dense one, after dropout."""
    rows = table if pool is None else embedding(pool, table, sparse=True)
    return dropout(rows, rate, training) if rate else rows


def unit_rows(vectors: Tensor) -> Tensor:
    r"""Return y [n, d], :math:`y_i = x_i / |x_i|`, as ``torch.nn.functional.normalize`` does, for millions of rows.

    The gradient, :math:`(g_i - y_i \langle y_i, g_i \rangle) / |x_i|`, is computed a block of rows at a time:
    beside x there are y, g and the result, where plain torch holds three more tensors of that size.

    >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    unit: Tensor = _UnitRows.apply(vectors)  # type: ignore[no-untyped-call]
    return unit


class _UnitRows(Function):
    @staticmethod
    def forward(ctx: Any, vectors: Tensor) -> Tensor:
        lengths: Tensor = torch.linalg.vector_norm(vectors, dim=1, keepdim=True).clamp_min_(1e-12)
        unit = vectors / lengths
        ctx.save_for_backward(unit, lengths)
        return unit

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        unit, lengths = ctx.saved_tensors
        out: Tensor = torch.empty_like(gradient)
        for start in range(0, len(unit), _BLOCK):
            rows = slice(start, start + _BLOCK)
            along = torch.linalg.vecdot(unit[rows], gradient[rows]).unsqueeze(1)
            torch.sub(gradient[rows], unit[rows] * along, out=out[rows]).div_(lengths[rows])
        return out
