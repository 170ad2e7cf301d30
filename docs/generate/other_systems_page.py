"""Page of statements of other systems, each of which dpsql is asked whether it runs it.

`other_systems.toml` has the statements and a data set; `statements` says of each what dpsql does with it. No row is
read: a session describes the columns of the answer, or refuses the statement.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import duckdb
from pages import head

import dpsql

_FILE = Path(__file__).with_name("other_systems.toml")
_Outcome = Literal["as it is", "with another text", "refused"]
_OPTIONS = re.compile(
    r"OPTIONS \(epsilon = 1, delta = 1e-7, (privacy_unit_column = user_id|max_groups_contributed = 1)\)"
)
_FRAME = re.compile(
    rf"(?P<head>SELECT WITH \w+ {_OPTIONS.pattern})\n  item, (?P<measure>.+)\nFROM orders GROUP BY item"
)
_TYPE = re.compile(r"(CREATE TABLE )| (INTEGER|VARCHAR|BOOLEAN|DATE|TIMESTAMP|DECIMAL\(10, 2\))")
_INTRODUCTION = """\
Statements from the documentation and the tests of other systems with differential privacy, over the tables of one small
data set, and what to write here. Every one is run in the tests.
"""
_SETTING = """\
dpsql reads them as [standard SQL](standard-sql.md), with `implicit = true`: one that names no number of groups as
`TOP 10 PRIVATE`, a total as `PRIVATE`. A text that says PRIVATE runs with any setting. `OPTIONS (...)` stands for
`OPTIONS (epsilon = 1, delta = 1e-7, privacy_unit_column = user_id)`, in ANONYMIZATION for
`OPTIONS (epsilon = 1, delta = 1e-7, max_groups_contributed = 1)`.
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
    return "\n".join(
        [
            head("From other systems", "docs/generate/other_systems.toml and what dpsql does with each statement"),
            _INTRODUCTION,
            f"Of {len(found)} statements {sum(each.outcome == 'as it is' for each in found)} run as they are.\n",
            "## Data\n",
            _fence(_TYPE.sub("", known["data"]), "text"),
            _fence(known["policy"], "toml"),
            _SETTING,
            *(
                _section(system, [each for each in found if each.system == system["name"]])
                for system in known["systems"]
            ),
        ]
    )


def _section(system: dict[str, Any], every: Iterable[Statement]) -> str:
    """Return the section of one system."""
    found = [each for each in every if each.system == system["name"]]
    sources = ", ".join(f"[{number}]({page})" for number, page in enumerate(system["pages"], 1))
    same = [each for each in found if each.outcome == "as it is"]
    parts = [f"## {system['name']}\n", f"Source: {sources}. {len(same)} of {len(found)} run as they are.\n"]
    if same:
        parts += ["### Run as they are\n"]
        parts += [_fence("\n\n".join(_list(same)), "sql")]
    other = [each for each in found if each.outcome == "with another text"]
    if other:
        parts += ["### Run with another text: theirs, then ours\n"]
        for each in other:
            parts += [_fence(f"{_comment(system)} {each.what}\n{each.theirs}", "text"), _fence(each.ours, "sql")]
    refused = [each for each in found if each.outcome == "refused"]
    if refused:
        parts += ["### Refused\n"]
        for each in refused:
            parts += [_fence(f"-- {each.what}\n{each.theirs}", "text"), f"`{each.refusal}`\n"]
    return "\n".join(parts)


def _list(found: Iterable[Statement]) -> Iterator[str]:
    """Yield statements with what they show; those that differ in one measure alone are one, with its measures."""
    measures: dict[str, list[str]] = {}
    for each in found:
        framed = _FRAME.fullmatch(each.theirs)
        if framed:
            measures.setdefault(framed["head"], []).append(f"{framed['measure']}  -- {each.what}")
        else:
            yield f"-- {each.what}\n{each.theirs};"
    for head_, every in measures.items():
        yield "\n".join(
            [f"-- {head_}\n-- item, measure FROM orders GROUP BY item, with each of these measures:", *every]
        )


def _comment(system: dict[str, Any]) -> str:
    return "#" if system.get("language") == "python" else "--"


def _fence(text: str, language: str) -> str:
    return f"```{language}\n{_OPTIONS.sub('OPTIONS (...)', text.strip())}\n```\n"
