"""Statement in a background thread, beside which the calling thread can be interrupted at any point.

DuckDB's own handling of Ctrl-C, as that of many drivers, comes late and as an ordinary error.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from dpsql.engines.base import LOOK, Stop

_PATIENCE = 0.5  # seconds between two looks at a task; where waiting cannot be interrupted, this can
_HEARTBEAT = 0.05  # seconds between two requests that a task stop
Result = TypeVar("Result")


class BackgroundTask:
    """Task that runs once in a thread of its own; `done` is set once it has ended or was revoked.

    An interrupt can arrive while the thread starts, and it is then unknown whether it will ever run. Task and caller
    therefore compete for one lock: the task runs only if it gets the lock, and the caller revokes it with the lock.
    Every exception of the task is discarded.
    """

    def __init__(self, task: Callable[[], None], *, name: str) -> None:
        self.done = threading.Event()
        self._first = threading.Lock()
        self._task = task
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; an exception leaves open whether the task will run."""
        self._thread.start()

    def revoke(self) -> bool:
        """Return True if the task has not begun, which it then never does."""
        if not self._first.acquire(blocking=False):
            return False
        self.done.set()
        return True

    def _run(self) -> None:
        if not self._first.acquire(blocking=False):
            return
        with suppress(BaseException):
            self._task()
        self.done.set()


def run_beside(
    act: Callable[[], Result],
    *,
    name: str,
    seconds: float | None,
    stop: Stop | None,
    interrupt: Callable[[], object],
) -> Result | None:
    """Return what `act` returns, or None after any failure, at the time limit, and soon after `stop` returns True.

    It runs in a thread while this one waits. Where it has to stop, `interrupt` is called until it has ended.
    """
    outcome: list[Result] = []
    task = BackgroundTask(lambda: outcome.append(act()), name=name)
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    step = _PATIENCE if stop is None else LOOK
    try:
        task.start()
        while not task.done.wait(min(step, max(0.0, deadline - time.monotonic()))):
            if time.monotonic() >= deadline or (stop is not None and stop()):
                raise TimeoutError  # noqa: TRY301 - to be stopped as an interrupt is
    except BaseException as reason:
        while not task.revoke() and not task.done.wait(_HEARTBEAT):
            interrupt()
        if not isinstance(reason, Exception):
            raise
        return None
    return outcome[0] if outcome else None
