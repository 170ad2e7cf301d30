"""Lists of words and functions that DuckDB itself knows, compared with what it says."""

from __future__ import annotations

import duckdb

from dpsql.sql.allow_list import FUNCTIONS, INSIDE
from dpsql.sql.syntax import grammar
from dpsql.sql.syntax.block import AGGREGATES, EVERY_AGGREGATE
from dpsql.sql.syntax.grammar import REFUSED

SYNTAX = {"coalesce", "current_timestamp", "date", "ifnull", "localtimestamp", "try", "width_bucket"}  # of the parser
FORMS = {"grouping", "grouping_id", "percentile_cont", "percentile_disc"}  # aggregates of the parser


def list_functions() -> set[str]:
    return {name for (name,) in duckdb.sql("SELECT DISTINCT function_name FROM duckdb_functions()").fetchall()}


def test_reserved_words_are_those_of_duckdb() -> None:
    words = duckdb.sql(
        "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category IN ('reserved', 'type_function')"
    ).fetchall()
    assert {word for (word,) in words} == grammar._RESERVED


def test_every_function_of_the_allow_list_is_one_of_duckdb() -> None:
    assert FUNCTIONS.keys() - list_functions() <= SYNTAX
    assert not (INSIDE | {"last_value", "nth_value", "random", "uuid"}) - list_functions()


def test_every_aggregate_and_refused_function_is_one_of_duckdb() -> None:
    assert (EVERY_AGGREGATE | REFUSED) - list_functions() == FORMS


def test_every_aggregate_of_duckdb_is_known_as_one() -> None:
    found = duckdb.sql("SELECT DISTINCT lower(function_name) FROM duckdb_functions() WHERE function_type = 'aggregate'")
    names = {name for (name,) in found.fetchall()}
    assert {name for name in names if name.isidentifier()} - EVERY_AGGREGATE <= FUNCTIONS.keys()
    assert not EVERY_AGGREGATE & FUNCTIONS.keys()
    macros = duckdb.sql(
        "SELECT DISTINCT lower(function_name) FROM duckdb_functions() WHERE function_type = 'macro' "
        "AND regexp_matches(macro_definition, '\\b(sum|avg|count|list|max|min)\\(')"
    )
    # none is computed over released rows
    assert names | {name for (name,) in macros.fetchall()} <= AGGREGATES
    assert {"variant_group_array", "weighted_avg", "geomean"} <= AGGREGATES
