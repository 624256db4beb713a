"""``megalabel predict``: every format in and out, streamed, complete or not at all."""

import csv
import gzip
import json
import subprocess
import sys

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import megalabel as ml
from megalabel.metrics import Thresholds
from megalabel.model import predict_file

FUSED = [
    "heads.named={kind: overlap}",
    "predict={weights: fusion, candidates: 10}",
]
DATA = "synthetic:points=250,labels=30,seed=5"


@pytest.fixture(scope="module")
def fused(small, tmp_path_factory):
    """A fused model, and the test rows of its data."""
    folder = tmp_path_factory.mktemp("predict") / "run"
    data = ml.load(DATA)
    return folder, ml.train("unidec-cpu", data, folder, changes=[*small, *FUSED]), data.test


@pytest.fixture
def predict(call, fused):
    return lambda *arguments: call("predict", fused[0], *arguments)


@pytest.fixture
def sources(fused, tmp_path):
    """The same texts in every format."""
    pandas = pytest.importorskip("pandas")
    texts, uids = list(fused[2].texts[:20]), [f"q{row}" for row in range(20)]
    table = pandas.DataFrame({"uid": uids, "text": texts, "other": 1})
    table.to_parquet(tmp_path / "in.parquet")
    table.to_csv(tmp_path / "in.csv", index=False)
    table.to_csv(tmp_path / "in.tsv", index=False, sep="\t")
    lines = [json.dumps({"uid": uid, "text": text}) for uid, text in zip(uids, texts, strict=True)]
    (tmp_path / "in.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    (tmp_path / "in.txt").write_text("\n".join(texts) + "\n")
    return texts, uids


@pytest.mark.parametrize("ending", ["parquet", "csv", "tsv", "jsonl.gz", "txt"])
def test_every_format_is_read(predict, fused, sources, tmp_path, ending, monkeypatch):
    monkeypatch.setattr(predict_file, "BLOCK", 7)  # several blocks, the last one short
    texts, uids = sources
    assert predict("--input", tmp_path / f"in.{ending}", "--out", tmp_path / "out.jsonl", "-k", 3)[0] == 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["uid"] for row in rows] == ([str(row) for row in range(20)] if ending == "txt" else uids)
    expected = fused[1].predict(texts, 3)
    assert [row["labels"] for row in rows] == [[label.id for label in best] for best in expected]
    assert [row["label_texts"] for row in rows] == [[label.text for label in best] for best in expected]
    for row, best in zip(rows, expected, strict=True):
        assert row["scores"] == pytest.approx([label.score for label in best], rel=1e-4)


def test_every_format_is_written(predict, fused, sources, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    for ending in ("jsonl", "csv", "parquet"):
        arguments = ("--input", tmp_path / "in.csv", "--out", tmp_path / f"out.{ending}", "-k", 4, "--heads-scores")
        assert predict(*arguments, "--min-score", 0.05, "--rows", "label")[0] == 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert {score >= 0.05 for row in rows for score in row["scores"]} == {True}
    assert all(list(row["heads"]) == ["dual", "classifier", "named"] for row in rows if row["labels"])
    tables = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert [row["labels"] for row in tables] == [row["labels"] for row in rows]
    assert [row["score_dual"] for row in tables] == [pytest.approx(row["heads"]["dual"]) for row in rows]
    with (tmp_path / "out.csv").open(newline="") as file:
        cells = list(csv.DictReader(file))
    assert [(cell["uid"], int(cell["label"])) for cell in cells] == [
        (row["uid"], label) for row in rows for label in row["labels"]
    ]
    assert float(cells[0]["score_named"]) == pytest.approx(rows[0]["heads"]["named"][0], abs=1e-5)


def test_predictions_can_be_evaluated(predict, fused, call, tmp_path):
    lines = [json.dumps({"uid": uid, "text": text}) for uid, text in zip(fused[2].uids, fused[2].texts, strict=True)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    assert predict("--input", tmp_path / "in.jsonl", "--out", tmp_path / "out.jsonl")[0] == 0
    code, out, _ = call("evaluate", "--predictions", tmp_path / "out.jsonl", "--data", DATA, "--json")
    assert code == 0
    assert json.loads(out)["metrics"]["P@1"] == pytest.approx(fused[1].evaluate(ml.load(DATA)).metrics["P@1"])


@pytest.fixture(scope="module")
def threshold(fused):
    """The folder of the model with a threshold: its best labels are taken for correct."""
    folder, model, test = fused
    top = model.search(test.texts, 10)
    truth = csr_matrix((np.ones(len(test)), (np.arange(len(test)), top.ids[:, 0])), shape=(len(test), 30))
    model.thresholds = Thresholds.fit(top.ids, top.scores, truth)
    model.save(folder.parent / "threshold")
    model.thresholds = None
    return folder.parent / "threshold"


def test_without_k_the_threshold_decides_and_is_said(threshold, fused, call, tmp_path):
    model = ml.Model.load(threshold)
    texts = list(fused[2].texts[:8])
    for asked, options in (
        ({}, ()),
        ({"precision": 0.5}, ("--precision", 0.5)),
        ({"goal": "sample-f1"}, ("--goal", "sample-f1")),
    ):
        code, out, err = call(
            "predict", threshold, *(part for text in texts for part in ("--text", text)), *options, "--json"
        )
        assert code == 0
        answer = json.loads(out)
        assert answer["threshold"] == model.thresholds.choose(**asked).brief()
        found = [[label["id"] for label in row] for row in answer["predictions"]]
        assert found == [[label.id for label in row] for row in model.predict(texts, **asked)]
        assert f"chosen for {answer['threshold']['goal']} on 50 validation texts" in err
    (tmp_path / "in.txt").write_text("\n".join(texts))
    assert call("predict", threshold, "--input", tmp_path / "in.txt", "--out", tmp_path / "out.jsonl")[0] == 0
    rows = [json.loads(line)["labels"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert rows == [[label.id for label in row] for row in model.predict(texts)]


def test_a_model_without_a_threshold_returns_five_labels_and_says_so(predict, fused):
    code, out, err = predict("--text", fused[2].texts[0], "--json")
    assert (code, len(json.loads(out)["predictions"][0]), json.loads(out)["threshold"]) == (0, 5, None)
    assert err == "no threshold was chosen for this model on validation texts: the 5 best labels of each text\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--precision", 0.9, "-k", 3), "precision and k both say how many labels to return"),
        (("--precision", 90), "precision must be above 0 and at most 1, not 90"),
        (("--goal", "f1"), "unknown goal 'f1'"),
        (("--goal", "micro-f1", "--heads", "dual"), "the threshold of this model is for all heads, not for dual alone"),
    ],
)
def test_a_contradiction_about_the_number_of_labels_is_one_line(threshold, call, options, message):
    code, out, err = call("predict", threshold, "--text", "a text", *options)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert message in err


def test_heads_scores_of_one_text(predict, fused):
    code, out, _ = predict("--text", fused[2].texts[0], "--heads-scores", "-k", 1)
    assert code == 0
    assert "  dual " in out and "  named " in out
    code, out, _ = predict("--text", fused[2].texts[0], "--heads-scores", "-k", 1, "--json")
    assert list(json.loads(out)["predictions"][0][0]["heads"]) == ["dual", "classifier", "named"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input", "in.txt", "--out", "out.xyz"], "cannot write predictions as out.xyz"),
        (["--input", "in.txt", "--out", "out.jsonl", "--format", "jsom"], "unknown format 'jsom'; did you mean"),
        (["--input", "in.txt", "--out", "in.txt", "--format", "csv"], "--out and --input are the same file"),
        (["--input", "in.txt", "--out", "there.csv"], "this file exists; choose another name or --overwrite"),
        (["--input", "bad.jsonl", "--out", "out.csv"], 'bad.jsonl:2: row without a text under "text"'),
        (["--input", "bad.csv", "--out", "out.csv"], "no text column among: a, b"),
        (["--input", "none.csv", "--out", "out.csv"], "no such file"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_file(predict, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    (tmp_path / "there.csv").write_text("kept")
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n{"words": "b"}\n')
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    before = sorted(path.name for path in tmp_path.iterdir())
    code, out, err = predict(*arguments)
    assert (code, out) == (2, "")
    assert message in err and len(err.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert (tmp_path / "there.csv").read_text() == "kept"


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(fused, tmp_path):
    code = (
        "import resource, sys; from megalabel.__main__ import main; assert main(sys.argv[1:]) == 0;"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    peaks = []
    for rows in (5_000, 200_000):
        path = tmp_path / f"{rows}.txt"
        path.write_text("".join(f"text number {row} about nothing\n" for row in range(rows)))
        command = ["predict", fused[0], "--input", path, "--out", tmp_path / f"{rows}.jsonl"]
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, command)], capture_output=True, text=True, check=True
        )
        peaks.append(int(done.stdout) / 1024)
    assert sum(1 for _ in (tmp_path / "200000.jsonl").open()) == 200_000
    assert peaks[1] - peaks[0] < 30  # MiB


def test_a_run_beside_itself_ranks_the_same(predict, fused):
    text = fused[2].texts[0]
    one = json.loads(predict("--text", text, "--json")[1])["predictions"][0]
    two = json.loads(predict("--text", text, "--json", "--with", fused[0])[1])["predictions"][0]
    assert [label["uid"] for label in one] == [label["uid"] for label in two]
    assert two[0]["score"] == pytest.approx(1.0)
    score = json.loads(predict("--text", text, "--json", "--with", fused[0], "--by", "score")[1])["predictions"][0]
    assert [label["score"] for label in score] == pytest.approx([label["score"] for label in one], abs=1e-5)


def test_scores_of_heads_are_for_one_run(predict, fused):
    code, _, err = predict("--text", "a", "--with", fused[0], "--heads-scores")
    assert code != 0 and "--heads-scores is for one run" in err


@pytest.fixture
def wide(fused, tmp_path):
    """Six texts with columns of their own, one of them called like a predicted one."""
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(
        {
            "id": [f"r{row}" for row in range(6)],
            "body": list(fused[2].texts[:6]),
            "when": pandas.Timestamp("2026-01-02"),
            "price": [0.5 * row for row in range(6)],
            "labels": "x|y",
        }
    )
    table.to_csv(tmp_path / "in.csv", index=False)
    table.to_csv(tmp_path / "in.tsv", index=False, sep="\t")
    table.to_parquet(tmp_path / "in.parquet")
    table.to_json(tmp_path / "in.jsonl", orient="records", lines=True)
    return tmp_path


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "jsonl"])
@pytest.mark.parametrize("target", ["csv", "tsv", "parquet", "jsonl"])
def test_own_columns_are_kept(predict, fused, wide, ending, target, monkeypatch):
    pandas = pytest.importorskip("pandas")
    monkeypatch.setattr(predict_file, "BLOCK", 4)
    out = wide / f"out.{target}"
    assert predict("--input", wide / f"in.{ending}", "--text-column", "body", "--out", out, "-k", 2)[0] == 0
    if target == "jsonl":
        table = pandas.DataFrame([json.loads(line) for line in out.read_text().splitlines()])
    else:
        table = pandas.read_parquet(out) if target == "parquet" else pandas.read_csv(out, sep=None, engine="python")
    texts = list(fused[2].texts[:6])
    assert list(table["id"]) == [f"r{row}" for row in range(6)]
    assert list(table["body"]) == texts
    assert [float(price) for price in table["price"]] == [0.5 * row for row in range(6)]
    assert list(table["input_labels"]) == ["x|y"] * 6
    expected = fused[1].predict(texts, 2)
    if target in ("csv", "tsv"):
        assert [cell.split("|") for cell in table["labels"]] == [[label.uid for label in best] for best in expected]
        assert [len(cell.split("|")) for cell in table["scores"]] == [2] * 6
    else:
        assert [list(row) for row in table["labels"]] == [[label.id for label in best] for best in expected]
    if ending == target == "parquet":
        assert str(table["when"][0]) == "2026-01-02 00:00:00"


def test_one_row_per_label_and_no_columns(predict, wide):
    arguments = ("--input", wide / "in.csv", "--text-column", "body", "-k", 2)
    assert predict(*arguments, "--out", wide / "label.csv", "--rows", "label")[0] == 0
    rows = list(csv.DictReader((wide / "label.csv").open(newline="")))
    assert len(rows) == 12 and list(rows[0]) == ["uid", "rank", "label", "label_uid", "label_text", "score"]
    assert predict(*arguments, "--out", wide / "bare.csv", "--no-columns")[0] == 0
    assert next(csv.reader((wide / "bare.csv").open(newline=""))) == ["uid", "labels", "label_texts", "scores"]
    code, _, err = predict(*arguments, "--out", wide / "odd.csv", "--rows", "word")
    assert code == 2 and "--rows must be text or label, not 'word'" in err


@pytest.mark.parametrize("kind", ["text", "jsonl", "csv", "tsv"])
def test_standard_input_and_output(fused, sources, tmp_path, kind):
    """A pipe, which can be read only once, answers like the file."""
    texts, _ = sources
    ending = {"text": "txt", "jsonl": "jsonl.gz"}.get(kind, kind)
    content = (tmp_path / f"in.{ending}").read_bytes()
    content = gzip.decompress(content) if kind == "jsonl" else content
    command = [sys.executable, "-m", "megalabel", "predict", str(fused[0]), "--input", "-", "--out", "-", "-k", "3"]
    done = subprocess.run([*command, "--input-format", kind], input=content, capture_output=True, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["text"] for row in rows] == texts
    assert [row["labels"] for row in rows] == [[label.id for label in best] for best in fused[1].predict(texts, 3)]


def test_parquet_is_no_stream(predict, wide, tmp_path):
    assert "Parquet cannot be read from standard input" in predict("--input", "-", "--input-format", "parquet")[2]
    assert "cannot write parquet to standard output" in predict("--text", "a", "--out", "-", "--format", "parquet")[2]


def test_keys_that_come_later_need_json_lines(predict, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n{"text": "b", "more": {"x": [1]}}\n')
    code, _, err = predict("--input", tmp_path / "in.jsonl", "--out", tmp_path / "out.csv")
    assert code == 2 and "has 'more', the first row of the input has not; write .jsonl" in err
    assert predict("--input", tmp_path / "in.jsonl", "--out", tmp_path / "out.jsonl")[0] == 0
    assert [json.loads(line).get("more") for line in (tmp_path / "out.jsonl").open()] == [None, {"x": [1]}]


def test_several_texts(predict, fused, tmp_path):
    assert predict("--text", "one", "--text", "two, and more", "--out", tmp_path / "out.csv", "-k", 1)[0] == 0
    assert [row["text"] for row in csv.DictReader((tmp_path / "out.csv").open(newline=""))] == ["one", "two, and more"]
