"""Ranges of quantiles: between which numbers the value of one row is, and how many rows of one unit count.

The range is that of the policy's bounds for the columns, or the one that the query states. It decides the bins alone:
a value beyond it is counted at its end, so no range is needed for the guarantee.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import inf

from dpsql.errors import Refusal
from dpsql.plan.measures.bounds import Bounding
from dpsql.policy.starter import spell
from dpsql.sql.ir.measures import MOST_STEPS, Aggregate, Measure, Quantile
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.terms import Terms, read_whole_number

_STATED = "contribution_bounds_per_row => (0, 500)"
_OPTION = "max_rows_contributed"
_LARGEST = 10**18
_SMALLEST = Fraction(1, 10**18)


def bound_quantiles(query: PrivateQuery, terms: Terms) -> PrivateQuery:
    """Return the query with the row ranges of its quantiles, and their rows; refuse a quantile without them."""
    if not query.quantiles:
        return query
    if query.partitions is not None:
        hint = f"Leave PER out, or ask for one value at a time: WHERE {_name_partition(query)} = ... TOP 5 PRIVATE."
        reason = "Quantiles are not released of partitions."
        raise Refusal("partitions", reason, hint=hint, place=query.partitions.place)
    bounding = Bounding(query, terms.tables)
    return replace(query, quantiles=tuple(_bound(each, bounding) for each in query.quantiles))


def _name_partition(query: PrivateQuery) -> str:
    per = None if query.partitions is None else query.partitions.key
    return next((output.name for output in query.outputs if output.key == per and per is not None), "country")


def _bound(quantile: Quantile, bounding: Bounding) -> Quantile:
    row_range, rows = quantile.stated or _find_range(quantile, bounding), _find_rows(quantile, bounding)
    return replace(quantile, row_range=row_range, rows=rows, stated=None)


def _find_rows(quantile: Quantile, bounding: Bounding) -> int:
    """Return how many rows of one unit count in a group: of those that FROM can make as many as the query asks for."""
    total, option = bounding.rows.total, bounding.query.clause.options.get(_OPTION)
    most = int(min(total, MOST_STEPS))
    asked = read_whole_number(option, _OPTION, bounds=(1, most))
    if asked is not None:
        return asked
    if total == most:
        return most
    reason = f"By the rows of its tables one unit can have {total:,} rows here: a join multiplies them."
    hint = f"Add {_OPTION} = 20, or another number, to WITH (...)."
    if total == inf:
        reason = "The policy does not say how many rows of one unit count in a group, which a quantile needs."
        hint = f"Write PRIVATE WITH ({_OPTION} = 20), or another number. {bounding.propose_rows()}"
    raise Refusal("no-bounds", reason, hint=hint, place=quantile.words or bounding.query.clause.place)


def _find_range(quantile: Quantile, bounding: Bounding) -> tuple[Fraction, Fraction]:
    """Return between which numbers the value of a row is by the policy; refuse one that has no such range."""
    summed = Measure(Aggregate.SUM, quantile.argument, quantile.condition, words=quantile.words)
    low, high = bounding.find_row_range(summed)
    if isinstance(low, Fraction) and isinstance(high, Fraction) and _SMALLEST <= high - low <= _LARGEST:
        return low, high
    shown = "MEDIAN(x)" if quantile.words is None else " ".join(quantile.words.fragment.split())
    column = next(iter(quantile.columns), None)
    hint = f"Write {_state(shown)}, with your own range of one row's value."
    reason = "The policy does not say between which numbers one row's value of this is, which a quantile needs."
    if column is not None and len(quantile.columns) == 1:
        table, name = column
        line = f"{spell(name)} = {{each = {{min = 0, max = 500}}}}, with the range of a value,"
        hint = f"{hint} Or ask the curator to add {line} under [tables.{spell(table)}.bounds]."
    raise Refusal("no-bounds", reason, hint=hint, place=quantile.words)


def _state(words: str) -> str:
    """Return a quantile as it is written with a range in it: behind its own arguments."""
    end = words.upper().find(" WITHIN GROUP")
    end = words.rfind("[") if end < 0 and words.endswith("]") else end
    head, rest = (words, "") if end < 0 else (words[:end], words[end:])
    return f"{head.rstrip().removesuffix(')')}, {_STATED}){rest}"
