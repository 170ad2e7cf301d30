"""Bounds of an expression, worked out from those that the policy has for its columns; everything is exact.

The bounds of a column are of a unit's values in a group: `max` of the sum of the positive ones, -`min` of the sum of
the negative ones, and `each` of the value of one row. An expression e has a range of the value of one row, and two sums
of parts with coefficients of at least 0, its forms, between which it is in every row: -down <= e <= up. A part is >= 0
in every row, and has a total for one unit: x where it is positive, -x where it is negative, or 1. Totals are
those of all rows that the query makes, so a join multiplies them. Then a unit adds at most the total of up, and at most
the greatest value of a row for each of its rows; the smaller of the two holds.

What is not in the table of `docs/reference/sql/measures.md` has no bounds. NULL adds nothing. A
range in WHERE or FILTER narrows nothing; of a condition only that an operand is not NULL is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor, inf, isfinite
from typing import NamedTuple

from dpsql.plan.measures.rows import Columns, Rows, TableRows, count_rows, list_keys, list_sources
from dpsql.sql.ir.transforms import canonicalize
from dpsql.sql.ir.tree import (
    Call,
    Case,
    Cast,
    ColumnRef,
    Combined,
    Derived,
    Expression,
    Family,
    FromWhere,
    Literal,
    Numbered,
    Relation,
    Scan,
    Try,
    Type,
    find_read_type,
    split_conjuncts,
    strip_casts,
    walk,
)

Number = Fraction | float  # exact, or infinite
_COMPARED = frozenset(["=", "<>", "<", "<=", ">", ">="])
_SUMS, _OF_ONE_ROW = frozenset(["sum", "sum_sorted"]), frozenset(["avg", "avg_sorted", "min", "max"])
_COUNTS = frozenset(["count_star", "count", "count_distinct"])
_OF_TWO = frozenset(["+", "-", "*", "/", "//"])
_BOUNDED = _OF_TWO | frozenset("neg least greatest abs coalesce round floor ceil trunc".split())


class _Part(NamedTuple):
    """A part: the positive or the negative values of a column, or 1 for every row that a relation reads."""

    relation: int
    column: str = ""
    is_positive: bool = True


_EVERY_ROW = _Part(0)
_LONGEST, _BITS = 1_000, 200  # bits of a number, and of one that was rounded, before and behind the point
_Form = Mapping[_Part, Fraction] | None  # None without a bound


@dataclass(frozen=True, slots=True)
class ColumnTotals:
    """Totals of one unit's positive and negative values of a column, and the range of a value; infinite if unknown."""

    positive: Number
    negative: Number
    low: Number
    high: Number


@dataclass(frozen=True, slots=True)
class Totals:
    """Bounds of private tables: their rows by path, and those of a column by path and name.

    The `grouped` columns of the query have one value in each group.
    """

    tables: Mapping[tuple[str, ...], TableRows]
    find: Callable[[tuple[str, ...], str], ColumnTotals | None]
    grouped: Columns = frozenset()


@dataclass(frozen=True, slots=True)
class ExpressionBounds:
    """What one unit adds to a sum of an expression, `least` to `most`, and the range of one row's value."""

    least: Number
    most: Number
    low: Number
    high: Number


def bound_expression(
    expression: Expression, body: FromWhere, *, totals: Totals, condition: Expression | None = None
) -> ExpressionBounds:
    """Return what one unit adds to the sum of an expression over the rows of a query where a condition holds."""
    level = _Level(totals, body, condition)
    found = level.find(expression) or _constant(Fraction(0))
    # SUM(2 * x) of 3 rows of a unit, x from 0 to 500 and their sum at most 800: 1,600 by the sum, 3,000 by the rows
    most = min(level.total(found.up), level.times_rows(max(found.high, 0)))
    least = -min(level.total(found.down), level.times_rows(max(-found.low, 0)))
    return ExpressionBounds(least, most, found.low, found.high)


@dataclass(frozen=True, slots=True)
class _Bound:
    """Range and forms of an expression; `is_present` says that it is NULL, or NaN, in no row."""

    low: Number
    high: Number
    up: _Form
    down: _Form
    is_present: bool = False


_UNKNOWN = _Bound(-inf, inf, None, None)


def _constant(value: Fraction) -> _Bound:
    return _Bound(value, value, _rows(max(value, Fraction(0))), _rows(max(-value, Fraction(0))), is_present=True)


def _rows(coefficient: Number) -> _Form:
    """Return the form of a constant."""
    if not isinstance(coefficient, Fraction):
        return None
    return {_EVERY_ROW: coefficient} if coefficient else {}


def _scale(form: _Form, factor: Number) -> _Form:
    # 0 times a part without a bound is 0, not unknown.
    if not factor or not form:
        return {} if not factor else form
    return {part: each * factor for part, each in form.items()} if isinstance(factor, Fraction) else None


def _add(one: _Form, other: _Form) -> _Form:
    if one is None or other is None:
        return None
    return {part: one.get(part, Fraction(0)) + other.get(part, Fraction(0)) for part in (*one, *other)}


def _larger(forms: Iterable[_Form]) -> _Form:
    """Return the form with the largest coefficient of each part, which is above each of the forms in every row."""
    found = dict[_Part, Fraction]()
    for form in forms:
        if form is None:
            return None
        for part, each in form.items():
            found[part] = max(each, found.get(part, each))
    return found


def _negate(bound: _Bound) -> _Bound:
    return replace(bound, low=-bound.high, high=-bound.low, up=bound.down, down=bound.up)


def _plus(one: _Bound, other: _Bound) -> _Bound:
    return _Bound(one.low + other.low, one.high + other.high, _add(one.up, other.up), _add(one.down, other.down))


def _find_of_one(function: str, one: _Bound, *, type_: Type) -> _Bound | None:
    match function:
        case "neg":
            return _negate(one)
        case "abs":
            low, high = max(one.low, -one.high, Fraction(0)), max(one.high, -one.low)
            return replace(one, low=low, high=high, up=_larger((one.up, one.down)), down={})
        case "floor":
            return _floor(one, type_)
        case "ceil":  # -FLOOR(-e)
            return _negate(_floor(_negate(one), type_))
    return _truncate(one)


def _of_square(one: _Bound, found: _Bound) -> _Bound:
    """Return the bounds of e * e, which is never below 0, by those of e and of a product."""
    squares = [_times(one.low, one.low), _times(one.high, one.high)]
    return replace(found, low=Fraction(0) if one.low <= 0 <= one.high else min(squares), down={})


def _floor(found: _Bound, type_: Type) -> _Bound:
    if _count_digits(type_) == 0:
        return found
    low, high = (end if not isinstance(end, Fraction) else Fraction(floor(end)) for end in (found.low, found.high))
    # FLOOR(e) <= e, so that `up` holds as it is; -FLOOR(e) < 1 - e, so that `down` gets 1 for every row.
    up, down = found.up if high > 0 else {}, _add(found.down, _rows(Fraction(1))) if low < 0 else {}
    return replace(found, low=low, high=high, up=up, down=down)


def _either(bounds: Sequence[_Bound | None]) -> _Bound | None:
    """Return the bounds of what is one of several expressions; None means NULL."""
    known = [bound for bound in bounds if bound is not None]
    if not known:
        return None
    return _Bound(
        min(bound.low for bound in known),
        max(bound.high for bound in known),
        _larger(bound.up for bound in known),
        _larger(bound.down for bound in known),
    )


def _times(one: Number, other: Number) -> Number:
    """Return a product in which 0 times infinity is 0."""
    return one * other if one and other else Fraction(0)


@dataclass(slots=True)
class _Level:
    """The rows of one query block, by which its expressions are bounded."""

    totals: Totals
    body: FromWhere
    condition: Expression | None = None
    bases: dict[_Part, Number] = field(default_factory=dict)
    levels: dict[int, _Level] = field(default_factory=dict)
    known: dict[Expression, _Bound | None] = field(default_factory=dict)
    rows: Rows = field(init=False)
    sources: Mapping[int, Relation] = field(init=False)
    present: frozenset[Expression] = field(init=False)

    def __post_init__(self) -> None:
        self.rows = count_rows(self.body.source, self.totals.tables, grouped=self.totals.grouped)
        self.sources = list_sources(self.body.source)
        conjuncts = [*split_conjuncts(self.body.where), *split_conjuncts(self.condition)]
        self.present = frozenset(each for conjunct in conjuncts for each in _list_present(conjunct))

    def total(self, form: _Form) -> Number:
        """Return the total of a form for one unit."""
        if form is None:
            return inf
        found: Number = Fraction(0)
        for part, each in form.items():
            found += _times(each, self._total_part(part))
        return found

    def times_rows(self, value: Number) -> Number:
        """Return a value once for each row that a unit can have."""
        return _times(value, self._total_part(_EVERY_ROW))

    def _total_part(self, part: _Part) -> Number:
        if part == _EVERY_ROW:
            return self.rows.total if self.rows.total == inf else Fraction(self.rows.total)
        times = self.rows.with_row[part.relation]
        return _times(self.bases[part], times if times == inf else Fraction(times))

    def find(self, expression: Expression) -> _Bound | None:
        """Return the bounds of an expression; None for NULL. They are worked out once."""
        if expression not in self.known:
            self.known[expression] = _limit(self._find(expression))
        return self.known[expression]

    def _find(self, expression: Expression) -> _Bound | None:
        match expression:
            case Literal():
                return _read_literal(expression)
            case ColumnRef():
                return self._find_column(expression)
            case Try(argument=argument):
                return self._find_inside(argument)
            case Cast():
                return self._cast(expression)
            case Case(default=default) if default is not None and expression == canonicalize(default):
                return self.find(default)
            case Case(branches=branches, default=default):
                results = [result for _, result in branches] + ([] if default is None else [default])
                found = _either(list(map(self.find, results)))
                has_all = default is not None and found is not None and all(map(self._is_present, results))
                return replace(found, is_present=True) if found is not None and has_all else found
            case Call(function=function, arguments=arguments) if function in _BOUNDED:
                return self._find_call(function, arguments)
        return _UNKNOWN

    def _find_inside(self, expression: Expression) -> _Bound | None:
        """Return the bounds of an expression that can fail, and is NULL then."""
        found = self.find(expression)
        return None if found is None else replace(found, is_present=False)

    def _is_present(self, expression: Expression) -> bool:
        found = self.find(expression)
        return found is not None and found.is_present

    def _find_column(self, column: ColumnRef) -> _Bound | None:
        source = self.sources.get(column.relation)
        match source:
            case Numbered(count=count):
                # A numbered relation has the values 1 to `count`.
                return replace(_constant(Fraction(count)), low=Fraction(1))
            case Scan(number=number, path=path):
                found: _Bound | None = self._find_stored(number, path=path, name=column.name)
            case Derived():
                found = self._find_output(source, column)
            case Combined(branches=branches, kind=kind):
                # INTERSECT and EXCEPT return rows of their first branch alone.
                sides = branches if kind.startswith("UNION") else branches[:1]
                found = _either([self._find_output(branch, column) for branch in sides])
            case _:
                return _UNKNOWN
        if found is None:
            return None
        is_exact = column.type.family in {Family.INTEGER, Family.DECIMAL}  # a DOUBLE that is not NULL may be NaN
        return replace(found, is_present=is_exact and column in self.present)

    def _find_stored(self, number: int, *, path: tuple[str, ...], name: str) -> _Bound:
        known = self.totals.find(path, name)
        if known is None:
            return _UNKNOWN
        positive, negative = _Part(number, name), _Part(number, name, is_positive=False)
        self.bases[positive], self.bases[negative] = known.positive, known.negative
        up: _Form = {positive: Fraction(1)} if known.positive else {}
        return _Bound(known.low, known.high, up, {negative: Fraction(1)} if known.negative else {})

    def _find_output(self, source: Derived, column: ColumnRef) -> _Bound | None:
        """Return the bounds of an output of a subquery: forms of the same parts, in the rows of this block."""
        output = source.outputs[int(column.name.removeprefix("c")) - 1]
        inner = self.levels.setdefault(source.number, _Level(self.totals, source.body, bases=self.bases))
        if not source.grouping and not _has_aggregate(output):
            return inner.find(output)
        return inner.find_aggregate(output, source)

    def find_aggregate(self, expression: Expression, group: Derived) -> _Bound | None:
        """Return the bounds of a key or an aggregate of the rows of this block, in the rows of its groups."""
        each_row = _Part(group.number)
        self.bases[each_row] = self._total_part(_EVERY_ROW)

        def move(form: _Form) -> _Form:
            # 1 for every row that the subquery reads is, outside, 1 for every row that the groups are made of
            return None if form is None else {each_row if part == _EVERY_ROW else part: form[part] for part in form}

        match expression:
            case Cast(argument=argument) if _has_aggregate(argument):
                found = self.find_aggregate(argument, group)  # of the exact sum, which is NULL where it does not fit
                return found if expression.type.is_number else _UNKNOWN
            case Case(default=Call() as default) if _has_aggregate(
                default
            ):  # one zero and one NaN, in place of several
                return self.find_aggregate(default, group)
            case Call(function=function) if function in _COUNTS:
                # One group may have all rows of a unit, and all groups together have no more of them.
                most = self._total_part(_EVERY_ROW)
                least = Fraction(function == "count_star" and bool(group.grouping))  # a group has a row
                return _Bound(least, most, {each_row: Fraction(1)}, {})
            case Call(function=function, arguments=(argument,)) if function in _SUMS | _OF_ONE_ROW:
                found = self.find(argument)
                if found is None:
                    return None
                high, low = found.high, found.low
                if function in _SUMS:
                    high = min(self.total(found.up), self.times_rows(high)) if high > 0 else high
                    low = -min(self.total(found.down), self.times_rows(-low)) if low < 0 else low
                # AVG, MIN and MAX of a group are at most the sum of its values above 0, so that the forms of a sum hold
                # for them too.
                return _Bound(low, high, move(found.up), move(found.down))
        if expression not in list_keys(group):
            return _UNKNOWN
        found = self.find(expression)
        return None if found is None else _Bound(found.low, found.high, move(found.up), move(found.down))

    def _cast(self, cast: Cast) -> _Bound | None:
        """Return the bounds of a number as another type of number: rounded, if that has fewer digits."""
        argument, wanted = cast.argument, cast.type
        if argument.type.family is Family.BOOLEAN and wanted.is_number:
            return _Bound(Fraction(0), Fraction(1), _rows(Fraction(1)), {})
        if isinstance(argument, Literal) and argument.value is None:
            return None
        if not wanted.is_number or not find_read_type(argument.type).is_number:
            return _UNKNOWN
        if wanted.family is Family.DOUBLE:
            return self.find(argument)
        digits = wanted.precision[1]
        if _count_digits(argument.type) <= digits:
            return self._find_inside(argument)
        return _round(self._find_inside(argument), Fraction(1, 10**digits))

    def _find_call(self, function: str, arguments: tuple[Expression, ...]) -> _Bound | None:
        """Return the bounds of a call of one of _BOUNDED; None for NULL."""
        bounds = list(map(self.find, arguments))
        known = [each for each in bounds if each is not None]
        match function:
            case "coalesce":
                found = _either(known)
                return None if found is None else replace(found, is_present=any(each.is_present for each in known))
            case "least":
                return self._least(known)
            case "greatest":  # -LEAST(-e, -f)
                found = self._least(list(map(_negate, known)))
                return None if found is None else _negate(found)
            case "round":
                return self._round(*arguments)
        if len(known) < len(bounds):  # the others are NULL where an argument is
            return None
        if function not in _OF_TWO:
            return _find_of_one(function, known[0], type_=arguments[0].type)
        one, other = known
        if function == "*" and arguments[0] == arguments[1]:
            return _of_square(one, self._multiply(one, other))
        return self._find_of_two(function, one=one, other=other)

    def _find_of_two(self, function: str, *, one: _Bound, other: _Bound) -> _Bound | None:
        match function:
            case "+":
                return _plus(one, other)
            case "-":
                return _plus(one, _negate(other))
            case "*":
                return self._multiply(one, other)
            case "/":
                return self._divide(one, other)
        return _truncate(self._divide(one, other))  # e // f is rounded towards 0, or as it is for DOUBLE

    def _multiply(self, one: _Bound, other: _Bound) -> _Bound:
        # With e = e+ - e-: e f <= e+ max(high of f, 0) + e- max(-low of f, 0), where `up` is at least e+ and `down` at
        # least e-. With e and f exchanged there are other forms; those with the lesser total are taken.
        ends = [_times(end, by) for end in (one.low, one.high) for by in (other.low, other.high)]
        pairs = (one, other), (other, one)
        ups = [_add(_scale(e.up, max(f.high, Fraction(0))), _scale(e.down, max(-f.low, Fraction(0)))) for e, f in pairs]
        downs = [
            _add(_scale(e.up, max(-f.low, Fraction(0))), _scale(e.down, max(f.high, Fraction(0)))) for e, f in pairs
        ]
        return _Bound(min(ends), max(ends), min(ups, key=self.total), min(downs, key=self.total))

    def _divide(self, one: _Bound, other: _Bound) -> _Bound:
        """Return the bounds of e / f, none where f may be 0."""
        if other.low <= 0 <= other.high:
            return _UNKNOWN
        # 1 / f falls where f rises, so that its ends change places; 1 / infinity is 0.
        low, high = (Fraction(0) if not isinstance(end, Fraction) else 1 / end for end in (other.high, other.low))
        inverse = _Bound(low, high, _rows(max(high, Fraction(0))), _rows(max(-low, Fraction(0))))
        return self._multiply(one, inverse)

    def _least(self, known: Sequence[_Bound]) -> _Bound | None:
        """Return the bounds of LEAST, which is the least of the arguments that are not NULL."""
        found = _either(known)
        if found is None:
            return None
        # LEAST(500, NULL) is 500: an argument that may be NULL bounds nothing from above.
        always = [each for each in known if each.is_present]
        ups = [found.up, *(each.up for each in always)]
        high = min([found.high, *(each.high for each in always)])
        return replace(found, high=high, up=min(ups, key=self.total), is_present=bool(always))

    def _round(self, argument: Expression, *rest: Expression) -> _Bound | None:
        """Return the bounds of ROUND, to whole numbers or to so many digits."""
        digits = rest[0].value if rest and isinstance(rest[0], Literal) else 0
        if not isinstance(digits, int) or (rest and not isinstance(rest[0], Literal)):
            return _UNKNOWN
        if _count_digits(argument.type) <= digits:
            return self._find_inside(argument)
        return _round(self._find_inside(argument), Fraction(10) ** -digits)


def _count_digits(type_: Type) -> float:
    """Return how many digits after the point values of a type have."""
    return type_.precision[1] if type_.family in {Family.INTEGER, Family.DECIMAL} else inf


def _read_literal(literal: Literal) -> _Bound | None:
    """Return the bounds of a constant: NULL and NaN are None."""
    value = literal.value
    if value is None or value != value:  # noqa: PLR0124 - NaN
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not isfinite(value):
        return _UNKNOWN
    return _constant(Fraction(value))


def _round(found: _Bound | None, step: Fraction) -> _Bound | None:
    """Return the bounds of a value that is rounded to a multiple of a step, by half a step at most."""
    if found is None:
        return None
    half = Fraction(1, 2)
    # Halves may go away from 0 or to the even neighbour: the ends hold for both.
    high = found.high if not isinstance(found.high, Fraction) else floor(found.high / step + half) * step
    low = found.low if not isinstance(found.low, Fraction) else ceil(found.low / step - half) * step
    up = _add(found.up, _rows(step / 2)) if high > 0 else {}
    return replace(found, low=low, high=high, up=up, down=_add(found.down, _rows(step / 2)) if low < 0 else {})


def _truncate(found: _Bound | None) -> _Bound | None:
    """Return the bounds of a value that is rounded towards 0, or as it is."""
    if found is None:
        return None
    # Below 0 rounding goes up and above 0 down, so that only an end on the far side of 0 moves outwards.
    low = Fraction(floor(found.low)) if found.low > 0 and found.low != inf else found.low
    high = Fraction(ceil(found.high)) if found.high < 0 and found.high != -inf else found.high
    return replace(found, low=low, high=high, is_present=False)


def _limit(found: _Bound | None) -> _Bound | None:
    """Return bounds of numbers that are not too long, rounded to wider ones: products of products grow without end."""
    if found is None:
        return None
    numbers = [found.low, found.high, *(found.up or {}).values(), *(found.down or {}).values()]
    if not any(_is_long(each) for each in numbers):
        return found
    return replace(
        found,
        low=-_round_up(-found.low),
        high=_round_up(found.high),
        up=_limit_form(found.up),
        down=_limit_form(found.down),
    )


def _limit_form(form: _Form) -> _Form:
    rounded = {part: _round_up(each) for part, each in (form or {}).items()}
    found = {part: each for part, each in rounded.items() if isinstance(each, Fraction)}
    return found if form is not None and len(found) == len(rounded) else None


def _is_long(value: Number) -> bool:
    return isinstance(value, Fraction) and value.numerator.bit_length() + value.denominator.bit_length() > _LONGEST


def _round_up(value: Number) -> Number:
    """Return a number of few digits that is at least this one; infinite for those that no bound can have."""
    if not isinstance(value, Fraction) or not _is_long(value):
        return value
    if abs(value) >= 1 << _BITS:
        return inf if value > 0 else -Fraction(1 << _BITS)
    return Fraction(ceil(value * (1 << _BITS)), 1 << _BITS)


def _has_aggregate(expression: Expression) -> bool:
    inner = expression.argument if isinstance(expression, Cast) else expression
    inner = inner.default if isinstance(inner, Case) and inner.default is not None else inner
    return isinstance(inner, Call) and inner.function in _COUNTS | _SUMS | _OF_ONE_ROW


def _list_present(condition: Expression) -> Iterable[Expression]:
    """Return the operands that are not NULL where a condition holds."""
    match condition:
        case Call(function="not", arguments=(Call(function="is_null", arguments=(argument,)),)):
            return [argument, strip_casts(argument)]
        case Call(function=function, arguments=arguments) if function in _COMPARED:
            return [*arguments, *map(strip_casts, arguments)]
    return ()


def is_signed(expression: Expression | None) -> bool:
    """Say whether a number is likely to be below 0 in some rows: a difference, or a value with a minus."""
    parts = [] if expression is None else walk(expression)
    return any(isinstance(each, Call) and each.function in {"-", "neg", "date_diff"} for each in parts)


def has_times(expression: Expression | None) -> bool:
    """Say whether a column of a number is a time, of which a policy states no sum."""
    parts = [] if expression is None else walk(expression)
    return any(isinstance(each, ColumnRef) and not each.type.is_number for each in parts)
