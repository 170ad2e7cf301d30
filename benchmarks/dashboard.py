"""What the tiles of a dashboard cost: totals, the days of a year, and rankings, beside the same without privacy.

    python -m benchmarks run dashboard [--rows 10000000] [--threads 2] [--memory 2GB] [--repeats 7] [--quick]

Timed is the engine's part of a query; `fixed` has what happens outside of it. The events are those of `overhead` with a
time stamp in 2026 and an amount up to 100, of which a user adds at most 200 to a group. Rows of one user are cut off in
each group, so a private COUNT(*) or SUM groups by users too, as COUNT(DISTINCT user_id) does without privacy: that is
the row "users, not private".
"""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from program.main import alone
from program.row import Row
from program.times import Run, in_turns
from workload import Events, TimedEngine, opened, written

import dpsql
from dpsql.engines import Statement
from dpsql.policy import Bounds, ColumnBounds

BOUNDS = Bounds(20, (("amount", ColumnBounds(Fraction(0), Fraction(200))),))
QUICK = {"rows": [3_000], "threads": [1], "repeats": 1}
TILES = {
    "total": "SELECT COUNT(DISTINCT user_id) AS n FROM {table}{clause}",
    "365 days": (
        "SELECT date_trunc('day', moment) AS day, COUNT(DISTINCT user_id) AS n FROM {table} "
        "WHERE moment >= TIMESTAMP '2026-01-01' AND moment < TIMESTAMP '2027-01-01' GROUP BY day{clause}"
    ),
    "total of sums": "SELECT COUNT(*) AS n, SUM(amount) AS s FROM {table}{clause}",
    "COUNT(*) top 10": "SELECT item, COUNT(*) AS n FROM {table} GROUP BY item{clause}",
    "SUM top 10": "SELECT item, SUM(amount) AS s FROM {table} GROUP BY item{clause}",
}
USERS = "users, not private"
_OF_ROWS = {
    "total of sums": re.compile(r"COUNT\(\*\)"),
    **{tile: re.compile(r"COUNT\(\*\)|SUM\(amount\)") for tile in ("COUNT(*) top 10", "SUM top 10")},
}
_PLAIN = {"COUNT(*) top 10": " ORDER BY n DESC LIMIT 10", "SUM top 10": " ORDER BY s DESC LIMIT 10"}
CLAUSES = {
    "total": {"private (aim 1.3)": " PRIVATE"},
    "365 days": {
        "private (aim 1.6)": " ALL PRIVATE",
        "each user in at most 5": " ALL PRIVATE WITH (max_groups_contributed = 5)",
    },
    "total of sums": {"private (aim 1.3)": " PRIVATE"},
    "COUNT(*) top 10": {"private (aim 1.6)": " TOP 10 PRIVATE"},
    "SUM top 10": {"private (aim 1.6)": " TOP 10 PRIVATE"},
}


@dataclass(frozen=True, slots=True)
class TimedEvents(Events):
    """Events with the time stamp `moment`."""

    @property
    def sql(self) -> str:
        """A SELECT of them."""
        minute = "CAST(hash(user_id, item) % 525600 AS INTEGER)"
        events = super(TimedEvents, self).sql  # slots make a new class, which a bare super() does not know
        moment = f"TIMESTAMP '2026-01-01' + {minute} * INTERVAL 1 MINUTE"
        return f"SELECT *, {moment} AS moment, hash(item, user_id) % 10000 / 1e2 AS amount FROM ({events})"  # noqa: S608


def options(parser: ArgumentParser) -> None:
    """Add the sizes and the settings."""
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000_000])
    parser.add_argument("--threads", type=int, nargs="+", default=[2])
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--repeats", type=int, default=7)


def run(given: Namespace) -> Iterator[Row]:
    """Time each tile without privacy and with it, in turns."""
    memory = None if given.memory == "none" else given.memory
    for rows in given.rows:
        with written(TimedEvents(rows, max(1, rows // 10)), memory=memory) as data:
            for threads in given.threads:
                settings = f"{rows:,} rows, threads {threads}, memory {given.memory}"
                with opened(replace(data, bounds=BOUNDS), threads=threads, memory=memory) as (engine, session):
                    for tile, text in TILES.items():
                        runs = _runs(engine, session, tile=tile, text=text)
                        for name, times in in_turns(runs, given.repeats).items():
                            against = "" if name in {"plain", USERS} else USERS if USERS in runs else "plain"
                            yield Row(f"{tile}, {settings}", name, times.values(), against, note=data.description)


def _runs(engine: TimedEngine, session: dpsql.Session, *, tile: str, text: str) -> dict[str, Run]:
    """Return what runs a tile: the plain statement, and the engine's part of the private ones."""
    plain = Statement(text.format(table=".".join(engine.relation("events")), clause=_PLAIN.get(tile, "")))
    runs: dict[str, Run] = {"plain": lambda: engine.execute(plain)}
    if tile in _OF_ROWS:
        users = _OF_ROWS[tile].sub("COUNT(DISTINCT user_id)", plain.sql)
        runs[USERS] = _counting(engine, Statement(users))
    for name, clause in CLAUSES[tile].items():
        counting = session.explain(text.format(table="events", clause=clause)).counting
        runs[name] = _counting(engine, Statement(counting.sql, counting.parameters))
    return runs


def _counting(engine: TimedEngine, statement: Statement) -> Run:
    return lambda: engine.execute(statement)


if __name__ == "__main__":
    alone(__file__)
