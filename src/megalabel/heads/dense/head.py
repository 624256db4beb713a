"""What all dense heads share: the two sides of a score, projection, bias, temperature, normalisation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
import torch
from pydantic import PositiveInt, model_validator
from torch import Tensor, nn
from torch.nn.functional import dropout, logsigmoid, normalize

from megalabel.heads.cost import HeadCost, dense_cost
from megalabel.heads.dense.candidates import CandidateSettings
from megalabel.heads.dense.children import Children
from megalabel.heads.dense.projections import make_projection, unit_rows
from megalabel.heads.dense.tables import BLOCK, HALVES
from megalabel.heads.dense.temperature import Temperature, TemperatureSettings
from megalabel.heads.head import HeadSettings
from megalabel.losses.settings import LOSSES
from megalabel.settings import Dropout, NonNegativeInt, PositiveFloat, one_of
from megalabel.types import LABELS

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from megalabel.heads.cost import HeadWorkload
    from megalabel.heads.head import InitData, NewTexts, TrainTexts
    from megalabel.heads.live import Part
    from megalabel.losses.settings import LossSettings

    OptionalLoss: TypeAlias = LossSettings | None
else:
    OptionalLoss = one_of(lambda: LOSSES, optional=True)

__all__ = ["DenseHead", "DenseSettings", "LabelTextSettings", "Points"]


class DenseSettings(HeadSettings):
    """Settings of all heads that are trained by steps: score = <query(h), label_l> / temperature + bias_l."""

    trained: ClassVar[bool] = True
    reads_neighbours: ClassVar[bool] = False  # a label's vector is made of more than its own text and row
    reads_paths: ClassVar[bool] = False  # a score depends on how the head that proposes a label scores its groups
    reads_points: ClassVar[bool] = False  # texts of train points are encoded to score labels
    encoder_keys: ClassVar[tuple[str, ...]] = ("encoder",)  # settings that name an encoder
    noise_keys: ClassVar[tuple[str, ...]] = ("dropout", "query_dropout")  # settings without effect on a frozen head
    renamed: ClassVar[dict[str, str]] = {"tower": "kind", "start": "init"}

    encoder: str | None = None  # of the queries (and label texts); None is the first of the recipe
    layer: PositiveInt | tuple[PositiveInt, ...] | None = (
        None  # of a transformer; several: their mean; None: its output
    )
    space: str | None = None  # the label space it scores; None is the labels themselves
    candidates: CandidateSettings | None = None  # None: the batch decides
    dim: PositiveInt | None = None  # None keeps the encoder's
    projection: Literal[
        "none", "linear", "tanh", "layer_norm", "residual", "residual_identity", "gated_residual", "relu_residual",
        "gelu_residual",
    ] = "none"  # fmt: skip
    dropout: Dropout = 0.0  # of the projection
    query_dropout: Dropout = 0.0  # of the encoder's vectors of queries
    query_matrix: bool = False
    normalise: bool = True
    search_normalise: bool | None = None  # None follows normalise
    bias: bool = False
    temperature: TemperatureSettings = TemperatureSettings()
    loss: OptionalLoss  # null: the head keeps its initial weights
    weight: PositiveFloat = 1.0  # of the loss
    detach_epochs: NonNegativeInt = 0  # first epochs in which its loss does not train the encoders

    @model_validator(mode="after")
    def _check_dense(self) -> Self:
        self.require(self.projection != "none", "dropout", "projection is none")
        same_size = self.projection == "none" or "residual" in self.projection
        self.require(not same_size, "dim", f"projection is {self.projection}")
        untrained = "loss is null, the head is not trained"
        self.require(
            self.loss is not None, "weight candidates dropout query_matrix query_dropout detach_epochs", untrained
        )
        self.require(self.loss is not None, "search_normalise", "loss is null, so normalise applies to search only")
        self.require(self.loss is not None or self.bias, "temperature", untrained)
        if self.loss is None and self.temperature.learn:
            raise ValueError(f"temperature.learn has no effect: {untrained}")
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

    @property
    def has_matrix(self) -> bool:
        """Whether it learns a matrix besides its table, so that weight decay applies to something."""
        return self.projection != "none" or self.query_matrix

    @property
    def has_weights(self) -> bool:
        """Whether it learns anything besides its table."""
        return self.has_matrix or self.bias or self.temperature.learn

    @property
    def text_only(self) -> bool:
        """Whether the vector of a label is its encoded text and nothing else."""
        return super().text_only and not self.reads_neighbours

    @property
    def projects_search(self) -> bool:
        """Whether the projection applies in search too, not in training alone."""
        return True

    @property
    def centroid_weight(self) -> float:
        """Weight of a second loss whose queries are centroids; 0 if there is none."""
        return 0.0

    def query_encoder(self, default: str) -> str:
        """Return the encoder of queries; ``default`` is the first of the recipe."""
        return self.encoder or default

    def label_text_encoder(self, default: str) -> str:
        """Return the encoder of label texts: that of queries, unless the kind has another."""
        return self.query_encoder(default)

    def encoders_read(self, default: str) -> set[str]:
        """Return the encoders of queries and label texts; ``default`` is the first of the recipe."""
        return {self.query_encoder(default), self.label_text_encoder(default)}

    def learns(self, name: str, frozen: Collection[str], default: str) -> bool:
        """Return whether its loss changes anything: the head, or an encoder it reads, has weights and is not frozen."""
        own = name not in frozen and (self.has_table or self.has_weights)
        return self.loss is not None and (own or not self.encoders_read(default) <= set(frozen))

    def cost(self, workload: HeadWorkload) -> HeadCost:
        """Return the weights of the head, and the tensors of label vectors that a step keeps."""
        return dense_cost(self, workload.encoder_dim(self), all_labels=workload.all_labels)

    def build(
        self, *, size: int, encoder_dim: int, shard: range | None = None, temperature: Temperature | None = None
    ) -> DenseHead:
        """Return the untrained head.

        Args:
            size: labels in its space.
            encoder_dim: size of encoder vectors.
            shard: the labels whose rows this process holds; None means all.
            temperature: a temperature shared with other heads.
        """
        raise NotImplementedError


class LabelTextSettings(DenseSettings):
    """Settings of heads that read label texts, optionally with an encoder of their own."""

    reads_text: ClassVar[bool] = True
    encoder_keys: ClassVar[tuple[str, ...]] = ("encoder", "label_encoder")

    label_encoder: str | None = None  # a second encoder for label texts; None ties both towers

    def label_text_encoder(self, default: str) -> str:
        """Return the encoder of label texts."""
        return self.label_encoder or self.query_encoder(default)


@dataclass(frozen=True)
class Points:
    """Train points that label vectors of a step are made of."""

    ids: Tensor  # [U] ascending
    encoded: Tensor  # [U, encoder_dim]


class DenseHead(nn.Module):
    """Scores queries and labels from encoder vectors: <query(h), label_l> / temperature + bias_l.

    A kind defines where label vectors come from: :meth:`label_rows` in a step, :meth:`init_table` before the first
    step, :meth:`new_vectors` for a label that was not trained.

    With ``shard``, the process holds the rows of these labels only, and the ids of a pool count from the first one.

    >>> from megalabel.heads.free import FreeSettings
    >>> head = FreeSettings(dim=4, projection="linear", loss="bce").build(size=5, encoder_dim=8)
    >>> vectors, bias = head.labels(torch.tensor([1, 3]), None)
    >>> head.query(torch.randn(2, 8)).shape, vectors.shape, bias
    (torch.Size([2, 4]), torch.Size([2, 4]), None)
    """

    table: nn.Parameter | None  # [labels of the shard, d], for kinds with a free vector per label

    def __init__(
        self,
        settings: DenseSettings,
        *,
        size: int,
        encoder_dim: int,
        shard: range | None = None,
        temperature: Temperature | None = None,
    ) -> None:
        super().__init__()
        self.settings, self.size, self.shard = settings, size, range(size) if shard is None else shard
        self.dim = settings.dim or encoder_dim
        self.register_parameter("table", None)
        self.normalise = settings.normalise
        self.search_normalise = settings.normalise if settings.search_normalise is None else settings.search_normalise
        self.projection = make_projection(settings.projection, encoder_dim, self.dim, settings.dropout)
        self.query_matrix = nn.Parameter(torch.eye(self.dim)) if settings.query_matrix else None
        self.bias = nn.Parameter(torch.zeros(len(self.shard))) if settings.bias else None
        self.temperature = Temperature.of(settings.temperature) if temperature is None else temperature
        self.loss = None if settings.loss is None else settings.loss.build()

    @property
    def needs_text(self) -> bool:
        """Whether label texts must be encoded to score labels."""
        return self.settings.reads_text

    def support(self, pool: Tensor | None) -> Tensor | None:
        """Return the label ids whose text is needed to score a pool, ascending; None means every label."""
        return pool

    def attach(self, targets: csr_matrix, seed: int) -> None:
        """Read the relevance [N, size] of the train points; called before the first step, if it reads neighbours."""

    def points(self, pool: Tensor | None, batch: Tensor) -> Tensor | None:
        """Return the train points whose texts are needed to score a pool, ascending; None if none are.

        ``batch`` are the train points of the step, whose labels must not be known from themselves.
        """
        return None

    def after_epoch(self, texts: TrainTexts) -> None:
        """Update what the head stores of neighbours; called after each epoch, if it reads neighbours."""

    def centroids(self, encoded: Tensor, rows: Tensor) -> Tensor:
        """Return queries [B, d] that are each the sum of a point, by its encoder vector, and of a label's row."""
        return self._scaled(self._query_rows(encoded, search=False) + rows, search=False)

    def query(self, encoded: Tensor, *, search: bool = False) -> Tensor:
        """Return the query vectors [B, d] of encoder vectors [B, encoder_dim]."""
        return self._scaled(self._query_rows(encoded, search), search)

    def _query_rows(self, encoded: Tensor, search: bool) -> Tensor:
        """Return the query vectors before normalisation."""
        if self.settings.query_dropout and not search:
            encoded = dropout(encoded, self.settings.query_dropout, self.training)
        projected = self.project(encoded, search=search)
        return projected if self.query_matrix is None else projected @ self.query_matrix

    def project(self, encoded: Tensor, *, search: bool = False) -> Tensor:
        """Return encoder vectors [n, encoder_dim] after the projection [n, d]."""
        projected: Tensor = self.projection(encoded)
        return projected

    def log_probabilities(self, scores: Tensor) -> Tensor:
        """Return the log of the probability that each score [B, n] stands for: of a label to be relevant."""
        return logsigmoid(scores) if self.settings.loss is None else self.settings.loss.log_probabilities(scores)

    def reached_from(self, relation: csr_matrix) -> Children:
        """Return how the labels it scores are reached from those of a coarser head, given which belong to which."""
        return Children.of(relation)

    def project_labels(self, encoded: Tensor, *, search: bool = False) -> Tensor:
        """Return encoded label texts [n, encoder_dim] after their projection [n, d]: that of queries or an own one."""
        return self.project(encoded, search=search)

    def of_texts(self, encoded: Tensor) -> Tensor:
        """Return the vectors [n, d], as searched, of labels of which nothing is known but their encoded texts."""
        return self._scaled(self.project_labels(encoded, search=True), search=True)

    def labels(
        self, pool: Tensor | None, encoded: Tensor | None, *, points: Points | None = None, search: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Return label vectors [P, d] and bias [P] or None; ``pool`` None is every label.

        ``encoded`` are the encoded texts of ``support(pool)``, None for a head that reads no texts; ``points`` are
        the train points of :meth:`points`, in a step.
        """
        vectors = self._scaled(self.rows(pool, encoded, points=points, search=search), search)
        if self.bias is None:
            return vectors, None
        return vectors, self.bias if pool is None else self.bias.index_select(0, pool)

    def rows(
        self, pool: Tensor | None, encoded: Tensor | None, *, points: Points | None = None, search: bool = False
    ) -> Tensor:
        """Return label vectors before normalisation; those of a half-precision table stay so only as they are."""
        projected = self.project_labels(encoded, search=search) if self.needs_text and encoded is not None else None
        rows = self.label_rows(pool, projected)
        as_held = pool is None and not search and not self.normalise
        return rows if rows.dtype not in HALVES or as_held else rows.float()

    def label_rows(self, pool: Tensor | None, projected: Tensor | None) -> Tensor:
        """Return label vectors [P, d] before normalisation, given the projected texts of ``support(pool)``.

        Those of the texts themselves, unless the kind has others.
        """
        if projected is None:
            raise TypeError(f"a head of kind {self.settings.kind} needs encoded label texts")
        return projected

    @torch.no_grad()
    def init(self, data: InitData) -> None:
        """Set table and bias before the first step.

        The bias is set so that the mean score of the label over the train points is what the loss begins with: the
        log of its frequency, log((n_l + 1) / (N + 1)), with n_l the sum of its relevance, or minus the margin of a
        squared hinge. The loss then starts at a few units even with thousands of negatives, and does not mislead an
        adaptive optimiser in its first steps.
        """
        mean = self.init_table(data)
        if self.bias is None:
            return
        if mean is None:
            mean = data.mean_point()
        self.bias.zero_()
        scores = data.label_vectors() @ mean.to(data.label_vectors().device)
        targets, shard = data.targets, data.shard
        counts = np.bincount(targets.indices, targets.data, minlength=self.size)[shard.start : shard.stop]
        shares = (counts + 1) / (targets.shape[0] + 1)
        first = np.log(shares) if self.settings.loss is None else self.settings.loss.first_scores(shares)
        wanted = torch.from_numpy(first).to(scores)
        self.bias.copy_(wanted - scores)

    def init_table(self, data: InitData) -> Tensor | None:
        """Set the free vectors, if there are any; return the mean query vector if it was computed on the way."""
        return None

    def add_points(self, data: InitData, table: Tensor | None) -> Tensor:
        """Put the relevance-weighted mean of each label's points into a table; return the mean of all points.

        Works block by block, so the vectors of all points are never in memory at once.
        """
        sums = None if table is None else table.detach().float().cpu().numpy()  # the table itself if it is float32
        if sums is not None:
            sums[:] = 0
        total: Tensor | None = None
        for rows, vectors in data.points():
            if sums is not None:
                by_label = data.targets[rows].T.tocsr()[data.shard.start : data.shard.stop]
                present = np.flatnonzero(np.diff(by_label.indptr))  # few of millions of labels have a point in a block
                points = vectors.cpu().numpy()
                for start in range(0, len(present), 4 * BLOCK):
                    block = present[start : start + 4 * BLOCK]
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
        """Return the sum of the relevance of each label of the shard."""
        weights = np.asarray(data.targets.sum(axis=0), dtype=np.float32).ravel()
        return weights[data.shard.start : data.shard.stop]

    @torch.no_grad()
    def new_rows(self, new: NewTexts) -> dict[str, Part]:
        """Return what is stored for added or renamed labels: ``vectors`` to search, ``bias``, and parts of the kind."""
        vectors, parts = self.new_vectors(new)
        scaled = normalize(vectors, dim=1) if self.search_normalise else vectors
        kept: dict[str, Part] = {"vectors": scaled, **parts}
        if self.bias is not None:
            if new.added:  # that of the rarest labels
                kept["bias"] = self.bias[new.rare].median().expand(len(new.texts)).clone()
            else:
                kept["bias"] = self.bias[torch.from_numpy(new.ids).to(self.bias.device)]
        return kept

    @abstractmethod
    def new_vectors(self, new: NewTexts) -> tuple[Tensor, dict[str, Part]]:
        """Return the vectors of added or renamed labels before normalisation, and further parts to keep."""

    def tables(self) -> list[nn.Parameter]:
        """Return the parameters of which a step touches some rows: those a row-wise optimiser trains."""
        return [] if self.table is None else [self.table]

    def row_parameters(self) -> dict[str, str]:
        """Return the parameters and buffers with a row per label, by the part of :meth:`new_rows` that goes in."""
        names = {"free": "table", "bias": "bias"}
        return {part: name for part, name in names.items() if getattr(self, name) is not None}

    def resize(self, saved: Mapping[str, Tensor]) -> None:
        """Make room for saved tensors whose size does not follow from settings and labels."""

    def _scaled(self, vectors: Tensor, search: bool) -> Tensor:
        if not (self.search_normalise if search else self.normalise):
            return vectors
        return unit_rows(vectors)
