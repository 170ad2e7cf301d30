"""Reader of typed statements: prompt_toolkit with completion and history if it is installed, else line by line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.completion import is_complete

if TYPE_CHECKING:
    from dpsql.cli.shell import StatementReader
    from dpsql.sql.ir.catalog import Catalog

__all__ = ["history_file", "line_reader", "open_reader"]

_PROMPT, _MORE = "dpsql> ", "   ... "


def open_reader(
    catalog: Catalog, commands: dict[str, tuple[str, ...]], *, tell: Callable[[str], None]
) -> StatementReader:
    """Return a reader of this terminal; `tell` writes a hint if prompt_toolkit is missing."""
    is_installed = True
    try:
        import prompt_toolkit  # noqa: F401 - only to see if it is installed
    except ImportError:
        is_installed = False
    if is_installed and sys.stdout.isatty():
        from dpsql.cli.prompt import prompt_reader

        return prompt_reader(catalog, commands, history=history_file())
    if not is_installed:
        tell("For completion and history between sessions: pip install 'dpsql[shell]'")
    with suppress(ImportError):
        import readline  # noqa: F401 - input() edits lines with it
    return line_reader(input)


def line_reader(read_line: Callable[[str], str]) -> StatementReader:
    """Return a reader that reads lines until the statement is complete."""

    def read(status: str) -> str:  # noqa: ARG001 - a line of input has no room for it
        text = read_line(_PROMPT)
        while not is_complete(text):
            text += "\n" + read_line(_MORE)
        return text

    return read


def history_file() -> Path | None:
    """Return the history file, readable by its owner alone; None if it cannot be created.

    It is in XDG_STATE_HOME, or ~/.local/state, and holds statements, never answers.
    """
    try:
        setting = os.environ.get("XDG_STATE_HOME", "")
        state = Path(setting) if setting.startswith("/") else Path.home() / ".local" / "state"
        file = state / "dpsql" / "history"
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
    except (OSError, RuntimeError):  # no home, no disk, or no file of ours
        return None
    return file
