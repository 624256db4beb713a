"""Distil a trained model into one vector per label: a student that any vector engine can serve."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from scipy import sparse

from megalabel.augment.soften import soften, texts_to_ask
from megalabel.data.dataset import Dataset, Split
from megalabel.data.hold_out import hold_out_rows
from megalabel.encoders import load_encoder
from megalabel.encoders._arrays import read_part, write_part
from megalabel.errors import DataError, SettingError
from megalabel.heads.sparse.rows import PARTS, pack, unpack
from megalabel.model import Model
from megalabel.model.changing import changing
from megalabel.model.store import ENCODERS, find_model
from megalabel.model.teach import calibrated, teach
from megalabel.recipes.load_recipe import load_recipe
from megalabel.trainer import train_rank
from megalabel.training.run_folder import TEACHER, on_device

if TYPE_CHECKING:
    from torch import nn

    from megalabel.recipes.schema import Recipe

__all__ = ["DistilSettings", "distil", "student_recipe", "teacher_data"]

RECIPE = "distil"
ANSWERS = "answers"


@dataclass(frozen=True)
class DistilSettings:
    """See :func:`distil`."""

    weight: float = 0.5
    top: int = 30
    least: float = 0.4
    label_texts: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 1:
            raise SettingError(f"weight must lie in 0 to 1, not {self.weight}", remedy="try 0.5")
        if self.top < 1:
            raise SettingError(f"top must be at least 1, not {self.top}", remedy="try 30")
        if not 0 <= self.least < 1:
            raise SettingError(f"least must be at least 0 and below 1, not {self.least}", remedy="try 0.4")


def distil(
    run: str | PathLike[str],
    out: str | PathLike[str] | None = None,
    *,
    data: Dataset | None = None,
    recipe: str = RECIPE,
    changes: Sequence[str] = (),
    weight: float = DistilSettings.weight,
    top: int = DistilSettings.top,
    least: float = DistilSettings.least,
    label_texts: bool = DistilSettings.label_texts,
    seed: int | None = None,
    resume: bool = False,
    device: str = "auto",
    say: Callable[[str], None] = lambda line: None,
) -> Model:
    r"""Train a student with one vector per label on what a trained model answers, and return it.

    Any model can be the teacher, also one that fuses several heads. It answers every train text, and every label text
    as a further text, with the calibrated probabilities of its ``top`` best labels; the student's targets are

    .. math:: y' = (1 - w) \, y + w \, p

    with y the true labels (see :func:`megalabel.augment.soften.soften`). Its encoder starts from the teacher's, if the
    teacher has one of its kind.

    Args:
        run: a run folder or a saved model: the teacher.
        out: run folder of the student, as of :func:`megalabel.train`.
        data: the set to train on, with the labels of the teacher; by default the texts that the teacher was trained on.
        recipe: the student's recipe; its heads must fold into one vector per label.
        changes: ``key=value`` changes to it, such as ``encoder.options.dim=128``.
        weight: w, from 0 (true labels alone) to 1 (the teacher alone).
        top: candidates of the teacher for each text.
        least: a candidate with a smaller probability is no target: the student is told that it is wrong.
        label_texts: the teacher answers label texts too.
        seed: replaces the recipe's seed.
        resume: continue a run in ``out``; what the teacher answered is not asked again.
        device: where teacher and student compute: auto, cpu, cuda, cuda:1 or mps.
        say: is called with each line of progress.

    >>> import tempfile
    >>> from megalabel import load, train
    >>> data, small = load("synthetic:points=400,labels=30"), ["training.epochs=1", "batching.batch_size=64"]
    >>> run = tempfile.mkdtemp() + "/run"
    >>> _ = train("unidec-cpu", data, out=run, changes=small)
    >>> student = distil(run, changes=small)
    >>> student.heads, student.encode(["a text"]).shape == (1, student.network.head("labels").dim)
    (['labels'], True)
    """
    settings = DistilSettings(weight, top, least, label_texts)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise SettingError("a model is distilled by one process", remedy="start it without torchrun")
    place = find_model(run)
    teacher = Model.load(place, device=device, exact=True)
    wanted = student_recipe(teacher, recipe, [*changes, *([] if seed is None else [f"seed={seed}"])])
    known = teacher_data(teacher, place) if data is None else _same_labels(teacher, data, place)
    gone = [teacher.labels.uids[label] for label in teacher.state.removed]
    default = teacher.network.default
    del teacher  # the memory is needed
    with TemporaryDirectory() if out is None else nullcontext(str(out)) as folder:
        own = _Teacher(place, default, settings, Path(folder), device, say)
        student = train_rank(on_device(wanted, device), known, folder, resume=resume, say=say, teacher=own)
        assert student is not None, "one process trains, and it has the model"
        _remove_labels(student, gone, Path(folder), say)
    return student


def student_recipe(teacher: Model, name: str, changes: Sequence[str] = ()) -> Recipe:
    """Return the recipe of a student: an encoder like the teacher's where both are of one kind, then the changes.

    Word pairs of a bag are the one thing it does not take over: without them the vector of a text is a sum over its
    words, which other programs can compute from a table.
    """
    plain = load_recipe(name, changes)
    first = teacher.network.encoders[teacher.network.default]
    config: dict[str, Any] = first.config()  # type: ignore[operator]
    like = [] if plain.encoder.kind != config["kind"] else _like(config, plain.encoder.options.model_dump())
    wanted = load_recipe(name, [*like, *changes])
    heads = wanted.heads.values()
    if wanted.stages or wanted.predict.fused or wanted.predict.cascade is not None or wanted.fitted_heads:
        raise SettingError(f"a student has one vector per label, which {name} does not", remedy=f"--recipe {RECIPE}")
    if any(head.space is not None for head in wanted.dense_heads.values()) or not heads:
        raise SettingError(f"a student scores labels, and {name} scores groups too", remedy=f"--recipe {RECIPE}")
    return wanted


def _like(trained: Mapping[str, Any], options: Mapping[str, Any]) -> list[str]:
    """Return the changes that give an encoder the settings of a trained one, and its tokens."""
    kept = {"bigrams", "seed", "dropout", "thin", *(() if trained.get("characters") else ("ngrams",))}
    same = {name: value for name, value in trained.items() if name in options and name not in kept}
    changes = [f"encoder.options.{name}={json.dumps(value)}" for name, value in same.items() if value is not None]
    source = trained["source"]
    known = source is None or source == "minilm" or Path(source).is_dir()  # a folder may be gone since
    return [*changes, f"encoder.source={json.dumps(source)}"] if known else changes


def teacher_data(teacher: Model, place: Path) -> Dataset:
    """Return the texts that a model was trained on as a data set over all its labels, validation rows held out.

    A data set has test rows; here they are train rows, which nothing looks at.
    """
    rows, state = teacher.train_rows, teacher.state
    if rows is None:
        remedy = "give the data set that it was trained on: --data D"
        raise DataError("this model was saved without its training texts", path=place, remedy=remedy)
    labels, stats = state.labels, state.stats
    parts, shape = rows.targets, (len(rows.texts), len(labels))  # labels added later have no rows
    targets = sparse.csr_matrix((parts.data, parts.indices, parts.indptr), shape=shape)
    split = Split(list(rows.texts), targets, [f"trn-{row}" for row in range(len(rows.texts))], rows.filter)
    data = Dataset(split, split, labels, name=str(teacher.about.get("data") or "its data"), propensity=stats.propensity)
    return hold_out_rows(data, rows.held.tolist())


def _same_labels(teacher: Model, data: Dataset, place: Path) -> Dataset:
    """Return the data; an error if its labels are not those of the teacher."""
    known = teacher.labels
    if list(data.labels.uids) == list(known.uids):
        return data
    here, there = set(data.labels.uids), set(known.uids)
    other = next(iter([*(uid for uid in data.labels.uids if uid not in there),
                       *(uid for uid in known.uids if uid not in here)]), None)  # fmt: skip
    what = "their order" if other is None else f"for example {other!r}"
    raise DataError(
        f"{data.name} does not have the labels of the teacher ({what} differs)", path=place,
        remedy="give the data set that it was trained on, or leave --data out",
    )  # fmt: skip


def _remove_labels(student: Model, gone: Sequence[str], folder: Path, say: Callable[[str], None]) -> None:
    """Remove from the student, and from its folder, what was removed from the teacher."""
    if gone and not len(student.state.removed):
        student.remove_labels(gone)
        with changing(folder / "model", say):
            student.save(folder / "model", overwrite=True)


def _take_over(encoder: nn.Module, folder: Path) -> bool:
    """Give an encoder the weights of a saved one, if they fit."""
    taken: bool = encoder.take_over(load_encoder(folder))  # type: ignore[operator]
    return taken


@dataclass
class _Teacher:
    """A saved model as a :class:`Teacher`: asked once, in memory only then; the run keeps its answers.

    Args:
        place: the folder of the model.
        default: its encoder of queries.
        settings: of the distillation.
        folder: the run of the student.
        device: where the teacher computes.
        say: is called with lines of progress.
    """

    place: Path
    default: str
    settings: DistilSettings
    folder: Path
    device: str
    say: Callable[[str], None]
    _asked: tuple[dict[str, int], sparse.csr_matrix] | None = None
    _told: bool = False

    @cached_property
    def identity(self) -> str:
        """A hash of the saved model, and the settings."""
        return f"{self._model} {json.dumps(asdict(self.settings), sort_keys=True)}"

    @cached_property
    def _model(self) -> str:
        return blake2b((self.place / "model.json").read_bytes(), digest_size=16).hexdigest()

    def start(self, encoders: Mapping[str, nn.Module]) -> None:
        """Give each encoder the weights of one of the teacher's, that of its queries first, if one fits."""
        names = [path.name for path in sorted((self.place / ENCODERS).iterdir())]
        names.sort(key=lambda name: name != self.default)
        for name, encoder in encoders.items():
            taken = any(_take_over(encoder, self.place / ENCODERS / each) for each in names)
            if not self._told:
                how = "starts from the teacher's" if taken else "starts afresh: the teacher has none that fits"
                self.say(f"the encoder {name} {how}")
        self._told = True

    def teach(self, data: Dataset) -> Dataset:
        """Return the set with the teacher's answers in its targets."""
        places, answers = self._answers(data)
        chosen = self.settings
        soft = soften(data, places, answers, weight=chosen.weight, least=chosen.least, label_texts=chosen.label_texts)
        more, cells = len(soft.train) - len(data.train), soft.train.targets.nnz / len(soft.train)
        self.say(f"{len(data.train):,} train texts and {more:,} label texts, with {cells:.1f} soft labels each")
        return soft

    def _answers(self, data: Dataset) -> tuple[dict[str, int], sparse.csr_matrix]:
        """Return the row of each text of the set, and the answers: from the run, or asked for and kept there."""
        if self._asked is None:
            texts = texts_to_ask(data.refit(), label_texts=self.settings.label_texts)
            digest = blake2b(digest_size=16)
            for text in texts:
                digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
            known = {"model": self._model, "top": self.settings.top, "texts": digest.hexdigest()}
            answers = self._kept(known)
            if answers is None:
                model = Model.load(self.place, device=self.device, exact=True)
                self.say(f"the teacher answers {len(texts):,} texts with its best {self.settings.top} labels")
                answers = teach(model, texts, self.settings.top, calibrated(model, data, self.say))
                write_part(self.folder / TEACHER, ANSWERS, {"kind": ANSWERS, **known}, pack(ANSWERS, answers))
            self._asked = {text: row for row, text in enumerate(texts)}, answers
        return self._asked

    def _kept(self, known: Mapping[str, Any]) -> sparse.csr_matrix | None:
        """Return the answers that an interrupted run has kept, if they are to the same question."""
        folder = self.folder / TEACHER
        if not folder.is_dir():
            return None
        settings, arrays = read_part(folder, ANSWERS, known, [f"{ANSWERS}.{part}" for part in PARTS])
        return unpack(ANSWERS, arrays, folder) if settings == known else None
