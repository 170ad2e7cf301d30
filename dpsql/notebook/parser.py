"""Parser of the line after `%dpsql`: a command with its arguments, or a statement."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path

from dpsql.errors import UsageError

__all__ = [
    "COMMANDS",
    "HELP",
    "ConnectArguments",
    "extract_statement",
    "parse_command",
    "parse_connect",
    "parse_variable",
]

HELP = (
    (
        "%dpsql connect DB --policy FILE",
        "open a session; also --analyst, --ledger, --isolation, --implicit; DB is optional",
    ),
    ("%dpsql use NAME", "use the session in a variable, opened by dpsql.connect"),
    ("%dpsql SELECT ...", "run a query; :name is replaced by the value of a variable"),
    ("%%dpsql [NAME]", "run the statement in the cell, and store the answer in a variable"),
    ("%dpsql budget", "show the budget granted, used and left"),
    ("%dpsql tables", "list the tables; DESCRIBE table lists the columns of one"),
    ("%dpsql history", "show the queries and the charge for each"),
    ("%dpsql explain SELECT ...", "show the plan of a query and its maximum cost; free"),
    ("%dpsql close", "close the session"),
)
COMMANDS = ("budget", "close", "connect", "explain", "help", "history", "tables", "use")
_CONNECT_OPTIONS = ("policy", "analyst", "ledger", "isolation")
_FLAGS = frozenset(["--implicit"])  # options of connect without a value
_WITHOUT_ARGUMENT = frozenset(["budget", "close", "help", "history", "tables"])
_REQUIRED = {"explain": "a statement", "use": "the name of a variable"}
_HINT = "%dpsql help lists the commands."
_HELP_WORDS = frozenset(["--help", "-h", "?"])


@dataclass(frozen=True, slots=True)
class ConnectArguments:
    """Arguments of the command `connect`, for `dpsql.connect`."""

    database: Path | None
    policy: Path
    ledger: str | None
    analyst: str | None
    isolation: str | None
    implicit: bool | None


def parse_command(line: str) -> tuple[str, str] | None:
    """Return the command of a line and its argument; None for a statement."""
    first, _, rest = line.strip().partition(" ")
    name, rest = first.lower().removesuffix(";"), rest.strip()
    if name in _HELP_WORDS:
        return "help", ""
    if name not in COMMANDS:
        if name.isidentifier() and not rest:  # no statement is one word
            hint = "%dpsql help lists the commands. A statement has more words, such as SHOW TABLES."
            raise UsageError("magic", "There is no such command.", hint=hint)
        return None
    if name in _REQUIRED and not rest.rstrip(";").strip():
        raise UsageError("magic", f"%dpsql {name} needs {_REQUIRED[name]} after it.", hint=_HINT)
    if name in _WITHOUT_ARGUMENT and rest.rstrip(";").strip():
        raise UsageError("magic", f"%dpsql {name} takes nothing after it.", hint=_HINT)
    return name, rest


def extract_statement(line: str) -> str:
    """Return the text in which the place of an error is counted: the argument of `explain`, or the whole line."""
    first, _, rest = line.strip().partition(" ")
    return rest.strip() if first.lower() == "explain" else line


def parse_connect(rest: str) -> ConnectArguments:
    """Parse the arguments of `connect`: a database, and options as `--name value` or `--name=value`."""
    places: list[str] = []
    options: dict[str, str] = {}
    words = iter(_split_words(rest))
    for word in words:
        name, has_value, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            places.append(word)
        elif word in _FLAGS:
            options[name] = "on"
        elif name not in _CONNECT_OPTIONS or name in options:
            raise _connect_error(f"connect has no option --{name}, or it is given twice.")
        else:
            options[name] = value if has_value else next(words, "")
            if not options[name]:
                raise _connect_error(f"--{name} needs a value.")
    if len(places) > 1 or "policy" not in options:
        raise _connect_error("connect needs --policy, and takes at most one database.")
    return ConnectArguments(
        Path(places[0]).expanduser() if places else None,
        Path(options["policy"]).expanduser(),
        options.get("ledger"),
        options.get("analyst"),
        options.get("isolation"),
        True if "implicit" in options else None,
    )


def parse_variable(line: str) -> str | None:
    """Return the name of the variable for the answer of a cell; None if the line is empty."""
    name = line.strip()
    if not name:
        return None
    if not name.isidentifier() or iskeyword(name) or name in COMMANDS:
        hint = "Write %%dpsql answer, and the statement on the next line. A command is a line of its own: %dpsql budget"
        raise UsageError("magic", "%%dpsql takes the name of a variable, or nothing.", hint=hint)
    return name


def _split_words(rest: str) -> list[str]:
    try:
        return shlex.split(rest)
    except ValueError:
        pass
    raise _connect_error("A quote is not closed.")


def _connect_error(reason: str) -> UsageError:
    hint = "%dpsql connect events.duckdb --policy policy.toml [--analyst NAME] [--ledger FILE] [--isolation process]"
    hint += " [--implicit]"
    return UsageError("magic", reason, hint=hint)
