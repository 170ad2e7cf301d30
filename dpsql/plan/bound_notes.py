"""Words about the bounds of each unit: which measure is cut by which bound, and what follows for the true values.

A sum or number of rows that is cut at a bound is too low, or too high where values below 0 are cut. An average, or any
other quotient of coupled measures, can be either: units beyond a bound count less, whatever their values are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from dpsql.display import shorten, unit_noun
from dpsql.sql.ir.measures import Aggregate, Measure
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.tree import Cast

__all__ = ["describe_bounds"]

_UNSIGNED = frozenset(["UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"])
_BOTH = "higher or lower"


def describe_bounds(query: PrivateQuery, bounded_by: int | None) -> str:
    """Return in words what bounds each unit where values are released, and what true values can be; "" if nothing does.

    Units count in at most `bounded_by` groups, None without such a bound; the others are those of the measures.
    """
    if query.counts_units_alone and bounded_by is None:
        return ""
    limits = [measure for measure in query.measures if measure.bounds is not None] if query.releases_counts else []
    unit = unit_noun(query.unit_name)
    coupled = _list_coupled(query)
    together = {measure for each in coupled for measure in each}
    alone = [measure for measure in limits if measure not in together or _is_shown(query, measure)]
    found = list[str]()
    if bounded_by is not None:
        groups = "1 group" if bounded_by == 1 else f"{bounded_by} groups"
        values, differ = ("values", "higher") if limits else ("counts", "higher")
        differ = _BOTH if coupled or any(_can_be_lower(each) for each in alone) else differ
        found.append(f"each {unit} counted in at most {groups}: true {values} can be {differ}")
    found += dict.fromkeys(_describe_alone(measure, unit) for measure in alone)
    if len(alone) > 1 and not coupled:
        found.append("do not divide these by each other: write the ratio, or AVG")
    if alone:
        found.append("intervals are of the values counted so")
    found += [_describe_set(query, each, unit=unit) for each in coupled]
    return "; ".join(found)


def _list_coupled(query: PrivateQuery) -> list[tuple[Measure, ...]]:
    """Return the measures of each set, in their order."""
    if not query.releases_counts:
        return []
    sets = defaultdict[int, list[Measure]](list)
    for measure in query.measures:
        if measure.weight is not None:
            sets[measure.weight.number].append(measure)
    for output in query.outputs:  # a count beside a sum around the middle of a range has its weight, too
        total = query.measures[output.measure]
        if output.divisor is not None and total.weight is not None:
            sets[total.weight.number].append(query.measures[output.divisor])
    return [tuple(dict.fromkeys(each)) for each in sets.values()]


def _is_shown(query: PrivateQuery, measure: Measure) -> bool:
    """Say whether a measure that an average shares is released beside it as well."""
    shown = (output for output in query.outputs if output.key is None and output.divisor is None)
    return measure.weight is None and any(query.measures[output.measure] == measure for output in shown)


def _describe_alone(measure: Measure, unit: str) -> str:
    """Return the words about a measure that has its own cut."""
    what, limit, below = _name(measure), _describe_limit(measure), ""
    if _counts_as_zero(measure):
        below = " and values below 0 as 0"
    which = "number" if measure.aggregate is Aggregate.ROWS else "sum"
    differ = _BOTH if _can_be_lower(measure) else "higher"
    between = "with" if measure.bounds is not None and measure.bounds.low < 0 else "with at most"
    return f"{what}: each {unit} counted {between} {limit}{below}, so the true {which} can be {differ}"


def _describe_set(query: PrivateQuery, measures: Sequence[Measure], *, unit: str) -> str:
    """Return the words about measures in which each unit has one weight."""
    quotients = {query.measures[each.measure] for each in query.outputs if each.divisor is not None}
    averaged = [measure for measure in measures if measure in quotients]
    shown = [each for each in measures if each.weight is not None and each not in quotients]
    is_average = bool(averaged) and not [each for each in shown if each.aggregate is Aggregate.SUM]
    sums = list(dict.fromkeys(_name_columns(each) for each in averaged)) if is_average else []
    names = list(dict.fromkeys(map(_name, measures)))
    what = f"ratio of {' and '.join(names)}" if len(names) > 1 else f"ratio of {names[0]}s"
    what = f"average of {' and '.join(sums)} over rows" if is_average else what
    limits = dict.fromkeys(
        _describe_limit(each) for each in measures if each.weight is None or each.weight.centre is None
    )
    below = " and values below 0 count as 0" if any(map(_counts_as_zero, measures)) else ""
    plain, of = ("average", "the weighted average") if is_average else ("ratio", "the weighted values")
    return (
        f"{what}: each {unit} weighs as at most {' and '.join(limits)}, so one beyond that counts less{below}: the "
        f"plain {plain} can be {_BOTH}; {'its interval is' if is_average else 'intervals are'} of {of}"
    )


def _describe_limit(measure: Measure) -> str:
    bounds = measure.row_bounds
    if measure.aggregate is Aggregate.ROWS:
        return "1 row" if bounds.high == 1 else f"{bounds.high:,} rows"
    low, high = (f"{float(end * bounds.step):,.10g}" for end in (bounds.low, bounds.high))
    return f"{low} to {high} of {_name_columns(measure)}" if bounds.low < 0 else f"{high} of {_name_columns(measure)}"


def _name(measure: Measure) -> str:
    return "COUNT" if measure.aggregate is Aggregate.ROWS else f"SUM of {_name_columns(measure)}"


def _name_columns(measure: Measure) -> str:
    return shorten(" and ".join(dict.fromkeys(column for _, column in measure.columns))) or "an expression"


def _counts_as_zero(measure: Measure) -> bool:
    """Say whether rows may have values below 0, of which none is counted."""
    if measure.argument is None or measure.row_bounds.low < 0:
        return False
    if measure.row_range is not None and measure.row_range[0] >= 0:
        return False
    stored = measure.argument.argument if isinstance(measure.argument, Cast) else measure.argument
    return stored.type.name not in _UNSIGNED


def _can_be_lower(measure: Measure) -> bool:
    """Say whether a true sum can be lower than what is counted of it."""
    return measure.argument is not None and (measure.row_bounds.low < 0 or _counts_as_zero(measure))
