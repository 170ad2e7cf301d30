"""Questions: which go to the session and which to the catalog, what they take and give, and what they answer.

The session decides everything that is private; a statement over system catalogs never reaches it, nor a private one
the catalog. Describing is free, whatever is described.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from dpsql.errors import Error
from dpsql.server.catalog.dispatch import is_catalog
from dpsql.server.catalog.query_result import Catalog, CatalogError, Parameter
from dpsql.server.catalog.query_result import Column as CatalogColumn
from dpsql.server.wire.codec import Column, Malformed
from dpsql.server.wire.lexer import StatementText, pieces
from dpsql.server.wire.row_sets import ArrowRows, PlainRows, Rows, each_format
from dpsql.server.wire.sqlstates import WireError, failure_of, where
from dpsql.server.wire.startup import SURFACE
from dpsql.server.wire.threads import Runner
from dpsql.server.wire.types import OIDS, columns_of
from dpsql.server.wire.values import oid_of, type_of, value_of_bytes
from dpsql.sql.lexer import LONGEST_TEXT

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from dpsql.engines.base import Stop
    from dpsql.server.gateway import Gateway
    from dpsql.server.users import User

__all__ = ["Bound", "QueryResult", "QueryRouter", "RequestContext", "Shape"]

Result = TypeVar("Result")
LONG_TEXT = 2_000  # characters, which take a millisecond or so to read
_LONGEST_TEXT = 160 * 1024  # characters; the language reads fewer, in each statement
_MOST_AT_ONCE = 1_000  # statements of one text


@dataclass(frozen=True, slots=True)
class Bound:
    """The values of a statement's parameters as they were sent, with their formats and the OIDs of their types."""

    values: tuple[bytes | None, ...] = ()
    formats: tuple[int, ...] = ()
    types: tuple[int, ...] = ()


NOTHING = Bound()


@dataclass(frozen=True, slots=True)
class Shape:
    """What a statement takes and gives: OIDs of types, and columns, which are None where it gives no rows.

    `schema` has the types of Arrow behind the columns, where they are the session's.
    """

    parameters: tuple[int, ...] = ()
    columns: tuple[Column, ...] | None = None
    schema: pa.Schema | None = None


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The rows of an answer, and the receipt of one that read private rows."""

    rows: Rows
    receipt: str = ""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """For whom and how a question is asked: the role, what gives it up, and after how many seconds it is given up."""

    given_up: asyncio.Future[None]
    role: str = ""
    seconds: float = 0.0


class QueryRouter:
    """One user's questions."""

    def __init__(self, front: Gateway, catalog: Catalog, *, runner: Runner, user: User) -> None:
        self._front, self._catalog, self._runner = front, catalog, runner
        self.user = user
        self.version = catalog.version

    async def describe(self, piece: StatementText, types: tuple[int, ...], *, asking: RequestContext) -> Shape:
        """Return what a statement takes and gives, as far as can be told before its parameters have values."""
        role = asking.role or self.user.name
        shape = self._catalog_shape if await self._is_catalog(piece, asking) else self._session_shape
        return await self._run(lambda _: shape(piece.text, types, role=role), piece, asking=asking)

    async def ask(
        self, piece: StatementText, bound: Bound, *, formats: Sequence[int], asking: RequestContext
    ) -> QueryResult:
        """Answer a statement; `formats` are those of a Bind, and matter for what the catalog writes out itself."""
        role = asking.role or self.user.name
        if await self._is_catalog(piece, asking):
            return await self.look_up(piece, bound, formats=formats, asking=asking)
        return await self._run(
            lambda stop: self._answer(piece.text, bound, role=role, stop=stop), piece, asking=asking, asks=role
        )

    async def look_up(
        self, piece: StatementText, bound: Bound = NOTHING, *, formats: Sequence[int] = (), asking: RequestContext
    ) -> QueryResult:
        """Answer a statement by the catalog, whatever it is."""
        role = asking.role or self.user.name
        return await self._run(
            lambda _: self._catalog_rows(piece.text, bound, role=role, formats=formats), piece, asking=asking
        )

    async def _is_catalog(self, piece: StatementText, asking: RequestContext) -> bool:
        """Say whose a statement is; a long one is read in a thread, while other clients are served."""
        text, tables = piece.text, self._front.service.policy.tables
        if len(text) <= LONG_TEXT:
            return is_catalog(text, tables)
        return await self._run(lambda _: len(text) <= LONGEST_TEXT and is_catalog(text, tables), piece, asking=asking)

    async def pieces(self, text: str, *, asking: RequestContext) -> list[StatementText]:
        """Return the statements of a text; raises `WireError` for too long a text, and for too many."""
        if len(text) > _LONGEST_TEXT:
            hint = f"Send at most {_LONGEST_TEXT} characters at once."
            raise WireError("54000", "The text is too long.", hint=hint)
        if len(text) <= LONG_TEXT:
            found = pieces(text)
        else:
            found = await self._run(lambda _: pieces(text), StatementText(text, 0), asking=asking)
        if len(found) > _MOST_AT_ONCE:
            raise WireError("54000", "There are too many statements in one text.", hint="Send fewer at once.")
        return found

    async def _run(
        self, work: Callable[[Stop], Result], piece: StatementText, *, asking: RequestContext, asks: str = ""
    ) -> Result:
        """Run in a thread, as what `asks` for an analyst or else as free work of this user.

        Whatever is raised there is raised here as a `WireError` that holds nothing of it.
        """
        try:
            return await self._runner.run(
                work, given_up=asking.given_up, seconds=asking.seconds, turn=asks or self.user.name, free=not asks
            )
        except CatalogError as error:
            position = error.position + piece.before if error.position else 0
            failure = WireError(error.sqlstate, error.message, hint=error.hint, position=position)
        except (Error, Malformed, WireError) as error:
            failure = failure_of(error, piece.text, before=piece.before)
        except Exception as error:  # noqa: BLE001 - its words could hold anything
            self._front.watch.log("fault", surface=SURFACE, kind=type(error).__name__, where=where(error))
            failure = failure_of(error)
        raise failure

    def _catalog_shape(self, text: str, types: tuple[int, ...], *, role: str) -> Shape:
        found = self._catalog.describe(text, types, user=role)
        return Shape(found.parameters, _columns(found.columns))

    def _catalog_rows(self, text: str, bound: Bound, *, role: str, formats: Sequence[int]) -> QueryResult:
        codes, oids = each_format(bound.formats, len(bound.values)), _padded(bound.types, len(bound.values))
        given = [Parameter(value, oid, bool(code)) for value, oid, code in zip(bound.values, oids, codes, strict=True)]
        found = self._catalog.execute(text, given, user=role, formats=tuple(formats))
        columns = _columns(found.columns)
        return QueryResult(PlainRows(columns, found.rows, each_format(formats, len(columns))))

    def _session_shape(self, text: str, types: tuple[int, ...], *, role: str) -> Shape:
        known = [type_of(oid) for oid in types]
        prepared = self._front.look(self.user, lambda session: session.prepare(text, known), role=role)
        told = _padded(types, len(prepared.parameters))
        oids = tuple(said or oid_of(name) for said, name in zip(told, prepared.parameters, strict=True))
        return Shape(oids, columns_of(prepared.schema), prepared.schema)

    def _answer(self, text: str, bound: Bound, *, role: str, stop: Stop) -> QueryResult:
        values = self._values(text, bound, role=role)
        answer = self._front.ask(SURFACE, self.user, text=text, parameters=values, role=role, stop=stop)
        receipt = str(answer.receipt) if answer.receipt.mechanism != "none" else ""
        return QueryResult(ArrowRows(answer.arrow()), receipt)

    def _values(self, text: str, bound: Bound, *, role: str) -> list[object]:
        """Return the values of parameters; what type one is of that the client left open, the statement says."""
        if not bound.values:
            return []
        codes, oids = each_format(bound.formats, len(bound.values)), _padded(bound.types, len(bound.values))
        names: Sequence[str] = [""] * len(oids)
        if any(oid in {0, OIDS["unknown"]} for oid in oids):
            told = [type_of(oid) for oid in oids]
            names = self._front.look(self.user, lambda session: session.prepare(text, told), role=role).parameters
            if len(names) != len(oids):
                raise Malformed(f"The statement has {len(names)} parameters, and {len(oids)} values were bound.")
        return [
            value_of_bytes(value, oid, code=code, name=name)
            for value, oid, code, name in zip(bound.values, oids, codes, names, strict=True)
        ]


def _padded(oids: tuple[int, ...], count: int) -> tuple[int, ...]:
    return (*oids, *[0] * count)[:count]


def _columns(columns: Sequence[CatalogColumn]) -> tuple[Column, ...]:
    return tuple(Column(one.name, one.type_oid, one.type_size, one.type_modifier) for one in columns)
