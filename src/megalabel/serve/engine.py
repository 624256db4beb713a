"""The model behind the server: what each request asks of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from megalabel._version import __version__
from megalabel.errors import MegalabelError
from megalabel.model.snapshot import Snapshot
from megalabel.serve.batcher import Batcher, FullError, Job, Part
from megalabel.serve.meters import Meters
from megalabel.serve.predicted_rows import label_row, predicted_rows, seen_row
from megalabel.serve.problem import Problem
from megalabel.serve.saver import Saver
from megalabel.serve.settings import Settings

if TYPE_CHECKING:
    from megalabel.model import Explanation, Model

__all__ = ["Engine"]

Result = TypeVar("Result")

_LISTS = 32  # lists of labels that wait
_WEIGHT = 8  # of an explanation or a change of labels, in texts


class Engine:
    """A model, the thread that works with it, and what it is doing.

    Predictions, explanations and changes of labels are done by one thread, in turn; lists of labels by another, so
    that a search through millions of them holds up no prediction.

    Args:
        model: a trained model; what changes its labels must go through here from now on.
        settings: of the server.
    """

    def __init__(self, model: Model, settings: Settings) -> None:
        self.model, self.settings = model, settings
        self.meters = Meters()
        self.batcher = Batcher(self._rows, settings, self.meters)
        self.heads = ["all", *model.heads]
        self.stopping = False
        self.failure: MegalabelError | None = None  # of the last save
        self._first = len(model.labels)
        self._saver = None if settings.save is None else Saver(self._save, self.meters)
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="labels")
        self._lists = 0

    async def start(self) -> None:
        """Make ready: the first prediction computes the vectors of all labels."""
        self.batcher.start()
        if self._saver is not None:
            self._saver.start()
        await self.batcher.call(lambda: self._rows([Part(Job(["some text"]), 0, 1)]))

    async def close(self) -> None:
        """Finish what is waiting and save what is not saved yet; ``failure`` says why that could not be done."""
        self.stopping = True
        await self.batcher.close()
        self._reader.shutdown()
        if self._saver is not None:
            try:
                await self._saver.close()
            except MegalabelError as error:
                self.failure = error

    def predict(self, job: Job) -> asyncio.Future[list[bytes]]:
        """Return the labels of each text as JSON; a Problem where too much is waiting."""
        self._in_turn(lambda: self.batcher.put(job))
        return job.answer

    def explain(self, text: str, label: str | None, k: int) -> asyncio.Future[Explanation]:
        """Return why a label fits a text."""

        def work() -> Explanation:
            if label is not None and Snapshot.of(self.model).known(label) is None:
                raise _unknown(label, "label")
            return self.model.explain(text, label, k)

        return self._in_turn(lambda: self.batcher.call(work, _WEIGHT))

    def add(self, texts: Sequence[str], uids: Sequence[str] | None) -> asyncio.Future[dict[str, Any]]:
        """Add labels and return them."""

        def work() -> dict[str, Any]:
            most = self.settings.added
            if len(self.model.labels) - self._first + len(texts) > most:
                raise Problem(422, f"more than {most:,} labels added since the start; see megalabel serve --max-added")
            names = self.model.add_labels(texts, uids)
            first = len(self.model.labels) - len(names)
            both = enumerate(zip(names, texts, strict=True), start=first)
            return {"labels": [{"id": label, "uid": uid, "text": text} for label, (uid, text) in both]}

        return self._change(work)

    def remove(self, uids: Sequence[str], where: str = "uids[{}]") -> asyncio.Future[dict[str, Any]]:
        """Remove labels and return how many."""

        def work() -> dict[str, Any]:
            now = Snapshot.of(self.model)
            for place, uid in enumerate(uids):
                if now.known(uid) is None:
                    raise _unknown(uid, where.format(place))
            self.model.remove_labels(uids)
            return {"removed": len(uids)}

        return self._change(work)

    def rename(self, uid: str, text: str) -> asyncio.Future[dict[str, Any]]:
        """Give a label another text and return it."""

        def work() -> dict[str, Any]:
            label = Snapshot.of(self.model).known(uid)
            if label is None:
                raise _unknown(uid, "uid")
            self.model.rename_label(uid, text)
            return {"id": label, "uid": uid, "text": text}

        return self._change(work)

    def labels(self, words: str | None, offset: int, limit: int) -> asyncio.Future[dict[str, Any]]:
        """Return labels with how often they were seen."""

        def work() -> dict[str, Any]:
            now = Snapshot.of(self.model)
            ids = now.find(words)
            some = ids[offset : offset + limit]
            rows = zip(some.tolist(), now.points(some).tolist(), strict=True)
            return {"total": len(ids), "labels": [label_row(now, label) | seen_row(points) for label, points in rows]}

        if self._lists >= _LISTS:
            raise _busy(1)
        self._lists += 1
        answer = asyncio.get_running_loop().run_in_executor(self._reader, work)
        answer.add_done_callback(self._listed)
        return answer

    def info(self) -> dict[str, Any]:
        """Return what the server is and takes."""
        model, limits = self.model, self.settings
        return {
            "name": model.recipe.name,
            "labels": model.state.alive,
            "heads": model.heads,
            "fused": model.fusion is not None,
            "tail": None if model.fusion is None else model.tail,
            "limits": {
                "texts": limits.texts,
                "k": limits.k,
                "body_bytes": limits.body_bytes,
                "text_characters": limits.text_characters,
            },
            "version": __version__,
            "read_only": limits.read_only,
        }

    def gauges(self) -> dict[str, tuple[str, float]]:
        """Return what is measured now rather than counted."""
        return {
            "megalabel_queue_texts": ("Texts that wait or are being answered.", self.batcher.waiting),
            "megalabel_labels": ("Labels that can be found.", self.model.state.alive),
        }

    def _in_turn(self, put: Callable[[], Result]) -> Result:
        try:
            return put()
        except FullError as error:
            raise _busy(error.seconds) from error

    def _change(self, work: Callable[[], dict[str, Any]]) -> asyncio.Future[dict[str, Any]]:
        if self.settings.read_only:
            raise Problem(403, "the labels of this server are read-only")

        def changed() -> dict[str, Any]:
            found = work()
            if self._saver is not None:
                loop.call_soon_threadsafe(self._saver.changed)
            return found

        loop = asyncio.get_running_loop()
        return self._in_turn(lambda: self.batcher.call(changed, _WEIGHT))

    def _listed(self, _: object) -> None:
        self._lists -= 1

    def _save(self) -> None:
        assert self.settings.save is not None
        self.model.save(self.settings.save, overwrite=True)

    def _rows(self, parts: Sequence[Part]) -> list[list[bytes]]:
        return predicted_rows(Snapshot.of(self.model), parts)


def _unknown(uid: str, where: str) -> Problem:
    return Problem(404, f"no label has the uid {uid[:60]!r}; see GET /labels", where=where)


def _busy(seconds: int) -> Problem:
    return Problem(429, f"too much is waiting; try again in {seconds} s", headers={"Retry-After": str(seconds)})
