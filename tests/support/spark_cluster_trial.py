"""What a cluster of two machines answers, as one program: two Java processes of their own compute, one of them dies.

Run by tests/engines/spark/test_spark_cluster.py with a folder; it writes one JSON of answers and of what left the
cluster.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import duckdb
from support.engine_kit_spark import OPTIONS

from dpsql import Budget, Policy, PrivateTable
from dpsql.connect import open_session
from dpsql.engines import Engine, Statement, open_exact
from dpsql.engines.spark import SparkEngine
from dpsql.registration import build_catalog
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound, rewrite_leaders
from dpsql.testing.draws import draw_by_digest
from dpsql.testing.queries import OpenEngine

MASTER = "spark:local-cluster[2,1,1024]"
TEXT = "SELECT g, COUNT(DISTINCT u) AS n FROM reads WHERE g <> 'none' GROUP BY g TOP 20 PRIVATE"
BOUND = Bound(3, (1, 2))


def main(place: Path) -> None:
    lay(place / "reads")
    home(place / "home")
    options = {
        **OPTIONS,
        "spark.sql.shuffle.partitions": "4",
        "spark.executor.memory": "600m",
        "spark.executor.extraJavaOptions": OPTIONS["spark.driver.extraJavaOptions"],
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": str(place),
        "spark.sql.warehouse.dir": str(place),
    }
    engine = SparkEngine.open(MASTER, {"reads": place / "reads"}, options=options)
    found: dict[str, object] = {"plain": answer(engine), "bounded": answer(engine, BOUND)}
    found["bounded by digest"] = answer(engine, BOUND, draws_by_digest=True)
    engine._session.conf.set("spark.sql.shuffle.partitions", "7")
    engine._session.conf.set("spark.sql.files.maxPartitionBytes", "50000")
    found["bounded in other parts"] = answer(engine, BOUND)
    before = workers()
    threading.Timer(0.3, os.kill, (before[0], signal.SIGKILL)).start()
    found["bounded while one dies"] = answer(engine, BOUND)
    found["machines"] = [len(before), len(set(workers()) & set(before))]
    found["charges"] = charge_while_one_dies(engine)
    found["bytes"] = left_the_cluster(place)
    (place / "found.json").write_text(json.dumps(found))


def charge_while_one_dies(engine: Engine) -> float:
    """Return how often a query is charged while a machine dies; closes the engine."""
    policy = Policy(Budget(10, "1e-6"), {"reads": PrivateTable("u")})
    with open_session(engine, policy, ledger=":memory:") as session:
        threading.Timer(0.3, os.kill, (workers()[0], signal.SIGKILL)).start()
        answer = session.sql(f"{TEXT} WITH (mechanism = limited_domain, k_bar = 20)")
        return float(session.budget.rho.spent / answer.receipt.loss.rho.value)


def lay(folder: Path) -> None:
    """Write 60,000 rows of 8,000 units in some 6,000 groups, in four files."""
    folder.mkdir()
    for part in range(4):
        columns = "(hash(i) % 8000)::BIGINT AS u, 'g' || sqrt(hash(i + 7) % 40000000)::BIGINT AS g"
        rows = f"SELECT {columns} FROM range({part * 15_000}, {(part + 1) * 15_000}) AS t(i)"
        duckdb.sql(f"COPY ({rows}) TO '{folder / str(part)}.parquet' (FORMAT parquet)")


def home(folder: Path) -> None:
    """Make a home of Spark's in which its machines may write."""
    folder.mkdir()
    spec = find_spec("pyspark")
    assert spec is not None
    for part in ("bin", "jars", "python", "sbin"):
        (folder / part).symlink_to(Path(str(spec.origin)).parent / part)
    os.environ["SPARK_HOME"] = str(folder)


def answer(engine: Engine, bound: Bound | None = None, *, draws_by_digest: bool = False) -> list[list[object]]:
    """Return what an engine counts; other engines draw by the same digest, if it does so."""
    policy = Policy(Budget(1, "1e-6"), {"reads": PrivateTable("u")})
    opened = OpenEngine(engine, build_catalog(engine, policy))
    catalog = (draw_by_digest(opened) if draws_by_digest else opened).catalog
    query = analyze(TEXT, catalog, accepts_pattern=engine.accepts_pattern, clock=time.gmtime)  # type: ignore[arg-type]
    assert isinstance(query, PrivateQuery)
    counting = rewrite_leaders(query, 21, bound=bound)
    table = open_exact(engine.execute(Statement(counting.sql, counting.parameters, counting.types)))
    return [list(row.values()) for row in table.to_pylist()]


def workers() -> list[int]:
    """Return the processes that compute for the Java process of this one."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = stat.read_text().partition("(")
            parents[int(name)] = (rest.startswith("java)"), int(rest.rpartition(")")[2].split()[1]))
    java = {pid: parent for pid, (is_java, parent) in parents.items() if is_java}
    return sorted(pid for pid, parent in java.items() if java.get(parent) == os.getpid())


def left_the_cluster(place: Path) -> list[int]:
    """Return the bytes of the result of each task whose result went to this program."""
    logs = list(place.glob("eventlog*/events_*"))
    events = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    return [
        event["Task Metrics"]["Result Size"]
        for event in events
        if event["Event"] == "SparkListenerTaskEnd" and event["Task Type"] == "ResultTask" and event.get("Task Metrics")
    ]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
