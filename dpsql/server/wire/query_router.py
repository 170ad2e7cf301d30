"""Routing of queries to the session or to the catalog, and the threads that run them.

The session decides everything that is private. A statement over system catalogs never reaches it, nor a private one
the catalog. Describing is free.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from dpsql.errors import Error
from dpsql.receipt import NO_MECHANISM
from dpsql.server.catalog.system_catalog import (
    MAY_BE_CATALOG,
    Additions,
    CatalogError,
    CatalogRows,
    CurrentCatalog,
    Parameter,
    is_catalog,
)
from dpsql.server.limits import BoundedCache, Holding, UserQuota
from dpsql.server.telemetry import CATALOG, DESCRIBE
from dpsql.server.wire.codec import SURFACE, Malformed, WireError, to_wire_error
from dpsql.server.wire.command_parser import StatementText
from dpsql.server.wire.connection_state import OF_TYPE, BoundValues, Shape
from dpsql.server.wire.parameters import decode_value, find_oid, find_type
from dpsql.server.wire.rows import OIDS, ArrowRows, EncodedRows, WireRows, describe_columns, expand_formats
from dpsql.sql.lexer import MAX_TEXT_LENGTH

if TYPE_CHECKING:
    from dpsql.answer import Answer
    from dpsql.engines.base import Stop
    from dpsql.plan import Prepared
    from dpsql.receipt import Receipt
    from dpsql.server.gateway import Gateway
    from dpsql.server.queues import Pause
    from dpsql.server.users import User
    from dpsql.session import Session

Result = TypeVar("Result")
_SHORT_TEXT = 1_000  # characters, which take about a millisecond to parse or route
_MAX_SHAPES, _MAX_REMEMBERED = 128 * 1024, 2_000  # bytes of shapes that a connection remembers; characters of a text
_OPEN_TYPES = frozenset([0, OIDS["unknown"]])  # of parameters, which the statement decides
_THREADS_OF_ONE = 3  # jobs of an analyst that run at a time
NO_VALUES = BoundValues()


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The rows of an answer, its notes, and its receipt if private rows were read."""

    rows: WireRows
    notes: Sequence[str] = ()
    receipt: Receipt | None = None

    @property
    def details(self) -> str:
        """The details of the receipt as one line."""
        pairs = [] if self.receipt is None else self.receipt.details()
        return "; ".join(f"{name}: {value}" for name, value in pairs)

    @classmethod
    def of(cls, answer: Answer) -> QueryResult:
        """Return the rows and notes of an answer."""
        if answer.receipt.mechanism == NO_MECHANISM:
            return cls(ArrowRows(answer.arrow()), [answer.explanation] if answer.explanation else ())
        return cls(ArrowRows(answer.arrow()), answer.notes(), answer.receipt)


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The analyst for whom a query is run, the future that cancels it, and its time limit; 0 is no limit.

    `implicit` reads standard SQL as private, or not, and with `consent` queries that can hardly return a row are run;
    None leaves each to the policy. `definitions` create the temporary views of the connection in the catalog.
    """

    cancelled: asyncio.Future[None]
    analyst: str
    seconds: float = 0.0
    implicit: bool | None = None
    consent: bool | None = None
    definitions: tuple[str, ...] = ()


class ThreadRunner:
    """Threads for queries. An analyst has a few at most, so that waiting queries never take all of them.

    A private query goes on after its client has left: it is charged and stored, and sending it again replays the
    answer free. A free query is stopped.
    """

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="dpsql-wire")
        self._turns: dict[tuple[str, bool], asyncio.Semaphore] = defaultdict(
            partial(asyncio.Semaphore, _THREADS_OF_ONE)
        )
        self._running: set[asyncio.Task[Any]] = set()

    async def run(
        self, work: Callable[[Stop], Result], context: RequestContext, *, analyst: str, is_free: bool
    ) -> Result:
        """Run work in a thread; raise `WireError` once it is cancelled or takes longer than its time limit.

        Work that still waits for its turn then never begins, and work that has begun sees its stop signal. Free work
        has turns of its own.
        """
        has_begun = is_abandoned = False

        async def run_in_turn() -> Result:
            nonlocal has_begun
            async with self._turns[analyst, is_free]:
                has_begun = True
                return await asyncio.get_running_loop().run_in_executor(self._pool, work, lambda: is_abandoned)

        task = asyncio.ensure_future(run_in_turn())
        self._running.add(task)
        task.add_done_callback(self._forget)
        either: set[asyncio.Future[Any]] = {task, context.cancelled}
        try:
            await asyncio.wait(either, timeout=context.seconds or None, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
        finally:
            is_abandoned = True
            # Work that has begun in its thread cannot be cancelled; to cancel its task would free its turn while it
            # goes on.
            if not task.done() and not has_begun:
                task.cancel()
            del task, either  # an error refers to this frame, which would refer to the error
        reason = "The statement was cancelled." if context.cancelled.done() else "The statement took too long."
        hint = "If it is a private query that had begun, it is charged, and sending it again returns its answer, free."
        raise WireError("57014", reason, hint=hint)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved, since its client may have left

    async def close(self) -> None:
        """Wait for the work that runs, and end the threads."""
        while self._running:
            await asyncio.wait(set(self._running))
        self._pool.shutdown(wait=False)


class QueryRouter:
    """The queries of one user, each sent to the session or to the catalog."""

    def __init__(
        self,
        gateway: Gateway,
        catalog: CurrentCatalog,
        *,
        runner: ThreadRunner,
        user: User,
        quota: UserQuota,
    ) -> None:
        self._gateway, self._catalog, self._runner, self._quota = gateway, catalog, runner, quota
        self._tables, self._shapes = gateway.service.catalog, BoundedCache[Shape](_MAX_SHAPES)
        # A repeated answer is converted once, for as long as the session keeps it.
        self._results: WeakKeyDictionary[Answer, QueryResult] = WeakKeyDictionary()
        self.user = user
        self.version = catalog.current.version

    async def run_in_thread(
        self, work: Callable[[], Result], source: StatementText, *, context: RequestContext
    ) -> Result:
        """Return the result of work on a statement, done in a thread in a turn of the analyst."""

        def work_in_turn(stop: Stop) -> Result:
            with self._gateway.service.share.turn(context.analyst, stop=stop):
                return work()

        return await self._run(work_in_turn, source, context=context)

    def count_light(self, kind: str, source: StatementText, *, analyst: str) -> None:
        """Count a statement that takes next to no time; raise `WireError` for one too many, and without the role."""
        try:
            self._gateway.count_light(SURFACE, self.user, role=analyst, kind=kind)
        except Exception as error:  # noqa: BLE001 - its text could contain values
            # Raised after the block: raised inside of it, the new error would hold the original as its context.
            failure = self._convert_error(error, source)
        else:
            return
        raise failure

    async def describe(self, source: StatementText, types: tuple[int, ...], *, context: RequestContext) -> Shape:
        """Return the parameters and columns of a statement, as far as they are known before values are bound."""
        text, analyst, tables = source.text, context.analyst, self._gateway.service.catalog
        if tables is not self._tables:  # a reload has replaced them
            self._tables, self._shapes = tables, BoundedCache(_MAX_SHAPES)
        shapes, key = self._shapes, (text, types, analyst, context.implicit)
        stored = shapes.find(key)
        with suppress(Error):  # without the role, which a new description refuses
            if stored is not None:
                self._gateway.check_role(self.user, analyst)
                self.count_light(DESCRIBE, source, analyst=analyst)
                return stored

        def describe_in_session(_: Stop) -> Shape:
            prepared = self._prepare(text, [find_type(oid) for oid in types], context=context)
            # A Parse may name the types of the first parameters alone; 0 leaves one open.
            pairs = zip(_pad(types, len(prepared.parameters)), prepared.parameters, strict=True)
            oids = tuple(oid or find_oid(name) for oid, name in pairs)
            return Shape(oids, describe_columns(prepared.schema), prepared.schema, prepared.may_change)

        def describe_in_catalog(stop: Stop) -> Shape:
            def act(_: Pause) -> Shape:
                added = Additions(context.definitions, self._gateway.service.list_stored(analyst))
                found = self._catalog.current.describe(text, types, user=analyst, added=added)
                return Shape(found.parameters, found.columns)

            return self._gateway.answer_from_catalog(
                self.user, act, surface=SURFACE, role=analyst, kind=DESCRIBE, stop=stop
            )

        known = None if context.definitions else self._catalog.current.find_description(text, types)
        if known is not None:
            self.count_light(DESCRIBE, source, analyst=analyst)
            return Shape(known.parameters, known.columns)
        if await self._is_catalog(source, context):
            return await self._run(describe_in_catalog, source, context=context)
        shape = await self._run(describe_in_session, source, context=context)
        if len(text) <= _MAX_REMEMBERED and not shape.may_change:
            shapes.add(key, shape, size=sys.getsizeof(text) + OF_TYPE * len(types) + shape.size)
        return shape

    async def query(
        self, source: StatementText, bound: BoundValues, *, formats: Sequence[int], context: RequestContext
    ) -> QueryResult:
        """Answer a query; `formats` are those of a Bind, in which the catalog encodes its rows."""
        stored = self._find_stored(source, bound, formats=formats, context=context) if bound.is_small else None
        if stored is not None:
            return stored
        if await self._is_catalog(source, context):
            return await self.query_catalog(source, bound, formats=formats, context=context)
        text = source.text

        def answer(stop: Stop) -> QueryResult:
            values = self._decode_values(text, bound, context=context) if bound.values else []

            def act(session: Session, stop: Stop) -> Answer:
                return session.sql(
                    text, values, stop=stop, implicit=context.implicit, postgres=True, consent=context.consent
                )

            return QueryResult.of(self._gateway.ask(SURFACE, self.user, act=act, role=context.analyst, stop=stop))

        return await self._run(answer, source, context=context, is_free=False)

    def _find_stored(  # noqa: C901 - the catalog's answer, then the session's
        self, source: StatementText, bound: BoundValues, *, formats: Sequence[int], context: RequestContext
    ) -> QueryResult | None:
        """Answer a repeated query here, without a thread, if its answer is at hand and still right; else return None.

        None also without a turn. The session has no answers to statements that are for the catalog.
        """
        text, analyst, parameters = source.text, context.analyst, _make_parameters(bound)
        found = None
        if not context.definitions:
            found = self._catalog.current.find_answer(text, parameters, user=analyst, formats=tuple(formats))
        if found is not None:
            stored = self._gateway.service.peek_stored(analyst)
            with self._gateway.service.share.try_turn(analyst) as has_turn:
                if has_turn and stored == found.stored:
                    self.count_light(CATALOG, source, analyst=analyst)
                    return _convert_rows(found, formats, holding=self._quota.hold(found.size))
        values = list[object]()
        try:
            for each in parameters:
                if each.type_oid in _OPEN_TYPES:
                    return None
                values.append(decode_value(each.value, each.type_oid, code=each.is_binary, name=""))
        except (Error, Malformed, WireError):  # of a type that the catalog may have
            return None

        def peek(session: Session) -> Answer | None:
            return session.peek(text, values, implicit=context.implicit, postgres=True)

        try:
            answer = self._gateway.peek(SURFACE, self.user, act=peek, role=analyst)
            if answer is None:
                return None
            known = self._results.get(answer)
            if known is None:
                known = self._results[answer] = QueryResult.of(answer)
        except Exception as error:  # noqa: BLE001 - its text could contain values
            failure = self._convert_error(error, source)
        else:
            return known
        raise failure

    async def query_catalog(
        self,
        source: StatementText,
        bound: BoundValues = NO_VALUES,
        *,
        formats: Sequence[int] = (),
        context: RequestContext,
        kind: str = CATALOG,
    ) -> QueryResult:
        """Answer any statement by the catalog, counted as one of a kind."""
        holding = self._quota.hold()

        def read(pause: Pause) -> QueryResult:
            def hold(size: int) -> None:
                holding.grow(size)
                pause()

            failure: Exception
            try:
                found = self._catalog.current.execute(
                    source.text,
                    _make_parameters(bound),
                    user=context.analyst,
                    formats=tuple(formats),
                    added=Additions(context.definitions, self._gateway.service.list_stored(context.analyst)),
                    hold=hold,
                )
            except (CatalogError, Error) as error:
                failure = error.with_traceback(None)  # whose frames would keep the rows that were read
            except WireError as error:
                failure = CatalogError(error.sqlstate, error.reason, hint=error.hint)
            else:
                return _convert_rows(found, formats, holding=holding)
            raise failure

        def answer(stop: Stop) -> QueryResult:
            return self._gateway.answer_from_catalog(
                self.user, read, surface=SURFACE, role=context.analyst, kind=kind, stop=stop
            )

        try:
            return await self._run(answer, source, context=context)
        except WireError:
            holding.resize(0)
            raise

    async def _is_catalog(self, source: StatementText, context: RequestContext) -> bool:
        """Return whether a statement is for the catalog; a long one is read in a thread, as it blocks other clients."""
        text, tables = source.text, self._gateway.service.policy.tables
        if len(text) > MAX_TEXT_LENGTH or MAY_BE_CATALOG.search(text) is None:
            return False
        if is_short(text):
            return is_catalog(text, tables)
        return await self.run_in_thread(partial(is_catalog, text, tables), source, context=context)

    async def _run(
        self, work: Callable[[Stop], Result], source: StatementText, *, context: RequestContext, is_free: bool = True
    ) -> Result:
        """Run work in a thread: free work in a turn of the user, other work in one of the analyst.

        Every error is raised as a new `WireError`, which holds nothing of the original.
        """
        analyst = self.user.name if is_free else context.analyst
        try:
            return await self._runner.run(work, context, analyst=analyst, is_free=is_free)
        except Exception as error:  # noqa: BLE001 - its text could contain values
            failure = self._convert_error(error, source)
        raise failure

    def _convert_error(self, error: Exception, source: StatementText) -> WireError:
        """Return the error for the client, and log one that is unexpected."""
        match error:
            case CatalogError():
                # The catalog counts from the beginning of this statement, a client from that of the text that it sent.
                position = error.position + source.before if error.position else 0
                return WireError(error.sqlstate, error.message, hint=error.hint, position=position)
            case Error() | Malformed() | WireError():
                return to_wire_error(error, source.text, before=source.before)
        self._gateway.telemetry.log_fault(error, surface=SURFACE)
        return to_wire_error(error)

    def _prepare(self, text: str, types: Sequence[str], *, context: RequestContext) -> Prepared:
        """Return the parameters and columns of a statement of the session."""
        return self._gateway.describe(
            SURFACE,
            self.user,
            act=lambda session: session.prepare(text, types, implicit=context.implicit, postgres=True),
            role=context.analyst,
        )

    def _decode_values(self, text: str, bound: BoundValues, *, context: RequestContext) -> list[object]:
        """Return the values of parameters; the statement decides the types that the client left open."""
        parameters = _make_parameters(bound)
        names: Sequence[str] = [""] * len(parameters)
        if any(each.type_oid in _OPEN_TYPES for each in parameters):
            names = self._prepare(text, [find_type(each.type_oid) for each in parameters], context=context).parameters
            if len(names) != len(parameters):
                raise Malformed(f"The statement has {len(names)} parameters, and {len(parameters)} values were bound.")
        return [
            decode_value(each.value, each.type_oid, code=each.is_binary, name=name)
            for each, name in zip(parameters, names, strict=True)
        ]


def is_short(text: str) -> bool:
    """Return whether a text is parsed and routed in about a millisecond."""
    return len(text) <= _SHORT_TEXT


def _pad(oids: tuple[int, ...], count: int) -> tuple[int, ...]:
    return (*oids, *[0] * count)[:count]


def _make_parameters(bound: BoundValues) -> tuple[Parameter, ...]:
    count = len(bound.values)
    if not count:
        return ()
    parts = zip(bound.values, _pad(bound.types, count), expand_formats(bound.formats, count), strict=True)
    return tuple(Parameter(value, oid, bool(code)) for value, oid, code in parts)


def _convert_rows(answer: CatalogRows, formats: Sequence[int], *, holding: Holding) -> QueryResult:
    codes = expand_formats(formats, len(answer.columns))
    return QueryResult(EncodedRows(answer.columns, answer.rows, codes, holding))
