"""What the tests of the command share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def folder(data: Path, tmp_path: Path) -> Path:
    """A folder of one's own with a copy of the database and the policy of the test's `data`."""
    for name in ("events.duckdb", "policy.toml"):
        (tmp_path / name).write_bytes((data / name).read_bytes())
    return tmp_path
