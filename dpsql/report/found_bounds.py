"""Found bounds: what was drawn of each end, what a policy has then, and its lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpsql.accounting import Loss
from dpsql.policy import Bounds, ColumnBounds
from dpsql.policy.bounds_writer import merge_bounds
from dpsql.policy.starter import spell
from dpsql.quantities import Epsilon


@dataclass(frozen=True, slots=True)
class FoundBound:
    """One end of a bound: `value`, or None with the reason in `note`; about `rank` users are beyond it.

    `name` is rows, max, min, each.min or each.max; `column` is "" for rows.
    """

    name: str
    column: str
    value: Fraction | None
    rank: int
    note: str = ""

    def __str__(self) -> str:
        name = f"{self.name} of {self.column}" if self.column else self.name
        if self.value is None:
            return f"{name}: {self.note}"
        return f"{name} = {float(self.value):.15g}: at most about {self.rank} users are beyond it{self.note}"


@dataclass(frozen=True, slots=True)
class BoundsSuggestion:
    """Bounds of a table, their lines for the policy, what they cost, and how each was found.

    `bounds` are those of the policy with the suggested ones put in, and `new` the suggested ones alone, as a policy
    file has them. `lines` are those of `new` below [tables.<table>.bounds]. The `loss` is what was charged: that of no
    draw where all of them were stored before. `epsilon` is that of each draw. `scope` says for which groups they are.
    """

    table: str
    bounds: Bounds
    new: dict[str, Any]
    lines: tuple[str, ...]
    found: tuple[FoundBound, ...]
    loss: Loss
    epsilon: Epsilon
    scope: str = "for totals, and so wide enough for any groups"

    def __str__(self) -> str:
        found = [f"# {self.scope}, at epsilon {self.epsilon} each", *(f"# {each}" for each in self.found)]
        return "\n".join([f"[tables.{spell(self.table)}.bounds]", *self.lines, *found])


def collect_bounds(found: Sequence[FoundBound]) -> dict[str, Any]:
    """Return found bounds as a policy file has them; those that mean nothing there are left out."""
    ends = {(each.column, each.name): each.value for each in found if each.value is not None}
    new: dict[str, Any] = {}
    for column in dict.fromkeys(each.column for each in found):
        if not column:
            if ("", "rows") in ends:
                new["rows"] = int(ends["", "rows"])
            continue
        low, high = ends.get((column, "min")), ends.get((column, "max"))
        own: dict[str, Any] = {}
        if high is not None and (high or low):  # both 0: there is nothing to add up
            own = {"min": low, "max": high} if low is not None else {"max": high}
        least, most = ends.get((column, "each.min")), ends.get((column, "each.max"))
        if least is not None and most is not None:
            own["each"] = {"min": min(least, most), "max": max(least, most)}
            if least == most:  # one value in all rows: the range has to have two ends
                own["each"] = {"min": min(least, Fraction(0)), "max": max(most, Fraction(0))} if most else None
        own = {key: value for key, value in own.items() if value is not None}
        if own:
            new[column] = own
    return new


def widen_bounds(new: dict[str, Any], merged: dict[str, Any]) -> dict[str, Any]:
    """Return new bounds such that a single value of `each` is within `max` and `min`, which noise may have swapped."""
    widened = dict(new)
    for column, own in merged.items():
        if column == "rows" or not {"max", "each"} <= own.keys():
            continue
        low, high, each = own.get("min", 0), own["max"], own["each"]
        if max(low, each["min"]) < min(high, each["max"]):
            continue
        wider: dict[str, Any] = {"max": max(high, each["max"])}
        if each["min"] < low:
            wider["min"] = each["min"]
        widened = merge_bounds(widened, {column: wider})
    return widened


def map_bounds(bounds: Bounds) -> dict[str, Any]:
    """Return bounds of a policy as its file has them."""
    rows = {} if bounds.rows is None else {"rows": bounds.rows}
    return {**rows, **{name: _column_mapping(own) for name, own in bounds.columns}}


def _column_mapping(own: ColumnBounds) -> dict[str, Any]:
    pairs = {"min": own.min, "max": own.max}
    found: dict[str, Any] = {key: value for key, value in pairs.items() if value is not None}
    if own.each is not None:
        found["each"] = dict(zip(("min", "max"), own.each, strict=True))
    return found if own.distinct is None else {**found, "distinct": own.distinct}
