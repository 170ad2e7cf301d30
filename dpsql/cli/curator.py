"""Commands of the curator: a starter policy, bounds, checks, materialized tables, ledger, data version, and users.

Passwords are typed or piped in, never given as arguments.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING

import click

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
    from dpsql.policy import DatabaseUrl
    from dpsql.report.policy_check import Check

PATH = click.Path(readable=False, path_type=Path)  # what opens the file says why it cannot
POLICY = click.option("--policy", type=PATH, help="Policy file (TOML); by default $DPSQL_POLICY, or policy.toml here.")
NO_FILE = "by default $DPSQL_DB, or the sources that the policy names."
DATABASE = click.option("--db", type=PATH, help=f"DuckDB database file; {NO_FILE}")
EXIT_CODES: dict[type[Error], int] = {
    UsageError: 2,
    Refusal: 3,
    Unsupported: 3,
    BudgetExceeded: 4,
    PolicyError: 5,
    EngineError: 6,
    LedgerError: 7,
}
_REPORT = "Output format: text, or one JSON object."
_STDOUT = Path("-")


def find_exit_code(error: Error) -> int:
    """Return the exit code of a command that ends with an error."""
    return next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), 1)


def read_statement(sql: str) -> str:
    """Return `sql`, or standard input if it is a dash."""
    if sql != "-":
        return sql
    try:
        # Editors of Windows begin a file with a byte order mark, which this codec drops.
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError:  # a guess at the encoding could change the query and its charge
        raise UsageError("not-text", "Standard input is not UTF-8 text.", hint="Save the file as UTF-8.") from None


class Layout(StrEnum):
    """Output format of a report."""

    text = "text"
    json = "json"


@click.command()
@click.argument("data", help="DuckDB file, Parquet or CSV file, folder, or the URL of an engine.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Option of the engine at a URL, as [source.options] has it; may be repeated.",
)
@click.option("--output", type=PATH, default=Path("policy.toml"), help="File to write; - is standard output.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
def init(data: str, *, options: tuple[str, ...], output: Path, force: bool) -> None:
    """Write a starter policy from a schema. Read it, and complete it by hand.

    The command reads no rows but those of CSV files, to guess their format and the types of their columns.
    """
    from dpsql.curator import write_starter
    from dpsql.policy.starter import LEDGER

    pairs = [option.partition("=") for option in options]
    if not all(name and sign for name, sign, _ in pairs):
        hint = "Write --option NAME=VALUE, once for each option."
        raise UsageError("source-option", "An option needs a name and a value.", hint=hint, place="--option")
    beside = Path.cwd() if output == _STDOUT else output.parent
    starter = write_starter(data, beside=beside, options={name: value for name, _, value in pairs})
    lines = starter.lines()
    if output == _STDOUT:
        sys.stdout.flush()
        # As bytes, since TOML is UTF-8 whatever the locale is.
        sys.stdout.buffer.write(starter.text.encode())
        sys.stdout.buffer.flush()
    else:
        _write_policy(starter.text, output, database=Path(data), force=force)
        lines = [f"Wrote {output}: a starter policy from names, types and keys; {starter.reading}", "", *lines]
        if (beside / LEDGER).exists():
            other = f'ledger = "{output.stem}-ledger.sqlite"'
            lines.append(f"{LEDGER} exists, and has its budget: for other data write another name, such as {other}.")
        words = [] if starter.names_sources else ["--db", data]
        words += [] if output == Path("policy.toml") else ["--policy", str(output)]
        command = shlex.join(["dpsql", "check", *words])
        lines.append(f"Next: read every line, complete what is open, and run: {command}")
        if starter.bounds_columns:
            command = shlex.join(["dpsql", "bounds", *starter.bounds_columns, *words])
            lines.append(f"For COUNT(*) and SUM, have bounds suggested, at a price that is shown first: {command}")
        if starter.first_query is not None:
            lines.append(f"First query: {shlex.join(['dpsql', 'query', *words, starter.first_query])}")
    for line in lines:
        _echo(line, err=output == _STDOUT)


def _write_policy(text: str, output: Path, *, database: Path, force: bool) -> None:
    place = str(output)
    try:
        if output.exists() and output.samefile(database):
            hint = "Name another file with --output."
            raise UsageError("output-exists", "The output is the database itself.", hint=hint, place=place)
        with output.open("w" if force else "x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        hint = "Name another file with --output, or replace this one with --force."
        raise UsageError("output-exists", "A file exists at this path.", hint=hint, place=place) from None
    except OSError:
        hint = "Give a path in an existing, writable directory."
        reason = "The policy cannot be written to this path."
        raise UsageError("output-unwritable", reason, hint=hint, place=place) from None


@click.command()
@click.argument("table", required=False, help="Table to materialize; by default every table that the policy lists.")
@POLICY
@DATABASE
@click.option("--url", help="Address of the database for a role that may write, such as postgresql://curator@host/db.")
@click.option("--again", is_flag=True, help="Read all rows, also where some were added at most.")
def materialize(table: str | None, *, policy: Path | None, db: Path | None, url: str | None, again: bool) -> None:
    """Materialize tables for faster queries.

    The distinct values of each privacy unit in the columns that the policy lists are
    stored beside the data, and queries read them instead of the rows.
    """
    from dpsql import curator

    outcomes = {
        "current": "is already materialized",
        "appended": "is materialized: the appended rows were added",
        "made": "is materialized: all of it was written",
    }
    for name, result in curator.materialize(policy, table, database=db, url=url, again=again).items():
        _echo(f"{name} {outcomes[result]}.")


@click.command()
@POLICY
@DATABASE
@click.option(
    "--format",
    "layout",
    type=click.Choice(Layout),
    default=Layout.text,
    help="Output format: text, or one JSON object.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
def check(policy: Path | None, *, db: Path | None, layout: Layout, as_json: bool) -> None:
    """Explain a policy.

    Shows who is protected, which columns are exposed, and how many queries the budget allows. Reads no rows
    except the keys of linked tables.
    """
    from dpsql.report.policy_check import Finding
    from dpsql.report.policy_text import describe_policy

    if not as_json and layout != Layout.json:
        for line in describe_policy(_check_with_catalog(policy, db)):
            click.echo(line)
        return
    from dpsql.cli.show import write_json

    try:
        found = _check_with_catalog(policy, db)
    except Error as error:  # a policy that does not hold is one object, too
        write_json({"findings": [asdict(Finding.from_error(error))]})
        raise
    write_json({**asdict(found), "warnings": found.warnings})


def _check_with_catalog(policy: Path | None, database: Path | None) -> Check:
    """Return the check of a policy, with what confines the PostgreSQL of the catalog if the policy has one."""
    from dpsql.curator import check_policy
    from dpsql.policy import load_policy

    found, settings = check_policy(policy, database=database), load_policy(policy).server
    if settings.users is None or "postgres" not in settings.listens() or settings.catalog != "auto":
        return found
    from dpsql.server.catalog import try_confinement

    return replace(found, catalog_confinement=try_confinement())


@click.command()
@POLICY
@DATABASE
def promise(policy: Path | None, *, db: Path | None) -> None:
    """Print the page for a data-protection officer, with the numbers of a policy and the state of its ledger.

    It says what is promised and to whom, what that means for the risks of re-identification, who holds what, how to
    delete a person, and what an impact assessment can quote. Without a ledger nothing is promised.
    """
    from dpsql.curator import read_promise
    from dpsql.policy import load_policy
    from dpsql.report.policy_text import write_promise

    known = load_policy(policy)
    found, state = read_promise(known, database=db)
    click.echo(write_promise(known, found, state=state), nl=False)


@click.command()
@click.argument("table", help="Table of the policy.")
@click.argument("columns", nargs=-1, help="Columns of numbers, for the max of each.")
@POLICY
@DATABASE
@click.option("--account", metavar="NAME", help="Analyst who is charged, by name in the policy; $DPSQL_ANALYST.")
@click.option("--epsilon", metavar="NUMBER", help="Epsilon of each bound; by default four times that of an item.")
@click.option("--by", metavar="COLUMN", help="Column by which people group; by default, bounds fit any groups.")
@click.option("--groups", type=click.IntRange(1), help="Groups that one query asks for; by default the policy's k.")
@click.option("--each", is_flag=True, help="Suggest the range of one row's value, too.")
@click.option("--below-zero", is_flag=True, help="Suggest min, the bound of the values below 0, too.")
@click.option("--no-rows", is_flag=True, help="Leave out rows, the bound for COUNT(*).")
@click.option("--no-write", is_flag=True, help="Print the lines, and leave the policy as it is.")
@click.option("--yes", is_flag=True, help="Charge the price without asking.")
def bounds(  # noqa: PLR0913 - the options of the command
    table: str,
    columns: tuple[str, ...],
    *,
    policy: Path | None,
    db: Path | None,
    account: str | None,
    epsilon: str | None,
    by: str | None,
    groups: int | None,
    each: bool,
    below_zero: bool,
    no_rows: bool,
    no_write: bool,
    yes: bool,
) -> None:
    """Suggest bounds for a table from noisy ranks, and write them into the policy.

    Bounds say how many rows and how much of a column one user adds to a group at most. Each of them costs
    part of the budget. The price is shown first.
    """
    from dpsql.curator import plan_bounds
    from dpsql.policy import default_policy
    from dpsql.policy.toml import check_writable, write_bounds
    from dpsql.quantities import Epsilon
    from dpsql.suggested_bounds import BoundsRequest

    place = policy or default_policy()
    chosen = None if epsilon is None else Epsilon(epsilon)
    request = BoundsRequest(table, columns, chosen, by, groups, each=each, below_zero=below_zero, rows=not no_rows)
    with plan_bounds(place, request, database=db, account=account) as plan:
        if not no_write:
            # Before anything is charged: bounds that cannot be written would have been paid for and lost.
            check_writable(place, plan.table, bounds=plan.example)
        _echo(plan.describe_price())
        plan.check_budget()
        if not yes:
            _confirm(_CHARGE)
        found = plan.draw()
    _echo(str(found))
    if found.new and not no_write:
        write_bounds(place, found.table, bounds=found.new)
        click.echo(f"Wrote them into {place}. Open sessions keep the earlier bounds; a server reads them on SIGHUP.")


_CHARGE = "Charge the budget?"


@click.command()
@click.argument("name", required=False, help="Name of the published table.")
@click.option("--sql", metavar="SQL", help="Statement to publish, run once; - reads it from standard input.")
@click.option("--comment", metavar="TEXT", help="What the table is, for those who read it.")
@click.option("--refresh", is_flag=True, help="Make the table again, from its SQL, for a new version of the data.")
@click.option("--due", is_flag=True, help="Refresh every table that is of an earlier version of the data.")
@click.option("--drop", is_flag=True, help="Remove the table, with all that were made of it before.")
@POLICY
@DATABASE
@click.option("--account", metavar="NAME", help="Analyst who is charged, by name in the policy; $DPSQL_ANALYST.")
@click.option("--yes", is_flag=True, help="Charge the price without asking.")
def publish(  # noqa: PLR0913 - the options of the command
    name: str | None,
    *,
    sql: str | None,
    comment: str | None,
    refresh: bool,
    due: bool,
    drop: bool,
    policy: Path | None,
    db: Path | None,
    account: str | None,
    yes: bool,
) -> None:
    """Publish the answer to a statement as a table that is free to read for all analysts.

    The statement is charged once; the price is shown first. Where a run fails after the charge, the next one finds the
    stored answer and is free. With --due and several tables, a failure does not stop the others, and the exit code is
    that of the first failure.
    """
    from dpsql import curator
    from dpsql.publications import PublicationRequest

    acts = [sql is not None, refresh, due, drop]
    if sum(acts) != 1 or due != (name is None) or (comment is not None and sql is None):
        hint = (
            'Write dpsql publish NAME --sql "SELECT ...", with --comment TEXT or not; dpsql publish NAME --refresh; '
            "dpsql publish NAME --drop; or dpsql publish --due."
        )
        raise UsageError("publish-options", "It is not clear what is published.", hint=hint)
    if name is None:
        _publish_due(policy, db, account=account, yes=yes)
        return
    if drop:
        curator.drop(policy, name)
        _echo(f"{name} is not published any more. What it cost stays charged.")
        return
    request = PublicationRequest(name, None if sql is None else read_statement(sql), comment or "")
    with curator.plan_publication(policy, request, database=db, account=account) as plan:
        _echo(plan.describe_price())
        plan.check_budget()
        if not (yes or plan.is_free):
            _confirm(_CHARGE)
        found = plan.publish()
    _echo(str(found))


def _publish_due(policy: Path | None, db: Path | None, *, account: str | None, yes: bool) -> None:
    """Refresh the tables that are due; raise the first error in the end, once the others are done."""
    from dpsql import curator

    errors = dict[str, Error]()
    with curator.plan_due(policy, database=db, account=account) as plans:
        for plan in plans.values():
            if not isinstance(plan, Error):
                _echo(plan.describe_price())
        if not plans:
            _echo("No table is due: each is of this version of the data.")
        if not yes and any(not (isinstance(plan, Error) or plan.is_free) for plan in plans.values()):
            _confirm(_CHARGE)
        for name, plan in plans.items():
            found = curator.publish_due(plan)
            if isinstance(found, Error):
                errors[name] = found
                _echo(f"dpsql: {name}: {found}", err=True)
            else:
                _echo(str(found))
    if errors:
        raise click.exceptions.Exit(find_exit_code(next(iter(errors.values()))))


def _echo(text: str, *, err: bool = False) -> None:
    """Write lines, which may hold names of the policy or of a ledger."""
    from dpsql.display import replace_unprintable

    for line in text.split("\n"):
        click.echo(replace_unprintable(line), err=err)


def _confirm(question: str) -> None:
    """Ask on the terminal; raise `UsageError` where there is none."""
    if not sys.stdin.isatty():
        hint = "Add --yes to charge it without asking."
        raise UsageError("not-confirmed", "There is no terminal to confirm the price on.", hint=hint)
    click.confirm(question, abort=True)


_LEDGER = click.argument(
    "ledger", required=False, help="Ledger file, or its postgresql:// address; by default that of the policy."
)


@contextmanager
def _find_ledger(ledger: str | None, policy: Path | None) -> Iterator[str | Path | DatabaseUrl]:
    """Find a ledger that exists, for a command that makes none."""
    from dpsql.curator import find_ledger

    try:
        yield ledger or find_ledger(policy)
    except LedgerError as error:
        if error.code == "not-a-ledger" and ledger:
            error.hint = "Name the file of a ledger, or the policy that names it: --policy FILE."
        raise


@click.group(name="ledger", no_args_is_help=True)
def ledger_app() -> None:
    """Verify, export or copy the ledger, or raise its total."""


@ledger_app.command()
@_LEDGER
@POLICY
def verify(ledger: str | None, *, policy: Path | None) -> None:
    """Recompute the hash chain of all events and compare balances, answers and the high-water mark. Changes nothing."""
    from dpsql.curator import verify_ledger

    with _find_ledger(ledger, policy) as place:
        found = verify_ledger(place)
    click.echo(f"{found.events:,} events hold together. Head of the chain: {found.head}")


@ledger_app.command()
@_LEDGER
@POLICY
def export(ledger: str | None, *, policy: Path | None) -> None:
    """Write every event as one line of JSON, oldest first."""
    from dpsql.curator import read_history

    with _find_ledger(ledger, policy) as place:
        for event in read_history(place):
            click.echo(json.dumps({**asdict(event), "body": json.loads(event.body)}))


@ledger_app.command()
@click.argument("to", type=PATH, help="File to write; it must not exist yet.")
@click.option("--ledger", help="Ledger file; by default the one in the policy.")
@click.option("--policy", type=PATH, help="Policy file; by default $DPSQL_POLICY, or policy.toml.")
def backup(to: Path, *, ledger: str | None, policy: Path | None) -> None:
    """Copy the ledger into a new file that only you can read, and verify the copy. The ledger may be in use."""
    from dpsql.curator import back_up, find_ledger

    source = find_ledger(policy) if ledger is None else ledger
    found = back_up(source, to)
    click.echo(f"{to} has {found.events:,} events, which hold together. Head of the chain: {found.head}")


@ledger_app.command()
@click.argument("ledger", required=False, help="Ledger file or address; by default that of the policy.")
@click.option(
    "--policy",
    type=PATH,
    help="Policy file whose [budget] is granted; by default $DPSQL_POLICY, or policy.toml.",
)
@click.option("--epsilon", help="New total epsilon; by default that of the policy.")
@click.option("--delta", help="New total delta; by default that of the policy.")
@click.option("--note", required=True, help="Reason, recorded in the ledger.")
@click.option("--period", help="Length of a period, such as 30d; each period grants the total again.")
@click.option("--periods", type=int, help="Maximum number of periods; unlimited by default.")
def grant(  # noqa: PLR0913 - the options of the command
    ledger: str | None,
    *,
    policy: Path | None,
    epsilon: str | None,
    delta: str | None,
    note: str,
    period: str | None,
    periods: int | None,
) -> None:
    """Raise the total budget of the ledger permanently.

    Edit [budget] in the policy, then run: dpsql ledger grant --policy policy.toml --note "why". The budget used so
    far stays used, and stored answers stay free.
    """
    from dpsql.accounting import ApproximateDP, describe_periods
    from dpsql.curator import grant as raise_total
    from dpsql.curator import grant_policy
    from dpsql.policy import Budget

    if ledger is None:
        if any(value is not None for value in (epsilon, delta, period, periods)):
            hint = "Write the budget into the policy, or name the ledger: dpsql ledger grant LEDGER --epsilon 2 ..."
            raise UsageError("grant-terms", "The policy says what is granted.", hint=hint)
        before, total, now = grant_policy(policy, note=note)
    else:
        if epsilon is None or delta is None or policy is not None:
            hint = "Give --epsilon and --delta, or leave the ledger out and give --policy."
            raise UsageError("grant-terms", "It is not clear what is granted.", hint=hint)
        budget = Budget(epsilon, delta, period=period, periods=periods)
        with _find_ledger(ledger, policy) as place:
            before, now = raise_total(place, budget, note=note)
        total = ApproximateDP(budget.epsilon, budget.delta)
    when = "" if now is None else f" {describe_periods(now)}"
    click.echo(f"The total was {before} and is {total}{when}.")


@ledger_app.command()
@POLICY
@click.option("--note", required=True, help="Reason, recorded in the ledger.")
def units(policy: Path | None, *, note: str) -> None:
    """Record that tables have another privacy unit now, as the policy says.

    What was spent stays spent. Answers before protect the former units alone.
    """
    from dpsql.curator import change_units

    fresh = change_units(policy, note=note)
    for table, unit in fresh.items():
        click.echo(
            f"The privacy unit of {table} is {unit}." if unit else f"{table} is public: nobody in it is protected."
        )
    if not fresh:
        click.echo("The ledger has the privacy units of the policy.")


@click.group(name="data", no_args_is_help=True)
def data_app() -> None:
    """Record that the data has changed."""


@data_app.command()
@_LEDGER
@POLICY
@click.option("--note", required=True, help="Reason, recorded in the ledger.")
def bump(ledger: str | None, *, policy: Path | None, note: str) -> None:
    """Increment the data version.

    Stored answers are no longer reused, so repeated queries are charged again. The budget used so far stays used.
    """
    from dpsql.curator import bump as bump_version

    with _find_ledger(ledger, policy) as place:
        click.echo(f"The data version is {bump_version(place, note=note)}.")


_NAME = click.argument("name", help="User name; the policy uses it as the name of the analyst.")
_FILE = click.option("--users", type=PATH, help="File of users.")
_SERVER_POLICY = click.option(
    "--policy", type=PATH, help="Policy whose [server] names the file of users; by default policy.toml here."
)
_PIPED = click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")


def _change_users(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the file of users that --users or --policy names; say in the end how a server applies it."""

    @wraps(command)
    def change(*, users: Path | None, policy: Path | None, **given: object) -> None:
        command(file=_find_users_file(users, policy), **given)
        click.echo("Send SIGHUP to a running server to apply the change.", err=True)

    return _FILE(_SERVER_POLICY(change))


@click.group(name="user", no_args_is_help=True)
def user_app() -> None:
    """Manage the users who may log in to a server, and their tokens."""


@user_app.command()
@_NAME
@_change_users
@click.option("--curator", is_flag=True, help="Let the user see the spending of all analysts.")
@click.option("--acts-as", help="Analysts for whom a service account may run queries, separated by commas.")
@_PIPED
def add(name: str, *, file: Path, curator: bool, acts_as: str | None, password_stdin: bool) -> None:
    """Add a user; create the file if it does not exist."""
    from dpsql.server.users import User, add_user, list_users

    others = tuple(other.strip() for other in (acts_as or "").split(",") if other.strip())
    add_user(file, User(name, curator, others), password=_read_password(piped=password_stdin))
    for other in sorted({*others} - {user.name for user in list_users(file)}):
        click.echo(f"dpsql: note: --acts-as names {other}, who is not in the file of users.", err=True)
    click.echo(f"{name} may log in: {file}")


@user_app.command()
@_NAME
@_change_users
@_PIPED
def passwd(name: str, *, file: Path, password_stdin: bool) -> None:
    """Replace a user's password."""
    from dpsql.server.users import change_password

    change_password(file, name, password=_read_password(piped=password_stdin))
    click.echo(f"{name} has a new password.")


@user_app.command()
@_NAME
@_change_users
def remove(name: str, *, file: Path) -> None:
    """Remove a user. The user's charges stay in the ledger."""
    from dpsql.server.users import remove_user

    remove_user(file, name)
    click.echo(f"{name} may no longer log in.")


@user_app.command()
@_NAME
@click.argument("label", help="Name for the token, such as that of the program that uses it.")
@_change_users
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(["read", "query", "curate"]),
    default=["read"],
    help="What the token may do: read what is free, run charged queries, act as a curator; repeat for more.",
)
@click.option("--days", type=click.IntRange(1, 3660), default=90, help="Number of days until the token expires.")
def token(name: str, *, label: str, file: Path, scopes: Sequence[str], days: int) -> None:
    """Create a token with which a program uses the JSON API or MCP as a user.

    The token is printed once and cannot be read again.
    """
    from datetime import UTC, datetime, timedelta

    from dpsql.server.users import StoredToken, add_token

    until = datetime.now(UTC).replace(microsecond=0) + timedelta(days=days)
    click.echo(add_token(file, StoredToken(name, label, frozenset(scopes), until)))


@user_app.command()
@_NAME
@click.argument("label", help="Name of the token.")
@_change_users
def revoke(name: str, *, label: str, file: Path) -> None:
    """Revoke a token of a user."""
    from dpsql.server.users import remove_token

    remove_token(file, name, label=label)
    click.echo(f"{label} of {name} is revoked.")


@user_app.command(name="list")
@_FILE
@_SERVER_POLICY
def listing(*, users: Path | None, policy: Path | None) -> None:
    """List the users and their tokens."""
    from dpsql.server.users import list_tokens, list_users

    file = _find_users_file(users, policy)
    tokens = list_tokens(file)
    for user in list_users(file):
        marks = ["curator"] if user.is_curator else []
        marks += [f"acts as {', '.join(user.acts_as)}"] if user.acts_as else []
        click.echo("  ".join([user.name, *marks]))
        for each in tokens:
            if each.user == user.name:
                until = "" if each.expires is None else f", until {each.expires:%Y-%m-%d}"
                click.echo(f"  token {each.label}: {', '.join(sorted(each.scopes))}{until}")


def _find_users_file(users: Path | None, policy: Path | None) -> Path:
    if users is not None and policy is not None:
        hint = "Give one of --users FILE and --policy FILE."
        raise UsageError("users-missing", "Two files of users are named.", hint=hint)
    if users is not None:
        return users
    from dpsql.policy import load_policy
    from dpsql.server.users import find_users_file

    return find_users_file(load_policy(policy))


def _read_password(*, piped: bool) -> str:
    """Read a password: twice from the terminal without echo, or the first line of standard input."""
    if piped:
        return sys.stdin.buffer.readline().decode(errors="replace").rstrip("\r\n")
    if not sys.stdin.isatty():
        hint = "Type it on a terminal, or pipe it in with --password-stdin."
        raise UsageError("password", "There is no terminal to type a password on.", hint=hint)
    typed: str = click.prompt("Password", hide_input=True, confirmation_prompt="Once more")
    return typed
