"""ROLLUP, CUBE and GROUPING SETS in private statements: rows as in SQL, and charges that are those of the sets alone.

The rows are compared with those of DuckDB for the same text. Every set is the release of the plain statement: who asked
one of them gets the other free, and the charges of a statement are the sums of those of its sets.
"""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from support.session_kit import rebuilt, seeded, session_on, shared

import dpsql
from dpsql.engines import Exact, Statement
from dpsql.session import Session

CREATE = "CREATE TABLE reads (user_id BIGINT, country VARCHAR, device VARCHAR, age BIGINT, ts TIMESTAMP)"
ROWS = (
    "INSERT INTO reads SELECT u, ['DE', 'FR', 'US'][1 + u % 3], ['phone', 'web'][1 + u % 2], 20 + 20 * (u % 2), "
    "TIMESTAMP '2026-01-01' + INTERVAL (u % 48) HOUR FROM range(9000) t(u)"
)
TABLES = {"reads": dpsql.PrivateTable("user_id", bounds={"rows": 1, "age": {"max": 100}})}
POLICY = dpsql.Policy(dpsql.Budget(100, "1e-6"), TABLES, limits=dpsql.Limits(default_k=12))
FIVE = "SELECT country, device, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY"


@pytest.fixture
def session() -> Session:
    return session_on(shared(CREATE, ROWS), POLICY)


def run_plainly(text: str) -> list[tuple[object, ...]]:
    return shared(CREATE, ROWS).execute(text).fetchall()


def is_near(one: object, other: object) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float) and abs(other) > 10:
        return abs(one - other) < 60  # more than ten standard deviations of every value here
    return one == other


def assert_same_rows(found: list[tuple[object, ...]], wanted: list[tuple[object, ...]]) -> None:
    assert len(found) == len(wanted), (found, wanted)
    left = list(wanted)
    for row in found:
        same = [other for other in left if all(map(is_near, row, other))]
        assert len(same) >= 1, (row, left)
        left.remove(same[0])


N, M = "COUNT(DISTINCT user_id) AS n", "COUNT(*) AS m"
AS_IN_SQL = [
    f"SELECT country, device, {N} FROM reads GROUP BY ROLLUP (country, device)",
    f"SELECT country, device, {N}, GROUPING(country, device) AS g FROM reads GROUP BY CUBE (country, device)",
    f"SELECT country, device, {N} FROM reads GROUP BY GROUPING SETS ((country), (device), ())",
    f"SELECT country, device, {N} FROM reads GROUP BY GROUPING SETS ((country, device), country)",
    f"SELECT country, device, age, {N}, GROUPING(age, device) AS g FROM reads GROUP BY country, ROLLUP (device, age)",
    f"SELECT country, device, {N} FROM reads GROUP BY ROLLUP (country), ROLLUP (device)",
    f"SELECT country, device, {N} FROM reads GROUP BY ROLLUP ((country, device))",
    f"SELECT country, {N} FROM reads GROUP BY GROUPING SETS (ROLLUP (country), (country))",
    f"SELECT r.country AS c, {N}, GROUPING(r.country) AS g FROM reads AS r GROUP BY ROLLUP (r.country)",
    f"SELECT upper(device) AS d, {N} FROM reads GROUP BY ROLLUP (upper(device))",
    f"SELECT coalesce(country, 'all') AS c, {N} FROM reads GROUP BY ROLLUP (country)",
    f"SELECT CASE WHEN GROUPING(age) = 1 THEN 'all' ELSE 'x' END AS c, age, {N} FROM reads GROUP BY ROLLUP (age)",
    f"SELECT age // 20 AS a, {N} FROM reads GROUP BY ROLLUP (age // 20)",
    "SELECT country, 2 * COUNT(*) + 1 AS m FROM reads GROUP BY CUBE (country)",
    f"SELECT country, AVG(age) AS a, {M} FROM reads GROUP BY ROLLUP (country)",
    f"SELECT device, {M}, COUNT(*) FILTER (WHERE device = 'web' OR age < 30) AS f FROM reads GROUP BY ROLLUP (device)",
    f"SELECT country, {M} FROM reads GROUP BY ROLLUP (country) HAVING COUNT(*) > 5000",
    f"SELECT country, {M} FROM reads GROUP BY ROLLUP (country) HAVING GROUPING(country) = 1",
    f"SELECT {M} FROM reads GROUP BY GROUPING SETS ((country), ())",
]


@pytest.mark.parametrize("text", AS_IN_SQL)
def test_the_rows_are_those_of_sql(session: Session, text: str) -> None:
    answer = seeded(session, 7).sql(f"{text} TOP 12 PRIVATE")
    assert_same_rows(answer.fetchall(), run_plainly(text))
    assert session.describe(f"{text} TOP 12 PRIVATE") == answer.arrow().schema


@pytest.mark.parametrize(
    "order",
    [
        "ORDER BY n DESC, country, device",
        "ORDER BY GROUPING(country, device), country, device",
        "ORDER BY country NULLS LAST, device NULLS FIRST",
        "ORDER BY 2 DESC NULLS LAST, 1 DESC NULLS LAST",
        "ORDER BY GROUPING(device) DESC, lower(country) DESC NULLS LAST, device LIMIT 5",
        "ORDER BY ALL",
    ],
)
def test_order_and_limit_are_those_of_all_rows(session: Session, order: str) -> None:
    """The numbers of users differ by more than the noise, or the order is that of names."""
    text = f"SELECT country, device, {N} FROM reads WHERE country <> 'US' OR device = 'web' OR user_id % 9 = 2 "
    text += "AND (country <> 'FR' OR user_id % 5 = 1) GROUP BY ROLLUP (country, device)"
    ordered = seeded(session, 7).sql(f"{text} TOP 12 PRIVATE {order}").fetchall()
    wanted = run_plainly(f"{text} {order}")
    names = [row[:2] for row in wanted]
    assert [row[:2] for row in ordered] == names or "n DESC" in order
    if "n DESC" in order:
        numbers = [row[2] for row in ordered]
        assert numbers == sorted(numbers, reverse=True)


def test_mysql_writes_rollup_behind_the_keys(session: Session) -> None:
    answer = seeded(session, 7).sql(f"{FIVE} country, device WITH ROLLUP TOP 12 PRIVATE")
    assert_same_rows(answer.fetchall(), run_plainly(f"{FIVE} ROLLUP (country, device)"))


def test_grouping_id_without_arguments_is_that_of_all_keys(session: Session) -> None:
    answer = seeded(session, 7).sql(
        f"SELECT country, device, GROUPING_ID() AS g, {N} FROM reads GROUP BY CUBE (country, device) TOP 12 PRIVATE"
    )
    assert {(row[0] is None, row[1] is None, row[2]) for row in answer.fetchall()} == {
        (False, False, 0),
        (False, True, 1),
        (True, False, 2),
        (True, True, 3),
    }


def test_standard_sql_is_read_the_same_way(session: Session) -> None:
    text = f"SELECT country, device, {N} FROM reads GROUP BY ROLLUP (country, device)"
    written = session.sql(f"{text} TOP 12 PRIVATE")
    implied = session.sql(text, implicit=True)
    assert implied.fetchall() == written.fetchall()
    assert implied.receipt.replayed
    assert implied.note == "the 12 most frequent of all groups; write TOP 120 PRIVATE at the end of the query for more"
    cut = session.sql(f"{text} ORDER BY n DESC LIMIT 2", implicit=True)
    assert cut.fetchall()[0][:2] == (None, None)
    assert len(cut) == 2


def test_known_groups_of_standard_sql_are_all_released(session: Session) -> None:
    text = (
        f"SELECT date_trunc('day', ts) AS day, {N} FROM reads WHERE ts >= DATE '2026-01-01' AND ts < DATE '2026-01-04' "
        "GROUP BY ROLLUP (day)"
    )
    found = seeded(session, 7).sql(f"{text} ORDER BY day", implicit=True).fetchall()
    assert [row[0] is None for row in found] == [False, False, False, True]
    assert abs(found[2][1]) < 60  # the third day has no row


@pytest.mark.parametrize(
    "ratio",
    [
        "COUNT(*) / COUNT(DISTINCT user_id)",
        "SUM(age) / COUNT(*)",
        "1e0 * COUNT(*) FILTER (WHERE device = 'web') / COUNT(*)",
        "COUNT(*) FILTER (WHERE device = 'web') / NULLIF(COUNT(*), 0)",
    ],
)
def test_a_ratio_is_one_of_every_set(session: Session, ratio: str) -> None:
    """3,000 users of each country and 9,000 in all: a share is wrong by .02, and an average by 3, with chance 1e-9."""
    text = f"SELECT country, {ratio} AS r FROM reads GROUP BY ROLLUP (country)"
    found = dict(seeded(session, 7).sql(f"{text} TOP 12 PRIVATE").fetchall())
    wanted = dict(run_plainly(text))
    assert found.keys() == wanted.keys()
    assert all(abs(found[key] - wanted[key]) < 0.1 * wanted[key] for key in wanted)


# Charges.

PLAIN = [
    f"{FIVE} country, device TOP 6 PRIVATE",
    "SELECT country, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY country TOP 6 PRIVATE",
    "SELECT COUNT(DISTINCT user_id) AS n FROM reads PRIVATE",
]
ROLLED = f"{FIVE} ROLLUP (country, device) TOP 6 PRIVATE"


def test_who_asked_the_sets_alone_gets_the_statement_free(session: Session) -> None:
    alone = [session.sql(text).fetchall() for text in PLAIN]
    before = session.budget.remaining
    answer = session.sql(ROLLED)
    assert session.budget.remaining == before
    assert answer.receipt.replayed
    assert [part.replayed for part in answer.receipt.parts] == [True] * 3
    both, one, total = alone
    assert sorted(answer.fetchall(), key=str) == sorted(
        [*both, *((country, None, n) for country, n in one), (None, None, total[0][0])], key=str
    )


def test_who_asked_the_statement_gets_its_sets_free(session: Session) -> None:
    rolled = {row[:2]: row[2] for row in session.sql(ROLLED).fetchall()}
    before = session.budget.remaining
    assert {(country, None): n for country, n in session.sql(PLAIN[1]).fetchall()}.items() <= rolled.items()
    assert session.sql(PLAIN[2]).fetchall() == [(rolled[None, None],)]
    assert session.budget.remaining == before


def test_a_set_that_is_there_twice_is_one_charge(session: Session) -> None:
    answer = session.sql(f"{FIVE} GROUPING SETS ((country, device), (device, country)) TOP 6 PRIVATE")
    rows = answer.fetchall()
    assert sorted(rows[: len(rows) // 2]) == sorted(rows[len(rows) // 2 :])
    assert [part.replayed for part in answer.receipt.parts] == [False, True]


@pytest.mark.mutant
def test_the_charges_are_the_sums_of_those_of_the_sets(session: Session) -> None:
    """The sets of ALL PRIVATE and a total lose the same whatever the rows are: each charge is exact."""
    known = "SELECT age > 30 AS old, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY"
    plain = [f"{known} old ALL PRIVATE", "SELECT COUNT(DISTINCT user_id) AS n FROM reads PRIVATE"]
    sums = Fraction(0)
    for text in plain:
        fresh = seeded(session, 1)
        fresh.sql(text)
        sums += fresh.budget.rho.spent
    rolled = seeded(session, 1)
    answer = rolled.sql(f"{known} ROLLUP (old) ALL PRIVATE")
    assert rolled.budget.rho.spent == sums > 0
    assert sum(part.loss.rho.value for part in answer.receipt.parts) == sums
    assert answer.receipt.loss.rho.value == sums


def test_the_price_is_the_sum_of_the_worst_cases(session: Session) -> None:
    plans = session.explain_all(ROLLED)
    alone = [session.explain(text) for text in PLAIN]
    assert [plan.worst_case for plan in plans] == [plan.worst_case for plan in alone]
    table = dict(session.sql(f"EXPLAIN {ROLLED}").fetchall())
    assert table["private query"] == "3 of 3"  # the last of three tables


def test_what_does_not_fit_together_is_not_begun() -> None:
    session = session_on(shared(CREATE, ROWS), dpsql.Policy(dpsql.Budget(1, "1e-6"), TABLES))
    text = f"{ROLLED} WITH (epsilon = 0.09)"
    worst = [plan.worst_case.rho.value for plan in session.explain_all(text)]
    assert max(worst) < session.budget.rho.remaining < sum(worst)
    with pytest.raises(dpsql.BudgetExceeded):
        session.sql(text)
    assert session.budget.rho.spent == 0


def test_a_set_that_fails_is_charged_in_full_and_those_before_it_stay(session: Session) -> None:
    """As with any statement of several private queries: what was answered is stored, what failed is charged."""
    written = " UNION ALL ".join(f"SELECT n FROM ({text})" for text in PLAIN)
    seen = []
    for text in (ROLLED, written):
        calls = 0

        def fail_later(statement: Statement, execute: object) -> Exact:
            nonlocal calls
            calls += 1
            if calls == 2:
                raise dpsql.EngineError("engine-failed", "broken")
            return execute(statement)  # type: ignore[operator,no-any-return]

        failing = rebuilt(seeded(session, 3), engine=fail_later)
        with pytest.raises(dpsql.EngineError) as refused:
            failing.sql(text)
        first, second, _ = failing.explain_all(text)
        assert first.stored
        assert not second.stored
        assert failing.history.num_rows == 2
        spent = failing.budget.rho.spent - second.worst_case.rho.value
        assert 0 < spent <= first.worst_case.rho.value
        seen.append(re.sub(r"[\d.]+ %", "x %", str(refused.value)))
    assert seen[0] == seen[1]


# Surfaces, and what is refused.


def test_inside_another_select_it_is_a_subquery(session: Session) -> None:
    text = (
        f"SELECT device, SUM(n) FROM ({ROLLED}) AS x WHERE country IS NOT NULL AND device IS NOT NULL GROUP BY device"
    )
    assert {row[0] for row in session.sql(text).fetchall()} == {"phone", "web"}


ENDS = f"SELECT country, {N}, value_low(n) AS n_low, value_high(n) AS n_high"
STATED = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-8) country, {N}"
RANKED = "SELECT country, RANK() OVER (ORDER BY COUNT(*) DESC) AS r"
OF_USERS = "(SELECT user_id, country FROM reads GROUP BY ROLLUP (user_id, country)) AS x"


def test_intervals_are_of_every_set(session: Session) -> None:
    for text in (
        f"{ENDS} FROM reads GROUP BY ROLLUP (country) TOP 3 PRIVATE",
        f"SELECT country, {N} FROM reads GROUP BY ROLLUP (country) TOP 3 PRIVATE WITH (intervals = true)",
    ):
        answer = session.sql(text)
        assert answer.arrow().column_names == ["country", "n", "n_low", "n_high"]
        assert len(answer) == 4
        assert all(low < n < high for _, n, low, high in answer.fetchall())


def test_a_domain_is_that_of_the_one_key_that_has_no_known_values(session: Session) -> None:
    found = seeded(session, 7).sql(
        f"SELECT age > 30 AS old, country, {N} FROM reads GROUP BY CUBE (old, country) "
        "ALL PRIVATE WITH (domain = ['DE', 'FR', 'XX']) ORDER BY GROUPING(old), GROUPING(country)"
    )
    keys = {row[:2] for row in found.fetchall()}
    assert {(None, "XX"), (True, "DE"), (False, None), (None, None)} <= keys
    assert not [country for _, country in keys if country == "US"]
    with pytest.raises(dpsql.Refusal) as refused:
        session.sql(f"{FIVE} GROUPING SETS ((country), (device)) ALL PRIVATE WITH (domain = ['DE', 'FR'])")
    assert refused.value.code == "domain"
    assert session.budget.rho.spent == 0


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (f"SELECT country, {N} FROM reads GROUP BY ROLLUP (country, 9) TOP 3 PRIVATE", "keys", "no such column"),
        (
            f"SELECT country, GROUPING(age) AS g, {N} FROM reads GROUP BY ROLLUP (country) TOP 3 PRIVATE",
            "keys",
            "GROUPING",
        ),
        ("SELECT country, device FROM reads GROUP BY ROLLUP (country, device) TOP 3 PRIVATE", "construct", "no count"),
        (f"SELECT age, {N} FROM reads GROUP BY ROLLUP (country) TOP 3 PRIVATE", "not-a-key", "group key"),
        (f"{RANKED} FROM reads GROUP BY ROLLUP (country) TOP 3 PRIVATE", "construct", "rows of all sets"),
        (f"{FIVE} CUBE (country, device, age, ts, user_id, age + 1) TOP 3 PRIVATE", "too-large", "64 grouping sets"),
        (f"{STATED} FROM reads GROUP BY ROLLUP (country)", "option", "one private query"),
        (
            f"SELECT country, {M} FROM {OF_USERS} GROUP BY country TOP 3 PRIVATE",
            "construct",
            "of a private query itself",
        ),
    ],
)
def test_what_has_no_meaning_for_each_set_is_refused(session: Session, text: str, code: str, words: str) -> None:
    with pytest.raises(dpsql.Error) as refused:
        session.sql(text)
    assert refused.value.code == code
    assert words in refused.value.reason
    assert refused.value.hint
    assert session.budget.rho.spent == 0
