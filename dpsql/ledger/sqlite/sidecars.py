"""Files beside a durable ledger: the queue of its writers, the mark of how far it had come, and the checkpoint.

None guards what was spent: SQLite's own locks do, if someone deletes the queue. They are named after the real file,
so that a symbolic link to it is not a second queue.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dpsql.errors import LedgerError
from dpsql.ledger.sqlite import errors as sqlite_errors
from dpsql.ledger.sqlite.errors import because, busy, unopened
from dpsql.ledger.verification import Mark

if sys.platform != "win32":
    import fcntl

__all__ = ["Sidecars", "rolled_back"]

_SIZE = 256
_WORDS = 4
_READINGS = 3
_held: set[int] = set()  # descriptors of queues; a forked child with one would hold the turn of its parent


class Sidecars:
    """The files beside the ledger at a path."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        real = os.path.realpath(ledger)
        self._queue, self._mark = Path(real + ".lock"), Path(real + ".mark")
        self._checkpoint = Path(real + ".checkpoint")
        self._logs = real + "-wal", real + "-shm"  # SQLite's own, also beside the real file
        self._journal = real + "-journal"  # SQLite's own, before there is a log

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait in the queue of writers, in the order of coming, and hold the turn; a dead process loses its own.

        SQLite alone lets writers sleep and try again, each longer than the one before, so that some starve.
        """
        if sys.platform == "win32":  # no such lock: SQLite alone decides who is next
            yield
            return
        descriptor = self._open(self._queue, os.O_RDWR | os.O_CREAT)
        try:
            _held.add(descriptor)
            _wait(descriptor)
            try:
                yield
            finally:
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing alone would leave it to a child forked just now
        finally:
            _held.discard(descriptor)
            os.close(descriptor)

    def identify_logs(self) -> tuple[tuple[int, int] | None, ...]:
        """Return device and inode of SQLite's write-ahead log and of its index; None for one that is missing."""
        return tuple(map(_identify, self._logs))

    def identify_rest(self) -> tuple[int, ...] | None:
        """Return a value that changes with the file of the ledger, if no process has the ledger open.

        None where a log or a journal may hold part of the ledger, as while a process has it open.
        """
        if os.path.lexists(self._logs[0]) or os.path.lexists(self._journal):
            return None
        try:
            status = self._ledger.stat()
        except (OSError, ValueError):
            return None
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

    def read_mark(self) -> Mark | None:
        """Return the mark; None if there is none, or none that can be read, as a loss of power may leave it."""
        try:
            for _ in range(_READINGS):  # beside a writer, one reading may hold half of two marks
                text = self._mark.read_text("utf-8", "replace").split()
                if len(text) == _WORDS and text[1].isdecimal() and text[-1] == _digest(text[:-1]):
                    return Mark(text[0], int(text[1]), text[2])
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unopened(error) from error
        return None

    def write_mark(self, mark: Mark) -> None:
        """Write the mark over the one before.

        In place, because a rename would make every commit of the ledger flush the journal of the file system too; in
        one sector, so that it is written whole. Not flushed: the commit before it was, and a mark that is older than
        the ledger, or lost in a power failure, causes no false alarm.
        """
        words = [mark.data_set, str(mark.seq), mark.chain]
        text = " ".join([*words, _digest(words)]).ljust(_SIZE - 1) + "\n"
        self._write(self._mark, text, flags=os.O_WRONLY | os.O_CREAT)

    def read_checkpoint(self) -> str | None:
        """Return the text of the checkpoint; None if there is none, or none that can be read."""
        try:
            return self._checkpoint.read_text("utf-8", "replace")
        except OSError:
            return None

    def write_checkpoint(self, text: str) -> None:
        """Write the checkpoint over the one before, in place and not flushed; in a turn, so that it is read whole.

        The digest reveals one that a crash cut short; the whole history is then read again.
        """
        self._write(self._checkpoint, text, flags=os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def _write(self, path: Path, text: str, *, flags: int) -> None:
        descriptor = self._open(path, flags)
        try:
            with memoryview(text.encode()) as rest:
                written = 0
                while written < len(rest):
                    written += os.write(descriptor, rest[written:])
        except OSError as error:
            raise unopened(error) from error
        finally:
            os.close(descriptor)

    def _open(self, path: Path, flags: int) -> int:
        """Open a file beside the ledger, with its owner and permissions; create it if it is missing."""
        try:
            ledger = self._ledger.stat()
            descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            raise unopened(error) from error
        if sys.platform != "win32":
            found = os.fstat(descriptor)
            with suppress(OSError):  # made by another owner, who has seen to it
                if found.st_mode & 0o777 != ledger.st_mode & 0o666:
                    os.fchmod(descriptor, ledger.st_mode & 0o666)
                if os.geteuid() == 0 and (found.st_uid, found.st_gid) != (ledger.st_uid, ledger.st_gid):
                    os.fchown(descriptor, ledger.st_uid, ledger.st_gid)
        return descriptor


def _identify(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - in every act, twice
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _digest(words: list[str]) -> str:
    return hashlib.sha256(" ".join(words).encode()).hexdigest()


def rolled_back() -> LedgerError:
    """Return the error of a ledger that is behind its mark."""
    return LedgerError(
        "ledger-rolled-back",
        "The ledger is older than its mark, or another ledger: what was spent since is missing from it.",
        hint="Put the newest copy back. Only a curator who counts what is missing as spent may delete the .mark file.",
    )


if sys.platform != "win32":

    def _wait(descriptor: int) -> None:
        """Take the lock, or raise `ledger-busy` after a while."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        except OSError as error:
            raise because(0) from error
        else:
            return
        # The queue of the system has no timeout, so a separate thread waits in it. A thread that is given up still
        # comes to its turn, and closing its descriptor, then the last of that opening, ends the turn at once.
        turn, failed = threading.Event(), list[OSError]()
        copy = os.dup(descriptor)
        _held.add(copy)
        thread = threading.Thread(target=_stand, args=(copy, turn), kwargs={"failed": failed}, daemon=True)
        thread.start()
        if not turn.wait(sqlite_errors.WAIT):
            raise busy()
        if failed:
            raise because(0) from failed[0]

    def _stand(descriptor: int, turn: threading.Event, *, failed: list[OSError]) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            failed.append(error)
        finally:
            turn.set()
            _held.discard(descriptor)
            os.close(descriptor)

    def _let_go() -> None:
        for descriptor in _held:
            with suppress(OSError):
                os.close(descriptor)
        _held.clear()

    os.register_at_fork(after_in_child=_let_go)
