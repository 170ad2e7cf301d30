"""Other packages: import of native code before a statement needs it, and the errors of adapters.

Under a limit of memory an import can fail. An adapter's error may contain values of private rows, so it is shown to its
author alone, with DPSQL_ADAPTER_DEBUG=1. Whoever starts the process with this variable has the engine's credentials,
and can read the rows anyway. A server has other users: it refuses to start with the variable.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module

from dpsql.errors import EngineError, Error, UsageError

NOT_LOADED = "not-loaded"  # the code of the error


def load_libraries(*names: str) -> None:
    """Import modules that are not imported yet; call this before anything is reserved for a statement.

    Raises `EngineError` for one that cannot be imported.
    """
    for name in names:
        if name in sys.modules:
            continue
        loaded = False
        with suppress(ImportError, MemoryError, OSError):
            import_module(name)
            loaded = True
        if not loaded:  # raised here: no context with paths of this machine hangs on it
            package = name.partition(".")[0]
            hint = f"Give this process more memory (ulimit -v), or install {package} again."
            raise EngineError(NOT_LOADED, f"The package {package} cannot be loaded; nothing was charged.", hint=hint)


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
