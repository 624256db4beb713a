"""Keep other libraries from talking while they work for us."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quiet"]


@contextmanager
def quiet() -> Iterator[None]:
    """Keep warnings, notes and the bars of transformers off the screen."""
    from transformers.utils import logging as notes

    told, bars = logging.root.manager.disable, notes.is_progress_bar_enabled()
    logging.disable(logging.WARNING)
    notes.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(told)
        if bars:
            notes.enable_progress_bar()
