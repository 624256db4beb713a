import pytest
import torch
from pydantic import ValidationError

from megalabel.heads import TextSettings


def test_labels_are_projected_like_queries():
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


def test_a_projection_can_be_for_training_only():
    head = TextSettings(projection="tanh", search_projection=False, normalise=False, loss="bce")
    head = head.build(size=4, encoder_dim=6)
    encoded = torch.randn(2, 6)
    assert torch.equal(head.query(encoded, search=True), encoded)
    assert torch.equal(head.labels(None, encoded, search=True)[0], encoded)
    assert torch.equal(head.query(encoded), head.projection(encoded))
    assert torch.equal(head.labels(None, encoded)[0], head.projection(encoded))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "search_projection has no effect: projection is none"),
        ({"projection": "tanh", "dim": 3}, "keeps the size of the encoder's vectors"),
        ({"projection": "tanh", "query_matrix": True}, "query_matrix"),
    ],
)
def test_a_projection_for_training_only_must_make_sense(settings, message):
    with pytest.raises(ValidationError, match=message):
        TextSettings(search_projection=False, loss="bce", **settings)


def test_label_texts_can_have_a_projection_of_their_own():
    head = TextSettings(projection="gated_residual", own_projection=True, normalise=False, loss="bce")
    head = head.build(size=4, encoder_dim=6)
    with torch.no_grad():
        head.label_projection.layer.weight.normal_()
    encoded = torch.randn(2, 6)
    pool = torch.tensor([0, 3])
    assert torch.equal(head.labels(pool, encoded)[0], head.label_projection(encoded))
    assert torch.equal(head.query(encoded), head.projection(encoded))
    head.labels(pool, encoded)[0].sum().backward()
    assert head.projection.layer.weight.grad is None and head.label_projection.layer.weight.grad is not None
    with pytest.raises(ValidationError, match="own_projection has no effect: projection is none"):
        TextSettings(own_projection=True, loss="bce")
