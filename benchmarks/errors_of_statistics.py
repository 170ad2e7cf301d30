"""Error of each statistic at two numbers of users, beside OpenDP's and that of a plain sample of as many users.

    python -m benchmarks run statistics [--users 1000 100000] [--rows 5] [--repeats 20] [--epsilon 1]
                                        [--environments FOLDER]

Each answer is that of one query which spends a whole budget of (epsilon, 1e-6), over all rows. An error is the distance
from the plain statistic, in percent of it; printed are the median of the errors and their range, and how many answers
were NULL. Values are lognormal(2, 1), and each row's is between 0 and 100; a user has one row, or up to `--rows` by
Zipf's law with the exponent 1.7. Both systems are given these bounds. The rows of "a sample" have the error that the
plain statistic would have if the users were drawn from a larger crowd (bootstrap over users): where it is the larger
one, privacy costs little of what such a number says.

dpsql answers with its default certificate, whose rho is for many queries, and with `pure`, which suits a budget of one.
OpenDP is asked through its data frames, in the environment of `peers`, for the same epsilon without a delta, as that is
what its noise takes there. It has no variance there.
"""

from __future__ import annotations

import json
import math
import subprocess
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from accuracy import terms
from environments import NotInstalledError, python_of
from program.main import alone
from program.row import Row, Value

import dpsql

QUICK = {"users": [300], "repeats": 1, "rows": 3}
MOST, EXPONENT = 100, 1.7
SEED = 11
ITEMS = 500
COLUMNS = {"dpsql": "zcdp", "dpsql, pure": "pure"}  # and their certificates
POLICY = """
[budget]
epsilon = {epsilon}
delta = 1e-6
certificate = "{certificate}"

[tables.events]
privacy_unit = "user_id"

[tables.events.bounds]
rows = {rows}
x = {{ each = {{ min = 0, max = {most} }} }}
item = {{ distinct = {rows} }}
"""


@dataclass(frozen=True, slots=True)
class Statistic:
    """SQL of a statistic, the items of a budget that it costs, and OpenDP's name of it, if it has one.

    A number of users, or of different values, says nothing of a crowd from which they were drawn.
    """

    sql: str
    items: int
    theirs: str = ""
    is_sampled: bool = True


STATISTICS = (
    Statistic("COUNT(DISTINCT user_id)", 1, "users", is_sampled=False),
    Statistic("COUNT(*)", 1, "rows"),
    Statistic("SUM(x)", 1, "sum"),
    Statistic("AVG(x)", 2, "mean"),
    Statistic("MEDIAN(x)", 1, "median"),
    Statistic("QUANTILE_CONT(x, 0.95)", 1, "p95"),
    Statistic("VAR_SAMP(x)", 3),
    Statistic("STDDEV_SAMP(x)", 3),
    Statistic("COUNT(DISTINCT item)", 1, "items", is_sampled=False),
)


def options(parser: ArgumentParser) -> None:
    """Add the sizes, the budget and where OpenDP is installed."""
    parser.add_argument("--users", type=int, nargs="+", default=[1_000, 100_000])
    parser.add_argument("--rows", type=int, default=5, help="most rows of a user")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--epsilon", default="1")
    parser.add_argument("--environments", type=Path, metavar="FOLDER", help="where OpenDP is, or is to be installed")


def run(given: Namespace) -> Iterator[Row]:
    """Measure each statistic over each table."""
    for users in given.users:
        for rows in dict.fromkeys([1, given.rows]):
            with tempfile.TemporaryDirectory() as folder:
                yield from compared(write(Path(folder), users, rows), users, given, rows=rows)


def write(folder: Path, users: int, rows: int) -> Path:
    """Write the events of so many users, each with at most so many rows, as a DuckDB file and as Parquet."""
    drawn = np.random.default_rng(SEED)
    counts = np.minimum(drawn.zipf(EXPONENT, users), rows) if rows > 1 else np.ones(users, np.int64)
    number = int(counts.sum())
    events = pa.table(
        {
            "user_id": np.repeat(np.arange(users), counts),
            "x": np.minimum(np.exp(drawn.normal(2, 1, number)), MOST),
            "item": np.minimum(drawn.zipf(EXPONENT, number), ITEMS),
        }
    )
    path = folder / "events.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.register("drawn", events)
        connection.execute("CREATE TABLE events AS SELECT * FROM drawn")
        connection.execute(f"COPY events TO '{folder / 'events.parquet'}' (FORMAT parquet)")
    return path


def compared(path: Path, users: int, given: Namespace, *, rows: int) -> Iterator[Row]:
    """Yield the errors of each statistic over one table."""
    truth, sampled = plain(path, users, given.repeats)
    title = f"{users:,} users, at most {rows} of their rows, budget ({given.epsilon}, 1e-6): error in % of the truth"
    theirs, note = opendp(path.parent, given, rows=rows)
    for statistic in STATISTICS:
        exact = truth[statistic.sql]
        found = dict[str, Value]()
        for column, certificate in COLUMNS.items():
            ours = [answer(path, statistic, given, rows=rows, certificate=certificate) for _ in range(given.repeats)]
            found |= {column: errors(ours, exact), f"NULL ({certificate})": sum(each is None for each in ours)}
        if statistic.is_sampled:
            found["a sample"] = errors(sampled[statistic.sql], exact)
        if statistic.theirs in theirs:
            found["OpenDP"] = errors(theirs[statistic.theirs], exact)
        yield Row(title, statistic.sql, found, note=note)


def errors(values: Sequence[float | None], exact: float) -> Value:
    """Return the distances from the truth, in percent of it; words where every answer is NULL."""
    return [100 * abs(value - exact) / exact for value in values if value is not None] or "NULL"


def plain(path: Path, users: int, repeats: int) -> tuple[Mapping[str, float], Mapping[str, Sequence[float]]]:
    """Return the plain statistics, and those of as many users as there are, drawn with replacement."""
    names = [statistic.sql for statistic in STATISTICS]
    columns = ", ".join(statistic.sql for statistic in STATISTICS)
    drawn = np.random.default_rng(SEED)
    samples = list[tuple[float, ...]]()
    with duckdb.connect(str(path), read_only=True) as connection:
        [exact] = connection.execute(f"SELECT {columns} FROM events").fetchall()  # noqa: S608 - from above
        for _ in range(repeats):
            picked = pa.table({"old": drawn.integers(0, users, users), "new": np.arange(users)})
            connection.register("picked", picked)
            again = "(SELECT new AS user_id, x, item FROM picked JOIN events ON events.user_id = old)"
            samples += connection.execute(f"SELECT {columns} FROM {again}").fetchall()  # noqa: S608
    columns_of_samples = zip(*samples, strict=True)
    return dict(zip(names, exact, strict=True)), dict(zip(names, map(list, columns_of_samples), strict=True))


def answer(path: Path, statistic: Statistic, given: Namespace, *, rows: int, certificate: str) -> float | None:
    """Return one released answer, which spends a whole budget."""
    policy, epsilon = Path(path.parent, "policy.toml"), given.epsilon
    text = POLICY.format(epsilon=epsilon, rows=rows, most=MOST, certificate=certificate)
    policy.write_text(text, encoding="utf-8")
    square = 8 * terms(epsilon, "1e-6").rho.value / statistic.items
    if certificate == "pure":
        square = (Fraction(epsilon) / statistic.items) ** 2
    item = f"{math.isqrt(math.floor(square * 10**16)) / 10**8:.8f}"
    with dpsql.connect(path, policy=policy, ledger=":memory:") as session:
        text = f"SELECT {statistic.sql} FROM events PRIVATE WITH (epsilon = {item})"  # noqa: S608 - from above
        [[value]] = session.sql(text).fetchall()
    return None if value is None else float(value)


def opendp(folder: Path, given: Namespace, *, rows: int) -> tuple[Mapping[str, Sequence[float]], str]:
    """Return what OpenDP answers to each statistic, or nothing and the reason."""
    try:
        python = python_of("opendp", given.environments)
    except NotInstalledError as error:
        return {}, f"OpenDP: {error}"
    script = Path(__file__).parent / "beside_statistics" / "opendp.py"
    words = [python, "-P", script, folder, str(rows), str(MOST), given.epsilon, str(given.repeats)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
    if done.returncode:
        return {}, f"OpenDP: {(done.stderr.strip().splitlines() or ['ended'])[-1][:300]}"
    return json.loads(done.stdout), f"OpenDP {json.loads(done.stdout)['version'][0]}"


if __name__ == "__main__":
    alone(__file__)
