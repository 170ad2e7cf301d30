"""Words about the bounds of each unit: which measure is cut by which bound, and what follows for the true values.

A sum or number of rows that is cut at a bound is too low, or too high where values below 0 are cut. An average, or any
other value that is computed from coupled measures, can be either: units beyond a bound count less, whatever their
values are. In all of them a row counts with a value between the bounds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from dpsql.display import unit_noun
from dpsql.report.bound_words import (
    can_be_below,
    describe_ends,
    describe_limit,
    find_range,
    name_argument,
    name_average,
    name_call,
)
from dpsql.sql.ir.measures import Aggregate, Measure
from dpsql.sql.ir.statements import Output, PrivateQuery
from dpsql.sql.syntax.computed import is_measure_name

__all__ = ["describe_bounds"]

_BOTH = "higher or lower"
_Sentence = tuple[str, str]  # what it is about, and what it says


def describe_bounds(query: PrivateQuery, bounded_by: int | None) -> str:
    """Return in words what bounds each unit where values are released, and what true values can be; "" if nothing does.

    Units count in at most `bounded_by` groups, None without such a bound; the others are those of the measures.
    """
    if query.counts_units_alone and bounded_by is None:
        return ""
    bounded = [measure for measure in query.measures if measure.bounds is not None] if query.releases_counts else []
    limits = sorted(bounded, key=_find_place)
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
    found += _merge(_describe_alone(measure, unit) for measure in alone)
    if len(alone) > 1 and not coupled:
        found.append("do not divide these by each other: write the ratio, or AVG")
    if alone:
        found.append("intervals are of the values counted so")
    found += _merge(_describe_set(query, each, unit=unit) for each in coupled)
    return "; ".join(found)


def _merge(sentences: Iterable[_Sentence]) -> list[str]:
    """Return each sentence once, with all that it is about."""
    found = defaultdict[str, dict[str, None]](dict)
    for name, words in sentences:
        found[words][name] = None
    return [f"{_join(list(names))}: {words}" for words, names in found.items()]


def _join(parts: Sequence[str]) -> str:
    return " and ".join([*([", ".join(parts[:-1])] if parts[1:] else []), *parts[-1:]])


def _find_place(measure: Measure) -> tuple[int, int]:
    """Return where a measure is in the statement, as far as that is known."""
    return (0, 0) if measure.words is None else (measure.words.line, measure.words.column)


def _list_coupled(query: PrivateQuery) -> list[tuple[Measure, ...]]:
    """Return the measures of each set, in the order of the statement."""
    if not query.releases_counts:
        return []
    sets = defaultdict[int, list[Measure]](list)
    for measure in sorted(query.measures, key=_find_place):
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


def _describe_alone(measure: Measure, unit: str) -> _Sentence:
    """Return the words about a measure that has its own cut."""
    which = "number" if measure.aggregate is Aggregate.ROWS else "sum"
    between = "with" if measure.bounds is not None and measure.bounds.low < 0 else "with at most"
    differ = _BOTH if _can_be_lower(measure) else "higher"
    values = _describe_values(measure)
    return name_call(measure), (
        f"each {unit} counted {between} {describe_limit(measure)}{values}, so the true {which} can be {differ}"
    )


def _describe_values(measure: Measure) -> str:
    """Return what a row counts with whose value is outside of the range of a sum that has its own cut."""
    values = find_range(measure)
    if values is None:
        return ""
    if measure.row_range is not None:
        return f" and values outside {describe_ends(values, measure)} as its ends"
    if measure.row_bounds.low < 0:
        return ", as is each row"
    return " and values below 0 as 0" if can_be_below(measure, values[0]) else ""


def _can_be_lower(measure: Measure) -> bool:
    """Say whether a true sum can be lower than what is counted of it."""
    values = find_range(measure)
    return measure.row_bounds.low < 0 or (values is not None and can_be_below(measure, values[0]))


def _describe_set(query: PrivateQuery, measures: Sequence[Measure], *, unit: str) -> _Sentence:
    """Return the words about measures in which each unit has one weight."""
    outputs = [each for each in query.outputs if each.key is None and query.measures[each.measure] in measures]
    averaged = {query.measures[each.measure] for each in outputs if each.divisor is not None}
    sums = [each for each in measures if each.aggregate is Aggregate.SUM]
    is_average = bool(averaged) and all(each in averaged for each in sums)
    name = name_average(sums[0]) if is_average else f"computed from {_join(list(map(name_call, measures)))}"
    weight = _describe_mean(sums[0]) if is_average and _counts_once(measures) else _describe_weight(measures)
    plain, of = ("average", "the weighted average") if is_average else ("value", "the weighted values")
    intervals = f"; {'its interval is' if is_average else 'intervals are'} of {of}"
    return name, (
        f"each {unit} {weight}: the plain {plain} can be {_BOTH}{intervals if any(map(_has_interval, outputs)) else ''}"
    )


def _counts_once(measures: Sequence[Measure]) -> bool:
    return any(each.aggregate is Aggregate.ROWS and each.row_bounds.high == 1 for each in measures)


def _describe_mean(total: Measure) -> str:
    """Return what a unit counts with in an average of one row of each."""
    values = find_range(total)
    cut = "" if values is None else f", each cut to {describe_ends(values, total)}"
    return f"counts once, with the mean of its rows{cut}"


def _describe_weight(measures: Sequence[Measure]) -> str:
    """Return what a unit counts with at most, and what a row does."""
    sums = [each for each in measures if each.aggregate is Aggregate.SUM]
    rows = [each for each in measures if each.aggregate is Aggregate.ROWS]
    limits = dict.fromkeys(map(_describe_share, [*rows, *(each for each in sums if not _is_centred(each))]))
    found = ["so one beyond that counts less"]
    for total in sums:
        of = f" of {name_argument(total)}" if len(sums) > 1 else ""
        values = find_range(total)
        if values is None:
            continue
        if total.row_range is not None or total.row_bounds.low < 0:
            found.append(f"values{of} outside {describe_ends(values, total)} count as its ends")
            continue
        found += [f"values{of} below 0 count as 0"] if can_be_below(total, values[0]) else []
        most = describe_ends(values[1:], total)
        found.append(f"a row{of} above {most} counts as {most}")
    return f"weighs as at most {_join(list(limits))}, {_join(found)}"


def _is_centred(measure: Measure) -> bool:
    return measure.weight is not None and measure.weight.centre is not None


def _describe_share(measure: Measure) -> str:
    limit = describe_limit(measure)
    return limit if measure.aggregate is Aggregate.ROWS else f"{limit} of {name_argument(measure)}"


def _has_interval(output: Output) -> bool:
    """Say whether an output has an interval in the answer, which one that is only computed with has not."""
    return not is_measure_name(output.name) or (output.divisor is not None and output.end is not None)
