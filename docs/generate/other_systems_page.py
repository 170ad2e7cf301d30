"""Page of statements of other systems, each of which dpsql is asked whether it runs it.

`other_systems.toml` has the statements and a data set; `statements` says of each what dpsql does with it. No row is
read: a session describes the columns of the answer, or refuses the statement.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import duckdb
from pages import head, table

import dpsql

_FILE = Path(__file__).with_name("other_systems.toml")
_Outcome = Literal["as it is", "with another text", "refused"]
_INTRODUCTION = """\
Statements from the documentation and the tests of other systems with differential privacy, and what to write here. The
tables and columns are those of one small data set, and privacy parameters are smaller where theirs are for show. Every
statement of this page is run in the tests.
"""
_SETTING = """\
dpsql reads them as [standard SQL](standard-sql.md), with `implicit = true`. The policy says who is protected, so no
statement needs to. A statement that names no number of groups is read as `TOP 10 PRIVATE`, and a total as `PRIVATE`. A
text that says PRIVATE runs with any setting.
"""


@dataclass(frozen=True)
class Statement:
    """A statement of another system, and what dpsql does with it: run it, run `ours`, or refuse it with an error."""

    system: str
    what: str
    theirs: str
    ours: str
    why: str
    outcome: _Outcome
    refusal: str = ""

    @property
    def runs(self) -> str:
        """The text that dpsql runs, "" for none."""
        return {"as it is": self.theirs, "with another text": self.ours, "refused": ""}[self.outcome]


def load() -> dict[str, Any]:
    """Return what the file of statements holds."""
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


def open_session(known: dict[str, Any]) -> dpsql.Session:
    """Return a session over the data set of the file, with a ledger in memory."""
    connection = duckdb.connect(":memory:")
    connection.execute(known["data"] + known["rows"])
    with TemporaryDirectory() as folder:
        policy = Path(folder, "policy.toml")
        policy.write_text(known["policy"], encoding="utf-8")
        return dpsql.connect(connection, policy=policy, ledger=":memory:")


@cache
def statements() -> tuple[Statement, ...]:
    """Return all statements, in the order of the file."""
    known = load()
    with open_session(known) as session:
        return tuple(_ask(session, system, each) for system in known["systems"] for each in system["statements"])


def _ask(session: dpsql.Session, system: dict[str, Any], each: dict[str, str]) -> Statement:
    """Return a statement with what a session does with it."""
    theirs, ours = each["theirs"].strip(), each.get("ours", "").strip()
    is_sql = system.get("language", "sql") == "sql"
    refusal = _refuse(session, theirs) if is_sql else "It is no SQL."
    outcome: _Outcome = "as it is" if not refusal else "refused"
    if refusal and ours and not _refuse(session, ours):
        outcome = "with another text"
    return Statement(system["name"], each["what"], theirs, ours, each.get("why", ""), outcome, refusal)


def _refuse(session: dpsql.Session, text: str) -> str:
    """Return why a session refuses a statement, with the hint; "" if it does not."""
    try:
        session.describe(text) if not text.startswith("SHOW") else session.sql(text)
    except (dpsql.Refusal, dpsql.Unsupported) as error:
        return " ".join(filter(None, [error.reason, error.hint]))
    return ""


def page() -> str:
    """Return the page."""
    known = load()
    found = statements()
    names = list(dict.fromkeys(each.system for each in found))
    outcomes = ("as it is", "with another text", "refused")
    rows = [[name, *_count(outcomes, [each for each in found if each.system == name])] for name in names]
    return "\n".join(
        [
            head("From other systems", "docs/generate/other_systems.toml and what dpsql does with each statement"),
            _INTRODUCTION,
            table(
                ["system", "statements", "run as they are", "run with another text", "refused"],
                [*rows, ["all", *_count(outcomes, found)]],
            ),
            "## Data\n",
            _fence(known["data"], "text"),
            _fence(known["policy"], "toml"),
            _SETTING,
            *(
                _section(system, [each for each in found if each.system == system["name"]])
                for system in known["systems"]
            ),
        ]
    )


def _count(outcomes: Iterable[str], found: Iterable[Statement]) -> list[str]:
    """Return how many statements there are, and how many of each outcome."""
    each = [statement.outcome for statement in found]
    return [str(len(each)), *(str(each.count(outcome)) for outcome in outcomes)]


def _section(system: dict[str, Any], every: Iterable[Statement]) -> str:
    """Return the section of one system."""
    found = [each for each in every if each.system == system["name"]]
    sources = ", ".join(f"[{number}]({page})" for number, page in enumerate(system["pages"], 1))
    parts = [f"## {system['name']}\n", f"From its documentation: {sources}.\n"]
    same = [each for each in found if each.outcome == "as it is"]
    if same:
        parts += ["### Run as they are\n"]
        parts += [_fence("\n\n".join(f"-- {each.what}\n{each.theirs};" for each in same), "sql")]
    other = [each for each in found if each.outcome == "with another text"]
    if other:
        parts += ["### Run with another text\n", *(line for each in other for line in _pair(each))]
    refused = [each for each in found if each.outcome == "refused"]
    if refused:
        parts += ["### Refused\n"]
        for each in refused:
            parts += [f"{_capitalize(each.what)}:\n", _fence(each.theirs, "text")]
            parts += [f"{' '.join(filter(None, [each.why, 'dpsql says:']))} {_quote(each.refusal)}\n"]
    return "\n".join(parts)


def _pair(each: Statement) -> Iterator[str]:
    """Yield their text, and what to write in its place."""
    yield f"{_capitalize(each.what)}, theirs and ours:\n"
    yield _fence(each.theirs, "text")
    yield _fence(each.ours, "sql")


def _capitalize(text: str) -> str:
    return text[0].upper() + text[1:]


def _quote(text: str) -> str:
    """Return a refusal as code, as it may hold characters that mean something in Markdown."""
    return f"`{text}`"


def _fence(text: str, language: str) -> str:
    return f"```{language}\n{text.strip()}\n```\n"
