"""Prediction files: one JSON line per point, its labels best first."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from megalabel.errors import DataError
from megalabel.files import json_rows, writing
from megalabel.progress import track
from megalabel.wording import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.data.dataset import Labels, Split
    from megalabel.types import TopK

__all__ = ["read_predictions", "write_predictions"]


def read_predictions(
    path: str | PathLike[str], split: Split, labels: int, names: Labels | None = None
) -> tuple[NDArray[np.int64], int]:
    """Read ``{"uid", "labels": [ids, best first], "scores": [...]}`` lines for the points of a split.

    With ``names``, labels may be named instead: by uids or texts in ``labels``, or in ``label_uids`` and
    ``label_texts``, which ``megalabel predict`` writes and which count more than ids. A name that is not among them
    gets an id from ``labels`` on: a prediction that is wrong in every row.

    Returns ids [N, K] in the order of the split, padded with -1, and the number of points
    the file does not mention (their rows are all -1). Rows may be in any order; if
    the split itself repeats a uid, the file must list all points in the split's order.
    Scores are optional and only checked: one number per label, never increasing.
    """
    row_of = _row_numbers(split)
    rows, width = array("q"), 0
    lines, starts, ids = array("q"), array("q", [0]), array("q")
    scores = array("d")
    find = None if names is None else _Names(names)
    for number, line in json_rows(path):
        rows.append(_row(line, row_of, len(rows), split, path, number))
        ranking = _list(line, "labels", path, number)
        if find is not None:
            ranking = find(line, ranking, path, number)
        _extend(ids, ranking, "label id", path, number)
        if "scores" in line:
            values = _list(line, "scores", path, number)
            if len(values) != len(ranking):
                raise DataError(
                    f"{counted(len(ranking), 'label')} but {counted(len(values), 'score')}", path=path, line=number
                )
            _extend(scores, values, "score", path, number)
        else:
            scores.extend([0.0] * len(ranking))
        lines.append(number)
        starts.append(len(ids))
        width = max(width, len(ranking))
    if not rows:
        raise DataError("this file holds no predictions", path=path)
    flat = np.frombuffer(ids, dtype=np.int64) if ids else np.empty(0, dtype=np.int64)
    offsets = np.frombuffer(starts, dtype=np.int64)
    of_line = np.repeat(np.arange(len(rows)), np.diff(offsets))
    where = _Where(path, np.frombuffer(lines, dtype=np.int64), of_line)
    _check_ids(flat, labels + (0 if find is None else find.more), where)
    _check_scores(np.frombuffer(scores, dtype=np.float64) if scores else np.empty(0), where)
    out = np.full((len(split), max(width, 1)), -1, dtype=np.int64)
    out[np.frombuffer(rows, dtype=np.int64)[of_line], np.arange(len(flat)) - offsets[of_line]] = flat
    return out, len(split) - len(rows)


def write_predictions(path: str | PathLike[str], split: Split, predictions: TopK) -> None:
    """Write the ranking of every point of a split, completely or not at all."""
    import orjson

    with writing(path) as out:
        lines = zip(split.uids, predictions.ids, predictions.scores, strict=True)
        for uid, ids, scores in track(lines, "writing predictions", total=len(split)):
            real = ids >= 0
            row = {"uid": uid, "labels": ids[real].tolist(), "scores": scores[real].tolist()}
            out.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))


class _Names:
    """Finds the ids of labels that a line names; it numbers unknown names after the known labels."""

    def __init__(self, labels: Labels) -> None:
        texts = Counter(labels.texts)
        self.ids = {text: i for i, text in enumerate(labels.texts) if texts[text] == 1}
        self.ids |= {uid: i for i, uid in enumerate(labels.uids)}
        self.known = len(labels)
        self.more = 0

    def __call__(self, line: dict[str, Any], ranking: list[Any], path: str | PathLike[str], number: int) -> list[Any]:
        names = [self._list(line, key, ranking, path, number) for key in ("label_uids", "label_texts")]
        if names == [ranking, ranking] and not any(isinstance(label, str) for label in ranking):
            return ranking
        return [self._id(*labels) for labels in zip(*names, strict=True)]

    def _list(
        self, line: dict[str, Any], key: str, ranking: list[Any], path: str | PathLike[str], number: int
    ) -> list[Any]:
        if key not in line:
            return ranking
        names = _list(line, key, path, number)
        if len(names) != len(ranking):
            raise DataError(f"{len(ranking)} labels but {len(names)} {key}", path=path, line=number)
        return names

    def _id(self, uid: Any, text: Any) -> Any:
        """Return the id of a label by its uid or its text; a number stays what it is."""
        if not isinstance(uid, str):
            return uid
        known = self.ids.get(uid)
        if known is None and isinstance(text, str):
            known = self.ids.get(text)
        if known is None:
            known = self.ids[uid] = self.known + self.more
            self.more += 1
        return known


class _Where:
    """Finds the line of a position in the flat arrays."""

    def __init__(self, path: str | PathLike[str], lines: NDArray[np.int64], of_line: NDArray[np.int64]) -> None:
        self.path, self.lines, self.of_line = path, lines, of_line

    def error(self, what: str, position: int, remedy: str | None = None) -> DataError:
        return DataError(what, path=self.path, line=int(self.lines[self.of_line[position]]), remedy=remedy)


def _row_numbers(split: Split) -> dict[str, int] | None:
    """Return uid -> row, or None if uids repeat, so that rows must be in order."""
    row_of = {uid: row for row, uid in enumerate(split.uids)}
    return row_of if len(row_of) == len(split) else None


def _row(
    line: dict[str, Any],
    row_of: dict[str, int] | None,
    count: int,
    split: Split,
    path: str | PathLike[str],
    number: int,
) -> int:
    uid = line.get("uid")
    uid = str(uid) if type(uid) is int else uid
    if not isinstance(uid, str):
        raise DataError('the key "uid" is missing or not a text', path=path, line=number)
    if row_of is None:
        if count >= len(split) or split.uids[count] != uid:
            raise DataError(
                f"uid {uid!r} is not the one expected on this line: uids repeat in the data, so the order counts",
                path=path,
                line=number,
                remedy="list all points in the order of the data",
            )
        return count
    if uid not in row_of:
        raise DataError(f"uid {uid!r} is not in the data, or is a duplicate in this file", path=path, line=number)
    return row_of.pop(uid)


def _list(line: dict[str, Any], key: str, path: str | PathLike[str], number: int) -> list[Any]:
    value = line.get(key)
    if not isinstance(value, list):
        raise DataError(f'"{key}" must be a list', path=path, line=number)
    return value


def _extend(
    target: array[int] | array[float], values: Sequence[Any], what: str, path: str | PathLike[str], number: int
) -> None:
    try:
        if bool in map(type, values):
            raise TypeError
        target.extend(values)
    except (TypeError, OverflowError) as error:
        fits = (int,) if what == "label id" else (int, float)
        odd = next((value for value in values if type(value) not in fits), values)
        raise DataError(f"{what} {odd!r} is not a valid number", path=path, line=number) from error


def _check_ids(ids: NDArray[np.int64], labels: int, where: _Where) -> None:
    bad = np.flatnonzero((ids < 0) | (ids >= labels))
    if len(bad):
        position = int(bad[0])
        raise where.error(f"label id {ids[position]} is out of range", position, f"ids run from 0 to {labels - 1}")
    keys = where.of_line * labels + ids
    order = np.argsort(keys, kind="stable")
    duplicates = np.flatnonzero(keys[order][1:] == keys[order][:-1])
    if len(duplicates):
        position = int(order[duplicates[0] + 1])
        raise where.error(f"duplicate label id {ids[position]} in one row", position)


def _check_scores(scores: NDArray[np.float64], where: _Where) -> None:
    bad = np.flatnonzero(~np.isfinite(scores))
    if len(bad):
        raise where.error(f"score {scores[bad[0]]} is not finite", int(bad[0]))
    rises = np.flatnonzero((scores[1:] > scores[:-1]) & (where.of_line[1:] == where.of_line[:-1]))
    if len(rises):
        raise where.error("scores increase along the row", int(rises[0]) + 1, "list labels best first")
