"""Measures that a variance or covariance of a private query is computed from.

    VAR_POP(x)        N rows with a value, S distances from the middle of the range of x, Q squares of these distances
    COVAR_POP(x, y)   N rows with both, a sum of distances of each, and Q products of the two

The middle, and how many rows of one unit count, are known when the query is planned (`plan/measures/spread.py`). COVAR
of an argument with itself is its variance, and the order of two arguments changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpsql.errors import Place
from dpsql.sql.ir.measures import Aggregate, Factor, Measure, StatedBounds, is_present
from dpsql.sql.ir.tree import Expression, join_conjuncts


def list_spread_measures(
    arguments: Sequence[Expression],
    *,
    condition: Expression | None,
    stated: StatedBounds | None,
    words: Place | None,
) -> list[Measure]:
    """Return the measures of one argument or of two: a sum of distances, the rows, the other sum, and the products.

    `stated` is the range of one row of either argument.
    """
    first, *more = sorted(dict.fromkeys(arguments), key=repr)
    given = [] if condition is None else [condition]
    both = [each for argument in (first, *more) for each in is_present(argument)]
    rows = Measure(Aggregate.ROWS, condition=join_conjuncts([*given, *both]), words=words)
    own = Measure(Aggregate.SUM, first, condition, stated=stated, words=words)
    if not more:
        return [own, rows, replace(own, factor=Factor(first))]
    (second,) = more
    products = replace(own, factor=Factor(second))
    own = replace(own, condition=join_conjuncts([*given, *is_present(second)]))
    other = replace(own, argument=second, condition=join_conjuncts([*given, *is_present(first)]))
    return [own, rows, other, products]
