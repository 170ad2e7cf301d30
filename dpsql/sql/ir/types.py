"""The types an expression can have: a closed set, named as DuckDB names them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import Enum

from dpsql.dialects import ENUM, strip_type_details

WIDEST_DECIMAL = 18  # digits of those that are computed with
MOST_DIGITS = 38  # of a DECIMAL
_INTEGER_BITS = {
    "TINYINT": (-7, 7),
    "SMALLINT": (-15, 15),
    "INTEGER": (-31, 31),
    "BIGINT": (-63, 63),
    "UTINYINT": (0, 8),
    "USMALLINT": (0, 16),
    "UINTEGER": (0, 32),
}
_EXACT = frozenset(["FLOAT", "BLOB", "UBIGINT", "HUGEINT"])
_ONE_FORM = frozenset([ENUM, "FLOAT", "UUID", "BLOB", "UBIGINT", "HUGEINT", "UHUGEINT"])
_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")


class Family(Enum):
    """Types that compare with each other without an implicit cast that could fail."""

    BOOLEAN = "BOOLEAN"
    INTEGER = "integer"
    DECIMAL = "DECIMAL"
    DOUBLE = "DOUBLE"
    TEXT = "VARCHAR"
    DATE = "DATE"
    TIMESTAMP = "TIMESTAMP"
    INTERVAL = "INTERVAL"
    NULL = "NULL"
    OPAQUE = "a type that dpsql does not compute with"


@dataclass(frozen=True, slots=True)
class Type:
    """A family and the exact name in DuckDB.

    Text of stored columns may have `collations`: those by which the engine could compare it. They make no other type.
    """

    family: Family
    name: str
    collations: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    @property
    def is_number(self) -> bool:
        """Say whether arithmetic applies."""
        return self.family in {Family.INTEGER, Family.DECIMAL, Family.DOUBLE}

    def holds(self, value: int) -> bool:
        """Say whether an integer type can hold `value`."""
        least, greatest = self.ends
        return least <= value <= greatest

    @property
    def ends(self) -> tuple[int, int]:
        """Return the least and the greatest value of an integer type."""
        low, high = _INTEGER_BITS[self.name]
        return (-(1 << -low) if low else 0), (1 << high) - 1

    @property
    def precision(self) -> tuple[int, int]:
        """Return width and scale of a DECIMAL, or of the one that holds all of an integer type."""
        if self.name in _INTEGER_BITS:
            return len(str(1 << max(map(abs, _INTEGER_BITS[self.name])))), 0
        found = _DECIMAL.fullmatch(self.name)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    def __str__(self) -> str:
        return self.name


BOOLEAN = Type(Family.BOOLEAN, "BOOLEAN")
BIGINT = Type(Family.INTEGER, "BIGINT")
INTEGER = Type(Family.INTEGER, "INTEGER")
DOUBLE = Type(Family.DOUBLE, "DOUBLE")
TEXT = Type(Family.TEXT, "VARCHAR")
DATE = Type(Family.DATE, "DATE")
TIMESTAMP = Type(Family.TIMESTAMP, "TIMESTAMP")
INTERVAL = Type(Family.INTERVAL, "INTERVAL")
NULL = Type(Family.NULL, "NULL")
_PLAIN = {type_.name: type_ for type_ in (BOOLEAN, DOUBLE, TEXT, DATE, TIMESTAMP)}


def decimal(width: int, scale: int) -> Type:
    """Return DECIMAL(width, scale)."""
    return Type(Family.DECIMAL, f"DECIMAL({width},{scale})")


def sum_type(added: Type) -> Type:
    """Return the type of a sum of values of a type, as wide as DuckDB's: whole numbers are DECIMAL(38, 0), its HUGEINT.

    None of the sums of 2**33 units leaves it.
    """
    return DOUBLE if added.family is Family.DOUBLE else decimal(MOST_DIGITS, added.precision[1])


def parse_type(name: str, collation: str = "") -> Type:
    """Return the type of a stored column from DuckDB's text for it; what is not computed with is OPAQUE.

    Labels, fields and tags in that text are left out: they may come from rows.
    """
    name = strip_type_details(name)
    if name == TEXT.name and collation:
        return set_collations(TEXT, frozenset([collation]))
    if name in _PLAIN:
        return _PLAIN[name]
    if name in _INTEGER_BITS:
        return Type(Family.INTEGER, name)
    if (found := _DECIMAL.fullmatch(name)) and int(found[1]) <= WIDEST_DECIMAL:
        return decimal(int(found[1]), int(found[2]))
    return Type(Family.OPAQUE, name)


def set_collations(type_: Type, collations: frozenset[str]) -> Type:
    """Return the type of text that the engine could compare by any of these collations."""
    return type_ if type_.collations == collations else replace(type_, collations=collations)


def find_read_type(stored: Type) -> Type:
    """Return the type as which a column is read: FLOAT as DOUBLE, ENUM and UUID as VARCHAR, by a total cast."""
    if stored.name == "FLOAT":
        return DOUBLE
    if stored.name in {"UUID", ENUM}:
        return TEXT
    return stored


def has_one_form(type_: Type) -> bool:
    """Say whether equal values of a type print alike, if text is compared by its bytes and floats with their sign.

    Intervals, nested and variant types do not: 1 day and 24 hours are equal.
    """
    known = type_.name in _ONE_FORM or _DECIMAL.fullmatch(type_.name) is not None
    return known or type_.family not in {Family.OPAQUE, Family.INTERVAL, Family.NULL}


def find_answer_type(stored: Type) -> Type:
    """Return the type as which a column that is not computed with is answered: text where Arrow or Python is inexact.

    Zones, times of 24:00, the ends of the calendar and the widest numbers would come out as other values.
    """
    exact = stored.name in _EXACT or _DECIMAL.fullmatch(stored.name) is not None or find_read_type(stored) == TEXT
    return stored if exact or stored.family is not Family.OPAQUE else TEXT


def find_integer_type(value: int) -> Type | None:
    """Return DuckDB's type for an integer literal: INTEGER, else BIGINT, else nothing we compute with."""
    return next((type_ for type_ in (INTEGER, BIGINT) if type_.holds(value)), None)


def widen_integers(first: Type, second: Type) -> Type:
    """Return the type to which DuckDB brings two integer types: the wider, or the least signed type that holds both."""
    if first == second:
        return first
    low = min(_INTEGER_BITS[first.name][0], _INTEGER_BITS[second.name][0])
    high = max(_INTEGER_BITS[first.name][1], _INTEGER_BITS[second.name][1])
    names = [name for name, (bottom, top) in _INTEGER_BITS.items() if bottom <= low and top >= high]
    return Type(Family.INTEGER, names[0] if low else next(name for name in names if name.startswith("U")))
