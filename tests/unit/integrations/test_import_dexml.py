"""Checkpoints in the shapes that the DEXML code writes and releases; vectors against a forward pass written here."""

import numpy as np
import pytest
import torch
import yaml
from torch import nn
from torch.nn.functional import normalize

from megalabel.data.dataset import Dataset
from megalabel.errors import DataError, SettingError
from megalabel.integrations.import_dexml import import_dexml
from megalabel.model import Model

LABELS = ["red shoe", "blue hat", "the inverse of a matrix", "sort", "coats, hats"]
CONFIG = {"tf_pooler": "cls", "tf_max_len": 12, "norm_embs": True, "tau": 0.07, "net": "dist-de-all", "seed": None}


class Net(nn.Module):
    """The network whose state dict a run of the DEXML code saves."""

    def __init__(self, base, bottleneck):
        from transformers import AutoModel

        super().__init__()
        self.tf = AutoModel.from_pretrained(base)
        width = self.tf.config.hidden_size
        self.bottleneck = nn.Linear(width, bottleneck) if bottleneck else None


@torch.no_grad()
def reference(net, base, texts, pooler="cls", length=12, unit=True):
    """Encode one text at a time, in plain torch."""
    from transformers import AutoTokenizer

    tokenizer, rows = AutoTokenizer.from_pretrained(base), []
    for text in texts:
        batch = tokenizer([text], max_length=length, truncation=True, return_tensors="pt", return_token_type_ids=False)
        states = net.tf(**batch, output_hidden_states=True).hidden_states
        pooled = {
            "cls": lambda states=states: states[-1][:, 0],
            "mean": lambda states=states: states[-1].mean(1),
            "lightxml": lambda states=states: torch.cat([states[-1 - i][:, 0] for i in range(5)], 1),
        }[pooler]()
        rows.append(pooled if net.bottleneck is None else net.bottleneck(pooled))
    actual = torch.cat(rows)
    return (normalize(actual) if unit else actual).numpy()


@pytest.fixture
def data(texts):
    rows = [(text, [place % len(LABELS)]) for place, text in enumerate(texts)]
    return Dataset.from_lists(rows, rows, LABELS, name="mine")


@pytest.fixture
def write(bert, tmp_path):
    """Write a run of the DEXML code; return its folder and the network."""

    def write(bottleneck=0, **changes):
        torch.manual_seed(3)
        net = Net(bert, bottleneck).eval()
        for value in net.parameters():
            value.data += 0.05 * torch.randn_like(value)
        (tmp_path / "run").mkdir()
        torch.save(net.state_dict(), tmp_path / "run" / "model.pt")
        (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump({"tf": bert, **CONFIG, **changes}))
        return tmp_path / "run", net

    return write


def check(model, expected, texts, labels):
    np.testing.assert_allclose(model.encode(texts), expected(texts), atol=1e-5)
    np.testing.assert_allclose(model.label_side()["dual"].vectors, expected(labels), atol=1e-5)


@pytest.mark.parametrize(
    ("bottleneck", "settings"),
    [(0, {}), (7, {}), (0, {"tf_pooler": "mean", "norm_embs": False}), (7, {"norm_embs": False, "tf_max_len": 5})],
)
def test_same_vectors_as_the_published_forward(write, data, texts, bert, tmp_path, bottleneck, settings):
    folder, net = write(bottleneck, **settings)
    used = CONFIG | settings

    def expected(some):
        return reference(net, bert, some, used["tf_pooler"], used["tf_max_len"], used["norm_embs"])

    model = import_dexml(folder / "model.pt", data)
    check(model, expected, texts, LABELS)
    model.save(tmp_path / "kept")
    kept = Model.load(tmp_path / "kept", device="cpu")
    check(kept, expected, texts, LABELS)
    assert kept.network.head("dual").temperature().item() == pytest.approx(0.07)
    assert kept.evaluate(data).metrics["P@1"] == model.evaluate(data).metrics["P@1"]


def test_five_layers_side_by_side(tmp_path, data, texts, write_bert):
    base = str(tmp_path / "base")
    write_bert(base, layers=5)
    net = Net(base, 0).eval()
    torch.save({f"module.{name}": value for name, value in net.state_dict().items()}, tmp_path / "model.pt")
    model = import_dexml(tmp_path, data, base=base, pooling="lightxml", max_length=12)
    check(model, lambda some: reference(net, base, some, "lightxml"), texts, LABELS)


@pytest.mark.parametrize("form", ["safetensors", "bin"])
def test_released_folder(bert, tmp_path, data, texts, form, write_bert):
    folder = tmp_path / "released"
    net = Net(bert, 0).eval()
    net.tf = write_bert(folder, seed=4).eval()
    for path in folder.glob("tokenizer*"):
        path.unlink()
    if form == "bin":
        (folder / "model.safetensors").unlink()
        torch.save(net.tf.state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(SettingError, match=r"no tokenizer; .*--base"):
        import_dexml(folder, data)
    model = import_dexml(folder, data, base=bert)
    check(model, lambda some: reference(net, bert, some, length=32), texts, LABELS)


def test_settings_of_a_released_set(write_bert, tmp_path, data):
    write_bert(tmp_path / "released")
    named = data.replace(name="LF-AmazonTitles-1.3M")
    head = import_dexml(tmp_path / "released", named).recipe.heads["dual"]
    assert (head.normalise, head.temperature.value) == (False, 1.0)
    assert import_dexml(tmp_path / "released", named, normalise=True).recipe.heads["dual"].normalise
    head = import_dexml(tmp_path / "released", data).recipe.heads["dual"]
    assert (head.normalise, head.temperature.value) == (True, 0.05)


class Evil:
    def __reduce__(self):
        return print, ("this ran",)


def test_pickled_code_is_not_run(tmp_path, data, capsys):
    torch.save({"tf.x": Evil()}, tmp_path / "model.pt")
    with pytest.raises(DataError, match="contains more than tensors and was not loaded"):
        import_dexml(tmp_path / "model.pt", data)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"tf.a": torch.zeros(1), "all_w.weight": torch.zeros(1)}, "classifier"),
        ({"tf.a": torch.zeros(1), "other": torch.zeros(1)}, "unexpected weight other"),
        ({"bottleneck.weight": torch.zeros(1, 1), "bottleneck.bias": torch.zeros(1)}, "is missing"),
        ({"tf.a": 1}, "tensors by name"),
        ({"tf.a": torch.zeros(1)}, "weights are missing"),
    ],
)
def test_other_checkpoints(tmp_path, data, bert, state, message):
    torch.save(state, tmp_path / "model.pt")
    with pytest.raises((DataError, SettingError), match=message) as error:
        import_dexml(tmp_path / "model.pt", data, base=bert)
    assert str(error.value).startswith(f"{tmp_path / 'model.pt'}: ") and "\n" not in str(error.value)


def test_invalid_files(write, tmp_path, data, bert, write_bert):
    folder, _ = write(7)
    with pytest.raises(DataError, match="no such file"):
        import_dexml(tmp_path / "none.pt", data)
    with pytest.raises(DataError, match="no checkpoint in this folder"):
        import_dexml(tmp_path, data)
    with pytest.raises(SettingError, match="pooling is 'pooler'; choose one of: cls, mean, lightxml"):
        import_dexml(folder, data, pooling="pooler")
    write_bert(tmp_path / "short", layers=1)
    with pytest.raises(DataError, match=r"layer\.1.* does not exist in"):
        import_dexml(folder, data, base=str(tmp_path / "short"))
    write_bert(tmp_path / "wide", width=18)
    with pytest.raises(SettingError, match="cannot be loaded"):
        import_dexml(folder, data, base=str(tmp_path / "wide"))
    (folder / "config.yaml").write_text("a: [")
    with pytest.raises(DataError, match="settings cannot be read"):
        import_dexml(folder, data)
    (folder / "model.pt").write_bytes(b"PK\x03\x04 not really")
    with pytest.raises(DataError, match="cannot be read"):
        import_dexml(folder, data)
