"""A search over settings: trials on validation rows, poor ones stopped early, every result kept as it comes."""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.data.hold_out import hold_out
from megalabel.documents import read_json
from megalabel.errors import DataError, MegalabelError, SettingError, WriteError
from megalabel.files import make_folder, writing
from megalabel.locks import holding
from megalabel.recipes.load_recipe import dump_recipe, load_recipe
from megalabel.trainer import validate
from megalabel.training.display import clock_time
from megalabel.training.run_folder import fingerprint
from megalabel.training.run_log import RunLog, read_log
from megalabel.tuning.space import change_of, default_space

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset
    from megalabel.recipes.schema import Recipe
    from megalabel.tuning.space import Axis

__all__ = ["BEST", "Trial", "settings_text", "tune"]

_LEAST = 3  # earlier trials that the median needs
_FIRST_SHARE = 0.25  # of its epochs that a trial may always use
_PARENTS = 3  # the best trials, whose neighbours are tried
_DRAWS = 200  # until a new combination is found
SEARCH, TRIALS, BEST = "tune.json", "trials.jsonl", "best.yaml"


@dataclass(frozen=True)
class Trial:
    """One combination of settings and what came of it.

    ``end`` is ``done``, ``stopped early`` (worse than the median of the others at the same share of its epochs),
    ``time is over``, or the reason why it failed, which leaves ``value`` None. ``curve`` holds epoch and value of every
    evaluation.
    """

    number: int
    settings: dict[str, Any]
    value: float | None
    epoch: int
    epochs: int
    seconds: float
    end: str
    curve: list[tuple[int, float]] = field(default_factory=list)

    def best_by(self, share: float) -> float | None:
        """Return its best value within a share of its epochs; None if it did not get that far."""
        if not self.curve or (self.end != "done" and self.curve[-1][0] / self.epochs < share):
            return None
        return max((value for epoch, value in self.curve if epoch / self.epochs <= share), default=None)


class _Ended(Exception):
    """Ends the training of a trial."""


def tune(
    recipe: str,
    data: Dataset,
    out: str | PathLike[str],
    *,
    space: Mapping[str, Axis] | None = None,
    changes: Sequence[str] = (),
    trials: int = 20,
    minutes: float | None = None,
    seed: int = 0,
    resume: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> list[Trial]:
    """Search the settings of a recipe on validation rows, and return the trials in their order.

    The first trial is the recipe as it is. The next ones are random; from a third of the trials on, every second one
    changes one or two settings of one of the three best. A trial trains the network on the train rows, without a refit
    and without the heads that are fitted after it, and counts with its best validation value of ``training.select``.
    It is stopped if its best value so far is below the median of the earlier trials at the same share of their epochs
    (Golovin et al., KDD 2017, "Google Vizier: A Service for Black-Box Optimization", section 3.2.1). What test rows
    look like is never measured.

    ``out`` keeps ``tune.json`` (what is searched), ``trials.jsonl`` (a line for every trial, written as it ends) and
    ``best.yaml``, the best recipe so far. With ``resume`` a search goes on where it ended or was killed, also with
    more trials or minutes; the trial under way continues from its checkpoint.

    Args:
        recipe: a name or a YAML file.
        data: the data set; validation rows are held out of train if it has none.
        out: the folder.
        space: what to search, by key; :func:`~megalabel.tuning.space.default_space` by default.
        changes: ``key=value`` changes for all trials.
        trials: how many there are in the end.
        minutes: when these are over, no trial begins, and the one under way ends at its next evaluation.
        seed: the same seed, the same combinations.
        resume: continue the search in ``out``.
        say: is called with each line of progress.
    """
    base = load_recipe(recipe, changes)
    chosen = default_space(recipe, changes) if space is None else dict(space)
    if not chosen:
        raise SettingError("there is nothing to search", remedy="name settings with --space key=a,b,c")
    if data.val is None:
        settings = base.training
        data = hold_out(data, share=settings.validation, like_test=settings.validation_like_test, seed=base.seed)
    if not data.val:
        raise DataError(f"{data.name} has no validation rows, and none can be held out", remedy="give more train rows")
    folder = Path(out)
    with ExitStack() as stack:
        stack.enter_context(_opened(folder, base, chosen, data, seed, resume))
        log = stack.enter_context(RunLog(folder / TRIALS, resume=resume))
        return _Search(folder, recipe, tuple(changes), base, chosen, data, trials, minutes, seed, say).run(log)


@contextmanager
def _opened(
    folder: Path, recipe: Recipe, space: Mapping[str, Axis], data: Dataset, seed: int, resume: bool
) -> Iterator[None]:
    """Hold the folder of a search, and refuse to mix two searches."""
    known = folder / SEARCH
    if resume and not known.is_file():
        raise DataError("there is no search here to resume", path=folder, remedy="leave --resume out")
    if folder.exists() and not folder.is_dir():
        raise WriteError("a file of this name exists", path=folder, remedy="choose another name")
    if not resume and folder.is_dir() and any(folder.iterdir()):
        found = "this folder holds a search already" if known.is_file() else "the folder exists and is not empty"
        raise WriteError(found, path=folder, remedy="choose another, or --resume")
    make_folder(folder)
    search = {
        "recipe": dump_recipe(recipe),
        "space": {key: str(axis) for key, axis in space.items()},
        "data": fingerprint(data),
        "seed": seed,
    }
    path = folder.resolve().with_name(f".{folder.resolve().name}.lock")
    busy, remedy = "another process searches in this folder", "wait until it is done, or choose another folder"
    with holding(path, target=folder, busy=busy, remedy=remedy, patience=0.0, say=None):
        before = read_json(known) if resume else search
        other = next((key for key, value in search.items() if before.get(key) != value), None)
        if other is not None:
            remedy = "resume with the same one, or search in another folder"
            raise DataError(f"this search was started with another {other}", path=folder, remedy=remedy)
        if not resume:
            with writing(known) as out:
                out.write(json.dumps(search, indent=2).encode() + b"\n")
        yield


@dataclass
class _Search:
    folder: Path
    source: str
    changes: tuple[str, ...]
    base: Recipe
    space: Mapping[str, Axis]
    data: Dataset
    trials: int
    minutes: float | None
    seed: int
    say: Callable[[str], None]
    done: list[Trial] = field(default_factory=list)

    def run(self, log: RunLog) -> list[Trial]:
        """Run the trials that are not recorded yet."""
        self.done = [_from_record(record) for record in read_log(self.folder / TRIALS)]
        for trial in self.done:
            self._clean(trial.number)
        if self.done:
            self.say(f"{len(self.done)} of {self.trials} trials are done")
        for number in range(len(self.done), self.trials):
            settings = self._next(number)
            if settings is None:
                self.say("there are no further combinations")
                break
            if self._over():
                self.say(f"{self.minutes:g} minutes are over")
                break
            self.say(f"trial {number + 1} of {self.trials}: {settings_text(settings)}")
            trial = self._try(number, settings)
            self.done.append(trial)
            log.write(number, **{key: value for key, value in asdict(trial).items() if key != "number"})
            self._clean(number)
            self.say(self._line(trial))
            self._write_best()
        self._write_best()
        return self.done

    def _try(self, number: int, settings: Mapping[str, Any]) -> Trial:
        """Train with these settings; an error ends this trial only, unless it is the recipe as it is."""
        recipe, place, end = self._recipe(settings, refit=False), self._place(number), "done"
        epochs = recipe.stage_recipes()[-1][1].training.epochs
        begun = time.monotonic() - _seconds_before(place)

        def watch(epoch: int) -> None:
            nonlocal end
            if epoch < epochs:
                running = time.monotonic() - begun
                end = "time is over" if self._over(running) else end
                end = "stopped early" if self._poor(_curve(place, recipe), epoch / epochs) else end
                if end != "done":
                    raise _Ended

        try:
            with suppress(_Ended):
                validate(recipe, self.data, place, resume=(place / "recipe.yaml").is_file(), watch=watch)
        except MegalabelError as error:
            if number == 0:
                raise
            return Trial(number, dict(settings), None, 0, epochs, round(time.monotonic() - begun, 3), str(error))
        curve = _curve(place, recipe)
        epoch, value = max(curve, key=lambda point: (point[1], -point[0]))
        return Trial(number, dict(settings), value, epoch, epochs, round(time.monotonic() - begun, 3), end, curve)

    def _poor(self, curve: Sequence[tuple[int, float]], share: float) -> bool:
        """Whether the best value so far is below the median of earlier trials at the same share of their epochs."""
        others = [value for trial in self.done if (value := trial.best_by(share)) is not None]
        if share < _FIRST_SHARE or len(others) < _LEAST:
            return False
        return max(value for _, value in curve) < statistics.median(others)

    def _next(self, number: int) -> dict[str, Any] | None:
        """Return settings that no trial had: the same for the same seed, number and earlier trials."""
        generator = np.random.default_rng([self.seed, number])
        tried = {json.dumps(trial.settings) for trial in self.done}
        local = number * 3 >= self.trials and number % 2 == 1
        for _ in range(_DRAWS if number else 0):
            settings = self._near_best(generator) if local else {}
            settings = {
                key: settings[key] if key in settings else axis.draw(generator) for key, axis in self.space.items()
            }
            if json.dumps(settings) in tried:
                continue
            tried.add(json.dumps(settings))
            with suppress(SettingError):  # settings that do not go together
                if self._recipe(settings) != self.base:
                    return settings
        return None if number else {}

    def _near_best(self, generator: np.random.Generator) -> dict[str, Any]:
        """Return the settings of one of the best trials, one or two of them changed a little."""
        ranked = [trial for trial in self.ranked() if trial.settings][:_PARENTS]
        if not ranked:
            return {}
        settings = dict(ranked[int(generator.integers(len(ranked)))].settings)
        size = min(len(settings), 1 + int(generator.integers(2)))
        for key in generator.choice(list(settings), size=size, replace=False).tolist():
            settings[key] = self.space[key].near(settings[key], generator)
        return settings

    def ranked(self) -> list[Trial]:
        """Return the trials with a value, the best first, the earlier of equal ones."""
        known = [(trial.value, trial) for trial in self.done if trial.value is not None]
        return [trial for _, trial in sorted(known, key=lambda pair: (-pair[0], pair[1].number))]

    def _recipe(self, settings: Mapping[str, Any], *, refit: bool = True) -> Recipe:
        own = [] if refit or not self.base.training.refit else ["training.refit=false"]
        return load_recipe(self.source, [*self.changes, *own, *(change_of(*item) for item in settings.items())])

    def _write_best(self) -> None:
        for best in self.ranked()[:1]:
            with writing(self.folder / BEST) as out:
                out.write(dump_recipe(self._recipe(best.settings)).encode())

    def _line(self, trial: Trial) -> str:
        """Return how a trial ended, the best so far, and the time left."""
        best, name = self.ranked()[0], self.base.training.select
        value = trial.end if trial.value is None else f"{name} {trial.value:.2f} in epoch {trial.epoch}"
        value += "" if trial.value is None or trial.end == "done" else f", {trial.end}"
        left = self._spent() / len(self.done) * (self.trials - trial.number - 1)
        left = left if self.minutes is None else max(0.0, min(left, self.minutes * 60 - self._spent()))
        top = f"best {best.value:.2f} in trial {best.number + 1}"
        return f"trial {trial.number + 1}: {value}; {top}; {clock_time(left)} left"

    def _spent(self) -> float:
        return sum(trial.seconds for trial in self.done)

    def _over(self, running: float = 0.0) -> bool:
        return self.minutes is not None and self._spent() + running >= self.minutes * 60

    def _place(self, number: int) -> Path:
        return self.folder / f"trial-{number:04d}"

    def _clean(self, number: int) -> None:
        """Remove what a trial needed until it was recorded."""
        place = self._place(number)
        shutil.rmtree(place, ignore_errors=True)
        place.with_name(f".{place.name}.lock").unlink(missing_ok=True)


def settings_text(settings: Mapping[str, Any]) -> str:
    """Return settings in one line.

    >>> settings_text({"training.epochs": 3, "training.encoder.lr": 2e-5}), settings_text({})
    ('training.epochs=3 training.encoder.lr=2e-05', 'the recipe as it is')
    """
    parts = [
        f"{key}={f'{value:g}' if isinstance(value, float) else json.dumps(value)}" for key, value in settings.items()
    ]
    return " ".join(parts) or "the recipe as it is"


def _from_record(record: Mapping[str, Any]) -> Trial:
    values = {key: value for key, value in record.items() if key not in ("step", "curve")}
    return Trial(
        number=record["step"], curve=[(int(epoch), float(value)) for epoch, value in record["curve"]], **values
    )


def _records(place: Path) -> list[dict[str, Any]]:
    path = place / "metrics.jsonl"
    return read_log(path) if path.is_file() else []


def _curve(place: Path, recipe: Recipe) -> list[tuple[int, float]]:
    """Return epoch and value of the evaluations of the last stage."""
    name = f"select-{recipe.stages[-1].name}" if recipe.stages else "select"
    rows = [row for row in _records(place) if row["phase"] == name and "val" in row]
    return [(row["epoch"], row["val"][recipe.training.select]) for row in rows]


def _seconds_before(place: Path) -> float:
    """Return the seconds that a trial took before it was interrupted."""
    return sum({row["phase"]: float(row["seconds"]) for row in _records(place)}.values())
