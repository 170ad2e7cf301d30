"""Files of a durable ledger in SQLite, and why one could not be used: never a raw error of SQLite or of the system.

A commit is on the disk when it returns: write-ahead log with `synchronous=FULL`, set and read back at every opening
because SQLite does not remember the latter. A place that cannot keep a write-ahead log is refused. The file must be on
a disk of this machine. A network file system may acknowledge what it has not written, and two machines that share a
file do not share the memory in which SQLite keeps its write-ahead log in order. Linux names the kind of every mounted
file system; elsewhere, and for kinds not listed here, only what SQLite itself finds is refused.

Beside the file are the queue of its writers, the mark of how far it had come, and the checkpoint. None guards what was
spent: SQLite's own locks do, if someone deletes the queue. They are named after the real file, so that a symbolic link
to it is not a second queue.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dpsql.errors import LedgerError
from dpsql.ledger.durable import Mark

WAIT = 30.0  # seconds; a commit takes milliseconds, so this is a queue of thousands

_BUSY = (
    "ledger-busy",
    f"Another process had the ledger locked for {WAIT:.0f} seconds.",
    "Try again, or look for a process that stopped while it had the file locked.",
)
_REASONS = {
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_READONLY: (
        "ledger-read-only",
        "The ledger cannot be written.",
        "Give this process the right to write the file and its directory.",
    ),
    sqlite3.SQLITE_FULL: ("ledger-disk-full", "The disk under the ledger is full.", "Make room, then ask again."),
    sqlite3.SQLITE_CORRUPT: (
        "ledger-damaged",
        "The ledger holds what dpsql did not write.",
        "Keep the file and settle by hand what was spent; an older copy would give spent budget back.",
    ),
    sqlite3.SQLITE_NOTADB: (
        "not-a-ledger",
        "The file is not a ledger of dpsql.",
        "Name another file, or one that does not exist yet.",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "ledger-cannot-open",
        "The ledger file cannot be opened.",
        "Look whether the path names a file that this process may read and write.",
    ),
}
_DAMAGED = {0, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_SCHEMA}
_OTHER = ("ledger-failed", "The ledger could not be read or written.", "Look at the disk and the file's permissions.")
_OPENING = {
    errno.EACCES: sqlite3.SQLITE_READONLY,
    errno.EPERM: sqlite3.SQLITE_READONLY,
    errno.EROFS: sqlite3.SQLITE_READONLY,
    errno.ENOSPC: sqlite3.SQLITE_FULL,
}


def because(kind: int) -> LedgerError:
    """Return the error for one of SQLite's primary codes."""
    code, reason, hint = _REASONS.get(kind, _OTHER)
    return LedgerError(code, reason, hint=hint)


def busy() -> LedgerError:
    """Return the error of having waited in vain."""
    return because(sqlite3.SQLITE_BUSY)


def damaged() -> LedgerError:
    """Return the error of a file that is a ledger but says what dpsql never writes."""
    return because(sqlite3.SQLITE_CORRUPT)


def not_durable() -> LedgerError:
    """Return the error of a place where a commit may be lost, or where two machines would not see each other's."""
    return LedgerError(
        "ledger-not-durable",
        "What is spent could be lost here: the place is on another machine, or does not keep what is written.",
        hint="Put the ledger on a local disk.",
    )


def unopened(error: OSError | ValueError) -> LedgerError:
    """Return the error for a file that the system would not open or make; a ValueError is a NUL in its name."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        hint = "Make the directory, or name a file elsewhere."
        return LedgerError("ledger-directory", "The ledger's directory does not exist.", hint=hint)
    return because(_OPENING.get(getattr(error, "errno", None) or 0, sqlite3.SQLITE_CANTOPEN))


@contextmanager
def sealed() -> Iterator[None]:
    """Turn every sqlite3 error inside into a LedgerError; text that is none, SQLite's own included, is damage."""
    try:
        yield
    except sqlite3.Error as error:
        raise because(classify(error)) from error
    except UnicodeDecodeError as error:
        raise damaged() from error


def classify(error: sqlite3.Error) -> int:
    """Return SQLite's primary code; that of damage where Python could not decode a text, or our statements fail.

    They are right for tables of ours, so one that cannot run, or that breaks a rule of the file, means another file.
    """
    # The low byte of an extended code, such as SQLITE_BUSY_SNAPSHOT, is the primary one.
    code: int = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return sqlite3.SQLITE_CORRUPT if code in _DAMAGED else code


MOUNTS = Path("/proc/self/mounts")
_NETWORK = frozenset(
    "9p afs beegfs ceph cifs coda davfs gfs2 glusterfs gpfs lustre ncpfs nfs nfs4 ocfs2 orangefs pvfs2 smb2 smb3 smbfs "
    "fuse.ceph fuse.curlftpfs fuse.davfs fuse.davfs2 fuse.gcsfuse fuse.glusterfs fuse.goofys fuse.juicefs fuse.rclone "
    "fuse.s3fs fuse.smbnetfs fuse.sshfs".split()
)
_ESCAPED = re.compile(r"\\([0-7]{3})")  # a space or a backslash in a name


def refuse_network(path: Path) -> None:
    """Raise `ledger-not-durable` if `path` is known to lie on another machine."""
    try:
        mounts = MOUNTS.read_text("utf-8", "surrogateescape")
        place = os.path.realpath(path)
    except (OSError, ValueError):  # no such table here; a path that is none is refused when it is opened
        return
    if find_file_system(place, mounts) in _NETWORK:
        raise not_durable()


def find_file_system(path: str, mounts: str) -> str:
    """Return the kind of the file system that holds `path`, by a table of mounts; the last of equals hides the others.

    >>> find_file_system("/data/a.ledger", "host:/data /data nfs4 rw 0 0")
    'nfs4'
    """
    kind, longest = "", -1
    for line in mounts.splitlines():
        words = line.split(" ")
        place = _ESCAPED.sub(lambda code: chr(int(code[1], 8)), words[1]) if len(words) > 2 else ""  # noqa: PLR2004
        inside = place and (path == place or path.startswith(place.rstrip("/") + "/"))
        if inside and len(place) >= longest:
            kind, longest = words[2], len(place)
    return kind


APPLICATION_ID = 0x64707371  # "dpsq", in the header of the file
_FULL = 2
_PAUSE = 0.01

# Closing any descriptor of a file drops every lock that this process holds on it, SQLite's too. So no thread may open
# a file between its creation and the end of the descriptor that created it.
_CREATING = threading.Lock()


def header(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the application that a file says it belongs to, and the version of its tables."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return application, version


def is_blank(connection: sqlite3.Connection) -> bool:
    """Say whether nothing was written to the file: it is new, or its creation was interrupted."""
    (things,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return header(connection) == (0, 0) and things == 0


@contextmanager
def transaction(connection: sqlite3.Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    """Run the body alone among all writers; durable when this returns, undone if anything is raised."""
    try:
        connection.execute(f"BEGIN {kind}")
        yield
        connection.execute("COMMIT")
    except BaseException:
        # On a full disk, among others, SQLite has rolled back by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Let the body read one state of the file while others write; it may not write."""
    with transaction(connection, "DEFERRED"):
        yield


def create(path: Path) -> None:
    """Make an empty file, private to its owner, if there is none."""
    try:
        with _CREATING:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return
    except (OSError, ValueError) as error:
        raise unopened(error) from error


def connect(path: Path, mode: str = "rw") -> sqlite3.Connection:
    """Open the file at `path`; one of another application is left exactly as it is.

    `mode` is one of SQLite's, such as "ro"; "ro&immutable=1" reads a file that no process
    writes, and creates none beside it.
    """
    with _CREATING, sealed():
        address = f"{path.as_uri()}?mode={mode}"
        connection = sqlite3.connect(address, uri=True, timeout=WAIT, isolation_level=None, check_same_thread=False)
    try:
        with sealed():
            _refuse_foreign(connection)
            # for json_extract in our own indices; of any other schema nothing is run before it is refused
            connection.execute("PRAGMA trusted_schema = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _refuse_foreign(connection: sqlite3.Connection) -> None:
    if not is_blank(connection) and header(connection)[0] != APPLICATION_ID:
        raise because(sqlite3.SQLITE_NOTADB)


def make_durable(connection: sqlite3.Connection) -> None:
    """Let every commit reach the disk before it returns, or refuse the place."""
    connection.execute("PRAGMA fullfsync = ON")  # macOS: flush the drive as well; elsewhere without effect
    connection.execute("PRAGMA synchronous = FULL")
    journal = _write_ahead(connection)
    (flushed,) = connection.execute("PRAGMA synchronous").fetchone()
    if journal != "wal" or flushed != _FULL:
        raise not_durable()


def _write_ahead(connection: sqlite3.Connection) -> object:
    """Switch to the write-ahead log; retry, because processes that create a file together get "busy" at once."""
    deadline = time.monotonic() + WAIT
    while True:
        try:
            return connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            if classify(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE)


if sys.platform != "win32":
    import fcntl


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
        if not turn.wait(WAIT):
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
