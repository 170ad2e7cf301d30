"""The one way in which time is taken.

What is compared runs in turns, within one process, so that whatever else the machine does meets all of it alike: once
each to warm up, then so many times each, every second turn in the opposite order. CPU is that of all threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

__all__ = ["Clocks", "Run", "Times", "clocks", "in_turns", "timed"]

Run = Callable[[], object]
Clocks = Callable[[], tuple[float, float]]
_UNITS = {"s": 1.0, "ms": 1e3}


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of CPU and on the clock, a sample of each for every turn."""

    cpu: tuple[float, ...]
    wall: tuple[float, ...]

    @classmethod
    def of(cls, samples: Iterable[tuple[float, float]]) -> Times:
        """Return samples of CPU and clock as times."""
        cpu, wall = zip(*samples, strict=True)
        return cls(cpu, wall)

    def values(self, unit: str = "s") -> dict[str, tuple[float, ...]]:
        """Return the two as columns of a row, in seconds or in milliseconds."""
        factor = _UNITS[unit]
        columns = {"CPU": self.cpu, "wall": self.wall}
        return {f"{name} {unit}": tuple(factor * sample for sample in taken) for name, taken in columns.items()}


def clocks() -> tuple[float, float]:
    """Return the time of CPU that all threads of this process took, and the time on the clock."""
    return time.process_time(), time.perf_counter()


def timed(run: Run, clocks: Clocks = clocks) -> tuple[float, float]:
    """Return the seconds of CPU and on the clock that one run takes."""
    cpu, wall = clocks()
    run()
    after = clocks()
    return after[0] - cpu, after[1] - wall


def in_turns(runs: Mapping[str, Run], repeats: int, *, clocks: Clocks = clocks) -> dict[str, Times]:
    """Return the times of each, run in turns after one warm-up; other `clocks` see other processes, or less of this."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for turn in range(repeats + 1):
        for name in reversed([*runs]) if turn % 2 else runs:
            sample = timed(runs[name], clocks)
            if turn:
                taken[name].append(sample)
    return {name: Times.of(samples) for name, samples in taken.items()}
