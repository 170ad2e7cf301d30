"""What one analyst sends to slow down the others, one kind of statement at a time, and what another analyst measures.

`python tests/support/crowding.py others --help` runs them against a server.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
import statistics
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from random import Random

import psycopg
from support.hostile_bytes import Login, log_in, message, query

__all__ = ["CROWDS", "Medians", "crowd", "measure"]

Medians = dict[str, float]
REPLAYED = "SELECT article FROM reads GROUP BY article TOP 3 PRIVATE WITH (epsilon = 0.05)"
READY, CHUNK = b"Z\0\0\0\5", 1 << 16
ROWS = "SELECT 1, '{word}' FROM pg_catalog.pg_class a, pg_catalog.pg_attribute b LIMIT 100000"
MANY = ", ".join(f"NULL::text AS c{number}" for number in range(1600))
CURSOR = f"DECLARE c{{word}} CURSOR WITH HOLD FOR SELECT {MANY} FROM pg_catalog.pg_attribute LIMIT 10000"
VIEWS, CONDITIONS, LITERALS = 20, 3000, 100_000
PAUSE = 0.02  # seconds between two measured statements


@contextmanager
def connect(port: int, login: Login) -> Iterator[socket.socket]:
    """Yield a connection that has logged in, of which the client reads as little as it likes."""
    with socket.create_connection(("127.0.0.1", port), timeout=90) as client:
        log_in(client, login)
        yield client


def send(client: socket.socket, sent: bytes) -> bytes:
    """Send messages, and drop what comes back up to the next ReadyForQuery; return the end of it."""
    client.sendall(sent)
    tail = b""
    while READY not in tail:
        chunk = client.recv(CHUNK)
        if not chunk:
            raise ConnectionError
        tail = tail[-len(READY) :] + chunk
    return tail


def word(random: Random, size: int = 12) -> str:
    return "".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=size))


def send_rows(client: socket.socket, random: Random) -> None:
    """Let the catalog read 100,000 rows."""
    send(client, query(ROWS.format(word=word(random))))


def send_cursor(client: socket.socket, random: Random) -> None:
    """Hold one more cursor over 1,600 columns without a value; drop them all where no more is let in."""
    name = word(random)
    if b"53200" in send(client, query(f"BEGIN; {CURSOR.format(word=name)}; FETCH 1 FROM c{name}; COMMIT")):
        send(client, query("ROLLBACK"))
        send(client, query("CLOSE ALL"))


def send_unread(client: socket.socket, random: Random) -> None:
    """Send a statement of 100,000 rows, and read nothing of them for a while."""
    client.sendall(query(ROWS.format(word=word(random))))
    time.sleep(3)
    raise ConnectionError  # leave


def send_text(client: socket.socket, _: Random) -> None:
    """Send 900 statements as one text."""
    send(client, query("SELECT 1;" * 900))


def send_shows(client: socket.socket, _: Random) -> None:
    """Send 900 statements that the server answers by itself, each as a message."""
    send(client, (message(b"P", b"\0SHOW timezone\0\0\0") + message(b"B", bytes(8)) + message(b"E", bytes(5))) * 900
         + message(b"S"))  # fmt: skip


def send_literal(client: socket.socket, random: Random) -> None:
    """Send a literal of 100,000 characters."""
    send(client, query(f"SELECT '{word(random) * (LITERALS // 12)}'"))


def send_values(client: socket.socket, random: Random) -> None:
    """Send a statement with 10,000 values."""
    text = f"SELECT '{word(random)}' FROM pg_catalog.pg_class WHERE relname IN ("
    text += ", ".join(f"${number}" for number in range(1, 10_001)) + ")"
    values = b"".join(struct.pack("!i", 3) + b"abc" for _ in range(10_000))
    bound = b"\0\0" + struct.pack("!hH", 0, 10_000) + values + struct.pack("!h", 0)
    sent = message(b"P", b"\0" + text.encode() + b"\0\0\0") + message(b"B", bound) + message(b"E", bytes(5))
    send(client, sent + message(b"S"))


def send_conditions(client: socket.socket, random: Random) -> None:
    """Send a statement of 3,000 conditions, alone and inside others."""
    listed = " OR ".join(f"article = '{word(random, 6)}'" for _ in range(CONDITIONS))
    text = f"SELECT article FROM reads WHERE {listed} /* FOR UPDATE */ GROUP BY article TOP 3 PRIVATE"
    send(client, query("DEALLOCATE ALL; CREATE OR REPLACE TEMPORARY VIEW v AS SELECT 1 AS one"))
    send(client, query(f"EXPLAIN {text}"))
    send(client, query(f"EXPLAIN (FORMAT JSON) {text}"))
    send(client, query(f"PREPARE p AS {text}"))
    send(client, query(f"COPY (SELECT one FROM v WHERE 'a' IN ('{word(random)}', {listed[11:]})) TO STDOUT"))


def send_views(client: socket.socket, random: Random) -> None:
    """Make 20 views of many columns, and read all of them."""
    names = ", ".join(f"v{number}" for number in range(VIEWS))
    send(client, query(f"DROP VIEW IF EXISTS {names}"))
    for number in range(VIEWS):
        cells = ", ".join(f"{each} AS c{each}" for each in range(110))
        send(client, query(f"CREATE TEMPORARY VIEW v{number} AS SELECT {cells}"))
    for _ in range(8):
        send(client, query(f"SELECT '{word(random)}' FROM v0, v1, v2, v3"))
        send(client, query(f"SELECT '{word(random)}' FROM pg_catalog.pg_class"))


CROWDS: Mapping[str, tuple[Callable[[socket.socket, Random], None], int]] = {  # and the number of connections
    "rows": (send_rows, 1),
    "cursors": (send_cursor, 2),
    "unread": (send_unread, 8),
    "texts": (send_text, 2),
    "shows": (send_shows, 2),
    "literals": (send_literal, 2),
    "values": (send_values, 2),
    "conditions": (send_conditions, 2),
    "views": (send_views, 2),
}


def crowd(kind: str, port: int, *, user: str, password: str, seconds: float) -> int:
    """Send statements of one kind for so many seconds, and return how often that was done."""
    act, connections = CROWDS[kind]
    until, done = time.monotonic() + seconds, list[int]()

    def sending(number: int) -> None:
        random = Random(f"{kind} {number} {time.time()}")
        while time.monotonic() < until:
            with suppress(OSError), connect(port, Login(user, password)) as client:
                while time.monotonic() < until:
                    done.append(number)
                    act(client, random)

    threads = [threading.Thread(target=sending, args=(number,), daemon=True) for number in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()) + 1)
    return len(done)


def measure(conninfo: str, web: int, *, user: str, password: str, seconds: float) -> Medians:
    """Return the medians of SELECT 1, of a replay and of a call of the API of one analyst, in seconds."""
    proof = base64.b64encode(f"{user}:{password}".encode()).decode()
    taken: dict[str, list[float]] = {"SELECT 1": [], "replay": [], "API": []}
    with (
        psycopg.connect(conninfo, autocommit=True, prepare_threshold=None) as connection,
        closing(http.client.HTTPConnection("127.0.0.1", web, timeout=60)) as client,
    ):
        client.request("POST", "/api/v1/token", headers={"Authorization": f"Basic {proof}"})
        token = json.loads(client.getresponse().read())["token"]
        head = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

        def call() -> None:
            client.request("POST", "/api/v1/query", json.dumps({"sql": "SELECT 1"}), head)
            answer = client.getresponse()
            if answer.read() and answer.status != http.client.OK:
                raise OSError(answer.status)

        acts: dict[str, Callable[[], object]] = {
            "SELECT 1": lambda: connection.execute("SELECT 1").fetchall(),
            "replay": lambda: connection.execute(REPLAYED).fetchall(),
            "API": call,
        }
        for act in acts.values():
            act()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for name, act in acts.items():
                began = time.perf_counter()
                act()
                taken[name].append(time.perf_counter() - began)
                time.sleep(PAUSE)
    return {name: statistics.median(each) for name, each in taken.items()}
