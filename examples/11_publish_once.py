"""Publish four tables once, and show twelve tiles over them to an analyst without a share of the budget, free.

The curator charges her account for the four tables. The tiles of `publish_once.sql` are in the words of Superset, and
the analyst `dashboard` sends them to the PostgreSQL port of a server. The data is MSWeb, with a made-up day of the week
for each visitor. At the end the intervals of the tiles are compared with what DuckDB computes from the rows themselves.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import duckdb
import psycopg

import dpsql
from dpsql import curator
from dpsql.server.users import User, add_user

TABLES = {
    "totals": "SELECT COUNT(DISTINCT user_id) AS visitors, COUNT(*) AS views FROM visits PRIVATE",
    "days": "SELECT day, COUNT(DISTINCT user_id) AS visitors FROM visits GROUP BY day ALL PRIVATE",
    "areas": "SELECT area, COUNT(DISTINCT user_id) AS visitors FROM visits GROUP BY area "
    "TOP 10 PRIVATE WITH (epsilon = 0.1)",
    "area_days": "SELECT day, area, COUNT(DISTINCT user_id) AS visitors FROM visits GROUP BY day, area "
    "TOP 20 PRIVATE WITH (epsilon = 0.07)",
}
TILES = {
    title: sql.strip()
    for title, sql in re.findall(
        r"^-- ([\w ]+): .*\n([^;]+);", Path(__file__).with_name("publish_once.sql").read_text(), re.MULTILINE
    )
}
PASSWORD = "correct horse battery staple"  # noqa: S105 - of this run alone
POLICY = """\
ledger = "ledger.sqlite"

[budget]
epsilon = 3.0
delta = 1e-6
items = 100
queries = 20

[tables.visits]
privacy_unit = "user_id"
source = "visits.parquet"
columns = ["user_id", "area", "day"]

[tables.visits.bounds]
rows = 40         # more than the areas that one visitor sees in a week

[tables.visits.calendar]
day = { first = 1998-02-02, last = 1998-02-08 }

[tables.topics]
public = true
source = "topics.parquet"

[analysts.curator]
epsilon = 3.0

[analysts.dashboard]
epsilon = 0       # no share of the budget

[server]
users = "users.toml"
catalog = "none"
postgres = "127.0.0.1:0"
"""
Rows = list[tuple[object, ...]]


def write_data(folder: Path) -> Path:
    """Write the data, the users and the policy, and return its path."""
    source = files("dpsql.cli") / "data" / "msweb.parquet"
    day = "DATE '1998-02-02' + CAST(hash(user_id) % 7 AS INTEGER)"
    duckdb.sql(f"SELECT user_id, area, {day} AS day FROM '{source}'").write_parquet(str(folder / "visits.parquet"))  # noqa: S608 - names of this file
    topics = duckdb.sql(
        "SELECT * FROM (VALUES ('/search', 'find'), ('/support', 'help'), ('/kb', 'help')) t(area, topic)"
    )
    topics.write_parquet(str(folder / "topics.parquet"))
    add_user(folder / "users.toml", User("dashboard"), password=PASSWORD)
    policy = folder / "policy.toml"
    policy.write_text(POLICY)
    return policy


def publish_tables(policy: Path) -> None:
    """Publish the four tables, with their prices."""
    for name, sql in TABLES.items():
        print(curator.publish(policy, name, sql, account="curator"))


@contextmanager
def serve(policy: Path) -> Iterator[str]:
    """Run `dpsql serve` and yield what libpq needs to connect as the analyst."""
    code = "from dpsql.cli import main; main()"
    command = [sys.executable, "-c", code, "serve", "--policy", policy.name]
    with subprocess.Popen(  # noqa: S603 - our own words
        command, cwd=policy.parent, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            lines = "".join(iter(server.stdout.readline, "ready\n"))
            port = re.search(r"postgres listens on .*:(\d+)$", lines, re.MULTILINE)[1]
            yield f"host=127.0.0.1 port={port} user=dashboard password='{PASSWORD}' dbname=dpsql"
        finally:
            server.kill()


def read_tiles(place: str) -> dict[str, Rows]:
    """Read each tile as the analyst."""
    with psycopg.connect(place, autocommit=True) as connection:
        return {title: connection.execute(sql).fetchall() for title, sql in TILES.items()}


def compare_with_duckdb(policy: Path, tiles: Mapping[str, Rows]) -> tuple[list[bool], list[bool]]:
    """Return whether the interval of each published number covers the exact one, and whether that of each tile's does.

    The exact tables have the names that were published, their numbers as DuckDB counts them in the rows, and that
    number as both ends of each interval. The SQL of the tiles is then run on these.
    """
    numbers, cells = list[bool](), list[bool]()
    with duckdb.connect() as data, dpsql.connect(policy=policy, analyst="dashboard") as session:
        for name in ("visits", "topics"):
            data.execute(f"CREATE TABLE {name} AS FROM '{policy.parent / name}.parquet'")
        for name, sql in TABLES.items():
            published = session.sql(f"SELECT * FROM {name}").arrow()  # noqa: S608 - names of this file
            measures = [column for column in ("visitors", "views") if column in published.column_names]
            keys = [column for column in ("day", "area") if column in published.column_names]
            ends = ", ".join(f"{column} AS {column}_low, {column} AS {column}_high" for column in measures)
            exact = re.split(r" (?:TOP|ALL|PRIVATE)\b", sql)[0]
            join = f"SEMI JOIN published USING ({', '.join(keys)})" if keys else ""
            data.execute(f"CREATE TABLE {name} AS SELECT *, {ends} FROM ({exact}) {join}")  # noqa: S608 - names of this file
            on = f"USING ({', '.join(keys)})" if keys else "ON true"
            for each in measures:
                covers = f"e.{each} BETWEEN p.{each}_low AND p.{each}_high"
                found = data.execute(f"SELECT {covers} FROM published p JOIN {name} e {on}").fetchall()  # noqa: S608 - names of this file
                numbers += [covered for (covered,) in found]
        for title, rows in tiles.items():
            truth = {tuple(map(str, row[:-3])): row[-3] for row in data.execute(TILES[title]).fetchall()}
            cells += [float(row[-2]) <= float(truth[tuple(map(str, row[:-3]))]) <= float(row[-1]) for row in rows]
    return numbers, cells


def show_budget(policy: Path) -> str:
    """Return the amounts of the whole budget, to the last digit."""
    balance = curator.read_spending(policy).balance
    return f"rho {balance.rho.spent} and delta {balance.delta.spent}, {balance.percent_used} %"


def main() -> None:
    """Publish, show the tiles, and compare."""
    with tempfile.TemporaryDirectory() as folder:
        policy = write_data(Path(folder))
        publish_tables(policy)
        before = show_budget(policy)
        with serve(policy) as place:
            tiles = read_tiles(place)
        after = show_budget(policy)
        for title, rows in tiles.items():
            print(f"{title}: {len(rows)} rows, such as {' | '.join(map(str, rows[0]))}")
        print(f"used before the tiles: {before}\nused after the tiles:  {after}")
        numbers, cells = compare_with_duckdb(policy, tiles)
        print(
            f"95 % intervals that cover what DuckDB counts: {sum(numbers)} of {len(numbers)} published numbers, "
            f"{sum(cells)} of {len(cells)} numbers of {len(tiles)} tiles"
        )


if __name__ == "__main__":
    main()
