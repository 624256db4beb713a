"""A bag of features as a module of sentence-transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from megalabel.encoders import BagEncoder, load_encoder
from megalabel.errors import MissingExtraError, SettingError
from megalabel.types import Tokens

try:
    from sentence_transformers.base.modules import InputModule
except ImportError as error:
    what = "a bag in sentence-transformers 6 or newer"
    raise MissingExtraError("sentence-transformers", extra="hf", what=what) from error

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Bag"]


class Bag(InputModule):  # type: ignore[misc]
    """The first module of an exported bag: texts in, vectors of :class:`~megalabel.encoders.BagEncoder` out.

    ``SentenceTransformer(folder, trust_remote_code=True)`` imports it from this package, which must be installed.

    Args:
        encoder: the bag.
        max_length: features of a text that are used, from its start; None uses all.

    >>> bag = Bag(BagEncoder(None, dim=16, words=256, bigrams=256, characters=256))
    >>> bag(bag.preprocess(["red shoe", ""]))["sentence_embedding"].shape
    torch.Size([2, 16])
    """

    config_keys: ClassVar[list[str]] = ["max_length"]
    save_in_root: ClassVar[bool] = False

    def __init__(self, encoder: BagEncoder, max_length: int | None = None) -> None:
        super().__init__()
        self.encoder, self.max_length = encoder, max_length
        self.tokenizer = encoder.tokenizer

    def preprocess(self, inputs: Sequence[str], prompt: str | None = None, **_: Any) -> dict[str, Tensor]:
        """Return the features of all texts, one after the other, and where each text begins."""
        texts = [(prompt or "") + text for text in inputs]
        tokens = self.encoder.tokenise(texts)
        ids, offsets = tokens.ids.astype(np.int64), tokens.offsets.astype(np.int64)
        return {"input_ids": torch.from_numpy(ids), "offsets": torch.from_numpy(offsets)}

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add the vectors [n, dim]."""
        tokens = Tokens(features["input_ids"].cpu().numpy(), features["offsets"].cpu().numpy())
        features["sentence_embedding"] = self.encoder(tokens, self.max_length)
        return features

    def get_embedding_dimension(self) -> int:
        """Return the size of a vector."""
        return self.encoder.dim

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Write table, weights and settings as megalabel does, and the length."""
        self.encoder.save(output_path)
        self.save_config(output_path)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **more: Any) -> Self:
        """Read what :meth:`save` wrote."""
        known = {name: more[name] for name in ("token", "cache_folder", "revision", "local_files_only") if name in more}
        folder = cls.load_dir_path(model_name_or_path, subfolder, **known)
        encoder = load_encoder(folder)
        if not isinstance(encoder, BagEncoder):
            raise SettingError(f"{folder} holds an encoder of kind {encoder.kind}, not a bag")
        return cls(encoder, **cls.load_config(model_name_or_path, subfolder, **known))
