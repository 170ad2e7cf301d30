"""What a query would cost, find and leave: EXPLAIN, forecast, simulation, and the error where the budget is short.

All of it comes from public numbers.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from dpsql.accounting import BudgetVector, Loss, format_percent
from dpsql.display import Facts, NotebookRepr, facts_html
from dpsql.errors import BudgetExceeded, UsageError
from dpsql.ledger.base import Shortfall
from dpsql.ledger.record import Calendar
from dpsql.mechanisms import Noise, unit_weight
from dpsql.plan.mechanisms.base import Groups
from dpsql.plan.mechanisms.record import LEAST_DELTA, Candidate, Reads, assume_groups_per_unit, find_epsilon_within
from dpsql.plan.plan import ENGINE_SQL, Plan
from dpsql.quantities import Epsilon
from dpsql.receipt import format_share
from dpsql.report.balance import Balance, count_admitted, find_larger_part
from dpsql.report.consent import find_reach, has_consent, list_alternatives, needs_consent, propose_option
from dpsql.sql.ir.statements import LiteralDomain
from dpsql.terms import Terms

_NEEDS_CONSENT = "It is run only with consent, such as WITH (consent = true)."
_LEAST_EXPONENT = -6  # that is written out in decimals


@dataclass(frozen=True, slots=True)
class Forecast(NotebookRepr):
    """Forecast for queries of one price, run one after another, each with fresh noise.

    Of the `times` planned queries, `at_worst` are admitted if each costs its worst case, `loss`, and `at_half` if each
    returns half of the keys, at `half_loss`; in the current period, where there are periods. With `needs_consent` the
    first is refused unless consent is given.

    >>> session.forecast("SELECT article FROM reads GROUP BY article TOP 10 PRIVATE", times=3).fits
    True
    """

    times: int
    at_worst: int
    at_half: int
    loss: Loss
    half_loss: Loss
    remaining: BudgetVector
    needs_consent: bool = False
    cost: str = ""

    @property
    def fits(self) -> bool:
        """Whether all planned queries are certain to be admitted."""
        return self.times <= self.at_worst

    def facts(self) -> list[tuple[str, str]]:
        """Return what is left for such queries as lines of name and value, as a plan does."""
        fits = f"{self.at_worst} fit"
        if self.at_half != self.at_worst:
            fits = f"{self.at_worst} fit at the worst, {self.at_half} if half of the items come back"
        warning = "It may cost more than what is left of the budget: it would be refused, and nothing charged."
        lines = [] if self.at_worst else [("warning", warning)]
        lines += [("consent", _NEEDS_CONSENT)] if self.needs_consent else []
        lines += [("cost", self.cost)] if self.cost else []
        return [*lines, ("such queries", fits)]

    def __str__(self) -> str:
        """Return the answer in words."""
        is_one = self.times == 1
        verdict = "may not fit" if is_one else "may not all fit"
        if self.fits:
            verdict = f"{'fits' if is_one else 'fit'}, with any answers"
        if not self.fits and self.times <= self.at_half:
            verdict += f", but {'does' if is_one else 'do'} if half of the items come back"
        cost = f"One uses {self.cost}. " if self.cost else ""
        return (
            f"{self.times} such {'query' if is_one else 'queries'} {verdict}. {cost}What is left admits "
            f"{self.at_worst} in the worst case, and {self.at_half} when half of the items come back."
            f"{f' {_NEEDS_CONSENT}' if self.needs_consent else ''}"
        )

    def _repr_html_(self) -> str:
        """Return the forecast for a notebook."""
        pairs = [
            ("planned", f"{self.times}"),
            ("admitted at the worst", f"{self.at_worst}, of {self.loss} each"),
            ("if half comes back", f"{self.at_half}, of {self.half_loss} each"),
            ("remaining", str(self.remaining)),
        ]
        return facts_html(Facts("Forecast: nothing was read, nothing was charged", pairs, notes=[str(self)]))


def describe_cost(plan: Plan, balance: Balance) -> str:
    """Return by how much a plan raises the used share of a budget at its worst; "" if it is stored."""
    if plan.stored and not plan.fresh:
        return ""
    own = balance.of(plan.charged_values)
    return describe_at_most(plan.price(plan.worst_case), own)


def describe_at_most(worst: BudgetVector, balance: Balance, *, whose: str = "the budget") -> str:
    """Return by how much a cost raises the used share of a budget; where it does not, what has used more."""
    rise = balance.measure(worst)
    larger = "" if rise.share else find_larger_part(balance)
    return f"at most {format_percent(rise.percent)} more of {whose}{larger and f': {larger} used more'}"


def forecast(
    plan: Plan, remaining: BudgetVector, *, times: int, cost: str = "", consent: bool | None = None
) -> Forecast:
    """Return how often queries of the price of `plan` are admitted by what remains.

    `consent` is that of the call; None is what the policy says.
    Raises `UsageError` unless `times` is a whole number of at least 1.
    """
    if type(times) is not int or times < 1:
        raise UsageError("times-range", "times must be a whole number of at least 1.", hint="Such as times=30.")
    worst, half = plan.price(plan.worst_case), plan.price(plan.mechanism_plan.loss_of_half)
    return Forecast(
        times,
        count_admitted(remaining, worst, loss=worst),
        count_admitted(remaining, worst, loss=half),
        loss=plan.worst_case,
        half_loss=plan.mechanism_plan.loss_of_half,
        remaining=remaining,
        needs_consent=(plan.fresh or not plan.stored) and needs_consent(plan, remaining, given=consent),
        cost=cost,
    )


def explain_shortfall(
    plan: Plan, short: Shortfall, *, terms: Terms, calendar: Calendar | None = None
) -> BudgetExceeded:
    """Return the error for a plan whose worst case is more than what remains, with the nearest queries that fit.

    `short` is the error of the ledger; `calendar` says when more is granted.
    """
    remaining, worst = short.remaining, plan.price(plan.worst_case)
    whose, limit = "the budget", terms.budget
    if short.account is not None and terms.account is not None:
        whose, limit = f"the limit of account {short.account}", terms.account.budget
    more, left = _describe_short(worst, remaining, limit=limit), remaining.least_share_of(limit)
    reason = f"This query may use {more} of {whose}, and {format_share(left, down=True)} is left."
    if not left and short.account is not None:
        reason = f"The share of account {short.account} is used. {reason} Stored answers stay free."
    hint = "Write a smaller epsilon into OPTIONS."  # of WITH DIFFERENTIAL_PRIVACY, which has no clause to write
    if not (plan.query.clause.form == "header" and plan.query.clause.options):
        affordable = math.floor(remaining.refundable / plan.item_price)
        hint = _find_fits(plan, remaining, affordable=affordable, least_epsilon=terms.limits.min_epsilon)
        if find_reach(plan) is not None and not has_consent(plan):  # what fits must be run, too
            fits = " or ".join(list_alternatives(plan, remaining, terms=terms))
            hint = f"{fits} would fit." if fits else "What is left is not enough for such a query, nor for a total."
    hint = describe_offer(plan) + hint
    if calendar is not None:
        hint += f" Now: {calendar}."
    return BudgetExceeded("budget-exceeded", reason, hint=hint, place=plan.query.clause.place)


def describe_offer(plan: Plan) -> str:
    """Return how to take what follows from a stored answer, as the start of a hint; "" where nothing is offered."""
    if plan.offered is None:
        return ""
    how = propose_option(plan.query, reuse="true")
    return f"For the {plan.offered.words}, which is free, {plan.offered.law}, {how}. "


def _describe_short(worst: BudgetVector, remaining: BudgetVector, *, limit: BudgetVector) -> str:
    """Return how much more a cost would use than is used or reserved, where it is more than what remains."""
    currencies = zip(
        (remaining.refundable, remaining.permanent),
        (worst.refundable, worst.permanent),
        (limit.refundable, limit.permanent),
        strict=True,
    )
    # What the query would leave of the currency of which it leaves least; it is below 0.
    after = min(((rest - cost) / granted for rest, cost, granted in currencies if granted), default=Fraction(0))
    return f"{format_share(remaining.least_share_of(limit) - after)} more"


def price_together(plans: Sequence[Plan]) -> BudgetVector | None:
    """Return the worst case of the private queries of one statement together, None if all are stored."""
    drawn = [plan for plan in plans if plan.fresh or not plan.stored]
    different = {plan.key: plan for plan in drawn if not plan.fresh}  # the second of two that are equal is a replay
    prices = [plan.price(plan.worst_case) for plan in (*different.values(), *(plan for plan in drawn if plan.fresh))]
    return sum(prices[1:], prices[0]) if prices else None


def describe_together(plans: Sequence[Plan], balance: Balance, *, whose: str = "the budget") -> str:
    """Return what the private queries of one statement cost together at most, in shares of the budget."""
    worst = price_together(plans)
    if worst is None:
        return "answered before; asking again costs nothing"
    return f"{describe_at_most(worst, balance, whose=whose)}; {format_percent(balance.percent_left)} is left"


def check_together(plans: Sequence[Plan], balance: Balance, *, terms: Terms) -> None:
    """Raise `BudgetExceeded` unless the worst cases of the private queries of one statement fit together.

    Of a unit they fit if those do that count its value.
    """
    for value in dict.fromkeys([None, *(value for plan in plans for value in plan.charged_values)]):
        counting = [plan for plan in plans if not plan.charged_values or value in plan.charged_values]
        worst, own = price_together(counting), balance.of(() if value is None else (value,))
        left = own.remaining
        if worst is None or (worst.refundable <= left.refundable and worst.permanent <= left.permanent):
            continue
        whose = "the budget" if terms.account is None else f"the limit of account {terms.account.name}"
        more = _describe_short(worst, left, limit=own.limit)
        reason = (
            f"The {len(counting)} private queries of this statement may use {more} of {whose}, and "
            f"{format_percent(own.percent_left)} is left."
        )
        hint = "Ask for fewer rows, with a smaller epsilon, or each question in a statement of its own."
        hint = next(filter(None, map(describe_offer, counting)), "") + hint
        raise BudgetExceeded("budget-exceeded", reason, hint=hint, place=counting[0].query.clause.place)


def _find_fits(plan: Plan, remaining: BudgetVector, *, affordable: int, least_epsilon: Epsilon) -> str:
    """Return the hint: each of its queries would be admitted now."""
    delta, worst, clause = "", plan.price(plan.worst_case), plan.query.clause
    if worst.permanent > remaining.permanent:
        if remaining.permanent < LEAST_DELTA:
            return "Only a query whose keys are known fits: name them, such as domain = ['DE', 'FR']."
        delta = f"delta = {_round_down(remaining.permanent)}"
    before, after = "", ""
    if clause.implied:  # standard SQL has no WITH (…): write the clause, and say where
        before, after = f"{clause} ", " in place of LIMIT" if clause.form == "limit" else " at its end"
    if worst.refundable <= remaining.refundable:
        return f"{before}WITH ({delta}){after} would fit."
    # cheaper queries of the same kind: a smaller bound of ALL PRIVATE, fewer keys, fewer partitions, a smaller epsilon
    fits = []
    # ALL PRIVATE costs an item for each measure of each group that a unit can be in; without measures, of each group.
    bound = affordable // len(plan.query.measures or [None])
    if clause.shape == "all" and bound:
        fits.append(f"{before}WITH (max_groups_contributed = {bound}){after} at this epsilon")
    # The most keys whose items are affordable: plan.items() rises with k.
    keys = bisect_right(range(1, plan.k + 1), affordable, key=plan.items)
    if clause.shape == "top" and keys and plan.takes(keys, plan.epsilon.value):
        options = ", ".join(filter(None, [f"k_bar = {keys}" if clause.is_adaptive else "", delta]))
        top = f"TOP {'ADAPTIVE' if clause.is_adaptive else keys} PRIVATE"
        short = f"LIMIT {keys}" if clause.implied else top
        fits.append(f"{f'{top} WITH ({options}){after}' if options else short} at this epsilon")
    per_partition = plan.mechanism_plan.price.items(plan.k)
    if plan.spec.charged_partitions > 1 and affordable >= per_partition:
        with_delta = f" WITH ({delta})" if delta else ""
        fits.append(f"{affordable // per_partition} of the {plan.spec.rows.partitions} partitions{with_delta}")
    epsilon = _round_down(find_epsilon_within(remaining, plan.worst_items))
    if Fraction(epsilon) >= least_epsilon.value and plan.takes(plan.k, Fraction(epsilon)):
        these = f"at most {plan.k}" if clause.is_adaptive else "this one" if plan.k == 1 else f"these {plan.k}"
        fits.append(f"{before}WITH (epsilon = {epsilon}{delta and ', '}{delta}){after} for {these}")
    return f"{' or '.join(fits)} would fit." if fits else "What is left is not enough for a single row."


def _round_down(value: Fraction) -> str:
    """Return a value in three digits that is not above it, as the options of a query are written."""
    if value <= 0:
        return "0"
    exponent = math.floor(math.log10(value)) - 2
    digits = math.floor(value / Fraction(10) ** exponent)
    while not digits % 10:
        digits, exponent = digits // 10, exponent + 1
    # 1e-7 rather than 0.0000001
    return f"{digits}e{exponent}" if exponent < _LEAST_EXPONENT else f"{float(digits * Fraction(10) ** exponent):.12g}"


def describe_plans(
    plans: Sequence[Plan],
    balance: Balance,
    *,
    is_wrapped: bool = False,
    consent: bool | None = None,
    is_verbose: bool = False,
) -> list[tuple[str, str]]:
    """Return the facts of each plan, how many such queries the budget still buys, and what all cost together.

    `is_wrapped` says that a SELECT is around the private queries, and `is_verbose` asks for the SQL of the engine, too.
    """
    facts = list[tuple[str, str]]()
    for number, plan in enumerate(plans, start=1):
        facts += [("private query", f"{number} of {len(plans)}")] if len(plans) > 1 else []
        facts += [fact for fact in plan.facts() if is_verbose or not fact[0].startswith(ENGINE_SQL)]
        if balance.by is not None and not plan.charged_values:
            facts.append(("charged to", plan.describe_charged(balance.by)))
        own = balance.of(plan.charged_values)
        facts += forecast(plan, own.remaining, times=1, cost=describe_cost(plan, balance), consent=consent).facts()
    if len(plans) > 1:
        facts.append(("together", describe_together(plans, balance)))
    if is_wrapped:
        facts.append(("around it", "a SELECT of the released rows, which costs nothing"))
    return facts


_TRIALS = 20
_LEAST_TRIALS, _DRAWS = 4, 50_000  # of noise: fewer trials where there are many groups, for EXPLAIN is free


def simulate_recall(plan: Plan, *, noise: Noise) -> Plan:
    """Return the plan with the recall of every mechanism that was considered, if its query guesses at the counts."""
    guess, k = plan.query.assumed, plan.query.clause.k
    if guess is None or k is None or plan.query.measures[0].bounds is not None:  # the guess is of units
        return plan
    domain, counts = plan.query.domain, guess.counts
    if isinstance(domain, LiteralDomain):  # those of whom nothing is said are candidates too
        candidates = len(domain.values)
        counts = (*counts[:candidates], *[0] * (candidates - len(counts)))
    considered = []
    for candidate in plan.considered:
        most = candidate.mechanism.most_simulated
        is_simulated = most is None or k * len(counts) <= most
        recall = expected_recall(candidate, counts, k=k, noise=noise) if is_simulated else candidate.recall
        considered.append(replace(candidate, recall=recall))
    return replace(plan, considered=tuple(considered))


def expected_recall(candidate: Candidate, guess: Sequence[int], *, k: int, noise: Noise) -> float:
    """Return the share of the k highest counts of the guess that are found, on the average of some trials.

    The guess falls; what ties with the k-th belongs to the top k. Its counts are of the groups that units keep, and of
    units in as many groups as the planner takes for typical. With partitions it is the guess for one of them.
    """
    wanted = min(k, len(guess))
    if not wanted:
        return 1.0
    mechanism, request, weights = candidate.mechanism, candidate.request, np.empty(0, np.int64)
    plan, counts = mechanism.plan(request), np.array(guess, np.int64)  # of one partition
    if mechanism.reads is Reads.LEADERS:
        counts = counts[: request.k_bar + 1]
    if mechanism.weighs and request.max_groups_contributed is not None:
        weights = counts * unit_weight(assume_groups_per_unit(request.max_groups_contributed))
    groups = Groups(counts, weights, others=tuple(np.zeros_like(counts) for _ in plan.price.others))
    trials = max(_LEAST_TRIALS, min(_TRIALS, _DRAWS // len(guess)))
    # a group that ties with the k-th is as good as it
    shares = [sum(guess[row] >= guess[wanted - 1] for row in plan.draw(groups, noise).rows) for _ in range(trials)]
    return sum(shares) / (trials * wanted)
