"""Figures of a source tree: sizes, rooms, import chains, and what one query passes through. None of them is a law.

    python tests/house/figures.py [--tree FOLDER] [--suite]

Prints the table "where we stand" for the tree at FOLDER, this one unless another is given. Traced are the first query
of a session in this process and, of a query over PostgreSQL's protocol, the part of the server. `--suite` also runs the
default test suite and says how long it took.
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
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
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
with dpsql.connect(connection, policy=policy, ledger=":memory:") as session:
    sys.setprofile(profile)
    session.sql("SELECT article FROM reads GROUP BY article TOP 5 PRIVATE")
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
    """Return how many rooms a folder has, on how many floors, with how many arrows between them."""
    prefix, inner = f"{folder}.", defaultdict[str, set[str]](set)
    for name, others in graph.items():
        if name.startswith(prefix):
            room = name.removeprefix(prefix).split(".")[0]
            targets = {other.removeprefix(prefix).split(".")[0] for other in others if other.startswith(prefix)}
            inner[room] |= targets - {room}
    for room in set().union(*inner.values()):
        inner.setdefault(room, set())
    return f"{len(inner)} / {max(heights(inner).values())} / {sum(map(len, inner.values()))}"


def once_called(tree: Path) -> tuple[int, int]:
    """Return how many private functions are called once in their file, and how many there are."""
    once = total = 0
    for path in (tree / "dpsql").rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        uses = Counter(node.id for node in nodes if isinstance(node, ast.Name))
        uses += Counter(node.attr for node in nodes if isinstance(node, ast.Attribute))
        private = [node for node in nodes if isinstance(node, Function) and re.match("_[^_]", node.name)]
        total += len(private)
        once += sum(uses[node.name] == 1 for node in private)
    return once, total


def traced(tree: Path, program: str) -> str:
    """Return what a program prints that is run with the package of a tree, as numbers with slashes."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env=environment,
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        return " / ".join(f"{number:,}" for number in json.loads(done.stdout))
    except ValueError:
        return "not traced"


def figures(tree: Path, *, suite: bool) -> Iterator[tuple[str, str]]:
    """Yield each figure of a tree with its name."""
    known = modules(tree)
    graph = {name: {other for other in imports(path, known) if other != name} for name, path in known.items()}
    lines = [len(path.read_text().splitlines()) for path in known.values() if path.read_text().strip()]
    functions = [
        (node.end_lineno or 0) - node.lineno + 1
        for path in known.values()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, Function)
    ]
    once, private = once_called(tree)
    yield "files", f"{len(known)}"
    yield "median file, lines", f"{statistics.median(lines):.0f}"
    yield "mean function, lines", f"{statistics.mean(functions):.1f}"
    yield "private functions called once in their file", f"{once} of {private} ({100 * once / private:.0f} %)"
    yield "longest import chain, lazy ones too", f"{max(heights(graph).values())}"
    yield "highest fan-in", f"{max(Counter(other for others in graph.values() for other in others).values())}"
    folders = {name.rpartition(".")[0] for name in known if name.count(".") > 1}
    for folder in sorted(name for name in folders if name.count(".") == 1):
        yield f"{folder.removeprefix('dpsql.')}/: rooms / floors / arrows", rooms(graph, folder)
    yield "simplest session.sql: files / functions / calls", traced(tree, SESSION)
    yield "one wire query, server part: files / functions", traced(tree, SERVER)
    readme = re.sub(r"```.*?```", "", (tree / "README.md").read_text(), flags=re.DOTALL)
    yield (
        "README, words (code left out)",
        f"{len((tree / 'README.md').read_text().split()):,} ({len(readme.split()):,})",
    )
    if suite:
        began = time.monotonic()
        subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=tree, capture_output=True, check=False)
        yield "default pytest, minutes", f"{(time.monotonic() - began) / 60:.1f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tree", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--suite", action="store_true", help="run the default test suite too")
    given = parser.parse_args()
    for name, value in figures(given.tree.resolve(), suite=given.suite):
        print(f"{name:52} {value}")  # noqa: T201 - a script


if __name__ == "__main__":
    main()
