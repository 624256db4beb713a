import numpy as np
import pytest

from megalabel.data.builtin._words import Words


@pytest.mark.parametrize("size", [10, 1_000, 1_000_000, 1_000_001])
def test_every_number_has_a_word_of_its_own(size):
    numbers = np.unique(np.r_[np.arange(min(size, 50_000)), np.linspace(0, size - 1, 5_000, dtype=np.int64)])
    words = Words(size).join(numbers[:, None])
    assert len(set(words)) == len(numbers)
    assert all(word.isalpha() and word.islower() for word in words)


def test_largest_vocabulary_does_not_overflow():
    last = np.arange(200_000_000 - 1_000, 200_000_000)
    assert len(set(Words(200_000_000).join(last[:, None]))) == 1_000


def test_rows_join_with_spaces():
    words = Words(100)
    assert words.join(np.array([[3, 4]])) == [" ".join(words.join(np.array([[3], [4]])))]
    assert words.join(np.empty((2, 0), dtype=np.int64)) == ["", ""]
