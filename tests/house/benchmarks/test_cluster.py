"""What a cluster needs is worked out from the event log of Spark, and the simulations keep to what is known of them."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest
from support.benchmarks_kit import Load


@pytest.fixture
def spread(load: Load) -> ModuleType:
    return load("spread")


@pytest.fixture
def cluster(load: Load) -> ModuleType:
    return load("cluster")


def task(stage: int, *, read: int, shuffled: int = 0, sent: int = 0, cpu: float = 1.0) -> dict[str, object]:
    metrics = {
        "Executor CPU Time": int(cpu * 1e9),
        "Input Metrics": {"Records Read": read},
        "Shuffle Read Metrics": {"Total Records Read": shuffled},
        "Shuffle Write Metrics": {"Shuffle Records Written": sent, "Shuffle Bytes Written": 10 * sent},
    }
    return {"Event": "SparkListenerTaskEnd", "Stage ID": stage, "Task Metrics": metrics}


def test_stages_are_those_of_the_second_run_of_each_query(cluster: ModuleType, tmp_path: Path) -> None:
    events: list[dict[str, object]] = [{"Event": "SparkListenerJobStart", "Stage IDs": [0]}, task(0, read=9)]
    for run in range(4):  # each query twice; the first run of each is the slower one
        first = 1 + 2 * run
        events.append({"Event": "SparkListenerJobStart", "Stage IDs": [first + 1, first]})
        slow = 5.0 if run % 2 == 0 else 1.0
        events += [task(first, read=50, sent=40, cpu=slow), task(first, read=50, sent=30, cpu=slow)]
        events.append(task(first + 1, read=0, shuffled=70, sent=0, cpu=0.5))
    log = tmp_path / "log"
    log.write_text("\n".join(map(json.dumps, events)))
    told = cluster.told(log)
    assert list(told) == ["unbounded", "at most 5 groups"]
    for stages in told.values():
        assert stages == [cluster.Stage(100, 70, 700, 2.0), cluster.Stage(70, 0, 0, 0.5)]


def test_jobs_are_told_with_what_they_sent_and_what_died(load: Load, tmp_path: Path) -> None:
    done = {
        "Executor CPU Time": 2_000_000_000,
        "Result Size": 300,
        "Shuffle Write Metrics": {"Shuffle Bytes Written": 10},
        "Shuffle Read Metrics": {"Remote Bytes Read": 4},
    }
    end = {"Event": "SparkListenerTaskEnd", "Task End Reason": {"Reason": "Success"}, "Task Metrics": done}
    lost = {"Event": "SparkListenerTaskEnd", "Task End Reason": {"Reason": "ExecutorLostFailure"}, "Stage ID": 1}
    events: list[dict[str, object]] = [
        {"Event": "SparkListenerJobStart", "Stage IDs": [0]},  # looks at files
        {**end, "Stage ID": 0, "Task Type": "ResultTask"},
        {"Event": "SparkListenerJobStart", "Stage IDs": [1, 2]},
        {"Event": "SparkListenerExecutorRemoved"},
        lost,
        {**end, "Stage ID": 1, "Task Type": "ShuffleMapTask"},
        {**end, "Stage ID": 2, "Task Type": "ResultTask"},
    ]
    (tmp_path / "log").write_text("\n".join(map(json.dumps, events)))
    (job,) = load("executors").jobs_of(tmp_path / "log")
    assert (job.cpu, job.shuffled, job.remote, job.returned, job.lost, job.died) == (4.0, 20, 8, 300, 1, 1)


def test_what_is_needed_grows_with_the_rows_and_all_rows_are_sent(cluster: ModuleType) -> None:
    stages = [cluster.Stage(100, 70, 700, 2.0), cluster.Stage(70, 10, 100, 0.7), cluster.Stage(10, 0, 0, 0.1)]
    row = cluster.needs("unbounded", stages, rows=1e9, cores=1_000)
    # 20 ms a row read, 10 ms a pair, of which there are as many as rows, and 1 ms for what follows
    assert row.values["CPU hours"] == pytest.approx(1e9 * (0.02 + 0.01 + 0.001) / 3_600, abs=0.1)
    assert row.values["shuffled GB"] == round((1e9 * 10 + 1e9 * 1) / 1e9)
    assert row.values["reducers"] == -(-int(1e10) // (200 << 20))


def test_a_hot_key_loads_one_reducer_only_where_the_key_alone_decides(spread: ModuleType) -> None:
    shared = {"keys": 1_000, "reducers": 100}
    for hot in (0.0, 0.5):
        even = spread.loads(200_000, hot=hot, **shared)
        assert even.sum() == 200_000
        assert even.max() / even.mean() < 1.15
    uneven = spread.loads(200_000, hot=0.5, by_key_alone=True, **shared)
    assert uneven.sum() == 200_000
    assert uneven.max() / uneven.mean() > 49


def test_tasks_fill_the_cores_and_a_slow_executor_is_waited_for(spread: ModuleType) -> None:
    assert spread.makespan([1.0] * 12, spread.Cluster(2, 3)) == 2.0
    assert spread.makespan([1.0] * 13, spread.Cluster(2, 3)) == 3.0
    # the slow one takes three tasks at once, and nobody takes them over
    assert spread.makespan([1.0] * 60, spread.Cluster(10, 3, slow=10.0)) == 10.0
    copied = spread.makespan([1.0] * 60, spread.Cluster(10, 3, slow=10.0, speculation=True))
    assert 3.0 <= copied < 6.0
    assert spread.makespan([1.0] * 60, spread.Cluster(10, 3, speculation=True)) == 2.0
