"""A model folder: older formats are read, others refused, and a failed save leaves the old one."""

import hashlib
import json

import numpy as np
import pytest

import megalabel as ml
from megalabel.errors import DataError
from megalabel.model import store


def with_format(folder, number):
    path = folder / "model.json"
    card = json.loads(path.read_bytes())
    del card["seal"]
    card["format"] = number
    if number < 3:
        del card["index"]
    seal = hashlib.sha256(json.dumps(card, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({**card, "seal": seal}))


@pytest.mark.parametrize("number", [1, 2])
def test_older_formats_are_still_read(model, data, tmp_path, number):
    model.save(tmp_path / "old")
    with_format(tmp_path / "old", number)
    again = ml.Model.load(tmp_path / "old")
    assert np.array_equal(model.search(data.test.texts, 5).ids, again.search(data.test.texts, 5).ids)
    again.add_labels(["new"])
    again.save(tmp_path / "old", overwrite=True)
    assert json.loads((tmp_path / "old" / "model.json").read_bytes())["format"] == 3


def test_a_later_format_is_refused(model, tmp_path):
    model.save(tmp_path / "new")
    with_format(tmp_path / "new", 4)
    with pytest.raises(DataError, match="format 4, not 3; update megalabel"):
        ml.Model.load(tmp_path / "new")


def test_a_save_that_fails_leaves_the_model_that_was_there(model, data, tmp_path, monkeypatch):
    model.save(tmp_path / "kept")
    model.add_labels(["new"])

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "_write_labels", fail)
    with pytest.raises(ml.MegalabelError, match="nothing was changed"):
        model.save(tmp_path / "kept", overwrite=True)
    assert len(ml.Model.load(tmp_path / "kept").labels) == 60
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
