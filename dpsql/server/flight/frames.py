"""Parser for the HTTP/2 frames of a client, as far as the guard needs it: to bound the length of gRPC messages.

pyarrow's server accepts messages of any length before it checks a password. The guard therefore checks the announced
length of each message as it arrives. It does not read the headers of a call, which are compressed with a shared state;
it appends one header in the only form that needs no such state: a literal without indexing (RFC 7541, 6.2.2).
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass

__all__ = ["FRAME_HEAD", "LARGEST_FRAME", "PREFACE", "Frame", "Hostile", "Stream", "Watchman"]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_HEAD = 9
LARGEST_FRAME = 1 << 20
LARGEST_MESSAGE = 512 * 1024  # bytes of one message: a statement, or its parameters
_MOST_UNDER_WAY = 1 << 20  # bytes of messages of one connection that have begun and not ended
_MOST_STREAMS = 256  # calls of one connection at a time
_MOST_HEADERS = 64 * 1024
_DATA, _HEADERS, _RESET, _CONTINUATION = 0, 1, 3, 9
_END_STREAM, _END_HEADERS, _PADDED = 1, 4, 8
_COMPRESSED = re.compile(rb"[\x22-\x28]\xb5\x2f\xfd|\x04\x22\x4d\x18")  # how zstd, also its older forms, and LZ4 begin
_OVERLAP = 3
_PREFIX = 5  # bytes before a message of gRPC: whether it is compressed, and its length


class Hostile(Exception):
    """Bytes that no client of Flight SQL sends; they end the connection."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame: its kind, its flags, the call it belongs to, and what it carries."""

    kind: int
    flags: int
    stream: int
    payload: bytes

    @classmethod
    def headed(cls, head: bytes, payload: bytes = b"") -> Frame:
        """Return the frame that begins with these nine bytes."""
        return cls(head[3], head[4], int.from_bytes(head[5:]) & 0x7FFF_FFFF, payload)

    @property
    def bytes(self) -> bytes:
        """The frame as it is sent."""
        head = len(self.payload).to_bytes(3) + bytes([self.kind, self.flags]) + self.stream.to_bytes(4)
        return head + self.payload


@dataclass(slots=True)
class Stream:
    """One call: what is missing of the message that is under way, and the prefix of the next as far as it came."""

    missing: int = 0
    prefix: bytes = b""
    arrived: int = 0
    last: bytes = b""


class Watchman:
    """Looks at the frames of one connection in their order; says what to pass on, or raises `Hostile`."""

    def __init__(self, header: tuple[bytes, bytes]) -> None:
        """Write the `header`, a name and a value of at most 126 bytes each, behind those of every call."""
        name, value = header
        self._literal = bytes([0, len(name)]) + name + bytes([len(value)]) + value
        self._streams: OrderedDict[int, Stream] = OrderedDict()
        self._block = 0  # the call whose headers go on in the next frame
        self._headers = 0  # and how long they are
        self._newest = 0

    def passed(self, frame: Frame) -> bytes:
        """Return what is passed on of a frame."""
        if (frame.kind == _CONTINUATION) != bool(self._block) or (self._block and frame.stream != self._block):
            raise Hostile
        if frame.kind in {_HEADERS, _CONTINUATION}:
            frame = self._headed(frame)
        elif frame.kind == _DATA:
            self._measured(frame)
        elif frame.kind == _RESET:
            self._streams.pop(frame.stream, None)
        return frame.bytes

    @property
    def under_way(self) -> int:
        """The number of bytes received of unfinished messages."""
        return sum(stream.arrived for stream in self._streams.values())

    def _headed(self, frame: Frame) -> Frame:
        if frame.flags & _PADDED or not frame.stream:
            raise Hostile
        if frame.kind == _HEADERS:
            self._headers = 0
            self._begun(frame.stream)
        self._headers += len(frame.payload)
        if self._headers > _MOST_HEADERS:
            raise Hostile
        if not frame.flags & _END_HEADERS:
            self._block = frame.stream
            return frame
        self._block = 0
        return Frame(frame.kind, frame.flags, frame.stream, frame.payload + self._literal)

    def _begun(self, number: int) -> None:
        """Begin a call; the oldest that never ended is forgotten, and may send nothing more."""
        if number in self._streams or number <= self._newest:
            raise Hostile  # headers after a message: clients of gRPC send none
        self._newest = number
        self._streams[number] = Stream()
        if len(self._streams) > _MOST_STREAMS:
            self._streams.popitem(last=False)

    def _measured(self, frame: Frame) -> None:
        stream = self._streams.get(frame.stream)
        if frame.flags & _PADDED or (stream is None and frame.payload):
            raise Hostile
        if stream is None:
            return
        _arrived(stream, frame.payload)
        if self.under_way > _MOST_UNDER_WAY:
            raise Hostile
        if frame.flags & _END_STREAM:
            del self._streams[frame.stream]


def _arrived(stream: Stream, payload: bytes) -> None:
    """Take in the next bytes of a call; raise `Hostile` for a message that is compressed, or announces too much.

    Arrow may compress the buffers inside a message too, and would unpack half a megabyte to gigabytes.
    """
    if _COMPRESSED.search(stream.last + payload):
        raise Hostile
    stream.last = (stream.last + payload)[-_OVERLAP:]
    at = 0
    while at < len(payload):
        if stream.missing:
            taken = min(stream.missing, len(payload) - at)
            stream.missing -= taken
            stream.arrived = stream.arrived + taken if stream.missing else 0
            at += taken
            continue
        taken = min(_PREFIX - len(stream.prefix), len(payload) - at)
        stream.prefix += payload[at : at + taken]
        at += taken
        if len(stream.prefix) == _PREFIX:
            stream.missing = int.from_bytes(stream.prefix[1:])
            if stream.prefix[0] or stream.missing > LARGEST_MESSAGE:
                raise Hostile
            stream.prefix = b""
