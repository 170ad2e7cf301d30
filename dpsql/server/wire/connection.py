"""One client's conversation after the login: messages in, in their order, and what each is answered with.

An error ends a batch: in the extended protocol everything up to the next Sync is passed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from dpsql.errors import Error
from dpsql.server.wire import codec
from dpsql.server.wire.codec import Malformed, message, parameter_description, row, row_description, texts
from dpsql.server.wire.copy_out import copied, copy_header
from dpsql.server.wire.execution import Execution
from dpsql.server.wire.lexer import StatementText
from dpsql.server.wire.portals import CommandComplete, CopyOutput, Outcome, Portal, Prepared, RowSet, stated
from dpsql.server.wire.query_router import Bound
from dpsql.server.wire.row_sets import each_format
from dpsql.server.wire.sqlstates import WireError, error_message, failure_of
from dpsql.server.wire.stream import Channel, ClientDisconnected, Limits
from dpsql.server.wire.transaction import OWN

__all__ = ["Conversation"]


class Conversation:
    """What is said with one client; `stop` ends it between two messages, `give_up` the statement that runs."""

    def __init__(self, channel: Channel, execution: Execution, *, limits: Limits, told: dict[str, str]) -> None:
        """`told` are the settings that the client was told, by their names."""
        self._channel, self._execution, self._limits, self._told = channel, execution, limits, told
        self._skipping = self._stopping = False
        self._listening: asyncio.Task[codec.Message] | None = None

    def give_up(self) -> None:
        """Leave the statement that runs, if one does; it goes on in its thread and is stored."""
        if self._listening is None and not self._execution.given_up.done():
            self._execution.given_up.set_result(None)

    def stop(self) -> None:
        """Hang up as soon as the message that is being answered has been."""
        self._stopping = True
        if self._listening is not None:
            self._listening.cancel()

    async def hold(self) -> None:
        """Answer until the client leaves or must be left; raises `ClientDisconnected`, or a fatal `WireError`."""
        self._ready()
        await self._channel.flush()
        while True:
            try:
                said = await self._listen()
            except Malformed as error:
                if not self._skipping:
                    await self._failed(failure_of(error), is_simple=error.is_simple)
                continue
            if isinstance(said, codec.Terminate):
                return
            if not self._skipping or isinstance(said, codec.Sync):
                self._execution.given_up = asyncio.get_running_loop().create_future()
                await self._answer(said)
            if self._channel.is_full:
                await self._channel.flush()

    async def _listen(self) -> codec.Message:
        if self._stopping:
            raise _stopped()
        self._listening = asyncio.ensure_future(self._channel.receive(most=self._limits.message))
        try:
            async with asyncio.timeout(self._limits.idle_seconds):
                return await self._listening
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if not self._stopping:
                raise
            raise _stopped() from None
        finally:
            self._listening = None
        raise WireError("57P05", "Nothing was asked for a long time.", hint="Connect again.", fatal=True)

    async def _answer(self, said: codec.Message) -> None:
        is_simple = isinstance(said, codec.Query | codec.FunctionCall)
        try:
            match said:
                case codec.Query(text=text):
                    await self._simple(text)
                case codec.Sync():
                    await self._sync()
                case codec.Flush():
                    await self._channel.flush()
                case codec.CopyIn():
                    pass  # what a client sends after COPY has failed
                case _:
                    await self._extended(said)
        except ClientDisconnected:
            raise
        except Exception as error:
            failure = failure_of(error)
            if failure.fatal:
                raise
            if not isinstance(error, WireError | Malformed | Error):
                self._execution.tell_fault(error)
            await self._failed(failure, is_simple=is_simple)

    async def _failed(self, failure: WireError, *, is_simple: bool) -> None:
        execution = self._execution
        self._channel.send(*self._notices(), error_message(failure))
        execution.transaction.fail()
        if execution.transaction.status == "I":
            execution.shelf.end_block(succeeds=False)
        self._skipping = not is_simple
        if is_simple:
            self._ready()
        await self._channel.flush()  # of a client that waits for an answer before it sends Sync, too

    def _notices(self) -> list[bytes]:
        """Return what is to be told before anything else: notices, and settings that have changed."""
        notices, self._execution.notices = self._execution.notices, []
        settings = self._execution.transaction.now
        for name, told in self._told.items():
            if name.lower() not in OWN and settings.get(name.lower()) != told:
                self._told[name] = settings.get(name.lower())
                notices.append(texts(b"S", name, self._told[name]))
        return notices

    def _ready(self) -> None:
        status = self._execution.transaction.status.encode()
        self._channel.send(*self._notices(), message(b"Z", status))

    async def _sync(self) -> None:
        self._skipping = False
        self._end_batch()
        self._ready()
        await self._channel.flush()

    def _end_batch(self) -> None:
        execution = self._execution
        if execution.transaction.status == "I":
            execution.transaction.commit()
            execution.shelf.end_block(succeeds=True)

    async def _simple(self, text: str) -> None:
        """Answer a text of statements, in their order, up to the first that fails."""
        shelf = self._execution.shelf
        shelf.statements.pop("", None)
        shelf.portals.pop("", None)
        asked = [stated(piece) for piece in await self._execution.pieces(text)]
        for statement in asked:
            if self._stopping:
                raise _stopped()
            portal = Portal(Prepared(statement), role=self._execution.role)
            outcome = await self._execution.run(portal)
            self._channel.send(*self._notices())
            start = 0
            if isinstance(outcome, RowSet):
                columns, start = outcome.rows.columns, outcome.start
                self._channel.send(row_description(columns, [0] * len(columns)))
            await self._send(outcome, most=0, position=start, formats=())
        if not asked:
            self._channel.send(message(b"I"))
        self._end_batch()
        self._ready()
        await self._channel.flush()

    async def _extended(self, said: codec.Message) -> None:
        match said:
            case codec.Parse():
                await self._parse(said)
            case codec.Bind():
                await self._bind(said)
            case codec.Describe(kind="S", name=name):
                await self._describe_statement(name)
            case codec.Describe(name=name):
                await self._describe_portal(name)
            case codec.Execute(portal=name, most=most):
                await self._execute(name, most)
            case codec.Close(kind=kind, name=name):
                shelf = self._execution.shelf
                (shelf.statements if kind == "S" else shelf.portals).pop(name, None)
                self._channel.send(message(b"3"))
            case codec.FunctionCall():
                raise WireError("0A000", "Functions are not called by their number here.", hint="Use SELECT.")
            case codec.Password():
                raise WireError("08P01", "The login is over.", fatal=True)

    async def _parse(self, said: codec.Parse) -> None:
        listed = await self._execution.pieces(said.text)
        if len(listed) > 1:
            raise WireError("42601", "Several statements cannot be prepared as one.", hint="Send them one by one.")
        statement = stated(listed[0] if listed else StatementText("", 0))
        self._execution.check_may_run(statement)
        self._execution.shelf.prepare(said.name, Prepared(statement, said.types))
        self._channel.send(message(b"1"))

    async def _bind(self, said: codec.Bind) -> None:
        execution = self._execution
        prepared = execution.shelf.statement(said.statement)
        execution.check_may_run(prepared.stated)
        each_format(said.formats, len(said.values))
        if said.values or prepared.types:
            wanted = len((await execution.describe(prepared)).parameters)
            if wanted != len(said.values):
                raise Malformed(f"The statement has {wanted} parameters, and {len(said.values)} values were bound.")
        types = prepared.types if prepared.shape is None else prepared.shape.parameters
        portal = Portal(prepared, Bound(said.values, said.formats, types), said.results, role=execution.role)
        execution.shelf.open(said.portal, portal)
        self._channel.send(message(b"2"))

    async def _describe_statement(self, name: str) -> None:
        shape = await self._execution.describe(self._execution.shelf.statement(name))
        columns = shape.columns
        self._channel.send(parameter_description(shape.parameters))
        self._channel.send(message(b"n") if columns is None else row_description(columns, [0] * len(columns)))

    async def _describe_portal(self, name: str) -> None:
        portal = self._execution.shelf.portal(name)
        columns = await self._execution.columns(portal)
        if columns is None:
            self._channel.send(message(b"n"))
        else:
            self._channel.send(row_description(columns, each_format(portal.formats, len(columns))))

    async def _execute(self, name: str, most: int) -> None:
        portal = self._execution.shelf.portal(name)
        if portal.prepared.stated.is_empty:
            self._channel.send(message(b"I"))
            return
        if portal.outcome is None:
            portal.outcome = await self._execution.run(portal)
            if isinstance(portal.outcome, RowSet):
                portal.position = portal.outcome.start
        elif not isinstance(portal.outcome, RowSet):
            raise WireError("55000", "This statement has run.", hint="Bind it again.")
        self._channel.send(*self._notices())
        outcome = portal.outcome
        if isinstance(outcome, RowSet) and portal.columns is not None and portal.columns != outcome.rows.columns:
            raise WireError("0A000", "The columns are others than were described.", hint="Prepare it again.")
        start = portal.position
        if isinstance(outcome, RowSet):
            portal.position = min(outcome.stop, start + most) if most else outcome.stop
        await self._send(outcome, most=most, position=start, formats=portal.formats)

    async def _send(self, outcome: Outcome, *, most: int, position: int, formats: tuple[int, ...]) -> None:
        """Send rows from a position on, at most so many, and what follows them."""
        match outcome:
            case CommandComplete(tag=tag):
                self._channel.send(texts(b"C", tag))
            case CopyOutput(rows=rows, layout=layout):
                columns = rows.columns
                self._channel.send(copy_header(layout, len(columns)))
                found = rows.read(0, len(rows), formats=(layout.code,) * len(columns))
                await self._stream(copied(found, columns, layout=layout))
                self._channel.send(message(b"c"), texts(b"C", f"COPY {len(rows)}"))
            case RowSet(rows=rows):
                stop = min(outcome.stop, position + most) if most else outcome.stop
                codes = each_format(formats, len(rows.columns))
                await self._stream(map(row, rows.read(position, stop, formats=codes)))
                tag = outcome.word if outcome.word == "SHOW" else f"{outcome.word} {stop - position}"
                self._channel.send(message(b"s") if stop < outcome.stop else texts(b"C", tag))

    async def _stream(self, messages: Iterable[bytes]) -> None:
        """Send as the client reads; other clients are served between."""
        for one in messages:
            self._channel.send(one)
            if self._channel.is_full:
                await self._channel.flush()
                await asyncio.sleep(0)
                if self._execution.given_up.done():
                    raise WireError("57014", "The statement was cancelled.", hint="Asking again replays it.")


def _stopped() -> WireError:
    return WireError("57P01", "The server is stopping.", hint="Connect again when it is back.", fatal=True)
