"""What an interrupt must not leave behind: a ledger that is held."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

__all__ = ["release_on_interrupt"]

_Given = ParamSpec("_Given")
_Returned = TypeVar("_Returned")


def release_on_interrupt(act: Callable[_Given, _Returned]) -> Callable[_Given, _Returned]:
    """Return the same act, which holds no lock, turn or transaction once it was interrupted.

    An interrupt may come when a `with` has been entered and its block has not begun, or has ended and is not left yet.
    The block then ends when it is forgotten, and the traceback, which a notebook keeps, would remember it.
    """

    @wraps(act)
    def acting(*args: _Given.args, **kwargs: _Given.kwargs) -> _Returned:
        try:
            return act(*args, **kwargs)
        except KeyboardInterrupt as caught:
            interrupt = caught.with_traceback(None)
            interrupt.__context__ = None
        raise interrupt

    return acting
