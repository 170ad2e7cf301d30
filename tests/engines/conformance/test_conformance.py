"""Every engine answers the same queries over the same nasty tables as DuckDB does, or says that it lacks something.

Every form of its dialect gives what DuckDB gives, for all values and pairs of values. All of it is one file: what is
rewritten and analysed for an engine is used again by the next test, and for the next engine.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest
from support.engine_kits import KITS, kit_of

from dpsql.testing import DUCKDB
from dpsql.testing.queries import answer_query, load_queries, open_kit
from dpsql.testing.suite import compare_forms, compare_statements

GAPS = Path(__file__).parent / "gaps"
NOBODY = {"empty_table", "filter_nobody", "filter_no_unit", "filter_not_in_null", "not_in_public_with_null"}


def read_gaps(engine: str) -> list[str]:
    """Return the queries that an engine refuses."""
    file = GAPS / f"{engine}.toml"
    return list(tomllib.loads(file.read_text())["refused"]) if file.exists() else []


def write_gaps(engine: str, names: list[str]) -> None:
    (GAPS / f"{engine}.toml").write_text("".join(["refused = [\n", *(f'    "{name}",\n' for name in names), "]\n"]))


@pytest.mark.parametrize("engine", KITS)
def test_an_engine_answers_as_duckdb_does_or_says_what_it_lacks(engine: str) -> None:
    results = list(compare_statements(kit_of(engine)))
    assert not any(result.faults for result in results), "\n".join(result.describe() for result in results)
    lacking = [name for result in results for name in result.refused]
    if os.environ.get("DPSQL_REGENERATE"):
        write_gaps(engine, lacking)
    other = sorted({*lacking} ^ {*read_gaps(engine)})
    todo = f"DPSQL_REGENERATE=1 writes tests/engines/conformance/gaps/{engine}.toml, where {other} differ."
    assert lacking == read_gaps(engine), todo


def test_every_file_of_gaps_is_compared() -> None:
    unread = {file.stem for file in GAPS.glob("*.toml")} - {*KITS, "bigquery", "snowflake"}  # see test_written.py
    assert not unread, f"Name the kits of {sorted(unread)} in _PLACES of tests/support/engine_kits.py."


@pytest.mark.parametrize("engine", [engine for engine in KITS if engine != "portable"])
def test_every_form_gives_what_duckdb_gives_and_none_is_untested(engine: str) -> None:
    results = list(compare_forms(kit_of(engine)))
    assert results[-1].part == "coverage"
    assert not any(result.faults for result in results), "\n".join(result.describe() for result in results)


def test_there_are_hundreds_of_queries_and_each_finds_some_row() -> None:
    held = open_kit(kit_of("portable"), DUCKDB)  # for which all is rewritten by now
    found = {query.name: answer_query(query, held) for query in load_queries()}
    assert len(found) == len(load_queries()) >= 200
    # in the others some row is there to be found
    assert {name for name, table in found.items() if table is not None and not table.num_rows} == NOBODY
