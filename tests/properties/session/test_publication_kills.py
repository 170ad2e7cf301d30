"""kill -9 at every point of a publication: it is there and paid, or the next run finishes it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.kills_publish import ACTS, kill_many

KILLS = int(os.environ.get("DPSQL_KILLS", "200"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_whenever_a_publication_is_killed_it_is_charged_once_and_the_next_run_finishes_it(tmp_path: Path) -> None:
    told = kill_many(tmp_path, KILLS)
    assert told.kills.keys() == set(ACTS)
    assert told.kills.total() >= 0.9 * KILLS
    # victims were killed before the charge, with it reserved, between it and the publication, and after that
    assert told.left.keys() == {"nothing", "reserved", "settled", "published"}
