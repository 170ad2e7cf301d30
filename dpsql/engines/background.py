"""Statement in a background thread, beside which the calling thread can be interrupted at any point."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

__all__ = ["BackgroundTask"]


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
