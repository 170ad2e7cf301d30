"""Figures of a source tree: sizes, rooms, import chains, and what one query passes through. None of them is a law.

    python tests/house/figures.py [--tree FOLDER] [--suite]

Prints the table "Where we stand" for the tree at FOLDER, this one by default, then what the rooms look like inside. The
first query of a session and a replay are traced in a process of their own, and of a query over PostgreSQL's protocol
the part of the server. `--suite` also runs `pytest`, and `.ci/run` in a clean clone, and prints their minutes.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef
QUERY = """
import json, sys, threading
from collections import Counter
from pathlib import Path
import duckdb, dpsql
home = str(Path(dpsql.__file__).parent)
calls = Counter()
def profile(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(home):
        calls[code.co_filename[len(home) + 1:], code.co_qualname, code.co_firstlineno] += 1
connection = duckdb.connect()
connection.execute("CREATE TABLE reads AS SELECT i AS user_id, 'a' || i % 5 AS article FROM range(50000) t(i)")
policy = dpsql.Policy(dpsql.Budget(10, "1e-6"), {"reads": dpsql.PrivateTable("user_id")})
"""
SESSION = (
    QUERY
    + """
import random, secrets
text = "SELECT article FROM reads WHERE article <> '{}' GROUP BY article TOP 5 PRIVATE"
simplest = ["SELECT article FROM reads GROUP BY article TOP 5 PRIVATE"]
replay = [text.format("x"), text.format("y"), text.format("y")]
# the same noise in every run: with it the first look settles the simplest query, and weights are not read
secrets.token_bytes = random.Random(2).randbytes
with dpsql.connect(connection, policy=policy, ledger=":memory:") as session:
    for statement in {"simplest": simplest, "replay": replay}[sys.argv[1]]:
        calls.clear()
        sys.setprofile(profile)
        session.sql(statement)
        sys.setprofile(None)
print(json.dumps([len({file for file, *_ in calls}), len(calls), sum(calls.values())]))
"""
)
SERVER = (
    QUERY
    + """
import asyncio, os, tempfile, time, psycopg
folder = Path(tempfile.mkdtemp())
with duckdb.connect(str(folder / "events.duckdb")) as other:
    other.execute("CREATE TABLE reads AS SELECT i AS user_id, 'a' || i % 5 AS article FROM range(50000) t(i)")
(folder / "policy.toml").write_text('ledger = "l.sqlite"\\n[budget]\\nepsilon = 10\\ndelta = 1e-6\\n[tables.reads]\\n'
    'privacy_unit = "user_id"\\n[server]\\nusers = "users.toml"\\npostgres = "127.0.0.1:0"\\nweb = "off"\\n'
    'catalog = "none"\\n')
from dpsql.server.users import User
from dpsql.server.users import add_user
add_user(folder / "users.toml", User("ana"), password="a password of hers")
from dpsql.server import serve
from dpsql.server.serve import run
class Log:
    def write(self, text):
        if '"listens"' in text:
            ports.append(int(json.loads(text)["place"].rpartition(":")[2]))
    def flush(self): pass
ports = []
def ask():
    while not ports:
        time.sleep(0.05)
    try:
        login = f"host=127.0.0.1 port={ports[0]} user=ana password='a password of hers' dbname=dpsql"
        with psycopg.connect(login, autocommit=True) as client:
            text = "SELECT article FROM reads WHERE article <> '{}' GROUP BY article TOP 5 PRIVATE"
            client.execute(text.format("x")).fetchall()
            tracing[0] = True
            client.execute(text.format("y")).fetchall()
            tracing[0] = False
    finally:
        os.write(1, json.dumps([len({file for file, *_ in calls if file.startswith("server")}),
            len([1 for file, *_ in calls if file.startswith("server")])]).encode())
        os._exit(0)
tracing = [False]
def both(frame, event, argument):
    if tracing[0]:
        profile(frame, event, argument)
threading.setprofile(both)
sys.setprofile(both)
threading.Thread(target=ask, daemon=True).start()
run(folder / "policy.toml", folder / "events.duckdb", tell=lambda _: None, log=Log())
"""
)


def modules(tree: Path) -> dict[str, Path]:
    """Return the modules of the package by their names."""
    named = {".".join(path.relative_to(tree).with_suffix("").parts): path for path in (tree / "dpsql").rglob("*.py")}
    return {name.removesuffix(".__init__"): path for name, path in named.items()}


def imports(path: Path, known: Iterable[str]) -> Iterator[str]:
    """Yield the modules of the package that a file imports, those inside functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in known or node.module in known:
                    yield whole if whole in known else node.module


def components(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components, those that others depend on first (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            found.append(stack[at:])
            del stack[at:]

    for node in graph:
        if node not in index:
            visit(node)
    return found


def heights(graph: dict[str, set[str]]) -> dict[str, int]:
    """Return on which floor each node stands, the lowest being 1; nodes of a circle share one."""
    floor: dict[str, int] = {}
    for circle in components(graph):
        below = [floor[other] for node in circle for other in graph[node] if other not in circle]
        floor.update(dict.fromkeys(circle, 1 + max(below, default=0)))
    return floor


def rooms(graph: dict[str, set[str]], folder: str) -> str:
    """Return how many rooms a folder has with its face, on how many floors, and how many arrows between them."""

    def room(name: str) -> str:
        return name.removeprefix(folder).removeprefix(".").split(".")[0]

    inner = defaultdict[str, set[str]](set)
    for name, others in graph.items():
        if name == folder or name.startswith(f"{folder}."):
            targets = {room(other) for other in others if other == folder or other.startswith(f"{folder}.")}
            inner[room(name)] |= targets - {room(name)}
    return f"{len(inner)} / {max(heights(inner).values())} / {sum(map(len, inner.values()))}"


def comment_lines(path: Path) -> int:
    """Return how many lines of a file are a comment and nothing else."""
    return sum(line.lstrip().startswith("#") for line in path.read_text().splitlines())


def doubles(tree: Path) -> Counter[str]:
    """Return the names of public classes that several modules define, those of the DB-API aside, with how many do.

    PEP 249 names that module's exceptions, and each of ours has a twin among them.
    """
    named: Counter[str] = Counter()
    for name, path in modules(tree).items():
        if name != "dpsql.dbapi.errors":
            named.update({node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)})
    return Counter({name: count for name, count in named.items() if count > 1 and not name.startswith("_")})


def traced(tree: Path, program: str, *arguments: str) -> list[int]:
    """Return the numbers that a program prints that is run with the package of a tree; none if it fails."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": str(tree)},
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        return list(json.loads(done.stdout))
    except ValueError:
        return []


def slashes(numbers: Iterable[int]) -> str:
    """Return numbers with slashes between them."""
    return " / ".join(f"{number:,}" for number in numbers) or "not traced"


def minutes(command: list[str], tree: Path) -> str:
    """Return how long a command takes in the folder of a tree, and whether it succeeds."""
    began = time.monotonic()
    done = subprocess.run(command, cwd=tree, capture_output=True, check=False)
    seconds = round(time.monotonic() - began)
    return f"{seconds // 60}:{seconds % 60:02}" + (" (failed)" if done.returncode else "")


def in_the_table(tree: Path) -> Iterator[tuple[str, str]]:
    """Yield the rows of the table "Where we stand" for a tree."""
    known = modules(tree)
    graph = {name: {other for other in imports(path, known) if other != name} for name, path in known.items()}
    lines = [len(path.read_text().splitlines()) for path in known.values()]
    functions = [
        (node.end_lineno or 0) - node.lineno + 1
        for path in known.values()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, Function)
    ]
    comments = sum(map(comment_lines, known.values()))
    yield "lines of Python in the package", f"{sum(lines):,}"
    yield (
        "lines of Python in tests/",
        f"{sum(len(path.read_text().splitlines()) for path in (tree / 'tests').rglob('*.py')):,}",
    )
    yield "files", f"{len(known)}"
    yield "median file, lines", f"{statistics.median(filter(None, lines)):.0f}"
    yield "mean function, lines", f"{statistics.mean(functions):.1f}"
    yield "comment lines", f"{100 * comments / sum(lines):.1f} %"
    yield "longest import chain", f"{max(heights(graph).values())}"
    yield "simplest session.sql: files / functions / calls", slashes(traced(tree, SESSION, "simplest"))
    yield "replay session.sql: files / functions / calls", slashes(traced(tree, SESSION, "replay"))
    yield "public class names that mean two things", f"{len(doubles(tree))}"
    yield "plan/: rooms / floors / arrows", rooms(graph, "dpsql.plan")


def beside_the_table(tree: Path) -> Iterator[tuple[str, str]]:
    """Yield what else is measured of a tree."""
    known = modules(tree)
    graph = {name: {other for other in imports(path, known) if other != name} for name, path in known.items()}
    yield "highest fan-in", f"{max(Counter(other for others in graph.values() for other in others).values())}"
    for folder in sorted({name.split(".")[1] for name in known if name.count(".") > 1} - {"plan"}):
        yield f"{folder}/: rooms / floors / arrows", rooms(graph, f"dpsql.{folder}")
    yield "one wire query, server part: files / functions", slashes(traced(tree, SERVER))
    readme = (tree / "README.md").read_text()
    prose = re.sub(r"```.*?```", "", readme, flags=re.DOTALL)
    yield "README, words (code left out)", f"{len(readme.split()):,} ({len(prose.split()):,})"


def suites(tree: Path) -> Iterator[tuple[str, str]]:
    """Run the default test suite, and `.ci/run` in a clean clone, and yield how long each takes."""
    yield "default pytest, minutes", minutes([sys.executable, "-m", "pytest", "-q"], tree)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "clone", "--quiet", str(tree), folder], check=True)
        yield ".ci/run, minutes", minutes([".ci/run"], Path(folder))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tree", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--suite", action="store_true", help="run the tests too")
    given = parser.parse_args()
    tree = given.tree.resolve()
    for name, value in chain(in_the_table(tree), suites(tree) if given.suite else (), beside_the_table(tree)):
        print(f"{name:52} {value}", flush=True)  # noqa: T201 - a script


if __name__ == "__main__":
    main()
