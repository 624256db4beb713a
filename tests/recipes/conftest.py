"""What the walk over every key runs: data, a tiny transformer, recipes made small, the files in ``walked``."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from megalabel import Dataset
from megalabel.encoders.inceptionxml import pooled_length
from megalabel.recipes import list_recipes, load_recipe
from megalabel.recipes.effects import mines_once
from megalabel.recipes.load_recipe import make_recipe

LABELS = 200  # enough for an approximate search to miss some
POOR = {"hnsw": {"M": 2, "ef_construction": 8, "ef_search": 8}, "ivf": {"nlist": 8, "nprobe": 1}}  # misses some
BAG = {"dim": 8, "words": 128, "bigrams": 64, "characters": 64}
INCEPTION = {"dim": 16, "words": 128, "channels": 3, "filters": 2, "bins": 2, "attention": 4, "max_length": 12}
INCEPTIONXML = {"token_dim": 64, "words": 128, "filters": 3, "max_length": 12}
OPTIONS = {"bag": BAG, "inception": INCEPTION, "inceptionxml": INCEPTIONXML}
SMALL_HEAD = {"dim": 6, "neighbours": 5, "mined": 2, "uniform": 2, "max_df": 0.5, "rounds": 1, "prune": 0.01}

SYLLABLES = [first + second for first in "bdfgk" for second in "aeiou"]
WORDS = [f"{first}{second}n" for first in SYLLABLES[:10] for second in SYLLABLES[10:16]]
# A script without spaces, for ``split``.
WORDS[::12] = ["逆行列の計算", "行列を読む", "表の計算", "列を逆に", "計算の列"]


@pytest.fixture(scope="session")
def walk_data():
    """Texts and labels of one to twelve words, some of them repeated, with one to five labels each.

    Every fourth point has the text of a rare label; some targets are soft.
    """
    rng = np.random.default_rng(0)
    labels = [" ".join(rng.choice(WORDS, rng.integers(1, 12))) for _ in range(LABELS)]
    chance = 1 / np.arange(2, LABELS + 2)
    points = []
    for _ in range(80):
        own = rng.choice(LABELS, rng.integers(1, 6), replace=False, p=chance / chance.sum())
        hints = [word for label in own for word in labels[label].split()[:2]]
        text = " ".join([*rng.choice(hints, 4), *rng.choice(WORDS, rng.integers(0, 9))])
        points.append((labels[-1 - len(points) // 4] if len(points) % 4 == 3 else text, own.tolist()))
    data = Dataset.from_lists(points[:64], points[64:], labels)
    targets = data.train.targets.copy()
    targets.data[::3] = rng.uniform(0.3, 0.9, len(targets.data[::3]))
    return data.replace(train=replace(data.train, targets=targets))


@pytest.fixture(scope="session")
def write_bert():
    """Return what writes the folder of a tiny transformer."""

    def write(folder):
        import torch
        from tokenizers import Tokenizer, models, pre_tokenizers, processors
        from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

        special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
        numbers = {word: number for number, word in enumerate([*special.values(), *WORDS])}
        tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=32, **special).save_pretrained(folder)
        sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
        torch.manual_seed(0)
        BertModel(BertConfig(vocab_size=len(numbers), max_position_embeddings=32, **sizes)).save_pretrained(folder)

    return write


@pytest.fixture(scope="session")
def documents():
    """The resolved documents of all recipes, made small, and of the files in ``walked``, by name."""
    files = sorted((Path(__file__).parent / "walked").glob("*.yaml"))
    own = {path.stem: make_recipe(yaml.safe_load(path.read_text())) for path in files}
    return {name: small_document(name) for name in list_recipes()} | {
        name: recipe.model_dump(mode="json", by_alias=True) for name, recipe in own.items()
    }


def small_document(name):
    """Return the document of a recipe over a small encoder, with few and small batches."""
    recipe = load_recipe(name)
    document = recipe.model_dump(mode="json", by_alias=True)
    for encoder in document["encoders"].values():
        if encoder["kind"] == "transformer":  # those are in the files
            encoder |= {"kind": "bag", "options": {}}
        lengths = ("query_length", "label_length")
        alone = len(document["encoders"]) == 1
        encoder |= {"source": None, **{key: 9 - (key == "label_length") for key in lengths if alone or encoder[key]}}
        encoder["options"] |= OPTIONS[encoder["kind"]]
    align_sizes(document["encoders"])
    once = [mines_once(staged) for _, staged in recipe.stage_recipes()]
    sections = [stage["batching"] for stage in document["stages"]]
    for section, frozen in zip(sections, once, strict=False):
        shrink_batching(section, frozen)
    if not sections or not all("batch_size" in section for section in sections):
        shrink_batching(document["batching"], any(once))
    shrink_training(document)
    for space in document["spaces"].values():
        space |= {"size": 12, "leaf": None}
    for _ in document["spaces"]:  # a space has two thirds of the groups of the one it is made of
        for space in document["spaces"].values():
            space["size"] = 12 if space["of"] is None else document["spaces"][space["of"]]["size"] * 2 // 3
    for head in document["heads"].values():
        head |= {key: value for key, value in SMALL_HEAD.items() if head.get(key) is not None}
        head |= {"size": 12, "private": 5} if head["kind"] == "shared" else {}
        head |= {"leaf": 4, "branches": 2, "beam": 2} if head["kind"] == "tree" else {}
        head |= {"links": 40, "scale": 5.0} if head.get("links") else {}
        head |= {"detach_epochs": 1} if head.get("detach_epochs") else {}
        head |= {"candidates": head["candidates"] | {"top": 3}} if head.get("candidates") else {}
        head |= {"layer": None} if head.get("layer") else {}  # a bag has none
    if document["predict"]["weights"] in ("fusion", "tree"):
        document["predict"]["candidates"] = document["training"]["evaluate_on"] = 5
    if recipe.fitted_heads or any("ngrams" in space["features"] for space in document["spaces"].values()):
        document["ngrams"] |= {"words": 512, "bigrams": 512, "characters": 512}
    return document


def align_sizes(encoders):
    """Give encoders of different kinds vectors of one size; that of an InceptionXML encoder follows from others."""
    if len({encoder["kind"] for encoder in encoders.values()}) < 2:
        return
    fixed = any(encoder["kind"] == "inceptionxml" for encoder in encoders.values())
    small = INCEPTIONXML["filters"] * pooled_length(INCEPTIONXML["token_dim"]) if fixed else INCEPTION["dim"]
    for encoder in encoders.values():
        encoder["options"] |= {"dim": small} if "dim" in encoder["options"] else {}


def shrink_batching(section, frozen):
    """Make the batches of a recipe, or of a stage, few and small; frozen vectors mine once."""
    section |= {"batch_size": 24} if "batch_size" in section else {}
    order = section.get("order", {})
    order = {"kind": order} if isinstance(order, str) else order
    negatives = section.get("negatives", {})
    mined = negatives.get("mined", 0)
    if order.get("size"):
        order["size"] = 4
    if order.get("double_at"):
        order["double_at"] = [1]
    if order.get("kind") == "clustered" or mined:
        section["refresh"] = {"start": 0} if frozen else {"start": 0, "every": 1}
    if mined:
        top = 6 if "labels" in section else 40  # many enough for an approximate search to miss some
        negatives |= {"mined": min(mined, 3), "top": top, "uniform": min(negatives.get("uniform", 0), 2)}
        search = negatives.setdefault("search", {"kind": "exact"})
        search |= POOR.get(search["kind"], {})
    elif negatives.get("bm25"):
        negatives["top"] = 6
    if section.get("cap"):
        section["cap"] = 90


def shrink_training(document):
    """Make the training of a recipe, and of its stages, two epochs long."""
    training = document["training"]
    training |= {"epochs": 2, "evaluate_every": 1}
    for section in (training, *(stage["training"] for stage in document["stages"])):
        section |= {"epochs": 2} if "epochs" in section else {}
        section |= {"warmup_steps": 1} if section.get("warmup_steps") is not None else {}
        section |= {"milestones": [1]} if section.get("milestones") else {}
        section |= {"averaging": {"start": 0, "every_steps": 2}} if section.get("averaging") else {}
        if section.get("encoder", {}).get("lr", 1.0) < 1e-5:  # a small run would change nothing
            section["encoder"]["lr"] = 0.01
    if (training["tables"] or {}).get("kind") == "sgd":  # a bag has sparse gradients, which momentum does not take
        training["tables"] |= {"momentum": 0.0, "weight_decay": 0.0}
    steps = [stage["training"].get("warmup_steps") for stage in document["stages"]]
    if training["warmup_steps"] is None and not any(steps):
        training["warmup"] = 0.2
