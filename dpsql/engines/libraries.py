"""Import of libraries of native code before a statement needs them: under a limit of memory that can fail."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module

from dpsql.errors import EngineError

__all__ = ["NOT_LOADED", "load_libraries"]

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
