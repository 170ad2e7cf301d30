"""Format of a CSV file in DuckDB's words, as `[tables.NAME.csv]` writes it.

All of it is fixed by the policy: no row of the file can change how another one is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

from dpsql.errors import PolicyError
from dpsql.policy.toml import Lines, Section
from dpsql.policy.validation import SourceUrl, check_names, fill, fold, is_csv, wrong_type

ENCODINGS = ("utf-8", "utf-16", "latin-1")
_LONGEST_SKIP = 10_000
_TIMES = re.compile(r"(?:[^%]|%-?[dmyHIMSj]|%[aAbBfgnpYz%])*")
_HINTS = {
    "delim": 'one ASCII character, such as ";" or "\\t"',
    "quote": 'one ASCII character, or "" for a file without quotes',
    "escape": 'one ASCII character, such as "\\\\"; by default it is the quote',
    "comment": 'one ASCII character, such as "#"',
    "thousands": 'one ASCII character, such as "," or " "',
    "decimal_separator": '"." or ","',
    "new_line": '"\\n", which also reads "\\r\\n", or "\\r"',
    "dateformat": 'a format of strptime, such as "%d/%m/%Y"',
    "timestampformat": 'a format of strptime, such as "%d/%m/%Y %H:%M:%S"',
}


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """Format of a CSV file: the options of DuckDB's read_csv by their names, with the defaults of RFC 4180.

    `names` are those of all columns from left to right, in place of the first line; "" as `escape` means the quote.
    Empty lines, lines that begin with `comment` and spaces around quotes are dropped.

    >>> CsvFormat(delim=";", decimal_separator=",").written()
    {'delim': ';', 'decimal_separator': ','}
    """

    delim: str = ","
    quote: str = '"'
    escape: str = ""
    header: bool = True
    skip: int = 0
    comment: str = ""
    new_line: str = "\n"
    names: tuple[str, ...] = ()
    encoding: str = "utf-8"
    nullstr: tuple[str, ...] = ("",)
    dateformat: str = ""
    timestampformat: str = ""
    decimal_separator: str = "."
    thousands: str = ""

    def __post_init__(self) -> None:
        """Check each value, with the default of its field as the model of its type."""
        nullstr: object = self.nullstr
        if isinstance(nullstr, str):
            fill(self, nullstr=(nullstr,))
        for field in fields(self):
            value, kind = getattr(self, field.name), type(field.default)
            if kind is tuple and isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
                fill(self, **{field.name: tuple(value)})
            elif type(value) is not kind:
                words = {bool: "true or false", int: "a whole number", tuple: "a list of texts"}.get(kind, "text")
                raise wrong_type(words, value, place=f"csv.{field.name}")
        if self.escape == self.quote:
            fill(self, escape="")
        for key, reason, hint in (*self._wrong_marks(), *self._wrong_words()):
            raise PolicyError("policy-csv", reason, hint=hint, place=f"csv.{key}")
        check_names(self.names, "csv.names")

    def _wrong_marks(self) -> Iterator[tuple[str, str, str]]:
        """Yield a key whose value cannot be, the reason, and a hint."""
        optional = ("quote", "escape", "comment", "thousands")
        for key in ("delim", *optional):
            value = getattr(self, key)
            is_one = len(value) == 1 and value.isascii() and value not in "\r\n\0" and not value.isalnum()
            if not (is_one or (value == "" and key in optional)):
                yield key, "This must be one character: no letter, digit or line break.", f"Write {_HINTS[key]}."
        marks = [mark for mark in (self.delim, self.quote, self.escape, self.comment) if mark]
        if len({*marks}) < len(marks):
            yield "delim", "Two of delim, quote, escape and comment are the same.", "Give each its own character."
        if self.escape and not self.quote:
            yield "escape", "A file without quotes has no escape.", "Leave escape out."

    def _wrong_words(self) -> Iterator[tuple[str, str, str]]:
        if not 0 <= self.skip <= _LONGEST_SKIP:
            yield "skip", f"This must be a number of lines from 0 to {_LONGEST_SKIP}.", "Write 0 to skip none."
        if self.new_line not in {"\n", "\r\n", "\r"}:
            yield "new_line", "This is no line break.", f"Write {_HINTS['new_line']}."
        if self.encoding not in ENCODINGS:
            reason = "Only utf-8, utf-16 and latin-1 are read: DuckDB has others in an extension, which is not bundled."
            yield "encoding", reason, "Convert the file, such as with iconv -f WINDOWS-1252 -t UTF-8, and leave it out."
        for key in ("dateformat", "timestampformat"):
            value = getattr(self, key)
            if value and ("%" not in value or not _TIMES.fullmatch(value)):
                yield key, "This is no format of dates.", f"Write {_HINTS[key]}."
        if self.decimal_separator not in {".", ","}:
            yield "decimal_separator", "This is no decimal separator.", f"Write {_HINTS['decimal_separator']}."
        if self.thousands == self.decimal_separator or self.thousands in {*"+-"}:
            yield "thousands", "This cannot separate thousands.", "Give it another sign than the decimal separator."
        if not self.header and not self.names:
            yield "header", "Without a header nothing names the columns.", 'Write names = ["user_id", ...], from left.'

    def written(self) -> dict[str, object]:
        """Return the options that differ from their defaults."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) != field.default}


GivenFormat = CsvFormat | Mapping[str, object] | None


def check_csv(
    given: GivenFormat, columns: tuple[str, ...] | None, *, source: Path | SourceUrl | None
) -> CsvFormat | None:
    """Return the format of a table's CSV file, which has all of its `columns`; None where the policy says nothing."""
    if given is None:
        return None
    if not isinstance(source, Path) or not is_csv(source):
        reason = "Only a table whose source is a CSV file has a format."
        raise PolicyError("policy-csv", reason, hint="Leave csv out.", place="csv")
    if not isinstance(given, CsvFormat):
        if not isinstance(given, Mapping):
            raise wrong_type('a table of options, such as {delim = ";"}', given, place="csv")
        Section(Lines("", {}), ("csv",), given).only(*(field.name for field in fields(CsvFormat)))
        given = CsvFormat(**cast("dict[str, Any]", given))
    missing = {fold(name) for name in columns or ()} - {fold(name) for name in given.names}
    if given.names and missing:
        reason = f'The column "{min(missing)}" is not among the names.'
        raise PolicyError(
            "policy-csv", reason, hint="Name every column of the file, from left to right.", place="csv.names"
        )
    return given
