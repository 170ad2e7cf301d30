"""How statements are typed: with completion and history where prompt_toolkit is installed, else line by line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.completion.statements import is_complete

if TYPE_CHECKING:
    from dpsql.cli.shell import Reader
    from dpsql.sql.ir.catalog import Catalog

__all__ = ["history_file", "line_reader", "reader"]

_PROMPT, _MORE = "dpsql> ", "   ... "


def reader(catalog: Catalog, commands: dict[str, tuple[str, ...]], *, tell: Callable[[str], None]) -> Reader:
    """Return what reads from this terminal, and tell what is missing for a better one."""
    found = True
    try:
        import prompt_toolkit  # noqa: F401 - whether it is there
    except ImportError:
        found = False
    if found and sys.stdout.isatty():
        from dpsql.cli.prompt import prompt_reader

        return prompt_reader(catalog, commands, history=history_file())
    if not found:
        tell("For completion and history between sessions: pip install 'dpsql[shell]'")
    with suppress(ImportError):
        import readline  # noqa: F401 - input() edits lines with it
    return line_reader(input)


def line_reader(read_line: Callable[[str], str]) -> Reader:
    """Return a reader that asks for lines until what was typed is complete."""

    def read(status: str) -> str:  # noqa: ARG001 - a line of input has no room for it
        text = read_line(_PROMPT)
        while not is_complete(text):
            text += "\n" + read_line(_MORE)
        return text

    return read


def history_file() -> Path | None:
    """Return the file of what was typed, made for its owner alone; None where there can be none.

    It lies in XDG_STATE_HOME, or ~/.local/state, and holds questions, never answers.
    """
    try:
        stated = os.environ.get("XDG_STATE_HOME", "")
        state = Path(stated) if stated.startswith("/") else Path.home() / ".local" / "state"
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
