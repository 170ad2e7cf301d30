"""What the time of a query tells of one unit: the same statements with and without it, in turns.

    python benchmarks/timing.py [--rows 1000000] [--repeats 80] [--grid 128] [--quick]

Two databases differ in the rows of one unit. Each statement is asked of both, in turns, through a session as an analyst
would ask it, with new noise each time and a ledger in memory: in process, in a worker, and in a worker whose answers
leave on a grid of times (`answer_grid_ms`), there two fifths as often. The program prints the medians on the clock; the
median of the differences between turns, with an interval that covers it with a chance of at least 95 % whatever the
times are distributed like (from order statistics); and the largest distance between the two distributions of times with
the chance of one as large between equal ones (Kolmogorov and Smirnov, two-sided, for large samples).

An interval without 0, or a small chance, says that whoever can time the session so often can tell. One with 0 says that
so few turns do not show it, not that it cannot be seen. Nothing is asserted of either. It is made to take some minutes
on two quiet processors; on a busy machine the times are those of the others.
"""

from __future__ import annotations

import argparse
import math
import platform
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import duckdb
import numpy as np

import dpsql

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
    """Return how many milliseconds an answer took, drawn anew."""
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


def report(files: Sequence[Path], engine: dpsql.EngineSettings, *, name: str, repeats: int) -> None:
    """Print a line for each statement, asked in one way."""
    policy = dpsql.Policy(BUDGET, TABLES, engine=engine)
    with ExitStack() as open_:
        sessions = [open_.enter_context(dpsql.connect(file, policy=policy, ledger=":memory:")) for file in files]
        for what, text in STATEMENTS.items():
            present, absent = zip(*turns(sessions, text, repeats=repeats), strict=True)
            differences = [here - there for here, there in zip(present, absent, strict=True)]
            low, high = interval(differences)
            largest, chance = distance(present, absent)
            print(
                f"{name:10} {what:24} {median(present):9.2f} {median(absent):9.2f} {median(differences):+9.2f} "
                f"{low:+9.2f} {high:+9.2f} {largest:9.2f} {chance:9.1e}"
            )


def report_all(folder: Path, rows: int, *, repeats: int, grid: int) -> None:
    """Print the table: in process, in a worker, in a worker on a grid."""
    files = [written(folder, rows, victim=victim) for victim in (True, False)]
    print(f"duckdb {duckdb.__version__}, {platform.machine()}, {rows:,} rows, {repeats} turns, grid of {grid} ms")
    print(
        f"{'how':10} {'what is asked':24} {'with, ms':>9} {'without':>9} {'differ':>9} {'from':>9} {'to (95%)':>9} "
        f"{'distance':>9} {'chance':>9}"
    )
    gridded = max(1, round(GRID_SHARE * repeats))
    report(files, dpsql.EngineSettings(), name="in process", repeats=repeats)
    report(files, dpsql.EngineSettings(isolation="process"), name="worker", repeats=repeats)
    report(files, dpsql.EngineSettings(isolation="process", answer_grid_ms=grid), name="on a grid", repeats=gridded)


def main() -> None:
    """Read the arguments and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=80)
    parser.add_argument("--grid", type=int, default=128, help="milliseconds of the first step of the grid")
    parser.add_argument("--quick", action="store_true", help="a few rows and repeats, to see that it runs")
    given = parser.parse_args()
    rows, repeats, grid = (2_000, 6, 16) if given.quick else (given.rows, given.repeats, given.grid)
    with tempfile.TemporaryDirectory() as folder:
        report_all(Path(folder), rows, repeats=repeats, grid=grid)


if __name__ == "__main__":
    main()
