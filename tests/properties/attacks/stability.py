"""Drop one privacy unit from random small databases: no group may move by more than 1, nor where the unit is not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

import duckdb
from properties.attacks.verdicts import PRIVATE, run
from support.sql_reference import Row, same

from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import EngineQuery, rewrite_leaders

__all__ = ["Small", "counts_of", "moved_too_far", "small"]

_ARTICLES = [None, "", "a1", "a1", "a2", "A1"]
_COUNTRIES = [None, "DE", "DE", "FR"]
_TIMES = [None, "2026-01-31 23:59:59.999999", "2026-02-01 00:00:00", "2026-02-01 00:00:00", "1970-01-01 00:00:00"]
_DWELLS = [None, 0.0, -0.0, float("nan"), float("inf"), 31.5, 31.5, -3.25]
_AGES = [None, 20, 20, 35, -1]
_CITIES = [None, "Berlin", "Paris", "DE"]
_PUBLIC = """
    CREATE TABLE countries(country VARCHAR, continent VARCHAR);
    CREATE TABLE articles(article VARCHAR, topic VARCHAR);
    INSERT INTO countries VALUES ('DE', 'Europe'), ('FR', 'Europe'), ('FR', 'Twice'), (NULL, 'None');
    INSERT INTO articles VALUES ('a1', 'news'), ('a2', 'sport'), ('a1', 'DE'), (NULL, 'none'), ('a3', NULL);
"""
_STORED = {
    "reads": "user_id BIGINT, article VARCHAR, country VARCHAR, ts TIMESTAMP, dwell DOUBLE",
    "likes": "user_id BIGINT, article VARCHAR, ts TIMESTAMP",
    "users": "user_id BIGINT, age INTEGER, city VARCHAR",
}
_SEEN = """user_id IS DISTINCT FROM getvariable('dropped')
    AND (getvariable('alone') = 0 OR user_id = getvariable('alone'))"""
Counts = dict[Row, int]


@dataclass(frozen=True)
class Small:
    """The private tables of a small database: rows by table, and the units that are in them."""

    rows: dict[str, list[Row]]
    units: tuple[int, ...]


def small(random: Random) -> Small:
    """Return a random database of 3 to 6 units, few rows, ties, and rows without a unit."""
    units = tuple(range(1, random.randint(3, 6) + 1))

    def row(*values: Sequence[object]) -> Row:
        unit = None if random.random() < 0.1 else random.choice(units)
        return (unit, *map(random.choice, values))

    reads = [row(_ARTICLES, _COUNTRIES, _TIMES, _DWELLS) for _ in range(random.randint(0, 12))]
    likes = [row(_ARTICLES, _TIMES) for _ in range(random.randint(0, 8))]
    users = [row(_AGES, _CITIES) for _ in range(random.randint(0, 8))]
    return Small({"reads": reads + reads[:2], "likes": likes, "users": users}, units)


def opened(threads: int) -> duckdb.DuckDBPyConnection:
    """Return a database with the public tables, and the private ones empty: views that can leave units out."""
    con = duckdb.connect(config={"threads": threads})
    con.execute(_PUBLIC)
    see(con)
    for name, columns in _STORED.items():
        con.execute(f"CREATE TABLE all_{name}({columns})")
        con.execute(f"CREATE VIEW {name} AS SELECT * FROM all_{name} WHERE {_SEEN}")
    return con


def see(con: duckdb.DuckDBPyConnection, *, dropped: int = 0, alone: int = 0) -> None:
    """Leave one unit out of the private tables, or all others; 0 is no unit."""
    con.execute(f"SET VARIABLE dropped = {dropped}::BIGINT; SET VARIABLE alone = {alone}::BIGINT")


def fill(con: duckdb.DuckDBPyConnection, database: Small) -> None:
    for name in PRIVATE:
        con.execute(f"DELETE FROM all_{name}")
        if rows := database.rows[name]:
            places = ", ".join([f"({', '.join('?' * len(rows[0]))})"] * len(rows))
            con.execute(f"INSERT INTO all_{name} VALUES {places}", [value for row in rows for value in row])


def counts_of(con: duckdb.DuckDBPyConnection, counting: EngineQuery) -> Counts:
    """Return the exact count of every group; two groups that print alike fail."""
    rows = run(con, counting)
    found = {same(row[:-1]): int(str(row[-1])) for row in rows}
    assert len(found) == len(rows), "two groups print alike"
    return found


def moved_too_far(
    con: duckdb.DuckDBPyConnection, database: Small, queries: Sequence[PrivateQuery | EngineQuery]
) -> dict[int, str]:
    """Return, by the position of each query that fails, how a unit moves what it may not.

    Dropping a unit must take 1 from each group that the unit is in when it is alone, and change nothing else.
    """
    countings = [rewrite_leaders(query, None) if isinstance(query, PrivateQuery) else query for query in queries]

    def all_counts(*, dropped: int = 0, alone: int = 0) -> list[Counts]:
        see(con, dropped=dropped, alone=alone)
        return [counts_of(con, counting) for counting in countings]

    fill(con, database)
    whole, found = all_counts(), {}
    for unit in database.units:
        without, alone = all_counts(dropped=unit), all_counts(alone=unit)
        for at, (before, after, own) in enumerate(zip(whole, without, alone, strict=True)):
            fault = _fault(before, after, own=own.keys())
            if fault:
                found[at] = f"unit {unit}: {fault}, in {database.rows}"
    see(con)
    return found


def _fault(before: Counts, after: Counts, *, own: Iterable[Row]) -> str:
    moved = {key: before.get(key, 0) - after.get(key, 0) for key in before.keys() | after.keys()}
    for key, by in moved.items():
        if by not in {0, 1}:
            return f"group {key} moves by {by}"
    changed = {key for key, by in moved.items() if by}
    return "" if changed == set(own) else f"groups {changed} move, the unit is in {set(own)}"
