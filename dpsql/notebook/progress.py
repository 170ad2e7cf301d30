"""Elapsed seconds and progress of a running query in a notebook.

The query stays in the main thread, so that an interrupt reaches it; another thread shows the seconds. The display is
wiped at the end, because a notebook is saved and shared, and the time of a query is not private as its answer is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from threading import Event, Thread

from IPython.display import publish_display_data

__all__ = ["show_progress"]

_FIRST = 1.0  # seconds without a display: most queries end within them
_EACH = 1.0  # seconds between two updates

Progress = Callable[[], float | None]


@contextmanager
def show_progress(progress: Progress, *, is_shown: bool) -> Iterator[None]:
    """Show elapsed seconds and `progress` during the block if `is_shown`, and wipe them at its end."""
    if not is_shown:
        yield
        return
    done = Event()
    # a display belongs to the running cell, which the kernel stores in the context
    thread = Thread(target=copy_context().run, args=(_update_display, progress, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _update_display(progress: Progress, done: Event) -> None:
    if done.wait(_FIRST):
        return
    place, seconds = f"dpsql-{id(done)}", _FIRST
    _publish(_format_progress(seconds, progress()), place, update=False)
    while not done.wait(_EACH):
        seconds += _EACH
        _publish(_format_progress(seconds, progress()), place, update=True)
    _publish("", place, update=True)


def _format_progress(seconds: float, share: float | None) -> str:
    percent = "" if share is None else f", {share:.0%} done"
    return f"running for {seconds:g} s{percent}; an interrupted private query is charged in full"


def _publish(text: str, place: str, *, update: bool) -> None:
    publish: Callable[..., None] = publish_display_data
    publish({"text/plain": text}, transient={"display_id": place}, update=update)
