"""Keyed work: never twice at once, never forgotten, failures repeated with patience."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from bigfleet.controllers import work_queue
from bigfleet.controllers.work_queue import WorkQueue
from bigfleet.kube.client import ApiError
from bigfleet.model.retry_delays import RetryDelays
from bigfleet.observe import metrics


class _Worker:
    """Records what is worked on; `gate` holds work up, `failures` are raised first."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.started = asyncio.Semaphore(0)
        self.finished = asyncio.Event()
        self.failures: list[Exception] = []
        self.done: list[str] = []
        self.active: list[str] = []
        self.most_at_once = 0
        self.on_rejected: list[str] = []

    async def work(self, key: str) -> None:
        assert key not in self.active
        self.active.append(key)
        self.started.release()
        self.most_at_once = max(self.most_at_once, len(self.active))
        try:
            await self.gate.wait()
            await asyncio.sleep(0)
            if self.failures:
                raise self.failures.pop(0)
            self.done.append(key)
            self.finished.set()
        finally:
            self.active.remove(key)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries come after a hundredth of a second at first."""
    for retries in ("_RETRIES", "_RETRIES_IF_DENIED"):
        monkeypatch.setattr(work_queue, retries, RetryDelays(0.01, 30.0))


@asynccontextmanager
async def _running(worker: _Worker, concurrency: int) -> AsyncIterator[WorkQueue[str]]:
    queue: WorkQueue[str] = WorkQueue(
        worker.work, concurrency, lambda key, _: worker.on_rejected.append(key)
    )
    task = asyncio.create_task(queue.run())
    try:
        yield queue
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_key_added_while_worked_on_is_worked_on_again_but_not_at_the_same_time() -> None:
    worker = _Worker()
    worker.gate.clear()
    async with _running(worker, 4) as queue:
        queue.add("a")
        await worker.started.acquire()
        queue.add("a")
        queue.add("a")
        worker.gate.set()
        await queue.wait_done("a")
        assert worker.done == ["a", "a"]
        assert len(queue) == 0


async def test_no_more_keys_at_once_than_allowed() -> None:
    worker = _Worker()
    worker.gate.clear()
    async with _running(worker, 3) as queue:
        for number in range(10):
            queue.add(str(number))
        for _ in range(3):
            await worker.started.acquire()
        worker.gate.set()
        for number in range(10):
            await queue.wait_done(str(number))
        assert worker.most_at_once == 3
        assert len(worker.done) == 10


async def test_a_passing_failure_is_repeated_until_it_passes() -> None:
    worker = _Worker()
    worker.failures = [
        ApiError("POST", 429, "TooManyRequests", ""),
        ConnectionResetError(),
        ApiError("POST", 503, "", ""),
    ]
    async with _running(worker, 2) as queue, asyncio.timeout(60):
        queue.add("a")
        await worker.finished.wait()
    assert worker.done == ["a"]
    assert worker.on_rejected == []


async def test_a_rejection_is_reported_once_and_not_retried() -> None:
    worker = _Worker()
    worker.failures = [ApiError("POST", 422, "Invalid", "")]
    async with _running(worker, 2) as queue:
        queue.add("a")
        await queue.wait_done("a")
        await asyncio.sleep(0.05)
    assert worker.on_rejected == ["a"]
    assert worker.done == []


@pytest.mark.parametrize(("status", "reason"), [(401, "Unauthorized"), (403, "Forbidden")])
async def test_what_is_denied_is_reported_and_tried_again(status: int, reason: str) -> None:
    """An API server that has just started knows no roles, and a full quota is raised one day."""
    worker = _Worker()
    worker.failures = [ApiError("POST", status, reason, "")] * 2
    async with _running(worker, 2) as queue, asyncio.timeout(60):
        queue.add("a")
        await worker.finished.wait()
    assert worker.on_rejected == ["a", "a"]
    assert worker.done == ["a"]


async def test_a_conflict_with_another_write_is_tried_again() -> None:
    worker = _Worker()
    worker.failures = [ApiError("POST", 409, "Conflict", "the quota was modified")]
    async with _running(worker, 2) as queue, asyncio.timeout(60):
        queue.add("a")
        await worker.finished.wait()
    assert (worker.on_rejected, worker.done) == ([], ["a"])


async def test_an_object_that_has_failed_for_days_fails_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Delays double, and 2 to the power of a thousand is no number of seconds."""
    monkeypatch.setattr(work_queue, "_RETRIES", RetryDelays(0.01, 0.0))
    worker = _Worker()
    worker.failures = [ConnectionResetError() for _ in range(1100)]
    async with _running(worker, 1) as queue, asyncio.timeout(60):
        queue.add("a")
        await worker.finished.wait()
    assert worker.done == ["a"]


async def test_an_object_with_an_unexpected_error_does_not_block_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The error is counted, logged with its key, and the key is retried."""
    worker, before = _Worker(), metrics.internal_errors._value.get()
    worker.failures = [AttributeError("'NoneType' object has no attribute 'get'")]
    async with _running(worker, 1) as queue, asyncio.timeout(60):
        queue.add("odd")
        await queue.wait_done("odd")
        queue.add("plain")
        await queue.wait_done("plain")
        while "odd" not in worker.done:
            worker.finished.clear()
            await worker.finished.wait()
    assert worker.done == ["plain", "odd"]
    assert metrics.internal_errors._value.get() == before + 1
    assert "unexpected error while reconciling odd" in caplog.text
    assert "AttributeError" in caplog.text
