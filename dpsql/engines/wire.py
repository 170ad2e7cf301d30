"""What the front process and the worker of an engine say to each other: frames of JSON or Arrow over two pipes.

Nothing is pickled: whoever has taken over one end can send the other wrong answers, but no code. Every frame begins
with its length, which is held against a bound before a byte of it is read.
"""

from __future__ import annotations

import json
import os
import select
import time
from datetime import date, datetime
from decimal import Decimal

__all__ = ["MOST_JSON", "MOST_TABLE", "decoded", "encoded", "heard", "message", "receive", "send"]

MOST_JSON = 16 << 20  # bytes: a statement of 16 KiB with its values, or the columns of all tables
MOST_TABLE = 256 << 20  # bytes of a result
_LENGTH = 8
_CHUNK = 1 << 20
_PLAIN = (bool, int, float, str, type(None))


def send(pipe: int, payload: bytes, *, deadline: float | None = None) -> None:
    """Write one frame; raise `OSError`, or `TimeoutError` at the deadline, a time of the monotonic clock."""
    left = memoryview(len(payload).to_bytes(_LENGTH) + payload)
    while left:
        _wait(pipe, select.POLLOUT, deadline=deadline)
        left = left[os.write(pipe, left[:_CHUNK]) :]


def receive(pipe: int, most: int, *, deadline: float | None = None) -> bytes:
    """Read one frame of at most `most` bytes; raise `OSError`, `EOFError` or `ValueError` where there is none."""
    length = int.from_bytes(_exactly(pipe, _LENGTH, deadline=deadline))
    if length > most:
        raise ValueError
    return _exactly(pipe, length, deadline=deadline)


def message(**words: object) -> bytes:
    """Return a JSON object as the payload of a frame; ASCII, so that no text is too odd for it."""
    return json.dumps(words).encode("ascii")


def heard(payload: bytes) -> dict[str, object]:
    """Return the object of a payload; raise `ValueError` where it is none."""
    words = json.loads(payload)
    if not isinstance(words, dict):
        raise ValueError  # noqa: TRY004 - one kind of error for all that is no message
    return words


def encoded(value: object) -> object:
    """Return the value of a parameter as JSON has it; raise `TypeError` for one that no statement has."""
    if type(value) in _PLAIN:
        return value
    match value:
        case Decimal():
            return {"decimal": str(value)}
        case datetime():
            return {"datetime": value.isoformat()}
        case date():
            return {"date": value.isoformat()}
        case bytes():
            return {"bytes": value.hex()}
        case list() | tuple():
            return [encoded(item) for item in value]
    raise TypeError


def decoded(value: object) -> object:
    """Return the value that `encoded` wrote."""
    match value:
        case {"decimal": str(text)}:
            return Decimal(text)
        case {"datetime": str(text)}:
            return datetime.fromisoformat(text)
        case {"date": str(text)}:
            return date.fromisoformat(text)
        case {"bytes": str(text)}:
            return bytes.fromhex(text)
        case list():
            return [decoded(item) for item in value]
    return value


def _exactly(pipe: int, count: int, *, deadline: float | None) -> bytes:
    found = bytearray()
    while len(found) < count:
        _wait(pipe, select.POLLIN, deadline=deadline)
        chunk = os.read(pipe, min(_CHUNK, count - len(found)))
        if not chunk:
            raise EOFError
        found += chunk
    return bytes(found)


def _wait(pipe: int, event: int, *, deadline: float | None) -> None:
    """Wait until the pipe is ready or broken, where Python can be interrupted."""
    poll = select.poll()
    poll.register(pipe, event)
    left = None if deadline is None else max(0.0, deadline - time.monotonic())
    if not poll.poll(None if left is None else 1000 * left):
        raise TimeoutError
