"""The dashboards of the examples, by psql, Python, SQLAlchemy, a notebook and the page: charged once, or not at all."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar
from pathlib import Path
from runpy import run_path

import nbformat
import psycopg
import pytest
import sqlalchemy as sa
from nbclient import NotebookClient

import dpsql
from dpsql.curator import read_spending
from dpsql.server.users import User, add_user

EXAMPLE = run_path(str(Path(__file__).parents[2] / "examples" / "10_eight_tiles.py"))
TILES: dict[str, str] = EXAMPLE["TILES"]
WORDS = "correct horse battery"
SERVER = """
[analysts.ana]
epsilon = 3.0

[server]
users = "users.toml"
catalog = "none"
postgres = "127.0.0.1:0"
web = "127.0.0.1:0"
"""
Rows = list[list[str]]


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    found: Path = EXAMPLE["write_policy"](tmp_path)
    found.write_text(found.read_text() + SERVER)
    add_user(tmp_path / "users.toml", User("ana"), password=WORDS)
    return found


@contextmanager
def serve(policy: Path) -> Iterator[dict[str, int]]:
    """Run `dpsql serve` and yield the port of each surface."""
    code = "import sys; sys.argv[0] = 'dpsql'; from dpsql.cli import main; main()"
    command = [sys.executable, "-c", code, "serve", "--policy", policy.name]
    with (policy.parent / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=policy.parent, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    guard = threading.Timer(90, process.kill)
    guard.start()
    try:
        lines: list[str] = []
        while not lines or lines[-1] not in {"ready\n", ""}:
            lines.append(process.stdout.readline())
        assert lines[-1], (policy.parent / "log").read_text()
        found = [re.match(r"(\w+) listens on .*:(\d+)$", line) for line in lines]
        yield {one[1]: int(one[2]) for one in found if one}
    finally:
        guard.cancel()
        process.kill()
        process.wait()
        process.stdout.close()


def spell(rows: object) -> Rows:
    """Return rows as psql prints them."""
    return [["" if cell is None else f"{cell}" for cell in row] for row in rows]  # type: ignore[attr-defined]


def by_python(policy: Path, _: dict[str, int]) -> dict[str, Rows]:
    with dpsql.connect(policy=policy, analyst="ana") as session:
        return {title: spell(session.sql(sql).fetchall()) for title, sql in TILES.items()}


def by_sqlalchemy(policy: Path, _: dict[str, int]) -> dict[str, Rows]:
    engine = sa.create_engine(f"dpsql://?policy={policy}&analyst=ana")
    with engine.connect() as connection:
        found = {title: spell(connection.execute(sa.text(sql)).all()) for title, sql in TILES.items()}
    engine.dispose()
    return found


def by_psql(_: Path, ports: dict[str, int]) -> dict[str, Rows]:
    if shutil.which("psql") is None:
        pytest.skip("psql is not installed")
    place = f"host=127.0.0.1 port={ports['postgres']} user=ana dbname=dpsql"
    found = {}
    for title, sql in TILES.items():
        command = ["psql", place, "-X", "-q", "-A", "-t", "-F", "\t", "-c", sql]
        done = subprocess.run(
            command, env={**os.environ, "PGPASSWORD": WORDS}, capture_output=True, text=True, timeout=60, check=True
        )
        found[title] = [line.split("\t") for line in done.stdout.splitlines()]
    return found


def by_page(_: Path, ports: dict[str, int]) -> dict[str, Rows]:
    """Ask on the page, as a browser without scripts does; the cells of its table."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))

    def send(path: str, **form: str) -> str:
        address, data = (
            f"http://127.0.0.1:{ports['web']}{path}",
            urllib.parse.urlencode(form).encode() if form else None,
        )
        with opener.open(address, data, timeout=60) as answer:
            return str(answer.read().decode())

    def proof(path: str) -> str:
        found = re.search(r'name="proof" value="([0-9a-f]{64})"', send(path))
        assert found is not None
        return found[1]

    send("/login", name="ana", password=WORDS, proof=proof("/login"))
    token, found = proof("/"), dict[str, Rows]()
    for title, sql in TILES.items():
        page = send("/ask", proof=token, text=sql)
        assert "read as" in page.lower()
        body = page[page.index("<tbody>") : page.index("</tbody>")]
        found[title] = [re.findall(r"<td[^>]*>", row) for row in re.findall(r"<tr.*?</tr>", body, re.DOTALL)]
    return found


def test_each_tile_is_charged_once_whatever_shows_it(policy: Path) -> None:
    assert len(TILES) == 8
    with serve(policy) as ports:
        first = by_psql(policy, ports)
        assert len(read_spending(policy).entries) == 8
        assert {title: len(rows) for title, rows in first.items()} == {
            "total": 1,
            "ranking": 10,
            "ranking by rows": 5,
            "series": 4,
            "share": 1,
            "top of each": 6,
            "comparison": 5,
            "table": 5,
        }
        for show in (by_python, by_sqlalchemy):
            found = show(policy, ports)
            assert {title: [row[:2] for row in rows] for title, rows in found.items()} == {
                title: [row[:2] for row in rows] for title, rows in first.items()
            }
        page = by_page(policy, ports)
        assert {title: len(rows) for title, rows in page.items()} == {title: len(rows) for title, rows in first.items()}
        assert len(read_spending(policy).entries) == 8


PUBLISHED = run_path(str(Path(__file__).parents[2] / "examples" / "11_publish_once.py"))
CELL = """
import dpsql, json, re
from runpy import run_path
tiles = run_path({example!r})["TILES"]
with dpsql.connect(policy={policy!r}, analyst="dashboard") as session:
    found = {{title: session.sql(sql).fetchall() for title, sql in tiles.items()}}
print(json.dumps(found, default=str))
"""


def by_notebook(policy: Path) -> dict[str, Rows]:
    """Read the tiles of published tables in a cell."""
    text = CELL.format(example=PUBLISHED["__file__"], policy=str(policy))
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text)])
    NotebookClient(book, timeout=120).execute()
    return {title: spell(rows) for title, rows in json.loads(book.cells[0].outputs[0]["text"]).items()}


def count_misses(intervals: int) -> int:
    """Return the greatest number of 95 % intervals that miss, except with probability below 1e-6."""

    def is_exceeded(misses: int) -> float:
        return math.fsum(
            math.comb(intervals, at) * 0.05**at * 0.95 ** (intervals - at) for at in range(misses + 1, intervals + 1)
        )

    return next(misses for misses in range(intervals) if is_exceeded(misses) < 1e-6)


def test_tiles_over_published_tables_are_free_for_an_analyst_without_a_share(tmp_path: Path) -> None:
    policy: Path = PUBLISHED["write_data"](tmp_path)
    PUBLISHED["publish_tables"](policy)
    tiles: dict[str, str] = PUBLISHED["TILES"]
    before = read_spending(policy)
    assert (len(tiles), before.balance.percent_used <= 40) == (12, True)
    with PUBLISHED["serve"](policy) as place:
        read = PUBLISHED["read_tiles"](place)
        shown = {title: spell(rows) for title, rows in read.items()}
        if shutil.which("psql") is not None:
            for title, sql in tiles.items():
                command = ["psql", place, "-X", "-q", "-A", "-t", "-F", "\t", "-c", sql]
                done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
                assert sorted(line.split("\t") for line in done.stdout.splitlines()) == sorted(shown[title]), title
        refused = pytest.raises(psycopg.errors.InsufficientPrivilege, match="dashboard has no share of the budget")
        with psycopg.connect(place) as connection, refused:
            connection.execute("SELECT COUNT(DISTINCT user_id) FROM visits PRIVATE")
    assert {title: sorted(rows) for title, rows in by_notebook(policy).items()} == {
        title: sorted(rows) for title, rows in shown.items()
    }
    after = read_spending(policy)
    assert (after.balance, after.entries) == (before.balance, before.entries)
    numbers, cells = PUBLISHED["compare_with_duckdb"](policy, read)
    missed = numbers.count(False)
    assert (len(numbers), missed <= count_misses(len(numbers))) == (39, True)
    assert cells.count(False) <= 12 * missed  # a tile is wrong where a number is, which is in at most 12 of the cells
