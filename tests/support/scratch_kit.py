"""What another process does with scratch folders, beside the sweepers that the tests run."""

from __future__ import annotations

import tempfile

from dpsql.engines.scratch import ScratchFolder


def made_and_left(place: str, rounds: int) -> None:
    """Make folders while others sweep; those that are held must stay."""
    tempfile.tempdir = place
    for _ in range(rounds):
        with ScratchFolder() as folder:
            (folder.path / "spilled").write_text("x")
            assert (folder.path / "spilled").read_text() == "x"
