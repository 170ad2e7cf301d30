"""Parameters: values bound to ?, $1 or :name, as typed literals."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal

from dpsql.errors import Place, UsageError
from dpsql.sql.ir.literals import UnboundParameter, default_number
from dpsql.sql.ir.tree import Literal
from dpsql.sql.ir.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    NULL,
    TEXT,
    TIMESTAMP,
    WIDEST_DECIMAL,
    decimal,
    find_integer_type,
)
from dpsql.sql.lexer import Statement, Value

__all__ = ["Parameter", "ParameterValues", "bind", "make_literal", "read_whole_number"]

MAX_PARAMETER_BYTES = 16 * 1024  # of one parameter; a statement may bind thousands
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(\.\d{6})?")  # excludes NaT of pandas, which is a datetime
_SURROGATE = re.compile("[\ud800-\udfff]")
ParameterValues = Sequence[object] | Mapping[str, object]
Parameter = Callable[[Value], object]


def bind(statement: Statement, parameters: ParameterValues) -> dict[Value, object]:
    """Bind a value to every parameter of the statement; refuse too many, too few and mixed styles."""
    wanted = [value for value in statement.values if value.kind == "parameter"]
    styles = {_find_style(value.content) for value in wanted}
    if len(styles) > 1:
        hint = "Write ?, $1 or :name throughout."
        raise UsageError(
            "parameters", "A statement must write its parameters in one style.", hint=hint, place=wanted[0].place
        )
    if isinstance(parameters, Mapping) and all(isinstance(name, str) for name in parameters):
        values = {name.lstrip(":$"): value for name, value in parameters.items()}
    elif isinstance(parameters, str) or not isinstance(parameters, Sequence):
        hint = 'For example ["DE"], or {"country": "DE"} for :country.'
        raise UsageError("parameters", "Parameters must be a list, or a mapping for :name.", hint=hint)
    else:
        values = {str(position): value for position, value in enumerate(parameters, start=1)}
    bound: dict[Value, object] = {}
    for position, value in enumerate(wanted, start=1):
        name = str(position) if value.content == "?" else value.content[1:]
        if name not in values:
            hint = "Pass one value for each parameter, in order or by name."
            raise UsageError("parameters", "This parameter has no value.", hint=hint, place=value.place)
        bound[value] = values[name]
    names = {str(at) if value.content == "?" else value.content[1:] for at, value in enumerate(wanted, start=1)}
    if set(values) - names:
        reason = f"More parameters were passed ({len(values)}) than the statement uses ({len(names)})."
        raise UsageError("parameters", reason, hint="Pass one value for each ?, $1 or :name.")
    return bound


def _find_style(text: str) -> str:
    """Return ?, : or "numbered"; $name counts as :name."""
    return "numbered" if text[1:].isdigit() else text[:1].replace("$", ":")


def read_whole_number(value: Value | None, parameter: Parameter, *, min_value: int) -> int | None:
    """Return the whole number, at least `min_value`, that is bound to a parameter; None for anything else."""
    if value is None or value.kind != "parameter":
        return None
    bound = default_number(parameter(value), min_value)
    return bound if type(bound) is int and min_value <= bound < 1 << 63 else None


def make_literal(value: object, place: Place) -> Literal:
    """Convert a Python value to a typed literal: None, bool, int, float, Decimal, str, date or a naive datetime."""
    if isinstance(value, UnboundParameter):
        return value.literal()
    literal = _convert_number(value) if isinstance(value, int | float | Decimal) else _convert_other(value)
    if literal is None:
        hint = "Use None, bool, 64-bit int, finite float or Decimal, short str, date or datetime without zone."
        raise UsageError("parameter-type", "The value of this parameter cannot be bound.", hint=hint, place=place)
    return literal


def _convert_other(value: object) -> Literal | None:
    match value:
        case None:
            return Literal(None, NULL)
        case str() if _can_be_sent(value):
            return Literal(value, TEXT, len(value))
        case datetime() if value.tzinfo is None and _MOMENT.fullmatch(value.isoformat(sep=" ")):
            return Literal(value.isoformat(sep=" "), TIMESTAMP)
        case date() if not isinstance(value, datetime):
            return Literal(value.isoformat(), DATE)
    return None


def _can_be_sent(text: str) -> bool:
    return (
        "\0" not in text and len(text.encode(errors="replace")) <= MAX_PARAMETER_BYTES and not _SURROGATE.search(text)
    )


def _convert_number(value: float | Decimal) -> Literal | None:
    match value:
        case bool():
            return Literal(value, BOOLEAN)
        case int() if (type_ := find_integer_type(value)) is not None:
            return Literal(value, type_)
        case float() if math.isfinite(value):
            return Literal(value, DOUBLE)
        case Decimal() if value.is_finite():
            return _convert_decimal(value)
    return None


def _convert_decimal(value: Decimal) -> Literal | None:
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    width = max(len(digits) + max(0, int(exponent)), scale, 1)
    return Literal(value, decimal(width, scale)) if width <= WIDEST_DECIMAL else None
