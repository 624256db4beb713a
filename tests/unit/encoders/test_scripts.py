"""Scripts without spaces are cut into characters; everything else has the features it always had."""

import unicodedata

import numpy as np
import pytest

from megalabel.encoders import BagEncoder, SparseEncoder, load_encoder
from megalabel.encoders._features import Features
from megalabel.encoders._scripts import units
from megalabel.errors import SettingError
from megalabel.heads.overlap import Overlap

NO_SPACES = {
    "Chinese": ("我们今天在医院里喝咖啡。", "医院", "电影"),
    "Japanese": ("私たちは図書館で本を読みました", "図書館", "コーヒー"),
    "Thai": ("วันนี้เราไปโรงพยาบาลด้วยกัน", "โรงพยาบาล", "ภาพยนตร์"),
    "Lao": ("ມື້ນີ້ພວກເຮົາໄປໂຮງຫມໍ", "ໂຮງຫມໍ", "ຮູບເງົາ"),
    "Khmer": ("ថ្ងៃនេះយើងទៅមន្ទីរពេទ្យ", "មន្ទីរពេទ្យ", "ភាពយន្ត"),
    "Burmese": ("ဒီနေ့ကျွန်တော်တို့ဆေးရုံသွားတယ်", "ဆေးရုံ", "ရုပ်ရှင်"),
    "emoji": ("great👍🏽🎉today", "🎉", "🍎"),
}
SPACES = [
    "Red shoe, a café -- (new)",
    "Красная обувь",
    "كتاب جديد في المدينة",
    "हिन्दी का शब्द",
    "한국어 단어",
    "x" * 90,
    "",
    "?!",
]


def features(split="scripts", **sizes):
    return Features(None, **({"words": 2**16, "bigrams": 0, "characters": 0, "ngrams": [3, 4, 5]} | sizes), split=split)


def rows(text, **settings):
    return features(**settings).tokenise([text])[0].tolist()


@pytest.mark.parametrize("name", NO_SPACES)
@pytest.mark.parametrize("sizes", [{}, {"words": 0, "characters": 2**16, "ngrams": [1, 2, 3]}])
def test_a_word_in_a_run_is_found(name, sizes):
    text, inside, other = NO_SPACES[name]
    assert set(rows(inside, **sizes)) <= set(rows(text, **sizes))
    assert len(set(rows(other, **sizes)) & set(rows(text, **sizes))) < len(set(rows(other, **sizes)))
    if name != "emoji":
        assert not set(rows(inside, split="spaces")) & set(rows(text, split="spaces"))


@pytest.mark.parametrize("text", SPACES)
def test_scripts_with_spaces_are_as_before(text):
    sizes = {"words": 1024, "bigrams": 1024, "characters": 1024}
    assert rows(text, **sizes) == rows(text, split="spaces", **sizes)


def test_characters_keep_their_marks():
    assert units("がぎ") == ["が", "ぎ"] == units(unicodedata.normalize("NFC", "か\u3099き\u3099"))
    assert units("か\u3099") == ["か\u3099"]
    assert units("ที่นี่") == ["ที่", "นี่"]
    assert units("👩\u200d💻🇯🇵👍🏽❤\ufe0f") == ["👩\u200d💻", "🇯🇵", "👍🏽", "❤\ufe0f"]
    assert len(rows("ที่นี่")) == 3  # two characters and the pair


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("cafe\u0301", "caf\u00e9"),
        ("か\u3099っこう", "がっこう"),
        ("ｶﾞｯｺｳ", "ガッコウ"),
        ("\uff30\uff59\uff54\uff48\uff4f\uff4e", "python"),
        ("Й", "И\u0306"),
        ("한국", "\u1112\u1161\u11ab\u1100\u116e\u11a8"),
    ],
)
def test_composed_and_decomposed_are_the_same(one, other):
    assert rows(one, characters=1024) == rows(other, characters=1024)


def test_words_beside_a_run_are_words():
    sizes = {"bigrams": 2**16}
    assert set(rows("Python", **sizes)) <= set(rows("用Python编程", **sizes))
    assert set(rows("great", **sizes)) <= set(rows("great👍", **sizes))
    assert rows("你好\uff01世界\uff0c") == rows("你好 世界")  # full-width marks are marks


def test_features_follow_the_text_and_no_run_is_cut():
    long = "".join(chr(0x4E00 + place) for place in range(300))
    sizes = {"characters": 2**16}
    assert len(rows(long, **sizes)) == 300 + 299 + 298 + 297 + 296
    begin, whole = rows(long[:40], **sizes), rows(long, **sizes)
    assert set(begin[:100]) <= set(whole[:130])
    assert whole[:10] == rows(long[:100], **sizes)[:10]


def test_odd_input_does_not_stop_it():
    for text in (
        "\u200d",
        "\ufe0f",
        "\u0301",
        "\u0e31\u0e31",
        "🏽",
        "🇯",
        "\U000e0020",
        "\udc80x",
        "่",
        "a\u200db",
        "๏ฯ๛",
    ):
        assert isinstance(rows(text, characters=1024), list)


def test_subwords_are_spread_over_a_run():
    tokenizers = pytest.importorskip("tokenizers")
    names = {"[UNK]": 0, **{chr(0x4E00 + place): place + 1 for place in range(50)}}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(names, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    both = Features(tokenizer, words=2**16, bigrams=0, characters=0, ngrams=[3])
    ids = both.tokenise(["".join(names)[5:]])[0]
    subwords = np.flatnonzero(ids < 51)
    assert len(subwords) == 50 and subwords[25] == pytest.approx(75, abs=3)


def test_the_setting_is_saved_and_older_models_keep_spaces(tmp_path):
    text, inside, _ = NO_SPACES["Chinese"]
    bag = BagEncoder(None, dim=8, words=256, bigrams=0, characters=0)
    bag.save(tmp_path / "new")
    assert load_encoder(tmp_path / "new").split == "scripts"
    BagEncoder(None, dim=8, words=256, bigrams=0, characters=0, split="spaces").save(tmp_path / "spaces")
    assert load_encoder(tmp_path / "spaces").split == "spaces"
    settings = next((tmp_path / "new").glob("*.json"))
    settings.write_text(settings.read_text().replace('"split":"scripts",', "").replace('  "split": "scripts",\n', ""))
    assert "split" not in settings.read_text()
    assert load_encoder(tmp_path / "new").split == "spaces"
    for kind in (SparseEncoder(words=256, bigrams=0, characters=0).fit([text]), Overlap().fit([text], [inside])):
        kind.save(tmp_path / kind.kind)
        assert type(kind).load(tmp_path / kind.kind).split == "scripts"
        settings = tmp_path / kind.kind / f"{kind.kind}.json"
        settings.write_text(
            settings.read_text().replace('  "split": "scripts",\n', "").replace(',\n  "split": "scripts"', "")
        )
        assert "split" not in settings.read_text()
        assert type(kind).load(tmp_path / kind.kind).split == "spaces"
    assert Overlap().fit([text], [inside, "电影"]).search([text], 2).ids[0, 0] == 0


def test_the_split_is_part_of_the_fingerprint_and_checked():
    assert features().fingerprint() != features("spaces").fingerprint()
    with pytest.raises(SettingError, match="did you mean 'scripts'"):
        features("script")
