"""wordnet: synsets of a WordNet dict folder and the synsets they point to.

Text: ``lemmas: gloss``. Labels: every synset a synset points to, whatever the pointer
(hypernym, part, antonym, derived form, ...). Nearly every pointer has its reverse, so
points and labels are the same items.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.data.builtin._items import Items, split_items
from megalabel.data.builtin.settings import Setting
from megalabel.data.cache import cached
from megalabel.errors import DataError
from megalabel.files import decode, open_bytes, read_lines

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset

__all__ = ["SETTINGS", "build"]

VERSION = 1  # of this builder; a new number invalidates cached sets
TEST_SHARE = 0.05
FILES = {"n": "data.noun", "v": "data.verb", "a": "data.adj", "r": "data.adv"}
FOLDERS = (
    "/usr/share/wordnet",
    "/usr/local/WordNet-3.0/dict",
    "/usr/local/share/wordnet",
    "/opt/local/share/WordNet-3.0/dict",
)

SETTINGS = {
    "path": Setting("path", None, "the folder with data.noun, data.verb, data.adj, data.adv"),
    "seed": Setting("whole", 0, "which synsets are test points"),
}


def build(values: dict[str, Any], say: Callable[[str], None]) -> Dataset:
    """Return the set, from the cache if the same files were read before."""
    folder = _folder(values["path"])
    content = hashlib.sha256()
    for name in FILES.values():
        with open_bytes(folder / name) as stream:
            content.update(stream.read())
    key = {"set": "wordnet", "builder": VERSION, "seed": values["seed"], "content": content.hexdigest()}
    return cached(key, lambda: _make(folder, values["seed"], say), say=say)


def _folder(path: Path | None) -> Path:
    remedy = "on Debian apt install wordnet-base, or give wordnet:path=FOLDER with a WordNet dict folder"
    for folder in [path, path / "dict"] if path is not None else [Path(name) for name in FOLDERS]:
        if all((folder / name).is_file() for name in FILES.values()):
            return folder
    if path is None:
        raise DataError("there is no WordNet on this machine", remedy=remedy)
    raise DataError(f"there are no {', '.join(FILES.values())} in this folder", path=path, remedy=remedy)


def _make(folder: Path, seed: int, say: Callable[[str], None]) -> Dataset:
    texts: dict[str, str] = {}
    pointers: list[tuple[str, str]] = []
    for part, name in FILES.items():
        for uid, text, others in _synsets(folder / name, part):
            texts[uid] = text
            pointers.extend((uid, other) for other in others)
    uids = sorted(texts)
    number = {uid: i for i, uid in enumerate(uids)}
    pairs = np.array([(number[a], number[b]) for a, b in pointers if b in number], dtype=np.int64).reshape(-1, 2)
    say(f"wordnet: {len(uids):,} synsets with {len(pairs):,} pointers from {folder}")
    return split_items(
        Items([texts[uid] for uid in uids], uids, pairs),
        name="wordnet",
        about="WordNet synsets and the synsets they point to",
        licence="WordNet licence (Princeton University), free with its notice",
        share=TEST_SHARE,
        seed=seed,
    )


def _synsets(path: Path, part: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield (uid, text, uids it points to) of every synset of a data file (format: wndb(5WN))."""
    for number, raw in read_lines(path):
        if raw.startswith(b"  ") or not raw.strip():  # the licence at the top
            continue
        head, _, gloss = decode(raw, path, number).partition("|")
        fields = head.split()
        try:
            words = int(fields[3], 16)
            lemmas = [word.partition("(")[0].replace("_", " ") for word in fields[4 : 4 + 2 * words : 2]]
            count = int(fields[4 + 2 * words])
            first = 5 + 2 * words
            pointers = [f"{_part(fields[i + 2])}{fields[i + 1]}" for i in range(first, first + 4 * count, 4)]
        except (IndexError, ValueError):
            raise DataError("this is not a line of a WordNet data file", path=path, line=number) from None
        yield f"{part}{fields[0]}", f"{', '.join(lemmas)}: {gloss.strip()}", pointers


def _part(letter: str) -> str:
    return "a" if letter == "s" else letter  # satellites live in data.adj too
