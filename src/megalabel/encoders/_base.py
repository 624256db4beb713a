"""Base class of the encoders: encode, config and save."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import orjson
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize as to_unit_length

from megalabel.errors import SettingError
from megalabel.files import writing, writing_folder
from megalabel.progress import progress

if TYPE_CHECKING:
    from os import PathLike

    from megalabel.types import Tokens

__all__ = ["GROUP", "SETTINGS", "BaseEncoder", "Layers"]

Layers: TypeAlias = Sequence[int | tuple[int, ...]]  # from 1; a tuple means the mean of its layers
SETTINGS = "encoder.json"
GROUP = 1_024  # texts per call of forward


class BaseEncoder(nn.Module, ABC):
    """Base of the encoders; see :class:`megalabel.types.Encoder` for the contract.

    Constructor arguments are stored as attributes of the same name, for ``config``.
    """

    kind: ClassVar[str]
    batch_statistics: ClassVar[bool] = False  # in training a vector depends on the texts encoded with it
    dim: int

    @abstractmethod
    def tokenise(self, texts: Sequence[str]) -> Tokens:
        """Return the token ids of the texts."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a name of the tokenisation."""

    @abstractmethod
    def forward(self, tokens: Tokens, max_length: int | None = None, layers: Layers | None = None) -> Tensor:
        """Return vectors [n, dim] with their graph; with ``layers``, [n, len(layers), dim]."""

    @abstractmethod
    def _write(self, folder: Path) -> None:
        """Write weights and tokenizer into an empty folder."""

    @torch.no_grad()
    def encode(
        self,
        tokens: Tokens,
        max_length: int | None = None,
        *,
        normalise: bool = False,
        layers: Layers | None = None,
    ) -> Tensor:
        """Return vectors [n, dim] of the texts, or [n, len(layers), dim]: no dropout, no graph, float32 on the CPU.

        ``normalise`` scales each vector to length 1, so that products are cosines. The longest
        texts go first, so that memory peaks at the start.
        """
        vectors = torch.empty(len(tokens), *(() if layers is None else (len(layers),)), self.dim)
        order = np.argsort(-tokens.lengths, kind="stable")
        training = [module for module in self.modules() if module.training]
        if training:
            self.eval()
        try:
            with progress("encoding", total=len(tokens), unit="texts") as step:
                for start in range(0, len(tokens), GROUP):
                    rows = order[start : start + GROUP]
                    part = self(tokens.take(rows), max_length, layers).float()
                    vectors[torch.from_numpy(rows)] = (to_unit_length(part, dim=-1) if normalise else part).cpu()
                    step(len(rows))
        finally:
            for module in training:
                module.training = True
        return vectors

    def _refuse_layers(self, layers: Layers | None) -> None:
        """Raise a SettingError if ``layers`` is given to an encoder with a single layer."""
        if layers is not None:
            raise SettingError(
                f"layers is {list(layers)}, but the encoder {self.kind!r} has one layer",
                remedy="leave layers out, or use a transformer",
            )

    @torch.no_grad()
    def take_over(self, other: BaseEncoder) -> bool:
        """Take the weights of a trained encoder as far as they mean the same here; return whether any do."""
        own, taken = self.state_dict(), other.state_dict()
        if self._reading() != other._reading() or any(own[name].shape != taken[name].shape for name in own):
            return False
        self.load_state_dict(taken)
        return True

    def _reading(self) -> dict[str, Any]:
        """Return what decides what a weight means: the settings but for where and how training begins, and tokens."""
        kept = {name: value for name, value in self.config().items() if name not in ("source", "seed")}
        return kept | {"tokens": self.fingerprint()}

    def config(self) -> dict[str, Any]:
        """Return ``kind`` and the arguments of the constructor, ready for JSON."""
        return {"kind": self.kind} | {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def save(self, folder: str | PathLike[str]) -> None:
        """Write a folder for :func:`~megalabel.encoders.load_encoder`, replacing an older one."""
        with writing_folder(folder, overwrite=True) as temporary:
            self._write(temporary)
            with writing(temporary / SETTINGS) as out:
                out.write(orjson.dumps(self.config(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))

    def extra_repr(self) -> str:
        """Show the settings when printed."""
        return ", ".join(f"{name}={value!r}" for name, value in self.config().items() if name != "kind")
