"""Texts of two collations meet by their bytes: each form gives what it gives over columns without a collation."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from support.sql_reference import accepts_pattern

import dpsql
from dpsql.engines.base import Statement, open_exact
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.registration import build_catalog
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.statements import PrivateQuery, PublicQuery
from dpsql.sql.rewrite.engine_query import rewrite_leaders
from dpsql.sql.rewrite.public_query import rewrite_public

TEXTS = [None, "", "a", "A", "á", "b", "B", "ab", "\U0001f600"]
POLICY = dpsql.Policy(
    dpsql.Budget(epsilon=1, delta="1e-6"), {"visits": dpsql.PrivateTable("unit"), "known": dpsql.PublicTable()}
)
SIGNS = ("=", "<>", "<", ">=", "IS DISTINCT FROM")
MEETING = [*(f"n {sign} a" for sign in SIGNS), "n BETWEEN a AND 'b'", "n IN (a, 'b')", "n NOT IN (SELECT a FROM known)"]
MEETING += [
    "greatest(n, a)",
    "least(a, n, 'x')",
    "nullif(n, a)",
    "n || a",
    "concat(a, n)",
    "starts_with(n, a)",
    "suffix(n, a)",
]
MEETING += [
    "contains(a, n)",
    "CASE n WHEN a THEN 'same' END",
    "lower(n) = upper(a)",
    "(SELECT MIN(n) FROM known) < a",
    "strpos(n, a)",
]
LOOKING = [
    "MIN(n) FILTER (WHERE a IN (SELECT a FROM known WHERE i < 3))",
    "MAX(n) FILTER (WHERE n NOT IN (SELECT a FROM known))",
]
LOOKING += [
    "MAX(a) FILTER (WHERE EXISTS (SELECT 1 FROM known AS k WHERE k.n > 'a'))",
    "MIN(CASE WHEN n < a THEN n END)",
]


class Data:
    """The tables in an engine, of columns with these collations."""

    def __init__(self, first: str, second: str) -> None:
        self.connection = duckdb.connect()
        for table in ("visits", "known"):
            self.connection.execute(
                f"CREATE TABLE {table}(unit INTEGER, i INTEGER, n VARCHAR {first}, a VARCHAR {second})"
            )
            rows = [(at % 5, at % 7, n, a) for at, (n, a) in enumerate((n, a) for n in TEXTS for a in TEXTS)]
            self.connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", rows)
        self.engine = DuckDBEngine.borrow(self.connection, dict.fromkeys(POLICY.tables))
        self.catalog = build_catalog(self.engine, POLICY)

    def answer(self, text: str) -> list[str]:
        query = analyze(text, self.catalog, accepts_pattern=accepts_pattern)
        assert isinstance(query, PublicQuery | PrivateQuery)
        counting = rewrite_public(query, 10_000) if isinstance(query, PublicQuery) else rewrite_leaders(query, 10_000)
        rows = open_exact(self.engine.execute(Statement(counting.sql, counting.parameters, counting.types)))
        return sorted(map(repr, rows.to_pylist()))


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Data, Data]]:
    made = Data("COLLATE NOCASE", "COLLATE NOACCENT"), Data("", "")
    yield made
    for data in made:
        data.engine.close()
        data.connection.close()


@pytest.mark.parametrize(
    "text",
    [
        *(f"SELECT n, a, {form} AS k FROM known" for form in MEETING),
        *(f"SELECT {form} AS k, COUNT(DISTINCT unit) AS c FROM visits GROUP BY 1 TOP 9 PRIVATE" for form in MEETING),
        *(f"SELECT i, {form} AS k FROM known GROUP BY i" for form in LOOKING),
        *(
            f"SELECT k FROM (SELECT unit, {form} AS k FROM visits GROUP BY unit) AS x GROUP BY k TOP 9 PRIVATE"
            for form in LOOKING
        ),
        "SELECT x.i, y.i AS j FROM known AS x JOIN known AS y ON x.n = y.a",
        "SELECT x.i, y.i AS j FROM known AS x LEFT JOIN (SELECT i, a AS n FROM known) AS y USING (n)",
        "SELECT i FROM visits JOIN (SELECT a AS n FROM known) AS y USING (n) GROUP BY i TOP 9 PRIVATE",
    ],
)
def test_texts_of_two_collations_meet_by_their_bytes(both: tuple[Data, Data], text: str) -> None:
    collated, plain = both
    assert collated.answer(text) == plain.answer(text)


def test_a_collation_that_meets_no_other_stays_that_of_the_engine(both: tuple[Data, Data]) -> None:
    collated, _ = both
    for condition in ("n = 'A'", "n = lower(n)", "n IN ('A', 'B')", "upper(n) < 'B'"):
        wanted = collated.connection.execute(f"SELECT COUNT(*) FROM known WHERE {condition}").fetchall()
        assert collated.answer(f"SELECT COUNT(*) AS c FROM known WHERE {condition}") == [repr({"c1": wanted[0][0]})]
