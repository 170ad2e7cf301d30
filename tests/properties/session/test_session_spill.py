"""Rows that were spilled do not outlive a process that is killed by more than one opening."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from support.kills_spill import kill_many

KILLS = int(os.environ.get("DPSQL_SPILL_KILLS", "6"))


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_after_a_kill_the_next_opening_leaves_no_spilled_row(tmp_path: Path) -> None:
    told = kill_many(tmp_path, KILLS)
    assert told.killed == KILLS
    assert told.spilled > 0
    assert told.found == []
