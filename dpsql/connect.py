"""The composition root: the only place that names a real engine, a real ledger and the real noise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.engines import load_libraries
from dpsql.open_engine import open_engine, open_evaluator, public_engines
from dpsql.open_ledger import open_budget
from dpsql.policy import DatabaseUrl, Policy, PrivateTable, default_analyst, default_database, load_policy

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

    from dpsql.engines import Engine, PublicStatements, ResultEvaluator
    from dpsql.session import Session


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

    A path is opened read-only in a locked instance of its own. An open connection is used through a fresh cursor, with
    its settings unchanged, and receipts say sealed = False, as for a Spark session. In place of the path, pass the URL
    of another engine, such as "postgresql://user@host/db", an open `dpsql.engines.Engine`, or tables of pandas, polars
    or Arrow by name, such as {"reads": frame}, which are copied. `policy` is a `Policy` or
    the path of a TOML file.
    `ledger` overrides that of the policy; ":memory:" is a ledger for trials, lost at the end, and "postgresql://..."
    names one in a database. `analyst` is the name under which the policy limits the analyst, and under which their
    answers are stored; it is not verified. `isolation` "process" opens the data in a separate process, also if the
    policy does not demand it; a policy that demands it cannot be overridden. With `implicit`, standard SQL over private
    tables is read as private: TOP k PRIVATE, ALL PRIVATE or PRIVATE are added; None is what the policy says. With
    `consent`, queries that can hardly return a row are run without asking; None is what the policy says.
    Without a `policy` it is that of $DPSQL_POLICY, or policy.toml in the current folder. $DPSQL_DB is the database if
    the policy names no source, and $DPSQL_ANALYST the analyst.
    Raises `PolicyError`, `EngineError` or `LedgerError`, and `Refusal` for an analyst without access. Opening reads
    private rows for two purposes only: to load CSV files, and to check that the keys of links are unique. Of folders it
    reads the metadata of the table, and the columns of their Parquet files.

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
    from dpsql.policy.tables import find_owner
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
    division = find_division(engine, policy, catalog=catalog)
    try:
        # what the ledger does not know yet: units, a later data version, and the values that have budgets
        private = [name for name, table in policy.tables.items() if isinstance(table, PrivateTable)]
        record.register({name: str(find_owner(policy.tables, name)) for name in private})
        if policy.data_version is not None:
            record.bump("the policy's data_version", to=policy.data_version)
        if division is not None:
            record.divide(division)
    except BaseException:
        record.close()
        raise
    evaluator = open_evaluator(engine, policy, shared=evaluator)
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
