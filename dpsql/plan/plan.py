"""The plan of one private query: public in all its parts, and enough to carry the release out."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpsql.accounting import ZCDP, BoundedRange
from dpsql.mechanisms import LimitedDomain, NoisyCounts
from dpsql.quantities import Delta, Epsilon
from dpsql.sql.query import PrivateQuery
from dpsql.sql.rewrite import CountingQuery

__all__ = ["Plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be run, by which mechanism, and what it may cost at most; drawn without touching a row."""

    query: PrivateQuery
    counting: CountingQuery
    selection: LimitedDomain
    counts: NoisyCounts | None

    @property
    def mechanism(self) -> str:
        """The mechanism's name in SQL."""
        return self.selection.name

    @property
    def k(self) -> int:
        """How many keys are wanted."""
        return self.selection.k

    @property
    def k_bar(self) -> int:
        """How many of the exact leaders are read."""
        return self.selection.k_bar

    @property
    def epsilon(self) -> Epsilon:
        """The bounded-range epsilon of one item."""
        return self.selection.epsilon

    @property
    def delta(self) -> Delta:
        """The delta of this query."""
        return self.selection.delta

    @property
    def threshold_offset(self) -> Fraction:
        """How far above the (k_bar + 1)-th group's count a group must stand to have an even chance against BOTTOM."""
        return self.selection.threshold_offset

    @property
    def worst_items(self) -> int:
        """How many items are reserved: k draws, and k counts if they are released (fewer under a bound)."""
        return self.items(self.k)

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
        bound = self.selection.max_groups_contributed
        return [
            ("mechanism", self.mechanism),
            ("privacy unit", f"{self.query.unit_name} of {self.query.table}"),
            ("k", str(self.k)),
            ("k_bar", str(self.k_bar)),
            ("epsilon per item", str(self.epsilon)),
            ("delta", str(self.delta)),
            ("groups per unit", "not bounded" if bound is None else f"at most {bound}"),
            ("items at most", f"{self.worst_items} (charged: one for each key and count returned, and for BOTTOM)"),
            ("loss at most", str(self.worst_case)),
            ("threshold", f"{float(self.threshold_offset):.1f} units above group number {self.k_bar + 1}"),
            ("engine SQL", self.engine_sql),
        ]

    def __str__(self) -> str:
        return "\n".join(f"{name:18} {value}" for name, value in self.facts())
