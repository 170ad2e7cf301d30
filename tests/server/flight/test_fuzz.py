"""Hostile bytes at every door: no crash, no traceback, nothing charged, nothing that is not the analyst's."""

from __future__ import annotations

import os
import random
import re
import socket
from collections.abc import Iterator
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from support.flight_messages import packed
from support.surfaces_kit import TOP

from dpsql.errors import UsageError
from dpsql.server.flight.actions import ACTIONS
from dpsql.server.flight.binding import read_parameters
from dpsql.server.flight.frames import PREFACE, Frame

from .conftest import Served

SEED, CALLS = (None, 40_000) if os.environ.get("DPSQL_FUZZ") else (20_261_122, 5_000)
TOLD = re.compile(r"Traceback|\.py\b|File \"|site-packages|\[internal\]|a0")
KINDS = """CommandStatementQuery CommandPreparedStatementQuery TicketStatementQuery CommandGetSqlInfo CommandGetTables
CommandGetXdbcTypeInfo CommandGetCatalogs CommandGetDbSchemas CommandGetTableTypes CommandGetPrimaryKeys
CommandStatementUpdate CommandPreparedStatementUpdate CommandStatementIngest CommandStatementSubstraitPlan
ActionCreatePreparedStatementRequest ActionClosePreparedStatementRequest ActionBeginTransactionRequest
ActionEndTransactionRequest ActionCancelQueryRequest Nothing""".split()
TEXTS = ["SELECT 1 AS one", "SHOW BUDGET", TOP, "SELECT * FROM reads", "\0", "é" * 50, "", "%" * 40, "TABLE", "DE"]


def messages(chance: random.Random) -> Iterator[bytes]:
    """Yield messages for ever: well formed ones with strange fields, and those with some bytes changed."""
    while True:
        fields: list[tuple[int, int | bytes | str]] = []
        for _ in range(chance.randrange(5)):
            value = chance.choice(
                [chance.randrange(2**64), chance.randbytes(chance.randrange(40)), chance.choice(TEXTS)]
            )
            fields.append((chance.choice([1, 1, 1, 2, 3, 4, 5, chance.randrange(1, 2**29)]), value))
        sent = packed(chance.choice(KINDS), *fields)
        yield sent
        changed = bytearray(sent)
        for _ in range(chance.randrange(1, 6)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        yield bytes(changed)
        yield sent[: chance.randrange(len(sent))]
        yield chance.randbytes(chance.randrange(100))


def test_hostile_calls_are_refused(served: Served) -> None:
    chance = random.Random(SEED)
    client, options = served.client()
    sent, told, answered = messages(chance), [], 0
    for at in range(CALLS):
        message = next(sent)
        try:
            match chance.randrange(8):
                case 0 | 1:
                    client.get_flight_info(fl.FlightDescriptor.for_command(message), options)
                case 2 | 3:
                    client.do_get(fl.Ticket(message), options).read_all()
                case 4:
                    client.get_schema(fl.FlightDescriptor.for_command(message), options)
                case 5 | 6:
                    list(client.do_action(fl.Action(chance.choice([*ACTIONS, "x"][:6]), message), options))
                case _ if at % 5 == 0:
                    writer, _ = client.do_put(fl.FlightDescriptor.for_command(message), pa.schema([]), options)
                    writer.close()
            answered += 1
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            told.append(str(error))
    assert not [text for text in told if TOLD.search(text)]
    assert len(told) > CALLS // 4
    assert answered > CALLS // 10
    assert served.charges() == 0
    assert client.get_flight_info(fl.FlightDescriptor.for_command(packed("CommandGetCatalogs")), options).endpoints


def streams() -> Iterator[bytes]:
    """Yield what a client sends as parameters, of every type of value."""
    for values in (
        {"1": ["DE"], "2": [5]},
        {"1": pa.array(["DE"], pa.large_string()), "2": pa.array([None], pa.null())},
        {"1": pa.array(["DE"]).dictionary_encode(), "2": pa.array([1_000], pa.timestamp("ns"))},
        {"1": pa.array(["DE"], pa.string_view()), "2": pa.array([3], pa.decimal256(60, 3))},
        {"1": pa.array([86_400_000], pa.date64()), "2": pa.array([1.5])},
    ):
        batch, sink = pa.record_batch(values), pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield sink.getvalue().to_pybytes()


def bound(sent: bytes) -> tuple[object, ...] | str:
    """Return what a stream of Arrow binds, or the code with which it is refused."""
    try:
        reader = pa.ipc.open_stream(sent)
    except (pa.ArrowException, OSError, ValueError):
        return "no schema"  # pyarrow refuses it before the server is asked
    named = SimpleNamespace(schema=reader.schema, read_chunk=lambda: SimpleNamespace(data=reader.read_next_batch()))
    try:
        return read_parameters(named)
    except UsageError as error:
        return error.code


def test_hostile_parameters_are_refused_before_they_are_read() -> None:
    chance, found = random.Random(SEED), set()
    for stream in streams():
        assert isinstance(bound(stream), tuple)
        for _ in range(3_000):
            changed = bytearray(stream)
            for _ in range(chance.randrange(1, 4)):
                changed[chance.randrange(len(changed))] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
            outcome = bound(bytes(changed))
            found.add(outcome if isinstance(outcome, str) else "bound")
    assert found == {"no schema", "flight-parameters", "bound"}


@pytest.mark.parametrize("inside", [False, True])
def test_hostile_frames_harm_nobody_else(served: Served, inside: bool) -> None:
    chance = random.Random(SEED)
    client, options = served.client()
    for _ in range(150):
        with socket.create_connection(("localhost", served.flight.port), timeout=10) as connection:
            frames = [
                Frame(chance.randrange(12), chance.randrange(256), chance.randrange(5), chance.randbytes(20))
                for _ in range(20)
            ]
            sent = b"".join(frame.bytes for frame in frames) if inside else chance.randbytes(500)
            try:
                connection.sendall(PREFACE + Frame(4, 0, 0, b"").bytes + sent)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4_096):
                    pass
            except OSError:
                continue
    assert list(client.list_actions(options))
    assert served.charges() == 0
