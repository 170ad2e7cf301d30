"""Arithmetic on measures inside a private SELECT: what is released is the measures, and all else is computed from them.

Every answer is compared with the same expression, worked out by hand from the stored answer of the plain statement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

import pytest
from support.session_kit import session_on, shared

import dpsql
from dpsql.errors import Error, Place
from dpsql.session import Session

CREATE = "CREATE TABLE orders (user_id BIGINT, product VARCHAR, amount DOUBLE, ts TIMESTAMP)"
ROWS = (
    "INSERT INTO orders SELECT i % 900, 'p' || (i * i) % 30, i % 50, TIMESTAMP '2026-01-01' + INTERVAL (i % 240) HOUR "
    "FROM range(20000) t(i)"
)
PUBLIC = "CREATE TABLE products AS SELECT 'p' || i AS product, i % 3 AS class FROM range(30) t(i)"
TABLES = {
    "orders": dpsql.PrivateTable("user_id", bounds={"rows": 50, "amount": {"max": 500}}),
    "products": dpsql.PublicTable(),
}
POLICY = dpsql.Policy(dpsql.Budget(90, "1e-6"), TABLES, implicit=True, limits=dpsql.Limits(default_k=5))
JANUARY = "ts >= DATE '2026-01-02' AND ts < DATE '2026-01-06'"


@pytest.fixture
def session() -> Session:
    return session_on(shared(CREATE, ROWS, PUBLIC), POLICY)


Rows = list[tuple[object, ...]]
ByHand = Callable[[Sequence[tuple]], Rows]  # type: ignore[type-arg]
PLAIN = "SELECT product, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY product ORDER BY n DESC LIMIT 4"
BOTH = "FROM orders GROUP BY product"
TOTAL = "SELECT COUNT(*), SUM(amount) FROM orders"
PARTS = "SELECT s, n FROM (SELECT SUM(amount) AS s, COUNT(*) AS n FROM orders PRIVATE) AS x WHERE s / n > 0"
TOP = "FROM orders GROUP BY product TOP 4 PRIVATE"
PAIRS = f"SELECT product, n, s FROM (SELECT product, COUNT(*) AS n, SUM(amount) AS s {TOP}) AS x WHERE s / n > 0"
SETS = (  # a measure alone, which ranks, and a quotient
    f"SELECT product, a, s / n FROM (SELECT product, COUNT(*) AS a, COUNT(*) AS n, SUM(amount) AS s {TOP}) AS x "
    "ORDER BY a DESC"
)
DAYS = f"SELECT date_trunc('day', ts) AS day, COUNT(*) AS n FROM orders WHERE {JANUARY} GROUP BY 1 ORDER BY 1"
COMPUTED: list[tuple[str, str, ByHand]] = [
    (
        TOTAL,
        "SELECT CAST(COUNT(*) AS DOUBLE) AS n, SUM(amount) FROM orders",
        lambda rows: [(float(n), s) for n, s in rows],
    ),
    (TOTAL, "SELECT COUNT(*)::float AS n, SUM(amount) AS s FROM orders", lambda rows: [(float(n), s) for n, s in rows]),
    (PARTS, "SELECT SUM(amount) / COUNT(*) FROM orders", lambda rows: [(s / n,) for s, n in rows]),
    (PARTS, "SELECT SUM(amount) / COUNT(*) FROM orders PRIVATE", lambda rows: [(s / n,) for s, n in rows]),
    (
        PARTS,
        "SELECT x.m + 1 AS m FROM (SELECT SUM(amount) / COUNT(*) AS m FROM orders PRIVATE) AS x",
        lambda rows: [(s / n + 1,) for s, n in rows],
    ),
    (
        PARTS,
        "WITH x AS (SELECT SUM(amount) / COUNT(*) AS m FROM orders), y AS (SELECT 3 AS t) SELECT m, t FROM x, y",
        lambda rows: [(s / n, 3) for s, n in rows],
    ),
    (
        PLAIN,
        f"SELECT product, COUNT(*) * 2 AS m, SUM(amount) AS s {BOTH} ORDER BY m DESC LIMIT 4",
        lambda rows: [(p, 2 * n, s) for p, n, s in rows],
    ),
    (
        PLAIN,
        f"SELECT product, COUNT(*) * 2 AS m, SUM(amount) AS s {BOTH} ORDER BY m DESC TOP 4 PRIVATE",
        lambda rows: [(p, 2 * n, s) for p, n, s in rows],
    ),
    (
        SETS,
        f"SELECT SUM(amount) / COUNT(*) AS m, upper(product) {BOTH} ORDER BY COUNT(*) DESC LIMIT 4",
        lambda rows: [(m, p.upper()) for p, _, m in rows],
    ),
    (
        PLAIN,
        (
            f"SELECT product, 1e2 * COUNT(*) / MAX(COUNT(*)) OVER () AS m, SUM(amount) {BOTH} "
            "ORDER BY COUNT(*) DESC LIMIT 4"
        ),
        lambda rows: [(p, 100 * n / max(row[1] for row in rows), s) for p, n, s in rows],
    ),
    (
        PLAIN,
        f"SELECT ROW_NUMBER() OVER (ORDER BY COUNT(*) DESC) AS place, product, SUM(amount) {BOTH} ORDER BY 1 LIMIT 4",
        lambda rows: [(place, p, s) for place, (p, _, s) in enumerate(rows, 1)],
    ),
    (
        PAIRS,
        f"SELECT product FROM (SELECT product, COUNT(*) + SUM(amount) AS m {BOTH} LIMIT 4) AS x ORDER BY m LIMIT 2",
        lambda rows: [(p,) for p, *_ in sorted(rows, key=lambda row: row[1] + row[2])[:2]],
    ),
    (
        SETS,
        (
            f"SELECT product, COUNT(*) AS n, SUM(amount) / COUNT(*) {BOTH} HAVING COUNT(*) * 2 > 5200 AND 9 < n "
            "ORDER BY n DESC LIMIT 4"
        ),
        lambda rows: [(p, n, m) for p, n, m in rows if 2 * n > 5200],
    ),
    (
        PLAIN,
        (
            "SELECT CASE WHEN COUNT(*) > 2600 THEN concat('FROM, \"', product) ELSE 'x''y' END AS \"a, b FROM c\", "
            f"/* COUNT(*), */ (((SUM(amount)))) -- LIMIT 1\n {BOTH} ORDER BY COUNT(*) DESC LIMIT 4"
        ),
        lambda rows: [(f'FROM, "{p}' if n > 2600 else "x'y", s) for p, n, s in rows],
    ),
    (
        PLAIN,
        (
            "SELECT product, (SELECT class FROM products AS c WHERE c.product = 'p1') + COUNT(*) AS m, SUM(amount) "
            f"{BOTH} ORDER BY COUNT(*) DESC LIMIT 4"
        ),
        lambda rows: [(p, n + 1, s) for p, n, s in rows],
    ),
    (
        PLAIN,
        f"SELECT SUM(amount) AS s {BOTH} ORDER BY COUNT(*) + 0 DESC LIMIT 4",
        lambda rows: [(s,) for _, _, s in rows],
    ),
    (DAYS, DAYS.replace("COUNT(*)", "COUNT(*) * 2"), lambda rows: [(day, 2 * n) for day, n in rows]),
    (
        DAYS,
        (
            f"SELECT SUM(COUNT(*)) OVER (ORDER BY date_trunc('day', ts)) AS n FROM orders WHERE {JANUARY} "
            "GROUP BY date_trunc('day', ts) ORDER BY date_trunc('day', ts)"
        ),
        lambda rows: [(sum(n for _, n in rows[: at + 1]),) for at in range(len(rows))],
    ),
]


def rounded(row: tuple[object, ...]) -> list[object]:
    """Return a row with its numbers in the six digits that a FLOAT surely has."""
    return [float(f"{each:.5e}") if isinstance(each, int | float | Decimal) else each for each in row]


@pytest.mark.parametrize(("plain", "computed", "by_hand"), COMPUTED, ids=[sql for _, sql, _ in COMPUTED])
def test_it_is_computed_from_the_stored_answer_of_the_measures_alone(
    session: Session, plain: str, computed: str, by_hand: ByHand
) -> None:
    rows = session.sql(plain).fetchall()
    spent = session.budget.refunded.spent
    answer = session.sql(computed)
    assert answer.receipt.replayed
    assert session.budget.refunded.spent == spent
    assert list(map(rounded, answer.fetchall())) == list(map(rounded, by_hand(rows)))
    assert len(rows) > 0
    assert len(answer) > 0 or "> 5200" in computed  # noise leaves none of 2,667 above 2,600 in 3 of 100 runs
    assert session.describe(computed).names == answer.columns


@pytest.mark.parametrize("computed", [sql for _, sql, _ in COMPUTED[::4]])
def test_it_is_charged_once_as_its_measures_are(session: Session, computed: str) -> None:
    first = session.sql(computed)
    assert first.receipt.items_charged > 0
    spent = session.budget.refunded.spent
    again = session.sql(computed)
    assert again.receipt.items_charged == 0
    assert session.budget.refunded.spent == spent
    assert again.fetchall() == first.fetchall()
    assert session.history.num_rows == 1
    assert session.history.column("query").to_pylist() == [computed]
    assert session.explain(computed).facts()


def test_names_are_those_of_a_plain_statement() -> None:
    session = session_on(shared(CREATE, ROWS, PUBLIC), POLICY)
    sql = 'SELECT o.PRODUCT, COUNT(*)  *  2, SUM(amount) + 0 AS "S ""x""", count(*) n FROM orders AS o GROUP BY product'
    assert session.sql(sql).columns == ["product", "COUNT(*) * 2", 'S "x"', "n"]
    with pytest.raises(Error, match="output-names"):
        session.sql("SELECT product, COUNT(*) * 2 AS n, COUNT(*) AS N FROM orders GROUP BY product")


def test_a_measure_that_is_passed_on_keeps_its_interval_and_a_computed_one_has_none(session: Session) -> None:
    answer = session.sql(f"SELECT SUM(amount) / COUNT(*) AS m, COUNT(*) AS n, product {BOTH} LIMIT 4")
    assert answer.counts is not None
    assert answer.counts.columns == (1,)
    assert session.sql("SELECT SUM(amount) / COUNT(*) AS m FROM orders").counts is None


def test_the_ends_of_intervals_are_columns_beside_computed_ones(session: Session) -> None:
    sql = "SELECT SUM(amount) / COUNT(*) AS m, COUNT(*) AS n, COUNT(*) - value_low(n) AS d FROM orders PRIVATE"
    ((_, n, distance),) = session.sql(sql).fetchall()
    assert 0 < distance < n
    assert session.sql(sql.replace("value_low(n)", "value_low(COUNT(*))")).fetchall() == session.sql(sql).fetchall()
    tested = f"SELECT product, COUNT(*) AS n {BOTH} HAVING value_low(n) > {{}} TOP 3 PRIVATE"
    assert (len(session.sql(tested.format(5))), len(session.sql(tested.format(50_000)))) == (3, 0)
    answer = session.sql(f"{sql} WITH (intervals = true)")
    assert answer.columns == ["m", "n", "n_low", "n_high", "d"]
    ((_, n, low, high, distance),) = answer.fetchall()
    assert n - low == high - n == distance


def test_parameters_keep_their_values_where_text_moves(session: Session) -> None:
    sql = (
        "SELECT COUNT(*) * ? AS a, product, COUNT(*) FILTER (WHERE amount > ?) + ? AS b, COUNT(*) AS n FROM orders "
        "WHERE amount < ? GROUP BY product ORDER BY n DESC LIMIT ?"
    )
    plain = (
        "SELECT product, COUNT(*) AS n, COUNT(*) FILTER (WHERE amount > 10) AS b FROM orders WHERE amount < 40 "
        "GROUP BY product ORDER BY n DESC LIMIT ?"
    )
    by_hand = [(3 * n, p, b + 7, n) for p, n, b in session.sql(plain, [3]).fetchall()]
    answer = session.sql(sql, [3, 10, 7, 40, 3])
    assert answer.receipt.replayed
    assert answer.fetchall() == by_hand
    named = sql.replace("?", ":a", 1).replace("?", ":b", 1).replace("?", ":c", 1).replace("?", ":d", 1)
    values = {"a": 3, "b": 10, "c": 7, "d": 40, "k": 3}
    assert session.sql(named.replace("?", ":k"), values).fetchall() == by_hand
    assert session.prepare("SELECT COUNT(*) * 2 AS n FROM orders WHERE amount > ?").parameters == ("DOUBLE",)


def test_a_total_in_the_select_list_is_a_private_query_of_its_own(session: Session) -> None:
    rows = session.sql("SELECT product, COUNT(*) AS n FROM orders GROUP BY product ORDER BY n DESC LIMIT 3").fetchall()
    ((total,),) = session.sql("SELECT COUNT(*) FROM orders").fetchall()
    by_hand = [(p, pytest.approx(n / total)) for p, n in rows]
    for sql in (
        f"SELECT product, COUNT(*) * 1e0 / (SELECT COUNT(*) FROM orders) AS share {BOTH} ORDER BY share DESC LIMIT 3",
        f"SELECT product, COUNT(*) / (SELECT COUNT(*) FROM orders PRIVATE) AS s {BOTH} TOP 3 PRIVATE ORDER BY s DESC",
    ):
        answer = session.sql(sql)
        assert answer.receipt.replayed
        assert answer.fetchall() == by_hand
    assert session.history.num_rows == 2


def test_a_column_is_what_plain_sql_means_by_its_name(session: Session) -> None:
    sql = (
        "SELECT product AS ts, date_trunc('year', ts) AS product, COUNT(*) || product AS x, "
        "COUNT(*) || year(date_trunc('year', ts)) AS y, COUNT(*) AS n FROM orders GROUP BY 1, 2 ORDER BY n DESC LIMIT 2"
    )
    for ts, product, x, y, n in session.sql(sql).fetchall():
        assert (str(product)[:4], ts[:1]) == ("2026", "p")
        assert (x, y) == (f"{n}{ts}", f"{n}2026")


REFUSED = {
    "SELECT SUM(COUNT(*)) FROM orders": "aggregate",
    f"SELECT product, amount * COUNT(*) AS s {BOTH}": "not-a-key",
    f"SELECT product, SUM(amount) AS amount, amount / COUNT(*) AS m {BOTH}": "not-a-key",
    "SELECT COUNT(*) * amount AS s FROM orders PRIVATE": "not-a-key",
    f"SELECT *, COUNT(*) * 2 AS n {BOTH}": "star",
    f"SELECT product, COUNT(*) * 2 AS n {BOTH} HAVING product > 'p1'": "having",
    f"SELECT product, COUNT(*) * 2 AS n {BOTH} HAVING COUNT(*) < 2000": "having",
    f"SELECT product, COUNT(*) * 2 AS n {BOTH} HAVING COUNT(*) BETWEEN 3 AND 2000": "having",
    f"SELECT product, COUNT(*) * 2 AS n {BOTH} HAVING COUNT(*) > 3 OR n > 5": "having",
    f"SELECT product, COUNT(*) * 2 AS n {BOTH} HAVING SUM(amount) > 3": "having",
    f"SELECT product, COUNT(*) * 2 AS n {BOTH} HAVING COUNT(*) / SUM(amount) > 3": "having",
    f"SELECT product, COUNT(*) * 2 AS n {BOTH} ORDER BY n DESC LIMIT 3 OFFSET 1": "limit",
    f"SELECT product, COUNT(*) * 2 AS n {BOTH} ORDER BY n LIMIT 3": "order",
    f"SELECT product, COUNT(*) * -2 AS n {BOTH} ORDER BY n LIMIT 3": "order",
    f"SELECT product, COUNT(*) / SUM(amount) AS m {BOTH} ORDER BY m DESC LIMIT 3": "order",
    f"SELECT product, COUNT(*) / SUM(amount) AS m {BOTH} ORDER BY m DESC LIMIT 3 PRIVATE": "order",
    f"SELECT product, COUNT(*) * 2 AS n {BOTH} ORDER BY product LIMIT 3": "order",
    f"SELECT product, AVG(amount) * 2 AS n {BOTH} ORDER BY n DESC LIMIT 3": "aggregate",
    "SELECT SUM(ts) + 1 FROM orders": "aggregate",
    "SELECT nothere(COUNT(*)) FROM orders": "outer-select",
    "SELECT COUNT(*) * 2 + (SELECT SUM(amount) FROM orders WHERE amount > (SELECT COUNT(*) FROM orders)) FROM orders": (
        "wrapping"
    ),
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_is_no_arithmetic_of_measures_is_refused_and_nothing_is_charged(session: Session, sql: str) -> None:
    with pytest.raises(Error) as refused:
        session.sql(sql)
    assert refused.value.code == REFUSED[sql]
    assert refused.value.hint
    place = refused.value.place
    if isinstance(place, Place):
        assert sql[place.column - 1 :].startswith(place.fragment)
    assert session.budget.refunded.spent == 0


def test_the_hint_of_another_order_can_be_followed(session: Session) -> None:
    sql = f"SELECT product, SUM(amount) / COUNT(*) AS m {BOTH} ORDER BY m DESC"
    assert len(session.sql(sql)) == 5
    assert len(session.sql(f"{sql.replace('m DESC', 'COUNT(*) DESC')} LIMIT 3")) == 3
    with pytest.raises(Error) as refused:
        session.sql(f"{sql} LIMIT 3")
    assert "ORDER BY COUNT(*) DESC" in (refused.value.hint or "")


def test_without_the_setting_the_clause_is_needed(session: Session) -> None:
    explicit = session_on(shared(CREATE, ROWS, PUBLIC), POLICY, implicit=False)
    with pytest.raises(Error, match="not-private"):
        explicit.sql("SELECT SUM(amount) / COUNT(*) FROM orders")
    assert len(explicit.sql("SELECT SUM(amount) / COUNT(*) FROM orders PRIVATE")) == 1
    assert session.budget.refunded.spent == 0
