"""Flight SQL call by call: whose a ticket is, what it costs, what an error tells, and how the server ends."""

from __future__ import annotations

import json
import re
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from support.flight_messages import packed, written
from support.surfaces_kit import NAMES, TOP

from dpsql.errors import Refusal
from dpsql.server.flight.actions import ACTIONS
from dpsql.server.flight.codec import decode, unpack
from dpsql.server.flight.failures import InvalidArgument, NotSupported, cleanly
from dpsql.server.flight.statements import Statements
from dpsql.server.gateway import Gateway
from dpsql.server.memory_quota import MemoryQuota
from dpsql.server.service import Service
from dpsql.server.users_file import change_password, remove_user

from .conftest import WORDS, Served

FRESH = NAMES + " WITH (fresh = true)"


def info_of(served: Served, text: str, name: str = "alice") -> fl.FlightInfo:
    client, options = served.client(name)
    return client.get_flight_info(fl.FlightDescriptor.for_command(packed("CommandStatementQuery", (1, text))), options)


def fetched(served: Served, info: fl.FlightInfo, name: str = "alice") -> pa.Table:
    client, options = served.client(name)
    return client.do_get(info.endpoints[0].ticket, options).read_all()


def acted(served: Served, kind: str, *fields: tuple[int, int | bytes | str], name: str = "alice") -> list[bytes]:
    client, options = served.client(name)
    action = fl.Action(kind, packed(f"Action{kind}Request", *fields))
    return [result.body.to_pybytes() for result in client.do_action(action, options)]


def prepared(served: Served, text: str) -> Any:
    (result,) = acted(served, "CreatePreparedStatement", (1, text))
    return decode(*unpack(result))


def test_an_answer_has_its_receipt(served: Served) -> None:
    info = info_of(served, TOP)
    assert (info.total_records, info.total_bytes) == (-1, -1)
    assert served.charges() == 0
    table = fetched(served, info)
    receipt = json.loads(table.schema.metadata[b"dpsql.receipt"])
    assert receipt["mechanism"] != "none"
    assert receipt["items_charged"] == 6  # a label and its count
    assert not receipt["replayed"]
    assert table.schema.remove_metadata() == info.schema
    again = json.loads(fetched(served, info_of(served, TOP)).schema.metadata[b"dpsql.receipt"])
    assert again["replayed"]
    assert again["items_charged"] == 0


def test_a_ticket_is_answered_once_however_often_it_is_fetched(served: Served) -> None:
    info = info_of(served, FRESH)
    first = fetched(served, info)
    for _ in range(3):
        assert fetched(served, info).equals(first, check_metadata=True)
    assert served.charges() == 1
    fetched(served, info_of(served, FRESH))
    assert served.charges() == 2


def test_many_who_fetch_one_ticket_at_once_are_charged_once(served: Served) -> None:
    info, found = info_of(served, FRESH), []
    threads = [threading.Thread(target=lambda: found.append(fetched(served, info))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(table.equals(found[0]) for table in found)
    assert served.charges() == 1


def test_a_ticket_is_worth_nothing_to_others(served: Served) -> None:
    info = info_of(served, TOP)
    with pytest.raises(fl.FlightUnauthorizedError, match=r"\[flight-handle\]"):
        fetched(served, info, "carol")
    assert served.charges("carol") == served.charges() == 0
    handle = prepared(served, TOP).prepared_statement_handle
    client, options = served.client("carol")
    command = fl.FlightDescriptor.for_command(packed("CommandPreparedStatementQuery", (1, handle)))
    for call in (client.get_flight_info, client.get_schema):
        with pytest.raises((fl.FlightUnauthorizedError, pa.ArrowInvalid), match=r"^\[flight-handle\]"):
            call(command, options)
    acted(served, "ClosePreparedStatement", (1, handle), name="carol")
    client, options = served.client()
    assert client.get_schema(command, options).schema.names == ["article", "n"]


def test_a_token_is_needed_for_every_call(served: Served) -> None:
    client = fl.connect(served.uri)
    command = fl.FlightDescriptor.for_command(packed("CommandGetCatalogs"))
    calls: list[Callable[[fl.FlightCallOptions], object]] = [
        lambda options: client.get_flight_info(command, options),
        lambda options: client.get_schema(command, options),
        lambda options: client.do_get(fl.Ticket(command.command), options).read_all(),
        lambda options: list(client.do_action(fl.Action("BeginTransaction", b""), options)),
        lambda options: list(client.list_actions(options)),
        lambda options: list(client.list_flights(b"", options)),
        lambda options: client.do_put(command, pa.schema([]), options)[0].close(),
        lambda options: client.do_exchange(command, options)[0].close(),
    ]
    for header in (b"", b"Bearer", b"Bearer " + b"x" * 32, b"Basic YWxpY2U6", b"x" * 5_000):
        options = fl.FlightCallOptions(headers=[(b"authorization", header)] if header else [])
        for call in calls:
            with pytest.raises(
                (fl.FlightUnauthenticatedError, OSError), match=r"^\[flight-login\]: This call has no login"
            ):
                call(options)


@pytest.mark.parametrize("change", ["password", "removed", "closed"])
def test_a_token_ends_with_the_password_the_user_or_the_session(served: Served, change: str) -> None:
    client, options = served.client()
    path = served.front.users._path
    assert list(client.list_actions(options))
    if change == "password":
        change_password(path, "alice", password="another battery")
    elif change == "removed":
        remove_user(path, "alice")
    else:
        list(client.do_action(fl.Action("CloseSession", b""), options))
    served.front.users.reload()
    with pytest.raises(fl.FlightUnauthenticatedError):
        list(client.list_actions(options))


def test_a_ticket_can_be_taken_back(served: Served) -> None:
    info = info_of(served, TOP)
    body = decode(*unpack(acted(served, "CancelQuery", (1, info.serialize()), name="carol")[0]))
    assert body.result == 3  # somebody else's cannot
    client, options = served.client()
    action = fl.Action("CancelFlightInfo", written((1, info.serialize())))
    (result,) = client.do_action(action, options)
    assert decode("CancelFlightInfoResult", result.body.to_pybytes()).status == 1
    with pytest.raises(fl.FlightUnauthorizedError, match=r"\[flight-handle\]"):
        fetched(served, info)
    assert served.charges() == 0


def test_what_a_prepared_statement_binds_is_what_its_ticket_holds(served: Served) -> None:
    text = "SELECT country FROM countries WHERE country = $1"
    made = prepared(served, text)
    assert pa.ipc.read_schema(pa.py_buffer(made.parameter_schema)).types == [pa.string()]
    handle = made.prepared_statement_handle
    command = fl.FlightDescriptor.for_command(packed("CommandPreparedStatementQuery", (1, handle)))
    client, options = served.client()
    infos = []
    for country in ("DE", "FR"):
        batch = pa.record_batch({"1": [country]})
        writer, _ = client.do_put(command, batch.schema, options)
        writer.write_batch(batch)
        writer.close()
        infos.append(client.get_flight_info(command, options))
    assert [fetched(served, info).to_pylist() for info in infos] == [[{"country": "DE"}], [{"country": "FR"}]]


def test_a_batch_that_cannot_be_bound_is_refused(served: Served) -> None:
    handle = prepared(served, NAMES).prepared_statement_handle
    command = fl.FlightDescriptor.for_command(packed("CommandPreparedStatementQuery", (1, handle)))
    client, options = served.client()
    for values in (
        {"1": ["DE", "FR"]},
        {"1": [["DE"]]},
        {"1": [{"a": 1}]},
        {"1": pa.array([b"DE"])},
        {"1": pa.array([1], pa.time64("ns"))},
        {str(at): [1] for at in range(3_200)},
    ):
        batch = pa.record_batch(values)
        assert re.match(r"\[flight-parameters\]", said(lambda batch=batch: put(client, command, batch, options)))


def test_an_error_is_one_sentence_and_nothing_of_the_program(served: Served) -> None:
    for text, kind in (
        ("SELECT * FROM reads", fl.FlightUnauthorizedError),
        ("SELECT 1 / (", pa.ArrowInvalid),
        ("SELECT country FROM (DESCRIBE countries) AS x", pa.ArrowNotImplementedError),
    ):
        with pytest.raises(kind) as caught:
            info_of(served, text)
        message = str(caught.value)
        assert message.startswith("[")
        assert " Hint: " in message
        assert not any(word in message for word in ("Traceback", "File", ".py", "dpsql/", "site-packages"))
        extra = getattr(caught.value, "extra_info", b"")
        if extra:
            told = json.loads(extra)
            assert told["kind"] == "Refusal"
            assert told["code"] == "not-private"
            assert told["place"].startswith("line 1")


def calls_of(client: fl.FlightClient, options: fl.FlightCallOptions) -> Iterator[Callable[[], object]]:
    """Yield one call of every method of a server, each for a statement or its handle."""
    for sent in (
        packed("CommandStatementQuery", (1, "SELECT (")),
        packed("CommandPreparedStatementQuery", (1, b"x")),
        packed("TicketStatementQuery", (1, b"x")),
        packed("CommandStatementUpdate", (1, TOP)),
        packed("CommandStatementSubstraitPlan", (1, b"x")),
        b"x",
    ):
        command, batch = fl.FlightDescriptor.for_command(sent), pa.record_batch({"1": ["DE"]})
        yield lambda command=command: client.get_flight_info(command, options)
        yield lambda command=command: client.get_schema(command, options)
        yield lambda sent=sent: client.do_get(fl.Ticket(sent), options).read_all()
        yield lambda command=command, batch=batch: put(client, command, batch, options)
        yield lambda command=command: client.do_exchange(command, options)[1].read_all()
        for kind in (*ACTIONS, "BeginSavepoint", "No Action"):
            yield lambda sent=sent, kind=kind: list(client.do_action(fl.Action(kind, sent), options))
    yield lambda: client.get_flight_info(fl.FlightDescriptor.for_path("reads"), options)
    yield lambda: list(client.list_flights(b"", options))


def put(client: fl.FlightClient, command: fl.FlightDescriptor, batch: pa.RecordBatch, options: Any) -> None:
    writer, _ = client.do_put(command, batch.schema, options)
    writer.write_batch(batch)
    writer.done_writing()
    writer.close()


def said(call: Callable[[], object]) -> str:
    """Return the words of the error of a call, none where it was answered."""
    try:
        call()
    except (pa.ArrowException, OSError) as error:
        return str(error)
    return ""


def test_no_call_lets_a_traceback_out(served: Served) -> None:
    client, options = served.client()
    told = [said(call) for call in calls_of(client, options)]
    assert len([message for message in told if message]) > 50
    assert not [message for message in told if re.search(r"Traceback|File|\.py|internal", message)]
    assert served.charges() == 0


def test_a_fault_says_nothing_of_itself(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any, **__: Any) -> Any:
        raise ValueError("user 4711 read a0")

    client, options = served.client()
    told: list[str] = []
    for module, name in (("server", "read_command"), ("actions", "unpack"), ("login", "Caller")):
        monkeypatch.setattr(f"dpsql.server.flight.{module}.{name}", failing)
        told += [said(call) for call in calls_of(client, options)]
    assert any("could not do this" in message for message in told)
    assert '"event": "fault"' in served.log.getvalue()
    assert "4711" not in served.log.getvalue()
    assert not [message for message in told if re.search(r"4711|a0|Traceback|File|\.py", message)]


@pytest.mark.parametrize("kind", [InvalidArgument, NotSupported])
def test_exceptions_that_are_no_errors_of_flight_cannot_be_printed(kind: type[Exception]) -> None:
    with pytest.raises(AttributeError):
        traceback.format_exception(kind("words"))


def test_what_fails_leaves_nothing_but_its_kind() -> None:
    class Owner:
        kinds: ClassVar[list[str]] = []

        def fault(self, kind: str) -> None:
            self.kinds.append(kind)

        @cleanly
        def act(self) -> None:
            raise ZeroDivisionError(4711)

    with pytest.raises(fl.FlightInternalError) as caught:
        Owner().act()
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    assert "4711" not in str(caught.value)
    assert Owner.kinds == ["ZeroDivisionError"]


def test_calls_of_a_user_are_bounded(served: Served) -> None:
    calls = served.server.calls
    for _ in range(100):
        assert calls.begin("alice")
    with pytest.raises(fl.FlightUnavailableError, match=r"\[server-busy\]"):
        info_of(served, TOP)
    assert info_of(served, "SELECT 1", "bob").schema.names
    for _ in range(100):
        calls.end("alice")
    assert info_of(served, TOP).schema.names == ["article", "n"]


def test_closing_waits_for_what_runs_and_settles_it(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ask, found = threading.Event(), Service.ask, []

    def slowly(*args: Any, **named: Any) -> Any:
        begun.set()
        time.sleep(0.5)
        return ask(*args, **named)

    monkeypatch.setattr(Service, "ask", slowly)
    info = info_of(served, TOP)
    asking = threading.Thread(target=lambda: found.append(fetched(served, info)))
    asking.start()
    assert begun.wait(10)
    served.run(served.flight.close())
    asking.join()
    assert [table.num_rows for table in found] == [3]
    assert served.charges() == 1
    with pytest.raises(fl.FlightError):
        fl.connect(served.uri).authenticate_basic_token("alice", WORDS)


def test_what_is_closed_lets_go_of_the_front_which_pyarrow_would_keep_until_the_process_ends(served: Served) -> None:
    server = served.flight._server
    served.run(served.flight.close())
    served.run(served.flight.close())
    for held in (server, server._login):
        assert not [value for value in vars(held).values() if isinstance(value, Gateway | Statements)]


def test_an_answer_says_that_its_counts_are_bounded(served: Served) -> None:
    table = fetched(served, info_of(served, f"{TOP} WITH (max_groups_contributed = 2)"))
    assert json.loads(table.schema.metadata[b"dpsql.receipt"])["bounded_by"] == 2


def test_what_is_left_unread_is_limited_and_counts_no_longer_when_the_client_has_left(served: Served) -> None:
    served.server._unread = quota = MemoryQuota(90 << 20, 50 << 20, full=lambda: Refusal("unread-answers", "Full."))
    client, options = served.client("alice")
    unread, refused = [], 0
    for number in range(4):
        info = info_of(served, f"SELECT repeat('x', {20 << 20}) AS x, {number} AS n")
        try:
            unread.append(client.do_get(info.endpoints[0].ticket, options))
            assert unread[-1].schema.names == ["x", "n"]
        except fl.FlightError as error:
            refused += "unread-answers" in str(error)
    assert refused == 2
    assert 40 << 20 <= quota.measure("alice") <= 50 << 20
    for reader in unread:
        with suppress(fl.FlightError):
            assert reader.read_all().num_rows == 1
    del reader, unread
    deadline = time.monotonic() + 20
    while quota.measure("alice"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
