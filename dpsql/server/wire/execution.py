"""Execution of the statements of one connection: its own commands here, queries through the router."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from dpsql.dialects import quote_name
from dpsql.errors import Error
from dpsql.server.catalog.system_catalog import WireColumn
from dpsql.server.limits import BoundedCache, UserQuota
from dpsql.server.telemetry import CONSTANT, DESCRIBE, SHOW
from dpsql.server.wire import commands
from dpsql.server.wire.codec import WireError, notice_message, to_wire_error
from dpsql.server.wire.command_parser import ParsedStatement, StatementText, parse_query, parse_statements
from dpsql.server.wire.commands import move_cursor
from dpsql.server.wire.connection_state import (
    CONSENT,
    DETAILS,
    IMPLICIT,
    INITIAL_SETTINGS,
    BoundValues,
    CommandComplete,
    ConnectionObjects,
    CopyOutput,
    Outcome,
    Portal,
    PreparedStatement,
    RowSet,
    Shape,
    Transaction,
    View,
    add_view,
    expand_views,
    list_definitions,
)
from dpsql.server.wire.parameters import decode_value
from dpsql.server.wire.query_router import NO_VALUES, QueryRouter, RequestContext, is_short
from dpsql.server.wire.rows import (
    OIDS,
    ArrowRows,
    ReversedRows,
    WireRows,
    cast_rows,
    count_rows,
    describe_columns,
    describe_plan,
    encode_plan,
    parse_layout,
)

if TYPE_CHECKING:
    from dpsql.server.gateway import Gateway

Result = TypeVar("Result")
_NO_TEXT = StatementText("", 0)
_QUIET = frozenset(["warning", "error", "log"])  # levels of client_min_messages that suppress notices
_CONFIGURED = pa.schema([("set_config", pa.string())])
_CANCELLED = pa.schema([("pg_cancel_backend", pa.bool_())])
_UNLOCKED = pa.table({"pg_advisory_unlock_all": [""]})
_SHOW_ALL = pa.schema([("name", pa.string()), ("setting", pa.string()), ("description", pa.string())])
_MAX_TEXT = 160 * 1024  # characters of one text; the language reads fewer in each statement
_MAX_REMEMBERED, _MAX_PARSED = 2_000, 128 * 1024  # characters of a text that is parsed once; bytes of such texts
_FEW_ROWS, _FEW_COLUMNS = 1_000, 100  # of an answer or a view that is changed in the event loop
_CURSOR_HINT = "DECLARE c CURSOR FOR SELECT ..."
_UNDESCRIBED = commands.Fetch | commands.Execute  # what they return may change


class Execution:
    """The transaction, cursors and queries of one connection; `notices` are sent before the next reply.

    `cancelled` is the future that cancels the statement that runs, and `cancel_backend` cancels that of another
    connection of the same user, by its number.
    """

    def __init__(
        self,
        gateway: Gateway,
        router: QueryRouter,
        *,
        transaction: Transaction,
        quota: UserQuota,
        cancel_backend: Callable[[int], bool],
    ) -> None:
        self._gateway, self._router, self._quota = gateway, router, quota
        self._cancel_backend = cancel_backend
        self.transaction = transaction
        self.objects = ConnectionObjects(quota)
        self.notices: list[bytes] = []
        self.cancelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._receipt = ""
        self._initial_role = ""
        self._parsed = BoundedCache[list[ParsedStatement]](_MAX_PARSED)

    @property
    def analyst(self) -> str:
        """The analyst for whom queries are run now."""
        return self.transaction.settings.role or self._router.user.name

    async def parse(self, text: str, *, is_single: bool = False) -> list[ParsedStatement]:
        """Return the statements of a text; raise `WireError`, also for several statements if `is_single`."""
        parsed = self._parsed.find(text)
        if parsed is None:
            if len(text) > _MAX_TEXT:
                hint = f"Send at most {_MAX_TEXT} characters at once."
                raise WireError("54000", "The text is too long.", hint=hint)
            parsed = await self.work(partial(parse_statements, text), StatementText(text, 0))
            if is_single and len(parsed) > 1:
                raise WireError("42601", "Several statements cannot be prepared as one.", hint="Send them one by one.")
            if len(parsed) == 1 and len(text) <= _MAX_REMEMBERED:
                self._parsed.add(text, parsed, size=PreparedStatement(parsed[0]).size)
        return parsed

    async def work(
        self, work: Callable[[], Result], source: StatementText = _NO_TEXT, *, fits_loop: bool | None = None
    ) -> Result:
        """Return the result of work on a statement, done in a thread unless it is short.

        The text decides what is short unless `fits_loop` says it.
        """
        if is_short(source.text) if fits_loop is None else fits_loop:
            return work()
        return await self._router.run_in_thread(work, source, context=self._context(self.analyst))

    def check_may_run(self, statement: ParsedStatement) -> None:
        """Raise `WireError` unless the transaction accepts the statement: a failed one only accepts its end."""
        if self.transaction.status == "E" and not isinstance(statement.command, commands.Commit | commands.Rollback):
            raise WireError("25P02", "The transaction has failed and only accepts its end.", hint="ROLLBACK")

    async def describe(self, prepared: PreparedStatement) -> Shape:  # noqa: C901, PLR0912 - one case for each command
        """Return the parameters and columns of a statement; free."""
        statement = prepared.statement
        self.check_may_run(statement)
        if prepared.shape is not None and not isinstance(statement.command, _UNDESCRIBED):
            return prepared.shape
        context = self._context(self.analyst)
        match statement.command:
            case None if not statement.is_empty:
                source = await self._expand(statement.source)
                shape = await self._router.describe(source, prepared.types, context=context)
            case commands.Fetch(name=name, move=False):
                shape = Shape((), await self.describe_portal(self._find_cursor(name)))
            case commands.Execute(name=name):
                shape = Shape((), (await self.describe(self._find_prepared(name))).columns)
            case commands.Explain() as command:
                source = await self._expand(await self._explained(statement.source, command))
                shape = await self._router.describe(source, prepared.types, context=context)
                if command.layout:
                    shape = Shape(shape.parameters, describe_plan(command.layout))
            case commands.Show(name=name):
                shape = Shape((), (await self._show(name, kind=DESCRIBE)).columns)
            case commands.SetConfig():
                shape = Shape((), describe_columns(_CONFIGURED))
            case commands.CancelBackend(number=number):
                # 0 is a type that the client left open.
                declared = next(iter(prepared.types), 0) or OIDS["int4"]
                shape = Shape((declared,) if number is None else (), describe_columns(_CANCELLED))
            case commands.Unlock():
                shape = Shape((), describe_columns(_UNLOCKED.schema))
            case commands.Declare(start=start):
                source = await self._expand(statement.source.slice(start))
                shape = await self._router.describe(source, prepared.types, context=context)
                # A DECLARE has the parameters of its query, and returns no rows.
                shape = replace(shape, columns=None, schema=None)
            case _:
                shape = Shape()
        if prepared.holding is not None:  # raises beyond the quota
            prepared.holding.grow(shape.size - (0 if prepared.shape is None else prepared.shape.size))
        prepared.shape = shape
        return shape

    async def describe_portal(self, portal: Portal) -> tuple[WireColumn, ...] | None:
        """Return the columns of a portal, or None if it returns no rows; free."""
        if portal.columns is None:
            portal.columns = (await self.describe(portal.prepared)).columns
        return portal.columns

    async def run(self, portal: Portal) -> Outcome:  # noqa: C901, PLR0912 - one case for each command
        """Execute a statement; raise `WireError`, which contains nothing of any row."""
        statement = portal.prepared.statement
        self.check_may_run(statement)
        match statement.command:
            case None:
                rows = await self._query(statement.source, portal.bound, analyst=portal.analyst, formats=portal.formats)
                schema = None if portal.prepared.shape is None else portal.prepared.shape.schema
                if schema is not None:
                    rows = await self.work(partial(cast_rows, rows, schema), fits_loop=len(rows) <= _FEW_ROWS)
                    rows = count_rows(rows, self._quota)
                return RowSet(rows, 0, len(rows))
            case commands.Declare() as command:
                return await self._declare(command, portal)
            case commands.Fetch() as command:
                return await self._fetch(command, portal.formats)
            case commands.CopyOut() as command:
                return await self._copy(command, statement.source)
            case commands.Explain() as command:
                # the plan of a query, in the layout that its options name; free
                source = await self._explained(statement.source, command)
                rows = await self._query(source, portal.bound, analyst=portal.analyst, formats=portal.formats)
                if command.layout and isinstance(rows, ArrowRows):
                    encode = partial(encode_plan, rows.table, command.layout, formats=portal.formats)
                    rows = await self.work(encode, source)
                return RowSet(count_rows(rows, self._quota), 0, len(rows), "EXPLAIN")
            case commands.Prepare(name=name, start=start, types=types):
                # described at once, so that an error is found here; free
                query = await self._parse_query(
                    statement.source.slice(start),
                    reason="Only a query can be prepared.",
                    hint="PREPARE p AS SELECT ...",
                )
                prepared = PreparedStatement(query, types)
                self.objects.check_statement(name, prepared)
                await self.describe(prepared)
                self.objects.add_statement(name, prepared)
                return CommandComplete("PREPARE")
            case commands.Execute() as command:
                return await self._execute(command, portal)
            case commands.CreateView() as command:
                return await self._create_view(command, statement.source)
            case commands.Show(name=name):
                rows = await self._show(name)
                return RowSet(rows, 0, len(rows), "SHOW")
            case commands.SetConfig() | commands.CancelBackend() | commands.Unlock() as command:
                return RowSet(self._answer_constant(command, portal), 0, 1)
            case command:
                return self._run_command(command)

    async def _query(
        self, source: StatementText, bound: BoundValues, *, analyst: str, formats: tuple[int, ...]
    ) -> WireRows:
        """Run a query if memory allows its rows, and announce its receipt."""
        self._quota.check()
        context, settings = self._context(analyst), self.transaction.settings
        result = await self._router.query(await self._expand(source), bound, formats=formats, context=context)
        if result.notes:
            if result.receipt is not None:
                self._receipt = "; ".join(result.notes).replace(".; ", ". ")
            if settings.get("client_min_messages").lower() not in _QUIET:
                detail = result.details if settings.flag(DETAILS) else ""
                first, *others = result.notes
                self.notices += [notice_message(first, detail=detail), *map(notice_message, others)]
        return count_rows(result.rows, self._quota, is_free=result.receipt is None)

    def _context(self, analyst: str) -> RequestContext:
        settings = self.transaction.settings
        definitions = list_definitions(settings.views) if settings.views else ()
        return RequestContext(
            self.cancelled, analyst, settings.seconds, settings.flag(IMPLICIT), settings.flag(CONSENT), definitions
        )

    async def _expand(self, source: StatementText) -> StatementText:
        views = self.transaction.settings.views
        return await self.work(partial(expand_views, source, views), source) if views else source

    async def _parse_query(self, source: StatementText, *, reason: str, hint: str) -> ParsedStatement:
        return await self.work(partial(parse_query, source, reason=reason, hint=hint), source)

    async def _explained(self, source: StatementText, command: commands.Explain) -> StatementText:
        """Return EXPLAIN of a query, without options; positions in the query stay those in the text that was sent."""
        query = await self._parse_query(
            source.slice(command.start), reason="Only a query can be explained.", hint="EXPLAIN SELECT ..."
        )
        words = "EXPLAIN VERBOSE " if command.is_verbose else "EXPLAIN "
        return StatementText(f"{words}{query.source.text}", query.source.before - len(words))

    async def _create_view(self, command: commands.CreateView, source: StatementText) -> Outcome:
        """Create a temporary view, and describe its query; free."""
        query = await self._parse_query(
            source.slice(command.start), reason="A view is a query.", hint="CREATE TEMPORARY VIEW v AS SELECT ..."
        )
        prepared = PreparedStatement(query)
        columns = (await self.describe(prepared)).columns or ()
        if prepared.shape is not None and prepared.shape.parameters:
            raise WireError("42P02", "The query of a view has no parameters.", hint="Write the values.")
        if self._gateway.service.catalog.find(command.name) is not None:
            raise WireError("42P07", "A table of this name exists.", hint="Give the view another name.")
        text, known = (await self._expand(query.source)).text, self.transaction.settings.views

        def add() -> dict[str, View]:
            view = View.define(command.name, text, columns=columns)
            return add_view(known, command.name, view=view, replaces=command.replaces)

        views = await self.work(add, fits_loop=len(columns) <= _FEW_COLUMNS)
        self.transaction.change(lambda settings: replace(settings, views=views))
        return CommandComplete("CREATE VIEW")

    async def _declare(self, command: commands.Declare, portal: Portal) -> Outcome:
        """Open a cursor; its query runs at the first FETCH."""
        if not command.hold and self.transaction.status == "I":
            hint = "BEGIN first, or declare it WITH HOLD."
            raise WireError("25P01", "DECLARE CURSOR can only be used in a transaction block.", hint=hint)
        source = portal.prepared.statement.source.slice(command.start)
        query = await self._parse_query(source, reason="A cursor is for a SELECT.", hint=_CURSOR_HINT)
        prepared = PreparedStatement(query, portal.prepared.types)
        await self.describe(prepared)
        cursor = Portal(
            prepared, portal.bound, analyst=portal.analyst, is_with_hold=command.hold, is_no_scroll=command.no_scroll
        )
        self.objects.add_portal(command.name, cursor)
        return CommandComplete("DECLARE CURSOR")

    def _find_cursor(self, name: str) -> Portal:
        """Return the portal of a query; one of a FETCH cannot be fetched from, as it could be its own."""
        portal = self.objects.find_portal(name)
        if portal.prepared.statement.command is not None:
            raise WireError("34000", "This cursor returns no rows.", hint=_CURSOR_HINT)
        return portal

    async def _fetch(self, command: commands.Fetch, formats: tuple[int, ...]) -> Outcome:
        """Return rows of a cursor from its position; run its query at first."""
        cursor = self._find_cursor(command.name)
        if cursor.outcome is None:
            cursor.formats = formats
            cursor.outcome = await self._run_elsewhere(cursor)
        if not isinstance(cursor.outcome, RowSet):
            raise WireError("55000", "This cursor returns no rows.", hint=_CURSOR_HINT)
        rows = cursor.outcome.rows
        moved = move_cursor(command, position=cursor.position, total=len(rows))
        if moved.goes_back and cursor.is_no_scroll:
            reason = "This cursor was declared with NO SCROLL and only moves forwards."
            raise WireError("55000", reason, hint="Declare it with SCROLL.")
        cursor.position = moved.position
        if command.move:
            return CommandComplete(f"MOVE {moved.stop - moved.start}")
        if moved.is_reversed:
            rows = ReversedRows(rows, moved.start, moved.stop)
            return RowSet(rows, 0, len(rows), "FETCH")
        return RowSet(rows, moved.start, moved.stop, "FETCH")

    async def _run_elsewhere(self, portal: Portal) -> Outcome:
        """Run a query whose text was sent earlier: an error has no position in the text of now."""
        try:
            return await self.run(portal)
        except WireError as error:
            error.position = 0
            raise

    def _find_prepared(self, name: str) -> PreparedStatement:
        """Return a prepared query; one of EXECUTE cannot be executed, as it could be its own."""
        prepared = self.objects.find_statement(name)
        if prepared.statement.command is not None:
            raise WireError("0A000", "Only a query can be executed by name.", hint="Send the statement itself.")
        return prepared

    async def _execute(self, command: commands.Execute, portal: Portal) -> Outcome:
        """Run a prepared query with the values of an EXECUTE."""
        prepared = self._find_prepared(command.name)
        known = (await self.describe(prepared)).parameters
        if len(known) != len(command.values):
            reason = f"EXECUTE has the wrong number of values: {len(command.values)} instead of {len(known)}."
            raise WireError("42601", reason, hint="Pass one value for each parameter.")
        absolute = OIDS["timestamptz"]  # a literal of this type is converted; of others the parameter decides
        types = tuple(own if own == absolute else oid for oid, own in zip(known, command.types, strict=True))
        bound = BoundValues(command.values, (), types)
        return await self._run_elsewhere(Portal(prepared, bound, portal.formats, analyst=portal.analyst))

    async def _copy(self, command: commands.CopyOut, source: StatementText) -> Outcome:
        """Run the SELECT of a COPY."""
        layout = parse_layout(command.options)
        query = source.slice(command.start, command.stop)
        if command.columns:  # positions in the name of the table stay those in the text of the COPY
            # COPY t (a, b) TO STDOUT
            # SELECT a,b FROM t
            select = f"SELECT {command.columns} FROM "  # noqa: S608 - the language parses it
            query = StatementText(select + query.text, query.before - len(select))
        parsed = await self._parse_query(
            query, reason="Only a SELECT can be copied.", hint="COPY (SELECT ...) TO STDOUT."
        )
        rows = await self._query(parsed.source, NO_VALUES, analyst=self.analyst, formats=(layout.format,))
        return CopyOutput(rows, layout)

    async def _show(self, name: str, *, kind: str = SHOW) -> WireRows:
        """Return a setting of the connection or all of them, or a setting of the catalog if no other has this name.

        It is counted as a statement of a kind.
        """
        source = StatementText(f"SHOW {name}", 0)
        try:
            if name == "all":
                names = sorted({*INITIAL_SETTINGS, CONSENT, IMPLICIT, *self.transaction.settings.values})
                listing = [{"name": one, "setting": self._read_setting(one), "description": ""} for one in names]
                table = pa.Table.from_pylist(listing, schema=_SHOW_ALL)
            else:
                table = pa.table({name: pa.array([self._read_setting(name)], pa.string())})
        except WireError:
            # The catalog may know what is no setting here; what is no plain name would be more than a name in its SHOW.
            if not name.isidentifier():
                raise
        else:
            self._router.count_light(kind, source, analyst=self.analyst)
            return ArrowRows(table)
        return (await self._router.query_catalog(source, context=self._context(self.analyst), kind=kind)).rows

    def _answer_constant(
        self, command: commands.SetConfig | commands.CancelBackend | commands.Unlock, portal: Portal
    ) -> WireRows:
        """Execute a SELECT that only calls a function with an effect on connections."""
        self._router.count_light(CONSTANT, portal.prepared.statement.source, analyst=self.analyst)
        match command:
            case commands.SetConfig(name=name, value=value, local=local):
                self._set(name, value, local=local)
                return ArrowRows(pa.table([[self._read_setting(name)]], schema=_CONFIGURED))
            case commands.CancelBackend(number=number):
                if number is None:  # it is the only parameter; no connection has the number 0
                    bound = portal.bound
                    code = bound.formats[0] if bound.formats else 0
                    given = decode_value(bound.values[0], bound.types[0], code=code, name="")
                    number = given if isinstance(given, int) else 0
                return ArrowRows(pa.table([[self._cancel_backend(number)]], schema=_CANCELLED))
        return ArrowRows(_UNLOCKED)

    def _read_setting(self, name: str) -> str:
        match name:
            case "dpsql.receipt":
                return self._receipt
            case "role":
                return self.transaction.settings.role or "none"
            case "session_authorization":
                return self._router.user.name
            case "dpsql.implicit":
                own = self.transaction.settings.flag(IMPLICIT)
                return "on" if (self._gateway.service.policy.implicit if own is None else own) else "off"
            case "dpsql.consent":
                own = self.transaction.settings.flag(CONSENT)
                return "on" if (self._gateway.service.policy.limits.consent if own is None else own) else "off"
            case "server_version":
                return f"{self._router.version} (dpsql)"
            case "server_version_num":
                major, _, minor = self._router.version.partition(".")
                # 17.2 is 170002.
                return str(int(major) * 10_000 + int(minor))
        return self.transaction.settings.get(name)

    def _set(self, name: str, value: str | None, *, local: bool) -> None:
        """Change a setting; a value of None is its default."""
        if name == "role":
            role = self._initial_role if value is None else "" if value.lower() == "none" else value
            if self._initial_role and role != self._initial_role:
                hint = "Connect again, with the other role or without a role."
                raise WireError("42501", "The role of this connection was set when it began.", hint=hint)
            self._set_role(role, local=local)
        elif name != "transaction":
            self.transaction.change(
                lambda settings: settings.without_value(name) if value is None else settings.with_value(name, value),
                local=local,
            )

    def begin_as(self, role: str) -> None:
        """Act as an analyst for as long as the connection lasts; raise `WireError` if the user may not.

        A tool that connects on behalf of a person may let them write statements, who must not become another user.
        """
        self._set_role(role, local=False)
        self._initial_role = role

    def _set_role(self, role: str, *, local: bool) -> None:
        try:
            if role:
                self._gateway.check_role(self._router.user, role)
        except Error as error:
            failure = to_wire_error(error)
        else:
            self.transaction.change(lambda settings: replace(settings, role=role), local=local)
            return
        raise failure

    def _run_command(self, command: commands.Command) -> Outcome:  # noqa: C901, PLR0912 - one case for each command
        """Execute a command on settings, cursors or prepared statements, or one of a transaction."""
        objects, transaction = self.objects, self.transaction
        match command:
            case commands.Set(name=name, value=value, local=local):
                if local and transaction.status == "I":
                    self._warn("25P01", "SET LOCAL can only be used in a transaction block.")
                self._set(name, value, local=local)
                return CommandComplete("SET")
            case commands.Reset(name=name):
                self._set(name, None, local=False)
                return CommandComplete("RESET")
            case commands.DropView():
                views = dict(transaction.settings.views)
                for name in command.names:
                    if views.pop(name, None) is None and not command.if_exists:
                        hint = f"DROP VIEW IF EXISTS {quote_name(name)}"
                        raise WireError("42P01", "There is no view of this name.", hint=hint)
                transaction.change(lambda settings: replace(settings, views=views))
                return CommandComplete("DROP VIEW")
            case commands.CloseCursor(name=""):
                objects.portals.clear()
                return CommandComplete("CLOSE CURSOR ALL")
            case commands.CloseCursor(name=name):
                objects.find_portal(name)
                del objects.portals[name]
                return CommandComplete("CLOSE CURSOR")
            case commands.Deallocate(name=""):
                objects.statements.clear()
                return CommandComplete("DEALLOCATE ALL")
            case commands.Deallocate(name=name):
                objects.find_statement(name)
                del objects.statements[name]
                return CommandComplete("DEALLOCATE")
            case commands.Discard(kind="ALL"):
                if transaction.status != "I":
                    raise WireError("25001", "DISCARD ALL cannot be used in a transaction block.", hint="COMMIT first.")
                objects.clear()
                self._receipt = ""
                transaction.change(lambda settings: replace(settings, values={}, role=self._initial_role, views={}))
                return CommandComplete("DISCARD ALL")
            case commands.Discard(kind=kind):
                if kind in {"TEMP", "TEMPORARY"}:
                    transaction.change(lambda settings: replace(settings, views={}))
                return CommandComplete(f"DISCARD {kind}")
            case commands.NoEffect(tag=tag):
                return CommandComplete(tag)
        return self._run_transaction(command)

    def _run_transaction(self, command: commands.Command) -> Outcome:  # noqa: C901, PLR0912 - one case for each
        """Execute a command that begins or ends a transaction or savepoint."""
        transaction = self.transaction
        match command:
            case commands.Begin(tag=tag):
                if transaction.status == "T":
                    self._warn("25001", "A transaction is already in progress.")
                else:
                    transaction.begin()
                return CommandComplete(tag)
            case commands.Rollback(savepoint=name) if name:
                transaction.rollback_to(name)
                return CommandComplete("ROLLBACK")
            case commands.Savepoint(name=name):
                transaction.add_savepoint(name)
                return CommandComplete("SAVEPOINT")
            case commands.ReleaseSavepoint(name=name):
                transaction.release_savepoint(name)
                return CommandComplete("RELEASE")
            case commands.TableLock():
                if transaction.status == "I":
                    raise WireError("25P01", "LOCK TABLE can only be used in a transaction block.", hint="BEGIN first.")
                return CommandComplete("LOCK TABLE")
            case commands.Commit(chain=chain) | commands.Rollback(chain=chain):
                succeeds = isinstance(command, commands.Commit) and transaction.status != "E"
            case _:
                raise WireError("0A000", "This statement is not supported.", hint="Send a SELECT.")
        if transaction.status == "I":
            if chain:
                raise WireError("25P01", "AND CHAIN can only be used in a transaction block.", hint="BEGIN first.")
            self._warn("25P01", "No transaction is in progress.")
        self.objects.end_transaction(succeeds=succeeds)
        if succeeds:
            transaction.commit()
        else:
            transaction.rollback()
        if chain:
            transaction.begin()
        return CommandComplete("COMMIT" if succeeds else "ROLLBACK")

    def _warn(self, sqlstate: str, text: str) -> None:
        self.notices.append(notice_message(text, sqlstate=sqlstate, severity="WARNING"))
