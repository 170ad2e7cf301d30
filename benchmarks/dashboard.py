"""What the tiles of a dashboard cost: a total, and the days of a year, beside the same statements without privacy.

    python -m benchmarks run dashboard [--rows 10000000] [--threads 2] [--memory 2GB] [--repeats 7] [--quick]

Timed is the engine's part of a query; `fixed` has what happens outside of it. The events are those of `overhead` with a
time stamp in 2026.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass

from program.main import alone
from program.row import Row
from program.times import Run, in_turns
from workload import Events, TimedEngine, opened, written

import dpsql
from dpsql.engines import Statement

QUICK = {"rows": [3_000], "threads": [1], "repeats": 1}
TILES = {
    "total": "SELECT COUNT(DISTINCT user_id) AS n FROM {table}{clause}",
    "365 days": (
        "SELECT date_trunc('day', moment) AS day, COUNT(DISTINCT user_id) AS n FROM {table} "
        "WHERE moment >= TIMESTAMP '2026-01-01' AND moment < TIMESTAMP '2027-01-01' GROUP BY day{clause}"
    ),
}
CLAUSES = {
    "total": {"private (aim 1.3)": " PRIVATE"},
    "365 days": {
        "private (aim 1.6)": " ALL PRIVATE",
        "each user in at most 5": " ALL PRIVATE WITH (max_groups_contributed = 5)",
    },
}


@dataclass(frozen=True, slots=True)
class TimedEvents(Events):
    """Events with the time stamp `moment`."""

    @property
    def sql(self) -> str:
        """A SELECT of them."""
        minute = "CAST(hash(user_id, item) % 525600 AS INTEGER)"
        events = super(TimedEvents, self).sql  # slots make a new class, which a bare super() does not know
        return f"SELECT *, TIMESTAMP '2026-01-01' + {minute} * INTERVAL 1 MINUTE AS moment FROM ({events})"  # noqa: S608


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
                with opened(data, threads=threads, memory=memory) as (engine, session):
                    for tile, text in TILES.items():
                        runs = _runs(engine, session, tile=tile, text=text)
                        for name, times in in_turns(runs, given.repeats).items():
                            against = "" if name == "plain" else "plain"
                            yield Row(f"{tile}, {settings}", name, times.values(), against, note=data.description)


def _runs(engine: TimedEngine, session: dpsql.Session, *, tile: str, text: str) -> dict[str, Run]:
    """Return what runs a tile: the plain statement, and the engine's part of the private ones."""
    plain = Statement(text.format(table=".".join(engine.relation("events")), clause=""))
    runs: dict[str, Run] = {"plain": lambda: engine.execute(plain)}
    for name, clause in CLAUSES[tile].items():
        counting = session.explain(text.format(table="events", clause=clause)).counting
        runs[name] = _counting(engine, Statement(counting.sql, counting.parameters))
    return runs


def _counting(engine: TimedEngine, statement: Statement) -> Run:
    return lambda: engine.execute(statement)


if __name__ == "__main__":
    alone(__file__)
