"""Tables of a policy: privacy units and links, bounds of what one unit adds to a group, and first and last days.

Links form chains; each ends at a table with a privacy unit of its own. If a link leads to that unit itself, its column
is the unit already, and no other table is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from dpsql.dialects import CsvFormat, write_name
from dpsql.errors import PolicyError, UsageError
from dpsql.policy.csv_format import GivenFormat, check_csv
from dpsql.policy.source import DataSource
from dpsql.policy.toml import Section, quote
from dpsql.policy.validation import (
    METADATA,
    SourceUrl,
    check_budget_by,
    check_columns,
    check_count,
    check_materialized,
    check_name,
    check_not_null,
    check_path,
    check_population,
    check_single_valued,
    check_source,
    check_types,
    fill,
    fold,
    is_source_url,
    optional_count,
    suggest_name,
    wrong_type,
)
from dpsql.quantities import Number, exact

_LARGEST = 10**15
_EACH, _DISTINCT, _ENDS = "each", "distinct", ("min", "max")
_KEYS = (*_ENDS, _EACH, _DISTINCT)
_HINT = "Write the least and the most that one unit's values add up to in one group, such as {max = 500}."
_HINT_EACH = "Write the least and the greatest value of one row, such as each = {min = 1, max = 10}."


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """Bounds of one unit's values in one group; at least `max`, `each` or `distinct` is set.

    `max` bounds the sum of the positive values, and `-min` that of the negative ones, which count as 0 where only `max`
    is set. `each` is the range of the value of one row. So many `distinct` values of one unit count.
    """

    min: Fraction | None
    max: Fraction | None
    each: tuple[Fraction, Fraction] | None = None
    distinct: int | None = None

    def __str__(self) -> str:
        """Return the bounds as a policy file writes them."""
        parts = [] if self.max is None else [_write_ends(self.min or Fraction(0), self.max)]
        parts += [] if self.each is None else [f"each = {{{_write_ends(*self.each)}}}"]
        parts += [] if self.distinct is None else [f"{_DISTINCT} = {self.distinct}"]
        return f"{{{', '.join(parts)}}}"

    def bound_sum(self, rows: int | None) -> tuple[Fraction, Fraction] | None:
        """Return the least and the most that so many rows of a unit add up to; None where nothing bounds them."""
        ends = [] if self.max is None else [(self.min or Fraction(0), self.max)]
        if self.each is not None and rows is not None:
            # A unit may have fewer rows, or none: 0 is always between the ends.
            ends.append((min(self.each[0] * rows, Fraction(0)), max(self.each[1] * rows, Fraction(0))))
        return (max(low for low, _ in ends), min(high for _, high in ends)) if ends else None


def _write_ends(low: Fraction, high: Fraction) -> str:
    return f"min = {float(low):.15g}, max = {float(high):.15g}"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a private table: the `rows` of one unit in one group, None without a bound, and those of columns."""

    rows: int | None = None
    columns: tuple[tuple[str, ColumnBounds], ...] = ()

    def list_lines(self) -> Iterator[str]:
        """Yield the bounds as a policy file writes them."""
        if self.rows is not None:
            yield f"rows = {self.rows}"
        for name, found in self.columns:
            yield f"{name} = {found}"

    def find(self, column: str) -> ColumnBounds | None:
        """Return the bounds of a column, by its name without regard to ASCII case."""
        return next((found for name, found in self.columns if fold(name) == fold(column)), None)


GivenBounds = Mapping[str, Number | Mapping[str, Number]]


def check_bounds(values: Bounds | Mapping[str, int | GivenBounds]) -> Bounds:
    """Return the bounds of a table: a number of rows under "rows", and of columns a mapping.

    Its keys are max, min, each and distinct.

    Raises `PolicyError` for anything else.
    """
    if isinstance(values, Bounds):
        return values
    if not isinstance(values, Mapping):
        raise wrong_type("a mapping of columns to their bounds", values, place="bounds")
    rows, columns = None, dict[str, ColumnBounds]()
    for name, value in values.items():
        check_name(name, "bounds")
        if name == "rows" and not isinstance(value, Mapping):
            rows = check_count(value, "bounds.rows")
        elif not isinstance(value, Mapping):
            raise wrong_type("a mapping such as {max = 500}", value, place=f"bounds.{name}")
        elif any(fold(name) == fold(other) for other in columns):
            reason = f'The column "{name}" has two bounds.'
            raise PolicyError("policy-columns", reason, hint="Keep one of them.", place=f"bounds.{name}")
        else:
            columns[name] = _check_column(value, f"bounds.{name}")
    return Bounds(rows, tuple(columns.items()))


def read_bounds(section: Section) -> dict[str, int | GivenBounds]:
    """Return the bounds that a policy file has for a table, as `check_bounds` takes them."""
    found: dict[str, int | GivenBounds] = {}
    for name, value in section.values.items():
        if name == "rows" and not isinstance(value, dict):
            found[name] = section.whole(name)
            continue
        inner = section.section(name)
        inner.only(*_KEYS)
        if not {_EACH, _DISTINCT} & inner.values.keys():
            inner.require("max")
        given: dict[str, Number | Mapping[str, Number]] = _read_ends(inner)
        if _DISTINCT in inner.values:
            given[_DISTINCT] = inner.whole(_DISTINCT)
        if _EACH in inner.values:
            each = inner.section(_EACH)
            each.only(*_ENDS)
            each.require(*_ENDS)
            given[_EACH] = _read_ends(each)
        found[name] = given
    return found


def _read_ends(section: Section) -> dict[str, Any]:
    return {key: section.number(key) for key in _ENDS if key in section.values}


def _check_column(values: GivenBounds, place: str) -> ColumnBounds:
    unknown = next((key for key in values if key not in _KEYS), None)
    if unknown is not None or not {"max", _EACH, _DISTINCT} & values.keys():
        reason = (
            'Bounds of a column are "max" and, below 0, "min", "each" of one row\'s value, and "distinct", a number of '
            "values."
        )
        raise PolicyError("policy-bounds", reason, hint=_HINT, place=place)
    each = None if _EACH not in values else _check_each(values[_EACH], f"{place}.{_EACH}")
    distinct = None if _DISTINCT not in values else check_count(cast("int", values[_DISTINCT]), f"{place}.{_DISTINCT}")
    if "max" not in values:
        if "min" in values:
            reason = "There is a min and no max."
            raise PolicyError("policy-bounds", reason, hint=_HINT, place=place)
        return ColumnBounds(None, None, each, distinct)
    low, high = (_check_number(values.get(key, 0), key, place=place, hint=_HINT) for key in _ENDS)
    # Without a min, values below 0 count as 0: the checks use 0, and None is stored, as no min was written.
    stated = low if "min" in values else None
    if not -_LARGEST <= low <= 0 or not low < high or not 0 <= high <= _LARGEST:
        reason = f"A max must be above 0 and at most {_LARGEST:,}, and a min at most 0."
        raise PolicyError("policy-bounds", reason, hint=_HINT, place=place)
    # each = {min = 600, max = 700} with max = 500: every row would be cut to the same value.
    if each is not None and not max(low, each[0]) < min(high, each[1]):
        reason = "No value of each lies between min and max."
        hint = "Raise max, or lower min, to what the values of one unit add up to in one group."
        raise PolicyError("policy-bounds", reason, hint=hint, place=place)
    return ColumnBounds(stated, high, each, distinct)


def _check_each(values: object, place: str) -> tuple[Fraction, Fraction]:
    if not isinstance(values, Mapping) or set(values) != set(_ENDS):
        reason = 'The range of one row\'s value has the keys "min" and "max".'
        raise PolicyError("policy-bounds", reason, hint=_HINT_EACH, place=place)
    low, high = (_check_number(values[key], key, place=place, hint=_HINT_EACH) for key in _ENDS)
    if not -_LARGEST <= low < high <= _LARGEST:
        reason = f"The min of each must be below its max, and both between -{_LARGEST:,} and {_LARGEST:,}."
        raise PolicyError("policy-bounds", reason, hint=_HINT_EACH, place=place)
    return low, high


def _check_number(value: object, key: str, *, place: str, hint: str) -> Fraction:
    try:
        return exact(cast("Number", value), f"The {key}")
    except UsageError as error:
        raise PolicyError("policy-number", error.reason, hint=hint, place=place) from None


_DAYS = ("first", "last")
_DAYS_HINT = "Write both days, such as {first = 2025-01-01, last = 2026-12-31}."


@dataclass(frozen=True, slots=True)
class CalendarDays:
    """Days of a column from `first` to `last`, both included."""

    column: str
    first: date
    last: date

    def __str__(self) -> str:
        """Return the line of a policy file."""
        return f"{self.column} = {{first = {self.first}, last = {self.last}}}"


def check_calendar(values: tuple[CalendarDays, ...] | Mapping[str, Mapping[str, date]]) -> tuple[CalendarDays, ...]:
    """Return the days of each column of a table, by a mapping such as {"ts": {"first": date, "last": date}}.

    Raises `PolicyError` for anything else.
    """
    if isinstance(values, tuple) and all(isinstance(each, CalendarDays) for each in values):
        return values
    if not isinstance(values, Mapping):
        raise wrong_type("a mapping of columns to their first and last day", values, place="calendar")
    found = list[CalendarDays]()
    for name, days in values.items():
        place = f"calendar.{check_name(name, 'calendar')}"
        if not isinstance(days, Mapping):
            raise wrong_type("a mapping such as {first = 2025-01-01, last = 2026-12-31}", days, place=place)
        if any(fold(name) == fold(other.column) for other in found):
            reason = f'The column "{name}" has two calendars.'
            raise PolicyError("policy-columns", reason, hint="Keep one of them.", place=place)
        found.append(_check_days(name, days, place=place))
    return tuple(found)


def _check_days(column: str, days: Mapping[str, date], *, place: str) -> CalendarDays:
    if set(days) != set(_DAYS):
        raise PolicyError("policy-calendar", 'A calendar has a "first" and a "last" day.', hint=_DAYS_HINT, place=place)
    for key in _DAYS:
        # A datetime of Python is a date, too.
        if not isinstance(days[key], date) or isinstance(days[key], datetime):
            raise wrong_type("a date without a time, such as 2025-01-01", days[key], place=f"{place}.{key}")
    if days["last"] < days["first"]:
        raise PolicyError("policy-calendar", "The last day is before the first.", hint=_DAYS_HINT, place=place)
    return CalendarDays(column, days["first"], days["last"])


def read_calendar_days(section: Section) -> dict[str, Mapping[str, date]]:
    """Return the calendar that a policy file has for a table, for `check_calendar`, which looks at the values."""
    found: dict[str, Mapping[str, date]] = {}
    for name in section.values:
        inner = section.section(name)
        inner.only(*_DAYS)
        inner.require(*_DAYS)
        found[name] = cast("Mapping[str, date]", inner.values)
    return found


@dataclass(frozen=True, slots=True)
class TableLink:
    """A `column` that names, by the `key` of another `table`, the row whose privacy unit its own row belongs to.

    >>> TableLink.of("customer_id -> customers.id")
    TableLink(column='customer_id', table='customers', key='id')
    """

    column: str
    table: str
    key: str

    @classmethod
    def of(cls, given: TableLink | str) -> TableLink:
        """Return the link that a text spells; raise `PolicyError` if it spells none."""
        if isinstance(given, TableLink):
            return given
        if not isinstance(given, str):
            raise wrong_type('text such as "customer_id -> customers.id"', given, place="link")
        column, _, target = (part.strip() for part in given.partition("->"))
        table, _, key = target.rpartition(".")
        if "->" in target or not all((column, table, key)):
            hint = 'Such as "customer_id -> customers.id": a column of this table, and the key that it names.'
            raise PolicyError("policy-link", "The link cannot be read.", hint=hint, place="link")
        return cls(*(check_name(name, "link") for name in (column, table, key)))

    def __str__(self) -> str:
        return f"{self.column} -> {self.table}.{self.key}"


_OF_UNITS = ("max_groups_contributed", "min_units", "population")
_SINGLE = "one_value_per_unit"
_MATERIALIZED = "materialized"
_BOUNDS = "bounds"
_CALENDAR = "calendar"
_BUDGET_BY = "budget_by"
_NOT_NULL = "not_null"
_OPTIONAL = (_SINGLE, _MATERIALIZED, _BOUNDS, _CALENDAR, _BUDGET_BY, _NOT_NULL)  # keys of private tables
ExposedColumns = Sequence[str] | Mapping[str, str] | None


@dataclass(frozen=True, slots=True, init=False)
class PrivateTable:
    """Table whose rows belong to privacy units; with `columns`, only these columns exist for analysts.

    The unit is the column `privacy_unit`, or that of another table to which a `link` leads, such as "customer_id ->
    customers.id". Rows without a unit are not counted. The arguments are the keys of docs/reference/policy.md#tables;
    `bounds` are such as {"rows": 20, "amount": {"max": 500}}, and `calendar` such as {"ts": {"first": date(2025, 1, 1),
    "last": date(2026, 12, 31)}}. With a CSV file as its `source`, `columns` maps every name to its type.

    >>> PrivateTable("user_id", max_groups_contributed=10).privacy_unit
    'user_id'
    """

    privacy_unit: str | None
    link: TableLink | None
    columns: tuple[str, ...] | None
    source: Path | SourceUrl | None
    max_groups_contributed: int | None
    min_units: int | None
    population: int | None
    one_value_per_unit: tuple[str, ...]
    materialized: tuple[tuple[str, ...], ...]
    bounds: Bounds
    calendar: tuple[CalendarDays, ...]
    budget_by: str | None
    not_null: tuple[str, ...]
    csv: CsvFormat | None
    types: tuple[str, ...] | None = field(init=False)

    def __init__(  # noqa: PLR0913 - the keys of a table [tables.name]
        self,
        privacy_unit: str | None = None,
        columns: ExposedColumns = None,
        *,
        link: TableLink | str | None = None,
        source: Path | SourceUrl | str | None = None,
        max_groups_contributed: int | None = None,
        min_units: int | None = None,
        population: int | None = None,
        one_value_per_unit: Sequence[str] = (),
        materialized: Sequence[Sequence[str]] = (),
        bounds: Bounds | Mapping[str, int | Mapping[str, Number | Mapping[str, Number]]] = MappingProxyType({}),
        calendar: tuple[CalendarDays, ...] | Mapping[str, Mapping[str, date]] = (),
        budget_by: str | None = None,
        not_null: Sequence[str] = (),
        csv: GivenFormat = None,
    ) -> None:
        if isinstance(privacy_unit, list | tuple):
            raise refuse_shared_rows(privacy_unit, place="privacy_unit")
        if (privacy_unit is None) == (link is None):
            reason = "A private table has either a privacy_unit or a link to one."
            raise PolicyError("policy-table", reason, hint="Give one of the two.", place="link" if link else None)
        fill(self, privacy_unit=None if privacy_unit is None else check_name(privacy_unit, "privacy_unit"))
        fill(self, link=None if link is None else TableLink.of(link))
        fill(self, columns=check_columns(columns))
        fill(self, source=check_source(source))
        fill(self, types=check_types(columns, self.source))
        fill(self, csv=check_csv(csv, self.columns, source=self.source))
        fill(self, max_groups_contributed=optional_count(max_groups_contributed, "max_groups_contributed"))
        fill(self, min_units=optional_count(min_units, "min_units"))
        fill(self, population=check_population(population))
        fill(self, one_value_per_unit=check_single_valued(one_value_per_unit, self.columns, unit=privacy_unit))
        fill(self, materialized=check_materialized(materialized, self.columns, unit=privacy_unit))
        fill(self, bounds=check_bounds(bounds))
        fill(self, calendar=check_calendar(calendar))
        fill(self, not_null=check_not_null(not_null, self.columns))
        fill(self, budget_by=check_budget_by(budget_by, self.columns, unit=privacy_unit))
        if privacy_unit is not None and self.columns is not None and fold(privacy_unit) not in map(fold, self.columns):
            reason = f'The list does not contain the privacy unit "{privacy_unit}".'
            near = suggest_name(privacy_unit, self.columns)
            hint = f"{near}{'If not, add' if near else 'Add'} it to the list; counting distinct units needs it."
            raise PolicyError("policy-columns", reason, hint=hint, place="columns")


@dataclass(frozen=True, slots=True, init=False)
class PublicTable:
    """A table that says nothing about any privacy unit; it may be joined. `types` are those of a CSV file's columns.

    >>> PublicTable(columns=["country", "continent"]).columns
    ('country', 'continent')
    """

    columns: tuple[str, ...] | None
    source: Path | SourceUrl | None
    csv: CsvFormat | None
    types: tuple[str, ...] | None = field(init=False)

    def __init__(
        self,
        columns: ExposedColumns = None,
        *,
        source: Path | SourceUrl | str | None = None,
        csv: GivenFormat = None,
    ) -> None:
        fill(self, columns=check_columns(columns))
        fill(self, source=check_source(source))
        fill(self, types=check_types(columns, self.source))
        fill(self, csv=check_csv(csv, self.columns, source=self.source))


Table = PrivateTable | PublicTable


def check_tables(tables: Mapping[str, Table]) -> Mapping[str, Table]:
    """Return a read-only copy; refuse data that is named twice, once as private and once as public."""
    if not isinstance(tables, Mapping):
        raise wrong_type("a mapping of names to tables", tables, place="tables")
    if not tables:
        raise PolicyError("policy-tables", "The policy names no table.", hint="Name at least one.", place="tables")
    data: dict[object, str] = {}
    for name, table in tables.items():
        check_name(name, "tables")
        if not isinstance(table, PrivateTable | PublicTable):
            raise wrong_type("a dpsql.PrivateTable or a dpsql.PublicTable", table, place=f"tables.{name}")
        for identity in _identities(name, table):
            if data.setdefault(identity, name) != name:
                reason = f'The tables "{data[identity]}" and "{name}" are the same; case and "main." do not count.'
                hint = "Declare every table, and every source, once."
                raise PolicyError("policy-duplicate-table", reason, hint=hint, place=f"tables.{name}")
    _check_apart({place: name for place, name in data.items() if isinstance(place, Path)})
    divided = [name for name, table in tables.items() if isinstance(table, PrivateTable) and table.budget_by]
    if len(divided) > 1:
        reason = f'The tables "{divided[0]}" and "{divided[1]}" both have budget_by, and a unit has one value.'
        hint = "Leave it to the table whose rows say it for every unit."
        raise PolicyError("policy-budget-by", reason, hint=hint, place=f"tables.{divided[1]}.budget_by")
    return MappingProxyType(dict(tables))


def check_folder(tables: Mapping[str, Table], folder: Path | None, *, source: DataSource | None) -> None:
    """Refuse tables to be materialized where the policy does not name the folder, or the schema, for that."""
    is_remote = source is not None and source.path is None
    if is_remote and folder is not None:
        reason = "This folder is for tables that DuckDB reads."
        hint = 'Leave it out, and write materialized = "dpsql" below [source]: a schema of the database.'
        raise PolicyError("policy-prepared", reason, hint=hint, place="materialized")
    is_known = folder is not None or (source is not None and source.materialized is not None)
    for name, table in tables.items():
        if not is_known and isinstance(table, PrivateTable) and table.materialized:
            reason = "The policy does not say where materialized tables are stored."
            hint = 'Write materialized = "materialized" above the tables: a folder, as private as the data.'
            if is_remote:
                hint = 'Write materialized = "dpsql" below [source]: a schema of the database, as private as the data.'
            raise PolicyError("policy-prepared", reason, hint=hint, place=f"tables.{name}.materialized")


def _check_apart(sources: Mapping[Path, str]) -> None:
    """Refuse a source that lies in the folder of another one: its rows would be in both tables."""
    for place, name in sources.items():
        for above in place.parents:
            if above in sources:
                reason = f'The source of the table "{name}" lies in the folder of the table "{sources[above]}".'
                hint = "Declare every table, and every source, once."
                raise PolicyError("policy-duplicate-table", reason, hint=hint, place=f"tables.{name}")


def _identities(name: str, table: Table) -> tuple[object, ...]:
    """Return the identities of a table: its name in statements, with and without the schema main, and its source.

    The identity of a metadata file of Iceberg is the folder of its table.
    """
    spoken = fold(name).removeprefix("main.")
    if table.source is None:
        return (spoken,)
    if isinstance(table.source, SourceUrl):
        return spoken, table.source
    place = table.source.resolve()
    return spoken, place.parent.parent if place.name.endswith(METADATA) else place


def read_tables(root: Section, folder: Path) -> dict[str, Table]:
    """Return the tables of a policy file in `folder`."""
    tables = root.section("tables")
    return {name: _read_table(tables.section(name), folder, name=name) for name in tables.values}


def _read_table(section: Section, folder: Path, *, name: str) -> Table:
    for key in ("privacy_units", "privacy_unit"):
        units = section.values.get(key)
        if isinstance(units, list):
            raise refuse_shared_rows(units, table=name, place=section.where(key))
    section.only("privacy_unit", "link", "public", "columns", "source", "csv", *_OF_UNITS, *_OPTIONAL)
    unit, link, public = section.text("privacy_unit"), section.text("link"), section.flag("public")
    if [unit, link, public].count(None) != 2 or public is False:  # noqa: PLR2004 - one of the three is said
        raise PolicyError(
            "policy-table",
            "A table must say either who is protected in it or that it is public.",
            hint='Write one of privacy_unit = "...", link = "... -> ..." and public = true.',
            place=section.where("public") if public is not None else section.where(),
        )
    columns, given = section.texts_or_table("columns"), section.text("source")
    csv = section.section("csv").values if "csv" in section.values else None
    counts = {key: section.whole(key) for key in _OF_UNITS if key in section.values}
    single, materialized = section.texts(_SINGLE) or (), section.lists_of_texts(_MATERIALIZED) or ()
    bounds, calendar = read_bounds(section.section(_BOUNDS)), read_calendar_days(section.section(_CALENDAR))
    budget_by = section.text(_BUDGET_BY)
    with section.placing():
        source = (
            SourceUrl(given) if given is not None and is_source_url(given) else beside(folder, given, place="source")
        )
        if public is None:
            return PrivateTable(
                unit,
                columns,
                link=link,
                source=source,
                one_value_per_unit=single,
                materialized=materialized,
                bounds=bounds,
                calendar=calendar,
                budget_by=budget_by,
                not_null=section.texts(_NOT_NULL) or (),
                csv=csv,
                **counts,
            )
        for key in {*_OF_UNITS, *_OPTIONAL} & section.values.keys():
            reason = f"A public table has no privacy units, so {key} means nothing in it."
            raise PolicyError("policy-public", reason, hint="Leave it out, or name the privacy_unit.", place=key)
        return PublicTable(columns, source=source, csv=csv)


def beside(folder: Path, given: str | None, *, place: str) -> Path | None:
    """Return a path of the file, which is relative to it; what only `connect` may say is no file."""
    if given == ":memory:":
        hint = 'Leave the ledger out, or pass ledger=":memory:" to connect for a trial.'
        raise PolicyError("policy-path", "A policy names files.", hint=hint, place=place)
    return None if given is None else folder / check_path(given, place)


Tables = Mapping[str, Table]


@dataclass(frozen=True, slots=True)
class Owner:
    """The privacy unit `column` of `table`, at the end of `links`; without links it is the table's own column.

    As text it is what a ledger records: "household_id", or "customers.household_id via customer_id -> customers.id".
    """

    table: str
    column: str
    links: tuple[TableLink, ...] = ()

    def __str__(self) -> str:
        return self.column if not self.links else f"{self.table}.{self.column} via {', '.join(map(str, self.links))}"


def find_owner(tables: Tables, name: str) -> Owner:
    """Return whose rows a private table holds; its links have passed `check_links`."""
    table = tables[name]
    link, unit = (table.link, table.privacy_unit) if isinstance(table, PrivateTable) else (None, None)
    if link is None:
        return Owner(name, unit or "")
    # orders.customer_id -> customers.id, the unit of customers: the column of orders is the unit already
    beyond = find_owner(tables, find_target(tables, link) or "")
    if not beyond.links and fold(beyond.column) == fold(link.key):
        return Owner(name, link.column)
    return Owner(beyond.table, beyond.column, (link, *beyond.links))


def find_target(tables: Tables, link: TableLink) -> str | None:
    """Return the name of the table that a link leads to, compared as statements compare names, or None."""
    return next((name for name in tables if _spoken(name) == _spoken(link.table)), None)


def find_path(tables: Tables, name: str) -> tuple[str, ...]:
    """Return the tables that links lead through, from `name` on, each once."""
    path: list[str] = []
    at: str | None = name
    while at is not None and at not in path:
        path.append(at)
        link = _link(tables, at)
        at = None if link is None else find_target(tables, link)
    return tuple(path)


def check_links(tables: Tables) -> None:
    """Raise `PolicyError` unless every link leads to a privacy unit, whose name means nothing else in the table."""
    linked = {name: table for name, table in tables.items() if isinstance(table, PrivateTable) and table.link}
    for name in linked:
        _check_target(tables, name)
    for name, table in linked.items():
        for error in _misnamed(table, find_owner(tables, name), place=f"tables.{name}"):
            raise error


def _check_target(tables: Tables, name: str) -> None:
    link, place = _link(tables, name), f"tables.{name}.link"
    target = None if link is None else find_target(tables, link)
    if target is None:
        hint = "Declare that table too, or correct its name."
        raise PolicyError("policy-link", "The link leads to a table that is not named here.", hint=hint, place=place)
    if not isinstance(tables[target], PrivateTable):
        reason = "The link leads to a public table, whose rows belong to no privacy unit."
        hint = "Link to a private table, or declare that one with a privacy_unit."
        raise PolicyError("policy-link", reason, hint=hint, place=place)
    if name in find_path(tables, target):
        reason, hint = "The links go round in a circle.", "Give one of these tables a privacy_unit of its own."
        raise PolicyError("policy-link", reason, hint=hint, place=place)


def _misnamed(table: PrivateTable, owner: Owner, *, place: str) -> Iterator[PolicyError]:
    """Yield what is wrong with the names of columns, now that the privacy unit's is known."""
    unit, exposed = fold(owner.column), None if table.columns is None else set(map(fold, table.columns))
    if owner.links and exposed is not None and unit in exposed:
        yield shadowed(owner, place=f"{place}.columns")
    if not owner.links and exposed is not None and unit not in exposed:
        reason = f'The list does not contain "{owner.column}", by which the link says whose a row is.'
        hint = "Add it to the list; counting distinct units needs it."
        yield PolicyError("policy-columns", reason, hint=hint, place=f"{place}.columns")
    if unit in map(fold, table.one_value_per_unit):
        reason, hint = f'The column "{owner.column}" is the privacy unit itself.', "Leave it out."
        yield PolicyError("policy-columns", reason, hint=hint, place=f"{place}.one_value_per_unit")


def shadowed(owner: Owner, *, place: str) -> PolicyError:
    """Return the error of a linked table with an exposed column of the privacy unit's name."""
    reason = f'A column of this table is called "{owner.column}", as the privacy unit is that its link leads to.'
    hint = "List in columns those that analysts see, without it; the unit is there by the link."
    return PolicyError("policy-link", reason, hint=hint, place=place)


def _link(tables: Tables, name: str) -> TableLink | None:
    table = tables[name]
    return table.link if isinstance(table, PrivateTable) else None


def _spoken(name: str) -> str:
    return fold(name).removeprefix("main.")


def refuse_shared_rows(units: Sequence[object], *, table: str = "messages", place: str | None = None) -> PolicyError:
    """Return the refusal of several privacy units of one row; its hint has a view with one row for each person.

    A row, such as a message with its sender and its receiver, belongs to one unit. With the sender as the unit, a
    receiver is not protected: without that receiver all messages to them are gone, which changes the rows of any number
    of units. What each unit adds could be bounded for both only if the rows of one person did not depend on those of
    others, which sampling or weighing rows by both does.
    """
    names = [unit for unit in units if isinstance(unit, str)]
    if len(units) <= 1:
        reason, named = "The privacy unit is one column, in text and not in a list.", quote((*names, "user_id")[0])
        return PolicyError("policy-type", reason, hint=f"Write privacy_unit = {named}.", place=place)
    source, left_out = ".".join(map(write_name, table.split("."))), ", ".join(map(write_name, names))
    parts = [
        f"SELECT {write_name(name)} AS person, '{name.replace(chr(39), chr(39) * 2)}' AS role, "  # noqa: S608 - a hint
        f"* EXCLUDE ({left_out}) FROM {source}"
        for name in names
    ]
    hint = (
        f"Make a view with one row for each person: CREATE VIEW people_of_{table.rpartition('.')[2]} AS "
        f'{" UNION ALL ".join(parts)}; and write privacy_unit = "person" of it (docs/how-to/two-people-in-a-row.md).'
    )
    reason = "A row belongs to one privacy unit: with one of these columns, the people in the other are not protected."
    return PolicyError("policy-two-people", reason, hint=hint, place=place)
