"""The composition root: the only place that names a real engine, a real ledger and the real noise.

Ledgers are in memory, in a SQLite file, or in a schema of a PostgreSQL database.
"""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.engines import load_libraries
from dpsql.errors import LedgerError, MemoryLedgerWarning, UngrantedBudgetWarning, UsageError
from dpsql.open_engine import open_engine, open_evaluator, public_engines, report_confinement
from dpsql.policy import (
    IN_MEMORY,
    DatabaseUrl,
    Policy,
    PrivateTable,
    default_analyst,
    default_database,
    is_url,
    load_policy,
)
from dpsql.policy.settings import describe_unlisted

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

    from dpsql.engines import Engine, PublicStatements, ResultEvaluator
    from dpsql.ledger import Ledger
    from dpsql.report.policy_check import Check
    from dpsql.session import Session
    from dpsql.terms import Terms


def connect(  # noqa: PLR0913 - what a session is opened with
    database: str | Path | duckdb.DuckDBPyConnection | Engine | SparkSession | Mapping[str, object] | None = None,
    *,
    policy: Policy | str | Path | None = None,
    ledger: str | Path | None = None,
    analyst: str | None = None,
    isolation: str | None = None,
    implicit: bool | None = None,
    consent: bool | None = None,
) -> Session:
    """Open a session over a DuckDB file, an open connection, or what the policy names: files, folders or a source.

    `database` is a path, which is opened read-only in a locked instance; an open connection or Spark session, used as
    it is (receipts say sealed = False); the URL of another engine, such as "postgresql://user@host/db"; an open
    `dpsql.engines.Engine`; or tables of pandas, polars or Arrow by name, such as {"reads": frame}, which are copied.
    The default is $DPSQL_DB where the policy names no source.

    `policy` is a `Policy` or the path of a TOML file; the default is $DPSQL_POLICY, or policy.toml in the current
    folder. `ledger` overrides that of the policy: a path, "postgresql://...", or ":memory:" for trials. `analyst` names
    the account ($DPSQL_ANALYST by default); it is not verified. `isolation` "process" opens the data in a separate
    process, which a policy may also demand. With `implicit`, standard SQL over private tables is read as private; with
    `consent`, queries that can hardly return a row are run. None is what the policy says.

    Raises `PolicyError`, `EngineError` or `LedgerError`, and `Refusal` for an analyst without access. Opening reads
    private rows only to load CSV files and to check that the keys of links are unique.

    >>> policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PrivateTable("user_id")})
    >>> session = dpsql.connect(database, policy=policy, ledger=":memory:")
    >>> session.close()
    """
    known = load_policy(policy)
    known = known if implicit is None else known.with_implicit(implicit)
    known = known if consent is None else known.with_consent(consent)
    if database is None and known.needs_database:
        database = default_database()
    elif isinstance(database, Mapping):
        load_libraries("duckdb", "pyarrow")
        from dpsql.engines.duckdb.instance import load_frames

        database = load_frames(database)
    analyst = default_analyst() if analyst is None else analyst
    known.analyst(analyst)  # who may not ask opens nothing
    unlisted, near = describe_unlisted(known.analysts, analyst)
    if near:
        warnings.warn(f"{unlisted} Did you mean {near}?", stacklevel=2)
    engine = open_engine(database, known, isolation=isolation)
    try:
        public = public_engines(database, known, engine=engine, isolation=isolation)
        return open_session(engine, known, ledger=ledger, analyst=analyst, public=public)
    except BaseException:
        engine.close()
        raise


def open_session(
    engine: Engine,
    policy: Policy,
    *,
    ledger: str | Path | DatabaseUrl | None = None,
    analyst: str | None = None,
    public: PublicStatements | None = None,
    evaluator: ResultEvaluator | None = None,
) -> Session:
    """Return a session over an open engine; the session closes it, and `public` and `evaluator` with it."""
    from dpsql.mechanisms import OperatingSystemNoise
    from dpsql.registration import build_catalog, find_division
    from dpsql.session import Session
    from dpsql.session_dependencies import SessionDependencies
    from dpsql.terms import Terms

    catalog = build_catalog(engine, policy)
    if policy.materialized is not None or (policy.source is not None and policy.source.materialized is not None):
        from dpsql.materialized.lookup import attach_materialized  # start-up: few policies materialize anything

        catalog = attach_materialized(catalog, engine, policy=policy)
    place = policy.ledger if ledger is None else ledger
    record, terms = open_budget(place, policy, compute_terms=lambda known: Terms.of_policy(known, analyst))
    try:
        division = find_division(engine, policy, catalog=catalog)
        # what the ledger does not know yet: units, a later data version, and the values that have budgets
        record.register(list_units(policy))
        if policy.data_version is not None:
            record.bump("the policy's data_version", to=policy.data_version)
        if division is not None:
            record.divide(division)
        evaluator = open_evaluator(engine, policy, shared=evaluator)
    except BaseException:
        record.close()
        raise
    return Session(
        SessionDependencies(
            engine,
            record,
            catalog,
            terms,
            OperatingSystemNoise(),
            evaluator,
            public=public,
            implicit=policy.implicit,
            division=division,
        )
    )


def open_budget(
    place: str | Path | DatabaseUrl | None, policy: Policy, *, compute_terms: Callable[[Policy], Terms]
) -> tuple[Ledger, Terms]:
    """Open the ledger of a policy, and return it with the terms that `compute_terms` returns for its budget.

    Where the policy grants more than the ledger has, the terms are those of the smaller budget, with a warning.
    Raises as `open_ledger`.
    """
    from dpsql.accounting import describe_periods
    from dpsql.terms import describe_falling_shares

    terms = compute_terms(policy)
    record = open_ledger(place, terms)
    # a larger budget in the policy is a wish until the curator grants it: the ledger's holds
    try:
        calendar = record.calendar
        periods = None if calendar is None else calendar.periods
        if (record.total, periods) != (terms.total, terms.periods):
            file = "policy.toml" if policy.lines is None else policy.lines.name
            reason = (
                f"The policy grants {terms.total} {describe_periods(terms.periods)}, its ledger has {record.total} "
                f"{describe_periods(periods)}, and this smaller budget holds. To grant the larger one, the curator "
                f'runs: dpsql ledger grant --policy {shlex.quote(file)} --note "why"'
            )
            falling = describe_falling_shares(policy, record.total)
            reason = f"{reason}. {' '.join(falling)}" if falling else reason
            budget = replace(
                policy.budget,
                epsilon=record.total.epsilon,
                delta=record.total.delta,
                period=None if periods is None else periods.length,
                periods=None if periods is None else periods.most,
            )
            terms = compute_terms(policy.with_budget(budget))
            warnings.warn(reason, UngrantedBudgetWarning, stacklevel=_caller_level())
        return record, terms.held_to(record.certified)
    except BaseException:
        record.close()
        raise


def list_units(policy: Policy) -> dict[str, str]:
    """Return the privacy unit of each table, in the words of the ledger; "" for a public one."""
    from dpsql.policy.tables import find_owner

    return {
        name: str(find_owner(policy.tables, name)) if isinstance(table, PrivateTable) else ""
        for name, table in policy.tables.items()
    }


def open_ledger(place: str | Path | DatabaseUrl | None, terms: Terms) -> Ledger:
    """Open a ledger on the terms of a policy, making it if it is new; None and ":memory:" end with the process.

    Raises `LedgerError`, and `UsageError` for what names no ledger.
    """
    from dpsql.ledger import MemoryLedger

    if place is None:
        reason = "The policy names no ledger: spending is recorded in memory and lost when the session ends."
        warnings.warn(reason, MemoryLedgerWarning, stacklevel=_caller_level())
    elif not isinstance(place, str | Path | DatabaseUrl):
        raise UsageError("not-a-path", "A ledger is named by its path.", hint='Such as "ledger.sqlite", or ":memory:".')
    if place is None or str(place) == IN_MEMORY:
        return MemoryLedger(terms.budget, total=terms.total, periods=terms.periods, certified=terms.certified)
    known = DatabaseUrl.of(place) if is_url(place) else place
    try:
        return _open_durable(known, terms)
    except LedgerError as error:
        failure = LedgerError(error.code, error.reason, hint=error.hint, place=str(known))
    raise failure


def _open_durable(place: str | Path | DatabaseUrl, terms: Terms) -> Ledger:
    if isinstance(place, DatabaseUrl):
        require_psycopg()
        from dpsql.ledger.postgres_ledger import PostgresLedger

        return PostgresLedger(place, terms.budget, total=terms.total, periods=terms.periods, certified=terms.certified)
    from dpsql.ledger import SQLiteLedger

    return SQLiteLedger(place, terms.budget, total=terms.total, periods=terms.periods, certified=terms.certified)


def reopen_ledger(place: str | Path | DatabaseUrl) -> Ledger:
    """Open an existing ledger on the terms that it records. Raises `LedgerError`."""
    with name_ledger(place):
        if is_url(place):
            require_psycopg()
            from dpsql.ledger.postgres_ledger import PostgresLedger

            return PostgresLedger.open(DatabaseUrl.of(place))
        from dpsql.ledger import SQLiteLedger

        return SQLiteLedger.open(str(place))


@contextmanager
def name_ledger(place: str | Path | DatabaseUrl) -> Iterator[None]:
    """Name the ledger at `place` in errors of the ledger."""
    try:
        yield
    except LedgerError as error:
        error.place = error.place or str(DatabaseUrl.of(place) if is_url(place) else place)
        raise


def require_psycopg() -> None:
    """Raise `UsageError` unless psycopg can be imported, which it cannot without a libpq."""
    found = True
    try:
        import psycopg  # noqa: F401 - whether it is there, and finds its libpq
    except ImportError:
        found = False
    if not found:
        hint = "Install it: pip install 'dpsql[postgres]'."
        raise UsageError("not-installed", "A ledger in PostgreSQL needs the package psycopg.", hint=hint)


def _caller_level() -> int:
    """Return the stack level of the first caller outside this package, counted from the function that calls this."""
    level, frame = 1, sys._getframe(1)  # noqa: SLF001 - warnings counts frames and names no package
    # Frames of this package are passed over: __package__ is "dpsql" here.
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).split(".")[0] == __package__:
        level, frame = level + 1, frame.f_back
    return level


def check_engine(engine: Engine | None, policy: Policy, *, tables: Collection[str]) -> Check:
    """Return what a policy means, checked against the tables that an engine has open; raises as `check_policy`."""
    from dpsql.intervals import LEVEL, ValueNoise
    from dpsql.registration import build_catalog
    from dpsql.report.policy_check import report_policy

    stored: dict[str, tuple[tuple[str, str], ...]] = {}
    if engine is not None:
        build_catalog(engine, policy.only(tables))
        stored = {name: tuple((column.name, column.type) for column in engine.columns(name)) for name in tables}
    found = report_policy(policy, stored, reach=lambda noisy: ValueNoise(noisy.variance, noisy.scale).reach(LEVEL))
    isolation = policy.engine.isolation if engine is None else engine.isolation
    return replace(found, isolation=isolation, confinement=report_confinement(engine) if isolation == "process" else ())
