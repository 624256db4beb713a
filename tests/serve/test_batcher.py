"""Texts wait their turn: in batches, fairly, within bounds."""

import asyncio
import threading

import pytest

from megalabel.serve.batcher import Batcher, FullError, Job
from megalabel.serve.meters import Meters
from megalabel.serve.settings import Settings


class Model:
    """Answers a text by itself; remembers every call; may be held up."""

    def __init__(self):
        self.calls = []
        self.go = threading.Event()
        self.go.set()

    def __call__(self, parts):
        self.go.wait()
        self.calls.append([(part.job, part.start, part.stop) for part in parts])
        if any(text == "bad" for part in parts for text in part.texts):
            raise RuntimeError("a text broke the model")
        return [[text.encode() for text in part.texts] for part in parts]


def play(scene, **settings):
    """Run a scene with a batcher of its own."""

    async def run():
        model = Model()
        batcher = Batcher(model, Settings(**settings), Meters())
        batcher.start()
        try:
            return await scene(batcher, model)
        finally:
            model.go.set()
            await batcher.close()

    return asyncio.run(run())


async def busy(batcher, model):
    """Hold the model up with one text."""
    model.go.clear()
    first = Job(["first"])
    batcher.put(first)
    await asyncio.sleep(0.05)
    return first


def test_what_waits_goes_together():
    async def scene(batcher, model):
        first = await busy(batcher, model)
        jobs = [Job([f"{place}a", f"{place}b"]) for place in range(10)]
        for job in jobs:
            batcher.put(job)
        model.go.set()
        answers = await asyncio.gather(first.answer, *(job.answer for job in jobs))
        assert answers == [[b"first"], *([f"{place}a".encode(), f"{place}b".encode()] for place in range(10))]
        assert [len(call) for call in model.calls] == [1, 10]
        assert batcher.waiting == 0
        assert batcher.meters.texts == 21

    play(scene)


def test_unlike_requests_stay_apart():
    async def scene(batcher, model):
        await busy(batcher, model)
        jobs = [Job(["a"]), Job(["b"], k=9), Job(["c"], k=11), Job(["d"], heads="dual"), Job(["e"], tail=0.5),
                Job(["f"], details=True), Job(["g"], k=100), Job(["h"], min_score=0.5)]  # fmt: skip
        for job in jobs:
            batcher.put(job)
        model.go.set()
        await asyncio.gather(*(job.answer for job in jobs))
        texts = [sorted(job.texts[0] for job, _, _ in call) for call in model.calls[1:]]
        assert texts == [["a", "b", "h"], ["c", "g"], ["d"], ["e"], ["f"]]

    play(scene)


def test_many_texts_do_not_keep_one_waiting():
    async def scene(batcher, model):
        await busy(batcher, model)
        large, small = Job([str(number) for number in range(100)]), Job(["small"])
        batcher.put(large)
        batcher.put(small)
        model.go.set()
        assert await large.answer == [str(number).encode() for number in range(100)]
        assert (small, 0, 1) in model.calls[1]  # the first call after
        assert [call[0][1:] for call in model.calls[1:]] == [(start, start + 10) for start in range(0, 100, 10)]

    play(scene, batch=20, share=10)


def test_calls_are_bounded_by_work():
    async def scene(batcher, model):
        await busy(batcher, model)
        jobs = [Job(["x" * 50_000], k=1) for _ in range(4)]
        for job in jobs:
            batcher.put(job)
        assert batcher.waiting == 1 + 4 * 11
        model.go.set()
        await asyncio.gather(*(job.answer for job in jobs))
        assert [len(call) for call in model.calls[1:]] == [2, 2]

    play(scene, batch=20, share=20)


def test_one_request_a_call_if_told_so():
    async def scene(batcher, model):
        await busy(batcher, model)
        jobs = [Job([str(place)]) for place in range(5)]
        for job in jobs:
            batcher.put(job)
        model.go.set()
        await asyncio.gather(*(job.answer for job in jobs))
        assert [len(call) for call in model.calls] == [1] * 6

    play(scene, batched=False)


def test_a_text_that_breaks_the_model_breaks_its_own_request_only():
    async def scene(batcher, model):
        await busy(batcher, model)
        good, bad, after = Job(["good"]), Job(["bad"]), Job(["after"])
        for job in (good, bad, after):
            batcher.put(job)
        model.go.set()
        assert [await good.answer, await after.answer] == [[b"good"], [b"after"]]
        with pytest.raises(RuntimeError):
            await bad.answer
        last = Job(["last"])
        batcher.put(last)
        assert await last.answer == [b"last"]

    play(scene)


def test_too_much_waiting_is_refused_and_places_come_free():
    async def scene(batcher, model):
        await busy(batcher, model)
        waiting = Job(["a"] * 9)
        batcher.put(waiting)
        with pytest.raises(FullError) as full:
            batcher.put(Job(["b"]))
        assert full.value.seconds >= 1
        with pytest.raises(FullError):
            batcher.call(lambda: None)
        waiting.answer.cancel()  # its client has left
        await asyncio.sleep(0)
        assert batcher.waiting == 1
        later = Job(["b"])
        batcher.put(later)
        model.go.set()
        assert await later.answer == [b"b"]
        assert all(job is not waiting for call in model.calls for job, _, _ in call)

    play(scene, queue=10)


def test_a_request_larger_than_the_queue_is_taken_alone():
    async def scene(batcher, model):
        large = Job(["a"] * 50)
        batcher.put(large)
        assert len(await large.answer) == 50

    play(scene, queue=10)


def test_other_work_takes_turns_with_batches():
    async def scene(batcher, model):
        await busy(batcher, model)
        order = []
        large = Job(["a"] * 30)
        batcher.put(large)
        calls = [batcher.call(lambda place=place: order.append((place, len(model.calls)))) for place in range(2)]
        given_up = batcher.call(lambda: order.append("never"))
        given_up.cancel()
        model.go.set()
        await asyncio.gather(large.answer, *calls)
        assert order == [(0, 1), (1, 2)]

    play(scene, share=10)


def test_closing_finishes_what_waits():
    async def scene(batcher, model):
        await busy(batcher, model)
        job = Job(["a"] * 100)
        batcher.put(job)
        model.go.set()
        await batcher.close()
        assert len(job.answer.result()) == 100

    play(scene)
