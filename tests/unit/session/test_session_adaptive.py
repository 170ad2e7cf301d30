"""TOP ADAPTIVE PRIVATE through SQL: the law that is claimed, a set without order, one price for the choice."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from itertools import permutations

import pytest
from support.groups_kit import counted, drawn, session_over
from support.laws import ROUNDING, discrete_gaussian_law, fits
from support.pairs import list_pairs
from support.sets_kit import Seen, articles, goodness_of, seen, spent, worst_excess
from support.shortfall_kit import POOL, assert_fits, hint_of, left_with

import dpsql
from dpsql.accounting import ZCDP
from dpsql.mechanisms import SharedTotal, StableTopK
from dpsql.plan import Plan, compute_release_key

NAMES = "SELECT article FROM reads GROUP BY article TOP ADAPTIVE PRIVATE WITH (epsilon = 1, delta = 0.1{more})"
COUNTS = NAMES.replace("SELECT article", "SELECT article, COUNT(DISTINCT user_id) AS n")
WIDE = {"d": 90, "b": 95, None: 99, "a": 3, "c": 2}


def mechanism_of(plan: Plan) -> StableTopK:
    assert isinstance(plan.selection, StableTopK)
    return plan.selection


def keys_law(plan: Plan, ranked: tuple[tuple[object, ...], tuple[int, ...]]) -> Mapping[Seen, float]:
    """Return the law of what is seen but for counts, from the formulas alone."""
    mechanism, (labels, counts) = mechanism_of(plan), ranked
    padded = [*counts, *[0] * (mechanism.k_bar + 1)][: mechanism.k_bar + 1]
    gaps = [padded[at] - padded[at + 1] for at in range(mechanism.k_bar)]
    leaning = mechanism.regulariser or (0,) * mechanism.k_bar
    weights = [math.exp((gap + more) / 2) for gap, more in zip(gaps, leaning, strict=True)]  # epsilon is 1
    noise, rho = discrete_gaussian_law(Fraction(4)), Fraction(1, 4)
    law: dict[Seen, float] = {}
    for k, (gap, weight) in enumerate(zip(gaps, weights, strict=True), start=1):
        held = math.fsum(mass for draw, mass in noise.items() if gap - 1 + draw >= mechanism.offset)
        shown = tuple(sorted(labels[:k], key=lambda label: (label is None, str(label))))
        law[shown, k, rho, False] = weight / math.fsum(weights) * held
        law[(), k, rho, True] = weight / math.fsum(weights) * (1 - held)
    return law


@pytest.mark.properties
@pytest.mark.parametrize("sql", [NAMES, COUNTS])
@pytest.mark.parametrize("more", [", k_bar = 2", ", k_bar = 3, prefer = 2"])
def test_the_law_through_sql_is_as_claimed_for_all_neighbours(sql: str, more: str) -> None:
    assert 0.2 < worst_excess(sql.format(more=more), keys_law) <= 1 + ROUNDING


DATA: dict[str, Mapping[str | None, int]] = {
    "nobody": {},
    "fewer labels than k_bar": {"a": 7, "b": 3},
    "ties everywhere": dict.fromkeys(["b", "a", None, "c"], 5),
    "a gap": {"b": 9, "c": 8, None: 2, "a": 1},
    "one label": {None: 6},
}


@pytest.mark.properties
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("more", [", k_bar = 3", ", k_bar = 1", ", k_bar = 4, prefer = 1"])
def test_what_is_drawn_has_the_law(data: str, more: str) -> None:
    session = session_over(*articles(DATA[data]))
    assert fits(lambda: goodness_of(session, NAMES.format(more=more), keys_law))


def test_the_order_of_the_rows_says_nothing_of_the_counts() -> None:
    """Whatever the counts of those that are released, the rows come by label; NULL is last."""
    for counts in permutations((90, 95, 99)):
        session = session_over(*articles({"d": counts[0], None: counts[1], "b": counts[2], "a": 2}))
        plan = session.explain(NAMES.format(more=", k_bar = 4"))
        shown = {each[0] for each in map(seen, drawn(session, plan, 40))}
        assert shown <= {("b", "d", None), ()}
        assert ("b", "d", None) in shown


def test_labels_are_ordered_by_their_bytes_whatever_the_column_says() -> None:
    labels = ["a", "B", "é", "Z", "b", ""]
    session = session_over(
        "ALTER TABLE reads ALTER article TYPE VARCHAR COLLATE NOCASE",
        *articles({label: 500 + 7 * at for at, label in enumerate(labels)}),
    )
    answer = session.sql(NAMES.format(more=", k_bar = 10"))
    assert [row[0] for row in answer.fetchall()] == ["", "B", "Z", "a", "b", "é"]


def test_with_counts_rows_come_by_these_and_equal_ones_by_label() -> None:
    session = session_over(*articles({"b": 60, "a": 60, "c": 61}))
    plan, equal = session.explain(COUNTS.format(more="")), 0
    for each in drawn(session, plan, 400):
        rows = [(-row["n"], row["article"]) for row in each.table.to_pylist()]
        assert rows == sorted(rows)
        equal += len({count for count, _ in rows}) < len(rows)
    assert equal > 20


@pytest.mark.parametrize(
    ("data", "sql", "bound"),
    list_pairs([*DATA.values(), WIDE, {"a": 100_000}], [NAMES, COUNTS], ["", ", max_groups_contributed = 1"]),
)
def test_two_items_are_charged_whatever_comes_back_and_one_for_each_count(
    data: Mapping[str | None, int], sql: str, bound: str
) -> None:
    session = session_over(*articles(data))
    answer = session.sql(sql.format(more=f", k_bar = 6{bound}"))
    receipt, counted_items = answer.receipt, (min(len(answer), 1) if bound else len(answer)) * (sql is COUNTS)
    assert receipt.items_charged == 2 + counted_items
    assert receipt.loss == ZCDP(dpsql.Rho(Fraction(receipt.items_charged, 8)), dpsql.Delta("0.1"))
    assert spent(session, answer)
    assert 1 <= receipt.k <= receipt.k_bar == 6
    assert receipt.stopped_at_bottom == (len(answer) == 0) or not data
    assert len(answer) <= min(receipt.k, len(data))


def test_the_receipt_says_which_k_was_chosen_and_whether_its_gap_held() -> None:
    session = session_over(*articles(WIDE))
    receipt = session.sql(NAMES.format(more="")).receipt
    assert (receipt.mechanism, receipt.k, receipt.k_bar, receipt.chosen) == ("stable", 3, 50, "k")
    assert "k = 3 was chosen; its gap was confirmed" in str(receipt.details())
    assert receipt.threshold_offset == mechanism_of(session.explain(NAMES.format(more=""))).offset + 1
    flat = session_over(*articles(dict.fromkeys("abcd", 50)))
    answer = flat.sql(NAMES.replace("0.1", "1e-9").format(more=", k_bar = 3"))  # a gap is made up once in 10^11 runs
    assert len(answer) == 0
    assert answer.receipt.stopped_at_bottom
    assert "the gap after it was not confirmed: nothing is returned" in str(answer.receipt.details())


def test_intervals_know_the_noise_of_the_counts() -> None:
    answer = session_over(*articles(WIDE)).sql(COUNTS.format(more=", k_bar = 4"))
    assert answer.counts is not None
    assert answer.counts.variance == SharedTotal(dpsql.Epsilon(1), 3).variance < 4
    assert len(answer.intervals()) == 3
    assert session_over().sql(NAMES.format(more="")).counts is None


@pytest.mark.parametrize("k", [1, 2, 4])
def test_a_preferred_k_lowers_the_score_of_every_other(k: int) -> None:
    plan = session_over().explain(NAMES.format(more=f", prefer = {k}"))
    assert plan.selection.regulariser[:5] == tuple(-abs(rank - k) for rank in range(1, 6))  # type: ignore[attr-defined]


def test_the_plan_and_explain_say_what_is_chosen_and_read() -> None:
    session = session_over()
    plan = session.explain(COUNTS.format(more=", k_bar = 7"))
    facts = dict(plan.facts())
    assert (plan.mechanism, plan.k, plan.k_bar, plan.worst_items) == ("stable", 7, 7, 9)
    assert facts["k"] == "chosen in private, at most 7"
    assert facts["order"].startswith("a set by label")
    assert facts["items at most"].startswith("9 (two for the choice of k")
    assert facts["groups per unit"] == "not bounded"
    assert "LIMIT 8) ORDER BY dpsql_key_1 ASC NULLS LAST" in plan.engine_sql
    assert ("mechanism", "stable") in session.sql("EXPLAIN " + NAMES.format(more="")).fetchall()
    assert len(counted(session_over(*articles(dict.fromkeys("abcdefghijkl", 2))), plan)) == 8


@pytest.mark.parametrize(
    ("sql", "more", "worst", "half"),
    [(NAMES, "", 2, 2), (COUNTS, ", k_bar = 7", 9, 6), (COUNTS, ", max_groups_contributed = 3", 5, 5)],
)
def test_the_forecast(sql: str, more: str, worst: int, half: int) -> None:
    told = session_over().forecast(sql.format(more=more))
    assert (told.loss.rho.value * 8, told.half_loss.rho.value * 8) == (worst, half)


CEILINGS = dpsql.Limits(max_k=30, max_k_bar=200, max_epsilon=1)


@pytest.mark.parametrize(
    ("options", "limits", "k_bar"),
    [
        ("", dpsql.Limits(), 50),
        ("prefer = 10", dpsql.Limits(), 50),
        ("prefer = 80", dpsql.Limits(), 160),
        ("prefer = 80, k_bar = 20", dpsql.Limits(), 20),
        ("k_bar = 1", dpsql.Limits(), 1),
        ("k_bar = 1000", dpsql.Limits(), 1000),
        ("", CEILINGS, 30),
        ("prefer = 30", CEILINGS, 30),
    ],
)
def test_k_bar_is_what_may_come_back(options: str, limits: dpsql.Limits, k_bar: int) -> None:
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PrivateTable("user_id")}, limits=limits)
    session = left_with(Fraction(1, 100), POOL, policy)
    plan = session.explain(
        f"SELECT article FROM reads GROUP BY article TOP ADAPTIVE PRIVATE WITH ({options or 'epsilon = 0.1'})"
    )
    assert plan.k == plan.k_bar == k_bar


REFUSED = [
    (", k_bar = 0", {}, "option-range", "k_bar", ", k_bar = 1"),
    (", k_bar = 1001", {}, "option-range", "k_bar", ", k_bar = 1000"),
    (", k_bar = AUTO", {}, "option", "k_bar", ""),
    (", penalty = 2", {}, "option", "penalty", ", prefer = 10"),
    (", prefer = 0", {}, "option-range", "prefer", ", prefer = 1"),
    (", prefer = auto", {}, "option-range", "prefer", ""),
    (", mechanism = limited_domain", {}, "option", "mechanism", ""),
    (", mechanism = peeling", {}, "option", "mechanism", ", mechanism = auto"),
    (", mechanism = top_stable", {}, "option", "mechanism", ", mechanism = stable"),
    (", mechanism = gaussian_histogram, max_groups_contributed = 1", {}, "option", "mechanism", ""),
    (", mechanism = adaptive", {}, "option", "mechanism", ""),
    (", domain = ['a', 'b']", {}, "option", "domain", ""),
    (", domain = ['a', 'b'], mechanism = peeling", {}, "option", "domain", ""),
    ("", {"min_units": 5}, "min-units", "TOP ADAPTIVE PRIVATE", None),
]


@pytest.mark.parametrize(("more", "bounds", "code", "place", "instead"), REFUSED)
def test_what_is_refused(more: str, bounds: dict[str, int], code: str, place: str, instead: str | None) -> None:
    session = session_over(**bounds)
    for ask in (session.sql, session.explain):
        with pytest.raises(dpsql.Refusal) as caught:
            ask(NAMES.format(more=more))
        assert caught.value.code == code
        assert isinstance(caught.value.place, dpsql.Place)
        assert caught.value.place.fragment.startswith(place)
        assert caught.value.hint
    assert session.budget.rho.spent == 0
    if instead is not None:
        session.explain(NAMES.format(more=instead))


def test_the_hint_for_min_units_is_a_query_that_runs() -> None:
    session = session_over(min_units=5)
    with pytest.raises(dpsql.Refusal, match="TOP 10 PRIVATE"):
        session.sql(NAMES.format(more=""))
    assert session.explain(NAMES.format(more="").replace("ADAPTIVE", "10")).mechanism == "limited_domain"


def test_a_mechanism_for_a_fixed_k_is_refused_with_a_hint_that_works() -> None:
    session = session_over()
    with pytest.raises(dpsql.Refusal, match="or give a number: TOP 10 PRIVATE"):
        session.explain(NAMES.format(more=", mechanism = top_stable"))
    assert session.explain(NAMES.format(more=", mechanism = top_stable").replace("ADAPTIVE", "10")).k == 10


@pytest.mark.parametrize(
    "text",
    [
        "SELECT TOP ADAPTIVE PRIVATE article FROM reads GROUP BY article WITH (epsilon = 1, delta = 0.1)",
        "select article from reads group by article top adaptive private with (epsilon = 1, delta = 0.1)",
        "SELECT DISTINCT article FROM reads TOP Adaptive PRIVATE WITH (epsilon = ?, delta = 1e-1, mechanism = stable)",
        "SELECT article AS adaptive FROM reads GROUP BY adaptive TOP ADAPTIVE PRIVATE WITH (epsilon = 1, delta = 0.1)",
    ],
)
def test_other_words_for_one_question(text: str) -> None:
    session = session_over(*articles(WIDE))
    first = session.sql(NAMES.format(more=""))
    again = session.sql(text, [1] if "?" in text else [])
    assert again.receipt.replayed
    assert again.fetchall() == first.fetchall()
    assert (again.receipt.k, again.receipt.chosen) == (first.receipt.k, "k")
    assert session.budget.rho.spent == Fraction(1, 4)


def test_adaptive_is_no_parameter() -> None:
    with pytest.raises(dpsql.Refusal) as caught:
        session_over().sql(NAMES.format(more="").replace("ADAPTIVE", "?"), ["ADAPTIVE"])
    assert caught.value.code == "k"


def test_a_replay_is_sorted_anew_and_fresh_noise_is_charged() -> None:
    session = session_over(*articles(WIDE))
    first = session.sql(COUNTS.format(more=", k_bar = 9"))
    again = session.sql(COUNTS.format(more=", k_bar = 9") + " ORDER BY article DESC NULLS FIRST LIMIT 2")
    assert again.receipt.replayed
    assert [row[0] for row in again.fetchall()] == [None, "d"]
    assert set(again.fetchall()) < set(first.fetchall())
    fresh = session.sql(COUNTS.format(more=", k_bar = 9, fresh = true"))
    assert (fresh.receipt.replayed, fresh.receipt.items_charged) == (False, 5)
    assert session.budget.rho.spent == Fraction(10, 8)


def test_whatever_changes_the_law_is_another_question() -> None:
    session = session_over()
    texts = [
        NAMES,
        COUNTS,
        NAMES.replace("ADAPTIVE", "50"),
        NAMES.replace("ADAPTIVE", "50").replace("{", ", mechanism = stable{"),
    ]
    more = [", k_bar = 20", ", prefer = 3", ", prefer = 4", ", max_groups_contributed = 2"]
    plans = [session.explain(text.format(more="")) for text in texts] + [
        session.explain(NAMES.format(more=x)) for x in more
    ]
    assert len({compute_release_key(plan) for plan in plans}) == len(plans) == 8


ITEM = Fraction("0.05") ** 2 / 8
ASKED = "SELECT article{counts} FROM reads GROUP BY article TOP ADAPTIVE PRIVATE WITH ({options})"
COUNT = ", COUNT(DISTINCT user_id) AS n"


@pytest.mark.parametrize(
    ("counts", "options", "items_left", "k_bar"),
    [
        ("", "epsilon = 0.05", 1, None),
        (COUNT, "epsilon = 0.05", 1, None),
        (COUNT, "epsilon = 0.05", 2, None),
        (COUNT, "epsilon = 0.05", 9, 7),
        (COUNT, "epsilon = 0.05, prefer = 20", 9, 7),
        (COUNT, "epsilon = 0.05, k_bar = 40", 41, 39),
        (COUNT, "epsilon = 0.05, max_groups_contributed = 3", 4, 2),
    ],
)
@pytest.mark.parametrize("delta", [POOL, Fraction("1.2e-8")])
def test_what_a_short_budget_says_would_fit_fits(
    counts: str, options: str, items_left: int, k_bar: int | None, delta: Fraction
) -> None:
    session = left_with(items_left * ITEM + ITEM / 3, delta)
    hint = hint_of(session, ASKED.format(counts=counts, options=options))
    given = dict(part.split(" = ") for part in options.split(", "))
    found = re.findall(r"WITH \(([^)]*)\)", hint)
    assert len(found) == 1 + (k_bar is not None)
    assert re.search(r"TOP \d", hint) is None
    assert hint.startswith(f"TOP ADAPTIVE PRIVATE WITH (k_bar = {k_bar}") == (k_bar is not None)
    for said in found:
        merged = {**given, **dict(part.split(" = ") for part in said.split(", "))}
        fitting = ", ".join(f"{name} = {value}" for name, value in merged.items())
        assert_fits(session, ASKED.format(counts=counts, options=fitting))


def test_an_epsilon_that_the_mechanism_does_not_take_is_not_offered() -> None:
    limits = dpsql.Limits(min_epsilon="1e-5")
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PrivateTable("user_id")}, limits=limits)
    session = left_with(Fraction("1e-9"), POOL, policy)
    assert (
        hint_of(session, ASKED.format(counts="", options="epsilon = 0.05"))
        == "What is left is not enough for a single row."
    )
    with pytest.raises(dpsql.Refusal, match="1e-4"):
        session.explain(ASKED.format(counts="", options="epsilon = 0.00005"))


def test_a_tiny_delta_works() -> None:
    session = session_over(*articles({"a": 900, "b": 2}))
    answer = session.sql(NAMES.format(more="").replace("0.1", "1e-30"))
    assert answer.fetchall() == [("a",)]
