"""A process of another system that is asked again and again, and what it and its children use. Not run itself.

What a process and its children hold is the sum of their proportional sets (PSS): memory that several share counts once.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import dpsql

__all__ = ["Answering", "FailedError", "Way", "most_held", "spent"]

PROGRAM = Path(__file__).parent / "beside" / "answering.py"
OF_IMPORTS = ("PYTHONPATH", "PYTHONHOME")
PAUSE = 0.05  # seconds between two looks at memory
GRACE = 10  # seconds to end by oneself


class FailedError(Exception):
    """A system did not answer, for the reason that it gave."""


@dataclass(frozen=True, slots=True)
class Way:
    """A Python, a script for it to run, the most items of a user, and what else the script takes."""

    python: Path
    script: Path
    bound: int
    more: Sequence[str] = ()

    def command(self, folder: Path) -> list[str]:
        """Return what starts it."""
        return [*map(str, (self.python, "-P", PROGRAM, self.script, folder, self.bound)), *self.more]


class Answering:
    """A process that has loaded its data and waits to be asked."""

    def __init__(self, way: Way, data: Path, *, patience: float) -> None:
        self._patience = patience
        self._place = tempfile.TemporaryDirectory()  # what a system writes where it stands is forgotten
        self._errors = (Path(self._place.name) / "errors").open("w+")
        self._began = time.perf_counter()
        self._process = subprocess.Popen(  # noqa: S603 - our own words
            way.command(data),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=self._place.name,
            env=_surroundings(way.script),
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pids = [*tree(self.pid)]
        _send(signal.SIGTERM, pids)
        try:
            self._process.communicate(timeout=GRACE)
        except subprocess.TimeoutExpired:
            _send(signal.SIGKILL, pids)
            self._process.communicate()
        self._errors.close()
        self._place.cleanup()

    @property
    def pid(self) -> int:
        """The process that was started."""
        return self._process.pid

    def loaded(self) -> tuple[Mapping[str, str], float]:
        """Wait until the data is loaded, and return the versions of what answers and the seconds since it was begun."""
        versions = self._answer()["versions"]
        return dict(versions), time.perf_counter() - self._began

    def ask(self, k: int) -> list[str]:
        """Return the items that it has as the top k."""
        with suppress(BrokenPipeError):  # whoever has ended is asked why below
            print(k, file=self._process.stdin, flush=True)
        return list(self._answer()["items"])

    def _answer(self) -> dict[str, dict[str, str]]:
        stdout = self._process.stdout
        if stdout is None:
            raise FailedError("nobody listens to it")
        if not select.select([stdout], [], [], self._patience)[0]:
            raise FailedError(f"no answer within {self._patience:g} s")
        said = json.loads(stdout.readline() or "{}")
        if not said:
            raise FailedError(f"ended: {self._last_words()}")
        if "failed" in said:
            raise FailedError(said["failed"])
        return dict(said)

    def _last_words(self) -> str:
        self._errors.seek(0)
        return next((line.strip() for line in reversed(self._errors.readlines()) if line.strip()), "without a word")


def _surroundings(script: Path) -> dict[str, str]:
    """Return the environment of a process: dpsql is found where it is found here, and nothing of ours by the others."""
    kept = {name: value for name, value in os.environ.items() if name not in OF_IMPORTS}
    return {**kept, "PYTHONPATH": str(Path(dpsql.__file__).parents[1])} if script.stem == "dpsql" else kept


def _send(what: signal.Signals, pids: Sequence[int]) -> None:
    for pid in reversed(pids):
        with suppress(OSError):
            os.kill(pid, what)


def tree(pid: int) -> Iterator[int]:
    """Yield a process and all that came of it."""
    yield pid
    for told in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in told.read_text().split():
                yield from tree(int(child))


def spent(pid: int) -> float:
    """Return the seconds of CPU of a process, its children, and what has ended of both."""
    ticks = 0
    for each in tree(pid):
        with suppress(OSError):
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def held(pid: int) -> float:
    """Return the MiB that a process and its children hold now."""
    kib = 0
    for each in tree(pid):
        with suppress(OSError):
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
            kib += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kib / 2**10


@contextmanager
def most_held(pid: int) -> Iterator[list[float]]:
    """Look at what a process and its children hold while the block runs; afterwards the list has the most, in MiB."""
    most, over = [0.0], threading.Event()

    def look() -> None:
        while not over.wait(PAUSE):
            most[0] = max(most[0], held(pid))
        most[0] = max(most[0], held(pid))  # of a block that was over before the first look

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield most
    finally:
        over.set()
        looking.join()
