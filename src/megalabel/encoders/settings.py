"""Settings of the encoders, one class per kind. Loads no torch: reading and planning a recipe stay light."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import AfterValidator, ConfigDict, Field, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from megalabel.settings import Dropout, Settings, one_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from megalabel.encoders._base import BaseEncoder
    from megalabel.encoders.cost import BagCost, EncoderCost, InceptionCost, TransformerCost
    from megalabel.encoders.inceptionxml_cost import InceptionXMLCost

__all__ = [
    "ENCODERS",
    "BagOptions",
    "BagSettings",
    "BaseEncoderSettings",
    "EncoderSettings",
    "InceptionOptions",
    "InceptionSettings",
    "InceptionXMLOptions",
    "InceptionXMLSettings",
    "NgramSettings",
    "TransformerOptions",
    "TransformerSettings",
    "make_encoder",
]


def _power_of_two(size: int) -> int:
    if size < 0 or size & (size - 1):
        near = 1 << max(0, size - 1).bit_length()
        raise PydanticCustomError(
            "table_size", "give a power of two such as {near}, or 0 to leave it out", {"near": near}
        )
    return size


TableSize = Annotated[int, AfterValidator(_power_of_two)]
_ROWS = 32_768  # of a table of hashed features, unless there are few texts


class Options(Settings):
    """Arguments of an encoder's constructor; strings are not converted to numbers."""

    model_config = ConfigDict(strict=True)


class BagOptions(Options):
    """Options of :class:`megalabel.encoders.BagEncoder`; a table without a size is sized by the data."""

    dim: PositiveInt = 384
    words: TableSize | None = None
    bigrams: TableSize | None = None
    characters: TableSize | None = None
    ngrams: Annotated[tuple[PositiveInt, ...], Field(strict=False, min_length=1)] = (3, 4, 5)
    split: Literal["scripts", "spaces"] = "scripts"
    residual: bool = True
    dropout: Dropout = 0.0
    activation: Literal["none", "relu"] = "none"
    thin: Dropout = 0.0
    max_length: PositiveInt | None = None
    seed: int | None = None  # None: the recipe's

    @model_validator(mode="after")
    def _without_effect(self) -> Self:
        self.require(self.characters != 0, "ngrams", "characters is 0")
        self.require(self.residual, "dropout", "residual is false")
        return self

    def sizes(self, texts: int | None = None) -> dict[str, int]:
        """Return the rows of the hashed tables: 32,768, or 8 a text, at least 1,024, for fewer than 4,096 texts."""
        own = _ROWS if texts is None else min(_ROWS, max(1_024, 1 << (8 * texts - 1).bit_length()))
        given = self.model_dump(include={"words", "bigrams", "characters"})
        return {name: own if size is None else size for name, size in given.items()}


class InceptionOptions(Options):
    """Options of :class:`megalabel.encoders.InceptionEncoder`."""

    dim: Annotated[int, Field(ge=16)] = 384  # at least the widest window
    words: Annotated[TableSize, Field(ge=1)] = 32_768
    channels: PositiveInt = 8
    filters: PositiveInt = 16
    bins: PositiveInt = 10
    attention: PositiveInt = 16
    residual: bool = True
    dropout: Dropout = 0.0
    max_length: PositiveInt = 32
    seed: int | None = None  # None: the recipe's


class InceptionXMLOptions(Options):
    """Options of :class:`megalabel.encoders.InceptionXMLEncoder`."""

    token_dim: Annotated[int, Field(ge=64)] = 300  # at least what the second convolution needs
    words: Annotated[TableSize, Field(ge=1)] = 32_768
    filters: PositiveInt = 32
    token_dropout: Dropout = 0.0
    dropout: Dropout = 0.0
    max_length: PositiveInt = 32
    seed: int | None = None  # None: the recipe's


class TransformerOptions(Options):
    """Options of :class:`megalabel.encoders.TransformerEncoder`."""

    pooling: Literal["mean", "cls"] = "mean"
    layers: PositiveInt = 1
    projection: PositiveInt | None = None
    max_length: PositiveInt = 128
    dropout: Dropout | None = None
    batch_tokens: PositiveInt = 4_096
    seed: int | None = None  # None: the recipe's

    @model_validator(mode="after")
    def _without_effect(self) -> Self:
        self.require(self.projection is not None, "seed", "only a projection starts at random")
        return self


class NgramSettings(Options):
    """Options of :class:`megalabel.encoders.SparseEncoder`; None is the default of that class."""

    renamed: ClassVar[Mapping[str, str]] = {"least": "min_df"}

    words: TableSize | None = None
    bigrams: TableSize | None = None
    characters: TableSize | None = None
    ngrams: Annotated[tuple[PositiveInt, ...], Field(strict=False, min_length=1)] | None = None
    weights: Annotated[tuple[float, float, float], Field(strict=False)] | None = None
    split: Literal["scripts", "spaces"] | None = None
    sublinear: bool | None = None
    min_df: PositiveInt | None = None

    def options(self) -> dict[str, Any]:
        """Return the options that are given."""
        return self.model_dump(exclude_none=True)

    @model_validator(mode="after")
    def _without_effect(self) -> Self:
        self.require(self.characters != 0, "ngrams", "characters is 0")
        kinds = [size for size in (self.words, self.bigrams, self.characters) if size != 0]
        self.require(len(kinds) > 1, "weights", "there is one kind of feature, and rows have length 1")
        return self


class BaseEncoderSettings(Settings):
    """Settings shared by all kinds; a kind adds ``kind``, ``options`` and perhaps another ``source``.

    A text is cut to ``query_length`` or ``label_length`` tokens (features of a bag), or else to ``options.max_length``.
    """

    has_table: ClassVar[bool] = False  # a row of weights for each token or feature
    positions: ClassVar[bool] = False  # weights for each of the first max_length tokens, whatever cuts a text

    kind: str
    source: str | None = "minilm"
    query_length: PositiveInt | None = None
    label_length: PositiveInt | None = None
    options: Any

    @property
    def has_layers(self) -> bool:
        """Whether it has weights besides a table."""
        return True

    def build(self, seed: int, texts: int | None = None) -> BaseEncoder:
        """Return a fresh encoder for so many texts (None: many); ``seed`` is used unless the options have one."""
        raise NotImplementedError

    def cost(self) -> EncoderCost:
        """Return memory and computation, for the plan; raises SettingError if the size of the encoder is not known."""
        raise NotImplementedError

    def _arguments(self, seed: int) -> dict[str, Any]:
        return {"seed": seed, **self.options.model_dump(exclude_none=True)}

    def sized(self, dim: int) -> dict[str, int]:
        """Return the options that make vectors of this size, or nearly."""
        return {"dim": dim}

    def difference(self, encoder: BaseEncoder) -> str | None:
        """Return where a trained encoder differs from these settings, which do not change it any more; None: nowhere.

        >>> BagSettings(source=None, options=BagOptions(dim=8)).difference(BagSettings(source=None).build(0))
        'options.dim is 8, but it was trained with 384'
        """
        if encoder.kind != self.kind:
            return f"kind is {self.kind!r}, but it was trained as {encoder.kind!r}"
        trained = encoder.config()
        for name, value in self._arguments(trained["seed"]).items():
            wanted = list(value) if isinstance(value, tuple) else value
            if trained[name] != wanted:
                return f"options.{name} is {wanted}, but it was trained with {trained[name]}"
        return None

    def _max_length_counts(self) -> None:
        """Refuse ``options.max_length`` if both lengths are given: it would have no effect."""
        if self.query_length is not None and self.label_length is not None:
            self.options.require(False, "max_length", "query_length and label_length are both given")


class BagSettings(BaseEncoderSettings):
    """A bag of features. ``source``: minilm, the folder of a model, null for hashed features only, or auto.

    >>> BagSettings(source=None, options=BagOptions(dim=8)).build(seed=0).dim
    8
    """

    has_table: ClassVar[bool] = True

    kind: Literal["bag"] = "bag"
    options: BagOptions = BagOptions()

    @property
    def has_layers(self) -> bool:
        """Whether it has a residual layer."""
        return self.options.residual

    def build(self, seed: int, texts: int | None = None) -> BaseEncoder:
        """Return a fresh :class:`megalabel.encoders.BagEncoder`."""
        from megalabel.encoders.bag import BagEncoder

        return BagEncoder(self.source, **{**self._arguments(seed), **self.options.sizes(texts)})

    def cost(self) -> BagCost:
        """Return its costs, for the plan.

        >>> BagSettings(source=None, options=BagOptions(dim=16)).cost().table
        (98304, 17)
        """
        from megalabel.encoders.cost import BagCost, subword_rows

        options = self.options
        return BagCost(
            size=options.dim,
            rows={"subwords": subword_rows(self.source), **options.sizes()},
            ngrams=options.ngrams,
            residual=options.residual,
            thin=options.thin,
            max_length=options.max_length,
        )

    @model_validator(mode="after")
    def _without_effect(self) -> Self:
        self._max_length_counts()
        if self.source is None and not any(self.options.sizes().values()):
            raise ValueError("the bag has no features; give a source, or words, bigrams or characters a size")
        return self


class InceptionSettings(BaseEncoderSettings):
    """Our relative of InceptionXML. ``source``: minilm, the folder of a model, null for hashed words, or auto."""

    has_table: ClassVar[bool] = True
    positions: ClassVar[bool] = True

    kind: Literal["inception"] = "inception"
    options: InceptionOptions = InceptionOptions()

    def build(self, seed: int, texts: int | None = None) -> BaseEncoder:
        """Return a fresh :class:`megalabel.encoders.InceptionEncoder`."""
        from megalabel.encoders.inception import InceptionEncoder

        return InceptionEncoder(self.source, **self._arguments(seed))

    def cost(self) -> InceptionCost:
        """Return its costs, for the plan."""
        from megalabel.encoders.cost import InceptionCost, subword_rows

        names = ("channels", "filters", "bins", "attention", "max_length")
        return InceptionCost(
            size=self.options.dim,
            subwords=subword_rows(self.source) or self.options.words,
            **{name: getattr(self.options, name) for name in names},
        )

    @model_validator(mode="after")
    def _without_effect(self) -> Self:
        hashed = self.source in (None, "auto")
        self.options.require(hashed, "words", f"{self.source} has a tokenizer, so no words are hashed")
        for name, length in (("query_length", self.query_length), ("label_length", self.label_length)):
            if length is not None and length > self.options.max_length:
                raise ValueError(f"{name} is {length}, but options.max_length cuts at {self.options.max_length}")
        return self


class InceptionXMLSettings(InceptionSettings):
    """The encoder of InceptionXML as published; sources as of :class:`InceptionSettings`."""

    kind: Literal["inceptionxml"] = "inceptionxml"  # type: ignore[assignment]
    options: InceptionXMLOptions = InceptionXMLOptions()  # type: ignore[assignment]

    def build(self, seed: int, texts: int | None = None) -> BaseEncoder:
        """Return a fresh :class:`megalabel.encoders.InceptionXMLEncoder`."""
        from megalabel.encoders.inceptionxml import InceptionXMLEncoder

        return InceptionXMLEncoder(self.source, **self._arguments(seed))

    def sized(self, dim: int) -> dict[str, int]:
        """Return the filters of each convolution."""
        from megalabel.encoders.inceptionxml import pooled_length

        return {"filters": max(1, dim // pooled_length(self.options.token_dim))}

    def cost(self) -> InceptionXMLCost:  # type: ignore[override]
        """Return its costs, for the plan."""
        from megalabel.encoders.cost import subword_rows
        from megalabel.encoders.inceptionxml_cost import InceptionXMLCost

        options = self.options
        return InceptionXMLCost(
            token_dim=options.token_dim,
            subwords=subword_rows(self.source) or options.words,
            filters=options.filters,
            dropout=options.dropout > 0,
            token_dropout=options.token_dropout > 0,
            max_length=options.max_length,
        )


class TransformerSettings(BaseEncoderSettings):
    """A pretrained transformer. ``source``: minilm, a folder, or a Hugging Face name."""

    kind: Literal["transformer"] = "transformer"
    source: str = "minilm"
    options: TransformerOptions = TransformerOptions()

    def build(self, seed: int, texts: int | None = None) -> BaseEncoder:
        """Return a fresh :class:`megalabel.encoders.TransformerEncoder`."""
        from megalabel.encoders.transformer import TransformerEncoder

        return TransformerEncoder(self.source, **self._arguments(seed))

    def sized(self, dim: int) -> dict[str, int]:
        """Return the size of a projection."""
        return {"projection": dim}

    def _arguments(self, seed: int) -> dict[str, Any]:
        arguments = super()._arguments(seed)
        if self.query_length is not None and self.label_length is not None:
            arguments["max_length"] = max(self.query_length, self.label_length)  # nothing longer is ever read
        return arguments

    def cost(self) -> TransformerCost:
        """Return its costs, for the plan."""
        from megalabel.encoders.cost import TransformerCost, transformer_shape

        options = self.options
        return TransformerCost(
            **transformer_shape(self.source),
            pooled=options.layers,
            projection=options.projection,
            dropout=options.dropout is None or options.dropout > 0,
            max_length=options.max_length,
            batch_tokens=options.batch_tokens,
        )

    @model_validator(mode="after")
    def _without_effect(self) -> Self:
        self._max_length_counts()
        if self.source == "auto":
            raise ValueError("a transformer has no source auto; give minilm, a folder or a Hugging Face name")
        return self


ENCODERS: dict[str, type[BaseEncoderSettings]] = {
    "bag": BagSettings,
    "inception": InceptionSettings,
    "inceptionxml": InceptionXMLSettings,
    "transformer": TransformerSettings,
}

if TYPE_CHECKING:
    EncoderSettings: TypeAlias = BagSettings | InceptionSettings | InceptionXMLSettings | TransformerSettings
else:
    EncoderSettings = one_of(lambda: ENCODERS, default="bag")


def make_encoder(
    settings: EncoderSettings, seed: int, train_texts: Sequence[str], label_texts: Sequence[str]
) -> BaseEncoder:
    """Return a fresh encoder; a token table takes its idf weights, a bag its size from the train and label texts."""
    from megalabel.data.tokens import store_tokens
    from megalabel.encoders._token_table import TableEncoder

    encoder = settings.build(seed, len(train_texts) + len(label_texts))
    if isinstance(encoder, TableEncoder):
        encoder.fit(store_tokens(train_texts, encoder), store_tokens(label_texts, encoder))
    return encoder
