"""Save a data set as a folder in any format."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from megalabel.data.formats import detect, get_format
from megalabel.errors import DataError, WriteError
from megalabel.files import check_target, writing_folder

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
    """Write the set into ``folder``, completely or not at all.

    With ``overwrite`` an existing data set is replaced once the new one is complete; a
    folder that holds anything else is never touched.

    >>> import tempfile
    >>> from megalabel import load
    >>> target = tempfile.mkdtemp()
    >>> save(load("synthetic:points=300,labels=40"), target)
    >>> len(load(target).train)
    240
    """
    writer = get_format(format)
    check_target(folder, overwrite=overwrite)
    if Path(folder).is_dir() and any(Path(folder).iterdir()):
        try:
            detect(Path(folder))
        except DataError:
            raise WriteError(
                "this folder holds something other than a data set", path=folder, remedy="choose another name"
            ) from None
    with writing_folder(folder, overwrite=overwrite) as temporary:
        writer.write(data, temporary)
