"""Random public SELECTs: what is answered is DuckDB's answer to the text itself, and no private table is ever read."""

from __future__ import annotations

import math
from random import Random

import duckdb
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fuzzing import examples
from support.sql_reference import Row, accepts_pattern, catalog_of, with_enums_as_text
from support.sql_statements import open_tables, public_statement, swapped

from dpsql.errors import Error
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.statements import PrivateQuery, PublicQuery
from dpsql.sql.rewrite.engine_query import Bound, EngineQuery, rewrite_leaders
from dpsql.sql.rewrite.public_query import rewrite_public

CON = open_tables()
REFERENCE = with_enums_as_text(CON)
CATALOG = catalog_of(CON, {"nasty": "unit"}, ["open", "void", "public", "names"])
MANY = 100_000


def written(text: str) -> list[EngineQuery] | None:
    """Return the engine SQL of a statement, with and without a bound if it is private; None when it is refused."""
    try:
        query = analyze(text, CATALOG, accepts_pattern=accepts_pattern)
        if isinstance(query, PublicQuery):
            return [rewrite_public(query, MANY)]
        assert isinstance(query, PrivateQuery)
        rows = None if query.domain is not None else 10
        return [rewrite_leaders(query, rows), rewrite_leaders(query, rows, bound=Bound(2, (1, 2)))]
    except Error:
        return None


def run(counting: EngineQuery) -> list[Row]:
    return CON.execute(counting.sql, list(counting.parameters)).fetchall()


def theirs(text: str) -> list[Row] | None:
    """Return DuckDB's answer to the text; None where it refuses the text or raises on a row."""
    REFERENCE.execute("PRAGMA disable_optimizer")  # it moves terms about, so that some rows no longer raise
    try:
        return REFERENCE.execute(text).fetchall()
    except duckdb.Error:
        return None
    finally:
        REFERENCE.execute("PRAGMA enable_optimizer")


def spelled(row: Row) -> Row:
    """Return a row in which values that are equal under a collation, or but for the order of a sum, are alike."""
    return tuple(_spelled(value) for value in row)


def _spelled(value: object) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return f"{value + 0.0:.9g}"
    return str(value).lower()


@settings(max_examples=examples(800), deadline=None)
@given(st.integers(0, 2**63))
def test_a_public_answer_is_duckdbs(seed: int) -> None:
    text, ordered = public_statement(Random(seed))
    counting = written(text)
    if counting is None:
        return
    found, wanted = run(*counting), theirs(text)
    if wanted is not None:
        ours, reference = list(map(spelled, found)), list(map(spelled, wanted))
        assert (ours if ordered else sorted(ours)) == (reference if ordered else sorted(reference)), text


@settings(max_examples=examples(600), deadline=None)
@given(st.integers(0, 2**63))
def test_a_statement_reads_one_private_table_privately_or_none(seed: int) -> None:
    random = Random(seed)
    text = swapped(random, public_statement(random)[0])
    for counting in written(text) or ():
        assert counting.sql.count('"nasty"') == ("dpsql_unit" in counting.sql), text
        run(counting)
