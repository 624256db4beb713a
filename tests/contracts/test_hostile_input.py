"""Whatever a file holds, reading it gives a result or one line: no other exception, and no waiting."""

import copy
import gzip
import hashlib
import json
import os
import shutil
import signal
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import megalabel as ml
from megalabel.data.dataset import Split
from megalabel.data.formats import FORMATS, Options, get_format
from megalabel.data.predictions import read_predictions
from megalabel.data.save import save
from megalabel.errors import MegalabelError
from megalabel.index import IvfIndex, load_index
from megalabel.model.predict_input import read_texts
from megalabel.model.store import read_labels
from megalabel.recipes.load_recipe import dump_recipe, load_recipe, make_recipe
from megalabel.training.checkpoint import load_checkpoint, save_checkpoint

SECONDS = 30
ODD = st.sampled_from(
    [
        None, True, -1, 0, 1.5, 2**70, -(2**70), 1e300, "", "x", "\0", "../../etc/passwd", "/dev/zero", "pipe",
        "\ud800", [], [None], ["a"], [1e300, 1], {}, {"a": 1}, [[[[]]]],
    ]
)  # fmt: skip
slow_is_fine = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
many = settings(max_examples=60, suppress_health_check=slow_is_fine)
some = settings(max_examples=15, suppress_health_check=slow_is_fine)  # each loads a model


@contextmanager
def one_line(seconds=SECONDS):
    """Pass over a MegalabelError of one line; fail for waiting, and let every other exception through."""

    def late(*_):
        pytest.fail(f"no answer within {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    except MegalabelError as error:
        assert "\n" not in str(error)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@st.composite
def damage(draw):
    """Return a change of bytes: some are replaced, cut, repeated or inserted."""
    place, length = draw(st.floats(0, 1)), draw(st.integers(0, 12))
    kind = draw(st.sampled_from(["replace", "cut", "repeat", "insert"]))
    new = draw(
        st.one_of(
            st.binary(max_size=4),
            st.sampled_from(
                [b"-1", b"1_0", b"\xef\xbb\xbf", b"\r\n", b"\x00", b"NaN", b"99999999999", b'"', b"[[", b"{"]
            ),
        )
    )

    def change(content):
        start = int(place * len(content))
        old = content[start : start + length]
        if kind == "cut":
            return content[:start]
        middle = {"replace": new, "repeat": old * 2, "insert": new + old}[kind]
        return content[:start] + middle + content[start + length :]

    return change


def places(document, path=()):
    """Yield the path of every value in a document."""
    yield path
    inner = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in inner:
        yield from places(value, (*path, key))


@st.composite
def forged(draw, document):
    """Return the document with up to two values replaced, left out, or under other names."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from([path for path in places(document) if path] or [("x",)]))
        owner = document
        for key in path[:-1]:
            owner = owner[key]
        kind = draw(st.sampled_from(["replace", "replace", "replace", "drop", "rename"]))
        if kind == "replace":
            owner[path[-1]] = draw(ODD)
        else:
            value = owner.pop(path[-1]) if path[-1] in owner or isinstance(owner, list) else None
            if kind == "rename" and isinstance(owner, dict):
                owner[draw(st.sampled_from(["", "x", "../x", "/dev/zero", "pipe", "recipe.yaml"]))] = value
    return document


def sealed(document, name="seal"):
    body = {key: value for key, value in document.items() if key != name}
    return {**body, name: hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()}


# ------------------------------------------------------------------ data sets


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """A small valid set in every format, by the name of the format."""
    data = ml.load("synthetic:points=40,labels=8")
    weights = data.train.targets.copy()
    weights.data[:3] = 0.5
    train = Split(data.train.texts, weights, data.train.uids, np.array([[0, 3], [7, 1]]))
    folders = {}
    for name in FORMATS:
        folders[name] = tmp_path_factory.mktemp("sets") / name
        save(data.replace(train=train), folders[name], format=name)
    return folders


@pytest.mark.parametrize("name", FORMATS)
@many
@given(data=st.data())
def test_damaged_data_sets(sets, tmp_path, name, data):
    place = tmp_path / "set"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(sets[name], place)
    files = sorted(path for path in place.rglob("*") if path.is_file())
    path = data.draw(st.sampled_from(files))
    content = path.read_bytes()
    if path.suffix == ".gz" and data.draw(st.booleans()):  # damage what is inside, not only the packing
        path.unlink()
        path = path.with_suffix("")
        content = gzip.decompress(content)
    path.write_bytes(data.draw(damage())(content))
    with one_line():
        get_format(name).read(place, Options(test_share=0.2))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kind", ["pipe", "device", "loop", "folder", "empty", "nothing"])
def test_files_that_are_none(sets, tmp_path, name, kind):
    for number, file in enumerate(sorted(path.relative_to(sets[name]) for path in sets[name].rglob("*"))):
        place = tmp_path / str(number)
        shutil.copytree(sets[name], place)
        path = place / file
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        make = {
            "pipe": lambda path: os.mkfifo(path),
            "device": lambda path: path.symlink_to("/dev/zero"),
            "loop": lambda path: path.symlink_to(path.name),
            "folder": Path.mkdir,
            "empty": Path.touch,
            "nothing": lambda path: None,
        }[kind]
        make(path)
        with one_line():
            get_format(name).read(place, Options())
        with one_line():
            ml.load(path)


@many
@given(
    st.dictionaries(
        st.sampled_from(["uid", "text", "labels", "weights", "scores", "x"]),
        ODD | st.lists(ODD, max_size=3),
        max_size=5,
    )
)
def test_rows_of_any_kind(tmp_path, row):
    data = ml.load("synthetic:points=40,labels=8")
    path = tmp_path / "rows.jsonl"
    try:
        path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    except UnicodeEncodeError:
        return
    folder = tmp_path / "set"
    folder.mkdir(exist_ok=True)
    for name in ("trn.jsonl", "tst.jsonl", "lbl.jsonl"):
        shutil.copy(path, folder / name)
    for read in (
        lambda: ml.load(folder),
        lambda: read_predictions(path, data.test, 8),
        lambda: list(read_texts(path)),
    ):
        with one_line():
            read()


# ------------------------------------------------------------------ recipes


@many
@given(damage(), st.sampled_from(["auto", "unidec-cpu", "astec"]))
def test_damaged_recipes(tmp_path, change, name):
    path = tmp_path / "recipe.yaml"
    path.write_bytes(change(dump_recipe(load_recipe(name)).encode()))
    with one_line():
        load_recipe(path)


@many
@given(st.data())
def test_forged_recipes(data):
    name = data.draw(st.sampled_from(["auto", "unidec-cpu", "astec"]))
    with one_line():
        make_recipe(data.draw(forged(yaml.safe_load(dump_recipe(load_recipe(name))))))


@pytest.mark.parametrize(
    "change",
    ["seed=-5", f"seed={2**64}", "seed=1e400", "training.epochs=" + "7" * 6_000, "a" + ".a" * 5_000 + "=1",
     "heads.dual.weight=.nan", "heads.dual.weight=.inf", "heads.dual=" + "[" * 3_000, "=", "seed"],
)  # fmt: skip
def test_bad_changes(change):
    with pytest.raises(MegalabelError) as error:
        load_recipe("unidec-cpu", [change])
    assert "\n" not in str(error.value)


# ------------------------------------------------------------------ models, indexes, checkpoints


@pytest.fixture(scope="module")
def saved(fused_run, tmp_path_factory):
    """A fused model with an index, as a folder, and its card."""
    folder = tmp_path_factory.mktemp("hostile") / "model"
    model = ml.Model.load(fused_run)
    model.build_index("ivf", heads="dual")
    model.add_labels(["one more"])
    model.save(folder)
    return folder


def load_and_use(folder):
    model = ml.Model.load(folder)
    model.predict(["some text"], k=3)
    model.predict(["some text"], k=3, heads="dual")


@some
@given(st.data())
def test_forged_model_cards(saved, tmp_path, data):
    place = tmp_path / "model"
    if not place.exists():
        shutil.copytree(saved, place)
        os.mkfifo(tmp_path / "pipe")
    card = json.loads((saved / "model.json").read_bytes())
    (place / "model.json").write_text(json.dumps(sealed(data.draw(forged(card)))))
    with one_line():
        load_and_use(place)


@pytest.mark.parametrize(
    ("key", "value"),
    [*((key, number) for key in ("labels", "trained", "sequence", "points") for number in (2**70, 2**63, 2**53)),
     ("labels", 0), ("labels", 10**6), ("trained", 10**6), ("points", 0)],
)  # fmt: skip
def test_model_cards_agree_with_the_labels(saved, tmp_path, key, value):
    place = tmp_path / "model"
    shutil.copytree(saved, place)
    card = json.loads((saved / "model.json").read_bytes())
    (place / "model.json").write_text(json.dumps(sealed({**card, key: value})))
    for read in (ml.Model.load, read_labels):
        with pytest.raises(MegalabelError, match=rf"model\.json: .*{key} is") as error:
            read(place)
        assert "\n" not in str(error.value)


@some
@given(st.data())
def test_forged_settings_inside_a_model(saved, tmp_path, data):
    place = tmp_path / "model"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(saved, place)
    files = sorted(path for path in place.rglob("*.json") if path.name not in {"model.json", "tokenizer.json"})
    path = data.draw(st.sampled_from([*files, place / "recipe.yaml"]))
    if path.suffix == ".yaml":
        document = data.draw(forged(yaml.safe_load(path.read_text())))
        path.write_text(yaml.safe_dump(document))
    else:
        document = data.draw(forged(json.loads(path.read_bytes())))
        path.write_text(json.dumps(sealed(document) if path.name == "index.json" else document))
    card = json.loads((place / "model.json").read_bytes())
    card["sha256"][path.relative_to(place).as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
    (place / "model.json").write_text(json.dumps(sealed(card)))
    with one_line():
        load_and_use(place)


@some
@given(damage(), st.data())
def test_damaged_models(saved, tmp_path, change, data):
    place = tmp_path / "model"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(saved, place)
    path = data.draw(st.sampled_from(sorted(path for path in place.rglob("*") if path.is_file())))
    path.write_bytes(change(path.read_bytes()))
    with one_line():
        load_and_use(place)


@pytest.mark.parametrize("kind", ["pipe", "device", "loop"])
def test_models_with_pipes_and_devices(saved, tmp_path, kind):
    for number, file in enumerate(sorted(path.relative_to(saved) for path in saved.rglob("*") if path.is_file())):
        place = tmp_path / str(number)
        shutil.copytree(saved, place)
        (place / file).unlink()
        if kind == "pipe":
            os.mkfifo(place / file)
        else:
            (place / file).symlink_to("/dev/zero" if kind == "device" else file.name)
        with one_line(10):
            load_and_use(place)
            pytest.fail(f"{file} was not missed")


@many
@given(st.data())
def test_forged_index_cards(tmp_path, data):
    place = tmp_path / "index"
    if not place.exists():
        IvfIndex.build(torch.randn(60, 8, generator=torch.Generator().manual_seed(0))).save(place)
        shutil.copy(place / "index.json", tmp_path / "good.json")
    card = json.loads((tmp_path / "good.json").read_bytes())
    (place / "index.json").write_text(json.dumps(sealed(data.draw(forged(card)))))
    with one_line():
        load_index(place)


@many
@given(st.data())
def test_forged_manifests(tmp_path, data):
    folder = tmp_path / "checkpoints"
    if not folder.exists():
        place = save_checkpoint(folder, 3, {"w": torch.ones(2)}, {"epoch": 1})
        shutil.copy(place / "manifest.json", tmp_path / "good.json")
    (place,) = folder.glob("*-step-*")
    manifest = json.loads((tmp_path / "good.json").read_bytes())
    (place / "manifest.json").write_text(json.dumps(sealed(data.draw(forged(manifest)), "sha256")))
    with one_line():
        load_checkpoint(folder)


@pytest.mark.parametrize("content", [b"[" * 100_000, b"{}", b"", b"7", b'{"seal": {}}'])
def test_cards_of_other_content(saved, tmp_path, content):
    place = tmp_path / "model"
    shutil.copytree(saved, place)
    (place / "model.json").write_bytes(content)
    with pytest.raises(MegalabelError):
        ml.Model.load(place)
    folder = save_checkpoint(tmp_path / "checkpoints", 3, {"w": torch.ones(2)}, {"epoch": 1})
    (folder / "manifest.json").write_bytes(content)
    with pytest.raises(MegalabelError):
        load_checkpoint(tmp_path / "checkpoints")
