"""Folders for temporary files, which are removed even when their owner was killed.

A folder carries a lock (flock on the folder itself) for as long as its owner lives; the operating system frees it when
the process dies, however it dies. Every new folder first sweeps its neighbours: folders of the same user and the same
kind of name whose lock is free have no owner any more, and are removed with all that is in them. So rows that a killed
process had spilled are on the disk until the next engine is opened, and no longer.

Where there is no flock (Windows, some network file systems) no lock can be taken, so nothing is swept.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Self

if sys.platform != "win32":  # where this module must still be read
    import fcntl
    import pwd

_PREFIX = "dpsql-scratch-"
_NAME = re.compile(re.escape(_PREFIX) + r"[a-z0-9_]{8}")
_UNPRIVILEGED = "nobody"  # the user to whom root hands a folder over, for programs that refuse to run as root
_ATTEMPTS = 100
_FOLDER = 0 if sys.platform == "win32" else os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class ScratchFolder:
    """Private folder below the temporary folder, removed when it is closed, forgotten, or swept after a crash.

    A fork that inherits the object leaves the folder alone.
    """

    def __init__(self) -> None:
        """Sweep folders whose owners are dead, then make a new one; raise `OSError` where none can be made."""
        sweep()
        self.path, descriptor = _make()
        self.close = weakref.finalize(self, _remove, self.path, descriptor, owner=os.getpid())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def sweep() -> None:
    """Remove the scratch folders of dead owners: of this user alone, by their names, following no symbolic link."""
    if sys.platform == "win32":
        return
    with suppress(OSError):
        place = os.open(tempfile.gettempdir(), os.O_RDONLY | os.O_DIRECTORY)
        try:
            for name in filter(_NAME.fullmatch, os.listdir(place)):  # noqa: PTH208 - a descriptor, which stays the same folder
                with suppress(OSError):
                    _remove_if_dead(place, name)
        finally:
            os.close(place)


def _make() -> tuple[Path, int | None]:
    """Make a folder and take its lock; return its path and the descriptor that has the lock, None on Windows.

    Between the two acts it looks like that of a dead owner, and a sweeper may remove it, but only while it has the lock
    itself. So a folder that is still there once the lock is ours is safe; in place of any other a new one is made.
    """
    for _ in range(_ATTEMPTS):
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        with suppress(FileNotFoundError):
            return path, _lock(path)
    raise FileExistsError(tempfile.gettempdir())


def _lock(path: Path) -> int | None:
    """Return a descriptor that has the lock of a new folder; raise `FileNotFoundError` for one that was swept."""
    if sys.platform == "win32":
        return None
    descriptor = os.open(path, _FOLDER)
    try:
        with suppress(OSError):  # where a file system has no locks, no sweeper gets one either
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if not os.path.samestat(os.fstat(descriptor), path.lstat()):
            raise FileNotFoundError(str(path))  # noqa: TRY301 - as lstat does
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _remove_if_dead(place: int, name: str) -> None:
    """Remove a folder whose lock is free; raise `OSError` for one that is locked, missing, or no folder."""
    descriptor = os.open(name, _FOLDER, dir_fd=place)
    try:
        found = os.fstat(descriptor)
        if found.st_uid in _own_users():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The name may be that of another folder by now: only the one whose lock is held is removed.
            if os.path.samestat(found, os.stat(name, dir_fd=place, follow_symlinks=False)):
                shutil.rmtree(name, ignore_errors=True, dir_fd=place)
    finally:
        os.close(descriptor)


def _own_users() -> set[int]:
    """Return the users whose folders are ours: this one and, if it is root, the one to whom root hands folders."""
    users = {os.geteuid()}
    if 0 in users:
        with suppress(KeyError):
            users.add(pwd.getpwnam(_UNPRIVILEGED).pw_uid)
    return users


def _remove(path: Path, descriptor: int | None, *, owner: int) -> None:
    """Remove a folder, then let its lock go; a fork of the owner does neither, since the lock is shared with it."""
    if owner == os.getpid():
        # Before the lock is free: no sweeper works on the folder at the same time.
        shutil.rmtree(path, ignore_errors=True)
    if descriptor is not None:
        with suppress(OSError):
            os.close(descriptor)
