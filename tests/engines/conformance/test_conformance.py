"""Every engine answers the same queries over the same nasty tables as DuckDB does, or says that it lacks something."""

from __future__ import annotations

import os
import tomllib
from dataclasses import replace

import pyarrow as pa
import pytest
from support.engine_conformance import FOLDER, Asked, answer, counting, differences, failure, load, opened
from support.engine_kits import DUCKDB_KIT, KITS, kit_of

GAPS = FOLDER / "gaps.toml"
WHOLE = any(os.environ.get(name) for name in ("DPSQL_WHOLE", "DPSQL_REGENERATE"))


NOBODY = {"empty_table", "filter_nobody", "filter_no_unit", "filter_not_in_null", "not_in_public_with_null"}


def gaps() -> dict[str, list[str]]:
    return tomllib.loads(GAPS.read_text())


def write_gaps(engine: str, names: list[str]) -> None:
    """Write down what an engine lacks now; the difference is to be read."""
    known = {**gaps(), engine: names}
    head = GAPS.read_text().partition("\n\n")[0]
    parts = ("".join((f"{kit} = [\n", *(f'    "{name}",\n' for name in known[kit]), "]\n")) for kit in sorted(known))
    GAPS.write_text("\n".join((f"{head}\n", *parts)))


def reference(asked: Asked, engine: str) -> pa.Table | None:
    """Return what is to be answered: DuckDB's answer or, where MD5 draws, that of DuckDB as another engine."""
    return answer(asked, opened(kit_of(engine), kit_of("portable") if asked.draws else DUCKDB_KIT))


@pytest.mark.parametrize("engine", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in KITS])
def test_an_engine_answers_as_duckdb_does_or_says_what_it_lacks(engine: str) -> None:
    kit = kit_of(engine)
    lacking, wrong = [], []
    every = 1 if WHOLE else kit.every
    for at, asked in enumerate(load()):
        try:
            if at % every:  # what is not asked of a slow engine is written for it all the same
                lacking += [asked.name] * (counting(asked, opened(kit).catalog) is None)
                continue
            found = answer(asked, opened(kit))
            if found is None:
                lacking.append(asked.name)
                continue
            wanted = reference(asked, engine)
        except Exception as error:  # noqa: BLE001 - one failure is to hide no other
            wrong.append(f"{asked.name}: {failure(error)}")
            continue
        assert wanted is not None
        own = asked.own or asked.name in kit.own
        if difference := differences(replace(asked, own=own), wanted, found):
            wrong.append(f"{asked.name}: {difference}")
    assert not wrong, "\n".join(wrong)
    if os.environ.get("DPSQL_REGENERATE"):
        write_gaps(engine, lacking)
    assert lacking == gaps().get(engine, [])


def test_there_are_hundreds_of_queries_and_each_finds_some_row() -> None:
    held = opened(kit_of("portable"))
    found = {asked.name: answer(asked, held) for asked in load()}
    assert len(found) >= 200
    # in the others some row is there to be found
    assert {name for name, table in found.items() if table is not None and not table.num_rows} == NOBODY
