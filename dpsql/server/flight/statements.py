"""The statements of clients: described at no cost, answered once for each ticket, prepared and bound."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpsql.answer_json import encode_notes
from dpsql.errors import Refusal
from dpsql.server.flight.login import SURFACE
from dpsql.server.flight.ticket_store import TicketStore

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsql.answer import Answer
    from dpsql.engines.base import Stop
    from dpsql.server.gateway import Gateway
    from dpsql.server.users import User

__all__ = ["Ask", "PreparedStatement", "Statements"]

RECEIPT = b"dpsql.receipt"
_HOUR = 3600.0
_MOST_TICKETS, _MOST_PREPARED = 100, 100  # of one user
_LARGEST_KEPT = 256 * 1024  # bytes of an answer that stays with its ticket


@dataclass(slots=True)
class Ask:
    """Statement and parameters of a ticket and, once it has run, its answer."""

    text: str
    parameters: tuple[object, ...]
    implicit: bool | None = None
    turn: threading.Lock = field(default_factory=threading.Lock)
    answer: pa.Table | None = None
    is_running: bool = False
    is_over: bool = False


@dataclass(slots=True)
class PreparedStatement:
    """A statement that was prepared, the types of its parameters, its columns, and what is bound now."""

    text: str
    types: tuple[str, ...]
    schema: pa.Schema
    bound: tuple[object, ...] = ()
    implicit: bool | None = None


class Statements:
    """Statements and prepared statements of clients; threads may share it."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._tickets: TicketStore[Ask] = TicketStore(most=_MOST_TICKETS, seconds=_HOUR)
        self._prepared: TicketStore[PreparedStatement] = TicketStore(most=_MOST_PREPARED, seconds=12 * _HOUR)

    def described(
        self, user: User, text: str, *, parameters: tuple[object, ...] = (), implicit: bool | None = None
    ) -> pa.Schema:
        """Return the columns of an answer; nothing is charged."""
        gateway = self._gateway.with_implicit(implicit)
        return gateway.describe(SURFACE, user, text=text, parameters=parameters)

    def ticket(
        self, user: User, text: str, *, parameters: tuple[object, ...] = (), implicit: bool | None = None
    ) -> bytes:
        """Return the handle by which this user gets the answer to a statement that was described."""
        return self._tickets.put(user.name, Ask(text, parameters, implicit))

    def answered(self, user: User, handle: bytes, *, stop: Stop) -> pa.Table:
        """Return the answer of a ticket: the same one every time it is fetched, charged at most once.

        A released answer stays with the ticket, so that a client that fetches an answer of WITH (fresh = true) again is
        not charged again. An answer that is too large for that can be fetched once. A statement without private rows
        is computed again. The schema has the receipt as JSON under "dpsql.receipt".
        """
        asked = self._tickets.get(user.name, handle)
        if asked is None:
            raise _unknown("ticket")
        with asked.turn:
            if asked.is_over:
                raise _unknown("ticket")
            if asked.answer is not None:
                return asked.answer
            asked.is_running = True
            try:
                gateway = self._gateway.with_implicit(asked.implicit)
                answer = gateway.ask(SURFACE, user, text=asked.text, parameters=asked.parameters, stop=stop)
            finally:
                asked.is_running = False
            table = _with_receipt(answer)
            if answer.receipt.epsilon is not None:
                asked.is_over = table.nbytes > _LARGEST_KEPT
                asked.answer = None if asked.is_over else table
            return table

    def cancelled(self, user: User, handle: bytes) -> bool:
        """Take a ticket back, and return whether that was before its statement began; one that runs goes on.

        It is settled and stored then, and asking the same again costs nothing.
        """
        asked = self._tickets.get(user.name, handle)
        if asked is None or asked.is_running:
            return False
        return self._tickets.drop(user.name, handle)

    def prepare(self, user: User, text: str, *, implicit: bool | None = None) -> tuple[bytes, PreparedStatement]:
        """Return the handle of a statement, and what is known of it before anything is bound; nothing is charged."""
        found = self._gateway.with_implicit(implicit).prepare(SURFACE, user, text=text)
        prepared = PreparedStatement(text, found.parameters, found.schema, implicit=implicit)
        return self._prepared.put(user.name, prepared), prepared

    def prepared(self, user: User, handle: bytes) -> PreparedStatement:
        """Return a statement that this user has prepared."""
        found = self._prepared.get(user.name, handle)
        if found is None:
            raise _unknown("prepared statement")
        return found

    def close(self, user: User, handle: bytes) -> None:
        """Forget a prepared statement, if there is one."""
        self._prepared.drop(user.name, handle)


def _with_receipt(answer: Answer) -> pa.Table:
    table = answer.arrow()
    receipt = json.dumps(encode_notes(answer))
    told = {**(table.schema.metadata or {}), RECEIPT: receipt.encode()}
    return table.replace_schema_metadata(told)


def _unknown(what: str) -> Refusal:
    hint = "It is yours alone, and for a time: ask the statement again, which costs nothing where it was answered."
    return Refusal("flight-handle", f"There is no such {what}.", hint=hint)
