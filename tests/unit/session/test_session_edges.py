"""Empty tables, NULLs, few groups, and the shape of what is released: ordinary answers, typed by the query alone."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
import pytest
from support.looks_kit import LEADERS, price_looks
from support.session_kit import COUNTS, NAMES, exact_histogram, seeded, session_on, shared, values_rows

import dpsql
from dpsql.accounting import ZCDP
from dpsql.session import Session

TYPES: dict[str, tuple[str, pa.DataType, object]] = {
    "BOOLEAN": ("true", pa.bool_(), True),
    "TINYINT": ("-7", pa.int8(), -7),
    "SMALLINT": ("-7", pa.int16(), -7),
    "INTEGER": ("-7", pa.int32(), -7),
    "BIGINT": ("-7", pa.int64(), -7),
    "UTINYINT": ("7", pa.uint8(), 7),
    "USMALLINT": ("7", pa.uint16(), 7),
    "UINTEGER": ("7", pa.uint32(), 7),
    "DECIMAL(9,2)": ("1.50", pa.decimal128(9, 2), Decimal("1.50")),
    "DECIMAL(18,0)": ("7", pa.decimal128(18, 0), Decimal(7)),
    "FLOAT": ("0.5", pa.float64(), 0.5),
    "DOUBLE": ("0.5", pa.float64(), 0.5),
    "VARCHAR": ("'x'", pa.string(), "x"),
    "ENUM('x', 'y')": ("'x'", pa.string(), "x"),
    "UUID": (
        "'11111111-1111-1111-1111-111111111111'",
        pa.string(),
        "11111111-1111-1111-1111-111111111111",
    ),
    "DATE": ("'2026-01-02'", pa.date32(), dt.date(2026, 1, 2)),
    "TIMESTAMP": ("'2026-01-02 03:04:05'", pa.timestamp("us"), dt.datetime(2026, 1, 2, 3, 4, 5)),  # noqa: DTZ001 - DuckDB's TIMESTAMP has no zone
}


@pytest.mark.parametrize("type_", TYPES)
def test_released_types_come_from_the_query(type_: str) -> None:
    value, expected, python = TYPES[type_]
    session = session_on(
        shared(
            f"CREATE TABLE reads (user_id BIGINT, key {type_})",
            f"INSERT INTO reads SELECT i, {value} FROM range(1500) t(i)",
            "INSERT INTO reads SELECT i, NULL FROM range(1500) t(i)",
        )
    )
    sql = "SELECT COUNT(DISTINCT user_id) AS n, key FROM reads{} GROUP BY key TOP 2 PRIVATE WITH (epsilon = 0.05)"
    answer = session.sql(sql.format(""))
    schema = pa.schema([("n", pa.int64()), ("key", expected)])
    assert answer.arrow().schema == schema
    assert {key for _, key in answer.fetchall()} == {python, None}
    assert session.sql(sql.format(" WHERE FALSE")).arrow().schema == schema


@pytest.mark.parametrize(
    "statements",
    [
        ("CREATE TABLE reads (user_id BIGINT, article VARCHAR)",),
        ("CREATE TABLE reads (user_id BIGINT, article VARCHAR)", "INSERT INTO reads SELECT NULL, 'a' FROM range(5000)"),
        (*values_rows({"a": 5000}), "DELETE FROM reads"),
    ],
    ids=["empty", "NULL units only", "emptied"],
)
@pytest.mark.parametrize("sql", [NAMES, COUNTS])
def test_nothing_to_count_is_one_bottom_and_two_looks(statements: tuple[str, ...], sql: str) -> None:
    session = session_on(shared(*statements))
    epsilon = dpsql.Epsilon("0.05")
    item, looks = epsilon.value**2 / 8, price_looks(epsilon, LEADERS, k=5, found=0)
    for mechanism, rho in (("limited_domain", item), ("two_looks", looks)):
        answer = seeded(session, 1).sql(sql.replace("WITH (", f"WITH (mechanism = {mechanism}, "))  # neither look sees
        assert answer.fetchall() == []
        assert answer.receipt.stopped_at_bottom
        assert answer.receipt.items_charged == math.ceil(rho / item)
        assert answer.receipt.loss.rho.value == rho
        assert answer.arrow().column_names == (["article"] if sql is NAMES else ["article", "n"])


@pytest.mark.filterwarnings("ignore::dpsql.WastedChargeWarning")
@pytest.mark.parametrize("more", [(), ("DELETE FROM reads",)], ids=["groups", "no row"])
@pytest.mark.parametrize(
    "options",
    [
        "mechanism = limited_domain",
        "mechanism = limited_domain, k_bar = AUTO",
        "mechanism = two_looks",
        "mechanism = two_looks, max_groups_contributed = 2",
        "mechanism = weighted_gaussian",
        "mechanism = domain_discovery",
        "mechanism = gaussian_histogram, max_groups_contributed = 2",
        "mechanism = laplace_limited_domain, max_groups_contributed = 2",
        "mechanism = stable",
        "mechanism = top_stable",
        "mechanism = peeling, domain = ['a', 'b', 'c', 'd', 'e', 'f']",
        "mechanism = joint, domain = ['a', 'b', 'c', 'd', 'e', 'f']",
    ],
)
def test_a_receipt_counts_a_part_of_an_item_as_one(options: str, more: tuple[str, ...]) -> None:
    session = session_on(shared(*values_rows({"a": 900, "b": 500, "c": 80, "d": 9}), *more))
    receipt = session.sql(COUNTS.replace("WITH (", f"WITH ({options}, ")).receipt
    item = dpsql.Epsilon("0.05").value ** 2 / 8
    assert isinstance(receipt.loss, ZCDP)
    assert receipt.items_charged == math.ceil(receipt.loss.rho.value / item)


def test_null_units_count_for_nobody() -> None:
    session = session_on(shared(*values_rows({"a": 3}), "INSERT INTO reads SELECT NULL, 'a' FROM range(9)"))
    assert exact_histogram(session, NAMES).leaders == (3,)


def test_null_is_one_label_like_any_other() -> None:
    session = session_on(shared(*values_rows({"a": 900}), "INSERT INTO reads SELECT i, NULL FROM range(2000) t(i)"))
    answer = session.sql(COUNTS.replace("WITH (", "WITH (mechanism = limited_domain, "))
    assert [article for article, _ in answer.fetchall()] == [None, "a"]
    assert answer.receipt.items_charged == 5
    assert [article for article, _ in seeded(session, 1).sql(COUNTS).fetchall()] == [None, "a"]


def test_fewer_groups_than_are_read() -> None:
    session = session_on(shared(*values_rows({"a": 30, "b": 20})))
    histogram = exact_histogram(session, NAMES)
    assert (histogram.leaders, histogram.following) == ((30, 20), 0)


@pytest.mark.parametrize("mechanism", ["limited_domain", "two_looks"])
def test_the_group_after_the_leaders_counts_and_no_other(mechanism: str) -> None:
    session = session_on(shared(*values_rows({f"a{n}": 50 - n for n in range(9)})))
    histogram = exact_histogram(session, NAMES.replace("0.05)", f"0.05, k_bar = 6, mechanism = {mechanism})"))
    assert (histogram.leaders, histogram.following) == ((50, 49, 48, 47, 46, 45), 44)


def test_several_counts_are_one_count() -> None:
    session = session_on(shared(*values_rows({"a": 2000, "b": 1500})))
    answer = session.sql(
        'SELECT COUNT(DISTINCT user_id) AS n, article AS "Article!", COUNT(DISTINCT user_id) AS again '
        "FROM reads GROUP BY article TOP 2 PRIVATE WITH (epsilon = 0.05)"
    )
    table = answer.arrow()
    assert table.column_names == ["n", "Article!", "again"]
    assert table.column("n") == table.column("again")
    assert answer.receipt.items_charged == 4
    assert answer.intervals().column_names == ["Article!", "low", "high"]


def test_keys_may_be_called_low_and_high() -> None:
    session = session_on(shared(*values_rows({"a": 2000})))
    answer = session.sql(
        "SELECT article AS low, article || 'x' AS high, COUNT(DISTINCT user_id) AS n FROM reads "
        "GROUP BY ALL TOP 1 PRIVATE WITH (epsilon = 0.05)"
    )
    intervals = answer.intervals()
    assert intervals.column_names == ["low", "high", "low", "high"]
    assert intervals.column(0).to_pylist() == ["a"]
    (low,), (high,), (count,) = (column.to_pylist() for column in (*intervals.columns[2:], answer.arrow().column("n")))
    assert low < count < high


RELEASED = {"b": 3000, "a": 2500, "d": 2000, "c": 1500}


@pytest.fixture(scope="module")
def ranked() -> Session:
    return session_on(shared(*values_rows(RELEASED), "INSERT INTO reads SELECT i, NULL FROM range(1000) t(i)"))


@pytest.mark.parametrize(
    ("ending", "keys"),
    [
        ("", ["b", "a", "d", "c", None]),
        (" ORDER BY article", ["a", "b", "c", "d", None]),
        (" ORDER BY article DESC", ["d", "c", "b", "a", None]),
        (" ORDER BY article NULLS FIRST", [None, "a", "b", "c", "d"]),
        (" ORDER BY article DESC NULLS FIRST", [None, "d", "c", "b", "a"]),
        (" ORDER BY n", [None, "c", "d", "a", "b"]),
        (" ORDER BY 2 DESC LIMIT 2", ["b", "a"]),
        (" ORDER BY COUNT(DISTINCT user_id) LIMIT 3", [None, "c", "d"]),
        (" LIMIT 1", ["b"]),
        (" LIMIT 999999999", ["b", "a", "d", "c", None]),
    ],
)
def test_order_and_limit_after_the_clause(ranked: Session, ending: str, keys: list[str | None]) -> None:
    answer = seeded(ranked, 5).sql(COUNTS + ending)
    assert [article for article, _ in answer.fetchall()] == keys
    assert answer.receipt.items_charged == 10


def test_order_before_the_clause_means_the_same(ranked: Session) -> None:
    before = COUNTS.replace("TOP 5", "ORDER BY article DESC TOP 5")
    assert (
        seeded(ranked, 5).sql(before).fetchall() == seeded(ranked, 5).sql(COUNTS + " ORDER BY article DESC").fetchall()
    )


def test_columns_in_the_order_asked_for() -> None:
    session = session_on(
        shared(
            "CREATE TABLE reads (user_id BIGINT, a VARCHAR, b INTEGER)",
            "INSERT INTO reads SELECT i, 'x', 1 FROM range(2000) t(i)",
        )
    )
    sql = (
        "SELECT b AS two, COUNT(DISTINCT user_id) AS n, a FROM reads GROUP BY a, b TOP 1 PRIVATE WITH (epsilon = 0.05)"
    )
    answer = session.sql(sql)
    assert answer.arrow().schema == pa.schema([("two", pa.int32()), ("n", pa.int64()), ("a", pa.string())])
    assert answer.fetchall()[0][::2] == (1, "x")


def test_a_count_may_be_negative() -> None:
    session = session_on(shared(*values_rows({f"a{n}": 1 for n in range(30)})), generous())
    options = "epsilon = 0.01, delta = 0.49, max_groups_contributed = 1"
    sql = COUNTS.replace("TOP 5", "TOP 30").replace("epsilon = 0.05", options)
    counts = [row[1] for seed in range(60) for row in seeded(session, seed).sql(sql).fetchall()]
    assert any(count < 0 for count in counts)  # type: ignore[operator]


def generous() -> dpsql.Policy:
    budget = dpsql.Budget(100, "0.99999", items=10**6, queries=1)
    return dpsql.Policy(budget, {"reads": dpsql.PrivateTable("user_id")}, limits=dpsql.Limits(max_delta="0.49"))
