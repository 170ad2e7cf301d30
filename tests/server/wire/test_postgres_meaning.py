"""Statements over the port, beside a real PostgreSQL: what is alike, and what the page on differences lists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

import duckdb
import psycopg
import pytest
from support.postgres_kit import server
from support.postgres_meaning import ALIKE, COLUMNS, CONDITIONS, KEYS, POLICY, ROWS, UNITS
from support.server_kit import Served, serving

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "postgres-differences.md"
_LINE = re.compile(r"\| `(.+)` \| (error|`.*`) \| (error|`.*`) \|")
NOISE = 40  # of counts at an epsilon of 30, with a chance of failure below one in a million


@dataclass
class Both:
    """A connection to a real PostgreSQL, and one to the port, over the same rows."""

    postgres: psycopg.Connection
    port: psycopg.Connection
    served: Served


def make_data(folder: Path) -> Path:
    with duckdb.connect(str(folder / "events.duckdb")) as connection:
        _fill(connection.execute, "?")
    return folder


def _fill(execute: object, mark: str) -> None:
    run = execute
    marks = ", ".join([mark] * len(ROWS[0]))
    for table in ("facts", "visits"):
        unit = ", user_id INTEGER" if table == "visits" else ""
        run(f"CREATE TABLE {table} ({COLUMNS}{unit})")
    for row in ROWS:
        run(f"INSERT INTO facts VALUES ({marks})", row)
    units = f"generate_series(1, {UNITS})"
    run(f"INSERT INTO visits SELECT facts.*, id * {UNITS} + u.u FROM facts, {units} AS u(u)")


@contextmanager
def serving_both(folder: Path) -> Iterator[Both]:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr("support.server_kit.make_data", make_data)
        served = stack.enter_context(serving(folder, policy=POLICY))
        postgres = stack.enter_context(server().session(server().fresh_database()))
        with postgres.cursor() as cursor:
            _fill(cursor.execute, "%s")
        yield Both(postgres, stack.enter_context(psycopg.connect(served.conninfo(), autocommit=True)), served)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with serving_both(tmp_path_factory.mktemp("meaning")) as found:
        yield found


def read_text(connection: psycopg.Connection, expression: str) -> str:
    """Return the value of an expression as PostgreSQL's text, or that there is none."""
    try:
        result = connection.execute(f"SELECT {expression}").pgresult
    except psycopg.Error:
        return "error"
    assert result is not None
    value = result.get_value(0, 0)
    return f"`{'NULL' if value is None else value.decode()}`"


def normalize(value: object) -> object:
    """Return a value such that numbers of all types compare with each other, and all else as text."""
    if value is None or isinstance(value, bool):
        return value
    try:
        return round(float(value), 9)  # type: ignore[arg-type] - else it is no number
    except (TypeError, ValueError):
        return str(value)


def read_column(connection: psycopg.Connection, text: str) -> list[object]:
    return [normalize(value) for (value, *_) in connection.execute(text)]


def read_page() -> list[tuple[str, str, str]]:
    lines = PAGE.read_text().split("## What differs")[1].splitlines()
    return [tuple(found.groups()) for found in map(_LINE.fullmatch, lines) if found]  # type: ignore[misc]


@pytest.mark.parametrize("besides", ["id", "ARRAY[1]"])  # an array leaves all of a statement to DuckDB
@pytest.mark.parametrize("chosen", [ALIKE[at : at + 20] for at in range(0, len(ALIKE), 20)], ids=itemgetter(0))
def test_expressions_over_a_public_table_mean_the_same(chosen: list[str], besides: str, both: Both) -> None:
    items = ", ".join(f"{expression} AS c{at}" for at, expression in enumerate(chosen))
    text = f"SELECT {items}, {besides} FROM facts ORDER BY id"
    wanted, found = (list(connection.execute(text)) for connection in (both.postgres, both.port))
    for at, expression in enumerate(chosen):
        assert [normalize(row[at]) for row in found] == [normalize(row[at]) for row in wanted], expression


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_private_query_counts_the_rows_that_postgres_counts(condition: str, both: Both) -> None:
    text = f"SELECT COUNT(DISTINCT user_id) FROM visits WHERE {condition}"
    (wanted,), (found,) = read_column(both.postgres, text), read_column(both.port, text)
    assert abs(found - wanted) < NOISE  # type: ignore[operator]


@pytest.mark.parametrize("key", KEYS)
def test_a_private_query_groups_by_what_postgres_groups_by(key: str, both: Both) -> None:
    text = f"SELECT {key} AS k, COUNT(DISTINCT user_id) AS n FROM visits GROUP BY 1 ORDER BY 2 DESC LIMIT 20"
    wanted = {normalize(value): count for value, count in both.postgres.execute(text)}
    found = {normalize(value): count for value, count in both.port.execute(text)}
    assert {each for each, count in found.items() if count > NOISE} == wanted.keys()
    assert all(abs(found[each] - wanted[each]) < NOISE for each in wanted)


def test_the_lines_of_the_page_are_read() -> None:
    text = PAGE.read_text().split("## What differs")[1]
    assert len(read_page()) == text.count("\n| `") > 20


@pytest.mark.parametrize(("expression", "postgres", "dpsql"), read_page())
def test_a_difference_of_the_page_is_one(expression: str, postgres: str, dpsql: str, both: Both) -> None:
    assert read_text(both.postgres, expression) == postgres
    assert read_text(both.port, expression) == dpsql
    assert postgres != dpsql


@pytest.mark.parametrize(
    ("condition", "values"),
    [
        ("t LIKE %s", [r"a\_b"]),
        ("t NOT LIKE %s", [r"a\_b"]),
        ("t ILIKE %s", [r"A\_%"]),
        ("UPPER(t::text) LIKE UPPER(%s)", [r"100\%%"]),
        ("t LIKE %s ESCAPE %s", ["100!%", "!"]),
        ("t LIKE '%%' || %s", [r"\%"]),
        ("t LIKE ANY (%s)", [[r"a\_b", "100%"]]),
        ("t NOT LIKE ALL (%s)", [[r"a\_b", "100%"]]),
        ("t ~ %s", ["a.b"]),
        ("i / %s = 3", [2]),
    ],
)
@pytest.mark.parametrize("table", ["facts", "visits"])
def test_parameters_mean_the_same(condition: str, values: list[object], table: str, both: Both) -> None:
    counted = "COUNT(DISTINCT user_id)" if table == "visits" else "COUNT(*)"
    text = f"SELECT {counted} FROM {table} WHERE {condition}"
    (wanted,) = both.postgres.execute(text, values).fetchone() or ()
    for prepare in (False, True):
        (found,) = both.port.execute(text, values, prepare=prepare).fetchone() or ()
        assert abs(found - wanted) < (NOISE if table == "visits" else 1)


TOP = "(SELECT t, i, COUNT(DISTINCT user_id) AS n FROM visits GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 10)"


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT t FROM {TOP} AS x WHERE t LIKE 'a\\_b' ORDER BY 1",
        f"SELECT i / 2 FROM {TOP} AS x ORDER BY i",
        f"SELECT i / 2, ARRAY[1] FROM {TOP} AS x ORDER BY i",
        f"SELECT i FROM {TOP} AS x ORDER BY i DESC",
        f"SELECT row_number() OVER (ORDER BY i DESC) FROM {TOP} AS x ORDER BY i",
        f"WITH x AS {TOP} SELECT t LIKE '%\\%' FROM x ORDER BY t COLLATE \"C\"",
        f'SELECT substring(t, 0, 3) FROM {TOP} AS x ORDER BY t COLLATE "C"',
    ],
)
def test_a_select_around_a_private_query_means_the_same(text: str, both: Both) -> None:
    assert read_column(both.port, text) == read_column(both.postgres, text)


def test_shares_are_no_whole_numbers_and_halves_of_counts_are(both: Both) -> None:
    text = "SELECT t, COUNT(DISTINCT user_id) / 3 AS third FROM visits GROUP BY t ORDER BY 2 DESC LIMIT 20"
    assert all(isinstance(third, int) for _, third in both.port.execute(text))
    text = f"SELECT 100 * n / sum(n) OVER () FROM {TOP} AS x"
    assert all(12 < value < 13 for (value,) in both.port.execute(text))


def test_views_cursors_and_copies_mean_the_same(both: Both) -> None:
    like = "SELECT t FROM facts WHERE t LIKE 'a\\_b'"
    both.port.execute(f"CREATE TEMPORARY VIEW escaped AS {like}")
    assert both.port.execute("SELECT t FROM escaped").fetchall() == [("a_b",)]
    both.port.execute("DROP VIEW escaped")
    with both.port.transaction():
        both.port.execute(f"DECLARE found CURSOR FOR {like}")
        assert both.port.execute("FETCH ALL FROM found").fetchall() == [("a_b",)]
    with both.port.cursor().copy(f"COPY ({like}) TO STDOUT") as copied:
        assert [bytes(part) for part in copied] == [b"a_b\n"]
    both.port.execute(f"PREPARE found (text) AS {like} OR t LIKE $1")
    assert both.port.execute("EXECUTE found ('axb')").fetchall() == [("a_b",), ("axb",)]


@pytest.mark.parametrize(
    ("over_the_port", "elsewhere"),
    [
        (r"t LIKE 'a\_b%'", r"t LIKE 'a\_b%' ESCAPE '\'"),
        (r"t ~~ 'a\_b%'", r"t LIKE 'a\_b%' ESCAPE '\'"),
        ("t LIKE 'a_b'", "t LIKE 'a_b'"),
        ("i / 2 = 3", "i // 2 = 3"),
        ("d / 2 = 1.25", "d / 2 = 1.25"),
        ("t ~* '^a'", "regexp_matches(t, '^a', 'i')"),
        ("substring(t, 0, 3) = 'a_'", "substring(t, 1, 2) = 'a_'"),
        ("i = 7", "i = 7"),
    ],
)
def test_a_question_is_charged_once_on_all_surfaces(over_the_port: str, elsewhere: str, both: Both) -> None:
    text = "SELECT COUNT(DISTINCT user_id) FROM visits WHERE {} AND id > 0"
    (answer,) = both.port.execute(text.format(over_the_port)).fetchone() or ()
    charges = both.served.charges()
    session = both.served.front.service.session("ana")
    assert session.sql(text.format(elsewhere)).fetchall() == [(answer,)]
    assert session.sql(text.format(over_the_port), postgres=True).fetchall() == [(answer,)]
    assert both.served.charges() == charges


@pytest.mark.parametrize("condition", [r"t LIKE 'a\_c%'", "i / 2 = 4", "t ~ 'b.c'", "substring(t, 0, 4) = 'a_'"])
def test_what_means_another_thing_is_asked_again(condition: str, both: Both) -> None:
    text = f"SELECT COUNT(DISTINCT user_id) FROM visits WHERE {condition}"
    both.served.front.service.session("ana").sql(text)
    charges = both.served.charges()
    both.port.execute(text)
    assert both.served.charges() == charges + 1
