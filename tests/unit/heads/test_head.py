import pytest
import torch

from megalabel.errors import SettingError
from megalabel.heads import Head, Temperature


def test_text_tower_takes_labels_the_way_of_queries():
    head = Head(labels=4, encoder_dim=6, dim=3, projection="tanh").eval()
    encoded = torch.randn(2, 6)
    vectors, bias = head.labels(torch.tensor([0, 3]), encoded)
    assert torch.equal(vectors, head.query(encoded))
    assert torch.allclose(vectors.norm(dim=1), torch.ones(2))
    assert bias is None
    assert head.table is None


def test_free_tower_gives_sparse_rows_and_needs_no_text():
    head = Head(labels=5, encoder_dim=3, tower="free", normalise=False, bias=True)
    assert not head.needs_text
    vectors, bias = head.labels(torch.tensor([1, 4]), None)
    (vectors.sum() + bias.sum()).backward()
    assert head.table.grad.is_sparse
    assert head.table.grad.coalesce().indices().tolist() == [[1, 4]]
    everything, _ = head.labels(None, None)
    assert torch.equal(everything, head.table)


def test_text_and_free_start_as_text():
    head = Head(labels=5, encoder_dim=3, tower="text+free", normalise=False)
    encoded = torch.randn(2, 3)
    vectors, _ = head.labels(torch.tensor([1, 4]), encoded)
    assert torch.equal(vectors, encoded)


def test_search_may_be_normalised_where_training_is_not():
    head = Head(labels=5, encoder_dim=3, tower="free", normalise=False, search_normalise=True)
    assert torch.allclose(head.labels(None, None, search=True)[0].norm(dim=1), torch.ones(5))
    assert not torch.allclose(head.labels(None, None)[0].norm(dim=1), torch.ones(5))


@pytest.mark.parametrize("wrong", [{"tower": "tekst"}, {"projection": "tan"}, {"dim": 5}])
def test_wrong_settings(wrong):
    with pytest.raises(SettingError):
        Head(labels=2, encoder_dim=3, **wrong)


def test_temperature_is_learnt_only_if_asked_and_never_vanishes():
    assert not list(Temperature(0.05).parameters())
    learnt = Temperature(0.05, learn=True)
    assert learnt().item() == pytest.approx(0.05)
    with torch.no_grad():
        learnt.log_value.fill_(-100.0)
    assert learnt().item() == pytest.approx(0.01)


def test_residual_projection_starts_near_its_input():
    head = Head(labels=3, encoder_dim=16, tower="free", projection="residual", normalise=False).eval()
    encoded = torch.randn(5, 16)
    torch.testing.assert_close(head.query(encoded), encoded, atol=0.2, rtol=0)
    assert not torch.equal(head.query(encoded), encoded)
    with pytest.raises(SettingError, match="needs a projection"):
        Head(labels=3, encoder_dim=16, dim=8, projection="residual")


def test_a_query_matrix_starts_at_identity_and_moves_queries_alone():
    torch.manual_seed(0)
    plain, matrix = (Head(labels=3, encoder_dim=6, query_matrix=wanted) for wanted in (False, True))
    encoded = torch.randn(4, 6)
    torch.testing.assert_close(matrix.query(encoded), plain.query(encoded))
    with torch.no_grad():
        matrix.query_matrix.copy_(torch.randn(6, 6))
    assert not torch.allclose(matrix.query(encoded), plain.query(encoded))
    torch.testing.assert_close(matrix.labels(None, encoded)[0], plain.labels(None, encoded)[0])
