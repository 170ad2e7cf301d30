"""Many clients of the wire server at once, who ask, repeat, err, cancel and hang up; and what must hold of the ledger.

python tests/support/server_load.py [--clients 64] [--statements 200] [--questions 60] [--seed 7]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import socket
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom

if __name__ == "__main__":  # the tests find it themselves
    sys.path.insert(0, str(Path(__file__).parents[1]))

import psycopg
from psycopg import errors
from support.hostile_bytes import Login, log_in, query
from support.server_kit import PASSWORD, Served, serving

from dpsql.curator import verify_ledger
from dpsql.server.wire.channel import ClientLimits

__all__ = ["ANALYSTS", "Told", "check", "load", "serving_many"]

ANALYSTS = ("ana", "ben", "cleo", "metabase")
POLICY = """\
ledger = "ledger.sqlite"
[budget]
epsilon = 100.0
delta = 1e-6
items = 10000
queries = 2000
[tables.reads]
privacy_unit = "user_id"
columns = ["user_id", "article", "country", "ts"]
[server]
users = "users.toml"
statements_per_minute = 1000000
max_connections = 400
connections_per_user = 200
"""
QUESTION = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads WHERE article <> 'q{number}' GROUP BY article "
QUESTION += "TOP 2 PRIVATE"
NUMBER = re.compile(r"'q(\d+)'")
CHARGED = re.compile(r"charged: \d+ items? of [^:]*: rho ([0-9.e-]+),")
KINDS = {"ask": 30, "prepare": 15, "wrap": 15, "describe": 10, "nothing": 10, "refused": 5, "syntax": 5}
KINDS |= {"cancel": 6, "hang up": 4}
REST = 0.01  # seconds
Rows = tuple[tuple[object, ...], ...]
Asked = tuple[str, int]  # an analyst, and the number of a question


@dataclass
class Told:
    """What all clients were told, and which questions they left before they were told anything."""

    kinds: Counter[str] = field(default_factory=Counter)
    answers: dict[Asked, set[Rows]] = field(default_factory=dict)
    charges: dict[Asked, list[float]] = field(default_factory=dict)
    left: set[Asked] = field(default_factory=set)

    def answered(self, asked: Asked, rows: list[tuple[object, ...]]) -> None:
        self.answers.setdefault(asked, set()).add(tuple(rows))

    def noticed(self, asked: Asked, text: str) -> None:
        found = CHARGED.search(text)
        if found:
            self.charges.setdefault(asked, []).append(float(found[1]))


class Client:
    """One client of one analyst."""

    def __init__(self, served: Served, user: str, told: Told) -> None:
        self._served, self._user, self._told = served, user, told
        self._asked: Asked = (user, 0)

    async def connected(self) -> psycopg.AsyncConnection[tuple[object, ...]]:
        """Return a connection that notes what it is told of charges."""
        connection = await psycopg.AsyncConnection.connect(self._served.conninfo(self._user), autocommit=True)
        await connection.execute("SET dpsql.details TO on")
        connection.add_notice_handler(lambda notice: self._told.noticed(self._asked, notice.message_detail or ""))
        return connection

    async def run(self, random: Random, statements: int, *, questions: int) -> None:
        """Send so many statements."""
        async with await self.connected() as connection:
            for _ in range(statements):
                [kind] = random.choices(list(KINDS), list(KINDS.values()))
                number = random.randrange(questions)
                await self._do(kind, connection, number=number, after=random.random() / 50)
                self._told.kinds[kind] += 1

    async def ask(self, connection: psycopg.AsyncConnection[tuple[object, ...]], number: int) -> None:
        """Ask one question, as it stands."""
        await self._do("ask", connection, number=number, after=0)

    async def _do(
        self, kind: str, connection: psycopg.AsyncConnection[tuple[object, ...]], *, number: int, after: float
    ) -> None:
        text, asked = QUESTION.format(number=number), (self._user, number)
        self._asked = asked
        match kind:
            case "ask" | "prepare":
                cursor = await connection.execute(text, prepare=kind == "prepare")
                self._told.answered(asked, await cursor.fetchall())
            case "wrap":
                cursor = await connection.execute(f"SELECT * FROM ({text}) AS x LIMIT 100")
                self._told.answered(asked, await cursor.fetchall())
            case "describe":
                cursor = await connection.execute(f"SELECT * FROM ({text}) AS x LIMIT 0")
                assert await cursor.fetchall() == []
            case "nothing":
                assert await (await connection.execute("SELECT 1")).fetchall() == [(1,)]
            case "refused":
                with contextlib.suppress(errors.InsufficientPrivilege):
                    await connection.execute("SELECT user_id FROM reads")
                    raise AssertionError
            case "syntax":
                with contextlib.suppress(errors.SyntaxError):
                    await connection.execute("SELECT article FROM reads WHERE TOP 3 PRIVATE")
                    raise AssertionError
            case "cancel":
                await self._cancel(connection, asked, after=after)
            case "hang up":
                await self._hang_up(asked, after=after)

    async def _cancel(
        self, connection: psycopg.AsyncConnection[tuple[object, ...]], asked: Asked, *, after: float
    ) -> None:
        asking = asyncio.create_task(connection.execute(QUESTION.format(number=asked[1])))
        await asyncio.sleep(after)
        await connection.cancel_safe()
        try:
            self._told.answered(asked, await (await asking).fetchall())
        except errors.QueryCanceled:
            self._told.left.add(asked)
            self._told.kinds["cancelled"] += 1
        await connection.execute("SELECT 1")  # a cancel that came late would fall on it
        self._told.kinds["nothing"] += 1

    async def _hang_up(self, asked: Asked, *, after: float) -> None:
        """Ask on a connection of its own, and leave without a word, or with one that it was reset."""
        self._told.left.add(asked)
        await asyncio.to_thread(
            _leave, self._served.port, self._user, text=QUESTION.format(number=asked[1]), after=after
        )


def _leave(port: int, user: str, *, text: str, after: float) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        log_in(connection, Login(user, PASSWORD))
        connection.sendall(query(text))
        time.sleep(after)
        if after < REST:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@contextlib.contextmanager
def serving_many(folder: Path) -> Iterator[Served]:
    """Serve with room for many clients and many questions."""
    with serving(folder, policy=POLICY, limits=ClientLimits(logins=400)) as served:
        yield served


async def load(served: Served, random: Random, *, clients: int, statements: int, questions: int) -> Told:
    """Let so many clients send so many statements each; then each analyst asks what was asked before."""
    told = Told()
    async with asyncio.TaskGroup() as group:
        for number in range(clients):
            client = Client(served, ANALYSTS[number % len(ANALYSTS)], told)
            group.create_task(client.run(Random(random.random()), statements, questions=questions))
    for user in ANALYSTS:
        client = Client(served, user, told)
        async with await client.connected() as connection:
            for number in sorted({one for who, one in {*told.answers, *told.left} if who == user}):
                await client.ask(connection, number)
    return told


def check(served: Served, told: Told, *, statements: int) -> list[str]:
    """Return what does not hold: each statement answered, each question charged once, the ledger what was told."""
    wrong = []
    if sum(told.kinds[kind] for kind in KINDS) < statements:
        wrong.append(f"statements were lost: {told.kinds}")
    wrong += [f"{asked} was answered in two ways" for asked, answers in told.answers.items() if len(answers) != 1]
    wrong += [
        f"{asked} was charged {len(charges)} times" for asked, charges in told.charges.items() if len(charges) != 1
    ]
    for user in ANALYSTS:
        history = served.front.service.session(user).history
        entries: dict[Asked, list[float]] = {}
        for text, rho, state in zip(*(history.column(name).to_pylist() for name in COLUMNS), strict=True):
            found = NUMBER.search(text)
            entries.setdefault((user, int(found[1]) if found else -1), []).append(rho)
            if state != "answered":
                wrong.append(f"an entry of {user} is {state}")
        asked = {one for one in told.answers if one[0] == user}
        if entries.keys() != asked:
            wrong.append(f"{user} asked {len(asked)} questions, and the ledger has {len(entries)}")
        for one, charges in entries.items():
            heard = told.charges.get(one, [])
            if len(charges) != 1 or (not heard and one not in told.left):
                wrong.append(f"{one}: the ledger has {charges}, the client was told {heard}")
            if heard and abs(heard[0] - charges[0]) > 1e-5 * charges[0]:  # it is told with six digits
                wrong.append(f"{one}: {charges} is not {heard}")
    folder = Path(str(served.front.service.policy.ledger))
    events = verify_ledger(folder).events
    if events < 2 * len(told.answers):
        wrong.append(f"the ledger has only {events} events")
    return wrong


COLUMNS = ("query", "rho_charged", "state")


def main() -> None:
    """Run it once, and end in an error where something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--statements", type=int, default=200)
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--seed", type=int, default=SystemRandom().getrandbits(63))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, serving_many(Path(folder)) as served:
        began = time.monotonic()
        random = Random(given.seed)
        told = asyncio.run(
            load(served, random, clients=given.clients, statements=given.statements, questions=given.questions)
        )
        taken = time.monotonic() - began
        wrong = check(served, told, statements=given.clients * given.statements)
    total = sum(told.kinds[kind] for kind in KINDS)
    sys.stdout.write(f"--seed {given.seed}: {total:,} statements in {taken:.1f} s, {total / taken:.0f}/s; ")
    sys.stdout.write(f"{len(told.answers)} questions charged once each; {dict(told.kinds)}\n")
    for one in wrong:
        sys.stdout.write(f"{one}\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
