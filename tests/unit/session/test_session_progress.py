"""Who is told how far a statement is: it depends on rows, so nobody from whom the data or the time is kept."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.session_kit import NAMES, PRIVATE, HookedEngine, rebuilt, session_on, shared, values_rows

import dpsql
from dpsql.engines import Exact, Statement
from dpsql.engines.duckdb.worker_engine import WorkerEngine
from dpsql.session import Session

ROWS = values_rows({"a": 900, "b": 800})
BY_ITEM = NAMES.replace("WITH (", "WITH (mechanism = limited_domain, ")  # one statement, whatever is drawn


class Telling(HookedEngine):
    """An engine that is always half done."""

    def progress(self) -> float | None:
        return 0.5


def telling(**engine: object) -> tuple[Session, list[float | None]]:
    """Return a session, and what it tells of each statement while that runs."""
    told: list[float | None] = []

    def hook(statement: Statement, execute: Callable[[Statement], Exact]) -> Exact:
        told.append(session.progress)
        return execute(statement)

    settings = dpsql.EngineSettings(**engine)  # type: ignore[arg-type]
    parts = session_on(shared(*ROWS), dpsql.Policy(dpsql.Budget(1, "1e-6"), PRIVATE, engine=settings))._dependencies
    session = Session(replace(parts, engine=Telling(parts.engine, hook)))
    return session, told


def test_it_is_told_where_the_data_is_open_in_the_process_of_who_asks() -> None:
    session, told = telling()
    session.sql(BY_ITEM)
    assert told == [0.5]


def test_it_is_told_of_both_statements_of_two_looks() -> None:
    session, told = telling()
    while len(told) < 2:  # the first look settles it in few runs: five names are looked for, and two are there
        told.clear()
        session.sql(NAMES.replace("WITH (", "WITH (fresh = true, delta = 1e-9, "))
    assert told == [0.5, 0.5]


def test_it_is_not_told_where_times_are_on_a_grid() -> None:
    session, told = telling(answer_grid_ms=1)
    session.sql(BY_ITEM)
    assert told == [None]


@pytest.mark.parametrize("isolation", ["process", "remote"])
def test_it_is_not_told_by_an_engine_elsewhere_whatever_that_could_tell(isolation: str) -> None:
    session, told = telling()
    session._dependencies.engine.isolation = isolation  # type: ignore[misc]
    session.sql(BY_ITEM)
    assert told == [None]


def test_an_engine_that_does_not_know_tells_nothing() -> None:
    with session_on(shared(*ROWS)) as session:
        assert rebuilt(session, engine=lambda statement, execute: execute(statement)).progress is None
    assert not hasattr(WorkerEngine, "progress")


def test_no_surface_over_a_wire_asks() -> None:
    """The server may have the data open in its own process; the analyst is in another."""
    home = Path(dpsql.__file__).parent
    found = set()
    for file in home.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and node.attr == "progress":
                found.add(str(file.relative_to(home)))
    assert found == {"cli/show.py", "notebook.py", "charged_release.py"}


def test_it_can_be_asked_of_a_closed_session() -> None:
    session = session_on(shared(*ROWS))
    session.close()
    assert session.progress is None
