"""Contribution bounding: of each privacy unit at most so many groups, sampled inside the engine.

Sound, because what is kept of a unit is a function of its own rows, the bound and the session's salts alone: dropping
a unit moves at most `Bound.groups` counts, each by 1, and nobody else's groups. Every form takes a unit's groups in
one order, by a draw that hashes the group and the unit under the salts, then by the keys themselves, NULLS LAST,
text by its bytes. Groups whose 64-bit draws collide are thus told apart, and no row order or thread decides. Salts
are no part of the guarantee: they keep whoever writes labels from steering which of them survive.

Fast, because each bound takes the form that does least. One group is the least (draw, keys) of a unit's raw rows: one
pass, since duplicates share their draw. A few groups are the first in a window over the distinct pairs; its second
sort key is also what keeps DuckDB from turning the window into one list per unit, which takes twice the time and
three times the memory. With a bound that most units never reach, only those above it are drawn and sorted.

The bound alone chooses the form, never the rows, which would show in the time a query takes. All forms keep the same
groups, so a unit's groups under a smaller bound are among those under a larger one.

Weighted, each unit spreads one weight over the groups it keeps. What a unit in t of them adds to each is looked up in a
list of integers that is bound as a parameter: nothing is computed in floating point, the sums are exact in any order,
and they are of the very weights that the mechanism's threshold is made for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpsql.sql.render.duckdb import Writer

__all__ = ["GROUPS", "MANY", "RANK", "UNIT", "WEIGHT", "Bound", "Bounded", "bounded", "weighted", "weighted_of_all"]

UNIT = "dpsql_unit"
WEIGHT = "dpsql_weight"
RANK = "dpsql_rank"
GROUPS = "dpsql_groups"
MANY = 16  # groups that nine units in ten stay below in the logs measured: from here on sorting the others alone pays


@dataclass(frozen=True, slots=True)
class Bound:
    """At most `groups` groups of each unit, chosen by a hash under two salts of 64 bits, private to the session."""

    groups: int
    salts: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Bounded:
    """What is kept: `source` selects the keys and the unit, one row per kept group of a unit, over `ctes` in WITH."""

    ctes: tuple[str, ...]
    source: str


def bounded(writer: Writer, base: str, *, names: Sequence[str], bound: Bound, ranked: bool = False) -> Bounded:
    """Return what is kept of `base`, a SELECT of the canonical keys `names` and of UNIT, which is never NULL.

    If it is `ranked`, its rows are distinct, and have their RANK among those of their unit, which are GROUPS.
    """
    columns = ", ".join((*names, UNIT))
    if ranked:
        return Bounded((), f"SELECT {columns} FROM ({base}) WHERE {RANK} <= {bound.groups:d}")  # noqa: S608 - nothing in it is the analyst's text
    draw = writer.draw(names, UNIT, salts=bound.salts)
    pairs = f"SELECT DISTINCT {columns} FROM ({base})"  # noqa: S608 - nothing in it is the analyst's text
    if bound.groups == 1 and writer.native:
        return Bounded((), _least(base, names, draw=draw))
    if bound.groups < MANY or not writer.native:
        return Bounded((), _first(f"({pairs})", names, draw=draw, groups=bound.groups))
    above = f"SELECT {UNIT} FROM dpsql_pairs GROUP BY {UNIT} HAVING system.main.count() > {bound.groups:d}"  # noqa: S608 - as above
    ctes = f"dpsql_pairs AS MATERIALIZED ({pairs})", f"dpsql_above AS MATERIALIZED ({above})"
    within = f"SELECT {columns} FROM dpsql_pairs ANTI JOIN dpsql_above USING ({UNIT})"  # noqa: S608 - as above
    rest = f"dpsql_pairs SEMI JOIN dpsql_above USING ({UNIT})"
    return Bounded(ctes, f"{within} UNION ALL {_first(rest, names, draw=draw, groups=bound.groups)}")


def weighted(
    writer: Writer, base: str, *, names: Sequence[str], bound: Bound, weights: Sequence[int], ranked: bool = False
) -> Bounded:
    """Return what is kept of `base` as by `bounded`, with WEIGHT in place of the unit: add it up by the keys.

    A unit that keeps t groups has the weight weights[t - 1], an integer below 2**31, in each; there is one weight for
    every t up to the bound. A weight depends on how many groups a unit has, so the distinct pairs are kept and read
    twice, whatever the bound, and only units above it are drawn and sorted.
    """
    if ranked or not writer.native:
        weight = _weight(writer, bound, weights=weights)
        rows = base if ranked else _in_one_pass(writer, base, names=names, bound=bound)
        kept = f"SELECT {', '.join(names)}, {weight} AS {WEIGHT} FROM ({rows}) WHERE {RANK} <= {bound.groups:d}"  # noqa: S608 - nothing in it is the analyst's text
        return Bounded((), kept)
    table, ctes, within = _weighed(writer, base, names=names, bound=bound, weights=weights)
    most = f"{bound.groups:d}"
    first = _first(_ABOVE, names, draw=writer.draw(names, UNIT, salts=bound.salts), groups=bound.groups)
    cut = f"SELECT {', '.join(names)}, {writer.looked_up(table, most)} AS {WEIGHT} FROM ({first})"  # noqa: S608 - nothing in it is the analyst's text
    return Bounded(ctes, f"{within} UNION ALL {cut}")


def weighted_of_all(
    writer: Writer, base: str, *, names: Sequence[str], bound: Bound, weights: Sequence[int], ranked: bool = False
) -> Bounded:
    """Return every pair of `base`, one row each, with WEIGHT as by `weighted`, and 0 where that does not keep it."""
    if ranked or not writer.native:
        weight = _weight(writer, bound, weights=weights)
        rows = base if ranked else _in_one_pass(writer, base, names=names, bound=bound)
        own = f"CASE WHEN {RANK} <= {bound.groups:d} THEN {weight} ELSE 0 END AS {WEIGHT}"
        return Bounded((), f"SELECT {', '.join(names)}, {own} FROM ({rows})")  # noqa: S608 - as above
    table, ctes, within = _weighed(writer, base, names=names, bound=bound, weights=weights)
    most = f"{bound.groups:d}"
    rows = _ranked(_ABOVE, names, draw=writer.draw(names, UNIT, salts=bound.salts))
    own = f"CASE WHEN {RANK} <= {most} THEN {writer.looked_up(table, most)} ELSE 0 END AS {WEIGHT}"
    return Bounded(ctes, f"{within} UNION ALL SELECT {', '.join(names)}, {own} FROM ({rows})")  # noqa: S608 - as above


def _weight(writer: Writer, bound: Bound, *, weights: Sequence[int]) -> str:
    """Return the weight of a row that has the number of GROUPS of its unit."""
    return writer.looked_up(writer.listed(weights), f"system.main.least({GROUPS}, {bound.groups:d})")


def _in_one_pass(writer: Writer, base: str, *, names: Sequence[str], bound: Bound) -> str:
    """Return the distinct pairs with what their weight takes: the RANK of each, and how many GROUPS its unit has.

    For engines that may read twice what stands in WITH, from a table that may have changed in between: a unit that had
    few groups the first time, and so a large weight, could then add it to many.
    """
    pairs = f"(SELECT DISTINCT {', '.join((*names, UNIT))} FROM ({base}))"  # noqa: S608 - as above
    ranked = _ranked(pairs, names, draw=writer.draw(names, UNIT, salts=bound.salts))
    return f"SELECT *, system.main.count() OVER (PARTITION BY {UNIT}) AS {GROUPS} FROM ({ranked})"  # noqa: S608 - as above


_ABOVE = f"dpsql_pairs SEMI JOIN (SELECT {UNIT} FROM dpsql_units WHERE dpsql_above) USING ({UNIT})"  # noqa: S608 - as above


def _weighed(
    writer: Writer, base: str, *, names: Sequence[str], bound: Bound, weights: Sequence[int]
) -> tuple[str, tuple[str, ...], str]:
    """Return the list of weights, the distinct pairs and their units, and the rows of units within the bound."""
    keys, most = ", ".join(names), f"{bound.groups:d}"
    table, count = writer.listed(weights), "system.main.count()"
    own = f"{writer.looked_up(table, f'system.main.least({count}, {most})')} AS {WEIGHT}"
    units = f"SELECT {UNIT}, {own}, {count} > {most} AS dpsql_above FROM dpsql_pairs GROUP BY {UNIT}"  # noqa: S608 - as above
    pairs = f"SELECT DISTINCT {keys}, {UNIT} FROM ({base})"  # noqa: S608 - as above
    ctes = f"dpsql_pairs AS MATERIALIZED ({pairs})", f"dpsql_units AS MATERIALIZED ({units})"
    within = f"SELECT {keys}, {WEIGHT} FROM dpsql_pairs JOIN dpsql_units USING ({UNIT}) WHERE NOT dpsql_above"  # noqa: S608 - as above
    return table, ctes, within


def _least(rows: str, names: Sequence[str], *, draw: str) -> str:
    """Return each unit's first group: the fields of the least struct, compared in their order."""
    least = f"system.main.min(system.main.row({draw}, {', '.join(names)})) AS dpsql_least"
    keys = ", ".join(
        f"system.main.struct_extract_at(dpsql_least, {at}) AS {name}" for at, name in enumerate(names, start=2)
    )
    return f"SELECT {keys}, {UNIT} FROM (SELECT {UNIT}, {least} FROM ({rows}) GROUP BY {UNIT})"  # noqa: S608 - nothing in it is the analyst's text


def _first(pairs: str, names: Sequence[str], *, draw: str, groups: int) -> str:
    """Return the first `groups` groups of each unit in a relation of distinct pairs."""
    columns, ranked = ", ".join((*names, UNIT)), _ranked(pairs, names, draw=draw)
    return f"SELECT {columns} FROM ({ranked}) WHERE {RANK} <= {groups:d}"  # noqa: S608 - nothing in it is the analyst's text


def _ranked(pairs: str, names: Sequence[str], *, draw: str) -> str:
    """Return a relation of distinct pairs with the rank of each among those of its unit."""
    columns = ", ".join((*names, UNIT))
    order = ", ".join((draw, *(f"{name} ASC NULLS LAST" for name in names)))
    rank = f"system.main.row_number() OVER (PARTITION BY {UNIT} ORDER BY {order}) AS {RANK}"
    return f"SELECT {columns}, {rank} FROM {pairs}"  # noqa: S608 - as above
