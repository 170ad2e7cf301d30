"""Format of a CSV file in the words of DuckDB's read_csv."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """Options of DuckDB's read_csv by their names, with the defaults of RFC 4180.

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

    @classmethod
    def of(cls, options: Mapping[str, object]) -> CsvFormat:
        """Return the format with these options, of which lists become tuples."""
        given: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in options.items()
        }
        return cls(**given)

    def written(self) -> dict[str, object]:
        """Return the options that differ from their defaults."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) != field.default}
