"""Notes beside variances, deviations and covariances: how a unit counts in them, and which way they can err."""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.display import shorten
from dpsql.report.measure_words import describe_ends, read_argument
from dpsql.sql.ir.measures import Measure
from dpsql.sql.ir.statements import Output, PrivateQuery
from dpsql.sql.syntax.computed import is_measure_name

_NOUNS = {"VAR": "variance", "STDDEV": "deviation", "COVAR": "covariance"}


def list_spread_measures(query: PrivateQuery) -> frozenset[Measure]:
    """Return the measures that statistics of spread are computed from, and no other output is."""
    outputs = [output for output in query.outputs if output.is_measure]
    own = {at for output in outputs if output.statistic is not None for at in output.places}
    others = {at for output in outputs if output.statistic is None for at in output.places}
    return frozenset(query.measures[at] for at in own - others)


def describe_spreads(query: PrivateQuery, unit: str) -> list[tuple[str, str]]:
    """Return the name of each statistic of spread, once, with the words about it."""
    found = dict[tuple[object, ...], list[Output]]()
    for output in query.outputs:
        if output.statistic is not None:
            found.setdefault((output.statistic, output.places), []).append(output)
    return [_describe(query, same, unit=unit) for same in found.values()]


def _describe(query: PrivateQuery, outputs: Sequence[Output], *, unit: str) -> tuple[str, str]:
    """Return the name of a statistic and the words about it, of the outputs that it and its ends are."""
    statistic, (first, _, *others) = outputs[0].statistic, outputs[0].places
    assert statistic is not None  # noqa: S101 - of the caller
    *more, products = (query.measures[at] for at in others)
    rows = 0 if products.weight is None else products.weight.rows
    sums = [query.measures[first], *more]
    argument = read_argument(products) or " and ".join(column for each in sums for _, column in each.columns)
    name = f"{statistic.value}({shorten(argument)})"
    if query.measures[outputs[0].places[0]].condition is not None and not more:
        name += " FILTER (\N{HORIZONTAL ELLIPSIS})"
    ranges = [describe_ends(each.row_range, each) for each in sums if each.row_range is not None]
    cut = f"values outside {' and '.join(ranges)} count as its ends"
    if more:
        named = [" and ".join(column for _, column in each.columns) or "an expression" for each in sums]
        cut = " and ".join(f"values of {shorten(of)} outside {ends}" for of, ends in zip(named, ranges, strict=True))
        cut += " count as the ends"
    noun = _NOUNS[statistic.value.partition("_")[0]]
    has_interval = any(not is_measure_name(each.name) or each.end is not None for each in outputs)
    interval = f"; its interval is of the weighted {noun}" if has_interval else ""
    limit = "1 row" if rows == 1 else f"{rows:,} rows"
    return name, (
        f"each {unit} weighs as at most {limit}, so one beyond that counts less, and {cut}: "
        f"the plain {noun} can be higher or lower{interval}"
    )
