"""The documentation holds what it says: its code runs, its generated pages are what the code says, the site builds."""

from __future__ import annotations

import doctest
import math
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from support.command_kit import dpsql_command

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GENERATED = DOCS / "reference"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^>]+) -->\n)?```(?P<head>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
SHOWN = {"", "text", "pycon"}  # formulas, grammars, what is printed; examples of docstrings, which are doctests
RUN_ELSEWHERE = {  # by page and language, for code that needs other data than that of `Folder`
    ("README.md", "sh"): "tests/house/test_documentation.py",
    ("docs/how-to/dbapi.md", "ipython"): "tests/server/notebook/test_notebooks.py",
    ("docs/how-to/write-an-adapter.md", "console"): "tests/engines/test_write_an_adapter.py",
    ("docs/how-to/write-an-adapter.md", "python"): "tests/engines/test_write_an_adapter.py",
    ("docs/how-to/notebook.md", "ipython"): "tests/unit/notebook/test_docs.py",
    ("docs/how-to/pate.md", "python"): "tests/unit/pate/test_pate_label.py",
    ("docs/how-to/postgres.md", "python"): "tests/server/wire/test_docs.py",
    ("docs/how-to/postgres.md", "sql"): "tests/server/wire/test_docs.py",
    ("docs/reference/sql/from-other-systems.md", "sql"): "tests/unit/session/test_session_other_systems.py",
    ("docs/how-to/two-people-in-a-row.md", "sql"): "tests/unit/policy/test_two_people.py",
    ("docs/how-to/two-people-in-a-row.md", "toml"): "tests/unit/policy/test_two_people.py",
    ("docs/reference/ledger.md", "python"): "tests/unit/ledger/test_dp_events.py",
    ("docs/reference/ledger.md", "sql"): "tests/engines/postgres/test_ledger.py",
}
BUDGET = "[budget]\nepsilon = 100\ndelta = 1e-6\n"
TABLES = {
    "reads": 'privacy_unit = "user_id"\nbounds = { rows = 20, dwell = { max = 600 } }',
    "users": 'privacy_unit = "user_id"',
    "countries": "public = true",
    "customers": 'privacy_unit = "household_id"',
    "orders": 'link = "customer_id -> customers.id"',
}
DATA = """
CREATE TABLE reads AS SELECT u AS user_id, 'a' || u % 3 AS article, ['DE', 'FR'][1 + u % 2] AS country,
    u % 90 / 1e0 AS dwell, TIMESTAMP '2026-01-01' AS ts FROM range(6000) t(u);
CREATE TABLE countries AS SELECT 'DE' AS country, 'Europe' AS continent;
CREATE TABLE customers AS SELECT i AS id, i // 2 AS household_id FROM range(3000) t(i);
CREATE TABLE orders AS SELECT id AS customer_id, 'p' || id % 3 AS product FROM customers;
CREATE TABLE users AS SELECT i AS user_id, i % 80 AS age, 'Berlin' AS city FROM range(99) t(i);
"""


@dataclass(frozen=True)
class Block:
    """A block of code of a page."""

    page: Path
    line: int
    language: str
    title: str
    text: str
    reason: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in BLOCK.finditer(text):
        language, _, rest = found["head"].partition(" ")
        title = re.search(r'title="([^"]+)"', rest)
        line = text.count("\n", 0, found.start()) + 1
        yield Block(page, line, language, title[1] if title else "", found["text"], found["reason"] or "")


ALL = [block for page in PAGES for block in blocks_of(page)]


class Folder:
    """What a reader of a page has: a folder with some data, in which the blocks are tried one after the other."""

    def __init__(self, path: Path) -> None:
        import duckdb

        self.path = path
        self.scope: dict[str, Any] = {}
        self.tables = path / "tables.toml"
        self.tables.write_text(whole(""))
        with duckdb.connect(str(path / "events.duckdb")) as database:
            database.execute(DATA)
            database.execute(f"COPY (SELECT 1 AS user_id, 'x' AS page) TO '{path / 'visits.parquet'}'")
        (path / "policy.toml").write_text(whole('ledger = "ledger.sqlite"'))
        (path / "questions.sql").write_text("SHOW TABLES;")
        (path / "password.txt").write_text("correct horse battery")
        (path / "visits.csv").write_text("user_id,page,ts\n1,x,2026-01-01 00:00:00\n")

    def run(self, block: Block) -> None:
        runs = {"console": self.console, "python": self.python, "sh": self.sh, "sql": self.sql, "toml": self.toml}
        runs[block.language](block)

    def python(self, block: Block) -> None:
        exec(compile("\n" * block.line + block.text, block.page.name, "exec"), self.scope)

    def toml(self, block: Block) -> None:
        """Read a file by its title; what has no title is part of a policy, and is read as part of one."""
        import dpsql

        path = self.path / (block.title or "part.toml")
        path.write_text(block.text if block.title else whole(block.text))
        policy = dpsql.Policy.from_toml(path)
        if policy.tables.keys() <= TABLES.keys() and (policy.source is None or policy.source.path is not None):
            database = self.path / "events.duckdb" if policy.source is None else None
            dpsql.connect(database, policy=policy, ledger=":memory:").close()

    def sql(self, block: Block) -> None:
        import dpsql

        with dpsql.connect(self.path / "events.duckdb", policy=self.tables, ledger=":memory:") as session:
            session.sql(block.text).fetchall()

    def sh(self, block: Block) -> None:
        for line in block.text.splitlines():
            if line.startswith((". .venv/bin/activate", "echo ", "rm ")):
                continue  # the folder has what these give a reader
            code, printed, said = self.command(line)
            assert code == 0, said
            assert printed

    def console(self, block: Block) -> None:
        """Run what stands after $ and compare what it prints with what stands below; ... is anything."""
        for line, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE):
            _, printed, said = self.command(line)
            printed += said
            assert doctest.OutputChecker().check_output(output, printed, doctest.ELLIPSIS), printed

    def command(self, line: str) -> tuple[int, str, str]:
        """Run a line as the shell would; return its exit code and what it prints."""
        program, *words = shlex.split(line, comments=True)
        assert program == "dpsql", f"{line}: only dpsql is run; mark what is not"
        words, given = (words[:-2], (self.path / words[-1]).read_text()) if "<" in words else (words, "")
        code, printed, said = dpsql_command(*words, cwd=self.path, stdin=given.encode(), COLUMNS="100")
        return code, printed.decode(), said


def whole(part: str) -> str:
    """Return a policy of which a page shows a part, with a budget and the tables where the part has none."""
    given = tomllib.loads(part)
    missing = {} if "tables" in given else TABLES
    tables = "".join(f"[tables.{name}]\n{keys}\n" for name, keys in missing.items())
    return f"{part}\n{'' if 'budget' in given else BUDGET}{tables}"


def test_there_is_code_in_the_pages() -> None:
    assert len(ALL) > 80
    assert {block.language for block in ALL} == {"console", "ipython", "python", "sh", "sql", "toml", *SHOWN}


def test_every_fence_is_read() -> None:
    for page in PAGES:
        fences = [line for line in page.read_text().splitlines() if line.lstrip().startswith("```")]
        assert len(fences) == 2 * len(list(blocks_of(page))), page


def test_what_is_not_run_is_counted() -> None:
    assert {str(block.page.relative_to(DOCS)): block.reason for block in ALL if block.reason} == {
        "how-to/materialize.md": "it needs a database; tests/engines/postgres/test_materialized.py runs this command",
        "how-to/notebook.md": "installs",
        "how-to/server.md": "waits for a signal; tests/server/test_serve.py runs it",
        "how-to/shell.md": "installs, and then waits for what is typed; tests/unit/cli/test_shell.py types",
        "tutorial/five-minutes.md": "installs, or waits for a signal",
        "tutorial/first-answer.md": "installs; .ci/run runs the README's command, which is the same",
        "how-to/upgrading.md": "for a ledger that is there",
        "tutorial/curators-day.md": "waits for a signal; tests/server/test_serve.py runs it",
        "how-to/superset.md": "Superset is not in the environment of the tests; two trials in tests run it, by hand",
    }


def test_what_runs_elsewhere_is_known_there() -> None:
    for (page, language), test in RUN_ELSEWHERE.items():
        assert any(str(block.page.relative_to(ROOT)) == page and block.language == language for block in ALL), page
        assert Path(page).name.removesuffix(".md") in (ROOT / test).read_text(), page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    name = str(page.relative_to(ROOT))
    shown = [block for block in blocks_of(page) if not block.reason and block.language not in SHOWN]
    run = [block for block in shown if (name, block.language) not in RUN_ELSEWHERE]
    folder = Folder(tmp_path) if run else None
    for block in run:
        assert folder is not None
        try:
            folder.run(block)
        except Exception as error:
            raise AssertionError(f"{block}: {error}") from error


def test_the_generated_pages_are_what_the_code_says(tmp_path: Path) -> None:
    subprocess.run([sys.executable, DOCS / "generate", "--to", tmp_path], check=True, timeout=120)
    written = {page.relative_to(tmp_path): page.read_text() for page in tmp_path.rglob("*.md")}
    marked = [page for page in GENERATED.rglob("*.md") if "<!-- Written by `python docs/generate`" in page.read_text()]
    assert written.keys() == {page.relative_to(GENERATED) for page in marked}
    for name, text in written.items():
        assert (GENERATED / name).read_text() == text, f"{name}: run `python docs/generate`, and read the difference"


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "-f", ".mkdocs.yml", "--strict", "--site-dir", tmp_path],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "index.html").exists()


@pytest.fixture
def picture(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(DOCS / "generate")
    return import_module("picture")


def test_the_numbers_beside_the_picture_are_those_of_the_library(picture: Any) -> None:
    rows = re.findall(
        r"\| ([\d.]+) \| ([\d.]+) of 100 \| ([\d.]+) in 100 \| ([\d,]+) \|", words("explanation/meaning.md")
    )
    assert [
        (
            f"{total:g}",
            f"{100 * picture.guessed(total, 1e-6):.1f}",
            f"{100 * picture.belief(0.01, total):.1f}",
            f"{float(picture.mechanism(total).threshold_offset):,.0f}",
        )
        for total in picture.TOTALS
    ] == rows


def test_the_probabilities_of_the_picture_are_those_of_the_mechanism(picture: Any) -> None:
    """Draw what the picture computes: a group alone, a little above the threshold."""
    from dpsql.mechanisms import Histogram, OperatingSystemNoise

    answering, noise, users, draws = picture.mechanism(1.0), OperatingSystemNoise(), 545, 4_000
    drawn = sum(len(answering.select(Histogram((users,), 0), noise).positions) for _ in range(draws))
    wanted = picture.returned(users, 1.0)
    assert 0.55 < wanted < 0.7
    assert abs(drawn / draws - wanted) < 0.05  # more than six standard deviations


def test_the_sizes_that_pages_tell_are_those_of_the_defaults(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    (tmp_path / "policy.toml").write_text("[budget]\nepsilon = 1.0\ndelta = 1e-6\n[tables.t]\nprivacy_unit = 'u'")
    _, checked, _ = folder.command("dpsql check --policy policy.toml")
    assert re.search(r"TOP 10 with counts +20 +5 +200 +533\.4 +± 92", checked)
    assert "needs about 530 users" in words("explanation/faq.md")
    assert "within 92 of the exact one" in words("explanation/faq.md")


def test_the_page_of_mechanisms_has_the_costs_where_nothing_stands_out() -> None:
    from dpsql.mechanisms.gate import LOOK_SHARE, find_open_probability

    page = (DOCS / "reference/sql/mechanisms.md").read_text()
    rows = re.findall(r"^\| (\d+) \| ([\d.]+)(?: items)? \| ([\d.]+) \| 1 \|$", page, re.MULTILINE)
    assert len(rows) == 6
    for k, two, one in rows:
        keys, spent = int(k), 2 * LOOK_SHARE
        after_two, after_one = (find_open_probability(keys, looks) for looks in (2, 1))
        average = keys * (spent + after_two * (1 - spent)) + (1 - spent) * (1 - after_two)
        gate = keys * (LOOK_SHARE + after_one * (1 - LOOK_SHARE))
        assert f"{float(average):.1f}" == two
        assert f"{float(gate):.1f}" == one


def test_the_receipt_that_a_page_explains_is_one() -> None:
    from fractions import Fraction

    from dpsql import Budget, Policy, PrivateTable, Receipt
    from dpsql.accounting import ZCDP, BudgetVector, Rise
    from dpsql.mechanisms import Selection
    from dpsql.mechanisms.base import LabelPosition
    from dpsql.mechanisms.two_looks import Answerer, TwoLooks
    from dpsql.terms import Terms

    terms = Terms.of_policy(Policy(Budget(1, "1e-6"), {"t": PrivateTable("u")}))
    looks = TwoLooks(terms.epsilon, terms.delta, k=10, k_bar=1000, weighed_groups=100)
    drawn = Selection(tuple(map(LabelPosition, range(7))), stopped_at_bottom=True)
    own = looks.leaders(Answerer.AT_ONCE).loss(drawn)
    loss = looks.loss(Answerer.AT_ONCE, own)
    left = BudgetVector.of(ZCDP(terms.budget.rho - loss.rho, terms.budget.delta - loss.delta))
    receipt = replace(
        Receipt.free(left, sealed=True),
        mechanism=looks.name,
        k=looks.k,
        k_bar=looks.k_bar,
        epsilon=looks.epsilon,
        items_charged=math.ceil(looks.items(Answerer.AT_ONCE, own)),
        legs="by counts about 9 of 10 stand out; limited domain, after the first look: 7",
        loss=loss,
        stopped_at_bottom=True,
        answered=7,
        wanted=10,
        rise=Rise.between(Fraction(0), BudgetVector.of(loss).share_of(terms.budget)),
        more=11,
    )
    page = words("explanation/meaning.md")
    assert f"```text {receipt} ```" in page
    told = dict(receipt.details())
    assert f"charged    {told['charged']} legs       {told['legs']}" in page
    assert f"remaining  {told['remaining']}" in page


def words(name: str) -> str:
    return " ".join((DOCS / name).read_text().split("\n"))
