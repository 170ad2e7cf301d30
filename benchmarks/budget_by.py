"""A quarter of a dashboard that is filtered by country: queries answered with one budget, and with one per country.

    python -m benchmarks run budget_by [--users 200000] [--countries 8] [--weeks 13] [--epsilon 2] [--quick]

Every Monday the data has a new version, and the dashboard is opened once for each country: the ten leading articles of
the country, with their readers, and the number of its readers. The budget is (epsilon, 1e-6) for the quarter, in items
of the default epsilon for 200 of them and 40 queries, and the same in both runs. A page is answered if both of its
queries are; a run ends on the first Monday on which no query of any country fits. Users are of one country each, the
second half as large as the first, and so on, down to a hundredth of all; a user reads eight articles, of 2,000 whose
popularity falls as 1 / rank.
"""

from __future__ import annotations

import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import duckdb
from program.main import alone
from program.row import Row

import dpsql
from dpsql.curator import bump
from dpsql.errors import BudgetExceeded

QUICK = {"users": 3_000, "countries": 3, "weeks": 2}
PAGE = (
    "SELECT article, COUNT(DISTINCT user_id) AS readers FROM reads WHERE country = ? GROUP BY article TOP 10 PRIVATE",
    "SELECT COUNT(DISTINCT user_id) AS readers FROM reads WHERE country = ? PRIVATE",
)
ARTICLES, READS = 2_000, 8
DELTA, ITEMS, QUERIES = "1e-6", 200, 40


def options(parser: ArgumentParser) -> None:
    """Add the size of the data, of the dashboard and of the budget."""
    parser.add_argument("--users", type=int, default=200_000)
    parser.add_argument("--countries", type=int, default=8)
    parser.add_argument("--weeks", type=int, default=13)
    parser.add_argument("--epsilon", default="2")


def run(given: Namespace) -> Iterator[Row]:
    """Open the dashboard every Monday, with one budget in all and with one for each country."""
    countries = [f"country {at + 1}" for at in range(given.countries)]
    title = f"{given.weeks} Mondays, {given.countries} countries, ({given.epsilon}, {DELTA})"
    with tempfile.TemporaryDirectory() as folder:
        path = _write(Path(folder) / "reads.duckdb", users=given.users, countries=countries)
        for name, column in (("one budget in all", None), ("a budget for each country", "country")):
            table = dpsql.PrivateTable("user_id", budget_by=column)
            budget = dpsql.Budget(given.epsilon, DELTA, items=ITEMS, queries=QUERIES)
            known = dpsql.Policy(budget, {"reads": table}, ledger=Path(folder) / f"{column}.sqlite")
            yield Row(title, name, _ask_quarter(path, known, countries, weeks=given.weeks))


def _write(path: Path, *, users: int, countries: Sequence[str]) -> Path:
    """Write the reads of so many users to a database file."""
    shares = [max(2.0**-at, 0.01) for at in range(1, len(countries) + 1)]
    ends = [sum(shares[: at + 1]) / sum(shares) for at in range(len(shares))]
    names = " ".join(f"WHEN place <= {end!r} THEN '{name}'" for name, end in zip(countries, ends, strict=True))
    rank = f"CAST(floor(pow({ARTICLES}, hash(u, r) % 1000003 / 1000003e0)) AS INTEGER)"
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"""CREATE TABLE reads AS
            SELECT u AS user_id, 'article ' || {rank} AS article, CASE {names} ELSE '{countries[-1]}' END AS country
            FROM (SELECT u, hash(u) % 1000003 / 1000003e0 AS place FROM range({users}) AS t(u)), range({READS}) AS s(r)
        """)  # noqa: S608 - of this file
    return path


def _ask_quarter(path: Path, policy: dpsql.Policy, countries: Sequence[str], *, weeks: int) -> dict[str, float]:
    """Return how many Mondays, pages and queries were answered, and with how many articles."""
    mondays = pages = queries = articles = 0
    for week in range(weeks):
        complete, before = 0, queries
        with closing(dpsql.connect(path, policy=policy)) as session:
            for country in countries:
                answers = [_ask(session, text, country) for text in PAGE]
                queries += sum(answer is not None for answer in answers)
                articles += 0 if answers[0] is None else len(answers[0])
                complete += None not in answers
        pages, mondays = pages + complete, mondays + (complete == len(countries))
        if queries == before:
            break
        if week + 1 < weeks:
            bump(str(policy.ledger), note="rows of another week")
    return {"complete Mondays": mondays, "pages": pages, "queries answered": queries, "articles shown": articles}


def _ask(session: dpsql.Session, text: str, country: str) -> dpsql.Answer | None:
    try:
        return session.sql(text, (country,))
    except BudgetExceeded:
        return None


if __name__ == "__main__":
    alone(__file__)
