"""Grid of times for answers, fixed before a row is read; only the choice among them depends on rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dpsql.engines import Engine, Watchable


@contextmanager
def hold_failure_to_grid(milliseconds: int | None) -> Iterator[Callable[[], None]]:
    """Hold an error of the body to the grid that began when the body called what it is given; others leave at once.

    After a failure an engine may be made ready again, which takes longer where more of it broke.
    """
    began = list[float]()
    try:
        yield lambda: began.append(time.monotonic())
    except Exception:
        if began:
            _wait(began[0], milliseconds)
        raise


@contextmanager
def hold_to_grid(milliseconds: int | None) -> Iterator[None]:
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


def read_progress(engine: Engine, milliseconds: int | None) -> float | None:
    """Return the progress of a statement; None where times are on a grid or the data is in another process.

    Progress reveals about rows what running time reveals, and earlier. It is therefore hidden where the time is hidden,
    and shown only by an engine in the process of the analyst, whose code could read the data itself.
    """
    if milliseconds is not None or engine.isolation != "in_process" or not isinstance(engine, Watchable):
        return None
    return engine.progress()


def _wait(began: float, milliseconds: int | None) -> None:
    if milliseconds is None:
        return
    leaves = milliseconds / 1000
    passed = time.monotonic() - began
    while leaves < passed:
        leaves *= 2
    time.sleep(max(0.0, began + leaves - time.monotonic()))
