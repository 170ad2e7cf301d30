"""The server of Arrow Flight SQL: every call is a user's, and only fetching an answer may charge.

Clients ask for a statement in three calls or more: GetFlightInfo or CreatePreparedStatement, perhaps DoPut of its
parameters, and DoGet of a ticket. All but the last describe the statement, which is free. What a client hangs up on
while it runs is settled and stored, and asking it again is a replay.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa
import pyarrow.flight as fl

from dpsql.errors import Refusal
from dpsql.server.flight.actions import ACTIONS, Acts
from dpsql.server.flight.binding import read_parameters
from dpsql.server.flight.codec import malformed
from dpsql.server.flight.commands import (
    Command,
    Prepared,
    ServerInfo,
    Statement,
    Ticket,
    TypeInfo,
    read_command,
    read_ticket,
)
from dpsql.server.flight.failures import cleanly, unprintably
from dpsql.server.flight.info import SERVER_INFO, TYPE_INFO, server_info, type_info
from dpsql.server.flight.login import SURFACE, Caller, Calls, Doors, Login, Tokens
from dpsql.server.flight.statements import Statements
from dpsql.server.flight.table_listing import list_tables, read_schema
from dpsql.server.memory_quota import Holding, unread_quota

if TYPE_CHECKING:
    from dpsql.server.gateway import Gateway
    from dpsql.server.users import User

__all__ = ["FlightSQLServer"]

_LARGEST_BATCH = 4 << 20  # bytes: clients of gRPC read messages of some megabytes
_UNKNOWN = -1  # the number of rows and bytes of an answer is unknown before it exists


class _Anybody(fl.ServerAuthHandler):  # type: ignore[misc]  # pyarrow has no types
    """Lets the handshake through to `Login`, which is who decides."""

    def authenticate(self, *_: object) -> None:
        """Do nothing: name and password stand in a header."""

    def is_valid(self, *_: object) -> bytes:
        """Return no name: who calls is known by another token."""
        return b""


class FlightSQLServer(fl.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Flight SQL server on one address, from its creation until `shutdown`.

    `location` is its address in pyarrow's notation. `serve_flight` puts a guard in front of it; calls that do not come
    through one of its `doors` are refused.
    """

    def __init__(self, gateway: Gateway, location: str, *, doors: Doors) -> None:
        tokens, self.calls = Tokens(gateway), Calls()
        self._gateway = gateway
        self._unread = unread_quota()
        self._statements = Statements(gateway)
        self._acts = Acts(self._statements, tokens)
        self._login = Login(gateway, tokens, doors=doors, calls=self.calls)
        super().__init__(location, auth_handler=_Anybody(), middleware={"login": self._login})

    def forget(self) -> None:
        """Drop the references to the gateway; pyarrow holds this object until the process ends."""
        for name in ("_gateway", "_statements", "_acts"):
            self.__dict__.pop(name, None)  # again is no harm
        self._login.__dict__.clear()

    @cleanly
    def get_flight_info(self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor) -> fl.FlightInfo:
        """Return the columns of an answer and a ticket for it; nothing is charged."""
        caller, command = _caller(context), _command(descriptor)
        user, ticket = caller.user, bytes(descriptor.command)
        if isinstance(command, Prepared):
            found = self._statements.prepared(user, command.handle)
            text, bound, implicit = found.text, found.bound, found.implicit
            schema = self._statements.described(user, text, parameters=bound, implicit=implicit)
            ticket = read_ticket(self._statements.ticket(user, text, parameters=bound, implicit=implicit))
        else:
            schema = self._columns(caller, command)
            if isinstance(command, Statement):
                ticket = read_ticket(self._statements.ticket(user, command.text, implicit=caller.implicit))
        endpoint = fl.FlightEndpoint(fl.Ticket(ticket), [])
        return fl.FlightInfo(schema, descriptor, [endpoint], _UNKNOWN, _UNKNOWN)

    @unprintably
    def get_schema(self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor) -> fl.SchemaResult:
        """Return the columns of an answer; nothing is charged."""
        return fl.SchemaResult(self._columns(_caller(context), _command(descriptor)))

    @cleanly
    def do_get(self, context: fl.ServerCallContext, ticket: fl.Ticket) -> fl.RecordBatchStream:
        """Return an answer; a statement that reads private rows is charged here, once for a ticket."""
        user, command = _user(context), read_command(bytes(ticket.ticket))
        match command:
            case Ticket():
                table = self._statements.answered(user, command.handle, stop=context.is_cancelled)
                quota = self._unread.of_user(user.name)
                return _stream(table, quota.hold(table.nbytes, is_forced=quota.has_room))
            case Statement() | Prepared():
                raise malformed()
            case ServerInfo():
                return _stream(server_info(command))
            case TypeInfo():
                return _stream(type_info(command))
            case _:
                return _stream(list_tables(command, self._gateway.look(user, lambda session: session.catalog)))

    @cleanly
    def do_put(self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor, *streams: object) -> None:
        """Bind parameters to a prepared statement; nothing is written, and nothing is charged."""
        user, command = _user(context), _command(descriptor)
        if not isinstance(command, Prepared):
            raise malformed()
        prepared = self._statements.prepared(user, command.handle)
        prepared.bound = read_parameters(streams[0])

    @cleanly
    def do_action(self, context: fl.ServerCallContext, action: fl.Action) -> Iterator[fl.Result]:
        """Prepare or close a statement, take a ticket back, begin or end a transaction; nothing is charged."""
        caller = _caller(context)
        return iter(self._acts.act(caller, action.type, body=action.body.to_pybytes()))

    @cleanly
    def list_actions(self, context: fl.ServerCallContext) -> list[tuple[str, str]]:
        """Return the actions that there are."""
        _user(context)
        return list(ACTIONS.items())

    @cleanly
    def list_flights(self, *_: object) -> NoReturn:
        """Refuse: answers are not listed."""
        raise malformed()

    @cleanly
    def do_exchange(self, *_: object) -> NoReturn:
        """Refuse: Flight SQL has no such call."""
        raise malformed()

    def fault(self, kind: str) -> None:
        """Tell those who run the server that something failed, without its words."""
        self._gateway.telemetry.log("fault", surface=SURFACE, kind=kind)

    def _columns(self, caller: Caller, command: Command) -> pa.Schema:
        match command:
            case Statement():
                return self._statements.described(caller.user, command.text, implicit=caller.implicit)
            case Prepared():
                return self._statements.prepared(caller.user, command.handle).schema
            case ServerInfo():
                return SERVER_INFO
            case TypeInfo():
                return TYPE_INFO
            case Ticket():
                raise malformed()
            case _:
                return read_schema(command)


def _stream(table: pa.Table, holding: Holding | None = None) -> fl.RecordBatchStream:
    """Return a table in batches that clients take; it is counted until the client has taken all, or has left."""
    rows = max(1, table.num_rows * _LARGEST_BATCH // max(1, table.nbytes))

    def batches(counted: Holding | None) -> Iterator[pa.RecordBatch]:
        yield from table.to_batches(max_chunksize=rows)
        del counted  # which a stream that is not read to its end lets go with this frame

    return fl.RecordBatchStream(pa.RecordBatchReader.from_batches(table.schema, batches(holding)))


def _command(descriptor: fl.FlightDescriptor) -> Command:
    if descriptor.descriptor_type != fl.DescriptorType.CMD:
        raise malformed()
    return read_command(bytes(descriptor.command))


def _caller(context: fl.ServerCallContext) -> Caller:
    caller = context.get_middleware("login")
    if not isinstance(caller, Caller):
        raise Refusal("flight-handle", "This call has no login.", hint="Log in first.")
    return caller


def _user(context: fl.ServerCallContext) -> User:
    return _caller(context).user
