"""The commands. What is heavy is imported inside them, so that help comes at once."""

from __future__ import annotations

import atexit
import gc
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsql.cli.data import app as data
from dpsql.cli.ledger import app as ledger
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

app = typer.Typer(
    name="dpsql",
    help="Private top-k analytics in SQL: the most frequent items by distinct users, with a proven guarantee for each.",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


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


Policy = Annotated[Path, typer.Option("--policy", help="The curator's policy, a TOML file.", show_default=False)]
Database = Annotated[
    Path | None,
    typer.Option("--db", help="The DuckDB file; none when all tables of the policy are files or folders."),
]
Sql = Annotated[str, typer.Argument(help="The statement; - reads it from standard input.", show_default=False)]
Parameter = Annotated[
    list[str] | None,
    typer.Option(
        "--param", "-p", help="A value for the next ? of the statement, as text (so not for TOP ?); may be repeated."
    ),
]
Analyst = Annotated[
    str | None, typer.Option("--analyst", help="Who asks, by the policy's name for them.", show_default=False)
]
Output = Annotated[Format, typer.Option("--format", help="How to write it; csv and arrow leave a receipt to stderr.")]

Source = Annotated[Path, typer.Argument(help="The DuckDB file.", show_default=False)]
Written = Annotated[Path, typer.Option("--output", help="Where to write the policy; - is standard output.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that is there.")]

_ITEM_EPSILONS = ["0.02", "0.05", "0.1", "0.5"]
_ITEMS = [10, 100]
_LASTING = "pyarrow.compute sqlglot.dialects.duckdb dpsql.session".split()  # what every answer imports sooner or later


@app.command()
def demo() -> None:
    """Ask the bundled data (37,711 visitors of a web site) three private questions, and see what they cost."""
    from dpsql.cli.demo import run

    run()


@app.command()
def init(db: Source, *, output: Written = Path("policy.toml"), force: Force = False) -> None:
    """Write a starter policy from a database's schema; what is not clear is left to the curator. Reads no row."""
    from dpsql.cli.curator import run_init

    run_init(db, output, force=force)


@app.command()
def prepare(
    table: Annotated[
        str | None, typer.Argument(help="The table; all that the policy wants prepared if none is named.")
    ] = None,
    *,
    policy: Policy,
    db: Database = None,
) -> None:
    """Keep the distinct values of a table's units beside the data, as its policy lists them: queries read these."""
    from dpsql.cli.curator import run_prepare

    run_prepare(policy, table, database=db)


@app.command()
def check(
    policy: Policy,
    db: Database = None,
    *,
    layout: Annotated[Layout, typer.Option("--format", help="Plain words, or one JSON object.")] = Layout.text,
) -> None:
    """Read a policy back in plain words: who is protected, what is exposed, what the budget buys.

    Of rows it reads only the keys that links lead to.
    """
    from dpsql.cli.curator import run_check

    run_check(policy, db, as_json=layout == Layout.json)


@app.command()
def query(
    sql: Sql,
    policy: Policy,
    *,
    db: Database = None,
    analyst: Analyst = None,
    param: Parameter = None,
    output: Output = Format.table,
) -> None:
    """Answer a private query; what it returns is charged, and stored, so that asking again is free."""
    from dpsql.cli.progress import watched
    from dpsql.cli.show import check_output, write_answer

    check_output(output)
    with _session(db, policy, analyst=analyst) as session:
        text = _text(sql)
        with watched(session):
            answer = session.sql(text, param or [])
        write_answer(answer, output)


@app.command()
def shell(
    database: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DB]", help="The DuckDB file; none when all tables of the policy are files or folders."
        ),
    ] = None,
    *,
    policy: Policy,
    db: Annotated[Path | None, typer.Option("--db", hidden=True)] = None,
    analyst: Analyst = None,
    ledger: Annotated[
        str | None, typer.Option("--ledger", help="Another ledger than the policy's.", show_default=False)
    ] = None,
    isolation: Annotated[
        str | None,
        typer.Option("--isolation", help="process: open the data in a process of its own.", show_default=False),
    ] = None,
) -> None:
    """Answer statement after statement, each ended by a semicolon, as they are typed or piped in.

    What is piped in is run until something fails, whose exit code it then has.
    """
    from dpsql.cli.shell import COMMANDS, Shell, converse, run_script
    from dpsql.cli.terminal import reader
    from dpsql.connect import connect

    if database is not None and db is not None:
        raise typer.BadParameter("The database is named twice.")
    interactive = sys.stdin.isatty()
    lines = [] if interactive else _text("-").splitlines(keepends=True)
    with connect(database or db, policy=policy, ledger=ledger, analyst=analyst, isolation=isolation) as session:
        talk = Shell(session, is_timed=interactive)
        if interactive:
            words = {name: following for name, (_, following, _) in COMMANDS.items()}
            converse(talk, reader(session.catalog, words, tell=typer.echo))
            return
        failure = run_script(talk, lines)
    if failure is not None:
        raise typer.Exit(_exit_code(failure))


@app.command()
def explain(
    sql: Sql,
    policy: Policy,
    *,
    db: Database = None,
    analyst: Analyst = None,
    param: Parameter = None,
    output: Output = Format.table,
) -> None:
    """Show the plan of a query and what it may cost at most; reads no row and charges nothing."""
    from dpsql.cli.show import write_plan

    with _session(db, policy, analyst=analyst) as session:
        text, given = _text(sql), param or []
        write_plan(session.explain(text, given), session.forecast(text, given), layout=output)


@app.command()
def budget(
    policy: Policy,
    *,
    db: Annotated[Path | None, typer.Option("--db", hidden=True)] = None,  # noqa: ARG001 - 0.3 wanted the data too
    analyst: Annotated[
        str | None, typer.Option("--analyst", help="Show only what this analyst may spend and asked.")
    ] = None,
    last: Annotated[int, typer.Option("--last", min=0, help="How many of the latest queries to list.")] = 10,
    output: Annotated[Format, typer.Option("--format", help="How to write it; csv and arrow hold the sums alone.")] = (
        Format.table
    ),
) -> None:
    """Show what was granted, spent and reserved, what remains, and who spent what on which query."""
    from dpsql.cli.budget import write_spending
    from dpsql.connect import spending_of

    write_spending(spending_of(policy, analyst=analyst), output, last=last)


@app.command(name="compare-budgets")
def compare_budgets(
    *,
    epsilon: Annotated[str, typer.Option(help="The total epsilon.")] = "1",
    delta: Annotated[str, typer.Option(help="The total delta, all of it for composition.")] = "1e-6",
    item_epsilon: Annotated[list[str], typer.Option(help="The epsilon of an item; may be repeated.")] = _ITEM_EPSILONS,
    items: Annotated[list[int], typer.Option(help="A number of items to price; may be repeated.")] = _ITEMS,
    layout: Annotated[Layout, typer.Option("--format", help="Two tables, or one JSON object.")] = Layout.text,
    plot: Annotated[Path | None, typer.Option(help="Also save a plot, by its ending; needs dpsql[plot].")] = None,
) -> None:
    """Show how many items a total buys under each certificate, and what a number of items costs. Reads no data."""
    from dpsql.accounting import ApproximateDP
    from dpsql.cli.compare import run
    from dpsql.quantities import Delta, Epsilon

    total = ApproximateDP(Epsilon(epsilon), Delta(delta))
    wanted = list(map(Epsilon, item_epsilon))
    run(total, epsilons=wanted, items=items, as_json=layout == Layout.json, plot=plot)


@app.command()
def serve(policy: Policy, *, db: Database = None) -> None:
    """Let analysts ask over the network: by PostgreSQL's protocol, on a page, by Arrow Flight SQL; until a signal."""
    from dpsql.server.serve import run

    run(policy, db, tell=typer.echo, log=sys.stderr)


app.add_typer(ledger)
app.add_typer(data)
app.add_typer(user)


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
        app()
    except Error as error:
        typer.echo(f"dpsql: {error}", err=True)
        raise SystemExit(_exit_code(error)) from None
    except OSError:  # the disk or the pipe that stdout leads to
        typer.echo("dpsql: the answer could not be written where it was sent; what it released is charged.", err=True)
        raise SystemExit(1) from None


def _exit_code(error: Error) -> int:
    return next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), 1)


def _show_warning(message: Warning | str, *_: object) -> None:
    typer.echo(f"dpsql: note: {message}", err=True)
