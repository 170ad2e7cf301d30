"""Places for ledgers in PostgreSQL, and roles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pytest
from support.ledger_kit import ALICE, ASK, BUDGET, ITEM, TOTAL
from support.postgres_kit import fresh_schema, server

from dpsql.accounting import ApproximateDP, BudgetVector
from dpsql.ledger import Request
from dpsql.ledger.postgres_ledger import PostgresLedger

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "reference" / "ledger.md"


def opened(url: str, budget: BudgetVector = BUDGET, total: ApproximateDP = TOTAL) -> closing[PostgresLedger]:
    return closing(PostgresLedger(url, budget, total=total))


@dataclass(frozen=True)
class Place:
    """A schema of its own, and the address of a ledger in it."""

    schema: str
    url: str

    def run(self, *statements: str) -> None:
        server().run(f"SET search_path = {self.schema}", *statements)

    def rows(self, statement: str) -> list[tuple[object, ...]]:
        return server().rows(statement.replace("FROM ", f"FROM {self.schema}."))

    def tamper(self, *statements: str) -> None:
        """Run statements as one does who may switch triggers off."""
        self.run("SET session_replication_role = replica", *statements)


@pytest.fixture
def place() -> Place:
    schema = fresh_schema()
    return Place(schema, server().url(schema))


@pytest.fixture
def rich(place: Place) -> Place:
    """Return a ledger in which every kind of event happened."""
    with opened(place.url) as ledger:
        ledger.register({"reads": "user_id"})
        ledger.reserve(Request("of alice", ITEM, ALICE, "key")).settle(Fraction("0.5"), "digest", answer=b"an answer")
        held = ledger.reserve(Request("of nobody", ITEM, key="key"))
        ledger.bump("monday")
        held.settle(Fraction(0), "digest", answer=b"another")
        ledger.grant(BUDGET, TOTAL, note="the same")
        ledger.reserve(ASK)
    return place


@pytest.fixture
def role() -> Iterator[str]:
    """Return the name of a role that may log in, and nothing else yet."""
    name = fresh_schema().replace("ledger", "role")
    server().run(f"CREATE ROLE {name} LOGIN")
    yield name
    server().run(f"DROP OWNED BY {name} CASCADE", f"DROP ROLE {name}")


def recipe(schema: str, role: str) -> list[str]:
    (text,) = re.findall(r"```sql\n(.*?)```", DOCUMENTATION.read_text(), re.DOTALL)
    text = re.sub(r"--.*", "", text).replace("sales", schema).replace("dpsql_writer", role)
    create, *grants = [statement.strip() for statement in text.split(";") if statement.strip()]
    assert create == f"CREATE ROLE {role} LOGIN"
    return grants
