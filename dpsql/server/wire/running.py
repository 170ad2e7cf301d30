"""Threads in which statements run, and how a client leaves one that runs: it goes on, is charged and is stored.

What the client is told is only that it was given up; asking again replays the answer for nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from dpsql.server.wire.sqlstates import WireError

__all__ = ["Runner"]

Result = TypeVar("Result")
_FREE_AT_ONCE = 3


class _Job(Generic[Result]):
    """A piece of work, and whether a thread was given to it."""

    def __init__(self, work: Callable[[], Result]) -> None:
        self.work = work
        self.has_begun = False


class Runner:
    """So many threads; one analyst has one question in them at a time, so that a few cannot take them all."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="dpsql-wire")
        self._turns: dict[tuple[str, bool], asyncio.Semaphore] = {}
        self._running: set[asyncio.Task[Any]] = set()

    async def run(
        self,
        work: Callable[[], Result],
        *,
        given_up: asyncio.Future[None],
        turn: str,
        free: bool,
        seconds: float = 0.0,
    ) -> Result:
        """Return what the work gives; raise `WireError` once it is given up or takes longer than so many seconds.

        Work that waits for its turn is then not begun at all. At one `turn` there is one piece of work at a time, and a
        few that are `free`.
        """
        job = _Job(work)
        task = asyncio.ensure_future(self._work(job, (turn, free)))
        self._running.add(task)
        task.add_done_callback(self._ended)
        try:
            either: set[asyncio.Future[Any]] = {task, given_up}
            await asyncio.wait(either, timeout=seconds or None, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
        finally:
            if not task.done() and not job.has_begun:
                task.cancel()
        reason = "The statement was cancelled." if given_up.done() else "The statement took too long."
        raise WireError("57014", reason, hint="It may be charged already; asking again replays what was answered.")

    async def _work(self, job: _Job[Result], turn: tuple[str, bool]) -> Result:
        if turn not in self._turns:
            self._turns[turn] = asyncio.Semaphore(_FREE_AT_ONCE if turn[1] else 1)
        async with self._turns[turn]:
            job.has_begun = True
            return await asyncio.get_running_loop().run_in_executor(self._pool, job.work)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # somebody may have stopped listening

    async def close(self) -> None:
        """Wait for what runs."""
        while self._running:
            await asyncio.wait(set(self._running))
        self._pool.shutdown(wait=False)
