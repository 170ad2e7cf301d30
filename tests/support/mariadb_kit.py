"""A real MariaDB for the tests, in a folder of its own, on a Unix socket alone."""

from __future__ import annotations

import atexit
import functools
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pymysql
import pytest

__all__ = ["MariaDB", "server"]

_START = 60.0
_SETTINGS = ("--skip-networking", "--skip-name-resolve", "--innodb-flush-log-at-trx-commit=0")
_SETTINGS += ("--innodb-buffer-pool-size=32M", "--performance-schema=OFF", "--character-set-server=utf8mb4")


class MariaDB:
    """A server that runs until the process ends."""

    def __init__(self, folder: Path) -> None:
        self.socket = str(folder / "socket")
        user = pwd.getpwuid(os.geteuid()).pw_name
        (folder / "tmp").mkdir()  # a server that starts removes the temporary tables of others from a folder they share
        place = ["--no-defaults", f"--datadir={folder / 'data'}", f"--tmpdir={folder / 'tmp'}", f"--user={user}"]
        made = ["mariadb-install-db", *place, "--auth-root-authentication-method=normal", "--skip-test-db"]
        subprocess.run(made, check=True, capture_output=True, timeout=_START)
        started = ["mariadbd", *place, f"--socket={self.socket}", f"--pid-file={folder / 'pid'}", *_SETTINGS]
        self._process = subprocess.Popen(started, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        atexit.register(self.stop)
        deadline = time.monotonic() + _START
        while True:
            if Path(self.socket).exists():
                with suppress(pymysql.OperationalError):
                    self.session().close()
                    return
            assert self._process.poll() is None, "mariadbd does not start"
            assert time.monotonic() < deadline, "mariadbd does not answer"
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
        return f"mariadb://{user}@/{database}?unix_socket={self.socket}"


@functools.cache
def server() -> MariaDB:
    """Return the server of this process, which its first user starts; skip a test where MariaDB is not installed."""
    if shutil.which("mariadbd") is None or shutil.which("mariadb-install-db") is None:
        pytest.skip("MariaDB is not installed: apt install mariadb-server")
    folder = Path(tempfile.mkdtemp(prefix="dpsql-mariadb-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return MariaDB(folder)
