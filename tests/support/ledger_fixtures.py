"""A place for a ledger, ledgers that have been used, and what replays read of them."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from support.ledger_kit import ALICE, ASK, BUDGET, ITEM, TOTAL, opened

from dpsql.ledger import Request, durable
from dpsql.ledger.history import History

__all__ = ["made", "path", "read_from", "rich"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spent.ledger"


@pytest.fixture
def made(path: Path) -> Path:
    with opened(path) as ledger:
        ledger.reserve(Request("settled", ITEM)).settle(Fraction("0.5"), "digest")
        ledger.reserve(Request("held", ITEM))
    return path


@pytest.fixture
def rich(path: Path) -> Path:
    """Return a ledger in which every kind of event happened."""
    with opened(path) as ledger:
        ledger.register({"reads": "user_id"})
        ledger.reserve(Request("of alice", ITEM, ALICE, "key")).settle(Fraction("0.5"), "digest", answer=b"an answer")
        held = ledger.reserve(Request("of nobody", ITEM, key="key"))
        ledger.bump("monday")
        held.settle(Fraction(0), "digest", answer=b"another")
        ledger.grant(BUDGET, TOTAL, note="the same")
        ledger.reserve(ASK)
    return path


@pytest.fixture
def read_from(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of the events after which replays began to read."""
    began: list[int] = []

    class Seen(History):
        def __init__(self, *after: Any) -> None:
            super().__init__(*after)
            began.append(self.began)

    monkeypatch.setattr(durable, "History", Seen)
    return began
