"""Statements before their values are bound: what types the parameters are of, what columns the answer will have."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.session_kit import session_on, shared

import dpsql
from dpsql.session import Session
from dpsql.sql.coercion import parse_text_value

TABLES = {"reads": dpsql.PrivateTable("user_id"), "shops": dpsql.PublicTable()}
READS = (
    """CREATE TABLE reads AS SELECT i AS user_id, 'a' || i % 3 AS article, i / 4 AS dwell, DATE '2026-01-01' AS day,
    TIMESTAMP '2026-01-01' + to_hours(CAST(i AS INTEGER)) AS ts FROM range(3000) n(i)""",
    """CREATE TABLE shops AS SELECT 'DE' AS country, 5::INTEGER AS n, 7::UTINYINT AS tiny, 83.5::DECIMAL(9, 2) AS price,
    1.5::FLOAT AS ratio, uuid() AS id, true AS open, DATE '2020-01-01' AS since""",
)
ASK = "SELECT article FROM reads WHERE {} GROUP BY article TOP 3 PRIVATE"
LOOK = "SELECT n FROM shops WHERE {}"
TOP = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 3 PRIVATE"
BOTH = "SELECT article, day, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY ALL TOP 3 PRIVATE PER article"
NAMES_OF = "SELECT article FROM reads GROUP BY article TOP 3 PRIVATE"
TYPES = [
    (ASK.format("article = ? AND dwell > ? AND user_id = ?"), "VARCHAR DOUBLE BIGINT"),
    (
        ASK.format("article IN (?, 'x', ?) AND day < ? AND ts BETWEEN ? AND ?"),
        "VARCHAR VARCHAR DATE TIMESTAMP TIMESTAMP",
    ),
    (ASK.format("article LIKE ? OR article ILIKE '%' || ? || '%' ESCAPE ?"), "VARCHAR VARCHAR VARCHAR"),
    (ASK.format("?"), "BOOLEAN"),
    (ASK.format("ts > now() - INTERVAL (?) DAY AND ts < current_date + INTERVAL ?"), "BIGINT VARCHAR"),
    (ASK.format("day + ? > day AND day - ? > day AND -dwell < -?"), "BIGINT BIGINT DOUBLE"),
    (ASK.format("regexp_matches(article, ?, ?) AND contains(article, ?)"), "VARCHAR VARCHAR VARCHAR"),
    (ASK.format("user_id IN (SELECT n FROM shops WHERE country = ?)"), "VARCHAR"),
    (LOOK.format("n = ? AND tiny < ? AND price <= ?"), "BIGINT BIGINT DECIMAL(9,2)"),
    (LOOK.format("ratio > ? AND id = ? AND open = ?"), "DOUBLE VARCHAR BOOLEAN"),
    (LOOK.format("n & ? = ? AND n % ? = 1 AND ~? < n"), "BIGINT BIGINT BIGINT BIGINT"),
    (LOOK.format("? = 1 AND ? = 1.5 AND ? < 1e0 AND ? = 'a'"), "BIGINT DECIMAL(2,1) DOUBLE VARCHAR"),
    (LOOK.format("n IN (?, ?) ORDER BY n LIMIT ? OFFSET ?"), "BIGINT BIGINT BIGINT BIGINT"),
    (LOOK.format("? IS NULL OR (?) IS TRUE OR NOT ?"), "UNKNOWN BOOLEAN BOOLEAN"),
    (LOOK.format("? IS NULL OR country = ?"), "UNKNOWN VARCHAR"),
    (LOOK.format("$2 IS NULL OR country = $2 OR n = $1"), "BIGINT VARCHAR"),
    (LOOK.format(":a IS NULL OR country = :b OR n = :a"), "BIGINT VARCHAR"),
    (LOOK.format("price * ? > 1 AND n + ? > 1 AND n / ? > 1"), "DOUBLE BIGINT DOUBLE"),
    ("SELECT ? AS x, CAST(? AS DATE) AS d, ?::BIGINT AS b", "UNKNOWN DATE BIGINT"),
    ("SELECT substr(country, ?, ?) AS s, lower(?) AS l FROM shops", "BIGINT BIGINT VARCHAR"),
    ("SELECT sqrt(?) AS r, round(ratio, ?) AS o FROM shops", "DOUBLE BIGINT"),
    ("SELECT CASE n WHEN ? THEN ? ELSE 'x' END AS c FROM shops", "BIGINT VARCHAR"),
    (
        "SELECT CASE WHEN open THEN ? END AS c, coalesce(?, ?) AS d FROM shops WHERE n = ?",
        "VARCHAR VARCHAR VARCHAR BIGINT",
    ),
    ("SELECT x FROM (SELECT ? AS x, n FROM shops) AS y WHERE n = ?", "VARCHAR BIGINT"),
    ("SELECT coalesce(country, ?) AS d, greatest(n, ?) AS g FROM shops", "VARCHAR BIGINT"),
    ("SELECT date_trunc(?, ts) AS d, strftime(ts, ?) AS f FROM reads GROUP BY ALL TOP 3 PRIVATE", "VARCHAR VARCHAR"),
    (f"{TOP} WITH (epsilon = ?, mechanism = ?, k_bar = ?, fresh = ?)", "DOUBLE VARCHAR BIGINT BOOLEAN"),
    ("SELECT article FROM reads GROUP BY article TOP ? PRIVATE WITH (epsilon = ?) LIMIT ?", "BIGINT DOUBLE BIGINT"),
    (TOP.replace("TOP", "HAVING n >= ? TOP"), "BIGINT"),
    (
        f"SELECT article, n * ? AS m FROM ({TOP}) AS x WHERE n > ? AND article <> ? LIMIT ?",
        "BIGINT BIGINT VARCHAR BIGINT",
    ),
    (f"{TOP} WITH (mechanism = gaussian_histogram, max_groups_contributed = ?)", "BIGINT"),
    (f"{BOTH} WITH (partitions = ['DE', ?, ?])", "VARCHAR VARCHAR"),
    (f"{NAMES_OF} LIMIT ? OFFSET ?", "BIGINT BIGINT"),
    ("SELECT * FROM reads LIMIT ?", "BIGINT"),
    (LOOK.format("n = -? AND -? > ratio AND -? < -?"), "BIGINT DOUBLE DOUBLE DOUBLE"),
    ("SELECT sum(?) AS s, avg(-?) AS a, max(?) AS m FROM shops", "DOUBLE DOUBLE UNKNOWN"),
    (f"EXPLAIN {ASK.format('article = ?')}", "VARCHAR"),
    ("SHOW BUDGET", ""),
]
BOUND = [
    (ASK.format("article = ? AND dwell > ? AND user_id <> ?"), ["a1", 0.5, 7]),
    ("SELECT article, date_trunc(?, ts) AS d FROM reads GROUP BY ALL TOP ? PRIVATE LIMIT ?", ["month", 3, 2]),
    ("SELECT article FROM reads GROUP BY article TOP ? PRIVATE WITH (epsilon = ?)", [3, 0.05]),
    (f"SELECT article, n * ? AS m, n / ? AS h FROM ({TOP}) AS x WHERE n > ?", [2, 2.0, 1]),
    ("SELECT ? AS x, CAST(? AS DATE) AS d, ?::BIGINT AS b", ["x", date(2026, 1, 1), 1]),
    ("SELECT substr(country, ?, ?) AS s, lower(?) AS l, sqrt(?) AS r FROM shops", [1, 1, "A", 2.0]),
    ("SELECT CASE n WHEN ? THEN ? ELSE 'x' END AS c, coalesce(price, ?) AS d FROM shops", [5, "y", Decimal("1.5")]),
    ("SELECT greatest(n, ?) AS g, n + ? AS p, price * ? AS m, -? AS o FROM shops", [1, 1, 1.5, 1.5]),
    (f"EXPLAIN {ASK.format('article = ?')}", ["a1"]),
    ("SELECT * FROM shops WHERE (? IS NULL OR country = ?) AND price > ? LIMIT ?", [None, "DE", Decimal("1.5"), 1]),
]


@pytest.fixture(scope="module")
def session() -> Session:
    return session_on(shared(*READS), dpsql.Policy(dpsql.Budget(100, "1e-6", items=1000), TABLES))


@pytest.mark.parametrize(("text", "types"), TYPES)
def test_a_parameter_is_of_the_type_that_its_place_says(session: Session, text: str, types: str) -> None:
    spent = session.history.num_rows
    assert " ".join(session.prepare(text).parameters) == types
    assert session.history.num_rows == spent


@pytest.mark.parametrize(("text", "values"), BOUND)
def test_once_values_are_bound_the_answer_has_these_columns(session: Session, text: str, values: list[object]) -> None:
    prepared, answer = session.prepare(text), session.sql(text, values).arrow()
    assert prepared.fitted(answer).schema == prepared.schema
    assert [str(type_) for type_ in answer.schema.types] == [
        "int32" if column.name in {"g", "p"} else str(column.type) for column in prepared.schema
    ]


def test_what_a_number_makes_is_as_wide_as_it_may_become(session: Session) -> None:
    text = "SELECT n + ? AS m FROM shops"
    prepared, narrow = session.prepare(text), session.sql(text, [1]).arrow()
    assert [*map(str, prepared.schema.types), *map(str, narrow.schema.types)] == ["int64", "int32"]
    assert session.sql(text, [1 << 40]).arrow().schema == prepared.schema
    assert prepared.fitted(narrow).to_pylist() == narrow.to_pylist()


def test_a_value_that_makes_other_columns_is_told_so(session: Session) -> None:
    text = "SELECT coalesce(price, ?) AS p FROM shops"
    with pytest.raises(dpsql.UsageError) as refused:
        session.prepare(text).fitted(session.sql(text.replace("price", "NULL"), ["x"]).arrow())
    assert refused.value.code == "parameter-type"
    assert "CAST" in refused.value.hint


def test_types_that_a_client_names_are_kept(session: Session) -> None:
    text = "SELECT ? AS x, n FROM shops WHERE ? IS NULL OR price = ?"
    prepared = session.prepare(text, ["integer", "UNKNOWN", "NUMERIC"])
    assert prepared.parameters == ("BIGINT", "UNKNOWN", "DECIMAL(18,3)")
    assert [str(type_) for type_ in prepared.schema.types] == ["int64", "int32"]
    assert session.prepare(text, ["TIMESTAMP"]).parameters == ("TIMESTAMP", "UNKNOWN", "DECIMAL(9,2)")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("SELECT * FROM reads WHERE article = ?", "not-private"),
        (ASK.format("hidden = ?"), "unknown-column"),
        (ASK.format("article = ? AND ts > :b"), "parameters"),
        (ASK.format("article = $1 AND ts > $3"), "parameters"),
        (ASK.format("article = $99999999"), "parameters"),
        (ASK.format("article LIKE 'a' || dwell || ?"), "pattern"),
        ("SELECT article FROM reads WHERE ? GROUP BY article TOP 5000 PRIVATE", "k"),
    ],
)
def test_what_no_value_can_mend_is_refused(session: Session, text: str, code: str) -> None:
    with pytest.raises(dpsql.Error) as refused:
        session.prepare(text)
    assert refused.value.code == code


def test_thousands_of_parameters_of_a_list_are_read(session: Session) -> None:
    marks = ", ".join("?" * 3000)
    assert set(session.prepare(ASK.format(f"article IN ({marks})")).parameters) == {"VARCHAR"}


READ = [
    ("BIGINT", "42", 42),
    ("integer", " -7 ", -7),
    ("BIGINT", "+9223372036854775807", 2**63 - 1),
    ("BIGINT", "-9223372036854775808", -(2**63)),
    ("DOUBLE", "1e-3", 0.001),
    ("DOUBLE", ".5", 0.5),
    ("DOUBLE", "7.", 7.0),
    ("DECIMAL(9,2)", "1.50", Decimal("1.50")),
    ("DECIMAL(18,3)", "-1e2", Decimal("-1e2")),
    ("VARCHAR", " t ", " t "),
    ("VARCHAR(5)", "", ""),
    ("UNKNOWN", "1", "1"),
    ("DATE", "2026-02-28", date(2026, 2, 28)),
    ("TIMESTAMP", "2026-02-28 23:59:59.5", datetime(2026, 2, 28, 23, 59, 59, 500000)),  # noqa: DTZ001 - has no zone
    ("TIMESTAMP", "2026-02-28T01:02", datetime(2026, 2, 28, 1, 2)),  # noqa: DTZ001 - has no zone
    ("TIMESTAMP", "2026-02-28", datetime(2026, 2, 28)),  # noqa: DTZ001 - has no zone
    *(("BOOLEAN", text, True) for text in ("t", "TRUE", "y", "yes", "on", "1")),
    *(("BOOLEAN", text, False) for text in ("f", "false", "n", "No", "off", "0")),
]


@pytest.mark.parametrize(("type_", "text", "value"), READ)
def test_a_text_is_read_as_a_value_of_its_type(type_: str, text: str, value: object) -> None:
    found = parse_text_value(text, type_)
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("type_", "texts"),
    [
        ("BIGINT", ["", "1.0", "1e3", "0x1f", "1_000", "9223372036854775808", "\u0661", "9" * 5000, "NULL", "--1"]),
        ("DOUBLE", ["", "NaN", "inf", "-Infinity", "1e999", "0x1p3", "1_0.5", ".", "1,5", "1e", "9" * 5000]),
        ("DECIMAL(9,2)", ["", "NaN", "sNaN", "Infinity", "1_0", "1/3", "1e99999999"]),
        ("BOOLEAN", ["", "2", "maybe", "tr ue"]),
        ("DATE", ["", "2026-02-30", "26-01-01", "infinity", "0044-03-15 BC", "2026-01-01 00:00:00", "20260101"]),
        ("TIMESTAMP", ["", "2026-01-01 25:00", "2026-01-01 00:00:00+01", "2026-01-01 00:00:00Z", "now", "epoch"]),
        ("VARCHAR", ["a\0b"]),
    ],
)
def test_a_text_that_is_no_value_is_refused_with_a_hint_and_without_it(type_: str, texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(dpsql.UsageError) as refused:
            parse_text_value(text, type_)
        assert refused.value.code == "parameter-type"
        assert refused.value.hint
        assert len(text) < 4 or text not in str(refused.value)


@given(st.text(), st.sampled_from(["BIGINT", "DOUBLE", "DECIMAL(9,2)", "BOOLEAN", "DATE", "TIMESTAMP", "VARCHAR"]))
def test_no_text_does_anything_else(text: str, type_: str) -> None:
    try:
        assert parse_text_value(text, type_) is not None
    except dpsql.UsageError as error:
        assert error.code == "parameter-type"  # noqa: PT017 - or it is read
