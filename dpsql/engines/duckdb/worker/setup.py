"""First steps of every worker: its pipes, its end, and the files that Python itself needs."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

__all__ = ["end_with_front", "find_own_files", "set_alarm", "take_pipes"]

_GRACE = 5  # seconds beyond its limit after which a statement that the front did not stop stops itself
_LONGEST = 10**6  # seconds


def take_pipes() -> tuple[int, int]:
    """Return the pipes from and to the front, moved away from standard input and output, which lead nowhere then."""
    questions, answers = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    os.close(nowhere)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # which the front may have ignored
    return questions, answers


def end_with_front(questions: int, scratch: Path | None) -> None:
    """End this process, and remove what it spilled, once the front is no longer there to read an answer.

    The scratch folder itself may stay, where this process may write in it alone; the next one made sweeps it.
    """
    poll = select.poll()
    poll.register(questions, 0)
    poll.poll()
    if scratch is not None:
        shutil.rmtree(scratch, ignore_errors=True)
    os._exit(0)


def find_own_files() -> list[Path]:
    """Return where Python and its packages are, found without importing one: some start threads that would be free."""
    specs = [find_spec(name) for name in ("duckdb", "_duckdb", "pyarrow", "numpy", "typing_extensions")]
    packages = [Path(spec.origin).parent for spec in specs if spec is not None and spec.origin is not None]
    system = "/usr /lib /lib64 /proc/self /proc/meminfo /proc/cpuinfo /proc/stat /sys /dev/urandom /dev/null".split()
    return [Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parents[3], *packages, *map(Path, system)]


def set_alarm(limit: object) -> None:
    """End this process some seconds after a limit, in seconds; without one, take the alarm back."""
    signal.alarm(min(_LONGEST, int(limit) + _GRACE) if isinstance(limit, int | float) else 0)
