"""Consent: a query that can hardly return a row, and may cost much, is run only if the analyst says so."""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import replace
from fractions import Fraction

import pytest
from support.pairs import list_pairs
from support.session_kit import rebuilt, seeded, session_on, shared

import dpsql
from dpsql import session as sessions
from dpsql.accounting import BudgetVector, discrete_gaussian_tail
from dpsql.mechanisms import WEIGHT_STEPS, DomainDiscovery, GaussianHistogram, LimitedDomain
from dpsql.mechanisms.two_looks import Answerer, TwoLooks
from dpsql.plan.identity.replay_key import compute_release_key
from dpsql.plan.identity.stored_release import list_earlier_plans
from dpsql.plan.plan import Plan
from dpsql.plan.planner import build_plan
from dpsql.report.consent import Reach, find_reach
from dpsql.session import Session
from dpsql.sql.ir.statements import Option, PrivateQuery
from dpsql.sql.lexer import ParameterValues

USERS = 400
NAMES = "SELECT article FROM reads GROUP BY article TOP {k} PRIVATE"
COUNTS = NAMES.replace("article FROM", "article, COUNT(DISTINCT user_id) AS n FROM")
TOTAL = "SELECT COUNT(DISTINCT user_id) FROM reads PRIVATE"
BY_NAME = "WITH (mechanism = limited_domain)"
ROWS = (
    "CREATE TABLE reads (user_id BIGINT, article VARCHAR, country VARCHAR, adult BOOLEAN, ts TIMESTAMP)",
    f"""INSERT INTO reads SELECT i % {USERS}, 'a' || (i * i) % 5000, 'c' || i % 3, i % 2 = 0,
    TIMESTAMP '2026-01-05' + to_days(i::INTEGER % 300) FROM range(20000) AS t(i)""",
    "CREATE TABLE orders (user_id BIGINT, product VARCHAR)",
)


@pytest.fixture(autouse=True)
def _no_warnings() -> None:
    warnings.simplefilter("ignore", dpsql.WastedChargeWarning)


def session_over(
    population: int | None = USERS,
    *,
    budget: dpsql.Budget | None = None,
    limits: dpsql.Limits | None = None,
    implicit: bool | None = None,
    **table: object,
) -> Session:
    tables = {
        "reads": dpsql.PrivateTable("user_id", population=population, **table),  # type: ignore[arg-type]
        "orders": dpsql.PrivateTable("user_id"),
    }
    policy = dpsql.Policy(budget or dpsql.Budget(1, "1e-6"), tables, limits=limits)
    return session_on(shared(*ROWS), policy, implicit=implicit)


def refusal(session: Session, text: str, *, consent: bool | None = None) -> dpsql.Error | None:
    """Return the refusal, for want of consent or of budget; None for a statement that is run."""
    before = session.history.num_rows
    found: dpsql.Error | None = None
    try:
        session.sql(text, consent=consent)
    except (dpsql.Refusal, dpsql.BudgetExceeded) as error:
        found = error
    if found is not None:
        assert found.code in {"consent", "unreachable", "budget-exceeded"}, found
        assert session.history.num_rows == before  # nothing was charged
    return found


def spend(session: Session, share: Fraction) -> None:
    """Use about this share of the budget."""
    limit = session.budget.limit.refundable
    epsilon = math.sqrt(8 * share * limit)
    session.sql(f"{TOTAL} WITH (epsilon = {epsilon:.4f})")


def need(text: str, **table: object) -> Fraction:
    found = session_over(None, **table).explain(text).need
    assert found is not None
    return Fraction(found.units)


# The rule, at its edges


@pytest.mark.parametrize(
    ("units", "worst", "asks"),
    [
        (Fraction(80), Fraction(1, 2), False),  # 20 %
        (Fraction(80) + Fraction(1, 10**12), Fraction(1, 2), True),
        (Fraction(200), Fraction(1, 10), False),  # 10 % of what is left
        (Fraction(200), Fraction(1, 10) + Fraction(1, 10**12), True),
    ],
)
def test_consent_is_asked_for_above_a_fifth_and_above_a_tenth(units: Fraction, worst: Fraction, asks: bool) -> None:
    reach, left = Reach(units, units, USERS), BudgetVector(3, 1)
    assert reach.asks(BudgetVector(3 * worst, 0), left) is asks
    assert reach.asks(BudgetVector(0, worst), left) is asks  # delta is a part of the budget, too


def test_a_name_is_out_of_reach_only_above_the_whole_population() -> None:
    assert Reach(Fraction(1000), Fraction(USERS), USERS).is_possible
    assert not Reach(Fraction(1000), USERS + Fraction(1, 10**12), USERS).is_possible


@pytest.mark.parametrize("text", [NAMES.format(k=50), COUNTS.format(k=20), f"{NAMES.format(k=30)} {BY_NAME}"])
def test_the_share_of_the_population_decides(text: str) -> None:
    five = math.floor(5 * need(text))
    assert refusal(session_over(five), text) is not None
    assert refusal(session_over(five + 1), text) is None


@pytest.mark.parametrize(
    "text",
    [
        "SELECT user_id FROM reads GROUP BY user_id TOP 1 PRIVATE",
        "SELECT article, user_id::TEXT AS u FROM reads GROUP BY ALL TOP 1 PRIVATE",
    ],
)
def test_groups_of_one_user_need_consent_at_any_price(text: str) -> None:
    session = session_over(None, budget=dpsql.Budget(100, "1e-6"))
    found = refusal(session, text)
    assert found is not None
    assert found.code == "consent"
    assert "Each group is a single user" in found.reason
    assert f"TOP 1 PRIVATE WITH (consent = true). These need fewer users, and no consent: {TOTAL}." in str(found.hint)
    assert session.explain(text).warnings[0].startswith("Each group is a single user")
    assert session.forecast(text).needs_consent
    assert refusal(session, f"{text} WITH (consent = true)") is None


def test_groups_of_listed_users_come_back_with_noise() -> None:
    text = "SELECT user_id::TEXT FROM reads GROUP BY 1 TOP 1 PRIVATE WITH (domain = ['1', '2'])"
    assert refusal(session_over(None), text) is None


def test_without_a_population_nothing_changes() -> None:
    session = session_over(None)
    plan = session.explain(NAMES.format(k=100))
    assert find_reach(plan) is None
    assert plan.warnings == ()
    assert not session.forecast(NAMES.format(k=100)).needs_consent
    assert refusal(session, NAMES.format(k=100)) is None


def test_a_table_of_a_join_without_a_population_leaves_it_open() -> None:
    text = "SELECT article FROM reads JOIN orders USING (user_id) GROUP BY article TOP 100 PRIVATE"
    assert refusal(session_over(), text) is None


def test_a_cheap_query_is_run_until_others_were_charged() -> None:
    session = session_over()
    cheap = NAMES.format(k=10)
    worst = session.explain(cheap).worst_case
    assert session.explain(cheap).price(worst).share_of(session.budget.remaining) <= Fraction(1, 10)
    other = cheap.replace(" GROUP", " WHERE country = 'c1' GROUP")
    assert refusal(session, cheap) is None
    spend(session, Fraction(1, 2))
    found = refusal(session, other)
    assert found is not None
    assert re.search(r"The query may use \d\d % of what is left of the budget\.$", found.reason)
    assert refusal(session, cheap) is None  # it is stored


def test_a_group_that_nobody_could_be_in_is_refused_at_any_price() -> None:
    text = f"{NAMES.format(k=50)} WITH (epsilon = 0.001)"
    for session in (session_over(), session_over(limits=dpsql.Limits(consent=True))):
        plan = session.explain(text)
        assert plan.price(plan.worst_case).refundable < session.budget.remaining.refundable / 100
        found = refusal(session, text, consent=True)
        assert found is not None
        assert found.code == "unreachable"
        assert found.reason == (
            "Hardly an article could be returned: even if all of about 400 users had it, and no other, its chance "
            "would be below 1 in 100."
        )
        assert refusal(session, text.replace("0.001", "0.001, consent = true")) is not None
        assert plan.warnings == (f"{found.reason} The query is refused.",)


@pytest.mark.parametrize("mechanism", ["two_looks", "limited_domain", "weighted_gaussian", "domain_discovery"])
def test_what_is_out_of_reach_is_found_exactly(mechanism: str) -> None:
    text = f"{NAMES.format(k=5)} WITH (mechanism = {mechanism})"
    found = session_over(None).explain(text).need
    assert found is not None
    assert found.least is not None
    below, enough = math.ceil(found.least) - 1, math.ceil(found.least)
    lost, asked = (refusal(session_over(number), text, consent=False) for number in (below, enough))
    assert lost is not None
    assert lost.code == "unreachable"
    assert asked is None or asked.code == "consent"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (NAMES, "mechanism = limited_domain"),
        (NAMES, "mechanism = weighted_gaussian"),
        (COUNTS, "mechanism = gaussian_histogram, max_groups_contributed = 3"),
        (NAMES, "mechanism = domain_discovery"),
        (NAMES, "mechanism = two_looks"),
        (NAMES, "mechanism = two_looks, max_groups_contributed = 1"),
        (COUNTS, "mechanism = two_looks, max_groups_contributed = 1"),
    ],
)
@pytest.mark.parametrize(("k", "epsilon"), [(1, "0.02"), (10, "0.09"), (100, "0.03")])
def test_below_the_line_no_branch_returns_a_group_1_time_in_100(text: str, options: str, k: int, epsilon: str) -> None:
    session = session_over(None, budget=dpsql.Budget(40, "1e-6"))
    plan = session.explain(f"{text.format(k=k)} WITH ({options}, epsilon = {epsilon})")
    assert plan.need is not None
    assert plan.need.least is not None
    line, branches = plan.need.least, list_branches(plan.mechanism_plan.selection)  # type: ignore[attr-defined]
    assert max(chance_of(each, math.ceil(line) - 1) for each in branches) <= 0.01
    assert max(chance_of(each, math.ceil(line) + 4) for each in branches) > 0.01  # the line is no lower than it must be


def list_branches(selection: object) -> list[object]:
    """Return the mechanisms that may answer."""
    if isinstance(selection, DomainDiscovery):
        return [selection.discovery]
    if not isinstance(selection, TwoLooks):
        return [selection]
    leaders = [selection.leaders(each) for each in (Answerer.AT_ONCE, Answerer.LEADERS)]
    if selection.counts_rho is not None:
        return [*leaders, selection.histogram]
    return [*leaders, selection.weighted, selection.discovery.discovery]


def chance_of(mechanism: object, units: int) -> float:
    """Return with what chance a group of so many units, each in it alone, is before BOTTOM or reaches the threshold."""
    if isinstance(mechanism, LimitedDomain):
        return 1 / (1 + math.exp(float(mechanism.epsilon) * float(mechanism.threshold_offset - units)))
    steps = 1 if isinstance(mechanism, GaussianHistogram) else WEIGHT_STEPS
    return discrete_gaussian_tail(mechanism.variance, mechanism.threshold - units * steps)  # type: ignore[attr-defined]


def test_a_group_that_the_noise_lifts_over_the_threshold_is_a_matter_of_consent() -> None:
    """With 403 users it has an even chance, so that with 400 it is returned about every other time."""
    text = f"{NAMES.format(k=1)} {BY_NAME[:-1]}, epsilon = 0.0511)"
    even = need(text)
    assert USERS < even < USERS + 10
    budget = dpsql.Budget("0.3", "1e-6")
    found = refusal(session_over(budget=budget), text, consent=False)
    assert found is not None
    assert found.code == "consent"
    assert refusal(session_over(budget=budget), text, consent=True) is None


# What is said


def test_a_plan_and_a_receipt_warn_above_a_tenth_in_one_sentence() -> None:
    text = NAMES.format(k=10)
    units = need(text)
    tenth = math.floor(10 * units)
    assert session_over(tenth + 1).explain(text).warnings == ()
    sentence = (
        f"Each article needs about {float(units):,.0f} of {tenth:,} users, 11 %, for an even chance to be returned."
    )
    session = session_over(tenth)
    assert session.explain(text).warnings == (sentence,)
    assert ("warning", sentence) in session.sql(f"EXPLAIN {text}").fetchall()
    with pytest.warns(dpsql.WastedChargeWarning, match=re.escape(sentence)):
        answer = session.sql(text)
    assert answer.warnings == (sentence,)


def test_no_share_is_named_where_a_group_needs_more_than_all() -> None:
    (sentence,) = session_over().explain(NAMES.format(k=10)).warnings
    assert re.fullmatch(
        r"Each article needs about \d+ users for an even chance to be returned. There are about 400\.", sentence
    )


@pytest.mark.parametrize(
    "text",
    [
        f"{NAMES.format(k=10)} WITH (domain = ['a1', 'a4'])",
        "SELECT country, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY country ALL PRIVATE WITH (domain = ['c1'])",
        TOTAL,
        "SELECT article FROM reads GROUP BY article TOP ADAPTIVE PRIVATE",
        f"{NAMES.format(k=10)} WITH (mechanism = limited_domain, k_bar = AUTO)",
    ],
)
def test_nothing_is_said_where_no_group_needs_a_number_of_units(text: str) -> None:
    session = session_over(10)
    assert session.explain(text).warnings == ()
    assert refusal(session, text) is None


def test_nothing_is_said_of_rows_and_sums() -> None:
    text = NAMES.format(k=100).replace("article FROM", "article, COUNT(*) AS n FROM")
    session = session_over(10, bounds={"rows": 2})
    assert session.explain(text).warnings == ()
    assert refusal(session, f"{text} WITH (epsilon = 0.01)") is None


def test_known_names_need_no_consent() -> None:
    session = session_over(budget=dpsql.Budget(100, "0.1"), limits=dpsql.Limits(max_epsilon=5, consent=True))
    by_country = "SELECT country FROM reads {} GROUP BY country TOP {} PRIVATE"
    assert len(session.sql(f"{by_country.format('', 3)} WITH (epsilon = 5)")) == 3
    later = f"{by_country.format('WHERE adult', 3)} WITH (epsilon = 0.001)"
    plan = session.explain(later)
    assert plan.spec.rows.known
    assert plan.warnings == ()
    assert refusal(session, later, consent=False) is None


def test_each_partition_is_held_to_the_population() -> None:
    text = "SELECT country, article FROM reads GROUP BY ALL TOP 20 PRIVATE PER country WITH (partitions = ['c1', 'c2'])"
    assert refusal(session_over(), text) is not None
    assert refusal(session_over(10**6), text) is None


def test_plans_and_descriptions_never_ask() -> None:
    session, text = session_over(), NAMES.format(k=100)
    assert session.explain(text).worst_items == 100
    assert session.forecast(text).needs_consent
    assert str(session.forecast(text)).endswith("It is run only with consent, such as WITH (consent = true).")
    facts = dict(session.sql(f"EXPLAIN {text}").fetchall())
    assert facts["consent"] == "It is run only with consent, such as WITH (consent = true)."
    assert session.describe(text).names == ["article"]
    assert session.prepare(text).schema.names == ["article"]
    assert session.peek(text) is None
    with pytest.raises(dpsql.Refusal) as caught:
        session.replay(text)
    assert caught.value.code == "not-stored"
    assert session.history.num_rows == 0


def test_a_plan_says_nothing_of_consent_that_is_given_or_not_needed() -> None:
    for session, text in (
        (session_over(), f"{NAMES.format(k=100)} WITH (consent = true)"),
        (session_over(limits=dpsql.Limits(consent=True)), NAMES.format(k=100)),
        (session_over(), NAMES.format(k=10)),
    ):
        assert not session.forecast(text).needs_consent
        assert "consent" not in dict(session.sql(f"EXPLAIN {text}").fetchall())  # type: ignore[arg-type]


# Ways to give consent


def test_the_option_the_call_and_the_policy_give_consent() -> None:
    text = NAMES.format(k=100)
    assert refusal(session_over(), text) is not None
    assert refusal(session_over(), text, consent=False) is not None
    assert refusal(session_over(), text, consent=True) is None
    assert refusal(session_over(), f"{text} WITH (consent = true)") is None
    willing = dpsql.Limits(consent=True)
    assert refusal(session_over(limits=willing), text) is None


def test_the_nearer_word_decides() -> None:
    text, willing = NAMES.format(k=100), dpsql.Limits(consent=True)
    assert refusal(session_over(limits=willing), text, consent=False) is not None
    assert refusal(session_over(limits=willing), f"{text} WITH (consent = false)", consent=True) is not None
    assert refusal(session_over(), f"{text} WITH (consent = true)", consent=False) is None


def test_consent_is_a_keyword_of_connect() -> None:
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PrivateTable("user_id", population=USERS)})
    for consent, is_run in ((True, True), (False, False), (None, False)):
        with dpsql.connect(shared(*ROWS), policy=policy, ledger=":memory:", consent=consent) as session:
            assert (refusal(session, NAMES.format(k=100)) is None) is is_run
    with pytest.raises(dpsql.PolicyError) as caught:
        dpsql.connect(shared(*ROWS), policy=policy, ledger=":memory:", consent="yes")  # type: ignore[arg-type]
    assert caught.value.place == "limits.consent"


@pytest.mark.parametrize("word", ["'true'", "1", "yes", "maybe"])
def test_other_words_are_refused_with_their_place(word: str) -> None:
    with pytest.raises(dpsql.Refusal) as caught:
        session_over().sql(f"{NAMES.format(k=5)} WITH (consent = {word})")
    assert caught.value.code == "option"
    assert caught.value.reason == "consent is true or false."
    assert "consent" in str(caught.value.place)


def test_the_option_is_no_part_of_the_question() -> None:
    session, text = session_over(), NAMES.format(k=100)
    plans = [session.explain(f"{text}{more}") for more in ("", " WITH (consent = true)", " WITH (consent = false)")]
    assert len({(plan.key, plan.release_key, plan.similar_keys, plan.named_keys) for plan in plans}) == 1
    answer = session.sql(f"{text} WITH (consent = true)")
    for other in (text, f"{text} WITH (consent = false)"):
        again = session.sql(other)
        assert again.receipt.replayed
        assert again.fetchall() == answer.fetchall()


@pytest.mark.parametrize("text", [NAMES.format(k=100), COUNTS.format(k=50), f"{NAMES.format(k=50)} {BY_NAME}"])
def test_with_consent_plan_and_charge_are_those_without_a_population(text: str) -> None:
    for seed in range(2):
        plain, asked = seeded(session_over(None), seed), seeded(session_over(900), seed)
        first, second = plain.explain(text), asked.explain(text)
        assert (first.key, first.release_key, first.mechanism_plan) == (
            second.key,
            second.release_key,
            second.mechanism_plan,
        )
        assert first.worst_case == second.worst_case
        usual, answer = plain.sql(text), asked.sql(text, consent=True)
        assert answer.fetchall() == usual.fetchall()
        assert (answer.receipt.loss, answer.receipt.remaining) == (usual.receipt.loss, usual.receipt.remaining)


# What is stored is free


def test_a_stored_answer_never_asks() -> None:
    session, text = session_over(), NAMES.format(k=100)
    answer = session.sql(text, consent=True)
    again = [session.sql(text), session.sql(text), session.replay(text), session.peek(text)]  # the session's caches
    again += [rebuilt(session).sql(text), rebuilt(session).replay(text)]  # the ledger's answer
    again += [rebuilt(session).sql(text.replace("SELECT article", "SELECT article AS page"))]  # in other words
    again += [rebuilt(session).sql(f"SELECT article FROM ({text}) AS x")]
    for each in again:
        assert each is not None
        assert each.receipt.replayed
        assert len(each) == len(answer)
    assert session.history.num_rows == 1


def test_an_answer_that_is_stored_while_it_is_asked_for_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    session, text = session_over(), NAMES.format(k=100)
    other, find = rebuilt(session), sessions.find_refusal

    def answer_in_between(plan: Plan, *arguments: object, **options: object) -> dpsql.Refusal | None:
        found: dpsql.Refusal | None = find(plan, *arguments, **options)  # type: ignore[arg-type]
        if found is not None:
            other.sql(text, consent=True)
        return found

    monkeypatch.setattr(sessions, "find_refusal", answer_in_between)
    assert session.sql(text).receipt.replayed
    assert session.history.num_rows == 1


def test_new_noise_asks_again() -> None:
    session, text = session_over(), NAMES.format(k=40)
    assert refusal(session, text, consent=True) is None
    assert refusal(session, f"{text} WITH (fresh = true)") is not None


def test_a_statement_of_several_queries_is_refused_before_any_is_charged() -> None:
    listed = f"SELECT article FROM ({NAMES.format(k=50)}) AS x"
    text = f"SELECT ({TOTAL}) AS users, COUNT(*) AS found FROM ({listed}) AS y"
    assert refusal(session_over(), text) is not None
    assert refusal(session_over(), text, consent=True) is None


# Hints


def followed(text: str, hint: str) -> tuple[list[str], str]:
    """Return the statements that a hint says are run, and the one with consent, "" without one."""
    clause = re.search(r"(TOP|LIMIT) \d+( PRIVATE( PER \w+)?( WITH \(.*?\))?)?$", text)
    assert clause is not None

    def put(new: str) -> str:
        if new.startswith("SELECT"):
            return new
        return text[: clause.start()] + new.removesuffix(" in place of LIMIT")

    consented = re.search(r"end the private query with (.*?)\.(?= |$)", hint)
    listed = re.search(r"(?:These need fewer users(?:, and no consent)?: (.*?)\.(?= If|$)|^(.*) would fit\.$)", hint)
    others = [] if listed is None else (listed[1] or listed[2]).split(" or ")
    return [put(each) for each in others], "" if consented is None else put(consented[1])


ASKED = [
    NAMES.format(k=100),
    COUNTS.format(k=50),
    f"{NAMES.format(k=30)} {BY_NAME}",
    f"{NAMES.format(k=60)} WITH (mechanism = 'weighted_gaussian', gate = false, delta = 1e-9)",
    f"{COUNTS.format(k=30)} WITH (max_groups_contributed = 5, epsilon = 0.05)",
    "SELECT country, article FROM reads GROUP BY ALL TOP 20 PRIVATE PER country WITH (partitions = ['c1', 'c2'])",
    "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article ORDER BY n DESC LIMIT 40",
    "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article ORDER BY n DESC LIMIT 40 PRIVATE",
]


@pytest.mark.parametrize(
    ("population", "used", "text"),
    list_pairs([150, USERS, 900, 3000], [Fraction(0), Fraction(2, 5), Fraction(9, 10)], ASKED),
)
def test_what_a_refusal_proposes_is_run(text: str, used: Fraction, population: int) -> None:
    def ask(statement: str) -> dpsql.Error | None:
        session = session_over(population, implicit=True)
        if used:
            spend(session, used)
        return refusal(session, statement)

    found = ask(text)
    if found is None:
        return
    others, consented = followed(text, found.hint)
    assert others or used > Fraction(1, 2), found.hint
    for each in others:
        assert ask(each) is None, (found.hint, each)
        plan = session_over(population, implicit=True).explain(each)
        assert plan.need is None or Fraction(plan.need.units) <= Fraction(population, 5), (found.hint, each)
    if consented:
        assert ask(consented) is None


@pytest.mark.parametrize("used", [Fraction(1, 2), Fraction(999, 1000)])
def test_a_query_that_cannot_be_paid_is_refused_for_the_budget_alone(used: Fraction) -> None:
    session, text = session_over(), NAMES.format(k=100)
    spend(session, used)
    found = refusal(session, text)
    assert isinstance(found, dpsql.BudgetExceeded)
    assert "consent" not in f"{found.reason} {found.hint}"
    assert "may use" in found.reason
    assert "of what is left" not in found.reason
    with pytest.raises(dpsql.BudgetExceeded):
        session.sql(text, consent=True)


PLAIN = "SELECT article FROM reads GROUP BY article"
BY_USERS = f"{PLAIN} ORDER BY COUNT(DISTINCT user_id) DESC"
LEADING = "SELECT TOP {k} PRIVATE article FROM reads GROUP BY article"


def propose(text: str, parameters: ParameterValues = (), *, postgres: bool = False, population: int = USERS) -> str:
    """Return the hint of a query that needs consent."""
    with pytest.raises(dpsql.Refusal) as caught:
        session_over(population, implicit=True).sql(text, parameters, postgres=postgres)
    assert caught.value.code == "consent"
    return caught.value.hint


@pytest.mark.parametrize("limit", ["LIMIT 100", "FETCH FIRST 100 ROWS ONLY", "LIMIT 100 -- the end", "LIMIT 100;"])
def test_the_clause_takes_the_place_of_limit_though_the_order_is_hidden(limit: str) -> None:
    """The order is by what is not selected, so that LIMIT is of the SELECT around the private query."""
    hint = propose(f"{BY_USERS} {limit}")
    proposed = re.search(
        r"end the private query with (TOP 10 PRIVATE WITH \(consent = true\)) in place of LIMIT\.", hint
    )
    assert proposed is not None
    written = limit.replace("LIMIT 100", proposed[1]).replace("FETCH FIRST 100 ROWS ONLY", proposed[1])
    assert refusal(session_over(implicit=True), f"{BY_USERS} {written}") is None
    other = re.search(r"no consent: (TOP 10 PRIVATE WITH \([^)]*\)) in place of LIMIT", hint)
    assert other is not None
    assert refusal(session_over(implicit=True), f"{BY_USERS} {limit}".replace(limit, other[1])) is None


def test_a_clause_after_a_comment_is_on_a_line_of_its_own() -> None:
    text = f"{BY_USERS} -- the end"
    proposed = re.search(r"end the private query with (TOP .*?\)) on a line of its own\.", propose(text))
    assert proposed is not None
    assert refusal(session_over(implicit=True), f"{text}\n{proposed[1]}") is None
    assert "a line of its own" not in propose(BY_USERS)


def test_a_clause_that_leads_keeps_its_place() -> None:
    text = LEADING.format(k=100)
    hint = propose(text)
    assert hint.startswith("To run it all the same, write WITH (consent = true) at the end. ")
    assert refusal(session_over(), f"{text} WITH (consent = true)") is None
    bounded = re.search(r"no consent: (WITH \([^)]*\)) at the end or ", hint)
    assert bounded is not None
    assert refusal(session_over(), f"{text} {bounded[1]}") is None
    with_bound = f"{text} WITH (max_groups_contributed = 5)"
    proposed = re.search(r"write (WITH \(.*?\)) at the end, in place of WITH\.", propose(with_bound, population=150))
    assert proposed is not None
    assert refusal(session_over(150), f"{text} {proposed[1]}") is None


def test_set_is_proposed_where_there_is_one() -> None:
    assert "SET dpsql.consent" not in propose(f"{BY_USERS} LIMIT 100")
    assert "in place of LIMIT, or SET dpsql.consent = on. " in propose(f"{BY_USERS} LIMIT 100", postgres=True)


@pytest.mark.parametrize("where", ["WHERE article <> 'differential_privacy'", "/* WITH DIFFERENTIAL_PRIVACY */"])
def test_only_a_header_has_options_to_write_into(where: str) -> None:
    text = BY_USERS.replace("GROUP", f"{where} GROUP")
    assert "OPTIONS" not in propose(f"{text} LIMIT 100")
    assert "end the private query with TOP 10 PRIVATE WITH (consent = true) in place" in propose(f"{text} LIMIT 100")


@pytest.mark.parametrize(
    ("text", "values", "written"),
    [
        (f"{PLAIN} TOP ? PRIVATE", [100], "TOP ? PRIVATE WITH (consent = true)"),
        (f"{PLAIN} TOP $1 PRIVATE", [100], "TOP $1 PRIVATE WITH (consent = true)"),
        (f"{PLAIN} TOP :k PRIVATE", {"k": 100}, "TOP :k PRIVATE WITH (consent = true)"),
        (
            f"{PLAIN} TOP 100 PRIVATE WITH (epsilon = ?)",
            [0.03],
            "TOP 100 PRIVATE WITH (epsilon = ?, consent = true)",
        ),
        (f"{BY_USERS} LIMIT ?", [10], "TOP ? PRIVATE WITH (consent = true)"),
    ],
)
def test_parameters_stay_in_what_is_proposed(text: str, values: ParameterValues, written: str) -> None:
    hint = propose(text, values)
    assert f"end the private query with {written}" in hint
    start = re.search(r"(TOP|LIMIT) [^ ]+( PRIVATE.*)?$", text)
    assert start is not None
    session_over(implicit=True).sql(text[: start.start()] + written, values)
    other = re.search(r"no consent: (TOP .*?) with (.*?) as the parameter of (\w+)", hint)
    if other is not None:
        assert other[3] in {"k", "epsilon"}
        number = float(other[2]) if other[3] == "epsilon" else int(other[2])
        changed = {"k": number} if isinstance(values, dict) else [number]
        session_over(implicit=True).sql(text[: start.start()] + other[1], changed)


def test_a_parameter_that_would_change_is_named_in_words() -> None:
    hint = propose(f"{PLAIN} TOP 40 PRIVATE WITH (epsilon = ?)", [0.03], population=1000)
    proposed = re.search(r"TOP 40 PRIVATE WITH \(epsilon = \?\) with (0\.\d+) as the parameter of epsilon", hint)
    assert proposed is not None
    session_over(1000).sql(f"{PLAIN} TOP 40 PRIVATE WITH (epsilon = ?)", [float(proposed[1])])


def test_a_plan_says_nothing_of_consent_that_the_call_or_the_connection_gives() -> None:
    session, text = session_over(), NAMES.format(k=100)
    assert "consent" not in dict(session.sql(f"EXPLAIN {text}", consent=True).fetchall())  # type: ignore[arg-type]
    assert "consent" in dict(session.sql(f"EXPLAIN {text}", consent=False).fetchall())  # type: ignore[arg-type]
    assert not session.forecast(text, consent=True).needs_consent
    assert session.forecast(text, consent=False).needs_consent
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PrivateTable("user_id", population=USERS)})
    with dpsql.connect(shared(*ROWS), policy=policy, ledger=":memory:", consent=True) as willing:
        assert not willing.forecast(text).needs_consent
        assert "consent" not in dict(willing.sql(f"EXPLAIN {text}").fetchall())  # type: ignore[arg-type]


def test_no_shorter_list_is_proposed_that_needs_as_many_users() -> None:
    """TOP 9 would need no consent, as it may use less than a tenth, and could hardly return a row either."""
    found = refusal(session_over(), f"{NAMES.format(k=10)} WITH (epsilon = 0.06)")
    assert found is not None
    assert not re.search(r"TOP [1-9] ", found.hint)
    assert "max_groups_contributed = 1" in found.hint


def test_a_bound_and_a_larger_epsilon_are_proposed_together_where_neither_is_enough() -> None:
    text = NAMES.format(k=11)
    found = refusal(session_over(), text)
    assert found is not None
    proposed = re.search(r": TOP 11 PRIVATE WITH \((max_groups_contributed = 3), epsilon = (0\.\d+)\)", found.hint)
    assert proposed is not None
    both = f"{text} WITH ({proposed[1]}, epsilon = {proposed[2]})"
    assert need(both) <= Fraction(USERS, 5) < min(need(f"{text} WITH ({proposed[1]})"), need(text))


def test_a_larger_epsilon_is_proposed_where_it_is_enough_and_no_larger() -> None:
    text = f"{NAMES.format(k=40)} WITH (epsilon = 0.03)"
    found = refusal(session_over(1000), text)
    assert found is not None
    proposed = re.search(r"(?:or|:) TOP 40 PRIVATE WITH \(epsilon = (0\.\d+)\)", found.hint)
    assert proposed is not None
    enough = Fraction(proposed[1])
    assert need(text.replace("0.03", proposed[1])) <= Fraction(1000, 5)
    less = enough - Fraction(1, 10_000)
    assert need(text.replace("0.03", f"{float(less):.4f}")) > Fraction(1000, 5)


@pytest.mark.parametrize(
    ("population", "proposed"), [(400, []), (900, ["max_groups"]), (1500, ["max_groups", "epsilon"])]
)
def test_what_a_short_answer_proposes_is_run(population: int, proposed: list[str]) -> None:
    text = NAMES.format(k=10)
    found = re.findall(r"with (\w+ = [0-9.]+) about", session_over(population).sql(text).explanation)
    assert [each.partition("_contributed")[0].partition(" ")[0] for each in found] == proposed
    for each in found:
        assert refusal(session_over(population), f"{text} WITH ({each})") is None


@pytest.mark.parametrize(("population", "is_proposed"), [(None, True), (400, False), (3000, True)])
def test_a_longer_list_is_proposed_only_if_it_is_run(population: int | None, is_proposed: bool) -> None:
    text = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article"
    session = session_over(population, implicit=True)
    note = dict(session.sql(f"EXPLAIN {text}").fetchall())["note"]
    longer = re.search(r"(TOP \d+ PRIVATE) at the end of the query for more", note)
    assert (longer is not None) is is_proposed
    if longer is not None:
        assert refusal(session, f"{text} {longer[1]}") is None


def test_the_terms_of_a_whole_query_take_consent_in_their_options() -> None:
    text = (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.9, delta = 1e-7{}) article, "
        "COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article ORDER BY n DESC LIMIT 20"
    )
    found = refusal(session_over(), text.format(""))
    assert found is not None
    assert found.hint.startswith("To run it all the same, add consent = true to OPTIONS. ")
    assert refusal(session_over(), text.format(", consent = true")) is None
    (total,) = followed(text.format(""), found.hint)[0]
    assert refusal(session_over(), total) is None


# k is at most the number of values that the keys can have


MONTHS = "SELECT EXTRACT(month FROM ts) AS month FROM reads GROUP BY month"
FEW = [
    ("SELECT adult FROM reads GROUP BY adult", 3, "the key can have 3 values"),  # with NULL
    ("SELECT adult FROM reads WHERE adult IS NOT NULL GROUP BY adult", 2, "the key can have 2 values"),
    ("SELECT CASE WHEN adult THEN 'yes' ELSE 'no' END AS a FROM reads GROUP BY a", 2, "the key can have 2 values"),
    ("SELECT CASE WHEN adult THEN 'yes' WHEN user_id > 9 THEN 'no' END AS a FROM reads GROUP BY a", 3, ""),
    (MONTHS, 13, ""),
    (MONTHS.replace("month FROM ts", "month FROM ts").replace("GROUP", "WHERE ts < DATE '2027-01-01' GROUP"), 13, ""),
    (MONTHS.replace("EXTRACT(month", "EXTRACT(quarter"), 5, "the key can have 5 values"),
    (MONTHS.replace("EXTRACT(month", "EXTRACT(dow"), 8, ""),
    ("SELECT adult, EXTRACT(quarter FROM ts) AS q FROM reads GROUP BY ALL", 15, "the keys can have 15 values"),
    ("SELECT m FROM (SELECT user_id, adult AS m FROM reads) AS x GROUP BY m", 3, ""),
    ("SELECT 1 AS one FROM reads GROUP BY one", 1, "the key can have 1 value"),
]


@pytest.mark.parametrize(("text", "values", "words"), FEW)
def test_k_is_at_most_the_number_of_values(text: str, values: int, words: str) -> None:
    session = session_over(None)
    lowered, plain = session.explain(f"{text} TOP 20 PRIVATE"), session.explain(f"{text} TOP {values} PRIVATE")
    assert lowered.k == lowered.worst_items == values
    assert (lowered.mechanism_plan, lowered.worst_case) == (plain.mechanism_plan, plain.worst_case)
    assert lowered.release_key == plain.release_key
    told = f"k = {values}: {words}"
    facts = dict(lowered.facts())
    assert facts["k"].startswith(f"{values}: the key")
    assert dict(plain.facts())["k"] == str(values)
    answer = session.sql(f"{text} TOP 20 PRIVATE")
    assert answer.receipt.k == values
    assert answer.receipt.list_note.startswith(told)
    assert answer.receipt.items_charged <= values


def test_k_of_partitions_is_that_of_the_other_keys() -> None:
    text = "SELECT country, adult FROM reads GROUP BY ALL TOP 5 PRIVATE PER country WITH (partitions = ['c1', 'c2'])"
    plan = session_over(None).explain(text)
    assert (plan.k, plan.worst_items) == (3, 3)
    text = "SELECT country, adult FROM reads GROUP BY ALL TOP 5 PRIVATE PER adult WITH (partitions = ['true'])"
    assert session_over(None).explain(text).k == 5


def test_k_of_a_listed_domain_is_its_length() -> None:
    plan = session_over(None).explain(f"{NAMES.format(k=10)} WITH (domain = ['a1', 'a4', 'a4', 'a9'])")
    assert (plan.k, plan.worst_items) == (3, 3)
    assert dict(plan.facts())["k"] == "3: the key can have 3 values"


def test_a_k_that_is_not_above_the_number_of_values_stays() -> None:
    text = "SELECT adult FROM reads GROUP BY adult TOP {} PRIVATE"
    session = session_over(None)
    assert [session.explain(text.format(k)).k for k in (1, 2, 3, 4)] == [1, 2, 3, 3]
    assert session.explain(NAMES.format(k=100)).k == 100
    with pytest.raises(dpsql.Refusal, match="k may be at most"):
        session.explain(text.format(5000))


@pytest.mark.parametrize("text", [text for text, *_ in FEW[::3]])
def test_the_key_of_a_question_is_that_of_its_own_k(text: str) -> None:
    session = session_over(None)
    (query,) = [plan.request.query for plan in session.explain_all(f"{text} TOP 20 PRIVATE")]
    written = replace(query, clause=replace(query.clause, k=20))
    then, now = (
        build_plan(each, session.terms, salts=session._plans.salts)
        for each in (replace(written, key_values=None), written)
    )
    assert (then.k, now.k) == (20, len_of(now))
    assert (then.key, then.named_keys) == (now.key, now.named_keys)


class Everything:
    """All keys, as if each had a stored answer."""

    def __contains__(self, key: object) -> bool:
        return True


@pytest.mark.parametrize("mechanism", ["", " WITH (mechanism = limited_domain)"])
def test_answers_that_0_10_stored_are_looked_up_with_the_k_of_the_text(mechanism: str) -> None:
    session = session_over(None)
    (inner,) = session._free_answers.bind_view(
        session._analyze(f"SELECT adult FROM reads GROUP BY adult TOP 20 PRIVATE{mechanism}", ())
    ).inners
    query = session._plans.complete(inner)
    assert query.key_values == 3
    found = dict(list_earlier_plans(query, session._plans.build, stored=Everything()))
    named = replace(query.clause, options={"mechanism": Option("limited_domain", query.clause.place, word=True)})
    then = session._plans.build(replace(query, clause=named, key_values=None))
    assert then.k == 20
    assert compute_release_key(then, as_in_0_10=True) in found
    assert {plan.k for plan in found.values()} == {20}


def len_of(plan: Plan) -> int:
    assert plan.query.key_values is not None
    return plan.query.key_values


def test_an_answer_that_was_stored_with_the_larger_k_stays_free(monkeypatch: pytest.MonkeyPatch) -> None:
    session, text = session_over(None), "SELECT adult FROM reads GROUP BY adult TOP 20 PRIVATE WITH (epsilon = 0.09)"

    def keep(query: PrivateQuery, _: object) -> PrivateQuery:
        return query

    with monkeypatch.context() as patch:
        patch.setattr("dpsql.sql.analysis.private_select._count_key_values", keep)
        before = session.sql(text)
    assert before.receipt.k == 20
    again = rebuilt(session).sql(text)
    assert again.receipt.replayed
    assert again.fetchall() == before.fetchall()
    assert again.receipt.k == 20
    assert "k = " not in again.receipt.list_note


def test_units_are_in_no_more_groups_than_the_key_has_values() -> None:
    few, many = need("SELECT adult FROM reads GROUP BY adult TOP 3 PRIVATE"), need(NAMES.format(k=3))
    assert few < many
    text = "SELECT adult FROM reads GROUP BY adult TOP 3 PRIVATE WITH (mechanism = weighted_gaussian)"
    found = session_over(None).explain(text).need
    assert found is not None
    selection = session_over(None).explain(text).mechanism_plan.selection  # type: ignore[attr-defined]
    assert found.units == pytest.approx(selection.threshold / WEIGHT_STEPS * math.sqrt(3))
