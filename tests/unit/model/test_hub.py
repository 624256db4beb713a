"""Models go to a stand-in for the hub and come back; each way it can fail is one clear line."""

import logging
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from megalabel import Model
from megalabel.errors import DataError, SettingError, WriteError
from megalabel.model.hub import hub_name

sys.path.insert(0, str(Path(__file__).parent))
from hub_server import READER, WRITER, running

sys.path.pop(0)

constants = pytest.importorskip("huggingface_hub.constants")

TEXTS = ["some text", "another one"]


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """The stand-in, an empty cache, and a token that may write."""
    with running() as served:
        monkeypatch.setattr(constants, "ENDPOINT", served.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", served.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr("huggingface_hub.hf_api.api.endpoint", served.url)
        monkeypatch.setenv("HF_TOKEN", WRITER)
        yield served


@pytest.fixture(scope="module")
def model(summed_run):
    return Model.load(summed_run)


def answers(model):
    return [[(each.uid, pytest.approx(each.score, abs=1e-6)) for each in row] for row in model.predict(TEXTS, 5)]


def test_there_and_back(hub, model):
    address = model.push_to_hub("me/tickets", private=True)
    assert address.startswith(f"{hub.url}/me/tickets/commit/") and hub.repos["me/tickets"]["private"]
    ((_, files),) = hub.repos["me/tickets"]["commits"]
    assert {"README.md", "about.json", "model.json", "heads.safetensors"} <= set(files) and hub.objects
    assert not [path for path in files if path.startswith("train/")]
    assert (
        b'ml.Model.load("hf://me/tickets")' in files["README.md"] and b"training texts, which" not in files["README.md"]
    )
    for name in ("hf://me/tickets", Path("hf://me/tickets"), "hf://me/tickets@main"):
        assert answers(Model.load(name)) == answers(model)
    assert Model.from_pretrained("me/tickets").about == Model.load("hf://me/tickets").about
    assert not any(WRITER in content.decode("utf-8", "replace") for content in files.values())


def test_a_second_upload_replaces_the_first(hub, summed_run):
    model = Model.load(summed_run)
    model.push_to_hub("me/tickets", texts=True)
    before = hub.repos["me/tickets"]["commits"][0]
    assert any(path.startswith("train/") for path in before[1])
    model.add_labels(["one more"], ["new"])
    model.push_to_hub("me/tickets")
    after = hub.repos["me/tickets"]["commits"][1][1]
    assert not [path for path in after if path.startswith("train/")]
    assert "new" in Model.from_pretrained("me/tickets").labels.uids
    assert "new" not in Model.load(f"hf://me/tickets@{before[0]}").labels.uids


def test_a_cached_model_needs_no_hub(hub, model, monkeypatch):
    model.push_to_hub("me/tickets")
    Model.load("hf://me/tickets")
    fetched = [path for method, path, _ in hub.asked if method == "GET" and "/resolve/" in path]
    Model.load("hf://me/tickets")
    assert [path for method, path, _ in hub.asked if method == "GET" and "/resolve/" in path] == fetched
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    asked = len(hub.asked)
    assert answers(Model.load("hf://me/tickets")) == answers(model)
    assert len(hub.asked) == asked
    with pytest.raises(DataError, match=r"hf://me/other: .*cache does not hold this model"):
        Model.load("hf://me/other")


def test_a_folder_is_read_from_there(hub, model, tmp_path):
    model.save_pretrained(tmp_path / "mine")
    assert answers(Model.from_pretrained(tmp_path / "mine")) == answers(model)
    assert hub.asked == []
    model.save_pretrained(tmp_path / "mine", push_to_hub=True, repo_id="me/mine")
    assert answers(Model.from_pretrained("me/mine")) == answers(model)


def one_line(error):
    text = str(error.value)
    assert "\n" not in text and WRITER not in text and "hf_wrong" not in text and text.startswith("hf://me/tickets")
    return text


def test_what_goes_wrong_is_one_line(hub, model, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    with pytest.raises(DataError) as error:
        Model.load("hf://me/tickets")
    assert "there is no such model, or you may not see it; check the name; if it is private, log in" in one_line(error)
    hub.repos["me/tickets"] = {"private": False, "commits": []}
    hub.commit("me/tickets", {"weights.pkl": b"cos\nsystem\n"})
    with pytest.raises(DataError) as error:
        Model.load("hf://me/tickets")
    assert "this repository holds no model of megalabel" in one_line(error)
    model.push_to_hub("me/tickets")
    with pytest.raises(DataError) as error:
        Model.load("hf://me/tickets@nowhere")
    assert "there is no such revision" in str(error.value)
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    for action, kind in (
        (lambda: Model.from_pretrained("me/tickets", force_download=True), DataError),
        (lambda: model.push_to_hub("me/tickets"), WriteError),
    ):
        with pytest.raises(kind) as error:
            action()
        assert "the hub does not accept the token; log in (hf auth login) or set HF_TOKEN" in one_line(error)
    monkeypatch.setenv("HF_TOKEN", READER)
    with pytest.raises(WriteError) as error:
        model.push_to_hub("me/tickets")
    assert "your token may not do this; use one with the right to write" in one_line(error)
    assert "hf_wrong" not in caplog.text and WRITER not in caplog.text


def test_a_cut_connection(hub, model):
    model.push_to_hub("me/tickets")
    hub.cut = "heads.safetensors"
    with pytest.raises(DataError) as error:
        Model.load("hf://me/tickets")
    assert "the transfer failed" in one_line(error)
    hub.cut = None
    assert answers(Model.load("hf://me/tickets")) == answers(model)
    commits = len(hub.repos["me/tickets"]["commits"])
    hub.cut = "/commit/"
    with pytest.raises(WriteError) as error:
        model.push_to_hub("me/tickets", commit_message="again")
    assert "the transfer failed" in one_line(error)
    assert len(hub.repos["me/tickets"]["commits"]) == commits


@pytest.mark.extra  # huggingface_hub tries again for many seconds
def test_no_hub_at_all(model, hub, monkeypatch):
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", "http://127.0.0.1:9/{repo_id}/resolve/{revision}/{filename}"
    )
    with pytest.raises(DataError) as error:
        Model.load("hf://me/tickets")
    assert "the hub cannot be reached, and the cache does not hold this model" in one_line(error)


def test_a_model_of_the_hub_is_checked_like_any_other(hub, model):
    model.push_to_hub("me/tickets")
    (_, files) = hub.repos["me/tickets"]["commits"][-1]
    hub.commit("me/tickets", {"heads.safetensors": files["heads.safetensors"][:-1] + b"x"})
    with pytest.raises(DataError, match="this file changed after it was saved"):
        Model.load("hf://me/tickets")
    hub.commit("me/tickets", {"model.json": files["model.json"].replace(b"heads.safetensors", b"../../../heads.bin")})
    with pytest.raises(DataError, match="changed after it was saved"):
        Model.load("hf://me/tickets")


def test_only_what_the_card_names_is_fetched(hub, model):
    model.push_to_hub("me/tickets")
    hub.commit("me/tickets", {"evil.pkl": b"cos\nsystem\n", "about.json": b'{"megalabel": 3}', "README.md": b"my own"})
    assert Model.load("hf://me/tickets").about == {}
    assert not [path for _, path, _ in hub.asked if path.endswith("evil.pkl")]


def test_names():
    assert (
        hub_name("hf://me/tickets@v1.0") == ("me/tickets", "v1.0")
        and str(hub_name("hf:/me/tickets")) == "hf://me/tickets"
    )
    assert hub_name("me/tickets") is None
    for wrong in ("hf://tickets", "hf://a/b/c", "hf:", "hf://a/b@"):
        with pytest.raises(SettingError, match="is not the name of a model on the hub"):
            hub_name(wrong)


def test_the_card_is_one_that_the_hub_reads(model, tmp_path):
    from huggingface_hub import ModelCard

    model.save(tmp_path / "model")
    card = ModelCard.load(tmp_path / "model" / "README.md")
    assert card.data.library_name == "megalabel" and card.data.pipeline_tag == "text-classification"
    results = {(each.dataset_split, each.metric_name): each.metric_value for each in card.data.eval_results}
    assert results[("validation", "P@1")] == round(model.about["metrics"]["val"]["metrics"]["P@1"], 2)
    front = (tmp_path / "model" / "README.md").read_text().split("---\n")[1]
    assert yaml.safe_load(front)["model-index"][0]["name"] == model.recipe.name


def test_a_changed_card_is_no_harm(model, tmp_path):
    model.save(tmp_path / "model")
    (tmp_path / "model" / "README.md").write_text("my own words")
    (tmp_path / "model" / "about.json").write_text('{"megalabel": "x", "metrics": {"test": "' + "[" * 50)
    assert Model.load(tmp_path / "model").about == {}
    shutil.rmtree(tmp_path / "model" / "train")
    (tmp_path / "model" / "about.json").unlink()
