"""Check that all processes of a run have the same inputs and see the same folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from megalabel.errors import DataError, SettingError
from megalabel.files import writing

if TYPE_CHECKING:
    from megalabel.ranks import Ranks

__all__ = ["check_ranks"]

_MARK = ".ranks"  # a temporary file of rank 0


def check_ranks(ranks: Ranks, identity: Mapping[str, str], labels: int, folder: Path) -> None:
    """Raise an error on all ranks unless they agree.

    Args:
        ranks: the processes.
        identity: what must be the same on all, by name.
        labels: number of labels; each rank needs at least one.
        folder: the run folder, which all ranks must see.
    """
    if ranks.alone:
        return
    for what, value in identity.items():
        ranks.same(what, value.encode())
    if ranks.world > labels:
        raise SettingError(f"{ranks.world:,} ranks for {labels:,} labels", remedy=f"start at most {labels:,} ranks")
    word = ranks.broadcast(lambda: _leave(folder / _MARK))
    try:
        blind = (folder / _MARK).read_text() != word
    except OSError:
        blind = True
    seen = not any(ranks.max_int(blind))
    ranks.on_rank0((folder / _MARK).unlink)
    if not seen:
        what = "not all ranks see this folder"
        raise DataError(what, path=folder, remedy="put the run on a disk that all machines share")


def _leave(path: Path) -> str:
    word = token_hex(8)
    with writing(path) as out:
        out.write(word.encode())
    return word
