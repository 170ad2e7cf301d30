"""Common part of the engines over warehouses: their addresses, drivers, values and tables.

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
from typing import TYPE_CHECKING, Any, ClassVar, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from dpsql.dialects import Dialect
from dpsql.engines.arrow_types import find_arrow_type
from dpsql.engines.base import Statement
from dpsql.engines.remote import ConnectedEngine, import_driver, table_missing
from dpsql.engines.sources import Column, ListedTable, Registered
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


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of "scheme://user:password@host:port/one/two?name=value", each decoded."""

    host: str
    port: int | None
    path: tuple[str, ...]
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Product:
    """What one warehouse has otherwise where it is opened.

    `extra` installs its `driver`, and `client` is a program that says why a login fails. Its address has `parts`, of
    which the first is the host, may have `settings`, and has those that are `needed`, each with an example. `options`
    are those of [source.options] that it takes, or say whether it takes one; `hint` names them then.
    """

    name: str
    extra: str
    driver: str
    client: str
    parts: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    needed: Mapping[str, str] = field(default_factory=dict)
    options: frozenset[str] | Callable[[str], bool] = frozenset()
    hint: str = ""

    def load_driver(self, sources: Sources, options: Mapping[str, str]) -> Any:  # noqa: ANN401 - of another package
        """Return the driver, if the policy asks for what the warehouse has.

        Raises `PolicyError` where a table of the policy is a file, and `UsageError` without the driver, and for an
        option that is not known, or that dpsql sets itself.
        """
        if any(file is not None for file in sources.values()):
            reason = "Warehouses read no files."
            hint = "Load the file into the warehouse, and leave source out of the table."
            raise PolicyError("policy-source", reason, hint=hint, place="source.url")
        driver = self.import_part(self.driver)
        known, hint = self.options, self.hint
        if isinstance(known, frozenset):
            hint = f"The options are {', '.join(sorted(known))}."
        for name in options:
            if not (name in known if isinstance(known, frozenset) else known(name)):
                reason = f"The option {name} is not known here, or dpsql sets it itself."
                raise UsageError("source-option", reason, hint=hint, place=f"source.options.{name}")
        return driver

    def import_part(self, module: str) -> Any:  # noqa: ANN401 - of another package
        """Return a module of the driver. Raises `UsageError` where it is not installed."""
        return import_driver(module, engine=self.name, extra=self.extra)

    def parse_address(self, url: str) -> Address:
        """Return the parts of an address. Raises `EngineError` for one that lacks a part, or has another setting."""
        known = {*self.settings, *self.needed}
        try:
            split = urlsplit(url)
            path = tuple(unquote(part) for part in split.path.split("/") if part)
            settings = dict(parse_qsl(split.query, keep_blank_values=True, strict_parsing=bool(split.query)))
            host, port = unquote(split.hostname or ""), split.port
        except ValueError:
            path, settings, host, port = (), {}, "", None
        lacking = [name for name in self.needed if not settings.get(name)]
        if not host or len(path) != len(self.parts) - 1 or lacking or not settings.keys() <= known:
            form = f"{url.partition(':')[0]}://{'/'.join(map(str.upper, self.parts))}"
            form += "".join(f"{'&' if at else '?'}{name}={self.needed[name]}" for at, name in enumerate(self.needed))
            others, sign = ", ".join(sorted(self.settings)), "&" if self.needed else "?"
            hint = f"Write {form}, and after {sign} any of {others}." if others else f"Write {form}."
            reason = "The address of the data does not have the parts that this engine needs."
            if lacking and host:
                reason = f"The address of the data has no {lacking[0]}, which this engine needs."
            raise EngineError("engine-unreachable", reason, hint=hint, place="source.url")
        user, password = (None if each is None else unquote(each) for each in (split.username, split.password))
        return Address(host, port, path, user, password, settings)

    def unreachable(self, how: str = "") -> EngineError:
        """Return the error for a warehouse that cannot be reached, `how`; its own words may hold a password."""
        hint = f"Check the address, the user and the credentials; {self.client} says more."
        return EngineError("engine-unreachable", f"{self.name}{how} cannot be reached.", hint=hint, place="source.url")


def list_texts(values: Iterable[object], *, of_java: bool = False) -> list[str | None]:
    """Return values of parameters as texts that the warehouse casts; `of_java`, as a warehouse in Java reads them."""
    texts: list[str | None] = []
    for value in values:
        text = None if value is None else str(value)
        if text is not None and isinstance(value, bool):
            # Python writes True, and SQL true.
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

    # Without rows, zip yields no columns.
    columns, arrays = [*zip(*rows, strict=True)] or [()] * width, []
    for values, type_ in zip(columns, types or [""] * width, strict=True):
        wanted = find_arrow_type(type_)
        if wanted is None:
            arrays.append(pa.array(values))
            continue
        read = _READERS.get(type_.partition("(")[0], int)
        found = [None if value is None else read(value) for value in values]
        if pa.types.is_temporal(wanted):
            # A view, as the days since 1970 may be beyond the year 9999, where Python has no date to make the array
            # from.
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
    # The calendar repeats after 400 years of 146,097 days: 12026 is read as 2026, and 25 times 400 years are added.
    return (date(like, month, day) - _EPOCH).days + (year - like) // 400 * 146_097


def _read_moment(value: object) -> int:
    """Return a time stamp as microseconds since 1970."""
    day, _, clock = str(value).replace("T", " ").partition(" ")
    hour, minute, second = clock.split(":")
    whole, _, fraction = second.partition(".")
    seconds = int(hour) * 3_600 + int(minute) * 60 + int(whole)
    # .5 are 500,000 microseconds, and .1234567 are 123,456: digits below a microsecond are cut off.
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


class Warehouse(ConnectedEngine):
    """Warehouse behind one connection of its driver.

    `columns_sql` reads schema, table, column and type of the columns of a table, and the digits of numbers if the type
    does not say them, by its schema and its name. Names are lower-case where it `folds_names`.
    """

    product: ClassVar[Product]
    of: ClassVar[Dialect]
    columns_sql: ClassVar[str]
    folds_names: ClassVar[bool] = True

    def __init__(self, place: tuple[str, ...], *, connect: Callable[[], Any], time_limit: float | None) -> None:
        """Make an engine without tables at a `place`, the catalog and the schema of the address."""
        super().__init__(self.of, {}, connect=connect, time_limit=time_limit)
        self._catalog = place[:1]
        if len(place) > 1:
            self.default_schema = place[1].lower() if self.folds_names else place[1]

    @classmethod
    def open(cls, url: str, sources: Sources, *, options: Mapping[str, str], time_limit: float | None = None) -> Self:
        """Open the warehouse at an address, as `connector` of its class has it.

        Raises `EngineError` where it cannot be reached, or has not a table; `PolicyError` for a table that is a file;
        `UsageError` without the driver, or with another option.
        """
        driver = cls.product.load_driver(sources, options)
        address = cls.parse_address(url)
        connect = cls.connector(driver, address, options=options, time_limit=time_limit)
        engine, is_open = cls(address.path, connect=connect, time_limit=time_limit), False
        with suppress(Exception):
            engine.try_connection()
            is_open = True
        if not is_open:
            raise cls.product.unreachable()
        engine._tables = engine.look_up(sources)
        return engine

    @classmethod
    def parse_address(cls, url: str) -> Address:
        """Return the parts of an address."""
        return cls.product.parse_address(url)

    @classmethod
    @abstractmethod
    def connector(
        cls,
        driver: Any,  # noqa: ANN401 - a module of another package
        address: Address,
        *,
        options: Mapping[str, str],
        time_limit: float | None,
    ) -> Callable[[], Any]:
        """Return what opens a connection, and does not connect yet. Raises `EngineError` for another address."""

    def try_connection(self) -> None:
        """Connect; raise some exception where that fails."""
        self.open_connection()

    @abstractmethod
    def name_type(self, name: str, *digits: int | None) -> str:
        """Return DuckDB's name of a type, or the warehouse's for one that dpsql does not compute with."""

    def found(self, name: str) -> Registered:
        """Return the table "name" of the schema in the address, or "schema.name"."""
        schema, _, table = (name.lower() if self.folds_names else name).rpartition(".")
        wanted = (schema or self.default_schema, table)
        rows = self.read_catalog(Statement(self.columns_sql, wanted, ("VARCHAR",) * 4))
        found = (
            ((*self._catalog, str(row[0]), str(row[1])), str(row[2]), self.name_type(str(row[3]), *row[4:]))
            for row in rows
        )
        return choose_table(name, found, engine=self.product.name, wanted=wanted)

    def list_tables(self) -> Iterable[ListedTable]:
        """Return the tables and views of `default_schema`, of those that this user may read."""
        place = self.dialect.parameter.replace("{n}", "1")
        listed = self.fetch(Statement(_TABLES.format(place), (self.default_schema,), ("VARCHAR",)))
        return [ListedTable(str(name)) for name in listed.column(0).to_pylist()]

    def read_catalog(self, statement: Statement) -> list[tuple[Any, ...]]:
        """Return the rows of a statement of the catalog, none where it fails."""
        with suppress(Exception):
            return list_rows(self.fetch(statement))
        return []


def _leave(_: object) -> None:
    """Leave what a statement that makes a setting returned."""


def open_session(
    connect: Callable[[], Any],
    settings: Iterable[str],
    *,
    tried: Iterable[str] = (),
    finish: Callable[[Any], object] = _leave,
) -> Any:  # noqa: ANN401 - of any driver
    """Return a connection after statements that make settings; those that are `tried` may fail.

    `finish` is called with the cursor of each, for drivers that run a statement as its rows are fetched.
    """
    connection = connect()
    try:
        with closing(connection.cursor()) as cursor:
            for sql in settings:
                cursor.execute(sql)
                finish(cursor)
        for sql in tried:
            with suppress(Exception), closing(connection.cursor()) as cursor:
                cursor.execute(sql)
    except BaseException:
        with suppress(Exception):
            connection.close()
        raise
    return connection
