"""A run that is killed while heads are fitted goes on with those that were."""

import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

import megalabel as ml
from megalabel.heads.linear import LinearSettings

DATA = "synthetic:points=200,labels=16"
CHANGES = [
    "encoder.source=null", "encoder.options={dim: 8, words: 256, bigrams: 0, characters: 0}", "batching.batch_size=64",
    "batching.negatives.search=exact", "training.epochs=1", "ngrams={words: 1024, bigrams: 1024, characters: 0}",
]  # fmt: skip
SCRIPT = """
import os, signal, sys
import megalabel as ml
from megalabel.heads.overlap import OverlapSettings
from megalabel.network import fit
fit.WORTH_SECONDS = 0.0
part, seen, plain = sys.argv[3], [], OverlapSettings.fit
def die(settings, data):
    if settings.side == "query":
        seen.append(part)
        if len(seen) == {"select": 1, "refit": 2}[part]:
            os.kill(os.getpid(), signal.SIGKILL)
    return plain(settings, data)
OverlapSettings.fit = die
ml.train("auto", ml.load(sys.argv[1]), sys.argv[2], changes=sys.argv[4:])
"""


@pytest.fixture(scope="module")
def whole():
    return ml.train("auto", ml.load(DATA), changes=CHANGES)


@pytest.mark.parametrize("part", ["select", "refit"])
def test_fitted_heads_survive_a_kill(whole, tmp_path, monkeypatch, part):
    run = tmp_path / "run"
    done = subprocess.run([sys.executable, "-c", SCRIPT, DATA, str(run), part, *CHANGES], capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    heads = run / "checkpoints" / f"{part}-heads"
    assert sorted(path.name for path in heads.iterdir()) == ["label_words", "linear", "memory"]
    if part == "refit":  # one that is damaged is fitted again
        (heads / "memory" / "memory.json").write_text("{")
        shutil.rmtree(heads / "label_words")
    fits = []
    for name in ("fit", "refit"):
        plain = getattr(LinearSettings, name)
        monkeypatch.setattr(LinearSettings, name, lambda *given, plain=plain: fits.append(1) or plain(*given))
    lines = []
    model = ml.train("auto", ml.load(DATA), run, changes=CHANGES, resume=True, say=lines.append)
    assert len(fits) == (1 if part == "select" else 0)  # that of the refit
    assert "the head linear was fitted before" in lines
    assert any(line.startswith("the head memory is fitted again") for line in lines) == (part == "refit")
    assert not (run / "checkpoints").exists()
    texts = ml.load(DATA).test.texts
    one, two = (each.search(texts, 5) for each in (model, whole))
    assert np.array_equal(one.ids, two.ids)
    assert np.array_equal(one.scores, two.scores)
