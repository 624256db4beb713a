"""Save a data set as a folder in any format."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from megalabel.data.formats import get_format
from megalabel.files import writing_folder

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset

__all__ = ["save"]


def save(
    data: Dataset,
    folder: str | PathLike[str],
    *,
    format: str = "folder",
    overwrite: bool = False,
) -> None:
    """Write the set into ``folder``, whole or not at all.

    >>> import tempfile
    >>> from megalabel import load
    >>> target = tempfile.mkdtemp()
    >>> save(load("synthetic:points=300,labels=40"), target)
    >>> len(load(target).train)
    240
    """
    writer = get_format(format)
    with writing_folder(folder, overwrite=overwrite) as temporary:
        writer.write(data, temporary)
