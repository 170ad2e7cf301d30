"""The page on notebooks: its cells run in their order, and it names every command."""

from __future__ import annotations

import re
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell

from dpsql.notebook import COMMANDS

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "notebook.md").read_text()


def test_the_cells_of_the_page_run(shell: InteractiveShell) -> None:
    cells = re.findall(r"```ipython\n(.*?)```", PAGE, re.DOTALL)
    assert len(cells) >= 5
    for cell in cells:
        shell.run_cell(cell).raise_error()
    assert len(shell.user_ns["top"]) == 6


def test_the_page_names_every_command() -> None:
    assert all(f"| `%dpsql {name}" in PAGE for name in COMMANDS)
