"""The token store: every text tokenised once, kept ragged on disk, mapped into memory."""

from __future__ import annotations

import json
import os
import re
import string
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from megalabel.data.cache import cache_folder, trim_cache, use_entry
from megalabel.errors import WriteError
from megalabel.files import writing, writing_folder
from megalabel.progress import notice, progress
from megalabel.types import Tokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["Tokeniser", "Tokenises", "store_tokens", "tokenise", "tokenise_in_chunks"]

_ALONE = 32  # texts tokenised in this thread: to start others takes longer
_CHUNK = 8_192  # texts handed to the tokenizer at a time
_WORD_CHARACTERS = 64  # of a word that is remembered: a text without spaces is one long word, and never comes back
_REMEMBERED_BYTES = 32 << 20  # of words and their tokens, about 150,000 words
_WORD_BYTES = 150  # of two objects and an entry of a dictionary
_VERSION = 2  # of the files on disk


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
        offsets //= self._dtype.itemsize
        return Tokens(np.frombuffer(b"".join(ids), dtype=self._dtype), offsets)

    @cached_property
    def bare(self) -> Tokenizer:
        """The tokenizer, copied, without cut and padding."""
        copy: Tokenizer = type(self.tokenizer).from_str(self.tokenizer.to_str())
        copy.no_truncation()
        copy.no_padding()
        return copy

    @cached_property
    def _encode(self) -> Callable[[Sequence[str]], list[bytes]]:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
        by_word = _word_pattern(self.bare)
        whole = _Whole(self.bare, self._dtype)
        return whole if by_word is None else _ByWord(whole, by_word)

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
    A hash of the whole store is checked whenever it is opened. A damaged store is rebuilt, with
    one line of notice; several processes may build the same store at the same time.
    If the disk cannot be written, the tokens stay in memory.
    """
    source = tokenizer if isinstance(tokenizer, Tokenises) else Tokeniser(tokenizer)
    home = folder if folder is not None else cache_folder("tokens")
    target = home / _key(texts, source)
    stored = _open(target)
    if stored is not None:
        use_entry(target)
        return stored
    try:
        with writing_folder(target, overwrite=True) as temporary:
            _write(temporary, target.name, texts, source)
        if folder is None:
            trim_cache()
    except WriteError:
        stored = _open(target)  # another process may have been first
        return stored if stored is not None else source.tokenise(texts)
    stored = _open(target)
    return stored if stored is not None else source.tokenise(texts)


def _write(folder: Path, key: str, texts: Sequence[str], source: Tokenises) -> None:
    offsets = np.zeros(len(texts) + 1, dtype=np.int64)
    done = 0
    dtype = source.tokenise([]).ids.dtype
    digest = _new_digest()
    with writing(folder / "ids.bin") as out:
        for part in _chunks(texts, source.tokenise):
            ids = part.ids.tobytes()
            out.write(ids)
            digest.update(ids)
            offsets[done + 1 : done + 1 + len(part)] = part.lengths
            done += len(part)
    np.cumsum(offsets, out=offsets)
    with writing(folder / "offsets.bin") as out:
        out.write(offsets.tobytes())
    digest.update(offsets.tobytes())
    card = {"version": _VERSION, "key": key, "texts": len(texts), "tokens": int(offsets[-1]), "dtype": dtype.name}
    digest.update(_card_bytes(card))
    with writing(folder / "tokens.json") as out:
        out.write(json.dumps({**card, "blake2b": digest.hexdigest()}).encode())


def _open(folder: Path) -> Tokens | None:
    """Map a finished store, or return None if there is none or it is damaged, with a one-line notice."""
    try:
        card = json.loads((folder / "tokens.json").read_bytes())
        if card["version"] != _VERSION:
            return None
        tokens = _map(folder, card)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        tokens = None
    if tokens is None:
        notice(f"{folder}: the stored tokens are damaged; the texts are tokenised again")
    return tokens


def _map(folder: Path, card: dict[str, Any]) -> Tokens | None:
    """Map the files of a store, or return None if they or the card are not as they were written."""
    dtype = np.dtype(card["dtype"])
    sizes = {"ids.bin": card["tokens"] * dtype.itemsize, "offsets.bin": (card["texts"] + 1) * 8}
    if card["key"] != folder.name or any((folder / name).stat().st_size != size for name, size in sizes.items()):
        return None
    offsets = np.memmap(folder / "offsets.bin", dtype=np.int64, mode="r")
    empty = card["tokens"] == 0  # an empty file cannot be mapped
    ids = np.empty(0, dtype=dtype) if empty else np.memmap(folder / "ids.bin", dtype=dtype, mode="r")
    digest = _new_digest()
    for part in (ids, offsets):
        digest.update(part.data)
    digest.update(_card_bytes({name: value for name, value in card.items() if name != "blake2b"}))
    return Tokens(ids, offsets) if digest.hexdigest() == card["blake2b"] else None


def _new_digest() -> blake2b:
    return blake2b(digest_size=32)


def _card_bytes(card: dict[str, Any]) -> bytes:
    return json.dumps(card, sort_keys=True).encode()


def _chunks(texts: Sequence[str], tokenise: Callable[[Sequence[str]], Tokens]) -> Iterator[Tokens]:
    """Yield the tokens of one chunk of texts after the other; no texts are one empty chunk."""
    show = progress("tokenising", total=len(texts), unit="texts")
    alone = len(texts) <= _CHUNK  # then the caller shows progress
    with nullcontext(lambda amount: None) if alone else show as step:
        for start in range(0, max(len(texts), 1), _CHUNK):
            part = tokenise(texts if alone else texts[start : start + _CHUNK])
            yield part
            step(len(part))


class _Whole:
    """Tokenise whole texts on all cores; the ids of a text are the bytes of an array."""

    def __init__(self, bare: Tokenizer, dtype: np.dtype[np.unsignedinteger]) -> None:
        self.bare, self.dtype = bare, dtype

    def __call__(self, texts: Sequence[str]) -> list[bytes]:
        if len(texts) <= _ALONE:
            encodings = [self.bare.encode(text, add_special_tokens=False) for text in texts]
        else:
            encodings = self.bare.encode_batch_fast(list(texts), add_special_tokens=False)
        return [array(self.dtype.char, encoding.ids).tobytes() for encoding in encodings]


class _ByWord:
    """Tokenise every distinct word once: words repeat far more often than texts.

    Short words are cached from call to call, up to a number of bytes; then the oldest leave the cache, an eighth at a
    time, so that the memory of a server stays even.
    """

    def __init__(self, whole: _Whole, pattern: re.Pattern[str]) -> None:
        self.whole, self.pattern = whole, pattern
        self.known: dict[str, bytes] = {}
        self.known_bytes = 0

    def __call__(self, texts: Sequence[str]) -> list[bytes]:
        rows = [self.pattern.findall(text) for text in texts]
        known = self.known
        new = list(set(chain.from_iterable(rows)).difference(known))
        tokens = dict(zip(new, self.whole(new), strict=True))
        answer = [b"".join([tokens[word] if word in tokens else known[word] for word in row]) for row in rows]
        self._remember({word: ids for word, ids in tokens.items() if len(word) <= _WORD_CHARACTERS})
        return answer

    def _remember(self, tokens: dict[str, bytes]) -> None:
        size = sum(_word_size(*item) for item in tokens.items())
        if size > _REMEMBERED_BYTES:
            return
        if self.known_bytes + size > _REMEMBERED_BYTES:
            self._forget(max(_REMEMBERED_BYTES // 8, self.known_bytes + size - _REMEMBERED_BYTES))
        self.known.update(tokens)
        self.known_bytes += size

    def _forget(self, wanted: int) -> None:
        """Drop the oldest words, so many bytes of them. Another thread may go on with the old dictionary."""
        items, freed = iter(list(self.known.items())), 0
        for item in items:
            freed += _word_size(*item)
            if freed >= wanted:
                break
        self.known = dict(items)
        self.known_bytes = sum(_word_size(*item) for item in self.known.items())  # exact, whatever threads did


def _word_size(word: str, ids: bytes) -> int:
    """Return about how many bytes a word takes in the cache."""
    return _WORD_BYTES + 4 * len(word) + len(ids)


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
