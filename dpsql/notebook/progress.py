"""Elapsed seconds while a query runs: what the reader's own clock shows, and nothing else.

The query stays in the main thread, so that an interrupt reaches it; the seconds are shown from another. Nothing asks
the engine how far it is: that could depend on rows. When the answer is there the seconds are wiped, since a notebook
is saved and passed on, and how long a query took is not protected as its answer is.
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


@contextmanager
def ticking(*, wanted: bool) -> Iterator[None]:
    """Show elapsed seconds during the block, if `wanted`, and wipe them at its end."""
    if not wanted:
        yield
        return
    done = Event()
    # a display belongs to the cell that runs, which the kernel keeps in the context
    thread = Thread(target=copy_context().run, args=(_tick, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _tick(done: Event) -> None:
    if done.wait(_FIRST):
        return
    place, seconds = f"dpsql-{id(done)}", _FIRST
    _show(_words(seconds), place, update=False)
    while not done.wait(_EACH):
        seconds += _EACH
        _show(_words(seconds), place, update=True)
    _show("", place, update=True)


def _words(seconds: float) -> str:
    return f"asking for {seconds:g} s; a private query that is interrupted is charged in full"


def _show(words: str, place: str, *, update: bool) -> None:
    publish: Callable[..., None] = publish_display_data
    publish({"text/plain": words}, transient={"display_id": place}, update=update)
