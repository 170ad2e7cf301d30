"""Check of `[tables.NAME.csv]`, which fixes how the CSV file of a table is written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path

from dpsql.dialects import CsvFormat
from dpsql.errors import PolicyError
from dpsql.policy.toml import Lines, Section
from dpsql.policy.validation import SourceUrl, check_names, fold, is_csv, wrong_type

_LONGEST_SKIP = 10_000
_TIMES = re.compile(r"(?:[^%]|%-?[dmyHIMSj]|%[aAbBfgnpYz%])*")
_HINTS = {
    "delim": 'Write one ASCII character, such as ";" or "\\t".',
    "quote": 'Write one ASCII character, or "" for a file without quotes.',
    "escape": 'Write one ASCII character, such as "\\\\"; by default it is the quote.',
    "comment": 'Write one ASCII character, such as "#".',
    "thousands": 'Write one ASCII character, such as "," or " ".',
}
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
    options = given.written() if isinstance(given, CsvFormat) else given
    if not isinstance(options, Mapping):
        raise wrong_type('a table of options, such as {delim = ";"}', options, place="csv")
    Section(Lines("", {}), ("csv",), options).only(*(field.name for field in fields(CsvFormat)))
    read = {field.name: _check_type(field.default, options, key=field.name) for field in fields(CsvFormat)}
    form = CsvFormat.of(read | {"escape": "" if read["escape"] == read["quote"] else read["escape"]})
    for key, reason, hint in (*_find_wrong_marks(form), *_find_wrong_words(form)):
        raise PolicyError("policy-csv", reason, hint=hint, place=f"csv.{key}")
    names = {fold(name) for name in check_names(form.names, "csv.names")}
    missing = next((name for name in columns or () if fold(name) not in names), None)
    if names and missing is not None:
        reason = f'The column "{missing}" is not among the names.'
        hint = "Name every column of the file, from left to right."
        raise PolicyError("policy-csv", reason, hint=hint, place="csv.names")
    return form


def _check_type(default: object, options: Mapping[str, object], *, key: str) -> object:
    """Return the value of an option, which has the type of its default; one text may stand for a list."""
    value, kind = options.get(key, default), type(default)
    if kind is tuple:
        texts = [value] if isinstance(value, str) and key == "nullstr" else value
        if not isinstance(texts, list | tuple) or not all(isinstance(each, str) for each in texts):
            raise wrong_type("a list of texts", value, place=f"csv.{key}")
        return tuple(texts)
    if type(value) is not kind:
        words = {bool: "true or false", int: "a whole number"}.get(kind, "text")
        raise wrong_type(words, value, place=f"csv.{key}")
    return value


def _find_wrong_marks(form: CsvFormat) -> Iterator[tuple[str, str, str]]:
    """Yield an option that is no character as it must be, the reason, and a hint."""
    for key, hint in _HINTS.items():
        value = getattr(form, key)
        is_one = len(value) == 1 and value.isascii() and value not in "\r\n\0" and not value.isalnum()
        if not is_one and (value or key == "delim"):
            yield key, "This must be one character: no letter, digit or line break.", hint
    marks = [mark for mark in (form.delim, form.quote, form.comment) if mark]
    if len({*marks}) < len(marks) or form.escape in {form.delim, form.comment} - {""}:
        yield "delim", "Two of delim, quote, escape and comment are the same.", "Give each its own character."
    if form.escape and not form.quote:
        yield "escape", "A file without quotes has no escape.", "Leave escape out."
    if form.thousands and form.thousands in {form.decimal_separator, "+", "-"}:
        yield "thousands", "This cannot separate thousands.", "Give it another sign than the decimal separator."


def _find_wrong_words(form: CsvFormat) -> Iterator[tuple[str, str, str]]:
    if not 0 <= form.skip <= _LONGEST_SKIP:
        yield "skip", f"This must be a number of lines from 0 to {_LONGEST_SKIP}.", "Write 0 to skip none."
    if form.new_line not in {"\n", "\r\n", "\r"}:
        yield "new_line", "This is no line break.", 'Write "\\n", which reads "\\r\\n", too, or "\\r".'
    if form.encoding not in {"utf-8", "utf-16", "latin-1"}:
        reason = "Only utf-8, utf-16 and latin-1 are read: DuckDB has others in an extension, which is not bundled."
        yield "encoding", reason, "Convert the file, such as with iconv -f WINDOWS-1252 -t UTF-8, and leave it out."
    for key, example in (("dateformat", "%d/%m/%Y"), ("timestampformat", "%d/%m/%Y %H:%M:%S")):
        value = getattr(form, key)
        if value and ("%" not in value or not _TIMES.fullmatch(value)):
            yield key, "This is no format of dates.", f'Write a format of strptime, such as "{example}".'
    if form.decimal_separator not in {".", ","}:
        yield "decimal_separator", "This is no decimal separator.", 'Write "." or ",".'
    if not form.header and not form.names:
        yield "header", "Without a header nothing names the columns.", 'Write names = ["user_id", ...], from the left.'
