"""Sizes are those of the real encoders, and the constants of a plan those of the code it speaks of."""

import inspect
import json

import pytest

from megalabel.data.hold_out import hold_out
from megalabel.encoders import BagEncoder, InceptionEncoder, SparseEncoder, TransformerEncoder
from megalabel.encoders import _base as encoders_base
from megalabel.encoders.settings import ENCODERS, TransformerSettings
from megalabel.errors import SettingError
from megalabel.heads import dense
from megalabel.index import ExactIndex
from megalabel.losses.streaming import blocks as _blocks
from megalabel.network import fit
from megalabel.plan import _step, case, encoder_kinds, fitted, moments
from megalabel.plan.encoder_kinds import BagSize, InceptionSize, TransformerSize
from megalabel.plan.encoder_size import encoder_size, find_tokenizer
from megalabel.plan.sizes import TextSize
from megalabel.training.optim import row_wise


def weights(encoder):
    sparse = getattr(encoder, "sparse_parameters", list)()
    table = sum(part.numel() for part in sparse)
    dense = sum(part.numel() for part in encoder.parameters() if part.requires_grad) - table
    return dense, table


@pytest.mark.parametrize(
    ("kind", "source", "options"),
    [
        ("bag", None, {"dim": 12, "words": 64, "bigrams": 32, "characters": 128}),
        ("bag", None, {"dim": 12, "words": 64, "bigrams": 0, "characters": 0, "residual": False}),
        ("bag", "minilm", {"dim": 8}),
        ("inception", None, {"dim": 32, "words": 64, "channels": 4, "filters": 3, "bins": 2, "attention": 5}),
        ("inception", "minilm", {"dim": 16, "max_length": 9}),
        ("transformer", "minilm", {}),
        ("transformer", "minilm", {"projection": 7, "layers": 2}),
    ],
)
def test_weights_are_those_of_the_encoder(kind, source, options):
    real = {"bag": BagEncoder, "inception": InceptionEncoder, "transformer": TransformerEncoder}[kind](
        source, **options
    )
    size = encoder_size(ENCODERS[kind].model_validate({"source": source, "options": options}))
    rows, width = size.table
    assert (size.dense, rows * width) == weights(real)
    assert size.dim == real.dim


def test_published_sizes_of_known_models():
    assert encoder_size(TransformerSettings(source="distilbert-base-uncased")).dense == 66_362_880
    base = encoder_size(TransformerSettings(source="bert-base-uncased"))
    assert base.dense == 109_482_240 - 768 * 768 - 768  # without its pooler
    shape = encoder_size(TransformerSettings(source="sentence-transformers/all-MiniLM-L6-v2"))
    assert shape.dense == encoder_size(TransformerSettings(source="minilm")).dense


def test_a_folder_tells_its_size(tmp_path):
    (tmp_path / "config.json").write_text(
        json.dumps(
            {"dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 16, "vocab_size": 50, "max_position_embeddings": 9}
        )
    )
    assert encoder_size(TransformerSettings(source=str(tmp_path))) == TransformerSize(2, 8, 2, 16, 50, 9, 0)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(SettingError, match=r"config\.json"):
        encoder_size(TransformerSettings(source=str(tmp_path)))


def test_an_unknown_encoder_is_told():
    with pytest.raises(SettingError, match=r"'org/unheard-of'.*folder"):
        encoder_size(TransformerSettings(source="org/unheard-of"))


def test_tokenizer_of_an_encoder(tmp_path):
    assert len(find_tokenizer(TransformerSettings(source="minilm")).encode("red shoe").ids) >= 2
    assert find_tokenizer(TransformerSettings(source="org/unheard-of")) is None
    (tmp_path / "tokenizer.json").write_text("nonsense")
    assert find_tokenizer(TransformerSettings(source=str(tmp_path))) is None


def defaults(thing):
    return {name: part.default for name, part in inspect.signature(thing).parameters.items()}


def test_constants_are_those_of_the_code():
    bag, inception, transformer = defaults(BagEncoder), defaults(InceptionEncoder), defaults(TransformerEncoder)
    for name in ("dim", "words", "bigrams", "characters", "ngrams", "residual", "thin"):
        assert getattr(BagSize(), name) == bag[name]
    for name in ("dim", "channels", "filters", "bins", "attention"):
        assert getattr(InceptionSize(), name) == inception[name]
    assert InceptionSize().longest == inception["max_length"]
    assert TransformerSize(1, 1, 1, 1, 1, 1, 1).longest == transformer["max_length"]
    assert transformer["batch_tokens"] == encoder_kinds.GROUP
    assert (_step.CACHE, _step.BUDGET) == (_blocks.CACHE, _blocks.BUDGET)
    assert _step.UPDATED == row_wise.BLOCK
    assert _step._MANY == dense._MANY
    assert moments.ENCODED == encoders_base._GROUP
    index = defaults(ExactIndex)
    assert (index["batch_size"], index["block"]) == (moments.QUERIES, moments.BLOCK)
    assert defaults(hold_out)["most"] == case.HELD_OUT
    sparse = defaults(SparseEncoder)
    assert {name: sparse[name] for name in fitted.COLUMNS} == fitted.COLUMNS
    assert fitted.SHORT == fit.SHORT


def test_blocks_are_those_of_streamed():
    for rows in (1, 64, 1024, 8192, 100_000):
        plan = _blocks.Plan.make(rows, 4, None, None)
        width = max(_step.NARROWEST, min(_step.CACHE, _step.BUDGET // 4) // (4 * rows) // 64 * 64)
        assert plan.width == width


def test_features_and_growth_of_real_texts():
    texts = ["inverse of a square matrix", "sum of two matrices", "the inverse hyperbolic sine"] * 100
    encoder = BagEncoder(None, dim=4)
    tokens = encoder.tokenise(texts)
    size, bag = TextSize.of(texts), BagSize(dim=4, subwords=0)
    assert bag.items(size, None) == pytest.approx(len(tokens.ids) / len(texts), rel=0.1)
    assert bag.touched(size, len(texts)) == pytest.approx(len(set(tokens.ids.tolist())), rel=0.25)
    assert bag.items(size, 5) == 5
