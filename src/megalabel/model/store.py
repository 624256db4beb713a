"""A model as a folder: recipe, encoders, weights, labels, and a card with a hash of every file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson
import torch

from megalabel._version import __version__
from megalabel.data.dataset import Labels
from megalabel.device import find_device
from megalabel.encoders import load_encoder
from megalabel.errors import DataError
from megalabel.files import json_rows, writing, writing_folder
from megalabel.fusion import Fusion
from megalabel.model.index import INDEX, load_indexes
from megalabel.model.stats import LabelStats
from megalabel.model.train_rows import TrainRows
from megalabel.network.fit import Fitted
from megalabel.network.spaces import load_spaces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from megalabel.model.index import ModelIndex
    from megalabel.model.model import Model
    from megalabel.network.network import Network
    from megalabel.recipes.schema import Recipe

__all__ = [
    "carry_heads",
    "find_model",
    "load_encoders",
    "load_head_tensors",
    "load_parts",
    "read_labels",
    "save_encoders",
    "save_head_tensors",
    "save_model",
]

FORMAT = 4  # of a model folder
READABLE = (4,)  # earlier formats have recipes with other keys
ENCODERS, HEADS, FITTED, SPACES = "encoders", "heads.safetensors", "fitted", "spaces"
LABELS = "labels.jsonl.gz"
TRAIN = "train"


class Parts(NamedTuple):
    """The arguments of a model."""

    recipe: Recipe
    network: Network
    labels: Labels
    weights: Mapping[str, float]
    stats: LabelStats
    fitted: Fitted
    fusion: Fusion | None
    removed: NDArray[np.int64]
    indexes: list[ModelIndex]


def save_model(model: Model, folder: str | PathLike[str], *, overwrite: bool, texts: bool) -> None:
    """Write the folder that :func:`load_parts` reads, whole or not at all; ``texts`` keeps those of the training."""
    from megalabel.recipes.load_recipe import dump_recipe

    state, network = model.state, model.network
    with writing_folder(folder, overwrite=overwrite) as place:
        save_encoders(network, place)
        with writing(place / "recipe.yaml") as out:
            out.write(dump_recipe(model.recipe).encode())
        _write_tensors(place / HEADS, state.grown_tensors(network))
        state.grown_fitted().save(place / FITTED)
        for name, space in state.grown_spaces(network).items():
            space.save(place / SPACES / name)
        _write_labels(place / LABELS, state.labels, state.stats.counts, state.removed)
        if texts and model.train_rows is not None:
            model.train_rows.save(place / TRAIN)
        card = {
            "format": FORMAT,
            "megalabel": __version__,
            "labels": len(state.labels),
            "points": state.stats.points,
            "propensity": state.stats.propensity,
            "weights": model.weights,
            "fusion": None if model.fusion is None else model.fusion.to_dict(),
            "index": model.indexes.save(place / INDEX, state),
            "sha256": {path.relative_to(place).as_posix(): _sha256(path) for path in _files(place)},
        }
        with writing(place / "model.json") as out:
            out.write(json.dumps({**card, "seal": _seal(card)}, indent=2).encode() + b"\n")


def find_model(folder: str | PathLike[str]) -> Path:
    """Return the folder of a saved model, which may be that of its run."""
    place = Path(folder)
    place = place / "model" if (place / "model" / "model.json").is_file() else place
    if not (place / "model.json").is_file():
        raise DataError(
            "there is no model here", path=folder, remedy="give the folder of a finished run or a saved model"
        )
    return place


def load_parts(folder: str | PathLike[str], device: str = "auto", *, exact: bool = False) -> Parts:
    """Read what :func:`save_model` wrote, every file checked first; the network is on the device.

    ``exact`` leaves the indexes where they are.
    """
    from megalabel.recipes.build import build_network
    from megalabel.recipes.load_recipe import load_recipe

    chosen = find_device(device)
    place = find_model(folder)
    card = _read_card(place / "model.json")
    _check_files(place, {name: digest for name, digest in card["sha256"].items() if not _of_index(name)})
    labels, counts, removed = _read_labels(place / LABELS)
    recipe = load_recipe(place / "recipe.yaml")
    spaces = load_spaces(place / SPACES, list(recipe.spaces), len(labels))
    network = build_network(recipe, load_encoders(place, list(recipe.encoders)), spaces)
    stats = LabelStats(counts, card["points"], tuple(card["propensity"]), _train_rows(place, card["sha256"]))
    fusion = None if card["fusion"] is None else Fusion.from_dict(card["fusion"])
    fitted = Fitted.load(place / FITTED, recipe.heads)
    tensors = load_head_tensors(place)
    wanted = {name: value for name, value in network.named_parameters() if name.startswith("heads.")}
    if {name: value.shape for name, value in tensors.items()} != {name: value.shape for name, value in wanted.items()}:
        raise DataError("the weights do not fit the recipe", path=place / HEADS)
    with torch.no_grad():
        for name, value in wanted.items():
            value.copy_(tensors[name])
    network.to(chosen).eval()
    cards = [] if exact else card.get("index", [])
    indexes = [index.to(chosen) for index in load_indexes(place / INDEX, cards, list(network.heads), len(labels))]
    return Parts(recipe, network, labels, card["weights"], stats, fitted, fusion, removed, indexes)


def save_encoders(network: Network, folder: Path, drop: Sequence[str] = ()) -> None:
    """Write every encoder but those to drop into a folder of its own."""
    for name, encoder in network.encoders.items():
        if name not in drop:
            (folder / ENCODERS).mkdir(parents=True, exist_ok=True)
            encoder.save(folder / ENCODERS / name)  # type: ignore[operator]


def load_encoders(folder: Path, names: Sequence[str]) -> dict[str, nn.Module]:
    """Return those of the named encoders that :func:`save_encoders` wrote."""
    return {name: load_encoder(folder / ENCODERS / name) for name in names if (folder / ENCODERS / name).is_dir()}


def save_head_tensors(network: Network, folder: Path, drop: Sequence[str] = ()) -> None:
    """Write the weights of every dense head but those to drop."""
    _write_tensors(
        folder / HEADS,
        {
            name: value.detach().cpu()
            for name, value in network.named_parameters()
            if name.startswith("heads.") and name.split(".")[1] not in drop
        },
    )


def load_head_tensors(folder: Path) -> dict[str, Tensor]:
    """Return the weights of dense heads by their names in the network."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(folder / HEADS)
    except (OSError, SafetensorError) as error:
        raise DataError(f"the weights cannot be read ({error})", path=folder / HEADS) from error


def carry_heads(network: Network, folder: Path, labels: Labels) -> list[str]:
    """Give heads the weights that an earlier stage or run has for heads of the same name; return their names."""
    tensors = load_head_tensors(folder)
    carried = [name for name in network.heads if any(key.startswith(f"heads.{name}.") for key in tensors)]
    rows = network.label_rows()
    known = [label["uid"] for label in read_labels(folder)] if (folder / "model.json").is_file() else None
    with torch.no_grad():
        for name, value in network.named_parameters():
            if not name.startswith("heads.") or name.split(".")[1] not in carried:
                continue
            saved = tensors.get(name)
            if name in rows and known is not None and known != list(labels.uids):
                raise DataError(
                    f"the head {name.split('.')[1]!r} has rows of other labels", path=folder,
                    remedy="train on the same labels, or give the head another name",
                )  # fmt: skip
            part = network.row_owner(name) if name in rows else None
            saved = saved if saved is None or part is None else saved[part.start : part.stop]
            if saved is None or saved.shape != value.shape:
                there = "nothing" if saved is None else list(saved.shape)
                raise DataError(
                    f"{name} is {list(value.shape)}, but {there} was saved", path=folder,
                    remedy=f"drop {name.split('.')[1]!r} in the stage before, or use the same settings",
                )  # fmt: skip
            value.copy_(saved)
    return carried


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    from safetensors.torch import save as pack

    with writing(path) as out:
        out.write(pack({name: value.contiguous() for name, value in tensors.items()}))


def read_labels(folder: str | PathLike[str]) -> list[dict[str, Any]]:
    """Return id, uid, text and points of the labels of a saved model, without those removed; nothing else is read."""
    place = find_model(folder)
    card = _read_card(place / "model.json")
    _check_files(place, {LABELS: card["sha256"][LABELS]})
    labels, counts, removed = _read_labels(place / LABELS)
    gone = set(removed.tolist())
    rows = enumerate(zip(labels.uids, labels.texts, counts.tolist(), strict=True))
    return [
        {"id": label, "uid": uid, "text": text, "points": points}
        for label, (uid, text, points) in rows
        if label not in gone
    ]


def _of_index(name: str) -> bool:
    """Say if the card of an index vouches for a file; the card of the model does for the cards of indexes."""
    return name.startswith(f"{INDEX}/") and not name.endswith("/index.json")


def _train_rows(place: Path, hashes: Mapping[str, str]) -> Callable[[], TrainRows] | None:
    """Return what reads the training texts when they are asked for; None where they were not kept."""
    files = {name: digest for name, digest in hashes.items() if name.startswith(f"{TRAIN}/")}
    if not files:
        return None

    def read() -> TrainRows:
        _check_files(place, files)
        return TrainRows.load(place / TRAIN)

    return read


def _write_labels(path: Path, labels: Labels, counts: NDArray[np.int64], removed: NDArray[np.int64]) -> None:
    gone = set(removed.tolist())
    with writing(path) as out:
        for label, (uid, text, points) in enumerate(zip(labels.uids, labels.texts, counts.tolist(), strict=True)):
            row = {"uid": uid, "text": text, "points": points} | ({"removed": True} if label in gone else {})
            out.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))


def _read_card(path: Path) -> dict[str, Any]:
    try:
        card = json.loads(path.read_bytes())
        seal = card.pop("seal")
        if card["format"] in READABLE and seal == _seal(card):
            return dict(card)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"this model card cannot be read ({error})", path=path) from error
    if card["format"] in READABLE:
        raise DataError("this file is not as it was saved", path=path, remedy="copy the model again")
    newer = isinstance(card["format"], int) and card["format"] > FORMAT
    remedy = "update megalabel" if newer else "train it again, or use the release that saved it"
    raise DataError(f"this model has format {card['format']}, not {FORMAT}", path=path, remedy=remedy)


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
            digest = _sha256(folder / name)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise DataError(f"this file cannot be read, {reason}", path=folder / name) from error
        if digest != expected:
            raise DataError("this file is not as it was saved", path=folder / name, remedy="copy the model again")


def _read_labels(path: Path) -> tuple[Labels, NDArray[np.int64], NDArray[np.int64]]:
    """Return the labels, how many training points each has, and the ids of those removed."""
    rows = [row for _, row in json_rows(path)]
    try:
        labels = Labels([str(row["text"]) for row in rows], [str(row["uid"]) for row in rows])
        counts = np.array([row["points"] for row in rows], dtype=np.int64)
    except KeyError as error:
        raise DataError(f"a label without {error}", path=path) from error
    return labels, counts, np.flatnonzero([bool(row.get("removed")) for row in rows])
