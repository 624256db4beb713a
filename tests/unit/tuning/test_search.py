"""A search over settings, with training replaced by a curve that the settings determine."""

import json
import math

import pytest

from megalabel import load
from megalabel.errors import DataError, MegalabelError, SettingError, WriteError
from megalabel.recipes.load_recipe import load_recipe
from megalabel.training.run_log import RunLog, read_log
from megalabel.tuning import Choice, Range, tune
from megalabel.tuning.search import Trial, settings_text

SPACE = {"training.encoder.lr": Range(1e-4, 1e-2, log=True), "training.epochs": Choice((2, 4, 8))}


@pytest.fixture(scope="module")
def data():
    return load("synthetic:points=200,labels=20")


class Crash(BaseException):
    """Ends the process, as far as a test can."""


@pytest.fixture
def training(monkeypatch):
    """Replace training: the nearer the rate to 1e-3, the better. Returns what was trained, and may crash."""
    trained = []

    def validate(recipe, data, out, *, resume, watch):
        rate, epochs = recipe.training.encoder.lr, recipe.training.epochs
        trained.append((rate, epochs, recipe.training.refit, resume))
        out.mkdir(exist_ok=True)
        (out / "recipe.yaml").write_text("")
        if rate > validate.diverges:
            raise MegalabelError("the loss is NaN")
        top = 50 - 10 * abs(math.log10(rate) + 3)
        with RunLog(out / "metrics.jsonl", resume=resume) as log:
            log.rewind(-1)
            for epoch in range(1, epochs + 1):
                value = top * (1 - 0.5**epoch)
                log.write(epoch, phase="select", seconds=epoch * validate.seconds, epoch=epoch, val={"nDCG@5": value})
                if len(trained) == validate.crashes:
                    raise Crash
                watch(epoch)

    validate.crashes, validate.diverges, validate.seconds, validate.trained = 0, 1.0, 1.0, trained
    monkeypatch.setattr("megalabel.tuning.search.validate", validate)
    return validate


def run(data, out, **options):
    return tune("unidec-cpu", data, out, **({"space": SPACE, "trials": 12} | options))


def test_finds_a_better_recipe(training, data, tmp_path):
    lines = []
    changes = ["training.encoder.lr=1.0e-4", "training.refit=true"]
    trials = run(data, tmp_path / "out", changes=changes, say=lines.append)
    assert len(trials) == 12 and trials[0].settings == {}
    best = max(trials, key=lambda trial: trial.value)
    assert best.value > trials[0].value + 5
    recipe = load_recipe(tmp_path / "out" / "best.yaml")
    assert recipe.training.encoder.lr == best.settings["training.encoder.lr"]
    assert recipe.training.refit and not any(refit for _, _, refit, _ in training.trained)
    assert len({settings_text(trial.settings) for trial in trials}) == 12
    assert any("left" in line for line in lines)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["best.yaml", "trials.jsonl", "tune.json"]


def test_the_same_seed_gives_the_same_trials(training, data, tmp_path):
    def settings(name, seed):
        return [trial.settings for trial in run(data, tmp_path / name, seed=seed, trials=5)]

    first = settings("a", 1)
    assert settings("b", 1) == first and settings("c", 2) != first


def test_poor_trials_are_stopped_and_never_the_first_ones(training, data, tmp_path):
    trials = run(data, tmp_path / "out", trials=16)
    stopped = [trial for trial in trials if trial.end == "stopped early"]
    assert stopped and all(trial.end == "done" for trial in trials[:3])
    assert all(len(trial.curve) < trial.epochs for trial in stopped)
    assert max(trials, key=lambda trial: trial.value).end == "done"


def test_a_crash_loses_nothing(training, data, tmp_path):
    whole = [(trial.settings, trial.value) for trial in run(data, tmp_path / "whole")]
    before = len(training.trained)
    training.crashes = before + 5
    with pytest.raises(Crash):
        run(data, tmp_path / "out")
    assert len(read_log(tmp_path / "out" / "trials.jsonl")) == 4
    with (tmp_path / "out" / "trials.jsonl").open("ab") as file:
        file.write(b'{"step": 4, "sett')  # killed in the middle of a line
    training.crashes = 0
    again = run(data, tmp_path / "out", resume=True)
    assert [(trial.settings, trial.value) for trial in again] == whole
    assert len(training.trained) == before + 5 + 8
    assert training.trained[before + 5][3], "the trial under way goes on from its checkpoint"
    more = run(data, tmp_path / "out", resume=True, trials=14)
    assert len(more) == 14 and [(trial.settings, trial.value) for trial in more[:12]] == whole


def test_a_trial_that_fails_is_one_line(training, data, tmp_path):
    training.diverges = 3e-3
    lines = []
    trials = run(data, tmp_path / "out", say=lines.append)
    failed = [trial for trial in trials if trial.value is None]
    assert failed and all(trial.end == "the loss is NaN" for trial in failed)
    assert any("the loss is NaN" in line for line in lines)
    training.diverges = 1e-9
    with pytest.raises(MegalabelError, match="NaN"):
        run(data, tmp_path / "first")


def test_minutes(training, data, tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(
        "megalabel.tuning.search.time.monotonic", lambda: clock.__setitem__(0, clock[0] + 5) or clock[0]
    )
    trials = run(data, tmp_path / "out", minutes=1.0, trials=1000)
    assert len(trials) < 20 and trials[-1].end in ("time is over", "done", "stopped early")


def test_a_space_that_is_used_up(training, data, tmp_path):
    lines = []
    space = {"training.epochs": Choice((2, 6))}
    assert len(run(data, tmp_path / "out", space=space, say=lines.append)) == 2  # the recipe has 6 epochs
    assert "there are no further combinations" in lines


def test_mistakes(training, data, tmp_path):
    with pytest.raises(SettingError, match="nothing to search"):
        run(data, tmp_path / "out", space={})
    with pytest.raises(DataError, match="no search here"):
        run(data, tmp_path / "out", resume=True)
    run(data, tmp_path / "out", trials=1)
    with pytest.raises(WriteError, match="holds a search already"):
        run(data, tmp_path / "out")
    for change, what in (
        ({"seed": 4}, "seed"),
        ({"changes": ["training.clip=1.0"]}, "recipe"),
        ({"space": {"training.epochs": Choice((1, 2))}}, "space"),
    ):
        with pytest.raises(DataError, match=f"another {what}"):
            run(data, tmp_path / "out", resume=True, **change)
    with pytest.raises(DataError, match="another data"):
        run(load("synthetic:points=200,labels=21"), tmp_path / "out", resume=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("")
    with pytest.raises(WriteError, match="not empty"):
        run(data, tmp_path / "other")


def test_best_by_a_share_of_the_epochs():
    trial = Trial(0, {}, 3.0, 3, 4, 1.0, "stopped early", [(1, 1.0), (2, 2.0), (3, 3.0)])
    assert [trial.best_by(share) for share in (0.1, 0.25, 0.5, 0.75, 1.0)] == [None, 1.0, 2.0, 3.0, None]


def test_the_files_are_plain_json(training, data, tmp_path):
    run(data, tmp_path / "out", trials=2)
    document = json.loads((tmp_path / "out" / "tune.json").read_text())
    assert set(document) == {"recipe", "space", "data", "seed"}
    assert {"step", "settings", "value", "epoch", "epochs", "seconds", "end", "curve"} == set(
        read_log(tmp_path / "out" / "trials.jsonl")[1]
    )
