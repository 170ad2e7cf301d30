"""Draw docs/images/terminal.svg: the first query of `dpsql demo`, as a terminal shows it.

python docs/generate/terminal_picture.py            draws it in docs/images
python docs/generate/terminal_picture.py x.svg      draws it elsewhere
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

_PLACE = Path(__file__).resolve().parents[1] / "images" / "terminal.svg"
_COLUMNS = 116


def run_demo() -> str:
    """Return what the demo prints in colour, up to the receipt of its first query."""
    environment = {**os.environ, "COLUMNS": str(_COLUMNS), "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    command = [Path(sys.executable).with_name("dpsql"), "demo"]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout  # noqa: S603
    first, receipt, _ = re.split(r"(^[^\n]*answered [^\n]*\n)", printed, maxsplit=1, flags=re.MULTILINE)
    return first + receipt


def main() -> None:
    """Draw the terminal, without the font that rich would fetch from another server."""
    place = Path(sys.argv[1]) if sys.argv[1:] else _PLACE
    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi("$ dpsql demo\n" + run_demo()))
    picture = console.export_svg(title="dpsql demo", unique_id="terminal")
    place.write_text(re.sub(r"@font-face \{.*?\}\n", "", picture, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    main()
