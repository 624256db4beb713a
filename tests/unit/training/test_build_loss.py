import torch

from megalabel.losses import BCE, DecoupledSoftmax
from megalabel.recipes.schema import LossSettings
from megalabel.training.build_loss import build_loss

SCORES = torch.randn(3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TARGETS = torch.eye(3, 5, dtype=torch.float64)


def test_an_added_bce_is_the_mean_over_cells():
    loss = build_loss(LossSettings(kind="decoupled_softmax", bce=0.5))
    expected = DecoupledSoftmax()(SCORES, TARGETS) + 0.5 * BCE()(SCORES, TARGETS) / SCORES.shape[1]
    torch.testing.assert_close(loss(SCORES, TARGETS), expected)


def test_a_loss_can_be_the_mean_over_cells():
    loss = build_loss(LossSettings(kind="bce", cells=True))
    torch.testing.assert_close(loss(SCORES, TARGETS), BCE()(SCORES, TARGETS) / SCORES.shape[1])
