"""The actions of Flight SQL: what clients do besides asking and fetching. None of them charges anything."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.flight as fl

from dpsql.errors import Unsupported
from dpsql.server.flight.binding import parameter_schema
from dpsql.server.flight.codec import decode, encode, malformed, pack, unpack
from dpsql.server.flight.commands import Ticket, read_command

if TYPE_CHECKING:
    from dpsql.server.flight.login import Caller, Tokens
    from dpsql.server.flight.statements import Statements

__all__ = ["ACTIONS", "Acts"]

ACTIONS = MappingProxyType(
    {
        "CreatePreparedStatement": "Prepare a statement.",
        "ClosePreparedStatement": "Forget a prepared statement.",
        "BeginTransaction": "Begin a transaction, which only reads.",
        "EndTransaction": "End a transaction.",
        "CancelQuery": "Take tickets back.",
        "CancelFlightInfo": "Take tickets back.",
        "CloseSession": "Forget the token of this call.",
    }
)
_CANCELLED, _NOT_CANCELLABLE, _CLOSED = 1, 3, 1
_TRANSACTION = b"read-only"  # nothing is written, so that all transactions are one


class Acts:
    """Handler of the actions of Flight SQL."""

    def __init__(self, statements: Statements, tokens: Tokens) -> None:
        self._statements = statements
        self._tokens = tokens

    def act(self, caller: Caller, kind: str, *, body: bytes) -> list[fl.Result]:
        """Return the results of an action. Raises `UsageError` for one that there is not."""
        match kind:
            case "CreatePreparedStatement":
                return [_result(self._create(caller, _request(kind, body).query))]
            case "ClosePreparedStatement":
                self._statements.close(caller.user, _request(kind, body).prepared_statement_handle)
                return []
            case "BeginTransaction":
                _request(kind, body)
                return [_result(pack("ActionBeginTransactionResult", transaction_id=_TRANSACTION))]
            case "EndTransaction":
                if _request(kind, body).transaction_id != _TRANSACTION:
                    raise malformed()
                return []
            case "CancelQuery":
                status = self._cancel(caller, _request(kind, body).info)
                return [_result(pack("ActionCancelQueryResult", result=status))]
            case "CancelFlightInfo":
                status = self._cancel(caller, decode("CancelFlightInfoRequest", body).info)
                return [_result(encode("CancelFlightInfoResult", status=status))]
            case "CloseSession":
                self._tokens.take_back(caller.user.name, caller.token)
                return [_result(encode("CloseSessionResult", status=_CLOSED))]
        if kind in {"BeginSavepoint", "EndSavepoint", "CreatePreparedSubstraitPlan"}:
            raise Unsupported("flight-action", "Flight SQL has this, and dpsql not.", hint="Ask with SELECT.")
        raise malformed()

    def _create(self, caller: Caller, text: str) -> bytes:
        handle, prepared = self._statements.prepare(caller.user, text, implicit=caller.implicit)
        columns = prepared.schema.serialize().to_pybytes()
        parameters = parameter_schema(prepared.types).serialize().to_pybytes()
        return pack(
            "ActionCreatePreparedStatementResult",
            prepared_statement_handle=handle,
            dataset_schema=columns,
            parameter_schema=parameters,
        )

    def _cancel(self, caller: Caller, message: bytes) -> int:
        """Take back every ticket of a FlightInfo; what runs already goes on, is charged and is stored."""
        tickets = _read_tickets(message)
        if not tickets:
            raise malformed()
        commands = [read_command(ticket) for ticket in tickets]
        handles = [command.handle for command in commands if isinstance(command, Ticket)]
        dropped = [self._statements.cancelled(caller.user, handle) for handle in handles]
        return _CANCELLED if all(dropped) else _NOT_CANCELLABLE


def _request(kind: str, body: bytes) -> Any:  # noqa: ANN401 - its attributes are the fields of the kind
    """Return the message of an action."""
    named, content = unpack(body)
    if named != f"Action{kind}Request":
        raise malformed()
    return decode(named, content)


def _read_tickets(message: bytes) -> list[bytes]:
    """Return the tickets of a FlightInfo; raise `UsageError` for other bytes."""
    try:
        return [endpoint.ticket.ticket for endpoint in fl.FlightInfo.deserialize(message).endpoints]
    except (pa.ArrowException, ValueError):
        pass
    raise malformed()


def _result(body: bytes) -> fl.Result:
    return fl.Result(pa.py_buffer(body))
