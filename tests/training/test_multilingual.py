"""Labels in several scripts are found by a recipe whose tokenizer has no language."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from megalabel import train
from megalabel.data.dataset import Dataset, Labels, Split

WORDS = {  # what stands between words, labels, common words
    "Chinese": ("", "医院 音乐 电影 银行 足球 天气", "我们 今天 非常 因为 他们 觉得 现在 已经 的 了 在"),
    "Japanese": ("", "図書館 サッカー りんご 天気 電車 うみ", "わたし とても だから いま すでに ここ は が の に"),
    "Thai": ("", "โรงพยาบาล ดนตรี ภาพยนตร์ ธนาคาร ฟุตบอล อากาศ", "เรา วันนี้ มาก เพราะ ทุกคน ตอนนี้ แล้ว ที่นี่ ของ ใน"),
    "Arabic": (" ", "مستشفى موسيقى فيلم بنك كرة طقس", "نحن اليوم جدا لأن هم يعتقد الآن قد هنا من في"),
    "Cyrillic": (" ", "больница музыка фильм банк футбол погода", "мы сегодня очень они думают сейчас уже здесь"),
    "marks": (
        " ",
        "cafe\u0301 fe\u0302te u\u0308ber man\u0303ana ro\u0302le smo\u0308r",
        "we today very because they now here",
    ),
    "emoji": ("", "🍎 🎵 👩\u200d💻 🏦 ⚽ 🇯🇵", "😀 😂 😍 🤔 👍🏽 👏 🔥 ✨"),
}


@pytest.fixture(scope="module")
def data():
    """Eight train and two test texts of each label, and the language of each label."""
    generator = np.random.default_rng(0)
    labels = [label for _, own, _ in WORDS.values() for label in own.split()]
    parts = {"train": ([], []), "test": ([], [])}
    for between, own, common in WORDS.values():
        for label in own.split():
            for number in range(10):
                words = generator.choice(common.split(), size=6).tolist()
                words.insert(int(generator.integers(7)), label)
                texts, targets = parts["train" if number < 8 else "test"]
                texts.append(between.join(words))
                targets.append(labels.index(label))

    def split(name):
        texts, targets = parts[name]
        matrix = csr_matrix(
            (np.ones(len(texts), dtype=np.float32), (range(len(texts)), targets)), (len(texts), len(labels))
        )
        return Split(texts, matrix, [f"{name}-{number}" for number in range(len(texts))])

    return Dataset(split("train"), split("test"), Labels(labels, labels), name="scripts")


def test_labels_are_found_in_every_script(data):
    changes = ["encoder.source=null", "encoder.options={dim: 64}", "batching.batch_size=32", "training.epochs=6"]
    model = train("unidec-cpu", data, changes=changes)
    right = data.test.targets.indices == model.search(data.test.texts, 1).ids[:, 0]
    for place, name in enumerate(WORDS):
        assert right[place * 12 : place * 12 + 12].mean() >= 0.75, name
    assert right.mean() >= 0.9
