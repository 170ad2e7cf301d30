"""A disk that fails at any step of a query: refused before the data is asked, or asked, charged and not shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.disk import Disk, Fault, usable
from support.session_kit import filled, rebuilt, values_rows

import dpsql
from dpsql.accounting import BudgetVector
from dpsql.engines import Exact, Statement
from dpsql.ledger import verify
from dpsql.ledger.base import RESERVING, SETTLING, STORED
from dpsql.session import Session

pytestmark = pytest.mark.skipif(not usable, reason="this Python keeps its SQLite to itself")
POLICY = dpsql.Policy(dpsql.Budget(1, "1e-6", items=10**5, queries=10**4), {"reads": dpsql.PrivateTable("user_id")})
CODES = {"ledger-failed", "ledger-disk-full", "ledger-cannot-open"}


class Asked:
    """A session whose engine notes that it was asked."""

    def __init__(self, path: Path) -> None:
        rows = filled(*values_rows({"a": 900, "b": 800}))
        self.times = 0
        self.queries = 0
        self.session: Session = rebuilt(dpsql.connect(rows, policy=POLICY, ledger=path), engine=self._note)

    def _note(self, statement: Statement, execute: Callable[[Statement], Exact]) -> Exact:
        self.times += 1
        return execute(statement)

    def next(self) -> str:
        """Return a query that was not asked before."""
        self.queries += 1
        return f"SELECT article FROM reads WHERE user_id <> -{self.queries} GROUP BY article TOP 2 PRIVATE"


@pytest.fixture
def faulty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Fault, Asked]]:
    moment, lasting = request.param
    fault = Fault(moment, lasting=lasting)
    path = tmp_path / "spent.ledger"
    with Disk(fault):
        asked = Asked(path)
        yield fault, asked
        fault.lift()
        asked.session.close()
    assert verify(path)


@pytest.mark.parametrize("faulty", [("before", False), ("before", True), ("after", False)], indirect=True)
def test_whichever_step_of_a_query_the_disk_fails_at_what_is_shown_is_paid(faulty: tuple[Fault, Asked]) -> None:
    fault, asked = faulty
    session, ledger = asked.session, asked.session._dependencies.ledger
    outcomes: set[str] = set()
    for step in range(1000):
        sql, times = asked.next(), asked.times
        worst = BudgetVector.of(session.explain(sql).worst_case)
        fault.arm(step)
        shown, code, charge, words = None, "", "", ""
        try:
            shown = session.sql(sql)
        except dpsql.LedgerError as error:
            code, charge, words = error.code, error.charge, str(error)
        fault.lift()
        assert (shown is None) == (code in CODES)
        entries = [entry for entry in ledger.entries() if entry.query == sql]
        if shown is not None:
            assert [entry.settlement.loss for entry in entries] == [shown.receipt.loss.rho.value]
            outcomes.add("shown")
        elif asked.times == times:
            assert entries == []
            assert ("Nothing was charged" in words) == (charge == "")
            assert charge in {"", RESERVING}
            outcomes.add("refused")
        else:
            (entry,) = entries
            assert entry.worst_case == worst
            assert entry.settlement is None or entry.settlement.loss <= worst.refundable
            assert charge in {SETTLING, STORED}
            assert "is charged, in full unless" in words or "was charged, and its answer is stored" in words
            assert "it is free" in words
            assert charge == SETTLING or entry.settlement is not None
            outcomes.add("charged")
        if not fault.failed:
            break
    assert outcomes == {"shown", "refused", "charged"}
    session.sql(asked.next())
