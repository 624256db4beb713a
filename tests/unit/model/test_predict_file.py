"""Files are predicted as a stream, and each text is encoded once."""

from pathlib import Path

import numpy as np
import pytest

import megalabel as ml
from megalabel.errors import SettingError
from megalabel.model import predict_file
from megalabel.model.predict_file import predict_stream
from megalabel.model.predict_input import file_format
from megalabel.model.predict_output import write_predictions


@pytest.fixture
def encoded(model, monkeypatch):
    """The number of texts in each call of the encoder."""
    calls, encode = [], model.network.encode

    def spy(name, tokens, *arguments, **options):
        calls.append(len(tokens))
        return encode(name, tokens, *arguments, **options)

    model.search(["some text"], 1)  # label vectors are computed once, at the first search
    monkeypatch.setattr(model.network, "encode", spy)
    return calls


@pytest.fixture
def texts(data):
    return [(str(row), text) for row, text in enumerate(data.test.texts[:25])]


@pytest.mark.parametrize("head_scores", [False, True])
def test_each_text_is_encoded_once(model, texts, encoded, monkeypatch, head_scores):
    monkeypatch.setattr(predict_file, "BLOCK", 10)
    blocks = list(predict_stream(model, texts, 3, head_scores=head_scores))
    assert [len(block) for block in blocks] == encoded == [10, 10, 5]


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("tail", [0.0, 0.5])
def test_head_scores_do_not_change_the_predictions(model, texts, data, changed, tail):
    if changed:
        model.add_labels(["a label nobody trained on", data.test.texts[0]])
        model.remove_labels([data.labels.uids[3]])
    if tail and model.fusion is not None:
        model.tail = tail
    words = [text for _, text in texts]
    answers = model.answers(words)
    for heads in ("all", *model.heads):
        expected = model.search(words, 7, heads=heads)
        top, scores = model.search_with_head_scores(words, 7, heads=heads)
        assert np.array_equal(top.ids, expected.ids)
        assert np.array_equal(top.scores, expected.scores)
        valid = top.ids >= 0
        assert list(scores) == model.heads
        for name, values in scores.items():
            assert np.array_equal(values[valid], answers[name].score(top.ids)[valid])


def test_unknown_head_and_k(model, texts):
    with pytest.raises(SettingError, match="'duall'"):
        model.search_with_head_scores(["some text"], 1, heads="duall")
    with pytest.raises(SettingError, match="k must be at least 1"):
        next(predict_stream(model, texts, 0))


def test_blocks_are_read_lazily(fused_run, monkeypatch):
    monkeypatch.setattr(predict_file, "BLOCK", 10)
    model, read = ml.Model.load(fused_run), []

    def texts():
        for row in range(95):
            read.append(row)
            yield str(row), "some text"

    for number, rows in enumerate(predict_stream(model, texts(), 2), start=1):
        assert len(read) == min(10 * number, 95)
        assert len(rows) <= 10


def test_unknown_formats(model, tmp_path):
    with pytest.raises(SettingError, match="unknown format 'jsom'; did you mean 'jsonl'"):
        file_format(Path("a.txt"), "jsom")
    with (
        pytest.raises(SettingError, match="cannot write predictions as text"),
        write_predictions(tmp_path / "a.txt", "text", model.labels),
    ):
        pass
