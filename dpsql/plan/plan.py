"""The plan of one private query: public in all its parts, and enough to carry the release out."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpsql.accounting import ZCDP, BoundedRange
from dpsql.mechanisms import LimitedDomain, NoisyCounts, Peeling
from dpsql.quantities import Delta, Epsilon
from dpsql.sql.query import Listed, PrivateQuery
from dpsql.sql.rewrite import CountingQuery

__all__ = ["Plan", "rows_of"]


def rows_of(selection: LimitedDomain | Peeling) -> int | None:
    """Return how many groups the mechanism must see; None for every candidate of its domain."""
    return selection.k_bar + 1 if isinstance(selection, LimitedDomain) else None


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be run, by which mechanism, and what it may cost at most; drawn without touching a row.

    `stored` says that the ledger holds this answer for this analyst, who may see it again at no cost.
    """

    query: PrivateQuery
    counting: CountingQuery
    selection: LimitedDomain | Peeling
    counts: NoisyCounts | None
    max_groups_contributed: int | None
    stored: bool = False

    @property
    def mechanism(self) -> str:
        """The mechanism's name in SQL."""
        return self.selection.name

    @property
    def k(self) -> int:
        """How many keys are wanted."""
        return self.query.clause.k

    @property
    def k_bar(self) -> int:
        """How many of the exact leaders are read; 0 where every candidate of a known domain is."""
        return self.selection.k_bar if isinstance(self.selection, LimitedDomain) else 0

    @property
    def fresh(self) -> bool:
        """Whether the query wants new noise, charged anew, also where its answer is stored."""
        option = self.query.clause.options.get("fresh")
        return option is not None and option.value == "true"

    @property
    def epsilon(self) -> Epsilon:
        """The bounded-range epsilon of one item."""
        return self.selection.epsilon

    @property
    def delta(self) -> Delta:
        """The delta of this query."""
        return self.selection.worst_case.delta

    @property
    def threshold_offset(self) -> Fraction:
        """How far above the (k_bar + 1)-th group's count a group must stand to have an even chance against BOTTOM."""
        return self.selection.threshold_offset if isinstance(self.selection, LimitedDomain) else Fraction(0)

    @property
    def least_threshold(self) -> Fraction:
        """How many units a group needs at least for an even chance, by the policy's min_units; 0 without it."""
        return self.selection.least_threshold if isinstance(self.selection, LimitedDomain) else Fraction(0)

    @property
    def worst_items(self) -> int:
        """How many items are reserved: k draws, and k counts if they are released (fewer under a bound)."""
        return self.items(self.selection.k)

    def items(self, k: int) -> int:
        """Return how many items this query would cost at most if it asked for `k` keys."""
        return k + (0 if self.counts is None else self.counts.items(k))

    @property
    def item_loss(self) -> BoundedRange:
        """The guarantee of one item."""
        return BoundedRange(self.epsilon)

    @property
    def worst_case(self) -> ZCDP:
        """The loss that is reserved before a row is read."""
        return ZCDP(self.item_loss.rho * self.worst_items, self.delta)

    @property
    def engine_sql(self) -> str:
        """The SQL that the engine runs, its values as parameters."""
        return self.counting.sql

    def facts(self) -> list[tuple[str, str]]:
        """Return the plan as lines of name and value."""
        bound, bottom = self.max_groups_contributed, "" if self.query.domain is not None else ", and for BOTTOM"
        return [
            ("mechanism", self.mechanism),
            ("privacy unit", f"{self.query.unit_name} of {self.query.table}"),
            ("k", str(self.k)),
            *self._candidates(),
            ("epsilon per item", str(self.epsilon)),
            ("delta", str(self.delta)),
            ("groups per unit", "not bounded" if bound is None else f"at most {bound}"),
            ("items at most", f"{self.worst_items} (charged: one for each key and count returned{bottom})"),
            ("loss at most", str(self.worst_case)),
            *self._stored(),
            ("engine SQL", self.engine_sql),
        ]

    def _stored(self) -> list[tuple[str, str]]:
        if not self.stored:
            return []
        if self.fresh:
            return [("stored", "answered before; fresh = true draws new noise and is charged")]
        return [("stored", "answered before; asking again shows that answer and costs nothing")]

    def _candidates(self) -> list[tuple[str, str]]:
        """Return what says which keys take part and what they must beat."""
        if isinstance(self.selection, Peeling):
            domain = self.query.domain
            listed = f"{len(domain.values)} values of the query" if isinstance(domain, Listed) else "a public column"
            return [("domain", f"{listed}; every one takes part, also with no unit at all")]
        threshold = f"{float(self.threshold_offset):.1f} units above group number {self.k_bar + 1}"
        if self.least_threshold:
            threshold += f", and at least {float(self.least_threshold):.1f} units"
            threshold += f" (the policy's min_units = {self.selection.min_units})"
        return [("k_bar", str(self.k_bar)), ("threshold", threshold)]

    def __str__(self) -> str:
        return "\n".join(f"{name:18} {value}" for name, value in self.facts())
