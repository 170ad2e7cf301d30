"""Decorator for operations of a ledger: an interrupt never leaves a lock or transaction behind."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

__all__ = ["release_on_interrupt"]

_Given = ParamSpec("_Given")
_Returned = TypeVar("_Returned")


def release_on_interrupt(act: Callable[_Given, _Returned]) -> Callable[_Given, _Returned]:
    """Return the operation, which keeps no lock, turn or transaction alive once it was interrupted.

    An interrupt may arrive after a `with` was entered and before its block begins, or after the block and before the
    exit. The context then ends when its frame is freed, and a traceback, which a notebook stores, would keep the frame.
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
