"""A real MariaDB and a real MySQL for the tests, each in a folder of its own, on a socket and a port here.

MySQL is the program that DPSQL_MYSQLD names, or `mysqld` on the path, or what `fetch_mysql.py` has fetched.
"""

from __future__ import annotations

import atexit
import functools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pymysql
import pytest
from support.fetch_mysql import FOLDER

__all__ = ["SERVERS", "Server", "start_server"]

SERVERS = ("mariadb", "mysql")
_START = 60.0
_SETTINGS = ("--skip-name-resolve", "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M")
_SETTINGS += ("--performance-schema=OFF", "--character-set-server=utf8mb4", "--bind-address=127.0.0.1")
_OF_MYSQL = ("--mysqlx=OFF", "--secure-file-priv=NULL", "--skip-log-bin", "--auto-generate-certs=OFF")


class Server:
    """A server that runs until the process ends."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.socket = str(folder / "socket")
        self.port = _find_port()
        user = pwd.getpwuid(os.geteuid()).pw_name
        (folder / "tmp").mkdir()  # a server that starts removes the temporary tables of others from a folder they share
        place = ["--no-defaults", f"--datadir={folder / 'data'}", f"--tmpdir={folder / 'tmp'}", f"--user={user}"]
        make, start = _find_programs(name)
        made = subprocess.run([make[0], *place, *make[1:]], check=False, capture_output=True, text=True, timeout=_START)
        assert made.returncode == 0, made.stderr
        with (folder / "log").open("w") as log:
            reached = [f"--socket={self.socket}", f"--pid-file={folder / 'pid'}", f"--port={self.port}"]
            started = [start[0], *place, *reached, *start[1:]]
            self._process = subprocess.Popen(started, stdout=log, stderr=log)
        atexit.register(self.stop)
        deadline = time.monotonic() + _START
        while True:
            if Path(self.socket).exists():
                with suppress(pymysql.OperationalError):
                    self.session().close()
                    return
            assert self._process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, f"{name} does not answer"
            time.sleep(0.05)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=_START)

    def session(self) -> pymysql.connections.Connection[Any]:
        return pymysql.connect(unix_socket=self.socket, user="root", charset="utf8mb4", autocommit=True)

    def run(self, *statements: str) -> None:
        """Run statements in one session, each on its own."""
        with self.session() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def url(self, database: str, *, user: str = "root") -> str:
        return f"{self.name}://{user}@/{database}?unix_socket={self.socket}"


@functools.cache
def start_server(name: str) -> Server:
    """Return the server of this process, which its first user starts; skip a test where it is not installed."""
    _find_programs(name)
    folder = Path(tempfile.mkdtemp(prefix=f"dpsql-{name}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Server(name, folder)


def _find_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _find_programs(name: str) -> tuple[Sequence[str], Sequence[str]]:
    """Return the commands that make the folder of data and start a server, each the program and its options."""
    if name == "mysql":
        program = find_mysqld()
        if program is None:
            pytest.skip("MySQL is not installed: python tests/support/fetch_mysql.py")
        return (program, "--initialize-insecure"), (program, *_SETTINGS, *_OF_MYSQL)
    if shutil.which("mariadbd") is None or shutil.which("mariadb-install-db") is None:
        pytest.skip("MariaDB is not installed: apt install mariadb-server")
    made = ("mariadb-install-db", "--auth-root-authentication-method=normal", "--skip-test-db")
    return made, ("mariadbd", *_SETTINGS)


@functools.cache
def find_mysqld() -> str | None:
    """Return the program of MySQL: of DPSQL_MYSQLD; on the path, if it is not MariaDB's; or that of `.mysql`."""
    if named := os.environ.get("DPSQL_MYSQLD"):
        return named
    for found in filter(None, (shutil.which("mysqld"), shutil.which(FOLDER / "mysqld"))):
        version = subprocess.run([found, "--no-defaults", "--version"], check=False, capture_output=True, text=True)
        if version.returncode == 0 and "MariaDB" not in version.stdout:
            return str(found)
    return None
