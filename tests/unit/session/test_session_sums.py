"""Sums beyond the types that are summed: released, with their ends, in the widest type, on every way out."""

from __future__ import annotations

import io
from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa
import pytest
from support.session_kit import session_on, shared

import dpsql
from dpsql.answer import Answer
from dpsql.report.answer_json import encode_answer
from dpsql.session import Session

USERS, LARGE = 20_000, 10**15
CREATE = (
    (
        "CREATE TABLE pay AS SELECT u AS user_id, 'k' || (u % 2) AS k, 1000::DECIMAL(18,12) AS fine, "
        f"5000000::DECIMAL(18,8) AS coarse, {LARGE}::BIGINT AS large, -{LARGE}::BIGINT AS debt, 7::TINYINT AS small "
        f"FROM range({USERS}) t(u)"
    ),
    (
        "CREATE TABLE open AS SELECT 9000000000000000000::BIGINT AS b, 2::INTEGER AS i, 999999::DECIMAL(18,12) AS d, "
        "5::HUGEINT AS h FROM range(3)"
    ),
)
BOUNDS = {
    "rows": 1,
    "fine": {"max": 1000},
    "coarse": {"max": 5_000_000},
    "large": {"max": LARGE},
    "debt": {"min": -LARGE, "max": 1},
    "small": {"max": 7},
}
HUGE = pa.decimal128(38, 0)


@pytest.fixture
def session() -> Iterator[Session]:
    tables = {"pay": dpsql.PrivateTable("user_id", bounds=BOUNDS), "open": dpsql.PublicTable()}  # type: ignore[arg-type]
    policy = dpsql.Policy(dpsql.Budget(100, "1e-4"), tables, limits=dpsql.Limits(max_epsilon=50))
    with session_on(shared(*CREATE), policy) as opened:
        yield opened


def total(session: Session, column: str) -> Answer:
    text = f"SELECT SUM({column}) AS s, value_low(s) AS l, value_high(s) AS h FROM pay PRIVATE WITH (epsilon = 5)"
    return session.sql(text)


@pytest.mark.parametrize(
    ("column", "type_", "exact"),
    [
        ("fine", pa.decimal128(38, 12), 1000 * USERS),
        ("coarse", pa.decimal128(38, 8), 5_000_000 * USERS),
        ("large", HUGE, LARGE * USERS),
        ("debt", HUGE, -LARGE * USERS),
        ("small", HUGE, 7 * USERS),
        ("CAST(large AS DOUBLE)", pa.float64(), LARGE * USERS),
    ],
)
def test_a_total_and_its_ends_are_never_cut(session: Session, column: str, type_: pa.DataType, exact: int) -> None:
    answer = total(session, column)
    assert answer.arrow().schema.types == [type_] * 3
    ((value, low, high),) = answer.fetchall()
    assert abs(float(value) / exact - 1) < 0.01  # type: ignore[arg-type]
    assert low < value < high  # type: ignore[operator]
    assert abs(float(high) - float(low)) < 0.01 * abs(exact)  # type: ignore[arg-type]
    (ends,) = answer.intervals().to_pylist()
    assert (ends["low"], ends["high"]) == (low, high)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, SUM(large) AS s FROM pay GROUP BY k TOP 2 PRIVATE WITH (epsilon = 5)",
        "SELECT k, SUM(large) AS s FROM pay GROUP BY k ALL PRIVATE WITH (domain = ['k0', 'k1'], epsilon = 5)",
        "SELECT k, s FROM (SELECT k, SUM(large) AS s FROM pay GROUP BY k TOP 2 PRIVATE WITH (epsilon = 5)) AS x",
        (
            "SELECT k, CASE WHEN s > 3 THEN s ELSE 0 END AS s FROM "
            "(SELECT k, SUM(large) AS s FROM pay GROUP BY k TOP 2 PRIVATE WITH (epsilon = 5)) AS x"
        ),
        "SELECT k, SUM(large) + 1 AS s FROM pay GROUP BY k TOP 2 PRIVATE WITH (epsilon = 5)",
    ],
)
def test_groups_and_what_is_computed_of_them(session: Session, text: str) -> None:
    answer = session.sql(text)
    assert answer.arrow().schema.field("s").type == HUGE
    assert session.prepare(text).schema.field("s").type == HUGE
    assert session.sql(f"SELECT * FROM ({text}) AS around LIMIT 0").arrow().schema.field("s").type == HUGE
    for _, value in answer.fetchall():
        assert type(value) is int
        assert abs(value / (LARGE * USERS / 2) - 1) < 0.01


def test_released_whole_numbers_are_whole_in_a_select_around_them(session: Session) -> None:
    inner = "(SELECT SUM(large) AS s FROM pay PRIVATE WITH (epsilon = 5)) AS x"
    ((value,),) = session.sql(f"SELECT s FROM {inner}").fetchall()
    answer = session.sql(f"SELECT s // 7 AS q, s % 7 AS r, s & 1 AS b, s * 2 AS d, SUM(s) OVER () AS w FROM {inner}")
    assert answer.fetchall() == [(value // 7, value % 7, value & 1, value * 2, value)]  # type: ignore[operator]
    assert set(answer.arrow().schema.types) == {HUGE}


def test_every_form_of_an_answer_has_the_whole_number(session: Session) -> None:
    answer = total(session, "large")
    ((value, *_),) = answer.fetchall()
    assert type(value) is int
    assert value > 2**63
    encoded = encode_answer(answer)
    assert encoded["rows"][0][0] == value  # type: ignore[index]
    assert encoded["intervals"] == [
        {"column": 0, "low": [answer[0][1]], "high": [answer[0][2]]},
    ]
    assert (answer.to_csv() or "").splitlines()[1].split(",")[0] == str(value)
    assert pa.csv.read_csv(io.BytesIO((answer.to_csv() or "").encode())).num_rows == 1
    assert str(answer.df()["s"].dtype) == "float64"  # as DuckDB's own
    assert str(total(session, "small").df()["s"].dtype) == "int64"
    assert repr(answer).splitlines()[1].startswith(f"{value} ± ")


def test_sums_of_public_rows_are_never_null_for_their_size(session: Session) -> None:
    text = (
        "SELECT SUM(b) AS s, SUM(b) + 1 AS more, SUM(b) * 2 AS b, SUM(i) AS i, SUM(d) * 2 AS d, SUM(h) AS h FROM open"
    )
    exact = 27 * 10**18
    assert session.sql(text).fetchall() == [(exact, exact + 1, exact * 2, 6, Decimal(5_999_994), 15)]
    having = "SELECT i, SUM(b) AS s FROM open GROUP BY i HAVING SUM(b) > 5 ORDER BY s"
    assert session.sql(having).fetchall() == [(2, exact)]


def test_a_sum_of_one_users_rows_that_has_no_digits_left_is_a_double(session: Session) -> None:
    inner = "SELECT user_id, SUM(fine) * 2000 AS s FROM pay GROUP BY user_id"  # 2,000,000 in DECIMAL(18, 12) is NULL
    text = f"SELECT COUNT(DISTINCT user_id) AS n FROM ({inner}) AS x WHERE s > 1000000 PRIVATE WITH (epsilon = 5)"
    ((users,),) = session.sql(text).fetchall()
    assert abs(users - USERS) < 100  # type: ignore[operator]
