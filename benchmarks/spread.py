"""Tasks on a cluster: how a hot key loads the reducers, and what a slow executor costs. Not run itself.

Nothing here knows of Spark but the two ways in which pairs can be sent to reducers, and its rule of speculation.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt

__all__ = ["Cluster", "loads", "makespan"]

_QUANTILE, _MULTIPLIER = 0.9, 3.0  # spark.speculation.quantile and .multiplier, as Spark 4 has them
_ZIPF = 1.1


@dataclass(frozen=True, slots=True)
class Cluster:
    """So many executors with so many cores each, one of which takes `slow` times as long for everything."""

    executors: int
    cores: int
    slow: float = 1.0
    speculation: bool = False


def loads(pairs: int, *, keys: int, hot: float, reducers: int, by_key_alone: bool = False) -> npt.NDArray[np.int64]:
    """Return how many of the distinct pairs each reducer gets, where one key has the share `hot` of them.

    The other keys follow Zipf's law. Pairs are sent by a hash of key and unit, as Spark's plan for COUNT(DISTINCT)
    does, or by the key alone.
    """
    drawn = np.random.Generator(np.random.PCG64(1))
    others = np.floor((1 - drawn.random(pairs) * (1 - keys ** (1 - _ZIPF))) ** (1 / (1 - _ZIPF))).astype(np.uint64)
    key = np.where(drawn.random(pairs) < hot, np.uint64(0), others)
    mixed = _mixed(key) if by_key_alone else _mixed(key ^ _mixed(np.arange(pairs, dtype=np.uint64)))
    return np.bincount((mixed % np.uint64(reducers)).astype(np.int64), minlength=reducers)


def makespan(tasks: Sequence[float], cluster: Cluster) -> float:
    """Return the seconds until the last of the tasks, each as long as it takes on a core of full speed, is done.

    A core that is free takes the next task. With speculation, one that finds none left takes a copy of the task that
    runs the longest, once most are done and this one has taken much longer than they did.
    """
    cores = [(0.0, core) for core in range(cluster.executors * cluster.cores)]
    heapq.heapify(cores)
    running: list[tuple[float, float, float]] = []  # end, begin, length on a core of full speed
    for length in tasks:
        begin, core = heapq.heappop(cores)
        end = begin + length * (cluster.slow if core < cluster.cores else 1.0)
        running.append((end, begin, length))
        heapq.heappush(cores, (end, core))
    if not cluster.speculation:
        return max(end for end, _, _ in running)
    return _with_copies(running, [(free, core) for free, core in cores if core >= cluster.cores])


def _with_copies(running: list[tuple[float, float, float]], free: list[tuple[float, int]]) -> float:
    """Return when the last task is done if cores of full speed, once free, run those again that take too long."""
    running = sorted(running)
    most = running[: max(1, int(_QUANTILE * len(running)))]
    known, long = most[-1][0], _MULTIPLIER * median(end - begin for end, begin, _ in most)
    heapq.heapify(free)
    last = known
    for end, begin, length in running[len(most) :]:
        ready, core = heapq.heappop(free)
        copied = max(ready, known, begin + long) + length
        heapq.heappush(free, (min(end, copied) if copied < end else ready, core))
        last = max(last, min(end, copied))
    return last


def _mixed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return numbers that look random: the finaliser of SplitMix64."""
    with np.errstate(over="ignore"):
        mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))
