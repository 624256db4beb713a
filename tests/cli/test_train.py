"""Everything a user can get wrong between ``train`` and ``predict``: one line, exit code 2, nothing lost."""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file

from megalabel import load, save
from megalabel.training.checkpoint import list_checkpoints, load_checkpoint

DATA = "synthetic:points=300,labels=40,seed=5"  # as the fixture trained
FREE = "heads={classifier: {kind: free, loss: {kind: bce}}}"
TINY = ["encoder.options={dim: 4, words: 64, bigrams: 0, characters: 0}", "batching.negatives={mined: 3, top: 39}"]


@pytest.fixture
def train(call, settings, tmp_path):
    def train(*changes, recipe="unidec-cpu", data=DATA, out=tmp_path / "run", more=()):
        return call("train", recipe, "--data", data, "--out", out, *settings(*changes), *more)

    return train


def weights(folder):
    model = folder / "model"
    return load_file(model / "heads.safetensors") | load_file(model / "encoders" / "encoder" / "bag.safetensors")


def same_weights(one, other):
    one, other = weights(one), weights(other)
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def refused(result, *words):
    """Check that a command ended with code 2 and one line that has these words; lines of progress may stand before."""
    code, out, err = result
    *before, last = err.strip().splitlines()
    assert (code, out) == (2, ""), err
    assert last.startswith("megalabel: ")
    assert "Traceback" not in err
    assert not any(line.startswith("megalabel:") for line in before)
    for word in words:
        assert word in last, last
    return True


def flip(path, place=0.5):
    content = bytearray(path.read_bytes())
    content[int(len(content) * place)] ^= 0x10
    path.write_bytes(content)


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def write_set(folder, labels, train=(("red shoe", [0]), ("blue hat", [1])) * 20, test=(("red", [0]),)):
    folder.mkdir()

    def rows(prefix, points):
        return [{"uid": f"{prefix}-{i}", "text": text, "labels": ids} for i, (text, ids) in enumerate(points)]

    parts = {"lbl": [{"uid": uid, "text": text} for uid, text in labels], "trn": rows("trn", train)}
    for name, lines in (parts | {"tst": rows("tst", test)}).items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    return folder


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["training.epocs=3"], ["'training.epocs'", "did you mean 'epochs'?"]),
        (["training.epochs=many"], ["training.epochs", "integer"]),
        (["training.epochs=0"], ["training.epochs", "greater than 0"]),
        (["training.validation=-0.1"], ["training.validation", "greater than or equal to 0"]),
        (["training.encoder.lr=-1"], ["training.encoder.lr"]),
        (["training.select=nDCG@55"], ["training.select", "did you mean 'nDCG@5'?"]),
        (["training.device=gpu"], ["no device 'gpu'", "cuda"]),
        (["training.device=cuda:77"], ["no device 'cuda:77'"]),
        (["training.precision=half"], ["training.precision", "'bfloat16'"]),
        (["training.tables={kind: adamw, lr: 0.1}"], ["training.tables.kind is 'adamw'", "lazy_adamw"]),
        (["heads.dual.kind=txt"], ["heads.dual", "did you mean 'text'?"]),
        (["heads.dual.tower=text"], ["heads.dual", "'tower' is now called 'kind'"]),
        (["encoder.options={dimm: 3}"], ["encoder.options.dimm", "did you mean 'dim'?"]),
        (["encoder.options={dim: big}"], ["encoder.options.dim", "'big'", "valid integer"]),
        (["encoder.options={words: 500}"], ["words is 500", "512"]),
        (["encoder.source=/no/such/folder"], ["/no/such/folder: no such folder", "minilm"]),
        (["encoder.source=no/such"], ["'no/such'", "minilm"]),
        (["encoder.kind=transformer", "encoder.options={}", "encoder.source=/no/such"], ["/no/such: no such folder"]),
        (["encoder.kind=transformer", "encoder.options={}", "encoder.source=no/such"], ["'no/such'", "minilm"]),
        (["batching.batch_size=5000"], ["batch_size 5,000", "216 training points", "--set batching.batch_size=27"]),
    ],
    ids=lambda value: value[-1] if value[-1:] and "=" in value[-1] else "",
)
def test_wrong_settings(train, tmp_path, changes, words):
    assert refused(train(*changes), *words)
    assert not (tmp_path / "run").exists()


def test_a_mistake_leaves_other_files_alone(train, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    assert refused(train("batching.batch_size=5000"))
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["notes.txt"]


def test_a_mistake_leaves_the_folder_usable(train, tmp_path):
    assert refused(train("batching.batch_size=5000"))
    assert train("training.epochs=1")[0] == 0
    assert (tmp_path / "run" / "model" / "model.json").is_file()


def test_unknown_recipe(train, tmp_path):
    assert refused(train(recipe="unidec-cup"), "'unidec-cup'", "did you mean 'unidec-cpu'?")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("offline", ["1", "0"])
def test_a_missing_encoder_fails_immediately(settings, offline, tmp_path):
    """With the hub switched off there is no try; without, a name that has no address is not tried again and again."""
    changes = settings("encoder.kind=transformer", "encoder.options={}", "encoder.source=no-such/encoder")
    command = ["train", "unidec-cpu", "--data", DATA, "--out", str(tmp_path / "run"), *changes]
    away = {"HF_ENDPOINT": "https://hub.invalid", "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": offline}
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    kept |= {"TRANSFORMERS_OFFLINE": offline, **away}
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "megalabel", *command], capture_output=True, text=True, env=kept, timeout=60
    )
    assert refused((done.returncode, done.stdout, done.stderr), "'no-such/encoder'", "minilm")
    assert len(done.stderr.splitlines()) == 2  # the size of the data, and the mistake
    assert time.monotonic() - begin < 20  # the hub's client alone would try for 23 s


def test_labels_without_text(train, tmp_path):
    data = write_set(tmp_path / "set", [("a", "shoe"), ("b", ""), ("c", " ")])
    assert refused(train(data=data), "2 of 3 labels have no text", "'b'", "'dual'")
    changes = (FREE, "predict.weights=equal", "batching.batch_size=8")
    code, _, err = train(*changes, data=data, out=tmp_path / "free")
    assert code == 0, err
    assert err.count("1 of 3 labels have no training point") == 1


def test_labels_with_the_same_text(train, tmp_path):
    code, _, err = train("batching.batch_size=8", data=write_set(tmp_path / "set", [("a", "shoe"), ("b", "shoe")]))
    assert code == 0, err
    assert "1 label has the text of an earlier one; no head can tell them apart by text\n" in err


def test_test_metrics_are_printed_and_the_deciding_metric_is_named(call, settings, tmp_path):
    arguments = ["train", "unidec-cpu", "--data", "synthetic:points=80,labels=9", "--out", tmp_path / "run"]
    code, out, err = call(*arguments, *settings("batching.batch_size=32", "training.select=P@3"))
    assert (code, out) == (0, "")
    metrics = json.loads((tmp_path / "run" / "evaluation.json").read_text())["heads"]["all"]["metrics"]
    assert f"\ntest: P@1 {metrics['P@1']:.2f}, P@3 {metrics['P@3']:.2f}, P@5 " in err
    assert re.search(r"best P@3 on validation after [12] of 2 epochs: ", err)


def test_text_heads_accept_labels_without_training_points(train, call, tmp_path):
    data = write_set(tmp_path / "set", [("a", "shoe"), ("b", "hat"), ("c", "green scarf")])
    code, _, err = train("batching.batch_size=8", data=data)
    assert code == 0, err
    assert "no training point" not in err
    document = json.loads(
        call("predict", tmp_path / "run", "--text", "green scarf", "-k", "1", "--json", "--heads", "dual")[1]
    )
    assert document["predictions"][0][0]["uid"] == "c"


def test_data_without_labels_or_rows(train, tmp_path):
    assert refused(train(data=write_set(tmp_path / "a", [])), "lbl.jsonl", "empty")
    assert refused(train(data=write_set(tmp_path / "b", [("a", "x")], train=())), "trn.jsonl", "empty")
    assert refused(train(data=write_set(tmp_path / "c", [("a", "x")], train=[("t", [])] * 9)), "no positives")
    assert refused(train(data=tmp_path / "nowhere"), "nowhere")


def test_an_existing_run_is_kept(train, folder):
    before = weights(folder)
    assert refused(train(), str(folder), "holds a run already", "--resume")
    assert refused(train(data="nowhere"), "holds a run already")  # said before the data are read
    assert all(torch.equal(value, before[name]) for name, value in weights(folder).items())


def test_a_folder_with_other_files_is_kept(train, tmp_path):
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "model" / "mine.txt").write_text("keep")
    assert refused(train(), "'model' is in this folder, but")
    assert (tmp_path / "run" / "model" / "mine.txt").read_text() == "keep"
    (tmp_path / "file").write_text("keep")
    assert refused(train(out=tmp_path / "file"), "file")
    assert refused(train(out=tmp_path / "file" / "run"), "file")


def test_resume_without_a_run(train, tmp_path):
    assert refused(train(more=["--resume"]), "no run here to resume", "leave --resume out")
    assert not (tmp_path / "run").exists()


def test_resume_with_another_recipe_or_other_data(train, folder, trained):
    assert refused(
        train("training.epochs=3", more=["--resume"]),
        "another recipe",
        "training.epochs was 2 and is now 3",
        str(folder),
    )
    assert refused(train(more=["--resume", "--seed", "7"]), "seed was 0 and is now 7")
    assert refused(train(data=DATA.replace("seed=5", "seed=6"), more=["--resume"]), "other data", str(folder))
    assert train(more=["--resume"])[0] == 0
    assert same_weights(folder, trained)


def absurd(rate):
    """One step an epoch, at this rate from the first."""
    rates = [f"training.encoder.lr={rate}", f"training.tables.lr={rate}"]
    return [*rates, "training.schedule=constant", "training.warmup=0", "batching.batch_size=216"]


def test_a_nan_loss_keeps_the_last_good_checkpoint(train, tmp_path):
    unseen = ["training.epochs=3", "training.evaluate_every=3", "batching.order=shuffled", "batching.negatives={}",
              "batching.refresh={}"]  # fmt: skip
    result = train(*absurd(1e18), *unseen)
    assert refused(result, "the loss of dual", "is nan at epoch 2, step 2", "learning rate", "are kept")
    folder = tmp_path / "run" / "checkpoints" / "select"
    assert [path.name for path in list_checkpoints(folder)] == ["000001-step-1"]
    checkpoint = load_checkpoint(folder)
    assert checkpoint.notes == ()
    assert all(torch.isfinite(value).all() for value in checkpoint.tensors.values())


def test_nan_vectors_are_detected_at_evaluation(train):
    assert refused(train(*absurd(1e18)), "'dual' holds NaN or infinity at epoch 1, step 1", "learning rate")


def test_nan_weights_never_reach_a_checkpoint(train, tmp_path):
    """The loss of the only step is fine, what it leaves is not."""
    assert refused(train(*absurd(3e38)), "holds NaN or infinity at epoch 1, step 1", "learning rate", "are kept")
    assert not list((tmp_path / "run").glob("checkpoints/*/*"))


LIMIT = """
import resource, sys
from megalabel.__main__ import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.exit(main(sys.argv[2:]))
"""


def limited(size, *arguments):
    """Run a command that can write no file larger than ``size``: it fails half-way, as on a full disk."""
    command = [sys.executable, "-c", LIMIT, str(size), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_no_space_left_keeps_the_last_checkpoint(train, settings, tmp_path):
    """Mined negatives, which the second epoch brings, are what no longer fits."""
    run, whole = tmp_path / "run", tmp_path / "whole"
    result = limited(16_000, "train", "unidec-cpu", "--data", DATA, "--out", run, *settings(*TINY))
    assert refused(result, "could not save a checkpoint", "file too large", "earlier ones are kept")
    kept = list_checkpoints(run / "checkpoints" / "select")
    assert [path.name for path in kept] == ["000001-step-4"]
    assert load_checkpoint(run / "checkpoints" / "select").notes == ()
    assert not list(run.rglob(".*"))
    assert train(*TINY, more=["--resume"])[0] == 0
    assert train(*TINY, out=whole)[0] == 0
    assert same_weights(run, whole)


def test_no_space_for_the_model_keeps_the_checkpoints(train, settings, folder, trained):
    shutil.rmtree(folder / "model")
    result = limited(3_000, "train", "unidec-cpu", "--data", DATA, "--out", folder, *settings(), "--resume")
    assert refused(result, "model")
    assert not (folder / "model").exists()
    assert not list(folder.rglob(".*"))
    assert train(more=["--resume"])[0] == 0
    assert same_weights(folder, trained)


@pytest.mark.parametrize("spoil", [flip, cut], ids=["a byte changed", "cut off"])
def test_damaged_checkpoints(train, folder, trained, spoil, monkeypatch):
    checkpoints = folder / "checkpoints" / "select"
    newest = list_checkpoints(checkpoints)[0]
    shutil.rmtree(folder / "model")
    spoil(newest / "tensors.safetensors")
    monkeypatch.delenv("MEGALABEL_PROGRESS")
    code, _, err = train(more=["--resume", "--keep-checkpoints"])
    assert code == 0, err
    assert "passed over a damaged checkpoint" in err
    assert same_weights(folder, trained)
    for path in list_checkpoints(checkpoints):
        cut(path / "tensors.safetensors")  # a byte changed twice would be whole again
    assert refused(train(more=["--resume"]), "no readable checkpoint", "tensors.safetensors", "train from the start")


FILES = ["model.json", "recipe.yaml", "labels.jsonl.gz", "heads.safetensors", "encoders/encoder/bag.safetensors"]


@pytest.mark.parametrize("spoil", [flip, cut, lambda path: path.unlink()], ids=["a byte changed", "cut off", "gone"])
@pytest.mark.parametrize("name", [*FILES, "encoders/encoder/encoder.json"])
def test_damaged_model(call, folder, name, spoil):
    spoil(folder / "model" / name)
    result = call("predict", folder, "--text", "some text")
    assert refused(result, "no model here" if not (folder / "model" / "model.json").exists() else name)


def test_every_file_of_a_model_is_checked(trained):
    model = trained / "model"
    card = json.loads((model / "model.json").read_text())
    files = {path.relative_to(model).as_posix() for path in model.rglob("*") if path.is_file()}
    assert set(card["sha256"]) == files - {"model.json", "about.json", "README.md"}  # the card may be edited


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["predict", "RUN", "--text", "a", "--heads", "duall"], ["'duall'", "did you mean 'dual'?"]),
        (["predict", "RUN", "--text", "a", "-k", "0"], ["-k"]),
        (["predict", "RUN"], ["nothing to predict", "--text"]),
        (["predict", "RUN", "--input", "none.txt"], ["none.txt: no such file"]),
        (["predict", "nowhere", "--text", "a"], ["nowhere", "no model here"]),
        (["predict", __file__, "--text", "a"], ["test_train.py", "no model here"]),
        (["evaluate", "nowhere", "--data", DATA], ["nowhere", "no model here"]),
        (["evaluate", "RUN", "--data", DATA, "--heads", "x"], ["'x'", "all, dual, classifier"]),
        (["evaluate", "RUN", "--data", DATA, "--split", "val"], ["no val rows"]),
        (["evaluate", "RUN", "--data", "synthetic:points=300,labels=40,seed=9,kind=easy-positive"], []),
        (["evaluate", "--data", DATA], ["RUN", "--predictions"]),
        (["evaluate", "RUN", "--data", "nowhere", "--device", "cuda:77"], ["no device 'cuda:77'"]),
        (["predict", "RUN", "--text", "a", "--device", "gpu"], ["no device 'gpu'", "auto, cpu"]),
        (["predict", "RUN", "--text", "a", "--device", "cpu"], []),
        (["train", "unidec-cpu", "--data", "nowhere", "--out", "RUN", "--device", "cuda:77"], ["no device 'cuda:77'"]),
        (["reproduce", "dexml", "--data", "nowhere", "--device", "cuda:77"], ["no device 'cuda:77'"]),
    ],
    ids=lambda value: " ".join(value[:1] + value[2:])[:60] if value[:1] and value[0] in ("predict", "evaluate") else "",
)
def test_wrong_use_of_a_model(call, trained, arguments, words):
    result = call(*(trained if argument == "RUN" else argument for argument in arguments))
    if words:
        assert refused(result, *words)
    else:
        assert result[0] == 0  # the same label texts: another draw of points is a fair test


def test_labels_of_the_same_names_but_other_texts(call, trained, tmp_path):
    data = load(DATA)
    texts = [f"other words {i}" for i in range(40)]
    save(data.replace(labels=type(data.labels)(texts, data.labels.uids)), tmp_path / "other")
    assert refused(call("evaluate", trained, "--data", tmp_path / "other"), "only 0 of 40 labels")


def test_k_above_the_number_of_labels(call, trained):
    code, out, err = call("predict", trained, "--text", "some text", "-k", 10**9, "--json")
    assert code == 0
    assert len(json.loads(out)["predictions"][0]) == 40
    assert err.strip() == "the model has 40 labels; -k 1,000,000,000 returns all of them"
    code, out, _ = call("evaluate", trained, "--data", DATA, "--json")
    assert code == 0
    assert {"metrics", "data", "split", "run", "heads", "seconds", "peak_mib"} <= set(json.loads(out))


def test_input_that_is_not_text(call, trained, tmp_path):
    (tmp_path / "bytes.txt").write_bytes(b"fine\n\xff\xfe\n")
    assert refused(call("predict", trained, "--input", tmp_path / "bytes.txt"), "bytes.txt:2", "UTF-8")
    (tmp_path / "empty.txt").write_bytes(b"")
    assert refused(call("predict", trained, "--input", tmp_path / "empty.txt"), "empty")
    with gzip.open(tmp_path / "texts.gz", "wb") as out:
        out.write(b"one\ntwo\n")
    assert len(json.loads(call("predict", trained, "--input", tmp_path / "texts.gz", "--json")[1])["predictions"]) == 2
