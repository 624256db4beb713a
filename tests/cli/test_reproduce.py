"""``megalabel reproduce`` on a tiny set in the official file formats, with a tiny encoder."""

import gzip
import json
import random

import pytest

from megalabel.__main__ import main
from megalabel.data import official_sets
from megalabel.data.official_sets import OfficialSet
from megalabel.recipes.load_recipe import list_recipes, load_recipe
from megalabel.recipes.published import load_published

LABELS, TRAIN, TEST = 30, 240, 60
WORDS = [
    f"{first}{second}"
    for first in ("red", "blue", "wool", "silk", "old", "new")
    for second in ("hat", "shoe", "bag", "sock", "belt")
]
TINY = [
    "encoder={kind: bag, source: null, options: {dim: 32, words: 512, bigrams: 0, characters: 0}}",
    "batching.batch_size=32",
    "training.epochs=3",
    "training.encoder={lr: 0.01}",
    "training.tables={kind: row_adagrad, lr: 0.05}",
]


def settings(*changes):
    return [part for change in (*TINY, *changes) for part in ("--set", change)]


def write(path, rows):
    with gzip.open(path, "wt", encoding="utf-8") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)


def points(prefix, count, seed):
    draw = random.Random(seed)
    for number in range(count):
        ids = sorted(draw.sample(range(LABELS), 2))
        title = " ".join(WORDS[i] for i in ids)
        targets = {"target_ind": ids, "target_rel": [1.0, 1.0]}
        yield {"uid": f"{prefix}{number}", "title": title, "content": f"{title} and more words", **targets}


@pytest.fixture
def official(tmp_path, monkeypatch):
    """The folder of a set that the catalogue knows under the name LF-TinyTitles."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    write(folder / "trn.json.gz", points("A", TRAIN, 1))
    write(folder / "tst.json.gz", points("B", TEST, 2))
    write(folder / "lbl.json.gz", ({"uid": f"L{i}", "title": word, "content": "long"} for i, word in enumerate(WORDS)))
    (folder / "filter_labels_train.txt").write_text("0 29\n")
    (folder / "filter_labels_test.txt").write_text("0 29\n1 29\n")
    known = OfficialSet("LF-TinyTitles", LABELS, TRAIN, TEST, "title", filtered=True)
    monkeypatch.setitem(official_sets.OFFICIAL_SETS, known.name, known)
    return folder


@pytest.fixture
def recipe(tmp_path):
    """Return a recipe of one's own with figures on LF-TinyTitles: dexml with a tiny encoder."""

    def recipe(**metrics):
        document = load_recipe("dexml", TINY).model_dump(mode="json")
        figures = {name.replace("_", "@"): value for name, value in metrics.items()}
        published = {"data": "LF-TinyTitles", "metrics": figures, "source": "nowhere", "changes": ["training.epochs=4"]}
        (tmp_path / "mine.yaml").write_text(json.dumps(document))
        (tmp_path / "published").mkdir()
        (tmp_path / "published" / "mine.json").write_text(json.dumps([published]))
        return tmp_path / "mine.yaml"

    return recipe


@pytest.fixture
def call(capsys):
    def call(*arguments):
        code = main([str(argument) for argument in arguments])
        return (code, *capsys.readouterr())

    return call


def test_ours_beside_theirs_with_a_verdict_each(official, recipe, call, tmp_path):
    run = tmp_path / "run"
    given = recipe(P_1=10.0, P_5=99.0)
    code, out, err = call("reproduce", given, "--data", official, "--out", run)
    assert code == 0, err
    head, _, columns, first, second, _, summary, source = out.splitlines()
    assert head == "dexml on LF-TinyTitles, test rows, seed 42, A 0.55, B 1.5"
    assert columns.split() == ["metric", "ours", "theirs", "difference", "verdict"]
    assert first.split()[2::2] == ["10.00", "OK"]
    assert second.split()[2::2] == ["99.00", "off"]
    assert summary.startswith("overall: off (OK: at most 0.5 points below")
    assert source == "theirs: nowhere"
    document = json.loads((run / "reproduction.json").read_text())
    assert (document["data"], document["verdict"], document["problems"], document["changes"]) == (
        "LF-TinyTitles",
        "off",
        [],
        [],
    )
    assert document["settings"] == ["training.validation=0.02", "training.epochs=4"]
    assert document["metrics"]["P@1"]["ours"] == pytest.approx(float(first.split()[1]), abs=0.005)
    assert document["metrics"]["P@1"]["difference"] == document["metrics"]["P@1"]["ours"] - 10.0
    assert (run / "report.html").is_file()
    resolved = load_recipe(run / "recipe.yaml")
    assert (resolved.training.epochs, resolved.training.validation) == (4, 0.02)


def test_user_changes_come_last_and_are_reported(official, recipe, call, tmp_path):
    run = tmp_path / "run"
    change = ("--set", "training.epochs=1", "--seed", "7")
    code, out, err = call("reproduce", recipe(P_1=1.0), "--data", official, "--out", run, *change, "--json")
    assert code == 0, err
    document = json.loads(out)
    assert document["changes"] == ["training.epochs=1", "seed=7"]
    assert document["steps"] == -(-TRAIN // 32)
    assert load_recipe(run / "recipe.yaml").seed == 7


def test_a_shipped_recipe_under_a_name_given(official, call, tmp_path):
    """The folder passes for LF-AmazonTitles-131K only with --anyway, and then with its titles and constants."""
    arguments = (
        "reproduce",
        "dexml",
        "--data",
        official,
        "--as",
        "lf-amazontitles-131k",
        *settings(),
        "--out",
        tmp_path / "run",
    )
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert "LF-AmazonTitles-131K has 131,073 labels, 294,805 train and 134,835 test points, this data 30 labels" in err
    code, out, err = call(*arguments, "--anyway")
    assert code == 0, err
    assert "warning: LF-AmazonTitles-131K has 131,073 labels" in err
    assert "A 0.6, B 2.6" in out
    assert "theirs: Gupta et al. 2024, code release" in out
    assert "changed settings: encoder=" in out


def test_a_set_without_figures_is_named(official, call, tmp_path):
    arguments = ("reproduce", "dexml", "--data", official, *settings(), "--out", tmp_path / "run")
    code, _, err = call(*arguments)
    assert code == 2
    assert "no published figures of dexml on LF-TinyTitles, only on EURLex-4K, LF-AmazonTitles-131K" in err
    code, out, err = call(*arguments, "--anyway")
    assert code == 0, err
    assert [line.split()[2:] for line in out.splitlines() if line.startswith("P@1 ")] == [["-", "-", "-"]]
    assert "in all" not in out


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "filter_labels_test.txt").unlink(), "put filter_labels_test.txt beside the data"),
        (lambda folder: (folder / "lbl.json.gz").unlink(), "lbl.json"),
        (
            lambda folder: write(folder / "tst.json.gz", points("B", TEST - 1, 2)),
            "59 test points, like no official set",
        ),
    ],
)
def test_files_are_checked(official, recipe, call, tmp_path, spoil, words):
    spoil(official)
    code, out, err = call("reproduce", recipe(P_1=1.0), "--data", official, "--out", tmp_path / "run")
    assert (code, out) == (2, "")
    assert words in err.strip().splitlines()[-1]
    assert not (tmp_path / "run").exists()


def test_a_run_of_more_than_a_day_is_refused(official, recipe, call, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    arguments = (
        "reproduce",
        recipe(P_1=1.0),
        "--data",
        official,
        "--out",
        tmp_path / "run",
        "--set",
        "training.epochs=99999999",
    )
    code, _, err = call(*arguments)
    assert code == 2
    assert "there is no GPU, and on" in err
    assert "days; --anyway runs it" in err
    code, out, _ = call(*arguments, "--dry")
    assert code == 0
    assert "problem: there is no GPU" in out
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert "the GPU is not used" in call(*arguments, "--device", "cpu")[2]
    code, out, _ = call(*arguments, "--dry")
    assert code == 0
    assert "device: cuda:0 (time not estimated)" in out
    assert "against it" not in out


@pytest.mark.parametrize("name", [name for name in list_recipes() if load_published(name)])
def test_every_published_setting_can_be_planned(name, call):
    for published in load_published(name):
        variant = ("--variant", published.variant) if published.variant else ()
        code, out, err = call("reproduce", name, "--as", published.data, *variant, "--dry", "--json")
        assert code == 0, err
        document = json.loads(out)
        assert document["published"]["metrics"] == published.metrics
        assert document["settings"] == ["training.validation=0.02", *published.changes]
        assert load_recipe(name, document["settings"]).name == name
        assert not [problem for problem in document["problems"] if "GPU" not in problem]


def test_dry_needs_no_data(call):
    code, out, err = call("reproduce", "unidec", "--as", "LF-WikiSeeAlso-320K", "--dry")
    assert code == 0, err
    assert "files: trn.json.gz, tst.json.gz, lbl.json.gz, filter_labels_train.txt, filter_labels_test.txt" in out
    assert "published: P@1 47.69" in out
    assert "(Kharbanda 2024, Table 2.2)" in out
    assert "their hardware, time: one A6000 with 48 GB, 39 h" in out
    assert "row_dropout: 0.2" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("dexml",), "--data is missing"),
        (("dexml", "--as", "EURLex-4K"), "--data is missing"),
        (("dexml", "--as", "EURLex-4M", "--dry"), "did you mean 'EURLex-4K'?"),
        (("dexm", "--as", "EURLex-4K", "--dry"), "did you mean 'dexml'?"),
        (("dexml", "--as", "EURLex-4K", "--variant", "softmx", "--dry"), "did you mean 'softmax'?"),
        (("astec", "--as", "LF-Amazon-131K", "--variant", "m", "--dry"), "no variant 'm'; there is none"),
        (
            ("auto", "--as", "EURLex-4K", "--dry"),
            "auto has no published figures; these have: ance, astec,",
        ),
        (("dexml", "--as", "EURLex-4K", "--dry", "--set", "training.epocs=1"), "did you mean 'epochs'?"),
    ],
)
def test_mistakes_give_one_line(call, arguments, words):
    code, out, err = call("reproduce", *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert len(err.strip().splitlines()) == 1
