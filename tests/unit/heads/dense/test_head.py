"""What dense heads share, against plain torch."""

import pytest
import torch
from pydantic import ValidationError

from megalabel.heads import FreeSettings, Temperature, TextSettings
from megalabel.heads.dense import projections


def test_search_can_be_normalised_if_training_is_not():
    head = FreeSettings(normalise=False, search_normalise=True, loss="bce").build(size=5, encoder_dim=3)
    assert torch.allclose(head.labels(None, None, search=True)[0].norm(dim=1), torch.ones(5))
    assert not torch.allclose(head.labels(None, None)[0].norm(dim=1), torch.ones(5))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"kind": "tekst"}, "should be 'text'"),
        ({"tower": "text"}, "'tower' is now called 'kind'"),
        ({"start": "random"}, "'start' is now called 'init'"),
        ({"projection": "tan"}, "'none', 'linear', .* or 'gelu_residual'"),
        ({"dim": 5}, "dim has no effect: projection is none"),
        ({"dim": 5, "projection": "residual"}, "dim has no effect: projection is residual"),
        ({"dropout": 0.5}, "dropout has no effect: projection is none"),
        ({"search_normalise": True}, "search_normalise has no effect: it is the same as normalise"),
        ({"loss": None, "weight": 2.0}, "weight has no effect: loss is null"),
        ({"loss": None, "query_matrix": True}, "query_matrix has no effect: loss is null"),
        ({"loss": None, "normalise": False, "search_normalise": True}, "search_normalise has no effect: loss is null"),
        ({"loss": None, "bias": True, "temperature": {"learn": True}}, "temperature.learn has no effect: loss is null"),
        ({"temperature": {"learn_as": "inverse"}}, "learn_as has no effect: learn is false"),
        ({"temperature": {"share": "both"}}, "share has no effect: learn is false"),
        ({"space": "clusters"}, "groups of labels have no text"),
    ],
)
def test_wrong_settings(wrong, words):
    with pytest.raises(ValidationError, match=words):
        TextSettings(**{"loss": "bce", **wrong})


def test_temperature_is_learnt_only_if_set_and_has_a_lower_bound():
    assert not list(Temperature(0.05).parameters())
    learnt = Temperature(0.05, learn=True)
    assert learnt().item() == pytest.approx(0.05)
    with torch.no_grad():
        learnt.log_value.fill_(-100.0)
    assert learnt().item() == pytest.approx(0.01)


def test_the_inverse_of_a_temperature_can_be_learnt():
    learnt = Temperature(0.05, learn=True, learn_as="inverse")
    assert [name for name, _ in learnt.named_parameters()] == ["inverse_value"]
    assert learnt().item() == pytest.approx(0.05)
    cosine = torch.tensor(0.3)
    (cosine / learnt()).backward()
    assert learnt.inverse_value.grad.item() == pytest.approx(0.3)  # d(cosine * inverse) / d(inverse)
    for far, expected in ((1e6, 0.01), (-5.0, 100.0)):
        with torch.no_grad():
            learnt.inverse_value.fill_(far)
        assert learnt().item() == pytest.approx(expected)
    logarithm = Temperature(0.05, learn=True)
    (cosine / logarithm()).backward()
    assert logarithm.log_value.grad.item() == pytest.approx(-0.3 / 0.05)


def test_residual_projection_starts_near_its_input():
    head = FreeSettings(projection="residual", normalise=False, loss="bce").build(size=3, encoder_dim=16).eval()
    encoded = torch.randn(5, 16)
    torch.testing.assert_close(head.query(encoded), encoded, atol=0.2, rtol=0)
    assert not torch.equal(head.query(encoded), encoded)


def test_a_query_matrix_starts_at_identity_and_moves_queries_alone():
    torch.manual_seed(0)
    plain, matrix = (
        TextSettings(query_matrix=query_matrix, loss="bce").build(size=3, encoder_dim=6)
        for query_matrix in (False, True)
    )
    encoded = torch.randn(4, 6)
    torch.testing.assert_close(matrix.query(encoded), plain.query(encoded))
    with torch.no_grad():
        matrix.query_matrix.copy_(torch.randn(6, 6))
    assert not torch.allclose(matrix.query(encoded), plain.query(encoded))
    torch.testing.assert_close(matrix.labels(None, encoded)[0], plain.labels(None, encoded)[0])


def test_heads_use_unit_rows_for_many_labels(monkeypatch):
    monkeypatch.setattr(projections, "MANY_ROWS", 4)
    for size in (4, 5):
        vectors, _ = FreeSettings(loss="bce").build(size=size, encoder_dim=3).labels(None, None)
        assert ("UnitRows" in vectors.grad_fn.name()) == (size == 5)
        torch.testing.assert_close(vectors.norm(dim=1), torch.ones(size))


def test_vectors_of_queries_are_dropped_in_training_alone():
    torch.manual_seed(0)
    head = TextSettings(query_dropout=0.5, normalise=False, loss="bce").build(size=3, encoder_dim=40)
    encoded = torch.ones(10, 40)
    dropped = head.query(encoded)
    assert set(dropped.flatten().tolist()) == {0.0, 2.0}
    assert torch.equal(head.labels(None, encoded)[0], encoded)  # label texts are not
    assert torch.equal(head.query(encoded, search=True), encoded)
    assert torch.equal(head.eval().query(encoded), encoded)
