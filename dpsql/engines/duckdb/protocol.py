"""A worker as its front sees it: a process, frames of JSON or Arrow over two pipes, and a folder it may write into.

Nothing is pickled: a compromised side can send wrong answers, but no code. Every frame begins with its length, which is
checked against a limit before the frame is read. A worker may be compromised: Arrow can check every offset of a table,
but it would still expand a compressed body or a run to any size; our workers send neither, so both are refused.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
import weakref
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.engines.scratch import ScratchFolder

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsql.engines.base import Stop

MOST_JSON = 16 << 20  # bytes: a statement of 128 KiB with its values, or the columns of all tables
MOST_TABLE = 256 << 20  # bytes of a result
MOST_COMPUTED = 64 << 20  # bytes of what is computed from released and public rows
STEP = 0.25  # seconds between two checks whether the client still waits
_DICTIONARY, _RECORDS = 2, 3  # the kinds of a message that have a body (Arrow's Message.fbs)
_HEADER_TYPE, _HEADER = 1, 2  # fields of a Message
_BATCH = 1  # of a DictionaryBatch: its RecordBatch
_COMPRESSION = 3  # of a RecordBatch
_MOST_ROWS = 1 << 27
_LENGTH = 8
_CHUNK = 1 << 20
_PLAIN = (bool, int, float, str, type(None))


def send(pipe: int, payload: bytes | memoryview, *, deadline: float | None = None, stop: Stop | None = None) -> None:
    """Write one frame; raise `OSError`, or `TimeoutError` at the deadline, a time of the monotonic clock.

    It is raised as well soon after `stop` returns True.
    """
    for part in (len(payload).to_bytes(_LENGTH), payload):
        left = memoryview(part)
        while left:
            _wait(pipe, select.POLLOUT, deadline=deadline, stop=stop)
            # The pipe does not block: a write takes what has room there, and the rest waits for the next round.
            left = left[os.write(pipe, left[:_CHUNK]) :]


def widen(pipe: int) -> None:
    """Let a pipe hold more at once, where the system can."""
    if sys.platform == "linux":
        import fcntl  # there is none on Windows, where this module must still be read

        with suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _CHUNK)


def receive(pipe: int, most: int, *, deadline: float | None = None, stop: Stop | None = None) -> bytearray:
    """Read one frame of at most `most` bytes; raise `OSError`, `EOFError` or `ValueError` where there is none.

    Raises `TimeoutError`, an `OSError`, as `send` does.
    """
    length = int.from_bytes(_exactly(pipe, _LENGTH, deadline=deadline, stop=stop))
    if length > most:
        raise ValueError
    return _exactly(pipe, length, deadline=deadline, stop=stop)


def message(**words: object) -> bytes:
    """Return a JSON object as the payload of a frame; ASCII, so that no text is too odd for it."""
    return json.dumps(words).encode("ascii")


def heard(payload: bytes | bytearray) -> dict[str, object]:
    """Return the object of a payload; raise `ValueError` where it is none."""
    words: object = None
    with suppress(RecursionError):  # of what is nested too deeply
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


def _exactly(pipe: int, count: int, *, deadline: float | None, stop: Stop | None) -> bytearray:
    # The caller has checked the length against its limit: a frame that says it has terabytes ends here as a
    # `ValueError`.
    found = bytearray(count)
    left = memoryview(found)
    while left:
        _wait(pipe, select.POLLIN, deadline=deadline, stop=stop)
        got = os.readv(pipe, [left[:_CHUNK]])
        if not got:
            raise EOFError
        left = left[got:]
    return found


def _wait(pipe: int, event: int, *, deadline: float | None, stop: Stop | None) -> None:
    """Wait until the pipe is ready or broken, where Python can be interrupted, and until the deadline or a stop."""
    poll = select.poll()
    poll.register(pipe, event)
    while True:
        waits = [] if deadline is None else [max(0.0, deadline - time.monotonic())]
        waits += [] if stop is None else [STEP]
        if poll.poll(1000 * min(waits) if waits else None):
            return
        if (deadline is not None and time.monotonic() >= deadline) or (stop is not None and stop()):
            raise TimeoutError


def encode_table(table: pa.Table) -> memoryview:
    """Return a table as a stream of Arrow, uncompressed."""
    import pyarrow as pa  # at start it would begin threads, before a worker is confined

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())


def read_table(stream: bytes | bytearray) -> pa.Table:
    """Return the table in a stream; raise some `Exception` where it is not one that `encode_table` writes."""
    import pyarrow as pa

    whole = pa.py_buffer(stream)
    for message in pa.ipc.MessageReader.open_stream(whole):
        if _is_compressed(bytes(message.metadata)):
            raise ValueError
    table = pa.ipc.open_stream(whole).read_all()
    if table.num_rows > _MOST_ROWS:
        raise ValueError
    for kind in table.schema.types:  # whose values take room in proportion to the bytes that were sent
        if pa.types.is_dictionary(kind):
            is_plain = pa.types.is_string(kind.value_type) or pa.types.is_large_string(kind.value_type)
        else:
            is_odd = pa.types.is_run_end_encoded(kind) or pa.types.is_union(kind)
            is_plain = not (is_odd or isinstance(kind, pa.BaseExtensionType) or kind.num_fields)
        if not is_plain:
            raise ValueError
    table.validate(full=True)
    return table


def _is_compressed(metadata: bytes) -> bool:
    """Return whether a message's body is compressed, by its metadata, a flat buffer."""

    def follow(place: int) -> int:  # the unsigned offset at a place
        return place + int.from_bytes(metadata[place : place + 4], "little")

    def find_field(table: int, number: int) -> int:  # of a table; 0 if it is absent
        # A table of a flat buffer begins with the distance back to its list of fields. That has two sizes of 16 bits,
        # and for each field a 16-bit offset into the table, 0 for one that is absent; fields at its end may be left
        # out.
        fields = table - int.from_bytes(metadata[table : table + 4], "little", signed=True)
        slot = 4 + 2 * number
        if slot >= int.from_bytes(metadata[fields : fields + 2], "little"):
            return 0
        offset = int.from_bytes(metadata[fields + slot : fields + slot + 2], "little")
        return table + offset if offset else 0

    def find_table(table: int, number: int) -> int:
        place = find_field(table, number)
        if not place:
            raise ValueError
        return follow(place)

    root = follow(0)
    kind = find_field(root, _HEADER_TYPE)
    if not kind or metadata[kind] not in {_DICTIONARY, _RECORDS}:
        return False
    batch = find_table(root, _HEADER)
    if metadata[kind] == _DICTIONARY:
        batch = find_table(batch, _BATCH)
    return find_field(batch, _COMPRESSION) != 0


_ELSEWHERE = "/nonexistent"  # the temporary folder of a worker that may write nowhere


class WorkerProcess:
    """A process that runs `program`, a text of Python, and is killed with all it started when `end` is called.

    It begins in the folder `place`; `scratch` is a folder that goes with it, into which it may write. It also ends when
    the object is forgotten, and by itself when this process has ended.
    """

    def __init__(self, program: str, *, place: str, threads: int, scratch: ScratchFolder | None) -> None:
        self._spilled = _ELSEWHERE if scratch is None else str(scratch.path)
        self._owner = os.getpid()
        try:
            self._process = _start(program, place=place, spilled=self._spilled, threads=threads)
        except BaseException:
            if scratch is not None:
                scratch.close()
            raise
        self.end = weakref.finalize(self, _end, self._process, scratch, owner=self._owner)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                widen(pipe.fileno())

    @property
    def usable(self) -> bool:
        """Whether it lives, and was not inherited by a fork: two fronts at one pipe would read each other's answers."""
        return self._owner == os.getpid() and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def exchange(
        self,
        *frames: bytes | memoryview,
        most: int,
        deadline: float | None,
        stop: Stop | None = None,
    ) -> bytearray:
        """Send frames and return the reply of at most `most` bytes; raises as `send` and `receive` do."""
        questions, answers = self._process.stdin, self._process.stdout
        if questions is None or answers is None:
            raise OSError
        for frame in frames:
            send(questions.fileno(), frame, deadline=deadline, stop=stop)
        return receive(answers.fileno(), most, deadline=deadline, stop=stop)


def _start(program: str, *, place: str, spilled: str, threads: int) -> subprocess.Popen[bytes]:
    """Start a worker.

    Its address space is limited, so allocators must not reserve more than they use: by default the allocator of the C
    library takes 64 MiB for every thread, Arrow's takes a GiB at first use, and DuckDB's never returns addresses.
    """
    memory = {
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "DUCKDB_JE_MALLOC_CONF": "retain:false",
        "MALLOC_ARENA_MAX": str(threads),
    }
    return subprocess.Popen(  # noqa: S603 - this Python and our own words
        # -I: neither PYTHONPATH nor the current folder nor packages of the user decide what is imported; the folders of
        # this process are arguments.
        [sys.executable, "-I", "-c", program, *_paths()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        cwd=place,
        env={"TMPDIR": spilled, "HOME": spilled, **memory},
        start_new_session=True,  # a Ctrl-C in the terminal is for the front
    )


def _end(process: subprocess.Popen[bytes], scratch: ScratchFolder | None, *, owner: int) -> None:
    """Kill a worker with what it started, wait for it, and remove its folder.

    A fork that inherited it only lets go of the pipes. A process that left the worker's session is not found here.
    """
    mine = owner == os.getpid()
    if mine:
        if process.poll() is None:  # until it is waited for, the group of its session is its own
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
    if scratch is not None:
        scratch.close()


def _paths() -> list[str]:
    """Return the folders where Python finds packages here, this one first if it is not among them; none relative."""
    paths = [path for path in sys.path if Path(path).is_absolute()]
    own = str(Path(__file__).parents[3])
    return paths if own in paths else [own, *paths]
