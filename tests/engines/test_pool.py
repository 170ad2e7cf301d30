"""Several statements at once, on real engines: beside each other, refused uncharged, and after a connection is lost."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from support.postgres_kit import fresh_schema, server
from support.service_kit import ask

from dpsql import Budget, DataSource, EngineSettings, Policy, PrivateTable, PublicTable, charged_release
from dpsql.connect import open_session
from dpsql.curator import read_spending
from dpsql.engines import Statement, open_exact, remote
from dpsql.engines import pool as engine_pool
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.duckdb.worker_engine import WorkerEngine
from dpsql.engines.pool import EnginePool
from dpsql.engines.postgres import PostgresEngine
from dpsql.errors import EngineError, Error, Refusal, UsageError
from dpsql.open_engine import open_engine, open_pool, public_engines
from dpsql.server.gateway import Service

ENDLESS = "SELECT count(*) AS n FROM range(100000000) a, range(100000000) b WHERE (a.range + b.range) % 3 = 7"
PRIVATE = "SELECT article FROM {}.{} WHERE user_id >= {} GROUP BY article TOP 2 PRIVATE WITH (epsilon = 0.2)"
PUBLIC = "SELECT count(*) AS n FROM {}.{}"


def until(condition: Callable[[], object]) -> None:
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError


def run(engine: Any, sql: str, **named: Any) -> pa.Table:
    return open_exact(engine.execute(Statement(sql), **named))


def insist(open_one: Callable[[], Any]) -> Any:
    """Open what a role with one connection may; the driver connects twice, and the first may not have ended yet."""
    found = list[Any]()

    def is_open() -> bool:
        with suppress(EngineError):
            found.append(open_one())
        return bool(found)

    until(is_open)
    return found[0]


@pytest.fixture(scope="module")
def schema() -> str:
    name = fresh_schema()
    rows = "SELECT i AS user_id, 'a' || i % 3 AS article FROM generate_series(1, 6000) AS t(i)"
    tables = [f'CREATE TABLE "{name}".{table} AS {rows}' for table in ("heavy", "light", "heavy_names", "names")]
    server().run(f'CREATE SCHEMA "{name}"', *tables)
    return name


def policy_of(schema: str, folder: Path, *, role: str = "tester", **engine: Any) -> Policy:
    return Policy(
        Budget(10, "1e-6", items=1000, queries=100),
        {
            **{f"{schema}.{name}": PrivateTable("user_id") for name in ("heavy", "light")},
            **{f"{schema}.{name}": PublicTable() for name in ("heavy_names", "names")},
        },
        source=DataSource(server().url("", role).replace("&schema=", "")),
        ledger=folder / "ledger.sqlite",
        engine=EngineSettings(**engine),
    )


@contextmanager
def served(policy: Policy) -> Iterator[Service]:
    service = Service(None, policy)
    try:
        yield service
    finally:
        service.close()


@contextmanager
def locked(schema: str, *tables: str) -> Iterator[None]:
    """Let statements over these tables wait until the end of the body."""
    with server().session() as connection, connection.transaction():
        for table in tables:
            connection.execute(f'LOCK TABLE "{schema}".{table} IN ACCESS EXCLUSIVE MODE')
        yield


def blocked(count: int = 1) -> Callable[[], bool]:
    """Return whether so many statements wait for a lock of the tests."""
    sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    return lambda: server().rows(sql) == [(count,)]


def charges(policy: Policy) -> int:
    return len(read_spending(policy).entries)


@pytest.mark.parametrize(
    ("heavy", "light", "text"),
    [("heavy", "light", PRIVATE), ("heavy_names", "names", PUBLIC)],
    ids=["private", "public"],
)
def test_a_light_statement_ends_while_others_run(
    schema: str, tmp_path: Path, heavy: str, light: str, text: str
) -> None:
    policy = policy_of(schema, tmp_path)
    with served(policy) as service, ThreadPoolExecutor(4) as threads:
        with locked(schema, heavy):
            slow = [threads.submit(ask, service, f"slow{each}", text.format(schema, heavy, each)) for each in range(3)]
            until(blocked(3))
            for number in range(2):
                assert ask(service, "light", text.format(schema, light, number)).arrow().num_rows > 0
            assert not any(each.done() for each in slow)
        assert all(each.result(60).arrow().num_rows > 0 for each in slow)
    assert charges(policy) == (5 if text == PRIVATE else 0)


def test_a_full_queue_refuses_and_charges_nothing(schema: str, tmp_path: Path) -> None:
    policy = policy_of(schema, tmp_path, connections=1, max_waiting=1)
    asked = [PRIVATE.format(schema, "heavy", number) for number in range(3)]
    with served(policy) as service, ThreadPoolExecutor(2) as threads:
        with locked(schema, "heavy"):
            first = threads.submit(ask, service, "ana", asked[0])
            until(blocked())
            second = threads.submit(ask, service, "ben", asked[1])
            until(lambda: service._private._waiting)
            with pytest.raises(Refusal) as caught:
                ask(service, "cleo", asked[2])
            assert (caught.value.code, charges(policy)) == ("engine-busy", 1)
        assert first.result(60).receipt.replayed is second.result(60).receipt.replayed is False
        assert charges(policy) == 2
        assert ask(service, "cleo", asked[2]).receipt.replayed is False  # as the hint says
    assert charges(policy) == 3


def test_a_wait_of_half_the_time_limit_is_refused_and_charges_nothing(schema: str, tmp_path: Path) -> None:
    policy = policy_of(schema, tmp_path, connections=1, time_limit=2)
    with served(policy) as service, ThreadPoolExecutor(2) as threads:
        with locked(schema, "heavy"):
            first = threads.submit(ask, service, "ana", PRIVATE.format(schema, "heavy", 1))
            until(blocked())
            with pytest.raises(Refusal) as caught:
                ask(service, "ben", PRIVATE.format(schema, "light", 1))
            assert (caught.value.code, charges(policy)) == ("engine-busy", 1)
            with pytest.raises(EngineError):  # which ran
                first.result(60)
        assert ask(service, "ben", PRIVATE.format(schema, "light", 1)).arrow().num_rows == 2
    assert charges(policy) == 2


@pytest.fixture
def pool(schema: str, tmp_path: Path) -> Iterator[EnginePool]:
    found, size = open_pool(None, policy_of(schema, tmp_path))
    assert size == 4
    with closing(found):
        found.open_all()
        yield found


def pids(pool: EnginePool) -> set[int]:
    """Return the servers' processes behind all connections."""
    found = set[int]()
    members = list(pool._free)
    for member in members:
        found.add(run(member, "SELECT pg_backend_pid() AS pid").to_pylist()[0]["pid"])
    assert len(found) == pool._count
    return found


def test_a_connection_that_was_lost_is_replaced_before_the_next_statement(pool: EnginePool) -> None:
    """So a restart of the server charges none of the statements that come after it."""
    before = pids(pool)
    assert len(before) == 4
    for pid in before:
        server().rows(f"SELECT pg_terminate_backend({pid}, 5000)")
    for _ in range(4):
        with pool.turn():
            assert run(pool, "SELECT 1 AS one").to_pylist() == [{"one": 1}]
    assert before.isdisjoint(run(pool, "SELECT pg_backend_pid() AS pid").column("pid").to_pylist())


def test_a_connection_that_hangs_holds_no_other_up(
    schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_LAST_WAIT", 0.1)
    found, _ = open_pool(None, policy_of(schema, tmp_path, connections=2, time_limit=1))
    stopped: list[int] = []
    with closing(found), ThreadPoolExecutor(1) as threads:
        try:
            with found.turn():
                stopped += run(found, "SELECT pg_backend_pid() AS pid").column("pid").to_pylist()
                os.kill(stopped[0], signal.SIGSTOP)
                late = threads.submit(run, found, "SELECT 2 AS two")  # over the other connection
                with pytest.raises(EngineError):
                    run(found, "SELECT 1 AS one")
                assert late.result(60).to_pylist() == [{"two": 2}]
            for _ in range(3):
                with found.turn():
                    assert run(found, "SELECT 3 AS three").to_pylist() == [{"three": 3}]
            assert found._count <= 2
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)


def test_an_idle_connection_that_hangs_is_replaced(
    schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_TOUCH", 0.2)
    found, _ = open_pool(None, policy_of(schema, tmp_path, connections=1))
    with closing(found):
        (stopped,) = run(found, "SELECT pg_backend_pid() AS pid").column("pid").to_pylist()
        os.kill(stopped, signal.SIGSTOP)
        try:
            with found.turn():
                assert run(found, "SELECT pg_backend_pid() AS pid").column("pid").to_pylist() != [stopped]
        finally:
            os.kill(stopped, signal.SIGCONT)


def test_with_a_grid_no_statement_waits_until_a_connection_is_open(schema: str, tmp_path: Path) -> None:
    for grid, count in ((None, 1), (100, 4)):
        found, _ = open_pool(None, policy_of(schema, tmp_path, answer_grid_ms=grid))
        with closing(found):
            assert found._count == count


def test_where_no_further_connection_opens_statements_share_those_that_are_open(schema: str, tmp_path: Path) -> None:
    role = fresh_schema()
    server().run(
        f'CREATE ROLE "{role}" LOGIN CONNECTION LIMIT 1',
        f'GRANT USAGE ON SCHEMA "{schema}" TO "{role}"',
        f'GRANT SELECT ON ALL TABLES IN SCHEMA "{schema}" TO "{role}"',
    )
    policy = policy_of(schema, tmp_path, role=role)
    found = insist(lambda: open_pool(None, policy)[0])
    with closing(found), ThreadPoolExecutor(4) as threads:
        tables = list(threads.map(lambda number: run(found, f"SELECT {number} AS n"), range(8)))
        assert [table.to_pylist()[0]["n"] for table in tables] == list(range(8))
        assert found._count == 1
    until(lambda: not server().rows(f"SELECT 1 FROM pg_stat_activity WHERE usename = '{role}'"))
    first = insist(lambda: open_engine(None, policy))
    server().run(f'ALTER ROLE "{role}" CONNECTION LIMIT 2')
    public = public_engines(None, policy, engine=first)
    assert public is not None
    with closing(first), closing(public), ThreadPoolExecutor(4) as threads:
        tables = list(threads.map(lambda number: run(public, f"SELECT {number} AS n"), range(8)))
        assert [table.to_pylist()[0]["n"] for table in tables] == list(range(8))


def test_what_is_asked_in_a_turn_is_asked_of_its_connection(schema: str, tmp_path: Path) -> None:
    found, size = open_pool(None, policy_of(schema, tmp_path, connections=1))
    with closing(found), found.turn():
        assert size == 1
        assert found.unique(f"{schema}.light", "user_id")
        assert not found.unique(f"{schema}.light", "article")
        assert run(found, "SELECT 1 AS one").to_pylist() == [{"one": 1}]


def test_an_engine_may_allow_fewer_connections(schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PostgresEngine, "max_connections", 2)
    found, size = open_pool(None, policy_of(schema, tmp_path))
    with closing(found):
        found.open_all()
        assert size == found._count == 2


def test_a_closed_pool_answers_nothing(schema: str, tmp_path: Path) -> None:
    found, _ = open_pool(None, policy_of(schema, tmp_path))
    found.close()
    found.close()
    with pytest.raises(UsageError) as caught:
        run(found, "SELECT 1 AS one")
    assert caught.value.code == "engine-closed"


@pytest.mark.parametrize("grid", [None, 20])
def test_what_is_charged_is_what_analysts_were_told_while_connections_are_killed(
    schema: str, tmp_path: Path, grid: int | None
) -> None:
    role = fresh_schema()
    server().run(
        f'CREATE ROLE "{role}" LOGIN',
        f'GRANT USAGE ON SCHEMA "{schema}" TO "{role}"',
        f'GRANT SELECT ON ALL TABLES IN SCHEMA "{schema}" TO "{role}"',
    )
    policy = policy_of(schema, tmp_path, role=role, answer_grid_ms=grid)
    ended = threading.Event()

    def kill() -> None:
        victim = f"SELECT pid FROM pg_stat_activity WHERE usename = '{role}' ORDER BY random() LIMIT 1"
        while not ended.wait(pause):
            server().rows(f"SELECT pg_terminate_backend(pid, 5000) FROM ({victim}) AS t")

    def outcome(service: Service, number: int) -> str:
        try:
            ask(service, f"analyst{number % 16}", PRIVATE.format(schema, "light", number))
        except Error as error:
            return error.code
        return "answered"

    with served(policy) as service:
        began = time.monotonic()
        first = outcome(service, 0)
        pause = max(0.03, (time.monotonic() - began) / 2)  # some statement is faster on a busy machine, too
        with ThreadPoolExecutor(17) as threads:
            killing = threads.submit(kill)
            codes = [first, *threads.map(partial(outcome, service), range(1, 33))]
            ended.set()
            killing.result(60)
        assert set(codes) <= {"answered", "engine-failed", "engine-closed"}
        assert "answered" in codes
        codes += [outcome(service, number) for number in range(33, 37)]
        assert codes[-4:] == ["answered"] * 4  # no place is lost
    entries = read_spending(policy).entries
    assert None not in [entry.settlement for entry in entries]
    assert len(entries) == codes.count("answered") + codes.count("engine-failed")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    with duckdb.connect(str(tmp_path / "events.duckdb")) as database:
        database.execute("CREATE TABLE reads AS SELECT i AS user_id, 'a' || i % 3 AS article FROM range(9000) t(i)")
    return tmp_path / "events.duckdb"


def local(isolation: str = "in_process", **engine: Any) -> Policy:
    settings = EngineSettings(isolation=isolation, **{"memory_limit": "2GB", "threads": 2, **engine})
    return Policy(Budget(10, "1e-6"), {"reads": PrivateTable("user_id")}, engine=settings)


@contextmanager
def endless(pool: EnginePool) -> Iterator[Future[pa.Table]]:
    """Run a statement in the pool during the body, which ends it."""
    ends = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        going = threads.submit(run, pool, ENDLESS, stop=ends.is_set)
        try:
            until(lambda: not pool._free)
            yield going
            assert not going.done()
        finally:
            ends.set()
        with pytest.raises(EngineError):
            going.result(60)


@pytest.mark.parametrize("isolation", ["in_process", "process"])
def test_a_light_statement_of_duckdb_ends_while_another_runs(file: Path, isolation: str) -> None:
    pool, size = open_pool(file, local(isolation))
    assert size == (3 if isolation == "in_process" else 2)
    with closing(pool):
        with endless(pool):
            for _ in range(3):
                with pool.turn():
                    assert run(pool, "SELECT 1 AS one").to_pylist() == [{"one": 1}]
                assert pool.accepts_pattern("a.*")
                assert not pool.accepts_pattern("(")
        assert pool._count <= 2
        assert run(pool, "SELECT 2 AS two").to_pylist() == [{"two": 2}]


def test_an_interrupt_takes_no_place_with_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    pool, _ = open_pool(file, local(connections=2))
    with endless(pool):
        with monkeypatch.context() as patched:
            patched.setattr(pool, "_open", interrupt)
            with pytest.raises(KeyboardInterrupt):
                run(pool, "SELECT 1 AS one")
        assert pool._count == 1
        assert run(pool, "SELECT 1 AS one").to_pylist() == [{"one": 1}]
    pool.close()


@pytest.mark.parametrize("isolation", ["in_process", "process"])
def test_answers_are_the_same_on_one_connection_and_on_four(file: Path, isolation: str) -> None:
    statements = [
        f"SELECT article, count(DISTINCT user_id) AS n FROM dpsql_data.main.reads WHERE user_id % {number} = 0 "
        "GROUP BY article ORDER BY article"
        for number in range(1, 13)
    ]
    found = []
    for connections in (1, 4):
        pool, _ = open_pool(file, local(isolation, connections=connections))
        with closing(pool), ThreadPoolExecutor(4) as threads:
            found.append(list(threads.map(lambda sql: run(pool, sql).to_pylist(), statements)))  # noqa: B023
    assert found[0] == found[1]
    assert found[0][0] == [{"article": f"a{number}", "n": 3000} for number in range(3)]


def test_further_cursors_have_the_settings_on_which_statements_rely(file: Path) -> None:
    names = ["ieee_floating_point_ops", "integer_division", "arrow_large_buffer_size", "max_expression_depth"]
    sql = f"SELECT {', '.join(f'''current_setting('{name}') AS {name}''' for name in [*names, 'lock_configuration'])}"
    pool, _ = open_pool(file, local(connections=3))
    with closing(pool):
        pool.open_all()
        found = [run(member, sql).to_pylist()[0] for member in pool._free]
    assert len(found) == 3
    assert found == [dict(zip([*names, "lock_configuration"], (True, False, True, 500, True), strict=True))] * 3


def test_with_a_grid_a_failure_is_told_after_its_connection_is_ready_again(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long that takes depends on what broke."""
    told, ready, wait = list[str](), engine_pool._is_ready, charged_release._wait
    monkeypatch.setattr(engine_pool, "_is_ready", lambda member: (told.append("ready"), ready(member))[1])
    monkeypatch.setattr(
        charged_release, "_wait", lambda began, milliseconds: (told.append("grid"), wait(began, milliseconds))[1]
    )
    policy = local(connections=2, answer_grid_ms=10)
    pool, _ = open_pool(file, policy)
    with closing(pool), open_session(pool, policy, ledger=tmp_path / "ledger.sqlite") as session:
        text = "SELECT article FROM reads GROUP BY article TOP 2 PRIVATE WITH (epsilon = 0.2)"
        session.sql(text)
        assert told == ["grid"]
        monkeypatch.setattr(DuckDBEngine, "execute", lambda *_, **__: open_engine(None, policy))
        with pytest.raises(EngineError) as caught:
            session.sql(text.replace("0.2", "0.3"))
    assert caught.value.code == "engine-failed"
    assert told == ["grid", "grid", "ready", "grid"]


def test_a_pool_that_cannot_open_completely_leaves_no_connection_behind(
    schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, open_one = list[PostgresEngine](), PostgresEngine.open

    def open_two(*given: Any, **named: Any) -> PostgresEngine:
        if len(opened) == 2:
            raise EngineError("engine-unreachable", "", hint="")
        opened.append(open_one(*given, **named))
        return opened[-1]

    monkeypatch.setattr(PostgresEngine, "open", open_two)
    with pytest.raises(EngineError):
        open_pool(None, policy_of(schema, tmp_path, answer_grid_ms=100))
    assert len(opened) == 2
    assert all(each._closed for each in opened)


def lose(pool: EnginePool, place: int, patched: pytest.MonkeyPatch) -> None:
    """Let the member of a place break so that it cannot be made ready again, in the middle of a statement."""
    with patched.context() as broken, suppress(ValueError), pool.turn(place=place):
        broken.setattr(engine_pool, "_is_ready", lambda _: False)
        raise ValueError


def test_with_a_grid_what_is_lost_is_opened_again_before_its_failure_is_told(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, _ = open_pool(file, local(connections=2, answer_grid_ms=10))
    with closing(pool):
        before = list(pool._own)
        for place in (0, 1):
            lose(pool, place, monkeypatch)
            assert pool._count == len(pool._free) == 2
            assert pool._own[place] is not None
            assert pool._own[place] is not before[place]


def test_with_a_grid_no_statement_waits_for_the_connection_of_another(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When that statement ends would be seen, off the grid."""

    def refuse() -> None:
        raise EngineError("engine-unreachable", "", hint="")

    def ask() -> pa.Table:
        with pool.turn(place=1):
            return run(pool, "SELECT 1 AS one")

    pool, _ = open_pool(file, local(connections=2, answer_grid_ms=10))
    with closing(pool):
        with monkeypatch.context() as patched:
            patched.setattr(pool, "_open", refuse)
            lose(pool, 1, patched)
            assert pool._count == 1
            with pool.turn(place=0), ThreadPoolExecutor(1) as threads, pytest.raises(UsageError) as caught:
                threads.submit(ask).result(60)
            assert caught.value.code == "engine-closed"
        with pool.turn(place=0), ThreadPoolExecutor(1) as threads:  # now that it can be opened
            assert threads.submit(ask).result(60).to_pylist() == [{"one": 1}]
        assert pool._count == 2


def test_a_turn_in_a_turn_has_the_same_connection(file: Path) -> None:
    pool, _ = open_pool(file, local(connections=1))
    with closing(pool), pool.turn():
        with pool.turn():
            assert run(pool, "SELECT 1 AS one").to_pylist() == [{"one": 1}]
        assert run(pool, "SELECT 2 AS two").to_pylist() == [{"two": 2}]


def test_a_process_that_dies_takes_no_other_statement_with_it(file: Path) -> None:
    pool, _ = open_pool(file, local("process"))
    with closing(pool), endless(pool) as going:
        run(pool, "SELECT 1 AS one")
        (idle,) = pool._free
        assert isinstance(idle, WorkerEngine)
        worker = idle._worker
        assert worker is not None
        os.kill(worker.pid, signal.SIGKILL)
        until(lambda: not worker.usable)
        with pool.turn():
            assert run(pool, "SELECT 2 AS two").to_pylist() == [{"two": 2}]
        assert not going.done()


def test_all_processes_have_the_same_version_of_the_file(file: Path, tmp_path: Path) -> None:
    pool, _ = open_pool(file, local("process"))
    with closing(pool):
        with duckdb.connect(str(tmp_path / "new.duckdb")) as database:
            database.execute("CREATE TABLE reads AS SELECT 1::BIGINT AS user_id, 'new' AS article")
        (tmp_path / "new.duckdb").replace(file)
        with endless(pool):
            stops = time.monotonic() + 1
            with pytest.raises(EngineError) as caught:  # it waits for the process that has the first version
                run(pool, "SELECT 1 AS one", stop=lambda: time.monotonic() > stops)
            assert caught.value.code == "statement-stopped"


def test_processes_share_the_memory_of_the_policy(file: Path) -> None:
    sql = "SELECT current_setting('memory_limit') AS memory"
    found = []
    for connections in (1, 2):
        pool, _ = open_pool(file, local("process", connections=connections))
        with closing(pool):
            found.append(run(pool, sql).to_pylist()[0]["memory"])
    assert found == ["1.8 GiB", "953.6 MiB"]
