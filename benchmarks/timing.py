"""What the time of a query tells of one unit: the same statements with and without it, in turns.

    python benchmarks/timing.py [--rows 1000000] [--repeats 200] [--quick]

Two databases differ in the rows of one unit. Each statement is asked of both, in turns, of the engine as a session
would ask it, without ledger and noise, and the program prints the medians on the clock, their ratio, and the largest
distance between the two distributions of times with the chance of one as large between equal ones (Kolmogorov and
Smirnov, two-sided, for large samples). A small chance says that whoever can time this engine so often can tell: nothing
is asserted of it. In a process of its own, `answer_grid_ms` puts answers on multiples of a grid.
"""

from __future__ import annotations

import argparse
import math
import platform
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import duckdb
import numpy as np

import dpsql
from dpsql.engines import Statement
from dpsql.engines.duckdb import DuckDBEngine

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
POLICY = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PrivateTable("user_id")})


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


def timed(engine: DuckDBEngine, statement: Statement) -> float:
    """Return how many milliseconds the engine took."""
    began = time.perf_counter()
    engine.execute(statement)
    return (time.perf_counter() - began) * 1e3


def report(folder: Path, rows: int, *, repeats: int) -> None:
    """Print a line for each statement."""
    files = [written(folder, rows, victim=victim) for victim in (True, False)]
    print(f"duckdb {duckdb.__version__}, {platform.machine()}, {rows:,} rows, {repeats} repeats in turns")
    print(f"{'what is asked':24} {'with, ms':>10} {'without':>10} {'ratio':>7} {'distance':>9} {'chance':>9}")
    with dpsql.connect(files[0], policy=POLICY, ledger=":memory:") as session:
        plans = {name: session.explain(text).counting for name, text in STATEMENTS.items()}
    engines = [DuckDBEngine.open(file, {"reads": None}) for file in files]
    for name, counting in plans.items():
        statement = Statement(counting.sql, counting.parameters)
        times = [[timed(engine, statement) for engine in engines] for _ in range(repeats + 1)][1:]
        present, absent = zip(*times, strict=True)
        largest, chance = distance(present, absent)
        here, there = median(present), median(absent)
        print(f"{name:24} {here:10.2f} {there:10.2f} {here / there:7.2f} {largest:9.2f} {chance:9.1e}")
    for engine in engines:
        engine.close()


def main() -> None:
    """Read the arguments and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--quick", action="store_true", help="a few rows and repeats, to see that it runs")
    given = parser.parse_args()
    rows, repeats = (2_000, 5) if given.quick else (given.rows, given.repeats)
    with tempfile.TemporaryDirectory() as folder:
        report(Path(folder), rows, repeats=repeats)


if __name__ == "__main__":
    main()
