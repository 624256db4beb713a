"""Load a data set from a built-in name, a folder or a file."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from megalabel.data.formats import Options, detect, get_format
from megalabel.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from megalabel.data.dataset import Dataset

__all__ = ["load"]


def load(
    source: str | PathLike[str],
    *,
    format: str | None = None,
    options: Options | None = None,
    say: Callable[[str], None] | None = None,
) -> Dataset:
    """Return the data set behind a built-in name, a folder or a file.

    A built-in name (``pydocs``, ``synthetic`` and others, see ``megalabel data list``) may carry settings:
    ``"synthetic:points=1000,labels=200"``. A path that exists is read in the format its
    content shows, or in ``format`` if given; ``say`` receives the detected format and the reason,
    and what the reader decided, such as the separator of labels.

    >>> len(load("synthetic:points=300,labels=40").labels)
    40
    """
    from megalabel.data.builtin import BUILTIN, build, unknown_name

    text = str(source)
    path = Path(source)
    try:
        exists = path.exists()
    except OSError as error:
        raise DataError(f"this path cannot be read ({error.strerror})", path=path) from error
    if format is None and text.partition(":")[0] in BUILTIN and not exists:
        return build(text, say=say)
    if not exists and isinstance(source, str) and format is None and path.name == text:
        raise unknown_name(text)
    if not exists:
        raise DataError("no such file or folder", path=path)
    if format is None:
        format, why = detect(path)
        if say is not None:
            say(f"{path}: read as {format} ({why})")
    options = options or Options()
    return get_format(format).read(path, options if say is None else replace(options, say=say))
