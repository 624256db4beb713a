"""A head: projection, tower, bias, normalisation and temperature of one kind of score."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, relu

from megalabel.errors import SettingError, nearest
from megalabel.heads._unit_rows import unit_rows
from megalabel.heads.temperature import Temperature
from megalabel.heads.towers import FreeTower, TextFreeTower, TextTower

__all__ = ["Head"]

TOWERS = ("text", "free", "text+free")
PROJECTIONS = ("none", "linear", "tanh", "residual")
_MANY = 65_536  # rows from which on memory counts more than speed
_NEAR_ZERO = 0.02  # size of a residual layer at the start


class Head(nn.Module):
    """Score queries and labels from encoder vectors: <query(h), label_l> / temperature + bias_l.

    Args:
        labels: number of labels.
        encoder_dim: size of encoder vectors.
        tower: ``"text"``, ``"free"`` or ``"text+free"``: where label vectors come from.
        dim: size of the head's vectors; None keeps the encoder's.
        projection: ``"none"``, ``"linear"`` (Linear, Dropout) or ``"tanh"`` (Linear, Tanh,
            Dropout): g2 and g1 of UniDEC (Kharbanda et al. 2024); ``"residual"``, h + Dropout(relu(W h))
            with W near zero at the start, for features that are good already: the fine stage of
            DeepXML (Dahiya et al., WSDM 2021). Texts of labels take the same way as queries.
        dropout: of the projection.
        row_dropout: of the free vectors.
        query_matrix: a matrix on the query side alone, started at identity: "related to"
            need not be "says the same as", which a tied encoder alone would have it.
        normalise: scores are cosines while training.
        search_normalise: the same for search; None follows ``normalise``. UniDEC trains its
            classifier unnormalised and searches it normalised.
        bias: a learnt number per label.
        own: the labels whose free vectors and biases this process holds; None is all of them. A pool is
            then numbered from the first of them.
        temperature: divides the scores while training; may be shared between heads.

    >>> head = Head(labels=5, encoder_dim=8, tower="free", dim=4, projection="linear")
    >>> vectors, bias = head.labels(torch.tensor([1, 3]), None)
    >>> head.query(torch.randn(2, 8)).shape, vectors.shape, bias
    (torch.Size([2, 4]), torch.Size([2, 4]), None)
    """

    def __init__(
        self,
        *,
        labels: int,
        encoder_dim: int,
        tower: str = "text",
        dim: int | None = None,
        projection: str = "none",
        dropout: float = 0.0,
        row_dropout: float = 0.0,
        query_matrix: bool = False,
        normalise: bool = True,
        search_normalise: bool | None = None,
        bias: bool = False,
        own: range | None = None,
        temperature: Temperature | None = None,
    ) -> None:
        super().__init__()
        for name, value, valid in (("tower", tower, TOWERS), ("projection", projection, PROJECTIONS)):
            if value not in valid:
                raise SettingError(f"{name} is {value!r}", remedy=nearest(value, valid))
        self.dim = encoder_dim if dim is None else dim
        if projection in ("none", "residual") and self.dim != encoder_dim:
            raise SettingError(
                f"a head of dim {self.dim} on an encoder of dim {encoder_dim} needs a projection",
                remedy="set projection to linear or tanh, or drop dim",
            )
        self.normalise = normalise
        self.search_normalise = normalise if search_normalise is None else search_normalise
        self.projection = _projection(projection, encoder_dim, self.dim, dropout)
        self.query_matrix = nn.Parameter(torch.eye(self.dim)) if query_matrix else None
        self.tower: TextTower | FreeTower | TextFreeTower
        if tower == "text":
            self.tower = TextTower()
        else:
            kind = FreeTower if tower == "free" else TextFreeTower
            self.tower = kind(labels, self.dim, dropout=row_dropout, own=own)
        self.bias = nn.Parameter(torch.zeros(labels if own is None else len(own))) if bias else None
        self.temperature = Temperature(1.0) if temperature is None else temperature

    @property
    def needs_text(self) -> bool:
        """Whether label texts must be encoded to score labels."""
        return self.tower.needs_text

    @property
    def table(self) -> nn.Parameter | None:
        """The free vectors [L, d], or None for a text tower."""
        if isinstance(self.tower, TextTower):
            return None
        return self.tower.table if isinstance(self.tower, FreeTower) else self.tower.free.table

    def query(self, encoded: Tensor, *, search: bool = False) -> Tensor:
        """Return the query side [B, d] of encoder vectors [B, encoder_dim]."""
        projected: Tensor = self.projection(encoded)
        return self._scaled(projected if self.query_matrix is None else projected @ self.query_matrix, search)

    def labels(
        self, pool: Tensor | None, encoded: Tensor | None, *, search: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Return label vectors [P, d] and bias [P] or None; ``pool`` None is every label."""
        projected = self.projection(encoded) if self.needs_text and encoded is not None else None
        vectors = self._scaled(self.tower(pool, projected), search)
        if self.bias is None:
            return vectors, None
        return vectors, self.bias if pool is None else self.bias.index_select(0, pool)

    def _scaled(self, vectors: Tensor, search: bool) -> Tensor:
        wanted = self.search_normalise if search else self.normalise
        if not wanted:
            return vectors
        return normalize(vectors, dim=1) if len(vectors) <= _MANY else unit_rows(vectors)


def _projection(kind: str, encoder_dim: int, dim: int, dropout: float) -> nn.Module:
    if kind == "none":
        return nn.Identity()
    if kind == "residual":
        return _Residual(dim, dropout)
    tanh = [nn.Tanh()] if kind == "tanh" else []
    return nn.Sequential(nn.Linear(encoder_dim, dim), *tanh, nn.Dropout(dropout))


class _Residual(nn.Module):
    """h + dropout(relu(W h)), near h at the start."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.layer = nn.Linear(dim, dim, bias=False)
        nn.init.normal_(self.layer.weight, std=_NEAR_ZERO * dim**-0.5)
        self.drop = nn.Dropout(dropout)

    def forward(self, encoded: Tensor) -> Tensor:
        found: Tensor = encoded + self.drop(relu(self.layer(encoded)))
        return found
