"""Share of the event loop that a connection takes: measured, and limited while other analysts are at work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from types import coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from dpsql.server.fair_queue import ProcessorShare

__all__ = ["LoopShare"]

Result = TypeVar("Result")
_MOMENT = 0.0005  # seconds of processor time after which other connections are served


class LoopShare:
    """Processor time of the event loop that one connection takes, for the analyst whose it is now."""

    def __init__(self, share: ProcessorShare, find_analyst: Callable[[], str]) -> None:
        self._share, self._find_analyst = share, find_analyst
        self._began = self._taken = 0.0

    @coroutine
    def measure(self, work: Coroutine[Any, None, Result]) -> Generator[Any, None, Result]:
        """Return the result of `work`, and measure how long the event loop works on it."""
        resume: Callable[[], object] = partial(work.send, None)
        while True:
            self._began = time.thread_time()
            try:
                awaited = resume()
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            finally:
                self._taken += time.thread_time() - self._began
            try:
                yield awaited
                resume = partial(work.send, None)
            except BaseException as error:  # noqa: BLE001 - `work` handles it
                resume = partial(work.throw, error)

    async def give_way(self) -> None:
        """Serve other connections if this one took more than a moment; wait if its analyst takes more than a share."""
        now = time.thread_time()
        taken = self._taken + now - self._began
        if taken < _MOMENT:
            return
        self._taken, self._began = 0.0, now
        analyst = self._find_analyst()
        self._share.add_loop_time(analyst, taken)
        pause = max(0.0, self._share.find_loop_pause(analyst))
        await asyncio.sleep(pause)
        while pause > 0:  # again where another connection of the analyst went on first
            pause = self._share.find_loop_pause(analyst)
            if pause > 0:
                await asyncio.sleep(pause)
