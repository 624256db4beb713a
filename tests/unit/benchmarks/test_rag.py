"""What the retrieval benchmark counts."""

import json
import sys
from base64 import b64decode
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from megalabel.recipes.load_recipe import load_recipe

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
rag, rows = (import_module(name) for name in ("rag", "_rows"))
sys.path.remove(str(BENCHMARKS))


def test_complete_is_the_rank_of_the_last_document():
    targets = sparse.csr_matrix(np.array([[1, 0, 1, 0], [0, 1, 0, 0], [1, 1, 0, 1], [0, 0, 0, 0]], dtype=np.float32))
    ids = np.array([[0, 1, 2], [1, 0, 2], [0, 1, 2], [0, 1, 2]])
    assert rag.complete(ids, targets).tolist() == [3, 1, 0, 0]


def test_shares_count_what_fits_into_k():
    actual = rag.shares(np.array([3, 1, 0, 12, 6]), np.array([2, 1, 3, 7, 6]))
    assert actual["5"]["several"] == {"questions": 2, "complete": 50.0}
    assert actual["10"]["several"] == {"questions": 4, "complete": 50.0}
    assert actual["20"]["several"] == {"questions": 4, "complete": 75.0}
    assert actual["5"]["1"] == {"questions": 1, "complete": 100.0}
    assert actual["5"]["6 and more"] == {"questions": 0, "complete": 0.0}
    assert actual["10"]["6 and more"] == {"questions": 2, "complete": 50.0}


def test_every_loss_is_a_valid_run_of_its_own():
    found = {row.name: load_recipe(row.recipe, row.changes) for row in rag.rows("dexml-cpu", [])}
    assert len({rows.digest(row) for row in rag.rows("dexml-cpu", [])}) == len(found) == 7
    assert {recipe.training.epochs for recipe in found.values()} == {20}
    one = found["InfoNCE, one positive"]
    assert (one.heads["dual"].loss.kind, one.batching.one_positive, one.batching.unsampled) == (
        "softmax",
        True,
        "negative",
    )
    top = found["SoftTop-10"]
    assert (top.heads["dual"].loss.k, top.batching.loss_positives, top.batching.unsampled) == (10, 10, "mask")


@pytest.mark.slow
def test_a_small_run(tmp_path, monkeypatch, capsys):
    small = ["encoder.source=null", "encoder.options={dim: 8, words: 64, bigrams: 0, characters: 0}"]
    small += ["training.epochs=1", "batching.batch_size=32"]
    out = tmp_path / "rag.json"
    command = ["rag.py", "--data", "synthetic:points=200,labels=30", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", [*command, *(part for change in small for part in ("--set", change))])
    assert rag.main() == 0 and rag.main() == 0
    stored = json.loads(out.read_text())["rows"]
    assert [row["name"] for row in stored] == list(rag.LOSSES)  # the second run found all there
    assert capsys.readouterr().out.count("all documents found @5") == len(rag.LOSSES)
    ranks, documents = (np.frombuffer(b64decode(stored[0][name]), dtype=np.uint8) for name in ("needed", "documents"))
    assert rag.shares(ranks, documents) == stored[0]["complete"]
