"""Named arrays in safetensors files, with settings in JSON; errors are one line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from megalabel.documents import parse_json, read_json
from megalabel.errors import DataError, SettingError, WriteError, nearest
from megalabel.files import need, writing, writing_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from mmap import mmap
    from os import PathLike

    import numpy as np
    from torch import Tensor

__all__ = ["read_part", "read_tensors", "write_part", "write_tensors"]


def write_part(
    folder: str | PathLike[str], name: str, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Write ``name``.json and ``name``.safetensors into a folder that replaces an older one."""
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
    folder: str | PathLike[str],
    name: str,
    valid: Iterable[str],
    *groups: Iterable[str],
    content: Mapping[str, mmap] | None = None,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the settings, without ``kind``, and the arrays that :func:`write_part` wrote.

    Settings must be among ``valid``; the names of the arrays must be those of one of the ``groups``. ``content``,
    if given, is what the files were when they were mapped.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load, load_file

    path = need(Path(folder), f"{name}.json") if content is None else Path(folder) / f"{name}.json"
    try:
        settings = read_json(path) if content is None else parse_json(content[path.name][:], path)
    except DataError as error:
        raise DataError(f"the settings cannot be read ({error.what})", path=path) from error
    if not isinstance(settings, dict) or settings.pop("kind", None) != name:
        raise DataError(f"these are not the settings of {name!r}", path=path)
    valid = list(valid)
    for setting in settings:
        if setting not in valid:
            raise SettingError(f"{name!r} has no setting {setting!r}", path=path, remedy=nearest(setting, valid))
    path = path.with_suffix(".safetensors")
    try:
        arrays: dict[str, np.ndarray] = load_file(path) if content is None else load(content[path.name][:])
    except (OSError, SafetensorError) as error:
        what = "no such file" if not path.is_file() else f"the weights cannot be read ({error})"
        raise DataError(what, path=path, remedy="copy the folder again") from error
    expected = [sorted(group) for group in groups]
    if sorted(arrays) not in expected:
        raise DataError(f"the file holds {sorted(arrays)}, {' or '.join(map(str, expected))} was expected", path=path)
    return settings, arrays


def read_tensors(path: Path, shapes: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Read a file that must hold exactly these names, each in this shape and type."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        what = "no such file" if not path.is_file() else f"the weights cannot be read ({error})"
        raise DataError(what, path=path, remedy="copy the folder again") from error
    for name in sorted(tensors.keys() | shapes.keys()):
        actual, expected = (
            "nothing" if tensor is None else f"{list(tensor.shape)} {tensor.dtype}"
            for tensor in (tensors.get(name), shapes.get(name))
        )
        if actual != expected:
            remedy = "the settings must be those the weights were made with"
            raise DataError(f"{name} is {actual}, {expected} was expected", path=path, remedy=remedy)
    return tensors


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write the tensors into one file."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    except (OSError, SafetensorError) as error:
        raise WriteError(f"could not write the weights ({error})", path=path) from error
