"""A curator's day: a policy, two analysts, a look at who spent what, a grant, and an audit. All by the shell command.

Every line that begins with $ is a command that you could type; what it prints stands below it.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb

FOLDER = tempfile.TemporaryDirectory()
HERE = Path(FOLDER.name)
POLICY = """\
ledger = "ledger.sqlite"

[budget]
epsilon = {epsilon}
delta = 1e-6
items = 100
queries = 20

[tables.loans]
privacy_unit = "reader_id"
max_groups_contributed = 20
min_units = 20

[tables.books]
public = true

[analysts.default]
epsilon = 0.2

[analysts.alice]
epsilon = 0.5
items = 40
"""
QUESTION = "SELECT title FROM loans JOIN books USING (book_id) GROUP BY title TOP 3 PRIVATE"


def dpsql(*words: str, wanted: int = 0) -> str:
    """Run the command, show it and what it says, and return that."""
    print("$ dpsql", " ".join(f'"{word}"' if " " in word else word for word in words))
    program = Path(sys.executable).with_name("dpsql")
    done = subprocess.run([program, *words], cwd=HERE, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
    print(done.stdout + done.stderr)
    if done.returncode != wanted:
        raise SystemExit(f"exit code {done.returncode}")
    return done.stdout


with duckdb.connect(str(HERE / "library.duckdb")) as database:
    database.execute("CREATE TABLE books AS SELECT i AS book_id, 'book ' || i AS title FROM range(1, 41) AS t(i)")
    database.execute(
        "CREATE TABLE loans AS SELECT r AS reader_id, b AS book_id FROM range(8000) AS x(r), range(1, 41) AS y(b) "
        "WHERE hash(r * 50 + b) % 100 < 90 // b"
    )

print("## Morning: what is there, and what is it worth protecting?\n")
dpsql("init", "library.duckdb", "--output", "starter.toml")
print("The starter asks; the curator decides, and reads it back.\n")
(HERE / "policy.toml").write_text(POLICY.format(epsilon=1.0))
dpsql("check", "--policy", "policy.toml", "--db", "library.duckdb")

print("## Noon: two analysts ask\n")
asking = ("--db", "library.duckdb", "--policy", "policy.toml")
dpsql("query", *asking, "--analyst", "alice", QUESTION)
dpsql("query", *asking, "--analyst", "bob", QUESTION)
print("Whoever asks for readers is refused, at no cost.\n")
dpsql("query", *asking, "--analyst", "bob", "SELECT reader_id FROM loans", wanted=3)

print("## Afternoon: who spent what?\n")
dpsql("budget", "--policy", "policy.toml")

print("## A grant: the board allows more for the year; it is recorded with its reason, and the policy says the same\n")
dpsql("ledger", "grant", "ledger.sqlite", "--epsilon", "1.5", "--delta", "1e-6", "--note", "the board, 12 March")
(HERE / "policy.toml").write_text(POLICY.format(epsilon=1.5))

print("## Evening: the audit\n")
dpsql("ledger", "verify", "ledger.sqlite")
events = [json.loads(line) for line in dpsql("ledger", "export", "ledger.sqlite").splitlines()]
print(
    f"{len(events)} events, each holding the digest of the one before: {', '.join(sorted({e['kind'] for e in events}))}"
)
FOLDER.cleanup()
