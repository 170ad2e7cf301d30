"""Calendars: the time buckets of ALL PRIVATE, between constant bounds in WHERE, or the days that the policy says.

    SELECT date_trunc('day', ts) AS day, COUNT(DISTINCT user_id) AS n FROM reads
    WHERE ts >= DATE '2026-01-01' AND ts < DATE '2026-02-01' GROUP BY day ALL PRIVATE

No row decides which buckets there are. Those without a row are released too, and rows outside are no candidates. Time
stamps are in UTC, and weeks begin on Monday, as in `date_trunc` of every engine.

This file has two parts: (1) calendars, to `_list_begins`; (2) from `has_windows` on, windows of a subquery: the OVER
clause, and the total order that makes their values a function of the rows alone.

A window that distinguishes rows of one rank (row_number, ntile, lag, lead, first_value) is ordered, after its own
terms, by every column that the block reads. Rows that are still equal are equal in everything that the block computes,
so their order does not affect the result. Other windows give all rows of one rank the same value and are unchanged.
With the privacy unit in PARTITION BY a window sees the rows of one unit only, so no unit affects the values of another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING

from dpsql.dialects import write_name
from dpsql.errors import Place, Refusal, Unsupported
from dpsql.sql.analysis.charged_values import find_stored_column
from dpsql.sql.analysis.domains import MOST_GROUPS
from dpsql.sql.analysis.expressions import READERS
from dpsql.sql.analysis.reader import Reader
from dpsql.sql.analysis.select_clauses import cast_sum, read_argument, read_output
from dpsql.sql.functions.allow_list import MAX_POSITION
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.statements import LiteralDomain
from dpsql.sql.ir.transforms import canonicalize, rebuild
from dpsql.sql.ir.tree import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    TIMESTAMP,
    Call,
    Cast,
    ColumnRef,
    Expression,
    Family,
    FromWhere,
    Literal,
    Sorted,
    Type,
    Window,
    has_one_form,
    split_conjuncts,
    stored_column,
    sum_type,
    walk,
)
from dpsql.sql.lexer import FUNCTION_PREFIX
from dpsql.sql.syntax.sqlglot_nodes import allow_only, read_direction

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node


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
_NUMBERED = {
    **dict.fromkeys(["row_number", "rank", "dense_rank"], BIGINT),
    **dict.fromkeys(["percent_rank", "cume_dist"], DOUBLE),
}
_MOVED = frozenset(["lag", "lead"])
_TELLS_APART = frozenset(["row_number", "ntile", "lag", "lead", "first_value"])
_HINT = "Those read are row_number, rank, dense_rank, ntile, lag, lead, first_value, count, sum, avg, min and max."


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


@dataclass(frozen=True, slots=True)
class BucketDomain:
    """The buckets of a key, and which of them a bound in WHERE `cut`s, in words; "" for none."""

    domain: LiteralDomain
    cut: str


def is_time_bucket(key: Expression) -> bool:
    """Return whether a key is a time bucket, whose calendar WHERE can tell."""
    return _find_buckets(key) is not None


def read_calendar(key: Expression, body: FromWhere, *, catalog: Catalog, place: Place) -> BucketDomain | None:
    """Return the buckets of a key between the bounds of its column in WHERE; None for a key that is no time bucket.

    Where WHERE has no bound, that of the policy counts. Raises `Refusal` where a bound is missing, where no time is
    between them, and for more than MOST_GROUPS buckets.
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
    return BucketDomain(
        LiteralDomain(tuple(map(buckets.spell, begins))),
        _describe_cut(buckets, begins, bounds=find_bounds(buckets.column, body.where)),
    )


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
        yield from ((sign, moment) for sign, moment in bounds if moment is not None)


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


# Part 2: windows of a subquery.


def has_windows(expression: Expression) -> bool:
    """Say whether the expression contains a window."""
    return any(isinstance(part, Window) for part in walk(expression))


def read_window(reader: Reader, node: Node) -> Expression:
    """Return function(...) OVER (PARTITION BY ... ORDER BY ...), without a frame of its own."""
    allow_only(reader.statement, node, "this", "partition_by", "order", "over")
    partition = tuple(
        canonicalize(read_output(reader, term, readers=READERS)) for term in node.args.get("partition_by") or ()
    )
    order, found = node.args.get("order"), list[Sorted]()
    if order is not None:
        allow_only(reader.statement, order, "expressions")
    for term in order.expressions if order is not None else ():
        allow_only(reader.statement, term, "this", "desc", "nulls_first")
        expression = read_argument(reader, term.this)
        if isinstance(expression, Literal):
            reason, hint = "A constant puts nothing in order.", "Order by a column."
            raise Refusal("order", reason, hint=hint, place=reader.place(term))
        found.append(Sorted(expression, *read_direction(term)))
    terms, called = tuple(found), node.this
    if type(called).__name__ == "Count":
        allow_only(reader.statement, called, "this", "big_int")
        if type(called.this).__name__ == "Star":
            allow_only(reader.statement, called.this)
            return Window("count_star", (), partition, terms, BIGINT)
        if called.this is None:
            raise Unsupported("window", "This window is not read.", hint=_HINT, place=reader.place(called))
        return Window("count", (read_argument(reader, called.this),), partition, terms, BIGINT)
    allow_only(reader.statement, called, "this", "expressions")
    name = str(called.this).removeprefix(FUNCTION_PREFIX)
    arguments = tuple(read_argument(reader, argument) for argument in called.expressions)
    if name in _NUMBERED and not arguments:
        return Window(name, (), partition, terms, _NUMBERED[name])
    if name == "ntile" and len(arguments) == 1 and _is_position(arguments[0], min_value=1):
        return Window(name, (replace(arguments[0], type=BIGINT),), partition, terms, BIGINT)
    window = _read_column_window(reader, node, name=name, arguments=arguments)
    if isinstance(window, Window):
        return replace(window, partition=partition, order=terms)
    return rebuild(window, lambda part: replace(part, partition=partition, order=terms))  # type: ignore[arg-type]


def _read_column_window(reader: Reader, node: Node, *, name: str, arguments: tuple[Expression, ...]) -> Expression:
    """Return a window that takes a column, without partition and order: itself, or the cast of a sum."""
    type_, place = arguments[0].type if arguments else BOOLEAN, reader.place(node)
    if name in {"sum", "avg"} and len(arguments) == 1 and type_.family is Family.DOUBLE:
        hint = f"Cast it to DECIMAL, or compute {name}(x) with GROUP BY in a subquery."
        raise Unsupported("window", f"{name} OVER adds DOUBLE values in an undefined order.", hint=hint, place=place)
    if name == "sum" and len(arguments) == 1 and type_.is_number:
        return cast_sum(Window(name, arguments, (), (), sum_type(type_)), arguments[0])
    if name == "avg" and len(arguments) == 1 and type_.is_number:
        return Window(name, arguments, (), (), DOUBLE)
    if name in {"min", "max", "first_value"} and len(arguments) == 1 and type_.family is not Family.NULL:
        argument = arguments[0] if name == "first_value" else canonicalize(arguments[0])
        return Window(name, (argument,), (), (), type_, argument.longest)
    moved = name in _MOVED and type_.family is not Family.NULL
    if moved and (len(arguments) == 1 or (len(arguments) == 2 and _is_position(arguments[1], min_value=0))):  # noqa: PLR2004 - and how far
        far = tuple(replace(argument, type=BIGINT) for argument in arguments[1:])
        return Window(name, (arguments[0], *far), (), (), type_, arguments[0].longest)
    raise Unsupported("window", "This window is not read.", hint=_HINT, place=place)


def _is_position(expression: Expression, *, min_value: int) -> bool:
    value = expression.value if isinstance(expression, Literal) else None
    return type(value) is int and min_value <= value <= MAX_POSITION


def break_ties(
    expressions: Iterable[Expression], *, refuse: Callable[[ColumnRef], Exception]
) -> tuple[Expression, ...]:
    """Return all that a block computes, with windows whose order no two rows share that differ in anything read.

    `refuse` says what to raise for a column whose equal values may print differently.
    """
    found = tuple(expressions)
    read = {part for expression in found for part in walk(expression) if isinstance(part, ColumnRef)}
    columns = sorted(read, key=lambda column: (column.relation, column.name))

    def ordered(expression: Expression) -> Expression:
        if isinstance(expression, Window) and expression.function in _TELLS_APART:
            for column in columns:
                if not has_one_form(column.type):
                    raise refuse(column)
            ties = list[Expression]()  # what is the same of two values only if they print alike
            for column in columns:
                if column.type.family is Family.DOUBLE or column.type.name == "FLOAT":
                    ties += [canonicalize(column), Call("signbit", (column,), BOOLEAN)]  # 0.0 and -0.0 differ in it
                else:
                    ties.append(canonicalize(stored_column(column.relation, column.name, type_=column.type)))
            terms = (Sorted(tie, descending=False, nulls_first=False) for tie in ties)
            return replace(expression, order=(*expression.order, *terms))
        return rebuild(expression, ordered)

    return tuple(map(ordered, found))
