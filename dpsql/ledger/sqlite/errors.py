"""Why a ledger's file could not be opened, read or written: never a raw error of SQLite or of the system.

The file must be on a disk of this machine. A network file system may acknowledge what it has not written, and two
machines that share a file do not share the memory in which SQLite keeps its write-ahead log in order. Linux names the
kind of every mounted file system; elsewhere, and for kinds not listed here, only what SQLite itself finds is refused.
"""

from __future__ import annotations

import errno
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpsql.errors import LedgerError

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
