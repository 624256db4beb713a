"""Named tensors in a safetensors file, with errors a user can read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from megalabel.errors import DataError, WriteError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

__all__ = ["read_tensors", "write_tensors"]


def read_tensors(path: Path, shapes: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Read a file that must hold exactly these names, each in this shape and type."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        found: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        what = "no such file" if not path.is_file() else f"the weights cannot be read ({error})"
        raise DataError(what, path=path, remedy="copy the folder again") from error
    for name in sorted(found.keys() | shapes.keys()):
        there, wanted = (
            "nothing" if tensor is None else f"{list(tensor.shape)} {tensor.dtype}"
            for tensor in (found.get(name), shapes.get(name))
        )
        if there != wanted:
            remedy = "the settings must be those the weights were made with"
            raise DataError(f"{name} is {there}, {wanted} was expected", path=path, remedy=remedy)
    return found


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write the tensors into one file."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    except (OSError, SafetensorError) as error:
        raise WriteError(f"could not write the weights ({error})", path=path) from error
