"""The balance of a budget, as the analyst may see it: rho and delta, or the currencies of another certificate.

What was spent so far is no guarantee, and no running epsilon; the guarantee is the total (`maths.md` 2.4).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from functools import partial

from dpsql.accounting import (
    NO_RISE,
    ApproximateDP,
    BudgetState,
    BudgetVector,
    Certificate,
    Rise,
    add_largest,
    add_worst_case,
    compute_used_share,
    fold_values,
    format_percent,
    item_price,
    measure_rise,
    round_down,
    round_up,
    to_percent,
)
from dpsql.display import Meter, NotebookRepr, Part, budget_html
from dpsql.errors import UsageError
from dpsql.ledger.base import FAILED, compute_remaining
from dpsql.ledger.base_ledger import Ledger
from dpsql.ledger.record import Calendar, Entry, sum_entries
from dpsql.policy import Policy
from dpsql.policy.settings import UNLISTED
from dpsql.quantities import Epsilon
from dpsql.receipt import format_share
from dpsql.terms import Terms, compute_limit

_MOST_SHOWN = 8  # values in words
_UNNAMED = "\0"  # no query can name this value
_SHARE = "percent of the budget"
_STORED, _PUBLISHED = "stored answers (free)", "published tables (free)"
_LARGER = {  # what has used more, where it is the currency that is never refunded
    "delta": "names that nobody listed have",
    "queries": "the number of queries has",
}


@dataclass(frozen=True, slots=True)
class CurrencyBalance:
    """Exact amounts of one currency of a budget; `remaining` is what further queries may use.

    It is granted - spent - reserved, or less for an analyst where others have left less of the total.
    """

    granted: Fraction
    spent: Fraction
    reserved: Fraction
    remaining: Fraction


@dataclass(frozen=True, slots=True)
class Tile:
    """How many of one usual query of a dashboard a budget buys, each at its worst case, with the policy's settings.

    `granted` fit into the whole budget. `spent` of them no longer fit because of what was charged, and `reserved`
    because of queries that are open. `remaining` still fit. `one` and `many` are what such queries are called.
    """

    name: str
    one: str
    many: str
    granted: int
    spent: int
    reserved: int
    remaining: int


@dataclass(frozen=True, slots=True)
class Balance(NotebookRepr):
    """Balance: the total guarantee, and what is left of it, or of the limit of the `analyst`.

    `refunded` is the currency of the `certificate` whose unused part is returned, `gone` the one that is spent once a
    query is admitted; `items` of the default `epsilon` are left. `answers` are free to run again, and `published`
    tables free to read. With periods, amounts are those of the current one. Where each value of the column `by` has a
    budget, amounts are those of a query about all values, and `values` has the balance of each value that was named.

    >>> print(session.budget)
    5 % of the budget is used, 95 % is left
    enough, at the worst, for any one of these:
         9  lists of names (TOP 10)
         4  lists of names with counts (TOP 10)
        96  totals
         8  series of 12 months
    free: 1 stored answer of this data version
    guarantee: (1, 1e-06)-differential privacy for every privacy unit, over all queries
    """

    granted: ApproximateDP
    refunded: CurrencyBalance
    gone: CurrencyBalance
    epsilon: Epsilon
    items: int
    analyst: str | None = None
    calendar: Calendar | None = None
    certificate: Certificate = Certificate.zcdp
    by: str | None = None
    values: Mapping[str, Balance] = field(default_factory=dict)
    unnamed: Balance | None = None
    answers: int | None = None
    published: int = 0
    terms: Terms | None = field(default=None, repr=False, compare=False)

    def of(self, values: Iterable[str]) -> Balance:
        """Return the balance of a query of these values: of each currency that of the value with the least left."""
        balances = [self.values.get(value, self.unnamed or self) for value in values]
        if not balances:
            return self
        return replace(
            min(balances, key=lambda each: each.refunded.remaining),
            gone=min((each.gone for each in balances), key=lambda each: each.remaining),
        )

    @property
    def rho(self) -> CurrencyBalance:
        """The rho, which only the certificate zcdp counts."""
        return self._counted("rho")

    @property
    def delta(self) -> CurrencyBalance:
        """The delta, which the certificate theorem2 does not count."""
        return self._counted("delta")

    def _counted(self, name: str) -> CurrencyBalance:
        for currency, account in zip(self.certificate.currencies, (self.refunded, self.gone), strict=True):
            if currency == name:
                return account
        reason = f"The certificate {self.certificate.value} counts no {name}."
        raise UsageError("wrong-certificate", reason, hint="Read balance.refunded and balance.gone.")

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """How many of each usual query fit, such as TOP 10 with counts, whichever private table it is asked of.

        Each number is for that query alone, at its worst case on the table that costs most.
        """
        if self.terms is None:
            return ()
        from dpsql.report.tile_prices import price_tiles

        state = BudgetState(self.refunded.spent, self.gone.spent, self.refunded.reserved)
        granted, reserved = self.limit, compute_remaining(self.limit, state)
        spent = compute_remaining(self.limit, replace(state, reserved=Fraction(0)))
        found = []
        for tile in price_tiles(self.terms):
            whole, unspent, free, left = (
                min(count_admitted(amounts, price, loss=price) for price in tile.prices)
                for amounts in (granted, spent, reserved, self.remaining)
            )
            found.append(Tile(tile.name, tile.one, tile.many, whole, whole - unspent, unspent - free, left))
        return tuple(found)

    @property
    def queries(self) -> int:
        """How many times TOP 10 without counts still fits at its worst."""
        return next((tile.remaining for tile in self.tiles if tile.name == "names"), 0)

    @property
    def remaining(self) -> BudgetVector:
        """Amounts that further queries may use."""
        return BudgetVector(self.refunded.remaining, self.gone.remaining, certificate=self.certificate)

    @property
    def limit(self) -> BudgetVector:
        """Amounts granted to this account, in the current period if there are periods."""
        return BudgetVector(self.refunded.granted, self.gone.granted, certificate=self.certificate)

    @property
    def used(self) -> Fraction:
        """Used share of the grant: of the currency of which more is spent, without what is reserved.

        It is exact; `percent_used` is for people.
        """
        return compute_used_share(BudgetState(self.refunded.spent, self.gone.spent), self.limit)

    @property
    def percent_used(self) -> Decimal:
        """The used share in hundredths of a percent, as it is shown."""
        return to_percent(round_up(self.used))

    @property
    def percent_reserved(self) -> Decimal:
        """What reservations add to the used share if they are charged in full, as it is shown."""
        spent = BudgetState(self.refunded.spent + self.refunded.reserved, self.gone.spent)
        return to_percent(round_up(compute_used_share(spent, self.limit))) - self.percent_used

    @property
    def left(self) -> Fraction:
        """Share of the grant that further queries may use: of the currency of which less is left."""
        return self.remaining.least_share_of(self.limit)

    @property
    def others(self) -> Fraction:
        """Share of the account's limit that it cannot use, since others drew on the total: the most of a currency."""
        if self.analyst is None or (self.calendar is not None and self.calendar.is_over):
            return Fraction(0)
        parts = [part for part in (self.refunded, self.gone) if part.granted]
        rest = ((part.granted - part.spent - part.reserved - part.remaining) / part.granted for part in parts)
        return max([Fraction(0), *rest])

    @property
    def percent_left(self) -> Decimal:
        """The share that is left, as it is shown."""
        return to_percent(round_down(self.left))

    @property
    def has_share(self) -> bool:
        """Whether something was granted: an analyst of whom the policy says epsilon = 0 has no share of the budget."""
        return self.refunded.granted > 0

    def measure(self, cost: BudgetVector) -> Rise:
        """Return by how much a query of this cost raises the used share, which may be more than all of the limit.

        More than the limit was used where it was lowered since, and more than 1 of it does not fit.
        """
        spent = BudgetVector(self.refunded.spent, self.gone.spent, certificate=self.certificate)
        return Rise.between(*(amounts.share_of(self.limit) for amounts in (spent, spent + cost)))

    def table_rows(self) -> list[tuple[str, float, float, float, float]]:
        """Return the rows of SHOW BUDGET: first the share in percent, as it is shown, then each currency and items."""
        used, reserved, left = map(float, (self.percent_used, self.percent_reserved, self.percent_left))
        return [(_SHARE, 100.0, used, reserved, left), *self.rows()]

    def tile_rows(self) -> list[tuple[str, float, float, float, float]]:
        """Return the rows of SHOW BUDGET that follow all others: how many of each usual query fit."""
        return [
            (tile.many, float(tile.granted), float(tile.spent), float(tile.reserved), float(tile.remaining))
            for tile in self.tiles
        ]

    def free_rows(self) -> list[tuple[str, float, float, float, float]]:
        """Return the last rows of SHOW BUDGET: what is free already, of which nothing can be used up."""
        counts = [(_STORED, self.answers)] if self.answers is not None else []
        counts += [(_PUBLISHED, self.published)] if self.published else []
        return [(name, float(count), 0.0, 0.0, float(count)) for name, count in counts]

    def rows(self) -> list[tuple[str, float, float, float, float]]:
        """Return one row for each currency and for items: name, granted, spent, reserved, remaining, in 6 digits.

        The remaining amount is rounded down, the others to the nearest.
        """
        first, second = self.certificate.currencies
        measures = [(first, self.refunded, Fraction(1)), (second, self.gone, Fraction(1))]
        if first != "items":
            item = item_price(self.certificate, self.epsilon)
            measures.append((f"items of epsilon {self.epsilon}", self.refunded, item))
        rows = []
        for name, part, unit in measures:
            granted, spent, reserved = (_round(amount / unit) for amount in (part.granted, part.spent, part.reserved))
            rows.append((name, granted, spent, reserved, _round(part.remaining / unit, down=True)))
        return rows

    def __str__(self) -> str:
        """Return what is left in words: lines of the budget, its usual queries, its period and its guarantee."""
        share, *notes = self.list_notes()
        head, counts = self._describe_tiles()
        width = max((len(count) for count, _ in counts), default=0) + 4
        fits = [f"{head}:" if counts else head, *(f"{count:>{width}}  {what}" for count, what in counts)]
        return "\n".join([share, *filter(None, fits), *self._describe_free(), *notes])

    def _describe_tiles(self) -> tuple[str, list[tuple[str, str]]]:
        """Return a head, and below it how many of each usual query fit; only a head where none does."""
        tiles = self.tiles if self.has_share else ()
        if not any(each.remaining for each in tiles):
            return "not enough for any of the usual queries" if tiles else "", []
        counted = "" if self.by is None else f" about all values of {self.by}"
        counts = [(f"{each.remaining:,}", each.one if each.remaining == 1 else each.many) for each in tiles]
        return f"enough, at the worst, for any one of these{counted}", counts

    def _describe_free(self) -> list[str]:
        """Return what is free to ask, as one line; none where nothing is."""
        answers = "answer" if self.answers == 1 else "answers"
        tables = "table" if self.published == 1 else "tables"
        found = [f"{self.answers:,} stored {answers} of this data version"] if self.answers else []
        found += [f"{self.published:,} published {tables}"] if self.published else []
        return [f"free: {' and '.join(found)}"] if found else []

    def list_notes(self) -> list[str]:
        """Return the lines of the balance without the usual queries and what is free: first the share, last the total.

        In between are its period and its account.
        """
        periods = None if self.calendar is None else self.calendar.periods
        used, held, left = map(format_percent, (self.percent_used, self.percent_reserved, self.percent_left))
        held = f" {held} is held by queries that run or never ended," if self.percent_reserved else ""
        lines = [f"{used} of the budget is used,{held} {left} is left"]
        if self.others:
            # used and left may be of different currencies: what others take is the rest, so that the line adds up
            rest = max(100 - self.percent_used - self.percent_reserved - self.percent_left, Decimal(0))
            by = f"{self.analyst} used {used} of the budget"
            lines = [f"{by},{held} others used {format_percent(rest)}, and {left} is left"]
        if not self.has_share:
            lines = ["no share of the budget: public and published tables are free, and no other query is run"]
        lines += [] if self.calendar is None else [str(self.calendar)]
        lines += [] if self.analyst is None else [f"this is the budget of the account {self.analyst}"]
        if self.values:
            shares = [f"{value} {format_share(each.left, down=True)}" for value, each in sorted(self.values.items())]
            more_values = [f"{len(shares) - _MOST_SHOWN:,} more"] if len(shares) > _MOST_SHOWN else []
            lines.append(f"of each value that queries named: {', '.join([*shares[:_MOST_SHOWN], *more_values])}")
        span = ", over all queries" if periods is None else f" per {periods}, over all queries of these"
        return [*lines, f"guarantee: {self.granted} for every privacy unit{span}"]

    def details(self) -> list[str]:
        """Return the amounts of each currency, and the number of items of the default epsilon, as lines."""
        lines = [
            f"{name:5} granted {granted:.6g}, spent {spent:.6g}, reserved {reserved:.6g}, remaining {remaining:.6g}"
            for name, granted, spent, reserved, remaining in self.rows()[:2]
        ]
        return [*lines, f"about {self.items} more items at epsilon {self.epsilon}"]

    def _repr_html_(self) -> str:
        """Return the budget for a notebook: a bar, the words of the balance, and each currency behind details."""
        whole = Fraction(self.percent_used) / 100, Fraction(self.percent_reserved) / 100
        used = [Part("used", whole[0]), Part("used by others", self.others), Part("held", whole[1], now=True)]
        shown = Meter("budget", Fraction(1), used, self.left)
        meters = []
        for name, part in zip(self.certificate.currencies, (self.refunded, self.gone), strict=True):
            used = [Part("spent", part.spent), Part("held", part.reserved, now=True)]
            meters.append(Meter(name, part.granted, used, part.remaining))
        first, *notes = self.list_notes()
        head, counts = self._describe_tiles()
        fits = ": ".join(filter(None, [head, ", ".join(map(" ".join, counts))]))
        notes = [*filter(None, [fits]), *self._describe_free(), *notes]
        return budget_html(first, [shown], notes=notes, details=(meters, self.details()))


def compute_balance(
    terms: Terms,
    total: BudgetState,
    *,
    own: BudgetState | None = None,
    calendar: Calendar | None = None,
    session_terms: Terms | None = None,
) -> Balance:
    """Return the balance for the ledger's state and calendar, and that of the account where the terms have one.

    Queries are planned with the `session_terms`, where these are others: a ledger may be granted more meanwhile.
    """
    limit, state = (terms.budget, total) if terms.account is None or own is None else (terms.account.budget, own)
    of_total, of_own = compute_remaining(terms.budget, total), compute_remaining(limit, state)
    refundable = min(of_total.refundable, of_own.refundable)
    item = item_price(terms.certificate, terms.epsilon)
    permanent = min(of_total.permanent, of_own.permanent)
    return Balance(
        granted=terms.total,
        refunded=CurrencyBalance(limit.refundable, state.spent, state.reserved, refundable),
        gone=CurrencyBalance(limit.permanent, state.permanent, Fraction(0), permanent),
        epsilon=terms.epsilon,
        items=math.floor(refundable / item),
        analyst=None if terms.account is None else terms.account.name,
        calendar=calendar,
        certificate=terms.certificate,
        terms=session_terms or terms,
    )


def count_admitted(remaining: BudgetVector, worst: BudgetVector, *, loss: BudgetVector) -> int:
    """Return how many queries fit one after another, each reserved at `worst` and then settled at `loss`."""
    spare = remaining.refundable - worst.refundable
    # n queries fit if n - 1 losses leave room for one more worst case.
    admitted = math.floor(spare / loss.refundable) + 1 if spare >= 0 else 0
    return min(admitted, math.floor(remaining.permanent / loss.permanent)) if loss.permanent else admitted


def find_larger_part(balance: Balance) -> str:
    """Return what has used more of the budget where it is the currency that is never refunded, else ""."""
    refundable, permanent = (
        compute_used_share(state, balance.limit)
        for state in (BudgetState(balance.refunded.spent), BudgetState(permanent=balance.gone.spent))
    )
    return _LARGER[balance.certificate.currencies[1]] if refundable <= permanent and permanent else ""


def _round(amount: Fraction, *, down: bool = False) -> float:
    """Return an amount in six digits."""
    if not amount:
        return 0.0
    # Of both parts apart: math.log10 takes whole numbers of any size, and their quotient as a float may be 0.
    digit = math.floor(math.log10(abs(amount.numerator)) - math.log10(amount.denominator)) - 5  # the sixth one
    unit = Fraction(10) ** digit
    return float((math.floor(amount / unit) if down else round(amount / unit)) * unit)


def read_balance(ledger: Ledger, terms: Terms, *, values: Iterable[str] = ()) -> Balance:
    """Return the present balance of a ledger, or that of the account that the terms name.

    It is the balance of a query of these values or, without them, of a query of all.
    """
    named, name = tuple(values), None if terms.account is None else terms.account.name
    own, total = None if name is None else ledger.state(name, values=named), ledger.state(values=named)
    # after the states: a grant only ever adds, and a session that is open speaks of it too
    recorded = ledger.terms
    present = replace(terms, budget=recorded.budget, total=recorded.total)
    return compute_balance(present, total, own=own, calendar=recorded.calendar, session_terms=terms)


def read_balances(ledger: Ledger, terms: Terms) -> Balance:
    """Return the present balance of a ledger, or that of an account, with the number of its stored answers.

    It has that of each value that its queries, or the account's, have named.
    """
    name = None if terms.account is None else terms.account.name
    answers, published = ledger.count_answers(name), count_published(ledger)
    return replace(read_balance_by_values(ledger, terms), answers=answers, published=published)


def read_balance_by_values(ledger: Ledger, terms: Terms) -> Balance:
    """Return the present balance of a ledger, or of an account, with that of each value that its queries have named."""
    balance, name = read_balance(ledger, terms), None if terms.account is None else terms.account.name
    if terms.budget_by is None:
        return balance
    known = {value: read_balance(ledger, terms, values=(value,)) for value in ledger.states(name)}
    unnamed = read_balance(ledger, terms, values=(_UNNAMED,))
    return replace(balance, by=terms.budget_by, values=known, unnamed=unnamed)


def count_published(ledger: Ledger) -> int:
    """Return how many tables are published; several that were made under one name are one."""
    _, tables = ledger.tables()
    return len({table.name.lower() for table in tables if table.is_published})


@dataclass(frozen=True, slots=True)
class Spender:
    """Spent and reserved amounts of an account, None for unnamed analysts; `limit` is None if it may run no query."""

    name: str | None
    limit: BudgetVector | None
    state: BudgetState


@dataclass(frozen=True, slots=True)
class Spending:
    """The balance, the accounts that make it up, and all queries, oldest first.

    `rises` has by how much each query raised the used share of the balance, by its number.
    """

    balance: Balance
    spenders: tuple[Spender, ...]
    entries: tuple[Entry, ...]
    rises: Mapping[int, Rise]


def report_spending(
    policy: Policy, entries: Sequence[Entry], *, terms: Terms, calendar: Calendar | None = None
) -> Spending:
    """Return what the entries of a ledger add up to: for an analyst their own, on the terms of the total all of it.

    With a `calendar` the sums are those of its present period; the entries are those of all.
    """
    present = [entry for entry in entries if calendar is None or entry.period == calendar.number]
    over = calendar is not None and calendar.is_over
    # Behind the last period nothing is granted any more, which is as if all of it were spent.
    total = BudgetState(terms.budget.refundable, terms.budget.permanent) if over else sum_entries(present)
    if terms.account is None:
        balance = compute_balance(terms, total, calendar=calendar)
        spenders, rises = _list_spenders(policy, present, terms=terms), trace_rises(entries, terms.budget)
        return Spending(balance, spenders, tuple(entries), rises)
    name, limit = terms.account.name, terms.account.budget
    state = sum_entries(present, name)
    balance = compute_balance(terms, total, own=state, calendar=calendar)
    own, rises = [entry for entry in entries if entry.account == name], trace_rises(entries, limit, account=name)
    return Spending(balance, (Spender(name, limit, state),), tuple(own), rises)


def _list_spenders(policy: Policy, entries: Sequence[Entry], *, terms: Terms) -> tuple[Spender, ...]:
    """Return the accounts that may spend, and those that have spent."""
    may = [name for name, analyst in policy.analysts.items() if analyst.enabled and name != UNLISTED]
    # the total in force, which is smaller than the policy's until that is granted
    grant = replace(policy.budget, epsilon=terms.total.epsilon, delta=terms.total.delta)
    spenders = []
    for name in dict.fromkeys([*may, *(entry.account for entry in entries)]):
        state = sum_entries(entry for entry in entries if entry.account == name)
        own = None if name is None else policy.analysts.get(name, policy.analysts.get(UNLISTED))
        limit = terms.budget if own is None else compute_limit(own, grant)
        spenders.append(Spender(name, limit if own is None or own.enabled else None, state))
    return tuple(spenders)


def describe_outcome(entry: Entry) -> str:
    """Return what became of a query: open, failed, interrupted or answered."""
    if entry.settlement is None:
        return "open"
    # these words stand in place of the digest of an answer
    return entry.settlement.digest if entry.settlement.digest in {FAILED, "interrupted"} else "answered"


@dataclass(slots=True)
class _Period:
    """What was charged in a period: to all units, and to units of each value in the present epoch."""

    common: BudgetState = field(default_factory=BudgetState)
    values: dict[str, BudgetState] = field(default_factory=dict)
    epoch: int = 0

    def begin_epoch(self, epoch: int, limit: BudgetVector) -> Rise:
        """Charge the most of a value to all units if an epoch ended; what is open for values is then spent."""
        if epoch == self.epoch or not self.values:
            self.epoch = max(epoch, self.epoch)
            return NO_RISE
        before = compute_used_share(add_largest(self.common, self.values.values()), limit)
        self.common = fold_values(self.common, self.values.values())
        self.values, self.epoch = {}, epoch
        return Rise.between(before, compute_used_share(self.common, limit))

    def charge(self, entry: Entry, limit: BudgetVector, *, settles: bool, by_value: bool) -> Rise:
        """Reserve or settle an entry, and return by how much that raised the used share."""
        change = partial(_settle if settles else _reserve, entry)
        states = self.values if by_value else None
        rise = measure_rise(limit, self.common, change=change, states=states, values=entry.values)
        if entry.values:
            self.values |= {value: change(self.values.get(value, BudgetState())) for value in entry.values}
        else:
            self.common = change(self.common)
        return rise


def _reserve(entry: Entry, state: BudgetState) -> BudgetState:
    return add_worst_case(state, entry.worst_case)


def _settle(entry: Entry, state: BudgetState) -> BudgetState:
    freed = entry.worst_case.permanent - entry.permanent
    reserved = state.reserved - entry.worst_case.refundable
    return replace(state, spent=state.spent + entry.charged, reserved=reserved, permanent=state.permanent - freed)


def trace_rises(entries: Iterable[Entry], limit: BudgetVector, *, account: str | None = None) -> Mapping[int, Rise]:
    """Return by how much each entry raised the used share of the total or of an account, by the entry's number.

    Shares are of the present `limit`: those of a period add up to its used share, also where less was granted before.
    An entry that repeats another one changed nothing in the end: it has no rise, and no other has one of it.
    """
    every = [entry for entry in entries if account in {None, entry.account}]
    known = [entry for entry in every if not _changes_nothing(entry)]
    events = [(entry.number, entry.epoch, entry, False) for entry in known]
    events += [(each.settlement.number, each.settlement.epoch, each, True) for each in known if each.settlement]
    by_value = any(entry.values for entry in known)
    rises = {entry.number: NO_RISE for entry in every}
    periods, open_ = dict[int, _Period](), dict[int, Entry]()

    def fold(entry: Entry, epoch: int) -> None:
        folded = periods[entry.period].begin_epoch(epoch, limit)
        if folded.share:  # only what was open for values raises the share when it is charged to all
            first = next(each for each in open_.values() if each.values and each.period == entry.period)
            rises[first.number] += folded

    # as the ledger did: reserve and settle in the order of events, and fold values where an epoch ends between them
    for _, epoch, entry, settles in sorted(events, key=lambda event: event[0]):
        period = periods.setdefault(entry.period, _Period())
        fold(entry, epoch)
        was_folded = settles and entry.values and epoch != entry.epoch
        rise = NO_RISE if was_folded else period.charge(entry, limit, settles=settles, by_value=by_value)
        rises[entry.number] += rise
        if settles:
            del open_[entry.number]
        else:
            open_[entry.number] = entry
    for entry in open_.values():
        if entry.is_outdated:
            fold(entry, entry.epoch + 1)
    return rises


def _changes_nothing(entry: Entry) -> bool:
    """Return whether an entry repeats another one, and its reservation was not charged to all units in between."""
    repeats = entry.settlement is not None and entry.settlement.repeats is not None
    return repeats and not entry.charged and not entry.permanent
