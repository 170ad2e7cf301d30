"""What a worker takes from itself before it opens any data: room, files, the network, and everybody else's files.

The limits of the process hold on every POSIX system. The rest is Linux's, and is done where the kernel lets an ordinary
user do it: a network namespace with nothing in it, and Landlock, by which no file opens but those that are named.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["forbid_files", "leave_network", "limit_process"]

_ROOM = 3 << 29  # bytes: what Python, Arrow and DuckDB reserve beside DuckDB's memory limit
_OF_A_THREAD = 1 << 26  # bytes: the arena of a thread's allocations
_MOST_SPILLED = 64 << 30  # bytes of one file
_MOST_FILES = 256
_OF_A_DATA_FILE = 4
_NO_NEW_PRIVILEGES = 38  # of prctl; of system calls the numbers below are the same on every architecture
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION = 1  # of Landlock: which of the rights below it knows
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}  # from a version on
_SIZES = {1: 8, 4: 16, 6: 24}  # of what a ruleset is described in: files; TCP; signals and abstract sockets
_READ = 1 | 4 | 8  # to execute, to read a file, to read a folder
_OF_FILES = 1 | 2 | 4 | 1 << 14 | 1 << 15  # rights that a file itself can have
_BENEATH = 1  # the kind of a rule


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def leave_network() -> None:
    """Forbid new privileges and, where Linux allows, take no network along; call this before there are threads."""
    if sys.platform != "linux":
        return
    library, user, group = ctypes.CDLL(None, use_errno=True), os.getuid(), os.getgid()
    library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if library.unshare(_NEW_NETWORK) and not library.unshare(_NEW_USER | _NEW_NETWORK):
        with suppress(OSError):  # who it is outside is who it says it is
            Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")


def limit_process(memory: int, threads: int, *, data_files: int = 0) -> None:
    """Bound addresses, open files and what a file can grow to, and leave no core.

    `memory` is DuckDB's, in bytes. It opens files of a folder ahead of reading them, each once for every time that a
    statement reads the folder.
    """
    for kind, most in (
        (resource.RLIMIT_AS, memory + _ROOM + threads * _OF_A_THREAD),
        (resource.RLIMIT_NOFILE, _MOST_FILES + _OF_A_DATA_FILE * data_files),
        (resource.RLIMIT_FSIZE, _MOST_SPILLED),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        held = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with suppress(OSError, ValueError):  # macOS does not bound addresses
            resource.setrlimit(kind, (held, held))


def forbid_files(readable: Iterable[Path], *, writable: Path) -> None:
    """Let this process open nothing but `readable` and, to write in it, one folder; and do nothing to other processes.

    Call this before there are other threads: it holds for this one and those that it starts.
    """
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None, use_errno=True)
    version = library.syscall(_CREATE_RULESET, None, 0, _VERSION)
    if version < 1:
        return
    rights, size = (max(known.items(), key=lambda one: one[0] * (one[0] <= version))[1] for known in (_RIGHTS, _SIZES))
    rules = _Ruleset(rights, 3, 3)  # both rights of TCP, which nothing below allows; both scopes
    ruleset = library.syscall(_CREATE_RULESET, ctypes.byref(rules), size, 0)
    if ruleset < 0:
        return
    for path in readable:
        _allow(library, ruleset, path=path, rights=_READ)
    _allow(library, ruleset, path=writable, rights=rights)
    library.syscall(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _allow(library: ctypes.CDLL, ruleset: int, *, path: Path, rights: int) -> None:
    with suppress(OSError):
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = _Beneath(rights if path.is_dir() else rights & _OF_FILES, parent)
        library.syscall(_ADD_RULE, ruleset, _BENEATH, ctypes.byref(rule), 0)
        os.close(parent)
