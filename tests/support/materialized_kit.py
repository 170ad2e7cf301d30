"""A table of events on disk, a policy that materializes some of its columns, and counts with and without that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import duckdb
import pyarrow as pa

import dpsql
from dpsql.connect import open_session
from dpsql.engines import Engine, Statement, open_exact
from dpsql.materialized.lookup import read_state
from dpsql.open_engine import open_engine

SETS = (("article",), ("article", "country"), ("country", "day"), ("article", "kind", "city"))
ROWS = """
    SELECT CASE WHEN h % 29 = 0 THEN NULL ELSE CAST(floor(40 * pow(u, 2)) AS BIGINT) END AS user_id,
           CASE WHEN h % 13 = 0 THEN NULL
                ELSE chr(97 + CAST(h % 3 AS INTEGER)) || CAST(floor(9 * pow(v, 3)) AS INTEGER) END AS article,
           CASE h // 7 % 5 WHEN 0 THEN 'DE' WHEN 1 THEN 'FR' WHEN 2 THEN 'de' WHEN 3 THEN 'US' END AS country,
           DATE '2024-01-31' + CAST(h // 11 % 3 AS INTEGER) AS day,
           CAST(CASE WHEN h % 2 = 0 THEN 'web' ELSE 'app' END AS ENUM ('web', 'app')) AS kind,
           CAST(h % 4 AS TINYINT) AS n,
           CASE WHEN h % 3 = 0 THEN '' ELSE 'Zürich' END AS city
    FROM (SELECT i, hash(hash(i, {seed})) AS h, hash(hash(i, {seed}, 1)) / pow(2, 64) AS u,
                 hash(hash(i, {seed}, 2)) / pow(2, 64) AS v FROM range({rows}) AS t(i))
"""  # half of the rows are of a few heavy users, and of a few articles


def events(path: Path, *, rows: int = 600, seed: int = 0) -> None:
    """Write a database of events, of visits by the same users, and of places that nobody owns."""
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE TABLE reads AS {ROWS.format(rows=rows, seed=seed)}")
        connection.execute(f"CREATE TABLE visits AS {ROWS.format(rows=rows // 4, seed=seed + 1)}")
        connection.execute(
            "CREATE TABLE places AS SELECT * FROM (VALUES ('DE', 'x'), ('FR', 'y'), ('FR', 'z')) AS t(code, name)"
        )


BOUNDS = {
    "rows": 5,
    "n": {"max": 6},
    "amount": {"min": -20, "max": 40},
    "price": {"max": "12.5"},
    "score": {"max": 3},
}
AMOUNT = "CASE WHEN h % 11 = 0 THEN NULL {odd} ELSE CAST(h % 4001 AS DOUBLE) / 97 - {below} END"
ODD = "WHEN h % 11 = 1 THEN 'nan' WHEN h % 11 = 2 THEN 'inf' WHEN h % 11 = 3 THEN '-inf'"


def add_amounts(path: Path) -> None:
    """Give the events columns of numbers of three types, with NULL, and with NaN and infinities where there are any."""
    columns = ("amount", "DOUBLE", ODD, 10), ("price", "DECIMAL(6,2)", "", 0), ("score", "FLOAT", ODD, 0)
    amounts = [
        f"CAST({AMOUNT.format(odd=odd, below=below).replace('h %', f'hash(rowid, {below}) % ')} AS {type_}) AS {name}"
        for name, type_, odd, below in columns
    ]
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE OR REPLACE TABLE reads AS SELECT *, {', '.join(amounts)} FROM reads")


def policy(
    folder: Path,
    *,
    sets: tuple[tuple[str, ...], ...] = SETS,
    source: Path | None = None,
    bounds: Mapping[str, object] = MappingProxyType({}),
    **keys: object,
) -> dpsql.Policy:
    """Return a policy that materializes these columns of the events, and measures under these bounds."""
    tables = {
        "reads": dpsql.PrivateTable("user_id", materialized=sets, source=source, bounds=bounds),  # type: ignore[arg-type]
        "visits": dpsql.PrivateTable("user_id"),
        "places": dpsql.PublicTable(),
    }
    if source is not None:
        tables = {"reads": tables["reads"]}
    return dpsql.Policy(dpsql.Budget(100, "1e-6"), tables, materialized=folder / "materialized", **keys)  # type: ignore[arg-type]


@contextmanager
def opened(
    database: Path | None, known: dpsql.Policy, *, materialized: bool = True, isolation: str | None = None
) -> Iterator[tuple[Engine, dpsql.Session]]:
    """Open the data, and a session over it."""
    engine = open_engine(database, known, materialized=materialized, isolation=isolation)
    with open_session(engine, known, ledger=":memory:") as session:
        yield engine, session


def counted(over: tuple[Engine, dpsql.Session], text: str) -> tuple[pa.Table, str]:
    """Return what the engine answers to a private query, exactly, and what it read in place of rows."""
    engine, session = over
    counting = session.explain(text).counting
    return open_exact(engine.execute(Statement(counting.sql, counting.parameters, counting.types))), counting.reads


def counted_by_each(over: tuple[Engine, dpsql.Session], text: str) -> list[tuple[pa.Table, str]]:
    """Return what the engine answers to each statement that a private query may run, and what it read for it."""
    engine, session = over
    plan = session.explain(text)
    found = [each.counting for each in (plan.spec.rows, plan.spec.second) if each is not None]
    return [
        (open_exact(engine.execute(Statement(each.sql, each.parameters, each.types))), each.reads) for each in found
    ]


def salts_of(folder: Path, table: str = "reads") -> tuple[int, int]:
    """Return the salts of the ranks that are materialized, which are as private as the data."""
    with duckdb.connect(
        str(folder / "materialized" / read_state(folder / "materialized")[table].file), read_only=True
    ) as file:
        ((first, second),) = file.execute("SELECT first, second FROM dpsql_salts").fetchall()
    return first, second
