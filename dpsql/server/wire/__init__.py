"""Server of PostgreSQL's wire protocol, for BI tools and drivers: connections, and the conversation with each client.

Messages are read by `codec` and carried by `channel`, which also logs users in. `execution` runs statements: commands
of `command_parser` itself, queries through `query_router`. The rows of answers wait in `connection_state` until they
are fetched. A conversation answers messages in order. An error ends a batch: in the extended protocol, all messages up
to the next Sync are skipped.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import ssl
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, cast

from dpsql.errors import Error
from dpsql.server.catalog.system_catalog import CurrentCatalog
from dpsql.server.limits import MemoryQuota, PendingConnections, trim_memory
from dpsql.server.queues import LoopShare
from dpsql.server.telemetry import Telemetry
from dpsql.server.users import draw_bytes
from dpsql.server.wire import codec, commands
from dpsql.server.wire.channel import (
    CancelRequest,
    Channel,
    ClientDisconnected,
    ClientLimits,
    ClientReader,
    Startup,
    login,
    negotiate,
)
from dpsql.server.wire.codec import (
    SURFACE,
    Malformed,
    WireError,
    error_message,
    full_error,
    message,
    row_description,
    text_message,
    to_wire_error,
)
from dpsql.server.wire.command_parser import ParsedStatement, StatementText
from dpsql.server.wire.connection_state import (
    PER_CONNECTION,
    REPORTED,
    BoundValues,
    CommandComplete,
    CopyOutput,
    Outcome,
    Portal,
    PreparedStatement,
    RowSet,
    Settings,
    Transaction,
)
from dpsql.server.wire.execution import Execution
from dpsql.server.wire.query_router import QueryRouter, ThreadRunner
from dpsql.server.wire.rows import EncodedRows, copy_messages, expand_formats

if TYPE_CHECKING:
    from dpsql.server.gateway import Gateway
    from dpsql.server.queues import ProcessorShare
    from dpsql.server.users import User

_LONG_KEY, _SHORT_KEY = 32, 4  # bytes of the key that cancels; long ones since minor version 2
_LONG_KEY_MINOR = 2
DEFAULT_LIMITS = ClientLimits()
_MAX_NUMBER = 2**31 - 1


@dataclass(frozen=True, slots=True)
class _Connection:
    """A conversation, whose it is, and the key that cancels its statements."""

    key: bytes
    owner: tuple[str, str]
    conversation: Conversation


class Wire:
    """Connections of a server, and the threads that they share; `close` ends it."""

    def __init__(
        self,
        gateway: Gateway,
        catalog: CurrentCatalog,
        *,
        tls: ssl.SSLContext | None,
        limits: ClientLimits,
    ) -> None:
        self._gateway, self._catalog, self._tls, self._limits = gateway, catalog, tls, limits
        self._runner = ThreadRunner(limits.threads)
        self._quota = MemoryQuota(limits.held, limits.held_by_user, full=full_error)
        self._connections: dict[int, _Connection] = {}
        self._user_counts = Counter[str]()
        self._pending = PendingConnections(limits.logins)
        self._last_number = 0
        self._is_closing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._trimming: asyncio.Task[None] | None = None

    async def listen(self, address: tuple[str, int]) -> None:
        """Begin to listen; raise `OSError`."""
        loop = asyncio.get_running_loop()

        def protocol() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(ClientReader(), self._accept)

        self._server = await loop.create_server(protocol, *address)
        self._trimming = loop.create_task(trim_memory(self._quota))

    @property
    def port(self) -> int:
        """The port of the first address."""
        return 0 if self._server is None else int(self._server.sockets[0].getsockname()[1])

    async def close(self, seconds: float = 30.0) -> None:
        """Accept no more connections, wait `seconds` for running statements, and close every connection.

        A private statement that still runs then is waited for, though its client is not.
        """
        self._is_closing = True  # also ends connections that were accepted just before
        if self._server is not None:
            self._server.close()
        if self._trimming is not None:
            self._trimming.cancel()
        self._pending.close_all()
        for one in list(self._connections.values()):
            one.conversation.stop()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=seconds)
        for task in set(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=1)
        await self._runner.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection in a task of its own, and send the client the error that ends it, if any."""
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        channel = Channel(reader, writer, limits=self._limits)
        try:
            try:
                if not self._is_closing:
                    await self._serve(channel)
            except ClientDisconnected:
                pass
            except Exception as error:  # noqa: BLE001 - its text could contain values
                if not isinstance(error, WireError | Malformed):
                    self._gateway.telemetry.log_fault(error, surface=SURFACE)
                failure = to_wire_error(error)
                failure.fatal = True
                channel.send(error_message(failure))
            finally:
                await channel.close()
        except asyncio.CancelledError:  # `close` has waited long enough for this client
            writer.transport.abort()

    async def _serve(self, channel: Channel) -> None:
        """Log a client in and count its connection while it lasts, or carry out a request to cancel."""
        pending = self._pending.add(channel.address, channel.abort)
        try:
            async with asyncio.timeout(self._limits.login_seconds):
                async with asyncio.timeout(self._limits.first_seconds):
                    startup = await negotiate(channel, self._tls)
                pending.has_spoken = True
                if isinstance(startup, CancelRequest):
                    connection = self._connections.get(startup.number)
                    if connection is not None and hmac.compare_digest(connection.key, startup.key):
                        connection.conversation.cancel()
                    return
                user = await login(channel, startup, gateway=self._gateway, limits=self._limits)
        except TimeoutError:
            raise WireError("08006", "The login took too long.", hint="Connect again.", fatal=True) from None
        finally:
            self._pending.remove(pending)
        policy = self._gateway.service.policy.server
        if self._user_counts[user.name] >= policy.connections_per_user:
            reason = f"This user has as many connections as are allowed: {policy.connections_per_user}."
            hint = "Close one. The curator may raise connections_per_user in [server] of the policy."
            raise WireError("53300", reason, hint=hint, fatal=True)
        if not self._gateway.enter(SURFACE):
            reason = "The server has as many connections as max_connections allows."
            hint = "Try again later. The curator may raise max_connections in [server] of the policy."
            raise WireError("53300", reason, hint=hint, fatal=True)
        self._user_counts[user.name] += 1
        try:
            await self._converse(channel, startup, user=user)
        finally:
            self._user_counts[user.name] -= 1
            if not self._user_counts[user.name]:
                del self._user_counts[user.name]
            self._gateway.telemetry.count_disconnection(SURFACE)

    async def _converse(self, channel: Channel, startup: Startup, *, user: User) -> None:
        """Begin the session of a user, and answer messages until the connection ends."""
        settings = initial_settings(startup)
        quota = channel.quota = self._quota.of_user(user.name)
        router = QueryRouter(self._gateway, self._catalog, runner=self._runner, user=user, quota=quota)
        transaction = Transaction(replace(settings, role=""), quota)
        owner = (user.name, settings.role)

        def cancel(number: int) -> bool:
            """Cancel what a connection of the same user and role runs; return whether there is such a connection."""
            other = self._connections.get(number)
            if other is None or other.owner != owner:
                return False
            other.conversation.cancel()
            return True

        execution = Execution(self._gateway, router, transaction=transaction, quota=quota, cancel_backend=cancel)
        if settings.role:
            execution.begin_as(settings.role)
        # clients derive features from the version, which is that of the catalog
        own = {"server_version": f"{router.version} (dpsql)", "session_authorization": user.name}
        reported = {name: own[name] if name in PER_CONNECTION else settings.get(name.lower()) for name in REPORTED}
        key = draw_bytes(_LONG_KEY if startup.minor >= _LONG_KEY_MINOR else _SHORT_KEY)
        # Numbers go round from 1 to 2**31 - 1, past those in use.
        number = self._last_number % _MAX_NUMBER + 1
        while number in self._connections:
            number = number % _MAX_NUMBER + 1
        self._last_number = number
        channel.send(*(text_message(b"S", *setting) for setting in reported.items()))
        channel.send(message(b"K", number.to_bytes(4), key))
        conversation = Conversation(
            channel,
            execution,
            limits=self._limits,
            reported=reported,
            telemetry=self._gateway.telemetry,
            share=self._gateway.service.share,
        )
        channel.call_on_end(conversation.cancel)
        self._connections[number] = _Connection(key, owner, conversation)
        try:
            await conversation.run()
        finally:
            conversation.cancel()
            channel.call_on_end(None)  # it would refer to the conversation, and so to all that this holds
            execution.objects.clear()
            del self._connections[number]


async def serve_wire(
    gateway: Gateway,
    address: tuple[str, int],
    *,
    tls: ssl.SSLContext | None,
    catalog: CurrentCatalog,
    limits: ClientLimits = DEFAULT_LIMITS,
) -> Wire:
    """Listen on an address, port 0 for any, and return the server; raise `OSError`."""
    wire = Wire(gateway, catalog, tls=tls, limits=limits)
    await wire.listen(address)
    return wire


_OPTION = re.compile(r"(?:-c\s*|--)(?P<name>[A-Za-z_][\w.-]*)=(?P<value>(?:\\.|[^\s\\])*)\s*")
_NOT_SETTINGS = frozenset(["user", "database", "options", "replication"])


def initial_settings(startup: Startup) -> Settings:
    """Return the settings of a startup, its `options` first; the caller checks the role. Raise `WireError`."""
    requested = list[tuple[str, str]]()
    options, at = startup.parameters.get("options", "").strip(), 0
    while at < len(options):
        found = _OPTION.match(options, at)
        if found is None:
            hint = "Write them as options='-c name=value'."
            raise WireError("08P01", "The options of the connection cannot be parsed.", hint=hint)
        at = found.end()
        requested.append((found["name"].lower().replace("-", "_"), re.sub(r"\\(.)", r"\1", found["value"])))
    for name, value in startup.parameters.items():
        if name not in _NOT_SETTINGS and not name.startswith("_pq_."):
            requested.append((name.lower(), value))
    settings = Settings()
    for name, value in requested:
        settings = replace(settings, role=value) if name == "role" else settings.with_value(name, value)
    return settings


_WITHOUT_COUNT = frozenset(["SHOW", "EXPLAIN"])  # words that are a tag without the number of rows
_FEW_CELLS = 2_000  # of rows that are encoded in the event loop
_BLOCK = 64 * 1024  # bytes that are encoded at a time in a thread


class Conversation:
    """One client's messages and replies; `stop` ends it between two messages, `cancel` the statement that runs.

    `reported` are the settings that were sent to the client, by name. `share` limits the time of the event loop that
    it takes.
    """

    def __init__(
        self,
        channel: Channel,
        execution: Execution,
        *,
        limits: ClientLimits,
        reported: dict[str, str],
        telemetry: Telemetry,
        share: ProcessorShare,
    ) -> None:
        self._channel, self._execution, self._limits = channel, execution, limits
        self._reported, self._telemetry = reported, telemetry
        self._announced: Settings | None = None  # whose values the client knows
        self._is_skipping = self._is_stopping = False
        self._receiving: asyncio.Task[object] | None = None  # the task of this conversation while it waits
        self._loop_share = LoopShare(share)

    def cancel(self) -> None:
        """Cancel the statement that runs, if one does; a private one goes on in its thread and is stored."""
        # Between two messages no statement runs, and a late request must not hit the next one.
        if self._receiving is None and not self._execution.cancelled.done():
            self._execution.cancelled.set_result(None)

    def stop(self) -> None:
        """Close the connection after the reply to the current message."""
        self._is_stopping = True
        if self._receiving is not None:
            self._receiving.cancel()

    async def run(self) -> None:
        """Answer messages until the client leaves; raise `ClientDisconnected`, or a fatal `WireError` to end it."""
        await self._loop_share.measure(self._converse())

    async def _converse(self) -> None:
        self._send_ready()
        await self._channel.flush()
        while True:
            try:
                received = await self._receive()
            except Malformed as error:
                if not self._is_skipping:
                    await self._send_failure(to_wire_error(error), is_simple=error.is_simple)
                continue
            kind = received.kind if isinstance(received, codec.BareMessage) else b""
            if kind == b"X":
                return
            await self._loop_share.give_way(self._execution.analyst)
            # After an error of the extended protocol all messages up to the next Sync (S) are skipped.
            if not self._is_skipping or kind == b"S":
                self._execution.cancelled = asyncio.get_running_loop().create_future()
                await self._answer(received)
            if self._channel.is_full:
                await self._channel.flush()

    async def _receive(self) -> codec.Message | codec.Unparsed:
        """Wait for the next message; raise a fatal `WireError` when idle too long, and when the server stops."""
        self._check_running()
        received = self._channel.take_received(max_bytes=self._limits.message)
        if received is not None:
            return received
        task = cast("asyncio.Task[object]", asyncio.current_task())
        self._receiving = task
        try:
            async with asyncio.timeout(self._limits.idle_seconds):
                return await self._channel.receive(max_bytes=self._limits.message)
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if not self._is_stopping:
                raise
            # The cancellation was that of `stop`, and ends here; else the timeouts below would take it for their own.
            task.uncancel()
        finally:
            self._receiving = None
        self._check_running()
        raise WireError("57P05", "The connection was idle for too long.", hint="Connect again.", fatal=True)

    def _check_running(self) -> None:
        """Raise a fatal `WireError` if the server stops."""
        if self._is_stopping:
            raise WireError("57P01", "The server is stopping.", hint="Connect again later.", fatal=True)

    async def _answer(self, received: codec.Message | codec.Unparsed) -> None:
        """Reply to a message; reply with an error to one that fails, and raise fatal errors only."""
        try:
            if isinstance(received, codec.Unparsed):
                parse = partial(codec.parse_message, received.kind, received.data)
                received = await self._execution.work(parse, fits_loop=False)
            await self._dispatch(received)
        except ClientDisconnected:
            raise
        except Exception as error:
            failure = to_wire_error(error)
            if failure.fatal:
                raise
            failure.__traceback__ = None  # whose frames hold rows, and would refer to the error
            if not isinstance(error, WireError | Malformed | Error):
                self._telemetry.log_fault(error, surface=SURFACE)
            # FunctionCall (F) ends with ReadyForQuery, as a simple query does.
            is_simple = isinstance(received, codec.QueryMessage) or received == codec.BareMessage(b"F")
            await self._send_failure(failure, is_simple=is_simple)

    async def _dispatch(self, received: codec.Message) -> None:  # noqa: C901 - one case for each type
        execution = self._execution
        match received:
            case codec.QueryMessage(text=text):
                await self._run_text(text)
            case codec.ParseMessage(name=name, text=text, types=types):
                statements = await execution.parse(text, is_single=True)
                statement = statements[0] if statements else ParsedStatement(StatementText("", 0), None)
                execution.check_may_run(statement)
                execution.objects.add_statement(name, PreparedStatement(statement, types))
                self._channel.send(message(b"1"))
            case codec.BindMessage():
                await self._bind(received)
            case codec.NameMessage(kind=b"D", of=of, name=name):
                await self._describe(of, name)
            # Close (C): closing what is not there is no error.
            case codec.NameMessage(of=of, name=name):
                (execution.objects.statements if of == "S" else execution.objects.portals).pop(name, None)
                self._channel.send(message(b"3"))
            case codec.ExecuteMessage(portal=name, max_rows=max_rows):
                await self._execute(name, max_rows)
            case codec.BareMessage(kind=b"S"):
                self._is_skipping = False
                await self._end_batch()
            case codec.BareMessage(kind=b"H"):
                await self._channel.flush()
            case codec.BareMessage(kind=b"F"):
                raise WireError("0A000", "Function calls by OID are not supported.", hint="Use SELECT.")
            case codec.PasswordMessage():
                raise WireError("08P01", "The login is over.", fatal=True)
            case _:
                pass  # the rows of a COPY FROM, which has failed

    async def _send_failure(self, failure: WireError, *, is_simple: bool) -> None:
        """Send an error, fail the transaction, and skip to the next Sync unless the protocol is the simple one."""
        execution = self._execution
        self._channel.send(*self._take_notices(), error_message(failure))
        execution.transaction.fail()
        if execution.transaction.status == "I":
            execution.objects.end_transaction(succeeds=False)
        self._is_skipping = not is_simple
        if is_simple:
            self._send_ready()
        await self._channel.flush()  # also for clients that wait for an answer before they send Sync

    def _take_notices(self) -> list[bytes]:
        """Return the messages to send before the next reply: notices, and reported settings that have changed."""
        notices, self._execution.notices = self._execution.notices, []
        settings = self._execution.transaction.settings
        # Settings are replaced and never changed: the same object has the same values.
        if settings is self._announced:
            return notices
        self._announced = settings
        for name, reported in self._reported.items():
            if name not in PER_CONNECTION and settings.get(name.lower()) != reported:
                self._reported[name] = settings.get(name.lower())
                notices.append(text_message(b"S", name, self._reported[name]))
        return notices

    def _send_ready(self) -> None:
        status = self._execution.transaction.status.encode()
        self._channel.send(*self._take_notices(), message(b"Z", status))

    async def _end_batch(self) -> None:
        """Commit what ran outside a transaction block, and send that the next statement may come."""
        execution = self._execution
        if execution.transaction.status == "I":
            execution.transaction.commit()
            execution.objects.end_transaction(succeeds=True)
        self._send_ready()
        await self._channel.flush()

    async def _run_text(self, text: str) -> None:
        """Run the statements of a text in order, up to the first that fails."""
        execution = self._execution
        # As in PostgreSQL, a simple query ends the unnamed statement and the unnamed portal.
        execution.objects.statements.pop("", None)
        execution.objects.portals.pop("", None)
        statements = await execution.parse(text)
        for statement in statements:
            await self._loop_share.give_way(execution.analyst)
            self._check_running()
            if execution.cancelled.done():
                raise _cancelled()
            if self._channel.is_full:
                await self._channel.flush()
            portal = Portal(PreparedStatement(statement), analyst=execution.analyst)
            outcome = await execution.run(portal)
            self._channel.send(*self._take_notices())
            start = 0
            if isinstance(outcome, RowSet):
                columns, start = outcome.rows.columns, outcome.start
                self._channel.send(row_description(columns, [0] * len(columns)))
            await self._send_outcome(outcome, max_rows=0, position=start, formats=())
            if self._channel.is_full:
                await self._channel.flush()
        if not statements:
            self._channel.send(message(b"I"))
        await self._end_batch()

    async def _bind(self, received: codec.BindMessage) -> None:
        execution = self._execution
        prepared = execution.objects.find_statement(received.statement)
        execution.check_may_run(prepared.statement)
        # For its checks alone.
        expand_formats(received.formats, len(received.values))
        if received.values or prepared.types or isinstance(prepared.statement.command, commands.CancelBackend):
            count = len((await execution.describe(prepared)).parameters)
            if count != len(received.values):
                raise Malformed(f"The statement has {count} parameters, and {len(received.values)} values were bound.")
        types = prepared.types if prepared.shape is None else prepared.shape.parameters
        bound = BoundValues(received.values, received.formats, types)
        portal = Portal(prepared, bound, received.results, analyst=execution.analyst)
        execution.objects.add_portal(received.portal, portal)
        self._channel.send(message(b"2"))

    async def _describe(self, of: str, name: str) -> None:
        execution, formats = self._execution, tuple[int, ...]()
        if of == "S":
            shape = await execution.describe(execution.objects.find_statement(name))
            self._channel.send(codec.parameter_description(shape.parameters))
            columns = shape.columns
        else:
            portal = execution.objects.find_portal(name)
            columns, formats = await execution.describe_portal(portal), portal.formats
        if columns is None:
            self._channel.send(message(b"n"))
        else:
            self._channel.send(row_description(columns, expand_formats(formats, len(columns))))

    async def _execute(self, name: str, max_rows: int) -> None:
        """Run a portal unless it has run, and send its next rows, at most `max_rows`; 0 is all."""
        portal = self._execution.objects.find_portal(name)
        if portal.prepared.statement.is_empty:
            self._channel.send(message(b"I"))
            return
        if portal.outcome is None:
            portal.outcome = await self._execution.run(portal)
            if isinstance(portal.outcome, RowSet):
                portal.position = portal.outcome.start
        elif not isinstance(portal.outcome, RowSet):
            raise WireError("55000", "This statement has run already.", hint="Bind it again.")
        self._channel.send(*self._take_notices())
        outcome, start = portal.outcome, portal.position
        if isinstance(outcome, RowSet):
            start = min(start, outcome.stop)  # a cursor may be behind the last row
            if portal.columns is not None and portal.columns != outcome.rows.columns:
                raise WireError("0A000", "The columns differ from the described ones.", hint="Prepare it again.")
            portal.position = min(outcome.stop, start + max_rows) if max_rows else outcome.stop
        await self._send_outcome(outcome, max_rows=max_rows, position=start, formats=portal.formats)

    async def _send_outcome(self, outcome: Outcome, *, max_rows: int, position: int, formats: tuple[int, ...]) -> None:
        """Send the rows of an outcome from a position on, at most `max_rows`, and its tag."""
        match outcome:
            case CommandComplete(tag=tag):
                self._channel.send(text_message(b"C", tag))
            case CopyOutput(rows=rows, layout=layout):
                columns = rows.columns
                self._channel.send(codec.copy_header(layout.format, len(columns)))
                values = rows.read(0, len(rows), formats=(layout.format,) * len(columns))
                await self._stream(copy_messages(values, columns, layout=layout), len(rows) * len(columns))
                self._channel.send(message(b"c"), text_message(b"C", f"COPY {len(rows)}"))
            case RowSet(rows=rows):
                stop = min(outcome.stop, position + max_rows) if max_rows else outcome.stop
                codes = expand_formats(formats, len(rows.columns))
                messages = rows.messages(position, stop, formats=codes)
                await self._stream(messages, 0 if isinstance(rows, EncodedRows) else (stop - position) * len(codes))
                # psqlODBC with UseDeclareFetch needs "FETCH n" after a FETCH, not "SELECT n"
                tag = outcome.word if outcome.word in _WITHOUT_COUNT else f"{outcome.word} {stop - position}"
                # PortalSuspended: JDBC with a fetch size executes the portal again for the next rows
                self._channel.send(message(b"s") if stop < outcome.stop else text_message(b"C", tag))

    async def _stream(self, messages: Iterator[bytes], cells: int) -> None:
        """Send messages as the client reads them, and serve others in between; many `cells` are encoded in a thread."""

        def take_block() -> bytes:
            block = bytearray()
            for each in messages:
                block += each
                if len(block) >= _BLOCK:
                    break
            return bytes(block)

        is_short = cells <= _FEW_CELLS
        while block := next(messages, b"") if is_short else await self._execution.work(take_block, fits_loop=False):
            self._channel.send(block)
            if self._channel.is_full:
                await self._channel.flush()
                await self._loop_share.give_way(self._execution.analyst)
                if self._execution.cancelled.done():
                    raise _cancelled()


def _cancelled() -> WireError:
    hint = "If it is a private query, sending it again returns its answer, free."
    return WireError("57014", "The statement was cancelled.", hint=hint)
