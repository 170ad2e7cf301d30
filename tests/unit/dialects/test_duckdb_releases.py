from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from dpsql.dialects import duckdb_releases
from dpsql.dialects.duckdb_releases import RELEASES, release
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.errors import EngineError
from dpsql.sql.ir import transforms
from dpsql.sql.ir.tree import DOUBLE, TEXT, TIMESTAMP, Call, ColumnRef, Expression, Literal, Type
from dpsql.sql.render.duckdb import Writer

DEPENDENCIES = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]["dependencies"]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    release.cache_clear()
    yield monkeypatch
    release.cache_clear()


def pretend(monkeypatch: pytest.MonkeyPatch, number: str) -> None:
    monkeypatch.setattr(duckdb_releases, "version", {"duckdb": number}.__getitem__)


@pytest.mark.parametrize("number", ["1.3.2", "1.5.6", "0.10.3", "2.1.0", "3.0.0", "20.0", "odd", ""])
def test_a_release_that_was_not_tried_opens_nothing(installed: pytest.MonkeyPatch, number: str) -> None:
    pretend(installed, number)
    with pytest.raises(EngineError) as opened:
        DuckDBEngine.open(None, {})
    with closing(duckdb.connect()) as connection, pytest.raises(EngineError) as lent:
        DuckDBEngine.borrow(connection, {})
    assert opened.value.code == lent.value.code == "duckdb-version"
    assert "1.4, 2.0" in opened.value.hint


@pytest.mark.parametrize("number", ["1.4.0", "1.4.99", "2.0.0", "2.0.1", "2.0.0.dev7", "2.0.0rc1"])
def test_patches_of_a_release_are_that_release(installed: pytest.MonkeyPatch, number: str) -> None:
    pretend(installed, number)
    assert release() is RELEASES[int(number[0]), int(number[2])]


def test_the_releases_are_those_that_pip_may_install() -> None:
    (bounds,) = (each for each in DEPENDENCIES if each.startswith("duckdb"))
    found = re.fullmatch(r"duckdb>=(\d+)\.(\d+)\.\d+,!=1\.5\.\*,<(\d+)\.(\d+)", bounds)
    assert found
    assert min(RELEASES) == (int(found[1]), int(found[2]))
    assert max(RELEASES) == (int(found[3]), int(found[4]) - 1)


def test_every_dependency_has_a_lower_bound() -> None:
    assert all(re.search(r">=\d", each) for each in DEPENDENCIES)


@pytest.mark.parametrize(
    ("number", "root", "day"),
    [
        ("1.4.0", "TRY(system.main.sqrt({}))", "TRY(CAST(system.main.date_trunc({}, TRY({})) AS TIMESTAMP))"),
        ("2.0.0", "system.main.sqrt({})", "system.main.date_trunc({}, {})"),
    ],
)
def test_what_an_older_release_does_otherwise(installed: pytest.MonkeyPatch, number: str, root: str, day: str) -> None:
    pretend(installed, number)
    assert written("sqrt", ColumnRef(1, "x", DOUBLE), type_=DOUBLE) == root.format('t1."x"')
    moment = ColumnRef(1, "x", TIMESTAMP)
    found = written("date_trunc", Literal("day", TEXT, 3), moment, type_=TIMESTAMP)
    assert found == day.format("CAST($1 AS VARCHAR)", 't1."x"')


def written(function: str, *arguments: Expression, type_: Type) -> str:
    return Writer().expression(transforms.make_total(Call(function, arguments, type_)))
