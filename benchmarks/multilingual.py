"""Scripts without spaces: labels found with words cut by script, and with words cut at spaces only.

Run: python benchmarks/multilingual.py
A made-up set: in each of seven languages (emoji count as one), a text is eight common words with the words of one
or two labels among them, written as the language is: without spaces in Chinese, Japanese, Thai and emoji. A label is
a pair of words; a third of the labels has no train text. Each recipe is trained with `split: spaces` and with
`split: scripts`.
"""

from __future__ import annotations

import argparse
import time
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from _results import RESULTS, write_result
from megalabel import train
from megalabel.data.dataset import Dataset, Labels, Split

LANGUAGES = {  # what stands between words, the words of labels, common words
    "Chinese": ("", "机器 学习 音乐 历史 足球 天气 医院 火车 咖啡 电影 银行 花园 海洋 山脉 语言 数学",
                "我们 今天 一个 非常 因为 可以 没有 他们 大家 觉得 需要 现在 已经 这里 关于 的 了 在 是"),
    "Japanese": ("", "りんご 機械 音楽 歴史 サッカー 天気 病院 電車 コーヒー 映画 銀行 庭園 うみ 山脈 ことば 数学",
                 "わたし きょう とても だから できる ない みんな 思う 必要 いま すでに ここ について は が の に"),
    "Thai": ("", "เครื่องจักร ดนตรี ประวัติ ฟุตบอล อากาศ โรงพยาบาล รถไฟ กาแฟ ภาพยนตร์ ธนาคาร "
                 "สวน ทะเล ภูเขา ภาษา ผลไม้ ตลาด",
             "เรา วันนี้ มาก เพราะ สามารถ ไม่มี พวกเขา ทุกคน คิดว่า ต้องการ ตอนนี้ แล้ว ที่นี่ เกี่ยวกับ ของ ใน เป็น"),
    "Arabic": (" ", "آلة موسيقى تاريخ كرة طقس مستشفى قطار قهوة فيلم بنك حديقة بحر جبل لغة فاكهة سوق",
               "نحن اليوم جدا لأن يمكن ليس هم الجميع يعتقد يحتاج الآن قد هنا حول من في هو"),
    "Russian": (" ", "машина музыка история футбол погода больница поезд кофе фильм банк "
                     "сад море горы язык фрукт рынок",
                "мы сегодня очень потому можно нет они все думают нужно сейчас уже здесь при из это"),
    "combining marks": (" ", unicodedata.normalize("NFD", "café piñata über garçon fête ångström naïve résumé "
                                                          "mañana façade brücke smör crème rôle jäger pâte"),
                        "we today very because can not they all think need now already here about of in is"),
    "emoji": ("", "🍎 🎵 📜 ⚽ 🌧️ 🏥 🚆 ☕ 🎬 🏦 🌷 🌊 ⛰️ 👩\u200d💻 🍉 🇯🇵",
              "😀 😂 🙂 😍 🤔 😎 👍🏽 👏 🙏 🔥 ✨ 💯 🎉 😢 😡 🥳"),
}  # fmt: skip
CHANGES = {
    "unidec-cpu": ["batching.batch_size=64", "training.epochs=12"],
    "auto": ["batching.batch_size=64", "training.epochs=12"],
}


def words_of(name: str) -> tuple[str, list[str], list[str]]:
    """Return what stands between words, the words of labels, and the common ones."""
    between, own, common = LANGUAGES[name]
    return between, own.split(), common.split()


def make(points: int = 60, pairs: int = 24, seed: int = 0) -> tuple[Dataset, list[str], np.ndarray]:
    """Return a set with as many points in each language, the language of every test point, and the new labels.

    A mask [L] says which labels have no train text.
    """
    generator = np.random.default_rng(seed)
    labels: list[str] = []
    unseen: list[bool] = []
    rows: dict[str, list[tuple[str, list[int], str]]] = {"train": [], "test": []}
    for language in LANGUAGES:
        between, own, common = words_of(language)
        chosen = set()
        while len(chosen) < pairs:
            first, second = generator.choice(len(own), size=2, replace=False).tolist()
            chosen.add((first, second))
        ids = range(len(labels), len(labels) + pairs)
        labels += [between.join((own[first], own[second])) for first, second in sorted(chosen)]
        unseen += [place % 3 == 2 for place in range(pairs)]
        for part in rows:
            allowed = [label for label in ids if part == "test" or not unseen[label]]
            for _ in range(points):
                relevant = sorted(
                    generator.choice(allowed, size=1 + int(generator.integers(2)), replace=False).tolist()
                )
                parts = generator.choice(common, size=8).tolist()
                for label in relevant:
                    parts.insert(int(generator.integers(len(parts) + 1)), labels[label])
                rows[part].append((between.join(parts), relevant, language))

    def split(part: str) -> Split:
        indptr = np.cumsum([0, *(len(relevant) for _, relevant, _ in rows[part])])
        indices = np.concatenate([relevant for _, relevant, _ in rows[part]])
        ones = np.ones(len(indices), dtype=np.float32)
        targets = sparse.csr_matrix((ones, indices, indptr), shape=(len(rows[part]), len(labels)))
        return Split([text for text, _, _ in rows[part]], targets, [f"{part}-{row}" for row in range(len(rows[part]))])

    data = Dataset(
        split("train"), split("test"), Labels(labels, [f"lbl-{i}" for i in range(len(labels))]), name="multilingual"
    )
    return data, [language for _, _, language in rows["test"]], np.array(unseen)


def measure(recipe: str, source: str | None, split: str, seed: int) -> dict[str, Any]:
    """Train one row and return P@1 of each language, and R@5 of labels without train texts."""
    data, languages, unseen = make(seed=seed)
    changes = [*CHANGES[recipe], f"encoder.options.split={split}", f"encoder.source={source or 'null'}"]
    parts = ("ngrams", "heads.label_words", "heads.query_words") if recipe == "auto" else ()
    changes += [f"{part}.split={split}" for part in parts]
    start = time.perf_counter()
    model = train(recipe, data, changes=changes, seed=seed)
    best = model.search(data.test.texts, 5).ids
    relevant = data.test.targets.toarray() > 0
    hits = relevant[np.arange(len(best)), best[:, 0]]
    found = np.zeros_like(relevant)
    found[np.arange(len(best))[:, None], best] = True
    new = relevant[:, unseen]
    return {
        "recipe": recipe, "source": source, "split": split, "seed": seed, "seconds": time.perf_counter() - start,
        "P@1": {name: 100 * float(hits[[at == name for at in languages]].mean()) for name in LANGUAGES},
        "unseen R@5": 100 * float((found[:, unseen] & new).sum() / new.sum()),
    }  # fmt: skip


def main() -> None:
    """Measure every row and write results/multilingual.json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, nargs="+", default=[0])
    parser.add_argument("--recipe", nargs="+", default=list(CHANGES), choices=list(CHANGES))
    parser.add_argument("--out", type=Path, default=RESULTS / "multilingual.json")
    options = parser.parse_args()
    rows = []
    for recipe in options.recipe:
        for source in (None, "minilm") if recipe == "unidec-cpu" else ("minilm",):
            for split in ("spaces", "scripts"):
                for seed in options.seed:
                    rows.append(measure(recipe, source, split, seed))
                    print(rows[-1], flush=True)
    write_result("multilingual", {"rows": rows}, "torch", "tokenizers", out=options.out)


if __name__ == "__main__":
    main()
