"""Features of a bag compared with a slow, plain implementation."""

import string
import unicodedata
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from megalabel.encoders._features import CutTexts, Features

SIZES = {"words": 32, "bigrams": 64, "characters": 128}
TOP = 2**64 - 1


def mix(x):
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & TOP
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & TOP
    return x ^ (x >> 31)


def total(word):
    return sum(mix(ord(c) + place * 0x9E3779B97F4A7C15 & TOP) for place, c in enumerate(word, 1)) & TOP


def naive(text, sizes=SIZES, ngrams=(3, 4, 5)):
    """Features of ASCII text without subwords, as a sorted list."""
    text = unicodedata.normalize("NFKC", text).lower()
    words = "".join(" " if c in string.punctuation else c for c in text).split()
    hashes = [mix(total(word)) for word in words]
    rows = [h & (sizes["words"] - 1) for h in hashes]
    start = sizes["words"]
    rows += [start + (mix(3 * a + b & TOP) & (sizes["bigrams"] - 1)) for a, b in pairwise(hashes)]
    start += sizes["bigrams"]
    for word in words:
        marked = f"<{word[:40]}>"
        for n in ngrams:
            for i in range(len(marked) - n + 1):
                h = mix(total(marked[i : i + n]) + n * 0x9E3779B97F4A7C15 & TOP)
                rows.append(start + (h & (sizes["characters"] - 1)))
    return sorted(rows)


ascii_text = st.text(alphabet=string.ascii_letters + string.digits + " .,-_'\t\n", max_size=60)


@given(st.lists(ascii_text, max_size=4))
def test_equals_a_plain_implementation(texts):
    tokens = Features(None, **SIZES, ngrams=(3, 4, 5)).tokenise(texts)
    assert tokens.ids.dtype == np.uint32
    assert [sorted(tokens[i].tolist()) for i in range(len(texts))] == [naive(text) for text in texts]


def test_rows_never_change():
    """Saved models depend on these numbers."""
    features = Features(None, words=2**16, bigrams=2**17, characters=2**17, ngrams=(3,))
    assert features.tokenise(["Red shoe"]).ids.tolist() == [
        53179,
        244378,
        199019,
        304447,
        6213,
        275346,
        316971,
        307050,
        320850,
        186699,
    ]
    assert features.fingerprint() == "98712ab7d7637601f5c9f1e3e1371b76"
    spaces = Features(None, words=2**16, bigrams=2**17, characters=2**17, ngrams=(3,), split="spaces")
    assert spaces.fingerprint() == "e73d0bab2c94160ca0ad3abde98f27f4"


def test_each_kind_can_be_left_out():
    for kind in SIZES:
        features = Features(None, **(SIZES | {kind: 0}), ngrams=(3, 4, 5))
        full = Features(None, **SIZES, ngrams=(3, 4, 5))
        text = ["some red shoes"]
        assert features.rows == full.rows - SIZES[kind]
        start, size = full.starts[kind], full.sizes[kind]
        kept = [
            row if row < start else row - size for row in full.tokenise(text).ids if not start <= row < start + size
        ]
        assert features.tokenise(text).ids.tolist() == kept
    nothing = Features(None, words=0, bigrams=0, characters=0, ngrams=())
    assert nothing.tokenise(["some text"]).ids.tolist() == []


@pytest.fixture(scope="module")
def subwords():
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "red": 1, "shoe": 2, ",": 3}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def test_order_follows_the_text(subwords):
    features = Features(subwords, words=16, bigrams=16, characters=0, ngrams=())
    rows = features.tokenise(["red, shoe"]).ids.tolist()
    kinds = [
        max(kind for kind in features.starts if features.starts[kind] <= row and features.sizes[kind]) for row in rows
    ]
    assert [row for row in rows if row < 4] == [1, 3, 2]  # marks have subwords only
    assert len(kinds) == 6
    assert 4 <= rows[1] < 20 and 20 <= rows[-1] < 36  # the pair reaches over the comma and comes last


def test_pairs_stay_inside_a_text():
    features = Features(None, words=0, bigrams=64, characters=0, ngrams=())
    tokens = features.tokenise(["red", "shoe", "red shoe", "shoe red"])
    assert tokens.lengths.tolist() == [0, 0, 1, 1]
    assert tokens[2] != tokens[3]


def test_case_and_width_do_not_matter_and_any_unicode_passes():
    features = Features(None, words=2**16, bigrams=0, characters=0, ngrams=())
    tokens = features.tokenise(["RED", "red", "\uff52\uff45\uff44", "“red”", "\ud800x", "\u200b", "हिन्दी"])
    assert tokens.lengths.tolist() == [1, 1, 1, 1, 1, 0, 1]
    assert len(set(tokens.ids[:4].tolist())) == 1


def test_long_words_are_bounded():
    features = Features(None, words=16, bigrams=16, characters=1024, ngrams=(3, 4, 5))
    assert features.tokenise(["x" * 100_000]).lengths.max() < 130


def test_hash_spreads_evenly():
    features = Features(None, words=1024, bigrams=0, characters=0, ngrams=())
    counts = np.bincount(features.tokenise([f"word{i}" for i in range(50_000)]).ids, minlength=1024)
    assert abs(counts.std() / np.sqrt(50_000 / 1024) - 1) < 0.15  # as random places would be


@given(st.lists(st.text(max_size=40), max_size=4))
def test_texts_that_are_cut_once_have_the_same_features(texts):
    cut = CutTexts(texts)
    for options in ({}, {"split": "spaces"}, {"ngrams": (2,)}, {"characters": 0}):
        features = Features(None, **{**SIZES, "ngrams": (3, 4, 5), **options})
        one, other = features.tokenise(cut), features.tokenise(texts)
        assert one.ids.tolist() == other.ids.tolist()
        assert one.offsets.tolist() == other.offsets.tolist()
