"""The queue batches texts, fairly and within limits."""

import asyncio
import threading

import pytest

from megalabel.serve.batcher import Batcher, Job, QueueFullError
from megalabel.serve.metrics import Metrics
from megalabel.serve.settings import Settings


class Model:
    """Echoes each text, records every call, and can be blocked."""

    def __init__(self):
        self.calls = []
        self.unblocked = threading.Event()
        self.unblocked.set()

    def __call__(self, parts):
        self.unblocked.wait()
        self.calls.append([(part.job, part.start, part.stop) for part in parts])
        if any(text == "bad" for part in parts for text in part.texts):
            raise RuntimeError("the model failed")
        return [[text.encode() for text in part.texts] for part in parts]


def run_scenario(scenario, **settings):
    """Run a scenario with a new batcher."""

    async def run():
        model = Model()
        batcher = Batcher(model, Settings(**settings), Metrics())
        batcher.start()
        try:
            return await scenario(batcher, model)
        finally:
            model.unblocked.set()
            await batcher.close()

    return asyncio.run(run())


async def block(batcher, model):
    """Block the model with one text."""
    model.unblocked.clear()
    first = Job(["first"])
    batcher.put(first)
    await asyncio.sleep(0.05)
    return first


def test_waiting_texts_share_a_call():
    async def scenario(batcher, model):
        first = await block(batcher, model)
        jobs = [Job([f"{index}a", f"{index}b"]) for index in range(10)]
        for job in jobs:
            batcher.put(job)
        model.unblocked.set()
        answers = await asyncio.gather(first.answer, *(job.answer for job in jobs))
        assert answers == [[b"first"], *([f"{index}a".encode(), f"{index}b".encode()] for index in range(10))]
        assert [len(call) for call in model.calls] == [1, 10]
        assert batcher.waiting == 0
        assert batcher.metrics.value("megalabel_texts_total") == 21

    run_scenario(scenario)


def test_requests_with_different_settings_are_separate():
    async def scenario(batcher, model):
        await block(batcher, model)
        jobs = [Job(["a"]), Job(["b"], k=9), Job(["c"], k=11), Job(["d"], heads="dual"), Job(["e"], tail=0.5),
                Job(["f"], details=True), Job(["g"], k=100), Job(["h"], min_score=0.5)]  # fmt: skip
        for job in jobs:
            batcher.put(job)
        model.unblocked.set()
        await asyncio.gather(*(job.answer for job in jobs))
        texts = [sorted(job.texts[0] for job, _, _ in call) for call in model.calls[1:]]
        assert texts == [["a", "b", "h"], ["c", "g"], ["d"], ["e"], ["f"]]

    run_scenario(scenario)


def test_a_large_request_does_not_block_a_small_one():
    async def scenario(batcher, model):
        await block(batcher, model)
        large, small = Job([str(number) for number in range(100)]), Job(["small"])
        batcher.put(large)
        batcher.put(small)
        model.unblocked.set()
        assert await large.answer == [str(number).encode() for number in range(100)]
        assert (small, 0, 1) in model.calls[1]  # the next call
        assert [call[0][1:] for call in model.calls[1:]] == [(start, start + 10) for start in range(0, 100, 10)]

    run_scenario(scenario, batch=20, share=10)


def test_calls_are_limited_by_weight():
    async def scenario(batcher, model):
        await block(batcher, model)
        jobs = [Job(["x" * 50_000], k=1) for _ in range(4)]
        for job in jobs:
            batcher.put(job)
        assert batcher.waiting == 1 + 4 * 11
        model.unblocked.set()
        await asyncio.gather(*(job.answer for job in jobs))
        assert [len(call) for call in model.calls[1:]] == [2, 2]

    run_scenario(scenario, batch=20, share=20)


def test_unbatched():
    async def scenario(batcher, model):
        await block(batcher, model)
        jobs = [Job([str(index)]) for index in range(5)]
        for job in jobs:
            batcher.put(job)
        model.unblocked.set()
        await asyncio.gather(*(job.answer for job in jobs))
        assert [len(call) for call in model.calls] == [1] * 6

    run_scenario(scenario, batched=False)


def test_a_failing_text_fails_only_its_request():
    async def scenario(batcher, model):
        await block(batcher, model)
        good, bad, after = Job(["good"]), Job(["bad"]), Job(["after"])
        for job in (good, bad, after):
            batcher.put(job)
        model.unblocked.set()
        assert [await good.answer, await after.answer] == [[b"good"], [b"after"]]
        with pytest.raises(RuntimeError):
            await bad.answer
        last = Job(["last"])
        batcher.put(last)
        assert await last.answer == [b"last"]

    run_scenario(scenario)


def test_a_full_queue_refuses_until_there_is_room():
    async def scenario(batcher, model):
        await block(batcher, model)
        waiting = Job(["a"] * 9)
        batcher.put(waiting)
        with pytest.raises(QueueFullError) as full:
            batcher.put(Job(["b"]))
        assert full.value.seconds >= 1
        with pytest.raises(QueueFullError):
            batcher.call(lambda: None)
        waiting.answer.cancel()  # the client disconnects
        await asyncio.sleep(0)
        assert batcher.waiting == 1
        later = Job(["b"])
        batcher.put(later)
        model.unblocked.set()
        assert await later.answer == [b"b"]
        assert all(job is not waiting for call in model.calls for job, _, _ in call)

    run_scenario(scenario, queue=10)


def test_an_empty_queue_accepts_a_request_of_any_size():
    async def scenario(batcher, model):
        large = Job(["a"] * 50)
        batcher.put(large)
        assert len(await large.answer) == 50

    run_scenario(scenario, queue=10)


def test_calls_alternate_with_batches():
    async def scenario(batcher, model):
        await block(batcher, model)
        order = []
        large = Job(["a"] * 30)
        batcher.put(large)
        calls = [batcher.call(lambda index=index: order.append((index, len(model.calls)))) for index in range(2)]
        cancelled = batcher.call(lambda: order.append("never"))
        cancelled.cancel()
        model.unblocked.set()
        await asyncio.gather(large.answer, *calls)
        assert order == [(0, 1), (1, 2)]

    run_scenario(scenario, share=10)


def test_close_finishes_waiting_jobs():
    async def scenario(batcher, model):
        await block(batcher, model)
        job = Job(["a"] * 100)
        batcher.put(job)
        model.unblocked.set()
        await batcher.close()
        assert len(job.answer.result()) == 100

    run_scenario(scenario)
