"""Synonym replacement: copies of rows with some words replaced by similar ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field, PositiveInt

from megalabel.augment._rows import Augmentation, TokenTable, how_many, name_rows
from megalabel.data.dataset import Split
from megalabel.errors import DataError, SettingError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.data.dataset import Dataset

__all__ = ["SynonymsSettings", "synonyms"]

WORD = re.compile(r"[^\W\d_]{3,}")  # shorter ones are mostly articles and endings
BLOCK = 1024  # words compared at a time


class SynonymsSettings(Augmentation):
    """Settings of :func:`synonyms`, which explains them."""

    kind: Literal["synonyms"] = "synonyms"
    words: Annotated[float, Field(gt=0, le=1)] = 0.2
    top: PositiveInt = 5
    source: str = "minilm"  # of the token vectors: minilm or the folder of a model

    def apply(
        self, data: Dataset, *, seed: int, token_table: TokenTable, say: Callable[[str], None] | None = None
    ) -> Dataset:
        """Return the data set with copies of train rows in which words are replaced."""
        del say
        vectors, tokens = token_table(self.source)
        return synonyms(data, vectors, tokens, share=self.share, words=self.words, top=self.top, seed=seed)


def synonyms(
    data: Dataset,
    vectors: NDArray[np.float32],
    vocabulary: Sequence[str],
    *,
    share: float = 1.0,
    words: float = 0.2,
    top: int = 5,
    seed: int = 0,
) -> Dataset:
    """Add copies of train rows with some words replaced by similar ones; targets and filter pairs are copied.

    Similar words are the ``top`` words with the largest cosine of token vectors, such as the
    rows of a pretrained model's token table; one of them is drawn at random. Only whole words
    of letters in the vocabulary are replaced, by other such words. A row without any gets no
    copy. Synonym replacement after Wei and Zou 2019, "EDA: easy data augmentation
    techniques", with vectors in place of a thesaurus.

    Args:
        data: the set; only train grows.
        vectors: [V, d] one per token.
        vocabulary: [V] the tokens; pieces of words and other tokens are ignored.
        share: share of the train rows that get a copy.
        words: share of a text's known words that are replaced, at least one.
        top: nearest words to choose from.
        seed: random seed.

    >>> from megalabel import Dataset
    >>> data = Dataset.from_lists([("Big shoe, 42", [0])], [("shoe", [0])], ["shoe"])
    >>> table = np.array([[1, 0], [0.9, 0.1], [0, 1], [0.2, 1]], dtype=np.float32)
    >>> synonyms(data, table, ["big", "large", "shoe", "boot"], words=1.0, top=1).train.texts
    ['Big shoe, 42', 'Large boot, 42']
    """
    if len(vectors) != len(vocabulary):
        raise DataError(f"{len(vectors):,} vectors but {len(vocabulary):,} tokens")
    if not 0 < words <= 1:
        raise SettingError(f"words must be above 0 and at most 1, not {words}", remedy="0.2 replaces one in five")
    if top < 1:
        raise SettingError(f"top must be at least 1, not {top}")
    train, rng = data.train, np.random.default_rng(seed)
    known = {token: row for row, token in enumerate(vocabulary) if WORD.fullmatch(token)}
    picked = rng.choice(len(train), how_many(share, len(train)), replace=False)
    replaced = {row: _pick(train.texts[row], known, words, rng) for row in np.sort(picked).tolist()}
    replaced = {row: places for row, places in replaced.items() if places}
    if len(known) < 2 or not replaced:
        raise DataError("no word of the train texts is in the vocabulary", remedy="give the table of another model")
    near = _near_words(vectors, known, sorted({word for places in replaced.values() for _, _, word in places}), top)
    texts = [_exchange(train.texts[row], places, near, rng) for row, places in replaced.items()]
    copies = train.rows(np.array(list(replaced), dtype=np.int64))
    uids = name_rows("synonyms", replaced, train.uids)
    return data.replace(train=train + Split(texts, copies.targets, uids, copies.filter))


def _pick(text: str, known: dict[str, int], words: float, rng: np.random.Generator) -> list[tuple[int, int, str]]:
    """Return start, end and vocabulary form of the words to replace, in the order of the text."""
    places = [(match.start(), match.end(), match[0]) for match in WORD.finditer(text)]
    places = [(a, b, word if word in known else word.lower()) for a, b, word in places]
    places = [place for place in places if place[2] in known]
    if not places:
        return []
    number = max(1, round(words * len(places)))
    return [places[i] for i in np.sort(rng.choice(len(places), number, replace=False))]


def _near_words(
    vectors: NDArray[np.float32], known: dict[str, int], words: list[str], top: int
) -> dict[str, list[str]]:
    """Return the nearest other words of each word."""
    names = list(known)
    position = {name: n for n, name in enumerate(names)}
    table = np.asarray(vectors, dtype=np.float32)[list(known.values())]
    table = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    top = min(top, len(names) - 1)
    near = {}
    for start in range(0, len(words), BLOCK):
        part = words[start : start + BLOCK]
        columns = np.array([position[word] for word in part])
        cosines = table[columns] @ table.T
        cosines[np.arange(len(columns)), columns] = -np.inf
        best = np.argpartition(-cosines, top - 1, axis=1)[:, :top]
        near.update({word: [names[i] for i in row] for word, row in zip(part, best.tolist(), strict=True)})
    return near


def _exchange(
    text: str, places: list[tuple[int, int, str]], near: dict[str, list[str]], rng: np.random.Generator
) -> str:
    """Return the text with the words replaced; capital letters are kept."""
    parts, done = [], 0
    for start, end, word in places:
        other = near[word][int(rng.integers(len(near[word])))]
        parts += [text[done:start], other.capitalize() if text[start].isupper() else other]
        done = end
    return "".join([*parts, text[done:]])
