"""Variances, standard deviations and covariances of a private query, and the measures that each is computed from.

    VAR_POP(x)        N rows with a value, S distances from the middle of the range of x, Q squares of these distances
    COVAR_POP(x, y)   N rows with both, a sum of distances of each, and Q products of the two

The middle and the number of rows of one unit that count are known when the query is planned
(`plan/measures/spread.py`). COVAR of an argument with itself is its variance. A query may state the range of one row
itself, as in VAR_POP(x, contribution_bounds_per_row => (0, 500)); of a covariance it is that of both arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.errors import Refusal
from dpsql.sql.analysis.measures import ReadMeasure, find_function, find_words, read_summand, split_stated_bounds
from dpsql.sql.analysis.reader import Reader
from dpsql.sql.ir.measures import Aggregate, Factor, Measure, is_present
from dpsql.sql.ir.scope import join_conjuncts
from dpsql.sql.ir.spread import Statistic
from dpsql.sql.ir.tree import Expression

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node


def read_spread(reader: Reader, node: Node, *, statistic: Statistic, condition: Expression | None) -> ReadMeasure:
    """Return a statistic of spread: its sum of distances first, the number of rows that divides it, and the others."""
    written, stated = split_stated_bounds(reader, node.expressions)
    arguments = _read_arguments(reader, node, written, statistic=statistic)
    words = find_words(reader, node)
    first, *more = sorted(dict.fromkeys(arguments), key=repr)  # the order of two changes nothing
    second = more[0] if more else first
    given = [] if condition is None else [condition]
    both = [each for argument in dict.fromkeys([first, second]) for each in is_present(argument)]
    rows = Measure(Aggregate.ROWS, condition=join_conjuncts([*given, *both]), words=words)
    first_sum = Measure(Aggregate.SUM, first, condition, stated=stated, words=words)
    if first == second:
        squares = replace(first_sum, factor=Factor(first))
        return ReadMeasure(first_sum, rows, others=(squares,), statistic=statistic)
    first_sum = replace(first_sum, condition=join_conjuncts([*given, *is_present(second)]))
    second_sum = replace(first_sum, argument=second, condition=join_conjuncts([*given, *is_present(first)]))
    products = replace(first_sum, condition=condition, factor=Factor(second))
    return ReadMeasure(first_sum, rows, others=(second_sum, products), statistic=statistic)


def _read_arguments(
    reader: Reader, node: Node, written: Sequence[Node], *, statistic: Statistic
) -> tuple[Expression, ...]:
    """Return the numbers whose spread is wanted: one, or two for a covariance."""
    name = find_function(node).upper()
    if statistic.is_of_pairs and len(written) != len(("x", "y")):
        hint = f"Write {name}(x, y) of two columns of numbers."
        raise Refusal("aggregate", f"{name} has two arguments.", hint=hint, place=reader.place(node))
    if not statistic.is_of_pairs:
        return (read_summand(reader, node, arguments=written, name=name),)
    return tuple(read_summand(reader, node, arguments=[each], name=name) for each in written)
