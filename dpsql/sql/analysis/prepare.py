"""Analysis of a statement whose parameters have no values yet: their types, and the statement with such values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from dpsql.errors import Refusal, Unsupported, UsageError
from dpsql.sql.ir.statements import Statement
from dpsql.sql.ir.types import NULL, TEXT, Family, Type, parse_type
from dpsql.sql.ir.unbound_parameters import UnboundParameter
from dpsql.sql.lexer import scan

__all__ = ["UNKNOWN", "prepare_statement"]

UNKNOWN = "UNKNOWN"
MAX_PARAMETERS = 10_000
_READINGS = 4  # what one reading learns of a parameter may teach the next something of another
_OTHER_NAMES = {"NUMERIC": "DECIMAL(18,3)", "DECIMAL": "DECIMAL(18,3)", "TEXT": "VARCHAR", "FLOAT": "DOUBLE"}


def prepare_statement(
    text: str, types: Sequence[str], *, read: Callable[[Mapping[str, object]], Statement]
) -> tuple[tuple[str, ...], Statement, bool]:
    """Return the types of the parameters in order, the analyzed statement, and whether options are still open.

    `types` are the known types by name, in the order of the parameters; for UNKNOWN or missing ones, `read` infers the
    type from the statement. Raises as `read` does if the statement is refused for all values.
    """
    holes = {name: UnboundParameter() for name in _names(text)}
    for hole, known in zip(holes.values(), types, strict=False):
        hole.is_array = known.endswith("[]")
        hole.fill(_type(known.removesuffix("[]")))
    unknown = [hole for hole in holes.values() if hole.value is None]
    for _ in range(_READINGS):
        if not unknown:
            break
        with suppress(Refusal, Unsupported):
            read(holes)
        before, unknown = unknown, [hole for hole in unknown if hole.value is None]
        if len(unknown) == len(before):
            break
    for hole in unknown:
        if hole.otherwise != TEXT or hole.is_array:
            hole.fill(hole.otherwise)
    found = tuple(hole.type for hole in holes.values())
    for hole in unknown:
        hole.fill(
            TEXT if hole.otherwise != NULL else NULL
        )  # a parameter without a known type is a text, as in PostgreSQL
    return found, read(holes), any(hole.is_option for hole in holes.values())


def _names(text: str) -> list[str]:
    """Return the names of the parameters: numbers from 1, or words in the order in which they are first met."""
    written = [value.content for value in scan(text, lenient=True).values if value.kind == "parameter"]
    numbers = [int(each[1:]) for each in written if each[1:].isdigit()]
    if max(numbers, default=0) > MAX_PARAMETERS:
        hint = "Number them from $1, without a gap."
        raise UsageError("parameters", f"A statement has at most {MAX_PARAMETERS} parameters.", hint=hint)
    if numbers:
        return [str(number) for number in range(1, max(numbers) + 1)]
    if "?" in written:
        return [str(position) for position in range(1, len(written) + 1)]
    return list(dict.fromkeys(each[1:] for each in written))


def _type(name: str) -> Type:
    """Return the type that a client names; one that no parameter has is left to be found."""
    type_ = parse_type(_OTHER_NAMES.get(name.upper(), name.upper()))
    return NULL if type_.family is Family.OPAQUE else type_
