"""A disk that does what a test says: SQLite's own file system, of which some calls pass through Python.

Registered in the very library that Python's sqlite3 uses, by ctypes alone, so that neither root nor a compiler is
needed. Where that library cannot be reached from outside, `usable` is False.
"""

from __future__ import annotations

import _sqlite3
import ctypes
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, Structure, byref, c_char_p, c_int, c_int64, c_void_p, cast
from typing import Self

__all__ = ["Disk", "Fault", "Hook", "usable"]

Hook = Callable[[str, str, str], int]  # "before" or "after", the act, the file; returns 0 or the code SQLite is told

_ACTS = {
    "read": CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64),
    "write": CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64),
    "truncate": CFUNCTYPE(c_int, c_void_p, c_int64),
    "sync": CFUNCTYPE(c_int, c_void_p, c_int),
    "lock": CFUNCTYPE(c_int, c_void_p, c_int),
    "shm_map": CFUNCTYPE(c_int, c_void_p, c_int, c_int, c_int, c_void_p),
    "shm_lock": CFUNCTYPE(c_int, c_void_p, c_int, c_int, c_int),
}
_UNLOCK = 1
_OPEN = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p)
_DELETE = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int)
_FILES = {0x100: "ledger", 0x800: "journal", 0x80000: "log"}


class _Methods(Structure):
    """`sqlite3_io_methods`, version 2."""

    _fields_ = [
        ("version", c_int),
        *(
            (name, c_void_p)
            for name in "close read write truncate sync size lock unlock reserved control sector traits "
            "shm_map shm_lock shm_barrier shm_unmap fetch unfetch".split()
        ),
    ]


class _System(Structure):
    """`sqlite3_vfs`, version 3."""

    _fields_ = [
        ("version", c_int),
        ("file_size", c_int),
        ("longest", c_int),
        ("following", c_void_p),
        ("name", c_char_p),
        ("data", c_void_p),
        *(
            (name, c_void_p)
            for name in "open delete access full dl_open dl_error dl_symbol dl_close random sleep time error "
            "time64 set_call get_call next_call".split()
        ),
    ]


def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(_sqlite3.__file__)
        library.sqlite3_vfs_find.restype = POINTER(_System)
    except (AttributeError, OSError):
        return None
    return library


_LIBRARY = _library()
usable = _LIBRARY is not None


class Disk:
    """While it is entered, every database that is opened lies on this disk; what stays open afterwards is as usual."""

    def __init__(self, hook: Hook) -> None:
        self.hook: Hook | None = hook
        self._files: dict[int, str] = {}
        self._methods: dict[int, _Methods] = {}
        self._kept: list[object] = []  # for the library holds no Python object

    def __enter__(self) -> Self:
        assert _LIBRARY is not None
        self._real = _LIBRARY.sqlite3_vfs_find(None)
        self._system = _System.from_buffer_copy(self._real.contents)
        self._system.name = b"dpsql-tests-%d" % id(self)
        self._system.following = None
        self._system.open = self._callback(_OPEN(self._open))
        self._system.delete = self._callback(_DELETE(self._delete))
        assert _LIBRARY.sqlite3_vfs_register(byref(self._system), 1) == 0
        return self

    def __exit__(self, *_: object) -> None:
        assert _LIBRARY is not None
        self.hook = None
        _LIBRARY.sqlite3_vfs_unregister(byref(self._system))
        _left.append(self)

    def _callback(self, function: object) -> int | None:
        self._kept.append(function)
        return cast(function, c_void_p).value  # type: ignore[arg-type]

    def _ask(self, moment: str, act: str, file: str) -> int:
        return 0 if self.hook is None else self.hook(moment, act, file)

    def _open(self, _system: int, name: int, file: int, flags: int, told: int) -> int:
        kind = next((word for bit, word in _FILES.items() if flags & bit), "other")
        code = self._ask("before", "open", kind)
        if code:
            c_void_p.from_address(file).value = None  # there is nothing to close
            return code
        code = _OPEN(self._real.contents.open)(cast(self._real, c_void_p).value, name, file, flags, told)
        if code == 0:
            self._files[file] = kind
            pointer = c_void_p.from_address(file)
            pointer.value = ctypes.addressof(self._watched(pointer.value))
        return code

    def _delete(self, _system: int, name: int, sync: int) -> int:
        return (
            self._ask("before", "delete", "other")
            or _DELETE(self._real.contents.delete)(cast(self._real, c_void_p).value, name, sync)
            or self._ask("after", "delete", "other")
        )

    def _watched(self, real: int) -> _Methods:
        """Return the methods of a file of the real system, with our own in some places."""
        if real not in self._methods:
            methods = _Methods()
            ctypes.memmove(byref(methods), real, _Methods.fetch.offset)
            methods.version = 2
            for act, kind in _ACTS.items():
                native = getattr(methods, act)
                if native is not None:  # a journal has no shared memory
                    setattr(methods, act, self._callback(kind(self._act(act, kind(native)))))
            self._methods[real] = methods
        return self._methods[real]

    def _act(self, act: str, real: Callable[..., int]) -> Callable[..., int]:
        def call(file: int, *arguments: int) -> int:
            kind = self._files.get(file, "other")
            name = "shm_unlock" if act == "shm_lock" and arguments[-1] & _UNLOCK else act
            return self._ask("before", name, kind) or real(file, *arguments) or self._ask("after", name, kind)

        return call


_FULL = 13
_FAILURES = {  # IOERR_WRITE, _FSYNC, _TRUNCATE, _SHMMAP, _SHMLOCK, _LOCK, _READ, CANTOPEN and IOERR_DELETE
    "write": 778,
    "sync": 1034,
    "truncate": 1546,
    "shm_map": 5386,
    "shm_lock": 5130,
    "lock": 3850,
    "read": 266,
    "open": 14,
    "delete": 2570,
}


class Fault:
    """A hook by which one act of a disk fails once it is armed: the one after so many, and perhaps all that follow.

    What fails "after" was done all the same, as a flush that reports an error of long ago. A lock that is let go does
    not fail.
    """

    def __init__(self, moment: str, *, lasting: bool) -> None:
        self._moment = moment
        self._acts = {"write", "sync"} if moment == "after" else set(_FAILURES)
        self._lasting = lasting  # a full disk; otherwise it is a bad one
        self._left: int | None = None
        self.failed: list[str] = []

    def arm(self, left: int) -> None:
        """Fail after so many acts."""
        self._left, self.failed = left, []

    def lift(self) -> None:
        """Let every act pass."""
        self._left = None

    def __call__(self, moment: str, act: str, file: str) -> int:
        if self._left is None or moment != self._moment or act not in self._acts:
            return 0
        self._left -= 1
        if self._left >= 0 or (self.failed and not self._lasting):
            return 0
        self.failed.append(f"{act} {file}")
        return _FULL if self._lasting and act == "write" else _FAILURES[act]


_left: list[Disk] = []  # a connection that outlives its disk still calls it
