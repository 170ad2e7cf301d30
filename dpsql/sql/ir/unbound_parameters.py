"""Parameters whose values are not known yet, as clients send them that prepare a statement before they bind.

Where it stands says of what type a parameter must be: the place fills it with a value of that type, and the statement
is read again. All of this is about the text and the catalog: no value and no row is behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from dpsql.sql.ir.tree import Expression, Literal
from dpsql.sql.ir.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    NULL,
    TEXT,
    TIMESTAMP,
    Family,
    Type,
)

__all__ = ["Open", "UnboundParameter", "default_number", "fill_unbound"]

_WIDE = 1 << 40  # a number that only BIGINT holds: what is computed of it is as wide as it may become
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
    """A parameter without a value; `value`, which is made up, stands for it once its type is known.

    It is of type `otherwise` where no place says more.
    """

    value: Literal | None = None
    otherwise: Type = TEXT
    is_option: bool = False

    @property
    def type(self) -> str:
        """The name of its type, or UNKNOWN."""
        return "UNKNOWN" if self.value is None else self.value.type.name

    def fill(self, wanted: Type, *, such_as: Literal | None = None) -> None:
        """Say of what type it must be, and which value of that type suits the place; the first to say so is heard."""
        wanted = BIGINT if wanted.family is Family.INTEGER else wanted
        if self.value is None and wanted.family not in {Family.NULL, Family.INTERVAL, Family.OPAQUE}:
            self.value = such_as or _VALUES.get(wanted) or Literal(Decimal(0), wanted)

    def literal(self) -> Literal:
        """Return what stands for the value that is not there."""
        return Open(None, NULL, hole=self) if self.value is None else self.value


@dataclass(frozen=True, slots=True)
class Open(Literal):
    """A parameter of which nothing is known yet; it is read as NULL."""

    hole: UnboundParameter = field(kw_only=True, compare=False)


def fill_unbound(expression: Expression, wanted: Type, *, such_as: Literal | None = None) -> Expression:
    """Return the expression or, in place of a parameter of which nothing is known yet, a value of type `wanted`."""
    if isinstance(expression, Open):
        expression.hole.fill(wanted, such_as=such_as)
        return expression.hole.literal()
    return expression


def default_number(value: object, least: int) -> object:
    """Return what is bound, or the least number of rows for a parameter whose value is not known yet."""
    if isinstance(value, UnboundParameter):
        value.fill(BIGINT, such_as=Literal(least, BIGINT))
        return least
    return value
