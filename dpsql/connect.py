"""The composition root: the only place that names a real engine, a real ledger and the real noise."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.errors import LedgerError, PolicyError, UsageError
from dpsql.open_engine import IN_MEMORY, engine_of, open_evaluator, public_engines, report_confinement
from dpsql.policy import Budget, DatabaseUrl, Policy, PrivateTable, is_url

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

    from dpsql.accounting import ApproximateDP, Periods
    from dpsql.engines import Column, Engine, PublicStatements, ResultEvaluator
    from dpsql.engines.duckdb.schema import StoredTable
    from dpsql.ledger import Event, Ledger, Verified
    from dpsql.plan import Terms
    from dpsql.plan.report.policy_report import Check
    from dpsql.plan.report.spending import Spending
    from dpsql.policy.starter import FoundColumn, FoundTable
    from dpsql.policy.starter_toml import Starter
    from dpsql.session import Session

__all__ = ["IN_MEMORY", "MemoryLedgerWarning", "back_up", "bump", "check_of", "check_on", "connect", "engine_of"]
__all__ += ["grant", "history", "ledger_of", "materialize", "open_evaluator", "session_of", "spending_of", "starter_of"]
__all__ += ["verified"]


class MemoryLedgerWarning(UserWarning):
    """The policy names no ledger: what is spent is forgotten when the session ends."""


def connect(
    database: str | Path | duckdb.DuckDBPyConnection | Engine | SparkSession | None = None,
    *,
    policy: Policy | str | Path | None = None,
    ledger: str | Path | None = None,
    analyst: str | None = None,
    isolation: str | None = None,
) -> Session:
    """Open a session over a DuckDB file, an open connection, or what the policy names: files, folders or a source.

    A path is opened read-only in a locked instance of its own; an open connection is used through a fresh cursor, its
    settings untouched, and the receipts say sealed = False, as for a Spark session. The URL of another engine, such as
    "postgresql://user@host/db", may stand for the path, and so may an open `dpsql.engines.Engine`. `policy` is a
    `Policy` or the path of a TOML file.
    `ledger` overrides the policy's; ":memory:" is the ledger of a trial, forgotten at the end, and
    "postgresql://..." names one in a database. `analyst` is who asks: the policy limits them by this name, which is
    taken on trust, and what they were answered is stored under it. `isolation` "process" opens the data in a process
    of its own, whatever the policy says; what the policy says cannot be undone here.
    Raises `PolicyError`, `EngineError` or `LedgerError`, and `Refusal` for an analyst who may not ask. Of
    private rows only two things are read here: CSV files, to be loaded, and the keys that links lead to, to see that
    none stands twice; of folders the metadata of the table, and of their Parquet files what columns they have.
    """
    known = _policy(policy)
    known.analyst(analyst)  # who may not ask opens nothing
    engine = engine_of(database, known, isolation=isolation)
    try:
        public = public_engines(database, known, engine=engine, isolation=isolation)
        return session_of(engine, known, ledger=ledger, analyst=analyst, public=public)
    except BaseException:
        engine.close()
        raise


def session_of(
    engine: Engine,
    policy: Policy,
    *,
    ledger: str | Path | DatabaseUrl | None = None,
    analyst: str | None = None,
    public: PublicStatements | None = None,
    desk: ResultEvaluator | None = None,
) -> Session:
    """Return a session over an engine that is already open; the session closes it, and `public` and `desk` with it."""
    from dpsql.mechanisms import OperatingSystemNoise
    from dpsql.plan import Terms
    from dpsql.plan.registration import catalog_of
    from dpsql.session import Session, SessionDependencies

    terms = Terms.of_policy(policy, analyst)
    catalog = catalog_of(engine, policy)
    if policy.materialized is not None:
        from dpsql.materialized.lookup import attach_materialized  # start-up: few policies materialize anything

        catalog = attach_materialized(catalog, engine, policy=policy)
    record = _ledger(policy.ledger if ledger is None else ledger, terms)
    try:
        terms = terms.held_to(record.certified)
        _tell(record, policy)
    except BaseException:
        record.close()
        raise
    evaluator = open_evaluator(engine, policy, shared=desk)
    return Session(
        SessionDependencies(engine, record, catalog, terms, OperatingSystemNoise(), evaluator, public=public)
    )


def starter_of(database: str | Path) -> Starter:
    """Return a starter policy from the schema of a DuckDB file; no row is read. Raises `EngineError`."""
    from dpsql.engines.duckdb.schema import schema_of
    from dpsql.policy.quoting import policy_names
    from dpsql.policy.starter_toml import Found, starter

    schema = schema_of(database)
    names = policy_names([table.key for table in schema.tables])
    tables = tuple(_found(table, names) for table in schema.tables if table.key in names)
    unnamed = [".".join(table.key) for table in schema.tables if table.key not in names]
    unnamed += [
        ".".join((*table.key, column.name))
        for table in schema.tables
        for column in table.columns
        if "\0" in column.name
    ]
    return starter(Found(Path(database).name, tables, tuple(unnamed), unread=tuple(map(".".join, schema.unread))))


def grant(ledger: str | Path | DatabaseUrl, budget: Budget, *, note: str) -> tuple[ApproximateDP, Periods | None]:
    """Raise the total of a ledger to that of `budget`, for good; what was spent and the certificate stay.

    A `budget` with a period is granted in each from then on, or in more of them; one without keeps those there are.
    Returns what the total was, and the periods in which it is granted now. Raises `LedgerError` for a total that is
    smaller in anything, and for a ledger that cannot be used.
    """
    from dpsql.accounting import ApproximateDP, Periods
    from dpsql.plan.terms import budget_of

    total = ApproximateDP(budget.epsilon, budget.delta)
    with closing(_recorded(ledger)) as record:
        before = record.total
        periods = None if budget.period is None else Periods(budget.period, budget.periods)
        record.grant(budget_of(total, record.certified.certificate), total, note=note, periods=periods)
        calendar = record.calendar
        return before, None if calendar is None else calendar.periods


def bump(ledger: str | Path, *, note: str) -> int:
    """Raise the data version of a ledger by one and return it; answers of earlier versions are not shown again.

    Raises `LedgerError` for a ledger that cannot be used.
    """
    with closing(_recorded(ledger)) as record:
        return record.bump(note)


def spending_of(policy: Policy | str | Path, *, analyst: str | None = None) -> Spending:
    """Return what was spent of a policy's ledger, by whom and on which queries, or by one analyst alone.

    No data is opened. Raises `PolicyError` or `LedgerError`, and `Refusal` for an analyst who may not ask.
    """
    from dpsql.plan import Terms
    from dpsql.plan.report.spending import spending

    known = _policy(policy)
    terms = Terms.of_total(known) if analyst is None else Terms.of_policy(known, analyst)
    with closing(_ledger(known.ledger, terms)) as record:
        entries = record.entries()  # before the budget, which a grant may raise
        terms = replace(terms.held_to(record.certified), budget=record.budget)
        return spending(known, entries, terms=terms, calendar=record.calendar)


def materialize(
    policy: Policy | str | Path, table: str | None = None, *, database: str | Path | None = None
) -> dict[str, str]:
    """Materialize a table, or all of which the policy wants something materialized, and return what was done to each.

    That is "current", "appended" or "made". Queries then read what is materialized in place of the rows, wherever that
    gives the same answer, until the data has another version. The data is the curator's to read: nothing is charged.
    Raises `PolicyError` for what cannot be materialized, and `EngineError` if it fails.
    """
    from dpsql.materialized.build import Data, sealed_files
    from dpsql.materialized.build import materialize as materialize_table
    from dpsql.mechanisms import OperatingSystemNoise
    from dpsql.open_engine import source_of, sources_of
    from dpsql.plan.registration import catalog_of

    known = _policy(policy)
    wanted = [name for name, each in known.tables.items() if isinstance(each, PrivateTable) and each.materialized]
    names = wanted if table is None else [table]
    if not names or not set(names) <= set(wanted):
        told = f"The policy wants nothing materialized{'' if table is None else ' of such a table'}."
        raise PolicyError("policy-prepared", told, hint='Write materialized = [["column"]] below the table.')
    part = known.only(names)
    with sealed_files():
        with closing(engine_of(database, part, materialized=False)) as engine:
            if engine.dialect.name != "DuckDB":
                hint = "Leave materialized out of the policy: the engine that has the data reads its rows."
                raise PolicyError(
                    "policy-prepared", "Only what DuckDB reads is materialized.", hint=hint, place="materialized"
                )
            catalog_of(engine, part)
        given = source_of(database, known)
        place = database if given is None else given.path
        data = Data(place, sources_of(part), _data_version(known), OperatingSystemNoise().draw)
        return {name: materialize_table(part, data, name=name) for name in names}


def _data_version(policy: Policy) -> int:
    """Return the version of the data by which sessions go: the ledger's, or the policy's if that is later."""
    declared, place = policy.data_version or 0, policy.ledger
    if place is None:
        return declared
    try:
        with closing(_recorded(place)) as record:
            return max(declared, record.data_version)
    except LedgerError as error:
        if error.code != "ledger-missing":  # the first session makes it
            raise
    return declared


def verified(ledger: str | Path | DatabaseUrl) -> Verified:
    """Check everything in a ledger and change nothing. Raises `LedgerError` at the first thing that does not fit."""
    if is_url(ledger):
        _require_psycopg()
        from dpsql.ledger.postgres.ledger import verify as verify_postgres

        return verify_postgres(DatabaseUrl.of(ledger))
    from dpsql.ledger import verify

    return verify(str(ledger))


def ledger_of(policy: Policy | str | Path) -> Path | DatabaseUrl:
    """Return where the ledger of a policy is; raise `PolicyError` for a policy without one."""
    known = _policy(policy)
    if known.ledger is None:
        hint = 'Write ledger = "ledger.sqlite" at the top of the policy, or name the ledger itself.'
        raise PolicyError("policy-ledger", "The policy names no ledger.", hint=hint, place=known.where("ledger"))
    return known.ledger


def back_up(ledger: str | Path | DatabaseUrl, to: str | Path) -> Verified:
    """Copy a ledger in a file into a new file, while others may write to it, and return what the copy holds.

    The copy is private to its owner, and was verified. Raises `LedgerError`, or `UsageError` for one in a database.
    """
    if is_url(ledger):
        reason = "This ledger is in a database, which has backups of its own."
        hint = f"Run pg_dump --schema={DatabaseUrl.of(ledger).schema} with the address of the database."
        raise UsageError("ledger-in-database", reason, hint=hint)
    from dpsql.ledger import backup

    return backup(str(ledger), to)


def history(ledger: str | Path) -> Iterator[Event]:
    """Yield the events of a ledger, oldest first, once it has been verified. Raises `LedgerError`."""
    with closing(_recorded(ledger)) as record:
        for _ in record.events():
            pass  # each is held against the one before it: all of them, before the first is told
        yield from record.events()


def check_of(policy: Policy | str | Path, *, database: str | Path | None = None) -> Check:
    """Return what a policy means, checked against its files, its [source] and, if it is given, the database.

    Of private rows only the keys that links lead to are read, to see that none stands twice, and no ledger is opened.
    Raises `PolicyError` or `EngineError`.
    """
    from dpsql.engines.scratch import sweep
    from dpsql.policy.owners import path_of

    sweep()
    known = _policy(policy)
    near = {
        name: table
        for name, table in known.tables.items()
        if database is not None
        or known.source is not None
        or all(known.tables[passed].source is not None for passed in path_of(known.tables, name))
    }
    if not near:
        return check_on(None, known, tables=())
    with closing(engine_of(database, known.only(near))) as engine:
        check = check_on(engine, known, tables=tuple(near))
    if known.materialized is None or engine.dialect.name != "DuckDB":
        return check
    from dpsql.materialized.lookup import outdated
    from dpsql.open_engine import source_of, sources_of

    given = source_of(database, known)
    place = database if given is None else given.path
    names = outdated(known, place, sources=sources_of(known.only(near)))
    told = (
        f"What is to be materialized of {name} was not made of its files as they are: run dpsql materialize."
        for name in names
    )
    return replace(check, warnings=(*check.warnings, *told))


def check_on(engine: Engine | None, policy: Policy, *, tables: Collection[str]) -> Check:
    """Return what a policy means, checked against those of its tables that an engine has open; raises as `check_of`."""
    from dpsql.answer import CountColumns
    from dpsql.plan.registration import catalog_of
    from dpsql.plan.report.policy_check import check

    stored: dict[str, tuple[tuple[str, str], ...]] = {}
    if engine is not None:
        catalog_of(engine, policy.only(tables))
        stored = {name: tuple((column.name, column.type) for column in engine.columns(name)) for name in tables}
    found = check(policy, stored, reach=lambda noisy: CountColumns((), noisy.variance, noisy.scale).reach(0.95))
    isolation = policy.engine.isolation if engine is None else engine.isolation
    return replace(found, isolation=isolation, confinement=report_confinement(engine) if isolation == "process" else ())


def _found(table: StoredTable, names: Mapping[tuple[str, str], str]) -> FoundTable:
    from dpsql.policy import starter

    leads = {
        column: names[table.schema, target]
        for column, target in table.leads_to.items()
        if (table.schema, target) in names
    }
    columns = tuple(_found_column(column) for column in table.columns if "\0" not in column.name)
    return starter.FoundTable(
        names[table.key], columns, primary_key=table.primary_key, unique=table.unique, leads_to=leads
    )


def _found_column(column: Column) -> FoundColumn:
    from dpsql.plan.registration import may_be_unit
    from dpsql.policy import starter
    from dpsql.sql.ir.types import Family, of_column, read_as

    readable = read_as(of_column(column.type)).family is not Family.OPAQUE
    return starter.FoundColumn(column.name, column.type, readable, may_be_unit(column.type))


def _policy(given: Policy | str | Path | None) -> Policy:
    if isinstance(given, Policy):
        return given
    if given is None:
        hint = 'connect(..., policy="policy.toml"), or policy=dpsql.Policy(...).'
        raise PolicyError("policy-missing", "Nothing can be asked without a policy.", hint=hint)
    return Policy.from_toml(given)


def _recorded(place: str | Path | DatabaseUrl) -> Ledger:
    """Open a ledger that is there, on the terms that it records."""
    if is_url(place):
        _require_psycopg()
        from dpsql.ledger.postgres.ledger import PostgresLedger

        return PostgresLedger.open(DatabaseUrl.of(place))
    from dpsql.ledger import SQLiteLedger

    return SQLiteLedger.open(str(place))


def _require_psycopg() -> None:
    found = True
    try:
        import psycopg  # noqa: F401 - whether it is there, and finds its libpq
    except ImportError:
        found = False
    if not found:
        hint = "Install it: pip install 'dpsql[postgres]'."
        raise UsageError("not-installed", "A ledger in PostgreSQL needs the package psycopg.", hint=hint)


def _ledger(place: str | Path | DatabaseUrl | None, terms: Terms) -> Ledger:
    from dpsql.ledger import MemoryLedger

    if place is None:
        reason = "The policy names no ledger: what is spent is kept in memory and forgotten when the session ends."
        warnings.warn(reason, MemoryLedgerWarning, stacklevel=_of_the_caller())
    elif not isinstance(place, str | Path | DatabaseUrl):
        raise UsageError("not-a-path", "A ledger is named by its path.", hint='Such as "ledger.sqlite", or ":memory:".')
    if place is None or str(place) == IN_MEMORY:
        return MemoryLedger(terms.budget, total=terms.total, periods=terms.periods, certified=terms.certified)
    known = DatabaseUrl.of(place) if is_url(place) else place
    try:
        return _durable(known, terms)
    except LedgerError as error:
        failure = LedgerError(error.code, error.reason, hint=error.hint, place=str(known))
    raise failure


def _of_the_caller() -> int:
    """Return the stack level of whoever called this package, by whichever of its doors; that of the asker is 1."""
    level, frame = 1, sys._getframe(1)  # noqa: SLF001 - warnings counts frames and names no package
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).split(".")[0] == __package__:
        level, frame = level + 1, frame.f_back
    return level


def _durable(place: str | Path | DatabaseUrl, terms: Terms) -> Ledger:
    if isinstance(place, DatabaseUrl):
        _require_psycopg()
        from dpsql.ledger.postgres.ledger import PostgresLedger

        return PostgresLedger(place, terms.budget, total=terms.total, periods=terms.periods, certified=terms.certified)
    from dpsql.ledger import SQLiteLedger

    return SQLiteLedger(place, terms.budget, total=terms.total, periods=terms.periods, certified=terms.certified)


def _tell(record: Ledger, policy: Policy) -> None:
    """Record what the policy declares and the ledger does not know yet: privacy units, and a later data version."""
    from dpsql.policy.owners import owner_of

    private = [name for name, table in policy.tables.items() if isinstance(table, PrivateTable)]
    record.register({name: str(owner_of(policy.tables, name)) for name in private})
    if policy.data_version is not None:
        record.bump("the policy's data_version", to=policy.data_version)
