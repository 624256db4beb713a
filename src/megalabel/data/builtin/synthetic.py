"""synthetic: made-up texts of any size, from a seed, with a known answer.

The text of a label is two words that no other label has. A point's text holds words of
(some of) its labels among noise words, so that the correct answer is known:

- ``zipf``: one word of each of its labels; label frequencies fall as 1 / (rank + shift). A
  model that learns which words belong to which label is always right.
- ``easy-positive``: labels at random, and a word of one of them only. That label is easy,
  the others can only be memorised; a loss in which positives compete loses the easy
  one (Gupta et al., "Dual-Encoders for Extreme Multi-Label Classification", ICLR 2024,
  Figure 2, where a query has five positives).
- ``random-pairs``: labels at random, noise words only. The pairs can only be
  memorised, so the test points are train points (a memorisation test).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from megalabel.data.builtin.settings import Setting
from megalabel.data.dataset import Dataset, Labels, Split
from megalabel.data.texts import TextWriter, pack_texts
from megalabel.errors import SettingError
from megalabel.progress import progress

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["SETTINGS", "Words", "build"]

TEST_SHARE = 0.2
WORDS_PER_LABEL = 2
NOISE_WORDS = 1_000  # in the vocabulary
BLOCK = 65_536  # rows made at a time
ROUNDS = 20  # of redrawing duplicates in a row

# Kind -> noise words in a text, what it is.
KINDS = {
    "zipf": (3, "a word of each label; label frequencies fall as 1 / rank"),
    "easy-positive": (8, "a word of one label, the others at random"),
    "random-pairs": (8, "noise words only; test points are train points again"),
}

SETTINGS = {
    "points": Setting("whole", 2_000, "points in all, a fifth of them test", low=2, high=10**8),
    "labels": Setting("whole", 500, "labels", low=1, high=10**8),
    "labels_per_point": Setting("whole", 5, "labels of each point", low=1, high=10_000),
    "seed": Setting("whole", 0, "another seed, another set"),
    "kind": Setting("choice", "zipf", "what a text says about its labels", choices=tuple(KINDS)),
}


def build(values: dict[str, Any], say: Callable[[str], None]) -> Dataset:
    """Return the set, built block by block, so that memory holds little more than the set itself."""
    points, labels, each, kind = values["points"], values["labels"], values["labels_per_point"], values["kind"]
    if each > labels:
        raise SettingError(
            f"synthetic: labels_per_point={each} is more than labels={labels}", remedy="ask for more labels"
        )
    rng = np.random.default_rng([values["seed"], list(KINDS).index(kind)])
    tests = max(1, round(TEST_SHARE * points))
    trains = points - tests
    weights = _zipf(labels) if kind == "zipf" else np.ones(labels)
    cells = _draw(rng, points, rng.permutation(weights), each)
    _reach_all(rng, cells[:trains].reshape(-1), labels)
    cells.sort(axis=1)
    words = Words(labels * WORDS_PER_LABEL + NOISE_WORDS)
    texts = _texts(rng, cells, words, kind, labels)
    train = _split("trn", texts[:trains], cells[:trains], labels)
    return Dataset(
        train=train,
        test=train.rows(np.sort(rng.permutation(trains)[:tests]))
        if kind == "random-pairs"
        else _split("tst", texts[trains:], cells[trains:], labels),
        labels=Labels(pack_texts(_label_texts(words, labels)), pack_texts(f"lbl-{i}" for i in range(labels))),
        name="synthetic",
        about=f"made-up texts, {kind}: {KINDS[kind][1]} (seed {values['seed']})",
        licence="none needed, the texts are random",
    )


def _zipf(labels: int) -> NDArray[np.float64]:
    """Return 1 / (rank + shift); the shift keeps the first labels from being in nearly every point."""
    return 1.0 / (np.arange(1.0, labels + 1) + min(50.0, labels / 20))


def _draw(rng: np.random.Generator, points: int, weights: NDArray[np.float64], each: int) -> NDArray[np.int32]:
    """Return [points, each]: distinct labels per row, drawn one after the other by weight."""
    cells = np.empty((points, each), dtype=np.int32)
    ends = np.cumsum(weights)
    ends /= ends[-1]

    def draw(size: int) -> NDArray[np.int64]:
        return np.searchsorted(ends, rng.random(size), side="right")

    with progress("drawing labels", total=points, unit="points") as step:
        for block in _blocks(points, BLOCK):
            rows = cells[block.start : block.stop]
            rows[:] = draw(rows.size).reshape(rows.shape)
            rows.sort(axis=1)
            left = np.arange(len(rows))  # rows that may still have duplicates
            for _ in range(ROUNDS):
                twice = np.zeros((len(left), each), dtype=bool)
                twice[:, 1:] = rows[left, 1:] == rows[left, :-1]
                open_rows = twice.any(axis=1)
                left, twice = left[open_rows], twice[open_rows]
                again = rows[left]
                again[twice] = draw(int(twice.sum()))
                again.sort(axis=1)
                rows[left] = again
            for row in left:
                rows[row] = _complete(rng, rows[row], len(weights))
            step(len(rows))
    return cells


def _complete(rng: np.random.Generator, row: NDArray[np.int32], labels: int) -> NDArray[np.int32]:
    """Return the row with duplicate labels replaced by labels it does not have."""
    held = np.unique(row)
    others = np.setdiff1d(np.arange(labels, dtype=np.int32), held)
    return np.sort(np.concatenate([held, rng.choice(others, size=len(row) - len(held), replace=False)]))


def _reach_all(rng: np.random.Generator, cells: NDArray[np.int32], labels: int) -> None:
    """Give each label without a cell a random cell of a label with several, as long as there are any."""
    last = np.full(labels, -1, dtype=np.int64)
    last[cells] = np.arange(len(cells))
    missing = np.flatnonzero(last < 0)
    spare = np.ones(len(cells), dtype=bool)
    spare[last[last >= 0]] = False
    free = np.flatnonzero(spare)
    chosen = rng.choice(free, size=min(len(missing), len(free)), replace=False)
    cells[chosen] = missing[: len(chosen)]


def _texts(rng: np.random.Generator, cells: NDArray[np.int32], words: Words, kind: str, labels: int) -> Sequence[str]:
    texts = TextWriter()
    with progress("writing texts", total=len(cells), unit="points") as step:
        for rows in _blocks(len(cells), BLOCK):
            own = cells[rows.start : rows.stop].astype(np.int64) * WORDS_PER_LABEL
            own += rng.integers(WORDS_PER_LABEL, size=own.shape)
            if kind == "easy-positive":
                own = np.take_along_axis(own, rng.integers(own.shape[1], size=(len(rows), 1)), axis=1)
            elif kind == "random-pairs":
                own = own[:, :0]
            noise = labels * WORDS_PER_LABEL + rng.integers(NOISE_WORDS, size=(len(rows), KINDS[kind][0]))
            for text in words.join(rng.permuted(np.hstack([own, noise]), axis=1)):
                texts.append(text)
            step(len(rows))
    return texts.finish()


def _label_texts(words: Words, labels: int) -> Iterator[str]:
    for rows in _blocks(labels, BLOCK):
        first = np.arange(rows.start, rows.stop)[:, None] * WORDS_PER_LABEL
        yield from words.join(first + np.arange(WORDS_PER_LABEL))


def _split(prefix: str, texts: Sequence[str], cells: NDArray[np.int32], labels: int) -> Split:
    rows, each = cells.shape
    indptr = np.arange(rows + 1) * each
    ones = np.ones(cells.size, dtype=np.float32)
    targets = sparse.csr_matrix((ones, cells.reshape(-1), indptr), shape=(rows, labels))
    targets.has_sorted_indices = True
    return Split(texts, targets, pack_texts(f"{prefix}-{i}" for i in range(rows)))


def _blocks(total: int, size: int) -> Iterator[range]:
    for start in range(0, total, size):
        yield range(start, min(start + size, total))


_SYLLABLES = np.array([[ord(c), ord(v)] for c in "bcdfghjklmnpqrstvwxz" for v in "aeiou"], dtype=np.uint8)  # [100, 2]
_STRIDE = 61_803_398_873  # prime to 10, so that number * stride visits every word once


class Words:
    """Words 0 .. size - 1: syllables such as "ka" and "du", all of one length; neighbouring words differ.

    >>> Words(1_000).join(np.array([[0, 1], [2, 999]]))
    ['bababa kuwoso', 'tutime milehi']
    """

    def __init__(self, size: int) -> None:
        self.syllables = max(3, -(-len(str(size - 1)) // 2))

    def join(self, numbers: NDArray[np.int64]) -> list[str]:
        """Return a text for each row of ``numbers`` [n, m]: its words with spaces between."""
        rows, columns = numbers.shape
        if rows == 0 or columns == 0:
            return [""] * rows
        rest = numbers * (_STRIDE % 100**self.syllables) % 100**self.syllables
        letters = np.full((rows, columns, 2 * self.syllables + 1), ord(" "), dtype=np.uint8)
        for place in range(self.syllables - 1, -1, -1):
            rest, digits = np.divmod(rest, 100)
            letters[:, :, 2 * place : 2 * place + 2] = _SYLLABLES[digits]
        width = letters[0].size
        joined = letters.tobytes().decode("ascii")
        return [joined[start : start + width - 1] for start in range(0, rows * width, width)]
