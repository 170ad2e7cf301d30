"""Confinement of a process, by itself and before it opens any data: limits, files, network, system calls.

The limits of the process work on every POSIX system. The other measures are Linux's, and each is applied where the
kernel allows it to this user: an empty network namespace; Landlock, which opens only the named files; no capabilities,
not even for root; a filter of system calls; and a limit on processes. The names of the applied measures are returned,
so that they can be shown; a missing one is not an error.

A worker calls `confine`. A server on a Unix socket is started by `COMMAND`, which confines itself first. It imports
nothing of dpsql but this package, so that it starts in a few hundredths of a second.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from dpsql.confinement import MEASURES
from dpsql.confinement.system_calls import filter_calls, filter_server

_ROOM = 3 << 29  # bytes: what Python, Arrow and DuckDB reserve beside DuckDB's memory limit
_OF_A_THREAD = 1 << 26  # bytes: the arena of a thread's allocations
_MOST_SPILLED = 64 << 30  # bytes of one file
_MOST_FILES = 256
_OF_A_DATA_FILE = 4
_OWN_THREADS = 64  # of Python, Arrow and allocators, beside DuckDB's and some for each processor
_OTHERS_THREADS = 4096  # that other processes of the same user may start meanwhile
_NO_NEW_PRIVILEGES = 38  # of prctl; of system calls the numbers below are the same on every architecture
_DROP_FROM_BOUNDING_SET, _SET_SECURE_BITS, _AMBIENT, _CLEAR_AMBIENT = 24, 28, 47, 4
_SECURE_BITS = 0b11101111  # root is a user like any other, for good
_MOST_CAPABILITIES = 64
_CAPABILITIES_VERSION = 0x20080522
_SET_DEATH_SIGNAL = 1
_NEW_USER, _NEW_NETWORK, _NEW_SHARED_MEMORY = 0x10000000, 0x40000000, 0x08000000
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION = 1  # of Landlock: which of the rights below it knows
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}  # from a version on
_SIZES = {1: 8, 4: 16, 6: 24}  # of what a ruleset is described in: files; TCP; signals and abstract sockets
_READ = 1 | 4 | 8  # to execute, to read a file, to read a folder
_EXECUTE = 1
_OF_FILES = 1 | 2 | 4 | 1 << 14 | 1 << 15  # rights that a file itself can have
_BENEATH = 1  # the kind of a rule


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"  # the layout that Python 3.14 wants to be named
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("process", ctypes.c_int))


def confine(
    readable: Iterable[Path], *, writable: Path | None, threads: int, has_left_network: bool
) -> tuple[str, ...]:
    """Take every measure that this system offers, and return the names of those that are in force, of `MEASURES`.

    Files are read below `readable` alone and written below `writable`; `threads` are DuckDB's. Call this after
    `leave_network` and `limit_process`, before any data is opened and before there are other threads.
    """
    is_bounded = bound_processes(threads)  # counts processes, whose entries in /proc do not open any more afterwards
    has_files = forbid_files(readable, writable=writable)
    has_capabilities = drop_capabilities()
    is_filtered = filter_calls()
    taken = (has_capabilities, has_files, has_left_network or is_filtered, is_bounded or is_filtered, is_filtered)
    return tuple(name for name, is_taken in zip(MEASURES, taken, strict=True) if is_taken)


def leave_network(*, with_user_namespace: bool = True) -> bool:
    """Forbid new privileges and, where Linux allows, take no network along; return whether that could be done.

    Users other than root need a user namespace for it. In one, root cannot become another user: `with_user_namespace`
    says whether it may be taken. Call this before there are threads.
    """
    if sys.platform != "linux":
        return False
    library, user, group = ctypes.CDLL(None, use_errno=True), os.getuid(), os.getgid()
    library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    # 0 is success: root needs no user namespace for it.
    if not library.unshare(_NEW_NETWORK):
        return True
    if not with_user_namespace or library.unshare(_NEW_USER | _NEW_NETWORK):
        return False
    with suppress(OSError):  # who it is outside is who it says it is
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
    return True


def leave_shared_memory() -> None:
    """Have System V shared memory of its own, where Linux allows it. Call this after `leave_network`."""
    if sys.platform == "linux":
        ctypes.CDLL(None).unshare(_NEW_SHARED_MEMORY)


def end_with_parent(number: int) -> None:
    """Have this process get a signal when the one that started it ends. Call this after every change of rights."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, number, 0, 0, 0)


def limit_process(memory: int, threads: int, *, data_files: int = 0, spilled: int = _MOST_SPILLED) -> None:
    """Bound addresses, open files and what a file can grow to, and leave no core.

    `memory` is DuckDB's, and `spilled` the size of one file, in bytes. DuckDB opens files of a folder ahead of reading
    them, each once for every time that a statement reads the folder.
    """
    addresses = memory + _ROOM + threads * _OF_A_THREAD
    limit_resources(
        {
            resource.RLIMIT_AS: addresses,
            resource.RLIMIT_NOFILE: _MOST_FILES + _OF_A_DATA_FILE * data_files,
            resource.RLIMIT_FSIZE: spilled,
        }
    )


def limit_resources(limits: Mapping[int, int]) -> None:
    """Set limits of this process for good, by their kinds (`resource.RLIMIT_...`), and leave no core."""
    for kind, most in (*limits.items(), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(kind)[1]
        held = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with suppress(OSError, ValueError):  # macOS does not bound addresses
            resource.setrlimit(kind, (held, held))


def forbid_files(readable: Iterable[Path], *, writable: Path | None) -> bool:
    """Open nothing but `readable` and, to write in it, one folder, from now on; and do nothing to other processes.

    Returns whether the kernel has Landlock. Call this before there are other threads: it holds for this one and those
    that it starts.
    """
    if sys.platform != "linux":
        return False
    library = ctypes.CDLL(None, use_errno=True)
    version = library.syscall(_CREATE_RULESET, None, 0, _VERSION)
    if version < 1:
        return False
    # The newest entry that this kernel's version knows: later ones count as 0.
    rights, size = (max(known.items(), key=lambda one: one[0] * (one[0] <= version))[1] for known in (_RIGHTS, _SIZES))
    rules = _Ruleset(rights, 3, 3)  # both rights of TCP, which nothing below allows; both scopes
    ruleset = library.syscall(_CREATE_RULESET, ctypes.byref(rules), size, 0)
    if ruleset < 0:
        return False
    for path in readable:
        _allow(library, ruleset, path=path, rights=_READ)
    if writable is not None:
        _allow(library, ruleset, path=writable, rights=rights & ~_EXECUTE)
    is_restricted = library.syscall(_RESTRICT_SELF, ruleset, 0) == 0
    os.close(ruleset)
    return bool(is_restricted)


def _allow(library: ctypes.CDLL, ruleset: int, *, path: Path, rights: int) -> None:
    with suppress(OSError):
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = _Beneath(rights if path.is_dir() else rights & _OF_FILES, parent)
        library.syscall(_ADD_RULE, ruleset, _BENEATH, ctypes.byref(rule), 0)
        os.close(parent)


def drop_capabilities() -> bool:
    """Give up every capability for good, root's and those of a user namespace; return whether none is left.

    Root is then the owner of its files and nothing more: data must be readable by its mode.
    """
    if sys.platform != "linux":
        return False
    library = ctypes.CDLL(None, use_errno=True)
    library.prctl(_SET_SECURE_BITS, _SECURE_BITS, 0, 0, 0)
    for capability in range(_MOST_CAPABILITIES):
        if library.prctl(_DROP_FROM_BOUNDING_SET, capability, 0, 0, 0):
            break  # there is none of this number, or this user has none to drop
    library.prctl(_AMBIENT, _CLEAR_AMBIENT, 0, 0, 0)
    header, sets = _CapabilityHeader(_CAPABILITIES_VERSION, 0), (ctypes.c_uint32 * 6)()
    library.capset(ctypes.byref(header), ctypes.byref(sets))
    # Not 0, so that a call which fills nothing in is not read as success.
    found = (ctypes.c_uint32 * 6)(*[1] * 6)
    return not library.capget(ctypes.byref(header), ctypes.byref(found)) and not any(found)


def bound_processes(threads: int) -> bool:
    """Bound how many processes and threads this user may have; return whether that holds, as it does not for root.

    Linux counts all of the user's, in other processes too, so there is room for those; a bound under which no thread
    starts, since the system counts some that are not seen here, is taken back.
    """
    if sys.platform != "linux" or os.getuid() == 0:
        return False
    own = threads + _OWN_THREADS + 4 * (os.cpu_count() or 1)
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    most = _counted() + own + _OTHERS_THREADS
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (most, hard))
    try:
        trial = threading.Thread(target=int)
        trial.start()
        trial.join()
    except RuntimeError:
        resource.setrlimit(resource.RLIMIT_NPROC, (hard, hard))
        return False
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    return True


def _counted() -> int:
    """Return how many threads processes of this user have, as far as they can be seen."""
    found = 0
    for process in Path("/proc").glob("[1-9]*"):
        with suppress(OSError):
            if process.stat().st_uid == os.getuid():
                found += sum(1 for _ in (process / "task").iterdir())
    return found


COMMAND = """
import sys, types
dpsql = sys.modules["dpsql"] = types.ModuleType("dpsql")
dpsql.__path__ = [sys.argv[1]]
from dpsql.confinement.measures import main
main(sys.argv[2:])
"""
REPORT = "confinement"
_SERVER_PROCESSES = 64
_SERVER_OPEN = 1024  # files of a process
_SERVER_WRITTEN = 64 << 20  # bytes of a file
_LIBRARIES = "/lib /lib32 /lib64 /usr/lib /usr/lib32 /usr/lib64 /usr/local/lib /nix/store /etc/ld.so.cache".split()
_DEVICES = ["/dev/null", "/dev/urandom"]


def main(words: list[str]) -> None:
    """Confine this process and become a server, whose processes inherit all of it; return only if it does not start.

    The words are the server's folder, the bytes of memory of a process, the numbers "user:group" for root to become or
    "", what the server may read, "--", and the words that start the server. The names of the measures in force are
    written into the file `REPORT` of the folder.
    """
    for ignored in (signal.SIGINT, signal.SIGQUIT):  # by a shell, of what it starts in the background
        signal.signal(ignored, signal.SIG_DFL)
    parent, end = os.getppid(), words.index("--")
    folder, memory, whom, *readable = words[:end]
    has_left_network = leave_network(with_user_namespace=not whom)
    leave_shared_memory()
    if whom:
        user, group = whom.split(":")
        # Groups first: after setuid there is no right to change them.
        os.setgroups([])
        os.setgid(int(group))
        os.setuid(int(user))
    limit_resources(
        {
            resource.RLIMIT_DATA: int(memory),
            resource.RLIMIT_NOFILE: _SERVER_OPEN,
            resource.RLIMIT_FSIZE: _SERVER_WRITTEN,
        }
    )
    is_bounded = bound_processes(_SERVER_PROCESSES)
    has_files = forbid_files(map(Path, [*readable, *_LIBRARIES, *_DEVICES]), writable=Path(folder))
    has_capabilities = drop_capabilities()
    end_with_parent(signal.SIGQUIT)
    # The parent may have ended before the signal at its end was asked for.
    if os.getppid() != parent:
        return
    is_filtered, start = filter_server(words[end + 1 :], os.environ)
    taken = (has_capabilities, has_files, has_left_network or is_filtered, is_bounded, is_filtered)
    names = [name for name, is_taken in zip(MEASURES, taken, strict=True) if is_taken]
    Path(folder, REPORT).write_text("\n".join(names), encoding="utf-8")  # one that is loaded: Python's files are closed
    start()
