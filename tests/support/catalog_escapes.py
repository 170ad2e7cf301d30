"""What the superuser of the catalog's PostgreSQL can do by SQL, to the system and to the server that started it.

`python catalog_escapes.py FOLDER` prints as JSON which acts succeed and which measures are in force. With
`--unconfined` the PostgreSQL takes no measure and claims all; run by root with `--ordinary` an ordinary user does it.
"""

from __future__ import annotations

import json
import os
import pwd
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import psycopg

from dpsql.confinement import measures, system_calls
from dpsql.server.catalog import _starting

LAST = "main(sys.argv[2:])"
UNCONFINED = f"""
import dpsql.confinement.measures as launcher
launcher.leave_network = launcher.leave_shared_memory = lambda **_: True
launcher.limit_resources = launcher.end_with_parent = lambda _: True
launcher.bound_processes = lambda _: True
launcher.drop_capabilities = lambda: True
launcher.forbid_files = lambda *_, **_given: True
launcher.filter_server = lambda words, environment: (True, lambda: launcher.os.execve(words[0], words, environment))
{LAST}
"""
SUBSCRIBE = (
    "CREATE SUBSCRIPTION s CONNECTION 'user=x dbname=x connect_timeout=5 {}' PUBLICATION p WITH (create_slot=false)"
)


def reaches(connection: psycopg.Connection, listener: socket.socket, place: str) -> bool:
    """Return whether a backend connects to a socket."""
    reached: list[bool] = []

    def accept() -> None:
        with suppress(OSError):
            listener.accept()[0].close()
            reached.append(True)

    thread = threading.Thread(target=accept)
    thread.start()
    with suppress(psycopg.Error):
        connection.execute(SUBSCRIBE.format(place))
    listener.shutdown(socket.SHUT_RDWR)
    thread.join()
    return bool(reached)


def acts(connection: psycopg.Connection, outside: Path) -> dict[str, Callable[[], bool]]:
    """Return the acts by their names; each says whether it had an effect, or raises."""
    ledger, made = outside / "ledger.sqlite", outside / "made"

    def reads(text: str) -> bool:
        row = connection.execute(text).fetchone()
        return row is not None and bool(row[0])

    def writes(text: str) -> bool:
        made.unlink(missing_ok=True)
        connection.execute(text)
        return made.exists()

    connection.execute("CREATE TEMPORARY TABLE lines (line text)")
    connection.execute("SELECT lo_from_bytea(7, 'x')")
    return {
        "read": lambda: reads(f"SELECT pg_read_file('{ledger}')"),
        "read bytes": lambda: reads(f"SELECT pg_read_binary_file('{ledger}')"),
        "list": lambda: reads(f"SELECT pg_ls_dir('{outside}')"),
        "copy from": lambda: connection.execute(f"COPY lines FROM '{ledger}'").rowcount > 0,
        "import": lambda: reads(f"SELECT lo_import('{ledger}')"),
        "environment": lambda: reads(f"SELECT pg_read_binary_file('/proc/{os.getpid()}/environ')"),
        "copy to": lambda: writes(f"COPY (SELECT 'x') TO '{made}'"),
        "export": lambda: writes(f"SELECT lo_export(7, '{made}')"),
        "overwrite": lambda: connection.execute(f"COPY (SELECT 'x') TO '{outside / 'users.toml'}'").rowcount > 0,
        "tablespace": lambda: bool(connection.execute(f"CREATE TABLESPACE s LOCATION '{outside / 'space'}'")),
        "to program": lambda: writes(f"COPY (SELECT 'x') TO PROGRAM 'cat > {made}'"),
        "from program": lambda: connection.execute("COPY lines FROM PROGRAM 'echo 1'").rowcount > 0,
    }


def attempted(folder: Path) -> dict[str, object]:
    """Return which acts succeed, and what is said to be in force."""
    folder.chmod(0o777)  # what refuses must not be the modes of files
    for name in ("ledger.sqlite", "users.toml"):
        (folder / name).write_text("SECRET")
        (folder / name).chmod(0o666)
    (folder / "space").mkdir()
    if os.getuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(folder / "space", nobody.pw_uid, nobody.pw_gid)
    with (
        _starting() as (cluster, first, confinement),
        psycopg.connect(cluster.conninfo("postgres"), autocommit=True) as connection,
        closing(socket.create_server(("127.0.0.1", 0))) as listener,
        closing(socket.socket(socket.AF_UNIX)) as named,
    ):
        first.finish()
        named.bind(str(folder / ".s.PGSQL.7"))
        (folder / ".s.PGSQL.7").chmod(0o777)
        named.listen()
        done = []
        for name, act in acts(connection, folder).items():
            with suppress(psycopg.Error):
                done += [name] * act()
        port = listener.getsockname()[1]
        done += ["tcp"] * reaches(connection, listener, f"host=127.0.0.1 port={port} sslmode=disable")
        done += ["unix socket"] * reaches(connection, named, f"host={folder} port=7")
        processes = status_of(int((cluster.folder / "data" / "postmaster.pid").read_text().split()[0]))
        connection.close()
        cluster.stop()
    measures.leave_network()  # which forbids new privileges, as the other measures need it
    return {
        "done": done,
        "confinement": confinement,
        "processes": processes,
        "users": (folder / "users.toml").read_text(),
        "has_landlock": measures.forbid_files([Path("/")], writable=Path("/")),
        "has_filter": system_calls.filter_calls(),
    }


def status_of(postmaster: int) -> list[list[str]]:
    """Return what the kernel says of the rights of the postmaster and of all its children."""
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    wanted = ("NoNewPrivs", "Seccomp", "CapPrm", "CapEff")
    found = []
    for process in (str(postmaster), *children):
        lines = dict(line.split(":\t") for line in Path(f"/proc/{process}/status").read_text().splitlines())
        found.append([lines[name] for name in wanted])
    return found


def main() -> None:
    """Try everything in the folder of the command line, and print what was found."""
    folder = Path(sys.argv[1])
    if "--unconfined" in sys.argv:
        measures.COMMAND = measures.COMMAND.replace(LAST, UNCONFINED)
    if "--ordinary" in sys.argv:
        from support.escapes import become_ordinary

        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        os.chdir(folder)
        become_ordinary()
        os.environ.update(HOME=str(folder), TMPDIR=str(folder))
        os.execv(sys.executable, [sys.executable, __file__, str(folder)])
    sys.stdout.write(json.dumps(attempted(folder)))


if __name__ == "__main__":
    main()
