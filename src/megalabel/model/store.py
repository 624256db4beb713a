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
from megalabel.data.concepts import read_concepts
from megalabel.data.dataset import Labels
from megalabel.device import find_device
from megalabel.disk import remove_abandoned
from megalabel.documents import read_json, reads_saved
from megalabel.encoders import load_encoder
from megalabel.errors import DataError
from megalabel.files import json_rows, map_file, read_whole, writing, writing_folder
from megalabel.fusion import FusedScores, read_fusion
from megalabel.metrics.thresholds import Thresholds
from megalabel.model.about import write_about
from megalabel.model.card import check_card, check_heads, check_labels
from megalabel.model.grown import fill_heads
from megalabel.model.hashes import check_files, files_in, seal_of, sha256_of
from megalabel.model.hub import download, hub_name
from megalabel.model.index import INDEX, follow_labels, load_indexes
from megalabel.model.journal import Change, read_changes
from megalabel.model.stats import LabelStats
from megalabel.model.train_rows import TrainRows
from megalabel.network.fit import Fitted
from megalabel.network.spaces import load_spaces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from megalabel.heads.dense import DenseSettings
    from megalabel.model.index import ModelIndex
    from megalabel.model.model import Model
    from megalabel.network.network import Network
    from megalabel.recipes.schema import Recipe

__all__ = [
    "carried_spaces",
    "carry_heads",
    "check_weights",
    "find_model",
    "load_encoders",
    "load_head_tensors",
    "load_parts",
    "read_card",
    "read_labels",
    "read_sequence",
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
    fusion: FusedScores | None
    removed: NDArray[np.int64]
    indexes: list[ModelIndex]
    thresholds: Thresholds | None


def save_model(
    model: Model,
    folder: str | PathLike[str],
    *,
    overwrite: bool,
    texts: bool,
    before_end: Callable[[Path, int], None] = lambda place, sequence: None,
) -> None:
    """Write the folder that :func:`load_parts` reads, completely or not at all.

    Args:
        model: the model.
        folder: where to write.
        overwrite: replace a folder that is not empty.
        texts: keep the texts of the training.
        before_end: is called when all is written, just before the folder takes its place: with the temporary folder
            and the number of the last change of labels in it.
    """
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
            "trained": len(state.labels) if state.stats.trained is None else state.stats.trained,
            "sequence": state.sequence,
            "points": state.stats.points,
            "propensity": state.stats.propensity,
            "weights": model.weights,
            "fusion": None if model.fusion is None else model.fusion.to_dict(),
            "threshold": None if model.thresholds is None else model.thresholds.to_dict(),
            "index": model.indexes.save(place / INDEX, state),
            "sha256": {path.relative_to(place).as_posix(): sha256_of(path) for path in files_in(place)},
        }
        with writing(place / "model.json") as out:
            out.write(json.dumps({**card, "seal": seal_of(card)}, indent=2).encode() + b"\n")
        write_about(place, model)
        before_end(place, state.sequence)


def find_model(folder: str | PathLike[str], *, change: bool = False) -> Path:
    """Return the folder of a saved model, which may be that of its run; a model on the hub cannot be changed."""
    if (name := hub_name(folder)) is not None:
        if not change:
            return download(name)
        raise DataError("a model on the hub cannot be changed", path=str(name), remedy="fetch it: megalabel import hub")
    for place in (Path(folder) / "model", Path(folder)):
        remove_abandoned(place.resolve())  # brings back what a save that was killed has moved away
    place = Path(folder)
    place = place / "model" if (place / "model" / "model.json").is_file() else place
    if not (place / "model.json").is_file():
        raise DataError(
            "there is no model here", path=folder, remedy="give the folder of a finished run or a saved model"
        )
    return place


@reads_saved
def load_parts(
    folder: str | PathLike[str], device: str = "auto", *, exact: bool = False
) -> tuple[Parts, int, list[tuple[int, Change]]]:
    """Read what :func:`save_model` wrote, every file checked first; the network is on the device.

    ``exact`` leaves the indexes where they are. All parts are of one version, whoever saves meanwhile. The number of
    the last change of labels in them, and the changes recorded since, are returned as well.
    """
    place = find_model(folder)
    return read_whole(place, "model.json", lambda: _load_parts(place, device, exact=exact))


def _load_parts(place: Path, device: str, *, exact: bool) -> tuple[Parts, int, list[tuple[int, Change]]]:
    from megalabel.recipes.build import build_network
    from megalabel.recipes.load_recipe import load_recipe

    chosen = find_device(device)
    card = read_card(place / "model.json")
    check_files(place, {name: digest for name, digest in card["sha256"].items() if not _of_index(name)})
    labels, counts, removed = _read_labels(place / LABELS)
    check_labels(card, counts, place / "model.json")
    recipe = load_recipe(place / "recipe.yaml")
    scored = {head.space for head in recipe.dense_heads.values()}
    spaces = load_spaces(place / SPACES, [name for name in recipe.spaces if name in scored], len(labels))
    network = build_network(recipe, load_encoders(place, list(recipe.encoders)), spaces)
    rows = _train_rows(place, card["sha256"])
    stats = LabelStats(counts, card["points"], tuple(card["propensity"]), rows, card.get("trained"))
    fusion = None if card["fusion"] is None else read_fusion(card["fusion"])
    fitted = Fitted.load(place / FITTED, recipe.heads)
    check_heads(card, list(recipe.dense_heads), list(fitted.heads), place / "model.json")
    if not fill_heads(network, load_head_tensors(place)):
        raise DataError("the weights do not fit the recipe", path=place / HEADS)
    network.to(chosen).eval()
    cards = [] if exact else card.get("index", [])
    indexes = [index.to(chosen) for index in load_indexes(place / INDEX, cards, list(network.heads), len(labels))]
    thresholds = None if card.get("threshold") is None else Thresholds.from_dict(card["threshold"])
    parts = Parts(recipe, network, labels, card["weights"], stats, fitted, fusion, removed, indexes, thresholds)
    sequence = card.get("sequence", 0)
    return parts, sequence, read_changes(place, sequence)


def check_weights(folder: Path) -> None:
    """Raise a DataError if encoders, heads or labels of a saved model are not as they were saved."""

    def check() -> None:
        hashes, parts = read_card(folder / "model.json")["sha256"], (f"{ENCODERS}/", HEADS, LABELS)
        check_files(folder, {name: hashes[name] for name in hashes if name.startswith(parts)})

    read_whole(folder, "model.json", check)


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
        {name: value.cpu() for name, value in network.stored_heads().items() if name.split(".")[1] not in drop},
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
    learning = {name.split(".")[1] for name, _ in network.named_parameters() if name.startswith("heads.")}
    carried = [name for name in network.heads if name in learning & {key.split(".")[1] for key in tensors}]
    rows = network.label_rows()
    known = [label["uid"] for label in read_labels(folder)] if (folder / "model.json").is_file() else None
    with torch.no_grad():
        for name, value in network.stored_heads().items():
            if name.split(".")[1] not in carried:
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


def carried_spaces(heads: Mapping[str, DenseSettings], folder: Path) -> list[str]:
    """Return the label spaces of an earlier stage or run that its weights of some of these heads belong to."""
    saved = {name.split(".")[1] for name in load_head_tensors(folder)}
    spaces = dict.fromkeys(head.space for name, head in heads.items() if head.space is not None and name in saved)
    return [name for name in spaces if name is not None and (folder / SPACES / name).is_dir()]


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    from safetensors.torch import save as pack

    with writing(path) as out:
        out.write(pack({name: value.contiguous() for name, value in tensors.items()}))


def read_labels(folder: str | PathLike[str]) -> list[dict[str, Any]]:
    """Return id, uid, text and points of the labels of a saved model, without those removed; nothing else is read."""
    place = find_model(folder)
    return read_whole(place, "model.json", lambda: _read_label_rows(place))


def _read_label_rows(place: Path) -> list[dict[str, Any]]:
    card = read_card(place / "model.json")
    check_files(place, {LABELS: card["sha256"][LABELS]})
    labels, counts, removed = _read_labels(place / LABELS)
    check_labels(card, counts, place / "model.json")
    places = {uid: place for place, uid in enumerate(labels.uids)}
    gone = set(removed.tolist())
    rows = [
        {"id": label, "uid": uid, "text": text, "points": points}
        for label, (uid, text, points) in enumerate(zip(labels.uids, labels.texts, counts.tolist(), strict=True))
    ]
    for _, (kind, values) in read_changes(place, card.get("sequence", 0)):
        if kind == "add":
            for uid, text in zip(values["uids"], values["texts"], strict=True):
                places[uid] = len(rows)
                rows.append({"id": len(rows), "uid": uid, "text": text, "points": 0})
        elif kind == "remove":
            gone.update(places[uid] for uid in values["uids"])
        else:
            rows[places[values["uid"]]]["text"] = values["text"]
    for label, uid, text, is_gone in follow_labels(place / INDEX, card.get("index", []), card.get("sequence", 0)):
        if label >= len(rows):
            rows.append({"id": label, "uid": uid, "text": text, "points": 0})
        rows[label]["text"] = text
        gone |= {label} if is_gone else set()
    return [row for row in rows if row["id"] not in gone]


def read_sequence(folder: Path) -> int:
    """Return the number of the last change of labels that is part of the files of a model."""
    return int(read_card(folder / "model.json").get("sequence", 0))


def _of_index(name: str) -> bool:
    """Return whether the card of an index vouches for a file; the card of the model does for the cards of indexes."""
    return name.startswith(f"{INDEX}/") and not name.endswith("/index.json")


def _train_rows(place: Path, hashes: Mapping[str, str]) -> Callable[[], TrainRows] | None:
    """Return what reads the training texts when they are asked for; None where they were not kept."""
    files = {name: digest for name, digest in hashes.items() if name.startswith(f"{TRAIN}/")}
    if not files:
        return None

    content = {Path(name).name: map_file(place / name) for name in files}  # whatever takes its place later

    def read() -> TrainRows:
        for name, digest in files.items():
            if hashlib.sha256(content[Path(name).name]).hexdigest() != digest:
                what = "this file changed after it was saved"
                raise DataError(what, path=place / name, remedy="copy the model again")
        return TrainRows.load(place / TRAIN, content)

    return read


def _write_labels(path: Path, labels: Labels, counts: NDArray[np.int64], removed: NDArray[np.int64]) -> None:
    gone = set(removed.tolist())
    with writing(path) as out:
        for label, (uid, text, points) in enumerate(zip(labels.uids, labels.texts, counts.tolist(), strict=True)):
            row = {"uid": uid, "text": text, "points": points} | ({"removed": True} if label in gone else {})
            row |= labels.concept(label).to_dict()
            out.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))


def read_card(path: Path) -> dict[str, Any]:
    """Return the card of a model, checked."""
    card = read_json(path)
    seal = card.pop("seal", None)
    if card.get("format") in READABLE:
        if seal == seal_of(card):
            check_card(card, path)
            return card
        raise DataError("this file changed after it was saved", path=path, remedy="copy the model again")
    format = card.get("format")
    newer = isinstance(format, int) and format > FORMAT
    remedy = "update megalabel" if newer else "train it again, or use the release that saved it"
    raise DataError(f"this model has format {format!s:.60}, not {FORMAT}", path=path, remedy=remedy)


def _read_labels(path: Path) -> tuple[Labels, NDArray[np.int64], NDArray[np.int64]]:
    """Return the labels, how many training points each has, and the ids of those removed."""
    numbered = list(json_rows(path))
    rows = [row for _, row in numbered]
    concepts = read_concepts(numbered, path)
    try:
        labels = Labels([str(row["text"]) for row in rows], [str(row["uid"]) for row in rows], concepts)
        counts = np.array([row["points"] for row in rows], dtype=np.int64)
    except KeyError as error:
        raise DataError(f"a label without {error}", path=path) from error
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError("the points of a label are not a whole number", path=path) from error
    return labels, counts, np.flatnonzero([bool(row.get("removed")) for row in rows])
