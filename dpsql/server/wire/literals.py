"""Types and literal values in the text of PREPARE and EXECUTE, as the OIDs and bytes that a Bind would have."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from dpsql.server.wire.rows import OIDS
from dpsql.server.wire.sqlstates import WireError
from dpsql.server.wire.words import CommandReader, Word

__all__ = ["Argument", "parse_arguments", "parse_types"]

Item = TypeVar("Item")
_TYPES: Mapping[str, int] = {
    **dict.fromkeys(["bool", "boolean"], OIDS["bool"]),
    **dict.fromkeys(["smallint", "int2"], OIDS["int2"]),
    **dict.fromkeys(["int", "integer", "int4"], OIDS["int4"]),
    **dict.fromkeys(["bigint", "int8"], OIDS["int8"]),
    **dict.fromkeys(["real", "float4"], OIDS["float4"]),
    **dict.fromkeys(["float", "float8", "double precision"], OIDS["float8"]),
    **dict.fromkeys(["numeric", "decimal"], OIDS["numeric"]),
    **dict.fromkeys(["text", "char", "character", "bpchar", "name", "uuid"], OIDS["text"]),
    **dict.fromkeys(["varchar", "character varying"], OIDS["varchar"]),
    "date": OIDS["date"],
    "oid": 26,  # only the catalog has it
    **dict.fromkeys(["timestamp", "timestamp without time zone"], OIDS["timestamp"]),
    **dict.fromkeys(["timestamptz", "timestamp with time zone"], OIDS["timestamptz"]),
    "unknown": 0,
}
_SECOND_WORDS = {"DOUBLE": "PRECISION", "CHARACTER": "VARYING"}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'"}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


class Argument(NamedTuple):
    """A value as text, None for NULL, and the OID of its type, 0 where the statement decides."""

    text: bytes | None
    oid: int = 0


def parse_types(reader: CommandReader) -> tuple[int, ...]:
    """Parse the types of PREPARE in parentheses, if there are any; return their OIDs."""
    return tuple(_parse_list(reader, _parse_type))


def parse_arguments(reader: CommandReader) -> list[Argument]:
    """Parse the values of EXECUTE in parentheses, if there are any; raise `WireError` for what is no literal."""
    return _parse_list(reader, _parse_argument)


def _parse_list(reader: CommandReader, parse: Callable[[CommandReader], Item]) -> list[Item]:
    found = list[Item]()
    if not reader.accept("("):
        return found
    while not found or reader.accept(","):
        found.append(parse(reader))
    reader.expect(")")
    return found


def _parse_type(reader: CommandReader) -> int:
    if reader.accept("PG_CATALOG"):
        reader.expect(".")
    word = reader.next_word()
    name = word.value.lower()
    if second := reader.accept(_SECOND_WORDS.get(word.upper, "")):
        name += f" {second.lower()}"
    if reader.accept("("):
        reader.read_until(")")
    if zone := reader.accept("WITH", "WITHOUT"):
        reader.expect("TIME")
        reader.expect("ZONE")
        name += f" {zone.lower()} time zone"
    if name not in _TYPES or reader.peek() == "[":
        hint = "Use integer, bigint, double precision, numeric, boolean, text, date or timestamp."
        raise WireError("42704", "Parameters of this type are not supported.", hint=hint)
    return _TYPES[name]


def _parse_argument(reader: CommandReader) -> Argument:
    """Parse NULL, a truth value, a number with its sign, a string, or one of these with a type."""
    if reader.accept("CAST"):
        reader.expect("(")
        found = _parse_argument(reader)
        reader.expect("AS")
        found = found._replace(oid=_parse_type(reader))
        reader.expect(")")
    else:
        found = _parse_literal(reader)
    while reader.accept(":"):
        reader.expect(":")
        found = found._replace(oid=_parse_type(reader))
    if reader.peek() not in {",", ")", "AS"}:
        raise _refuse_expression()
    return found


def _parse_literal(reader: CommandReader) -> Argument:
    if reader.accept("NULL"):
        return Argument(None)
    if truth := reader.accept("TRUE", "FALSE"):
        return Argument(truth.lower().encode())
    if sign := reader.accept("-", "+"):
        word = reader.next_word()
        if word.kind == "number":
            return Argument((sign.strip("+") + word.written).encode())
        raise _refuse_expression()
    oid = _parse_type(reader) if reader.peek()[:1].isalpha() else 0
    word = reader.next_word()
    if word.kind == "number" and not oid:
        return Argument(word.written.encode())
    if word.kind in {"string", "dollar"}:
        return Argument(_decode_string(word).encode(), oid)
    raise _refuse_expression()


def _decode_string(word: Word) -> str:
    """Return the text that a string literal means, with the escapes of E strings."""
    if word.kind == "dollar":
        width = word.written.index("$", 1) + 1
        return word.written[width:-width]
    if word.written[0] not in "eE":
        return word.value
    return _ESCAPE.sub(_decode_escape, word.value)


def _decode_escape(found: re.Match[str]) -> str:
    if found[1] not in _ESCAPES:
        hint = "Write the character itself."
        raise WireError("0A000", "This escape is not supported in a string of EXECUTE.", hint=hint)
    return _ESCAPES[found[1]]


def _refuse_expression() -> WireError:
    hint = "Write each value as a literal, such as 10, 'DE' or DATE '2026-01-31'."
    return WireError("0A000", "EXECUTE takes literal values only.", hint=hint)
