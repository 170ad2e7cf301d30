"""TOP k PRIVATE PER: what is read and released of each partition, what it costs, and the law for all neighbours."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, combinations_with_replacement, product

import duckdb
import pytest
from support.laws import ROUNDING, Law, cks, hockey_stick, label_law, singles_out
from support.session_kit import filled, fresh_ledger, rebuilt, session_on, shared

import dpsql
from dpsql.accounting import ZCDP
from dpsql.engines import Exact, Statement, open_exact
from dpsql.errors import EngineError
from dpsql.mechanisms import GaussianHistogram, LimitedDomain
from dpsql.plan import Plan, compute_release_key, release
from dpsql.plan.mechanisms import choice
from dpsql.plan.mechanisms.per_partition import EachPartitionPlan
from dpsql.plan.mechanisms.record import Auto
from dpsql.session import Session

CREATE = "CREATE TABLE reads (user_id BIGINT, country VARCHAR, article VARCHAR)"
PLACES = "CREATE TABLE places AS SELECT * FROM (VALUES ('FR', 2), (NULL, 9), ('DE', 1), ('FR', 2)) v(country, n)"
CALLED = """SELECT article AS a, country AS c FROM reads GROUP BY ALL
    TOP 2 PRIVATE PER C WITH (epsilon = 1, delta = 0.1, partitions = ['FR', 'DE'])"""
SINGLE = dpsql.PrivateTable("user_id", one_value_per_unit=["country"])
NAMES = (
    "SELECT country, article FROM reads GROUP BY country, article TOP 2 PRIVATE PER country "
    "WITH (epsilon = 1, delta = 0.1, partitions = ['DE', 'FR']{more})"
)
COUNTS = NAMES.replace("article FROM", "article, COUNT(DISTINCT user_id) AS n FROM", 1)
LEVELS = (0.05, 0.25, 0.5, 1.0, 2.0, 3.0)
PAIRS = tuple(product(("DE", "FR"), ("a", "b")))
UNITS = [unit for size in range(1, 5) for unit in combinations(PAIRS, size)]
Unit = tuple[tuple[str, str], ...]
Counted = dict[str, dict[str, int]]


@pytest.fixture(autouse=True)
def _limited_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a limited domain answer where no mechanism is named; which one does by itself is tested with the planner."""
    alone = (each if each.name == "limited_domain" else replace(each, auto=Auto.NEVER) for each in choice.RECORDS)
    monkeypatch.setattr(choice, "RECORDS", tuple(alone))


def session_over(*statements: str, table: dpsql.PrivateTable | None = None, epsilon: float = 40) -> Session:
    tables = {"reads": table or dpsql.PrivateTable("user_id"), "places": dpsql.PublicTable()}
    policy = dpsql.Policy(dpsql.Budget(epsilon, "0.9"), tables)
    return session_on(shared(CREATE, PLACES, *statements), policy)


def many(country: str, article: str, units: int) -> str:
    return f"INSERT INTO reads SELECT i, '{country}', '{article}' FROM range({units}) t(i)"


def exact_of(session: Session, plan: Plan) -> Exact:
    return session._dependencies.engine.execute(Statement(plan.counting.sql, plan.counting.parameters))


def rows_of(session: Session, plan: Plan) -> list[tuple[object, ...]]:
    """Return the rows that the engine returns to the mechanism, the last column the position of the partition."""
    table = open_exact(exact_of(session, plan))
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def counted(session: Session, plan: Plan) -> Counted:
    """Return the counts of each partition by article."""
    found: Counted = {"DE": {}, "FR": {}}
    for row in rows_of(session, plan):
        keys = dict(zip(("article", "country"), row, strict=False))
        found[str(keys["country"])][str(keys["article"])] = int(str(row[2]))
    return found


def fill(connection: duckdb.DuckDBPyConnection, units: Iterable[Unit]) -> None:
    """Let the table hold these units, each row twice; a unit keeps its name whoever else is there."""
    connection.execute("DELETE FROM reads")
    seen, rows = Counter[Unit](), list[str]()
    for unit in units:
        name = 100 * UNITS.index(unit) + seen[unit]
        seen[unit] += 1
        rows += [f"({name}, '{country}', '{article}')" for country, article in unit] * 2
    if rows:
        connection.execute(f"INSERT INTO reads VALUES {', '.join(rows)}")


def law_of(mechanism: LimitedDomain, counts: Counted) -> Law:
    """Return the law of what is released of both partitions."""
    one, other = (label_law(mechanism, counts[country]) for country in ("DE", "FR"))
    return {(first, second): p * q for first, p in one.items() for second, q in other.items()}


def mechanism_of(plan: Plan) -> LimitedDomain:
    assert isinstance(plan.selection, LimitedDomain)
    return plan.selection


def every_neighbour(
    session: Session, connection: duckdb.DuckDBPyConnection, plan: Plan
) -> list[tuple[Counted, Counted]]:
    """Return the counts of every table of at most one unit, and of two of more, and with every unit more."""
    tables = [(), *((unit,) for unit in UNITS), (UNITS[-1], UNITS[-1]), (UNITS[0], UNITS[5], UNITS[9])]
    found: dict[tuple[Unit, ...], Counted] = {}
    for units in {tuple(sorted(each)) for base in tables for each in (base, *((*base, more) for more in UNITS))}:
        fill(connection, units)
        found[units] = counted(session, plan)
    return [(found[tuple(sorted(base))], found[tuple(sorted((*base, more)))]) for base in tables for more in UNITS]


def worst_excess(pairs: list[tuple[Counted, Counted]], plan: Plan) -> float:
    """Return by how much the worst pair exceeds the plan's own claim, over the exact laws of both tables."""
    mechanism, worst = mechanism_of(plan), plan.worst_case
    pure = float(plan.epsilon) * plan.worst_items
    laws: dict[str, Law] = {}
    most = 0.0
    for pair in pairs:
        for counts in pair:
            laws.setdefault(repr(counts), law_of(mechanism, counts))
        for less, more in (pair, pair[::-1]):
            p, q = laws[repr(less)], laws[repr(more)]
            most = max(most, hockey_stick(p, q, pure) / float(worst.delta))
            claims = ((hockey_stick(p, q, level), level) for level in LEVELS)
            most = max(most, *(stick / (float(worst.delta) + cks(worst.rho.value, level)) for stick, level in claims))
    return most


def partitions_moved(pair: tuple[Counted, Counted]) -> set[str]:
    less, more = pair
    return {country for country in less if less[country] != more[country]}


def prepared(table: dpsql.PrivateTable | None = None) -> tuple[duckdb.DuckDBPyConnection, Session]:
    connection = filled(CREATE, PLACES)
    tables = {"reads": table or dpsql.PrivateTable("user_id"), "places": dpsql.PublicTable()}
    return connection, session_on(connection, dpsql.Policy(dpsql.Budget(40, "0.9"), tables))


@pytest.mark.properties
@pytest.mark.parametrize(
    ("more", "table", "reach"),
    [
        (", k_bar = 2", None, 2),
        (", k_bar = 2, max_groups_contributed = 1", None, 1),
        (", k_bar = 2, max_groups_contributed = 3", None, 2),
        (", k_bar = 2", SINGLE, 1),
    ],
)
def test_no_neighbour_exceeds_the_claim(more: str, table: dpsql.PrivateTable | None, reach: int) -> None:
    """Tables of up to two units and every unit more, most with articles in both countries: enforced, not trusted."""
    connection, session = prepared(table)
    plan = session.explain(NAMES.format(more=more))
    assert plan.worst_case == ZCDP(dpsql.Rho(Fraction(2 * reach, 8)), dpsql.Delta("0.1"))
    assert mechanism_of(plan).delta == dpsql.Delta(Fraction(1, 10) / reach)
    pairs = every_neighbour(session, connection, plan)
    for pair in pairs:
        less, more_counts = pair
        moves = [more_counts[country].get(article, 0) - less[country].get(article, 0) for country, article in PAIRS]
        assert set(moves) <= {0, 1}
        assert 1 <= len(partitions_moved(pair)) <= reach
    assert 0.4 < worst_excess(pairs, plan) <= 1 + ROUNDING


@pytest.mark.mutant
@pytest.mark.properties
def test_trusting_that_units_have_one_value_would_break_the_claim() -> None:
    """The mutant: the price of one partition, and the rows of all of them."""
    connection, trusting = prepared(SINGLE)
    careful = session_on(connection, dpsql.Policy(dpsql.Budget(40, "0.9"), {"reads": dpsql.PrivateTable("user_id")}))
    sql = NAMES.format(more=", k_bar = 2")
    pairs = every_neighbour(careful, connection, careful.explain(sql))
    assert worst_excess(pairs, trusting.explain(sql)) > 1.3


def test_an_unrelated_unit_moves_nobodys_partition() -> None:
    connection, session = prepared(SINGLE)
    plan = session.explain(NAMES.format(more=""))
    both = [unit for unit in UNITS if len({country for country, _ in unit}) == 2]
    alone: dict[Unit, Counted] = {}
    for unit in both:
        fill(connection, [unit])
        alone[unit] = counted(session, plan)
        assert sum(bool(articles) for articles in alone[unit].values()) == 1
        assert set(alone[unit]["DE"]) in (set(), {article for country, article in unit if country == "DE"})
    for one, other in combinations_with_replacement(both, 2):
        if one != other:
            fill(connection, [one, other])
            together = counted(session, plan)
            for country, article in PAIRS:
                apart = alone[one][country].get(article, 0) + alone[other][country].get(article, 0)
                assert together[country].get(article, 0) == apart


def test_units_with_several_values_are_spread_over_them() -> None:
    session = session_over(many("DE", "a", 2000), many("FR", "a", 2000), table=SINGLE)
    found = counted(session, session.explain(NAMES.format(more="")))
    assert found["DE"]["a"] + found["FR"]["a"] == 2000
    assert 850 < found["DE"]["a"] < 1150


ROWS = (
    many("DE", "a", 5),
    many("DE", "a", 3),  # duplicates
    many("DE", "b", 5),  # a tie
    many("FR", "b", 9),
    many("XX", "z", 90),
    "INSERT INTO reads SELECT NULL, 'DE', 'c' FROM range(9) t(i)",
    "INSERT INTO reads SELECT i, 'DE', NULL FROM range(2) t(i)",
    "INSERT INTO reads SELECT i, NULL, 'a' FROM range(70) t(i)",
)


def test_leaders_of_each_partition_are_read_in_one_order() -> None:
    session = session_over(*ROWS)
    plan = session.explain(NAMES.replace("['DE', 'FR']", "['FR', 'XY', 'DE']").format(more=", k_bar = 2"))
    assert rows_of(session, plan) == [("a", "DE", 5, 0), ("b", "DE", 5, 0), (None, "DE", 2, 0), ("b", "FR", 9, 1)]
    cut = session.explain(NAMES.replace("TOP 2", "TOP 1").format(more=", k_bar = 1"))
    assert rows_of(session, cut) == [("a", "DE", 5, 0), ("b", "DE", 5, 0), ("b", "FR", 9, 1)]


def test_all_groups_are_read_in_the_order_of_the_keys() -> None:
    session = session_over(*ROWS)
    plan = session.explain(NAMES.format(more=", mechanism = gaussian_histogram, max_groups_contributed = 9"))
    assert rows_of(session, plan) == [("a", "DE", 5, 0), ("b", "DE", 5, 0), ("b", "FR", 9, 1), (None, "DE", 2, 0)]


def draws(session: Session, plan: Plan, runs: int) -> Counter[Hashable]:
    exact, seen = exact_of(session, plan), Counter[Hashable]()
    for _ in range(runs):
        released = release(plan, exact, noise=session._dependencies.noise).table.to_pylist()
        seen[tuple((row["country"], row["article"]) for row in released)] += 1
    return seen


def released_law(mechanism: LimitedDomain, counts: Counted) -> Law:
    law = Counter[Hashable]()
    for (first, second), mass in law_of(mechanism, counts).items():  # type: ignore[misc]
        rows = [("DE", label) for label in first] + [("FR", label) for label in second]
        law[tuple((country, label) for country, label in rows if label != "⊥")] += mass  # type: ignore[assignment]
    return law


@pytest.mark.properties
def test_what_is_sampled_has_the_law_of_independent_runs() -> None:
    session = session_over(many("DE", "a", 6), many("DE", "b", 5), many("FR", "b", 4))
    plan = session.explain(NAMES.format(more=""))
    counts = counted(session, plan)
    assert counts == {"DE": {"a": 6, "b": 5}, "FR": {"b": 4}}
    law = released_law(mechanism_of(plan), counts)
    other = released_law(mechanism_of(plan), {"DE": {"a": 6, "b": 5}, "FR": {"b": 5}})
    assert singles_out(law, other, sample=lambda runs: draws(session, plan, runs))


HUNDREDS = tuple(
    many(country, article, units)
    for country, article, units in [
        ("DE", "a", 900), ("DE", "b", 600), ("DE", "c", 300), ("FR", "b", 800), ("FR", "d", 500), ("XX", "z", 990)
    ]
)  # fmt: skip


@pytest.mark.parametrize(
    "more",
    [
        "",
        ", mechanism = gaussian_histogram, max_groups_contributed = 9",
        ", mechanism = laplace_limited_domain, max_groups_contributed = 9",
    ],
)
def test_rows_come_partition_by_partition_and_counts_belong_to_their_rows(more: str) -> None:
    session = session_over(*HUNDREDS)
    answer = session.sql(COUNTS.replace("['DE', 'FR']", "['FR', 'EE', 'DE']").format(more=more))
    rows = answer.fetchall()
    assert [row[:2] for row in rows] == [("DE", "a"), ("DE", "b"), ("FR", "b"), ("FR", "d")]
    assert all(abs(n - exact) < 120 for (_, _, n), exact in zip(rows, (900, 600, 800, 500), strict=True))
    assert answer.receipt.stopped_at_bottom
    later = session.sql(
        COUNTS.replace("['DE', 'FR']", "['FR', 'EE', 'DE']").format(more=more) + " ORDER BY n DESC LIMIT 2"
    )
    assert later.receipt.replayed
    assert [row[:2] for row in later.fetchall()] == [("DE", "a"), ("FR", "b")]


@pytest.mark.parametrize(
    ("table", "more", "items"),
    [
        (None, "", 2 + 2 + 1),
        (None, ", max_groups_contributed = 2", 2 + 2),
        (None, ", max_groups_contributed = 1", 2),
        (SINGLE, "", 2),
    ],
)
def test_what_came_back_is_charged_and_an_empty_partition_is_charged_bottom(
    table: dpsql.PrivateTable | None, more: str, items: int
) -> None:
    session = session_over(*HUNDREDS, table=table)
    sql = NAMES.replace("['DE', 'FR']", "['FR', 'EE', 'DE']").format(more=more)
    plan, answer = session.explain(sql), session.sql(sql)
    assert len(answer) == 4
    assert answer.receipt.items_charged == items
    assert answer.receipt.loss == ZCDP(dpsql.Rho(Fraction(items, 8)), dpsql.Delta("0.1"))
    assert session.budget.rho.spent == answer.receipt.loss.rho.value
    assert session.budget.delta.spent == Fraction(1, 10)
    assert answer.receipt.loss.rho <= plan.worst_case.rho


def test_counts_are_charged_where_they_come_back() -> None:
    session = session_over(*HUNDREDS)
    answer = session.sql(COUNTS.format(more=""))
    assert answer.receipt.items_charged == 8
    assert answer.receipt.loss.rho.value == 1
    nothing = session.sql(COUNTS.replace("['DE', 'FR']", "['EE', 'GG', 'HH']").format(more=""))
    assert (len(nothing), nothing.receipt.items_charged) == (0, 3)


def test_the_losses_of_the_dearest_partitions_are_charged() -> None:
    session = session_over(*HUNDREDS)
    plan = session.explain(
        NAMES.replace("['DE', 'FR']", "['DE', 'EE', 'FR', 'GG']").format(more=", max_groups_contributed = 3")
    )
    assert isinstance(plan.mechanism_plan, EachPartitionPlan)
    assert (plan.mechanism_plan.partitions, plan.mechanism_plan.charged_partitions, plan.worst_items) == (4, 3, 6)
    released = release(plan, exact_of(session, plan), noise=session._dependencies.noise)
    assert released.items_charged == 2 + 2 + 1
    assert released.loss == ZCDP(dpsql.Rho(Fraction(5, 8)), dpsql.Delta("0.1"))


@pytest.mark.parametrize("sql", [NAMES, COUNTS])
@pytest.mark.parametrize("k", [1, 5])
def test_one_release_of_all_groups_costs_what_it_costs_without_per(sql: str, k: int) -> None:
    session = session_over(*HUNDREDS, table=SINGLE)
    more = ", mechanism = gaussian_histogram, max_groups_contributed = 3"
    per = sql.format(more=more).replace("TOP 2", f"TOP {k}")
    plain = per.replace(" PER country", "").replace(", partitions = ['DE', 'FR']", ", gate = false")  # PER has none
    wide = per.replace("['DE', 'FR']", str([f"c{i}" for i in range(900)]))
    plans = [session.explain(each) for each in (plain, per, wide)]
    assert len({(plan.worst_case, plan.worst_items, plan.selection) for plan in plans}) == 1
    assert isinstance(plans[1].selection, GaussianHistogram)
    assert "dpsql_rows" not in plans[1].engine_sql  # a unit may count in several: the price is that of the bound
    answer = session.sql(per)
    assert answer.receipt.loss == plans[0].worst_case == session.sql(plain).receipt.loss


def test_the_first_of_each_partition_are_those_of_the_one_release() -> None:
    session = session_over(*HUNDREDS)
    more = ", mechanism = gaussian_histogram, max_groups_contributed = 9"
    rows = session.sql(COUNTS.format(more=more).replace("TOP 2", "TOP 9")).fetchall()
    assert [row[0] for row in rows] == ["DE"] * 3 + ["FR"] * 2
    for country in ("DE", "FR"):
        noisy = [n for found, _, n in rows if found == country]
        assert noisy == sorted(noisy, reverse=True)


def test_counts_are_monotone_within_each_partition() -> None:
    session = session_over(*(many(country, article, 500) for country in ("DE", "FR") for article in "abcdef"))
    sql = COUNTS.format(more="").replace("TOP 2", "TOP 6").replace("epsilon = 1", "epsilon = 0.2")
    noisy = session.sql(sql).fetchall()
    shown = session.sql(sql.replace("epsilon", "monotone = true, epsilon"))
    assert shown.receipt.replayed
    counts = {country: [n for found, _, n in shown.fetchall() if found == country] for country in ("DE", "FR")}
    for country, falling in counts.items():
        drawn = [n for found, _, n in noisy if found == country]
        assert falling == sorted(falling, reverse=True)
        assert abs(sum(falling) - sum(drawn)) <= len(drawn)


def test_min_units_holds_in_each_partition() -> None:
    table = dpsql.PrivateTable("user_id", min_units=400)
    session = session_over(*HUNDREDS, table=table)
    mechanism = mechanism_of(session.explain(NAMES.format(more=", max_groups_contributed = 1")))
    assert (mechanism.min_units, mechanism.delta) == (400, dpsql.Delta("0.05"))  # either partition may let one pass
    answer = session.sql(NAMES.replace("TOP 2", "TOP 3").format(more=""))
    assert [row for row in answer.fetchall() if row == ("DE", "c")] == []
    assert len(answer) == 4


def test_a_public_column_and_a_list_of_its_values_are_one_question() -> None:
    session = session_over(*HUNDREDS)
    first = session.sql(NAMES.format(more=""))
    session.sql(NAMES.replace("0.1", "0.02").format(more=""))
    same = [
        NAMES.replace("['DE', 'FR']", "'places.country'"),
        NAMES.replace("['DE', 'FR']", "['FR', 'DE', 'FR']"),
        NAMES.replace("['DE', 'FR']", "?"),
        NAMES.replace("GROUP BY country, article", "GROUP BY article, country"),
        CALLED,
    ]
    for text in same:
        answer = session.sql(text.format(more=""), [["FR", "DE"]] if "?" in text else ())
        assert answer.receipt.replayed, text
        assert sorted(map(sorted, answer.fetchall())) == sorted(map(sorted, first.fetchall()))
    other = [
        NAMES.replace("['DE', 'FR']", "['DE']"),
        NAMES.replace("PER country", "PER article"),
        NAMES.replace(", partitions = ['DE', 'FR']", "").replace(" PER country", ""),
        NAMES.format(more=", fresh = true"),
    ]
    for text in other:
        assert not session.sql(text.replace("0.1", "0.02").format(more="")).receipt.replayed


def test_what_a_unit_is_kept_to_is_part_of_the_question() -> None:
    """Also where a bound of one group makes both cost the same."""
    one, other = (session_over(table=table) for table in (None, SINGLE))
    for more in ("", ", max_groups_contributed = 1"):
        plans = [session.explain(NAMES.format(more=more)) for session in (one, other)]
        assert compute_release_key(plans[0]) != compute_release_key(plans[1])
    assert plans[0].worst_case == plans[1].worst_case
    assert compute_release_key(plans[1]) == compute_release_key(
        rebuilt(other).explain(NAMES.format(more=more))
    )  # whatever the salts are


def test_the_plan_knows_how_many_partitions_a_public_table_has() -> None:
    session = session_over(*HUNDREDS)
    sql = NAMES.replace("['DE', 'FR']", "'places.country'").format(more="")
    facts = dict(session.explain(sql).facts())
    assert facts["partitions"] == "2, each answered"
    assert facts["items at most"].startswith("4 (")
    assert ("partitions", "2, each answered") in session.sql(f"EXPLAIN {sql}").fetchall()
    assert session.budget.rho.spent == 0


@pytest.mark.parametrize(
    ("key", "partitions", "labels"),
    [
        ("length(country)", "['2', '3', '2']", {2}),
        ("length(country)", "'places.n'", {2}),
        ("user_id % 2 = 0", "['true', 'false']", {True, False}),
        ("user_id / 2", "['0.5', '-0.0', '0', '1e0']", {0.0, 0.5, 1.0}),
        ("upper(country)", "['DE', 'FR']", {"DE", "FR"}),
        ("DATE '2026-01-31'", "['2026-01-31']", None),
    ],
)
def test_partitions_take_the_type_of_the_key(key: str, partitions: str, labels: set[object] | None) -> None:
    session = session_over(*(many("DE" if at % 2 else "FR", "a", 300) for at in range(4)))
    session = rebuilt(session, ledger=fresh_ledger(session))
    plan = session.explain(
        f"SELECT {key} AS p, article FROM reads GROUP BY ALL TOP 2 PRIVATE PER p WITH (partitions = {partitions})"
    )
    at = plan.query.partitions.key if plan.query.partitions else 0
    rows = rows_of(session, plan)
    if labels is not None:
        assert {row[at] for row in rows} == labels
    assert [row[-1] for row in rows] == sorted(row[-1] for row in rows)  # type: ignore[type-var]
    assert len(rows) == len(set(rows))


def test_text_is_told_apart_by_its_bytes_whatever_the_collation() -> None:
    session = session_on(
        shared(
            "CREATE TABLE reads (user_id BIGINT, country VARCHAR COLLATE NOCASE, article VARCHAR)",
            "CREATE TABLE places (country VARCHAR COLLATE NOCASE)",
            "INSERT INTO places VALUES ('de'), ('DE'), ('Fr')",
            many("DE", "a", 7),
            many("de", "a", 5),
            many("fr", "a", 3),
        ),
        dpsql.Policy(dpsql.Budget(9, "1e-6"), {"reads": SINGLE, "places": dpsql.PublicTable()}),
    )
    plan = session.explain(
        "SELECT country, article FROM reads GROUP BY ALL TOP 2 PRIVATE PER country WITH (partitions = 'places.country')"
    )
    assert dict(plan.facts())["partitions"].startswith("3,")
    rows = rows_of(session, plan)
    assert sum(row[2] for row in rows) == 7  # type: ignore[misc] # each unit under one spelling
    assert {row[1] for row in rows} <= {"DE", "de"}


@pytest.mark.parametrize(
    ("table", "key", "single"),
    [
        (SINGLE, "country", True),
        (SINGLE, "upper(country)", True),
        (SINGLE, "article", False),
        (SINGLE, "country || article", False),
        (SINGLE, "'x'", False),
        (None, "country", False),
        (dpsql.PrivateTable("user_id", one_value_per_unit=["COUNTRY"]), "country", True),
    ],
)
def test_only_the_declared_column_and_what_is_worked_out_from_it_alone_is_single_valued(
    table: dpsql.PrivateTable | None,
    key: str,
    single: bool,
) -> None:
    session = session_over(table=table)
    for source in ("reads", "(SELECT * FROM reads)", "(SELECT user_id, article, country FROM reads WHERE user_id > 1)"):
        plan = session.explain(
            f"SELECT {key} AS p, substr(article, 1) AS a FROM {source} r GROUP BY ALL TOP 2 PRIVATE PER p "
            "WITH (partitions = ['DE', 'FR'])"
        )
        assert (plan.worst_items == 2) == single
        assert ("dpsql_rows" in plan.engine_sql) == single


@pytest.mark.parametrize(
    "source",
    [
        "reads r, unnest([r.country, 'FR']) AS x(p)",
        "(SELECT user_id, article, unnest([country, 'FR']) AS p FROM reads) r",
        "(SELECT user_id, article, country AS p FROM reads UNION ALL SELECT user_id, article, 'FR' FROM reads) r",
    ],
)
def test_what_makes_several_values_of_the_declared_one_is_not_single_valued(source: str) -> None:
    text = f"SELECT p, article FROM {source} GROUP BY ALL TOP 2 PRIVATE PER p WITH (partitions = ['DE', 'FR'])"
    plan = session_over(table=SINGLE).explain(text)
    assert plan.worst_items == 4
    assert "dpsql_rows" not in plan.engine_sql


def test_a_public_column_of_the_same_name_is_not_the_declared_one() -> None:
    session = session_over(table=SINGLE)
    sql = (
        "SELECT p.country, r.article FROM reads r JOIN places p ON r.country = p.country GROUP BY ALL "
        "TOP 2 PRIVATE PER country WITH (partitions = ['DE', 'FR'])"
    )
    assert session.explain(sql).worst_items == 4
    assert session.explain(sql.replace("p.country, r", "r.country, r")).worst_items == 2


TOP = re.compile(r"TOP (\d+) PRIVATE")
EPSILON = re.compile(r"epsilon = ([0-9.]+)")
OF_THE = re.compile(r"(\d) of the 3 partitions")


@pytest.mark.parametrize(
    ("k", "more", "table", "fewer"),
    [
        (9, "", None, None),
        (3, "", None, 1),
        (1, "", None, 2),
        (2, ", max_groups_contributed = 2", None, 1),
        (9, "", SINGLE, None),
    ],
)
def test_every_query_of_the_hint_fits(k: int, more: str, table: dpsql.PrivateTable | None, fewer: int | None) -> None:
    """Three partitions, and what is left buys three items, or two."""
    tables = {"reads": table or dpsql.PrivateTable("user_id")}
    session = session_on(shared(CREATE), dpsql.Policy(dpsql.Budget(5 if k > 1 else 4, "1e-6"), tables))
    listed = "['DE', 'FR', 'IT']"
    sql = NAMES.replace("['DE', 'FR']", listed).replace(", delta = 0.1", "").replace("TOP 2", f"TOP {k}")
    sql = sql.format(more=more)

    def ask(text: str) -> None:
        rebuilt(session, ledger=fresh_ledger(session)).sql(text)

    with pytest.raises(dpsql.BudgetExceeded) as caught:
        ask(sql)
    hint = caught.value.hint
    smaller, keys, count = EPSILON.search(hint), TOP.search(hint), OF_THE.search(hint)
    assert smaller
    ask(sql.replace("epsilon = 1", f"epsilon = {smaller[1]}"))
    assert (keys is None) == (k == 1)
    if keys:
        ask(sql.replace(f"TOP {k}", f"TOP {keys[1]}"))
        with pytest.raises(dpsql.BudgetExceeded):
            ask(sql.replace(f"TOP {k}", f"TOP {int(keys[1]) + 1}"))
    assert (int(count[1]) if count else None) == fewer
    if count:
        ask(sql.replace(listed, str(["DE", "FR", "IT"][: int(count[1])])))
        with pytest.raises(dpsql.BudgetExceeded):
            ask(sql.replace(listed, str(["DE", "FR", "IT"][: int(count[1]) + 1])))


def test_a_delta_that_is_short_is_that_of_the_whole_query() -> None:
    session = session_over(*HUNDREDS)
    session.sql("SELECT article FROM reads GROUP BY article TOP 1 PRIVATE WITH (delta = 0.4)")
    with pytest.raises(dpsql.BudgetExceeded) as caught:
        session.sql(NAMES.format(more=""))
    assert caught.value.hint == "WITH (delta = 0.05) would fit."
    session.sql(NAMES.replace("0.1", "0.05").format(more=""))


REFUSED = [
    (NAMES.replace(", partitions = ['DE', 'FR']", ""), "per", "TOP 2 PRIVATE"),
    (NAMES.replace(" PER country", ""), "per", "partitions"),
    (NAMES.replace("PER country", "PER user_id"), "per", "user_id"),
    (NAMES.replace("PER country", "PER nothing"), "per", "nothing"),
    (NAMES.replace("country, article", "country"), "per", "country"),
    (NAMES.replace("['DE', 'FR']", "'reads.country'"), "partitions", "partitions"),
    (NAMES.replace("['DE', 'FR']", "'places.x'"), "partitions", "partitions"),
    (NAMES.replace("['DE', 'FR']", "'places.n'"), "partitions", "partitions"),
    (NAMES.replace("['DE', 'FR']", "places"), "partitions", "partitions"),
    (NAMES.replace("['DE', 'FR']", "7"), "partitions", "partitions"),
    (NAMES.format(more=", domain = ['a']"), "domain", "country"),
    (NAMES.format(more=", mechanism = peeling"), "option", "mechanism"),
    (NAMES.format(more=", mechanism = gaussian_histogram"), "bound", "mechanism"),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "code", "place"), REFUSED)
def test_what_is_refused(sql: str, code: str, place: str) -> None:
    session = session_over()
    for ask in (session.sql, session.explain):
        with pytest.raises(dpsql.Refusal) as caught:
            ask(sql.format(more=""))
        assert caught.value.code == code
        assert caught.value.hint
        assert isinstance(caught.value.place, dpsql.Place)
        assert caught.value.place.fragment.startswith(place)
    assert session.budget.rho.spent == 0


def test_too_many_rows_are_refused_with_a_bound_that_fits() -> None:
    session = session_over()
    sql, listed = NAMES.replace("['DE', 'FR']", "?"), [[f"c{i}" for i in range(1000)]]
    with pytest.raises(dpsql.Refusal) as caught:
        session.explain(sql.format(more=", k_bar = 1000"), listed)
    assert caught.value.code == "option-range"
    assert "k_bar = 999" in caught.value.hint
    session.explain(sql.format(more=", k_bar = 999"), listed)


@pytest.mark.parametrize("rows", [0, 1001, 5000])
def test_a_public_table_without_values_or_with_too_many_is_refused(rows: int) -> None:
    session = session_over("DELETE FROM places", f"INSERT INTO places SELECT 'c' || i, i FROM range({rows}) t(i)")
    with pytest.raises(dpsql.Refusal) as caught:
        session.sql(NAMES.replace("['DE', 'FR']", "'places.country'").format(more=""))
    assert caught.value.code == "partitions"
    assert "c1" not in str(caught.value)
    assert session.budget.rho.spent == 0


def test_a_thousand_values_and_null_are_as_many_as_may_be() -> None:
    session = session_over("DELETE FROM places", "INSERT INTO places SELECT 'c' || i % 1000, i FROM range(9000) t(i)")
    plan = session.explain(NAMES.replace("['DE', 'FR']", "'places.country'").format(more=""))
    assert dict(plan.facts())["partitions"].startswith("1000,")


@pytest.mark.parametrize(
    "table",
    [
        {"a": ["x"], "c": ["DE"], "n": [3]},
        {"a": ["x"], "c": ["DE"], "n": [3], "p": [2]},
        {"a": ["x"], "c": ["DE"], "n": [3], "p": [-1]},
        {"a": ["x"], "c": ["DE"], "n": [3], "p": [None]},
        {"a": ["x"], "c": ["DE"], "n": [0], "p": [0]},
        {"a": list("xyz"), "c": ["DE"] * 3, "n": [3] * 3, "p": [0] * 3},
    ],
)
def test_an_engine_that_puts_groups_where_they_do_not_belong_is_not_believed(table: dict[str, list[object]]) -> None:
    import pyarrow as pa

    session = rebuilt(session_over(), engine=lambda _statement, _run: Exact(pa.table(table)))
    with pytest.raises(EngineError):
        session.sql(NAMES.replace("TOP 2", "TOP 1").format(more=", k_bar = 1"))
    assert session.budget.rho.spent == Fraction(2, 8)


def test_what_analysts_and_curators_are_told() -> None:
    session = session_over(table=SINGLE)
    rows = session.sql("DESCRIBE reads").fetchall()
    assert [(row[0], row[-1]) for row in rows] == [("user_id", False), ("country", True), ("article", False)]
    assert not any(row[-1] for row in session.sql("DESCRIBE places").fetchall())


@pytest.mark.parametrize("more", ["", ", mechanism = weighted_gaussian"])
def test_the_first_of_each_partition_come_back_without_counts_too(more: str) -> None:
    session = session_over(*HUNDREDS)
    sql = NAMES.replace("['DE', 'FR']", "['FR', 'EE', 'DE']").format(more=more)
    answer = session.sql(sql.replace("TOP 2", "TOP 1"))
    assert answer.fetchall() == [("DE", "a"), ("FR", "b")]
    again = session.sql(f"{sql} ORDER BY country DESC LIMIT 2")
    assert [row[0] for row in again.fetchall()] == ["FR", "FR"]


GAPS = [  # of DE one article stands out, of FR two
    *(many("DE", article, units) for article, units in (("a", 20), ("b", 900))),
    *(many("FR", article, units) for article, units in (("a", 700), ("b", 15), ("c", 720))),
]


@pytest.mark.parametrize(
    ("how", "fewest", "chosen"),
    [
        ("mechanism = stable", 2, ""),
        ("mechanism = top_stable, k_bar = 3", 1, ""),
        ("mechanism = limited_domain, k_bar = AUTO", 2, "k_bar of each"),
        ("k_bar = 3", 1, "k of each"),
    ],
)
@pytest.mark.parametrize("sql", [NAMES, COUNTS])
def test_every_mechanism_of_leaders_runs_once_in_each_partition(sql: str, how: str, fewest: int, chosen: str) -> None:
    session = session_over(*GAPS)
    text = sql.replace("TOP 2", "TOP ADAPTIVE" if chosen == "k of each" else "TOP 2").format(more=f", {how}")
    plan, answer = session.explain(text), session.sql(text)
    assert isinstance(plan.mechanism_plan, EachPartitionPlan)
    one = plan.mechanism_plan.each
    alone = one.specify(replace(plan.query, partitions=None), None)
    assert plan.worst_case.rho.value == 2 * alone.worst_case.rho.value  # type: ignore[union-attr]
    assert plan.delta == dpsql.Delta("0.1")
    shown = {place: {row[1] for row in answer.fetchall() if row[0] == place} for place in ("DE", "FR")}
    assert shown["FR"] == {"a", "c"}
    assert "b" in shown["DE"]
    assert len(shown["DE"]) >= fewest
    if sql is COUNTS:
        exact = {("DE", "a"): 20, ("DE", "b"): 900, ("FR", "a"): 700, ("FR", "c"): 720}
        assert all(abs(count - exact[place, article]) < 40 for place, article, count in answer.fetchall())  # type: ignore[index,operator]
    receipt = answer.receipt
    assert (receipt.chosen, receipt.k_bar) == (chosen, plan.k_bar)
    assert f"{chosen.split(maxsplit=1)[0]} was chosen for each partition" in str(receipt.details()) if chosen else True
    assert receipt.loss.rho <= plan.worst_case.rho  # type: ignore[union-attr]
    assert session.budget.rho.spent == receipt.loss.rho.value  # type: ignore[union-attr]
    assert session.budget.rho.reserved == 0
    assert session.sql(text).receipt.replayed


def test_what_each_partition_chose_costs_what_the_runs_cost_together() -> None:
    session = session_over(*GAPS)
    sql = NAMES.replace("TOP 2", "TOP ADAPTIVE").replace("0.1", "1e-9").format(more=", k_bar = 3")
    answer = session.sql(sql)
    assert answer.receipt.loss == ZCDP(dpsql.Rho(2 * Fraction(1, 4)), dpsql.Delta("1e-9"))
    assert answer.receipt.items_charged == 4
    empty = session_over(many("DE", "a", 900))
    held = empty.sql(sql)
    assert held.fetchall() == [("DE", "a")]
    assert held.receipt.stopped_at_bottom
    assert "in some partitions nothing more stands out" in str(held.receipt.details())
    assert held.receipt.loss == answer.receipt.loss, "a partition without rows costs as much, and tells of nobody"
