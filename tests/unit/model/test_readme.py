"""The model card says what is known, and what comes from data cannot become markup."""

import re

import numpy as np
import pytest
import yaml

import megalabel as ml
from megalabel.data.dataset import Labels
from megalabel.model.about import add_metrics, describe, read_about
from megalabel.model.readme import readme
from megalabel.report import write_report


def sections(text):
    """Return the front matter, and the text of each section by its title."""
    _, front, body = text.split("---\n", 2)
    parts = re.split(r"^#+ (.*)$", body, flags=re.MULTILINE)
    return yaml.safe_load(front), dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.fixture
def model(summed_run):
    return ml.Model.load(summed_run)


@pytest.fixture
def make_small(summed_run):
    """Return a model without a record whose most frequent labels have these texts."""

    def make_small(texts):
        model = ml.Model.load(summed_run)
        known = list(model.labels.texts)
        for label, text in zip(np.argsort(-model.stats.counts, kind="stable"), texts, strict=False):
            known[label] = text
        model.labels = Labels(known, model.labels.uids)
        model.about = {}
        return model

    return make_small


def test_a_run_and_its_model_have_a_card(summed_run, served_data, model):
    data = ml.load(served_data)
    front, body = sections((summed_run / "README.md").read_text())
    assert (summed_run / "model" / "README.md").read_text() == (summed_run / "README.md").read_text()
    (result,) = front["model-index"][0]["results"]
    assert result["dataset"]["split"] == "validation" and front["library_name"] == "megalabel"
    assert f"{len(data.test):,} test texts" in body["Data"] and "held out of train" in body["Data"]
    assert body["Labels"].strip().startswith("60 labels")
    first = int(np.argmax(model.stats.counts))
    assert f"| `{data.labels.uids[first]}` | `{data.labels.texts[first]}` |" in body["Labels"]
    assert "training texts, which" in body["Limits"] and "they are no probabilities" in body["Limits"]
    assert f"megalabel {ml.__version__}" in body["Made with"]
    block = re.search(r"```python\n(.*?)```", body["Use"], re.DOTALL)[1].replace("DIR", str(summed_run))
    exec(compile(block, "README.md", "exec"), {"__name__": "card"})


def test_a_report_adds_the_test_metrics(summed_run, served_data, model, tmp_path):
    model.save(tmp_path / "run" / "model")
    (tmp_path / "run" / "recipe.yaml").write_bytes((summed_run / "recipe.yaml").read_bytes())
    data = ml.load(served_data)
    write_report(tmp_path / "run", model, data)
    for folder in (tmp_path / "run", tmp_path / "run" / "model"):
        _, body = sections((folder / "README.md").read_text())
        assert f"| test | {len(data.test)} | {model.evaluate(data).metrics['P@1']:.2f} |" in body["Quality"]
    again = ml.Model.load(tmp_path / "run")
    assert list(again.about["metrics"]) == ["val", "test"]
    again.save(tmp_path / "copy", texts=False)
    _, body = sections((tmp_path / "copy" / "README.md").read_text())
    assert "| test |" in body["Quality"] and "training texts, which" not in body["Limits"]


def test_without_a_record(make_small):
    front, body = sections(readme(make_small(["one"]), "here", texts=False))
    assert "model-index" not in front and "Not recorded" in body["Data"] and "Not measured" in body["Quality"]
    assert "megalabel predict here" in body["Use"]


def test_texts_cannot_become_markup(make_small):
    model = make_small(["<script>x</script>", "a | b", "line\nbreak `code`", "---\nkey: value"])
    name = "x: y\n---\n# title"
    model.about = {
        "data": {"name": name, "about": "<b>", "licence": "", "sources": {}, "rows": {"test": 1}},
        "metrics": {"test": {"data": name, "rows": 1, "metrics": {"P@1": 50.0}}},
    }
    text = readme(model, "DIR", texts=False)
    front, body = sections(text)
    assert front["model-index"][0]["results"][0]["dataset"]["name"] == "x: y --- # title"
    assert "title" not in body
    for line in text.splitlines():
        if line.startswith("| `lbl"):
            assert line.count("|") == 4 and line.count("`") == 4
    assert "`<script>x</script>`" in body["Labels"] and "`line break 'code'`" in body["Labels"]


def test_no_folder_of_the_machine_is_told(served_data):
    about = describe(ml.load(served_data).replace(name="/home/someone/secret/tickets.csv"), "", None, None)
    assert about["data"]["name"] == "tickets.csv" and about["metrics"] == {}


LARGE = '{"megalabel": "1", "metrics": {"test": {"data": "x", "rows": 1, "metrics": {"P@1": 1e999}}}}'


@pytest.mark.parametrize("content", ["", "[]", "{", '{"megalabel": 1}', '{"megalabel": "1", "seconds": -1}', LARGE])
def test_a_record_that_no_model_has_is_left_out(content, tmp_path):
    (tmp_path / "about.json").write_text(content)
    assert read_about(tmp_path) == {}


def test_metrics_of_a_second_split_are_kept(make_small, tmp_path):
    model = make_small(["one", "two"])
    for split in ("val", "test"):
        add_metrics(tmp_path, tmp_path, model, {"split": split, "data": "d", "rows": 3, "metrics": {"P@1": 1.0}})
    assert list(read_about(tmp_path)["metrics"]) == ["val", "test"]
