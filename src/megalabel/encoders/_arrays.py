"""Named numpy arrays and settings in a folder, with errors a user can read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from megalabel.errors import DataError, SettingError, WriteError, nearest
from megalabel.files import need, writing, writing_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from os import PathLike

    import numpy as np

__all__ = ["read_part", "write_part"]


def write_part(
    folder: str | PathLike[str], name: str, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Write ``name``.json and ``name``.safetensors into a folder, in place of an older one, or nothing."""
    import numpy as np
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    with writing_folder(folder, overwrite=True) as temporary:
        path = temporary / f"{name}.safetensors"
        try:
            save_file({title: np.ascontiguousarray(array) for title, array in arrays.items()}, path)
        except (OSError, SafetensorError) as error:
            raise WriteError(f"could not write the weights ({error})", path=path) from error
        with writing(temporary / f"{name}.json") as out:
            out.write(orjson.dumps(dict(settings), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def read_part(
    folder: str | PathLike[str], name: str, known: Iterable[str], *wanted: Iterable[str]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the settings, without ``kind``, and the arrays that :func:`write_part` wrote.

    Settings must be among ``known``; the names of the arrays must be those of one ``wanted`` group.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = need(Path(folder), f"{name}.json")
    try:
        settings = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise DataError(f"the settings cannot be read ({error})", path=path) from error
    if not isinstance(settings, dict) or settings.pop("kind", None) != name:
        raise DataError(f"these are not the settings of {name!r}", path=path)
    known = list(known)
    for setting in settings:
        if setting not in known:
            raise SettingError(f"{name!r} has no setting {setting!r}", path=path, remedy=nearest(setting, known))
    path = path.with_suffix(".safetensors")
    try:
        arrays: dict[str, np.ndarray] = load_file(path)
    except (OSError, SafetensorError) as error:
        what = "no such file" if not path.is_file() else f"the weights cannot be read ({error})"
        raise DataError(what, path=path, remedy="copy the folder again") from error
    groups = [sorted(group) for group in wanted]
    if sorted(arrays) not in groups:
        raise DataError(f"the file holds {sorted(arrays)}, {' or '.join(map(str, groups))} was expected", path=path)
    return settings, arrays
