"""The model behind the server: predictions, explanations and changes of labels."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from megalabel._version import __version__
from megalabel.errors import MegalabelError, WriteError
from megalabel.model.cut import Cut, make_cut
from megalabel.model.journal import Journal
from megalabel.model.snapshot import Snapshot
from megalabel.serve.batcher import Batcher, Job, JobPart, QueueFullError
from megalabel.serve.metrics import Metrics
from megalabel.serve.responses import Problem, json_bytes
from megalabel.serve.saver import Saver
from megalabel.serve.schemas import LabelOrder
from megalabel.serve.settings import Settings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.model import Explanation, Model
    from megalabel.serve.schemas import Predict

__all__ = ["Engine"]

Result = TypeVar("Result")

_log = logging.getLogger("megalabel.serve")
_MAX_LISTS = 32  # lists of labels that may wait
_CALL_WEIGHT = 8  # of an explanation or a change of labels, in texts


class Engine:
    """A model, its queue and its threads.

    One thread handles predictions, explanations and changes of labels in turn. A second thread lists labels, so that
    a search through millions of labels delays no prediction.

    Args:
        model: a trained model; from now on, change its labels only through the engine. With ``settings.save`` it was
            loaded from there.
        settings: settings of the server.
    """

    def __init__(self, model: Model, settings: Settings) -> None:
        self.model, self.settings = model, settings
        self.metrics = Metrics()
        self.batcher = Batcher(self._predict_rows, settings, self.metrics)
        self.heads = ["all", *model.heads]
        self.stopping = False
        self.hurried = False  # stop at once
        self.save_error: MegalabelError | None = None  # of the final save
        self._initial_labels = len(model.labels)
        self.journal = None if settings.save is None else Journal(model, settings.save)
        self._saver = None if self.journal is None else Saver(self.journal, self.metrics)
        self._list_thread = ThreadPoolExecutor(1, thread_name_prefix="labels")
        self._waiting_lists = 0
        self.metrics.add_gauge(
            "megalabel_queue_texts", "Texts waiting or being predicted.", lambda: self.batcher.waiting
        )
        self.metrics.add_gauge("megalabel_labels", "Labels in the model.", lambda: self.model.state.alive)

    async def start(self) -> None:
        """Start the threads and predict once: the first prediction computes the vectors of all labels."""
        self.batcher.start()
        if self._saver is not None:
            self._saver.start()
        await self.batcher.call(lambda: self._predict_rows([JobPart(Job(["some text"]), 0, 1)]))

    async def close(self) -> None:
        """Finish waiting work and save the model whole if its labels changed; if that fails, ``save_error`` is set."""
        self.stopping = True
        if self.hurried:
            return
        await self.batcher.close()
        self._list_thread.shutdown()
        if self._saver is not None:
            try:
                await self._saver.close()
            except MegalabelError as error:
                self.save_error = error

    def end(self) -> None:
        """End the threads, whether :meth:`close` was called or not; what was acknowledged is in the journal."""
        self.batcher.end()
        if self.journal is None:
            return
        if self.journal.pending and self.save_error is None:
            _log.warning("stopped at once; %s", self.journal.where())
        self.journal.close()

    def cut(self, body: Predict) -> Cut:
        """Return how many labels of each text answer a request."""
        cut = make_cut(
            self.model, body.k, goal=body.goal, precision=body.precision, min_score=body.min_score,
            heads=body.heads, tail=body.tail,
        )  # fmt: skip
        return replace(cut, k=min(cut.k, self.settings.k))

    def predict(self, job: Job) -> asyncio.Future[list[bytes]]:
        """Return the labels of each text as JSON; raises a Problem if the queue is full."""
        self._enqueue(lambda: self.batcher.put(job))
        return job.answer

    def explain(self, text: str, label: str | None, k: int) -> asyncio.Future[Explanation]:
        """Return why a label fits a text."""

        def work() -> Explanation:
            if label is not None and Snapshot.of(self.model).known(label) is None:
                raise _unknown_uid(label, "label")
            return self.model.explain(text, label, k)

        return self._enqueue(lambda: self.batcher.call(work, _CALL_WEIGHT))

    def add(self, texts: Sequence[str], uids: Sequence[str] | None) -> asyncio.Future[dict[str, Any]]:
        """Add labels and return them."""

        def work() -> dict[str, Any]:
            limit = self.settings.added
            if len(self.model.labels) - self._initial_labels + len(texts) > limit:
                raise Problem(
                    422, f"at most {limit:,} labels can be added while the server runs; see megalabel serve --max-added"
                )
            new_uids = self.model.add_labels(texts, uids)
            ids = self.model.live.ids()
            pairs = zip(new_uids, texts, strict=True)
            return {"labels": [{"id": ids[uid], "uid": uid, "text": text} for uid, text in pairs]}

        return self._change(work)

    def remove(self, uids: Sequence[str], where: str = "uids[{}]") -> asyncio.Future[dict[str, Any]]:
        """Remove labels and return how many."""

        def work() -> dict[str, Any]:
            snapshot = Snapshot.of(self.model)
            for index, uid in enumerate(uids):
                if snapshot.known(uid) is None:
                    raise _unknown_uid(uid, where.format(index))
            self.model.remove_labels(uids)
            return {"removed": len(uids)}

        return self._change(work)

    def rename(self, uid: str, text: str) -> asyncio.Future[dict[str, Any]]:
        """Give a label a new text and return it."""

        def work() -> dict[str, Any]:
            label = Snapshot.of(self.model).known(uid)
            if label is None:
                raise _unknown_uid(uid, "uid")
            self.model.rename_label(uid, text)
            return {"id": label, "uid": uid, "text": text}

        return self._change(work)

    def labels(
        self, words: str | None, offset: int, limit: int, sort: LabelOrder = "id"
    ) -> asyncio.Future[dict[str, Any]]:
        """Return labels with their training frequency; labels with equally many training points by id."""

        def work() -> dict[str, Any]:
            snapshot = Snapshot.of(self.model)
            ids = snapshot.find(words)
            if sort != "id":
                points = snapshot.points(ids)
                ids = ids[np.argsort(-points if sort == "most" else points, kind="stable")]
            page = ids[offset : offset + limit]
            rows = zip(page.tolist(), snapshot.points(page).tolist(), strict=True)
            labels = [_label_row(snapshot, label) | _frequency_row(points) for label, points in rows]
            return {"total": len(ids), "labels": labels}

        if self._waiting_lists >= _MAX_LISTS:
            raise _busy(1)
        self._waiting_lists += 1
        answer = asyncio.get_running_loop().run_in_executor(self._list_thread, work)
        answer.add_done_callback(self._list_done)
        return answer

    def info(self) -> dict[str, Any]:
        """Return facts about the model, and the limits of a request."""
        model, settings = self.model, self.settings
        return {
            "name": model.recipe.name,
            "labels": model.state.alive,
            "heads": model.heads,
            "fused": model.fusion is not None,
            "tail": None if model.fusion is None else model.tail,
            "threshold": None if model.thresholds is None else model.thresholds.to_dict(),
            "limits": {
                "texts": settings.texts,
                "k": settings.k,
                "body_bytes": settings.body_bytes,
                "text_characters": settings.text_characters,
            },
            "version": __version__,
            "read_only": settings.read_only,
        }

    def _enqueue(self, put: Callable[[], Result]) -> Result:
        try:
            return put()
        except QueueFullError as error:
            raise _busy(error.seconds) from error

    def _change(self, work: Callable[[], dict[str, Any]]) -> asyncio.Future[dict[str, Any]]:
        if self.settings.read_only:
            raise Problem(403, "the labels of this server are read-only")

        def change() -> dict[str, Any]:
            try:
                answer = work()
            except WriteError as error:
                self.metrics.count_save(done=False)
                raise Problem(507, f"{error}; try again later", headers={"Retry-After": "30"}) from error
            if self.journal is not None:
                self.metrics.count_save(done=True)
            return answer

        return self._enqueue(lambda: self.batcher.call(change, _CALL_WEIGHT))

    def _list_done(self, _: object) -> None:
        self._waiting_lists -= 1

    def _predict_rows(self, parts: Sequence[JobPart]) -> list[list[bytes]]:
        return _predict_rows(Snapshot.of(self.model), parts)


def _predict_rows(snapshot: Snapshot, parts: Sequence[JobPart]) -> list[list[bytes]]:
    """Predict parts of one group with one call of the model: for each part, JSON for each of its texts."""
    job = parts[0].job
    texts = [text for part in parts for text in part.texts]
    top = snapshot.search(texts, max(part.job.k for part in parts), heads=job.heads, tail=job.tail)
    head_scores = snapshot.head_scores(texts, top.ids) if job.details else {}
    rows, start = [], 0
    for part in parts:
        block = slice(start, start + part.stop - part.start), slice(part.job.k)
        start = block[0].stop
        details = _details(snapshot, top.ids[block], {name: scores[block] for name, scores in head_scores.items()})
        rows.append(_encode_rows(snapshot, top.ids[block], top.scores[block], details, part.job.min_score))
    return rows


def _details(
    snapshot: Snapshot, ids: NDArray[Any], head_scores: dict[str, NDArray[Any]]
) -> list[list[dict[str, Any]]] | None:
    """Return training frequency and scores by head for labels [n, k], or None without head scores."""
    if not head_scores:
        return None
    points = snapshot.points(ids).tolist()
    scores = {name: values.tolist() for name, values in head_scores.items()}
    return [
        [
            _frequency_row(count) | {"heads": {name: values[row][column] for name, values in scores.items()}}
            for column, count in enumerate(counts)
        ]
        for row, counts in enumerate(points)
    ]


def _encode_rows(
    snapshot: Snapshot,
    ids: NDArray[Any],
    scores: NDArray[Any],
    details: list[list[dict[str, Any]]] | None,
    min_score: float | None,
) -> list[bytes]:
    encoded = []
    for row, (row_ids, row_scores) in enumerate(zip(ids.tolist(), scores.tolist(), strict=True)):
        labels = []
        for column, (label, score) in enumerate(zip(row_ids, row_scores, strict=True)):
            if label < 0 or (min_score is not None and score < min_score):
                continue
            document = _label_row(snapshot, label)
            document["score"] = score
            if details is not None:
                document |= details[row][column]
            labels.append(document)
        encoded.append(json_bytes(labels))
    return encoded


def _label_row(snapshot: Snapshot, label: int) -> dict[str, Any]:
    labels = snapshot.state.labels
    return {"id": label, "uid": labels.uids[label], "text": labels.texts[label]}


def _frequency_row(points: int) -> dict[str, Any]:
    return {"points": points, "frequency": Snapshot.frequency(points)}


def _unknown_uid(uid: str, where: str) -> Problem:
    return Problem(404, f"no label has the uid {uid[:60]!r}; see GET /labels", where=where)


def _busy(seconds: int) -> Problem:
    return Problem(429, f"the queue is full; try again in {seconds} s", headers={"Retry-After": str(seconds)})
