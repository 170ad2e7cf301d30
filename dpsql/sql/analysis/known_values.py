"""Values of a key that the statement determines: outcomes of CASE, truth values, parts of times, and small ranges.

    SELECT CASE WHEN age < 30 THEN 'young' WHEN age < 60 THEN 'middle' END AS class, COUNT(DISTINCT user_id) AS n
    FROM reads GROUP BY class ALL PRIVATE

The list depends on the text and the types alone. It may hold a value that no row can have, which is then released with
the count 0, and NULL is in it wherever the expression can be NULL. Rows of any other value would be dropped before they
are counted, so that a list which lacked one would lose rows, and never privacy.

This file has two parts: (1) `list_known_values` finds the values of one key; (2) from `_Buckets` on, calendars: time
buckets between constant bounds in WHERE, or between the days that the policy says.

    SELECT date_trunc('day', ts) AS day, COUNT(DISTINCT user_id) AS n FROM reads
    WHERE ts >= DATE '2026-01-01' AND ts < DATE '2026-02-01' GROUP BY day ALL PRIVATE

No row decides which buckets there are. Those without a row are released too, and rows outside are no candidates. Time
stamps are in UTC, and weeks begin on Monday, as in `date_trunc` of every engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from math import isfinite

from dpsql.dialects import write_name
from dpsql.errors import Place, Refusal
from dpsql.sql.analysis.row_facts import find_stored_column
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.statements import LiteralDomain
from dpsql.sql.ir.tree import (
    BIGINT,
    DATE,
    DOUBLE,
    TEXT,
    TIMESTAMP,
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

MOST_GROUPS = 10_000
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
_MONTH_NAMES = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October")
_NAMES = {"dayname": _DAYS, "monthname": (*_MONTH_NAMES, "November", "December")}
_YEARS = frozenset(["year", "isoyear", "decade", "century", "millennium"])
_COMPARISONS = frozenset(["=", "<>", "<", "<=", ">", ">=", "between"])
_NEVER_NULL = frozenset(["is_null", "is_true", "is_false", "is_distinct", "is_not_distinct"])
_OF_BOTH = frozenset(["and", "or", "not", *_COMPARISONS])  # NULL only where an operand is
_PASSES_OVER_NULL = frozenset(["coalesce", "least", "greatest"])
_EXACT_NUMBERS = frozenset([Family.INTEGER, Family.DECIMAL])
_OUTER = {"LEFT": (False, True), "RIGHT": (True, False), "FULL": (True, True)}  # the sides of a join that may lack rows
_MOST_LISTED = 4 * MOST_GROUPS  # outcomes, equal ones too, beyond which no list is made
Values = tuple[Literal, ...]
_OF_SUBQUERY = re.compile(r"c[0-9]+")  # how columns of subqueries are called
_TICK, _DAY = timedelta(microseconds=1), timedelta(days=1)
_FIRST, _LAST = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001 - in UTC, as below
_NEW_YEAR = datetime(2026, 1, 1)  # noqa: DTZ001 - in UTC, as everything here
_EXAMPLES = {"second": timedelta(hours=1), "minute": _DAY}  # of bounds that make a short calendar; else a month
_LENGTHS = {
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
_SHORT = {"second", "minute", "hour"}  # of time_bucket, in widths that divide a day, so that midnight begins a bucket
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


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
            # CAST(LEAST(GREATEST(dwell / 60, 0), 9) AS INTEGER) has the values 0 to 9, whatever dwell is: whole ends
            # stay whole when a DOUBLE between them is rounded.
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
            # This is on the safe side: FALSE AND NULL is FALSE, and NULL is listed nevertheless, as a group with the
            # count 0.
            case Call(function=function, arguments=arguments) if function in _OF_BOTH:
                return any(map(self.can_be_null, arguments))
            case Call(function=function, arguments=arguments) if function in _PASSES_OVER_NULL:
                return all(map(self.can_be_null, arguments))
            case Call(function=function, arguments=arguments):
                time = arguments[-1] if function in {"date_part", *_NAMES} else None
                return not isinstance(time, ColumnRef) or not self._is_finite(time)
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
        """Return whether no row with NULL in a column passes WHERE, by the policy or a condition that NULL fails."""
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
        return self._is_declared(column)

    def _is_finite(self, time: ColumnRef) -> bool:
        """Return whether a time is neither NULL nor infinite, which has no parts."""
        return None not in find_bounds(time, self.body.where) or self._is_declared(time)

    def _is_declared(self, column: ColumnRef) -> bool:
        """Return whether the policy says that a column is never NULL, and no outer join leaves it NULL."""
        path = _find_path(self.body.source, column.relation)
        if path is not None:
            tables = [table for table in self.catalog.tables if table.path == path]
            return any(column.name in table.not_null for table in tables)
        sources, at = _list_sources(self.body.source, column.relation), column.name.removeprefix("c")
        if not sources or any(may_lack for _, may_lack in sources):
            return False
        outputs = [(source.body, source.outputs[int(at) - 1]) for source, _ in sources]
        return all(
            isinstance(output, ColumnRef) and _Block(body, self.catalog, self.seen)._is_declared(output)  # noqa: SLF001
            for body, output in outputs
        )

    def _unite(self, nodes: Iterable[Expression]) -> list[Literal] | None:
        """Return the values of several expressions together; None where those of one are not known."""
        found = list[Literal]()
        for node in nodes:
            values = self.values(node)
            if values is None or len(found) > _MOST_LISTED:
                return None
            found += values
        return found

    def _outcomes(self, case: Case) -> Values | None:
        """Return the values of all outcomes of CASE, NULL without ELSE among them."""
        results = list[Expression]()
        for condition, result in case.branches:
            match condition:
                case Call(function="is_null", arguments=(argument, *_)) if not self.can_be_null(argument):
                    continue
            results.append(result)
        found = self._unite([*results, Literal(None, case.type) if case.default is None else case.default])
        return None if found is None else tuple(found)

    def _first_known(self, arguments: tuple[Expression, ...]) -> Values | None:
        """Return the values of COALESCE: those of its arguments, and NULL if all can be NULL."""
        first = next((at for at, each in enumerate(arguments) if not self.can_be_null(each)), None)
        found = self._unite(arguments if first is None else arguments[: first + 1])
        if found is None:
            return None
        known = tuple(value for value in found if value.value is not None)
        return (*known, Literal(None, arguments[0].type)) if first is None else known

    def _cast(self, inner: Expression, type_: Type) -> Values | None:
        """Return the values of a cast of whole numbers and truth values, whose text is the same in every engine."""
        values = self.values(inner)
        found = [] if values is None else [cast for value in values if (cast := _cast_value(value, type_)) is not None]
        return None if values is None or len(found) < len(values) else tuple(found)

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
            # Columns of a subquery are called c1, c2 and so on, in the order of its outputs.
            at = int(column.name.removeprefix("c")) - 1
            if (id(source), at) not in self.seen:
                self.seen[id(source), at] = _Block(source.body, self.catalog, self.seen).values(source.outputs[at])
            values = self.seen[id(source), at]
            if values is None:
                return None
            # a LEFT JOIN (SELECT ... AS class) AS b: b.class is NULL in rows of a without a partner.
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
    # LEAST(x, 9) is at most 9 by one operand alone, and at least 0 only if every operand is.
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


def _find_path(relation: Relation, number: int) -> tuple[str, ...] | None:
    """Return the path of the table that a relation is; None for another, and on a side of a join that may lack rows."""
    if isinstance(relation, Joined):
        lacking = _OUTER.get(relation.kind, (False, False))
        sides = [side for side, lacks in zip((relation.left, relation.right), lacking, strict=True) if not lacks]
        return next((path for side in sides if (path := _find_path(side, number)) is not None), None)
    return relation.path if isinstance(relation, Scan) and relation.number == number else None


# Part 2: calendars.


@dataclass(frozen=True, slots=True)
class _Buckets:
    """A key that is a time bucket: the `column` of times, the `unit` of a bucket, and the type of the key.

    With a `width` the buckets are that long, from midnight on.
    """

    column: ColumnRef
    unit: str
    type: Type
    width: timedelta | None = None

    def begin(self, moment: datetime) -> datetime:
        """Return the begin of the bucket that a moment is in."""
        day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
        if self.width is not None:
            return day + (moment - day) // self.width * self.width
        match self.unit:
            case "second":
                return moment.replace(microsecond=0)
            case "minute":
                return moment.replace(second=0, microsecond=0)
            case "hour":
                return moment.replace(minute=0, second=0, microsecond=0)
            case "week":
                return day - timedelta(days=day.weekday())
        months = _MONTHS.get(self.unit)
        return day if months is None else day.replace(day=1, month=day.month - (day.month - 1) % months)

    def following(self, begin: datetime) -> datetime:
        """Return the begin of the next bucket; raise `OverflowError` or `ValueError` at the end of the calendar."""
        if self.unit in _LENGTHS:
            return begin + (self.width or _LENGTHS[self.unit])
        months = begin.month - 1 + _MONTHS[self.unit]
        return begin.replace(year=begin.year + months // 12, month=months % 12 + 1)

    def spell(self, begin: datetime) -> Literal:
        """Return the key of a bucket."""
        return Literal(begin.date().isoformat() if self.type == DATE else begin.isoformat(sep=" "), self.type)


def is_time_bucket(key: Expression) -> bool:
    """Return whether a key is a time bucket, whose calendar WHERE can tell."""
    return _find_buckets(key) is not None


def read_calendar(
    key: Expression, body: FromWhere, *, catalog: Catalog, place: Place
) -> tuple[LiteralDomain, str] | None:
    """Return the buckets of a key between the bounds of its column in WHERE; None for a key that is no time bucket.

    The second part says in words which of them a bound in WHERE cuts; "" for none. Where WHERE has no bound, that of
    the policy counts. Raises `Refusal` where a bound is missing, where no time is between them, and for more than
    MOST_GROUPS buckets.
    """
    buckets = _find_buckets(key)
    if buckets is None:
        return None
    period = find_period(buckets.column, body, catalog=catalog)
    if period is None:
        raise missing_bounds(buckets.column, body, catalog=catalog, place=place, unit=buckets.unit)
    first, last = period
    begins: list[datetime] = []
    for begin in _list_begins(buckets, first, high=last):
        if len(begins) == MOST_GROUPS:
            reason = f"The calendar has more than {MOST_GROUPS:,} buckets."
            hint = "Write longer ones, or set the bounds closer."
            raise Refusal("domain", reason, hint=hint, place=place)
        begins.append(begin)
    if not begins:
        hint = "Let the last time be after the first."
        raise Refusal("domain", "There is no time between the bounds of the calendar.", hint=hint, place=place)
    cut = _describe_cut(buckets, begins, bounds=find_bounds(buckets.column, body.where))
    return LiteralDomain(tuple(map(buckets.spell, begins))), cut


def missing_bounds(column: ColumnRef, body: FromWhere, *, catalog: Catalog, place: Place, unit: str = "day") -> Refusal:
    """Return the refusal of a calendar whose first or last time nothing says, with what to add to WHERE."""
    low, high = find_bounds(column, body.where)
    name = "ts" if _OF_SUBQUERY.fullmatch(column.name) else write_name(column.name)
    length, lines = _EXAMPLES.get(unit, timedelta(days=31)), []
    if low is None:
        lines.append(f"{name} >= {_write_moment(_NEW_YEAR if high is None else _shift(high, -length))}")
    if high is None:
        lines.append(f"{name} < {_write_moment(_shift(low or _NEW_YEAR, length))}")
    hint = f"Add to WHERE, for example: {' AND '.join(lines)}. Or name a domain."
    stored = find_stored_column(column, body.source, catalog=catalog)
    if stored is not None:
        table, owned = stored
        hint += (
            f" The policy can say both for all queries: [tables.{write_name(table.name)}.calendar] "
            f"{write_name(owned)} = {{first = 2026-01-01, last = 2026-12-31}}."
        )
    return Refusal("domain", "A calendar needs a first and a last time.", hint=hint, place=place)


def _shift(moment: datetime, by: timedelta) -> datetime:
    """Return a moment some time later, at the end of the calendar at most."""
    try:
        return moment + by
    except OverflowError:
        return _LAST if by > timedelta() else _FIRST


def _write_moment(moment: datetime) -> str:
    """Return a moment as SQL writes it, as a date where it is midnight."""
    return f"DATE '{moment.date()}'" if moment.time() == time() else f"TIMESTAMP '{moment}'"


def find_period(column: ColumnRef, body: FromWhere, *, catalog: Catalog) -> tuple[datetime, datetime] | None:
    """Return the first and the last time of a column: that of WHERE or else that of the policy, None without both."""
    low, high = find_bounds(column, body.where)
    stored = find_stored_column(column, body.source, catalog=catalog)
    for name, first, last in () if stored is None else stored[0].calendar:
        if stored is not None and name == stored[1]:
            low, high = low or _begin_day(first), high or _begin_day(last) + (_DAY - _TICK)
    return None if low is None or high is None else (low, high)


def _begin_day(day: date) -> datetime:
    return datetime.combine(day, time())


def _describe_cut(buckets: _Buckets, begins: list[datetime], *, bounds: tuple[datetime | None, datetime | None]) -> str:
    """Return which buckets a bound in WHERE cuts, in words; "" for none. What the policy says cuts nothing."""
    low, high = bounds
    step = _DAY if buckets.column.type == DATE else _TICK
    ends = list[tuple[str, datetime]]()
    if low is not None and step == _DAY:
        low = _ceil_day(low)
    if low is not None and low > begins[0]:
        ends.append(("first", begins[0]))
    if high is not None:
        try:
            last = buckets.following(begins[-1]) - step
        except (OverflowError, ValueError):  # the bucket ends with the calendar
            last = _LAST
        if (high.replace(hour=0, minute=0, second=0, microsecond=0) if step == _DAY else high) < last:
            ends.append(("last", begins[-1]))
    if len(ends) == 2 and len(begins) == 1:  # noqa: PLR2004 - both ends of one bucket
        ends = [("only", begins[0])]
    is_short = buckets.unit in _SHORT
    name = buckets.unit if buckets.width is None else "bucket"
    cut = [f"the {which} {name} ({begin if is_short else begin.date()})" for which, begin in ends]
    return f"WHERE cuts {' and '.join(cut)}" if cut else ""


def _ceil_day(moment: datetime) -> datetime:
    """Return the first midnight at or after a moment."""
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight if midnight == moment else midnight + _DAY


def _find_buckets(key: Expression) -> _Buckets | None:
    match key:
        case Call(function="date_trunc", arguments=(Literal(value=str(unit)), ColumnRef() as column)):
            return _Buckets(column, unit, key.type) if unit in _LENGTHS or unit in _MONTHS else None
        case Call(function="time_bucket", arguments=(Literal(value=str(width)), ColumnRef(type=type_) as column)):
            number, short = width.split()
            length = int(number) * _LENGTHS[short] if short in _SHORT else timedelta()
            is_whole = type_ == TIMESTAMP and length and not _DAY % length  # every midnight begins a bucket
            return _Buckets(column, short, TIMESTAMP, length) if is_whole else None
        case Cast(argument=ColumnRef() as column, type=type_) if type_ == DATE and column.type == TIMESTAMP:
            return _Buckets(column, "day", DATE)
        case ColumnRef() if key.type == DATE:
            return _Buckets(key, "day", DATE)
    return None


def find_bounds(column: ColumnRef, where: Expression | None) -> tuple[datetime | None, datetime | None]:
    """Return the first and the last time that top-level conditions leave to a column, None where they set none."""
    lows, highs = list[datetime](), list[datetime]()
    for sign, moment in _list_conditions(column, where):
        try:
            if sign in {">=", ">", "="}:
                # ts > '2026-01-01' is ts >= '2026-01-01 00:00:00.000001': time stamps count microseconds.
                lows.append(moment + _TICK if sign == ">" else moment)
            if sign in {"<=", "<", "="}:
                highs.append(moment - _TICK if sign == "<" else moment)
        except OverflowError:  # at an end of the calendar nothing is beyond
            continue
    return max(lows, default=None), min(highs, default=None)


def _list_conditions(column: ColumnRef, where: Expression | None) -> Iterator[tuple[str, datetime]]:
    """Yield the comparisons of a column with constants that hold for every row, the column on the left."""
    for part in split_conjuncts(where):
        bounds: tuple[tuple[str, datetime | None], ...] = ()
        match part:
            case Call(function="between", arguments=(left, low, high)) if _is_column(left, column):
                bounds = (">=", _read_constant(low)), ("<=", _read_constant(high))
            case Call(function=sign, arguments=(left, right)) if sign in _FLIPPED and _is_column(left, column):
                bounds = ((sign, _read_constant(right)),)
            case Call(function=sign, arguments=(left, right)) if sign in _FLIPPED and _is_column(right, column):
                bounds = ((_FLIPPED[sign], _read_constant(left)),)
            case Call(function="=", arguments=(left, right)):  # year(ts) = 2026
                year = _find_stated_year(column, (strip_casts(left), strip_casts(right)))
                bounds = () if year is None else ((">=", datetime(year, 1, 1)), ("<", datetime(year + 1, 1, 1)))  # noqa: DTZ001 - as _NEW_YEAR
        yield from ((sign, moment) for sign, moment in bounds if moment is not None)


def _find_stated_year(column: ColumnRef, compared: tuple[Expression, Expression]) -> int | None:
    """Return the year that a column is in, by a comparison of it; None without one."""
    match compared:
        case Call(function="date_part", arguments=(Literal(value="year"), time)), Literal(value=int(year)):
            return year if 0 < year < _LAST.year and _is_column(time, column) else None
    return None


def _is_column(expression: Expression, column: ColumnRef) -> bool:
    return expression == column or (column.type == DATE and expression == Cast(column, TIMESTAMP))


def _read_constant(expression: Expression) -> datetime | None:
    """Return the moment that a date, a time stamp, or a date plus or minus whole days is; None for anything else."""
    match expression:
        case Literal(value=str(text), type=type_) if type_ in {DATE, TIMESTAMP}:
            try:
                return datetime.fromisoformat(text)
            except ValueError:  # beyond Python's calendar
                return None
        case Cast(argument=inner, type=type_) if type_ == TIMESTAMP and inner.type == DATE:
            return _read_constant(inner)
        case Call(function="+" | "-" as sign, arguments=(left, Literal(value=int(days)))) if left.type == DATE:
            first = _read_constant(left)
            try:
                return None if first is None else first + timedelta(days=days if sign == "+" else -days)
            except OverflowError:
                return None
    return None


def _list_begins(buckets: _Buckets, low: datetime, *, high: datetime) -> Iterator[datetime]:
    """Yield the begins of the buckets from `low` to `high`; days of a DATE column begin at `low` at the earliest."""
    try:
        if buckets.column.type == DATE:
            low = _ceil_day(low)
        begin = buckets.begin(low)
        while low <= high and begin <= high:
            yield begin
            begin = buckets.following(begin)
    except (OverflowError, ValueError):  # no bucket begins beyond the calendar
        return
