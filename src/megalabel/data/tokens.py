"""The token store: every text tokenised once, kept ragged on disk, mapped into memory."""

from __future__ import annotations

import json
import os
import re
import string
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from megalabel.data.cache import cache_folder
from megalabel.errors import WriteError
from megalabel.files import writing, writing_folder
from megalabel.progress import progress
from megalabel.types import Tokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["Tokeniser", "Tokenises", "store_tokens", "tokenise", "tokenise_in_chunks"]

_CHUNK = 8_192  # texts handed to the tokenizer at a time
_WORDS = 500_000  # distinct words remembered at a time
_VERSION = 1  # of the files on disk


@runtime_checkable
class Tokenises(Protocol):
    """What the store needs of a tokeniser; every encoder is one."""

    def tokenise(self, texts: Sequence[str]) -> Tokens:
        """Return the tokens of the texts; ids have the same type in every call."""
        ...

    def fingerprint(self) -> str:
        """Name the tokenisation: the same string where the same texts give the same tokens."""
        ...


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
    return Tokeniser(tokenizer).tokenise(texts)


class Tokeniser:
    """A tokenizer prepared once for many calls of :func:`tokenise`; it caches the words it has seen."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def tokenise(self, texts: Sequence[str]) -> Tokens:
        """Return the tokens of the texts."""
        return tokenise_in_chunks(texts, self._chunk)

    def fingerprint(self) -> str:
        """Return a hash of the tokenizer, without its cut and padding."""
        return blake2b(self.bare.to_str().encode(), digest_size=16).hexdigest()

    def _chunk(self, texts: Sequence[str]) -> Tokens:
        ids = self._encode(texts)
        offsets = np.zeros(len(ids) + 1, dtype=np.int64)
        np.cumsum(np.fromiter(map(len, ids), dtype=np.int64, count=len(ids)), out=offsets[1:])
        return Tokens(np.fromiter(chain.from_iterable(ids), dtype=self._dtype, count=int(offsets[-1])), offsets)

    @cached_property
    def bare(self) -> Tokenizer:
        """The tokenizer, copied, without cut and padding."""
        copy: Tokenizer = type(self.tokenizer).from_str(self.tokenizer.to_str())
        copy.no_truncation()
        copy.no_padding()
        return copy

    @cached_property
    def _encode(self) -> Callable[[Sequence[str]], list[list[int]]]:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
        by_word = _word_pattern(self.bare)
        return _Whole(self.bare) if by_word is None else _ByWord(self.bare, by_word)

    @cached_property
    def _dtype(self) -> np.dtype[np.unsignedinteger]:
        return np.min_scalar_type(max(self.bare.get_vocab(with_added_tokens=True).values(), default=0))


def tokenise_in_chunks(texts: Sequence[str], tokenise: Callable[[Sequence[str]], Tokens]) -> Tokens:
    """Tokenise the texts chunk by chunk, with progress, and join the results."""
    parts = list(_chunks(texts, tokenise))
    lengths = np.concatenate([part.lengths for part in parts])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Tokens(np.concatenate([part.ids for part in parts]), offsets)


def store_tokens(texts: Sequence[str], tokenizer: Tokenizer | Tokenises, *, folder: Path | None = None) -> Tokens:
    """Tokenise texts once, store the tokens on disk and map them into memory from then on.

    ``tokenizer`` is one of the tokenizers library, or an encoder. The store is keyed by a hash
    of the texts and of the tokenizer and lies in ``folder`` (default: the user's cache). Ids
    have the smallest integer type that holds the vocabulary. Writing holds one chunk in memory.
    A damaged store is rebuilt; several processes may build the same store at the same time.
    If the disk cannot be written, the tokens stay in memory.
    """
    source = tokenizer if isinstance(tokenizer, Tokenises) else Tokeniser(tokenizer)
    home = folder if folder is not None else cache_folder("tokens")
    target = home / _key(texts, source)
    stored = _open(target)
    if stored is not None:
        return stored
    try:
        with writing_folder(target, overwrite=True) as temporary:
            _write(temporary, texts, source)
    except WriteError:
        stored = _open(target)  # another process may have been first
        return stored if stored is not None else source.tokenise(texts)
    stored = _open(target)
    return stored if stored is not None else source.tokenise(texts)


def _write(folder: Path, texts: Sequence[str], source: Tokenises) -> None:
    offsets = np.zeros(len(texts) + 1, dtype=np.int64)
    done = 0
    dtype = source.tokenise([]).ids.dtype
    with writing(folder / "ids.bin") as out:
        for part in _chunks(texts, source.tokenise):
            out.write(part.ids.tobytes())
            offsets[done + 1 : done + 1 + len(part)] = part.lengths
            done += len(part)
    np.cumsum(offsets, out=offsets)
    with writing(folder / "offsets.bin") as out:
        out.write(offsets.tobytes())
    card = {"version": _VERSION, "texts": len(texts), "tokens": int(offsets[-1]), "dtype": dtype.name}
    with writing(folder / "tokens.json") as out:
        out.write(json.dumps(card).encode())


def _open(folder: Path) -> Tokens | None:
    """Map a finished store, or return None if there is none or it is damaged."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        card = json.loads((folder / "tokens.json").read_bytes())
        dtype = np.dtype(card["dtype"])
        sizes = {"ids.bin": card["tokens"] * dtype.itemsize, "offsets.bin": (card["texts"] + 1) * 8}
        if card["version"] != _VERSION or any((folder / name).stat().st_size != size for name, size in sizes.items()):
            return None
        offsets = np.memmap(folder / "offsets.bin", dtype=np.int64, mode="r")
        if card["tokens"] == 0:  # an empty file cannot be mapped
            return Tokens(np.empty(0, dtype=dtype), offsets)
        return Tokens(np.memmap(folder / "ids.bin", dtype=dtype, mode="r"), offsets)
    return None


def _chunks(texts: Sequence[str], tokenise: Callable[[Sequence[str]], Tokens]) -> Iterator[Tokens]:
    """Yield the tokens of one chunk of texts after the other; no texts are one empty chunk."""
    show = progress("tokenising", total=len(texts), unit="texts")
    alone = len(texts) <= _CHUNK  # then the caller shows progress
    with nullcontext(lambda amount: None) if alone else show as step:
        for start in range(0, max(len(texts), 1), _CHUNK):
            part = tokenise(texts[start : start + _CHUNK])
            yield part
            step(len(part))


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
        known = self.known
        if len(known) + len(words) > _WORDS:
            known = self.known = {}  # another thread may go on with the old one
        new = list(words.difference(known))
        known.update(zip(new, self.encode(new), strict=True))
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


def _key(texts: Sequence[str], source: Tokenises) -> str:
    digest = blake2b(source.fingerprint().encode(), digest_size=16)
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()
