"""Bounds of measures: how much one unit may add to one group, from the policy, and less if the query asks for less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpsql.dialects import write_name
from dpsql.errors import Refusal
from dpsql.plan.coupled_bounds import refine_coupled
from dpsql.plan.mechanisms.request import read_whole_number
from dpsql.plan.terms import Terms
from dpsql.policy import PrivateTable
from dpsql.policy.quoting import spell
from dpsql.sql.ir.measures import Aggregate, ContributionRange, Measure
from dpsql.sql.ir.statements import PrivateQuery

__all__ = ["bound_measures"]

_OPTION = "max_rows_contributed"


def bound_measures(query: PrivateQuery, terms: Terms) -> PrivateQuery:
    """Return the query with the bounds of its measures; refuse a measure that the policy does not bound."""
    tables = [terms.tables[name] for name in query.tables]
    counts_rows = any(measure.aggregate is Aggregate.ROWS for measure in query.measures)
    option = query.clause.options.get(_OPTION)
    if option is not None and not counts_rows:
        hint, reason = "Leave it out.", f"{_OPTION} is for COUNT(*), COUNT(x) and AVG, and the query has none of them."
        raise Refusal("option", reason, hint=hint, place=option.place)
    if query.counts_units_alone:
        return query
    ranks_units = query.measures[0].aggregate is Aggregate.UNITS
    if query.clause.shape == "top" and not ranks_units and any((table.min_units or 1) > 1 for table in tables):
        reason = "The policy wants groups of at least so many units here, which another ranking cannot promise."
        hint = f"Select COUNT(DISTINCT {query.unit_name}) first, or order by it."
        raise Refusal("min-units", reason, hint=hint, place=query.clause.place)
    bounded = tuple(_bound(measure, query, terms=terms, tables=tables) for measure in query.measures)
    return refine_coupled(replace(query, measures=bounded))


def _bound(measure: Measure, query: PrivateQuery, *, terms: Terms, tables: Sequence[PrivateTable]) -> Measure:
    match measure.aggregate:
        case Aggregate.UNITS:
            return measure
        case Aggregate.ROWS:
            most = _count_rows(query, tables) if measure.max_rows is None else measure.max_rows
            return replace(measure, bounds=ContributionRange(0, most))
        case Aggregate.SUM:
            return replace(measure, bounds=_find_range(measure, query, terms=terms))


def _count_rows(query: PrivateQuery, tables: Sequence[PrivateTable]) -> int:
    """Return how many rows of one unit count in one group: the smallest bound of the tables, and of the query."""
    place = query.clause.place
    bounds = [table.bounds.rows for table in tables if table.bounds.rows is not None]
    if not bounds:
        reason = "The policy does not say how many rows of one unit count in a group, which COUNT(*) and AVG need."
        hint = _propose_bounds(query, "rows = 20", table=query.table)
        raise Refusal("no-bounds", reason, hint=hint, place=place)
    asked = read_whole_number(query.clause.options.get(_OPTION), _OPTION, bounds=(1, min(bounds)))
    return min(bounds) if asked is None else asked


def _find_range(measure: Measure, query: PrivateQuery, *, terms: Terms) -> ContributionRange:
    """Return the range of SUM, by the one column in its argument that the policy bounds."""
    place = query.clause.place
    found = {
        (table, column): bounds
        for table, column in measure.columns
        if (bounds := terms.tables[table].bounds.find(column)) is not None
    }
    if not found:
        reason = "The policy does not say how much one unit may add to a SUM or AVG of this."
        if not measure.columns:
            hint = f"Write COUNT(DISTINCT {write_name(query.unit_name)}), or count rows: COUNT(*) FILTER (WHERE ...)."
            raise Refusal("no-bounds", reason, hint=hint, place=place)
        table, column = measure.columns[0]
        hint = _propose_bounds(query, f"{spell(column)} = {{max = 500}}", table=table)
        raise Refusal("no-bounds", reason, hint=hint, place=place)
    if len(found) > 1:
        names = " and ".join(column for _, column in found)
        hint = "Sum one of them, or ask for the sums apart."
        raise Refusal("no-bounds", f"This SUM has two bounds, those of {names}.", hint=hint, place=place)
    (bounds,) = found.values()
    if bounds.min < 0 and query.clause.shape == "top" and query.domain is None:
        reason = "Sums that can be below 0 are released for totals and for known groups alone."
        hint = "Write ALL PRIVATE WITH (domain = ...), or PRIVATE for a total."
        raise Refusal("bounds", reason, hint=hint, place=place)
    type_ = None if measure.argument is None else measure.argument.type
    return ContributionRange.of_values(bounds.min, bounds.max, type_=type_)


def _propose_bounds(query: PrivateQuery, line: str, *, table: str) -> str:
    """Return a hint with what needs no bounds, and the line of a policy that sets them."""
    return (
        f"Write COUNT(DISTINCT {write_name(query.unit_name)}), or ask the curator to add {line}, or another number, "
        f"under [tables.{spell(table)}.bounds]."
    )
