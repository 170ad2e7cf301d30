"""Other systems beside dpsql, on the same data and the same question: time, memory, recall, and lines to write.

    python -m benchmarks run peers [--environments FOLDER] [--rows 2000000 | --hard] [--k 10 100] [--bound 5]
                                   [--systems dpsql smartnoise opendp ...] [--repeats 3]

The question is which k items most users have, when nobody listed the items, for (1, 1e-6) in all and whole users. What
each system is asked stands in `beside/`, as a user would write it; its lines are counted, blank ones and comments not.
A bound on the items of a user is `--bound` where a system wants one. Each system has an environment of its own, in
FOLDER/NAME, which is made, by pip, of what `beside/NAME.txt` pins, unless it is there. What is not installed or fails
says why.

Each runs in a process of its own, which loads the data; then it is asked once, while the memory of it and its children
is looked at. After a warm-up it is asked in turns, and each time the plain query runs just before and just after, in
its own process: a ratio is of one turn, to the mean of those two. The row "plain" is told in the same way, and so shows
how far the machine is to be trusted. Recall is the share of the true top k, ties as hits, in the mean of all answers
and in the least of them. The events are those of `hard_case`, with a twentieth as many users as rows; `--hard` is that
case, where recall differs most.
"""

from __future__ import annotations

import ast
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean

import duckdb
from asked import Answering, FailedError, Way, most_held, spent
from environments import FOLDER, NotInstalledError, python_of
from hard_case import plain as truth_of
from hard_case import write
from program.main import alone
from program.row import Row, Value
from program.times import Run, Times, in_turns

QUICK = {"rows": 5_000, "k": [5], "repeats": 1}
HARD = 200_000
ITEMS = 50_000
COUNTS = ", COUNT(DISTINCT user_id) AS n"
OURS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "plain": {"plain": ()},
    "dpsql": {
        "dpsql": (),
        "dpsql, with counts": (COUNTS,),
        "dpsql, limited_domain": ("", "WITH (mechanism = limited_domain)"),
        "dpsql, weighted_gaussian": ("", "WITH (mechanism = weighted_gaussian)"),
    },
}
OTHERS = ("smartnoise", "opendp", "pipelinedp", "qrlew", "tmlt")
BEGIN, END = "# what a user writes", "# to here"


@dataclass(frozen=True, slots=True)
class Data:
    """Events in a folder, in each form that a system reads, and the number of users of each item."""

    folder: Path
    title: str
    truth: Mapping[str, int]

    def recall(self, items: Sequence[str], k: int) -> float:
        """Return the share of the top k that is among some items; what ties with the last is as good."""
        kth = sorted(self.truth.values(), reverse=True)[k - 1]
        return sum(self.truth.get(item, 0) >= kth for item in {*items[:k]}) / k


@dataclass(frozen=True, slots=True)
class Asking:
    """A system, what else its script takes, a number of items, and what the command line says."""

    system: str
    more: Sequence[str]
    k: int
    given: Namespace

    def begun(self, data: Data) -> Answering:
        """Return its process, which loads the data."""
        ours = self.system in OURS
        python = Path(sys.executable) if ours else python_of(self.system, self.given.environments)
        way = Way(python, FOLDER / f"{self.system}.py", self.given.bound, self.more)
        return Answering(way, data.folder, patience=self.given.patience)


def options(parser: ArgumentParser) -> None:
    """Add the size, the systems and where they are installed."""
    parser.add_argument("--environments", type=Path, metavar="FOLDER", help="where they are, or are to be made")
    parser.add_argument("--systems", nargs="+", default=[*OURS, *OTHERS], choices=[*OURS, *OTHERS], metavar="SYSTEM")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--hard", dest="rows", action="store_const", const=HARD, help=f"{HARD:,} rows: the hard case")
    parser.add_argument("--k", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--bound", type=int, default=5, help="most items of a user, where a system wants to know")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--patience", type=float, default=900.0, help="seconds for one answer")


def run(given: Namespace) -> Iterator[Row]:
    """Count lines, write the data, and ask each system each question."""
    for name in given.systems:
        yield Row("what a user writes", name, {"lines": len(lines(name))}, note=f"{name}: {purpose(name)}")
    with tempfile.TemporaryDirectory() as folder:
        data = written(Path(folder), given.rows)
        for k in given.k:
            title = f"top {k} of {data.title}; at most {given.bound} items of a user, for systems that want a bound"
            with Asking("plain", (), k, given).begun(data) as plain:
                plain.loaded()
                for system in given.systems:
                    for name, more in OURS.get(system, {system: ()}).items():
                        yield beside(Row(title, name, {}), Asking(system, more, k, given), data, plain=plain)


def beside(row: Row, asking: Asking, data: Data, *, plain: Answering) -> Row:
    """Return a row with what was measured of a system, or with the reason why nothing was."""
    answers: list[list[str]] = []
    try:
        with asking.begun(data) as asked:
            with most_held(asked.pid) as most:
                versions, start = asked.loaded()
                answers.append(asked.ask(asking.k))
            taken = between(plain, asked, asking, answers=answers)
    except (NotInstalledError, FailedError) as error:
        return replace(row, values={"wall s": "not run"}, note=f"{asking.system}: {error}")
    recalls = [data.recall(items, asking.k) for items in answers]
    found: dict[str, Value] = {
        "wall s": taken["asked"].wall,
        **ratios(taken),
        "recall": fmean(recalls),
        "least": min(recalls),
        "start s": start,
        **({"peak MiB": round(most[0])} if most[0] else {}),  # not every system says what a process holds
    }
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    return replace(row, values=found, note=f"{asking.system}: {told}.")


def between(plain: Answering, asked: Answering, asking: Asking, *, answers: list[list[str]]) -> dict[str, Times]:
    """Return the times of a system and of the plain query before and after it, and keep its answers."""
    ask_plain = partial(plain.ask, asking.k)
    runs: dict[str, Run] = {
        "before": ask_plain,
        "asked": lambda: answers.append(asked.ask(asking.k)),
        "after": ask_plain,
    }
    return in_turns(
        runs, asking.given.repeats, clocks=lambda: (spent(plain.pid) + spent(asked.pid), time.perf_counter())
    )


def ratios(taken: Mapping[str, Times]) -> dict[str, Value]:
    """Return how many times the plain query each turn took, on the clock and of CPU, as far as that can be told."""
    found: dict[str, Value] = {}
    for column in ("wall s", "CPU s"):
        before, asked, after = (taken[name].values()[column] for name in ("before", "asked", "after"))
        turns = [2 * own / (one + other) for one, own, other in zip(before, asked, after, strict=True) if one + other]
        if turns:  # the plain query may take less CPU than a system counts
            found[f"{column.split()[0]} x plain"] = turns
    return found


def written(folder: Path, rows: int) -> Data:
    """Write events into a folder, as a DuckDB file, as Parquet and as CSV."""
    users, database = rows // 20, folder / "events.duckdb"
    write(database, users, rows=rows, items=ITEMS)
    with duckdb.connect(str(database), read_only=True) as connection:
        connection.execute(f"COPY events TO '{folder / 'events.parquet'}' (FORMAT parquet)")
        connection.execute(f"COPY events TO '{folder / 'events.csv'}' (FORMAT csv, HEADER)")
    truth, _ = truth_of(database)
    return Data(folder, f"{rows:,} events of {users:,} users, {len(truth):,} items", truth)


def lines(system: str) -> list[str]:
    """Return the lines that a user of a system writes: neither blank nor a comment, between two marks of its script."""
    [_, after] = (FOLDER / f"{system}.py").read_text(encoding="utf-8").split(f"\n{BEGIN}\n")
    [within, _] = after.split(f"\n{END}\n")
    return [line for line in within.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def purpose(system: str) -> str:
    """Return what the script of a system says of it: how it is asked, and what it cannot."""
    return " ".join((ast.get_docstring(ast.parse((FOLDER / f"{system}.py").read_text(encoding="utf-8"))) or "").split())


if __name__ == "__main__":
    alone(__file__)
