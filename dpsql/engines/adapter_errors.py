"""Errors of adapters, shown to their authors alone: with DPSQL_ADAPTER_DEBUG=1 they are written to standard error.

An adapter's error may contain values of private rows. Whoever starts the process with this variable has the engine's
credentials, and can read the rows anyway. A server has other users: it refuses to start with the variable.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from dpsql.errors import Error, UsageError

__all__ = ["refuse_adapter_debug", "show_adapter_errors"]

_VARIABLE = "DPSQL_ADAPTER_DEBUG"
_IS_SHOWN = os.environ.get(_VARIABLE, "") not in {"", "0"}  # as the process was started: nothing changes it later


@contextmanager
def show_adapter_errors() -> Iterator[None]:
    """Write an exception of the body that is not dpsql's own to standard error, if the process was started for that."""
    try:
        yield
    except BaseException as error:
        if _IS_SHOWN and not isinstance(error, Error):
            from traceback import print_exception

            print_exception(error, file=sys.stderr)
        raise


def refuse_adapter_debug() -> None:
    """Raise `UsageError` if the process was started to show the errors of adapters, as a server must not be."""
    if _IS_SHOWN:
        reason = f"With {_VARIABLE}, errors of the engine are shown, which may contain values of private rows."
        raise UsageError("adapter-debug", reason, hint=f"Unset {_VARIABLE} and start the server again.")
