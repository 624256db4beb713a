"""The token store: every text tokenised once, kept ragged on disk, mapped into memory."""

from __future__ import annotations

import json
import os
import re
import string
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from megalabel.data.cache import cache_folder
from megalabel.errors import WriteError
from megalabel.files import writing, writing_folder
from megalabel.progress import progress
from megalabel.types import Tokens

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

__all__ = ["store_tokens", "tokenise"]

_CHUNK = 8_192  # texts handed to the tokenizer at a time
_WORDS = 500_000  # distinct words remembered at a time
_VERSION = 1  # of the files on disk


def tokenise(texts: Sequence[str], tokenizer: Tokenizer) -> Tokens:
    """Tokenise in memory, on all cores, without special tokens, cut or padding.

    Where the tokenizer allows it (the BERT family), each distinct word is tokenised once.

    >>> from tokenizers import Tokenizer, models, pre_tokenizers
    >>> words = Tokenizer(models.WordLevel({"[UNK]": 0, "red": 1, "shoe": 2}, unk_token="[UNK]"))
    >>> words.pre_tokenizer = pre_tokenizers.Whitespace()
    >>> tokens = tokenise(["red shoe", "", "blue shoe"], words)
    >>> [tokens[i].tolist() for i in range(3)]
    [[1, 2], [], [0, 2]]
    """
    parts = list(_chunks(texts, tokenizer))
    empty: NDArray[np.unsignedinteger] = np.empty(0, dtype=_dtype(tokenizer))
    ids = np.concatenate([ids for ids, _ in parts]) if parts else empty
    lengths = np.concatenate([lengths for _, lengths in parts]) if parts else np.empty(0, dtype=np.int64)
    return Tokens(ids, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))


def store_tokens(texts: Sequence[str], tokenizer: Tokenizer, *, folder: Path | None = None) -> Tokens:
    """Tokenise once and map the result from disk ever after.

    The store is found again by a hash of the texts and of the tokenizer, in ``folder``
    (by default the cache of the user). Ids take the smallest integer type that holds the
    vocabulary; while they are made, memory stays at one chunk. A damaged store is made
    anew; two processes may build the same one at once. Where the disk cannot be written,
    the tokens stay in memory.
    """
    home = folder if folder is not None else cache_folder("tokens")
    place = home / _key(texts, tokenizer)
    found = _open(place)
    if found is not None:
        return found
    try:
        with writing_folder(place, overwrite=True) as temporary:
            _write(temporary, texts, tokenizer)
    except WriteError:
        found = _open(place)  # another process may have been first
        return found if found is not None else tokenise(texts, tokenizer)
    found = _open(place)
    return found if found is not None else tokenise(texts, tokenizer)


def _write(folder: Path, texts: Sequence[str], tokenizer: Tokenizer) -> None:
    offsets = np.zeros(len(texts) + 1, dtype=np.int64)
    done = 0
    with writing(folder / "ids.bin") as out:
        for ids, lengths in _chunks(texts, tokenizer):
            out.write(ids.tobytes())
            offsets[done + 1 : done + 1 + len(lengths)] = lengths
            done += len(lengths)
    np.cumsum(offsets, out=offsets)
    with writing(folder / "offsets.bin") as out:
        out.write(offsets.tobytes())
    card = {"version": _VERSION, "texts": len(texts), "tokens": int(offsets[-1]), "dtype": _dtype(tokenizer).name}
    with writing(folder / "tokens.json") as out:
        out.write(json.dumps(card).encode())


def _open(place: Path) -> Tokens | None:
    """Map a finished store, or return None if there is none or it is damaged."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        card = json.loads((place / "tokens.json").read_bytes())
        dtype = np.dtype(card["dtype"])
        sizes = {"ids.bin": card["tokens"] * dtype.itemsize, "offsets.bin": (card["texts"] + 1) * 8}
        if card["version"] != _VERSION or any((place / name).stat().st_size != size for name, size in sizes.items()):
            return None
        offsets = np.memmap(place / "offsets.bin", dtype=np.int64, mode="r")
        if card["tokens"] == 0:  # an empty file cannot be mapped
            return Tokens(np.empty(0, dtype=dtype), offsets)
        return Tokens(np.memmap(place / "ids.bin", dtype=dtype, mode="r"), offsets)
    return None


def _chunks(
    texts: Sequence[str], tokenizer: Tokenizer
) -> Iterator[tuple[NDArray[np.unsignedinteger], NDArray[np.int64]]]:
    """Yield (flat ids, length of each text) of one chunk of texts after the other."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    bare = _bare(tokenizer)
    dtype = _dtype(tokenizer)
    by_word = _word_pattern(bare)
    encode = _Whole(bare) if by_word is None else _ByWord(bare, by_word)
    with progress("tokenising", total=len(texts), unit="texts") as step:
        for start in range(0, len(texts), _CHUNK):
            ids = encode(texts[start : start + _CHUNK])
            lengths = np.fromiter(map(len, ids), dtype=np.int64, count=len(ids))
            yield np.fromiter(chain.from_iterable(ids), dtype=dtype, count=int(lengths.sum())), lengths
            step(len(ids))


class _Whole:
    """Tokenise whole texts on all cores."""

    def __init__(self, bare: Tokenizer) -> None:
        self.bare = bare

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self.bare.encode_batch_fast(list(texts), add_special_tokens=False)]


class _ByWord:
    """Tokenise every distinct word once: words repeat far more often than texts."""

    def __init__(self, bare: Tokenizer, pattern: re.Pattern[str]) -> None:
        self.encode = _Whole(bare)
        self.pattern = pattern
        self.known: dict[str, list[int]] = {}

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        rows = [self.pattern.findall(text) for text in texts]
        words = set(chain.from_iterable(rows))
        if len(self.known) + len(words) > _WORDS:
            self.known.clear()
        new = list(words.difference(self.known))
        self.known.update(zip(new, self.encode(new), strict=True))
        known = self.known
        return [list(chain.from_iterable([known[word] for word in row])) for row in rows]


def _word_pattern(bare: Tokenizer) -> re.Pattern[str] | None:
    """Return a pattern that cuts a text into words which can be tokenised one by one, or None.

    The tokenizers of the BERT family clean texts character by character and never let a
    token reach over a space or an ASCII punctuation mark, so words give the tokens of
    the whole. Special tokens such as [MASK] written out in a text stay whole. Not so
    where a space is part of a token, as in byte-level BPE and SentencePiece.
    """
    parts = json.loads(bare.to_str())
    kinds = [(parts[part] or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model")]
    added = [token["content"] for token in parts["added_tokens"]]
    plain = not any(token[flag] for token in parts["added_tokens"] for flag in ("lstrip", "rstrip", "single_word"))
    known = kinds[0] in (None, "BertNormalizer") and kinds[1:] == ["BertPreTokenizer", "WordPiece"]
    if not (known and plain and all(content[:1] in string.punctuation for content in added)):
        return None
    marks = re.escape(string.punctuation)
    longest_first = sorted(added, key=len, reverse=True)
    return re.compile("|".join([*map(re.escape, longest_first), f"[^ {marks}]+", f"[{marks}]"]))


def _bare(tokenizer: Tokenizer) -> Tokenizer:
    """Return a copy that neither cuts nor pads."""
    copy: Tokenizer = type(tokenizer).from_str(tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy


def _dtype(tokenizer: Tokenizer) -> np.dtype[np.unsignedinteger]:
    return np.min_scalar_type(max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0))


def _key(texts: Sequence[str], tokenizer: Tokenizer) -> str:
    digest = blake2b(_bare(tokenizer).to_str().encode(), digest_size=16)
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()
