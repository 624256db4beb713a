"""What a recipe may say. Unknown keys and wrong types stop the run, with the nearest valid name."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, ValidationError, field_validator, model_validator

from megalabel.encoders.settings import BagSettings, EncoderSettings
from megalabel.settings import Settings, first_error

__all__ = [
    "AugmentSettings",
    "Batching",
    "FittedSettings",
    "HeadSettings",
    "LossSettings",
    "Negatives",
    "Optimiser",
    "Positives",
    "Predict",
    "Recipe",
    "Refresh",
    "Search",
    "Stage",
    "TemperatureSettings",
    "Training",
]

Share = Annotated[float, Field(ge=0, le=1)]
Dropout = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]


class AugmentSettings(Settings):
    """Rows made from the train rows before training; see :mod:`megalabel.augment`. ``augment: gandalf`` is enough."""

    kind: Literal["gandalf", "mixup", "label_mixup", "synonyms"] = "gandalf"
    share: Annotated[float, Field(gt=0, le=1)] = 1.0  # of the labels (gandalf) or rows (others) that give a new row
    delta: Annotated[float, Field(ge=0, lt=1)] = 0.1  # gandalf, as all to rows
    most: PositiveInt | None = 5  # targets of a label text, the largest; None for no limit
    graph: Literal["counts", "walk"] = "counts"
    targets: Literal["conditional", "self", "glas"] = "conditional"
    low: Literal["negative", "mask"] = "negative"
    sample: Literal["uniform", "tail"] = "uniform"
    keep: Literal["both", "labels"] = "both"
    rows: PositiveInt | Literal["train"] | None = None
    alpha: Positive = 1.0  # mixup, label_mixup
    words: Annotated[float, Field(gt=0, le=1)] = 0.2  # synonyms, as all that follow
    top: PositiveInt = 5
    source: str = "minilm"  # of the token vectors: minilm or the folder of a model

    def options(self) -> dict[str, Any]:
        """Return the settings that belong to the kind."""
        belongs = {
            "gandalf": ("delta", "most", "graph", "targets", "low", "share", "sample", "keep", "rows"),
            "mixup": ("share", "alpha"),
            "label_mixup": ("share", "alpha"),
            "synonyms": ("share", "words", "top", "source"),
        }
        return {name: getattr(self, name) for name in belongs[self.kind]}

    @model_validator(mode="after")
    def _fits(self) -> AugmentSettings:
        known = {"kind", *self.options()}
        for name, field in type(self).model_fields.items():
            if name not in known and getattr(self, name) != field.default:
                raise ValueError(f"{self.kind} has no setting {name}")
        return self


class TemperatureSettings(Settings):
    """What scores are divided by; heads that name the same ``share`` have one between them."""

    value: Positive = 0.05
    learn: bool = False
    share: str | None = None


class LossSettings(Settings):
    """A loss by name; ``symmetric`` is the weight of the query side, ``bce`` of an added BCE, the mean over cells."""

    kind: Literal["bce", "softmax", "decoupled_softmax", "soft_top_k", "sup_con", "triplet", "squared_hinge"]
    k: PositiveInt | Literal["positives"] = 5  # soft_top_k
    alpha: Positive = 2.0  # soft_top_k
    balanced: bool = False  # sup_con
    margin: Positive = 0.3  # triplet
    symmetric: Share | None = None
    bce: Annotated[float, Field(ge=0)] = 0.0
    cells: bool = False  # bce, squared_hinge: mean over rows and labels, not rows alone; for use beside another head

    @model_validator(mode="after")
    def _fits(self) -> LossSettings:
        if self.cells and self.kind not in ("bce", "squared_hinge"):
            raise ValueError(f"{self.kind} has no setting cells: it is no sum over labels")
        return self


class HeadSettings(Settings):
    """One kind of score; see :class:`megalabel.heads.Head`."""

    tower: Literal["text", "free", "text+free"] = "text"
    dim: PositiveInt | None = None
    projection: Literal["none", "linear", "tanh", "residual"] = "none"
    dropout: Dropout = 0.0
    row_dropout: Dropout = 0.0
    query_matrix: bool = False
    normalise: bool = True
    search_normalise: bool | None = None
    bias: bool = False
    start: Literal["random", "text", "points", "mix"] = "random"  # of the free vectors
    temperature: TemperatureSettings = TemperatureSettings()
    loss: LossSettings
    weight: Annotated[float, Field(ge=0)] = 1.0  # of its loss; 0: the head stays as it starts


class FittedSettings(Settings):
    """A head that is fitted when the network is trained: :class:`megalabel.heads.Memory`, ``Linear`` or ``Overlap``."""

    kind: Literal["memory", "linear", "overlap"]
    labels: Literal["none", "self", "gandalf"] = "none"  # label texts as rows: none, each for itself, or Gandalf's
    most: PositiveInt | None = None  # targets of a label text, for gandalf
    of: str = "ngrams"  # memory: what is compared, n-grams or the query vectors of the head with this name
    nearest: PositiveInt = 50  # memory
    power: Positive = 3.0  # memory
    common: Annotated[float, Field(gt=0, le=1)] = 0.05  # n-grams of more rows find no neighbours; for speed, 1 is exact
    C: Positive = 1.0  # linear, as all to prune
    mined: PositiveInt = 100  # wrong labels of each row's nearest other rows: its hard negatives
    uniform: Annotated[int, Field(ge=0)] = 50  # negatives of each label drawn at random
    rounds: PositiveInt = 2  # trainings; from the second on, with the best wrong labels of the last
    prune: Annotated[float, Field(ge=0)] = 0.1  # smaller weights are dropped
    side: Literal["label", "query"] = "label"  # overlap: whose words make up the whole
    half: Positive = 3.0  # overlap: words after which a word counts half

    @property
    def reads(self) -> str:
        """What the head is given: ngrams, texts, or the name of a head of the network."""
        return "texts" if self.kind == "overlap" else self.of

    @model_validator(mode="after")
    def _fits(self) -> FittedSettings:
        rows = {"labels", "most", "common"}
        belongs = {
            "memory": rows | {"of", "nearest", "power"},
            "linear": rows | {"C", "mined", "uniform", "rounds", "prune"},
            "overlap": {"side", "half"},
        }[self.kind]
        for name, field in type(self).model_fields.items():
            if name != "kind" and name not in belongs and getattr(self, name) != field.default:
                raise ValueError(f"{self.kind} has no setting {name}")
        return self


class Positives(Settings):
    """Which positives of a query enter the pool."""

    pick: Literal["one", "some", "all"] = "some"
    count: PositiveInt = 3  # some
    replacement: bool = False


class Search(Settings):
    """How the best labels are found; see :mod:`megalabel.index`. ``search: hnsw`` is enough; null: its own default."""

    kind: Literal["exact", "hnsw", "ivf"] = "exact"
    M: Annotated[int, Field(ge=2)] | None = None  # hnsw, as the next two
    ef_construction: PositiveInt | None = None
    ef_search: PositiveInt | None = None
    nlist: PositiveInt | None = None  # ivf, as all that follow
    nprobe: PositiveInt | None = None
    pq: PositiveInt | None = None
    rerank: PositiveInt | None = None

    def options(self) -> dict[str, int]:
        """Return the settings that were given."""
        return {name: value for name, value in self if name != "kind" and value is not None}

    @model_validator(mode="after")
    def _fits(self) -> Search:
        belongs = {"hnsw": {"M", "ef_construction", "ef_search"}, "ivf": {"nlist", "nprobe", "pq", "rerank"}}
        for name in self.options():
            if name not in belongs.get(self.kind, ()):
                raise ValueError(f"{self.kind} has no setting {name}")
        return self


class Negatives(Settings):
    """Labels that enter the pool beside the positives of the batch."""

    uniform: Annotated[int, Field(ge=0)] = 0  # per batch; per query where each has its own candidates
    mined: Annotated[int, Field(ge=0)] = 0  # per query, drawn from
    top: PositiveInt = 30  # the best wrong labels of each query
    search: Search = Search()  # that finds them

    @field_validator("search", mode="before")
    @classmethod
    def _by_name(cls, value: object) -> object:
        return {"kind": value} if isinstance(value, str) else value


class Refresh(Settings):
    """When clusters and mined negatives are made anew, in epochs."""

    start: Annotated[int, Field(ge=0)] = 5
    every: PositiveInt = 5


class Batching(Settings):
    """Which queries come together, and which labels they are scored against."""

    batch_size: PositiveInt = 1024
    least_batches: PositiveInt | None = None  # an epoch: a set too small for so many has smaller ones
    order: Literal["shuffled", "clustered"] = "shuffled"
    labels: Literal["pool", "all", "candidates"] = "pool"  # candidates: each query has its own
    positives: Positives = Positives()
    negatives: Negatives = Negatives()
    cap: PositiveInt | None = None
    log_q: bool = False
    refresh: Refresh = Refresh()

    def size(self, points: int) -> int:
        """Return how many of so many points a batch has."""
        if self.least_batches is None:
            return self.batch_size
        return min(self.batch_size, max(1, points // self.least_batches))


class Optimiser(Settings):
    """One parameter group."""

    kind: Literal["adamw", "row_adagrad", "lazy_adamw", "sgd"] = "adamw"
    lr: Annotated[float, Field(gt=0, le=3e38)]  # float32 has little more
    weight_decay: Annotated[float, Field(ge=0)] = 0.0


class Training(Settings):
    """The loop."""

    epochs: PositiveInt
    encoder: Optimiser
    freeze: bool = False  # the encoder stays as it starts
    tables: Optimiser | None = None  # features of a bag, free vectors; None: encoder's rates, row by row (lazy_adamw)
    heads: Optimiser | None = None  # projections, temperature, bias; None follows encoder
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    warmup: Share = 0.1  # of all steps
    clip: Positive | None = 1.0
    chunk_size: PositiveInt = 256  # texts whose activations are held at once
    validation: Annotated[float, Field(gt=0, lt=1)] = 0.1  # share of train held out where the data has no val rows
    evaluate_every: PositiveInt = 1  # epochs
    evaluate_on: PositiveInt | None = None  # validation rows at most, evenly spread; None takes all
    select: str = "nDCG@5"
    patience: PositiveInt | None = None  # evaluations without a better one
    refit: bool = False
    device: str = "auto"  # cpu, cuda, cuda:1, mps; auto: cuda if there is one, else cpu
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # encoder's; auto: bfloat16 for transformers on cuda


class Predict(Settings):
    """How heads are put together: weights given, chosen on validation, or a fusion of all heads fitted on it."""

    weights: dict[str, float] | Literal["equal", "validation", "fusion"] = "equal"
    candidates: PositiveInt = 100  # fusion: labels each head proposes
    tail: Annotated[float, Field(ge=0, le=1)] = 0.0  # fusion: rank by p x (inverse propensity)^tail


class Stage(Settings):
    """A training that comes before the recipe's own and leaves it its encoder; labels are clusters of labels."""

    name: Annotated[str, Field(pattern="^[a-z]+$")]
    clusters: PositiveInt  # at most, balanced, on the mean of their points
    changes: dict[str, Any] = {}  # parts of the recipe that are other in this stage; heads are given whole


class Recipe(Settings):
    """One system: a choice of each part."""

    name: str
    paper: str
    about: str
    differs: str = ""
    seed: int = 0
    stages: list[Stage] = []
    augment: AugmentSettings | None = None  # also a plain name: gandalf, none
    encoder: EncoderSettings = BagSettings()
    heads: dict[str, HeadSettings]
    fitted: dict[str, FittedSettings] = {}  # heads that train no encoder
    ngrams: dict[str, int | bool | list[int] | list[float]] = {}  # options of megalabel.encoders.SparseEncoder
    batching: Batching = Batching()
    training: Training
    predict: Predict = Predict()

    @field_validator("augment", mode="before")
    @classmethod
    def _by_name(cls, value: object) -> object:
        if value == "none":
            return None
        return {"kind": value} if isinstance(value, str) else value

    def stage(self, stage: Stage) -> Recipe:
        """Return the recipe of a stage."""
        document = self.model_dump(mode="json") | {"stages": [], "fitted": {}, "predict": {}}
        return Recipe.model_validate(_merged(document, stage.changes))

    @model_validator(mode="after")
    def _stages_fit(self) -> Recipe:
        if len({stage.name for stage in self.stages}) < len(self.stages):
            raise ValueError("stages must have different names")
        for stage in self.stages:
            if "encoder" in stage.changes:
                raise ValueError(f"stage {stage.name}: all stages have the recipe's encoder")
            try:
                self.stage(stage)
            except ValidationError as error:
                raise ValueError(f"stage {stage.name}: {first_error(error, 'recipe')}") from None
        return self

    @model_validator(mode="after")
    def _fits(self) -> Recipe:
        if not self.heads:
            raise ValueError("a recipe needs at least one head")
        if not any(head.weight for head in self.heads.values()):
            raise ValueError("a recipe needs a head whose weight is not 0")
        if isinstance(self.predict.weights, dict) and set(self.predict.weights) != set(self.heads):
            raise ValueError(f"predict.weights must name the heads {', '.join(self.heads)}")
        if self.fitted and self.predict.weights != "fusion":
            raise ValueError("heads under fitted need predict.weights: fusion")
        for name, settings in self.fitted.items():
            if name in self.heads or name == "all":
                raise ValueError(f"fitted.{name} needs a name of its own")
            if settings.of != "ngrams" and settings.of not in self.heads:
                raise ValueError(f"fitted.{name}.of must be ngrams or one of the heads {', '.join(self.heads)}")
        if self.batching.labels == "all" and (self.batching.negatives.mined or self.batching.negatives.uniform):
            raise ValueError("with all labels in the loss there is nothing to mine or draw")
        return self


def _merged(document: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return the document with the changes put in, key by key; heads, and what is no mapping, are replaced."""
    found = dict(document)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(found.get(key), dict) and key != "heads"
        found[key] = _merged(found[key], value) if both else value
    return found
