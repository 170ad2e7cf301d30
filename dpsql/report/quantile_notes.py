"""What is said beside released quantiles: who counts in them, how near their ranks are, and what NULL means.

With COUNT(x) of the same rows beside a quantile, it is said between which quantiles of these rows the answer lies, by
the noisy count. The rank and the count are each right with probability 0.975, so that both are with 0.95.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from dpsql.display import plural, unit_noun
from dpsql.mechanisms.quantiles import ExponentialQuantile
from dpsql.plan import Plan, Release, describe_noise, name_measure
from dpsql.plan.mechanisms.quantiles import (
    DrawnQuantiles,
    QuantilesPlan,
    describe_between,
    describe_rank,
    format_value,
    name_quantile,
)
from dpsql.sql.ir.measures import Aggregate, Quantile
from dpsql.sql.ir.tree import split_conjuncts

_EACH = 0.025  # of the two errors of an interval with a count


def describe_quantiles(plan: Plan, released: Release) -> str:
    """Return in words what bounds each unit in the quantiles of an answer, and how near they are; "" for none."""
    own = plan.mechanism_plan
    if not isinstance(own, QuantilesPlan):
        return ""
    found = list[str]()
    for drawn in own.drawn:
        found += _describe_set(plan, drawn, released=released)
    users = plural(unit_noun(plan.query.unit_name))
    return "; ".join([*found, f"NULL: too few {users} to tell"])


def _describe_set(plan: Plan, drawn: DrawnQuantiles, *, released: Release) -> Iterator[str]:
    """Yield the words about quantiles of the same rows: each error of the rank, then what all of them share."""
    quantiles = [plan.query.quantiles[at] for at in drawn.numbers]
    first, unit = quantiles[0], unit_noun(plan.query.unit_name)
    scale = float(plan.epsilon.value / released.terms.epsilon.value)  # of an answer that was drawn on other terms
    fewest = _count_fewest(plan, first, released=released)
    for quantile, mechanism in zip(quantiles, drawn.mechanisms, strict=True):
        words = describe_rank(quantile, mechanism, scale=scale)
        if fewest is not None and fewest > 0:
            groups = " in each group" if plan.query.keys else ""
            between = _find_quantiles(quantile, mechanism, rows=fewest, scale=scale)
            words = f"by COUNT, {fewest:,} rows or more{groups}, {between}"
        yield f"{name_quantile(quantile)}: {words}"
    of_each = "" if len(quantiles) == 1 else "of all these "
    bins, last = drawn.bins, drawn.bins.count - 1
    low, high = (format_value(bins.read_value(number, first.type)) for number in (0, last))
    most, least = map(format_value, bins.describe_ends(first.type))
    rows = "1 row" if first.rows == 1 else f"{first.rows:,} rows"
    yield f"{of_each}each {unit} weighs as at most {rows}; {low} means at most {most}, and {high} at least {least}"


def _count_fewest(plan: Plan, quantile: Quantile, *, released: Release) -> int | None:
    """Return the rows that a group has at least, by a count of the quantile's rows; None without one, or any group."""
    wanted, found = set(split_conjuncts(quantile.condition)), list[int]()
    for at, measure in enumerate(plan.query.measures if released.terms.noises else ()):
        is_same = measure.aggregate is Aggregate.ROWS and set(split_conjuncts(measure.condition)) == wanted
        if is_same and measure.weight is None and measure.bounds is not None and measure.bounds.high == quantile.rows:
            noise = released.terms.noises[at]
            values = noise.read(released.canonical.column(name_measure(at)).to_pylist())
            reach = describe_noise(noise, measure).reach(1 - _EACH)
            found += [int(min(values)) - int(reach)] if values else []
    return max(found, default=None)


def _find_quantiles(quantile: Quantile, mechanism: ExponentialQuantile, *, rows: int, scale: float) -> str:
    """Return between which quantiles of so many rows the answer lies."""
    reach = Fraction(mechanism.rank_error(_EACH) * scale / rows)
    return f"{describe_between(quantile.wanted, reach)} with probability 0.95"
