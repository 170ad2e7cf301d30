"""Parameters without a value, in statements that a client prepares before it binds.

The position of a parameter in the statement decides its type. Analysis fills the parameter with a sample value of that
type and reads the statement again. Only the text and the catalog are used, no bound value and no row.
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
