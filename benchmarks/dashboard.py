"""What the tiles of a dashboard cost: totals, the days of a year, and rankings, beside the same without privacy.

    python -m benchmarks run dashboard [--rows 10000000] [--threads 2] [--memory 2GB] [--repeats 7] [--quick]

Timed is the engine's part of a query; `fixed` has what happens outside of it. The events are those of `overhead` with a
time stamp in 2026 and an amount up to 100, of which a user adds at most 200 to a group. Rows of one user are cut off in
each group, so a private COUNT(*) or SUM groups by users too, as COUNT(DISTINCT user_id) does without privacy: that is
the row "users, not private". `dpsql materialize` groups by users beforehand: the row "private, materialized".
"""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from program.main import alone
from program.row import Row
from program.times import Run, in_turns
from workload import Events, Written, written

import dpsql
from dpsql.connect import open_session
from dpsql.curator import materialize
from dpsql.engines import Engine, Statement
from dpsql.open_engine import open_engine
from dpsql.policy import Bounds, ColumnBounds

Opened = tuple[Engine, dpsql.Session]
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
SETS = ((), ("item",))
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
    **{
        tile: {
            "private (aim 1.6)": " TOP 10 PRIVATE",
            "private, weights": " TOP 10 PRIVATE WITH (mechanism = weighted_gaussian)",
        }
        for tile in ("COUNT(*) top 10", "SUM top 10")
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
            known = _policy(data)
            materialize(known, database=data.path)
            for threads in given.threads:
                settings = f"{rows:,} rows, threads {threads}, memory {given.memory}"
                limited = replace(known, engine=dpsql.EngineSettings(memory_limit=memory, threads=threads))
                with _opened(data.path, limited, materialized=False) as over, _opened(data.path, limited) as stored:
                    for tile, text in TILES.items():
                        runs = _runs(over, stored, tile=tile, text=text)
                        for name, times in in_turns(runs, given.repeats).items():
                            beside_users = USERS in runs and "materialized" not in name
                            against = "" if name in {"plain", USERS} else USERS if beside_users else "plain"
                            yield Row(f"{tile}, {settings}", name, times.values(), against, note=data.description)


def _policy(data: Written) -> dpsql.Policy:
    tables = {"events": dpsql.PrivateTable("user_id", materialized=SETS, bounds=BOUNDS)}
    return replace(data.policy(), tables=tables, materialized=data.path.parent / "materialized")


@contextmanager
def _opened(path: Path, known: dpsql.Policy, *, materialized: bool = True) -> Iterator[Opened]:
    with (
        closing(open_engine(path, known, materialized=materialized)) as engine,
        open_session(engine, known, ledger=":memory:") as session,
    ):
        yield engine, session


def _runs(over: Opened, stored: Opened, *, tile: str, text: str) -> dict[str, Run]:
    """Return what runs a tile: the plain statement, and the engine's part of the private ones."""
    engine, _ = over
    plain = Statement(text.format(table=".".join(engine.relation("events")), clause=_PLAIN.get(tile, "")))
    runs: dict[str, Run] = {"plain": lambda: engine.execute(plain)}
    if tile in _OF_ROWS:
        users = Statement(_OF_ROWS[tile].sub("COUNT(DISTINCT user_id)", plain.sql))
        runs[USERS] = lambda: engine.execute(users)
    for name, clause in CLAUSES[tile].items():
        asked = text.format(table="events", clause=clause)
        runs[name] = _counting(over, asked)
        if stored[1].explain(asked).counting.reads:
            runs[name.replace("private", "private, materialized", 1)] = _counting(stored, asked)
    return runs


def _counting(opened: Opened, text: str) -> Run:
    engine, session = opened
    counting = session.explain(text).counting
    return lambda: engine.execute(Statement(counting.sql, counting.parameters))


if __name__ == "__main__":
    alone(__file__)
