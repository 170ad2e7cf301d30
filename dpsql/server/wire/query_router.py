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
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from dpsql.errors import Error
from dpsql.receipt import NO_MECHANISM
from dpsql.server.catalog.protocol import CatalogError, CatalogRows, Parameter, SystemCatalog
from dpsql.server.catalog.statements import is_catalog
from dpsql.server.memory_quota import BoundedCache, Holding, UserQuota
from dpsql.server.row_blocks import WireColumn, measure_columns
from dpsql.server.telemetry import CATALOG, DESCRIBE
from dpsql.server.wire.codec import Malformed
from dpsql.server.wire.command_parser import StatementText
from dpsql.server.wire.login import SURFACE
from dpsql.server.wire.rows import ArrowRows, EncodedRows, WireRows
from dpsql.server.wire.sqlstates import WireError, to_wire_error
from dpsql.server.wire.values import OIDS, decode_value, describe_columns, expand_formats, find_oid, find_type
from dpsql.sql.lexer import MAX_TEXT_LENGTH

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsql.answer import Answer
    from dpsql.engines.base import Stop
    from dpsql.plan import Prepared
    from dpsql.receipt import Receipt
    from dpsql.server.fair_queue import Pause
    from dpsql.server.gateway import Gateway
    from dpsql.server.users import User


Result = TypeVar("Result")
_SHORT_TEXT = 1_000  # characters, which take about a millisecond to parse or route
_FEW_VALUES, _FEW_BYTES = 100, 10_000  # of parameters that are decoded in the event loop
_MAX_SHAPES, _MAX_REMEMBERED = 128 * 1024, 2_000  # bytes of shapes that a connection remembers; characters of a text
_OF_SHAPE, _OF_TYPE = 500, 50  # bytes that Python needs for a shape, and for the type of a parameter
_OPEN_TYPES = frozenset([0, OIDS["unknown"]])  # of parameters, which the statement decides
_THREADS_OF_ONE = 3  # jobs of an analyst that run at a time


@dataclass(frozen=True, slots=True)
class BoundValues:
    """The encoded values of a statement's parameters, their formats, and the OIDs of their types."""

    values: tuple[bytes | None, ...] = ()
    formats: tuple[int, ...] = ()
    types: tuple[int, ...] = ()

    @property
    def is_small(self) -> bool:
        """Whether the values are decoded in about a millisecond."""
        return len(self.values) <= _FEW_VALUES and sum(len(each or b"") for each in self.values) <= _FEW_BYTES


@dataclass(frozen=True, slots=True)
class Shape:
    """The OIDs of a statement's parameters, and its columns, which are None if it returns no rows.

    `schema` has the Arrow types of the columns of a session's query.
    """

    parameters: tuple[int, ...] = ()
    columns: tuple[WireColumn, ...] | None = None
    schema: pa.Schema | None = None

    @property
    def size(self) -> int:
        """The bytes that it holds; its Arrow types take as many as its columns."""
        columns = measure_columns(self.columns or ())
        return _OF_SHAPE + _OF_TYPE * len(self.parameters) + columns * (1 if self.schema is None else 2)


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The rows of an answer, and its notes and its receipt if private rows were read."""

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
            return cls(ArrowRows(answer.arrow()))
        return cls(ArrowRows(answer.arrow()), answer.notes(), answer.receipt)


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The analyst for whom a query is run, the future that cancels it, and its time limit; 0 is no limit.

    `implicit` reads standard SQL as private, or not; None leaves it to the policy. `definitions` create the temporary
    views of the connection in the catalog.
    """

    cancelled: asyncio.Future[None]
    analyst: str
    seconds: float = 0.0
    implicit: bool | None = None
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
        self,
        work: Callable[[Stop], Result],
        *,
        cancelled: asyncio.Future[None],
        analyst: str,
        is_free: bool,
        seconds: float = 0.0,
    ) -> Result:
        """Run work in a thread; raise `WireError` once it is cancelled or takes longer than `seconds`.

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
        either: set[asyncio.Future[Any]] = {task, cancelled}
        try:
            await asyncio.wait(either, timeout=seconds or None, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
        finally:
            is_abandoned = True
            if not task.done() and not has_begun:
                task.cancel()
            del task, either  # an error refers to this frame, which would refer to the error
        reason = "The statement was cancelled." if cancelled.done() else "The statement took too long."
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
        catalog: Callable[[], SystemCatalog],
        *,
        runner: ThreadRunner,
        user: User,
        quota: UserQuota,
    ) -> None:
        self._gateway, self._catalog, self._runner = replace(gateway, postgres=True), catalog, runner
        self._quota = quota
        self._tables, self._shapes = gateway.service.catalog, BoundedCache[Shape](_MAX_SHAPES)
        self._results: WeakKeyDictionary[Answer, QueryResult] = WeakKeyDictionary()
        self.user = user
        self.version = catalog().version

    async def run_in_thread(
        self, work: Callable[[], Result], source: StatementText, *, context: RequestContext
    ) -> Result:
        """Return the result of work on a statement, done in a thread in a turn of the analyst."""
        share = self._gateway.service.share

        def work_in_turn(stop: Stop) -> Result:
            with share.turn(context.analyst, stop=stop):
                return work()

        return await self._run(work_in_turn, source, context=context)

    def count_light(self, kind: str, source: StatementText, *, analyst: str) -> None:
        """Count a statement that takes next to no time; raise `WireError` for one too many, and without the role."""
        try:
            self._gateway.count_light(SURFACE, self.user, role=analyst, kind=kind)
        except Exception as error:  # noqa: BLE001 - its text could contain values
            failure = self._convert_error(error, source)
        else:
            return
        raise failure

    async def describe(self, source: StatementText, types: tuple[int, ...], *, context: RequestContext) -> Shape:
        """Return the parameters and columns of a statement, as far as they are known before values are bound."""
        text, analyst = source.text, context.analyst
        shapes, key = self._find_shapes(), (text, types, analyst, context.implicit)
        stored = shapes.find(key)
        if stored is not None and self._may_act_as(analyst):
            self.count_light(DESCRIBE, source, analyst=analyst)
            return stored

        def describe_in_session(_: Stop) -> Shape:
            declared = [find_type(oid) for oid in types]
            prepared = self._prepare(text, declared, context=context)
            pairs = zip(_pad(types, len(prepared.parameters)), prepared.parameters, strict=True)
            oids = tuple(oid or find_oid(name) for oid, name in pairs)
            return Shape(oids, describe_columns(prepared.schema), prepared.schema)

        known = None if context.definitions else self._catalog().find_description(text, types)
        if known is not None:
            self.count_light(DESCRIBE, source, analyst=analyst)
            return Shape(known.parameters, known.columns)
        if await self._is_catalog(source, context):
            return await self._describe_in_catalog(source, types, context=context)
        shape = await self._run(describe_in_session, source, context=context)
        if len(text) <= _MAX_REMEMBERED:
            shapes.add(key, shape, size=sys.getsizeof(text) + _OF_TYPE * len(types) + shape.size)
        return shape

    async def _describe_in_catalog(
        self, source: StatementText, types: tuple[int, ...], *, context: RequestContext
    ) -> Shape:
        def describe(_: Pause) -> Shape:
            found = self._catalog().describe(source.text, types, user=context.analyst, definitions=context.definitions)
            return Shape(found.parameters, found.columns)

        return await self._run(
            partial(self._read_catalog, act=describe, kind=DESCRIBE, context=context), source, context=context
        )

    def _find_shapes(self) -> BoundedCache[Shape]:
        """Return the known shapes of the session's queries over the present tables, which a reload replaces."""
        tables = self._gateway.service.catalog
        if tables is not self._tables:
            self._tables, self._shapes = tables, BoundedCache(_MAX_SHAPES)
        return self._shapes

    def _may_act_as(self, analyst: str) -> bool:
        """Return whether the user may act as an analyst now."""
        try:
            self._gateway.check_role(self.user, analyst)
        except Error:  # which a new description raises
            return False
        return True

    async def query(
        self, source: StatementText, bound: BoundValues, *, formats: Sequence[int], context: RequestContext
    ) -> QueryResult:
        """Answer a query; `formats` are those of a Bind, in which the catalog encodes its rows."""
        if bound.is_small:
            stored = self._find_in_catalog(source, bound, formats=formats, context=context)
            if stored is not None:
                return stored
            known = self._peek(source, bound, context=context)
            if known is not None:
                return known
        if await self._is_catalog(source, context):
            return await self.query_catalog(source, bound, formats=formats, context=context)
        text = source.text

        def answer(stop: Stop) -> QueryResult:
            values = self._decode_values(text, bound, context=context) if bound.values else []
            gateway = self._gateway.with_implicit(context.implicit)
            answer = gateway.ask(SURFACE, self.user, text=text, parameters=values, role=context.analyst, stop=stop)
            return QueryResult.of(answer)

        return await self._run(answer, source, context=context, is_free=False)

    def _peek(self, source: StatementText, bound: BoundValues, *, context: RequestContext) -> QueryResult | None:
        """Answer a repeated query here, without a thread, if its answer is at hand and still right; else return None.

        The session has no answers to statements that are for the catalog.
        """
        values = _decode_typed(bound)
        if values is None:
            return None
        gateway = self._gateway.with_implicit(context.implicit)
        try:
            answer = gateway.peek(SURFACE, self.user, text=source.text, parameters=values, role=context.analyst)
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
        bound: BoundValues | None = None,
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
                found = self._catalog().execute(
                    source.text,
                    _make_parameters(BoundValues() if bound is None else bound),
                    user=context.analyst,
                    formats=tuple(formats),
                    definitions=context.definitions,
                    hold=hold,
                )
            except (CatalogError, Error) as error:
                failure = error.with_traceback(None)  # whose frames would keep the rows that were read
            except WireError as error:
                failure = CatalogError(error.sqlstate, error.reason, hint=error.hint)
            else:
                return _convert_rows(found, formats, holding=holding)
            raise failure

        try:
            return await self._run(
                partial(self._read_catalog, act=read, kind=kind, context=context), source, context=context
            )
        except WireError:
            holding.resize(0)
            raise

    def _read_catalog(
        self, stop: Stop, *, act: Callable[[Pause], Result], kind: str, context: RequestContext
    ) -> Result:
        """Return what an act reads in the catalog, in a turn of the analyst."""
        return self._gateway.answer_from_catalog(
            SURFACE, self.user, act=act, role=context.analyst, kind=kind, stop=stop
        )

    def _find_in_catalog(
        self, source: StatementText, bound: BoundValues, *, formats: Sequence[int], context: RequestContext
    ) -> QueryResult | None:
        """Return the answer that the catalog has stored, without a thread, or None; None also without a turn."""
        if context.definitions:
            return None
        parameters, analyst = _make_parameters(bound), context.analyst
        found = self._catalog().find_answer(source.text, parameters, user=analyst, formats=tuple(formats))
        if found is None:
            return None
        with self._gateway.service.share.try_turn(analyst) as has_turn:
            if not has_turn:
                return None
            self.count_light(CATALOG, source, analyst=analyst)
            return _convert_rows(found, formats, holding=self._quota.hold(found.size))

    async def _is_catalog(self, source: StatementText, context: RequestContext) -> bool:
        """Return whether a statement is for the catalog; a long one is read in a thread, as it blocks other clients."""
        text, tables = source.text, self._gateway.service.policy.tables
        if len(text) > MAX_TEXT_LENGTH:
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
            return await self._runner.run(
                work, cancelled=context.cancelled, analyst=analyst, is_free=is_free, seconds=context.seconds
            )
        except Exception as error:  # noqa: BLE001 - its text could contain values
            failure = self._convert_error(error, source)
        raise failure

    def _convert_error(self, error: Exception, source: StatementText) -> WireError:
        """Return the error for the client, and log one that is unexpected."""
        match error:
            case CatalogError():
                position = error.position + source.before if error.position else 0
                return WireError(error.sqlstate, error.message, hint=error.hint, position=position)
            case Error() | Malformed() | WireError():
                return to_wire_error(error, source.text, before=source.before)
        self._gateway.telemetry.log_fault(error, surface=SURFACE)
        return to_wire_error(error)

    def _prepare(self, text: str, types: Sequence[str], *, context: RequestContext) -> Prepared:
        """Return the parameters and columns of a statement of the session."""
        gateway = self._gateway.with_implicit(context.implicit)
        return gateway.prepare(SURFACE, self.user, text=text, types=types, role=context.analyst)

    def _decode_values(self, text: str, bound: BoundValues, *, context: RequestContext) -> list[object]:
        """Return the values of parameters; the statement decides the types that the client left open."""
        oids = _pad(bound.types, len(bound.values))
        codes = expand_formats(bound.formats, len(bound.values))
        names: Sequence[str] = [""] * len(oids)
        if any(oid in _OPEN_TYPES for oid in oids):
            types = [find_type(oid) for oid in oids]
            names = self._prepare(text, types, context=context).parameters
            if len(names) != len(oids):
                raise Malformed(f"The statement has {len(names)} parameters, and {len(oids)} values were bound.")
        return [
            decode_value(value, oid, code=code, name=name)
            for value, oid, code, name in zip(bound.values, oids, codes, names, strict=True)
        ]


def is_short(text: str) -> bool:
    """Return whether a text is parsed and routed in about a millisecond."""
    return len(text) <= _SHORT_TEXT


def _decode_typed(bound: BoundValues) -> list[object] | None:
    """Return the values of parameters whose types the client knows; None if not all are, or can be decoded."""
    oids = _pad(bound.types, len(bound.values))
    if any(oid in _OPEN_TYPES for oid in oids):
        return None
    try:
        parts = zip(bound.values, oids, expand_formats(bound.formats, len(oids)), strict=True)
        return [decode_value(value, oid, code=code, name="") for value, oid, code in parts]
    except (Error, Malformed, WireError):  # of a type that the catalog may have
        return None


def _pad(oids: tuple[int, ...], count: int) -> tuple[int, ...]:
    return (*oids, *[0] * count)[:count]


def _make_parameters(bound: BoundValues) -> tuple[Parameter, ...]:
    count = len(bound.values)
    parts = zip(bound.values, _pad(bound.types, count), expand_formats(bound.formats, count), strict=True)
    return tuple(Parameter(value, oid, bool(code)) for value, oid, code in parts)


def _convert_rows(answer: CatalogRows, formats: Sequence[int], *, holding: Holding) -> QueryResult:
    codes = expand_formats(formats, len(answer.columns))
    return QueryResult(EncodedRows(answer.columns, answer.rows, codes, holding))
