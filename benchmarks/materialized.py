"""Cost and gain of materializing a table: the same queries over rows and over materialized values, in turns.

    python -m benchmarks run materialized [--rows 1000000 10000000] [--postgres 1000000] [--memory 2GB] [--repeats 7]

The benchmark times the engine's part of a query and divides it by the time of the plain COUNT(DISTINCT) ... LIMIT 10
over the rows (aim: 0.1 for a bounded query). Then it appends 1 % of the rows, adds them, and makes the same tables
again, in turns: it divides the time to add by the time to make. It reports the size of the file beside that of the
database. Tables in PostgreSQL are made and asked the same way.
"""

from __future__ import annotations

import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import duckdb
import psycopg
from program.main import alone
from program.row import Row, Value
from program.times import Clocks, Run, Times, clocks, in_turns, timed
from servers import fill, postgres, server_clocks
from workload import BUDGET, QUERY, Events, Written, plain, written

import dpsql
from dpsql.connect import open_session
from dpsql.curator import materialize
from dpsql.engines import Engine, Statement
from dpsql.open_engine import open_engine

QUICK = {"rows": [3_000], "postgres": [3_000], "repeats": 1, "builds": 1}
ASKED = {
    "unbounded": "mechanism = limited_domain, k_bar = 1000",
    "at most 5": "mechanism = limited_domain, k_bar = 1000, max_groups_contributed = 5",
    "at most 20": "mechanism = limited_domain, k_bar = 1000, max_groups_contributed = 20",
    "weighted_gaussian": "mechanism = weighted_gaussian",
}
FILTERED = "unbounded, a tenth of the users"


def options(parser: ArgumentParser) -> None:
    """Add the sizes."""
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--postgres", type=int, nargs="*", default=[1_000_000], help="rows in PostgreSQL")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--builds", type=int, default=3)


def run(given: Namespace) -> Iterator[Row]:
    """Write events, materialize them, and ask both in turns; then append."""
    for rows in given.rows:
        events = Events.of(rows)
        with written(events, memory=given.memory) as data:
            known = _policy(data, given.memory)
            title = f"{rows:,} rows, memory {given.memory}"
            materialize(known, database=data.path)
            yield from _asked(title, data, known, users=events.users, repeats=given.repeats)
            yield from _kept(title, data, known, given.builds)
    for rows in given.postgres:
        yield from _postgres(Events.of(rows), min(given.repeats, given.builds))


def _policy(data: Written, memory: str) -> dpsql.Policy:
    usual = data.policy(dpsql.EngineSettings(memory_limit=memory))
    tables = {"events": dpsql.PrivateTable("user_id", materialized=[["item"]])}
    return replace(usual, tables=tables, materialized=data.path.parent / "materialized")


def _asked(title: str, data: Written, known: dpsql.Policy, *, users: int, repeats: int) -> Iterator[Row]:
    engines = (open_engine(data.path, known, materialized=each) for each in (False, True))
    texts = {name: QUERY.format(k=10, options=options) for name, options in ASKED.items()}
    tenth = f"events WHERE user_id < {users // 10}"
    texts[FILTERED] = texts["unbounded"].replace("events", tenth, 1)
    for row in _compared(title, texts, *engines, known=known, repeats=repeats):
        yield replace(row, note=data.description)


def _compared(  # noqa: PLR0913 - two engines, and what is timed
    title: str,
    texts: dict[str, str],
    over_rows: Engine,
    over_materialized: Engine,
    *,
    known: dpsql.Policy,
    repeats: int,
    clocks: Clocks = clocks,
) -> Iterator[Row]:
    """Yield the times of each query over rows and over what is materialized, against the plain query."""
    with (
        open_session(over_rows, known, ledger=":memory:") as long,
        open_session(over_materialized, known, ledger=":memory:") as short,
    ):
        runs: dict[str, Run] = {"plain": plain(over_rows)}
        for name, text in texts.items():
            runs[f"{name}, rows"] = _counting(over_rows, long, text)
            runs[f"{name}, {short.explain(text).counting.reads.removesuffix(' of item')}"] = _counting(
                over_materialized, short, text
            )
        for name, times in in_turns(runs, repeats, clocks=clocks).items():
            yield Row(title, name, times.values("ms"), "" if name == "plain" else "plain")


def _counting(engine: Engine, session: dpsql.Session, text: str) -> Run:
    counting = session.explain(text).counting
    return lambda: engine.execute(Statement(counting.sql, counting.parameters))


def _kept(title: str, data: Written, known: dpsql.Policy, repeats: int) -> Iterator[Row]:
    """Yield what it takes to materialize the table, and to add a hundredth that was appended."""

    def append() -> None:
        with duckdb.connect(str(data.path)) as connection:
            connection.execute(
                "INSERT INTO events SELECT user_id + 1, item FROM events USING SAMPLE 1 PERCENT (bernoulli, 7)"
            )

    size = data.path.stat().st_size / 2**20
    (file,) = (data.path.parent / "materialized").glob("*.duckdb")
    sizes: dict[str, Value] = {"MiB": file.stat().st_size / 2**20, "data MiB": size}
    yield from _built(title, partial(materialize, known, database=data.path), append, repeats=repeats, sizes=sizes)


def _built(
    title: str,
    build: Callable[..., dict[str, str]],
    append: Callable[[], None],
    *,
    repeats: int,
    sizes: dict[str, Value] | None = None,
    clocks: Clocks = clocks,
) -> Iterator[Row]:
    """Yield the times to add a hundredth that was appended, and to make the same tables again, in turns."""
    taken: dict[str, list[tuple[float, float]]] = {"made": [], "a hundredth appended": []}
    for _ in range(repeats):
        append()
        taken["a hundredth appended"].append(timed(partial(_require, build, "appended"), clocks))
        taken["made"].append(timed(partial(_require, partial(build, again=True), "made"), clocks))
    for name, samples in taken.items():
        more = (sizes or {}) if name == "made" else {}
        against = "" if name == "made" else "made"
        yield Row(f"{title}: dpsql materialize", name, {**Times.of(samples).values(), **more}, against)


def _require(build: Callable[..., dict[str, str]], result: str) -> None:
    found = build()
    if found != {"events": result}:
        raise SystemExit(f"{found} is not {result}")


def _postgres(events: Events, repeats: int) -> Iterator[Row]:
    """Yield the same of PostgreSQL: queries, a build, and rows that are added; CPU is that of its processes too."""
    title = f"{events.rows:,} rows in PostgreSQL"
    with written(events, "parquet") as data, tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o755)  # PostgreSQL runs as somebody else
        duckdb.sql(f"COPY (FROM '{data.path}') TO '{folder / 'events.csv'}' (FORMAT csv, HEADER false)")
        with postgres(folder) as url:
            fill(url, "user_id BIGINT, item TEXT", folder / "events.csv")
            (folder / "events.csv").unlink()
            table = dpsql.PrivateTable("user_id", materialized=[["item"]])
            source = dpsql.DataSource(url, materialized="stored")
            known = dpsql.Policy(BUDGET, {"events": table}, source=source)
            materialize(known)

            def append() -> None:
                with psycopg.connect(url, autocommit=True) as connection:
                    sample = "SELECT user_id + 1, item FROM events TABLESAMPLE BERNOULLI (1)"
                    connection.execute(f"INSERT INTO events {sample}")

            both = partial(server_clocks, folder)
            engines = (open_engine(None, known, materialized=each) for each in (False, True))
            texts = {name: QUERY.format(k=10, options=options) for name, options in list(ASKED.items())[:2]}
            yield from _compared(title, texts, *engines, known=known, repeats=repeats, clocks=both)
            yield from _built(title, partial(materialize, known), append, repeats=repeats, clocks=both)


if __name__ == "__main__":
    alone(__file__)
