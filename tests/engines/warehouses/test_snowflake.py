"""Snowflake's driver against fakesnow: what is sent, what is read, what is refused."""

from __future__ import annotations

import pytest
from support.snowflake_kit import PYTHON, fakesnow_address

import dpsql
from dpsql.engines import Statement, open_exact
from dpsql.engines.warehouses import SnowflakeEngine
from dpsql.errors import EngineError, UsageError

needs_fakesnow = pytest.mark.skipif(not PYTHON.exists(), reason="fakesnow is not installed: .ci/run says how")
MADE = (
    "CREATE OR REPLACE TABLE reads (user_id NUMBER(38, 0), article VARCHAR, price NUMBER(10, 2), made TIMESTAMP_NTZ)",
    "INSERT INTO reads SELECT seq4(), 'a' || (seq4() % 4), 1.5, '2026-01-31' FROM TABLE(GENERATOR(ROWCOUNT => 4000))",
)


@pytest.fixture(scope="module")
def shop() -> tuple[str, dict[str, str]]:
    url, options = fakesnow_address()
    engine = SnowflakeEngine.open(url, {}, options=options)
    with engine._connection.cursor() as cursor:
        for sql in MADE:
            cursor.execute(sql)
    engine.close()
    return url, options


@needs_fakesnow
def test_names_are_found_in_any_case_and_columns_by_their_types(shop: tuple[str, dict[str, str]]) -> None:
    engine = SnowflakeEngine.open(shop[0], {"reads": None, "public.reads": None}, options=shop[1], time_limit=10)
    assert engine.relation("reads") == engine.relation("public.reads") == ("SHOP", "PUBLIC", "READS")
    found = {column.name: column.type for column in engine.columns("reads")}
    assert found == {"USER_ID": "BIGINT", "ARTICLE": "VARCHAR", "PRICE": "DECIMAL(10,2)", "MADE": "TIMESTAMP"}
    engine.close()


@needs_fakesnow
def test_values_are_bound_as_texts(shop: tuple[str, dict[str, str]]) -> None:
    engine = SnowflakeEngine.open(shop[0], {}, options=shop[1])
    sql = "SELECT CAST(:1 AS DOUBLE), CAST(:2 AS BOOLEAN), CAST(:3 AS VARCHAR), CAST(:4 AS VARCHAR)"
    values = (0.1 + 0.2, True, None, "it's \\ \u00e9")
    table = open_exact(engine.execute(Statement(sql, values, ("DOUBLE", "BOOLEAN", "VARCHAR", "VARCHAR"))))
    assert tuple(column.to_pylist()[0] for column in table) == values
    engine.close()


@needs_fakesnow
def test_a_session_counts_and_charges(shop: tuple[str, dict[str, str]]) -> None:
    private = {"reads": dpsql.PrivateTable("user_id")}
    policy = dpsql.Policy(dpsql.Budget(10, "1e-6"), private, source=dpsql.DataSource(shop[0], options=shop[1]))
    assert "secret" not in repr(policy.source)
    with dpsql.connect(policy=policy, ledger=":memory:") as session:
        answer = session.sql("SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 2 PRIVATE")
        assert len(answer.fetchall()) == 2
        assert answer.receipt.isolation == "remote"


@needs_fakesnow
def test_what_fails_says_nothing_of_rows_and_the_next_statement_runs(shop: tuple[str, dict[str, str]]) -> None:
    engine = SnowflakeEngine.open(shop[0], {}, options=shop[1])
    for sql in ("SELECT CAST('secret' AS NUMBER)", "DROP TABLE reads"):
        with pytest.raises(EngineError) as caught:
            engine.execute(Statement(sql))
        assert "secret" not in str(caught.value)
    assert open_exact(engine.execute(Statement("SELECT COUNT(*) AS n FROM reads"))).to_pydict() == {"N": [4000]}
    with pytest.raises(EngineError) as missing:
        SnowflakeEngine.open(shop[0], {"nothing": None}, options=shop[1])
    assert missing.value.code == "table-missing"
    engine.close()


@pytest.mark.parametrize(
    ("url", "options", "code"),
    [
        ("snowflake://ada:secret@account/shop", {}, "engine-unreachable"),
        ("snowflake://ada:secret@account/shop/web?colour=red", {}, "engine-unreachable"),
        ("snowflake://ada:secret@account/shop/web", {"adbc.snowflake.sql.db": "other"}, "source-option"),
        ("snowflake://ada:secret@account/shop/web", {"TIMEZONE": "CET"}, "source-option"),
    ],
)
def test_what_is_not_opened_says_why_without_the_password(url: str, options: dict[str, str], code: str) -> None:
    with pytest.raises((EngineError, UsageError)) as caught:
        SnowflakeEngine.open(url, {}, options=options)
    assert caught.value.code == code
    assert "secret" not in str(caught.value)
