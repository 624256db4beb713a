"""Train a model by a recipe: a run of one or more stages, selected on validation, then refitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch

from megalabel.device import find_device
from megalabel.errors import DataError, SettingError
from megalabel.model import LabelStats, Model
from megalabel.model.about import describe, write_readme
from megalabel.model.changing import changing
from megalabel.model.cut import fit_thresholds
from megalabel.model.fit_fusion import fit_fusion
from megalabel.model.store import ENCODERS, SPACES, carried_spaces, carry_heads, find_model, load_encoders
from megalabel.network.fit import fit_heads
from megalabel.network.spaces import LabelSpace, build_spaces, group_dataset, load_spaces, over_groups
from megalabel.ranks import ALONE, Ranks
from megalabel.recipes.build import build_encoders, build_network
from megalabel.recipes.load_recipe import load_recipe
from megalabel.recipes.schema import Recipe
from megalabel.stages import check_sources, save_stage
from megalabel.training.augment_train import augment_and_tell
from megalabel.training.check_labels import check_labels
from megalabel.training.display import display
from megalabel.training.distributed.check import check_ranks
from megalabel.training.further import Further, train_further
from megalabel.training.phase import Phase, Texts
from megalabel.training.run_folder import finish_folder, identify, is_finished, on_device, prepare_folder
from megalabel.training.run_log import RunLog
from megalabel.training.space_sources import SpaceSources
from megalabel.training.trackers import open_trackers
from megalabel.training.validation import changed_rows, describe_validation, with_validation
from megalabel.types import LABELS
from megalabel.wording import counted

if TYPE_CHECKING:
    from torch import nn

    from megalabel.data.dataset import Dataset
    from megalabel.fusion import FusedScores
    from megalabel.metrics.thresholds import Thresholds
    from megalabel.network.fit import Fitted
    from megalabel.network.network import Network
    from megalabel.recipes.schema import Stage
    from megalabel.training.teacher import Teacher

__all__ = ["train", "train_rank", "validate"]


_FURTHER = Further()  # how a selected network learns from the validation rows


def train(
    recipe: str | Recipe,
    data: Dataset,
    out: str | PathLike[str] | None = None,
    *,
    changes: Sequence[str] = (),
    seed: int | None = None,
    resume: bool = False,
    device: str | None = None,
    keep_checkpoints: bool = False,
    log: Sequence[str] = (),
    ranks: Ranks = ALONE,
    say: Callable[[str], None] = lambda line: None,
) -> Model:
    """Train by a recipe and return the model; ``out`` keeps the whole run.

    If the data has no validation rows, some are held out of train by the rule that made the test set; everything
    is selected on them. With ``refit: true`` the network is then trained once more on train + val, for as many
    epochs as proved best. Rows of ``augment`` are made from the train rows after that, separately for each
    of the two trainings. A recipe with ``stages`` trains them in order; the model is that of the last one.

    Args:
        recipe: a name (see ``megalabel recipes``), a YAML file, or a recipe.
        data: the data set.
        out: run folder: recipe.yaml, metrics.jsonl, checkpoints, stages, model.
        changes: ``key=value`` changes to the recipe, as on the command line.
        seed: replaces the recipe's seed.
        resume: continue a run in ``out`` where it stopped, on any device; on a CPU the result is the same, bit for
            bit, as without the interruption.
        device: replaces the recipe's ``training.device``: auto, cpu, cuda, cuda:1 or mps.
        keep_checkpoints: keep checkpoints and stages, which are removed once the model is saved.
        log: where the curves go beside metrics.jsonl: ``tensorboard``, ``wandb``.
        ranks: the processes that train together, from :func:`megalabel.training.distributed.join`; each calls this
            with the same arguments, and ``out`` is a folder that all of them share.
        say: is called with each line of progress.
    """
    if isinstance(recipe, str):
        recipe = load_recipe(recipe, [*changes, *([] if seed is None else [f"seed={seed}"])])
    recipe = recipe if device is None else on_device(recipe, device)
    with ExitStack() as stack:
        if out is None:
            if not ranks.alone:
                raise SettingError("several ranks need a folder for the run that all of them share", remedy="give out")
            out = stack.enter_context(TemporaryDirectory())
        model = train_rank(
            recipe, data, out, resume=resume, keep_checkpoints=keep_checkpoints, log=log, ranks=ranks, say=say
        )
        return Model.load(out) if model is None else model


def train_rank(
    recipe: Recipe,
    data: Dataset,
    out: str | PathLike[str],
    *,
    resume: bool = False,
    keep_checkpoints: bool = False,
    log: Sequence[str] = (),
    ranks: Ranks = ALONE,
    say: Callable[[str], None] = lambda line: None,
    teacher: Teacher | None = None,
) -> Model | None:
    """Do the same as :func:`train`, from a teacher too; of several ranks only rank 0 returns the model, others None."""
    device = find_device(ranks.device(recipe.training.device))  # before anything else is done
    say = say if ranks.first else lambda line: None
    if not len(data.train):
        raise DataError(f"{data.name} has no train rows", remedy="these are rows to measure on")
    check_labels(recipe, data, say)
    check_sources(recipe)
    folder = Path(out)
    trackers = open_trackers(log, folder, recipe, say)
    with ExitStack() as lock:
        ranks.on_rank0(lambda: prepare_folder(folder, recipe, resume, lock))
        held = with_validation(recipe, data)
        identity = identify(recipe, held) | ({} if teacher is None else {"teacher": teacher.identity})
        check_ranks(ranks, {**identity, "--resume": str(resume)}, len(data.labels), folder)
        if resume and ranks.broadcast(lambda: is_finished(folder, identity)):
            say("this run is complete")
            return Model.load(folder) if ranks.first else None
        say(f"{len(held.train):,} train, {describe_validation(held)}, {counted(len(data.labels), 'label')}")
        if device.type != "cpu":
            say(f"training on {device}")
        if not ranks.alone:
            say(f"{ranks.world} ranks, each with about {counted(len(ranks.share(len(data.labels))), 'label')}")
        path = folder / "metrics.jsonl" if ranks.first else None
        with RunLog(path, resume=resume, trackers=trackers if ranks.first else ()) as records:
            model = _Run(recipe, folder, identity, resume, records, ranks, say, teacher=teacher).model(held)
        ranks.on_rank0(lambda: None if model is None else _save_model(model, folder, say))
        if not keep_checkpoints:
            ranks.on_rank0(lambda: finish_folder(folder, identity))
        return model


def validate(
    recipe: Recipe,
    data: Dataset,
    out: str | PathLike[str],
    *,
    resume: bool = False,
    watch: Callable[[int], None] = lambda epoch: None,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Train the stages once, on the train rows, and return the best evaluation on validation rows; no model is made.

    ``watch`` is called with its epoch after each evaluation of the last stage, which is in ``metrics.jsonl`` by then;
    what it raises ends the training.
    """
    find_device(recipe.training.device)
    check_labels(recipe, data, say)
    check_sources(recipe)
    folder = Path(out)
    with ExitStack() as lock:
        prepare_folder(folder, recipe, resume, lock)
        with RunLog(folder / "metrics.jsonl", resume=resume) as log:
            run = _Run(recipe, folder, identify(recipe, data), resume, log, ALONE, say, watch)
            return run.train_stages(augment_and_tell(recipe, data, say), "select", {}).best


def _save_model(model: Model, run: Path, say: Callable[[str], None]) -> None:
    """Write the model, and its card into the run as well."""
    folder = run / "model"
    with changing(folder, say) if folder.exists() else nullcontext():  # a server may have it
        model.save(folder, overwrite=True)
    write_readme(run, model, texts=True)


@dataclass(frozen=True)
class _Trained:
    """The last stage of one pass over all stages, and the epochs that each stage took."""

    phase: Phase
    best: dict[str, Any]
    epochs: dict[str, int]


@dataclass(frozen=True)
class _Run:
    """A run: the stages of a recipe, passed through once to select and, with ``refit``, once more on all rows."""

    recipe: Recipe
    folder: Path
    identity: dict[str, str]
    resume: bool
    log: RunLog
    ranks: Ranks
    say: Callable[[str], None]
    watch: Callable[[int], None] = lambda epoch: None  # called after each evaluation of the last stage
    teacher: Teacher | None = None

    def model(self, data: Dataset) -> Model | None:
        """Train and return the model, on rank 0."""
        recipe, ranks = self.recipe, self.ranks
        trained = self.train_stages(self._augmented(data), "select", {})
        phase, best = trained.phase, trained.best
        last = phase.recipe
        weights = phase.weights()
        if best["epoch"] > 0:
            metrics = ", ".join(f"{name} {best['metrics'][name]:.2f}" for name in ("P@1", "P@5", "PSP@1", "PSP@5"))
            epochs = counted(phase.epochs, "epoch")
            self.say(f"best {last.training.select} on validation after {best['epoch']} of {epochs}: {metrics}")
        if (cascade := last.predict.cascade) is not None:
            kept = [f"the best {beam:,} of {name}" for name, beam in cascade.beams(last.dense_heads).items()]
            self.say(f"labels are searched through {', '.join(kept)}")
        elif len(weights) > 1 and not recipe.predict.fused:
            missed = data.val is None and recipe.predict.weights == "validation"
            shown = ", ".join(f"{name} {weight:.2f}" for name, weight in weights.items())
            self.say(f"head weights: {shown}{' (no validation texts to choose them on)' if missed else ''}")
        parts = ranks.on_rank0(lambda: self._fit(phase, best, data, weights))
        network, fitted, fusion, thresholds = parts or (None, None, None, None)
        if last.training.refit and data.val is not None:
            further = last.training.refit == "continue"
            again = self._further(phase, data) if further else self._again(trained, data)
            known = {"known": fitted.heads, "changed": changed_rows(data)} if further and fitted is not None else {}
            parts = ranks.on_rank0(lambda: self._fit(again, best, data.refit(), None, **known))
            network, fitted, *_ = parts or (None, None)
        if network is None:
            return None
        model = Model(
            last, network.eval(), data.labels, weights, LabelStats.of(data), fitted, fusion, thresholds=thresholds
        )
        model.about = describe(data, self.identity["data"], self.log.seconds, best["metrics"])
        return model

    def _again(self, trained: _Trained, data: Dataset) -> Phase:
        """Train all stages from the start on train + validation, each for the epochs that proved best."""
        epochs = counted(trained.epochs[next(reversed(trained.epochs))], "epoch")
        self.say(f"training again on train + validation for {epochs}")
        return self.train_stages(self._augmented(data.refit()), "refit", trained.epochs).phase

    def _further(self, phase: Phase, data: Dataset) -> Phase:
        """Train the selected network on, over the validation rows and some others."""
        return train_further(
            phase.recipe, phase.network, self._taught(data.refit()), data.refit_places()[1], _FURTHER, name="refit",
            say=self.say, folder=self.folder / "checkpoints" / "refit", log=self.log, identity=self.identity,
            resume=self.resume,
        )  # fmt: skip

    def _taught(self, data: Dataset) -> Dataset:
        """Return the set with what a teacher says."""
        return data if self.teacher is None else self.teacher.teach(data)

    def _augmented(self, data: Dataset) -> Dataset:
        """Return the set with what a teacher says, and with the rows that the recipe adds."""
        return augment_and_tell(self.recipe, self._taught(data), self.say)

    def train_stages(self, data: Dataset, part: str, epochs: Mapping[str, int]) -> _Trained:
        """Train all stages in order, each for its own number of epochs or those given."""
        folders: dict[str, Path] = {}
        lengths: dict[str, int] = {}
        trained: list[tuple[Phase, dict[str, Any]]] = []
        stages = self.recipe.stage_recipes()
        for stage, recipe in stages:
            trained.clear()  # the next stage needs the memory
            name = f"{part}-{stage.name}" if self.recipe.stages else part
            source = self._source(recipe, folders)
            known, staged = self._spaces(stage, recipe, data, source)
            spaces = known if recipe.space is None else over_groups(known, recipe.space)
            count = epochs.get(stage.name, recipe.training.epochs)
            watch = self.watch if stage is stages[-1][0] else (lambda epoch: None)
            trained.append(self._phase(recipe, staged, spaces, name, count, source, watch))
            epoch = trained[0][1]["epoch"]
            lengths[stage.name] = epoch if epoch > 0 else count
            if self.recipe.stages:
                folders[stage.name] = self.folder / "stages" / name
                self.ranks.on_rank0(partial(save_stage, *trained[0], known, folders[stage.name], stage.drop))
        return _Trained(*trained[0], lengths)

    def _source(self, recipe: Recipe, folders: Mapping[str, Path]) -> Path | None:
        """Return the folder a stage begins from: an earlier stage, a run, or None for a start from scratch."""
        wanted = recipe.init_from
        if wanted is None:
            return list(folders.values())[-1] if folders else None
        return folders[wanted] if wanted in folders else find_model(wanted)

    def _spaces(
        self, stage: Stage, recipe: Recipe, data: Dataset, source: Path | None
    ) -> tuple[dict[str, LabelSpace], Dataset]:
        """Return the label spaces of a stage, and its data: groups for labels where the stage is over a space.

        A space that is scored by a head with weights from an earlier stage or run is taken over from there; all
        others are made anew.
        """
        labels = LabelSpace(LABELS, len(data.labels))
        scored = {recipe.space, *(head.space for head in recipe.dense_heads.values())}
        kept = [] if source is None else carried_spaces(recipe.dense_heads, source)
        spaces = load_spaces(Path() if source is None else source / SPACES, kept, labels.size)
        if scored - {None} - set(kept):
            device = find_device(self.ranks.device(self.recipe.training.device))
            built = build_spaces(
                recipe.spaces,
                SpaceSources(recipe, data, self.ranks, device, partial(self._encoders, recipe, data, source)),
            )
            spaces |= {name: space for name, space in built.items() if name in scored and name not in kept}
        for head in recipe.dense_heads.values():
            if head.candidates is not None and head.candidates.graph:
                name = recipe.dense_heads[head.candidates.source].label_space
                spaces[name] = spaces[name].with_graph(data.train.targets, recipe.seed)
        for name, space in spaces.items():
            if name != LABELS:
                self.say(
                    f"stage {stage.name}: label space {name} groups {counted(labels.size, 'label')} into {space.size:,}"
                )
        if recipe.space is None:
            return spaces, data
        return spaces, group_dataset(data, spaces[recipe.space])

    def _encoders(self, recipe: Recipe, data: Dataset, source: Path | None) -> dict[str, nn.Module]:
        """Return the encoders of a stage: those its source has, the others at their start."""
        known = {} if source is None else load_encoders(source, [*recipe.encoders])
        for name, encoder in known.items():
            difference = recipe.encoders[name].difference(encoder)  # type: ignore[arg-type]
            if difference is not None:
                remedy = f"take over the encoder of {source} as it is, or give this one another name"
                raise SettingError(f"encoders.{name}.{difference}", remedy=remedy)
        if len(known) == len(recipe.encoders):
            return known
        built = self.ranks.rank0_first(lambda: build_encoders(recipe, data))
        if self.teacher is not None:
            self.teacher.start(built)
        return {**built, **known}

    def _phase(
        self,
        recipe: Recipe,
        data: Dataset,
        spaces: Mapping[str, LabelSpace],
        name: str,
        epochs: int,
        source: Path | None,
        watch: Callable[[int], None],
    ) -> tuple[Phase, dict[str, Any]]:
        torch.manual_seed(recipe.seed)
        encoders = self._encoders(recipe, data, source)
        network = build_network(recipe, encoders, spaces, self.ranks)
        network.to(find_device(self.ranks.device(recipe.training.device)))
        carried = [] if source is None else carry_heads(network, source, data.labels)
        known = [] if source is None else [path.name for path in (source / ENCODERS).glob("*")]
        if recipe.init_from is not None and not carried and not set(known) & set(encoders):
            parts = ", ".join([*recipe.encoders, *recipe.dense_heads])
            raise SettingError(f"init_from {recipe.init_from} has no weights for {parts}", remedy="use its names")
        texts = self.ranks.rank0_first(lambda: Texts.of(data, encoders))
        steps, limit = recipe.batching.steps(data.train), recipe.training.max_steps
        epochs = epochs if limit is None else min(epochs, -(-limit // steps))
        total = steps * epochs if limit is None else min(limit, steps * epochs)
        title, select = f"{recipe.name} on {data.name}", name.startswith("select") and data.val is not None
        with display(total_steps=total, epochs=epochs, epoch_steps=steps, title=title) as show:
            phase = Phase(
                recipe=recipe, data=data, network=network, texts=texts, folder=self.folder / "checkpoints" / name,
                epochs=epochs, select=select, log=self.log, show=show, name=name, identity=self.identity,
                carried=carried, watch=watch,
            )  # fmt: skip
            return phase, phase.run(resume=self.resume)

    def _fit(
        self, phase: Phase, best: dict[str, Any], data: Dataset, weights: Mapping[str, float] | None, **known: Any
    ) -> tuple[Network, Fitted, FusedScores | None, Thresholds | None]:
        """Return the whole network, the heads fitted on it and, with weights, the fusion if wanted and thresholds.

        ``known`` are heads to start from, and the labels whose rows have changed since: see :func:`fit_heads`.
        """
        recipe, network = phase.recipe, phase.whole(best)
        fitted = fit_heads(
            recipe.heads, recipe.ngrams.options(), network, data, seed=self.recipe.seed, say=self.say,
            keep=recipe.training.refit == "continue" and weights is not None,
            checkpoints=self.folder / "checkpoints" / f"{phase.name}-heads", **known,
        )  # fmt: skip
        if weights is None:
            return network, fitted, None, None
        model = Model(recipe, network, data.labels, weights, LabelStats.of(data), fitted)
        fusion, top = fit_fusion(model, data, self.say) if recipe.predict.fused else (None, None)
        return network, fitted, fusion, fit_thresholds(model, data, top, self.say)
