"""Answers leave at times that were fixed before a row was read, so that only which of them tells of the rows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["on_grid"]


@contextmanager
def on_grid(milliseconds: int | None) -> Iterator[None]:
    """Leave, with or without an error, no sooner than 1, 2, 4, 8 ... times so many milliseconds after entering.

    An interrupt leaves at once: it comes from the one who waits. Without a number everything does.
    """
    began = time.monotonic()
    try:
        yield
    except Exception:
        _wait(began, milliseconds)
        raise
    _wait(began, milliseconds)


def _wait(began: float, milliseconds: int | None) -> None:
    if milliseconds is None:
        return
    leaves = milliseconds / 1000
    passed = time.monotonic() - began
    while leaves < passed:
        leaves *= 2
    time.sleep(max(0.0, began + leaves - time.monotonic()))
