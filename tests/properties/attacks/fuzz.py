"""The gates for statements of the whole grammar, as a library for the tests and as a script for long runs.

    python tests/properties/attacks/fuzz.py --statements 5000000 --seed 1
    python tests/properties/attacks/fuzz.py --stability 20000 --seed 1

The first asks of every statement: a `dpsql.Error` or SQL that by DuckDB's own parse is one SELECT over declared tables
with functions of the allow-list, that runs on a database of extreme values, and that counts what DuckDB counts by the
statement's own text. The second drops each unit in turn from random databases, each asked 8 accepted statements.
Both print what was accepted, by construct, and every failure with the number that makes its statement again, and end
with 1 if there was any. `--processes` says how many work at once.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from random import Random

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[3])]

import duckdb
from properties.attacks.sentences import Sentence, sentence
from properties.attacks.stability import counts_of, fill, moved_too_far, opened, small
from properties.attacks.verdicts import PRIVATE, PUBLIC, fault_of, forms, outcome, private_part, run
from support.sql_reference import catalog_of, corpus_tables, private, reference_counts

from dpsql.errors import Error
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import rewrite_leaders

__all__ = ["Tally", "accepted", "adversarial_tables", "corpus_summary", "fuzzed", "stable", "together"]

ASKED = 8  # statements to each database
_BATCH = 2_000
# passes over NULL, which SQL does not
_NULL_AMONG_UNITS = re.compile(r"NOT IN \(SELECT \S*\b(?:user_id|other)\b", re.IGNORECASE)
_EXTREME = """
    INSERT INTO reads SELECT unit, article, country, ts, dwell FROM
        (VALUES (NULL), (1), (9223372036854775807), (-9223372036854775808)) AS u(unit),
        (VALUES (NULL), (''), (repeat('x', 3000)), ('Straße\u0301'), ('\U0001f642'), ('12'), ('%_')) AS a(article),
        (VALUES (NULL), ('DE'), ('2026-01-31')) AS c(country),
        (VALUES (NULL), ('infinity'::TIMESTAMP), ('-infinity'::TIMESTAMP), ('294247-01-10 04:00:54.775806'::TIMESTAMP),
            ('290309-12-22 (BC) 00:00:00'::TIMESTAMP)) AS t(ts),
        (VALUES ('nan'::DOUBLE), ('-inf'::DOUBLE), (1.7e308), (5e-324), (-0.0), (NULL)) AS d(dwell);
    INSERT INTO likes SELECT DISTINCT user_id, article, ts FROM reads WHERE dwell IS NULL;
    INSERT INTO likes SELECT * FROM likes WHERE article IS NULL;
    INSERT INTO users VALUES (1, 2147483647, ''), (1, -2147483648, NULL), (NULL, 0, 'x'), (9223372036854775807, 0, '%')
"""


@dataclass
class Tally:
    """What came of statements: how many with each construct, how many of them accepted, and what failed."""

    tried: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        for name in ("tried", "accepted", "refused", "checked"):
            getattr(self, name).update(getattr(other, name))
        self.failures += other.failures

    def lines(self) -> Iterator[str]:
        """Yield a summary."""
        for name, number in sorted(self.tried.items()):
            yield f"{name:24}{number:10}{self.accepted[name] / number:8.1%} accepted"
        for title, counter in (("refused", self.refused), ("checked", self.checked)):
            yield f"{title}: " + ", ".join(f"{name} {number}" for name, number in counter.most_common())
        yield from self.failures[:20]
        yield f"{len(self.failures)} failures"


def adversarial_tables(rows: int = 400) -> duckdb.DuckDBPyConnection:
    """Return the corpus's tables with rows of extreme values, about so many in the largest."""
    con = corpus_tables()
    con.execute(_EXTREME)
    con.execute(f"CREATE TEMP TABLE chosen AS SELECT * FROM reads USING SAMPLE reservoir({rows} ROWS) REPEATABLE (7)")
    con.execute("DELETE FROM reads; INSERT INTO reads SELECT * FROM chosen; DROP TABLE chosen")
    con.execute("PRAGMA threads=1")
    return con


@dataclass
class _Laboratory:
    """The databases of one process."""

    hostile: duckdb.DuckDBPyConnection = field(default_factory=adversarial_tables)
    small: duckdb.DuckDBPyConnection = field(default_factory=lambda: opened(1))
    catalog: Catalog = field(init=False)

    def __post_init__(self) -> None:
        self.catalog = catalog_of(self.hostile, dict.fromkeys(PRIVATE, "user_id"), PUBLIC)
        private("SELECT age FROM users GROUP BY age TOP 1 PRIVATE", self.catalog)  # imports the parser


@cache
def _laboratory() -> _Laboratory:
    """Return the one of this process: `hostile` is only read, and `small` is filled again before it is."""
    return _Laboratory()


def fuzzed(numbers: Iterable[int], *, seed: int, every: int) -> Tally:
    """Try statements by their numbers; parse and run the SQL of every so many accepted, in each form of bounding."""
    laboratory, tally, count = _laboratory(), Tally(), 0
    for number in numbers:
        spoken = sentence(Random(f"{seed} {number}"))
        names = [*spoken.constructs, "all"]
        tally.tried.update(names)
        try:
            found = outcome(spoken.text, laboratory.catalog)
            if isinstance(found, Error):
                tally.refused[found.code] += 1
                continue
            tally.accepted.update(names)
            count += 1
            if count % every == 0:
                _check(laboratory, tally, spoken, query=private_part(found), random=Random(number))
        except Exception as error:  # noqa: BLE001 - whatever is raised here is what is looked for
            tally.failures.append(f"{seed} {number}: {type(error).__name__}: {str(error)[:300]}\n    {spoken.text}")
    return tally


def _check(
    laboratory: _Laboratory, tally: Tally, spoken: Sentence, *, query: PrivateQuery | None, random: Random
) -> None:
    """Check the generated SQL of an accepted statement: what DuckDB reads in it, that it runs, what it counts."""
    assert query is not None, "no private query is in what was accepted"
    for counting in forms(query):
        assert not fault_of(counting.sql), f"{fault_of(counting.sql)}: {counting.sql}"
        run(laboratory.hostile, counting)
    tally.checked["run"] += 1
    if not spoken.plain:
        return
    fill(laboratory.small, small(random))
    if _NULL_AMONG_UNITS.search(query.text):
        for table in PRIVATE:
            laboratory.small.execute(f"DELETE FROM all_{table} WHERE user_id IS NULL")
    laboratory.small.execute("PRAGMA disable_optimizer")  # it moves terms about, so that some rows no longer raise
    try:
        wanted = reference_counts(laboratory.small, query, spoken.unit)
    except duckdb.Error as error:
        tally.checked[f"reference raises {type(error).__name__}"] += 1
        return
    finally:
        laboratory.small.execute("PRAGMA enable_optimizer")
    ours = counts_of(laboratory.small, rewrite_leaders(query, None))
    assert ours == wanted, f"dpsql counts {ours}, DuckDB {wanted}"
    tally.checked["equal to the reference"] += 1


def accepted(random: Random, catalog: Catalog) -> tuple[Sentence, PrivateQuery]:
    """Return a statement of the grammar that is accepted, and its query; half of them are about several rows."""
    while True:
        spoken = sentence(random)
        if len(spoken.constructs) < 4 and random.random() < 0.5:
            continue
        query = private_part(outcome(spoken.text, catalog))
        if query is not None and query.domain is None:
            return spoken, query


def stable(numbers: Iterable[int], *, seed: int, catalog: Catalog | None = None, asked: int = ASKED) -> Tally:
    """Drop each unit from databases by their numbers, under statements that `catalog` accepts."""
    catalog, tally = catalog or _laboratory().catalog, Tally()
    connections = [opened(threads) for threads in (1, 2, 4)]
    for number in numbers:
        random = Random(f"stability {seed} {number}")
        database, statements = small(random), [accepted(random, catalog) for _ in range(asked)]
        for spoken, _ in statements:
            tally.tried.update([*spoken.constructs, "all"])
        try:
            con = connections[number % len(connections)]
            moved = moved_too_far(con, database, [query for _, query in statements])
        except Exception as error:  # noqa: BLE001 - as above
            texts = "\n    ".join(spoken.text for spoken, _ in statements)
            tally.failures.append(f"{seed} {number}: {type(error).__name__}: {str(error)[:300]}\n    {texts}")
            continue
        tally.accepted.update(dict.fromkeys(tally.tried, 0))
        tally.failures += [f"{seed} {number}: {fault}\n    {statements[at][0].text}" for at, fault in moved.items()]
        tally.checked["databases"] += 1
    tally.accepted = Counter(tally.tried)
    return tally


def corpus_summary(catalog: Catalog) -> tuple[int, int, list[str]]:
    """Return how many `ok_if_equivalent` of the corpus are answered, of how many, and the names of the others."""
    lines = Path(__file__).with_name("statements.jsonl").read_text().splitlines()
    asked = [each for each in map(json.loads, lines) if each["expect"] == "ok_if_equivalent"]
    refused = [each["id"] for each in asked if isinstance(outcome(each["sql"], catalog), Error)]
    return len(asked) - len(refused), len(asked), refused


def together(work: Callable[[range], Tally], total: int, *, processes: int) -> Tally:
    """Return what comes of the numbers below `total`, worked on by several processes."""
    size = min(_BATCH, -(-total // processes))
    tally = Tally()
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for done in pool.imap_unordered(work, [range(at, min(at + size, total)) for at in range(0, total, size)]):
            tally.add(done)
    return tally


def main() -> int:
    """Run what the command line asks for; return 1 after a failure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--statements", type=int, default=0)
    parser.add_argument("--stability", type=int, default=0, metavar="DATABASES")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    options = parser.parse_args()
    answered, asked, refused = corpus_summary(_laboratory().catalog)
    sys.stdout.write(f"corpus: {answered} of {asked} ok_if_equivalent answered; not {', '.join(refused)}\n")
    failed = 0
    for work, total in ((partial(fuzzed, every=1), options.statements), (stable, options.stability)):
        if total:
            tally = together(partial(work, seed=options.seed), total, processes=options.processes)
            sys.stdout.write("".join(f"{line}\n" for line in tally.lines()))
            failed += len(tally.failures)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
