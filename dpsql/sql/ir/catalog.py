"""Catalog for the analyst: the tables of the policy, their columns and types, and their privacy units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import Enum, auto
from fractions import Fraction

from dpsql.dialects import DUCKDB, Dialect
from dpsql.sql.ir.measures import ContributionRange
from dpsql.sql.ir.tree import Type
from dpsql.sql.lexer import ascii_lower

DATABASE = "dpsql"  # what statements may write before a schema, and what the server says that it is called
HOME = "main"  # the schema of the tables that the policy names without one
PUBLIC = "public"  # another name of that schema, which tools of PostgreSQL write unasked


def is_database(written: str) -> bool:
    """Return whether a statement may write this for the database; it may also leave it out."""
    return ascii_lower(written) in {"", DATABASE}


RowKey = tuple[tuple[str, ...], str]  # the path of a table, and its key in lower case


@dataclass(frozen=True, slots=True)
class Link:
    """Link from rows to their unit: `column` names a row, by its `key`, of the table at `path`.

    That row has the privacy unit in its own column `unit`, or finds it by its own link, `beyond`. `type` is that of
    column and key.
    """

    column: str
    key: str
    type: Type
    path: tuple[str, ...]
    unit: str
    unit_type: Type
    beyond: Link | None = None


@dataclass(frozen=True, slots=True)
class StoredMeasures:
    """Measures that a materialized set has beside the number of units.

    `rows` is the bound of rows of one unit that the counts have, None without counts of rows. `sums` are the columns
    whose values are added up, each with the bounds of one unit in one group.
    """

    rows: int | None
    sums: tuple[tuple[str, ContributionRange], ...] = ()


@dataclass(frozen=True, slots=True)
class MaterializedSet:
    """Distinct values of some `columns` of a private table, stored beside the data at one data version.

    `pairs` is where the engine has the distinct values that these columns have together in the rows of each unit, whose
    column is `unit`; `counts` where it has how many units each of these values has. Both have the rows and sums of
    `measures`, if there are any. See `rewrite/materialization.py`.
    """

    columns: tuple[str, ...]
    unit: str
    data_version: int
    pairs: tuple[str, ...]
    counts: tuple[str, ...]
    measures: StoredMeasures | None = None


class Form(Enum):
    """Form of what a query reads of a table, which decides the way to count the units of a group.

    ROWS are those of the table, or pairs in their place. The others are short, as `rewrite/use_materialized.py` says.
    """

    ROWS = auto()
    PAIRS = auto()
    RANKS = auto()
    COUNTS = auto()


@dataclass(frozen=True, slots=True)
class Table:
    """One table: its name, its path in the engine, its exposed columns, its privacy unit (None: public).

    With a `link` the unit is the last of the columns, and stored where the link leads. Queries may read the
    `materialized` sets in place of the rows. `calendar` lists columns of times with the first and the last day that
    the policy says for them. Each value of the column `budget_by` has a budget. `rows` is the policy's bound of the
    rows of a unit in a group, None without one, and `bounds` those of the sums of a unit's values in a group: column,
    least and most. The columns in `not_null` are never NULL, nor an infinite time. The rows of a table with a
    `stored_kind` are in the ledger: it is an "answer" under its name, or "published", with a `comment`. One that
    `has_ended` is the answer of an earlier data version, and its comment is the query.
    """

    name: str
    path: tuple[str, ...]
    columns: tuple[tuple[str, Type], ...]
    privacy_unit: str | None
    link: Link | None = None
    materialized: tuple[MaterializedSet, ...] = ()
    calendar: tuple[tuple[str, date, date], ...] = ()
    budget_by: str | None = None
    rows: int | None = None
    bounds: tuple[tuple[str, Fraction, Fraction], ...] = ()
    stored_kind: str = ""
    has_ended: bool = False
    comment: str = ""
    not_null: tuple[str, ...] = ()

    @property
    def is_public(self) -> bool:
        """Whether the engine has it, and anybody may read its rows."""
        return self.privacy_unit is None and not self.stored_kind

    def find_bounds(self, column: str) -> tuple[Fraction, Fraction] | None:
        """Return what one unit's values of a column add up to in a group, by its name without regard to ASCII case."""
        found = ((low, high) for name, low, high in self.bounds if ascii_lower(name) == ascii_lower(column))
        return next(found, None)


@dataclass(frozen=True, slots=True)
class Catalog:
    """All tables, and the SQL of the engine that has them; a table that is not here does not exist.

    Every statement is read with these, so that they are listed once: `private_tables`, each by its path and its name,
    `row_keys`, to which links of the policy lead, and all that is `materialized`, each with the path of its table.
    """

    tables: tuple[Table, ...]
    dialect: Dialect = DUCKDB
    private_tables: tuple[tuple[tuple[str, ...], str], ...] = field(init=False, repr=False, compare=False)
    row_keys: frozenset[RowKey] = field(init=False, repr=False, compare=False)
    materialized: tuple[tuple[tuple[str, ...], MaterializedSet], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        private = [each for each in self.tables if each.privacy_unit is not None or each.link is not None]
        keys = frozenset((link.path, ascii_lower(link.key)) for each in private if (link := each.link) is not None)
        sets = tuple((each.path, stored) for each in self.tables for stored in each.materialized)
        object.__setattr__(self, "private_tables", tuple((each.path, each.name) for each in private))
        object.__setattr__(self, "row_keys", keys)
        object.__setattr__(self, "materialized", sets)

    def list_tables(self) -> Iterator[Table]:
        """Yield the tables that lists show: a published one once, by the first of its names, and no ended answer."""
        seen = set[object]()
        for table in self.tables:
            keys = {ascii_lower(table.name), *([table.path] if table.stored_kind else [])}
            if not table.has_ended and seen.isdisjoint(keys):
                seen |= keys
                yield table

    def find(self, name: str, schema: str = "", *, database: str = "") -> Table | None:
        """Return the table of that name, compared by ASCII case.

        The schema main may be left out, or written as main or public; a table that the policy itself has in a schema
        public comes first. The database dpsql may be written before any schema.
        """
        names = [".".join(filter(None, (database, schema, name)))]
        if is_database(database):
            names += [f"{schema}.{name}"] if database else []
            names += [f"{HOME}.{name}"] if ascii_lower(schema) == PUBLIC else []
        for wanted in map(ascii_lower, names):
            for table in self.tables:
                known = ascii_lower(table.name)
                if wanted in {known, f"{HOME}.{known}"} or f"{HOME}.{wanted}" == known:
                    return table
        return None

    def find_path(self, parts: Sequence[str]) -> Table | None:
        """Return the table of a name in parts: the table, and before it the schema and the database if written."""
        *before, name = parts
        if len(before) == len(("database", "schema")):
            return self.find(name, before[1], database=before[0])
        return self.find(name, ".".join(before))
