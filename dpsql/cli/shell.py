"""`dpsql shell`: statements one after the other over one session, typed or piped, and what each cost."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Protocol

import click

from dpsql.answer import printable
from dpsql.cli.progress import INTERRUPTED, waiting
from dpsql.cli.show import write_answer, write_pairs, write_plan
from dpsql.completion.statements import WORDS, items
from dpsql.errors import Error, Place, UsageError

if TYPE_CHECKING:
    from dpsql.session import Session

__all__ = ["COMMANDS", "Shell", "converse", "failure_lines", "run_script"]

MODES = ("table", "csv", "json")
COMMANDS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "budget": ("", (), "what was granted and spent, and what is left"),
    "describe": ("<table>", ("<table>",), "the columns of a table"),
    "explain": ("<statement>", (), "what a private query would do, and cost at most; reads no row"),
    "help": ("", (), "this list"),
    "history": ("", (), "what you asked of this ledger, in every session, and what it was charged"),
    "mode": ("table|csv|json", MODES, "how answers are written"),
    "quit": ("", (), "leave; so does Ctrl-D"),
    "tables": ("", (), "the tables that the policy exposes"),
    "timer": ("on|off", ("on", "off"), "whether the time of each answer is shown"),
}


class Reader(Protocol):
    """What reads from the terminal."""

    def __call__(self, status: str) -> str:
        """Return a command or ended statements; raise `EOFError` at the end, `KeyboardInterrupt` for Ctrl-C."""
        ...


@dataclass(slots=True)
class Shell:
    """What outlives a statement: the session, how answers are written, and whether the end was asked for."""

    session: Session
    mode: str = "table"
    is_timed: bool = False
    is_over: bool = False

    def run(self, item: str) -> None:
        """Act on a statement or a command; raises what the session raises, and `UsageError` for no such command."""
        if item.startswith(".") or item.rstrip(";").lower() in WORDS:
            name, _, given = item.lstrip(".").rstrip().partition(" ")
            self._command(name.rstrip(";").lower(), given.strip().removesuffix(";").strip())
            return
        started = time.perf_counter()
        with waiting(self.session):
            answer = self.session.sql(item)
        seconds = time.perf_counter() - started
        write_answer(answer, self.mode)
        sys.stdout.flush()
        if self.is_timed:
            click.echo(f"{seconds:.2f} s", err=True)

    def _command(self, name: str, given: str) -> None:
        name = "quit" if name == "exit" else name
        if name not in COMMANDS:
            raise UsageError("shell-command", "There is no such command.", hint="The command .help lists all.")
        usage, choices, _ = COMMANDS[name]
        if bool(given) != bool(usage) or (choices and choices != ("<table>",) and given not in choices):
            hint = f"Write {f'.{name} {usage}'.strip()}"
            raise UsageError("shell-command", "The command is not written like this.", hint=hint)
        acts: dict[str, Callable[[str], None]] = {
            "budget": lambda _: click.echo(str(self.session.budget)),
            "describe": lambda table: write_answer(self.session.sql(f"DESCRIBE {table}"), self.mode),
            "explain": self._explain,
            "help": lambda _: _help(),
            "history": lambda _: self._history(),
            "mode": lambda mode: setattr(self, "mode", mode),
            "quit": lambda _: setattr(self, "is_over", True),
            "tables": lambda _: write_answer(self.session.sql("SHOW TABLES"), self.mode),
            "timer": lambda state: setattr(self, "is_timed", state == "on"),
        }
        acts[name](given)

    def _explain(self, sql: str) -> None:
        write_plan(self.session.explain(sql), self.session.forecast(sql), layout=self.mode)

    def _history(self) -> None:
        rows = []
        for asked in self.session.history.to_pylist():
            currency, charged = next((name, value) for name, value in asked.items() if name.endswith("_charged"))
            unit = f"{currency.removesuffix('_charged')} " if self.mode == "table" else ""
            when = asked["asked_at"].strftime("%Y-%m-%d %H:%M:%S")
            text = printable(" ".join(asked["query"].split()))
            rows.append((when, asked["state"], "" if charged is None else f"{unit}{charged:.4g}", text))
        if rows or self.mode == "json":
            write_pairs(rows, ("asked_at", "state", "charged", "query"), layout=self.mode)


def run_script(shell: Shell, lines: Iterable[str]) -> Error | None:
    """Run what is piped until something fails, so that nothing is paid for behind it; return what failed."""
    for item in items(lines):
        try:
            shell.run(item)
        except Error as error:
            _tell(error, item)
            return error
        if shell.is_over:
            break
    return None


def converse(shell: Shell, read: Reader) -> None:
    """Read, answer and show, until the end is asked for; what fails is shown, and the next line read."""
    balance = shell.session.budget
    click.echo(
        f"dpsql {version('dpsql')}: {balance.granted} for every privacy unit. A statement ends with ; and .help helps."
    )
    while not shell.is_over:
        try:
            _act(shell, read(_status(shell.session)))
        except KeyboardInterrupt:
            continue
        except EOFError:
            break


def _act(shell: Shell, text: str) -> None:
    for item in items(text.splitlines(keepends=True)):
        try:
            shell.run(item)
        except Error as error:
            _tell(error, item)
            return
        except KeyboardInterrupt:
            click.echo(f"{INTERRUPTED}; .budget shows what is left.", err=True)
            return
        if shell.is_over:
            return


def _status(session: Session) -> str:
    """Return what is left in a few words; nothing where the ledger cannot be asked just now."""
    with suppress(Error):
        balance = session.budget
        return f"about {balance.items} more items at epsilon {balance.epsilon}"
    return ""


def _tell(error: Error, item: str) -> None:
    sys.stdout.flush()
    for line in failure_lines(error, item):
        click.echo(line, err=True)


def failure_lines(error: Error, text: str) -> list[str]:
    """Return what failed for a reader of the terminal: the reason, where it is with the place underlined, the hint."""
    lines = [f"[{error.code}] {printable(error.reason)}"]
    if isinstance(error.place, Place):
        lines += _underlined(error.place, text)
    elif error.place:
        lines.append(f"  at {printable(error.place)}")
    return [*lines, f"  Hint: {printable(error.hint)}"] if error.hint else lines


def _underlined(place: Place, text: str) -> list[str]:
    from rich.cells import cell_len

    rows = text.split("\n")
    if place.line > len(rows):
        return [f"  at {place}"]
    row = printable(rows[place.line - 1].replace("\t", " "))
    start = place.column - 1
    marked = row[start : start + len(place.fragment.split("\n")[0])]
    return [f"  {row}", f"  {' ' * cell_len(row[:start])}{'^' * max(1, cell_len(marked))}"]


def _help() -> None:
    for name, (usage, _, meaning) in COMMANDS.items():
        click.echo(f"{f'.{name} {usage}':24} {meaning}")
