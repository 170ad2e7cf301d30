"""Flight SQL with the client that people have, adbc-driver-flightsql: what works, and what each of it costs."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import trustme
from support.surfaces_kit import NAMES, TOP

from dpsql.server.service import Service

from .conftest import WORDS, Served

COUNTRY = "SELECT article FROM reads WHERE country = ? GROUP BY article TOP 3 PRIVATE"
LABELS = {"a0", "a1", "a2"}


def connect(served: Served, name: str = "alice", password: str = WORDS, **options: str) -> adbc.Connection:
    return adbc.connect(served.uri, db_kwargs={"username": name, "password": password, **options})


def asked(cursor: adbc.Cursor, text: str) -> list[tuple[object, ...]]:
    cursor.execute(text)
    return list(cursor.fetchall())


@pytest.fixture
def cursor(served: Served) -> Iterator[adbc.Cursor]:
    with connect(served) as connection, connection.cursor() as cursor:
        yield cursor


def test_a_question_is_charged_once_whoever_reads_it(served: Served, cursor: adbc.Cursor) -> None:
    cursor.execute(TOP)
    table = cursor.fetch_arrow_table()
    assert table.schema == pa.schema([("article", pa.string()), ("n", pa.int64())])
    assert set(table["article"].to_pylist()) == LABELS
    assert served.charges() == 1
    with connect(served) as connection:
        frame = pd.read_sql(TOP, connection)
        assert frame["n"].tolist() == table["n"].to_pylist()
        assert pl.read_database(TOP, connection)["n"].to_list() == table["n"].to_pylist()
        assert pl.read_database(f"SELECT * FROM ({TOP}) t LIMIT 0", connection).is_empty()
    cursor.execute(f"-- by a tool\nSELECT SUM(n) AS n FROM ({TOP}) AS t")
    assert cursor.fetchone() == (sum(table["n"].to_pylist()),)
    assert served.charges() == 1


def test_nothing_is_charged_before_an_answer_is_fetched(served: Served, cursor: adbc.Cursor) -> None:
    schema = cursor.adbc_execute_schema(TOP)
    assert schema.names == ["article", "n"]
    cursor.adbc_prepare(COUNTRY)
    partitions, described = cursor.adbc_execute_partitions(NAMES)
    assert described.names == ["article"]
    assert served.charges() == 0
    (partition,) = partitions
    cursor.adbc_read_partition(partition)
    first = cursor.fetchall()
    cursor.adbc_read_partition(partition)
    assert cursor.fetchall() == first
    assert served.charges() == 1


def test_parameters_are_bound(served: Served, cursor: adbc.Cursor) -> None:
    cursor.execute(COUNTRY, ["DE"])
    first = cursor.fetchall()
    assert {row[0] for row in first} == LABELS
    cursor.execute(COUNTRY, ["DE"])
    assert cursor.fetchall() == first
    assert served.charges() == 1
    cursor.execute(COUNTRY, ["FR"])
    assert cursor.fetchall()
    assert served.charges() == 2


def test_parameters_of_every_type_arrive_as_they_were(cursor: adbc.Cursor) -> None:
    asked = "SELECT country FROM countries WHERE {} ORDER BY country"
    for condition, value, countries in (
        ("since = ?", dt.date(1990, 10, 3), ["DE"]),
        ("since < ?", dt.datetime(1990, 1, 1, 12, 30, 0, 5), ["FR"]),  # noqa: DTZ001 - zones are refused
        ("millions > ?", Decimal("68.6"), ["DE"]),
        ("millions > ?", 68.6, ["DE"]),
        ("millions > ?", 1, ["DE", "FR"]),
        ("large = ?", False, ["TV"]),
        ("country = ?", "FR", ["FR"]),
        ("country = ?", None, []),
    ):
        cursor.execute(asked.format(condition), [value])
        assert [row[0] for row in cursor.fetchall()] == countries, condition


def test_parameters_that_cannot_be_bound_are_refused(served: Served, cursor: adbc.Cursor) -> None:
    for values in ([], ["DE", "FR"], [b"\x00"], [float("nan")], [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)], [["DE"]]):
        with pytest.raises(adbc.ProgrammingError, match=r"\[(parameters|parameter-type|type|flight-parameters)\]"):
            cursor.execute(COUNTRY, values)
    with pytest.raises(adbc.ProgrammingError, match=r"\[flight-update\]"):
        cursor.executemany(COUNTRY, [["DE"], ["FR"]])
    assert served.charges() == 0


def test_what_is_there_is_listed(cursor: adbc.Cursor) -> None:
    connection = cursor.connection
    (catalog,) = connection.adbc_get_objects(depth="all").read_all().to_pylist()
    found = {
        (schema["db_schema_name"], table["table_name"]): [column["column_name"] for column in table["table_columns"]]
        for schema in catalog["catalog_db_schemas"]
        for table in schema["db_schema_tables"]
    }
    assert found["main", "reads"] == ["user_id", "article", "country", "ts"]  # and not the one that is not exposed
    assert found.keys() == {("main", "reads"), ("main", "countries"), ("shop", "orders")}
    one = connection.adbc_get_objects(depth="tables", table_name_filter="r%").read_all().to_pylist()
    assert [table["table_name"] for part in one[0]["catalog_db_schemas"] for table in part["db_schema_tables"]] == [
        "reads"
    ]
    assert connection.adbc_get_table_types() == ["TABLE"]
    schema = connection.adbc_get_table_schema("countries")
    assert schema.field("millions").type == pa.decimal128(9, 2)
    assert schema.field("since").type == pa.date32()
    assert connection.adbc_get_table_schema("orders", db_schema_filter="shop").names == ["user_id", "product"]
    assert connection.adbc_get_info()["vendor_name"] == "dpsql"


def test_the_columns_of_a_table_are_those_of_its_answer(cursor: adbc.Cursor) -> None:
    cursor.execute("SELECT * FROM countries")
    answered = cursor.fetch_arrow_table().schema
    listed = cursor.connection.adbc_get_table_schema("countries")
    plain = {pa.large_string(): pa.string(), pa.float32(): pa.float64()}
    assert [plain.get(field.type, field.type) for field in answered] == [field.type for field in listed]


def test_errors_have_code_reason_and_hint(served: Served, cursor: adbc.Cursor) -> None:
    for text, kind, found in (
        (
            "SELECT * FROM reads",
            adbc.ProgrammingError,
            r"UNAUTHORIZED: .*\[not-private\].*GROUP BY article TOP 10 PRIVATE",
        ),
        ("SELECT (", adbc.ProgrammingError, r"INVALID_ARGUMENT: .*\[syntax\] at line 1"),
        (NAMES + " WITH (mechanism = magic)", adbc.Error, r"\[(option|mechanism)\]"),
        ("INSERT INTO reads VALUES (1)", adbc.ProgrammingError, r"UNAUTHORIZED: .*\[not-a-query\]"),
        ("SELECT country FROM (DESCRIBE countries) AS x", adbc.NotSupportedError, r"NOT_IMPLEMENTED: .*\[\w+"),
    ):
        with pytest.raises(kind, match=found) as caught:
            cursor.execute(text)
        assert "Traceback" not in str(caught.value)
        assert ".py" not in str(caught.value)
    assert served.charges() == 0


def test_who_has_no_budget_is_told_so_and_can_still_describe(served: Served) -> None:
    with connect(served, "bob") as connection, connection.cursor() as cursor:
        assert cursor.adbc_execute_schema(TOP).names == ["article", "n"]
        with pytest.raises(adbc.ProgrammingError, match=r"UNAUTHORIZED: .*\[budget-exceeded\]"):
            asked(cursor, TOP)


def test_nobody_comes_in_without_their_password(served: Served) -> None:
    for name, password in (("alice", "wrong horse"), ("mallory", WORDS), ("a:b", "c")):
        with pytest.raises(adbc.Error, match=r"UNAUTHENTICATED: .*\[flight-login\]: This call has no login"):
            connect(served, name, password)
    assert '"event": "login-failed"' in served.log.getvalue()
    assert '"address": "127.0.0.1"' in served.log.getvalue() or '"address": "::1"' in served.log.getvalue()
    assert WORDS not in served.log.getvalue()


def test_who_guesses_waits(served: Served) -> None:
    for _ in range(8):
        with pytest.raises(adbc.Error, match="UNAUTHENTICATED"):
            connect(served, "alice", "wrong horse")
    with pytest.raises(adbc.Error, match="UNAUTHENTICATED"):
        connect(served)
    assert "login-throttled" in served.log.getvalue()


def test_a_connection_in_transactions_reads(served: Served) -> None:
    with connect(served) as connection, connection.cursor() as cursor:  # without a warning: autocommit is off
        cursor.execute("SELECT 1 AS one")
        assert cursor.fetchall() == [(1,)]
        connection.commit()
        connection.rollback()


def test_tls_with_an_authority_of_ones_own(secured: Served) -> None:
    assert secured.authority is not None
    root = secured.authority.cert_pem.bytes().decode()
    with connect(secured, **{"adbc.flight.sql.client_option.tls_root_certs": root}) as connection:
        assert len(pl.read_database(TOP, connection)) == 3
    stranger = trustme.CA().cert_pem.bytes().decode()
    with pytest.raises(adbc.Error, match="certificate"):
        connect(secured, **{"adbc.flight.sql.client_option.tls_root_certs": stranger})
    assert secured.charges() == 1


def test_a_plain_connection_to_tls_ends(secured: Served) -> None:
    plain = secured.uri.replace("+tls", "")
    with pytest.raises(adbc.Error):
        adbc.connect(plain, db_kwargs={"username": "alice", "password": WORDS})


def test_what_a_client_cancels_is_settled_and_replayed(
    served: Served, cursor: adbc.Cursor, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on = threading.Event(), threading.Event()
    ask = Service.ask

    def slowly(*args: Any, **named: Any) -> Any:
        begun.set()
        assert goes_on.wait(20)
        return ask(*args, **named)

    def cancel() -> None:
        assert begun.wait(20)
        cursor.adbc_cancel()

    monkeypatch.setattr(Service, "ask", slowly)
    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(adbc.Error, match=r"CANCELLED|[Cc]ancell?ed"):
        asked(cursor, TOP)
    canceller.join()
    goes_on.set()
    cursor.execute(TOP)
    assert len(cursor.fetchall()) == 3
    assert served.charges() == 1


def test_standard_sql_is_read_as_private_with_a_header(served: Served) -> None:
    total, header = "SELECT COUNT(DISTINCT user_id) AS n FROM reads", "adbc.flight.sql.rpc.call_header.dpsql-implicit"
    with pytest.raises(adbc.Error, match="flight-header"):
        connect(served, **{header: "maybe"})
    for value, is_answered in (("on", True), ("TRUE", True), ("off", False)):
        with connect(served, **{header: value}) as connection, connection.cursor() as cursor:
            if is_answered:
                assert len(asked(cursor, total)) == 1
                cursor.adbc_prepare(total)
                assert len(asked(cursor, total)) == 1
                continue
            with pytest.raises(adbc.Error):
                cursor.execute(total)
    with connect(served) as connection, connection.cursor() as cursor, pytest.raises(adbc.Error):
        cursor.execute(total)
    assert served.charges() == 1
