"""The worker: what it has and has not, what ends it, and that nothing which happens to it reaches the front."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from support.child_kit import Child

from dpsql.confinement import MEASURES
from dpsql.engines import Column, CsvFile, Statement, open_exact
from dpsql.engines.duckdb import protocol
from dpsql.engines.duckdb.protocol import encode_table, read_table
from dpsql.engines.duckdb.worker_engine import WorkerEngine, parse_bytes
from dpsql.errors import EngineError, UsageError

SLOW = "SELECT count(*) AS n FROM range(400000) AS a, range(400000) AS b WHERE a.range * b.range = 7"
BOMBS = {
    "text": "SELECT repeat('x', 3000000000::BIGINT) AS x",
    "list": "SELECT len(range(500000000)) AS x",
    "resized": "SELECT len(list_resize([1], 1000000000)) AS x",
    "padded": "SELECT length(rpad('a', 2000000000, 'x')) AS x",
    "formatted": "SELECT length(format('{:1000000000d}', 1)) AS x",
    "joined": SLOW,
    "slept": "SELECT sleep_ms(60000) AS x",
    "large": "SELECT repeat('x', 300000000::BIGINT) AS x",
}
FAILED = (
    "[engine-failed]: The engine could not answer this statement. "
    "Hint: Ask the curator. The details may hold private values, so they are not stored."
)
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture
def engine(database: Path) -> Iterator[WorkerEngine]:
    with closing(
        WorkerEngine.open(database, {"reads": None}, memory_limit="512MB", threads=2, time_limit=60)
    ) as opened:
        yield opened


def run(engine: WorkerEngine, sql: str, *parameters: object) -> pa.Table:
    return open_exact(engine.execute(Statement(sql, parameters)))


def failed(engine: WorkerEngine, sql: str) -> float:
    """Return the seconds that a statement took to fail with the one error there is."""
    began = time.monotonic()
    with pytest.raises(EngineError) as caught:
        run(engine, sql)
    assert str(caught.value) == FAILED
    assert caught.value.__context__ is None
    return time.monotonic() - began


def alive(engine: WorkerEngine) -> bool:
    return run(engine, "SELECT count(*) AS n FROM dpsql_data.main.reads").to_pylist() == [{"n": 1000}]


def pid_of(engine: WorkerEngine) -> int:
    assert engine._worker is not None
    return engine._worker.pid


def kill_idle(engine: WorkerEngine) -> None:
    assert engine._worker is not None
    engine._worker._process.kill()
    engine._worker._process.wait()


def gone(pid: int, *, within: float = 15) -> bool:
    """Return whether a process ends, its entry included if it is ours to wait for."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        status = Path(f"/proc/{pid}/status")
        if status.exists() and "Z (zombie)" in status.read_text():
            return True
        time.sleep(0.05)
    return False


def opened_by(pid: int | str) -> set[str]:
    folder = Path(f"/proc/{pid}/fd")
    return {str(link.readlink()) for link in folder.iterdir() if link.is_symlink()}


def memory_of(key: str) -> int:
    """Return so many kilobytes of this process."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1])


@on_linux
def test_the_front_has_no_file_of_the_data_and_the_worker_neither_ledger_nor_socket(
    engine: WorkerEngine, database: Path, tmp_path: Path
) -> None:
    with (tmp_path / "ledger.sqlite").open("w+b") as ledger:
        os.set_inheritable(ledger.fileno(), True)
        engine.close()
        with closing(WorkerEngine.open(database, {"reads": None}, memory_limit="512MB", threads=2)) as other:
            assert alive(other)
            mine, its = opened_by("self"), opened_by(pid_of(other))
    assert str(database) in its
    assert str(database) not in mine
    assert str(tmp_path / "ledger.sqlite") in mine
    assert {name for name in its if not name.startswith("pipe:")} <= {str(database), "/dev/null"}
    assert len([name for name in its if name.startswith("pipe:")]) == 2


@on_linux
def test_the_environment_is_not_inherited(engine: WorkerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPSQL_MARKED", "postgresql://secret")
    kill_idle(engine)
    assert alive(engine)
    environment = Path(f"/proc/{pid_of(engine)}/environ").read_bytes().rstrip(b"\0").split(b"\0")
    assert sorted(entry.split(b"=")[0] for entry in environment) == [
        b"ARROW_DEFAULT_MEMORY_POOL",
        b"DUCKDB_JE_MALLOC_CONF",
        b"HOME",
        b"MALLOC_ARENA_MAX",
        b"TMPDIR",
    ]


@on_linux
def test_nothing_sets_addresses_aside_that_duckdb_may_need(engine: WorkerEngine) -> None:
    """They are bounded: what an allocator reserves and does not use, a large statement lacks, and fails."""
    assert len(run(engine, "SELECT i, i::VARCHAR AS text FROM range(200000) AS t(i)")) == 200_000
    run(engine, "SELECT count(*) FROM (SELECT DISTINCT i, i::VARCHAR AS text FROM range(2000000) AS t(i))")
    status = Path(f"/proc/{pid_of(engine)}/status").read_text()
    addresses, held = (
        int(re.findall(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)[0]) for name in ("VmPeak", "VmHWM")
    )
    assert addresses - held < 500 * 2**10


@on_linux
def test_the_limits_of_the_worker(engine: WorkerEngine) -> None:
    lines = Path(f"/proc/{pid_of(engine)}/limits").read_text().splitlines()
    hard = {line[:25].strip(): line[26:].split()[1] for line in lines[1:]}
    assert hard["Max core file size"] == "0"
    assert int(hard["Max open files"]) <= 256
    assert int(hard["Max address space"]) == 512 * 10**6 + (3 << 29) + 2 * (1 << 26)
    assert int(hard["Max file size"]) <= 64 << 30
    assert "NoNewPrivs:\t1" in Path(f"/proc/{pid_of(engine)}/status").read_text()


CONFINED = """
import os, sys
from pathlib import Path
from dpsql.confinement import measures as confine; from dpsql.engines.duckdb import worker as worker_main
allowed, denied, folder = map(Path, sys.argv[1:])
confine.leave_network()
confine.forbid_files([*worker_main.find_own_files(), allowed], writable=folder)
assert allowed.read_bytes()
(folder / "spilled").write_bytes(b"x")
def refused(act):
    try:
        act()
    except OSError:
        return True
    return False
library = confine.ctypes.CDLL(None)
landlock = library.syscall(444, None, 0, 1) >= 1
acts = (lambda: denied.read_bytes(), lambda: denied.write_bytes(b""), lambda: allowed.open("r+b"),
        lambda: Path(f"/proc/{os.getppid()}/environ").read_bytes(), lambda: Path("/etc/hostname").read_bytes())
print(int(landlock), *(int(refused(act)) for act in acts))
"""


@on_linux
def test_a_confined_process_opens_nothing_else_where_the_kernel_has_landlock(tmp_path: Path) -> None:
    (tmp_path / "spill").mkdir()
    for name in ("data", "ledger"):
        (tmp_path / name).write_text("rows")
    arguments = [str(tmp_path / name) for name in ("data", "ledger", "spill")]
    done = subprocess.run([sys.executable, "-c", CONFINED, *arguments], capture_output=True, text=True, check=False)
    landlock, *refused = done.stdout.split()
    assert done.returncode == 0, done.stderr
    assert landlock == "0" or refused == ["1"] * 5
    assert landlock == "0" or (tmp_path / "ledger").read_text() == "rows"


def test_a_worker_that_is_killed_while_it_counts_is_an_engine_that_failed(engine: WorkerEngine) -> None:
    victim = pid_of(engine)
    threading.Timer(0.5, os.kill, (victim, signal.SIGKILL)).start()
    failed(engine, SLOW)
    assert alive(engine)
    assert pid_of(engine) != victim


def test_a_worker_that_died_between_two_statements_is_replaced_unseen(engine: WorkerEngine) -> None:
    kill_idle(engine)
    assert alive(engine)


def test_whatever_fails_costs_the_worker(engine: WorkerEngine) -> None:
    before = pid_of(engine)
    failed(engine, "SELECT error('no')")
    assert gone(before)
    assert alive(engine)


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_a_bomb_fails_within_the_limit_and_the_front_stays_as_it_was(database: Path, bomb: str) -> None:
    with closing(WorkerEngine.open(database, {"reads": None}, memory_limit="512MB", threads=2, time_limit=2)) as engine:
        assert alive(engine)
        before = memory_of("VmRSS") if sys.platform == "linux" else 0
        assert failed(engine, bomb) < 2 + 5
        assert alive(engine)
        if sys.platform == "linux":
            assert memory_of("VmRSS") - before < 200_000


def test_the_wall_clock_limit_kills(database: Path) -> None:
    with closing(WorkerEngine.open(database, {"reads": None}, threads=1, time_limit=1)) as engine:
        victim = pid_of(engine)
        assert 1 <= failed(engine, SLOW) < 1 + 5
        assert gone(victim)


def test_a_stop_kills_soon_and_the_next_question_finds_a_fresh_worker(engine: WorkerEngine) -> None:
    victim, stop = pid_of(engine), threading.Event()
    threading.Timer(0.5, stop.set).start()
    began = time.monotonic()
    with pytest.raises(EngineError) as caught:
        engine.execute(Statement(SLOW), stop=stop.is_set)
    assert str(caught.value) == FAILED
    assert time.monotonic() - began < 30
    assert gone(victim)
    assert alive(engine)


def test_a_statement_that_is_not_wanted_any_more_when_its_turn_comes_costs_nothing(engine: WorkerEngine) -> None:
    victim, stop = pid_of(engine), threading.Event()
    running = threading.Thread(target=failed, args=(engine, "SELECT sleep_ms(3000), error('no')"))
    running.start()
    time.sleep(0.3)
    with pytest.raises(EngineError):
        engine.execute(Statement("SELECT 1"), stop=lambda: True)
    assert running.is_alive()
    assert pid_of(engine) == victim  # which goes on with the statement of the other thread
    running.join()
    stop.set()
    with pytest.raises(EngineError):
        engine.execute(Statement("SELECT 1"), stop=stop.is_set)
    assert alive(engine)


def test_a_stop_while_the_worker_starts_ends_that_too(engine: WorkerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    kill_idle(engine)
    monkeypatch.setattr("dpsql.engines.duckdb.worker_engine._BEGIN", "import time; time.sleep(600)")
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    began = time.monotonic()
    with pytest.raises(EngineError):
        engine.execute(Statement("SELECT 1"), stop=stop.is_set)
    assert time.monotonic() - began < 60
    monkeypatch.undo()
    assert alive(engine)


def test_a_statement_that_the_limit_does_not_reach_is_answered(engine: WorkerEngine) -> None:
    sql = "SELECT count(DISTINCT hash(range) % 1000000) AS n FROM range(3000000)"
    with duckdb.connect() as plain:
        assert [tuple(row.values()) for row in run(engine, sql).to_pylist()] == plain.sql(sql).fetchall()


def test_a_statement_that_nobody_stops_stops_itself_after_the_limit(database: Path) -> None:
    with closing(WorkerEngine.open(database, {"reads": None}, threads=1)) as engine:
        assert engine._worker is not None
        process = engine._worker._process
        assert process.stdin is not None
        protocol.send(process.stdin.fileno(), protocol.message(limit=0.1, do="execute", sql=SLOW, parameters=[]))
        assert process.wait(timeout=60) == -signal.SIGALRM


PARENT = """
import sys, threading, time
from dpsql.engines import Statement
from dpsql.engines.duckdb.worker_engine import WorkerEngine
engine = WorkerEngine.open(sys.argv[1], {"reads": None}, memory_limit="512MB", threads=1)
print(engine._worker.pid, engine._worker._spilled, flush=True)
if sys.argv[2]:
    engine.execute(Statement(sys.argv[2], ()))
time.sleep(600)
"""


@pytest.mark.parametrize("sql", ["", SLOW], ids=["idle", "counting"])
def test_the_worker_ends_with_a_front_that_is_killed(database: Path, tmp_path: Path, sql: str) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", PARENT, str(database), sql]
    with Child(command, env=environment, stdout=subprocess.PIPE, text=True) as front:
        assert front.stdout is not None
        worker, folder = front.stdout.readline().split(maxsplit=1)
        time.sleep(0.5)
        front.kill()
    assert gone(int(worker))
    left = Path(folder.strip())  # the folder itself stays where the worker may write in it alone
    assert not left.exists() or list(left.iterdir()) == []


@on_linux
def test_a_worker_says_what_confines_it(engine: WorkerEngine) -> None:
    assert set(engine.confinement) <= set(MEASURES)
    status = dict(
        line.split(":\t", 1)
        for line in Path(f"/proc/{pid_of(engine)}/status").read_text().splitlines()
        if ":\t" in line
    )
    assert ("system calls" in engine.confinement) == (status["Seccomp"] == "2")
    held = [int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")]
    assert ("capabilities" in engine.confinement) == (not any(held))


def test_closing_leaves_neither_process_nor_folder(engine: WorkerEngine) -> None:
    assert engine._worker is not None
    pid, folder = pid_of(engine), Path(engine._worker._spilled)
    assert folder.is_dir()
    engine.close()
    assert gone(pid)
    assert not folder.exists()


def test_an_engine_that_is_forgotten_leaves_neither_either(database: Path) -> None:
    engine = WorkerEngine.open(database, {"reads": None}, threads=1)
    pid = pid_of(engine)
    del engine
    assert gone(pid)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_starts_a_worker_of_its_own(engine: WorkerEngine) -> None:
    before = pid_of(engine)
    child = os.fork()
    if child == 0:
        os._exit(0 if alive(engine) and pid_of(engine) != before and not engine.close() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert engine._worker is not None
    assert Path(engine._worker._spilled).is_dir()
    assert alive(engine)
    assert pid_of(engine) == before


def loaded(folder: Path) -> WorkerEngine:
    (folder / "clicks.csv").write_text("user_id\n1\n2\n")
    return WorkerEngine.open(None, {"clicks": CsvFile(folder / "clicks.csv", (Column("user_id", "BIGINT"),))})


def test_csv_files_are_loaded_again_as_long_as_they_are_what_they_were(tmp_path: Path) -> None:
    with closing(loaded(tmp_path)) as engine:
        counted = "SELECT count(*) AS n FROM memory.main.clicks"
        failed(engine, "SELECT error('no')")
        assert run(engine, counted).to_pylist() == [{"n": 2}]
        (tmp_path / "clicks.csv").write_text("user_id\n1\n2\n3\n")
        assert run(engine, counted).to_pylist() == [{"n": 2}]
        failed(engine, "SELECT error('no')")
        failed(engine, counted)


def test_what_is_wrong_with_the_data_is_told_when_it_is_opened(tmp_path: Path, database: Path) -> None:
    for sources, memory, code in (
        ({"nothing": None}, "512MB", "table-missing"),
        ({"reads": None}, "much", "engine-settings"),
        ({"pages": tmp_path / "pages.parquet"}, "512MB", "source-missing"),
    ):
        with pytest.raises(EngineError) as caught:
            WorkerEngine.open(database, sources, memory_limit=memory)  # type: ignore[arg-type]
        assert caught.value.code == code


def test_a_worker_that_cannot_start_is_told(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(database))
    with pytest.raises(EngineError) as caught:
        WorkerEngine.open(database, {"reads": None})
    assert caught.value.code == "worker-failed"
    assert caught.value.__context__ is None


def test_processes_are_not_isolated_where_there_is_no_fork(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork")
    with pytest.raises(UsageError) as caught:
        WorkerEngine.open(database, {"reads": None})
    assert caught.value.code == "isolation-unavailable"


def test_a_value_that_no_statement_has_reaches_no_worker(engine: WorkerEngine) -> None:
    before = pid_of(engine)
    with pytest.raises(EngineError):
        run(engine, "SELECT $1", object())
    assert pid_of(engine) == before


@pytest.mark.parametrize(
    ("text", "expected"),
    [("512MB", 512 * 10**6), ("4 GiB", 4 << 30), ("1.5GB", 15 * 10**8), ("2TiB", 2 << 40), ("10kib", 10 << 10)],
)
def test_a_memory_limit_in_bytes(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


def test_without_a_memory_limit_it_is_a_share_of_the_machines() -> None:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for text in (None, "", "much", "4 parsecs"):
        assert parse_bytes(text) == int(0.8 * total)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for end in (reading, writing):
        os.close(end)


def test_a_frame_that_claims_too_much_is_not_read(pipe: tuple[int, int]) -> None:
    protocol.send(pipe[1], b"x" * 11)
    with pytest.raises(ValueError):  # noqa: PT011 - it has no words
        protocol.receive(pipe[0], 10)


def test_a_stop_ends_the_wait_for_a_frame_in_both_directions(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[1], False)
    for act in (
        lambda: protocol.receive(pipe[0], 10, stop=lambda: True),
        lambda: protocol.send(pipe[1], bytes(1 << 24), stop=lambda: True),
    ):
        with pytest.raises(TimeoutError):
            act()


def test_a_frame_that_does_not_come_is_waited_for_no_longer_than_said(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], (5).to_bytes(8) + b"ab")
    with pytest.raises(TimeoutError):
        protocol.receive(pipe[0], 10, deadline=time.monotonic() + 0.1)


def compressed(codec: str) -> bytes:
    table = pa.table({"x": ["a" * 1000] * 1000})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def compressed_dictionary() -> bytes:
    """Return a stream of which the dictionary alone is compressed."""
    table = pa.table({"x": pa.array(["a" * 1000, "b" * 1000] * 100).dictionary_encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    plain, small = (list(pa.ipc.MessageReader.open_stream(stream)) for stream in (bytes_of(table), sink.getvalue()))
    assert [message.type for message in plain] == ["schema", "dictionary", "record batch"]
    spliced = b"".join(bytes(message.serialize()) for message in (plain[0], small[1], plain[2]))
    assert pa.ipc.open_stream(spliced).read_all().equals(table)
    return spliced


def bytes_of(table: pa.Table) -> bytes:
    return bytes(encode_table(table))


def wrong_offsets() -> bytes:
    whole = bytes_of(pa.table({"x": ["abcdefgh", "ijklmnop"]}))
    offsets = b"".join(number.to_bytes(4, "little") for number in (0, 8, 16))
    assert whole.count(offsets) == 1
    return whole.replace(offsets, b"".join(number.to_bytes(4, "little") for number in (0, 8, 1 << 20)))


HOSTILE: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "noise": lambda: b"\x93" * 4096,
    "a message of JSON": lambda: protocol.message(kind="table"),
    "lz4": lambda: compressed("lz4"),
    "zstd": lambda: compressed("zstd"),
    "a compressed dictionary": compressed_dictionary,
    "offsets beyond the end": wrong_offsets,
    "cut short": lambda: bytes_of(pa.table({"x": ["a"] * 1000}))[:-1000],
    "runs": lambda: bytes_of(pa.table({"x": pa.RunEndEncodedArray.from_arrays([10**9], [1])})),
    "lists": lambda: bytes_of(pa.table({"x": [[1]]})),
    "rows without columns' bytes": lambda: bytes_of(pa.table({"x": pa.nulls(1 << 28)})),
}


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_no_worker_of_ours_sends_is_not_read(make: Callable[[], bytes]) -> None:
    with pytest.raises((pa.ArrowException, ValueError, OSError)):
        read_table(make())


def test_every_cut_of_a_table_is_refused_or_a_table() -> None:
    whole = bytes_of(pa.table({"x": ["a", None], "n": [1, 2], "e": pa.array(["p", "q"]).dictionary_encode()}))
    assert read_table(whole).num_rows == 2
    for end in range(len(whole)):
        try:
            read_table(whole[:end])
        except (pa.ArrowException, ValueError, OSError, IndexError, StopIteration):
            continue
