"""The joint exponential mechanism through SQL: all keys of a known domain in one draw, and the law that is claimed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping
from fractions import Fraction
from functools import cache
from itertools import combinations, permutations, product

import pytest
from mpmath.ctx_iv import MPIntervalContext
from scipy.stats import binom
from support.domain_kit import exact_counts
from support.groups_kit import drawn, rows_of
from support.laws import ROUNDING, cks, discrete_gaussian_law, hockey_stick, renyi, singles_out
from support.pairs import list_pairs
from support.session_kit import session_on, shared
from support.sets_kit import counted_over

import dpsql
from dpsql.accounting import ZCDP
from dpsql.mechanisms import JointExponential, SharedTotal
from dpsql.plan import Plan, compute_release_key
from dpsql.session import Session

CREATE = "CREATE TABLE reads (user_id BIGINT, article VARCHAR)"
LABELS = "CREATE TABLE labels AS SELECT * FROM (VALUES ('c'), ('a'), (NULL), ('b'), ('a')) v(article)"
NONE = "CREATE TABLE nothing (article VARCHAR)"
GATED = "SELECT article FROM reads GROUP BY article TOP 2 PRIVATE WITH (epsilon = 1, mechanism = joint, domain = {})"
NAMES = GATED.replace("joint", "joint, gate = false")
COUNTS = NAMES.replace("SELECT article", "SELECT article, COUNT(DISTINCT user_id) AS n")
LISTED, STORED = "['a', 'b', 'c']", "'labels.article'"
SUBSETS = ["".join(chosen) for size in range(1, 4) for chosen in combinations("abz", size)]  # z is no candidate


@pytest.fixture(autouse=True)
def _one_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make one real context for all draws: making it takes four fifths of a draw's time."""
    monkeypatch.setattr("mpmath.ctx_iv.MPIntervalContext", cache(MPIntervalContext))


def session_over(*statements: str, **bounds: int) -> Session:
    tables = {"reads": dpsql.PrivateTable("user_id", **bounds)}
    public = dict.fromkeys(("labels", "nothing"), dpsql.PublicTable())
    return session_on(
        shared(CREATE, LABELS, NONE, *statements), dpsql.Policy(dpsql.Budget(40, "1e-6"), tables | public)
    )


def mechanism_of(plan: Plan) -> JointExponential:
    assert isinstance(plan.selection, JointExponential)
    return plan.selection


def law_of(plan: Plan, counts: Mapping[str, int]) -> dict[Hashable, float]:
    """Return the law of all sequences, by how far their worst member lies behind its rank."""
    mechanism, falling = mechanism_of(plan), sorted(counts.values(), reverse=True)
    weights: dict[Hashable, float] = {
        labels: math.exp(
            -float(mechanism.epsilon) / 2 * max(high - counts[at] for high, at in zip(falling, labels, strict=False))
        )
        for labels in permutations(sorted(counts), min(mechanism.k, len(counts)))
    }
    total = math.fsum(weights.values())
    return {labels: weight / total for labels, weight in weights.items()}


@pytest.mark.properties
@pytest.mark.parametrize("domain", [LISTED, STORED])
@pytest.mark.parametrize("k", [1, 2, 7])
def test_the_law_is_that_of_one_draw_over_every_candidate(domain: str, k: int) -> None:
    """Rows repeat; a NULL unit, a NULL label and a label outside the domain count nowhere; c has no unit."""
    odd = "INSERT INTO reads VALUES (NULL, 'c'), (1, NULL), (1, 'z'), (2, 'z')"
    session = session_over(*rows_of([("a", "b"), ("a", "b"), ("a",)]), odd)
    text = NAMES.format(domain).replace("TOP 2", f"TOP {k}")
    plan = session.explain(text)
    assert exact_counts(session, text) == {"a": 3, "b": 2, "c": 0}

    def sample(runs: int) -> Counter[Hashable]:
        return Counter(tuple(each.table.column(0).to_pylist()) for each in drawn(session, plan, runs))

    assert singles_out(*(law_of(plan, {"a": 3, "b": 2, "c": count}) for count in (0, 2)), sample=sample)


@pytest.mark.properties
@pytest.mark.parametrize("bound", [None, 1])
def test_no_neighbour_exceeds_the_claim(bound: int | None) -> None:
    """Every table of at most two units over {a, b, z}, and every unit more: pure, in range and in rho, delta 0."""
    plan = session_over(**({} if bound is None else {"max_groups_contributed": bound})).explain(NAMES.format(LISTED))
    epsilon, rho, worst = float(mechanism_of(plan).epsilon), plan.worst_case.rho.value, 0.0
    tables = [units for size in range(3) for units in product(SUBSETS, repeat=size)]
    rows = {units: dict(found) for units, found in counted_over(plan, tables)}
    assert all(found.keys() == {"a", "b", "c"} for found in rows.values())
    for units in filter(None, tables):  # whoever stays keeps their number, and with it the groups that count
        p, q = (law_of(plan, rows[each]) for each in (units, units[:-1]))  # type: ignore[arg-type]
        logs = [{event: math.log(mass) for event, mass in law.items()} for law in (p, q)]
        losses = [logs[0][event] - logs[1][event] for event in p]
        found = [max(map(abs, losses)) / epsilon, (max(losses) - min(losses)) / epsilon]
        found += [
            renyi(*pair, alpha) / (alpha * float(rho)) for pair in (logs, logs[::-1]) for alpha in (1.5, 4.0, 20.0)
        ]
        found += [hockey_stick(*pair, level) / cks(rho, level) for pair in ((p, q), (q, p)) for level in (0.1, 1.0)]
        worst = max(worst, *found)
    assert plan.worst_case.delta.value == 0
    assert 0.5 < worst <= 1 + ROUNDING


@pytest.mark.parametrize("k", [1, 2, 3, 7])
@pytest.mark.parametrize("domain", [LISTED, STORED])
def test_the_draw_costs_no_more_than_its_keys_one_by_one(domain: str, k: int) -> None:
    session, item = session_over(), Fraction(1, 8)
    text = NAMES.format(domain).replace("TOP 2", f"TOP {k}")
    plan, peeled = session.explain(text), session.explain(text.replace("joint, gate = false", "peeling"))
    keys = min(k, 3) if domain is LISTED else k
    assert mechanism_of(plan).k == plan.worst_items == keys
    assert 0 <= peeled.worst_case.rho.value - plan.worst_case.rho.value < Fraction(1, 10**11)
    assert 0 <= keys * item - plan.worst_case.rho.value < Fraction(1, 10**11)
    assert mechanism_of(plan).epsilon.value ** 2 <= keys
    told = session.forecast(text)
    assert told.half_loss == told.loss == plan.worst_case
    if k == 1:
        assert plan.worst_case.rho.value == item


@pytest.mark.parametrize(("domain", "k", "sql"), list_pairs([LISTED, STORED], [1, 2, 7], [NAMES, COUNTS]))
def test_keys_are_charged_at_once_and_counts_by_what_comes_back(sql: str, k: int, domain: str) -> None:
    session = session_over(*rows_of([("a", "b")] * 90))
    text = sql.format(domain).replace("TOP 2", f"TOP {k}")
    plan, answer = session.explain(text), session.sql(text)
    returned = min(k, 3)
    draw = mechanism_of(plan)
    counts = returned if sql is COUNTS else 0
    assert len(answer) == returned
    assert answer.receipt.items_charged == draw.k + counts
    assert answer.receipt.loss == draw.worst_case + ZCDP(dpsql.Rho(Fraction(counts, 8)), dpsql.Delta(0))
    assert answer.receipt.loss.rho.value <= plan.worst_case.rho.value
    assert (session.budget.rho.spent, session.budget.rho.reserved) == (answer.receipt.loss.rho.value, 0)
    assert session.budget.delta.spent == 0
    assert not answer.receipt.stopped_at_bottom
    assert "every candidate of the domain took part" in str(answer.receipt.details())


@pytest.mark.parametrize("k", [1, 2, 7])
@pytest.mark.parametrize(
    "sql", [GATED, GATED.replace("SELECT article", "SELECT article, COUNT(DISTINCT user_id) AS n")]
)
def test_a_gate_costs_a_tenth_of_the_keys_and_the_draw_the_rest(sql: str, k: int) -> None:
    """90 users pass a gate of 8 units or less; of no user it opens in 5 of 100 answers at most, by the exact law."""
    session, text = session_over(*rows_of([("a", "b")] * 90)), sql.format(LISTED).replace("TOP 2", f"TOP {k}")
    plan, keys, item = session.explain(text), min(k, 3), Fraction(1, 8)
    gate = plan.mechanism_plan.gate  # type: ignore[attr-defined]
    assert gate.rho.value == keys * item / 10
    assert 0 <= keys * item - gate.rho.value - mechanism_of(plan).worst_case.rho.value < Fraction(1, 10**11)
    answer = session.sql(text)
    counts = 0 if sql is GATED else keys
    assert len(answer) == keys
    assert answer.receipt.loss == mechanism_of(plan).worst_case + ZCDP(
        dpsql.Rho(gate.rho.value + counts * item), dpsql.Delta(0)
    )
    assert answer.receipt.loss.rho.value <= plan.worst_case.rho.value
    empty = session_over()
    released = list(drawn(empty, empty.explain(text), 400))
    opened = sum(len(each.rows) > 0 for each in released)
    law = discrete_gaussian_law(gate.variance)
    opens = math.fsum(mass for noise, mass in law.items() if noise >= gate.height)
    assert 0.02 < opens <= 0.05
    low, high = binom(400, opens).ppf([1e-8, 1 - 1e-8])
    assert low <= opened <= high
    assert {each.loss for each in released if not len(each.rows)} == {ZCDP(gate.rho, dpsql.Delta(0))}


def test_gate_is_said_and_refused_where_known_names_have_their_own() -> None:
    session = session_over(*rows_of([("a", "b")] * 90))
    assert "a gate asks for one name" in dict(session.explain(GATED.format(LISTED)).facts())["evidence"]
    assert "evidence" not in dict(session.explain(NAMES.format(LISTED)).facts())
    session.sql(NAMES.format(LISTED))
    released = GATED.format("released")
    assert session.explain(released).mechanism_plan.gate is not None  # type: ignore[attr-defined]
    with pytest.raises(dpsql.Refusal, match="Known names have a gate of their own"):
        session.explain(NAMES.format("released"))
    every = released.replace("joint", "joint, known = all")
    assert session.explain(every).mechanism_plan.gate is None  # type: ignore[attr-defined]


def test_counts_have_their_own_noise_and_their_bound() -> None:
    units = [("a", "b", "c")] * 300
    for bounds, items, total in (({}, 3, 900), ({"max_groups_contributed": 1}, 1, 300)):
        session = session_over(*rows_of(units), **bounds)
        answer = session.sql(COUNTS.format(LISTED).replace("TOP 2", "TOP 3"))
        assert answer.receipt.items_charged == 3 + items
        assert answer.counts is not None
        assert answer.counts.variance == (4 if bounds else SharedTotal(dpsql.Epsilon(1), 3).variance)
        assert sum(count for _, count in answer.fetchall()) == pytest.approx(total, abs=30)


def test_an_empty_domain_costs_nothing_and_an_empty_table_what_it_says() -> None:
    session = session_over()
    answer = session.sql(COUNTS.format("'nothing.article'"))
    assert len(answer) == 0
    assert answer.receipt.items_charged == session.budget.rho.spent == 0
    answer = session.sql(NAMES.format(STORED))
    assert len(answer) == 2
    assert answer.receipt.items_charged == 2


def test_the_plan_says_that_it_is_one_draw() -> None:
    plan = session_over().explain(COUNTS.format(LISTED))
    facts = dict(plan.facts())
    assert facts["mechanism"] == "joint"
    assert facts["domain"] == "3 values of the query; every one takes part, also with no unit at all"
    assert facts["draw"] == "all keys in one, of epsilon 1.414"
    assert facts["items at most"] == "4 (the keys at once, and one for each count returned)"
    assert facts["delta"] == "0"
    assert facts["groups per unit"] == "not bounded"
    assert (plan.k_bar, plan.threshold_offset) == (0, 0)


@pytest.mark.parametrize(
    ("text", "bounds", "code"),
    [
        (NAMES.format(LISTED).replace(", domain = ['a', 'b', 'c']", ""), {}, "option"),
        (NAMES.format(LISTED), {"min_units": 2}, "min-units"),
        (NAMES.format(f"{LISTED}, delta = 1e-8"), {}, "option"),
        (NAMES.format(f"{LISTED}, k_bar = 10"), {}, "option"),
    ],
)
def test_what_is_refused(text: str, bounds: dict[str, int], code: str) -> None:
    session = session_over(**bounds)
    with pytest.raises(dpsql.Refusal) as caught:
        session.sql(text)
    assert caught.value.code == code
    assert isinstance(caught.value.place, dpsql.Place)
    assert caught.value.hint
    assert session.budget.rho.spent == 0


def test_the_same_question_is_answered_from_the_ledger_and_no_other() -> None:
    session = session_over(*rows_of([("a", "b")] * 90))
    first, again = session.sql(COUNTS.format(LISTED)), session.sql(COUNTS.format("['c', 'b', 'a', 'b']"))
    assert again.receipt.replayed
    assert again.fetchall() == first.fetchall()
    assert not session.sql(COUNTS.format(f"{LISTED}, fresh = true")).receipt.replayed
    texts = [
        sql.format(domain)
        for sql in (NAMES, COUNTS)
        for domain in (LISTED, STORED, f"{LISTED}, max_groups_contributed = 2")
    ]
    texts += [
        texts[0].replace(*change)
        for change in (("= 1,", "= 0.5,"), ("TOP 2", "TOP 3"), ("joint, gate = false", "peeling"))
    ]
    assert len({compute_release_key(session.explain(text)) for text in texts}) == len(texts)
