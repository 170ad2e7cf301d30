"""Probe of the confinement of the catalog's PostgreSQL: its superuser tries, by SQL, what the measures forbid.

Some statements of a superuser read files, run programs and connect to servers, so a backend itself shows whether that
is possible. The other measures are as the process reported them when it confined itself.
"""

from __future__ import annotations

import select
import socket
from contextlib import closing, suppress

from psycopg import pq
from psycopg.pq.abc import PGconn

__all__ = ["verify_measures"]

_READ = b"SELECT pg_catalog.pg_read_file('/etc/passwd', 0, 1)"  # everybody may read it, elsewhere
_RUN = b"COPY (SELECT) TO PROGRAM 'read line'"  # by the shell alone
_CONNECT = """
CREATE SUBSCRIPTION dpsql_probe
CONNECTION 'host=127.0.0.1 port={port} user=dpsql dbname=dpsql connect_timeout=5 sslmode=disable gssencmode=disable'
PUBLICATION dpsql_probe WITH (create_slot = false)
"""
_LONGEST = 10_000  # milliseconds
_GOOD = {pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK}


def verify_measures(connection: PGconn, reported: tuple[str, ...]) -> tuple[str, ...]:
    """Return the reported measures that hold where the superuser of `connection` tries what they forbid."""
    broken = set[str]()
    if connection.exec_(_READ).status in _GOOD:
        broken.add("files")
    if connection.exec_(_RUN).status in _GOOD:
        broken.add("system calls")
    if _reaches_network(connection):
        broken.add("network")
    return tuple(name for name in reported if name not in broken)


def _reaches_network(connection: PGconn) -> bool:
    """Return whether a backend reaches a port of this machine, which is opened for this."""
    with suppress(OSError), closing(socket.create_server(("127.0.0.1", 0))) as listener:
        listener.settimeout(0)
        connection.send_query(_CONNECT.format(port=listener.getsockname()[1]).encode())
        is_reached = False
        waiting = select.poll()
        waiting.register(listener, select.POLLIN)
        waiting.register(connection.socket, select.POLLIN)
        while connection.is_busy() and waiting.poll(_LONGEST):
            with suppress(BlockingIOError):
                listener.accept()[0].close()
                is_reached = True
            if select.select([connection.socket], [], [], 0)[0]:
                connection.consume_input()
        while connection.get_result() is not None:
            pass
        return is_reached
    return False
