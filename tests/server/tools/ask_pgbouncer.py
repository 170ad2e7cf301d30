"""PgBouncer: psycopg through a pool of sessions and a pool of transactions, of which each has one connection."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from steps import after_a_moment, given, say, step

CONFIGURATION = """
[databases]
{database} = host={host} port={port} user={user} password='{password}' pool_mode={mode} pool_size=1
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listens}
unix_socket_dir =
auth_type = any
ignore_startup_parameters = extra_float_digits
server_reset_query = DISCARD ALL
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def bouncer(mode: str) -> Iterator[str]:
    """Run PgBouncer as long as the block, and give the address of its database."""
    listens = free_port()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pgbouncer.ini"
        file.write_text(CONFIGURATION.format(**given, mode=mode, listens=listens))
        Path(folder).chmod(0o755)
        command = ["pgbouncer", "-q", *(["-u", "nobody"] if os.getuid() == 0 else []), file]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            address = f"host=127.0.0.1 port={listens} user=anybody dbname={given['database']}"
            _wait(address)
            yield address
        finally:
            process.terminate()
            process.wait()


def _wait(address: str) -> None:
    for _ in range(100):
        try:
            psycopg.connect(address, connect_timeout=5).close()
        except psycopg.OperationalError:
            time.sleep(0.05)
        else:
            return
    psycopg.connect(address)


def version() -> str:
    return re.search(r"[\d.]+", subprocess.check_output(["pgbouncer", "--version"], text=True))[0]


def rows(connection: psycopg.Connection, statement: str, values: list[object] | None = None) -> list[list[object]]:
    return [list(row) for row in connection.execute(statement, values).fetchall()]


def cancel(connection: psycopg.Connection) -> object:
    after_a_moment(connection.cancel_safe)
    return rows(connection, given["slow"])


def as_others(address: str) -> list[list[list[object]]]:
    """Ask by three connections that share the one behind the pool."""
    answers = []
    for _ in range(3):
        with psycopg.connect(address, autocommit=True) as one:
            one.execute("SET application_name TO 'a page'")
            answers.append(rows(one, given["question"]))
    return answers


def session(mode: str, prefix: str) -> None:
    """Run the steps through a pool of a mode."""
    with bouncer(mode) as address:
        prepare = 0 if mode == "session" else None  # PgBouncer 1.21 follows prepared statements between connections
        with psycopg.connect(address, autocommit=True, prepare_threshold=prepare) as connection:
            step(f"{prefix}connect", lambda: rows(connection, "SELECT 1"))
            step(f"{prefix}ask", lambda: rows(connection, given["question"]))
            step(f"{prefix}again", lambda: rows(connection, given["question"]))
            step(f"{prefix}public", lambda: rows(connection, given["public"]))
            step(f"{prefix}prepared", lambda: [rows(connection, given["formatted"], ["DE"]) for _ in range(3)])
            step(f"{prefix}refused", lambda: rows(connection, given["refused"]))
            step(f"{prefix}cancel", lambda: cancel(connection))
            step(f"{prefix}after", lambda: rows(connection, given["question"]))
        step(f"{prefix}three connections", lambda: as_others(address))


say("version", {"value": version()})
session("session", "")
session("transaction", "transaction pooling: ")
