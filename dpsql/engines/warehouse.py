"""Common part of the engines over warehouses: addresses, drivers, tables, and a connection that is replaced.

A warehouse has no session that is read-only: dpsql sends SELECTs alone, and the role that it is given should read
alone. Values of parameters are bound as text, which the statement casts, since drivers round or quote other types.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from dpsql.dialects import Dialect
from dpsql.engines.arrow_types import find_arrow_type
from dpsql.engines.base import Column, ListedTable, Registered, Statement
from dpsql.engines.remote import ONE_SELECT, RemoteEngine, table_missing
from dpsql.errors import EngineError, PolicyError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

Sources = Mapping[str, object]
_PLACE = re.compile(r"\?/\*(\d+)\*/")
_DATE = re.compile(r"([+-]?\d+)-(\d\d)-(\d\d)")
_EPOCH = date(1970, 1, 1)
_TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = {} ORDER BY table_name"
_JAVA = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
_WIDEST = 38  # digits of DuckDB's DECIMAL
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of "scheme://user:password@host:port/one/two?name=value", each decoded."""

    host: str
    port: int | None
    path: tuple[str, ...]
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)


def parse_address(
    url: str, *, parts: Sequence[str], known: Iterable[str], needed: Mapping[str, str] = _NOTHING
) -> Address:
    """Return the parts of an address.

    Raises `EngineError` for one that lacks one of `parts`, of which the first is its host, or one of the `needed`
    settings, each with an example; or that has a setting other than these and the `known`.
    """
    known = {*known, *needed}
    try:
        split = urlsplit(url)
        path = tuple(unquote(part) for part in split.path.split("/") if part)
        settings = dict(parse_qsl(split.query, keep_blank_values=True, strict_parsing=bool(split.query)))
        host, port = unquote(split.hostname or ""), split.port
    except ValueError:
        path, settings, host, port = (), {}, "", None
    lacking = [name for name in needed if not settings.get(name)]
    if not host or len(path) != len(parts) - 1 or lacking or not settings.keys() <= known:
        form = f"{url.partition(':')[0]}://{'/'.join(map(str.upper, parts))}"
        form += "".join(f"{'&' if at else '?'}{name}={needed[name]}" for at, name in enumerate(needed))
        others = ", ".join(sorted(known - {*needed}))
        sign = "&" if needed else "?"
        hint = f"Write {form}, and after {sign} any of {others}." if others else f"Write {form}."
        reason = "The address of the data does not have the parts that this engine needs."
        if lacking and host:
            reason = f"The address of the data has no {lacking[0]}, which this engine needs."
        raise EngineError("engine-unreachable", reason, hint=hint, place="source.url")
    user, password = (None if each is None else unquote(each) for each in (split.username, split.password))
    return Address(host, port, path, user, password, settings)


def import_driver(module: str, *, engine: str, extra: str) -> Any:  # noqa: ANN401 - a module of another package
    """Return the module of a driver. Raises `UsageError` where it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        reason, hint = f"The driver of {engine} is not installed.", f"pip install 'dpsql[{extra}]'"
        raise UsageError("not-installed", reason, hint=hint) from None


def load_driver(
    module: str,
    sources: Sources,
    *,
    options: Mapping[str, str],
    of: tuple[str, str],
    known: frozenset[str] | Callable[[str], bool],
    hint: str = "",
) -> Any:  # noqa: ANN401 - a module of another package
    """Return the driver `of` an engine, with the extra that installs it, if the policy asks for what the engine has.

    Raises `PolicyError` where a table of the policy is a file, and `UsageError` without the driver, and for an option
    that is not among the `known`, or that dpsql sets itself.
    """
    if any(file is not None for file in sources.values()):
        reason = "Warehouses read no files."
        hint = "Load the file into the warehouse, and leave source out of the table."
        raise PolicyError("policy-source", reason, hint=hint, place="source.url")
    driver = import_driver(module, engine=of[0], extra=of[1])
    if isinstance(known, frozenset):
        hint = f"The options are {', '.join(sorted(known))}."
    for name in options:
        if not (name in known if isinstance(known, frozenset) else known(name)):
            reason = f"The option {name} is not known here, or dpsql sets it itself."
            raise UsageError("source-option", reason, hint=hint, place=f"source.options.{name}")
    return driver


def unreachable(engine: str, *, client: str) -> EngineError:
    """Return the error for a warehouse that cannot be reached; its own words may hold a password."""
    hint = f"Check the address, the user and the credentials; {client} says more."
    return EngineError("engine-unreachable", f"{engine} cannot be reached.", hint=hint, place="source.url")


def list_texts(values: Iterable[object], *, of_java: bool = False) -> list[str | None]:
    """Return values of parameters as texts that the warehouse casts; `of_java`, as a warehouse in Java reads them."""
    texts: list[str | None] = []
    for value in values:
        text = None if value is None else str(value)
        if text is not None and isinstance(value, bool):
            text = text.lower()
        elif text is not None and isinstance(value, float) and of_java:
            text = _JAVA.get(text, text)
        texts.append(text)
    return texts


def put_in_order(sql: str, values: Sequence[object]) -> tuple[str, list[Any]]:
    """Return a statement with ? for its parameters, each written as "?/*n*/", and the values in the order of the text.

    >>> put_in_order("SELECT ?/*2*/, ?/*1*/, ?/*2*/", ["a", "b"])
    ('SELECT ?, ?, ?', ['b', 'a', 'b'])
    """
    return _PLACE.sub("?", sql), [values[int(number) - 1] for number in _PLACE.findall(sql)]


def build_table(rows: Sequence[Sequence[Any]], types: Sequence[str], *, width: int) -> pa.Table:
    """Return rows of a driver without Arrow as a table of `width` columns; without `types`, Arrow infers them.

    Dates and time stamps are read from texts, since those of Python end with the year 9999.
    """
    import pyarrow as pa

    columns, arrays = [*zip(*rows, strict=True)] or [()] * width, []
    for values, type_ in zip(columns, types or [""] * width, strict=True):
        wanted = find_arrow_type(type_)
        if wanted is None:
            arrays.append(pa.array(values))
            continue
        read = _READERS.get(type_.partition("(")[0], int)
        found = [None if value is None else read(value) for value in values]
        if pa.types.is_temporal(wanted):
            arrays.append(pa.array(found, pa.int32() if type_ == "DATE" else pa.int64()).view(wanted))
        else:
            arrays.append(pa.array(found, wanted))
    return pa.table(arrays, names=[f"c{at}" for at in range(width)])


def _read_day(value: object) -> int:
    """Return a date as days since 1970; years of any length, in a like year of this era."""
    found = _DATE.match(str(value))
    if found is None:
        raise ValueError
    year, month, day = map(int, found.groups())
    like = year % 400 + 2_000
    return (date(like, month, day) - _EPOCH).days + (year - like) // 400 * 146_097


def _read_moment(value: object) -> int:
    """Return a time stamp as microseconds since 1970."""
    day, _, clock = str(value).replace("T", " ").partition(" ")
    hour, minute, second = clock.split(":")
    whole, _, fraction = second.partition(".")
    seconds = int(hour) * 3_600 + int(minute) * 60 + int(whole)
    return (_read_day(day) * 86_400 + seconds) * 1_000_000 + int(fraction[:6].ljust(6, "0"))


_READERS: Mapping[str, Callable[[Any], object]] = {
    "BOOLEAN": lambda value: str(value).lower() == "true",
    "DATE": _read_day,
    "DECIMAL": lambda value: Decimal(str(value)),
    "DOUBLE": float,
    "TIMESTAMP": _read_moment,
    "VARCHAR": str,
}


def list_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return the rows of an answer of a catalog."""
    return [*zip(*(column.to_pylist() for column in table.columns), strict=True)]


def name_decimal(width: int, scale: int) -> str:
    """Return DuckDB's name of a decimal type, or one that dpsql does not compute with."""
    return f"DECIMAL({width},{scale})" if 0 <= scale <= width <= _WIDEST else "NUMERIC"


def choose_table(
    name: str, rows: Iterable[tuple[tuple[str, ...], str, str]], *, engine: str, wanted: tuple[str, ...]
) -> Registered:
    """Return a table from rows of its qualified name, column and type, of all tables with that name in any case.

    A table of exactly this spelling is preferred; without one, there must be one alone. Columns whose names differ in
    case alone are left out. Raises `table_missing`.
    """
    tables: dict[tuple[str, ...], list[Column]] = {}
    for relation, column, type_ in rows:
        tables.setdefault(relation, []).append(Column(column, type_))
    exact = [each for each in tables if each[-len(wanted) :] == wanted]
    found = exact or [*tables]
    if len(found) != 1:
        raise table_missing(name, engine=engine)
    times = Counter(column.name.lower() for column in tables[found[0]])
    return Registered(found[0], tuple(column for column in tables[found[0]] if times[column.name.lower()] == 1))


class ConnectedWarehouse(RemoteEngine):
    """Warehouse behind one connection of its driver; a statement that fails takes the connection with it.

    `connect` opens a connection whose session has all settings on which the statements rely.
    """

    def __init__(
        self, dialect: Dialect, names: Iterable[str], *, connect: Callable[[], Any], time_limit: float | None
    ) -> None:
        self._connect = connect
        self._connection: Any = connect()
        self._running: Any = None
        super().__init__(dialect, self.look_up(names), time_limit=time_limit)

    def list_tables(self) -> Iterable[ListedTable]:
        """Return the tables and views of `default_schema`, of those that this user may read."""
        place = self.dialect.parameter.replace("{n}", "1")
        listed = self.fetch(Statement(_TABLES.format(place), (self.default_schema,), ("VARCHAR",)))
        return [ListedTable(str(name)) for name in listed.column(0).to_pylist()]

    @abstractmethod
    def answer(self, cursor: Any, statement: Statement) -> pa.Table:  # noqa: ANN401 - of any driver
        """Run one SELECT over a cursor of the driver, and return its answer."""

    def stop(self, cursor: Any) -> None:  # noqa: ANN401 - of any driver
        """Stop the statement of a cursor, called from another thread."""
        cursor.cancel()

    def fetch(self, statement: Statement) -> pa.Table:
        """Send one SELECT and return its answer; over a new connection after a failure."""
        if ONE_SELECT.match(statement.sql) is None:
            raise ValueError
        if self._connection is None:
            self._connection = self._connect()
        connection = self._connection
        cursor = connection.cursor()
        self._running = cursor
        try:
            return self.answer(cursor, statement)
        except BaseException:
            if self._connection is connection:  # and no other was made meanwhile, for the next statement
                self._connection = None
            with suppress(Exception):
                connection.close()
            raise
        finally:
            if self._running is cursor:
                self._running = None
            with suppress(Exception):
                cursor.close()

    def cancel(self) -> None:
        """Stop the statement that runs."""
        running = self._running
        if running is not None:
            self.stop(running)

    def answers(self) -> bool:
        """Return whether the session of the connection still answers, for the `lives` of a warehouse that has one."""
        connection = self._connection
        if connection is None:
            return False
        does_answer = False
        with suppress(Exception), closing(connection.cursor()) as cursor:
            cursor.execute("SELECT 1")
            does_answer = len(cursor.fetchall()) == 1
        if not does_answer or self._connection is not connection:  # broken, or replaced because it took too long
            with suppress(Exception):
                connection.close()
        return does_answer

    def reconnect(self) -> bool:
        """Leave the connection, which broke or has a statement that does not end, and open another."""
        self._connection = self._running = None
        self._connection = self._connect()
        return True

    def disconnect(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class CatalogWarehouse(ConnectedWarehouse):
    """Warehouse whose address names a catalog and a schema, the `place`; names of tables are lower-case.

    `columns_sql` reads schema, table, column and type of the columns of a table, by its schema and its name.
    """

    of: ClassVar[Dialect]
    engine: ClassVar[str]
    columns_sql: ClassVar[str]

    def __init__(self, place: tuple[str, ...], names: Iterable[str], *, connect: Any, time_limit: float | None) -> None:  # noqa: ANN401
        self._place = place
        self.default_schema = place[1].lower()
        super().__init__(self.of, names, connect=connect, time_limit=time_limit)

    @abstractmethod
    def name_type(self, name: str) -> str:
        """Return DuckDB's name of a type, or the warehouse's for one that dpsql does not compute with."""

    def found(self, name: str) -> Registered:
        """Return the table "name" or "schema.name" of the catalog; names are lower-case."""
        schema, _, table = name.lower().rpartition(".")
        wanted = (schema or self.default_schema, table)
        rows = self.read_catalog(Statement(self.columns_sql, wanted, ("VARCHAR",) * 4))
        found = (((self._place[0], str(row[0]), str(row[1])), str(row[2]), self.name_type(str(row[3]))) for row in rows)
        return choose_table(name, found, engine=self.engine, wanted=wanted)

    def read_catalog(self, statement: Statement) -> list[tuple[Any, ...]]:
        """Return the rows of a statement of the catalog, none where it fails."""
        with suppress(Exception):
            return list_rows(self.fetch(statement))
        return []


Warehouse = TypeVar("Warehouse", bound=ConnectedWarehouse)


def open_tables(connect: Callable[[], Warehouse], sources: Sources, *, engine: str, client: str) -> Warehouse:
    """Return a warehouse with its tables. Raises `EngineError` where it cannot be reached, or has not a table."""
    warehouse = None
    with suppress(Exception):
        warehouse = connect()
    if warehouse is None:
        raise unreachable(engine, client=client)
    warehouse._tables = warehouse.look_up(sources)  # noqa: SLF001 - of this module
    return warehouse
