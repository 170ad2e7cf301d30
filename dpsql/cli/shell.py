"""`dpsql shell`: statements over one session, typed or piped, and the cost of each."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Protocol

import click

from dpsql.answer import replace_unprintable
from dpsql.cli.progress import INTERRUPTED, show_progress
from dpsql.cli.show import write_answer, write_pairs, write_plans
from dpsql.completion import WORDS, items
from dpsql.errors import Error, Place, UsageError
from dpsql.receipt import format_share

if TYPE_CHECKING:
    from dpsql.answer import Answer
    from dpsql.session import Session

__all__ = ["COMMANDS", "Shell", "converse", "failure_lines", "run_script"]

MODES = ("table", "csv", "json")
COMMANDS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "budget": ("", (), "show the budget granted, used and left"),
    "describe": ("<table>", ("<table>",), "show the columns of a table"),
    "details": ("on|off", ("on", "off"), "show the mechanism, the loss and what is left below each answer"),
    "explain": ("<statement>", (), "show the plan of a private query and its maximum cost; reads no rows"),
    "help": ("", (), "show this list"),
    "history": ("", (), "show your queries of every session with this ledger, and the charge for each"),
    "implicit": ("on|off", ("on", "off"), "read standard SQL over private tables as private, or not"),
    "mode": ("table|csv|json", MODES, "set the output format"),
    "quit": ("", (), "leave the shell; Ctrl-D does the same"),
    "quote_formulas": ("on|off", ("on", "off"), "in csv, put ' before text that a spreadsheet would compute, or not"),
    "tables": ("", (), "list the tables that the policy exposes"),
    "timer": ("on|off", ("on", "off"), "show the time of each query, or stop showing it"),
}


class StatementReader(Protocol):
    """Function that reads from the terminal."""

    def __call__(self, status: str) -> str:
        """Return a command or complete statements; raise `EOFError` at the end, `KeyboardInterrupt` for Ctrl-C."""
        ...


@dataclass(slots=True)
class Shell:
    """State between statements: the session, the output format, and whether to leave.

    `implicit` reads standard SQL as private, or not; None is as the session was opened.
    """

    session: Session
    mode: str = "table"
    is_timed: bool = False
    is_detailed: bool = False
    quotes_formulas: bool = False
    is_over: bool = False
    implicit: bool | None = None

    def run(self, item: str) -> None:
        """Run a statement or a command.

        Raises the errors of the session, and `UsageError` for an unknown or incomplete command.
        """
        if item.startswith(".") or item.rstrip(";").lower() in WORDS:
            name, _, argument = item.lstrip(".").rstrip().partition(" ")
            self._run_command(name.rstrip(";").lower(), argument.strip().removesuffix(";").strip())
            return
        started = time.perf_counter()
        with show_progress(self.session):
            answer = self.session.sql(item, implicit=self.implicit)
        seconds = time.perf_counter() - started
        self._write(answer, detailed=self.is_detailed)
        sys.stdout.flush()
        if self.is_timed:
            click.echo(f"{seconds:.2f} s", err=True)

    def _run_command(self, name: str, argument: str) -> None:
        name = "quit" if name == "exit" else name
        if name not in COMMANDS:
            raise UsageError("shell-command", "There is no such command.", hint="Write .help to list the commands.")
        usage, choices, _ = COMMANDS[name]
        if bool(argument) != bool(usage) or (choices and choices != ("<table>",) and argument not in choices):
            hint = f"Write {f'.{name} {usage}'.strip()}"
            raise UsageError("shell-command", "The command has a missing or unexpected argument.", hint=hint)
        acts: dict[str, Callable[[str], None]] = {
            "budget": lambda _: self._write_budget(),
            "describe": lambda table: self._write(self.session.sql(f"DESCRIBE {table}")),
            "details": lambda state: setattr(self, "is_detailed", state == "on"),
            "explain": self._write_plan,
            "help": lambda _: _write_help(),
            "history": lambda _: self._write_history(),
            "implicit": lambda state: setattr(self, "implicit", state == "on"),
            "mode": lambda mode: setattr(self, "mode", mode),
            "quit": lambda _: setattr(self, "is_over", True),
            "quote_formulas": lambda state: setattr(self, "quotes_formulas", state == "on"),
            "tables": lambda _: self._write(self.session.sql("SHOW TABLES")),
            "timer": lambda state: setattr(self, "is_timed", state == "on"),
        }
        acts[name](argument)

    def _write(self, answer: Answer, *, detailed: bool = False) -> None:
        write_answer(answer, self.mode, detailed=detailed, quote_formulas=self.quotes_formulas)

    def _write_plan(self, sql: str) -> None:
        plans = self.session.explain_all(sql, implicit=self.implicit)
        write_plans(plans, self.session.budget, layout=self.mode)

    def _write_budget(self) -> None:
        balance = self.session.budget
        click.echo("\n".join([str(balance), *(balance.details() if self.is_detailed else [])]))

    def _write_history(self) -> None:
        rows = []
        for query in self.session.history.to_pylist():
            currency, charged = next((name, value) for name, value in query.items() if name.endswith("_charged"))
            unit = f"{currency.removesuffix('_charged')} " if self.mode == "table" else ""
            when = query["asked_at"].strftime("%Y-%m-%d %H:%M:%S")
            text = replace_unprintable(" ".join(query["query"].split()))
            rows.append((when, query["state"], "" if charged is None else f"{unit}{charged:.4g}", text))
        if rows or self.mode == "json":
            names = ("asked_at", "state", "charged", "query")
            write_pairs(rows, names, layout=self.mode, quote_formulas=self.quotes_formulas)


def run_script(shell: Shell, lines: Iterable[str]) -> Error | None:
    """Run piped lines up to the first error, which is written and returned; later statements are not charged."""
    for item in items(lines):
        try:
            shell.run(item)
        except Error as error:
            _write_error(error, item)
            return error
        if shell.is_over:
            break
    return None


def converse(shell: Shell, read: StatementReader) -> None:
    """Read and run statements until the end; after an error, write it and read the next line."""
    balance = shell.session.budget
    click.echo(
        f"dpsql {version('dpsql')}: {balance.granted} for every privacy unit. End statements with ;. Help: .help"
    )
    while not shell.is_over:
        try:
            text = read(_describe_budget(shell.session))
        except KeyboardInterrupt:
            continue
        except EOFError:
            break
        _run_typed(shell, text)


def _run_typed(shell: Shell, text: str) -> None:
    """Run what was typed up to the first error or interrupt, which is written."""
    for item in items(text.splitlines(keepends=True)):
        try:
            shell.run(item)
        except Error as error:
            _write_error(error, item)
            return
        except KeyboardInterrupt:
            click.echo(f"{INTERRUPTED}; .budget shows what is left.", err=True)
            return
        if shell.is_over:
            return


def _describe_budget(session: Session) -> str:
    """Return the remaining budget in a few words, or an empty text if the ledger cannot be read now."""
    with suppress(Error):
        balance = session.budget
        return f"{format_share(balance.left, down=True)} of the budget is left"
    return ""


def _write_error(error: Error, item: str) -> None:
    sys.stdout.flush()
    for line in failure_lines(error, item):
        click.echo(line, err=True)


def failure_lines(error: Error, text: str) -> list[str]:
    """Return an error as lines for the terminal: the reason, the place underlined, and the hint."""
    lines = [f"[{error.code}] {replace_unprintable(error.reason)}"]
    if isinstance(error.place, Place):
        lines += _underline(error.place, text)
    elif error.place:
        lines.append(f"  at {replace_unprintable(error.place)}")
    return [*lines, f"  Hint: {replace_unprintable(error.hint)}"] if error.hint else lines


def _underline(place: Place, text: str) -> list[str]:
    from rich.cells import cell_len

    rows = text.split("\n")
    if place.line > len(rows):
        return [f"  at {place}"]
    row = replace_unprintable(rows[place.line - 1].replace("\t", " "))
    start = place.column - 1
    marked = row[start : start + len(place.fragment.split("\n")[0])]
    return [f"  {row}", f"  {' ' * cell_len(row[:start])}{'^' * max(1, cell_len(marked))}"]


def _write_help() -> None:
    for name, (usage, _, meaning) in COMMANDS.items():
        click.echo(f"{f'.{name} {usage}':24} {meaning}")
