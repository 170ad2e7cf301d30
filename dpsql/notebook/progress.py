"""Elapsed seconds while a query runs, and how far it is where the session says so.

The query stays in the main thread, so that an interrupt reaches it; the seconds are shown from another. When the answer
is there all of it is wiped, since a notebook is saved and passed on, and neither how long a query took nor how far it
was by then is protected as its answer is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from threading import Event, Thread

from IPython.display import publish_display_data

__all__ = ["ticking"]

_FIRST = 1.0  # seconds before anything is shown: most answers are there by then
_EACH = 1.0

Progress = Callable[[], float | None]


@contextmanager
def ticking(progress: Progress, *, wanted: bool) -> Iterator[None]:
    """Show elapsed seconds and `progress` during the block, if `wanted`, and wipe them at its end."""
    if not wanted:
        yield
        return
    done = Event()
    # a display belongs to the cell that runs, which the kernel keeps in the context
    thread = Thread(target=copy_context().run, args=(_tick, progress, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _tick(progress: Progress, done: Event) -> None:
    if done.wait(_FIRST):
        return
    place, seconds = f"dpsql-{id(done)}", _FIRST
    _show(_words(seconds, progress()), place, update=False)
    while not done.wait(_EACH):
        seconds += _EACH
        _show(_words(seconds, progress()), place, update=True)
    _show("", place, update=True)


def _words(seconds: float, share: float | None) -> str:
    told = "" if share is None else f", {share:.0%} done"
    return f"asking for {seconds:g} s{told}; a private query that is interrupted is charged in full"


def _show(words: str, place: str, *, update: bool) -> None:
    publish: Callable[..., None] = publish_display_data
    publish({"text/plain": words}, transient={"display_id": place}, update=update)
