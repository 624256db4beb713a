"""Hashed tables of a bag: full size for real data, fewer rows for little data."""

import pytest

from megalabel.encoders.settings import BagOptions, BagSettings, make_encoder


@pytest.mark.parametrize(
    ("texts", "rows"), [(1, 1024), (128, 1024), (129, 2048), (340, 4096), (4096, 32768), (10**7, 32768)]
)
def test_rows_by_texts(texts, rows):
    assert BagOptions().sizes(texts) == {"words": rows, "bigrams": rows, "characters": rows}
    assert BagOptions(words=64, characters=0).sizes(texts) == {"words": 64, "bigrams": rows, "characters": 0}


def test_the_encoder_has_them():
    settings = BagSettings(source=None, options=BagOptions(dim=4, bigrams=64))
    encoder = make_encoder(settings, 0, ["red shoe", "blue hat"], ["shoe"])
    assert (encoder.words, encoder.bigrams, encoder.characters) == (1024, 64, 1024)
    assert len(encoder.table) == 1024 + 64 + 1024
    assert settings.difference(encoder) is None
    assert settings.build(0).words == 32768
