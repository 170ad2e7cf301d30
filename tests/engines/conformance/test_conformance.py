"""Every engine answers the same queries over the same nasty tables as DuckDB does, or says that it lacks something."""

from __future__ import annotations

import os
import tomllib
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from support.engine_kits import KITS, kit_of

from dpsql.testing import DUCKDB
from dpsql.testing.queries import (
    SuiteQuery,
    answer_query,
    describe_difference,
    describe_error,
    load_queries,
    open_kit,
    rewrite_query,
)

GAPS = Path(__file__).parent / "gaps"
WHOLE = any(os.environ.get(name) for name in ("DPSQL_WHOLE", "DPSQL_REGENERATE"))


NOBODY = {"empty_table", "filter_nobody", "filter_no_unit", "filter_not_in_null", "not_in_public_with_null"}


def read_gaps(engine: str) -> list[str]:
    """Return the queries that an engine refuses. DPSQL_REGENERATE=1 writes them; read the difference."""
    file = GAPS / f"{engine}.toml"
    return list(tomllib.loads(file.read_text())["refused"]) if file.exists() else []


def write_gaps(engine: str, names: list[str]) -> None:
    (GAPS / f"{engine}.toml").write_text("".join(["refused = [\n", *(f'    "{name}",\n' for name in names), "]\n"]))


def reference(asked: SuiteQuery, engine: str) -> pa.Table | None:
    """Return what is to be answered: DuckDB's answer or, where MD5 draws, that of DuckDB as another engine."""
    return answer_query(asked, open_kit(kit_of(engine), kit_of("portable") if asked.draws else DUCKDB))


@pytest.mark.parametrize("engine", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in KITS])
def test_an_engine_answers_as_duckdb_does_or_says_what_it_lacks(engine: str) -> None:
    kit = kit_of(engine)
    lacking, wrong = [], []
    every = 1 if WHOLE else kit.every
    for at, asked in enumerate(load_queries()):
        try:
            if at % every:  # what is not asked of a slow engine is written for it all the same
                lacking += [asked.name] * (rewrite_query(asked, open_kit(kit).catalog) is None)
                continue
            found = answer_query(asked, open_kit(kit))
            if found is None:
                lacking.append(asked.name)
                continue
            wanted = reference(asked, engine)
        except Exception as error:  # noqa: BLE001 - one failure is to hide no other
            wrong.append(f"{asked.name}: {describe_error(error)}")
            continue
        assert wanted is not None
        own = asked.own or asked.name in kit.own
        if difference := describe_difference(replace(asked, own=own), wanted, found=found):
            wrong.append(f"{asked.name}: {difference}")
    assert not wrong, "\n".join(wrong)
    if os.environ.get("DPSQL_REGENERATE"):
        write_gaps(engine, lacking)
    assert lacking == read_gaps(engine)


def test_there_are_hundreds_of_queries_and_each_finds_some_row() -> None:
    held = open_kit(kit_of("portable"))
    found = {asked.name: answer_query(asked, held) for asked in load_queries()}
    assert len(found) == len(load_queries()) >= 200
    # in the others some row is there to be found
    assert {name for name, table in found.items() if table is not None and not table.num_rows} == NOBODY
