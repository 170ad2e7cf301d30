"""Threads in which statements run, and what happens when a client leaves one that runs.

A private statement goes on, is charged and is stored: the client learns only that it was given up, and sending it again
replays the answer at no charge. What is free is stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dpsql.server.wire.sqlstates import WireError

if TYPE_CHECKING:
    from dpsql.engines.base import Stop

__all__ = ["Runner"]

Result = TypeVar("Result")
_AT_ONCE = 3  # pieces of work of an analyst that have a thread at a time


class _Job(Generic[Result]):
    """A piece of work, whether a thread was given to it, and whether it was given up."""

    def __init__(self, work: Callable[[Stop], Result]) -> None:
        self._work = work
        self.has_begun = self.is_given_up = False

    def run(self) -> Result:
        """Do the work, in the thread that was given to it."""
        return self._work(lambda: self.is_given_up)


class Runner:
    """So many threads, of which an analyst holds a few at most: there are more than waiting statements take."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="dpsql-wire")
        self._turns: dict[tuple[str, bool], asyncio.Semaphore] = {}
        self._running: set[asyncio.Task[Any]] = set()

    async def run(
        self,
        work: Callable[[Stop], Result],
        *,
        given_up: asyncio.Future[None],
        turn: str,
        free: bool,
        seconds: float = 0.0,
    ) -> Result:
        """Return what the work gives; raise `WireError` once it is given up or takes longer than so many seconds.

        Work that waits for its turn is then not begun at all, and work that has begun finds its stop signal given. At
        one `turn` a few pieces of work run at a time, and as many that are `free`.
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
            job.is_given_up = True
            if not task.done() and not job.has_begun:
                task.cancel()
        reason = "The statement was cancelled." if given_up.done() else "The statement took too long."
        raise WireError("57014", reason, hint="It may be charged already; asking again replays what was answered.")

    async def _work(self, job: _Job[Result], turn: tuple[str, bool]) -> Result:
        if turn not in self._turns:
            self._turns[turn] = asyncio.Semaphore(_AT_ONCE)
        async with self._turns[turn]:
            job.has_begun = True
            return await asyncio.get_running_loop().run_in_executor(self._pool, job.run)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # somebody may have stopped listening

    async def close(self) -> None:
        """Wait for what runs."""
        while self._running:
            await asyncio.wait(set(self._running))
        self._pool.shutdown(wait=False)
