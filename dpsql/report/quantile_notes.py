"""What is said beside released quantiles: who counts in them, how near their ranks are, and what NULL means."""

from __future__ import annotations

from collections.abc import Iterator

from dpsql.display import plural, unit_noun
from dpsql.plan import Plan
from dpsql.plan.mechanisms.quantiles import DrawnQuantiles, QuantilesPlan, describe_rank, format_value, name_quantile
from dpsql.quantities import Epsilon


def describe_quantiles(plan: Plan, epsilon: Epsilon) -> str:
    """Return in words what bounds each unit in the quantiles of an answer that was drawn at `epsilon`; "" for none."""
    own = plan.mechanism_plan
    if not isinstance(own, QuantilesPlan):
        return ""
    found = list[str]()
    for drawn in own.drawn:
        found += _describe_set(plan, drawn, scale=float(plan.epsilon.value / epsilon.value))
    users = plural(unit_noun(plan.query.unit_name))
    return "; ".join([*found, f"NULL: too few {users} to tell"])


def _describe_set(plan: Plan, drawn: DrawnQuantiles, *, scale: float) -> Iterator[str]:
    """Yield the words about quantiles of the same rows: each error of the rank, then what all of them share."""
    quantiles = [plan.query.quantiles[at] for at in drawn.numbers]
    for quantile, mechanism in zip(quantiles, drawn.mechanisms, strict=True):
        yield f"{name_quantile(quantile)}: {describe_rank(quantile, mechanism, scale=scale)}"
    first, unit = quantiles[0], unit_noun(plan.query.unit_name)
    names = " and ".join(map(name_quantile, quantiles))
    bins, last = drawn.bins, drawn.bins.count - 1
    low, high = bins.read_value(0, first.type), bins.read_value(last, first.type)
    most, least = format_value(bins.find_ends(0)[1]), format_value(bins.find_ends(last)[0])
    rows = "1 row" if first.rows == 1 else f"{first.rows:,} rows"
    yield (
        f"{names}: each {unit} weighs as at most {rows}; {low:,} means at most {most}, and {high:,} at least {least}"
    )
