"""A worker as its front sees it: a process, the pipes to and from it, and the folder into which it may write."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.engines.duckdb.worker import protocol
from dpsql.engines.scratch import ScratchFolder

if TYPE_CHECKING:
    from dpsql.engines.base import Stop

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
                protocol.widen(pipe.fileno())

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
        """Send frames and return the reply of at most `most` bytes; raises as `protocol.send` and `receive` do."""
        questions, answers = self._process.stdin, self._process.stdout
        if questions is None or answers is None:
            raise OSError
        for frame in frames:
            protocol.send(questions.fileno(), frame, deadline=deadline, stop=stop)
        return protocol.receive(answers.fileno(), most, deadline=deadline, stop=stop)


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
    own = str(Path(__file__).parents[4])
    return paths if own in paths else [own, *paths]
