"""The commands. What is heavy is imported inside them, so that help comes at once."""

from __future__ import annotations

import atexit
import gc
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpsql.cli.data import app as data
from dpsql.cli.ledger import app as ledger
from dpsql.cli.progress import EXIT_CODE, watched
from dpsql.cli.user import app as user
from dpsql.errors import (
    BudgetExceeded,
    EngineError,
    Error,
    LedgerError,
    PolicyError,
    Refusal,
    Unsupported,
    UsageError,
)

if TYPE_CHECKING:
    from dpsql.session import Session

    Command = Callable[..., None]

__all__ = ["EXIT_CODES", "app", "main"]

EXIT_CODES: dict[type[Error], int] = {
    UsageError: 2,
    Refusal: 3,
    Unsupported: 3,
    BudgetExceeded: 4,
    PolicyError: 5,
    EngineError: 6,
    LedgerError: 7,
}
_EPILOG = (
    "Exit codes: 0 answered, 1 the answer could not be written, 2 wrong use, 3 the statement was refused or is not "
    "supported, 4 the budget is short, 5 the policy, 6 the engine, 7 the ledger, 130 interrupted by Ctrl-C."
)

_PATH = click.Path(path_type=Path)


class Format(StrEnum):
    """How an answer is written."""

    table = "table"
    csv = "csv"
    json = "json"
    arrow = "arrow"


class Layout(StrEnum):
    """How a check is written."""

    text = "text"
    json = "json"


_POLICY = click.option("--policy", type=_PATH, required=True, help="The curator's policy, a TOML file.")
_NO_FILE = "none when all tables of the policy are files or folders."
_DATABASE = click.option("--db", type=_PATH, help=f"The DuckDB file; {_NO_FILE}")
_UNUSED_DATABASE = click.option("--db", type=_PATH, hidden=True)
_ANALYST = click.option("--analyst", help="Who asks, by the policy's name for them.")


def _format(told: str) -> Callable[[Command], Command]:
    return click.option("--format", "output", type=click.Choice(Format), default=Format.table, help=told)


def _layout(told: str) -> Callable[[Command], Command]:
    return click.option("--format", "layout", type=click.Choice(Layout), default=Layout.text, help=told)


def _asking(command: Command) -> Command:
    """Add what a command takes that is about one statement."""
    told = "A value for the next ? of the statement, as text (so not for TOP ?); may be repeated."
    options: list[Callable[[Command], Command]] = [
        click.argument("sql", help="The statement; - reads it from standard input."),
        _POLICY,
        _DATABASE,
        _ANALYST,
        click.option("--param", "-p", "given", multiple=True, help=told),
        _format("How to write it; csv and arrow leave a receipt to stderr."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


_LASTING = "pyarrow.compute sqlglot.dialects.duckdb dpsql.session".split()  # what every answer imports sooner or later


_RENAMED = {"prepare": "materialize"}


class _Group(click.Group):
    """Lists its commands in the order in which one meets them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click asks
        return list(self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; refuse a name of an earlier version with its new name."""
        if cmd_name in _RENAMED:
            ctx.fail(f'The command "{cmd_name}" is called "{_RENAMED[cmd_name]}" since version 0.11.0.')
        return super().get_command(ctx, cmd_name)


@click.group(name="dpsql", cls=_Group, epilog=_EPILOG, no_args_is_help=True, context_settings={"show_default": True})
@click.version_option(package_name="dpsql", message="dpsql %(version)s", help="Show the version and exit.")
def app() -> None:
    """Private top-k analytics in SQL: the most frequent items by distinct users, with a proven guarantee for each."""


@app.command()
def demo() -> None:
    """Ask the bundled data (37,711 visitors of a web site) three private questions, and see what they cost."""
    from dpsql.cli.demo import run

    run()


@app.command()
@click.argument("db", type=_PATH, help="The DuckDB file.")
@click.option(
    "--output", type=_PATH, default=Path("policy.toml"), help="Where to write the policy; - is standard output."
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def init(db: Path, *, output: Path, force: bool) -> None:
    """Write a starter policy from a database's schema; what is not clear is left to the curator. Reads no row."""
    from dpsql.cli.curator import run_init

    run_init(db, output, force=force)


@app.command()
@click.argument("table", required=False, help="The table; all that the policy wants materialized if none is named.")
@_POLICY
@_DATABASE
def materialize(table: str | None, *, policy: Path, db: Path | None) -> None:
    """Keep the distinct values of a table's units beside the data, as its policy lists them: queries read these."""
    from dpsql.cli.curator import run_materialize

    run_materialize(policy, table, database=db)


@app.command()
@_POLICY
@_DATABASE
@_layout("Plain words, or one JSON object.")
def check(policy: Path, *, db: Path | None, layout: Layout) -> None:
    """Read a policy back in plain words: who is protected, what is exposed, what the budget buys.

    Of rows it reads only the keys that links lead to.
    """
    from dpsql.cli.curator import run_check

    run_check(policy, db, as_json=layout == Layout.json)


@app.command()
@_asking
def query(
    sql: str, policy: Path, *, db: Path | None, analyst: str | None, given: Sequence[str], output: Format
) -> None:
    """Answer a private query; what it returns is charged, and stored, so that asking again is free."""
    from dpsql.cli.show import check_output, write_answer

    check_output(output)
    with _session(db, policy, analyst=analyst) as session:
        text = _text(sql)
        with watched(session):
            answer = session.sql(text, given)
        write_answer(answer, output)


@app.command()
@click.argument("database", metavar="[DB]", required=False, type=_PATH, help=f"The DuckDB file; {_NO_FILE}")
@_POLICY
@_UNUSED_DATABASE
@_ANALYST
@click.option("--ledger", help="Another ledger than the policy's.")
@click.option("--isolation", help="process: open the data in a process of its own.")
def shell(
    database: Path | None,
    policy: Path,
    *,
    db: Path | None,
    analyst: str | None,
    ledger: str | None,
    isolation: str | None,
) -> None:
    """Answer statement after statement, each ended by a semicolon, as they are typed or piped in.

    What is piped in is run until something fails, whose exit code it then has.
    """
    from dpsql.cli.shell import COMMANDS, Shell, converse, run_script
    from dpsql.cli.terminal import reader
    from dpsql.connect import connect

    if database is not None and db is not None:
        raise click.BadParameter("The database is named twice.")
    interactive = sys.stdin.isatty()
    lines = [] if interactive else _text("-").splitlines(keepends=True)
    with connect(database or db, policy=policy, ledger=ledger, analyst=analyst, isolation=isolation) as session:
        talk = Shell(session, is_timed=interactive)
        if interactive:
            words = {name: following for name, (_, following, _) in COMMANDS.items()}
            converse(talk, reader(session.catalog, words, tell=click.echo))
            return
        failure = run_script(talk, lines)
    if failure is not None:
        raise click.exceptions.Exit(_exit_code(failure))


@app.command()
@_asking
def explain(
    sql: str, policy: Path, *, db: Path | None, analyst: str | None, given: Sequence[str], output: Format
) -> None:
    """Show the plan of a query and what it may cost at most; reads no row and charges nothing."""
    from dpsql.cli.show import write_plan

    with _session(db, policy, analyst=analyst) as session:
        text = _text(sql)
        write_plan(session.explain(text, given), session.forecast(text, given), layout=output)


@app.command()
@_POLICY
@_UNUSED_DATABASE
@click.option("--analyst", help="Show only what this analyst may spend and asked.")
@click.option("--last", type=click.IntRange(min=0), default=10, help="How many of the latest queries to list.")
@_format("How to write it; csv and arrow hold the sums alone.")
def budget(
    policy: Path,
    *,
    db: Path | None,  # noqa: ARG001 - 0.3 wanted the data too
    analyst: str | None,
    last: int,
    output: Format,
) -> None:
    """Show what was granted, spent and reserved, what remains, and who spent what on which query."""
    from dpsql.cli.budget import write_spending
    from dpsql.curator import read_spending

    write_spending(read_spending(policy, analyst=analyst), output, last=last)


@app.command(name="compare-budgets")
@click.option("--epsilon", default="1", help="The total epsilon.")
@click.option("--delta", default="1e-6", help="The total delta, all of it for composition.")
@click.option(
    "--item-epsilon",
    multiple=True,
    default=["0.02", "0.05", "0.1", "0.5"],
    help="The epsilon of an item; may be repeated.",
)
@click.option(
    "--items", type=int, multiple=True, default=[10, 100], help="A number of items to price; may be repeated."
)
@_layout("Two tables, or one JSON object.")
@click.option("--plot", type=_PATH, help="Also save a plot, by its ending; needs dpsql[plot].")
def compare_budgets(
    *, epsilon: str, delta: str, item_epsilon: Sequence[str], items: Sequence[int], layout: Layout, plot: Path | None
) -> None:
    """Show how many items a total buys under each certificate, and what a number of items costs. Reads no data."""
    from dpsql.accounting import ApproximateDP
    from dpsql.cli.compare import run
    from dpsql.quantities import Delta, Epsilon

    total = ApproximateDP(Epsilon(epsilon), Delta(delta))
    wanted = list(map(Epsilon, item_epsilon))
    run(total, epsilons=wanted, items=items, as_json=layout == Layout.json, plot=plot)


@app.command()
@_POLICY
@_DATABASE
def serve(policy: Path, *, db: Path | None) -> None:
    """Let analysts ask over the network: by PostgreSQL's protocol, on a page, by Arrow Flight SQL; until a signal."""
    from dpsql.server.serve import run

    run(policy, db, tell=click.echo, log=sys.stderr)


app.add_command(ledger)
app.add_command(data)
app.add_command(user)


@contextmanager
def _session(db: Path | None, policy: Path, *, analyst: str | None) -> Iterator[Session]:
    """Open a session for one answer, and spare the garbage collector the modules, which stay until the process ends.

    It would look through them again and again while they come, and more than once at the end: a fifth of such a start.
    DuckDB comes after them: at the end it writes of what is left of its own, and nothing may be.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        for module in _LASTING:
            import_module(module)
        if "duckdb" not in sys.modules:
            gc.freeze()
        from dpsql.connect import connect

        with connect(db, policy=policy, analyst=analyst) as session:
            yield session
    finally:
        if collects:
            gc.enable()


def _text(sql: str) -> str:
    if sql != "-":
        return sql
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError:  # a guess could ask, and charge for, something else
        raise UsageError("not-text", "Standard input is not text in UTF-8.", hint="Save the file as UTF-8.") from None


def main() -> None:
    """Run the command line; a dpsql error becomes its sentence on stderr and an exit code, never a traceback."""
    import warnings

    warnings.showwarning = _show_warning  # type: ignore[assignment]
    atexit.register(gc.disable)  # all that is left goes with the process: it need not be looked through before
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a label must not break a terminal that is not UTF-8
    try:
        code = app(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        raise SystemExit(error.exit_code) from None
    except click.Abort as abort:
        click.echo("dpsql: Interrupted.", err=True)
        raise SystemExit(EXIT_CODE if isinstance(abort.__cause__, KeyboardInterrupt) else 1) from None
    except Error as error:
        click.echo(f"dpsql: {error}", err=True)
        raise SystemExit(_exit_code(error)) from None
    except OSError:  # the disk or the pipe that stdout leads to
        charged = "; what it released is charged" if {"query", "shell"} & {*sys.argv[1:2]} else ""
        click.echo(f"dpsql: the answer could not be written where it was sent{charged}.", err=True)
        raise SystemExit(1) from None
    sys.exit(code)


def _exit_code(error: Error) -> int:
    return next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), 1)


def _show_warning(message: Warning | str, *_: object) -> None:
    click.echo(f"dpsql: note: {message}", err=True)
