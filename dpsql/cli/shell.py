"""`dpsql shell`: statements over one session, typed or piped, and the cost of each; and the three of `dpsql demo`.

Typed statements are read by prompt_toolkit with completion, colours and history if it is installed, else line by line.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpsql.accounting import format_percent
from dpsql.cli.show import INTERRUPTED, open_console, show_progress, write_answer, write_pairs, write_plans
from dpsql.completion import WORDS, find_completions, is_complete, items, split
from dpsql.connect import connect
from dpsql.display import replace_unprintable
from dpsql.errors import Error, Place, UsageError
from dpsql.policy import Budget, Policy, PrivateTable
from dpsql.sql.ir.scope import propose_name

if TYPE_CHECKING:
    from prompt_toolkit.input import Input
    from prompt_toolkit.output import Output
    from rich.console import Console

    from dpsql.answer import Answer
    from dpsql.session import Session
    from dpsql.sql.ir.catalog import Catalog

MODES = ("table", "csv", "json")
COMMANDS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "budget": ("", (), "show the budget granted, used and left"),
    "consent": ("on|off", ("on", "off"), "run queries that can hardly return a row, or refuse them"),
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
_SWITCHES = {
    "consent": "consent",
    "details": "is_detailed",
    "implicit": "implicit",
    "quote_formulas": "quotes_formulas",
    "timer": "is_timed",
}
# reads a command or complete statements, beside the status; EOFError at the end, KeyboardInterrupt for Ctrl-C
StatementReader = Callable[[str], str]


@dataclass(slots=True)
class Shell:
    """State between statements: the session, the output format, and whether to leave.

    `implicit` reads standard SQL as private, or not, and with `consent` queries that can hardly return a row are run;
    None is as the session was opened.
    """

    session: Session
    mode: str = "table"
    is_timed: bool = False
    is_detailed: bool = False
    quotes_formulas: bool = False
    is_over: bool = False
    implicit: bool | None = None
    consent: bool | None = None

    def run(self, item: str) -> None:
        """Run a statement or a command.

        Raises the errors of the session, and `UsageError` for an unknown or incomplete command.
        """
        if item.startswith(".") or item.rstrip(";").lower() in WORDS:
            self._run_command(*_read_command(item))
            return
        if ends_with_command(item):
            reason = "A command stands below a statement that has no semicolon, so that neither was run."
            raise UsageError("shell-command", reason, hint="End the statement with ; and write the command again.")
        started = time.perf_counter()
        with show_progress(self.session):
            answer = self.session.sql(item, implicit=self.implicit, consent=self.consent)
        seconds = time.perf_counter() - started
        self._write(answer, detailed=self.is_detailed)
        sys.stdout.flush()
        if self.is_timed:
            click.echo(f"{seconds:.2f} s", err=True)

    def _run_command(self, name: str, argument: str) -> None:
        if name in _SWITCHES:
            setattr(self, _SWITCHES[name], argument == "on")
        match name:
            case "budget":
                balance = self.session.budget
                click.echo("\n".join([str(balance), *(balance.details() if self.is_detailed else [])]))
            case "describe" | "tables":
                self._write(self.session.sql(f"DESCRIBE {argument}" if argument else "SHOW TABLES"))
            case "explain":
                plans = self.session.explain_all(argument, implicit=self.implicit)
                write_plans(plans, self.session.budget, layout=self.mode, consent=self.consent)
            case "help":
                for command, (usage, _, meaning) in COMMANDS.items():
                    click.echo(f"{f'.{command} {usage}':24} {meaning}")
            case "history":
                self._write_history()
            case "mode":
                self.mode = argument
            case "quit":
                self.is_over = True

    def _write(self, answer: Answer, *, detailed: bool = False) -> None:
        write_answer(answer, self.mode, detailed=detailed, quote_formulas=self.quotes_formulas)

    def _write_history(self) -> None:
        rows = list[tuple[str, ...]]()
        for query in self.session.history.to_pylist():
            charged = next(value for name, value in query.items() if name.endswith("_charged"))
            used = f"{query['percent_used']:.6g}"
            when = query["asked_at"].strftime("%Y-%m-%d %H:%M:%S")
            text = replace_unprintable(" ".join(query["query"].split()))
            if self.mode == "table":
                rows.append((when, query["state"], f"used {used} %", text))
            else:
                rows.append((when, query["state"], "" if charged is None else f"{charged:.4g}", text, used))
        if rows or self.mode == "json":
            names = ("asked_at", "state", "charged", "query", "percent_used")
            write_pairs(rows, names, layout=self.mode, quote_formulas=self.quotes_formulas)


def _read_command(item: str) -> tuple[str, str]:
    """Return the name of a command and its argument, "" without one."""
    name, _, argument = item.lstrip(".").rstrip().partition(" ")
    name, argument = name.rstrip(";").lower(), argument.strip().removesuffix(";").strip()
    name = "quit" if name == "exit" else name
    if name not in COMMANDS:
        near = propose_name(name, COMMANDS).replace("mean ", "mean .")
        raise UsageError("shell-command", "There is no such command.", hint=f"{near}Write .help to list the commands.")
    usage, choices, _ = COMMANDS[name]
    if bool(argument) != bool(usage) or (choices and choices != ("<table>",) and argument not in choices):
        hint = f"Write {f'.{name} {usage}'.strip()}"
        raise UsageError("shell-command", "The command has a missing or unexpected argument.", hint=hint)
    return name, argument


def ends_with_command(text: str) -> bool:
    """Return whether the last line is a command, below an unfinished statement and outside its quotes."""
    above, _, last = text.rstrip().rpartition("\n")
    word = last.strip().rstrip(";").lower()
    is_command = word in WORDS or word.partition(" ")[0].removeprefix(".") in (COMMANDS if word[:1] == "." else ())
    return is_command and bool(above.strip()) and not split(f"{above}\n").is_quoted


def run_script(shell: Shell, lines: Iterable[str]) -> Error | None:
    """Run lines up to the first error, which is written and returned; later statements are not charged."""
    for item in items(lines):
        try:
            shell.run(item)
        except Error as error:
            sys.stdout.flush()
            click.echo("\n".join(failure_lines(error, item)), err=True)
            return error
        if shell.is_over:
            break
    return None


def converse(shell: Shell, read: StatementReader) -> None:
    """Read and run statements until the end; after an error, write it and read the next line."""
    session = shell.session
    click.echo(
        f"dpsql {version('dpsql')}: {session.budget.granted} for every privacy unit. End statements with ;. Help: .help"
    )
    while not shell.is_over:
        status = ""
        with suppress(Error):  # the ledger cannot be read now
            status = f"{format_percent(session.budget.percent_left)} of the budget is left"
        try:
            text = read(status)
        except KeyboardInterrupt:
            continue
        except EOFError:
            break
        try:
            run_script(shell, text.splitlines(keepends=True))
        except KeyboardInterrupt:
            click.echo(f"{INTERRUPTED}; .budget shows what is left.", err=True)


def failure_lines(error: Error, text: str) -> list[str]:
    """Return an error as lines for the terminal: the reason, the place underlined, and the hint."""
    from rich.cells import cell_len

    place, rows = error.place, text.split("\n")
    lines = [f"[{error.code}] {replace_unprintable(error.reason)}"]
    if isinstance(place, Place) and place.line <= len(rows):
        row = replace_unprintable(rows[place.line - 1].replace("\t", " "))
        start = place.column - 1
        # Columns count characters, but the marks below count cells of the terminal: a wide character has two.
        marked = row[start : start + len(place.fragment.split("\n")[0])]
        lines += [f"  {row}", f"  {' ' * cell_len(row[:start])}{'^' * max(1, cell_len(marked))}"]
    elif place:
        lines.append(f"  at {replace_unprintable(str(place))}")
    return [*lines, f"  Hint: {replace_unprintable(error.hint)}"] if error.hint else lines


_PROMPT, _MORE = "dpsql> ", "   ... "


def open_reader(
    catalog: Catalog, commands: dict[str, tuple[str, ...]], *, tell: Callable[[str], None]
) -> StatementReader:
    """Return a reader of this terminal; `tell` writes a hint if prompt_toolkit is missing."""
    is_installed = find_spec("prompt_toolkit") is not None
    if is_installed and sys.stdout.isatty():
        return prompt_reader(catalog, commands, history=history_file())
    if not is_installed:
        tell("For completion and history between sessions: pip install 'dpsql[shell]'")
    with suppress(ImportError):
        import readline  # noqa: F401 - input() edits lines with it

    def read(status: str) -> str:  # noqa: ARG001 - a line of input has no room for it
        text = input(_PROMPT)
        while not (is_complete(text) or ends_with_command(text)):
            text += "\n" + input(_MORE)
        return text

    return read


def prompt_reader(
    catalog: Catalog,
    commands: dict[str, tuple[str, ...]],
    *,
    history: Path | None,
    keys: Input | None = None,
    screen: Output | None = None,
) -> StatementReader:
    """Return a reader of a terminal; tests pass their own input as `keys` and output as `screen`."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.application import get_app
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.history import FileHistory, InMemoryHistory
    from prompt_toolkit.lexers import PygmentsLexer
    from pygments.lexers.sql import SqlLexer

    class CatalogCompleter(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:  # noqa: ARG002
            prefix, names = find_completions(document.text_before_cursor, catalog, commands=commands)
            yield from (Completion(name, start_position=-len(prefix)) for name in names)

    prompt: PromptSession[str] = PromptSession(
        history=InMemoryHistory() if history is None else FileHistory(str(history)),
        completer=CatalogCompleter(),
        complete_while_typing=False,
        # Enter runs a statement once it is complete
        multiline=Condition(
            lambda: not (is_complete(text := get_app().current_buffer.text) or ends_with_command(text))
        ),
        prompt_continuation=_MORE,
        lexer=PygmentsLexer(SqlLexer),
        input=keys,
        output=screen,
    )
    return lambda status: prompt.prompt(_PROMPT, bottom_toolbar=status or None)


def history_file() -> Path | None:
    """Return the history file, readable by its owner alone; None if it cannot be created.

    It is in XDG_STATE_HOME, or ~/.local/state, and holds statements, never answers.
    """
    try:
        setting = os.environ.get("XDG_STATE_HOME", "")
        state = Path(setting) if setting.startswith("/") else Path.home() / ".local" / "state"
        file = state / "dpsql" / "history"
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Made here: prompt_toolkit would follow a link, and make a file that others can read.
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
    except (AttributeError, OSError, RuntimeError):  # Windows, no home, no disk, or no file of ours
        return None
    return file


QUESTIONS = (
    (
        "Which areas of the site do most visitors see?",
        "SELECT area, COUNT(DISTINCT user_id) AS visitors FROM visits GROUP BY area TOP 10 PRIVATE",
    ),
    (
        "And the fifty most visited, names only? For a large k, dpsql chooses a mechanism with one flat price.",
        "SELECT area FROM visits GROUP BY area TOP 50 PRIVATE",
    ),
    (
        "And among the 5,000 visitors of the test split, by the first mechanism? You pay only for the areas you get.",
        "SELECT area FROM visits WHERE split = 'test' GROUP BY area TOP 20 PRIVATE WITH (mechanism = limited_domain)",
    ),
)
_SHOWN = 10  # rows of a table in the demo


def demo_policy(source: str) -> Policy:
    """Return the policy of the demo: one private table, with (1, 1e-6) in total for every visitor."""
    return Policy(Budget(1.0, "1e-6", items=100, queries=5), {"visits": PrivateTable("user_id", source=source)})


def run_demo() -> None:
    """Run the queries and show answers, receipts and the budget left."""
    screen = open_console()
    screen.print(
        "MSWeb: what 37,711 anonymous visitors saw of a web site in one week. UCI Machine Learning Repository,"
    )
    screen.print("Breese, Heckerman and Kadie 1998, DOI 10.24432/C5VS3Q, CC BY 4.0.\n")
    with (
        as_file(files("dpsql.cli") / "data" / "msweb.parquet") as source,
        connect(policy=demo_policy(str(source)), ledger=":memory:") as session,
    ):
        screen.print(f"Every visitor is protected: {session.budget.granted} over all queries of this demo.\n")
        answers = [
            _ask(screen, session, question=f"{number}. {question}", sql=sql)
            for number, (question, sql) in enumerate(QUESTIONS, start=1)
        ]
    screen.print("To cite the first answer:", style="bold")
    screen.print(answers[0].statement(), markup=False)


def _ask(screen: Console, session: Session, *, question: str, sql: str) -> Answer:
    screen.print(question, style="bold", markup=False)
    screen.print(sql, style="cyan", markup=False)
    answer = session.sql(sql)
    if len(answer) > _SHOWN:
        screen.print(", ".join(str(area) for (area,) in answer), markup=False)
        screen.print("\n".join(answer.notes()), style="dim", markup=False)
    else:
        screen.print(answer)
    screen.print()
    return answer
