"""What docs/reference/stability.md calls stable is there: names may be added to stable.txt, and none may vanish.

`DPSQL_REGENERATE=1` adds what is new. A name is removed by hand, and only in a major version.
"""

from __future__ import annotations

import inspect
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest
from support.policies_of_versions import TODAY
from support.web_kit import COUNTS, PASSWORD, made, opened

from dpsql import Policy, UsageError, curator
from dpsql.cli import EXIT_CODES, app
from dpsql.policy.toml import Section
from dpsql.server.web.api import OPERATIONS, PREFIX
from dpsql.sql.allow_list import FUNCTIONS
from dpsql.sql.syntax.clause import OPTIONS

LIST = Path(__file__).with_name("stable.txt")
DOCS = Path(__file__).parents[2] / "docs"
PART = re.compile(r"^## (dpsql\S*)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`+[^`]+`+")
SECTION = re.compile(r"^### (\w+)\n(.*?)(?=^### |\Z)", re.MULTILINE | re.DOTALL)
Names = Iterator[tuple[str, Iterable[str]]]


def python() -> Names:
    """Yield what each name of docs/reference/python.md has by that page, and the acts of dpsql.curator."""
    for module, text in PART.findall((DOCS / "reference/python.md").read_text()):
        things = {name: getattr(import_module(module), name) for name in import_module(module).__all__}
        yield module, things
        for name, section in SECTION.findall(text):
            words, thing = set(re.findall(r"\w+", "".join(CODE.findall(section)))), things[name]
            annotated = [field for each in getattr(thing, "__mro__", ()) for field in inspect.get_annotations(each)]
            members = [each for each in words.intersection((*dir(thing), *annotated)) if not each.startswith("_")]
            yield f"{module}.{name}", members if inspect.isclass(thing) else ()
            if f"{module}.{name}(" in section:
                yield f"{module}.{name}()", inspect.signature(thing).parameters
            for each in members:
                if inspect.isroutine(getattr(thing, each, None)):
                    yield f"{module}.{name}.{each}()", list(inspect.signature(getattr(thing, each)).parameters)
    yield "dpsql.Error", [name for name in vars(UsageError("code", "reason", hint="hint")) if not name.startswith("_")]
    (listed,) = re.findall(r"of `dpsql\.curator` (.+) \|", (DOCS / "reference/stability.md").read_text())
    for name in re.findall(r"`(\w+)`", listed):
        yield f"dpsql.curator.{name}()", inspect.signature(getattr(curator, name)).parameters


def commands(command: click.Command, path: str) -> Names:
    yield (
        path,
        [word for each in command.params for word in ([each.name or ""], each.opts)[isinstance(each, click.Option)]],
    )
    if isinstance(command, click.Group):
        yield f"{path} <command>", command.commands
        for name, each in command.commands.items():
            yield from commands(each, f"{path} {name}")


def policy(folder: Path, patch: pytest.MonkeyPatch) -> Names:
    known: list[tuple[str, Iterable[str]]] = []
    only = Section.only

    def record(self: Section, *keys: str) -> None:
        known.append((f"policy [{'.'.join(self.path)}]", keys))
        only(self, *keys)

    patch.setattr(Section, "only", record)
    file = folder / "policy.toml"
    file.write_text(TODAY)
    Policy.from_toml(file)
    yield from known


def fields(value: object, path: str) -> Names:
    """Yield the keys of the objects in a value of JSON."""
    if isinstance(value, dict):
        yield path, value
        for name, each in value.items():
            yield from fields(each, f"{path}.{name}")
    for each in value if isinstance(value, list) else ():
        yield from fields(each, f"{path}[]")


def api(folder: Path) -> Names:
    for each in OPERATIONS:
        yield f"{each.method} {PREFIX}", [each.path]
        body = [] if each.body is None else each.body.__struct_fields__
        yield f"{each.method} {PREFIX}{each.path}", [*body, *["last"] * each.has_last]
    made(folder)
    with opened(folder) as world:
        for each in OPERATIONS:
            if each.method == "GET" or each.path in {"/query", "/explain", "/describe"}:
                user, body = "clara" if each.curators_only else "alice", None if each.body is None else {"sql": COUNTS}
                asked = world.client().request(each.method, PREFIX + each.path, json=body, auth=(user, PASSWORD))
                assert asked.status_code == 200, asked.text
                yield from fields(asked.json(), f"{each.method} {PREFIX}{each.path} answers")


def test_nothing_that_is_stable_vanished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, set[str]] = defaultdict(set)
    rows = re.findall(r"^\| (`[^|]+`) \|", (DOCS / "reference/errors.md").read_text(), re.MULTILINE)
    errors = re.findall(r"`([a-z0-9-]+)`", " ".join(rows))
    sql = [("function", FUNCTIONS), ("option", OPTIONS), ("error", errors)]
    exits = [(f"exit code of {kind.__name__}", [str(code)]) for kind, code in EXIT_CODES.items()]
    for owner, names in [
        *python(),
        *commands(app, "$ dpsql"),
        *policy(tmp_path, monkeypatch),
        *api(tmp_path),
        *sql,
        *exits,
    ]:
        found[owner] |= set(names)
    stored = {owner: set(names.split()) for owner, _, names in map(partition, LIST.read_text().splitlines())}
    if os.environ.get("DPSQL_REGENERATE"):
        merged = {owner: found[owner] | stored.get(owner, set()) for owner in {*found, *stored}}
        lines = (f"{owner}: {' '.join(sorted(names))}\n" for owner, names in sorted(merged.items()) if names)
        LIST.write_text("".join(lines))
    lost = {owner: names - found[owner] for owner, names in stored.items() if names - found[owner]}
    assert lost == {}, "docs/reference/stability.md promises these; until 1.0, delete them in stable.txt"
    new = {owner: names for owner, names in found.items() if names - stored.get(owner, set())}
    assert new == {} or os.environ.get("DPSQL_REGENERATE"), "add them: DPSQL_REGENERATE=1"


def partition(line: str) -> tuple[str, str, str]:
    return line.partition(": ")
