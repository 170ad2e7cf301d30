"""Tables of a policy in an engine: what exists for the analyst, whose rows it is, and what a starter policy can name.

Of private rows one thing is asked here, before any analyst's question: whether the keys that links lead to are as
unique as the policy declares. The answer is for the curator, who has declared it: a session opens or it does not.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from dpsql.dialects import DUCKDB, quote_text
from dpsql.engines import Column, Engine, ListedTable, RemoteEngine, find_data_version
from dpsql.engines.base import show_adapter_errors
from dpsql.engines.duckdb.catalog import describe_file
from dpsql.errors import EngineError, Error, PolicyError, UsageError
from dpsql.ledger.record import Division
from dpsql.open_engine import open_engine, open_url
from dpsql.policy import Budget, DataSource, Policy, PrivateTable, PublicTable, SourceUrl
from dpsql.policy.starter import FoundColumn, FoundTable
from dpsql.policy.tables import ColumnBounds, find_owner, find_target, shadowed
from dpsql.policy.tables import TableLink as Declared
from dpsql.policy.validation import is_csv
from dpsql.sql.ir.catalog import Catalog, Link, Table
from dpsql.sql.ir.scope import propose_name
from dpsql.sql.ir.tree import DATE, TIMESTAMP, Family, Type, find_read_type, parse_type, set_collations
from dpsql.sql.lexer import ascii_lower

_UNIT_TYPES = frozenset(
    "BOOLEAN TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT UHUGEINT VARCHAR UUID BLOB "
    "DATE TIMESTAMP ENUM".split()
)
_BUDGET_TYPES = frozenset(
    "BOOLEAN TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER VARCHAR DATE ENUM".split()
)
TableColumns = Mapping[str, Column]


def build_catalog(engine: Engine, policy: Policy) -> Catalog:
    """Return the tables of `policy` as the engine has them.

    Raises `PolicyError` for a column that is not there, one that cannot be a unit, and a key that is not unique.
    """
    return Catalog(tuple(_find_table(engine, policy, name=name) for name in policy.tables), engine.dialect)


def may_be_unit(type_: str) -> bool:
    """Say whether equal values of a type always print alike, so that they name one unit."""
    return type_ in _UNIT_TYPES or type_.startswith("DECIMAL(")


def _find_table(engine: Engine, policy: Policy, *, name: str) -> Table:
    """Return what the analyst may see of a table, having checked the policy's words against its columns."""
    table, place = policy.tables[name], f"tables.{name}"
    stored = _read_columns(engine, name)
    _check_columns(policy, f"{place}.columns", names=table.columns or (), stored=stored)
    exposed = [stored[ascii_lower(column)] for column in table.columns] if table.columns else list(stored.values())
    columns = tuple((column.name, parse_type(column.type, column.collation)) for column in exposed)
    found = Table(name, engine.relation(name), columns, None)
    if not isinstance(table, PrivateTable):
        return found
    _check_columns(policy, f"{place}.one_value_per_unit", names=table.one_value_per_unit, stored=stored)
    _check_columns(policy, f"{place}.not_null", names=table.not_null, stored=stored)
    rows, sums = table.bounds.rows, list[tuple[str, Fraction, Fraction]]()
    for column, bounds in table.bounds.columns:
        _check_bounds(policy, f"{place}.bounds.{column}", name=column, bounds=bounds, stored=stored)
        ends = bounds.bound_sum(rows)
        sums += [] if ends is None else [(column, *ends)]
    for days in table.calendar:
        _check_calendar(policy, f"{place}.calendar.{days.column}", name=days.column, stored=stored)
    calendar = tuple((stored[ascii_lower(days.column)].name, days.first, days.last) for days in table.calendar)
    for names in table.materialized:
        _check_materialized(policy, f"{place}.materialized", names=[*names, table.privacy_unit or ""], stored=stored)
    present = tuple(stored[ascii_lower(column)].name for column in table.not_null)
    found = replace(found, calendar=calendar, rows=rows, bounds=tuple(sums), not_null=present)
    owner = find_owner(policy.tables, name)
    if table.link is None:
        _check_unit(policy, f"{place}.privacy_unit", name=owner.column, stored=stored)
        by = table.budget_by
        budget_by = None if by is None else _find_budget_by(engine, policy, name=name, column=by)
        return replace(found, privacy_unit=owner.column, budget_by=budget_by)
    link = _link(engine, policy, declared=table.link, name=name)
    if not owner.links:  # the column that holds the key is the unit
        return replace(found, privacy_unit=owner.column)
    if ascii_lower(owner.column) in {ascii_lower(column) for column, _ in columns}:
        raise shadowed(owner, place=policy.where(f"{place}.link"))
    # analysts see the unit of the other table as one more column of this one
    return replace(found, columns=(*columns, (link.unit, link.unit_type)), privacy_unit=link.unit, link=link)


def _find_budget_by(engine: Engine, policy: Policy, *, name: str, column: str) -> str:
    """Return the column whose values have a budget each; refuse one whose values may change or are not plain."""
    place, stored = f"tables.{name}.budget_by", _read_columns(engine, name)
    _check_columns(policy, place, names=(column,), stored=stored)
    found = stored[ascii_lower(column)]
    if found.collation or found.type not in _BUDGET_TYPES:
        what = "text with a collation" if found.collation else f"of type {found.type}"
        reason = f'The column "{found.name}" is {what}, whose equal values may look different.'
        hint = "Whole numbers, text without a collation, dates and BOOLEAN can have budgets."
        raise PolicyError("policy-budget-by", reason, hint=hint, place=policy.where(place))
    if engine.dialect.name != DUCKDB.name or find_data_version(engine, name) is None:
        raise PolicyError(
            "policy-budget-by",
            "The rows of this table may change while the data version stays the same, and with them the value of a "
            "unit.",
            hint="Keep it as a table, and no view, of a DuckDB file that dpsql opens by its path, or as a CSV file.",
            place=policy.where(place),
        )
    return found.name


def find_division(engine: Engine, policy: Policy, *, catalog: Catalog) -> Division | None:
    """Return what gives each unit its value, where a table of the catalog has budget_by."""
    table = next((each for each in catalog.tables if each.budget_by is not None), None)
    if table is None:
        return None
    kinds = {name: type_.name for name, type_ in table.columns}
    owners = {
        name: str(find_owner(policy.tables, name))
        for name, each in policy.tables.items()
        if isinstance(each, PrivateTable)
    }
    # whose rows are whose is part of the rule: with other links the same unit may have another value
    declared = [table.name, table.privacy_unit, table.budget_by, kinds[table.budget_by or ""], sorted(owners.items())]
    rule = hashlib.sha256(json.dumps(declared).encode()).hexdigest()
    return Division(rule, find_data_version(engine, table.name) or "")


def _link(engine: Engine, policy: Policy, *, declared: Declared, name: str) -> Link:
    """Return how the rows of a linked table find their unit, having checked the columns on both sides."""
    place, target = f"tables.{name}.link", find_target(policy.tables, declared) or ""
    own, others = _read_columns(engine, name), _read_columns(engine, target)
    _check_unit(policy, place, name=declared.column, stored=own)
    _check_unit(policy, place, name=declared.key, stored=others)
    column, key = own[ascii_lower(declared.column)], others[ascii_lower(declared.key)]
    if column.type != key.type:
        reason = f"The link compares {column.type} with {key.type}."
        hint = "Store both columns in one type, or link a view that casts one of them."
        raise PolicyError("policy-link", reason, hint=hint, place=policy.where(place))
    # a link to the unit itself reads no other table, so that its key need not be unique
    if find_owner(policy.tables, name).links and not engine.unique(target, key.name):
        reason = "Two rows have the same key where the link leads, so a row could belong to two units."
        hint = "Link to a column that is unique, such as the primary key, or remove the duplicates."
        raise PolicyError("policy-link", reason, hint=hint, place=policy.where(place))
    unit, type_, beyond = _unit(engine, policy, name=target)
    compared = frozenset([column.collation, key.collation]) - {""}
    type_of_key = set_collations(parse_type(key.type), compared)
    return Link(column.name, key.name, type_of_key, engine.relation(target), unit, type_, beyond)


def _unit(engine: Engine, policy: Policy, *, name: str) -> tuple[str, Type, Link | None]:
    """Return the unit of a private table, with its type, and the link that leads to it if it is not a column there."""
    table, owner = policy.tables[name], find_owner(policy.tables, name)
    if owner.links and isinstance(table, PrivateTable) and table.link is not None:
        link = _link(engine, policy, declared=table.link, name=name)
        return link.unit, link.unit_type, link
    stored = _read_columns(engine, name)
    _check_unit(policy, f"tables.{name}.privacy_unit", name=owner.column, stored=stored)
    found = stored[ascii_lower(owner.column)]
    return found.name, parse_type(found.type, found.collation), None


def _read_columns(engine: Engine, name: str) -> TableColumns:
    """Return the columns by their names in lower case; a name that means two of them means none."""
    columns = engine.columns(name)
    spelled = Counter(ascii_lower(column.name) for column in columns)
    return {key: column for column in columns if spelled[key := ascii_lower(column.name)] == 1}


def _check_unit(policy: Policy, key_path: str, *, name: str, stored: TableColumns) -> None:
    """Refuse a column that is not there, or whose type does not name each unit, or key, in one way."""
    _check_columns(policy, key_path, names=(name,), stored=stored)
    found = stored[ascii_lower(name)].type
    if not may_be_unit(found):
        hint = "Use a column of whole numbers such as BIGINT, text or UUIDs, or a view that casts it to one of these."
        raise PolicyError(
            "policy-unit-type",
            f"A privacy unit may not be a column of type {found}.",
            hint=hint,
            place=policy.where(key_path),
        )


def _check_materialized(policy: Policy, key_path: str, *, names: Iterable[str], stored: TableColumns) -> None:
    """Refuse columns in which equal values could be told apart, or whose names are dpsql's own."""
    _check_columns(policy, key_path, names=names, stored=stored)
    for name in names:
        kind = stored[ascii_lower(name)].type
        if not may_be_unit(kind) or ascii_lower(name).startswith("dpsql_"):
            reason = f'The column "{name}", of the type {kind}, cannot be materialized.'
            hint = "Whole numbers, DECIMAL, text, dates, timestamps and UUIDs can be; no name may begin with dpsql_."
            raise PolicyError("policy-prepared", reason, hint=hint, place=policy.where(key_path))


def _check_bounds(policy: Policy, key_path: str, *, name: str, bounds: ColumnBounds, stored: TableColumns) -> None:
    """Refuse bounds of sums of a column that holds no numbers, or that are finer than its numbers."""
    _check_columns(policy, key_path, names=(name,), stored=stored)
    if bounds.max is None and bounds.each is None:  # of a number of values, which may be of any type
        return
    type_ = find_read_type(parse_type(stored[ascii_lower(name)].type))
    if not type_.is_number:
        reason = f'The column "{name}" has no numbers to add up, but the type {type_}.'
        hint = "Leave its bounds out." if bounds.distinct is None else "Leave out all of its bounds but distinct."
        raise PolicyError("policy-bounds", reason, hint=hint, place=policy.where(key_path))
    finest = 10 ** type_.precision[1]
    ends = [end for end in (bounds.min, bounds.max, *(bounds.each or ())) if end is not None]
    if type_.family is not Family.DOUBLE and any((end * finest).denominator > 1 for end in ends):
        digits = f"{type_.precision[1]} digits after the point" if finest > 1 else "whole numbers"
        reason = f'The column "{name}" has {digits}, and its bounds have more.'
        hint = "Round the bounds up to the digits of the column."
        raise PolicyError("policy-bounds", reason, hint=hint, place=policy.where(key_path))


def _check_calendar(policy: Policy, key_path: str, *, name: str, stored: TableColumns) -> None:
    """Refuse the calendar of a column that holds no times."""
    _check_columns(policy, key_path, names=(name,), stored=stored)
    type_ = parse_type(stored[ascii_lower(name)].type)
    if type_ not in {DATE, TIMESTAMP}:
        reason = f'The column "{name}" has no DATE or TIMESTAMP, but the type {type_}.'
        raise PolicyError("policy-calendar", reason, hint="Leave its calendar out.", place=policy.where(key_path))


def _check_columns(policy: Policy, key_path: str, *, names: Iterable[str], stored: TableColumns) -> None:
    for name in names:
        if ascii_lower(name) not in stored:
            reason = f'The table has no column "{name}".'
            near = propose_name(name, [column.name for column in stored.values()])
            hint = (
                f"{near}Names are compared without regard to ASCII case; columns that differ only in case are left out."
            )
            raise PolicyError("policy-no-column", reason, hint=hint, place=policy.where(key_path))


_STATE = "dpsql_state"  # table of every schema that `dpsql materialize` writes


def describe_files(path: Path, beside: Path) -> tuple[FoundTable, ...]:
    """Return the tables in a file or folder, with paths relative to `beside`; raise `EngineError` if there are none.

    A folder is one table if it is one of Delta Lake or Iceberg, or if all of its Parquet files have the same columns;
    otherwise each file is a table.
    """
    if not path.is_dir():
        return (_describe_file(path, beside),)
    if (path / "_delta_log").is_dir() or (path / "metadata").is_dir():
        return (_describe_folder(path, beside),)
    files = sorted(file for file in path.iterdir() if is_table_file(file) and file.is_file())
    tables = _name_apart([_describe_file(file, beside) for file in files])
    is_whole = len(tables) > 1 and all(file.suffix.lower() == ".parquet" for file in files)
    if is_whole and len({table.columns for table in tables}) == 1:
        return (_describe_folder(path, beside),)
    if not tables and any(path.rglob("*.parquet")):
        return (_describe_folder(path, beside),)
    if not tables:
        below = next(filter(is_csv, path.rglob("*")), None)
        hint = "Name a DuckDB file, a Parquet or CSV file, a folder of them, or the URL of an engine."
        if below is not None:
            pattern = quote_text(path / "**" / f"*{below.suffix}")
            target = quote_text(f"{path.resolve().name}.parquet")
            hint = f"Name one of the folders below it, or make one table in DuckDB: COPY (FROM {pattern}) TO {target}."
        raise EngineError("source-missing", "The folder holds no Parquet and no CSV file.", hint=hint, place=str(path))
    return tables


def is_table_file(path: Path) -> bool:
    """Say whether the name of a file is that of one table."""
    return path.suffix.lower() == ".parquet" or is_csv(path)


def _name_apart(tables: list[FoundTable]) -> tuple[FoundTable, ...]:
    """Return the tables with a name of its own for each: files may differ in their endings alone."""
    seen: Counter[str] = Counter()
    found = []
    for table in tables:
        seen[table.name] += 1
        number = seen[table.name]
        found.append(replace(table, name=f"{table.name}_{number}") if number > 1 else table)
    return tuple(found)


def _describe_file(path: Path, beside: Path) -> FoundTable:
    name, source = _name_table(path.name.partition(".")[0]), _write_path(path, beside)
    if not path.is_file():
        hint = "Check the path."
        if "*" in path.name:
            target = quote_text(f"{path.resolve().parent.name}.parquet")
            hint = (
                f"Name one file or a folder, or make one table in DuckDB: COPY (FROM {quote_text(path)}) TO {target}."
            )
        raise EngineError("source-missing", f'There is no file "{path.name}".', hint=hint, place=str(path))
    if not is_csv(path):
        return FoundTable(name, tuple(map(describe_column, describe_file(path))), source=source)
    from dpsql.engines.duckdb.csv_guess import guess_csv  # start-up: Arrow

    guess = guess_csv(path)
    columns = tuple(replace(describe_column(each), note=guess.notes.get(each.name, "")) for each in guess.columns)
    return FoundTable(name, columns, source=source, guessed=True, csv=guess.form)


def _describe_folder(path: Path, beside: Path) -> FoundTable:
    """Return the table that a folder is, whose columns the engine itself names."""
    name = _name_table(path.resolve().name)
    policy = Policy(Budget(1, "1e-6"), {name: PublicTable(source=path)})
    with closing(open_engine(None, policy)) as engine:
        columns = tuple(map(describe_column, engine.columns(name)))
    return FoundTable(name, columns, source=_write_path(path, beside))


def _write_path(path: Path, beside: Path) -> str:
    return Path(os.path.relpath(path.resolve(), beside.resolve())).as_posix()


def _name_table(stem: str) -> str:
    """Return a name for a table that SQL can write without quotes."""
    name = re.sub(r"\W+", "_", stem).strip("_").lower()
    return name if re.match(r"[a-z_]", name) else f"t_{name}"


def describe_engine(source: DataSource) -> tuple[tuple[FoundTable, ...], tuple[str, ...]]:
    """Return the tables of an engine that this user may read, and names of those that cannot be; no row is read."""
    if source.scheme == "duckdb":
        hint = f"Name it by its path: dpsql init {shlex.quote(str(source.path))}"
        raise UsageError("database", "This is a DuckDB file.", hint=hint, place="source.url")
    if source.scheme == "datafusion":
        hint = 'Name a Parquet file or a folder; then add [source] and url = "datafusion:" to the policy.'
        raise UsageError("database", "DataFusion has no tables of its own.", hint=hint, place="source.url")
    with closing(open_url(source, {}, time_limit=None)) as engine:
        listed = _list_tables(engine)
        columns = {table.name: _find_columns(engine, table.name) for table in listed}
    tables = tuple(
        FoundTable(
            table.name,
            tuple(map(describe_column, found)),
            primary_key=table.primary_key,
            unique=table.unique,
            leads_to=table.leads_to,
        )
        for table in listed
        if (found := columns[table.name])
    )
    if not tables:
        hint = "Check which database, schema and user the URL names."
        if source.scheme in {"spark", "sc"}:
            hint = "Run dpsql init with the path of the Parquet files, and add [source] with this url to the policy."
        raise EngineError("source-missing", "This user can read no table there.", hint=hint, place="source.url")
    return tables, tuple(table.name for table in listed if not columns[table.name])


def _list_tables(engine: Engine) -> list[ListedTable]:
    """Return what an engine's own catalog lists; the texts of its errors are not passed on."""
    if isinstance(engine, RemoteEngine):
        try:
            with show_adapter_errors():
                return _leave_out_stored(list(engine.list_tables()))
        except Error:
            raise
        except Exception:  # noqa: BLE001, S110 - its words may hold the address
            pass
    hint = "Check with a client of the engine that this user may read its catalog, or write the policy by hand."
    raise EngineError("engine-failed", "The tables of the engine cannot be listed.", hint=hint, place="source.url")


def _leave_out_stored(listed: list[ListedTable]) -> list[ListedTable]:
    """Return the tables but for those in schemas of `dpsql materialize`."""
    stored = tuple(table.name.removesuffix(_STATE) for table in listed if table.name.endswith(f".{_STATE}"))
    return [table for table in listed if not table.name.startswith(stored)] if stored else listed


def _find_columns(engine: Engine, name: str) -> tuple[Column, ...]:
    """Return the columns of a table, or none where it cannot be read, such as a view of what is no longer there."""
    with suppress(Exception):
        return engine.found(name).columns if isinstance(engine, RemoteEngine) else ()
    return ()


def describe_address(url: str) -> tuple[FoundTable, ...]:
    """Return the table of the Parquet files at an address, which DuckDB reads; no row is read."""
    source = SourceUrl(url)
    known = [part for part in url.partition("://")[2].split("/") if part and not set("*?[{=") & set(part)]
    name = _name_table(known[-1].rpartition(".")[0] or known[-1]) if known else "events"
    policy = Policy(Budget(1, "1e-6"), {name: PublicTable(source=source)})
    with closing(open_engine(None, policy)) as engine:
        columns = tuple(map(describe_column, engine.columns(name)))
    return (FoundTable(name, columns, source=url),)


def describe_column(column: Column) -> FoundColumn:
    """Return a column with what a policy can do with its type."""
    readable = find_read_type(parse_type(column.type)).family is not Family.OPAQUE
    return FoundColumn(column.name, column.type, readable, may_be_unit(column.type))
