"""Receipt of a statement: one line for the analyst, and the details in the terms of the accounting.

Every surface shows these words; none has its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from dpsql.accounting import (
    NO_RISE,
    ZCDP,
    BudgetVector,
    Certificate,
    Loss,
    Rise,
    Steps,
    add_losses,
    format_percent,
    round_down,
    round_up,
    to_percent,
)
from dpsql.display import plural, unit_noun
from dpsql.intervals import LEVEL, ValueNoise
from dpsql.quantities import Delta, Epsilon

NO_MECHANISM = "none"
_APART = (
    "numbers of different private queries are cut separately, so a quotient of them can be higher or lower than "
    "that of plain SQL"
)
REREAD = "answered before under 0.11's reading; asked again"
_NOTHING = ZCDP.nothing()
_MOST_LISTED = 4  # private queries whose rows the line says for each, and values
_SEVERAL = 2
_EMPTY = "''"  # the value that is an empty text
_OF_A_QUERY = frozenset(
    ["mechanism", "charged", "legs", "ended", "total", "used of each value"]
)  # details of each of several queries


@dataclass(frozen=True, slots=True)
class Total:
    """The released number of units in all groups of a query; `low` and `high` are the ends of its 95 % interval.

    The noise is discrete Gaussian of the `variance`. `unit` is the name of the privacy unit.

    >>> print(Total(12_345, Fraction(1_000), "user_id"))
    12,345 users in all groups (95 %: 12,283 to 12,407)
    """

    value: int
    variance: Fraction
    unit: str

    @property
    def low(self) -> int:
        """Lower end of the interval, at least 0."""
        return self.interval()[0]

    @property
    def high(self) -> int:
        """Upper end of the interval."""
        return self.interval()[1]

    def interval(self, level: float = LEVEL) -> tuple[int, int]:
        """Return the ends between which the exact number lies with probability `level`."""
        reach = ValueNoise(self.variance).reach(level)
        return max(0, self.value - reach), max(0, self.value + reach)

    def __str__(self) -> str:
        low, high = self.interval()
        return f"{self.value:,} {plural(unit_noun(self.unit))} in all groups ({LEVEL * 100:g} %: {low:,} to {high:,})"


@dataclass(frozen=True, slots=True)
class Receipt:
    """Receipt of one statement: what it released and cost; without private rows the mechanism is "none".

    Released: `answered` of the `wanted` keys, at most `k` (of each partition with PER), out of `k_bar` exact leaders,
    or of all groups if it is 0. `stopped_at_bottom`: fewer than k keys stood out. A key whose count is
    `threshold_offset` above that of the next group, or above 0, has an even chance. `chosen`: "k" or "k_bar", if the
    mechanism chose it in private. `legs`: what each part of the mechanism did. `total`: the number of units in all
    groups. `known` names of earlier answers took part, above an evidence line if `evident`; `known_before` of those
    returned were known.

    Charged: `items_charged` (a part of an item counts as one) of `epsilon` each, the query's `delta`, and in all
    `loss`, in the currencies of the `certificate`; `remaining` is left. The used share of the budget rose by `rise`;
    `outdone_by` says what has used more where it did not. About `more` such queries still fit. `charged_to`: values
    whose budgets paid. `replayed`: the answer was stored, and free. `reused`: it is part of another stored answer.
    `shared`: it may have been given to another analyst first. `reread`: 0.11 read the statement otherwise.

    In words: `bounds` of each unit, `bounded_by` groups, the time buckets that WHERE `cut`, `list_note` on groups that
    the ranking leaves out, `read_as` for standard SQL.

    The data: `sealed`: dpsql opened it itself, read-only. `isolation`: "process", "in_process" or "remote";
    `confinement`: what confines that process. `durable`: spending is recorded beyond the process.

    A statement with several private queries has the receipts of each as `parts`.

    >>> answer.receipt.items_charged, str(answer.receipt.epsilon)
    (4, '0.04283')
    >>> dict(answer.receipt.details())["charged"]
    '4 items of epsilon 0.04283: rho 0.000917204, delta 2.5e-08'
    """

    mechanism: str
    k: int
    k_bar: int
    epsilon: Epsilon | None
    delta: Delta
    threshold_offset: Fraction
    items_charged: int
    loss: Loss
    remaining: BudgetVector
    stopped_at_bottom: bool
    sealed: bool
    replayed: bool = False
    shared: bool = False
    durable: bool = True
    chosen: str = ""
    certificate: Certificate = Certificate.zcdp
    isolation: str = "in_process"
    confinement: tuple[str, ...] = ()
    answered: int = 0
    wanted: int = 0
    rise: Rise = NO_RISE
    outdone_by: str = ""
    more: int | None = None
    read_as: str = ""
    bounded_by: int | None = None
    bounds: str = ""
    cut: str = ""
    list_note: str = ""
    legs: str = ""
    charged_to: str = ""
    known: int = 0
    evident: bool = False
    known_before: int | None = None
    parts: tuple[Receipt, ...] = ()
    total: Total | None = None
    reread: bool = False
    reused: str = ""

    @property
    def used(self) -> Fraction:
        """By how much the answer raised the used share of the budget: the larger of the shares of its two currencies.

        `session.budget.used` is the sum over all answers and failures of the account in the present period, unless a
        limit was changed. Where the values of a column have budgets, `used_of` adds up for each value. It is exact;
        `percent_used` is for people.
        """
        return self.rise.share

    @property
    def percent_used(self) -> Decimal:
        """The same in hundredths of a percent, as it is shown."""
        return self.rise.percent

    def used_of(self, value: str) -> Rise:
        """Return the rise of the budget of one value, where the values of a column have budgets."""
        return self.rise.of(value)

    @classmethod
    def combine(cls, parts: Sequence[Receipt], *, more: int | None = None) -> Receipt:
        """Return the receipt of a statement with several private queries: sums, and their own receipts as parts.

        About `more` such statements still fit.
        """
        last, before = parts[-1], [each.known_before for each in parts if each.known]
        bounds = list(dict.fromkeys(each.bounds for each in parts if each.bounds))
        return replace(
            last,
            mechanism=", ".join(dict.fromkeys(each.mechanism for each in parts)),
            k=sum(each.k for each in parts),
            delta=sum((each.delta for each in parts[1:]), parts[0].delta),
            items_charged=sum(each.items_charged for each in parts),
            loss=add_losses([each.loss for each in parts]),
            stopped_at_bottom=any(each.stopped_at_bottom for each in parts),
            replayed=all(each.replayed for each in parts),
            answered=sum(each.answered for each in parts),
            wanted=sum(each.wanted for each in parts),
            rise=sum((each.rise for each in parts), NO_RISE),
            outdone_by=next((each.outdone_by for each in parts if each.outdone_by), ""),
            more=more,
            chosen="",
            read_as=", ".join(dict.fromkeys(each.read_as for each in parts if each.read_as)),
            bounded_by=max((each.bounded_by for each in parts if each.bounded_by is not None), default=None),
            bounds="; ".join([*bounds, _APART] if bounds else []),
            cut="; ".join(dict.fromkeys(each.cut for each in parts if each.cut)),
            list_note="; ".join(dict.fromkeys(each.list_note for each in parts if each.list_note)),
            legs="",
            charged_to="; ".join(dict.fromkeys(each.charged_to for each in parts if each.charged_to)),
            known=sum(each.known for each in parts),
            evident=bool(before) and all(each.evident for each in parts if each.known),
            known_before=None if None in before else sum(each or 0 for each in before),
            parts=tuple(parts),
            total=None,
            reread=any(each.reread for each in parts),
            reused="; ".join(dict.fromkeys(each.reused for each in parts if each.reused)),
        )

    @classmethod
    def free(
        cls,
        remaining: BudgetVector,
        *,
        sealed: bool,
        nothing: Loss = _NOTHING,
        isolation: str = "in_process",
        confinement: tuple[str, ...] = (),
    ) -> Receipt:
        """Return the receipt of a statement that reads no private row, and costs `nothing`."""
        return cls(
            mechanism=NO_MECHANISM,
            k=0,
            k_bar=0,
            epsilon=None,
            delta=nothing.delta,
            threshold_offset=Fraction(0),
            items_charged=0,
            loss=nothing,
            remaining=remaining,
            stopped_at_bottom=False,
            sealed=sealed,
            certificate=remaining.certificate,
            isolation=isolation,
            confinement=confinement,
        )

    def __str__(self) -> str:
        """Return one line: the keys that were returned, the budget used, and how many such queries still fit."""
        if self.mechanism == NO_MECHANISM:
            return "no private row was read; nothing was charged"
        parts = [f"answered {self.answered} of {self.wanted}"]
        if self.known and self.answered and self.known_before is not None:
            before = "all" if self.known_before == self.answered else self.known_before or "none"
            parts.append(f"{before} of them known before")
        if self.chosen == "k":
            parts = [f"answered {self.answered}, a number that the query chose" if self.answered else "answered 0"]
        parts += [f"read as {self.read_as}"] if self.read_as else []
        parts.append(self._describe_used())
        parts += [self.reused] if self.reused else []
        parts += [REREAD] if self.reread else []
        if self.more is not None:
            parts.append(f"about {self.more:,} more like this" if self.more else "no other like this fits")
        if self.parts:
            if len(self.parts) <= _MOST_LISTED:
                parts[0] = " and ".join(f"{each.answered} of {each.wanted}" for each in self.parts)
                parts[0] = f"answered {parts[0]}"
            parts.insert(0, f"{len(self.parts)} private queries")
        if not self.durable:
            parts.append("trial ledger, forgotten when the session ends")
        return "; ".join(parts)

    def _describe_used(self) -> str:
        """Return by how much the used share rose; of several values with budgets, the most if they are many."""
        if self.replayed:
            return "stored answer, nothing was charged"
        of_values = self._list_values()
        if not of_values or None in self.rise.by_value:
            return describe_rise(self.percent_used, self.outdone_by)
        if len(of_values) > _MOST_LISTED:
            return f"used at most {format_percent(max(of_values.values()))} of the budgets of {len(of_values)} values"
        of_each = [f"{format_percent(percent)} of the budget of {value}" for value, percent in of_values.items()]
        return f"used {' and '.join(of_each)}"

    def details(self) -> list[tuple[str, str]]:
        """Return what the line leaves out, as pairs of name and value: mechanism, loss, what remains, isolation."""
        if self.parts:
            each = [(f"query {at}", part.details()) for at, part in enumerate(self.parts, start=1)]
            own = [(f"{query}: {name}", value) for query, pairs in each for name, value in pairs if name in _OF_A_QUERY]
            return [*own, *((name, value) for name, value in each[-1][1] if name not in _OF_A_QUERY)]
        pairs = [("mechanism", self.mechanism)]
        if self.mechanism == NO_MECHANISM:
            return [*pairs, ("remaining", str(self.remaining)), *self._describe_data()]
        shared = "answers are shared among analysts; the guarantee is that of the data set"
        trial = "in memory, for trials: what was spent is forgotten when the session ends"
        line = "above a line that their noise alone passes in 1 of 20 answers" if self.evident else "rows or not"
        known = f"{self.known:,} that earlier answers released took part without a threshold, {line}"
        items = "1 item" if self.items_charged == 1 else f"{self.items_charged} items"
        charge = str(self.loss) if isinstance(self.loss, Steps) else f"{items} of epsilon {self.epsilon}: {self.loss}"
        facts = [
            ("charged", "" if self.replayed else charge),
            ("charged to", "" if self.replayed else self.charged_to),
            ("used of each value", self._describe_values()),
            ("legs", self.legs),
            ("ended", self._describe_ending()),
            ("known names", known if self.known else ""),
            ("total", "" if self.total is None else str(self.total)),
            ("bounds", self.bounds),
            ("remaining", str(self.remaining)),
            ("accounted in", self.certificate.words),
            ("shared", shared if self.shared else ""),
            ("ledger", "" if self.durable else trial),
        ]
        pairs += [(name, value) for name, value in facts if value]
        return [*pairs, *self._describe_data()]

    def _list_values(self) -> dict[str, Decimal]:
        """Return the rise in percent of each value that a query named, as the value is shown."""
        return {value or _EMPTY: rise.percent for value, rise in self.rise.by_value.items() if value is not None}

    def _describe_values(self) -> str:
        """Return by how much the used share of each value rose; values that were not named before come last."""
        if self.replayed or len(self.rise.by_value) < _SEVERAL:
            return ""
        named = [f"{value} {format_percent(percent)}" for value, percent in self._list_values().items()]
        others = self.rise.by_value.get(None)
        return ", ".join([*named, *([] if others is None else [f"others {format_percent(others.percent)}"])])

    def _describe_ending(self) -> str:
        """Return how the answer ended, and what was chosen for it."""
        what, each, _ = self.chosen.partition(" of each")
        if each:
            some = "; in some partitions nothing more stands out" if self.stopped_at_bottom else ""
            return f"{what} was chosen for each partition{some}"
        if self.chosen == "k":
            gap = "its gap was confirmed"
            if self.stopped_at_bottom:
                gap = "the gap after it was not confirmed: nothing is returned"
            return f"k = {self.k} was chosen; {gap}"
        ending = "all k were returned"
        if self.stopped_at_bottom:
            at_bottom = self.k_bar and not self.legs
            ending = "stopped at BOTTOM: nothing else stands out" if at_bottom else "nothing else stands out"
        elif not self.k_bar and not self.threshold_offset:
            ending = "every candidate of the domain took part"
        return f"k_bar = {self.k_bar} was chosen; {ending}" if self.chosen else ending

    def _describe_data(self) -> list[tuple[str, str]]:
        places = {"in_process": "in this process", "process": "in a process of its own", "remote": "by another program"}
        place = places.get(self.isolation, self.isolation)
        return [("data opened", f"{place}, read-only and locked" if self.sealed else place)]


def describe_rise(percent: Decimal, outdone_by: str = "") -> str:
    """Return by how much the used share of a budget rose; where it did not, what has used more of the budget."""
    if percent:
        return f"used {format_percent(percent)} of the budget"
    return f"0 % more: {outdone_by} used more of the budget" if outdone_by else "used 0 % more of the budget"


def format_share(share: Fraction, *, down: bool = False) -> str:
    """Return a share in hundredths of a percent, rounded up, or `down`: what is used up, what is left down."""
    return format_percent(to_percent((round_down if down else round_up)(max(Fraction(0), share))))
