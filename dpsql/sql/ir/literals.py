"""Literals that are not written: parameters without a value, and readings of the clock.

This file has two parts: (1) `UnboundParameter`, in statements that a client prepares before it binds. The position of a
parameter in the statement decides its type. Analysis fills the parameter with a sample value of that type and reads the
statement again. Only the text and the catalog are used, no bound value and no row.

(2) From `Clock` on, the clock, read once per statement, and arithmetic on its reading before the engine gets the query.
A reading is a constant of the query, in UTC and without a zone. Truncation to the hour or the day and addition of an
INTERVAL are computed here. A statement truncated to the hour is then the same query throughout that hour.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from dpsql.sql.ir.tree import BIGINT, BOOLEAN, DATE, DOUBLE, NULL, TEXT, TIMESTAMP, Expression, Family, Literal, Type

_WIDE = 1 << 40  # needs BIGINT, so that results get their widest type
_VALUES = {
    BIGINT: Literal(_WIDE, BIGINT),
    DOUBLE: Literal(1.5, DOUBLE),
    TEXT: Literal("a", TEXT, 1),
    DATE: Literal("2000-01-01", DATE),
    TIMESTAMP: Literal("2000-01-01 00:00:00", TIMESTAMP),
    BOOLEAN: Literal(True, BOOLEAN),  # noqa: FBT003 - the value
}


@dataclass(slots=True)
class UnboundParameter:
    """Parameter without a value; `value` is a sample value, set once the type is known.

    The type is `otherwise` if no position in the statement decides it. If it `is_array`, `value` is an item of it.
    """

    value: Literal | None = None
    otherwise: Type = TEXT
    is_option: bool = False
    is_array: bool = False

    @property
    def type(self) -> str:
        """Name of its type, or UNKNOWN."""
        name = "UNKNOWN" if self.value is None else self.value.type.name
        return f"{name}[]" if self.is_array and self.value is not None else name

    def fill(self, wanted: Type, *, such_as: Literal | None = None) -> None:
        """Set the type and a sample value that suits the position; later calls have no effect."""
        wanted = BIGINT if wanted.family is Family.INTEGER else wanted
        if self.value is None and wanted.family not in {Family.NULL, Family.INTERVAL, Family.OPAQUE}:
            self.value = such_as or _VALUES.get(wanted) or Literal(Decimal(0), wanted)

    def literal(self) -> Literal:
        """Return the sample value, or an open literal while the type is unknown."""
        return Open(None, NULL, hole=self) if self.value is None else self.value


@dataclass(frozen=True, slots=True)
class Open(Literal):
    """Literal of a parameter whose type is unknown; it is read as NULL."""

    hole: UnboundParameter = field(kw_only=True, compare=False)


def fill_unbound(expression: Expression, wanted: Type, *, such_as: Literal | None = None) -> Expression:
    """Replace a parameter of unknown type by a value of type `wanted`; return any other expression unchanged."""
    if isinstance(expression, Open):
        expression.hole.fill(wanted, such_as=such_as)
        return expression.hole.literal()
    return expression


def default_number(value: object, default: int) -> object:
    """Return the bound value, or `default` for a parameter without a value."""
    if isinstance(value, UnboundParameter):
        value.fill(BIGINT, such_as=Literal(default, BIGINT))
        return default
    return value


# Part 2: the clock.
Clock = Callable[[], datetime]
CLOCK_WORDS = frozenset(["current_date", "current_timestamp", "localtimestamp"])  # DuckDB reads them without ()
DAYS = frozenset(["current_date", "today"])
MOMENTS = frozenset("now get_current_timestamp transaction_timestamp current_timestamp localtimestamp".split())
_MONTHS = {"month": 1, "quarter": 3, "year": 12}


def system_clock() -> datetime:
    """Return the system time in UTC."""
    return datetime.now(UTC)


def read_clock(moment: datetime, name: str) -> Literal:
    """Return the value of a clock function at `moment`: a DATE or a TIMESTAMP, in UTC if `moment` has a zone."""
    moment = moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)
    return _day(moment) if name in DAYS else _moment(moment)


def truncate(literal: Literal, unit: str) -> Literal:
    """Return date_trunc(unit, literal), a TIMESTAMP; raise `ValueError` or `OverflowError` if Python cannot."""
    moment = _python(literal)
    midnight = datetime(moment.year, moment.month, moment.day)  # noqa: DTZ001 - of UTC, as everything here
    match unit:
        case "week":
            return _moment(midnight - timedelta(days=midnight.weekday()))
        case "month" | "quarter" | "year":
            return _moment(midnight.replace(day=1, month=moment.month - (moment.month - 1) % _MONTHS[unit]))
        case "day":
            return _moment(midnight)
    step = timedelta(**{f"{unit}s": 1})
    return _moment(midnight + (moment - midnight) // step * step)


def add_interval(literal: Literal, amount: int, *, unit: str) -> Literal:
    """Return literal + INTERVAL amount unit, a TIMESTAMP; raise as `truncate` does."""
    moment = _python(literal)
    if unit not in _MONTHS:
        return _moment(moment + timedelta(**{f"{unit}s": amount}))
    month = moment.year * 12 + moment.month - 1 + amount * _MONTHS[unit]
    year, month = month // 12, month % 12 + 1
    # 31 January + 1 month is the last day of February.
    return _moment(moment.replace(year=year, month=month, day=min(moment.day, monthrange(year, month)[1])))


def truncate_to_date(literal: Literal) -> Literal:
    """Return the date of a TIMESTAMP."""
    return _day(_python(literal))


def _python(literal: Literal) -> datetime:
    if not isinstance(literal.value, str):
        raise ValueError  # noqa: TRY004 - NULL, which the engine cuts and moves as well
    return datetime.fromisoformat(literal.value)


def _moment(moment: datetime) -> Literal:
    return Literal(moment.isoformat(sep=" "), TIMESTAMP)


def _day(moment: datetime) -> Literal:
    return Literal(moment.date().isoformat(), DATE)
