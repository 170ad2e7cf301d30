"""Spark on this machine as a cluster of worker processes: its jobs, and one of its workers killed. Not run itself.

`local-cluster` starts a Java process for each worker. They share the cores of this machine, so that times say nothing
of the speed of a cluster; what they send to each other and to Python is what a cluster would send.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Job", "find_workers", "jobs_of", "kill_one_amid", "spark_home", "wait_for_workers"]

_WAIT = 30.0  # seconds until a worker that died was replaced
_STEP = 0.005


@dataclass(slots=True)
class Job:
    """What all tasks of a job together spent and sent, workers that died in it, and tasks lost that ran again."""

    cpu: float = 0.0
    shuffled: int = 0
    remote: int = 0
    returned: int = 0
    lost: int = 0
    died: int = 0
    stages: frozenset[int] = field(default_factory=frozenset)

    def add(self, event: Mapping[str, object]) -> None:
        """Add the end of a task as the event log tells it."""
        reason, metrics = event.get("Task End Reason"), event.get("Task Metrics")
        self.lost += isinstance(reason, dict) and reason.get("Reason") != "Success"
        if not isinstance(metrics, dict):
            return
        self.cpu += metrics["Executor CPU Time"] / 1e9
        self.shuffled += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
        self.remote += metrics["Shuffle Read Metrics"]["Remote Bytes Read"]
        if event.get("Task Type") == "ResultTask":
            self.returned += metrics["Result Size"]


def jobs_of(log: Path) -> list[Job]:
    """Return the jobs of more than one stage, in their order: those of the statements, and not of looking at files."""
    jobs: list[Job] = []
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerJobStart":
            jobs.append(Job(stages=frozenset(event["Stage IDs"])))
        elif event["Event"] == "SparkListenerExecutorRemoved" and jobs:
            jobs[-1].died += 1
        elif event["Event"] == "SparkListenerTaskEnd":
            for job in reversed(jobs):
                if event["Stage ID"] in job.stages:
                    job.add(event)
                    break
    return [job for job in jobs if len(job.stages) > 1]


@contextmanager
def spark_home() -> Iterator[None]:
    """Give Spark a home in which its workers may write, where that of the package may be read-only."""
    spec, before = find_spec("pyspark"), os.environ.get("SPARK_HOME")
    with tempfile.TemporaryDirectory() as folder:
        for part in ("bin", "jars", "python", "sbin"):
            (Path(folder) / part).symlink_to(Path(str(spec and spec.origin)).parent / part)
        os.environ["SPARK_HOME"] = folder
        try:
            yield
        finally:
            os.environ.pop("SPARK_HOME")
            if before is not None:
                os.environ["SPARK_HOME"] = before


def find_workers() -> list[int]:
    """Return the processes that compute for the Java process of this one."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = stat.read_text().partition("(")
            parents[int(name)] = (rest.startswith("java)"), int(rest.rpartition(")")[2].split()[1]))
    java = {pid: parent for pid, (is_java, parent) in parents.items() if is_java}
    return sorted(pid for pid, parent in java.items() if java.get(parent) == os.getpid())


def wait_for_workers(count: int) -> None:
    """Wait until so many workers are there, for a bounded time."""
    until = time.monotonic() + _WAIT
    while len(find_workers()) < count and time.monotonic() < until:
        time.sleep(0.1)


@contextmanager
def kill_one_amid(session: SparkSession) -> Iterator[None]:
    """Kill a worker while tasks of the body's job run, and others have ended."""
    done, victim = threading.Event(), find_workers()[0]
    tracker = session.sparkContext.statusTracker()

    def watch() -> None:
        first: int | None = None
        while not done.wait(_STEP):
            for number in sorted(tracker.getActiveStageIds()):
                first, stage = number if first is None else first, tracker.getStageInfo(number)
                if stage is not None and stage.numActiveTasks and (number != first or stage.numCompletedTasks):
                    os.kill(victim, signal.SIGKILL)
                    return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
