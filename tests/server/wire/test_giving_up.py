"""Cancel, time limits, clients that hang up, and a server that stops: what runs is settled, and asked again is free."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from support.server_kit import NAMES, TOP, Served, serving

from dpsql.ledger import Request, SQLiteLedger


class Gate:
    """Holds private statements back when they are about to be charged, until it is opened."""

    def __init__(self) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.entered.set()
        assert self.opened.wait(30)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    held, reserve = Gate(), SQLiteLedger.reserve

    def slowly(ledger: SQLiteLedger, request: Request) -> object:
        held.wait()
        return reserve(ledger, request)

    monkeypatch.setattr(SQLiteLedger, "reserve", slowly)
    yield held
    held.opened.set()


@pytest.fixture
def served(tmp_path: Path, gate: Gate) -> Iterator[Served]:
    with serving(tmp_path) as found:
        yield found
        gate.opened.set()


def settled(served: Served, count: int) -> bool:
    for _ in range(100):
        if served.charges() == count:
            return True
        time.sleep(0.05)
    return False


def cancelling(connection: psycopg.Connection, gate: Gate) -> threading.Thread:
    def cancel() -> None:
        assert gate.entered.wait(30)
        connection.cancel_safe()

    thread = threading.Thread(target=cancel)
    thread.start()
    return thread


@pytest.mark.parametrize(("version", "key"), [("3.0", 4), ("3.2", 32)])
def test_a_cancelled_statement_is_settled_and_replayed(served: Served, gate: Gate, version: str, key: int) -> None:
    conninfo = f"{served.conninfo()} min_protocol_version={version} max_protocol_version={version}"
    with psycopg.connect(conninfo, autocommit=True) as connection:
        assert [len(one.key) for one in served.wire._connections.values()] == [key]
        thread = cancelling(connection, gate)
        began = time.monotonic()
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(TOP)
        assert time.monotonic() - began < 20
        thread.join()
        assert connection.execute("SHOW server_version").fetchone() is not None  # it is usable at once
        assert served.charges() == 0
        gate.opened.set()
        assert settled(served, 1)
        connection.execute(TOP)
        assert served.charges() == 1


def test_a_time_limit_gives_up(served: Served) -> None:
    with psycopg.connect(served.conninfo(), autocommit=True) as connection:
        connection.execute("SET statement_timeout TO '200ms'")
        with pytest.raises(psycopg.errors.QueryCanceled, match="too long") as caught:
            connection.execute(TOP)
        assert (caught.value.diag.message_hint or "").startswith(
            "If it is a private query that had begun, it is charged"
        )


def test_a_private_statement_that_was_given_up_before_it_began_is_not_begun(served: Served, gate: Gate) -> None:
    with (
        psycopg.connect(served.conninfo(), autocommit=True) as one,
        psycopg.connect(served.conninfo(), autocommit=True) as two,
    ):
        first = threading.Thread(target=one.execute, args=(TOP,))
        first.start()
        assert gate.entered.wait(30)
        two.execute("SET statement_timeout TO '200ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            two.execute(NAMES)
        gate.opened.set()
        first.join()
    assert settled(served, 1)
    time.sleep(0.2)
    assert settled(served, 1)


def test_one_analyst_does_not_wait_for_another(served: Served, gate: Gate) -> None:
    with (
        psycopg.connect(served.conninfo("ana"), autocommit=True) as one,
        psycopg.connect(served.conninfo("ben"), autocommit=True) as two,
    ):
        first = threading.Thread(target=one.execute, args=(TOP,))
        first.start()
        assert gate.entered.wait(30)
        assert two.execute("SHOW server_version").fetchone() is not None
        gate.opened.set()
        first.join()


def test_whoever_hangs_up_is_charged_once(served: Served, gate: Gate) -> None:
    async def hang_up() -> None:
        connection = await psycopg.AsyncConnection.connect(served.conninfo(), autocommit=True)
        task = asyncio.ensure_future(connection.execute(TOP))
        await asyncio.to_thread(gate.entered.wait, 30)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await connection.close()

    asyncio.run(hang_up())
    gate.opened.set()
    assert settled(served, 1)
    with psycopg.connect(served.conninfo()) as connection:
        connection.execute(TOP)
    assert served.charges() == 1


def test_a_cancel_with_another_key_cancels_nothing(served: Served, gate: Gate) -> None:
    with psycopg.connect(served.conninfo(), autocommit=True) as connection:
        thread = threading.Thread(target=connection.execute, args=(TOP,))
        thread.start()
        assert gate.entered.wait(30)
        for key in (b"\0\0\0\0", bytes(32)):
            with socket.create_connection(("127.0.0.1", served.port), timeout=5) as other:
                number = connection.info.backend_pid
                other.sendall(struct.pack("!iii", 12 + len(key), 80877102, number) + key)
                assert other.recv(1) == b""
        gate.opened.set()
        thread.join()
    assert settled(served, 1)


def test_a_server_that_stops_answers_what_runs_and_tells_who_waits(tmp_path: Path, gate: Gate) -> None:
    found = list[object]()
    with serving(tmp_path) as served:
        idle = psycopg.connect(served.conninfo("ben"), autocommit=True)
        busy = psycopg.connect(served.conninfo("ana"), autocommit=True)
        thread = threading.Thread(target=lambda: found.extend(busy.execute(TOP).fetchall()))
        thread.start()
        assert gate.entered.wait(30)
        threading.Timer(0.3, gate.opened.set).start()
    thread.join()
    assert len(found) == 3
    with pytest.raises(psycopg.errors.AdminShutdown):
        idle.execute("SELECT 1")
    idle.close()
    busy.close()


def test_a_server_that_stops_leaves_whoever_never_logs_in_and_faults_nothing(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(b"\0\0")
        while not len(served.wire._pending):
            time.sleep(0.01)
        closing = asyncio.run_coroutine_threadsafe(served.wire.close(0.2), served.wire._server.get_loop())
        assert connection.recv(1) == b""
        closing.result(10)


def test_a_user_cancels_what_another_connection_of_theirs_runs(served: Served, gate: Gate) -> None:
    """As Knex and pgAdmin do, with the number bound and written."""
    with (
        psycopg.connect(served.conninfo(), autocommit=True) as runs,
        psycopg.connect(served.conninfo(), autocommit=True) as cancels,
        psycopg.connect(served.conninfo("ben"), autocommit=True) as other,
    ):
        number = runs.info.backend_pid
        answers = []

        def cancel() -> None:
            assert gate.entered.wait(30)
            answers.extend(other.execute("SELECT pg_cancel_backend(%s)", [number]).fetchall())
            answers.extend(cancels.execute(f"SELECT pg_catalog.pg_cancel_backend({number + 100});").fetchall())
            answers.extend(cancels.execute("SELECT pg_cancel_backend(%s)", [number]).fetchall())

        thread = threading.Thread(target=cancel)
        thread.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            runs.execute(TOP)
        thread.join()
        assert answers == [(False,), (False,), (True,)]
        assert cancels.execute(f"SELECT pg_cancel_backend({number})").fetchall() == [(True,)]  # it runs nothing
        assert cancels.execute("SELECT pg_cancel_backend(%s)", [None]).fetchall() == [(False,)]
        with pytest.raises(psycopg.Error) as refused:  # anything else that calls it goes to the catalog
            cancels.execute("SELECT pg_cancel_backend(1 + 1)")
        assert refused.value.sqlstate in {"42501", "0A000"}
        gate.opened.set()
        assert settled(served, 1)


def test_connections_for_different_analysts_do_not_cancel_each_other(served: Served) -> None:
    """A service account acts for both, and a role in the address stays for the whole connection."""

    def connect(role: str) -> psycopg.Connection:
        options = f"-c role={role}" if role else ""
        return psycopg.connect(served.conninfo("metabase"), autocommit=True, options=options)

    with connect("ana") as ana, connect("ana") as again, connect("ben") as ben, connect("") as account:
        number = ana.info.backend_pid
        found = [one.execute(f"SELECT pg_cancel_backend({number})").fetchone() for one in (ana, again, ben, account)]
        assert found == [(True,), (True,), (False,), (False,)]
