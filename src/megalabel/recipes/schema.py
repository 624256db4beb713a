"""What a recipe may say. An unknown key, a wrong type or a setting without effect stops the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator
from torch.nn import ModuleDict

from megalabel.augment.settings import AugmentSettings
from megalabel.batching.settings import BATCHING_KINDS, BatchingSettings
from megalabel.encoders.settings import EncoderSettings, NgramSettings
from megalabel.errors import nearest
from megalabel.heads import FittedSettings
from megalabel.heads.dense import DenseSettings
from megalabel.heads.head import NGRAMS, AnyHead
from megalabel.network.network import ENCODER
from megalabel.network.spaces import AnySpace, check_nesting, with_finer
from megalabel.recipes.effects import refuse_idle
from megalabel.recipes.predict import Predict
from megalabel.recipes.training import Training
from megalabel.settings import Seed, Settings, first_error

__all__ = ["Predict", "Recipe", "Stage", "Training", "switch_labels"]

LONGEST = 100  # bytes of the name of a part, which becomes that of a folder


class Stage(Settings):
    """One part of a run: the recipe's differences, and where the stage begins.

    ``heads`` are names of the recipe's heads, or a mapping of heads given whole; ``batching`` and ``training`` are
    merged into those of the recipe, key by key.
    """

    renamed: ClassVar[Mapping[str, str]] = {"changes": "heads, batching, training", "clusters": "space"}

    name: Annotated[str, Field(pattern="^[a-z][a-z0-9_]*$", max_length=LONGEST)]
    space: str | None = None  # its labels are the groups of this space
    init_from: str | None = None  # an earlier stage, or the folder of a run; None: the stage before
    freeze: tuple[str, ...] = ()  # encoders and heads that are not trained
    drop: tuple[str, ...] = ()  # parts that the next stage does not take over
    heads: tuple[str, ...] | dict[str, Any] | None = None
    batching: dict[str, Any] = {}
    training: dict[str, Any] = {}


class Recipe(Settings):
    """One system: a choice of each part.

    Without ``stages`` a run has one stage, the recipe itself. With stages it has exactly those, in order; the model
    is that of the last one.
    """

    renamed: ClassVar[Mapping[str, str]] = {"fitted": "heads"}

    name: str
    paper: str
    about: str
    differs: str = ""
    seed: Seed = 0
    augment: AugmentSettings | None = None  # also a plain name: gandalf, none
    encoders: dict[str, EncoderSettings]  # by name; `encoder: {...}` is enough for one
    spaces: dict[str, AnySpace] = {}
    heads: dict[str, AnyHead]
    ngrams: NgramSettings = NgramSettings()  # options of megalabel.encoders.SparseEncoder
    batching: BatchingSettings = Field(default="pool", validate_default=True)
    training: Training
    predict: Predict = Predict()
    space: str | None = None
    init_from: str | None = None  # the folder of a run whose encoders and heads this one begins with
    freeze: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    stages: tuple[Stage, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _one_encoder(cls, document: Any) -> Any:
        """Take ``encoder`` for a recipe with one encoder."""
        if isinstance(document, Mapping) and "encoders" not in document:
            document = dict(document)
            document["encoders"] = {ENCODER: document.pop("encoder", "bag")}
        return document

    @field_validator("augment", mode="before")
    @classmethod
    def _no_augment(cls, value: object) -> object:
        return None if value == "none" else value

    # ------------------------------------------------------------------ its parts

    @property
    def encoder(self) -> Any:
        """The settings of the first encoder, which is the only one of most recipes."""
        return next(iter(self.encoders.values()))

    @property
    def dense_heads(self) -> dict[str, DenseSettings]:
        """The heads that are trained by steps."""
        return {name: head for name, head in self.heads.items() if isinstance(head, DenseSettings)}

    @property
    def fitted_heads(self) -> dict[str, FittedSettings]:
        """The heads that are fitted after the network is trained."""
        return {name: head for name, head in self.heads.items() if isinstance(head, FittedSettings)}

    @property
    def label_heads(self) -> dict[str, DenseSettings]:
        """The dense heads that score the labels themselves."""
        return {name: head for name, head in self.dense_heads.items() if head.space is None}

    def stage_recipes(self) -> list[tuple[Stage, Recipe]]:
        """Return the stages of a run, each with its own recipe; a recipe without stages is its own one stage."""
        if not self.stages:
            return [(Stage(name="main"), self)]
        last = self.stages[-1]
        return [(stage, self._resolved(stage, last=stage is last)) for stage in self.stages]

    def _resolved(self, stage: Stage, *, last: bool) -> Recipe:
        document = self.model_dump(mode="json", by_alias=True, exclude={"stages"})
        own = stage.heads if isinstance(stage.heads, dict) else None
        names = stage.heads if isinstance(stage.heads, tuple) else tuple(self.heads)
        for name in names:
            if name not in self.heads:
                raise ValueError(f"stage {stage.name}: there is no head {name!r}; {nearest(name, self.heads)}")
        heads = {name: document["heads"][name] for name in names} if own is None else own
        if not last:  # heads that train no encoder are fitted at the end, and only there are scores put together
            heads = {name: head for name, head in heads.items() if name not in self.fitted_heads}
            document["predict"] = {}
        if stage.space is not None:  # the groups are the labels of the stage
            heads = {name: head | {"space": None} if head.get("space") == stage.space else head
                     for name, head in heads.items()}  # fmt: skip
        document["heads"] = heads
        read = {head.get(key) for head in heads.values() for key in ("encoder", "label_encoder")}
        first = next(iter(self.encoders))
        document["encoders"] = {
            name: encoder for name, encoder in document["encoders"].items() if name == first or name in read
        }
        if "labels" in stage.batching:
            document["batching"] = switch_labels(document["batching"], str(stage.batching["labels"]))
        for section, changes in (("batching", stage.batching), ("training", stage.training)):
            document[section] = _merged(document[section], changes)
        document |= {"space": stage.space, "freeze": stage.freeze, "drop": stage.drop, "init_from": stage.init_from}
        used = with_finer(self.spaces, [stage.space, *(head.get("space") for head in heads.values())])
        document["spaces"] = {name: space for name, space in document["spaces"].items() if name in used}
        fitted = [head for name, head in self.fitted_heads.items() if name in heads]
        if not _reads_ngrams(fitted, [self.spaces[name] for name in used]):
            document["ngrams"] = {}
        try:
            return Recipe.model_validate(document, context={"stage": stage.name})
        except ValidationError as error:
            raise ValueError(f"stage {stage.name}: {first_error(error)}") from None

    # ------------------------------------------------------------------ checks

    @model_validator(mode="after")
    def _check_spaces(self) -> Self:
        check_nesting(self.spaces)
        return self

    @model_validator(mode="after")
    def _check_stages(self, info: ValidationInfo) -> Self:
        names = [stage.name for stage in self.stages]
        if len(set(names)) < len(names):
            raise ValueError("stages must have different names")
        if not self.stages:
            if (self.space or self.drop) and not (info.context or {}).get("stage"):
                raise ValueError("space and drop belong to a stage, and this recipe has none")
            return self
        if self.space or self.freeze or self.drop or self.init_from:
            raise ValueError("space, freeze, drop and init_from belong to a stage in a recipe with stages")
        for stage in self.stages:
            _known(f"stage {stage.name}: space", stage.space, self.spaces)
        if self.stages[-1].space is not None:
            raise ValueError(f"stage {self.stages[-1].name}: the last stage scores the labels themselves, not a space")
        if self.stages[-1].drop:
            raise ValueError(f"stage {self.stages[-1].name}: drop has no effect, no stage comes after it")
        used: set[str] = set()
        for stage, recipe in self.stage_recipes():
            used |= with_finer(self.spaces, [stage.space, *(head.space for head in recipe.dense_heads.values())])
        _no_others("spaces", self.spaces, used, "no head and no stage scores it")
        return self

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        for section in ("heads", "encoders", "spaces"):
            for name in getattr(self, section):
                _check_name(section, name)
        return self

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        if not self.heads:
            raise ValueError("a recipe needs at least one head")
        if not any(head.loss is not None for head in self.dense_heads.values()):
            raise ValueError("a recipe needs a head with a loss")
        first = next(iter(self.encoders))
        for name, head in self.dense_heads.items():
            for key in head.encoder_keys:
                _known(f"heads.{name}.{key}", getattr(head, key), self.encoders)
            _known(f"heads.{name}.space", head.space, self.spaces)
            if head.layer is not None and self.encoders[head.query_encoder(first)].kind != "transformer":
                raise ValueError(f"heads.{name}.layer: only a transformer has layers")
        for name, fitted in self.fitted_heads.items():
            for key in fitted.feature_keys:
                _known(f"heads.{name}.{key}", getattr(fitted, key), [NGRAMS, *self.label_heads])
        if self.ngrams.options() and not _reads_ngrams(self.fitted_heads.values(), self.spaces.values()):
            raise ValueError("ngrams has no effect: no head reads n-grams")
        used = {encoder for head in self.dense_heads.values() for encoder in head.encoders_read(first)}
        _no_others("encoders", self.encoders, used, "no head reads it")
        if not self.stages:
            spaces = with_finer(self.spaces, [self.space, *(head.space for head in self.dense_heads.values())])
            _no_others("spaces", self.spaces, spaces, "no head scores it")
        return self

    @model_validator(mode="after")
    def _check_stage_space(self) -> Self:
        for name, head in self.dense_heads.items():
            if self.space and head.space and self.space not in with_finer(self.spaces, [head.space]):
                raise ValueError(f"heads.{name}.space must be made of {self.space!r}, the labels of this stage")
        return self

    @model_validator(mode="after")
    def _check_candidates(self) -> Self:
        for name, head in self.dense_heads.items():
            if head.candidates is None:
                continue
            source = head.candidates.source
            _known(f"heads.{name}.candidates.from", source, [other for other in self.dense_heads if other != name])
            chain = [name]
            while (settings := self.dense_heads[chain[-1]].candidates) is not None:
                if settings.source in chain:
                    raise ValueError(f"heads.{name}.candidates: the heads propose candidates to each other in a circle")
                chain.append(settings.source)
            proposing = self.dense_heads[source]
            if head.candidates.graph and (proposing.space is None or proposing.candidates is not None):
                raise ValueError(f"heads.{name}.candidates.graph: {source!r} must score all groups of a label space")
            if proposing.loss is None:
                raise ValueError(f"heads.{name}.candidates: {source!r} is not trained in this step, it has no loss")
            if self.dense_heads[source].space is None and head.space is not None:
                raise ValueError(f"heads.{name}.candidates: labels cannot propose groups of labels")
            if head.reads_paths and (self.dense_heads[source].space is None or self.dense_heads[source].candidates):
                raise ValueError(f"heads.{name}.candidates: {source!r} does not score all groups of a space")
        if self.stages:
            return self
        trained = [head for head in self.label_heads.values() if head.loss is not None]
        pooled = any(head.candidates is None for head in trained)
        if pooled and self.batching.labels == "heads":
            raise ValueError("batching.labels is heads, but a head over the labels has no candidates from another head")
        if not pooled and self.batching.labels != "heads" and (trained or self.space is None):
            raise ValueError("batching.labels must be heads: no head is trained on labels that the batch picks")
        return self

    @model_validator(mode="after")
    def _check_rest(self) -> Self:
        if self.predict.cascade is not None and not self.stages:
            self.predict.cascade.check(self.dense_heads, self.heads)
        weights = self.predict.weights
        if isinstance(weights, dict) and set(weights) != set(self.dense_heads):
            raise ValueError(f"predict.weights must name the heads {', '.join(self.dense_heads)}")
        if weights == "tree" and len(self.heads) < 2:
            raise ValueError("predict.weights is tree, which combines at least two heads")
        if self.fitted_heads and not self.predict.fused:
            raise ValueError(f"the head {next(iter(self.fitted_heads))!r} needs predict.weights: fusion")
        parts = [*self.encoders, *self.dense_heads]
        for key in ("freeze", "drop"):
            for name in getattr(self, key):
                _known(key, name, parts)
        shares: dict[str, Any] = {}
        for name, head in self.dense_heads.items():
            share = head.temperature.share
            if share is not None and shares.setdefault(share, head.temperature) != head.temperature:
                raise ValueError(f"heads.{name}.temperature: heads that share a temperature must agree on it")
        for share in shares:
            if sum(head.temperature.share == share for head in self.dense_heads.values()) < 2 and not self.stages:
                raise ValueError(f"temperature.share has no effect: only one head names {share!r}")
        return self

    @model_validator(mode="after")
    def _check_effect(self, info: ValidationInfo) -> Self:
        if not (info.context or {}).get("stage"):
            refuse_idle(self)
        return self


def _check_name(section: str, name: str) -> None:
    """Raise a ValueError if a part cannot have this name: it names its files in a model, too."""
    if section != "spaces" and (name in ("", "all", NGRAMS) or "." in name or hasattr(ModuleDict, name)):
        raise ValueError(f"{section}.{name}: choose another name, {name!r} is reserved")
    if set(name) & set("/\\:") or not name.strip(".") or not name.isprintable() or len(name.encode()) > LONGEST:
        raise ValueError(f"{section}: {name!r:.60} cannot be the name of a folder; choose another")


def _reads_ngrams(heads: Iterable[FittedSettings], spaces: Iterable[AnySpace]) -> bool:
    return any(head.reads_ngrams for head in heads) or any(NGRAMS in space.reads for space in spaces)


def _known(key: str, name: str | None, names: Iterable[str]) -> None:
    names = list(names)
    if name is not None and name not in names:
        raise ValueError(f"{key} is {name!r}; {nearest(name, names) if names else 'there is none'}")


def _no_others(key: str, names: Iterable[str], used: Iterable[str], reason: str) -> None:
    used = set(used)
    for name in names:
        if name not in used:
            raise ValueError(f"{key}.{name} has no effect: {reason}")


def _merged(document: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return the document with the changes put in, key by key; what is no mapping is replaced."""
    merged = dict(document)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict) and _same_kind(merged[key], value)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


def _same_kind(document: Mapping[str, Any], changes: Mapping[str, Any]) -> bool:
    """Return whether a section keeps its kind, and so its keys."""
    return all(changes.get(key, document.get(key)) == document.get(key) for key in ("kind", "pick"))


def switch_labels(batching: Mapping[str, Any], labels: str) -> dict[str, Any]:
    """Return the document of some settings for another value of ``labels``.

    Keys that the new kind does not have are left out, and so is ``refresh`` if nothing is left to refresh.

    >>> switch_labels({"batch_size": 64, "negatives": {"mined": 3}, "refresh": {"start": 2}}, "all")
    {'batch_size': 64, 'labels': 'all'}
    """
    kept = dict(batching) | {"labels": labels}
    if labels in BATCHING_KINDS:
        kept = {key: value for key, value in kept.items() if key in BATCHING_KINDS[labels].model_fields}
        mines = (kept.get("negatives") or {}).get("mined", 0)
        order = kept.get("order") or "shuffled"
        if not mines and (order if isinstance(order, str) else order.get("kind")) != "clustered":
            kept.pop("refresh", None)
    return kept
