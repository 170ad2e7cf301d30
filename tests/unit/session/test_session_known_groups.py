"""Totals and known groups through SQL: what is released, what it costs, and what is refused before a charge."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable
from datetime import date, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest
from support.domain_kit import exact_counts
from support.groups_kit import drawn
from support.laws import singles_out
from support.session_kit import session_on, shared

import dpsql
from dpsql.accounting import ZCDP
from dpsql.errors import Error
from dpsql.mechanisms import KnownGroups, LaplaceCounts, NoisyCounts
from dpsql.plan import Plan
from dpsql.session import Session

CREATE = "CREATE TABLE reads (user_id BIGINT, article VARCHAR, country VARCHAR)"
LABELS = "CREATE TABLE labels AS SELECT * FROM (VALUES ('c', 3), ('a', 1), (NULL, 4), ('b', 2), ('a', 1)) v(article, n)"
ROWS = (
    "INSERT INTO reads SELECT i, 'a', 'DE' FROM range(900) t(i)",
    "INSERT INTO reads SELECT i, 'b', 'FR' FROM range(500) t(i)",
    "INSERT INTO reads SELECT i, 'z', 'FR' FROM range(2000) t(i)",
    "INSERT INTO reads SELECT NULL, 'a', 'FR' FROM range(2000) t(i)",
)
TOTAL = "SELECT COUNT(DISTINCT user_id) AS readers FROM reads WHERE country = 'DE' PRIVATE WITH (epsilon = 1)"
LISTED = (
    "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article "
    "ALL PRIVATE WITH (epsilon = 1, domain = ['b', 'a', 'c'])"
)
STORED = LISTED.replace("['b', 'a', 'c']", "'labels.article'")


def session_over(*rows: str, **table: object) -> Session:
    tables = {"reads": dpsql.PrivateTable("user_id", **table), "labels": dpsql.PublicTable()}  # type: ignore[arg-type]
    return session_on(shared(CREATE, LABELS, *rows), dpsql.Policy(dpsql.Budget(40, "1e-6"), tables))


def test_a_total_is_one_row_and_one_item_and_no_delta() -> None:
    session = session_over(*ROWS)
    answer = session.sql(TOTAL)
    ((readers,),) = answer.fetchall()
    assert abs(readers - 900) < 20
    assert answer.columns == ["readers"]
    assert answer.receipt.loss == ZCDP(dpsql.Rho(Fraction(1, 8)), dpsql.Delta(0))
    assert str(answer.receipt).startswith("answered 1 of 1; used ")
    again = session.sql(f"-- again\n{TOTAL}")
    assert again.receipt.replayed
    assert again.fetchall() == [(readers,)]


@pytest.mark.parametrize("sql", [LISTED, STORED])
def test_all_known_groups_are_released_in_the_order_of_their_names(sql: str) -> None:
    session = session_over(*ROWS)
    answer = session.sql(sql)
    assert [article for article, _ in answer] == ["a", "b", "c"]
    assert all(abs(n - exact) < 20 for (_, n), exact in zip(answer, (900, 500, 0), strict=True))
    assert answer.receipt.loss == ZCDP(dpsql.Rho(Fraction(3, 8)), dpsql.Delta(0))
    assert answer.explanation == ""
    assert answer.bounded_by is None


def test_a_bound_sets_the_price_however_many_groups_there_are() -> None:
    """1,000 groups cost what 10 cost, and each has the noise of one item."""
    losses, variances = set[object](), set[object]()
    for groups in (10, 1000):
        days = ", ".join(f"'{day}'" for day in range(groups))
        session = session_over("INSERT INTO reads SELECT i % 700, i % 2000, 'DE' FROM range(5000) t(i)")
        answer = session.sql(
            "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article "
            f"ALL PRIVATE WITH (epsilon = 1, max_groups_contributed = 2, domain = [{days}])"
        )
        assert (len(answer), answer.bounded_by) == (groups, 2)
        losses.add(answer.receipt.loss)
        assert answer.counts is not None
        variances.add(answer.counts.variance)
    assert losses == {ZCDP(dpsql.Rho(Fraction(2, 8)), dpsql.Delta(0))}
    assert variances == {Fraction(4)}


def test_a_bound_that_no_unit_can_reach_takes_no_row_away() -> None:
    session = session_over(*ROWS, max_groups_contributed=3)
    assert session.explain(LISTED).max_groups_contributed is None
    assert session.explain(LISTED).worst_items == 3
    assert session.sql(LISTED).bounded_by is None
    narrow = LISTED.replace("epsilon = 1,", "epsilon = 1, max_groups_contributed = 2,")
    assert (session.explain(narrow).max_groups_contributed, session.explain(narrow).worst_items) == (2, 2)
    assert session.explain(TOTAL).worst_items == 1


@pytest.mark.parametrize("key", ["country", "upper(country)"])
def test_a_key_of_one_value_per_unit_costs_one_item_and_counts_each_unit_once(key: str) -> None:
    session = session_over(*ROWS, one_value_per_unit=["country"])
    sql = (
        f"SELECT {key} AS k, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY k "
        "ALL PRIVATE WITH (epsilon = 1, domain = ['DE', 'FR', 'IT'])"
    )
    plan = session.explain(sql)
    assert (plan.worst_items, plan.max_groups_contributed) == (1, 1)
    assert sum(exact_counts(session, sql).values()) == 2000  # 900 of them are in both
    assert session.sql(sql).bounded_by == 1
    other = sql.replace(f"{key} AS k", "article AS k").replace("'DE', 'FR', 'IT'", "'a', 'b', 'z'")
    assert session.explain(other).worst_items == 3


@pytest.mark.parametrize(
    ("k", "more", "mechanism", "items"),
    [
        (2, "", "known_groups", 3),  # 3 counts; peeling takes 2 keys and 2 counts
        (1, "", "peeling", 2),
        (1, ", max_groups_contributed = 1", "known_groups", 1),
        (9, "", "known_groups", 3),
        (2, ", mechanism = peeling", "peeling", 4),
        (2, ", monotone = true", "known_groups", 3),
    ],
)
def test_top_k_over_a_list_takes_the_cheaper_of_two_ways(k: int, more: str, mechanism: str, items: int) -> None:
    session = session_over(*ROWS)
    sql = LISTED.replace("ALL PRIVATE", f"TOP {k} PRIVATE").replace("epsilon = 1", f"epsilon = 1{more}")
    plan = session.explain(sql)
    assert (plan.mechanism, plan.worst_items) == (mechanism, items)
    answer = session.sql(sql)
    assert [article for article, _ in answer] == ["a", "b", "c"][: min(k, 3)]
    assert answer.receipt.items_charged == items
    assert answer.receipt.loss == plan.worst_case
    counts = [n for _, n in answer]
    assert counts == sorted(counts, reverse=True)
    names = sql.replace(", COUNT(DISTINCT user_id) AS n", "").replace(", monotone = true", "")
    assert session.explain(names).mechanism == "peeling"


def test_rows_are_ordered_kept_and_cut_after_the_release() -> None:
    session = session_over(*ROWS)
    whole = dict(session.sql(LISTED).fetchall())
    ordered = session.sql(f"{LISTED} ORDER BY n DESC LIMIT 2")
    assert ordered.receipt.replayed
    assert ordered.fetchall() == sorted(whole.items(), key=lambda row: -row[1])[:2]
    kept = session.sql(LISTED.replace("ALL PRIVATE", "HAVING n > 300 ALL PRIVATE"))
    assert kept.fetchall() == [row for row in sorted(whole.items()) if row[1] > 300]
    doubled = session.sql(f"SELECT sum(n) AS s, max(2 * n) AS most FROM ({LISTED}) AS x")
    assert doubled.receipt.replayed
    assert doubled.fetchall() == [(sum(whole.values()), 2 * max(whole.values()))]


@pytest.mark.parametrize("certificate", ["pure", "theorem2", "optimal"])
def test_the_other_certificates_take_totals_and_known_groups(certificate: str) -> None:
    budget = dpsql.Budget(40, "1e-6", items=40, queries=10, certificate=certificate)
    policy = dpsql.Policy(budget, {"reads": dpsql.PrivateTable("user_id")})
    session = session_on(shared(CREATE, *ROWS), policy)
    for sql, items in ((TOTAL, 1), (LISTED, 3)):
        answer = session.sql(sql.replace("epsilon = 1, ", "").replace(" WITH (epsilon = 1)", ""))
        assert answer.receipt.items_charged == items


REFUSED = {
    TOTAL.replace("PRIVATE", "PRIVATE PER country"): "per",
    LISTED.replace("PRIVATE", "PRIVATE PER article"): "per",
    TOTAL.replace("FROM reads", "FROM labels").replace("WHERE country = 'DE' ", ""): "nothing-private",
    TOTAL.replace("epsilon = 1", "k_bar = 10"): "option",
    TOTAL.replace("epsilon = 1", "delta = 1e-9"): "option",
    TOTAL.replace("epsilon = 1", "monotone = true"): "option",
    TOTAL.replace("epsilon = 1", "max_groups_contributed = 2"): "option",
    TOTAL.replace("epsilon = 1", "mechanism = peeling"): "option",
    TOTAL.replace("epsilon = 1", "partitions = ['a']"): "per",
    TOTAL.replace("SELECT", "SELECT DISTINCT"): "clause",
    TOTAL.replace("PRIVATE", "GROUP BY country PRIVATE"): "clause",
    TOTAL.replace("PRIVATE", "GROUP BY ALL PRIVATE"): "clause",
    "SELECT COUNT(DISTINCT article) AS n FROM reads PRIVATE": "no-bounds",
    "SELECT COUNT(*) AS n FROM reads PRIVATE": "no-bounds",
    LISTED.replace(", COUNT(DISTINCT user_id) AS n", ""): "counts",
    LISTED.replace(", domain = ['b', 'a', 'c']", ""): "domain",
    LISTED.replace("SELECT", "SELECT country,").replace("BY article", "BY country, article"): "keys",
    LISTED.replace("epsilon = 1", "prefer = 3"): "option",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_cannot_be_answered_is_refused_and_nothing_is_charged(sql: str) -> None:
    session = session_over(*ROWS)
    with pytest.raises(Error) as refused:
        session.sql(sql)
    assert refused.value.code == REFUSED[sql]
    assert refused.value.hint
    assert session.budget.refunded.spent == 0


def test_a_policy_that_wants_groups_of_many_units_has_no_known_groups() -> None:
    session = session_over(*ROWS, min_units=50)
    for sql in (TOTAL, LISTED):
        with pytest.raises(dpsql.Refusal, match="min-units"):
            session.sql(sql)


def test_a_public_table_of_too_many_groups_is_refused() -> None:
    rows = "INSERT INTO labels SELECT 'x' || i, i FROM range(10001) t(i)"
    session = session_over(*ROWS, rows)
    with pytest.raises(dpsql.Refusal, match="more than 10000 values"):
        session.sql(STORED)


@pytest.mark.parametrize(
    "text", ["SELECT private.n FROM labels private WHERE n > 0", "SELECT article AS private FROM labels AS private"]
)
def test_private_is_a_name_where_it_ends_no_query(text: str) -> None:
    assert len(session_over().sql(text)) == 5


@pytest.mark.parametrize(
    "condition", ["n > 1 AND private", "NOT private", "(n > 1) = private", "n > 1 OR (n = 1 AND private)"]
)
def test_a_column_called_private_may_end_a_condition(condition: str) -> None:
    public = duckdb.connect()
    public.execute("CREATE TABLE flags (n BIGINT, private BOOLEAN)")
    public.execute("INSERT INTO flags VALUES (1, true), (2, false), (3, true)")
    session = session_on(public, dpsql.Policy(dpsql.Budget(1, "1e-6"), {"flags": dpsql.PublicTable()}))
    text = f"SELECT n FROM flags WHERE {condition}"
    assert sorted(session.sql(text).fetchall()) == sorted(public.execute(text).fetchall())


def test_an_alias_after_a_private_subquery_may_be_called_private() -> None:
    session = session_over(*ROWS)
    inner = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 2 PRIVATE WITH (epsilon = 1)"
    assert len(session.sql(f"SELECT article FROM ({inner}) private")) == 2


def test_a_private_query_behind_another_is_refused_by_name() -> None:
    session = session_over(*ROWS)
    with pytest.raises(dpsql.Refusal, match="more than one private query"):
        session.sql(f"WITH a AS ({LISTED}) SELECT COUNT(DISTINCT user_id) AS n FROM reads PRIVATE")
    assert session.budget.refunded.spent == 0


def test_the_mechanism_charges_for_the_groups_that_a_unit_can_be_in() -> None:
    epsilon = dpsql.Epsilon("0.5")
    assert KnownGroups(NoisyCounts(epsilon), 7).items == 7
    assert KnownGroups(NoisyCounts(epsilon, 3), 7).items == 3
    assert KnownGroups(NoisyCounts(epsilon, 9), 7).items == 7
    assert KnownGroups(LaplaceCounts(epsilon, 1, 2), 7).items == 2
    for groups in (0, -1, True, 1.5):
        with pytest.raises(dpsql.UsageError, match="items-range"):
            KnownGroups(NoisyCounts(epsilon), groups)  # type: ignore[arg-type]


def gaussian(variance: float, centre: int) -> dict[Hashable, float]:
    masses = {n: math.exp(-((n - centre) ** 2) / (2 * variance)) for n in range(centre - 60, centre + 61)}
    return {n: mass / sum(masses.values()) for n, mass in masses.items()}


@pytest.mark.properties
def test_the_law_is_a_discrete_gaussian_around_the_exact_count_of_each_group() -> None:
    """Sigma is 2 at epsilon 1; half of its variance, and a count that is one higher, are told from it."""
    session = session_over("INSERT INTO reads SELECT i, 'a', 'DE' FROM range(3) t(i)")
    assert exact_counts(session, LISTED) == {"a": 3, "b": 0, "c": 0}

    for sql, at, column, exact in ((LISTED, 0, 1, 3), (LISTED, 2, 1, 0), (TOTAL, 0, 0, 3)):
        plan = session.explain(sql)

        def sample(runs: int, plan: Plan = plan, at: int = at, column: int = column) -> Counter[Hashable]:
            return Counter(each.table.column(column)[at].as_py() for each in drawn(session, plan, runs))

        assert singles_out(gaussian(4, exact), gaussian(2, exact), gaussian(4, exact + 1), sample=sample)


def test_a_total_is_drawn_under_its_own_name() -> None:
    pytest.importorskip("matplotlib")
    session = session_over(*ROWS)
    assert session.sql(TOTAL).plot().get_title(loc="left") == "readers"
    assert session.sql(LISTED).plot().get_title(loc="left") == "n by article"


TIMES = "CREATE TABLE visits (user_id BIGINT, ts TIMESTAMP, d DATE)"
VISITS = (
    "INSERT INTO visits SELECT i, TIMESTAMP '2026-03-01' + INTERVAL (i % 3) DAY + INTERVAL (i) SECOND, NULL "
    "FROM range(3000) t(i)"
)
DAYS = (
    "SELECT date_trunc('day', ts) AS day, COUNT(DISTINCT user_id) AS n FROM visits "
    "WHERE ts >= DATE '2026-03-01' AND ts < DATE '{}' GROUP BY day ALL PRIVATE WITH (epsilon = 1{})"
)


def visits(*rows: str) -> Session:
    tables = {"visits": dpsql.PrivateTable("user_id")}
    return session_on(shared(TIMES, *rows), dpsql.Policy(dpsql.Budget(40, "1e-6"), tables))


def test_a_time_series_has_every_day_and_no_threshold() -> None:
    answer = visits(VISITS).sql(DAYS.format("2026-03-05", ""))
    assert [day.isoformat()[:10] for day, _ in answer] == [f"2026-03-0{day}" for day in range(1, 5)]
    assert all(abs(n - exact) < 20 for (_, n), exact in zip(answer, (1000, 1000, 1000, 0), strict=True))
    assert answer.receipt.loss == ZCDP(dpsql.Rho(Fraction(4, 8)), dpsql.Delta(0))


def test_which_days_there_are_is_decided_by_the_statement_alone() -> None:
    beyond = "INSERT INTO visits VALUES (7, TIMESTAMP '2026-03-09 01:00:00', NULL), (7, NULL, NULL)"
    found = [visits(*rows).sql(DAYS.format("2026-03-05", "")) for rows in ((), (VISITS,), (VISITS, beyond), (beyond,))]
    assert len({tuple(day for day, _ in answer) for answer in found}) == 1


def test_the_bounds_of_a_calendar_may_be_parameters() -> None:
    text = DAYS.format("2026-03-05", "").replace("DATE '2026-03-01'", "?").replace("DATE '2026-03-05'", "?")
    session = visits(VISITS)
    for types in ((), ("TIMESTAMP", "TIMESTAMP")):
        prepared = session.prepare(text, types)
        assert prepared.parameters == ("TIMESTAMP", "TIMESTAMP")
        assert prepared.schema.names == ["day", "n"]
    bound = session.sql(text, [datetime(2026, 3, 1), date(2026, 3, 5)])  # noqa: DTZ001 - as DuckDB's TIMESTAMP
    assert len(bound) == 4
    assert session.sql(DAYS.format("2026-03-05", "")).fetchall() == bound.fetchall()
    with pytest.raises(dpsql.Refusal, match="a first and a last time"):
        session.sql(text, [None, date(2026, 3, 5)])


def test_what_would_fit_the_budget_is_a_bound_or_a_smaller_epsilon() -> None:
    tables = {"visits": dpsql.PrivateTable("user_id")}
    session = session_on(shared(TIMES, VISITS), dpsql.Policy(dpsql.Budget(1, "1e-6"), tables))
    with pytest.raises(dpsql.BudgetExceeded) as short:
        session.sql(DAYS.format("2027-03-01", "").replace("epsilon = 1", "epsilon = 0.05"))
    assert short.value.hint is not None
    options = re.findall(r"WITH \(([^)]*)\)", short.value.hint)
    assert [option.split()[0] for option in options] == ["max_groups_contributed", "epsilon"]
    for option in options:
        asked = DAYS.format("2027-03-01", "").replace("epsilon = 1", option)
        if "epsilon" not in option:
            asked = asked.replace(option, f"epsilon = 0.05, {option}")
        assert session.forecast(asked).at_worst == 1


@pytest.mark.parametrize("isolation", ["in_process", "process"])
def test_many_days_are_one_parameter_and_the_same_days(tmp_path: Path, isolation: str) -> None:
    path = tmp_path / "visits.duckdb"
    with duckdb.connect(str(path)) as connection:
        for statement in (TIMES, VISITS):
            connection.execute(statement)
    policy = dpsql.Policy(dpsql.Budget(90, "1e-6"), {"visits": dpsql.PrivateTable("user_id")})
    with dpsql.connect(path, policy=policy, ledger=":memory:", isolation=isolation) as session:
        many = session.sql(DAYS.format("2026-04-30", ""))
        assert len(session.explain(DAYS.format("2026-04-30", "")).counting.parameters) < 10
        first = [day.isoformat() for day, _ in many]
        assert first == [f"2026-{3 + day // 31:02}-{day % 31 + 1:02}T00:00:00" for day in range(60)]
        assert all(abs(n - exact) < 25 for (_, n), exact in zip(many, [1000] * 3 + [0] * 57, strict=True))


TOLD = (
    "SELECT CASE WHEN country = 'DE' THEN 'here' WHEN country = 'FR' THEN 'there' END AS k, "
    "COUNT(DISTINCT user_id) AS n FROM reads GROUP BY k ALL PRIVATE WITH (epsilon = 1)"
)


def test_the_group_of_null_is_counted() -> None:
    """A list without NULL, or a join by =, would give this group no row, or the count 0."""
    session = session_over(*ROWS, "INSERT INTO reads SELECT i, 'a', 'IT' FROM range(700) t(i)")
    for sql in (TOLD, TOLD.replace("n FROM", "n, COUNT(*) AS r FROM").replace("epsilon = 1", "epsilon = 0.5")):
        if "COUNT(*)" in sql:
            session = session_over(
                *ROWS, "INSERT INTO reads SELECT i, 'a', 'IT' FROM range(700) t(i)", bounds={"rows": 3}
            )
        answer = session.sql(sql)
        assert [row[0] for row in answer] == ["here", "there", None]
        assert all(abs(row[1] - exact) < 40 for row, exact in zip(answer, (900, 2000, 700), strict=True))
        assert isinstance(answer.receipt.loss, ZCDP)
        assert answer.receipt.loss.delta == dpsql.Delta(0)
        assert session.sql(sql).receipt.replayed


def test_truth_values_and_parts_of_times_need_no_list() -> None:
    session = visits(VISITS)
    flag = session.sql("SELECT user_id < 100 AS early, COUNT(DISTINCT user_id) AS n FROM visits GROUP BY 1 ALL PRIVATE")
    assert [key for key, _ in flag] == [False, True, None]
    hours = session.sql(
        "SELECT EXTRACT(hour FROM ts) AS h, COUNT(DISTINCT user_id) AS n FROM visits GROUP BY h "
        "ALL PRIVATE WITH (epsilon = 1, max_groups_contributed = 1)"
    )
    assert [key for key, _ in hours] == [*range(24), None]
    assert hours.receipt.items_charged == 1
    assert abs(hours[0][1] - 3000) < 20


def test_a_table_by_day_and_class_has_every_combination() -> None:
    labels = "INSERT INTO labels VALUES ('d', 1)"
    session = session_over(*ROWS, labels)
    sql = (
        "SELECT article, country = 'DE' AS home, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY ALL "
        "ALL PRIVATE WITH (epsilon = 1, max_groups_contributed = 2, domain = 'labels.article') ORDER BY article, home"
    )
    answer = session.sql(sql)
    assert [row[:2] for row in answer] == [(a, home) for a in "abcd" for home in (False, True, None)]
    exact = {("a", True): 900, ("b", False): 500}
    assert all(abs(n - exact.get((article, home), 0)) < 20 for article, home, n in answer)
    assert answer.receipt.items_charged == 2
    swapped = sql.replace("article, country = 'DE' AS home", "country = 'DE' AS home, article")
    assert session.sql(swapped).receipt.replayed
    assert session.sql(swapped).fetchall() == [(home, article, n) for article, home, n in answer]
    listed = session.sql(sql.replace("'labels.article'", "['b', 'x']"))
    assert [row[:2] for row in listed] == [(a, home) for a in "bx" for home in (False, True, None)]


@pytest.mark.parametrize("days", [4, 1000])
def test_combinations_cost_what_one_group_costs_where_a_unit_is_in_one(days: int) -> None:
    end = date(2026, 3, 1) + timedelta(days=days)
    sql = DAYS.format(end, ", max_groups_contributed = 1").replace("day, COUNT", "day, user_id % 2 = 0 AS even, COUNT")
    answer = visits(VISITS).sql(sql.replace("GROUP BY day", "GROUP BY day, even"))
    assert len(answer) == days * 3
    assert answer.receipt.loss == ZCDP(dpsql.Rho(Fraction(1, 8)), dpsql.Delta(0))
    assert sum(n for *_, n in answer) == pytest.approx(3000, abs=6 * 2 * math.sqrt(days * 3))


def test_cut_buckets_are_named_beside_the_answer_and_in_explain() -> None:
    session = visits(VISITS)
    sql = DAYS.format("2026-03-05", "").replace("'day'", "'week'")
    answer = session.sql(sql)
    words = "WHERE cuts the first week (2026-02-23) and the last week (2026-03-02)"
    assert answer.bound_note == words
    assert words in answer.notes()
    assert dict(session.explain(sql).facts())["cut"] == words
    assert session.sql(sql).bound_note == words
    assert session.sql(f"SELECT day, n FROM ({sql}) AS x").bound_note == words
    bounded = session.sql(sql.replace("epsilon = 1", "epsilon = 1, max_groups_contributed = 1"))
    assert bounded.bound_note == f"each user counted in at most 1 group: true counts can be higher; {words}"
    assert "Counts are bounded: each user counted in at most 1 group" in bounded.statement()
    assert "WHERE cuts" not in bounded.statement()
    assert session.sql(DAYS.format("2026-03-05", "")).bound_note == ""


def test_the_policy_says_the_days_of_a_series() -> None:
    days = {"ts": {"first": date(2026, 2, 27), "last": date(2026, 3, 2)}}
    tables = {"visits": dpsql.PrivateTable("user_id", calendar=days)}
    session = session_on(shared(TIMES, VISITS), dpsql.Policy(dpsql.Budget(40, "1e-6"), tables, implicit=True))
    sql = "SELECT ts::DATE AS day, COUNT(DISTINCT user_id) AS n FROM visits GROUP BY day"
    answer = session.sql(f"{sql} ALL PRIVATE WITH (epsilon = 1)")
    assert [day.isoformat() for day, _ in answer] == ["2026-02-27", "2026-02-28", "2026-03-01", "2026-03-02"]
    assert all(abs(n - exact) < 20 for (_, n), exact in zip(answer, (0, 0, 1000, 1000), strict=True))
    assert answer.bound_note == ""
    assert session.sql(sql).receipt.read_as == "ALL PRIVATE"
    for column, code in (("user_id", "policy-calendar"), ("nobody", "policy-no-column")):
        wrong = {"visits": dpsql.PrivateTable("user_id", calendar={column: days["ts"]})}
        with pytest.raises(dpsql.PolicyError, match=code):
            session_on(shared(TIMES), dpsql.Policy(dpsql.Budget(1, "1e-6"), wrong))


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("epoch(ts)", "domain"),
        ("EXTRACT(year FROM ts)", "domain"),
        ("user_id % 3", "domain"),
        ("EXTRACT(doy FROM ts), EXTRACT(week FROM ts) AS w", "domain"),
        ("user_id % 3, ts IS NULL", "keys"),
        ("width_bucket(user_id, 5, 1, 3)", "function-arguments"),
    ],
)
def test_keys_of_untold_values_are_refused_and_nothing_is_charged(key: str, code: str) -> None:
    session = visits(VISITS)
    with pytest.raises(Error) as refused:
        session.sql(f"SELECT {key}, COUNT(DISTINCT user_id) AS n FROM visits GROUP BY ALL ALL PRIVATE")
    assert refused.value.code == code
    assert refused.value.hint
    assert session.budget.refunded.spent == 0


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("dayname(day)", "(no date)"),
        ("month(day)", "(no date)"),
        ("CAST(year(day) AS VARCHAR)", "(no date)"),
        ("CASE WHEN day > '2026-01-01' THEN 'late' END", "NULL"),
        ("date_diff('day', day, DATE '2026-02-01') + year(DATE '2026-02-01')", "NULL"),
        ("day - DATE '2026-01-01' + 2000", "NULL"),
        ("day > DATE '2026-01-01'", "NULL"),
        ("coalesce(user_id > 5, day IS NULL, NULL)", ""),
    ],
)
def test_the_group_without_a_date_is_called_so_on_screens_and_is_null_in_rows(key: str, name: str) -> None:
    create = "CREATE TABLE reads AS SELECT i AS user_id, CASE WHEN i % 3 > 0 THEN DATE '2026-01-07' END AS day"
    policy = dpsql.Policy(dpsql.Budget(90, "1e-6"), {"reads": dpsql.PrivateTable("user_id")})
    shape = "TOP 3" if "20" in key or "year" in key else "ALL"
    text = f"SELECT {key} AS d, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY d {shape} PRIVATE WITH (epsilon = 1)"
    with session_on(shared(f"{create} FROM range(900) t(i)"), policy) as session:
        answer = session.sql(text)
        assert [row[0] is None for row in answer.fetchall()].count(True) == (name != "")
        axes = answer.plot()
        labels = {tick.get_text() for tick in (*axes.get_xticklabels(), *axes.get_yticklabels())}
        for shown in (repr(answer), answer._repr_html_(), "\n".join(labels)):
            assert ("(no date)" in shown, "NULL" in shown) == (name == "(no date)", name == "NULL")
        around = session.sql(f"SELECT max(n) AS n, any_value(d) AS d FROM ({text}) WHERE d IS NULL")
        assert "(no date)" not in repr(around)  # of any row, in the SELECT
