"""kill -9 at every point between reserve and answer: nothing that was shown is unpaid, nothing acknowledged is lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.kills import kill_many

KILLS = int(os.environ.get("DPSQL_KILLS", "200"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_whenever_a_query_is_killed_what_was_shown_is_paid_and_what_was_granted_stands(tmp_path: Path) -> None:
    told = kill_many(tmp_path, KILLS)
    assert told.kills.total() == KILLS
    assert told.entries >= told.granted > told.settled >= told.shown > 0
