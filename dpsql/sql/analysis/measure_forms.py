"""Forms of measures that mean the same, and what a statistic is computed from: typed expressions, and no text.

This file has three parts. (1) An argument that is a CASE becomes the value that counts, and the condition of the rows
that have it:

    SUM(CASE WHEN c THEN x ELSE 0 END)        SUM(x) FILTER (WHERE c)
    SUM(CASE WHEN c THEN 0 ELSE x END)        SUM(x) FILTER (WHERE c IS NOT TRUE)
    SUM(CASE WHEN c THEN 1 ELSE 0 END)        COUNT(*) FILTER (WHERE c), for a whole number
    SUM(CAST(c AS INTEGER))                   COUNT(*) FILTER (WHERE c)
    AVG(CASE WHEN c THEN x END)               AVG(x) FILTER (WHERE c)
    AVG(CASE WHEN c THEN 1.0 ELSE 0 END)      AVG(CASE WHEN c THEN 1 ELSE 0 END)
    COUNT(CASE WHEN c THEN x END)             COUNT(x) FILTER (WHERE c), or COUNT(*) where x is a constant
    COUNT(DISTINCT CASE WHEN c THEN x END)    COUNT(DISTINCT x) FILTER (WHERE c)

The two columns are the same number for every row, also where c or x is NULL, and are one question with one answer. IF
is a CASE. The bounds of the right column are never wider: a row that adds nothing has no part in the range of x.

(2) `list_spread_measures` lists the measures of a variance or covariance.

(3) From `couple_measures` on, measures that are divided by each other become sets, for which each unit has one weight.
AVG(x) is a set of its own, of SUM(x) and COUNT(x), so the same SUM beside it keeps its own cut. Outputs that meet in
one expression of a SELECT around the private query (`outer_columns.py`) are one set, too. A release is known by its
measure and its set. A unit is never cut where units are counted: COUNT(DISTINCT unit) is in no set. Neither is
COUNT(DISTINCT x), to which no unit adds a number of its own: two units can have the same value.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from dpsql.errors import Place
from dpsql.sql.ir.measures import MOST_STEPS, Aggregate, Factor, Measure, StatedBounds, Weight, is_present
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.tree import (
    BOOLEAN,
    INTEGER,
    Call,
    Case,
    Cast,
    Expression,
    Family,
    Literal,
    Type,
    join_conjuncts,
    split_conjuncts,
    strip_casts,
)

_Set = frozenset[Measure]
_ALONE: _Set = frozenset()
_UNWEIGHED = frozenset([Aggregate.UNITS, Aggregate.ITEMS])


@dataclass(frozen=True, slots=True)
class Conditional:
    """An argument that is `value` in the rows where `condition` holds, and NULL or 0 elsewhere."""

    value: Expression
    condition: Expression

    @property
    def is_one(self) -> bool:
        """Whether the value is the whole number 1."""
        return self.value.type.family is Family.INTEGER and _find_number(self.value) == 1

    @property
    def is_constant(self) -> bool:
        """Whether the value is a constant, and not NULL."""
        is_literal = isinstance(self.value, Literal) and self.value.value is not None
        return is_literal or _find_number(self.value) is not None


def simplify_sum(total: Measure) -> Measure:
    """Return a sum as one with a condition, or as a number of rows, where its argument is a CASE."""
    found = split_conditional(total.argument, zero_counts=False)
    if found is None:
        return total
    condition, stated = add_condition(total.condition, found.condition), total.stated
    if found.is_one and (stated is None or are_of_rows(stated)):
        rows = Measure(Aggregate.ROWS, None, condition, stated=stated, words=total.words)
        return replace(rows, former=replace(total, words=None))
    return replace(total, argument=found.value, condition=condition, former=replace(total, words=None))


def simplify_average(total: Measure, divisor: Measure) -> tuple[Measure, Measure]:
    """Return the sum and the number of rows of an average, where its argument is a CASE: of the rows of a condition."""
    share = _read_share(total.argument)
    found = split_conditional(total.argument, zero_counts=True)
    if share is not None:  # each row has a value
        value, condition, counted = share, total.condition, total.condition
    elif found is not None:
        value, condition = found.value, add_condition(total.condition, found.condition)
        counted = join_conjuncts([condition, *is_present(value)])
    else:
        return total, divisor
    return (
        replace(total, argument=value, condition=condition, former=replace(total, words=None)),
        replace(divisor, condition=counted, former=replace(divisor, words=None)),
    )


def simplify_count(rows: Measure, argument: Expression, *, condition: Expression | None) -> Measure:
    """Return the number of rows of a FILTER where an argument has a value; that of a CASE is in the condition."""
    found = split_conditional(argument, zero_counts=True)
    if found is None:
        return rows
    joined = add_condition(condition, found.condition)
    if not found.is_constant:
        joined = join_conjuncts([joined, *is_present(found.value)]) or joined
    return replace(rows, condition=joined, former=replace(rows, words=None))


def simplify_distinct(items: Measure) -> Measure:
    """Return the number of different values of a FILTER, where the argument is a CASE that is NULL elsewhere."""
    found = split_conditional(items.argument, zero_counts=True)
    if found is None or found.is_constant:
        return items
    return replace(items, argument=found.value, condition=add_condition(items.condition, found.condition))


def are_of_rows(stated: StatedBounds) -> bool:
    """Say whether bounds are those of a count of rows."""
    return stated.low == 0 and stated.high.denominator == 1 and 1 <= stated.high <= MOST_STEPS


def split_conditional(argument: Expression | None, *, zero_counts: bool) -> Conditional | None:
    """Return the value and the condition of a CASE with two outcomes, one of which is NULL; None for anything else.

    The other outcome may be 0, too, unless `zero_counts`: a 0 changes no sum, but an average and a count.
    """
    inner, casts = argument, list[Type]()
    # The casts around a CASE move to its value: CAST(CASE WHEN c THEN x END AS DOUBLE) is CAST(x AS DOUBLE) where c.
    while isinstance(inner, Cast) and inner.type.is_number and inner.argument.type.is_number:
        casts.append(inner.type)
        inner = inner.argument
    if isinstance(inner, Cast) and inner.argument.type == BOOLEAN and inner.type.family is Family.INTEGER:
        return None if zero_counts else Conditional(_cast_again(Literal(1, inner.type), casts), inner.argument)
    if not isinstance(inner, Case) or len(inner.branches) != 1:
        return None
    ((condition, value),) = inner.branches
    if _adds_nothing(inner.default, zero_counts=zero_counts):
        return Conditional(_cast_again(value, casts), condition)
    if inner.default is not None and _adds_nothing(value, zero_counts=zero_counts):
        otherwise = Call("not", (Call("is_true", (condition,), BOOLEAN),), BOOLEAN)
        return Conditional(_cast_again(inner.default, casts), otherwise)
    return None


def _read_share(argument: Expression | None) -> Expression | None:
    """Return CASE WHEN c THEN 1 ELSE 0 END for one with these outcomes in any type of number, None for another."""
    inner = _strip_number_casts(argument)
    if not isinstance(inner, Case) or len(inner.branches) != 1 or not inner.type.is_number:
        return None
    ((condition, value),) = inner.branches
    if (_find_number(value), _find_number(inner.default)) != (1, 0):
        return None
    return Case(((condition, Literal(1, INTEGER)),), Literal(0, INTEGER), INTEGER)


def add_condition(filtered: Expression | None, condition: Expression) -> Expression:
    """Return the condition of a FILTER, if there is one, together with another."""
    joined = None if filtered is None else join_conjuncts([*split_conjuncts(filtered), *split_conjuncts(condition)])
    return condition if joined is None else joined


def _cast_again(value: Expression, casts: list[Type]) -> Expression:
    for wanted in reversed(casts):
        if isinstance(value, Literal) and type(value.value) is int and wanted.family is Family.INTEGER:
            value = replace(value, type=wanted)
        elif value.type != wanted:
            value = Cast(value, wanted)
    return value


def _adds_nothing(result: Expression | None, *, zero_counts: bool) -> bool:
    """Say whether a result is NULL, or 0 where that does not count."""
    inner = None if result is None else strip_casts(result)
    if inner is None or (isinstance(inner, Literal) and inner.value is None):
        return True
    return not zero_counts and _find_number(inner) == 0


def _strip_number_casts(expression: Expression | None) -> Expression | None:
    """Return what casts of numbers to numbers are of."""
    while isinstance(expression, Cast) and expression.type.is_number and expression.argument.type.is_number:
        expression = expression.argument
    return expression


def _find_number(result: Expression | None) -> int | float | Decimal | None:
    """Return the number that a result is, None for anything but a constant."""
    bare = _strip_number_casts(result)
    value = bare.value if isinstance(bare, Literal) else None
    return value if isinstance(value, int | float | Decimal) and not isinstance(value, bool) else None


# Part 2: variances and covariances.


def list_spread_measures(
    arguments: Sequence[Expression], *, condition: Expression | None, stated: StatedBounds | None, words: Place | None
) -> list[Measure]:
    """Return the measures of one argument or of two: a sum of distances, the rows, the other sum, and the products.

        VAR_POP(x)        N rows with a value, S distances from the middle of the range of x, Q their squares
        COVAR_POP(x, y)   N rows with both, a sum of distances of each, and Q products of the two

    The middle, and how many rows of one unit count, are known when the query is planned (`plan/measures/coupled.py`).
    COVAR of an argument with itself is its variance, and the order of two arguments changes nothing. `stated` is the
    range of one row of either argument.
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


# Part 3: sets of measures that are divided by each other.


def set_columns(measure: Measure, find: Callable[[Expression], tuple[tuple[str, str], ...]]) -> Measure:
    """Return a measure, and what 0.11 read in its words, with the stored columns that they are worked out from."""
    former = None if measure.former is None else set_columns(measure.former, find)
    columns = () if measure.argument is None else find(measure.argument)
    return replace(measure, columns=columns, former=former)


def couple_measures(query: PrivateQuery, meetings: Iterable[Collection[int]] = ()) -> PrivateQuery:
    """Return the query with the sets of its measures: of each average, and of outputs that meet, by their positions."""
    found = list(meetings)
    if not found and all(output.divisor is None for output in query.outputs):
        return query
    plain = [replace(measure, weight=None) for measure in query.measures]
    sets = _find_sets(query, plain, meetings=found)
    ordered = sorted({each for each in sets if each}, key=lambda each: sorted(map(repr, each)))
    weights = {each: Weight(number) for number, each in enumerate(ordered, start=1)}
    pairs = [
        [] if not output.is_measure else [replace(plain[at], weight=weights.get(within)) for at in output.places]
        for output, within in zip(query.outputs, sets, strict=True)
    ]
    ranking = [_find_ranking(query, plain[0], pairs=pairs)] if query.clause.shape == "top" else []
    measures = tuple(dict.fromkeys([*ranking, *sorted({each for pair in pairs for each in pair}, key=repr)]))
    outputs = tuple(
        output.place(list(map(measures.index, pair))) if pair else output
        for output, pair in zip(query.outputs, pairs, strict=True)
    )
    return replace(query, measures=measures, outputs=outputs)


def _find_sets(query: PrivateQuery, plain: Sequence[Measure], *, meetings: Iterable[Collection[int]]) -> list[_Set]:
    """Return the set of each output, which is empty for a key and for a measure alone."""
    together = dict[int, _Set]()
    merged = list[frozenset[int]]()
    for each in map(frozenset, meetings):  # those that have an output in common are one
        # The meetings {0, 1} and {1, 2} are one set {0, 1, 2}: all three are divided by each other.
        apart = [other for other in merged if not other & each]
        merged = [*apart, each.union(*(other for other in merged if other & each))]
    for meeting in merged:
        met = [
            at
            for at in meeting
            if is_released_number(query, at) and plain[query.outputs[at].measure].aggregate not in _UNWEIGHED
        ]
        measures = frozenset(plain[query.outputs[at].measure] for at in met)
        together |= dict.fromkeys(met, measures if len(measures) > 1 else _ALONE)
    last = dict[tuple[int, ...], _Set]()
    found = list[_Set]()
    for at, output in enumerate(query.outputs):
        places = output.places
        within = _ALONE if output.divisor is None else frozenset(plain[each] for each in places)
        if output.end is not None:  # of the measure before it
            within = last.get(places, within)
        elif output.is_measure:
            within = last[places] = together.get(at, within)
        found.append(within)
    return found


def _find_ranking(query: PrivateQuery, ranking: Measure, *, pairs: Sequence[Sequence[Measure]]) -> Measure:
    """Return the measure that ranks: as it is alone, if an output has it so, else in the set of its first output."""
    able = [pair[0] for output, pair in zip(query.outputs, pairs, strict=True) if pair and output.divisor is None]
    same = [measure for measure in able if replace(measure, weight=None) == ranking]
    return ranking if ranking in same else next(iter(same), ranking)


def is_released_number(inner: PrivateQuery, at: int) -> bool:
    """Say whether an output is a measure as it is released."""
    output = inner.outputs[at]
    return output.is_measure and output.divisor is None and output.end is None
