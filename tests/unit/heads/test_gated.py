import numpy as np
import pytest
import torch

from megalabel.heads import GatedSettings

ENCODED = torch.randn(6, 4, generator=torch.Generator().manual_seed(2))


class Given:
    """What ``init`` looks at, without a network."""

    def __init__(self, shard=None):
        self.shard = range(6) if shard is None else shard

    def encoded_labels(self, start, stop):
        return ENCODED[start:stop]


def build(shard=None, **settings):
    torch.manual_seed(1)
    settings = {"projection": "gated_residual", "normalise": False, "loss": "bce", **settings}
    return GatedSettings(**settings).build(size=6, encoder_dim=4, shard=shard)


def test_training_starts_from_the_texts():
    head = build()
    head.init(Given())
    texts = (ENCODED + ENCODED.relu()) / 2  # R at its start
    torch.testing.assert_close(head.table.detach(), texts)
    torch.testing.assert_close(head.labels(None, ENCODED)[0], texts)


def test_a_label_is_the_gated_sum_of_its_free_vector_and_its_text():
    head = build()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_()
    pool = torch.tensor([1, 4])
    vectors, bias = head.labels(pool, ENCODED[pool])
    for place, label in enumerate(pool.tolist()):
        text = head.label_projection(ENCODED[label : label + 1])[0]
        for d in range(4):
            free_share, text_share = (
                1 / (1 + np.exp(-head.free_gate[d].item())),
                1 / (1 + np.exp(-head.text_gate[d].item())),
            )
            expected = free_share * head.table[label, d] + text_share * text[d]
            torch.testing.assert_close(vectors[place, d], expected)
    assert bias is None and head.tables() == [head.table]
    vectors.sum().backward()
    assert head.table.grad.coalesce().indices().tolist() == [[1, 4]]
    grads = {name for name, parameter in head.named_parameters() if parameter.grad is not None}
    assert {"table", "free_gate", "text_gate", "label_projection.layer.weight", "label_projection.input_gate"} <= grads
    assert not any(name.startswith("projection") for name in grads)  # the layer of queries is another


def test_every_process_starts_the_rows_of_its_own_labels():
    whole, part = build(), build(range(2, 6))
    whole.init(Given())
    part.init(Given(range(2, 6)))
    assert torch.equal(part.table, whole.table[2:])


class New:
    added, texts, ids = True, ["a", "b"], np.array([6, 7])

    def encoded(self, head):
        return ENCODED[:2]


def test_a_new_label_starts_like_all_others_and_a_renamed_one_keeps_its_free_vector():
    head = build()
    head.init(Given())
    with torch.no_grad():
        head.free_gate.fill_(1.0)
    vectors, parts = head.new_vectors(New())
    torch.testing.assert_close(vectors, head.labels(torch.tensor([0, 1]), ENCODED[:2])[0])
    torch.testing.assert_close(parts["free"], head.table[:2])
    renamed = New()
    renamed.added, renamed.ids = False, np.array([3, 5])
    assert torch.equal(head.new_vectors(renamed)[1]["free"], head.table[[3, 5]])


def test_it_cannot_score_without_texts():
    with pytest.raises(TypeError, match="needs encoded label texts"):
        build().labels(None, None)
