"""A worker in other hands, or one that dies at the worst moment: nothing of it reaches the front but one failure."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import duckdb
import pytest
from support.escapes import TRIED

from dpsql.confinement import MEASURES
from dpsql.engines import Statement, open_exact
from dpsql.engines.duckdb import protocol
from dpsql.engines.duckdb.protocol import WorkerProcess
from dpsql.engines.duckdb.worker_engine import WorkerEngine
from dpsql.errors import EngineError, UsageError

SLOW = "SELECT count(*) AS n FROM range(400000) AS a, range(400000) AS b WHERE a.range * b.range = 7"
COUNT = "SELECT count(*) AS n FROM dpsql_data.main.reads"
BEGIN = """
import os, sys, time
sys.path[:] = sys.argv[1:]
from dpsql.engines.duckdb import protocol, worker as worker_main
import pyarrow as pa
from dpsql.engines.duckdb.protocol import encode_table
def hostile(engine, asked, *, answers):
    {act}
{where}
worker_main.main()
"""
ANSWERING = "worker_main._answer = hostile"
OPENING = "worker_main._open_engine = lambda asked, sources, *, answers: hostile(None, asked, answers=answers)"
ACTS = {
    "is killed": "os.kill(os.getpid(), 9)",
    "goes without a word": "os._exit(0)",
    "breaks off within the length": "os.write(answers, bytes(3)); os._exit(0)",
    "breaks off within the answer": "os.write(answers, (99).to_bytes(8) + b'x'); os._exit(0)",
    "stands still within the answer": "os.write(answers, (99).to_bytes(8) + b'x'); time.sleep(600)",
    "claims all there is": "os.write(answers, b'\\xff' * 64)",
    "claims a little too much": "os.write(answers, ((256 << 20) + 1).to_bytes(8)); time.sleep(600)",
    "sends an empty frame": "protocol.send(answers, b'')",
    "sends noise": "protocol.send(answers, os.urandom(5000))",
    "sends another message": (
        "protocol.send(answers, protocol.message(kind='refused', error=['x', 'VICTIM', 'y', None]))"
    ),
    "sends what is nested": "protocol.send(answers, b'[' * 100_000)",
    "closes the pipe": "os.close(answers); time.sleep(600)",
    "fails": "raise ValueError('VICTIM')",
}


@pytest.fixture
def limited(database: Path) -> Iterator[WorkerEngine]:
    with closing(WorkerEngine.open(database, {"reads": None}, memory_limit="512MB", threads=1, time_limit=3)) as opened:
        yield opened


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerEngine]:
    """One engine for the tests that kill its worker at once and ask the engine again at their end."""
    file = tmp_path_factory.mktemp("lasting") / "events.duckdb"
    with closing(duckdb.connect(file)) as connection:
        connection.execute("CREATE TABLE reads AS SELECT range AS user_id, 'VICTIM_SECRET' AS article FROM range(1000)")
    with closing(WorkerEngine.open(file, {"reads": None}, memory_limit="512MB", threads=1, time_limit=3)) as opened:
        yield opened


def in_other_hands(monkeypatch: pytest.MonkeyPatch, act: str, where: str = ANSWERING) -> None:
    """Let workers that are started from now on do `act` in place of answering, or of opening."""
    monkeypatch.setattr("dpsql.engines.duckdb.worker_engine._BEGIN", BEGIN.format(act=act, where=where))


def counted(engine: WorkerEngine) -> object:
    return open_exact(engine.execute(Statement(COUNT))).to_pylist()


def failed(engine: WorkerEngine, sql: str = COUNT) -> None:
    with pytest.raises(EngineError) as caught:
        engine.execute(Statement(sql))
    assert caught.value.code == "engine-failed"
    assert "VICTIM" not in str(caught.value)
    assert caught.value.__context__ is None


def worker_of(engine: WorkerEngine) -> WorkerProcess:
    assert engine._worker is not None
    return engine._worker


def replaced(engine: WorkerEngine) -> None:
    """Make the next statement start a new worker."""
    if engine._worker is not None:  # it is where an earlier test on the same engine has failed
        engine._worker._process.kill()
        engine._worker._process.wait()


def children() -> set[int]:
    """Return all processes that this one started and has not waited for, dead ones included."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            found |= set(map(int, (task / "children").read_text().split()))
    return found


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS.keys())
def test_whatever_it_does_in_place_of_an_answer_is_one_failure(
    lasting: WorkerEngine, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    replaced(lasting)
    in_other_hands(monkeypatch, act)
    began = time.monotonic()
    failed(lasting)
    assert time.monotonic() - began < 3 + 10
    monkeypatch.undo()
    assert counted(lasting) == [{"n": 1000}]


@pytest.mark.parametrize("name", ["is killed", "breaks off within the answer", "sends noise", "fails"])
def test_whatever_it_does_in_place_of_yes_or_no_is_a_failure_too(
    lasting: WorkerEngine, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    replaced(lasting)
    in_other_hands(monkeypatch, ACTS[name])
    with pytest.raises(EngineError) as caught:
        lasting.accepts_pattern("a+")
    assert caught.value.code == "engine-failed"
    monkeypatch.undo()
    assert lasting.accepts_pattern("a+")


STARTS = {name: act for name, act in ACTS.items() if "sleep" not in act and "refused" not in act}
STARTS |= {
    "opens nothing": "protocol.send(answers, protocol.message(kind='opened'))",
    "opens other tables": "protocol.send(answers, protocol.message(kind='opened', tables={'VICTIM': [[], []]}))",
    "opens no table": "protocol.send(answers, protocol.message(kind='opened', tables={'reads': 7}))",
}


@pytest.mark.parametrize("act", STARTS.values(), ids=STARTS.keys())
def test_whatever_it_does_in_place_of_opening_is_one_error_and_leaves_nothing(
    database: Path, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    before = children()
    in_other_hands(monkeypatch, act, OPENING)
    with pytest.raises(EngineError) as caught:
        WorkerEngine.open(database, {"reads": None})
    assert caught.value.code == "worker-failed"
    assert caught.value.__context__ is None
    assert "VICTIM" not in str(caught.value)
    assert children() <= before


def test_a_worker_that_opens_other_columns_than_the_first_is_not_asked(
    limited: WorkerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(limited)
    act = "protocol.send(answers, protocol.message(kind='opened', tables={'reads': [['a'], [['user_id', 'VARCHAR']]]}))"
    in_other_hands(monkeypatch, act, OPENING)
    failed(limited)
    assert limited._worker is None


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_failures_leave_no_process_behind_dead_or_alive(limited: WorkerEngine) -> None:
    before = children() - {worker_of(limited).pid}
    for _ in range(4):
        failed(limited, "SELECT error('no')")
    assert children() == before
    assert counted(limited) == [{"n": 1000}]
    limited.close()
    assert children() == before


def ended(pid: int) -> bool:
    """Return whether a process that is not ours to wait for ends soon."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        with suppress(OSError):
            if "Z (zombie)" not in Path(f"/proc/{pid}/status").read_text():
                time.sleep(0.05)
                continue
        return True
    return False


PROBED = """
import socket
def tried(act):
    try:
        act()
    except OSError:
        return False
    return True
probes = {probes}
acts = dict(
    reads=lambda: open(probes['ledger'], 'rb').close(),
    writes=lambda: open(probes['ledger'], 'ab').close(),
    makes=lambda: open(probes['new'], 'xb').close(),
    lists=lambda: os.listdir(os.path.dirname(probes['ledger'])),
    front=lambda: open('/proc/' + str(os.getppid()) + '/mem', 'rb').close(),
    changes_data=lambda: open(probes['data'], 'r+b').close(),
    connects=lambda: socket.create_connection(('127.0.0.1', probes['port']), 1).close(),
)
protocol.send(answers, protocol.message(done=[name for name, act in acts.items() if tried(act)]))
"""
SUPPORT = """
import ctypes
library = ctypes.CDLL(None, use_errno=True)
landlock = library.syscall(444, None, 0, 1) >= 1
network = not library.unshare(0x40000000) or not library.unshare(0x50000000)
print(int(landlock), int(network))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone confines")
def test_a_worker_in_other_hands_reaches_neither_ledger_nor_front_nor_network_where_the_kernel_helps(
    limited: WorkerEngine, database: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    supported = subprocess.run([sys.executable, "-c", SUPPORT], capture_output=True, text=True, check=True)
    landlock, network = map(int, supported.stdout.split())
    ledger = tmp_path / "ledger.sqlite"
    ledger.write_bytes(b"spent")
    heard: list[dict[str, object]] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        probes = {
            "ledger": str(ledger),
            "new": str(tmp_path / "new"),
            "data": str(database),
            "port": server.getsockname()[1],
        }
        replaced(limited)
        in_other_hands(monkeypatch, PROBED.format(probes=probes).strip().replace("\n", "\n    "))
        monkeypatch.setattr(WorkerEngine, "_table", lambda _, reply: heard.append(protocol.heard(reply)))
        failed(limited)
    (words,) = heard
    done = set(map(str, words["done"]))  # type: ignore[call-overload]
    assert not (network and "connects" in done)
    assert not (landlock and done - {"connects"})
    assert ledger.read_bytes() == b"spent"


ESCAPES = re.findall(r'^    "([^"]+)": ', TRIED, re.MULTILINE)


@pytest.fixture(scope="module", params=[[], ["--ordinary"]], ids=["this user", "nobody"])
def escapes(request: pytest.FixtureRequest) -> Iterator[dict[str, list[str]]]:
    """What was tried inside a worker, and in a control that is not confined."""
    if sys.platform != "linux":
        pytest.skip("Linux alone confines")
    if request.param and os.geteuid() != 0:
        pytest.skip("only root becomes somebody else")
    with tempfile.TemporaryDirectory(prefix="escapes-") as folder:  # below no folder of pytest's, which are private
        Path(folder).chmod(0o755)
        command = [sys.executable, str(Path(__file__).parents[2] / "support" / "escapes.py"), folder, *request.param]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        yield json.loads(done.stdout)


@pytest.mark.parametrize("act", ESCAPES)
def test_what_a_process_can_do_a_worker_in_other_hands_cannot(escapes: dict[str, list[str]], act: str) -> None:
    if "system calls" not in escapes["confinement"]:
        pytest.skip("the kernel has no seccomp, or not for this machine")
    if act not in escapes["control"]:
        pytest.skip("this kernel lets no process of this user do it")
    assert act not in escapes["worker"]


def test_most_of_what_is_tried_can_be_done_without_confinement(escapes: dict[str, list[str]]) -> None:
    assert len(escapes["control"]) > len(ESCAPES) * 0.7
    assert {"unix socket", "chmod", "fork", "exec", "write", "set times"} <= set(escapes["control"])


def test_a_worker_says_what_is_in_force(escapes: dict[str, list[str]]) -> None:
    assert set(escapes["confinement"]) <= set(MEASURES)
    assert escapes["confinement"] == sorted(escapes["confinement"])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("'files'", ()),
        ("None", ()),
        ("['system calls', 'VICTIM', 7, ['files'], 'files']", ("files", "system calls")),
        ("['files'] * 1000", ("files",)),
    ],
)
def test_of_what_it_says_only_known_words_are_heard(
    database: Path, monkeypatch: pytest.MonkeyPatch, words: str, expected: tuple[str, ...]
) -> None:
    columns = "[['user_id', 'BIGINT']]"
    tables = f"{{'reads': [['a'], {columns}]}}"
    act = f"protocol.send(answers, protocol.message(kind='opened', tables={tables}, confinement={words}))"
    in_other_hands(monkeypatch, act, OPENING)
    with closing(WorkerEngine.open(database, {"reads": None})) as engine:
        assert engine.confinement == expected


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_what_a_worker_started_ends_with_it(limited: WorkerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(limited)
    act = (
        "import subprocess; child = subprocess.Popen(['sleep', '600']); protocol.send(answers, str(child.pid).encode())"
    )
    in_other_hands(monkeypatch, act, f"{ANSWERING}; worker_main.measures.filter_calls = lambda: False")
    started: list[int] = []
    monkeypatch.setattr(WorkerEngine, "_table", lambda _, reply: started.append(int(bytes(reply))))
    failed(limited)
    (child,) = started
    os.kill(child, 0)
    limited.close()
    assert ended(child)


def test_a_worker_that_is_stopped_is_killed_at_the_limit(limited: WorkerEngine) -> None:
    pid = worker_of(limited).pid
    os.kill(pid, signal.SIGSTOP)
    failed(limited)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert counted(limited) == [{"n": 1000}]


@pytest.mark.parametrize("after", [0.0, 0.05, 0.2, 0.5])
def test_a_worker_that_is_killed_while_it_starts_costs_one_statement(lasting: WorkerEngine, after: float) -> None:
    replaced(lasting)
    known = children()  # among them what other tests started
    stop = threading.Event()

    def hunt() -> None:
        while not stop.wait(0.002):
            for pid in children() - known:
                if stop.wait(after):
                    return  # it has started and answered; killed now it would cost the next statement
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                return

    hunter = threading.Thread(target=hunt)
    hunter.start()
    with suppress(EngineError):  # it may have answered before
        lasting.execute(Statement(COUNT))
    stop.set()
    hunter.join()
    assert counted(lasting) == [{"n": 1000}]


def test_an_interrupt_of_the_front_passes_and_costs_the_worker(limited: WorkerEngine) -> None:
    before, pid = signal.signal(signal.SIGINT, signal.default_int_handler), worker_of(limited).pid
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            limited.execute(Statement(SLOW))
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - began < 30
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert counted(limited) == [{"n": 1000}]


def test_closing_while_a_statement_runs_waits_for_its_end_and_leaves_nothing(limited: WorkerEngine) -> None:
    pid, codes = worker_of(limited).pid, []

    def run() -> None:
        try:
            limited.execute(Statement(SLOW))
        except EngineError as error:
            codes.append(error.code)

    running = threading.Thread(target=run)
    running.start()
    time.sleep(0.3)
    limited.close()
    running.join()
    assert codes == ["engine-failed"]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(UsageError):
        limited.execute(Statement(COUNT))


def test_threads_and_other_engines_on_the_same_file_get_their_own_answers(
    limited: WorkerEngine, database: Path
) -> None:
    found: list[tuple[int, object]] = []
    with closing(WorkerEngine.open(database, {"reads": None}, threads=1, time_limit=20)) as other:

        def ask(engine: WorkerEngine, number: int) -> None:
            sql = f"SELECT count(*) + $1 AS n FROM dpsql_data.main.reads WHERE user_id % {1 + number % 3} = 0"
            found.append((number, open_exact(engine.execute(Statement(sql, (number,)))).to_pylist()[0]["n"]))

        asked = [threading.Thread(target=ask, args=((limited, other)[n % 2], n)) for n in range(24)]
        for thread in asked:
            thread.start()
        for thread in asked:
            thread.join()
        replaced(limited)
        assert counted(other) == counted(limited) == [{"n": 1000}]
    with duckdb.connect(database, read_only=True) as plain:
        for number, count in found:
            sql = f"SELECT count(*) + {number} FROM reads WHERE user_id % {1 + number % 3} = 0"
            assert plain.sql(sql).fetchall() == [(count,)]
    assert len(found) == 24


LEAVING = """
import sys
from dpsql.confinement import MEASURES
from dpsql.engines.duckdb.protocol import WorkerProcess
from dpsql.engines.duckdb.worker_engine import WorkerEngine
engine = WorkerEngine.open(sys.argv[1], {"reads": None}, memory_limit="512MB", threads=1)
print(engine._worker.pid, engine._worker._spilled, flush=True)
if sys.argv[2] == "raises":
    raise SystemExit(1)
"""


@pytest.mark.parametrize("way", ["ends", "raises"])
def test_a_front_that_ends_without_closing_leaves_neither_worker_nor_folder(database: Path, way: str) -> None:
    arguments = [sys.executable, "-c", LEAVING, str(database), way]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    pid, folder = done.stdout.split(maxsplit=1)
    assert not Path(folder.strip()).exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)
