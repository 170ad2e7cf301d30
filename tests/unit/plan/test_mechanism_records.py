"""Records of mechanisms: each is whole, and one record is all that a new mechanism needs to be offered."""

from __future__ import annotations

import importlib.util
import random
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import pytest
from support.session_kit import session_on, shared

import dpsql
from dpsql.completion import find_completions
from dpsql.mechanisms import GaussianHistogram
from dpsql.plan.identity import replay_key
from dpsql.plan.mechanisms import choice
from dpsql.plan.mechanisms.gaussian_histogram import GaussianHistogramPlan
from dpsql.plan.mechanisms.record import Auto, Mechanism, MechanismRequest, Need, QueryKind, Reads
from dpsql.session import Session

ROOT = Path(__file__).parents[3]
EVERY = [pytest.param(each, id=f"{each.name}-{each.kind.name}") for each in choice.RECORDS]
TEXTS = {
    QueryKind.UNKNOWN: "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP {k} PRIVATE "
    "WITH ({})",
    QueryKind.KNOWN: "SELECT article FROM reads GROUP BY article TOP {k} PRIVATE WITH (domain = ['a', 'b', 'c'], {})",
    QueryKind.ADAPTIVE: "SELECT article FROM reads GROUP BY article TOP ADAPTIVE PRIVATE WITH ({})",
    QueryKind.ALL: "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article ALL PRIVATE "
    "WITH (domain = ['a', 'b', 'c'], {})",
}


def opened(*rows: str) -> Session:
    connection = shared("CREATE TABLE reads (user_id BIGINT, article VARCHAR)", *rows)
    return session_on(connection, dpsql.Policy(dpsql.Budget(40, "0.9"), {"reads": dpsql.PrivateTable("user_id")}))


def text_of(mechanism: Mechanism, *more: str, k: int = 3) -> str:
    named = [] if mechanism.kind is QueryKind.ALL else [f"mechanism = {mechanism.name}"]
    return TEXTS[mechanism.kind].format(", ".join([*named, "max_groups_contributed = 2", *more]), k=k)


@pytest.mark.parametrize("mechanism", EVERY)
def test_the_price_and_the_need_of_a_record_are_those_of_its_plan(mechanism: Mechanism) -> None:
    for epsilon in ("0.01", "0.5"):
        plan = opened().explain(text_of(mechanism, f"epsilon = {epsilon}"))
        assert plan.record is mechanism
        assert mechanism.price(plan.request) == plan.mechanism_plan.price
        if mechanism.need is None:
            assert plan.need is None
            continue
        assert plan.need is not None
        assert plan.need.items == plan.worst_items
        if mechanism.reach is not None:
            least, most = mechanism.reach(plan.request)
            assert least <= plan.need.units <= most


@pytest.mark.parametrize("mechanism", EVERY)
def test_every_record_has_a_law_and_a_theorem_that_states_the_loss(mechanism: Mechanism) -> None:
    assert mechanism.law
    assert "Loss:" in (mechanism.theorem.__doc__ or "")
    assert sum(each.law == mechanism.law for each in choice.RECORDS) == 1


def test_stored_answers_of_whatever_auto_chooses_are_found_by_name() -> None:
    chosen = {each.name for each in choice.list_records(QueryKind.UNKNOWN) if each.auto is not Auto.NEVER}
    missing = chosen - set(replay_key._AUTO_SINCE_0_11)
    assert not missing, f"Name {sorted(missing)} in _AUTO_SINCE_0_11 of dpsql/plan/identity/replay_key.py."
    assert {each.name for each in choice.list_records(QueryKind.KNOWN) if each.auto is not Auto.NEVER} == {"peeling"}


def test_what_is_chosen_by_reach_is_what_needs_the_least() -> None:
    """Over requests of any k, bound, epsilon and delta: the arithmetic that is left out decides nothing."""
    draw, session = random.Random(7), opened()
    for _ in range(150):
        k, counts = draw.choice([1, 2, 3, 5, 8, 10, 11, 12, 13, 20, 60]), draw.choice(["", ", COUNT(DISTINCT user_id)"])
        options = [f"epsilon = {draw.choice(['0.002', '0.02', '0.1', '0.9'])}"]
        options += draw.choice([[], [f"max_groups_contributed = {draw.choice([1, 2, 3, 5, 10, 40, 100, 300])}"]])
        options += draw.choice([[], [f"delta = {draw.choice(['1e-12', '1e-8', '1e-5'])}"]])
        text = f"SELECT article{counts} FROM reads GROUP BY article TOP {k} PRIVATE WITH ({', '.join(options)})"
        plan = session.explain(text)
        best = choice.take_cheapest(plan.considered)
        assert best is not None
        assert plan.record is best.mechanism, text


@dataclass(frozen=True, slots=True)
class Toy(GaussianHistogram):
    """Return the first k of noisy counts, as the Gaussian histogram does.

    Loss: rho and delta, as of the Gaussian histogram.
    Source: this test.
    """

    @property
    def name(self) -> str:
        """The mechanism's name in SQL."""
        return "toy"


def plan_toy(request: MechanismRequest) -> GaussianHistogramPlan:
    price = request.price
    chosen = Toy(
        price.rho(price.joint_items(request.k)), request.delta, request.k, request.require_bound(), request.rank_width
    )
    return GaussianHistogramPlan(chosen, price)


TOY = Mechanism(
    name="toy",
    kind=QueryKind.UNKNOWN,
    theorem=Toy,
    law="a toy",
    plan=plan_toy,
    need=lambda _: Need(1.0),
    reads=Reads.GROUPS,
    draws_after=False,
    options=frozenset(["delta"]),
)


def read_generator(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "generate"))
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "generate" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def test_one_record_offers_a_mechanism_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """In SQL, in EXPLAIN beside others, in refusals, in completion and in the documentation."""
    monkeypatch.setattr(choice, "RECORDS", (*choice.RECORDS, TOY))
    session = opened("INSERT INTO reads SELECT i, 'a' || i % 2 FROM range(9000) t(i)")
    text = text_of(TOY, "epsilon = 0.5")
    answer = session.sql(text)
    assert answer.receipt.mechanism == "toy"
    assert sorted(row[0] for row in answer.fetchall()) == ["a0", "a1"]
    assert session.sql(text).receipt.replayed
    explained = dict(session.sql("EXPLAIN " + text).fetchall())
    assert (explained["mechanism"], explained["chosen because"]) == ("toy", "the query names it")
    shown = dict(session.sql("EXPLAIN " + text.replace("mechanism = toy, ", "")).fetchall())
    assert shown["mechanism"] != "toy"
    assert shown["candidate toy"].startswith("a group needs about 1 units")
    for wrong, words in (
        ("k_bar = 9", "k_bar has no meaning with this mechanism."),
        ("prefer = 2", "prefer is for mechanism = stable."),
    ):
        with pytest.raises(dpsql.Refusal, match=re.escape(words)):
            session.explain(text_of(TOY, wrong))
    with pytest.raises(dpsql.Refusal, match=re.escape("domain is for peeling or joint")):
        session.explain(text.replace("WITH (", "WITH (domain = ['a0'], "))
    typo = text.replace("= toy", "= toyy")
    with pytest.raises(dpsql.Refusal) as refused:
        session.explain(typo)
    assert refused.value.hint is not None
    assert "toy" in refused.value.hint
    assert find_completions(typo[: typo.index("toyy") + 2], session.catalog, commands={}) == (
        "to",
        ["top_stable", "toy"],
    )
    page = read_generator("sql_page", monkeypatch).mechanisms()
    assert "| `toy` | rho and delta, as of the Gaussian histogram | this test |" in page


def test_auto_may_choose_it_as_soon_as_its_record_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "RECORDS", (*choice.RECORDS, replace(TOY, auto=Auto.ALWAYS)))
    session = opened()
    for text in (text_of(TOY), text_of(TOY, k=30)):
        plan = session.explain(text.replace("mechanism = toy, ", ""))
        assert (plan.mechanism, plan.record.name) == ("toy", "toy")
