"""A trained model: predict, encode, evaluate, save and load."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import torch

from megalabel._version import __version__
from megalabel.data.dataset import Labels, Split
from megalabel.errors import DataError, SettingError, nearest
from megalabel.files import json_rows, writing, writing_folder
from megalabel.fusion import Fusion, union
from megalabel.heads.answers import Answers, DenseAnswers
from megalabel.index import ExactIndex
from megalabel.metrics.evaluate import evaluate
from megalabel.metrics.propensity import inverse_propensity
from megalabel.progress import progress
from megalabel.training.find_device import find_device
from megalabel.training.fitted import Fitted
from megalabel.training.vectors import LabelSide, fold_labels, fold_queries, label_side, query_side
from megalabel.types import TopK

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix
    from torch import Tensor

    from megalabel.data.dataset import Dataset
    from megalabel.metrics.report import Report
    from megalabel.training.network import Network
    from megalabel.types import Tokens

__all__ = ["Model", "Prediction"]

FORMAT = 1  # of a model folder
ROWS = 1024  # queries fused at once


@dataclass(frozen=True, slots=True)
class Prediction:
    """One label for one text."""

    id: int
    uid: str
    text: str
    score: float


@dataclass(frozen=True)
class Seen:
    """How often each label was seen in train + val, and what makes propensities of that."""

    counts: NDArray[np.int64]  # [L]
    points: int
    propensity: tuple[float, float]  # A, B

    @classmethod
    def of(cls, data: Dataset) -> Seen:
        """Take over what a data set knows."""
        return cls(data.counts, data.points, data.propensity)


class Model:
    """Encoder, heads and labels, ready to use.

    Args:
        network: the trained network.
        labels: texts and uids of the labels, in the order of training.
        weights: how much each head counts when scores are added.
        seen: label frequencies of the training data.
        fitted: heads that train no encoder.
        fusion: puts all heads together; without it, scores of the network's heads are added.

    >>> from megalabel import load, train
    >>> data = load("synthetic:points=400,labels=30")
    >>> model = train("unidec-cpu", data, changes=["training.epochs=1", "batching.batch_size=64"])
    >>> len(model.predict(["some text"], k=3)[0])
    3
    >>> model.evaluate(data).metrics == model.evaluate(data.test).metrics
    True
    """

    def __init__(
        self,
        network: Network,
        labels: Labels,
        weights: Mapping[str, float],
        seen: Seen,
        fitted: Fitted | None = None,
        fusion: Fusion | None = None,
    ) -> None:
        self.network = network
        self.labels = labels
        self.weights = dict(weights)
        self.seen = seen
        self.fitted = Fitted(seen.counts) if fitted is None else fitted
        self.fusion = fusion
        self.tail = network.recipe.predict.tail  # a fused model ranks by p x (inverse propensity)^tail
        self._side: dict[str, LabelSide] | None = None
        self._indexes: dict[str, tuple[ExactIndex, bool]] = {}

    def predict(self, texts: Sequence[str], k: int = 5, *, heads: str = "all") -> list[list[Prediction]]:
        """Return the k best labels of each text, best first; all of them where there are fewer than k."""
        found = self.search(texts, min(k, len(self.labels)), heads=heads)
        return [
            [
                Prediction(int(label), self.labels.uids[label], self.labels.texts[label], float(score))
                for label, score in zip(ids.tolist(), scores.tolist(), strict=True)
                if label >= 0
            ]
            for ids, scores in zip(found.ids, found.scores, strict=True)
        ]

    def search(self, texts: Sequence[str], k: int, *, heads: str = "all", exclude: csr_matrix | None = None) -> TopK:
        """Return ids and scores [n, k] for texts; ``exclude`` [n, L] leaves pairs out before the cut."""
        if heads == "all" and self.fusion is not None:
            return self._fused(texts, k, exclude)
        if heads in self.fitted.heads:
            return self.answers(texts)[heads].best(k, exclude)
        weights = self.chosen(heads)
        self.network.eval()
        vectors, bias = fold_labels(self.label_side(), weights)
        queries = fold_queries(query_side(self.network, self._tokenise(texts)), weights, bias=bias)
        return ExactIndex(vectors).search(queries, k, exclude=exclude)

    @property
    def heads(self) -> list[str]:
        """Names of all heads, those of the network first."""
        return [*self.weights, *self.fitted.heads]

    def answers(self, texts: Sequence[str]) -> dict[str, Answers]:
        """Return what each head says of the texts by itself."""
        self.network.eval()
        queries = query_side(self.network, self._tokenise(texts))
        found: dict[str, Answers] = {}
        for name, vectors in queries.items():
            index, bias = self._index(name)
            found[name] = DenseAnswers(index, fold_queries({name: vectors}, {name: 1.0}, bias=bias))
        return found | self.fitted.answers(texts, queries)

    def candidates(
        self, texts: Sequence[str], exclude: csr_matrix | None = None
    ) -> tuple[NDArray[np.int64], dict[str, NDArray[np.float32]]]:
        """Return the labels [n, C] that any head proposes, -1 at the end of a row, and their scores by every head."""
        k = min(self.network.recipe.predict.candidates, len(self.labels))
        answers = self.answers(texts)
        ids = union(*(answer.best(k, exclude) for answer in answers.values()))
        return ids, {name: answer.of(ids) for name, answer in answers.items()}

    def _fused(self, texts: Sequence[str], k: int, exclude: csr_matrix | None) -> TopK:
        """Rank the candidates of all heads by the fusion, some queries at a time."""
        assert self.fusion is not None
        rare = inverse_propensity(self.seen.counts, self.seen.points, *self.seen.propensity) if self.tail else None
        parts = []
        with progress("searching", total=len(texts), unit="queries") as step:
            for start in range(0, len(texts), ROWS):
                some = slice(start, min(start + ROWS, len(texts)))
                out = None if exclude is None else exclude[some]
                ids, scores = self.candidates(texts[some], out)
                parts.append(
                    self.fusion.rank(scores, ids, self.fitted.counts, k, inverse_propensity=rare, tail=self.tail)
                )
                step(some.stop - start)
        return TopK(np.concatenate([part.ids for part in parts]), np.concatenate([part.scores for part in parts]))

    def _index(self, name: str) -> tuple[ExactIndex, bool]:
        """Return the index of one head, and whether its vectors end in a bias; made once."""
        if name not in self._indexes:
            vectors, bias = fold_labels(self.label_side(), {name: 1.0})
            self._indexes[name] = ExactIndex(vectors), bias
        return self._indexes[name]

    def encode(self, texts: Sequence[str], *, heads: str = "all") -> NDArray[np.float32]:
        """Return the query vectors [n, d] that are searched with."""
        weights = self.chosen(heads)
        self.network.eval()
        _, bias = fold_labels(self.label_side(), weights)
        queries = query_side(self.network, self._tokenise(texts))
        found: NDArray[np.float32] = fold_queries(queries, weights, bias=bias).cpu().numpy()
        return found

    def evaluate(self, data: Dataset | Split, split: str = "test", *, heads: str = "all") -> Report:
        """Measure the model on a data set that has the same labels, or on one split such as ``data.test``.

        A split alone is measured with the label frequencies of the training data, a data set
        with its own.
        """
        if isinstance(data, Split):
            if data.targets.shape[1] != len(self.labels):
                raise DataError(
                    f"this split is over {data.targets.shape[1]:,} labels, the model knows {len(self.labels):,}",
                    remedy="evaluate on the data the model was trained for",
                )
            part, seen = data, self.seen
        else:
            self._check_labels(data)
            part, seen = data.split(split), Seen.of(data)
        found = self.search(part.texts, 100, heads=heads, exclude=part.excluded())
        A, B = seen.propensity
        return evaluate(found.ids, part.targets, counts=seen.counts, points=seen.points, A=A, B=B, filter=part.filter)

    def _check_labels(self, data: Dataset) -> None:
        """Raise a DataError for a data set whose labels are not those of the model."""
        if list(data.labels.uids) != list(self.labels.uids):
            raise DataError(
                f"{data.name} has {len(data.labels):,} labels, the model was trained on {len(self.labels):,} others",
                remedy="evaluate on the data the model was trained for",
            )
        same = sum(here == there for here, there in zip(data.labels.texts, self.labels.texts, strict=True))
        if 2 * same < len(self.labels):
            raise DataError(
                f"only {same:,} of {len(self.labels):,} labels of {data.name} have the text the model knows them by",
                remedy="evaluate on the data the model was trained for",
            )

    def chosen(self, heads: str) -> dict[str, float]:
        """Return the weights of the heads asked for: ``all``, or one of them by name."""
        if heads == "all":
            return {name: weight for name, weight in self.weights.items() if weight > 0}
        if heads in self.fitted.heads:
            raise SettingError(f"the head {heads!r} has no vectors", remedy=nearest(heads, ["all", *self.weights]))
        if heads not in self.weights:
            raise SettingError(f"this model has no head {heads!r}", remedy=nearest(heads, ["all", *self.heads]))
        return {heads: 1.0}

    def label_side(self) -> dict[str, LabelSide]:
        """Return the label vectors of every head; computed once."""
        if self._side is None:
            self.network.eval()
            texts = self._tokenise(self.labels.texts) if self.network.needs_text else None
            self._side = label_side(self.network, texts)
        return self._side

    def _tokenise(self, texts: Sequence[str]) -> Tokens:
        if isinstance(texts, str):
            raise SettingError("give a list of texts, not one text", remedy='for example model.predict(["some text"])')
        tokens: Tokens = self.network.encoder.tokenise(texts)  # type: ignore[operator]
        return tokens

    def save(self, folder: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the model: recipe, encoder, weights (safetensors) and labels; whole or not at all."""
        from safetensors.torch import save as pack

        from megalabel.recipes.load_recipe import dump_recipe

        with writing_folder(folder, overwrite=overwrite) as place:
            self.network.encoder.save(place / "encoder")  # type: ignore[operator]
            with writing(place / "recipe.yaml") as out:
                out.write(dump_recipe(self.network.recipe).encode())
            weights = {name: value.detach().cpu().contiguous() for name, value in self._head_tensors().items()}
            with writing(place / "heads.safetensors") as out:
                out.write(pack(weights))
            self.fitted.save(place / "fitted")
            with writing(place / "labels.jsonl.gz") as out:
                rows = zip(self.labels.uids, self.labels.texts, self.seen.counts.tolist(), strict=True)
                for uid, text, points in rows:
                    row = {"uid": uid, "text": text, "points": points}
                    out.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
            card = {
                "format": FORMAT,
                "megalabel": __version__,
                "labels": len(self.labels),
                "points": self.seen.points,
                "propensity": self.seen.propensity,
                "weights": self.weights,
                "fusion": None if self.fusion is None else self.fusion.to_dict(),
                "sha256": {path.relative_to(place).as_posix(): _sha256(path) for path in _files(place)},
            }
            with writing(place / "model.json") as out:
                out.write(json.dumps({**card, "seal": _seal(card)}, indent=2).encode() + b"\n")

    @classmethod
    def load(cls, folder: str | PathLike[str], *, tail: float | None = None, device: str = "auto") -> Model:
        """Read a model that :meth:`save` wrote; a run folder works as well.

        ``tail`` is in place of the recipe's: above 0, a fused model brings rare labels forward.
        ``device`` is where the network computes, whatever it was trained on: ``cpu``, ``cuda``,
        ``cuda:1``, ``mps``; ``auto`` is ``cuda`` if there is one, else ``cpu``.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        from megalabel.encoders import load_encoder
        from megalabel.recipes.load_recipe import load_recipe
        from megalabel.training.network import Network

        chosen = find_device(device)
        place = Path(folder)
        place = place / "model" if (place / "model" / "model.json").is_file() else place
        if not (place / "model.json").is_file():
            raise DataError(
                "there is no model here", path=folder, remedy="give the folder of a finished run or a saved model"
            )
        card = _read_card(place / "model.json")
        _check_files(place, card["sha256"])
        labels, counts = _read_labels(place / "labels.jsonl.gz")
        recipe = load_recipe(place / "recipe.yaml")
        network = Network(recipe, load_encoder(place / "encoder"), len(labels))
        seen = Seen(counts, card["points"], tuple(card["propensity"]))
        fusion = None if card["fusion"] is None else Fusion.from_dict(card["fusion"])
        model = cls(network, labels, card["weights"], seen, Fitted.load(place / "fitted", recipe), fusion)
        try:
            tensors = load_file(place / "heads.safetensors")
        except (OSError, SafetensorError) as error:
            raise DataError(f"the weights cannot be read ({error})", path=place / "heads.safetensors") from error
        wanted = model._head_tensors()
        if {name: value.shape for name, value in tensors.items()} != {
            name: value.shape for name, value in wanted.items()
        }:
            raise DataError("the weights do not fit the recipe", path=place / "heads.safetensors")
        with torch.no_grad():
            for name, value in wanted.items():
                value.copy_(tensors[name])
        network.to(chosen).eval()
        if tail is not None:
            if fusion is None:
                raise SettingError(
                    "tail is for fused models, this one adds scores", path=folder, remedy="train auto, or leave it out"
                )
            if not 0 <= tail <= 1:
                raise SettingError(f"tail must lie in 0 to 1, not {tail}")
            model.tail = tail
        return model

    def _head_tensors(self) -> dict[str, Tensor]:
        """Return every parameter outside the encoder once, by name."""
        return {name: value for name, value in self.network.named_parameters() if not name.startswith("encoder.")}


def _read_card(path: Path) -> dict[str, Any]:
    try:
        card = json.loads(path.read_bytes())
        seal = card.pop("seal")
        if card["format"] == FORMAT and seal == _seal(card):
            return dict(card)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"this model card cannot be read ({error})", path=path) from error
    if card["format"] == FORMAT:
        raise DataError("this file is not as it was saved", path=path, remedy="copy the model again")
    raise DataError(f"this model has format {card['format']}, not {FORMAT}", path=path, remedy="update megalabel")


def _seal(card: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(card, sort_keys=True).encode()).hexdigest()


def _files(folder: Path) -> list[Path]:
    """Return all files under a folder, in order."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _check_files(folder: Path, hashes: Mapping[str, str]) -> None:
    """Raise a DataError for the first file that is not as it was saved."""
    for name, expected in hashes.items():
        try:
            found = _sha256(folder / name)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise DataError(f"this file cannot be read, {reason}", path=folder / name) from error
        if found != expected:
            raise DataError("this file is not as it was saved", path=folder / name, remedy="copy the model again")


def _read_labels(path: Path) -> tuple[Labels, NDArray[np.int64]]:
    """Return the labels and how many training points each has."""
    rows = [row for _, row in json_rows(path)]
    try:
        labels = Labels([str(row["text"]) for row in rows], [str(row["uid"]) for row in rows])
        return labels, np.array([row["points"] for row in rows], dtype=np.int64)
    except KeyError as error:
        raise DataError(f"a label without {error}", path=path) from error
