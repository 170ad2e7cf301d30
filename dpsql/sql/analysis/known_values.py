"""Values of a key that the statement determines: outcomes of CASE, truth values, parts of times, and small ranges.

    SELECT CASE WHEN age < 30 THEN 'young' WHEN age < 60 THEN 'middle' END AS class, COUNT(DISTINCT user_id) AS n
    FROM reads GROUP BY class ALL PRIVATE

The list depends on the text and the types alone. It may hold a value that no row can have, which is then released with
the count 0, and NULL is in it wherever the expression can be NULL. Rows of any other value would be dropped before they
are counted, so that a list which lacked one would lose rows, and never privacy.

This file has two parts: (1) `list_known_values` finds the values of one key; (2) from `needs_bounds` on,
`read_group_domain` makes the domain of all keys of ALL PRIVATE, of which the option `domain` gives one that the
statement does not tell. Several keys have all combinations of their values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from math import isfinite

from dpsql.errors import Place, Refusal
from dpsql.sql.analysis.calendar import find_bounds, find_period, is_time_bucket, missing_bounds, read_calendar
from dpsql.sql.analysis.domains import MOST_GROUPS, check_number_of_groups, is_released, read_domain, read_values
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.statements import Domain, KeyDomain, LiteralDomain, Option, PrivateQuery, ProductDomain
from dpsql.sql.ir.tree import (
    BIGINT,
    DOUBLE,
    TEXT,
    Call,
    Case,
    Cast,
    ColumnRef,
    Combined,
    Cut,
    Derived,
    Exists,
    Expression,
    Family,
    FromWhere,
    In,
    Joined,
    Literal,
    Numbered,
    Relation,
    Scan,
    Type,
    split_conjuncts,
    strip_casts,
)

_RANGES = {
    "month": (1, 12),
    "quarter": (1, 4),
    "day": (1, 31),
    "dow": (0, 6),
    "isodow": (1, 7),
    "doy": (1, 366),
    "week": (1, 53),
    "hour": (0, 23),
    "minute": (0, 59),
    "second": (0, 59),
}
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October")
_NAMES = {"dayname": _DAYS, "monthname": (*_MONTHS, "November", "December")}
_YEARS = frozenset(["year", "isoyear", "decade", "century", "millennium"])
_COMPARISONS = frozenset(["=", "<>", "<", "<=", ">", ">=", "between"])
_NEVER_NULL = frozenset(["is_null", "is_true", "is_false", "is_distinct", "is_not_distinct"])
_OF_BOTH = frozenset(["and", "or", "not", *_COMPARISONS])  # NULL only where an operand is
_PASSES_OVER_NULL = frozenset(["coalesce", "least", "greatest"])
_EXACT_NUMBERS = frozenset([Family.INTEGER, Family.DECIMAL])
_OUTER = {"LEFT": (False, True), "RIGHT": (True, False), "FULL": (True, True)}  # the sides of a join that may lack rows
_MOST_LISTED = 4 * MOST_GROUPS  # outcomes, equal ones too, beyond which no list is made
Values = tuple[Literal, ...]


def list_known_values(key: Expression, body: FromWhere, *, catalog: Catalog) -> Values | None:
    """Return the values that a key of the rows of a body can have; None where the statement does not tell them."""
    found = _Block(body, catalog, {}).values(key)
    return None if found is None or len(found) > MOST_GROUPS else found


def count_values(keys: Sequence[Expression], body: FromWhere, *, catalog: Catalog) -> int | None:
    """Return how many combinations of values keys of the rows of a body can have; None where that is not known."""
    found = 1
    for key in keys:
        values = list_known_values(key, body, catalog=catalog)
        if values is None:
            return None
        found *= len(values)
    return found


def find_year_column(key: Expression) -> ColumnRef | None:
    """Return the column of times whose years a key is, which bounds in WHERE make a list; None for another key."""
    match strip_casts(key):
        case Call(function="date_part", arguments=(Literal(value=str(part)), ColumnRef() as column)) if part in _YEARS:
            return column
    return None


@dataclass(frozen=True, slots=True)
class _Block:
    """FROM and WHERE of one SELECT, by which the values of its expressions are found.

    `seen` has those of the outputs of subqueries, by subquery and position: each may be named many times.
    """

    body: FromWhere
    catalog: Catalog
    seen: dict[tuple[int, int], Values | None]

    def values(self, node: Expression) -> Values | None:  # noqa: C901 - one rule after another
        """Return the values of an expression, each once; None where the statement does not determine them."""
        found: Values | None = None
        match node:
            case Literal():
                return (node,)
            case Case():
                found = self._outcomes(node)
            case Call(function="coalesce", arguments=arguments):
                found = self._first_known(arguments)
            case Cast(argument=inner, type=type_):
                found = self._cast(inner, type_)
            case Call(function="date_part" | "dayname" | "monthname"):
                found = self._part(node)
            case ColumnRef():
                found = self._column(node)
        if found is None and node.type.family is Family.BOOLEAN:
            found = self._with_null([Literal(value, node.type) for value in (False, True)], node)
        if found is None and node.type.family is Family.INTEGER:
            low, high = _find_ends(node.argument if isinstance(node, Cast) and node.argument.type == DOUBLE else node)
            if low is None or high is None or not (node.type.holds(low) and node.type.holds(high)):
                return None
            if low <= high < low + MOST_GROUPS:
                found = tuple(Literal(value, node.type) for value in range(low, high + 1))
        return None if found is None else tuple(dict.fromkeys(found))

    def can_be_null(self, node: Expression) -> bool:
        """Return whether an expression can be NULL, True where that is not known."""
        match node:
            case Literal(value=value):
                return value is None
            case ColumnRef():
                return not self._is_present(node)
            case Call(function=function) if function in _NEVER_NULL:
                return False
            case Call(function=function, arguments=arguments) if function in _OF_BOTH:
                return any(map(self.can_be_null, arguments))
            case Call(function=function, arguments=arguments) if function in _PASSES_OVER_NULL:
                return all(map(self.can_be_null, arguments))
            case Call(function=function, arguments=arguments):
                time = arguments[-1] if function in {"date_part", *_NAMES} else None
                # infinite times have no parts
                return not isinstance(time, ColumnRef) or None in find_bounds(time, self.body.where)
            case Cast(argument=argument, type=type_):
                is_total = type_ == DOUBLE and argument.type.family in _EXACT_NUMBERS
                is_part = type_ == BIGINT and isinstance(argument, Call) and argument.function == "date_part"
                return not (is_total or is_part) or self.can_be_null(argument)
            case In(argument=argument, choices=choices):
                return any(map(self.can_be_null, (argument, *choices)))
            case Case(branches=branches, default=default):
                results = (result for _, result in branches)
                return default is None or any(map(self.can_be_null, (*results, default)))
        return not isinstance(node, Exists)

    def _with_null(self, values: list[Literal], node: Expression) -> Values:
        return (*values, Literal(None, node.type)) if self.can_be_null(node) else tuple(values)

    def _is_present(self, column: ColumnRef) -> bool:
        """Return whether no row with NULL in a column passes WHERE, by a condition at its top that NULL fails."""
        for part in split_conjuncts(self.body.where):
            operands: tuple[Expression, ...] = ()
            match part:
                case ColumnRef():
                    operands = (part,)
                case Call(function=function, arguments=arguments) if function in {*_COMPARISONS, "is_true", "is_false"}:
                    operands = arguments
                case In(argument=argument):
                    operands = (argument,)
                case Call(function="not", arguments=(Call(function="is_null", arguments=arguments),)):
                    operands = arguments
            if any(strip_casts(operand) == column for operand in operands):
                return True
        return False

    def _outcomes(self, case: Case) -> Values | None:
        """Return the values of all outcomes of CASE, NULL without ELSE among them."""
        found = list[Literal]()
        default = Literal(None, case.type) if case.default is None else case.default
        for condition, result in (*case.branches, (None, default)):
            match condition:
                case Call(function="is_null", arguments=(argument, *_)) if not self.can_be_null(argument):
                    continue
            values = self.values(result)
            if values is None or len(found) > _MOST_LISTED:
                return None
            found += values
        return tuple(found)

    def _first_known(self, arguments: tuple[Expression, ...]) -> Values | None:
        """Return the values of COALESCE: those of its arguments, and NULL if all can be NULL."""
        found = list[Literal]()
        for argument in arguments:
            values = self.values(argument)
            if values is None or len(found) > _MOST_LISTED:
                return None
            found += [value for value in values if value.value is not None]
            if not self.can_be_null(argument):
                return tuple(found)
        return (*found, Literal(None, arguments[0].type))

    def _cast(self, inner: Expression, type_: Type) -> Values | None:
        """Return the values of a cast of whole numbers and truth values, whose text is the same in every engine."""
        values = self.values(inner)
        if values is None:
            return None
        found = list[Literal]()
        for value in values:
            cast = _cast_value(value, type_)
            if cast is None:
                return None
            found.append(cast)
        return tuple(found)

    def _part(self, call: Call) -> Values | None:
        """Return the values of a part of a time, or of its name; years need bounds in WHERE."""
        if call.function in _NAMES:
            names = [Literal(name, TEXT, call.longest) for name in _NAMES[call.function]]
            return self._with_null(names, call)
        part, time = call.arguments
        name = part.value if isinstance(part, Literal) else None
        ends = _RANGES.get(str(name))
        if name in _YEARS and isinstance(time, ColumnRef):
            period = find_period(time, self.body, catalog=self.catalog)
            ends = None if period is None else (_find_year(str(name), period[0]), _find_year(str(name), period[1]))
        if ends is None:
            return None
        return self._with_null([Literal(value, BIGINT) for value in range(ends[0], ends[1] + 1)], call)

    def _column(self, column: ColumnRef) -> Values | None:
        """Return the values of a column that a subquery computes, None for a stored one."""
        found = list[Literal]()
        for source, may_lack in _list_sources(self.body.source, column.relation):
            at = int(column.name.removeprefix("c")) - 1
            if (id(source), at) not in self.seen:
                self.seen[id(source), at] = _Block(source.body, self.catalog, self.seen).values(source.outputs[at])
            values = self.seen[id(source), at]
            if values is None:
                return None
            found += (*values, Literal(None, column.type)) if may_lack else values
        if not found:
            return None
        present = self._is_present(column)
        return tuple(value for value in found if not (present and value.value is None))


def _find_ends(node: Expression) -> tuple[int | None, int | None]:
    """Return the least and the greatest whole value of a number, None where nothing in the text sets one.

    LEAST and GREATEST pass over NULL, so that with a literal among their operands they are never NULL.
    """
    if isinstance(node, Literal) and isinstance(node.value, int | float):
        whole = isfinite(node.value) and node.value == int(node.value)
        return (int(node.value), int(node.value)) if whole else (None, None)
    if not isinstance(node, Call) or node.function not in {"least", "greatest"}:
        return None, None
    ends = [_find_ends(argument) for argument in node.arguments]
    lows, highs = [low for low, _ in ends if low is not None], [high for _, high in ends if high is not None]
    if node.function == "least":
        return (min(lows) if len(lows) == len(ends) else None), min(highs, default=None)
    return max(lows, default=None), (max(highs) if len(highs) == len(ends) else None)


def _cast_value(value: Literal, type_: Type) -> Literal | None:
    """Return a whole number or a truth value in another type, NULL where it does not fit; None for other casts."""
    found = value.value
    if found is None or value.type == type_:
        return Literal(found, type_, value.longest)
    if type(found) is int and type_.family is Family.INTEGER:
        return Literal(found if type_.holds(found) else None, type_)
    if type(found) is int and type_ == DOUBLE and abs(found) <= 1 << 53:
        return Literal(float(found), type_)
    if type(found) is int and type_ == TEXT:
        return Literal(str(found), type_, len(str(found)))
    if type(found) is bool and type_ == TEXT:
        return Literal("true" if found else "false", type_, len("false"))
    return None


def _find_year(part: str, moment: datetime) -> int:
    """Return a part of a time that only grows with it."""
    year = moment.isocalendar().year if part == "isoyear" else moment.year
    match part:
        case "decade":
            return year // 10
        case "century":
            return (year - 1) // 100 + 1
        case "millennium":
            return (year - 1) // 1000 + 1
    return year


def _list_sources(relation: Relation, number: int, *, may_lack: bool = False) -> list[tuple[Derived, bool]]:
    """Return the SELECTs that a relation's rows come of, and whether an outer join may leave its columns NULL."""
    match relation:
        case Joined(left=left, kind=kind, right=right):
            lacking = _OUTER.get(kind, (False, False))
            sides = zip((left, right), lacking, strict=True)
            return [each for side, lacks in sides for each in _list_sources(side, number, may_lack=may_lack or lacks)]
        case Derived() if relation.number == number:
            return [(relation, may_lack)]
        case Combined(branches=branches) if relation.number == number:
            return [(branch, may_lack) for branch in branches]
        case Cut(source=source) if source.number == number:
            return [(source, may_lack)]
        case Scan() | Numbered() | Derived() | Combined() | Cut():
            return []


# Part 2: the domain of all keys.


def needs_bounds(key: Expression) -> bool:
    """Return whether bounds in WHERE decide which values a key has."""
    return is_time_bucket(key) or find_year_column(key) is not None


def read_group_domain(
    keys: Sequence[Expression], body: FromWhere, *, option: Option | None, catalog: Catalog, place: Place
) -> tuple[Domain | None, str]:
    """Return the domain of the keys, None where one has none, and in words which time buckets WHERE cuts.

    Raises `Refusal` for a calendar without bounds, for an option that no key needs, and for too many groups.
    """
    if option is not None and (len(keys) == 1 or is_released(option)):
        return read_domain(option, tuple(keys), catalog=catalog), ""
    values = [None if is_time_bucket(key) else list_known_values(key, body, catalog=catalog) for key in keys]
    open_keys = [key for key, found in zip(keys, values, strict=True) if found is None and not is_time_bucket(key)]
    if option is not None and not open_keys:
        reason = "The statement determines the values of every key."
        raise Refusal("domain", reason, hint="Leave the domain out.", place=option.place)
    if option is not None and len(open_keys) > 1:
        hint = "Group by one of them, or leave the domain out and write TOP 10 PRIVATE."
        reason = "The domain is that of one key, and more keys have no known values."
        raise Refusal("keys", reason, hint=hint, place=option.place)
    if open_keys and option is None:
        return None, ""
    factors, cuts = list[KeyDomain](), list[str]()
    for key, found in zip(keys, values, strict=True):
        calendar = read_calendar(key, body, catalog=catalog, place=place)
        if calendar is not None:
            factors.append(calendar.domain)
            cuts += filter(None, [calendar.cut])
        elif found is not None:
            factors.append(LiteralDomain(found))
        elif option is not None:
            factors.append(read_values("domain", option, key=key, catalog=catalog))
    domain: Domain = factors[0] if len(factors) == 1 else ProductDomain(tuple(factors))
    check_number_of_groups(domain, place=place)
    return domain, "; ".join(cuts)


def check_groups_known(query: PrivateQuery, *, catalog: Catalog) -> None:
    """Refuse ALL PRIVATE with a key whose values are not known, and say what would make them known."""
    if query.clause.shape != "all" or query.domain is not None:
        return
    place = query.clause.place
    for key in query.keys:
        column = find_year_column(key)
        if column is not None:
            raise missing_bounds(column, query.body, catalog=catalog, place=place)
        match strip_casts(key):
            case Call(function="date_part", arguments=(Literal(value=str(part)), _)):
                hint = "Write date_trunc('day', ts) in its place, with ts >= ... AND ts < ... in WHERE."
                reason = f"There are too many values of {part} to release each."
                raise Refusal("domain", reason, hint=hint, place=place)
    if len(query.keys) > 1:
        reason = f"ALL PRIVATE needs every key's values: from bounds, CASE or a domain, {MOST_GROUPS:,} groups at most."
        raise Refusal("keys", reason, hint="Group by one key, or write TOP 10 PRIVATE.", place=place)
