"""Settings of the encoders: typed, refused when they have no effect, and equal to the arguments of the classes."""

import inspect
import re
import subprocess
import sys

import pytest
import torch
from pydantic import TypeAdapter

from megalabel.encoders import BagEncoder
from megalabel.encoders.build import KINDS
from megalabel.encoders.settings import ENCODERS, BagOptions, EncoderSettings, NgramSettings, make_encoder
from megalabel.errors import SettingError
from megalabel.recipes import load_recipe


def read(document):
    return TypeAdapter(EncoderSettings).validate_python(document)


@pytest.mark.parametrize("kind", ENCODERS)
def test_options_are_the_arguments_of_the_class(kind):
    arguments = {name: part.default for name, part in inspect.signature(KINDS[kind]).parameters.items()}
    assert arguments.pop("source") in ("auto", "minilm")
    options = ENCODERS[kind]().options
    sizes = options.sizes() if isinstance(options, BagOptions) else {}  # of the data, or those of the class
    assert dict(options) | sizes == arguments | {"seed": None}


@pytest.mark.parametrize(
    ("encoder", "words"),
    [
        ("{options: {dimm: 3}}", ["'encoder.options.dimm'", "did you mean 'dim'?"]),
        ("{options: {dim: big}}", ["encoder.options.dim is 'big'", "valid integer"]),
        ("{options: {dim: 2.5}}", ["encoder.options.dim is 2.5", "valid integer"]),
        ("{options: {dim: true}}", ["encoder.options.dim is True", "valid integer"]),
        ("{options: {dim: 0}}", ["encoder.options.dim is 0", "greater than 0"]),
        ("{options: {residual: 3}}", ["encoder.options.residual is 3", "boolean"]),
        ("{options: {words: -1}}", ["encoder.options.words is -1", "power of two"]),
        ("{options: {words: 500}}", ["encoder.options.words is 500", "512"]),
        ("{options: {thin: 1}}", ["encoder.options.thin is 1", "less than 1"]),
        ("{options: {ngrams: [0]}}", ["encoder.options.ngrams.0 is 0"]),
        ("{options: {ngrams: []}}", ["encoder.options.ngrams"]),
        ("{kind: transformer, options: {dim: 3}}", ["'encoder.options.dim'"]),
        ("{kind: transformer, options: {pooling: max}}", ["encoder.options.pooling is 'max'"]),
        ("{kind: inception, options: {dim: 8}}", ["encoder.options.dim is 8", "16"]),
        ("{kind: inception, source: null, options: {words: 0}}", ["encoder.options.words is 0"]),
        ("{kind: bog}", ["kind is 'bog'", "did you mean 'bag'?"]),
        ("{sorce: minilm}", ["did you mean 'source'?"]),
        ("{source: null, options: {words: 0, bigrams: 0, characters: 0}}", ["no features"]),
    ],
)
def test_invalid_settings_give_one_line(encoder, words):
    with pytest.raises(SettingError) as error:
        load_recipe("unidec-cpu", [f"encoder={encoder}"])
    assert all(word in str(error.value) for word in words), error.value
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"options": {"characters": 0, "ngrams": [3]}}, "ngrams has no effect: characters is 0"),
        ({"options": {"residual": False, "dropout": 0.1}}, "dropout has no effect: residual is false"),
        ({"query_length": 3, "label_length": 3, "options": {"max_length": 9}}, "max_length has no effect"),
        ({"kind": "transformer", "query_length": 3, "label_length": 4, "options": {"max_length": 9}}, "max_length has"),
        ({"kind": "transformer", "options": {"seed": 3}}, "seed has no effect: only a projection"),
        ({"kind": "transformer", "source": None}, "source"),
        ({"kind": "transformer", "source": "auto"}, "no source auto"),
        ({"kind": "inception", "options": {"words": 64}}, "words has no effect: minilm"),
        ({"kind": "inception", "source": "models/mine", "options": {"words": 64}}, "words has no effect: models/mine"),
        ({"kind": "inception", "query_length": 33}, "query_length is 33, but options.max_length cuts at 32"),
        ({"kind": "inception", "label_length": 9, "options": {"max_length": 8}}, "label_length is 9"),
    ],
)
def test_settings_without_effect_are_refused(document, words):
    with pytest.raises(ValueError, match=words):
        read(document)


def test_weights_of_one_kind_of_feature_are_refused():
    assert NgramSettings(characters=0, weights=(1, 2, 0)).weights == (1, 2, 0)
    with pytest.raises(ValueError, match="weights has no effect: there is one kind of feature"):
        NgramSettings(characters=0, bigrams=0, weights=(2, 0, 0))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dim": 9}, "options.dim is 9, but it was trained with 8"),
        ({"dim": 8, "ngrams": [3]}, r"options.ngrams is \[3\], but it was trained with \[3, 4, 5\]"),
        ({"dim": 8, "seed": 5}, "options.seed is 5, but it was trained with 3"),
        ({"dim": 8}, None),
    ],
)
def test_a_trained_encoder_is_compared_with_the_settings(options, words):
    trained = read({"source": None, "options": {"dim": 8}}).build(seed=3)
    difference = read({"source": None, "options": options}).difference(trained)
    assert difference is None if words is None else re.fullmatch(words, difference)
    assert read({"kind": "inception"}).difference(trained) == "kind is 'inception', but it was trained as 'bag'"


def test_settings_with_an_effect_are_accepted():
    assert read({}) == read("bag")
    assert read({"options": {"characters": 64, "ngrams": [3]}}).options.ngrams == (3,)
    assert read({"query_length": 3, "options": {"max_length": 9}}).options.max_length == 9
    assert read({"kind": "transformer", "options": {"projection": 8, "seed": 3}}).options.seed == 3
    assert read({"kind": "inception", "source": None, "options": {"words": 64}}).options.words == 64


@pytest.mark.parametrize("kind", ENCODERS)
def test_settings_survive_a_round_trip(kind):
    settings = read(kind)
    assert TypeAdapter(EncoderSettings).validate_json(settings.model_dump_json()) == settings


def test_a_fresh_encoder_has_the_seed_and_the_idf_of_the_texts():
    settings = read({"source": None, "options": {"dim": 8, "words": 64, "bigrams": 0, "characters": 0}})
    train, labels = ["red shoe", "blue hat"], ["hat"]
    encoder = make_encoder(settings, 5, train, labels)
    expected = BagEncoder(None, dim=8, words=64, bigrams=0, characters=0, seed=5)
    expected.fit(expected.tokenise(train), expected.tokenise(labels))
    assert encoder.config() == expected.config()
    assert all(torch.equal(a, b) for a, b in zip(encoder.parameters(), expected.parameters(), strict=True))
    assert read(settings.model_dump() | {"options": {"dim": 8, "seed": 2}}).build(5).seed == 2


def test_a_transformer_reads_no_more_than_its_lengths():
    assert read({"kind": "transformer", "query_length": 12, "label_length": 9}).build(0).max_length == 12
    assert read({"kind": "transformer", "query_length": 12}).build(0).max_length == 128


def test_reading_settings_loads_no_torch():
    code = "import sys, megalabel.encoders.settings; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
