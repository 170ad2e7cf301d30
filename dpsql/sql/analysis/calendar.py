"""Calendars: the time buckets of ALL PRIVATE, between constant bounds in WHERE, or the days that the policy says.

    SELECT date_trunc('day', ts) AS day, COUNT(DISTINCT user_id) AS n FROM reads
    WHERE ts >= DATE '2026-01-01' AND ts < DATE '2026-02-01' GROUP BY day ALL PRIVATE

No row decides which buckets there are. Those without a row are released too, and rows outside are no candidates. Time
stamps are in UTC, and weeks begin on Monday, as in `date_trunc` of every engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING

from dpsql.dialects import write_name
from dpsql.errors import Place, Refusal
from dpsql.sql.analysis.domains import MOST_GROUPS
from dpsql.sql.analysis.row_facts import find_stored_column
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.scope import split_conjuncts
from dpsql.sql.ir.statements import LiteralDomain
from dpsql.sql.ir.tree import Call, Cast, ColumnRef, Expression, FromWhere, Literal
from dpsql.sql.ir.types import DATE, TIMESTAMP, Type

if TYPE_CHECKING:
    pass


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
