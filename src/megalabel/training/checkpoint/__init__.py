"""Checkpoints: written completely or not at all, checked when read, for any number of ranks."""

from megalabel.training.checkpoint.state import collect_state, load_weights, restore_optimisers
from megalabel.training.checkpoint.store import Checkpoint, list_checkpoints, load_checkpoint, save_checkpoint

__all__ = [
    "Checkpoint",
    "collect_state",
    "list_checkpoints",
    "load_checkpoint",
    "load_weights",
    "restore_optimisers",
    "save_checkpoint",
]
