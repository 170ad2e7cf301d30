"""Documentation is complete: error codes, options, mechanisms, README blocks, doctests."""

from __future__ import annotations

import ast
import doctest
import importlib
import io
import pkgutil
import re
import tokenize
import tomllib
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql import Policy, PolicyError
from dpsql.errors import Error
from dpsql.plan.mechanisms.choice import list_records
from dpsql.plan.mechanisms.record import Auto, QueryKind
from dpsql.server import http_requests
from dpsql.server.wire import codec
from dpsql.sql.allow_list import FUNCTIONS
from dpsql.sql.syntax.clause import OPTIONS

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "dpsql").rglob("*.py"))
README = (ROOT / "README.md").read_text()
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
REFERENCE = ROOT / "docs" / "reference"
SQL_PAGES = sorted((REFERENCE / "sql").glob("*.md"))
ERRORS = (ROOT / "docs" / "reference" / "errors.md").read_text()
EVERYTHING = "".join(module.read_text() for module in MODULES)
KINDS = {kind.__name__ for kind in Error.__subclasses__()}


@cache
def codes() -> dict[str, set[str]]:
    """Return every literal code of an error that is constructed anywhere in the package, and of which kinds."""
    found: dict[str, set[str]] = {}
    for module in MODULES:
        for node in ast.walk(ast.parse(module.read_text())):
            name = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
            if name in KINDS and isinstance(node, ast.Call) and node.args:
                code = node.args[0]
                if isinstance(code, ast.Constant):
                    found.setdefault(str(code.value), set()).add(name)
    return found


@cache
def documented() -> dict[str, str]:
    """Return the codes of docs/reference/errors.md and the kind under whose heading each stands."""
    found: dict[str, str] = {}
    for section in ERRORS.split("\n## ")[1:]:
        firsts = re.findall(r"^\| (`[^|]+`) \|", section, re.MULTILINE)
        for code in re.findall(r"`([a-z0-9-]+)`", " ".join(firsts)):
            assert code not in found, f"{code} stands twice"
            found[code] = section.split()[0]
    return found


def test_every_error_code_is_documented_and_no_other() -> None:
    assert len(codes()) > 60
    assert codes().keys() - documented().keys() == set(), "Give each code a row in docs/reference/errors.md."
    elsewhere = {code for code in documented().keys() - codes().keys() if f'"{code}"' not in EVERYTHING}
    assert elsewhere == set()


def test_every_error_code_stands_under_its_kind() -> None:
    wrong = {code: kinds for code, kinds in codes().items() if documented()[code] not in kinds}
    assert wrong == {}
    both = {code for code, kinds in codes().items() if kinds == {"Refusal", "Unsupported"}}
    (sentence,) = re.findall(r"^(.+) of the table above may also come as `Unsupported`\.$", ERRORS, re.MULTILINE)
    assert set(re.findall(r"`([a-z-]+)`", sentence)) == both
    assert {code for code, kinds in codes().items() if len(kinds) > 1} == both


def test_every_code_that_has_a_status_of_its_own_is_one_of_an_error() -> None:
    known = documented().keys()
    assert http_requests._STATUS.keys() - known == set()
    assert codec._STATES_BY_CODE.keys() - known == set()


def test_every_error_that_an_analyst_or_curator_meets_has_a_hint() -> None:
    silent = [
        f"{module.relative_to(ROOT)}:{node.lineno}"
        for module in MODULES
        if not {"accounting", "mechanisms"} & set(module.parts)
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") in KINDS
        and node.args
        and "hint" not in {keyword.arg for keyword in node.keywords}
    ]
    assert silent == []


def rows_of(page: Path, heading: str) -> list[str]:
    """Return the names in the first column of the tables below a heading of a page; of the top if it is empty."""
    sections = re.split(r"^##+ ", page.read_text(), flags=re.MULTILINE)
    (section,) = sections[:1] if not heading else [each for each in sections if each.splitlines()[0] == heading]
    return re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)


POLICY = (REFERENCE / "policy.md").read_text()
TABLES_OF_POLICY = {  # by the word in the headings of the reference
    "": "",
    **{name: name for name in ("budget", "sql", "limits", "engine", "source", "server")},
    "analysts": "analysts.a",
    "tables": "tables.t",
    "csv": "tables.t.csv",
    "bounds": "tables.t.bounds.x",
    "calendar": "tables.t.calendar.y",
}
KEYS = re.findall(r"^##+ `(?:\[(\w+)\] )?(\w+)`\n\n`(.+?)` \(", POLICY, re.MULTILINE)  # each with its example


def read_policy(section: str, line: str, folder: Path) -> PolicyError | None:
    """Read a policy with a line in a section; return why it is refused, if it is."""
    text = '[budget]\nepsilon = 1\ndelta = 1e-6\n[tables.t]\nprivacy_unit = "u"\n'
    text += (
        'source = "t.csv"\ncolumns = { u = "BIGINT", x = "DOUBLE", y = "DATE" }\n' if section == "tables.t.csv" else ""
    )
    header = f"[{section}]\n" if section else ""
    text = text if header in text else text + header
    start, _, rest = text.partition(header) if header else ("", "", text)
    rest = re.sub(rf"^{line.partition(' ')[0]} = .*\n", "", rest, count=1, flags=re.MULTILINE)
    (folder / "policy.toml").write_text(f"{start}{header}{line}\n{rest}")
    try:
        Policy.from_toml(folder / "policy.toml")
    except PolicyError as error:
        return error
    return None


@pytest.mark.parametrize("word", TABLES_OF_POLICY)
def test_every_key_of_a_policy_has_a_heading_and_no_other(word: str, tmp_path: Path) -> None:
    refused = read_policy(TABLES_OF_POLICY[word], "no_such_key = 1", tmp_path)
    assert refused is not None
    assert refused.code == "policy-unknown-key"
    known = str(refused.hint).removeprefix("Known here: ").removesuffix(".").split(", ")
    heading = rf"^### `\[{word}\] (\w+)`$" if word else r"^## `\[?(\w+)\]?`$"
    known += ["rows"] if word == "bounds" else []  # which is a key of the table, beside those of its columns
    todo = f"Give each key of [{word}] its heading in docs/reference/policy.md."
    assert sorted(re.findall(heading, POLICY, re.MULTILINE)) == sorted(known), todo
    examples = [key for other, key, _ in KEYS if other == word]
    assert sorted(examples) == sorted(known) or not word, "Write an example below each heading."


def test_the_example_of_every_key_of_a_policy_is_read(tmp_path: Path) -> None:
    alone = "columns csv missing-key period prepared table tls"  # what a key is refused for that needs another one
    refused = []
    for word, key, line in KEYS:
        assert line.startswith(f"{key} = ")
        error = read_policy(TABLES_OF_POLICY[word].removesuffix(".x" if key == "rows" else ""), line, tmp_path)
        refused += [error] if error and error.code.removeprefix("policy-") not in alone.split() else []
    assert refused == []


def test_every_option_is_documented_and_no_other() -> None:
    todo = "Give each option its text in docs/generate/options.toml, and run python docs/generate."
    assert sorted(rows_of(REFERENCE / "sql" / "top-k-private.md", "Options")) == sorted(OPTIONS), todo


MECHANISMS = list_records(QueryKind.UNKNOWN, QueryKind.KNOWN)
LISTS = {  # of mechanisms by name: the page, the place in it, and those that belong there
    "its section": ("reference/sql/mechanisms.md", r"^## ([a-z_]+)$", MECHANISMS),
    "its row": ("reference/sql/mechanisms.md", r"^\| \[`(\w+)`\]\(#", MECHANISMS),
    "those never chosen": (
        "reference/sql/mechanisms.md",
        r"^\* ([^*]+) are never\s+chosen",
        [each for each in MECHANISMS if each.auto is Auto.NEVER],
    ),
    "the option mechanism": (
        "reference/sql/top-k-private.md",
        r"^\| `mechanism` \| name \| `auto`,([^|]+)",
        MECHANISMS,
    ),
    "the option gate": (
        "reference/sql/top-k-private.md",
        r"^\| `gate` \|[^|]+\| for ([^:]+)",
        [each for each in MECHANISMS if "gate" in each.options],
    ),
    "what crosses": (
        "reference/sources.md",
        r"^\| mechanism \| rows \|\n((?:\|.*\n)+)",
        [each for each in MECHANISMS if each.kind is QueryKind.UNKNOWN],
    ),
}


@pytest.mark.parametrize("place", LISTS)
def test_every_mechanism_is_documented_and_no_other(place: str) -> None:
    page, pattern, wanted = LISTS[place]
    found = " ".join(re.findall(pattern, (ROOT / "docs" / page).read_text(), re.MULTILINE))
    names = set(re.findall(r"`([a-z_]+)`", found) or found.split())
    todo = f"In docs/{page}, {place}: {sorted(names ^ {each.name for each in wanted})}."
    assert names == {each.name for each in wanted}, todo


def test_every_function_is_documented() -> None:
    page = (REFERENCE / "sql" / "functions.md").read_text()
    todo = "Run python docs/generate, which writes docs/reference/sql/functions.md."
    assert [name for name in sorted(FUNCTIONS) if f"`{name}`" not in page] == [], todo


def test_every_page_of_the_sql_reference_is_linked_from_its_index() -> None:
    index = REFERENCE / "sql" / "index.md"
    linked = re.findall(r"^\| \[[^]]+\]\(([\w-]+\.md)\) \|", index.read_text(), re.MULTILINE)
    assert sorted(linked) == sorted(page.name for page in index.parent.glob("*.md") if page != index)


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, object]]:
    """Names that the examples of docstrings use, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    connection = duckdb.connect("events.duckdb")
    connection.execute("CREATE TABLE reads (user_id BIGINT, article VARCHAR)")
    for article, readers in (("moon", 40_000), ("sun", 20_000)):
        connection.execute(f"INSERT INTO reads SELECT i, '{article}' FROM range({readers}) t(i)")
    connection.close()
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PrivateTable("user_id")})
    with warnings.catch_warnings(), dpsql.connect("events.duckdb", policy=policy, ledger=":memory:") as session:
        warnings.simplefilter("ignore")
        query = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 2 PRIVATE"
        answer = session.sql(f"{query} WITH (mechanism = limited_domain)")  # whose charge does not depend on noise
        yield {
            "answer": answer,
            "database": "events.duckdb",
            "dpsql": dpsql,
            "policy": policy,
            "session": session,
            "warnings": warnings,
        }


def test_doctests_run(example: dict[str, object]) -> None:
    attempted, failed = 0, []
    for module in MODULES:
        name = ".".join(module.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        try:
            module_there = importlib.import_module(name)
        except ModuleNotFoundError as missing:  # these surfaces are imported by what they serve, which is not here
            if missing.name != "superset":
                raise
            continue
        result = doctest.testmod(module_there, extraglobs=example)
        failed += [name] * result.failed
        attempted += result.attempted
    assert failed == []
    assert attempted >= 60


def test_every_public_name_has_an_example() -> None:
    names = {name: getattr(dpsql, name) for name in dpsql.__all__}
    methods = {
        f"{name}.{method}": getattr(names[name], method)
        for name in ("Answer", "Session")
        for method in vars(names[name])
        if not method.startswith("_") and callable(getattr(names[name], method)) and method not in {"close", "execute"}
    }
    assert [name for name, thing in {**names, **methods}.items() if ">>>" not in (thing.__doc__ or "")] == []


def test_the_readme_begins_with_the_two_commands() -> None:
    commands = [line for line in README.splitlines() if line.startswith("python3 -m venv")]
    assert commands == [
        "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/dpsql demo",
        "python3 -m venv .venv && .venv/bin/pip install '.[test]' && .venv/bin/pytest",
    ]


def test_the_readme_is_short() -> None:
    assert len(README.split()) <= 900
    sections = re.findall(r"^## (.+)$", README, re.MULTILINE)
    assert sections == ["Quickstart", "What it promises", "Where to go next", "Licence"]


def test_the_changelog_begins_with_this_version_and_goes_down() -> None:
    versions = re.findall(r"^## \[([\d.]+)\] - \d{4}-\d\d-\d\d$", CHANGELOG, re.MULTILINE)
    assert len(versions) + CHANGELOG.count("\n## [Unreleased]\n") == CHANGELOG.count("\n## ")
    assert versions[0] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    parts = [tuple(map(int, version.split("."))) for version in versions]
    assert parts == sorted(set(parts), reverse=True)
    sections = set(re.findall(r"^### (.+)$", CHANGELOG, re.MULTILINE))
    assert sections <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_pages_at_the_root_name_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"| {version.rpartition('.')[0]} | yes |" in (ROOT / "SECURITY.md").read_text()
    (day,) = re.findall(rf"^## \[{re.escape(version)}\] - (\S+)$", CHANGELOG, re.MULTILINE)
    assert f"\ndate-released: {day}\n" in (ROOT / "CITATION.cff").read_text()


@pytest.mark.parametrize(
    "page",
    [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "architecture.md", *sorted((ROOT / "docs" / "adr").glob("*.md"))],
    ids=lambda page: page.name,
)
def test_the_files_that_a_page_for_maintainers_names_exist(page: Path) -> None:
    named = re.findall(r"`((?:dpsql|tests|docs|examples|benchmarks)/[\w./*-]+)`", page.read_text())
    assert [path for path in named if not list(ROOT.glob(path))] == []


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")), ids=lambda page: page.name)
def test_links_of_the_pages_at_the_root_lead_to_files(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_page_on_installing_names_every_extra_and_no_other() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    page = (ROOT / "docs" / "how-to" / "install.md").read_text()
    named = re.findall(r"'\.\[([a-z-]+)\]'", page)
    further = re.findall(
        r"`([a-z-]+)`", "".join(re.findall(r"^\| (`[^|]+) \|", page.split("## Further extras")[1], re.MULTILINE))
    )
    assert {*named, *further} == extras.keys(), "Give each extra a row in docs/how-to/install.md."


def test_what_the_reference_calls_the_same_release_is_replayed() -> None:
    import duckdb

    import dpsql

    first, same = re.findall(r"```sql\n(.*?)```", (REFERENCE / "sql" / "replays.md").read_text(), re.DOTALL)
    assert "-- the same release" in same
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE reads AS SELECT i AS user_id, 'a' || i % 3 AS article, 'DE' AS country FROM range(9000) t(i)"
    )
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PrivateTable("user_id")})
    with dpsql.connect(connection, policy=policy, ledger=":memory:") as session:
        answer = session.sql(first)
        again = session.sql(same)
        assert again.receipt.replayed
        assert sorted(again.fetchall()) == sorted((count, article) for article, count in answer.fetchall())
        for swapped in ("country = 'DE' AND article <> 'x'", "article <> 'x' AND country = 'DE'"):
            assert not session.sql(first.replace("country = 'DE'", swapped)).receipt.replayed


def prose_of(module: Path) -> Iterator[tuple[int, str]]:
    """Yield the comments and docstrings of a module, each with its line."""
    source = module.read_text()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            words = ast.get_docstring(node, clean=False)
            if words is not None:
                yield node.body[0].lineno, words


@cache
def sections_of_the_mathematics() -> set[str]:
    page = (ROOT / "docs" / "explanation" / "maths.md").read_text()
    return set(re.findall(r"^##+ ([0-9.]+?)\.? ", page, re.MULTILINE))


def missing_pointers(words: str, files: tuple[str, ...]) -> Iterator[str]:
    """Yield the files, modules and sections that a text names and that do not exist.

    A file is named by the end of its path, a section by its number after `maths.md`.
    """
    for name in re.findall(r"(?<![\w*])[\w./-]+\.(?:py|md)\b", words):
        if not any(file.endswith(f"/{name.removeprefix('./')}") for file in files):
            yield name
    for numbers in re.findall(r"`maths\.md`,?\s+([0-9][0-9.]*(?:(?:,|\s+and)\s+[0-9][0-9.]*)*)", words):
        for number in re.findall(r"[0-9]+(?:\.[0-9]+)*", numbers):
            if number not in sections_of_the_mathematics():
                yield f"maths.md {number}"
    for name in re.findall(r"`(dpsql(?:\.\w+)+)\b", words):
        try:
            pkgutil.resolve_name(name)
        except (ImportError, AttributeError):
            yield name


def test_no_comment_or_docstring_points_to_what_does_not_exist() -> None:
    folders = ("dpsql", "tests", "benchmarks", "examples", "docs")
    files = tuple(f"/{path.relative_to(ROOT)}" for folder in folders for path in (ROOT / folder).rglob("*.*"))
    assert list(
        missing_pointers("`no_such.py`, `maths.md` 99.9 and 2, `dpsql.nothing`, `dpsql.Session.sql`", files)
    ) == [
        "no_such.py",
        "maths.md 99.9",
        "dpsql.nothing",
    ]
    missing = [
        f"{module.relative_to(ROOT)}:{line} {pointer}"
        for module in MODULES
        for line, words in prose_of(module)
        for pointer in missing_pointers(words, files)
    ]
    assert missing == []
