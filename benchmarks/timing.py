"""What the time of a query tells of one unit: the same statements with and without it, in turns.

    python -m benchmarks run timing [--rows 1000000] [--repeats 80] [--grid 128]

Two databases differ in the rows of one unit. Each statement is asked of both, in turns, through a session as an analyst
would ask it, with new noise each time and a ledger in memory: in process, in a worker, and in a worker whose answers
leave on a grid of times (`answer_grid_ms`), there two fifths as often. Told are the times on the clock; the median of
the differences between turns, with an interval that covers it with a chance of at least 95 % whatever the times are
distributed like (from order statistics); and the largest distance between the two distributions of times with the
chance of one as large between equal ones (Kolmogorov and Smirnov, two-sided, for large samples).

An interval without 0, or a small chance, says that whoever can time the session so often can tell. One with 0 says that
so few turns do not show it, not that it cannot be seen. Nothing is asserted of either. It is made to take some minutes
on two quiet processors; on a busy machine the times are those of the others.
"""

from __future__ import annotations

import math
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import duckdb
import numpy as np
from program.main import alone
from program.row import Row

import dpsql

QUICK = {"rows": 2_000, "repeats": 6, "grid": 16}
VICTIM = 999_999_999
STATEMENTS = {
    "its rows alone": "SELECT article FROM reads WHERE user_id = 999999999 GROUP BY article TOP 10 PRIVATE",
    "a label of its own": "SELECT article FROM reads WHERE article = 'VICTIM' GROUP BY article TOP 10 PRIVATE",
    "every row": "SELECT article FROM reads GROUP BY article TOP 10 PRIVATE",
    "text that grows for it": (
        "SELECT length(CASE WHEN user_id = 999999999 THEN replace(article, 'V', 'xxxxxxxxxxxx') ELSE '' END) AS k "
        "FROM reads GROUP BY k TOP 10 PRIVATE"
    ),
    "a pattern for it": (
        "SELECT article FROM reads WHERE user_id = 999999999 AND regexp_matches(article, '(a|b)*V.*(x+x+)+y') "
        "GROUP BY article TOP 10 PRIVATE"
    ),
    "its windows": (
        "SELECT article FROM (SELECT user_id, article FROM reads "
        "QUALIFY row_number() OVER (PARTITION BY user_id ORDER BY article) = 1) AS t GROUP BY article TOP 10 PRIVATE"
    ),
}
BUDGET = dpsql.Budget(100, "1e-3", items=1_000_000, queries=100_000)
TABLES = {"reads": dpsql.PrivateTable("user_id")}
GRID_SHARE = 0.4  # of the repeats, where every answer waits


def written(folder: Path, rows: int, *, victim: bool) -> Path:
    """Return a database of reads, with or without 100 rows of the victim among them."""
    file = folder / ("with" if victim else "without")
    with duckdb.connect(file) as connection:
        connection.execute(
            "CREATE TABLE reads AS SELECT i * 7919 % ($1 // 20 + 1) AS user_id, 'article ' || i * 31 % 5003 AS article "
            "FROM range($1) AS t(i)",
            [rows],
        )
        if victim:
            connection.execute("INSERT INTO reads SELECT $1, 'VICTIM' FROM range(100)", [VICTIM])
    return file


def distance(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """Return the largest distance of two samples' distributions, and the chance of one as large between equals."""
    every = np.sort(np.concatenate([first, second]))
    shares = [np.searchsorted(np.sort(sample), every, side="right") / len(sample) for sample in (first, second)]
    largest = float(np.abs(shares[0] - shares[1]).max())
    scaled = largest * math.sqrt(len(first) * len(second) / (len(first) + len(second)))
    terms = ((-1) ** (n - 1) * math.exp(-2 * (n * scaled) ** 2) for n in range(1, 101))
    return largest, min(1.0, max(0.0, 2 * sum(terms))) if scaled > 0.2 else 1.0  # noqa: PLR2004 - below it, it is 1


def interval(values: Sequence[float], miss: float = 0.05) -> tuple[float, float]:
    """Return two of the values between which the median of their law lies, but with a chance of at most `miss`.

    So many values below the median are a binomial number, whatever the law; too few values give the whole line.
    """
    ranked, number = sorted(values), len(values)
    below, chance = 0, 0.5**number
    while 2 * chance <= miss:
        below += 1
        chance += math.comb(number, below) * 0.5**number
    return (-math.inf, math.inf) if below == 0 else (ranked[below - 1], ranked[number - below])


def timed(session: dpsql.Session, text: str) -> float:
    """Return how many milliseconds an answer took, drawn again."""
    began = time.perf_counter()
    session.sql(f"{text} WITH (fresh = true)")
    return (time.perf_counter() - began) * 1e3


def turns(sessions: Sequence[dpsql.Session], text: str, *, repeats: int) -> list[tuple[float, float]]:
    """Return the times of both in every turn but the first; they take turns in going first, too."""
    found = []
    for turn in range(repeats + 1):
        order = (0, 1) if turn % 2 else (1, 0)
        times = {which: timed(sessions[which], text) for which in order}
        found.append((times[0], times[1]))
    return found[1:]


def compared(files: Sequence[Path], engine: dpsql.EngineSettings, *, name: str, repeats: int) -> Iterator[Row]:
    """Yield a row for each statement, asked in one way."""
    policy = dpsql.Policy(BUDGET, TABLES, engine=engine)
    with ExitStack() as open_:
        sessions = [open_.enter_context(dpsql.connect(file, policy=policy, ledger=":memory:")) for file in files]
        for what, text in STATEMENTS.items():
            present, absent = zip(*turns(sessions, text, repeats=repeats), strict=True)
            differences = [here - there for here, there in zip(present, absent, strict=True)]
            low, high = interval(differences)
            largest, chance = distance(present, absent)
            times = {"with, ms": present, "without, ms": absent, "differ": median(differences)}
            tests = {"from": low, "to (95%)": high, "distance": largest, "chance": chance}
            yield Row(f"{name}, {len(present)} turns", what, {**times, **tests})


def options(parser: ArgumentParser) -> None:
    """Add size, turns and grid."""
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=80)
    parser.add_argument("--grid", type=int, default=128, help="milliseconds of the first step of the grid")


def run(given: Namespace) -> Iterator[Row]:
    """Ask in process, in a worker, in a worker on a grid."""
    gridded = max(1, round(GRID_SHARE * given.repeats))
    with tempfile.TemporaryDirectory() as folder:
        files = [written(Path(folder), given.rows, victim=victim) for victim in (True, False)]
        worker = dpsql.EngineSettings(isolation="process")
        on_grid = dpsql.EngineSettings(isolation="process", answer_grid_ms=given.grid)
        yield from compared(files, dpsql.EngineSettings(), name="in process", repeats=given.repeats)
        yield from compared(files, worker, name="in a worker", repeats=given.repeats)
        yield from compared(files, on_grid, name=f"on a grid of {given.grid} ms", repeats=gridded)


if __name__ == "__main__":
    alone(__file__)
