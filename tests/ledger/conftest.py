"""A place for a ledger, and a ledger that has been used."""

from __future__ import annotations

from pathlib import Path

import pytest
from ledger.sqlite_kit import ITEM, opened

from dpsql.quantities import Rho


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spent.ledger"


@pytest.fixture
def made(path: Path) -> Path:
    with opened(path) as ledger:
        ledger.reserve(ITEM, "settled").settle(Rho("0.5"), "digest")
        ledger.reserve(ITEM, "held")
    return path
