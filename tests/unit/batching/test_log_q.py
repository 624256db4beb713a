"""Probabilities to be in a pool: the formula, a simulation, and a state that survives a checkpoint."""

import math

import numpy as np
import pytest
import torch
from scipy import sparse

from megalabel.batching import All, EntryChance, One, PoolBuilder, RunningLogQ, Shuffled, Some, generator
from megalabel.batching.settings import AllBatching, PoolBatching
from megalabel.errors import DataError, SettingError
from megalabel.losses import DecoupledSoftmax


def test_the_closed_formula():
    rates = np.array([0, 0.02, 0.14, 0.8, 1])
    actual = EntryChance(rates, batch_size=8).log_q(torch.arange(5))
    expected = [math.log(1 - (1 - max(rate, 0.02)) ** 8) for rate in rates]
    assert actual.dtype == torch.float32
    assert actual.tolist() == pytest.approx(expected, abs=1e-6)


def test_small_probabilities_are_precise():
    actual = EntryChance(np.array([1e-9]), batch_size=1).log_q(torch.tensor([0]))
    assert actual.item() == pytest.approx(math.log(1e-9), rel=1e-6)


def random_targets(rows=400, labels=60):
    rng = np.random.default_rng(0)
    chance = 0.3 / np.arange(1, labels + 1) ** 0.7
    return sparse.csr_matrix((rng.random((rows, labels)) < chance).astype(np.float32))


PICKER = Some(2)


def pools(targets, epochs, positives=PICKER, batch_size=16):
    builder = PoolBuilder(targets, positives=positives)
    rows = np.arange(targets.shape[0])
    for epoch in range(epochs):
        for step, batch in enumerate(Shuffled(rows, batch_size, seed=0).batches(epoch)):
            yield builder.build(batch, rng=generator(0, "pool", epoch, step)).view.pool


@pytest.mark.parametrize("positives", [Some(2), Some(3, replacement=True), One(), All()], ids=repr)
def test_from_targets_and_the_running_mean_agree_with_a_simulation(positives):
    targets = random_targets()
    running = RunningLogQ(60)
    for pool in pools(targets, epochs=40, positives=positives):
        running.update(pool)
    every = torch.arange(60)
    counted, computed = running.log_q(every).exp(), EntryChance.from_targets(targets, positives, 16).log_q(every).exp()
    known = torch.from_numpy(np.bincount(targets.indices, minlength=60) > 0)
    assert (counted - computed)[known].abs().max() < 0.05


def test_a_loss_takes_it():
    targets = torch.tensor([[1.0, 0, 0]])
    chance = EntryChance(np.array([0.9, 0.5, 0.1]), batch_size=2)
    value = DecoupledSoftmax()(torch.zeros(1, 3), targets, log_q=chance.log_q(torch.arange(3)))
    negatives = 1 / (1 - 0.5**2) + 1 / (1 - 0.9**2)
    assert value.item() == pytest.approx(math.log(1 + negatives), rel=1e-5)


def test_running_counts_survive_a_checkpoint():
    running, again = RunningLogQ(60), RunningLogQ(60)
    for pool in pools(random_targets(), epochs=1):
        running.update(pool)
    state = running.state()
    again.restore(state)
    running.update(torch.tensor([0, 1]))
    again.update(torch.tensor([0, 1]))
    assert torch.equal(running.log_q(torch.arange(60)), again.log_q(torch.arange(60)))
    assert state[0] == again.steps_ - 1
    with pytest.raises(DataError, match="60 labels, the data has 7"):
        RunningLogQ(7).restore(state)


def test_mistakes():
    with pytest.raises(SettingError, match="batch_size"):
        EntryChance(np.ones(1), 0)
    with pytest.raises(DataError, match="no label has a training row"):
        EntryChance(np.zeros(2), 1).log_q(torch.tensor([0]))


def test_all_positives_picked_give_the_share_of_rows():
    targets = random_targets()
    chance = PoolBatching(positives="all", log_q=True).log_q_estimate(targets, None, 16)
    np.testing.assert_allclose(chance.rates, np.bincount(targets.indices, minlength=60) / 400)


def test_filtered_pairs_do_not_count():
    targets = sparse.csr_matrix(np.array([[1.0, 1], [1, 0]], dtype=np.float32))
    chance = PoolBatching(positives="all", log_q=True).log_q_estimate(targets, np.array([[0, 0]]), 1)
    np.testing.assert_allclose(chance.rates, [0.5, 0.5])


@pytest.mark.parametrize(
    "settings",
    [{"order": "clustered"}, {"negatives": {"mined": 2}}, {"negatives": {"uniform": 2}}, {"cap": 30}],
)
def test_pools_are_counted_where_the_formula_does_not_hold(settings):
    assert isinstance(PoolBatching(log_q=True, **settings).log_q_estimate(random_targets(), None, 16), RunningLogQ)


def test_no_correction_by_default():
    assert PoolBatching().log_q_estimate(random_targets(), None, 16) is None
    assert AllBatching().log_q_estimate(random_targets(), None, 16) is None
