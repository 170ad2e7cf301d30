"""What asks the same rows over a network: `dpsql serve`, and the PostgreSQL of the test extra. Not run itself.

Both run on this machine in processes of their own, over TCP; dpsql with TLS or without, as the client asks.
"""

from __future__ import annotations

import itertools
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pymysql
import trustme
from program.times import clocks

PRIVATE = "SELECT item, COUNT(DISTINCT user_id) AS n FROM events WHERE dwell <> {number} GROUP BY item TOP 10 PRIVATE"
PLAIN = (
    "SELECT item, COUNT(DISTINCT user_id) AS n FROM events WHERE dwell <> {number} GROUP BY item "
    "ORDER BY n DESC, item LIMIT 10"
)
GENERATE = """
COPY (SELECT CAST(floor({users} * u * u) AS BIGINT) AS user_id,
             'item number ' || CAST(floor(pow(1 - v * (1 - pow(20000, -0.1)), -10)) AS BIGINT) AS item,
             CAST(hash(i) % 1000 AS INTEGER) AS dwell
      FROM (SELECT i, hash(hash(i, 'user')) / pow(2, 64) AS u, hash(hash(i, 'item')) / pow(2, 64) AS v
            FROM range({rows}) AS t(i)))
TO '{file}' (FORMAT csv, HEADER false)
"""
FETCHED_MYSQL = Path(__file__).parents[1] / ".mysql" / "mysqld"
COLUMNS = "user_id BIGINT, item VARCHAR, dwell INTEGER"
POLICY = """
ledger = "spent.ledger"
[budget]
epsilon = 100.0
delta = 1e-3
items = 1_000_000
queries = 100_000
[tables.events]
privacy_unit = "user_id"
[server]
users = "users.toml"
postgres = "127.0.0.1:{port}"
web = "off"
certificate = "cert.pem"
key = "key.pem"
catalog = "{catalog}"
statements_per_minute = 1_000_000
"""
NAME = PASSWORD = "benchmark"  # noqa: S105 - of a server that lives for a minute, on this machine alone
START = 60.0
NUMBERS = itertools.count(1_000)  # dwell is below: the condition is always true, and every question is another
SETTINGS = ("shared_buffers=512MB", "work_mem=256MB", "fsync=on")


@dataclass(frozen=True)
class Place:
    """A server to ask, and how it is asked; `pid` is that of its process."""

    name: str
    dsn: str
    text: str
    pid: int = 0

    def distinct(self) -> str:
        """Return a question that was never asked."""
        return self.text.format(number=next(NUMBERS))

    def over_tls(self) -> Place:
        """Return the same place, to be asked over TLS."""
        return replace(self, name=f"{self.name}, TLS", dsn=self.dsn.replace("sslmode=disable", "sslmode=require"))

    def connected(self) -> psycopg.Connection[tuple[object, ...]]:
        """Return a connection on which nothing but the question is sent."""
        return psycopg.connect(self.dsn, autocommit=True)


@contextmanager
def events_in(rows: int) -> Iterator[Path]:
    """Make a folder with so many events in events.csv."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o755)  # PostgreSQL runs as somebody else
        duckdb.sql(GENERATE.format(users=max(1, rows // 10), rows=rows, file=folder / "events.csv"))
        yield folder


@contextmanager
def served(folder: Path, *, catalog: str = "none") -> Iterator[Place]:
    """Serve the rows in `folder` with dpsql, its ledger beside them on the disk; with TLS, too."""
    port = free_port()
    (folder / "policy.toml").write_text(POLICY.format(port=port, catalog=catalog))
    certificate = trustme.CA().issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(str(folder / "key.pem"))
    (folder / "key.pem").chmod(0o600)
    certificate.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    with duckdb.connect(folder / "events.duckdb") as connection:
        connection.execute(f"CREATE TABLE events ({COLUMNS})")
        connection.execute(f"COPY events FROM '{folder / 'events.csv'}' (HEADER false)")
    command = [sys.executable, "-c", "from dpsql.cli import main; main()"]
    add = [*command, "user", "add", NAME, "--policy", "policy.toml", "--password-stdin"]
    subprocess.run(add, input=PASSWORD, text=True, cwd=folder, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
    serve = [*command, "serve", "--policy", "policy.toml", "--db", "events.duckdb"]
    dsn = f"host=127.0.0.1 port={port} user={NAME} password={PASSWORD} dbname=dpsql sslmode=disable"
    own = {name: value for name, value in os.environ.items() if name != "PGPORT"}  # the port of `postgres` below
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(serve, cwd=folder, stdout=log, stderr=log, env=own) as process,  # noqa: S603
    ):
        try:
            place = Place("dpsql", dsn, PRIVATE, process.pid)
            wait_for(place, process, folder / "log")
            yield place
        finally:
            process.terminate()
            process.wait(timeout=START)


def wait_for(place: Place, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return when a client gets in."""
    deadline = time.monotonic() + START
    while True:
        with suppress(psycopg.OperationalError):
            place.connected().close()
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(log.read_text())
        time.sleep(0.1)


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """Start a PostgreSQL of our own with its files in `folder`, and yield its URL."""
    port, home = free_port(), folder / "postgres"
    home.mkdir()
    server = postgres_kit()["Server"](home)
    os.environ["PGPORT"] = str(port)  # the kit names none
    server.start("listen_addresses=127.0.0.1", f"port={port}", *SETTINGS)
    try:
        yield f"postgresql://tester@127.0.0.1:{port}/postgres"
    finally:
        server.stop()
        del os.environ["PGPORT"]


def server_clocks(folder: Path) -> tuple[float, float]:
    """Return the time of CPU of this process and of the PostgreSQL in `folder`, and the clock."""
    cpu, wall = clocks()
    server = int((folder / "postgres" / "data" / "postmaster.pid").read_text().split()[0])
    spent = 0
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile, and its parent has its time
            fields = file.read_text().rpartition(")")[2].split()
            if server in {int(file.parent.name), int(fields[1])}:
                spent += sum(map(int, fields[11:15]))
    return cpu + spent / os.sysconf("SC_CLK_TCK"), wall


@contextmanager
def in_postgres(folder: Path) -> Iterator[Place]:
    """Fill a PostgreSQL of our own with the rows in `folder`."""
    with postgres(folder) as url:
        fill(url, COLUMNS, folder / "events.csv")
        yield Place("PostgreSQL", with_password(url, folder / "postgres" / "data"), PLAIN)


def with_password(url: str, data: Path) -> str:
    """Let a new role that reads all tables log in with a password alone, and return the URL for it."""
    rules = data / "pg_hba.conf"
    rules.write_text(f"host all {NAME} 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {NAME} LOGIN PASSWORD '{PASSWORD}' IN ROLE pg_read_all_data")
        connection.execute("SELECT pg_reload_conf()")
    return url.replace("tester@", f"{NAME}:{PASSWORD}@")


def fill(url: str, columns: str, file: Path) -> None:
    """Make the table of events from a CSV file without a header, and analyse it."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE events ({columns})")
        with file.open("rb") as lines, connection.cursor().copy("COPY events FROM STDIN (FORMAT csv)") as copy:
            while block := lines.read(1 << 20):
                copy.write(block)
        connection.execute("VACUUM ANALYZE events")


def postgres_kit() -> dict[str, Any]:
    """Return what the tests of the ledger know of a server of their own."""
    return runpy.run_path(str(Path(__file__).parents[1] / "tests" / "support" / "postgres_kit.py"))


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class MySQL:
    """A MariaDB or MySQL of this machine, reached by a socket alone."""

    name: str
    socket: str

    def run(self, *statements: str) -> None:
        """Run statements, each on its own."""
        with pymysql.connect(unix_socket=self.socket, user="root", autocommit=True) as connection:
            for statement in statements:
                connection.query(statement)

    def url(self, database: str) -> str:
        """Return the address of a database."""
        return f"{self.name}://root@/{database}?unix_socket={self.socket}"


@contextmanager
def mysql(name: str, folder: Path) -> Iterator[MySQL]:
    """Run "mariadb", of Debian's package, or "mysql", of DPSQL_MYSQLD or fetched, with its data in a folder."""
    scratch = folder / "scratch"
    scratch.mkdir()
    place = ["--no-defaults", f"--datadir={folder / 'data'}", f"--tmpdir={scratch}", "--user=root"]
    words = ["--innodb-buffer-pool-size=512M", "--tmp-table-size=256M", "--max-heap-table-size=256M"]
    if name == "mysql":
        server_program = os.environ.get("DPSQL_MYSQLD", str(FETCHED_MYSQL))
        if not Path(server_program).exists():
            raise SystemExit("MySQL is not here: python tests/support/fetch_mysql.py fetches it.")
        made = [server_program, *place, "--initialize-insecure"]
        words += ["--mysqlx=OFF", "--skip-log-bin", f"--secure-file-priv={folder}"]
    else:
        server_program = "mariadbd"
        made = ["mariadb-install-db", *place, "--auth-root-authentication-method=normal", "--skip-test-db"]
    subprocess.run(made, check=True, capture_output=True)  # noqa: S603 - a program of this machine
    server = MySQL(name, str(folder / "socket"))
    words += [f"--socket={server.socket}", f"--pid-file={folder / 'pid'}", "--skip-networking"]
    nowhere = subprocess.DEVNULL
    program = [server_program, *place, *words]
    process = subprocess.Popen(program, stdout=nowhere, stderr=nowhere)  # noqa: S603 - as above
    try:
        for _ in range(int(START * 20)):
            with suppress(pymysql.OperationalError):
                server.run("DO 1")
                break
            time.sleep(0.05)
        yield server
    finally:
        process.terminate()
        process.wait()
