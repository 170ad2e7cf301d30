"""Shell command `dpsql`: each command translates its arguments into calls of a session, and answers into text.

Commands import their heavy modules themselves, so that help appears at once.
"""

from __future__ import annotations

import atexit
import gc
import io
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpsql.cli import curator
from dpsql.cli.curator import EXIT_CODES, find_exit_code, read_statement
from dpsql.errors import Error, UsageError, WastedChargeWarning

if TYPE_CHECKING:
    from dpsql.session import Session

    Command = Callable[..., None]

__all__ = ["EXIT_CODES", "app", "main"]
_INTERRUPTED = 130  # 128 + SIGINT, the convention for programs that Ctrl-C ends
_EPILOG = (
    "Exit codes: 0 success, 1 output could not be written, 2 usage error, 3 statement refused or not supported, "
    "4 budget exceeded, 5 policy error, 6 engine error, 7 ledger error, 130 interrupted by Ctrl-C."
)


class Format(StrEnum):
    """Output format of an answer."""

    table = "table"
    csv = "csv"
    json = "json"
    arrow = "arrow"


_ANALYST = click.option("--analyst", help="Analyst who runs the command, by name in the policy; $DPSQL_ANALYST.")


_IMPLICIT = click.option(
    "--implicit/--no-implicit",
    default=None,
    help="Read standard SQL as private, or not; by default as the policy says.",
)
_CONSENT = click.option(
    "--consent/--no-consent",
    default=None,
    help="Run queries that can hardly return a row, or refuse them; by default as the policy says.",
)


def _add_format(text: str) -> Callable[[Command], Command]:
    return click.option("--format", "output", type=click.Choice(Format), default=Format.table, help=text)


def _add_all(command: Command, options: Sequence[Callable[[Command], Command]]) -> Command:
    # Decorators are applied from the last to the first: reversed, the help lists the options in the order given.
    for option in reversed(options):
        command = option(command)
    return command


_LEDGER = click.option("--ledger", help="Ledger to use instead of the one in the policy.")


def _add_statement_options(command: Command) -> Command:
    """Add the argument and options that `query` and `explain` share."""
    text = "Text value for the next ? in the statement (not for TOP ?); repeat for more."
    return _add_all(
        command,
        [
            click.argument("sql", help="SQL statement; - reads it from standard input."),
            curator.POLICY,
            curator.DATABASE,
            _ANALYST,
            _LEDGER,
            click.option("--param", "-p", "parameters", multiple=True, help=text),
            _IMPLICIT,
            _add_format("Output format; csv and arrow write the receipt to stderr."),
        ],
    )


def _add_session_options(command: Command) -> Command:
    """Add the argument and options that `shell` and `mcp` share."""
    file = f"DuckDB database file; {curator.NO_FILE}"
    return _add_all(
        command,
        [
            click.argument("database", metavar="[DB]", required=False, type=curator.PATH, help=file),
            curator.POLICY,
            _ANALYST,
            _LEDGER,
            click.option("--isolation", help="Set to process to open the data in a separate process."),
            _IMPLICIT,
            _CONSENT,
        ],
    )


_FORMER = {
    "prepare": 'The command "prepare" is called "materialize" since version 0.11.0.',
    "compare-budgets": 'The command "compare-budgets" was removed in version 0.12.0. In a copy of the repository, run: '
    "python benchmarks/compare_budgets.py",
}


class _Group(click.Group):
    """Group that lists its commands in the order of their definition."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the signature of click
        return list(self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; refuse one of an earlier version with what to write instead."""
        if cmd_name in _FORMER:
            ctx.fail(_FORMER[cmd_name])
        return super().get_command(ctx, cmd_name)


@click.group(name="dpsql", cls=_Group, epilog=_EPILOG, no_args_is_help=True, context_settings={"show_default": True})
@click.version_option(package_name="dpsql", message="dpsql %(version)s", help="Show the version and exit.")
def app() -> None:
    """Differentially private top-k analytics in SQL: find the most frequent items, with a proven guarantee per user."""


@app.command()
def demo() -> None:
    """Run three private queries on bundled data. The data holds 37,711 visitors of a web site."""
    from dpsql.cli.shell import run_demo

    run_demo()


for command in (curator.init, curator.bounds, curator.publish, curator.materialize, curator.check, curator.promise):
    app.add_command(command)


@app.command()
@_add_statement_options
@_CONSENT
@click.option("--details", is_flag=True, help="Show the mechanism, the loss and what is left, too.")
@click.option("--quote-formulas", is_flag=True, help="In csv, put ' before text that a spreadsheet would compute.")
def query(  # noqa: PLR0913 - the options of the command
    sql: str,
    policy: Path | None,
    *,
    db: Path | None,
    analyst: str | None,
    ledger: str | None,
    parameters: Sequence[str],
    implicit: bool | None,
    consent: bool | None,
    output: Format,
    details: bool,
    quote_formulas: bool,
) -> None:
    """Run a private query and charge the budget for it.

    The answer is stored in the ledger: running the same query again is free.
    """
    from dpsql.cli.show import INTERRUPTED, check_output, show_progress, write_answer

    check_output(output)
    if quote_formulas and output != Format.csv:
        raise click.BadParameter("Write --format csv beside it.", param_hint="--quote-formulas")
    with _session(db, policy, analyst=analyst, ledger=ledger) as session:
        text = read_statement(sql)
        try:
            with show_progress(session):
                answer = session.sql(text, parameters, implicit=implicit, consent=consent)
        except KeyboardInterrupt:
            click.echo(f"dpsql: {INTERRUPTED}; dpsql budget shows what is left.", err=True)
            raise click.exceptions.Exit(_INTERRUPTED) from None
        write_answer(answer, output, detailed=details, quote_formulas=quote_formulas)
        if output == Format.table and answer.receipt.used and session.terms.account is not None:
            click.echo(f"Percentages are of {session.terms.whose}.")


@app.command()
@_add_session_options
def shell(  # noqa: PLR0913 - the options of the command
    database: Path | None,
    policy: Path | None,
    *,
    analyst: str | None,
    ledger: str | None,
    isolation: str | None,
    implicit: bool | None,
    consent: bool | None,
) -> None:
    """Run statements from the terminal or standard input.

    End each statement with a semicolon. A piped script stops at the first statement that fails and returns its exit
    code.
    """
    from dpsql.engines import load_libraries

    load_libraries("dpsql.session", "pyarrow")
    from dpsql.cli.shell import COMMANDS, Shell, converse, open_reader, run_script
    from dpsql.connect import connect

    interactive = sys.stdin.isatty()
    # All of a script is read before the session opens, so that none of its statements runs if it is not UTF-8.
    lines = [] if interactive else read_statement("-").splitlines(keepends=True)
    with connect(database, policy=policy, ledger=ledger, analyst=analyst, isolation=isolation) as session:
        state = Shell(session, is_timed=interactive, implicit=implicit, consent=consent)
        if interactive:
            words = {name: following for name, (_, following, _) in COMMANDS.items()}
            converse(state, open_reader(session.catalog, words, tell=click.echo))
            return
        failure = run_script(state, lines)
    if failure is not None:
        raise click.exceptions.Exit(find_exit_code(failure))


@app.command()
@_add_statement_options
@click.option("--verbose", is_flag=True, help="Show the SQL that the engine runs, too.")
def explain(  # noqa: PLR0913 - the options of the command
    sql: str,
    policy: Path | None,
    *,
    db: Path | None,
    analyst: str | None,
    ledger: str | None,
    parameters: Sequence[str],
    implicit: bool | None,
    verbose: bool,
    output: Format,
) -> None:
    """Show the plan of a query and its maximum cost. Reads no rows and is free."""
    from dpsql.cli.show import write_plans

    with _session(db, policy, analyst=analyst, ledger=ledger) as session:
        plans = session.explain_all(read_statement(sql), parameters, implicit=implicit)
        write_plans(plans, session.budget, layout=output, is_verbose=verbose)


@app.command()
@curator.POLICY
@click.option("--analyst", help="Show only the budget and queries of this analyst.")
@_LEDGER
@click.option("--last", type=click.IntRange(min=0), default=10, help="Number of latest queries to list.")
@click.option("--details", is_flag=True, help="Show amounts in rho and delta, or in what the certificate counts.")
@_add_format("Output format; csv and arrow hold the totals only.")
def budget(
    policy: Path | None,
    *,
    analyst: str | None,
    ledger: str | None,
    last: int,
    details: bool,
    output: Format,
) -> None:
    """Show the budget and the cost of each query."""
    from dpsql.cli.show import write_spending
    from dpsql.curator import read_spending

    write_spending(read_spending(policy, analyst=analyst, ledger=ledger), output, last=last, details=details)


@app.command()
@curator.POLICY
@curator.DATABASE
def serve(policy: Path | None, *, db: Path | None) -> None:
    """Start a server for analysts.

    It speaks the PostgreSQL protocol and the Model Context Protocol, serves web pages, and runs until a signal
    stops it.
    """
    early: list[int] = []
    if hasattr(signal, "SIGHUP"):  # Windows has none; it would end a server that is still starting
        signal.signal(signal.SIGHUP, lambda number, _: early.append(number))
    try:
        from dpsql.server.serve import run
    except ImportError as error:
        reason, hint = f"The server needs the package {error.name}.", "Install it: pip install 'dpsql[server]'."
        raise UsageError("not-installed", reason, hint=hint) from None

    run(policy, db, tell=click.echo, log=sys.stderr, early=early)


@app.command()
@_add_session_options
def mcp(  # noqa: PLR0913 - the options of the command
    database: Path | None,
    policy: Path | None,
    *,
    analyst: str | None,
    ledger: str | None,
    isolation: str | None,
    implicit: bool | None,
    consent: bool | None,
) -> None:
    """Let an assistant ask, by the Model Context Protocol on standard input and output.

    An assistant starts this command itself; it ends when the assistant closes its input.
    """
    from dpsql.engines import load_libraries
    from dpsql.engines.base import refuse_adapter_debug

    refuse_adapter_debug()
    load_libraries("dpsql.session", "pyarrow")
    from dpsql.connect import connect

    try:
        from dpsql.server.mcp import run_stdio
    except ImportError as error:
        hint = "Install it: pip install 'dpsql[mcp]'."
        raise UsageError("not-installed", f"This command needs the package {error.name}.", hint=hint) from None
    with connect(
        database,
        policy=policy,
        ledger=ledger,
        analyst=analyst,
        isolation=isolation,
        implicit=implicit,
        consent=consent,
    ) as session:
        run_stdio(session)


for group in (curator.ledger_app, curator.data_app, curator.user_app):
    app.add_command(group)


@contextmanager
def _session(db: Path | None, policy: Path | None, *, analyst: str | None, ledger: str | None) -> Iterator[Session]:
    """Open a session for one answer, with the imported modules frozen out of garbage collection.

    Collections during the imports and at exit take a fifth of the time of such a start. DuckDB is imported after the
    freeze, because it reports objects of its own that are still alive at exit.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        from dpsql.engines import load_libraries

        load_libraries("pyarrow.compute", "sqlglot.dialects.duckdb", "dpsql.session")  # every answer needs them
        if "duckdb" not in sys.modules:
            gc.freeze()
        from dpsql.connect import connect

        with connect(db, policy=policy, ledger=ledger, analyst=analyst) as session:
            yield session
    finally:
        if was_enabled:
            gc.enable()


def main() -> None:
    """Run the command line; write an error of dpsql as one sentence to stderr, with an exit code and no traceback."""
    import warnings

    warnings.simplefilter("ignore", WastedChargeWarning)  # the notes of an answer say it
    warnings.showwarning = lambda message, *_: click.echo(f"dpsql: note: {message}", err=True)
    atexit.register(gc.disable)  # no collection at exit: the memory goes with the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a label may hold characters that the terminal lacks
    try:
        code = app(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        raise SystemExit(error.exit_code) from None
    except click.Abort as abort:
        click.echo("dpsql: Interrupted.", err=True)
        # click makes an Abort of the end of input, too; its cause is then an EOFError.
        raise SystemExit(_INTERRUPTED if isinstance(abort.__cause__, KeyboardInterrupt) else 1) from None
    except Error as error:
        click.echo(f"dpsql: {error}", err=True)
        raise SystemExit(find_exit_code(error)) from None
    except OSError:  # of the disk or pipe behind stdout
        charge = "; what was released is charged" if {"query", "shell", "publish"} & {*sys.argv[1:2]} else ""
        click.echo(f"dpsql: the output could not be written{charge}.", err=True)
        raise SystemExit(1) from None
    sys.exit(code)
