import pytest
import torch
from pydantic import ValidationError

from megalabel.heads import FreeSettings


def test_rows_of_a_pool_have_a_sparse_gradient_and_need_no_text():
    head = FreeSettings(normalise=False, bias=True, loss="bce").build(size=5, encoder_dim=3)
    assert not head.needs_text
    vectors, bias = head.labels(torch.tensor([1, 4]), None)
    (vectors.sum() + bias.sum()).backward()
    assert head.table.grad.is_sparse
    assert head.table.grad.coalesce().indices().tolist() == [[1, 4]]
    everything, _ = head.labels(None, None)
    assert torch.equal(everything, head.table)


def test_own_rows_are_those_of_the_whole_table():
    tables = []
    for own in (None, range(2), range(2, 5)):
        torch.manual_seed(3)
        tables.append(FreeSettings(loss="bce").build(size=5, encoder_dim=3, own=own).table)
    assert torch.equal(torch.cat(tables[1:]), tables[0])


def test_rows_are_dropped_in_training_alone():
    torch.manual_seed(0)
    head = FreeSettings(row_dropout=0.5, normalise=False, loss="bce").build(size=50, encoder_dim=8)
    dropped, _ = head.labels(None, None)
    assert 100 < (dropped == 0).sum() < 300
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], 2 * head.table[kept])
    assert torch.equal(head.eval().labels(None, None)[0], head.table)


def test_groups_of_labels_have_no_text_to_start_from():
    with pytest.raises(ValidationError, match="groups of labels have no text: choose points or random"):
        FreeSettings(space="clusters", init="mix", loss="bce")
