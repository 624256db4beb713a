import pytest
import torch

from megalabel.heads import TextFreeSettings


def test_the_initial_vectors_are_those_of_the_texts():
    head = TextFreeSettings(normalise=False, loss="bce").build(size=5, encoder_dim=3)
    encoded = torch.randn(2, 3)
    vectors, _ = head.labels(torch.tensor([1, 4]), encoded)
    assert torch.equal(vectors, encoded)


def test_the_correction_of_a_label_is_added_to_its_text():
    head = TextFreeSettings(normalise=False, loss="bce").build(size=5, encoder_dim=3)
    with torch.no_grad():
        head.table[4] = torch.tensor([1.0, 2.0, 3.0])
    encoded = torch.randn(2, 3)
    vectors, _ = head.labels(torch.tensor([1, 4]), encoded)
    torch.testing.assert_close(vectors - encoded, torch.tensor([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]]))
    vectors.sum().backward()
    assert head.table.grad.is_sparse
    assert head.table.grad.coalesce().indices().tolist() == [[1, 4]]


def test_it_cannot_score_without_texts():
    with pytest.raises(TypeError, match="needs encoded label texts"):
        TextFreeSettings(loss="bce").build(size=4, encoder_dim=6).labels(None, None)


def test_texts_can_have_length_one_before_the_correction():
    head = TextFreeSettings(normalise=False, unit_text=True, loss="bce").build(size=2, encoder_dim=3)
    encoded = torch.tensor([[3.0, 0.0, 4.0], [0.0, 2.0, 0.0]])
    with torch.no_grad():
        head.table[1] = torch.tensor([1.0, 0.0, 0.0])
    vectors, _ = head.labels(None, encoded)
    torch.testing.assert_close(vectors, torch.tensor([[0.6, 0.0, 0.8], [1.0, 1.0, 0.0]]))
