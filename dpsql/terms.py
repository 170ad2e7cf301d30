"""The terms of a session, worked out once from the policy.

Terms say what may be spent, and what a query costs by default.

Options of a query that the policy limits are read here, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Self

from dpsql.accounting import (
    ZCDP,
    ApproximateDP,
    BoundedRange,
    BudgetVector,
    Certificate,
    CertificateFilter,
    CertificateTerms,
    Loss,
    OptimalFilter,
    Periods,
    PureFilter,
    PureLoss,
    Steps,
    TheoremTwoFilter,
    item_epsilon,
    rho_of_total,
    total_after,
)
from dpsql.errors import LedgerError, PolicyError, Refusal, UsageError
from dpsql.policy import Analyst, Budget, Limits, Policy, PrivateTable
from dpsql.policy.settings import UNLISTED
from dpsql.quantities import Delta, Epsilon
from dpsql.sql.ir.statements import Option

CONVERSION_SHARE = Fraction(1, 2)  # of the total delta; the rest is the pool that queries draw from (`maths.md` 4)
_DIGITS = 4
_LIMITED = "The policy sets the ceilings."


@dataclass(frozen=True, slots=True)
class Sublimit:
    """Limit of one analyst within the total; `name` is that of the account, which unnamed analysts share."""

    name: str
    budget: BudgetVector


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms of a session: the total as (epsilon, delta) and in the currencies of the certificate, and the defaults.

    `tables` has the private tables of the policy by name. `account` is the limit of the analyst, besides the total,
    which applies to everybody. For a named analyst without a limit it equals the total, so that their queries are
    recorded under their name; it is None for unnamed analysts without a limit. The defaults are those of the analyst.
    With `periods`, everything is granted again in each. `rule` is the filter of a certificate other than zcdp. Results
    that depend on rows are returned on the grid of `answer_grid_ms`. `earlier_delta` is the default delta before 0.12,
    when an analyst's limit had all of the total's delta by default; None where it is the same. `min_units` are those
    that a query states for itself, besides those of its tables. `budget_by` is the column whose values have a budget
    each, as table.column; None without one.
    """

    total: ApproximateDP
    budget: BudgetVector
    epsilon: Epsilon
    delta: Delta
    limits: Limits
    tables: Mapping[str, PrivateTable]
    account: Sublimit | None = None
    periods: Periods | None = None
    rule: CertificateFilter | None = None
    answer_grid_ms: int | None = None
    earlier_delta: Delta | None = None
    min_units: int = 1
    budget_by: str | None = None

    @property
    def uses_known_names(self) -> bool:
        """Whether queries use known names by default: not where accounts share answers, which are then to agree."""
        return not self.limits.share_replays

    @property
    def whose(self) -> str:
        """What percentages are of: the budget, or the share of an account with a limit below it."""
        own = self.account
        return "the budget" if own is None or own.budget == self.budget else f"the share of {own.name}"

    @property
    def has_share(self) -> bool:
        """Whether the analyst may run queries that are charged."""
        return self.account is None or self.account.budget.refundable > 0

    @property
    def certified(self) -> CertificateTerms:
        """The certificate and what it fixes."""
        return CertificateTerms() if self.rule is None else self.rule.certified

    @property
    def certificate(self) -> Certificate:
        """Certificate that proves the total."""
        return self.certified.certificate

    @property
    def pool(self) -> Delta:
        """The deltas of all queries together, as many of them as there may be."""
        each = self.certified.delta
        return Delta(self.budget.permanent if each is None else each.value * self.budget.permanent)

    @property
    def nothing(self) -> Loss:
        """The loss of a statement that reads no private row."""
        if self.rule is None:
            return ZCDP.nothing()
        none = Delta(0)
        if self.certificate is Certificate.pure:
            return PureLoss(Fraction(0), none)
        return Steps(0, BoundedRange(self.epsilon), none)

    @classmethod
    def of_policy(cls, policy: Policy, analyst: str | None = None) -> Self:
        """Work out the terms of an analyst, or of one who gives no name.

        Raises `Refusal` for an analyst who may not ask, and `PolicyError` for a limit that cannot buy what it is
        meant to buy.
        """
        grant, own = policy.budget, policy.analyst(analyst)
        if own is None:
            terms = cls.of_total(policy)
            return terms if analyst is None else replace(terms, account=Sublimit(analyst, terms.budget))
        account = Sublimit(analyst or UNLISTED, compute_limit(own, grant))
        if not own.has_share:
            return replace(cls.of_total(policy), account=account)
        place = f"analysts.{analyst if analyst in policy.analysts else UNLISTED}"
        queries = own.queries or grant.queries
        terms = cls._of(policy, account, items=own.items or grant.items, queries=queries, place=place)
        if own.delta is not None or terms.rule is not None:
            return terms
        return replace(terms, earlier_delta=Delta(terms.budget.permanent / queries))

    @classmethod
    def of_total(cls, policy: Policy) -> Self:
        """Work out the terms for the whole total; refuse a total that cannot buy what the policy plans."""
        grant = policy.budget
        return cls._of(policy, None, items=grant.items, queries=grant.queries, place="budget")

    @classmethod
    def _of(cls, policy: Policy, account: Sublimit | None, *, items: int, queries: int, place: str) -> Self:
        total = ApproximateDP(policy.budget.epsilon, policy.budget.delta)
        rule = _choose_filter(policy, total)
        budget = compute_budget(total) if rule is None else rule.limit
        limit = budget if account is None else account.budget
        certified = CertificateTerms() if rule is None else rule.certified
        epsilon = _spread_over_items(limit.refundable, items, certified=certified)
        if epsilon < policy.limits.min_epsilon.value:
            reason = f"The budget cannot buy {items} items of at least epsilon {policy.limits.min_epsilon}."
            hint = "Plan for fewer items, or grant a larger epsilon."
            raise PolicyError("policy-items", reason, hint=hint, place=policy.where(f"{place}.items"))
        tables = {name: table for name, table in policy.tables.items() if isinstance(table, PrivateTable)}
        return cls(
            total=total,
            budget=budget,
            epsilon=Epsilon(min(epsilon, policy.limits.max_epsilon.value)),
            delta=certified.delta or Delta(limit.permanent / queries),
            limits=policy.limits,
            tables=tables,
            account=account,
            periods=None if policy.budget.period is None else Periods(policy.budget.period, policy.budget.periods),
            rule=rule,
            answer_grid_ms=policy.engine.answer_grid_ms,
            budget_by=next((f"{name}.{table.budget_by}" for name, table in tables.items() if table.budget_by), None),
        )

    def after(self, periods: int) -> ApproximateDP | None:
        """Return what holds in all after so many periods, rounded up; None if nothing does."""
        return total_after(periods, self.total, budget=self.budget, rule=self.rule)

    def held_to(self, certified: CertificateTerms) -> Self:
        """Return these terms with the epsilon and delta that a ledger fixed when it was made.

        They may differ from what the policy comes to in the last digit, by the version that computed them. Raises
        `LedgerError` where the policy's ceilings have come to exclude them.
        """
        rule, limits, epsilon = self.rule, self.limits, certified.epsilon
        if epsilon is None or not isinstance(rule, TheoremTwoFilter | OptimalFilter):
            return self
        delta = certified.delta or self.delta
        # only Theorem 2 fixes a delta; with another certificate each query names its own
        is_over = certified.delta is not None and limits.max_delta is not None and delta > limits.max_delta
        if not limits.min_epsilon <= epsilon <= limits.max_epsilon or is_over:
            reason = f"The ledger fixes epsilon {epsilon} for an item, which the policy's limits exclude, or its delta."
            raise LedgerError("ledger-certificate", reason, hint="Restore the policy's limits.")
        if isinstance(rule, TheoremTwoFilter):
            return replace(self, rule=replace(rule, each=epsilon, delta=delta), epsilon=epsilon, delta=delta)
        return replace(self, rule=replace(rule, each=epsilon), epsilon=epsilon)


def compute_limit(own: Analyst, grant: Budget) -> BudgetVector:
    """Return an analyst's limit as the filter counts it.

    Without a delta of its own it has the same fraction of the delta that queries draw from as of epsilon. The rest of
    delta pays for the conversion to epsilon, which is that of the total. Without an epsilon it is nothing.
    """
    epsilon, certificate = own.epsilon, Certificate(grant.certificate)
    if epsilon is None:
        return BudgetVector(0, 0, certificate=certificate)
    limit = compute_budget(ApproximateDP(epsilon, own.delta or grant.delta), certificate)
    if own.delta is not None:
        return limit
    fraction = min(epsilon.value / grant.epsilon.value, Fraction(1))
    return replace(limit, permanent=limit.permanent * fraction)


def compute_delta(own: Analyst, grant: Budget) -> Delta:
    """Return the delta of an analyst's limit: their own, or the same fraction of the total's as of epsilon."""
    if own.delta is not None or own.epsilon is None:
        return own.delta or grant.delta
    return Delta(grant.delta.value * min(own.epsilon.value / grant.epsilon.value, Fraction(1)))


def describe_falling_shares(policy: Policy, before: ApproximateDP) -> tuple[str, str] | None:
    """Return which accounts have less delta under a policy's total than before it, and what to write; None for none.

    These are accounts with the same fraction of delta as of epsilon, where epsilon grows by more than delta.
    """
    grant = policy.budget
    old = replace(grant, epsilon=before.epsilon, delta=before.delta)
    falling = {
        name: compute_delta(own, old)
        for name, own in policy.analysts.items()
        if own.has_share and compute_delta(own, old) > compute_delta(own, grant)
    }
    if not falling:
        return None
    keys = [f"[analysts.{name}] delta = {delta}" for name, delta in falling.items()]
    needed = max(delta.value / compute_delta(policy.analysts[name], grant).value for name, delta in falling.items())
    reason = f"With the larger total the limit of {' and '.join(falling)} falls to the fraction of delta as of epsilon."
    both = Delta(grant.delta.value * needed)
    return (
        reason,
        f"Write into the policy {' and '.join(keys)}, or a total that grows in both: [budget] delta = {both}.",
    )


def compute_budget(total: ApproximateDP, certificate: Certificate = Certificate.zcdp) -> BudgetVector:
    """Return a total as the filter counts it: half of delta pays for the conversion, half is for the queries.

    Under `pure` nothing is converted. The certificates that fix a number of items count in these, not in a total.
    """
    if certificate is Certificate.pure:
        return PureFilter(total).limit
    conversion, pool = _shares(total)
    return BudgetVector.of(ZCDP(rho_of_total(ApproximateDP(total.epsilon, conversion)), pool))


def _shares(total: ApproximateDP) -> tuple[Delta, Delta]:
    """Return the shares of delta that pay for the conversion and that queries draw from."""
    conversion = total.delta.value * CONVERSION_SHARE
    return Delta(conversion), Delta(total.delta.value - conversion)


def _choose_filter(policy: Policy, total: ApproximateDP) -> CertificateFilter | None:
    """Return the filter of the policy's certificate, None for zcdp; refuse what it cannot be."""
    grant, limits, certificate = policy.budget, policy.limits, Certificate(policy.budget.certificate)
    if certificate is Certificate.zcdp:
        return None
    if certificate is Certificate.pure:
        return PureFilter(total)
    # theorem2 and optimal count items, whose number and epsilon are fixed when the ledger is made
    own = next((name for name, analyst in policy.analysts.items() if analyst.has_share), None)
    if own is not None:  # a limit in epsilon, where the total is a number of items, which is fixed for all together
        reason = f"The certificate {grant.certificate} fixes items for all analysts together; none has an own limit."
        hint = "Leave the analyst out, or plan with the certificate zcdp or pure."
        raise PolicyError("policy-certificate", reason, hint=hint, place=policy.where(f"analysts.{own}"))
    conversion, pool = _shares(total)
    try:
        found = item_epsilon(certificate, grant.items, total=ApproximateDP(total.epsilon, conversion))
    except UsageError as error:
        reason, place = f"The budget cannot buy {grant.items} items. {error.reason}", policy.where("budget.items")
        raise PolicyError("policy-items", reason, hint="Plan for fewer items.", place=place) from None
    each = Epsilon(min(_rounded_down(found.value), limits.max_epsilon.value))
    if certificate is Certificate.optimal:
        return OptimalFilter(each, items=grant.items, pool=pool, conversion=conversion)
    delta = Delta(_rounded_down(pool.value / (2 * grant.queries)))  # the paper charges 2 delta a query
    delta = min(delta, limits.max_delta or delta)
    return TheoremTwoFilter(each, delta, items=grant.items, queries=grant.queries, conversion=conversion)


def _spread_over_items(limit: Fraction, items: int, *, certified: CertificateTerms) -> Fraction:
    """Return the epsilon of each of so many items that a limit is spread over."""
    if certified.epsilon is not None:
        return certified.epsilon.value
    if certified.certificate is Certificate.pure:
        return _rounded_down(limit / items)
    # rho of an item is epsilon^2 / 8, and so many of them are the limit: epsilon = sqrt(8 * limit / items)
    square = 8 * limit / items  # the items' rho, epsilon^2 / 8 each, must fit exactly: round down to four digits
    if square <= 0:
        return Fraction(0)
    grid = Fraction(10) ** (_DIGITS - 1 - math.floor(math.log10(square) / 2))
    steps = math.isqrt(math.floor(square * grid * grid))
    return steps / grid


def _rounded_down(value: Fraction) -> Fraction:
    """Return a positive value rounded down to four digits."""
    # Logarithms of whole numbers: the fraction itself may be below the least double.
    exponent = _DIGITS - 1 - math.floor(math.log10(value.numerator) - math.log10(value.denominator))
    grid = Fraction(10) ** exponent
    return math.floor(value * grid) / grid


def read_number(option: Option, name: str, *, bounds: tuple[Fraction, Fraction]) -> Fraction:
    """Return the option's exact value, within bounds."""
    low, high = bounds
    if isinstance(option.value, Decimal) and low <= (value := Fraction(option.value)) <= high:
        return value
    reason = f"{name} must be a number, at least {float(low):g} and at most {float(high):g}."
    hint = f"{_LIMITED} What is left of the budget may be less: SHOW BUDGET shows it."
    raise Refusal("option-range", reason, hint=hint, place=option.place)


def read_whole_number(option: Option | None, name: str, *, bounds: tuple[int, int]) -> int | None:
    """Return the option's value as a whole number within bounds, or None when it is not given."""
    if option is None:
        return None
    low, high = bounds
    if isinstance(option.value, Decimal) and option.value.as_tuple().exponent == 0 and low <= option.value <= high:
        return int(option.value)
    reason = f"{name} must be a whole number from {low} to {high}."
    raise Refusal("option-range", reason, hint=_LIMITED, place=option.place)
