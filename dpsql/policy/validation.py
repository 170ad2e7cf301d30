"""Checks that every value of a policy passes, whether it was written in Python or in TOML.

Each returns the value in its final type, or raises a `PolicyError` whose place is the key path it was given.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from fractions import Fraction
from os import PathLike
from pathlib import Path

from dpsql.dialects import quote_text
from dpsql.errors import PolicyError, UsageError
from dpsql.quantities import Delta, Epsilon, Number, exact

_URL = re.compile(r"(?!duckdb:)[A-Za-z][A-Za-z0-9+.-]+://|(?:file|dbfs|hdfs):/")
_READ = re.compile(r"[a-z][a-z0-9+.-]*:/[!-~]+")
_SECRET = re.compile(r"[a-z0-9+.-]+://[^/]*:[^/]*@|https?://[^/]*@|[^?]*[?#].*=")  # a user alone may be a token
_CSV = tuple(ending + packed for ending in (".csv", ".tsv") for packed in ("", ".gz", ".zst"))
_LOCAL_ENDINGS = (*_CSV, ".delta", ".iceberg")


@dataclass(frozen=True, slots=True)
class SourceUrl:
    """Address such as "s3://bucket/events/*.parquet", without credentials; which ones are read depends on the engine.

    >>> str(SourceUrl("hdfs://namenode/events"))
    'hdfs://namenode/events'
    """

    text: str

    def __post_init__(self) -> None:
        """Refuse what may hold a credential, and what is no address of Parquet files; nothing of it is shown."""
        if _SECRET.match(self.text):
            reason = "The address of a source has a user, a password, or settings after ? or #."
            hint = "Leave them out: docs/reference/sources.md says where credentials belong."
            raise PolicyError("policy-source", reason, hint=hint, place="source")
        if _READ.fullmatch(self.text) is None:
            hint = "Write an address such as s3://bucket/events/*.parquet, in ASCII and without blanks."
            raise PolicyError("policy-source", "The address of a source cannot be read.", hint=hint, place="source")
        if self.text.lower().endswith(_LOCAL_ENDINGS):
            reason = "Only Parquet files are read at an address."
            hint = "Write the table as Parquet, or copy it to this machine and name it by its path."
            raise PolicyError("policy-source", reason, hint=hint, place="source")

    def __str__(self) -> str:
        return self.text


def is_source_url(value: object) -> bool:
    """Say whether the source of a table is an address, and not a path.

    >>> is_source_url("s3://bucket/events.parquet"), is_source_url("events.parquet")
    (True, False)
    """
    return isinstance(value, SourceUrl) or (isinstance(value, str) and _URL.match(value) is not None)


_GREATEST_EPSILON = 100
_GREATEST_COUNT = 10**6
_BEYOND_VERSIONS = 1 << 62  # a ledger stores more, so that sums stay exact
_FOLD = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_TYPES = (
    "BOOLEAN TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER DOUBLE VARCHAR DATE TIMESTAMP UUID".split()
)
_DECIMAL = re.compile(r" *decimal *\( *([0-9]{1,2}) *, *([0-9]{1,2}) *\) *")
_WIDEST_DECIMAL = 18
_PERIOD = re.compile(r"([0-9]{1,6}) ?([hdw])")
METADATA = ".metadata.json"  # ends the name of a file that says what an Iceberg table is
_SOURCES = (".parquet", *_CSV, ".delta", ".iceberg", METADATA)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")  # of an address; a Path has lost one of its slashes
_PATTERN = re.compile(r"[*?]|\[.+\]")
_HOURS = {"h": 1, "d": 24, "w": 168}
CERTIFICATES = ("zcdp", "pure", "theorem2", "optimal")
_LONGEST_PERIOD = timedelta(days=10_000)
_DECLARED = 'columns = { user_id = "BIGINT", page = "VARCHAR" }, or columns={"user_id": "BIGINT", ...} in Python.'


def fill(value: object, **fields: object) -> None:
    """Fill fields of a frozen value while it is being made."""
    for name, content in fields.items():
        object.__setattr__(value, name, content)


def fold(name: str) -> str:
    """Return `name` in lower case as SQL compares names: ASCII letters only."""
    return name.translate(_FOLD)


def check_epsilon(value: Number | Epsilon, place: str) -> Epsilon:
    """Return an Epsilon of at most 100; beyond that nothing is promised any more."""
    fraction = value.value if isinstance(value, Epsilon) else _fraction(value, place)
    if not 0 < fraction <= _GREATEST_EPSILON:
        raise PolicyError(
            "policy-range",
            f"An epsilon must be greater than 0 and at most {_GREATEST_EPSILON}.",
            hint="A total of 1 is a strong guarantee, 10 a weak one.",
            place=place,
        )
    return Epsilon(fraction)


def check_delta(value: Number | Delta, place: str) -> Delta:
    """Return a Delta strictly between 0 and 1; the domain is unknown, so no query can do without one."""
    fraction = value.value if isinstance(value, Delta) else _fraction(value, place)
    if not 0 < fraction < 1:
        raise PolicyError(
            "policy-range",
            "A delta must be greater than 0 and less than 1.",
            hint="Take far less than 1 divided by the number of privacy units, such as 1e-6 or 1e-9.",
            place=place,
        )
    return Delta(fraction)


def _fraction(value: Number, place: str) -> Fraction:
    try:
        return exact(value, "The value")
    except UsageError as error:
        raise PolicyError("policy-number", error.reason, hint="Write a number such as 0.5.", place=place) from None


def check_count(value: int, place: str) -> int:
    """Return a whole number from 1 to a million."""
    return _whole(value, place, most=_GREATEST_COUNT)


def check_population(value: int | None) -> int | None:
    """Return about how many units there are, a whole number from 1 to a million million, or None."""
    return None if value is None else _whole(value, "population", most=_GREATEST_COUNT**2)


def _whole(value: int, place: str, *, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type("a whole number", value, place=place)
    if not 1 <= value <= most:
        reason = f"A count must be at least 1 and at most {most}."
        raise PolicyError("policy-range", reason, hint="Write a whole number such as 100.", place=place)
    return value


def optional_count(value: int | None, place: str) -> int | None:
    """Return a whole number from 1 to a million, or None."""
    return None if value is None else check_count(value, place)


def check_version(value: int | None) -> int | None:
    """Return the operator's public counter of the data, a whole number from 0, or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type("a whole number", value, place="data_version")
    if not 0 <= value < _BEYOND_VERSIONS:
        reason, hint = "A version must be at least 0 and less than 2**62.", "Count up from 0."
        raise PolicyError("policy-range", reason, hint=hint, place="data_version")
    return value


def check_flag(value: bool, place: str) -> bool:  # noqa: FBT001 - the value of a policy that is checked
    """Return a truth value."""
    if not isinstance(value, bool):
        raise wrong_type("True or False", value, place=place)
    return value


def check_period(value: timedelta | str, place: str) -> timedelta:
    """Return a period of whole hours, from one hour to 10,000 days."""
    if not isinstance(value, timedelta | str):
        raise wrong_type('a text such as "30d"', value, place=place)
    hint = 'Write hours, days or weeks as a whole number, such as "12h", "30d" or "1w".'
    length = value if isinstance(value, timedelta) else _length(value)
    if length is None:
        raise PolicyError("policy-period", "The text is no period.", hint=hint, place=place)
    hour = timedelta(hours=1)
    if not hour <= length <= _LONGEST_PERIOD or length % hour:
        reason = "A period must have whole hours, at least one, and at most 10,000 days."
        raise PolicyError("policy-range", reason, hint=hint, place=place)
    return length


def _length(text: str) -> timedelta | None:
    found = _PERIOD.fullmatch(text)
    return None if found is None else timedelta(hours=int(found[1]) * _HOURS[found[2]])


def check_certificate(value: str, place: str) -> str:
    """Return the name of what a session's promise is proved with."""
    if not isinstance(value, str):
        raise wrong_type("text", value, place=place)
    if value not in CERTIFICATES:
        reason, hint = "There is no such certificate.", f"Write one of {', '.join(CERTIFICATES)}."
        raise PolicyError("policy-certificate", reason, hint=hint, place=place)
    return value


def check_name(value: str, place: str) -> str:
    """Return the name of a table or column, which is not empty."""
    if not isinstance(value, str):
        raise wrong_type("text", value, place=place)
    if not value or "\0" in value:
        reason = "A name must have at least one character, and no NUL."
        raise PolicyError("policy-name", reason, hint="Write the name as the database has it.", place=place)
    return value


def check_columns(values: Sequence[str] | Mapping[str, str] | None) -> tuple[str, ...] | None:
    """Return the columns that exist for analysts, each once; None means all."""
    if values is None:
        return None
    if not isinstance(values, list | tuple | Mapping):
        raise wrong_type("a list of texts", values, place="columns")
    names = check_names(values, "columns")
    if not names:
        reason = "The list of columns is empty."
        raise PolicyError("policy-columns", reason, hint="Leave it out to expose every column.", place="columns")
    return names


_SEEN = "Name columns of this table that analysts see."


def suggest_name(name: str, columns: Sequence[str] | None) -> str:
    """Return a question that proposes the column with the nearest name, with a space; "" if none is near."""
    folded = {fold(column): column for column in columns or ()}
    close = get_close_matches(fold(name), folded, n=1)
    return f'Did you mean "{folded[close[0]]}"? ' if close else ""


def check_single_valued(values: Sequence[str], columns: tuple[str, ...] | None, *, unit: str | None) -> tuple[str, ...]:
    """Return the columns in which every unit has one value, each once; they exist for analysts, as far as is known."""
    place = "one_value_per_unit"
    if not isinstance(values, list | tuple):
        raise wrong_type("a list of texts", values, place=place)
    names = check_names(values, place)
    for name in names:
        if (unit is not None and fold(name) == fold(unit)) or (
            columns is not None and fold(name) not in map(fold, columns)
        ):
            reason = f'The column "{name}" is the privacy unit itself, or is not among the columns.'
            raise PolicyError("policy-columns", reason, hint=suggest_name(name, columns) + _SEEN, place=place)
    return names


def check_not_null(values: Sequence[str], columns: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the columns that are never NULL, each once; they exist for analysts, as far as is known."""
    place = "not_null"
    if not isinstance(values, list | tuple):
        raise wrong_type("a list of texts", values, place=place)
    names = check_names(values, place)
    for name in names:
        if columns is not None and fold(name) not in map(fold, columns):
            reason = f'The column "{name}" is not among the columns.'
            raise PolicyError("policy-columns", reason, hint=suggest_name(name, columns) + _SEEN, place=place)
    return names


def check_budget_by(value: str | None, columns: tuple[str, ...] | None, *, unit: str | None) -> str | None:
    """Return the column whose values have a budget each, or None: another one than the unit, of a table that has it."""
    place = "budget_by"
    if value is None:
        return None
    name = check_name(value, place)
    if unit is None:
        reason, hint = (
            "A table that is linked to its unit has no budget_by.",
            "Write it at the table that has the unit.",
        )
        raise PolicyError("policy-budget-by", reason, hint=hint, place=place)
    if fold(name) == fold(unit) or (columns is not None and fold(name) not in map(fold, columns)):
        reason = f'The column "{name}" is the privacy unit itself, or is not among the columns.'
        hint = 'Name a column that analysts see and that has few values, such as budget_by = "country".'
        raise PolicyError("policy-budget-by", reason, hint=hint, place=place)
    return name


def check_materialized(
    values: Sequence[Sequence[str]], columns: tuple[str, ...] | None, *, unit: str | None
) -> tuple[tuple[str, ...], ...]:
    """Return the sets of columns to materialize; the unit is part of each set anyway."""
    place = "materialized"
    if not isinstance(values, list | tuple) or not all(isinstance(each, list | tuple) for each in values):
        raise wrong_type("a list of lists of texts", values, place=place)
    sets = tuple(check_names(each, place) for each in values)
    if sets and unit is None:
        reason = "A table that is linked to its unit is not materialized."
        raise PolicyError(
            "policy-prepared", reason, hint="Materialize a table that holds its unit itself.", place=place
        )
    known = None if columns is None else {fold(column) for column in columns}
    taken = {frozenset(map(fold, each)) for each in sets}
    for each in sets:
        folded = set(map(fold, each))
        wrong = {fold(unit or "")} if known is None else (folded - known) | {fold(unit or "")}
        name = next((name for name in each if fold(name) in wrong), None)
        if name is not None:
            is_unit = fold(name) == fold(unit or "")
            what = "the privacy unit, which is in every list already" if is_unit else "not among the columns"
            hint = "Leave it out." if is_unit else suggest_name(name, columns) + _SEEN
            raise PolicyError("policy-prepared", f'The column "{name}" is {what}.', hint=hint, place=place)
    if len(taken) < len(sets):
        reason = "The same columns are listed twice; their order does not matter."
        raise PolicyError("policy-prepared", reason, hint="List every set of columns once.", place=place)
    return sets


def check_names(values: Iterable[str], place: str) -> tuple[str, ...]:
    """Return the names of columns, each once."""
    names = tuple(check_name(value, place) for value in values)
    seen: set[str] = set()
    for name in names:
        if fold(name) in seen:
            reason = f'The column "{name}" is listed twice; upper and lower case are the same.'
            raise PolicyError("policy-columns", reason, hint="List every column once.", place=place)
        seen.add(fold(name))
    return names


def check_path(value: Path | str, place: str) -> Path:
    """Return a path that names a file."""
    if not isinstance(value, str | PathLike):
        raise wrong_type("a path", value, place=place)
    path = Path(value)
    if not path.name or "\0" in str(path):
        raise PolicyError("policy-path", "The path names no file.", hint="Write the path of a file.", place=place)
    return path


def is_csv(path: Path) -> bool:
    """Say whether the name of a file is that of a CSV file, perhaps compressed."""
    return path.name.lower().endswith(_CSV)


def check_source(value: Path | SourceUrl | str | None) -> Path | SourceUrl | None:
    """Return the path of a Parquet or CSV file or of a folder, the address of Parquet files, or None.

    What is there is seen when the engine opens it. A name with another ending is that of a folder only if there is one.
    """
    if value is None or isinstance(value, SourceUrl):
        return value
    if isinstance(value, str) and is_source_url(value):
        return SourceUrl(value)
    path = check_path(value, "source")
    # Path("s3://bucket/events") is s3:/bucket/events, whose first part is "s3:".
    if any(map(_SCHEME.fullmatch, path.parts)):
        reason = "This is an address, and a Path drops one of its slashes."
        hint = 'Give the address as text, such as "s3://bucket/events/*.parquet".'
        raise PolicyError("policy-source", reason, hint=hint, place="source")
    # A file may be called events[1].parquet.
    if _PATTERN.search(path.name) and not path.exists():
        reason = "A source is one file or folder, and not a pattern of names."
        folder = "Name the folder: every Parquet file in it, and below it, belongs to the table."
        own = "Put the Parquet files of the table into a folder of their own, and name the folder."
        hint = folder if path.name == "*.parquet" else own
        raise PolicyError("policy-source", reason, hint=hint, place="source")
    if not path.name.lower().endswith(_SOURCES) and path.suffix and not path.is_dir():
        raise refuse_file(path, place="source")
    return path


def refuse_file(path: Path, *, place: str) -> PolicyError:
    """Return the refusal of a file of another kind; its hint converts the file to Parquet."""
    file, target = quote_text(path.name), quote_text(path.name.partition(".")[0] + ".parquet")
    kinds = {*map(fold, path.suffixes)}
    how = f"for example in DuckDB: COPY (FROM {file}) TO {target}"
    if kinds & {".json", ".jsonl", ".ndjson"}:
        how = f"in DuckDB: COPY (FROM read_json({file})) TO {target}"
    elif kinds & {".txt", ".dat", ".tab", ".psv", ".log"}:
        how = f"in DuckDB: COPY (FROM read_csv({file})) TO {target}; or give it a name that ends in .csv"
    elif kinds & {".xlsx", ".xlsm"}:
        how = f"in DuckDB: INSTALL excel; LOAD excel; COPY (FROM read_xlsx({file})) TO {target}; or save it as CSV"
    elif kinds & {".feather", ".arrow", ".ipc"}:
        table = f"import duckdb, pyarrow.feather; rows = pyarrow.feather.read_table({path.name!r})"
        how = f'in Python: {table}; duckdb.execute("COPY (FROM rows) TO {target}")'
    reason = "A source must be a folder, or a file whose name ends in .parquet, .csv or .tsv."
    return PolicyError("policy-source", reason, hint=f"Convert it, {how}.", place=place)


def check_types(
    values: Sequence[str] | Mapping[str, str] | None, source: Path | SourceUrl | None
) -> tuple[str, ...] | None:
    """Return the type of every column of a CSV file, in their order; None where the source has types of its own."""
    if not isinstance(source, Path) or not is_csv(source):
        if isinstance(values, Mapping):
            reason = "Only the columns of a CSV file have their types declared; other sources bring theirs."
            hint = 'Write the names alone: columns = ["user_id", "page"].'
            raise PolicyError("policy-types", reason, hint=hint, place="columns")
        return None
    if not isinstance(values, Mapping):
        raise PolicyError(
            "policy-types",
            "A CSV file needs a type for every column; sniffed types change with one row.",
            hint=_DECLARED,
            place="source" if values is None else "columns",
        )
    return tuple(_type(value, f"columns.{name}") for name, value in values.items())


def _type(value: str, place: str) -> str:
    if not isinstance(value, str):
        raise wrong_type('the name of a type, such as "BIGINT"', value, place=place)
    for name in _TYPES:
        if fold(value) == fold(name):
            return name
    found = _DECIMAL.fullmatch(fold(value))
    if found and 1 <= int(found[1]) <= _WIDEST_DECIMAL and int(found[2]) <= int(found[1]):
        return f"DECIMAL({int(found[1])},{int(found[2])})"
    raise PolicyError(
        "policy-types",
        "This is no type that a column of a CSV file can have.",
        hint=f"{', '.join(_TYPES)}, or DECIMAL(width, scale) of a width of at most {_WIDEST_DECIMAL}.",
        place=place,
    )


def wrong_type(wanted: str, value: object, *, place: str) -> PolicyError:
    """Return the error that says what is `wanted` instead of `value`."""
    reason = f"The value is of type {type(value).__name__}."
    return PolicyError("policy-type", reason, hint=f"Give {wanted}.", place=place)
