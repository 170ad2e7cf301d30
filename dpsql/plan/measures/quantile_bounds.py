"""Ranges of quantiles: between which numbers the value of one row is, and how many rows of one unit count.

The range is that of the policy's bounds for the columns, or the one that the query states. It decides the bins alone:
a value beyond it is counted at its end, so no range is needed for the guarantee.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import inf

from dpsql.dialects import quote_text, write_name
from dpsql.errors import Refusal
from dpsql.plan.measures.bounds import Bounding
from dpsql.policy.starter import spell
from dpsql.sql.ir.measures import MOST_STEPS, Aggregate, Measure, Quantile
from dpsql.sql.ir.statements import Partitions, PrivateQuery
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
        reason = "Quantiles are not released of partitions."
        raise Refusal("partitions", reason, hint=_propose_one(query, query.partitions), place=query.partitions.place)
    bounding = Bounding(query, terms.tables)
    return replace(query, quantiles=tuple(_bound(each, bounding) for each in query.quantiles))


def _propose_one(query: PrivateQuery, partitions: Partitions) -> str:
    """Return a hint with the condition of one partition, in place of PER."""
    name = next((output.name for output in query.outputs if output.key == partitions.key), None)
    first = next((each.value for each in partitions.values if isinstance(each.value, str)), None)
    if name is None or first is None:
        return "Leave PER and partitions out."
    one = f"{write_name(name)} = {quote_text(first)}"
    return f"Leave PER and partitions out, or ask for one value at a time, with {one} in WHERE."


def _bound(quantile: Quantile, bounding: Bounding) -> Quantile:
    """Return a quantile with its range and its rows; refuse one that lacks either, or both at once."""
    try:
        row_range = quantile.stated or _find_range(quantile, bounding)
    except Refusal as error:
        try:
            _find_rows(quantile, bounding)
        except Refusal as other:
            hint = f"{error.hint} {other.hint}"
            raise Refusal(error.code, f"{error.reason} {other.reason}", hint=hint, place=error.place) from None
        raise
    return replace(quantile, row_range=row_range, rows=_find_rows(quantile, bounding), stated=None)


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
