"""Settings that have no effect because of what another part of the recipe says, or a stage: they are refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from megalabel.recipes.optimisers import AdamWSettings
from megalabel.settings import Settings

if TYPE_CHECKING:
    from megalabel.encoders.settings import BaseEncoderSettings
    from megalabel.heads.dense import DenseSettings
    from megalabel.recipes.schema import Recipe, Stage

__all__ = ["mines_once", "refuse_idle"]

_OF_THE_RUN = ("validation", "validation_like_test", "refit", "device")  # of training: one value for all stages


def refuse_idle(recipe: Recipe) -> None:
    """Raise a ValueError that names the first setting without effect, and the reason."""
    stages = recipe.stage_recipes()
    if recipe.stages:
        _check_stages(recipe, stages)
    for stage, staged in stages:
        place = f"stage {stage.name}: " if recipe.stages else ""
        _check_freeze(place, staged)
        _check_mining(place, staged)
    resolved = [staged for _, staged in stages]
    _check_frozen(recipe, resolved)
    _check_detached(resolved)
    _check_positives(recipe, resolved)
    _check_optimisers(recipe, stages)
    _check_lengths(recipe, resolved)
    if not any(encoder.has_layers for encoder in recipe.encoders.values()):
        _require(recipe.training, ["precision"], "training", "the encoders have no layers to compute")
    if recipe.predict.weights == "validation" and len(resolved[-1].dense_heads) == 1:
        raise ValueError("predict.weights is validation, but there is only one head to weight: leave it out")


# ------------------------------------------------------------------ stages


def _check_stages(recipe: Recipe, stages: list[tuple[Stage, Recipe]]) -> None:
    for stage in recipe.stages:
        for key in _OF_THE_RUN:
            if key in stage.training:
                raise ValueError(f"stage {stage.name}: training.{key} holds for the whole run: set it in training")
    used = {name for stage, staged in stages if not isinstance(stage.heads, dict) for name in staged.heads}
    for name in recipe.heads:
        if name not in used:
            raise ValueError(f"heads.{name} has no effect: no stage has it")
    for name in recipe.encoders:
        readers = [place for place, (_, staged) in enumerate(stages) if name in staged.encoders]
        gap = next((place for place in range(readers[0], readers[-1]) if place not in readers), None)
        if gap is not None:
            raise ValueError(f"stage {stages[gap][0].name}: no head reads {name}, which a later stage takes over")
    for section in ("batching", "training"):
        settings = getattr(recipe, section)
        for path in _written(settings):
            if all(_replaces(getattr(stage, section), settings, path) for stage in recipe.stages):
                raise ValueError(f"{section}.{'.'.join(path)} has no effect: every stage sets its own")


def _written(settings: Settings, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the keys that may be left out and are not at their default; a choice of kind among them."""
    for key, field in type(settings).model_fields.items():
        value = getattr(settings, key)
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        if isinstance(value, Settings):
            if type(value) is not type(default) and not field.is_required():
                yield from ((*path, key, choice) for choice in ("kind", "pick") if hasattr(value, choice))
            yield from _written(value, (*path, key))
        elif not field.is_required() and key not in ("kind", "labels", "pick") and value != default:
            yield (*path, key)


def _replaces(stage: Any, settings: Any, path: tuple[str, ...]) -> bool:
    """Return whether a stage has a value of its own for a key, or another kind of the section that holds it."""
    for key in path:
        if not isinstance(stage, Mapping):
            return True  # a plain word or null stands for the whole section
        if key not in stage:
            return any(stage.get(choice, getattr(settings, choice, None)) != getattr(settings, choice, None)
                       for choice in ("kind", "pick"))  # fmt: skip
        stage, settings = stage[key], getattr(settings, key, None)
    return True


# ------------------------------------------------------------------ parts that are not trained


def _trained(recipe: Recipe) -> tuple[dict[str, BaseEncoderSettings], dict[str, DenseSettings]]:
    """Return the encoders and heads that a stage trains; a head may have nothing to learn."""
    heads = {name: head for name, head in recipe.dense_heads.items() if head.loss is not None}
    reached = {encoder for head in heads.values() for encoder in head.encoders_read(next(iter(recipe.encoders)))}
    encoders: dict[str, BaseEncoderSettings] = dict(recipe.encoders)
    return (
        {name: encoder for name, encoder in encoders.items() if name in reached - set(recipe.freeze)},
        {name: head for name, head in heads.items() if name not in recipe.freeze},
    )


def _check_freeze(place: str, recipe: Recipe) -> None:
    encoders, heads = _trained(recipe.model_copy(update={"freeze": ()}))
    learning = {name for name, head in heads.items() if head.has_table or head.has_weights}
    for name in recipe.freeze:
        if name not in encoders and name not in learning:
            reason = "no head with a loss reads it" if name in recipe.encoders else "it has nothing to learn"
            raise ValueError(f"{place}freeze has no effect on {name!r}: {reason}")
    if not {*encoders, *learning} - set(recipe.freeze):
        raise ValueError(f"{place}freeze leaves nothing to train")
    for name in recipe.drop:
        head = recipe.dense_heads.get(name)
        if head is not None and not (head.has_table or head.has_weights):
            raise ValueError(f"{place}drop has no effect on {name!r}: it has no weights")


def _check_mining(place: str, recipe: Recipe) -> None:
    """Refuse biases of mined labels if the head that finds them has none, and a rhythm if they are always the same."""
    name, mining = _mining_head(recipe), recipe.batching.mining
    if mining is not None and mining.bias and name and not recipe.label_heads[name].bias:
        raise ValueError(f"{place}batching.negatives.bias has no effect: {name}, which finds the labels, has no bias")
    if mines_once(recipe):
        reason = f"{name}, which finds the negatives, is not trained, so they are mined once"
        _require(recipe.batching.refresh, ("every", "every_steps"), f"{place}batching.refresh", reason)


def _mining_head(recipe: Recipe) -> str:
    """Return the head that finds negatives, as :meth:`megalabel.network.network.Network.mining_head` chooses it."""
    heads = recipe.label_heads
    return next((name for name, head in heads.items() if head.reads_text), next(iter(heads), ""))


def mines_once(recipe: Recipe) -> bool:
    """Return whether mining again would find the same negatives: the stage does not train the head that finds them."""
    name = _mining_head(recipe)
    if recipe.batching.mining is None or recipe.batching.clusters or not name:
        return False
    encoders, heads = _trained(recipe)
    read = recipe.label_heads[name].encoders_read(next(iter(recipe.encoders)))
    own = name in heads and (heads[name].has_table or heads[name].has_weights)
    return not own and not read & set(encoders)


def _check_frozen(recipe: Recipe, stages: list[Recipe]) -> None:
    """Refuse noise in parts that no stage trains: they compute as at prediction."""
    encoders = {name for stage in stages for name in _trained(stage)[0]}
    heads = {name for stage in stages for name in _trained(stage)[1]}
    for name, encoder in recipe.encoders.items():
        if name not in encoders:
            _require(
                encoder.options,
                ("dropout", "token_dropout", "thin"),
                f"encoders.{name}.options",
                f"{name} is not trained",
            )
    for name, head in recipe.dense_heads.items():
        if name not in heads:
            _require(head, head.noise_keys, f"heads.{name}", f"{name} is not trained")


def _check_detached(stages: list[Recipe]) -> None:
    """Refuse epochs without a gradient for encoders that are not trained, and more of them than a stage has."""
    for stage in stages:
        encoders, heads = _trained(stage)
        for name, head in heads.items():
            if not head.detach_epochs:
                continue
            if not head.encoders_read(next(iter(stage.encoders))) & set(encoders):
                raise ValueError(f"heads.{name}.detach_epochs has no effect: the encoders it reads are not trained")
            if not (head.has_table or head.has_weights):
                raise ValueError(f"heads.{name}.detach_epochs: it has no weights of its own to learn meanwhile")
            if head.detach_epochs > stage.training.epochs:
                raise ValueError(f"heads.{name}.detach_epochs: training ends after {stage.training.epochs} epochs")


def _check_positives(recipe: Recipe, stages: list[Recipe]) -> None:
    """Refuse what a loss does with several positives if no stage shows it more than one."""
    for name, head in recipe.dense_heads.items():
        trained = [stage for stage in stages if name in _trained(stage)[1]]
        if head.loss is None or head.space is not None or head.loss.symmetric is not None:
            continue
        if all(stage.batching.one_positive for stage in trained):
            _require(head.loss, ("positives", "balanced"), f"heads.{name}.loss", "it sees one positive of each text")


def _require(settings: Settings, keys: Iterable[str], place: str, reason: str) -> None:
    """Refuse those of the keys that the settings have and that are not at their default."""
    try:
        settings.require(False, " ".join(key for key in keys if key in type(settings).model_fields), reason)
    except ValueError as error:
        raise ValueError(f"{place}.{error}") from None


# ------------------------------------------------------------------ optimisers


def _check_optimisers(recipe: Recipe, stages: list[tuple[Stage, Recipe]]) -> None:
    reasons = {
        "tables": "no head and no encoder that is trained has a table",
        "heads": "no head learns a projection, a query matrix, a bias or a temperature",
    }
    for key, reason in reasons.items():
        inherited = [staged for stage, staged in stages if key not in stage.training]
        for stage, staged in stages:
            if stage.training.get(key) is not None and not _groups(staged)[key]:
                raise ValueError(f"stage {stage.name}: training.{key} has no effect: {reason}")
        if getattr(recipe.training, key) is not None and not any(_groups(staged)[key] for staged in inherited):
            raise ValueError(f"training.{key} has no effect: {reason}")
    training, groups = recipe.training, [_groups(staged) for _, staged in stages]
    matrices = any(head.has_matrix for _, staged in stages for head in _trained(staged)[1].values())
    if training.heads is not None and training.heads.weight_decay and not matrices:
        raise ValueError("training.heads.weight_decay has no effect: only matrices decay, and no head learns one")
    if any(group["encoder"] for group in groups) or (training.heads is None and any(g["heads"] for g in groups)):
        return
    names = [name for name in type(training.encoder).model_fields if name not in ("kind", "lr")]
    if training.tables is not None or not any(group["tables"] for group in groups):
        _require(training.encoder, names, "training.encoder", "no encoder layer is trained, and no other group uses it")
    elif not isinstance(training.encoder, AdamWSettings):
        kind = training.encoder.kind
        raise ValueError(f"training.encoder.kind is {kind!r}, but only tables are trained: set training.tables")


def _groups(recipe: Recipe) -> dict[str, bool]:
    """Return which groups of parameters a stage trains."""
    encoders, heads = _trained(recipe)
    return {
        "encoder": any(encoder.has_layers for encoder in encoders.values()),
        "heads": any(head.has_weights for head in heads.values()),
        "tables": any(part.has_table for part in encoders.values()) or any(head.has_table for head in heads.values()),
    }


# ------------------------------------------------------------------ lengths of texts


def _check_lengths(recipe: Recipe, stages: list[Recipe]) -> None:
    """Refuse the length of a text that an encoder never reads."""
    queries, labels = set(), set()
    for stage in stages:
        first = next(iter(stage.encoders))
        queries |= {head.query_encoder(first) for head in stage.dense_heads.values()}
        compared = {feature for space in stage.spaces.values() for feature in space.reads}
        queries |= {first} if compared & {"points", "graph"} else set()
        labels |= {first} if "texts" in compared else set()
        readers = [head for head in stage.dense_heads.values() if head.reads_text]
        labels |= {head.label_text_encoder(first) for head in readers}
        if not any(head.text_only for head in readers):
            labels.add(first)  # new labels are compared with the others by the first encoder
    for name, encoder in recipe.encoders.items():
        read = {"query_length": name in queries, "label_length": name in labels}
        for key, reads in read.items():
            if getattr(encoder, key) is not None and not reads:
                raise ValueError(f"encoders.{name}.{key} has no effect: it reads no {key.split('_')[0]} texts")
        lengths = [key for key, reads in read.items() if reads]
        if not encoder.positions and all(getattr(encoder, key) is not None for key in lengths):
            _require(
                encoder.options, ["max_length"], f"encoders.{name}.options", f"texts are cut by {' and '.join(lengths)}"
            )
