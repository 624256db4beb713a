import pytest
import torch

from megalabel.heads import TextSettings


def test_labels_take_the_way_of_queries():
    head = TextSettings(dim=3, projection="tanh", loss="bce").build(size=4, encoder_dim=6).eval()
    encoded = torch.randn(2, 6)
    vectors, bias = head.labels(torch.tensor([0, 3]), encoded)
    assert torch.equal(vectors, head.query(encoded))
    assert torch.allclose(vectors.norm(dim=1), torch.ones(2))
    assert bias is None
    assert head.table is None
    assert head.needs_text


def test_it_cannot_score_without_texts():
    with pytest.raises(TypeError, match="needs encoded label texts"):
        TextSettings(loss="bce").build(size=4, encoder_dim=6).labels(None, None)
