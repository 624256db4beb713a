"""A bag of features as a table of word vectors that sentence-transformers reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from megalabel.encoders._features import piece_pattern
from megalabel.encoders.bag import BagEncoder, weighted_bag

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokenizers import Tokenizer

__all__ = ["static_embedding"]

UNKNOWN = "[UNK]"
_BLOCK = 8_192  # words whose vectors are added up at a time


def static_embedding(encoder: BagEncoder, texts: Iterable[str]) -> Any:
    """Return a ``StaticEmbedding`` that gives a text the direction of its bag, x before the residual layer.

    The features of a word (its subwords, itself, its character n-grams) do not depend on its neighbours, so that their
    weighted vectors add up to one vector per word; the table holds that of every word and mark of ``texts``. A mean
    in place of the weighted sum changes the length of x alone, which the layers after it pass on and a final
    normalisation takes away. A word that is in no text is cut into known beginnings and subwords; pairs of words
    have no place in such a table.
    """
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    normaliser = _normaliser()
    pattern = piece_pattern(encoder.split)
    words = dict.fromkeys(piece for text in texts for piece in pattern.findall(normaliser.normalize_str(text)))
    vocabulary = {UNKNOWN: 0}
    for word in words:
        vocabulary.setdefault(word, len(vocabulary))
    known = len(vocabulary)
    tokens = encoder.tokenise(list(vocabulary)[1:])
    parts = [torch.zeros(1, encoder.dim)]
    with torch.no_grad():
        for start in range(0, known - 1, _BLOCK):
            block = tokens.take(range(start, min(start + _BLOCK, known - 1)))
            parts.append(weighted_bag(encoder.table, encoder.weights, block)[0].cpu())
        if encoder.tokenizer is not None:
            rows = []
            for subword, row in sorted(
                encoder.tokenizer.get_vocab(with_added_tokens=False).items(), key=lambda x: x[1]
            ):
                if subword not in vocabulary:
                    vocabulary[subword] = len(vocabulary)
                    rows.append(row)
            chosen = torch.tensor(rows, dtype=torch.int64)
            parts.append((encoder.table[chosen] * encoder.weights[chosen].unsqueeze(1)).cpu())
    return StaticEmbedding(_tokenizer(vocabulary, encoder.split), embedding_weights=torch.cat(parts))


def _normaliser() -> Any:
    from tokenizers import normalizers

    return normalizers.Lowercase()


def _tokenizer(vocabulary: dict[str, int], split: str) -> Tokenizer:
    """Return a tokenizer that cuts texts where a bag does; a word that is not known is cut into its longest parts."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=UNKNOWN, max_input_chars_per_word=100))
    tokenizer.normalizer = _normaliser()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(piece_pattern(split).pattern), "removed", invert=True)
    return tokenizer
