"""Statements carried out for one connection: its own commands here, questions by `asking`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from dpsql.errors import Error
from dpsql.server.wire import commands
from dpsql.server.wire.codec import Column
from dpsql.server.wire.command_parser import command_of
from dpsql.server.wire.copy_out import layout_of
from dpsql.server.wire.lexer import StatementText
from dpsql.server.wire.portals import (
    CommandComplete,
    ConnectionObjects,
    CopyOutput,
    Outcome,
    ParsedStatement,
    Portal,
    Prepared,
    RowQuota,
    RowSet,
)
from dpsql.server.wire.query_router import Bound, QueryRouter, RequestContext, Shape
from dpsql.server.wire.row_sets import ArrowRows, Rows, fitted
from dpsql.server.wire.sqlstates import WireError, failure_of, notice, where
from dpsql.server.wire.startup import SURFACE
from dpsql.server.wire.transaction import Settings, Transaction, known, version_of
from dpsql.server.wire.types import columns_of

if TYPE_CHECKING:
    from dpsql.server.gateway import Gateway

__all__ = ["Execution"]

_QUIET = frozenset(["warning", "error", "log"])  # levels of client_min_messages under which no notice is wanted
_UNLOCKED = pa.table({"pg_advisory_unlock_all": [""]})
_SHOWN = pa.schema([("name", pa.string()), ("setting", pa.string()), ("description", pa.string())])


class Execution:
    """One connection's transaction, cursors and questions; `notices` are for the client, before what comes next."""

    def __init__(self, front: Gateway, asker: QueryRouter, *, transaction: Transaction, room: RowQuota) -> None:
        self._front, self._asker, self._room = front, asker, room
        self.transaction = transaction
        self.shelf = ConnectionObjects()
        self.notices: list[bytes] = []
        self.given_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._receipt = ""
        self._begun_as = ""

    def check_may_run(self, statement: ParsedStatement) -> None:
        """Raise `WireError` for a statement that a failed transaction does not take."""
        if self.transaction.status == "E" and not isinstance(statement.command, commands.Commit | commands.Rollback):
            raise WireError("25P02", "The transaction has failed; nothing is done until it ends.", hint="ROLLBACK.")

    async def pieces(self, text: str) -> list[StatementText]:
        """Return the statements of a text; raises `WireError`."""
        return await self._asker.pieces(text, asking=self._asking)

    def tell_fault(self, error: Exception) -> None:
        """Log that something went wrong which nobody foresaw; of its words, which could hold anything, nothing."""
        self._front.watch.log("fault", surface=SURFACE, kind=type(error).__name__, where=where(error))

    async def describe(self, prepared: Prepared) -> Shape:
        """Return what a statement takes and gives; free."""
        self.check_may_run(prepared.stated)
        if prepared.shape is None or isinstance(prepared.stated.command, commands.Fetch):
            prepared.shape = await self._shape(prepared.stated, prepared.types)
        return prepared.shape

    async def _shape(self, statement: ParsedStatement, types: tuple[int, ...]) -> Shape:
        match statement.command:
            case None if statement.is_empty:
                return Shape()
            case None:
                return await self._asker.describe(statement.piece, types, asking=self._asking)
            case commands.Fetch(name=name, move=False):
                return Shape((), await self._columns(self._cursor(name)))
            case commands.Show(name=name):
                return Shape((), (await self._show(name)).columns)
            case commands.Unlock():
                return Shape((), columns_of(_UNLOCKED.schema))
            case commands.Declare(start=start):
                shape = await self._asker.describe(_inner(statement, start), types, asking=self._asking)
                return replace(shape, columns=None, schema=None)
        return Shape()

    async def _columns(self, portal: Portal) -> tuple[Column, ...] | None:
        if portal.columns is None:
            portal.columns = (await self.describe(portal.prepared)).columns
        return portal.columns

    async def columns(self, portal: Portal) -> tuple[Column, ...] | None:
        """Return the columns of a portal, or None where it gives no rows; free."""
        return await self._columns(portal)

    async def run(self, portal: Portal) -> Outcome:
        """Carry a statement out; raises `WireError`, with nothing of any row in it."""
        statement = portal.prepared.stated
        self.check_may_run(statement)
        if statement.command is None:
            shape = portal.prepared.shape
            rows = await self._ask(statement.piece, portal.bound, role=portal.role, formats=portal.formats)
            rows = self._room.keep(fitted(rows, None if shape is None else shape.schema), self._asker.user.name)
            return RowSet(rows, 0, len(rows))
        return await self._carried_out(statement.command, portal)

    async def _ask(self, piece: StatementText, bound: Bound, *, role: str, formats: tuple[int, ...]) -> Rows:
        self.shelf.check_room()
        self._room.check(self._asker.user.name)
        asking = replace(self._asking, role=role)
        answered = await self._asker.ask(piece, bound, formats=formats, asking=asking)
        if answered.receipt:
            self._receipt = answered.receipt
            if self.transaction.now.get("client_min_messages").lower() not in _QUIET:
                self.notices.append(notice(answered.receipt))
        return answered.rows

    @property
    def role(self) -> str:
        """For whom is asked now; empty for the user itself."""
        return self.transaction.now.role

    @property
    def _asking(self) -> RequestContext:
        settings = self.transaction.now
        return RequestContext(self.given_up, settings.role, settings.seconds)

    async def _carried_out(self, command: commands.Command, portal: Portal) -> Outcome:
        match command:
            case commands.Declare():
                return await self._declare(command, portal)
            case commands.Fetch():
                return await self._fetch(command, portal.formats)
            case commands.CopyOut():
                return await self._copy(command, portal.prepared.stated)
            case commands.Show(name=name):
                rows = await self._show(name)
                return RowSet(rows, 0, len(rows), "SHOW")
            case commands.Unlock():
                return RowSet(ArrowRows(_UNLOCKED), 0, 1)
            case commands.Set() | commands.Reset():
                return self._set(command)
            case commands.CloseCursor() | commands.Deallocate() | commands.Discard() | commands.Unlisten():
                return self._forget(command)
        return self._block(command)

    async def _declare(self, command: commands.Declare, portal: Portal) -> Outcome:
        """Open a cursor; it is asked when it is first fetched from."""
        if not command.hold and self.transaction.status == "I":
            hint = "BEGIN first, or declare it WITH HOLD."
            raise WireError("25P01", "DECLARE CURSOR is for transaction blocks.", hint=hint)
        piece = _inner(portal.prepared.stated, command.start)
        if command_of(piece.text) is not None:
            raise WireError("42601", "A cursor is for a SELECT.", hint="DECLARE c CURSOR FOR SELECT ...")
        prepared = Prepared(ParsedStatement(piece, None), portal.prepared.types)
        await self.describe(prepared)
        self.shelf.open(command.name, Portal(prepared, portal.bound, role=portal.role, held=command.hold))
        return CommandComplete("DECLARE CURSOR")

    async def _fetch(self, command: commands.Fetch, formats: tuple[int, ...]) -> Outcome:
        cursor = self._cursor(command.name)
        if cursor.outcome is None:
            cursor.formats = formats
            cursor.outcome = await self.run(cursor)
        if not isinstance(cursor.outcome, RowSet):
            raise WireError("55000", "This cursor gives no rows.", hint="DECLARE c CURSOR FOR SELECT ...")
        rows, start = cursor.outcome.rows, cursor.position
        count = len(rows) if command.count is None else command.count
        if command.absolute:
            start, count = (count - 1 if count > 0 else len(rows) + count if count else -1), 1
        elif not count:
            start, count = start - 1, 1
        stop = min(max(start + count, 0), len(rows))
        start = min(max(start, 0), stop)
        cursor.position = stop
        if command.move:
            return CommandComplete(f"MOVE {stop - start}")
        return RowSet(rows, start, stop, "FETCH")

    def _cursor(self, name: str) -> Portal:
        """Return a portal that can be fetched from, as one that fetches from a portal itself cannot."""
        found = self.shelf.portal(name)
        if found.prepared.stated.command is not None:
            raise WireError("34000", "This cursor gives no rows.", hint="DECLARE c CURSOR FOR SELECT ...")
        return found

    async def _copy(self, command: commands.CopyOut, statement: ParsedStatement) -> Outcome:
        layout = layout_of(command.options)
        piece = _inner(statement, command.start, stop=command.stop)
        if command.relation:
            piece = StatementText(f"SELECT * FROM {command.relation}", 0)  # noqa: S608 - the language reads it
        if command_of(piece.text) is not None:
            raise WireError("42601", "Only a SELECT can be copied.", hint="COPY (SELECT ...) TO STDOUT.")
        rows = await self._ask(piece, Bound(), role=self.role, formats=(layout.code,))
        return CopyOutput(self._room.keep(rows, self._asker.user.name), layout)

    async def _show(self, name: str) -> Rows:
        """Return a setting; one that is nobody's here is the catalog's, if it has it."""
        try:
            return ArrowRows(self._shown(name))
        except WireError as error:
            unknown = error
        if not name.isidentifier():
            raise unknown
        return (await self._asker.look_up(StatementText(f"SHOW {name}", 0), asking=self._asking)).rows

    def _shown(self, name: str) -> pa.Table:
        if name == "all":
            listed = sorted((one, self._setting(one)) for one in {*known(), *self.transaction.now.values})
            rows = [{"name": one, "setting": value, "description": ""} for one, value in listed]
            return pa.Table.from_pylist(rows, schema=_SHOWN)
        return pa.table({name: pa.array([self._setting(name)], pa.string())})

    def _setting(self, name: str) -> str:
        match name:
            case "dpsql.receipt":
                return self._receipt
            case "role":
                return self.transaction.now.role or "none"
            case "session_authorization":
                return self._asker.user.name
            case "server_version":
                return version_of(self._asker.version)
            case "server_version_num":
                major, _, minor = self._asker.version.partition(".")
                return str(int(major) * 10_000 + int(minor))
        return self.transaction.now.get(name)

    def _set(self, command: commands.Set | commands.Reset) -> Outcome:
        value = command.value if isinstance(command, commands.Set) else None
        local = isinstance(command, commands.Set) and command.local
        if local and self.transaction.status == "I":
            self._warn("25P01", "SET LOCAL is for transaction blocks.")
        if command.name == "role":
            self.set_role(value, local=local)
        elif command.name != "transaction":
            self.transaction.change(_changing(command.name, value), local=local)
        return CommandComplete("SET" if isinstance(command, commands.Set) else "RESET")

    def begin_as(self, role: str) -> None:
        """Ask for an analyst as long as the connection lasts; raises `WireError`.

        A tool that says for whom it connects may let that person write statements, who could else become another.
        """
        self._become(role, local=False)
        self._begun_as = self.role

    def set_role(self, name: str | None, *, local: bool = False) -> None:
        """Ask for another analyst from here on, as a service account may; raises `WireError`."""
        role = self._begun_as if name is None else "" if name.lower() == "none" else name
        if self._begun_as and role != self._begun_as:
            hint = "Connect anew, with the role of another analyst or with none."
            raise WireError("42501", "This connection asks for the analyst that it began with.", hint=hint)
        self._become(role, local=local)

    def _become(self, role: str, *, local: bool) -> None:
        try:
            role = role and self._front.acting(self._asker.user, role)
        except Error as error:
            failure = failure_of(error)
        else:
            self.transaction.change(lambda settings: replace(settings, role=role), local=local)
            return
        raise failure

    def _forget(self, command: commands.Command) -> Outcome:
        shelf = self.shelf
        match command:
            case commands.CloseCursor(name=name):
                if name:
                    shelf.portal(name)
                shelf.portals = {one: kept for one, kept in shelf.portals.items() if name and one != name}
                return CommandComplete("CLOSE CURSOR" if name else "CLOSE CURSOR ALL")
            case commands.Deallocate(name=name):
                if name:
                    shelf.statement(name)
                shelf.statements = {one: kept for one, kept in shelf.statements.items() if name and one != name}
                return CommandComplete("DEALLOCATE" if name else "DEALLOCATE ALL")
            case commands.Discard(what="ALL"):
                if self.transaction.status != "I":
                    raise WireError("25001", "DISCARD ALL is not for transaction blocks.", hint="COMMIT first.")
                shelf.statements, shelf.portals, self._receipt = {}, {}, ""
                self.transaction.change(lambda settings: replace(settings, values={}, role=self._begun_as))
                return CommandComplete("DISCARD ALL")
            case commands.Discard(what=what):
                return CommandComplete(f"DISCARD {what}")
        return CommandComplete("UNLISTEN")

    def _block(self, command: commands.Command) -> Outcome:
        transaction = self.transaction
        match command:
            case commands.Begin(tag=tag):
                if transaction.status == "T":
                    self._warn("25001", "There is a transaction already.")
                else:
                    transaction.begin()
                return CommandComplete(tag)
            case commands.Commit(chain=chain):
                return self._end(succeeds=transaction.status != "E", chain=chain)
            case commands.Rollback(savepoint="", chain=chain):
                return self._end(succeeds=False, chain=chain)
            case commands.Rollback(savepoint=name):
                transaction.back_to(name)
                return CommandComplete("ROLLBACK")
            case commands.Savepoint(name=name):
                transaction.savepoint(name)
                return CommandComplete("SAVEPOINT")
            case commands.Release(name=name):
                transaction.release(name)
                return CommandComplete("RELEASE")
        raise WireError("0A000", "This statement is not read.")

    def _end(self, *, succeeds: bool, chain: bool) -> Outcome:
        if self.transaction.status == "I":
            if chain:
                raise WireError("25P01", "AND CHAIN is for transaction blocks.", hint="BEGIN first.")
            self._warn("25P01", "There is no transaction.")
        self.shelf.end_block(succeeds=succeeds)
        if succeeds:
            self.transaction.commit()
        else:
            self.transaction.rollback()
        if chain:
            self.transaction.begin()
        return CommandComplete("COMMIT" if succeeds else "ROLLBACK")

    def _warn(self, sqlstate: str, text: str) -> None:
        self.notices.append(notice(text, sqlstate=sqlstate, severity="WARNING"))


def _changing(name: str, value: str | None) -> Callable[[Settings], Settings]:
    return lambda settings: settings.without(name) if value is None else settings.having(name, value)


def _inner(statement: ParsedStatement, start: int, *, stop: int | None = None) -> StatementText:
    """Return the question inside a statement."""
    return StatementText(statement.piece.text[start:stop], statement.piece.before + start)
