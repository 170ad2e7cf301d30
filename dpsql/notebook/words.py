"""What a line after `%dpsql` says: a command with its words, or a statement."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path

from dpsql.errors import UsageError

__all__ = ["COMMANDS", "HELP", "Connecting", "command_of", "connecting", "statement_of", "variable_of"]

HELP = (
    ("%dpsql connect DB --policy FILE", "opens a session; also --analyst, --ledger, --isolation; DB may be left out"),
    ("%dpsql use NAME", "takes the session in a variable, made by dpsql.connect"),
    ("%dpsql SELECT ...", "asks, on one line; :name stands for the value of a variable"),
    ("%%dpsql [NAME]", "asks what the cell says, and keeps the answer in a variable"),
    ("%dpsql budget", "what was granted, spent and is left"),
    ("%dpsql tables", "what may be asked about; DESCRIBE table has its columns"),
    ("%dpsql history", "what was asked, and what it was charged"),
    ("%dpsql explain SELECT ...", "the plan of a query and what it may cost at most; for nothing"),
    ("%dpsql close", "closes the session"),
)
COMMANDS = ("budget", "close", "connect", "explain", "help", "history", "tables", "use")
_NAMED = ("policy", "analyst", "ledger", "isolation")
_NO_WORDS = frozenset(["budget", "close", "help", "history", "tables"])
_WANTED = {"explain": "a statement", "use": "the name of a variable"}
_HINT = "%dpsql help lists what can be said."
_WORDS_OF_HELP = frozenset(["--help", "-h", "?"])


@dataclass(frozen=True, slots=True)
class Connecting:
    """The words of `connect`, for `dpsql.connect`."""

    database: Path | None
    policy: Path
    ledger: str | None
    analyst: str | None
    isolation: str | None


def command_of(line: str) -> tuple[str, str] | None:
    """Return the command that a line gives, and what follows it; None for a statement."""
    first, _, rest = line.strip().partition(" ")
    name, rest = first.lower().removesuffix(";"), rest.strip()
    if name in _WORDS_OF_HELP:
        return "help", ""
    if name not in COMMANDS:
        if name.isidentifier() and not rest:  # no statement is one word
            hint = "%dpsql help lists the commands. A statement has more words: SHOW TABLES, DESCRIBE reads, SELECT ..."
            raise UsageError("magic", "There is no such command.", hint=hint)
        return None
    if name in _WANTED and not rest.rstrip(";").strip():
        raise UsageError("magic", f"%dpsql {name} wants {_WANTED[name]} after it.", hint=_HINT)
    if name in _NO_WORDS and rest.rstrip(";").strip():
        raise UsageError("magic", f"%dpsql {name} takes nothing after it.", hint=_HINT)
    return name, rest


def statement_of(line: str) -> str:
    """Return the statement in a line, in which places are counted: what follows `explain`, or all of it."""
    first, _, rest = line.strip().partition(" ")
    return rest.strip() if first.lower() == "explain" else line


def connecting(rest: str) -> Connecting:
    """Return what `connect` was given: a database, and options as `--name value` or `--name=value`."""
    places: list[str] = []
    options: dict[str, str] = {}
    words = iter(_split(rest))
    for word in words:
        name, has_value, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            places.append(word)
        elif name not in _NAMED or name in options:
            raise _misread(f"connect has no option --{name}, or it stands twice.")
        else:
            options[name] = value if has_value else next(words, "")
            if not options[name]:
                raise _misread(f"--{name} wants a value.")
    if len(places) > 1 or "policy" not in options:
        raise _misread("connect takes one database, and wants a --policy.")
    return Connecting(
        Path(places[0]).expanduser() if places else None,
        Path(options["policy"]).expanduser(),
        options.get("ledger"),
        options.get("analyst"),
        options.get("isolation"),
    )


def variable_of(line: str) -> str | None:
    """Return the name of the variable that a cell's answer is kept in; None where none is named."""
    name = line.strip()
    if not name:
        return None
    if not name.isidentifier() or iskeyword(name) or name in COMMANDS:
        hint = "Such as %%dpsql answer. The statement begins on the next line; commands stand alone, as %dpsql budget."
        raise UsageError("magic", "After %%dpsql stands the name of a variable, or nothing.", hint=hint)
    return name


def _split(rest: str) -> list[str]:
    try:
        return shlex.split(rest)
    except ValueError:
        pass
    raise _misread("A quote is not closed.")


def _misread(reason: str) -> UsageError:
    hint = "%dpsql connect events.duckdb --policy policy.toml [--analyst NAME] [--ledger FILE] [--isolation process]"
    return UsageError("magic", reason, hint=hint)
