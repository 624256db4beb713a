"""Update a trained model with new labelled rows and corrections, without starting over."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.batching import generator
from megalabel.data.dataset import Dataset, Labels
from megalabel.data.formats import Options
from megalabel.data.hold_out import hold_out_rows
from megalabel.data.load import load
from megalabel.disk import remove_abandoned
from megalabel.errors import DataError, SettingError
from megalabel.files import check_target, json_rows, writing, writing_folder
from megalabel.heads.head import Changed
from megalabel.metrics.measure import measure
from megalabel.model import LabelStats, Model
from megalabel.model.changing import changing
from megalabel.model.cut import fit_thresholds
from megalabel.model.fit_fusion import fit_fusion
from megalabel.model.grown import grown_network
from megalabel.model.merge_rows import merge_rows
from megalabel.model.store import find_model, read_labels
from megalabel.network.fit import fit_heads
from megalabel.training.further import Further, train_further

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.fusion import FusedScores
    from megalabel.metrics.thresholds import Thresholds
    from megalabel.network.fit import Fitted
    from megalabel.network.network import Network

__all__ = ["HISTORY", "UpdateSettings", "Updated", "load_rows", "read_history", "save_updated", "update", "update_run"]

HISTORY = "updates.jsonl"  # in a run folder: one line per update
SHOWN = ("P@1", "P@5", "nDCG@5", "PSP@1", "PSP@5")  # metrics in the history
FEWEST = 100  # validation rows; with fewer, weights and fusion stay as they are


@dataclass(frozen=True)
class UpdateSettings:
    """See :func:`update`."""

    epochs: int = 1
    rate: float = 0.1
    mix: float = 2.0
    validation: float = 0.3
    seed: int = 0

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise SettingError(f"epochs must be at least 1, not {self.epochs}")
        if not 0 < self.rate < np.inf:
            raise SettingError(f"rate must be above 0, not {self.rate}")
        if not 0 <= self.mix < np.inf:
            raise SettingError(f"mix must be at least 0, not {self.mix}")
        if not 0 <= self.validation < 1:
            raise SettingError(f"validation must lie in 0 to 1, not {self.validation}")


@dataclass(frozen=True)
class Updated:
    """The result of an update.

    Args:
        model: the updated model.
        history: what was written to the history: rows, settings, and validation metrics before and after.
    """

    model: Model
    history: dict[str, Any]


def update(
    run: str | PathLike[str],
    data: Dataset | str | PathLike[str],
    out: str | PathLike[str] | None = None,
    *,
    epochs: int = UpdateSettings.epochs,
    rate: float = UpdateSettings.rate,
    mix: float = UpdateSettings.mix,
    validation: float = UpdateSettings.validation,
    seed: int = UpdateSettings.seed,
    device: str = "auto",
    say: Callable[[str], None] = lambda line: None,
) -> Model:
    """Let a trained model learn from new labelled rows and corrections; return it and save it in place of the old one.

    A row whose text is a training text replaces the labels of that row; other rows are added, and so are labels that
    the model does not know. The model must have been saved with its training texts. Its network is trained on for
    ``epochs`` over the new rows, with ``mix`` times as many old ones, so that it forgets nothing; heads that train no
    encoder are fitted on all rows again. Part of the new texts is held out for validation: the fusion, or the weights
    of the heads, are fitted on them, and the model before and after is measured. If the recipe refits, the model then
    learns from them too.

    Args:
        run: a run folder or a saved model.
        data: the rows: a table, all of whose rows are new, or a data set, whose test rows are never learnt from.
        out: a folder for the updated model; by default, it replaces the old one. It does so completely or not at all.
        epochs: passes over the new rows.
        rate: the recipe's learning rates are multiplied by this.
        mix: old rows in each epoch, for each new one.
        validation: share of the new texts to hold out; 0 measures nothing.
        seed: random seed.
        device: where to train: auto, cpu, cuda, cuda:1 or mps.
        say: is called with each line of progress.

    >>> import tempfile
    >>> from megalabel import load, train
    >>> data, small = load("synthetic:points=400,labels=30"), ["training.epochs=1", "batching.batch_size=64"]
    >>> run = tempfile.mkdtemp() + "/run"
    >>> _ = train("unidec-cpu", data, out=run, changes=small)
    >>> rows = Dataset.from_lists(train=[("a new text", [0])], test=[("unused", [0])], labels=data.labels.texts)
    >>> model = update(run, rows.replace(labels=data.labels))
    >>> "a new text" in model.train_rows.texts
    True
    """
    settings = UpdateSettings(epochs, rate, mix, validation, seed)
    rows = data if isinstance(data, Dataset) else load_rows(run, data, Options(), say=say)
    return update_run(run, rows, out, settings=settings, device=device, say=say).model


def load_rows(
    run: str | PathLike[str],
    source: str | PathLike[str],
    options: Options,
    *,
    format: str | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Dataset:
    """Return new rows for a run as a data set; all rows of one table without a column ``split`` are its test rows."""
    rows = read_labels(run)
    known = Labels([row["text"] for row in rows], [row["uid"] for row in rows])
    return load(source, format=format, options=replace(options, rows="test", known=known), say=say)


def update_run(
    run: str | PathLike[str],
    data: Dataset,
    out: str | PathLike[str] | None = None,
    *,
    settings: UpdateSettings,
    device: str = "auto",
    say: Callable[[str], None] = lambda line: None,
) -> Updated:
    """Do the same as :func:`update`, and return the line of the history too."""
    start = time.perf_counter()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise SettingError("a model is updated by one process", remedy="start it without torchrun")
    if out is not None:
        check_target(out)
    place = find_model(run)
    with ExitStack() as stack:
        if out is None:
            stack.enter_context(changing(place, say))  # until it is saved: no other change of it is lost
        model = Model.load(place, device=device)
        update = _Update(model, place, data, settings, say)
        updated = update.model()
        history = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "data": data.name,
            **update.history,
            "seconds": round(time.perf_counter() - start, 1),
        }
        done = Updated(updated, history)
        save_updated(done, run, out)
    return done


def save_updated(updated: Updated, run: str | PathLike[str], out: str | PathLike[str] | None = None) -> None:
    """Write an updated model in place of the one of the run, or into another folder, and the line of its history."""
    home, place, model = Path(run), find_model(run), updated.model
    history = [*read_history(home), updated.history]
    lines = b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in history)
    if out is None:
        model.save(place, overwrite=True)
        if place != home:
            with writing(home / HISTORY) as stream:
                stream.write(lines)
        return
    with writing_folder(out) as folder:
        model.save(folder / "model")
        if (home / "recipe.yaml").is_file() and place != home:
            (folder / "recipe.yaml").write_bytes((home / "recipe.yaml").read_bytes())
        (folder / HISTORY).write_bytes(lines)


def read_history(run: str | PathLike[str]) -> list[dict[str, Any]]:
    """Return what the updates of a run wrote, the first one first."""
    path = Path(run) / HISTORY
    remove_abandoned(path.resolve())
    return [row for _, row in json_rows(path)] if path.exists() else []


@dataclass
class _Learnt:
    """What is learnt from some rows: the parts of a model."""

    network: Network
    fitted: Fitted
    weights: dict[str, float]
    fusion: FusedScores | None
    thresholds: Thresholds | None


class _Update:
    """One update: rows merged, learnt, measured."""

    def __init__(
        self, model: Model, place: Path, data: Dataset, settings: UpdateSettings, say: Callable[[str], None]
    ) -> None:
        self.old, self.settings, self.say = model, settings, say
        self.history: dict[str, Any] = {}
        rows = model.train_rows
        if rows is None:
            remedy = "train again, on old and new rows together"
            raise DataError("this model was saved without its training texts", path=place, remedy=remedy)
        self.merged = merge_rows(model.state, rows, data)
        self.name = data.name

    def model(self) -> Model:
        """Return the updated model; the one before has new labels then, and another network."""
        merged, old, say = self.merged, self.old, self.say
        for line in merged.notes:
            say(f"{self.name}: {line}")
        if old.indexes.built:
            say("the index of this model is of its old vectors and is left out: build it again with megalabel index")
            old.live.shared = None  # what is learnt here stays here
        whole, before = self._whole(), None
        held = self._hold_out(whole)
        if held.val is not None:
            before = self._metrics(old, held)
        if len(merged.new):
            old.add_labels(merged.new.texts, merged.new.uids)
        held_rows = _rows_of(held.val.uids) if held.val is not None else np.empty(0, dtype=np.int64)
        start = _Learnt(grown_network(old), old.state.grown_fitted(), dict(old.weights), old.fusion, old.thresholds)
        known = np.setdiff1d(merged.changed, held_rows)
        learnt = self._learn(start, held, known, merged.lost) if len(known) or len(merged.lost) else start
        updated = self._built(learnt, held)
        self._tell(before, held, updated)
        if old.recipe.training.refit and held.val is not None:
            say(f"learning from the {len(held.val):,} validation texts too")
            learnt = self._learn(learnt, whole, held_rows, np.empty(0, dtype=np.int64))
            updated = self._built(learnt, held)
        self.history |= {
            "rows": {"new": len(merged.fresh), "corrected": len(merged.corrected), "all": len(merged.split)},
            "labels": {"new": len(merged.new), "all": len(updated.labels)},
            "settings": asdict(self.settings),
        }
        val = self.history.get("validation")
        measured = {} if val is None else {"val": {"data": self.name, "rows": val["rows"], "metrics": val["after"]}}
        updated.about = {**old.about, "metrics": measured}
        return updated

    def _whole(self) -> Dataset:
        """Return all rows as a data set; its test rows are never looked at, but a data set must have some."""
        merged, old = self.merged, self.old
        labels = Labels([*old.labels.texts, *merged.new.texts], [*old.labels.uids, *merged.new.uids])
        some = merged.split.rows(merged.changed if len(merged.changed) else np.arange(1))
        return Dataset(merged.split, some, labels, name=self.name, propensity=old.stats.propensity)

    def _hold_out(self, whole: Dataset) -> Dataset:
        """Hold out a share of the new texts and, where the network never learnt from them, the old validation rows."""
        merged, settings = self.merged, self.settings
        rng = generator(settings.seed, "update")
        count = round(settings.validation * len(merged.fresh))
        rows = rng.permutation(merged.fresh)[:count].tolist()
        if not self.old.recipe.training.refit:
            rows += np.setdiff1d(merged.held, merged.corrected).tolist()
        return hold_out_rows(whole, rows)

    def _learn(self, start: _Learnt, data: Dataset, rows: NDArray[np.int64], lost: NDArray[np.int64]) -> _Learnt:
        """Return what is learnt from these rows of the data, by their numbers among all rows."""
        old, recipe = self.old, self.old.recipe
        place = np.full(len(self.merged.split), -1, dtype=np.int64)
        place[_rows_of(data.train.uids)] = np.arange(len(data.train))
        focus = place[rows][place[rows] >= 0]
        settings = self.settings
        further = Further(settings.epochs, settings.rate, settings.mix, settings.seed)
        phase = train_further(recipe, start.network, data, focus, further, name="update", say=self.say)
        touched = np.union1d(lost, data.train.targets[focus].indices).astype(np.int64)
        network = phase.network.eval()
        fitted = fit_heads(
            recipe.heads, recipe.ngrams.options(), network, data, seed=recipe.seed, say=self.say,
            known=start.fitted.heads, changed=Changed(touched),
        )  # fmt: skip
        learnt = _Learnt(network, fitted, start.weights, start.fusion, start.thresholds)
        if data.val is None:
            return learnt
        if len(data.val) < FEWEST:
            if len(old.heads) > 1:
                self.say(f"{len(data.val):,} validation texts are too few to combine the heads anew: as before")
            return learnt
        learnt.weights = phase.weights()
        model, top = self._built(learnt, data), None
        if recipe.predict.fused:
            learnt.fusion, top = fit_fusion(model, data, self.say)
        learnt.thresholds = fit_thresholds(model, data, top, self.say)
        return learnt

    def _built(self, learnt: _Learnt, data: Dataset) -> Model:
        removed, labels = self.old.state.removed, data.labels
        return Model(
            self.old.recipe, learnt.network, labels, learnt.weights, LabelStats.of(data), learnt.fitted, learnt.fusion,
            removed, thresholds=learnt.thresholds,
        )  # fmt: skip

    def _metrics(self, model: Model, data: Dataset) -> dict[str, float]:
        val = data.split("val")
        ids = model.search(val.texts, 100, exclude=val.excluded()[:, : len(model.labels)]).ids
        metrics = measure(data, ids, "val").metrics
        return {name: metrics[name] for name in SHOWN}

    def _tell(self, before: dict[str, float] | None, data: Dataset, updated: Model) -> None:
        """Say how good the model was and is, on rows that neither has learnt from."""
        if before is None or data.val is None:
            self.say("no validation rows: nothing is measured, and heads are combined as before")
            return
        after = self._metrics(updated, data)
        shown = ", ".join(f"{name} {before[name]:.2f} -> {after[name]:.2f}" for name in SHOWN)
        self.say(f"{len(data.val):,} validation texts: {shown}")
        self.history["validation"] = {"rows": len(data.val), "before": before, "after": after}


def _rows_of(uids: Any) -> NDArray[np.int64]:
    """Return the numbers of rows from the uids that :func:`~megalabel.model.merge_rows.merge_rows` gives them."""
    return np.array([int(uid.rpartition("-")[2]) for uid in uids], dtype=np.int64)
