"""Train a model by a recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from megalabel.augment import agreement
from megalabel.data.hold_out import hold_out
from megalabel.data.tokens import store_tokens
from megalabel.encoders import load_encoder
from megalabel.encoders.settings import make_encoder
from megalabel.errors import DataError, SettingError, WriteError
from megalabel.files import make_folder, writing
from megalabel.fusion import Fusion
from megalabel.model import Model, Seen
from megalabel.ranks import ALONE, Ranks
from megalabel.recipes.load_recipe import dump_recipe, load_recipe
from megalabel.recipes.schema import Recipe
from megalabel.training._rows import cut_tokens
from megalabel.training.augment_train import augment_train
from megalabel.training.check_ranks import check_ranks
from megalabel.training.checkpoint import list_checkpoints
from megalabel.training.cluster_labels import cluster_labels
from megalabel.training.display import display
from megalabel.training.find_device import find_device
from megalabel.training.fit_heads import fit_heads
from megalabel.training.network import Network
from megalabel.training.run import Phase, Texts
from megalabel.training.run_log import RunLog

if TYPE_CHECKING:
    from torch import Tensor

    from megalabel.data.dataset import Dataset
    from megalabel.encoders._base import BaseEncoder
    from megalabel.training.fitted import Fitted

__all__ = ["train", "train_rank"]

UNLIKE = 0.2  # share of right targets of label texts: Gandalf lost at 0.005 and 0.03, gained at 0.39 (docs/gandalf.md)


def train(
    recipe: str | Recipe,
    data: Dataset,
    out: str | PathLike[str] | None = None,
    *,
    changes: Sequence[str] = (),
    seed: int | None = None,
    resume: bool = False,
    device: str | None = None,
    ranks: Ranks = ALONE,
    say: Callable[[str], None] = lambda line: None,
) -> Model:
    """Train by a recipe and return the model; ``out`` keeps the whole run.

    Validation rows are held out of train by the rule of the test set where the data has
    none; everything is selected on them. With ``refit: true`` the network is then trained
    once more on train + val for as many epochs as proved best. What the recipe says under
    ``augment`` is made from the train rows after that, for each of the two trainings anew. What
    it says under ``stages`` is trained first, and leaves its encoder to what follows.

    Args:
        recipe: a name (see ``megalabel recipes``), a YAML file, or a recipe.
        data: the data set.
        out: run folder: recipe.yaml, metrics.jsonl, checkpoints, model.
        changes: ``key=value`` changes to the recipe, as on the command line.
        seed: in place of the recipe's seed.
        resume: go on where a run in ``out`` stopped, on any device; on a CPU the result is the same,
            bit for bit.
        device: in place of the recipe's ``training.device``: auto, cpu, cuda, cuda:1 or mps.
        ranks: the processes that train together, from :func:`megalabel.training.distributed.join`; each calls
            this with the same arguments, and ``out`` is a folder that all of them share.
        say: is told what happens, line by line.
    """
    if isinstance(recipe, str):
        recipe = load_recipe(recipe, [*changes, *([] if seed is None else [f"seed={seed}"])])
    recipe = recipe if device is None else _on(recipe, device)
    with ExitStack() as stack:
        if out is None:
            if not ranks.alone:
                raise SettingError("several ranks need a folder for the run that all of them share", remedy="give out")
            out = stack.enter_context(TemporaryDirectory())
        model = train_rank(recipe, data, out, resume=resume, ranks=ranks, say=say)
        return Model.load(out) if model is None else model


def train_rank(
    recipe: Recipe,
    data: Dataset,
    out: str | PathLike[str],
    *,
    resume: bool = False,
    ranks: Ranks = ALONE,
    say: Callable[[str], None] = lambda line: None,
) -> Model | None:
    """Do the same as :func:`train`, but of several ranks return the model on the first only, None on the others."""
    place = find_device(ranks.device(recipe.training.device))  # before anything else is done
    say = say if ranks.first else lambda line: None
    _check_labels(recipe, data, say)
    folder = Path(out)
    ranks.on_rank0(lambda: _prepare(folder, recipe, resume))
    held = data if data.val is not None else hold_out(data, share=recipe.training.validation, seed=recipe.seed)
    identity = {"recipe": _digest(dump_recipe(_on(recipe, "auto"))), "data": fingerprint(held)}
    check_ranks(ranks, {**identity, "--resume": str(resume)}, len(data.labels), folder)
    say(f"{len(held.train):,} train, {len(held.val or ()):,} validation texts, {len(data.labels):,} labels")
    if place.type != "cpu":
        say(f"training on {place}")
    if not ranks.alone:
        say(f"{ranks.world} ranks, each with about {len(ranks.share(len(data.labels))):,} labels")
    model = _run(recipe, held, folder, identity, resume, ranks, say)
    ranks.on_rank0(lambda: None if model is None else model.save(folder / "model", overwrite=True))
    return model


def _run(
    recipe: Recipe,
    data: Dataset,
    folder: Path,
    identity: dict[str, str],
    resume: bool,
    ranks: Ranks,
    say: Callable[[str], None],
) -> Model | None:
    with RunLog(folder / "metrics.jsonl" if ranks.first else None, resume=resume) as log:
        part = _augmented(recipe, data, say)
        run = _Run(folder, identity, resume, log, ranks)
        start, lengths = _stages(recipe, part, run, "select", {}, say)
        phase, best = _phase(recipe, part, run, "select", recipe.training.epochs, start)
        weights = phase.weights()
        if best["epoch"] > 0:
            found = ", ".join(f"{name} {best['metrics'][name]:.2f}" for name in ("P@1", "P@5", "PSP@1", "PSP@5"))
            say(f"best on validation after {best['epoch']} of {recipe.training.epochs} epochs: {found}")
        if len(weights) > 1 and recipe.predict.weights != "fusion":
            say("head weights: " + ", ".join(f"{name} {weight:.2f}" for name, weight in weights.items()))
        network, fitted, fusion = ranks.on_rank0(lambda: _fit(recipe, phase, best, data, weights, say)) or _NOT_HERE
        if recipe.training.refit:
            epochs = best["epoch"] if best["epoch"] > 0 else recipe.training.epochs
            say(f"training again on train + validation for {epochs} epochs")
            whole = _augmented(recipe, data.refit(), say)
            start, _ = _stages(recipe, whole, run, "refit", lengths, say)
            again, ended = _phase(recipe, whole, run, "refit", epochs, start)
            refitted = ranks.on_rank0(lambda: _fit(recipe, again, ended, data.refit(), None, say))
            network, fitted, _ = refitted or _NOT_HERE
    if network is None:
        return None
    network.eval()
    return Model(network, data.labels, weights, Seen.of(data), fitted, fusion)


_NOT_HERE = (None, None, None)


def _fit(
    recipe: Recipe,
    phase: Phase,
    best: dict[str, Any],
    data: Dataset,
    weights: Mapping[str, float] | None,
    say: Callable[[str], None],
) -> tuple[Network, Fitted, Fusion | None]:
    """Return the trained network whole, the heads fitted on it, and with weights their fusion, if it is wanted."""
    network = phase.whole(best)
    fitted = fit_heads(recipe, network, data, say)
    if weights is None or recipe.predict.weights != "fusion":
        return network, fitted, None
    return network, fitted, _fuse(Model(network, data.labels, weights, Seen.of(data), fitted), data, say)


def _fuse(model: Model, data: Dataset, say: Callable[[str], None]) -> Fusion:
    """Fit the fusion of all heads on the validation rows.

    Rows that carry the only point of a label are never held out, so such a label cannot be
    right in a row that was: there it is no candidate, lest rare labels look worse than they are.
    """
    val = data.split("val")
    ids, scores = model.candidates(val.texts, val.excluded())
    if data.before is not None:
        ids = np.where((ids >= 0) & (data.counts[ids] > 1), ids, -1)
    found = Fusion.fit(scores, ids, val.targets, model.fitted.counts)
    say(f"fusion of {', '.join(model.heads)} fitted on {len(val):,} validation texts")
    return found


def _augmented(recipe: Recipe, data: Dataset, say: Callable[[str], None]) -> Dataset:
    """Return the set with the train rows the recipe wants; validation rows are no longer among them."""
    found = augment_train(recipe, data)
    if recipe.augment is not None:
        rows = f"{len(data.train):,} train texts become {len(found.train):,}"
        say(f"{recipe.augment.kind}: {rows}, with {found.train.targets.nnz / len(found.train):.2f} labels each")
        if recipe.augment.kind == "gandalf" and (told := agreement(data, found)).targets:
            line = f"{told.texts:,} label texts are train texts too, where {told.share:.1%} of their targets are right"
            say(line + ("; if it does not help, try augment.targets=self" if told.share < UNLIKE else ""))
    return found


@dataclass(frozen=True)
class _Run:
    """What all phases of a run share."""

    folder: Path
    identity: dict[str, str]
    resume: bool
    log: RunLog
    ranks: Ranks


def _stages(
    recipe: Recipe, data: Dataset, run: _Run, part: str, lengths: Mapping[str, int], say: Callable[[str], None]
) -> tuple[Path | None, dict[str, int]]:
    """Train the stages that come before; return the folder of the encoder they leave, and how many epochs each took."""
    start, found = None, {}
    for stage in recipe.stages:
        own, name = recipe.stage(stage), f"{part}-{stage.name}"
        encoder = _encoder(own, data, start, run.ranks).to(find_device(run.ranks.device(own.training.device)))
        vectors = _encode(own, encoder, data, run.ranks)
        clustered = cluster_labels(data, vectors.numpy(), stage.clusters, seed=own.seed)
        say(f"stage {stage.name}: {len(clustered.labels):,} clusters in place of {len(data.labels):,} labels")
        phase, best = _phase(own, clustered, run, name, lengths.get(stage.name, own.training.epochs), start)
        found[stage.name] = best["epoch"] if best["epoch"] > 0 else own.training.epochs
        start = run.folder / "stages" / name
        run.ranks.on_rank0(partial(_save_encoder, phase.network, start))
    return start, found


def _encoder(recipe: Recipe, data: Dataset, start: Path | None, ranks: Ranks) -> BaseEncoder:
    """Return the encoder a stage has left, or one at its start; texts are tokenised by one rank for all."""
    if start is not None:
        return ranks.rank0_first(partial(load_encoder, start))
    texts = data.train.texts, data.labels.texts
    return ranks.rank0_first(lambda: make_encoder(recipe.encoder, recipe.seed, *texts))


def _encode(recipe: Recipe, encoder: BaseEncoder, data: Dataset, ranks: Ranks) -> Tensor:
    """Return the vectors [N, d] of the train texts, of which every rank encodes its share."""
    tokens = ranks.rank0_first(lambda: store_tokens(data.train.texts, encoder))
    own = ranks.share(len(tokens))
    part = encoder.encode(cut_tokens(tokens, own.start, own.stop), max_length=recipe.encoder.query_length)
    return ranks.gather(part, ranks.sizes(len(tokens)))


def _save_encoder(network: Network, folder: Path) -> None:
    make_folder(folder.parent)
    network.encoder.save(folder)  # type: ignore[operator]


def _phase(
    recipe: Recipe, data: Dataset, run: _Run, name: str, epochs: int, start: Path | None
) -> tuple[Phase, dict[str, Any]]:
    torch.manual_seed(recipe.seed)
    encoder = _encoder(recipe, data, start, run.ranks)
    network = Network(recipe, encoder, len(data.labels), run.ranks)
    network.to(find_device(run.ranks.device(recipe.training.device)))
    texts = run.ranks.rank0_first(lambda: Texts.of(data, encoder))
    checkpoints = run.folder / "checkpoints" / name
    steps = -(-len(data.train) // recipe.batching.size(len(data.train))) * epochs
    with display(total_steps=steps, epochs=epochs, title=f"{recipe.name} on {data.name}") as show:
        phase = Phase(
            recipe=recipe, data=data, network=network, texts=texts, folder=checkpoints, epochs=epochs,
            select=name.startswith("select"), log=run.log, show=show, name=name, identity=run.identity,
        )  # fmt: skip
        return phase, phase.run(resume=run.resume)


def _prepare(folder: Path, recipe: Recipe, resume: bool) -> Path:
    """Make the run folder and write the resolved recipe, or refuse to mix two runs."""
    known, own = folder / "recipe.yaml", ("model", "checkpoints", "metrics.jsonl")
    if resume:
        if not known.is_file():
            raise DataError("there is no run here to resume", path=folder, remedy="leave --resume out")
        before, now = (_on(each, "auto").model_dump(mode="json") for each in (load_recipe(known), recipe))
        differs = _difference(before, now)
        if differs is not None:
            raise DataError(
                f"this run was started with another recipe, {differs}", path=folder,
                remedy="resume with the same recipe, or start anew in another folder",
            )  # fmt: skip
        return folder
    begun = any(list_checkpoints(place) for place in (folder / "checkpoints").glob("*"))
    if known.is_file() and (begun or (folder / "model").exists()):
        raise WriteError("this folder holds a run already", path=folder, remedy="choose another, or --resume")
    if not known.is_file() and (ways := [name for name in own if (folder / name).exists()]):
        raise WriteError(f"{ways[0]!r} stands in the way, it is of no run", path=folder, remedy="choose another folder")
    make_folder(folder)
    with writing(known) as out:
        out.write(dump_recipe(recipe).encode())
    return folder


def _on(recipe: Recipe, device: str) -> Recipe:
    """Return the recipe with another device; a run may be resumed on any."""
    return recipe.model_copy(update={"training": recipe.training.model_copy(update={"device": device})})


def _difference(before: Any, now: Any, key: str = "") -> str | None:
    """Return the first place where two documents differ, with both values; None where they are equal."""
    if isinstance(before, dict) and isinstance(now, dict):
        places = dict.fromkeys([*before, *now])
        found = (_difference(before.get(part), now.get(part), f"{key}.{part}".lstrip(".")) for part in places)
        return next((one for one in found if one is not None), None)
    return None if before == now else f"{key} was {before} and is now {now}"


def _check_labels(recipe: Recipe, data: Dataset, say: Callable[[str], None]) -> None:
    """Refuse labels that the towers have nothing to read of; warn of labels that free vectors cannot learn."""
    reading = [name for name, head in recipe.heads.items() if head.tower != "free"]
    if not reading:
        if recipe.augment is not None and recipe.augment.kind == "gandalf":
            return  # their own text is a training point
        points = np.bincount(data.train.targets.indices, minlength=len(data.labels))
        if missing := int((points == 0).sum()):
            say(f"{missing:,} of {len(data.labels):,} labels have no training point; free vectors cannot learn them")
        return
    empty = [place for place, text in enumerate(data.labels.texts) if not text.strip()]
    if empty:
        raise DataError(
            f"{data.name}: {len(empty):,} of {len(data.labels):,} labels have no text "
            f"(the first is {data.labels.uids[empty[0]]!r}), but the head {reading[0]!r} reads it",
            remedy="give every label a text, or use a recipe with free towers only",
        )


def fingerprint(data: Dataset) -> str:
    """Return a hash of texts and relevance, to tell whether a run is resumed on the same data."""
    digest = blake2b(digest_size=16)
    for split in data.splits.values():
        for array in (split.targets.indptr, split.targets.indices, split.targets.data, split.filter):
            digest.update(array.tobytes())
        for text in split.texts:
            digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    for text in data.labels.texts:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()
