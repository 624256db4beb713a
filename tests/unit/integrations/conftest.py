"""A tiny BERT on disk, and models made of it without training."""

import numpy as np
import pytest
import torch

from megalabel.data.dataset import Labels
from megalabel.encoders import TransformerEncoder
from megalabel.model import LabelStats, Model
from megalabel.recipes.build import build_network
from megalabel.recipes.load_recipe import load_recipe

WORDS = ["red", "blue", "green", "shoe", "hat", "coat", "of", "a", "the", "square", "matrix", "inverse", "sort", "list"]
WORDS += ["fast", "slow", "##s", "##ing", "##ed", "!", ","]
LENGTHS = ["encoder.query_length=16", "encoder.label_length=16"]
LABELS = ["red shoe", "blue hat", "the inverse of a matrix", "sort", "coats, hats", "green"]
TEXTS = ["", "red", "sorting a list fast!", "the inverse of a square matrix " * 9, "Blue HATS", "zebra ☕", "red"]


def bert_in(folder, width=16, layers=2, seed=0, kind="Bert"):
    """Write a model folder in the manner of the Hub: config, safetensors, tokenizer."""
    import transformers as hf
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    vocabulary = {word: place for place, word in enumerate(names)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **special).save_pretrained(folder)
    if kind == "Bert":
        shape = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": 2, "intermediate_size": 24}
    else:
        shape = {"dim": width, "n_layers": layers, "n_heads": 2, "hidden_dim": 24}
    config = getattr(hf, f"{kind}Config")(
        vocab_size=len(names), max_position_embeddings=64, initializer_range=0.5, **shape
    )
    torch.manual_seed(seed)
    model = getattr(hf, f"{kind}Model")(config)
    model.save_pretrained(folder)
    return model


@pytest.fixture(scope="session")
def write_bert():
    return bert_in


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    bert_in(folder)
    return str(folder)


@pytest.fixture
def texts():
    return list(TEXTS)


@pytest.fixture
def make_model(bert):
    """Return a model of the recipe dexml with changes, its weights drawn at random; ``plain`` keeps its encoders."""

    def make_model(*changes, options=(), labels=LABELS, recipe="dexml", plain=False):
        wanted = load_recipe(recipe, [*([] if plain else [f"encoder.source={bert}", *LENGTHS]), *changes])
        settings = {"pooling": "mean", "max_length": 24} | dict(options)
        encoders = {name: TransformerEncoder(bert, **settings) for name in wanted.encoders}
        network = build_network(wanted, encoders, len(labels))
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for name, value in network.named_parameters():
                if not name.startswith("encoders."):
                    value.normal_(std=0.5, generator=generator)
        stats = LabelStats(np.arange(1, len(labels) + 1), 20, (0.55, 1.5))
        uids = [f"lbl-{place}" for place in range(len(labels))]
        return Model(wanted, network, Labels(list(labels), uids), dict.fromkeys(wanted.heads, 1.0), stats)

    return make_model
