"""Writer of protobuf messages by field numbers, also of those that no client sends."""

from __future__ import annotations

TYPES = "type.googleapis.com/arrow.flight.protocol.sql."
Field = tuple[int, int | bytes | str]


def packed(kind: str, *fields: Field) -> bytes:
    """Return a message of Flight SQL inside of one that names its kind."""
    return written((1, TYPES + kind), (2, written(*fields)))


def written(*fields: Field) -> bytes:
    """Return a message of fields, each a number and a value that is not negative."""
    parts: list[bytes] = []
    for number, value in fields:
        if isinstance(value, int):
            parts += [varint(number << 3), varint(value)]
        else:
            content = value.encode() if isinstance(value, str) else value
            parts += [varint(number << 3 | 2), varint(len(content)), content]
    return b"".join(parts)


def varint(value: int) -> bytes:
    """Return a number as protobuf writes it: seven bits a byte, the least first."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])
