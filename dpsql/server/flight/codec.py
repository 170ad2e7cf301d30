"""Codec for protobuf messages of whole numbers and bytes, the only field types in messages of Flight SQL.

Messages come from unauthenticated clients, so the decoder is bounded, and refuses malformed messages in one way.
Unknown fields are skipped, as the format requires.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dpsql.errors import UsageError

__all__ = ["LARGEST_MESSAGE", "Fields", "malformed", "packed", "unpacked", "written"]

LARGEST_MESSAGE = 256 * 1024  # bytes: a statement has at most half of that
_MOST_FIELDS = 10_000
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10  # bytes of a number of 64 bits
_TYPES = "type.googleapis.com/arrow.flight.protocol.sql."


class Fields:
    """The fields of one message by their number, in the order in which they stand; of several the last one counts."""

    __slots__ = ("_found",)

    def __init__(self, message: bytes) -> None:
        """Read a message. Raises `UsageError` for what is none, or is too large."""
        if len(message) > LARGEST_MESSAGE:
            raise malformed()
        self._found: dict[int, list[int | bytes]] = {}
        for count, (number, value) in enumerate(_read(message)):
            if count >= _MOST_FIELDS:
                raise malformed()
            self._found.setdefault(number, []).append(value)

    def has(self, number: int) -> bool:
        """Say whether a field is in the message, possibly empty."""
        return number in self._found

    def whole(self, number: int) -> int:
        """Return a number that is not negative, 0 where it is left out."""
        value = self._found.get(number, [0])[-1]
        if not isinstance(value, int):
            raise malformed()
        return value

    def raw(self, number: int) -> bytes:
        """Return bytes, none where they are left out."""
        value = self._found.get(number, [b""])[-1]
        if not isinstance(value, bytes):
            raise malformed()
        return value

    def text(self, number: int) -> str:
        """Return text in UTF-8, none where it is left out."""
        return _decoded(self.raw(number))

    def parts(self, number: int) -> tuple[bytes, ...]:
        """Return repeated bytes, which may be messages themselves."""
        return tuple(value for value in self._found.get(number, []) if isinstance(value, bytes))

    def texts(self, number: int) -> tuple[str, ...]:
        """Return a repeated text."""
        return tuple(map(_decoded, self.parts(number)))

    def wholes(self, number: int) -> tuple[int, ...]:
        """Return a repeated number, whether its values stand in one field or in one each."""
        found: list[int] = []
        for value in self._found.get(number, []):
            found.extend([value] if isinstance(value, int) else _varints(value))
        return tuple(found)


def written(*fields: tuple[int, int | bytes | str]) -> bytes:
    """Return a message of fields, each a number and a value that is not negative."""
    parts: list[bytes] = []
    for number, value in fields:
        if isinstance(value, int):
            parts += [_varint(number << 3 | _VARINT), _varint(value)]
        else:
            content = value.encode() if isinstance(value, str) else value
            parts += [_varint(number << 3 | _BYTES), _varint(len(content)), content]
    return b"".join(parts)


def packed(kind: str, *fields: tuple[int, int | bytes | str]) -> bytes:
    """Return a message of Flight SQL inside of one that names its kind."""
    return written((1, _TYPES + kind), (2, written(*fields)))


def unpacked(message: bytes) -> tuple[str, Fields]:
    """Return the kind and the fields of a message that names its kind; raise `UsageError` for any other."""
    outer = Fields(message)
    kind = outer.text(1)
    if not kind.startswith(_TYPES):
        raise malformed()
    return kind.removeprefix(_TYPES), Fields(outer.raw(2))


def malformed() -> UsageError:
    """Return the error for a client whose message is not one of Flight SQL."""
    hint = "Connect with a client of Arrow Flight SQL, such as adbc-driver-flightsql."
    return UsageError("flight-message", "This is no message of Flight SQL.", hint=hint)


def _read(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(message):
        key, at = _number(message, at)
        number, wire = key >> 3, key & 7
        if not number:
            raise malformed()
        if wire == _VARINT:
            value, at = _number(message, at)
            yield number, value
            continue
        size = {_FIXED64: 8, _FIXED32: 4}.get(wire)
        if wire == _BYTES:
            size, at = _number(message, at)
        if size is None or size > len(message) - at:
            raise malformed()
        yield number, message[at : at + size]
        at += size


def _number(message: bytes, at: int) -> tuple[int, int]:
    """Return the number of 64 bits that begins at a position, and where it ends."""
    value = 0
    for count, byte in enumerate(message[at : at + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follow
            if value >> 64:
                break
            return value, at + count + 1
    raise malformed()


def _varints(content: bytes) -> Sequence[int]:
    found, at = [], 0
    while at < len(content):
        value, at = _number(content, at)
        found.append(value)
        if len(found) > _MOST_FIELDS:
            raise malformed()
    return found


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:  # noqa: PLR2004 - seven bits a byte
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        pass
    raise malformed()
