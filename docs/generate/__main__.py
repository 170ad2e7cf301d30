"""Write the generated pages of docs/reference, from the code.

    python docs/generate                writes them where they stand
    python docs/generate --to FOLDER    writes them elsewhere; a test compares them with those that are there

Nobody edits these pages: what they say is changed where it comes from. People write the pages of mechanisms and
of TOP k PRIVATE, but for their tables of losses and of options.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import clients_page
import engines_page
import other_systems_page
import python_page
import sql_page

DOCS = Path(__file__).resolve().parents[1]
PAGES: dict[str, Callable[[], str]] = {
    "engines.md": engines_page.page,
    "postgres-clients.md": clients_page.page,
    "python.md": python_page.page,
    "sql/from-other-systems.md": other_systems_page.page,
    "sql/functions.md": sql_page.functions,
    "sql/mechanisms.md": sql_page.mechanisms,
    "sql/top-k-private.md": sql_page.options,
}


def main() -> None:
    """Write every page."""
    parser = argparse.ArgumentParser(description="Write the pages of docs/reference.")
    parser.add_argument("--to", type=Path, default=DOCS / "reference", help="the folder to write to")
    folder: Path = parser.parse_args().to
    for name, page in PAGES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
