"""Acts of a curator: a starter policy, checks, grants, data versions, spending, and the care of the ledger."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.connect import check_engine, name_ledger, open_budget, reopen_ledger, require_psycopg
from dpsql.errors import EngineError, Error, LedgerError, PolicyError, Refusal, UngrantedBudgetWarning, UsageError
from dpsql.open_engine import open_engine
from dpsql.policy import (
    IN_MEMORY,
    Budget,
    DatabaseUrl,
    Policy,
    PrivateTable,
    SourceUrl,
    default_analyst,
    default_database,
    is_url,
    load_policy,
)
from dpsql.policy.settings import describe_unlisted
from dpsql.policy.toml import spell
from dpsql.quantities import Epsilon, Number

if TYPE_CHECKING:
    import duckdb

    from dpsql.accounting import ApproximateDP, Periods
    from dpsql.engines import Engine
    from dpsql.engines.duckdb.catalog import StoredTable
    from dpsql.ledger import Event, Verified
    from dpsql.ledger.record import NamedTable
    from dpsql.policy.starter import FoundTable, StarterPolicy
    from dpsql.publications import Publication, PublicationPlan, PublicationRequest
    from dpsql.report.balance import Spending
    from dpsql.report.policy_check import Check, Finding, LedgerState
    from dpsql.session import Session
    from dpsql.suggested_bounds import BoundsPlan, BoundsRequest, BoundsSuggestion

    DataPlace = str | Path | duckdb.DuckDBPyConnection | Engine | None


def write_starter(
    place: str | Path, *, beside: str | Path | None = None, options: Mapping[str, str] | None = None
) -> StarterPolicy:
    """Return a starter policy from the schema of a DuckDB file, a Parquet or CSV file, a folder, or a URL.

    No row is read but those of CSV files, whose format and types are guessed. Paths are written relative to the folder
    `beside`, where the policy will be. `options` are those of the engine at a URL. Raises `EngineError`.
    """
    from dpsql.engines import load_libraries
    from dpsql.open_engine import is_engine_url
    from dpsql.policy import DataSource, names_files
    from dpsql.policy.starter import Found, starter

    load_libraries("duckdb", "pyarrow")
    if isinstance(place, str) and is_engine_url(place):
        from dpsql.registration import describe_engine

        source = DataSource(place, options=options)
        tables, unread = describe_engine(source)
        return starter(Found(source.without_passwords(), tables, unread=unread, source=source))
    if options:
        reason, hint = "Only the URL of an engine has options.", "Leave --option out."
        raise UsageError("source-option", reason, hint=hint, place="source.options")
    if isinstance(place, str) and names_files(place):
        from dpsql.registration import describe_address

        return starter(Found(place, describe_address(place)))
    from dpsql.registration import describe_files, is_table_file

    path = Path(place)
    if path.is_dir() or is_table_file(path):
        return starter(Found(path.name, describe_files(path, Path.cwd() if beside is None else Path(beside))))
    from dpsql.engines.duckdb.catalog import describe_schema
    from dpsql.policy.starter import policy_names
    from dpsql.policy.validation import refuse_file

    if path.suffix.lower() not in _DATABASES and path.is_file() and not _is_duckdb(path):
        raise refuse_file(path, place=str(path))
    schema = describe_schema(path)
    names = policy_names([table.key for table in schema.tables])
    found = tuple(_describe_table(table, names) for table in schema.tables if table.key in names)
    unnamed: list[tuple[str, ...]] = [table.key for table in schema.tables if table.key not in names]
    unnamed += [(*table.key, each.name) for table in schema.tables for each in table.columns if "\0" in each.name]
    unread = tuple(map(".".join, schema.unread))
    return starter(Found(path.name, found, tuple(map(".".join, unnamed)), unread=unread))


_DATABASES = ("", ".db", ".ddb", ".duckdb")  # endings of database files; others may have any name


def _is_duckdb(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as file:
        return file.read(12)[8:] == b"DUCK"
    return False


def _describe_table(table: StoredTable, names: Mapping[tuple[str, str], str]) -> FoundTable:
    from dpsql.policy.starter import FoundTable
    from dpsql.registration import describe_column

    targets = {column: names.get((table.schema, target)) for column, target in table.leads_to.items()}
    leads = {column: target for column, target in targets.items() if target is not None}
    columns = tuple(describe_column(column) for column in table.columns if "\0" not in column.name)
    return FoundTable(names[table.key], columns, primary_key=table.primary_key, unique=table.unique, leads_to=leads)


def check_policy(policy: Policy | str | Path | None, *, database: str | Path | None = None) -> Check:
    """Return a report on a policy, checked against its files, its [source] and, if given, the database.

    Of private rows only the keys of links are read, to check that they are unique. A ledger that exists is read, also
    while others write to it. Raises `PolicyError`, also for shares of analysts of which one alone can use up another's,
    `EngineError`, or `LedgerError` for a ledger that this policy cannot open.
    """
    from dpsql.engines.scratch import sweep
    from dpsql.policy.tables import find_path
    from dpsql.report.policy_check import Finding

    sweep()
    known = load_policy(policy)
    if database is None and known.needs_database:
        database = default_database()
    near = {
        name: table
        for name, table in known.tables.items()
        if database is not None
        or known.source is not None
        or all(known.tables[passed].source is not None for passed in find_path(known.tables, name))
    }
    beside = tuple(_check_ledger(known, database))
    if not near:
        found = check_engine(None, known, tables=())
        return _refuse_errors(replace(found, findings=(*found.findings, *beside)))
    with closing(open_engine(database, known.only(near))) as engine:
        check = check_engine(engine, known, tables=tuple(near))
        outdated = tuple(_find_outdated(known.only(near), engine, place=_find_database(database, known)))
    findings = [*check.findings, *beside]
    for name in outdated:
        reason = f"What is materialized of {name} does not match its data or the policy: run dpsql materialize."
        place = known.where(f"tables.{name}.materialized")
        findings.append(Finding("materialized-outdated", place, reason, "Run dpsql materialize."))
    return _refuse_errors(replace(check, findings=tuple(findings)))


def read_promise(
    policy: Policy | str | Path | None, *, database: str | Path | None = None
) -> tuple[Check, LedgerState | None]:
    """Return a check of a policy on the budget that its ledger has granted, and the state of that ledger, if it exists.

    Raises as `check_policy`, and `UsageError` where nothing is promised: without a ledger or a private table.
    """
    from dpsql.report.policy_check import LedgerState, find_former_units, list_totals

    known = load_policy(policy)
    if known.ledger is None or str(known.ledger) == IN_MEMORY:
        reason = "The policy names no ledger: each session has the whole budget again, and no total is promised."
        hint = 'Write ledger = "ledger.sqlite" at the top of the policy.'
        raise UsageError("no-promise", reason, hint=hint, place=known.where("ledger"))
    check = check_policy(known, database=database)
    if not check.private:
        hint = 'Give a table a privacy_unit: privacy_unit = "user_id".'
        raise UsageError("no-promise", "The policy has no private table, so that nothing is promised.", hint=hint)
    try:
        verified = verify_ledger(known.ledger)
    except LedgerError as error:
        if error.code != "ledger-missing":
            raise
        return check, None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UngrantedBudgetWarning)  # the check has warned of it
        spending = read_spending(known)
    version, tables = _list_stored(known.ledger)
    published = tuple(dict.fromkeys(table.name for table in tables if table.is_published))
    former = tuple(find_former_units(read_history(known.ledger)))
    terms = spending.balance.terms
    if terms is not None:
        check = replace(
            check,
            epsilon=float(terms.total.epsilon),
            delta=float(terms.total.delta),
            period=None if terms.periods is None else str(terms.periods),
            periods=None if terms.periods is None else terms.periods.most,
            totals=tuple(list_totals(terms)),
        )
    return check, LedgerState(verified.events, verified.head, version, spending, former, published)


def _check_ledger(policy: Policy, database: str | Path | None) -> Iterator[Finding]:
    """Yield what does not fit between a policy, its data and its ledger. One that does not exist is not made."""
    from dpsql.connect import list_units
    from dpsql.open_engine import list_sources
    from dpsql.report.policy_check import LedgerFacts, lint_ledger

    place = policy.ledger
    if place is None or str(place) == IN_MEMORY:
        return
    try:
        record = reopen_ledger(place)
    except LedgerError as error:
        if error.code != "ledger-missing":
            raise
        return
    with closing(record):
        began = [event.at for event in record.events() if event.kind in {"created", "bumped"}]
        units, version = record.units(), record.data_version
    files = [_find_database(database, policy), *list_sources(policy, elsewhere=True).values()]
    places = [str(getattr(file, "path", file)) for file in files if file is not None]
    paths = [Path(place) for place in places if not is_url(place)]
    changed = {path: _find_last_change(path) for path in paths if path.exists()}
    facts = LedgerFacts(units, version, datetime.fromisoformat(began[-1]), changed)
    yield from lint_ledger(read_spending(policy), facts, units=list_units(policy))


def _find_last_change(path: Path) -> float:
    """Return when a file, or the last one in a folder, was written, replaced or moved, in seconds since 1970."""
    changed = 0.0
    for each in (path, *(path.rglob("*") if path.is_dir() else ())):
        with suppress(FileNotFoundError):  # a file that goes while the folder is read
            status = each.stat()
            changed = max(changed, status.st_mtime, status.st_ctime)  # an older file in its place has a new ctime
    return changed


def _refuse_errors(check: Check) -> Check:
    """Return a check; raise `PolicyError` for the first of its findings that is an error."""
    for found in check.findings:
        if found.severity == "error":
            raise PolicyError(found.code, found.message, hint=found.hint, place=found.place)
    return check


def _find_database(database: str | Path | None, policy: Policy) -> str | Path | None:
    """Return the DuckDB file that a policy's [source] names, or the database that was given."""
    from dpsql.open_engine import find_source

    source = find_source(database, policy)
    return database if source is None else source.path


def _find_outdated(policy: Policy, engine: Engine, *, place: str | Path | None) -> Iterator[str]:
    """Yield the tables of a policy that are to be materialized again."""
    if policy.materialized is None and (policy.source is None or policy.source.materialized is None):
        return
    from dpsql.materialized.lookup import find_outdated, find_unmaterialized
    from dpsql.open_engine import list_sources

    if engine.dialect.name != "DuckDB":
        yield from find_unmaterialized(policy, engine)
    else:
        yield from find_outdated(policy, place, sources=list_sources(policy))


def refuse_falling_shares(policy: Policy, budget: Budget, *, before: ApproximateDP) -> None:
    """Raise `UsageError` where a larger total of `budget` leaves accounts of a policy with less delta than `before`."""
    from dpsql.terms import describe_falling_shares

    if budget.epsilon >= before.epsilon and budget.delta >= before.delta:  # a ledger refuses others
        larger = replace(policy.budget, epsilon=budget.epsilon, delta=budget.delta)
        falling = describe_falling_shares(policy.with_budget(larger), before)
        if falling is not None:
            raise UsageError("grant-shares", falling[0], hint=falling[1])


def grant(
    ledger: str | Path | DatabaseUrl, budget: Budget, *, note: str, policy: Policy | None = None
) -> tuple[ApproximateDP, Periods | None]:
    """Raise the total of a ledger to that of `budget`, permanently; spending and certificate stay.

    A `budget` with a period is granted in each period from then on, or in more periods; one without a period keeps the
    existing periods. Returns the previous total, and the periods in which the new one is granted. Raises `LedgerError`
    for a total with a smaller part, and for a ledger that cannot be used, and `UsageError` where an account of `policy`
    would have less delta than before.
    """
    from dpsql.accounting import ApproximateDP, Periods, describe_periods
    from dpsql.terms import compute_budget

    total = ApproximateDP(budget.epsilon, budget.delta)
    with closing(reopen_ledger(ledger)) as record:
        before = record.total
        if policy is not None:
            refuse_falling_shares(policy, budget, before=before)
        periods = None if budget.period is None else Periods(budget.period, budget.periods)
        known = None if record.calendar is None else record.calendar.periods
        if before == total and periods in {None, known}:
            reason = f"The ledger has the total {total} {describe_periods(known)} already, so that nothing is granted."
            hint = "Write the larger epsilon into [budget] of the policy first, and run this again."
            raise UsageError("grant-nothing", reason, hint=hint)
        record.grant(compute_budget(total, record.certified.certificate), total, note=note, periods=periods)
        calendar = record.calendar
        return before, None if calendar is None else calendar.periods


def grant_policy(
    policy: Policy | str | Path | None, *, note: str
) -> tuple[ApproximateDP, ApproximateDP, Periods | None]:
    """Raise the total of a policy's ledger to that of its [budget], permanently.

    Returns the previous total, the present one, and the periods in which it is granted. Raises as `grant`, and
    `PolicyError` for a policy without a ledger.
    """
    from dpsql.accounting import ApproximateDP

    known = load_policy(policy)
    before, periods = grant(find_ledger(known), known.budget, note=note, policy=known)
    return before, ApproximateDP(known.budget.epsilon, known.budget.delta), periods


def change_units(policy: Policy | str | Path | None, *, note: str) -> dict[str, str]:
    """Record the privacy units of a policy in its ledger, also where a used one has others; return what is new.

    Raises `PolicyError` for a policy without a ledger, and `LedgerError` for a ledger that cannot be used.
    """
    from dpsql.connect import list_units

    known = load_policy(policy)
    with closing(reopen_ledger(find_ledger(known))) as record:
        return record.register(list_units(known), note=note)


def bump(ledger: str | Path | DatabaseUrl, *, note: str) -> int:
    """Raise the data version of a ledger by one and return it; answers of earlier versions are not shown again.

    Raises `LedgerError` for a ledger that cannot be used.
    """
    with closing(reopen_ledger(ledger)) as record:
        return record.bump(note)


def read_spending(
    policy: Policy | str | Path | None, *, analyst: str | None = None, ledger: str | Path | None = None
) -> Spending:
    """Return what was spent of a policy's ledger, by whom and on which queries, or by one analyst alone.

    No data is opened. Raises `PolicyError` or `LedgerError`, and `Refusal` for an analyst who may not ask.
    """
    from dpsql.report.balance import count_published, read_balances, report_spending
    from dpsql.terms import Terms

    known = load_policy(policy)
    compute_terms = Terms.of_total if analyst is None else partial(Terms.of_policy, analyst=analyst)
    record, terms = open_budget(ledger or known.ledger, known, compute_terms=compute_terms)
    with closing(record):
        entries = record.entries()  # before the budget, which a grant may raise
        unlisted, near = describe_unlisted(known.analysts, analyst)
        if unlisted and not any(entry.account == analyst for entry in entries):
            warnings.warn(
                f"{unlisted} No query was run under this name.{near and f' Did you mean {near}?'}", stacklevel=2
            )
        terms = replace(terms, budget=record.budget)
        spending = report_spending(known, entries, terms=terms, calendar=record.calendar)
        # Without an analyst it is of all accounts, whose answers nobody shares.
        answers = record.count_answers(analyst) if analyst is not None or not known.analysts else None
        balance = replace(spending.balance, answers=answers, published=count_published(record))
        spending = replace(spending, balance=balance)
        if terms.budget_by is None:
            return spending
        found = read_balances(record, terms)
        balance = replace(spending.balance, by=found.by, values=found.values, unnamed=found.unnamed)
        return replace(spending, balance=balance)


def read_history(ledger: str | Path | DatabaseUrl) -> Iterator[Event]:
    """Yield the events of a ledger, oldest first, once it has been verified. Raises `LedgerError`."""
    with closing(reopen_ledger(ledger)) as record:
        for _ in record.events():
            pass  # the link of every event is checked before the first one is returned
        yield from record.events()


def find_ledger(policy: Policy | str | Path | None) -> Path | DatabaseUrl:
    """Return where the ledger of a policy is; raise `PolicyError` for a policy without one."""
    known = load_policy(policy)
    if known.ledger is None:
        hint = 'Write ledger = "ledger.sqlite" at the top of the policy, or name the ledger itself.'
        raise PolicyError("policy-ledger", "The policy names no ledger.", hint=hint, place=known.where("ledger"))
    return known.ledger


def verify_ledger(ledger: str | Path | DatabaseUrl) -> Verified:
    """Check everything in a ledger and change nothing. Raises `LedgerError` at the first thing that does not fit."""
    with name_ledger(ledger):
        if is_url(ledger):
            require_psycopg()
            from dpsql.ledger.postgres_ledger import verify as verify_postgres

            return verify_postgres(DatabaseUrl.of(ledger))
        from dpsql.ledger import verify

        return verify(str(ledger))


def back_up(ledger: str | Path | DatabaseUrl, to: str | Path) -> Verified:
    """Copy a ledger in a file into a new file, while others may write to it, and return what the copy holds.

    The copy is private to its owner, and was verified. Raises `LedgerError`, or `UsageError` for one in a database.
    """
    if is_url(ledger):
        reason = "This ledger is in a database, which has backups of its own."
        hint = f"Run pg_dump --schema={DatabaseUrl.of(ledger).schema} with the address of the database."
        raise UsageError("ledger-in-database", reason, hint=hint)
    from dpsql.ledger import backup

    with name_ledger(ledger):
        return backup(str(ledger), to)


def materialize(
    policy: Policy | str | Path | None,
    table: str | None = None,
    *,
    database: str | Path | None = None,
    url: str | None = None,
    again: bool = False,
) -> dict[str, str]:
    """Materialize one table, or all tables of the policy with `materialized`, and return the result for each.

    The result is "current", "appended" or "made". Queries then read the materialized tables in place of the rows where
    the answer is the same, until the data has another version. Nothing is charged, because only the curator sees the
    data. Where the tables are in a database, `url` is its address for a role that may write there; without it, it is
    that of the policy. With `again`, all rows are read, also where some were added at most. Raises `PolicyError` for a
    table that cannot be materialized, and `EngineError` if it fails.
    """
    from dpsql.engines import load_libraries

    load_libraries("duckdb", "pyarrow")
    from dpsql.materialized.build import Data, seal_system_errors
    from dpsql.materialized.build import materialize as materialize_table
    from dpsql.mechanisms import OperatingSystemNoise
    from dpsql.open_engine import list_sources
    from dpsql.registration import build_catalog

    known = load_policy(policy)
    if database is None and known.needs_database:
        database = default_database()
    if url is not None and (known.source is None or known.source.path is not None):
        hint = "Leave the address out, and give the database."
        raise UsageError("database", "The tables are in DuckDB, which has no address.", hint=hint, place="url")
    names = _select_materialized(known, table)
    part = known.only(names)
    with seal_system_errors():
        with closing(open_engine(database, part, materialized=False)) as engine:
            build_catalog(engine, part)
            if engine.dialect.name != "DuckDB":
                return _materialize_in_schema(part, names, engine=engine, url=url, again=again)
        place = _find_database(database, known)
        data = Data(place, list_sources(part), _read_data_version(known), OperatingSystemNoise().draw, again)
        return {name: materialize_table(part, data, name=name) for name in names}


def _select_materialized(policy: Policy, table: str | None) -> list[str]:
    """Return the tables to materialize: one, or all that the policy lists; raise `PolicyError` where there are none."""
    listed = [name for name, each in policy.tables.items() if isinstance(each, PrivateTable) and each.materialized]
    hint = 'Write materialized = [["column"]] below the table.'
    if table is None and not listed:
        raise PolicyError("policy-prepared", "The policy lists no table to materialize.", hint=hint)
    if table is not None and table not in policy.tables:
        names = ", ".join(map(spell, policy.tables))
        raise PolicyError("policy-prepared", "The policy has no such table.", hint=f"It names {names}.")
    if table is not None and table not in listed:
        reason = "The policy does not list this table to be materialized."
        raise PolicyError("policy-prepared", reason, hint=hint, place=policy.where(f"tables.{table}"))
    selected = listed if table is None else [table]
    for name in selected:
        if isinstance(policy.tables[name].source, SourceUrl):
            reason = "A table at an address cannot be materialized: dpsql does not know when its files change."
            hint = "Leave materialized out, or copy the files to this machine and name their folder."
            raise PolicyError("policy-prepared", reason, hint=hint, place=policy.where(f"tables.{name}"))
    return selected


def _materialize_in_schema(
    policy: Policy, names: Collection[str], *, engine: Engine, url: str | None, again: bool
) -> dict[str, str]:
    """Materialize tables in the database of an engine, and check that sessions can read them."""
    from dpsql.engines.base import SchemaReader
    from dpsql.materialized.build import RemoteData, materialize_in_schema
    from dpsql.materialized.lookup import find_build
    from dpsql.mechanisms import OperatingSystemNoise
    from dpsql.open_engine import list_sources, open_schema_writer

    source = policy.source
    if source is None or source.materialized is None or not isinstance(engine, SchemaReader):
        hint = "Leave materialized out of the policy: the engine that has the data reads its rows."
        reason = "Only what DuckDB, PostgreSQL and Spark read by a policy's [source] is materialized."
        raise PolicyError("policy-prepared", reason, hint=hint, place="materialized")
    data = RemoteData(engine, _read_data_version(policy), OperatingSystemNoise().draw, again)
    try:
        with open_schema_writer(source, engine, sources=list_sources(policy), url=url) as writer:
            done = {name: materialize_in_schema(policy, data, writer=writer, name=name) for name in names}
    except EngineError as error:
        if url is not None and error.place == "source.url":  # the address that was given, not the policy's
            error.place = "url"
        raise
    engine.open_schema(source.materialized)
    if any(find_build(engine, name) != stamps for name, (_, stamps) in done.items()):
        reason = "The tables were written, but the role of sessions does not find them."
        hint = "Give dpsql materialize an address of the database that [source] names."
        raise EngineError("prepare-failed", reason, hint=hint, place="source.materialized")
    return {name: result for name, (result, _) in done.items()}


def _read_data_version(policy: Policy) -> int:
    """Return the version of the data by which sessions go: the ledger's, or the policy's if that is later."""
    declared, place = policy.data_version or 0, policy.ledger
    if place is None:
        return declared
    try:
        with closing(reopen_ledger(place)) as record:
            return max(declared, record.data_version)
    except LedgerError as error:
        if error.code != "ledger-missing":  # the first session makes it
            raise
    return declared


def suggest_bounds(  # noqa: PLR0913 - what is suggested, and what a session is opened with
    policy: Policy | str | Path | None,
    table: str,
    columns: Sequence[str] = (),
    *,
    epsilon: Number | Epsilon | None = None,
    by: str | None = None,
    groups: int | None = None,
    each: bool = False,
    below_zero: bool = False,
    rows: bool = True,
    database: DataPlace = None,
    account: str | None = None,
    ledger: str | Path | None = None,
) -> BoundsSuggestion:
    """Suggest bounds for a table of a policy from noisy ranks of its users, charged to the ledger; write nothing.

    Suggested are `rows` unless it is False, `max` of each of the `columns`, with `below_zero` also `min`, and with
    `each` the range of one row's value. They are for totals of the table, and so wide enough for any groups, or, with
    `by`, for the groups of that column, of which people ask for `groups` at a time (by default the k of a query). Each
    bound is one draw of `epsilon`, by default four times that of an item, which costs 16 items. It is stored: the same
    draw on the same version of the data is free. `account` is the analyst who is charged, as in `dpsql.connect`.
    Raises `UsageError` for a table or column that has no bounds and `BudgetExceeded` if the budget is too small for all
    (nothing is charged then), `PolicyError` for a policy without a ledger, and otherwise as `Session.sql`.
    """
    from dpsql.suggested_bounds import BoundsRequest

    chosen = epsilon if epsilon is None or isinstance(epsilon, Epsilon) else Epsilon(epsilon)
    listed = (columns,) if isinstance(columns, str) else tuple(columns)
    request = BoundsRequest(table, listed, chosen, by, groups, each=each, below_zero=below_zero, rows=rows)
    with plan_bounds(policy, request, database=database, account=account, ledger=ledger) as plan:
        return plan.draw()


@contextmanager
def plan_bounds(
    policy: Policy | str | Path | None,
    request: BoundsRequest,
    *,
    database: DataPlace = None,
    account: str | None = None,
    ledger: str | Path | None = None,
) -> Iterator[BoundsPlan]:
    """Open a session for suggested bounds, with their price; nothing is charged before `BoundsPlan.draw`."""
    from dpsql.suggested_bounds import BoundsPlan

    known = load_policy(policy)
    if ledger is None:
        find_ledger(known)  # what is charged must be recorded
    _check_account(known, account)
    with _open_account(known, database, account=account, ledger=ledger) as session:
        yield BoundsPlan(session, request)


def _open_account(policy: Policy, database: DataPlace, *, account: str | None, ledger: str | Path | None) -> Session:
    """Open a session that charges an account of a policy."""
    from dpsql.connect import connect

    try:
        return connect(database, policy=policy, ledger=ledger, analyst=account)
    except Refusal as error:
        if error.code == "analyst-disabled":
            error.hint = "Name an account of the policy that may run queries: --account NAME."
        raise


def _check_account(policy: Policy, account: str | None) -> None:
    """Refuse an account that the policy does not list and whose name is near to a listed one."""
    account = default_analyst() if account is None else account
    reason, near = describe_unlisted(policy.analysts, account)
    if near:
        hint = f"Did you mean {near}? If not, list it in the policy: [analysts.{spell(str(account))}] with an epsilon."
        raise UsageError("analyst-unknown", reason, hint=hint)
    if reason:
        warnings.warn(reason, stacklevel=2)


def publish(  # noqa: PLR0913 - what is published, and what a session is opened with
    policy: Policy | str | Path | None,
    name: str,
    sql: str,
    *,
    comment: str = "",
    database: DataPlace = None,
    account: str | None = None,
    ledger: str | Path | None = None,
) -> Publication:
    """Run a statement with private queries once, and publish its table under a name, free to read for all analysts.

    Beside each released number `users` the table has `users_low` and `users_high`, the ends of its 95 % interval. The
    statement is charged as a query of `account`, the analyst as in `dpsql.connect`; where it is stored it is free.
    Raises `Refusal` for a name that is taken or is no word, and for a statement that releases nothing, `PolicyError`
    for a policy without a ledger, and otherwise as `Session.sql`.
    """
    from dpsql.publications import PublicationRequest

    request = PublicationRequest(name, sql, comment)
    with plan_publication(policy, request, database=database, account=account, ledger=ledger) as plan:
        return plan.publish()


def refresh(
    policy: Policy | str | Path | None,
    name: str,
    *,
    database: DataPlace = None,
    account: str | None = None,
    ledger: str | Path | None = None,
) -> Publication:
    """Publish a table again, from its SQL, for a new version of the data; the earlier ones stay, each under its day.

    On the same version of the data it makes and charges nothing. The account is by default that which was charged
    before. Raises `Refusal` for a name that is not published, and otherwise as `publish`.
    """
    from dpsql.publications import PublicationRequest

    request = PublicationRequest(name)
    with plan_publication(policy, request, database=database, account=account, ledger=ledger) as plan:
        return plan.publish()


def due(
    policy: Policy | str | Path | None,
    *,
    database: DataPlace = None,
    account: str | None = None,
    ledger: str | Path | None = None,
) -> dict[str, Publication | Error]:
    """Refresh every published table whose last one is of an earlier version of the data.

    Return each that was due: what was published, or the error for which it was not. One failure does not stop the
    others.
    """
    with plan_due(policy, database=database, account=account, ledger=ledger) as plans:
        return {name: publish_due(plan) for name, plan in plans.items()}


def publish_due(plan: PublicationPlan | Error) -> Publication | Error:
    """Publish a table that is due; return the error if it fails."""
    if isinstance(plan, Error):
        return plan
    try:
        return plan.publish()
    except Error as error:
        return error.with_traceback(None)


def drop(policy: Policy | str | Path | None, name: str, *, ledger: str | Path | None = None) -> None:
    """Remove a published table, with all that were made of it before. What it cost stays charged.

    Raises `Refusal` if none of this name is published, `PolicyError` for a policy without a ledger, and `LedgerError`.
    """
    with closing(reopen_ledger(find_ledger(policy) if ledger is None else ledger)) as record:
        record.withdraw(name)


@contextmanager
def plan_publication(
    policy: Policy | str | Path | None,
    request: PublicationRequest,
    *,
    database: DataPlace = None,
    account: str | None = None,
    ledger: str | Path | None = None,
) -> Iterator[PublicationPlan]:
    """Open a session for a table to publish, with its price; nothing is charged before `PublicationPlan.publish`."""
    from dpsql.ledger.base_ledger import find_published, refuse_unpublished
    from dpsql.publications import PublicationPlan

    known = load_policy(policy)
    place = find_ledger(known) if ledger is None else ledger
    if request.sql is not None or account is not None:  # else it is the account that was charged before
        _check_account(known, account)
    if request.sql is None:
        last = find_published(_list_stored(place)[1], request.name)
        if last is None:
            raise refuse_unpublished(request.name)
        account = _find_account(last) if account is None else account
    with _open_account(known, database, account=account, ledger=ledger) as session:
        yield PublicationPlan(session, request)


@contextmanager
def plan_due(
    policy: Policy | str | Path | None,
    *,
    database: DataPlace = None,
    account: str | None = None,
    ledger: str | Path | None = None,
) -> Iterator[dict[str, PublicationPlan | Error]]:
    """Open sessions for the tables that are due, one for each account; return the plan of each, or its error."""
    from dpsql.publications import PublicationPlan, PublicationRequest, list_due

    known = load_policy(policy)
    place = find_ledger(known) if ledger is None else ledger
    if account is not None:
        _check_account(known, account)
    version, tables = _list_stored(place)
    plans: dict[str, PublicationPlan | Error] = {}
    sessions: dict[str | None, Session | Error] = {}
    with ExitStack() as stack:
        for each in list_due(max(version, known.data_version or 0), tables):
            name = _find_account(each) if account is None else account
            if name not in sessions:
                try:
                    session = _open_account(known, database, account=name, ledger=ledger)
                    sessions[name] = stack.enter_context(session)
                except Error as error:
                    sessions[name] = error.with_traceback(None)
            opened = sessions[name]
            if isinstance(opened, Error):
                plans[each.name] = opened
                continue
            try:
                plans[each.name] = PublicationPlan(opened, PublicationRequest(each.name))
            except Error as error:
                plans[each.name] = error.with_traceback(None)
        yield plans


def _find_account(stored: NamedTable) -> str | None:
    """Return the analyst that was charged for a published table; None for one who gave no name."""
    from dpsql.policy.settings import UNLISTED

    return None if stored.account == UNLISTED else stored.account


def _list_stored(place: str | Path | DatabaseUrl) -> tuple[int, Sequence[NamedTable]]:
    """Return the data version of a ledger and its stored tables; none where the first session will make it."""
    try:
        with closing(reopen_ledger(place)) as record:
            return record.tables()
    except LedgerError as error:
        if error.code != "ledger-missing":
            raise
    return 0, ()
