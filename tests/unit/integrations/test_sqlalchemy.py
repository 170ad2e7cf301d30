"""The dialect, under whichever SQLAlchemy is found first: test_sqlalchemy_1_4.py runs this module under another one."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
import pytest
import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.dialects import registry
from support.surfaces_kit import NAMES, POLICY, TOP, charges, make_data

import dpsql
from dpsql import dbapi
from dpsql.integrations.sqlalchemy import DPSQLDialect

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
DIALECTS = PROJECT["entry-points"]["sqlalchemy.dialects"]
for _name, _where in DIALECTS.items():
    registry.register(_name, *_where.split(":"))  # as an installed dpsql is found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("sqlalchemy"))


@pytest.fixture
def url(folder: Path) -> str:
    return f"dpsql:///{folder}/events.duckdb?policy={folder}/policy.toml&ledger=:memory:"


@pytest.fixture
def engine(url: str) -> Iterator[Any]:
    made = sa.create_engine(url)
    yield made
    made.dispose()


def session_of(connection: Any) -> dpsql.Session:
    session: dpsql.Session = connection.connection.driver_connection.session
    return session


def test_the_entry_points_lead_to_the_dialect() -> None:
    assert set(DIALECTS) == {"dpsql", "dpsql.duckdb"}
    for where in DIALECTS.values():
        module, name = where.split(":")
        assert getattr(import_module(module), name) is DPSQLDialect
    assert DPSQLDialect.import_dbapi() is DPSQLDialect.dbapi() is dbapi
    assert sa.create_engine("dpsql+duckdb://").dialect.name == "dpsql"


def test_a_query_is_answered_and_its_receipt_is_at_hand(engine: Any) -> None:
    with engine.connect() as connection:
        result = connection.execute(sa.text(TOP))
        receipt = result.cursor.receipt
        rows = result.mappings().all()
        assert [row["article"] for row in rows] == ["a0", "a1", "a2"]
        assert 3 < receipt.items_charged <= 6
        assert result.context.cursor.receipt is receipt
        assert charges(session_of(connection)) == 1


def test_parameters_are_bound_by_name(engine: Any) -> None:
    query = "SELECT country FROM countries WHERE country = :one AND since < :day AND continent <> 'a:b %s ?'"
    with engine.connect() as connection:
        asked = {"one": "DE", "day": dt.date(2000, 1, 1)}
        assert connection.execute(sa.text(query), asked).fetchall() == [("DE",)]
        one = connection.exec_driver_sql("SELECT country FROM countries WHERE country = ?", ("FR",))
        assert one.scalar() == "FR"
        query = "SELECT article FROM reads WHERE country = :c GROUP BY article TOP 2 PRIVATE"
        assert len(connection.execute(sa.text(query), {"c": "DE"}).fetchall()) == 2
        assert len(connection.execute(sa.text(query), {"c": "DE"}).fetchall()) == 2
        assert charges(session_of(connection)) == 1


def test_the_expression_language_writes_what_is_read(engine: Any) -> None:
    tables = sa.MetaData()
    reads = sa.Table("reads", tables, autoload_with=engine)
    readers = sa.func.count(reads.c.user_id.distinct()).label("n")
    query = (
        sa.select(reads.c.article, readers)
        .where(reads.c.country == "DE", reads.c.article.in_(["a0", "a1"]), reads.c.ts >= dt.datetime(2020, 1, 1))  # noqa: DTZ001 - as stored
        .group_by(reads.c.article)
        .suffix_with("TOP 2 PRIVATE")
    )
    with engine.connect() as connection:
        assert [row.article for row in connection.execute(query)] == ["a0", "a1"]
        around = sa.select(sa.func.sum(query.subquery().c.n))
        assert connection.execute(around).scalar() > 2000
        assert charges(session_of(connection)) == 1
        nothing = sa.select(query.subquery("q")).where(sa.false())
        assert connection.execute(nothing).fetchall() == []
        assert charges(session_of(connection)) == 1
        empty = sa.select(reads.c.article).where(reads.c.country.in_([])).group_by(reads.c.article)
        assert connection.execute(empty.suffix_with("TOP 1 PRIVATE")).fetchall() == []


def test_a_table_in_a_schema_is_asked_by_its_columns(engine: Any) -> None:
    tables = sa.MetaData()
    orders = sa.Table("orders", tables, autoload_with=engine, schema="shop")
    reads = sa.Table("reads", tables, autoload_with=engine, schema="main")
    column = orders.c["product"]
    query = sa.select(column.label("p")).where(column != "y").group_by(column).suffix_with("TOP 1 PRIVATE")
    joined = (
        sa.select(reads.c.article)
        .join_from(reads, orders, reads.c.user_id == orders.c.user_id)
        .group_by(reads.c.article)
        .suffix_with("TOP 1 PRIVATE")
    )
    with engine.connect() as connection:
        assert connection.execute(query).fetchall() == []
        assert connection.execute(joined).fetchall() == []
        assert charges(session_of(connection)) == 2
    assert "shop.orders.product" in str(query.compile(engine))


def test_ilike_is_written_as_it_is(engine: Any) -> None:
    reads = sa.Table("reads", sa.MetaData(), autoload_with=engine)
    article = reads.c.article
    for condition, written in (
        (article.ilike("A%"), "ILIKE ?"),
        (~article.ilike("A%"), "NOT ILIKE ?"),
        (article.ilike("A!%", escape="!"), "ILIKE ? ESCAPE '!'"),
    ):
        query = sa.select(article).where(condition).group_by(article).suffix_with("TOP 1 PRIVATE")
        assert f"reads.article {written}" in str(query.compile(engine))
        with engine.connect() as connection:
            assert len(connection.execute(query).fetchall()) <= 1


def test_what_is_asked_before_a_question_is_free(engine: Any) -> None:
    reads = sa.Table("reads", sa.MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        assert connection.execute(sa.select(sa.literal(1))).scalar() == 1
        for query in (
            sa.select(reads).limit(0),
            sa.select(reads).where(sa.false()),
            sa.select(sa.select(reads).subquery()).limit(0),
        ):
            found = connection.execute(query)
            assert list(found.keys()) == [column.name for column in reads.columns]
            assert found.fetchall() == []
        assert charges(session_of(connection)) == 0


def test_a_text_is_looked_for_in_its_words(engine: Any) -> None:
    reads = sa.Table("reads", sa.MetaData(), autoload_with=engine)
    article = reads.c.article
    conditions = article.contains("a", autoescape=True), article.startswith("a"), article.endswith("0")
    query = sa.select(article).where(*conditions).group_by(article).suffix_with("TOP 1 PRIVATE")
    with engine.connect() as connection:
        assert connection.execute(query).scalar() == "a0"


def test_a_column_may_be_written_with_its_schema(engine: Any) -> None:
    text = "SELECT shop.orders.product FROM shop.orders GROUP BY shop.orders.product TOP 1 PRIVATE"
    with engine.connect() as connection:
        assert connection.exec_driver_sql(text).fetchall() == []


def test_a_limit_goes_around_the_query(engine: Any) -> None:
    reads = sa.Table("reads", sa.MetaData(), autoload_with=engine)
    n = sa.func.count(reads.c.user_id.distinct()).label("n")
    top = sa.select(reads.c.article, n).group_by(reads.c.article).suffix_with("TOP 3 PRIVATE").cte("top")
    with engine.connect() as connection:
        second = sa.select(top.c.article).order_by(top.c.n.desc()).limit(1).offset(1)
        assert connection.execute(second).fetchall() == [("a1",)]
        assert connection.execute(sa.select(sa.func.count()).select_from(top)).scalar() == 3
        assert charges(session_of(connection)) == 1


def test_public_values_come_as_python_has_them(engine: Any) -> None:
    countries = sa.Table("countries", sa.MetaData(), autoload_with=engine)
    with engine.connect() as connection, warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = connection.execute(sa.select(countries).order_by(countries.c.country).limit(1)).fetchall()
        assert rows == [("DE", "Europe", Decimal("83.50"), True, 1.5, dt.date(1990, 10, 3))]
        large = sa.select(countries.c.country).where(countries.c.large, countries.c.millions > Decimal("70.00"))
        assert connection.execute(large).fetchall() == [("DE",)]
        wide = sa.text("SELECT 99999999999999.9999 AS x FROM countries LIMIT 1").columns(x=sa.Numeric(18, 4))
        assert connection.execute(wide).scalar() == Decimal("99999999999999.9999")


def test_the_inspector_tells_what_the_policy_exposes(engine: Any) -> None:
    inspector = sa.inspect(engine)
    assert inspector.default_schema_name == "main"
    assert inspector.get_schema_names() == ["main", "shop"]
    assert inspector.get_table_names() == inspector.get_table_names(schema="main") == ["reads", "countries"]
    assert inspector.get_table_names(schema="shop") == ["orders"]
    assert inspector.get_view_names() == inspector.get_sequence_names() == []
    assert inspector.has_table("reads")
    assert inspector.has_table("orders", schema="shop")
    assert not inspector.has_table("orders")
    columns = inspector.get_columns("reads")
    assert [column["name"] for column in columns] == ["user_id", "article", "country", "ts"]
    assert [type(column["type"]) for column in columns] == [sa.BigInteger, sa.String, sa.String, sa.DateTime]
    assert [column["comment"] for column in columns] == ["the privacy unit", None, None, None]
    assert [column["name"] for column in inspector.get_columns("orders", schema="shop")] == ["user_id", "product"]
    assert str(inspector.get_columns("countries")[2]["type"]) == "NUMERIC(9, 2)"
    assert inspector.get_table_comment("reads") == {"text": "private; the privacy unit is user_id"}
    assert inspector.get_table_comment("countries") == {"text": "public"}
    assert inspector.get_pk_constraint("reads")["constrained_columns"] == []
    for nothing in ("foreign_keys", "indexes", "unique_constraints", "check_constraints"):
        assert getattr(inspector, f"get_{nothing}")("reads") == []
    for ask in (inspector.get_columns, inspector.get_pk_constraint, inspector.get_indexes, inspector.get_table_comment):
        with pytest.raises(exc.NoSuchTableError, match="none"):
            ask("none")
    with engine.connect() as connection:
        assert charges(session_of(connection)) == 0


def test_a_whole_schema_is_reflected(engine: Any) -> None:
    tables = sa.MetaData()
    tables.reflect(bind=engine)
    assert sorted(tables.tables) == ["countries", "reads"]
    assert tables.tables["reads"].comment == "private; the privacy unit is user_id"


@pytest.mark.parametrize(
    ("statement", "kind", "own"),
    [
        ("SELECT article FROM reads", "ProgrammingError", dpsql.Refusal),
        ("SELECT soundex(country) FROM countries", "ProgrammingError", dpsql.Refusal),
        ("CREATE TABLE t (a INT)", "ProgrammingError", dpsql.Refusal),
        ("SELECT country FROM countries WHERE country = ?", "ProgrammingError", dpsql.UsageError),
    ],
)
def test_errors_are_sqlalchemys_around_ours(engine: Any, statement: str, kind: str, own: type[Exception]) -> None:
    with engine.connect() as connection:
        with pytest.raises(getattr(exc, kind)) as caught:
            connection.exec_driver_sql(statement)
        assert isinstance(caught.value.orig, own)
        assert isinstance(caught.value.orig, getattr(dbapi, kind))
        assert connection.exec_driver_sql("SELECT country FROM countries").fetchall()


def test_what_would_write_is_refused_by_the_session(engine: Any) -> None:
    table = sa.Table("fresh", sa.MetaData(), sa.Column("a", sa.Integer))
    with pytest.raises(exc.ProgrammingError, match="not-a-query"):
        table.metadata.create_all(engine)
    reads = sa.Table("reads", sa.MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        for statement in (reads.insert().values(article="a"), reads.delete(), reads.update().values(article="a")):
            with pytest.raises(exc.ProgrammingError, match="not-a-query"):
                connection.execute(statement)
        with pytest.raises(exc.NotSupportedError, match="executemany"):
            connection.execute(reads.insert(), [{"article": "a"}, {"article": "b"}])


def test_transactions_have_nothing_to_do(engine: Any) -> None:
    with engine.begin() as connection:
        rows = connection.execute(sa.text(NAMES)).fetchall()
    with engine.connect() as connection:
        automatic = connection.execution_options(isolation_level="AUTOCOMMIT")
        again = automatic.execute(sa.text(NAMES)).fetchall()
        assert again == rows
        assert connection.get_isolation_level() == "AUTOCOMMIT"
        assert charges(session_of(connection)) == 1


def test_connections_of_an_engine_share_a_session_and_its_budget(engine: Any) -> None:
    with engine.connect() as first, engine.connect() as second:
        assert first.connection.driver_connection is not second.connection.driver_connection
        assert session_of(first) is session_of(second)
        rows = first.execute(sa.text(NAMES)).fetchall()
        assert second.execute(sa.text(NAMES)).fetchall() == rows
        assert charges(session_of(first)) == 1


def test_threads_share_an_engine(url: str) -> None:
    engine = sa.create_engine(url)

    def ask(_: int) -> list[Any]:
        with engine.connect() as connection:
            return list(connection.execute(sa.text(TOP)).fetchall())

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ThreadPoolExecutor(6) as threads:
            answers = list(threads.map(ask, range(12)))
    assert all(answer == answers[0] for answer in answers)
    with engine.connect() as connection:
        assert charges(session_of(connection)) == 1
    engine.dispose()


def test_an_engine_that_is_disposed_of_closes_its_session_and_may_open_another(url: str) -> None:
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        session = session_of(connection)
    engine.dispose()
    assert "closed" in repr(session)
    with engine.connect() as connection:
        assert session_of(connection) is not session
        assert connection.exec_driver_sql("SHOW TABLES").fetchall()
    engine.dispose()


def test_a_connection_that_was_closed_beneath_the_pool_is_replaced(url: str) -> None:
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        connection.connection.driver_connection.close()
        with pytest.raises(exc.InterfaceError, match="closed") as caught:
            connection.exec_driver_sql("SHOW TABLES")
        assert caught.value.connection_invalidated
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SHOW TABLES").fetchall()
    engine.dispose()
    careful = sa.create_engine(url, pool_pre_ping=True)
    with careful.connect() as connection:
        lost = connection.connection.driver_connection
    lost.close()
    with careful.connect() as connection:
        assert connection.exec_driver_sql("SHOW TABLES").fetchall()
    careful.dispose()


def test_statements_are_cached(engine: Any) -> None:
    assert engine.dialect.supports_statement_cache is True
    countries = sa.Table("countries", sa.MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        for which in ("DE", "FR"):
            found = connection.execute(sa.select(countries.c.country).where(countries.c.country == which))
            assert found.scalar() == which


def test_a_fork_opens_a_session_of_its_own_on_the_same_ledger(folder: Path, tmp_path: Path) -> None:
    program = f"""
import os, sys
import sqlalchemy as sa
from sqlalchemy.dialects import registry
registry.register("dpsql", "dpsql.integrations.sqlalchemy", "DPSQLDialect")
engine = sa.create_engine("dpsql:///{folder}/events.duckdb?policy={folder}/policy.toml&ledger={tmp_path}/l.sqlite")
def ask():
    with engine.connect() as connection:
        result = connection.execute(sa.text({NAMES!r}))
        return result.fetchall(), result.context.cursor.receipt.replayed
rows, replayed = ask()
assert not replayed
child = os.fork()
if child == 0:
    engine.dispose(close=False)
    again, replayed = ask()
    os._exit(0 if again == rows and replayed else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert ask() == (rows, True)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_what_is_no_text_is_given_as_arguments(folder: Path) -> None:
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PrivateTable("user_id")})
    with duckdb.connect(str(folder / "events.duckdb"), read_only=True) as lent:
        given = {"database": lent, "policy": policy, "ledger": ":memory:"}
        engine = sa.create_engine("dpsql://", connect_args=given)
        with engine.connect() as connection:
            assert len(connection.execute(sa.text(NAMES)).fetchall()) == 3
        engine.dispose()


def test_a_relative_path_and_every_setting(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    url = f"dpsql:///events.duckdb?policy=policy.toml&isolation=process&ledger={tmp_path}/l.sqlite"
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        result = connection.execute(sa.text(NAMES))
        assert result.cursor.receipt.isolation == "process"
    engine.dispose()
    assert (tmp_path / "l.sqlite").exists()
    limited = folder / "limited.toml"
    limited.write_text(f"{POLICY}\n[analysts.ana]\nenabled = false\n")
    refused = sa.create_engine("dpsql:///events.duckdb?policy=limited.toml&analyst=ana")
    with pytest.raises(exc.ProgrammingError, match="analyst-disabled") as caught:
        refused.connect()
    assert isinstance(caught.value.orig, dpsql.Refusal)


@pytest.mark.parametrize(
    "url",
    [
        "dpsql://events.duckdb?policy=policy.toml",
        "dpsql://ana:secret@/events.duckdb?policy=policy.toml",
        "dpsql:///events.duckdb?polcy=policy.toml",
        "dpsql:///events.duckdb?policy=policy.toml&policy=other.toml",
    ],
)
def test_a_url_that_means_nothing_is_refused(url: str) -> None:
    with pytest.raises(dbapi.InterfaceError) as caught:
        sa.create_engine(url)
    assert caught.value.code == "url"
    assert "secret" not in str(caught.value)


def test_a_policy_that_is_not_there(folder: Path) -> None:
    engine = sa.create_engine(f"dpsql:///{folder}/events.duckdb?policy={folder}/none.toml")
    with pytest.raises(exc.OperationalError, match="policy-missing") as caught:
        engine.connect()
    assert isinstance(caught.value.orig, dpsql.PolicyError)


def test_a_url_reads_standard_sql_as_private(folder: Path) -> None:
    url = f"dpsql:///{folder}/events.duckdb?policy={folder}/policy.toml&ledger=:memory:"
    total = sa.text("SELECT COUNT(DISTINCT user_id) AS n FROM reads LIMIT 50000")
    for setting, is_answered in (("&implicit=true", True), ("&implicit=false", False), ("", False)):
        with sa.create_engine(url + setting).connect() as connection:
            if is_answered:
                assert connection.execute(total).cursor.receipt.read_as == "PRIVATE"
                continue
            with pytest.raises(sa.exc.ProgrammingError):
                connection.execute(total)
    with pytest.raises(dbapi.InterfaceError, match="implicit is true or false"):
        sa.create_engine(f"{url}&implicit=maybe").connect()


def test_a_url_gives_consent(folder: Path) -> None:
    policy = folder / "small.toml"
    policy.write_text(POLICY.replace("columns = [", "population = 200\ncolumns = [", 1))
    url = f"dpsql:///{folder}/events.duckdb?policy={policy}&ledger=:memory:"
    names = sa.text("SELECT article FROM reads GROUP BY article TOP 50 PRIVATE")
    for setting, is_run in (("&consent=true", True), ("&consent=false", False), ("", False)):
        with sa.create_engine(url + setting).connect() as connection:
            if is_run:
                connection.execute(names)
                continue
            with pytest.raises(sa.exc.ProgrammingError, match="consent = true"):
                connection.execute(names)
    with pytest.raises(dbapi.InterfaceError, match="consent is true or false"):
        sa.create_engine(f"{url}&consent=maybe").connect()
