"""A fault at every step of every writer: what was acknowledged is there, and what is there can be read."""

import os
import shutil
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch

import megalabel as ml
from megalabel.data.cache import cached
from megalabel.data.tokens import store_tokens
from megalabel.model.journal import Journal
from megalabel.model.store import read_labels
from megalabel.training.checkpoint import load_checkpoint, save_checkpoint
from megalabel.updater import UpdateSettings, read_history, save_updated, update_run

sys.path.insert(0, str(Path(__file__).parent))
from injection import LIMITS, every_fault, run

sys.path.remove(str(Path(__file__).parent))

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

TEXTS = ["red shoe", "blue shoe", "a hat for the beach", "shoe"]


class ModelSave:
    """A model is saved over an older one."""

    def __init__(self, run, folder, exchange=True):
        self.place, self.exchange = folder / "model", exchange
        self.model = ml.Model.load(run)
        self.model.label_side()
        self.base = folder.parent / f"{folder.name}-base"
        self.model.save(self.base / "model")
        self.before = self.model.state.sequence
        self.model.add_labels(["a label that is new"], ["new"])
        self.answers = {
            0: ml.Model.load(self.base / "model").search(TEXTS, 5).scores,
            1: self.model.search(TEXTS, 5).scores,
        }

    def act(self, acknowledge):
        if not self.exchange:
            import megalabel.disk

            megalabel.disk.exchange = lambda one, other: False
        self.model.save(self.place, overwrite=True)
        acknowledge(1)

    def check(self, acknowledged):
        loaded = ml.Model.load(self.place)
        version = loaded.state.sequence - self.before
        assert version == 1 or not acknowledged
        np.testing.assert_allclose(loaded.search(TEXTS, 5).scores, self.answers[version], rtol=1e-4, atol=1e-5)


class LabelChange:
    """Labels are added, renamed and removed, each recorded in the journal, with a fold among them."""

    CHANGES = (("add", ["one", "two"]), ("rename", "new0"), ("add", ["three"]), ("remove", "new1"), ("add", ["four"]))

    def __init__(self, run, folder):
        self.place = folder / "model"
        self.base = folder.parent / f"{folder.name}-base"
        shutil.copytree(run / "model", self.base / "model")
        self.model = ml.Model.load(self.base / "model")
        self.model.label_side()
        self.states = [self.rows(read_labels(self.base / "model"))]
        for label in range(len(self.CHANGES)):
            live = ml.Model.load(self.base / "model")
            for change in self.CHANGES[: label + 1]:
                self.apply(live, *change)
            removed = set(live.state.removed.tolist())
            pairs = zip(live.labels.uids, live.labels.texts, strict=True)
            self.states.append([pair for place, pair in enumerate(pairs) if place not in removed])

    @staticmethod
    def rows(labels):
        return [(row["uid"], row["text"]) for row in labels]

    @staticmethod
    def apply(model, kind, value):
        if kind == "add":
            start = len(model.labels) - 60
            model.add_labels(value, [f"new{start + place}" for place in range(len(value))])
        elif kind == "rename":
            model.rename_label(value, "another text")
        else:
            model.remove_labels([value])

    def act(self, acknowledge):
        journal = Journal(self.model, self.place)
        for number, change in enumerate(self.CHANGES, start=1):
            self.apply(self.model, *change)
            acknowledge(number)
            if number == 3:
                journal.fold()
        journal.fold()

    def check(self, acknowledged):
        done = len(acknowledged)
        rows = self.rows(read_labels(self.place))
        assert rows in self.states[done : done + 2]
        loaded = ml.Model.load(self.place)
        assert loaded.state.alive == len(rows)


class CheckpointSave:
    """A second checkpoint is saved, and the first is pruned."""

    def __init__(self, run, folder):
        self.place = folder / "checkpoints"
        self.base = folder.parent / f"{folder.name}-base"
        self.save(self.base / "checkpoints", 1)

    @staticmethod
    def save(place, step):
        tensors = {"weight": torch.full((50,), float(step)), "bias": torch.ones(3, dtype=torch.int64)}
        save_checkpoint(place, step, tensors, {"step": step}, {"mined": np.arange(4)}, keep=1)

    def act(self, acknowledge):
        self.save(self.place, 2)
        acknowledge(2)

    def check(self, acknowledged):
        loaded = load_checkpoint(self.place)
        assert loaded.step == 2 or (loaded.step == 1 and not acknowledged)
        assert loaded.tensors["weight"].eq(loaded.step).all()
        assert loaded.notes == ()
        self.save(self.place, 3)
        assert load_checkpoint(self.place).step == 3


class TokenCache:
    """Texts are tokenised and kept in the cache."""

    def __init__(self, run, folder):
        self.place = folder / "tokens"
        self.base = folder.parent / f"{folder.name}-base"
        self.base.mkdir()
        self.encoder = ml.Model.load(run).network.encoders["encoder"]
        self.expected = self.encoder.tokenise(TEXTS)

    def act(self, acknowledge):
        tokens = store_tokens(TEXTS, self.encoder, folder=self.place)
        acknowledge([tokens.ids.tolist(), tokens.offsets.tolist()])

    def check(self, acknowledged):
        expected = [self.expected.ids.tolist(), self.expected.offsets.tolist()]
        assert acknowledged in ([], [expected])
        again = store_tokens(TEXTS, self.encoder, folder=self.place)
        assert [again.ids.tolist(), again.offsets.tolist()] == expected


class DataCache:
    """A built data set is kept in the cache."""

    def __init__(self, run, folder):
        self.place = folder
        self.base = folder.parent / f"{folder.name}-base"
        self.base.mkdir()
        self.data = ml.load("synthetic:points=40,labels=5")

    def get(self):
        os.environ["MEGALABEL_CACHE"] = str(self.place)
        return cached({"set": "faulty"}, lambda: self.data)

    def act(self, acknowledge):
        acknowledge(len(self.get().train))

    def check(self, acknowledged):
        before = os.environ["MEGALABEL_CACHE"]
        try:
            assert acknowledged in ([], [len(self.data.train)])
            assert list(self.get().train.texts) == list(self.data.train.texts)
        finally:
            os.environ["MEGALABEL_CACHE"] = before


class IndexBuild:
    """An index is built and saved with its model."""

    def __init__(self, run, folder):
        self.place = folder / "model"
        self.base = folder.parent / f"{folder.name}-base"
        shutil.copytree(run / "model", self.base / "model")
        self.model = ml.Model.load(self.base / "model")
        self.answers = self.model.search(TEXTS, 5).ids
        self.model.build_index("ivf", searches=1)

    def act(self, acknowledge):
        self.model.save(self.place, overwrite=True)
        acknowledge(len(self.model.indexes.built))

    def check(self, acknowledged):
        loaded = ml.Model.load(self.place)
        assert len(loaded.indexes.built) in (acknowledged or (0, len(self.model.indexes.built)))
        assert (loaded.search(TEXTS, 1).ids[:, 0] == self.answers[:, 0]).all()


class ModelUpdate:
    """A model that has learnt from new rows takes the place of the old one, and the history gets a line."""

    def __init__(self, run, folder):
        self.place = folder / "run"
        self.base = folder.parent / f"{folder.name}-base"
        shutil.copytree(run, self.base / "run", ignore=shutil.ignore_patterns("checkpoints"))
        other = shutil.copytree(self.base / "run", folder.parent / f"{folder.name}-other")
        data = ml.load("synthetic:points=500,labels=60,seed=5")
        texts = [f"new {text}" for text in data.train.texts[:20]]
        rows = data.replace(train=replace(data.train.rows(np.arange(20)), texts=texts))
        settings = UpdateSettings(epochs=1)
        self.updated = update_run(other, rows, folder.parent / f"{folder.name}-out", settings=settings)
        models = ml.Model.load(self.base / "run"), self.updated.model
        self.answers = [model.search(TEXTS, 5).scores for model in models]

    def act(self, acknowledge):
        save_updated(self.updated, self.place)
        acknowledge(1)

    def check(self, acknowledged):
        scores = ml.Model.load(self.place).search(TEXTS, 5).scores
        fits = [np.allclose(scores, answers, rtol=1e-4, atol=1e-5) for answers in self.answers]
        assert fits[1] if acknowledged else any(fits)
        lines = read_history(self.place)
        assert lines in ([], [self.updated.history]) and (fits[1] or not lines) and len(lines) >= len(acknowledged)


WRITERS = {
    "model": ModelSave,
    "model, two renames": lambda run, folder: ModelSave(run, folder, exchange=False),
    "label change": LabelChange,
    "checkpoint": CheckpointSave,
    "token cache": TokenCache,
    "data cache": DataCache,
    "index": IndexBuild,
    "update": ModelUpdate,
}


def sweep(name, writer, folder, faults):
    """Let one call after the other fail and look after each; return how many, by operation and effect."""
    counts = Counter()
    for fault in faults:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(writer.base, folder)
        outcome = run(writer.act, fault)
        where = f"{name}, {fault}: {outcome}"
        assert outcome.traceback is None, where
        assert outcome.killed == ("kill" in fault.effect) or fault in LIMITS, where
        try:
            writer.check(outcome.acknowledged)
        except Exception as error:
            raise AssertionError(where) from error
        assert left_behind(folder) == [], where
        counts[f"{fault.operation} {fault.effect}"] += 1
    return [name, dict(counts)]


def left_behind(folder):
    """Return what a writer left that the next load or save should have removed."""
    return [path for path in folder.rglob(".*") if path.suffix in (".part", ".old")]


@pytest.fixture
def writer(request, summed_run, fused_run):
    """A writer in a folder in memory, where there is one: flushing a real disk takes most of the time."""
    run = fused_run if request.param == "label change" else summed_run
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield request.param, WRITERS[request.param](run, Path(folder) / "place"), Path(folder) / "place"


def prepared(writer):
    name, one, folder = writer
    shutil.copytree(one.base, folder)
    return name, one, folder, every_fault(one.act)


@pytest.mark.extra
@pytest.mark.parametrize("writer", WRITERS, indirect=True)
def test_some_faults(writer, record_property):
    """Every rename, and a few of the other operations, spread over the save."""
    name, one, folder, faults = prepared(writer)
    renames, others = ([fault for fault in faults if (fault.operation == "rename") == each] for each in (True, False))
    some = [*others[len(name) % 5 :: max(1, len(others) // 9)], *(LIMITS if Path("/proc/self/statm").exists() else [])]
    record_property("faults", sweep(name, one, folder, [*renames, *some]))


@pytest.mark.slow
@pytest.mark.parametrize("writer", WRITERS, indirect=True)
def test_every_fault(writer, record_property):
    name, one, folder, faults = prepared(writer)
    record_property("faults", sweep(name, one, folder, faults))
