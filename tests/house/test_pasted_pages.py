"""Every block of a page is pasted, in order, into a fresh folder: into bash, Python's console, a session, or a file.

A `text` block directly below a block of `sh` or `python`, or after one line of prose, is what that block prints. It is
compared word by word. Where it has what was drawn with noise (`NOISY`), a number is any number; `...` is anything.
"""

from __future__ import annotations

import builtins
import code
import contextlib
import doctest
import io
import re
import shutil
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pytest
from support.pasting_kit import Environment, Terminal, make_environment

import dpsql

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
LESSONS = sorted((DOCS / "tutorial").glob("*.md"), key=lambda page: page.read_text()[: len("# Lesson 1")])
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^>]+) -->\n)?```(?P<head>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
SHOWN = {"", "text", "pycon"}  # formulas, grammars, what is printed; examples of docstrings, which are doctests
OUTPUT = re.compile(r"\n\n(?:[^\n#|]+\n\n)?")  # what may be between a block and its output
NOISY = re.compile(r"±|^answered |\bdraws? of epsilon", re.MULTILINE)
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
REMARK = re.compile(r"\S.*  # (True|False|None|[\d.]+|'[^']*')(?::.*)?")  # what a line of Python prints
RUN_ELSEWHERE = {  # by page and language, for code that needs other data than that of `Reader`
    ("docs/how-to/dbapi.md", "ipython"): "tests/server/notebook/test_notebooks.py",
    ("docs/how-to/dbapi.md", "python"): "tests/server/notebook/test_notebooks.py",
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
BUDGET = "[budget]\nepsilon = 100\ndelta = 1e-6\nitems = 1000\n"
TABLES = {
    "reads": 'privacy_unit = "user_id"\nbounds = { rows = 20, dwell = { max = 600 } }',
    "users": 'privacy_unit = "user_id"',
    "countries": "public = true",
    "customers": 'privacy_unit = "household_id"',
    "orders": 'link = "customer_id -> customers.id"',
}
(TABLES_OF_SQL,) = re.findall(r'execute\("""(.*?)"""\)', (DOCS / "reference/sql/index.md").read_text(), re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block of code of a page, and what the page says that it prints."""

    page: Path
    line: int
    language: str
    title: str
    text: str
    reason: str
    output: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def is_pasted(self) -> bool:
        place = str(self.page.relative_to(ROOT)), self.language
        return not self.reason and self.language not in SHOWN and place not in RUN_ELSEWHERE


def blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found, after in pairwise([*BLOCK.finditer(text), None]):
        assert found is not None
        language, _, rest = found["head"].partition(" ")
        title = re.search(r'title="([^"]+)"', rest)
        line = text.count("\n", 0, found.start()) + 1
        is_output = (
            after is not None
            and language in {"sh", "python"}
            and after["head"] == "text"
            and OUTPUT.fullmatch(text, found.end(), after.start())
        )
        output = after["text"] if after is not None and is_output else ""
        yield Block(page, line, language, title[1] if title else "", found["text"], found["reason"] or "", output)


ALL = [block for page in PAGES for block in blocks_of(page)]
PASTED = [page for page in PAGES if any(block.is_pasted for block in ALL if block.page == page)]


class Different(AssertionError):
    """Other output than a page shows."""


def compare(shown: str, printed: str) -> None:
    """Fail if a text is not the one that a page shows, but for the breaks of its lines."""
    texts = [" ".join(text.split()) for text in (shown, printed)]
    if NOISY.search(shown):
        texts = [NUMBER.sub("0", text) for text in texts]
    if not doctest.OutputChecker().check_output(*texts, doctest.ELLIPSIS):
        raise Different(f"the page shows\n{shown}\nand it prints\n{printed}")


class Console(code.InteractiveConsole):
    """Python's console, in this process, since to start Python takes a second. What fails there is raised here."""

    def showtraceback(self) -> None:
        raise  # noqa: PLE0704 - called while the error is handled

    def showsyntaxerror(self, *_: Any, **__: Any) -> None:
        raise  # noqa: PLE0704

    def paste(self, text: str) -> str:
        """Push line after line, then an empty one; compare what a line prints with its remark.

        Return all output but values that are not assigned, of which a console prints the address.
        """
        printed, is_open = "", False
        for line in [*text.splitlines(), ""]:
            with contextlib.redirect_stdout(io.StringIO()) as stream:
                is_open = self.push(line)
            printed += stream.getvalue()
            if remark := REMARK.fullmatch(line):
                compare(remark[1], stream.getvalue())
        assert not is_open, "the last statement is not complete"
        return re.sub(r"^<.* object at 0x\w+>\n", "", printed, flags=re.MULTILINE)


class Reader:
    """What a reader of a page has: a folder, bash at a terminal, Python's console and a session.

    Those of the README and of the tutorial begin with an empty folder, in which dpsql is installed in `.venv`. Those of
    other pages have data, a policy, and `dpsql` on the path.
    """

    def __init__(self, folder: Path, environment: Environment, data: Path | None) -> None:
        if data is None:
            folder.mkdir()
            (folder / ".venv").symlink_to(environment.folder)
        else:
            shutil.copytree(data, folder)
        self.folder = folder
        self.opened = contextlib.ExitStack()
        self.environment = environment
        self.has_data = data is not None
        self.terminal: Terminal | None = None
        self.session: dpsql.Session | None = None

    def read(self, page: Path) -> None:
        """Paste what is pasted of a page."""
        self.console = Console()
        with contextlib.chdir(self.folder):
            for block in blocks_of(page):
                if block.is_pasted:
                    try:
                        self.paste(block)
                    except Exception as error:
                        error.add_note(f"in {block}")
                        raise

    def paste(self, block: Block) -> None:
        if block.title:
            (self.folder / block.title).write_text(block.text)
        match block.language:
            case "toml":
                self.toml(block)
            case "sql":
                rows, is_of_script = self.sql(block.text), block.page.parent == DOCS / "reference/sql"
                assert rows or not is_of_script or "WHERE 1 = 0" in block.text, f"{block} returns no row"
            case "console":
                for line, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE):
                    printed = self.shell().paste(line, failing=True)
                    compare(output, printed)
            case _:
                printed = (
                    self.console.paste(block.text) if block.language == "python" else self.shell().paste(block.text)
                )
                if block.output:
                    compare(block.output, printed)

    def toml(self, block: Block) -> None:
        """Read a policy; what has no title is part of one, and is read as part of one."""
        path = self.folder / (block.title or "part.toml")
        path.write_text(block.text if block.title else whole(block.text))
        policy = dpsql.Policy.from_toml(path)
        if self.has_data and policy.tables.keys() <= TABLES.keys() and (policy.source is None or policy.source.path):
            database = "events.duckdb" if policy.source is None else None
            dpsql.connect(database, policy=policy, ledger=":memory:").close()

    def sql(self, text: str) -> int:
        if self.session is None:
            opened = dpsql.connect("events.duckdb", policy="tables.toml", ledger=":memory:")
            self.session = self.opened.enter_context(opened)
        return len(self.session.sql(text).fetchall())

    def shell(self) -> Terminal:
        if self.terminal is None:
            terminal = self.environment.open_terminal(self.folder, is_active=self.has_data)
            self.terminal = self.opened.enter_context(terminal)
        return self.terminal


def whole(part: str) -> str:
    """Return a policy of which a page shows a part, with a budget and the tables where the part has none."""
    given = tomllib.loads(part)
    missing = {} if "tables" in given else TABLES
    tables = "".join(f"[tables.{name}]\n{keys}\n" for name, keys in missing.items())
    return f"{part}\n{'' if 'budget' in given else BUDGET}{tables}"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    with make_environment(tmp_path_factory.mktemp("environment")) as environment:
        yield environment


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    (folder / "tables.toml").write_text(whole(""))
    (folder / "policy.toml").write_text(whole('ledger = "ledger.sqlite"'))
    (folder / "visits.csv").write_text("user_id,page,ts\n1,x,2026-01-01 00:00:00\n")
    with duckdb.connect(str(folder / "events.duckdb")) as database:
        database.execute(TABLES_OF_SQL)
        database.execute(f"COPY (SELECT 1 AS user_id, 'x' AS page) TO '{folder / 'visits.parquet'}'")
    return folder


@pytest.fixture(autouse=True)
def _calm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Draw no chart on a screen, and leave no last value of a console behind."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    yield
    vars(builtins).pop("_", None)


def test_there_is_code_in_the_pages() -> None:
    assert len(ALL) > 80
    assert {block.language for block in ALL} == {"console", "ipython", "python", "sh", "sql", "toml", *SHOWN}
    assert sum(bool(block.output) and block.is_pasted for block in ALL) >= 10
    assert sum(bool(REMARK.search(block.text)) for block in ALL if block.language == "python") >= 4


def test_every_fence_is_read() -> None:
    for page in PAGES:
        fences = [line for line in page.read_text().splitlines() if line.lstrip().startswith("```")]
        assert len(fences) == 2 * len(list(blocks_of(page))), page


def test_no_command_is_only_shown() -> None:
    command = re.compile(r"(?:\$ )?(?:pip|python3?|dpsql|curl|docker|psql|export|mkdocs) ")
    assert not [str(block) for block in ALL if block.language in SHOWN and command.match(block.text)]


def test_every_page_with_code_is_pasted_or_named_here() -> None:
    named = {  # and why
        "docs/explanation/maths.md": "formulas",
        "docs/explanation/meaning.md": "a receipt, which test_pages.py makes",
        "docs/reference/python.md": "examples of docstrings, which test_documentation.py runs",
    }
    elsewhere = {page for page, _ in RUN_ELSEWHERE}
    pages = {str(block.page.relative_to(ROOT)) for block in ALL if block.page not in PASTED and not block.reason}
    assert pages - elsewhere == named.keys()


def test_what_is_not_run_is_counted() -> None:
    assert sorted((block.page.name, block.reason) for block in ALL if block.reason) == [
        ("README.md", "installs; .ci/run runs the second command"),
        ("curators-day.md", "waits for a signal; tests/server/test_serve.py runs it"),
        ("first-answer.md", "installs; .ci/run runs the README's command, which is the same"),
        ("five-minutes.md", "asks for a password, and waits for a signal; tests/server/test_serve.py runs it"),
        ("five-minutes.md", "installs"),
        ("install.md", "installs"),
        ("materialize.md", "it needs a database; tests/engines/postgres/test_materialized.py runs this command"),
        ("notebook.md", "installs"),
        ("page.md", "needs a server; tests/server/web/test_api.py sends such requests"),
        ("server.md", "waits for a signal; tests/server/test_serve.py runs it"),
        ("shell.md", "installs, and then waits for what is typed; tests/unit/cli/test_shell.py types"),
        *[("superset.md", "Superset is not in the environment of the tests; two trials in tests run it, by hand")] * 4,
        ("upgrading.md", "for a ledger that is there"),
        ("warehouses.md", "needs an account at another company"),
    ]


def test_what_runs_elsewhere_is_known_there() -> None:
    for (page, language), test in RUN_ELSEWHERE.items():
        assert any(str(block.page.relative_to(ROOT)) == page and block.language == language for block in ALL), page
        assert Path(page).name.removesuffix(".md") in (ROOT / test).read_text(), page


@pytest.mark.parametrize(
    ("shown", "same", "other"),
    [
        ("913 ± 72\nanswered 3 of 3", "88 ± 7 answered 2 of 3", "88 ± 7 answered 2 of 3 sealed"),
        ("about 517 editors", "about\n517 editors", "about 518 editors"),
        ("events: ...", "events: 4", "events 4"),
    ],
)
def test_what_is_printed_is_compared(shown: str, same: str, other: str) -> None:
    compare(shown, same)
    with pytest.raises(Different):
        compare(shown, other)


@pytest.mark.parametrize(
    "text", ["for x in ():\n    pass\nprint()", "print(1)  # 2", "with open('x') as x:\n  (", "1 / 0"]
)
def test_what_fails_in_a_console_fails(text: str) -> None:
    with pytest.raises((AssertionError, SyntaxError, ZeroDivisionError)):
        Console().paste(text)


@pytest.mark.parametrize("line", ["false", "no_such_command", "dpsql check --policy none.toml", "echo Traceback"])
def test_what_fails_in_a_shell_fails(line: str, environment: Environment, tmp_path: Path) -> None:
    with environment.open_terminal(tmp_path, is_active=True) as terminal:
        assert terminal.paste("echo 'a\nb'") == "a\nb\n"
        with pytest.raises(AssertionError):
            terminal.paste(f"{line}\necho")


@pytest.fixture
def paste_all(environment: Environment, data: Path, tmp_path: Path) -> Callable[[Sequence[Path]], None]:
    """Paste pages into one folder; if something else is printed than they show, once more into another.

    What a lesson shows is not certain: noise lets its empty answer have a row in 2 runs of 100,000.
    """

    def paste(pages: Sequence[Path]) -> None:
        is_empty = pages[0] in LESSONS or pages[0].parent == ROOT
        for attempt in (1, 2):
            reader = Reader(tmp_path / f"reader{attempt}", environment, None if is_empty else data)
            try:
                with reader.opened:
                    for page in pages:
                        reader.read(page)
            except Different:
                if attempt == 2:
                    raise
            else:
                break

    return paste


@pytest.mark.parametrize("page", PASTED, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_can_be_pasted(page: Path, paste_all: Callable[[Sequence[Path]], None]) -> None:
    paste_all([page])


def test_the_script_of_the_sql_pages_has_budget_for_all_of_them(tmp_path: Path) -> None:
    index, *others = sorted((DOCS / "reference/sql").glob("*.md"), key=lambda page: page.name != "index.md")
    pages = [index, *others, DOCS / "how-to/cookbook.md", DOCS / "how-to/build-a-dashboard.md"]
    (script,) = (block.text for block in ALL if block.page == index and block.language == "python")
    console = Console()
    with contextlib.chdir(tmp_path):
        console.paste(script)
        with console.locals["session"] as session:
            for page in pages:
                for block in blocks_of(page):
                    if block.language == "sql" and block.is_pasted:
                        session.sql(block.text)


def test_the_lessons_can_be_pasted_into_one_folder(paste_all: Callable[[Sequence[Path]], None]) -> None:
    paste_all(LESSONS)
