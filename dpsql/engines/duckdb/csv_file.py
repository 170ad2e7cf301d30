"""Check of a CSV file against one fixed grammar: RFC 4180 in UTF-8, or the format that the policy declares.

Readers of CSV repair errors. DuckDB's strict mode still drops an extra empty field, empty lines and spaces around
quotes; Arrow's reader closes an open quote. Every byte is therefore checked first; a file that passes can be parsed in
one way only. Nothing is detected here: no row changes how another one is read.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa
from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, read_csv

from dpsql.dialects import CsvFormat, quote_name, quote_text

TROUBLE = (OSError, ValueError, csv.Error, pa.ArrowException)

_LONGEST_HEADER = 1 << 20
_BLOCK = 8 << 20
_LONGEST_RECORD = 16 << 20  # an open quote would otherwise bring the rest of the file into memory
_FOLD = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_PACKED = {".gz": "gzip", ".zst": "zstd"}
_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "DOUBLE", "DECIMAL")


class MalformedError(ValueError):
    """The text stops being records after so many lines, counted from where reading began."""

    def __init__(self, lines: int) -> None:
        super().__init__()
        self.lines = lines


@dataclass(frozen=True, slots=True)
class _Grammar:
    """Patterns of a format: fields, what stands between them, and lines that are passed over.

    *+ never gives back what it took, so that each byte is looked at once; *, on a field that is not closed, would try
    all ways.
    """

    field: bytes = rb'(?:"[^"]*+(?:""[^"]*+)*+"|[^",\r\n]*+)'
    delim: bytes = b","
    end: bytes = rb"\r?\n"
    quoted: bytes = b""
    comment: bytes = b""
    no_comment: bytes = b""
    is_lenient: bool = False

    @classmethod
    def of(cls, form: CsvFormat | None) -> _Grammar:
        """Return the grammar of a format that a policy declares, or else that of RFC 4180."""
        if form is None:
            return cls()
        marks = (form.quote, form.escape, form.delim, form.comment)
        quote, escape, delim, comment = (re.escape(mark.encode()) for mark in marks)
        end = rb"\r" if form.new_line == "\r" else rb"\r?\n"
        field = rb"[^%b%b\r\n]*+" % (quote, delim)
        quoted = b""
        if quote:
            # Behind an escape stands any one byte; a quote that is its own escape stands twice.
            pairs = (escape, escape + rb"(?s:.)") if escape else (b"", quote + quote)
            inner = rb"[^%b%b]*+(?:%b[^%b%b]*+)*+" % (quote, pairs[0], pairs[1], quote, pairs[0])
            spaces = b"" if form.delim == " " else b" *+"
            quoted = spaces + quote + b"(" + inner + b")" + quote + spaces
            field = b"(?:" + spaces + quote + inner + quote + spaces + b"|" + field + b")"
        line = comment and comment + rb"[^\r\n]*+" + end
        return cls(field, delim, end, quoted, line, comment and b"(?!" + comment + b")", is_lenient=True)

    def record(self, width: int | None) -> bytes:
        """Return the pattern of a record of so many fields, or of any number."""
        times = b"*+" if width is None else b"{%d}+" % (width - 1)
        return self.no_comment + self.field + b"(?:" + self.delim + self.field + b")" + times + self.end

    def dropped(self, width: int | None) -> bytes:
        """Return the pattern of a line that is no record, "" for none; in one column an empty line is a NULL."""
        return b"|".join(filter(None, [self.comment, self.end if self.is_lenient and width != 1 else b""]))


def open_csv(path: Path, form: CsvFormat | None) -> BinaryIO:
    """Open a file as UTF-8: what is compressed by its name is unpacked, and another encoding is converted."""
    kind = _PACKED.get(path.suffix.lower())
    if kind is None and form is None:
        return path.open("rb")
    raw = pa.input_stream(str(path), compression=kind) if kind else path.open("rb")
    stream = io.BufferedReader(cast("io.RawIOBase", raw))
    if form is not None and form.encoding != "utf-8":
        marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        is_bare = form.encoding == "utf-16" and not stream.peek(2).startswith(marks)
        stream = io.BufferedReader(_Converted(stream, "utf-16-le" if is_bare else form.encoding))
    if form is not None and stream.peek(3)[:3] == codecs.BOM_UTF8:
        stream.read(3)
    return stream


class _Converted(io.RawIOBase):
    """Text of another encoding as UTF-8."""

    def __init__(self, stream: BinaryIO, encoding: str) -> None:
        """Decode a stream."""
        self._text = io.TextIOWrapper(stream, encoding, newline="")
        self._rest = b""

    def readable(self) -> bool:
        """Return true."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill the buffer, and return how many bytes that were."""
        self._rest = self._rest or self._text.read(1 << 16).encode()
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size

    def close(self) -> None:
        """Close the file, too."""
        self._text.close()
        super().close()


def header(stream: BinaryIO, form: CsvFormat | None = None) -> list[str]:
    """Return the names of the columns, and read up to the first record; raise one of `TROUBLE` if that cannot be."""
    if form is not None:
        for _ in range(form.skip):
            _read_line(stream, form)
        found = read_record(stream, form) if form.header else []
        return list(form.names) or found or [""]
    line = stream.readline(_LONGEST_HEADER).removeprefix(codecs.BOM_UTF8)
    if not line.endswith(b"\n"):
        line += b"\n"
    if len(line) > _LONGEST_HEADER or not re.fullmatch(_Grammar().record(None), line):
        raise ValueError
    return next(csv.reader([line.decode()], strict=True)) or [""]


def read_record(stream: BinaryIO, form: CsvFormat) -> list[str]:
    """Return the fields of the next record, none at the end of the file."""
    grammar, text = _Grammar.of(form), b""
    record, dropped = re.compile(grammar.record(None)), re.compile(grammar.dropped(None))
    while line := _read_line(stream, form):
        text += line
        if dropped.fullmatch(text):
            text = b""
        elif record.fullmatch(text):
            fields = re.findall(rb"(%b)(?:%b|%b)" % (grammar.field, grammar.delim, grammar.end), text)
            return [_unquote(field, grammar, form=form).decode() for field in fields]
        elif len(text) > _LONGEST_HEADER:
            break
    if text:
        raise ValueError
    return []


def _read_line(stream: BinaryIO, form: CsvFormat) -> bytes:
    """Return the next line, with the end that the last one may lack; nothing at the end of the file."""
    end, line = b"\n", bytearray()
    if form.new_line == "\r":
        end = b"\r"
        while line[-1:] != end and len(line) < _LONGEST_HEADER and (byte := stream.read(1)):
            line += byte
    else:
        line += stream.readline(_LONGEST_HEADER)
    return bytes(line if line[-1:] == end or not line else line + end)


def _unquote(field: bytes, grammar: _Grammar, *, form: CsvFormat) -> bytes:
    """Return the text of a field."""
    found = re.fullmatch(grammar.quoted, field) if grammar.quoted else None
    return field if found is None else _unescape(found[1], form)


def _unescape(text: bytes, form: CsvFormat) -> bytes:
    quote, escape = form.quote.encode(), form.escape.encode()
    if not escape:
        return text.replace(quote + quote, quote)
    marks = re.escape(escape), re.escape(quote)
    return re.sub(rb"%b([%b%b])" % (marks[0], *marks), rb"\1", text)


def positions(names: Sequence[str], name: str) -> list[int]:
    """Return the positions of `name` in a header, compared without regard to ASCII case."""
    return [place for place, found in enumerate(names) if found.translate(_FOLD) == name.translate(_FOLD)]


def tables(stream: BinaryIO, wanted: Sequence[int], *, width: int, form: CsvFormat | None = None) -> Iterator[pa.Table]:
    """Yield the fields at the `wanted` positions of every record, as text or NULL, some megabytes at a time.

    An empty field is NULL where it is not quoted and the empty text where it is, unless the format has another
    `nullstr`. Raises one of `TROUBLE` where the file stops being records of `width` fields.
    """
    names = [str(position) for position in range(width)]
    chosen = [str(position) for position in wanted]
    convert = ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        include_columns=chosen,
        check_utf8=True,
        null_values=[""] if form is None else list(form.nullstr),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    parse = ParseOptions(
        delimiter="," if form is None else form.delim,
        quote_char='"' if form is None else form.quote or False,
        newlines_in_values=True,
        ignore_empty_lines=False,
    )
    for block in _blocks(stream, width, form=form):
        marked = codecs.BOM_UTF8 + block  # Arrow drops one from the front, and it may not be that of a field
        read = ReadOptions(column_names=names, block_size=len(marked))
        yield read_csv(pa.BufferReader(marked), read_options=read, parse_options=parse, convert_options=convert)


def _blocks(stream: BinaryIO, width: int, *, form: CsvFormat | None) -> Iterator[bytes]:
    """Cut the rest of the file where records end; the last line break may be missing."""
    grammar = _Grammar.of(form)
    record, dropped = grammar.record(width), grammar.dropped(width)
    records = re.compile(b"(?:" + b"|".join(filter(None, [dropped, record])) + b")*+")
    mark, lines, rest = b"\r" if form is not None and form.new_line == "\r" else b"\n", 0, b""
    while chunk := stream.read(_BLOCK):
        rest += chunk
        end = _end(records, rest)
        if block := _simplify(rest[:end], grammar, form=form, width=width):
            yield block
        lines += rest.count(mark, 0, end)
        rest = rest[end:]
        if len(rest) > _LONGEST_RECORD:
            raise MalformedError(lines)
    if rest:
        rest += mark
        # A file that ends in \r has half of a line break, which the added \n would complete.
        if rest.endswith(b"\r\n") or _end(records, rest) != len(rest):
            raise MalformedError(lines)
        if block := _simplify(rest, grammar, form=form, width=width):
            yield block


def _simplify(block: bytes, grammar: _Grammar, *, form: CsvFormat | None, width: int) -> bytes:
    """Return records without what Arrow does not read: other lines, spaces around quotes, and escapes."""
    if form is None:
        return block
    dropped, quote = grammar.dropped(width), form.quote.encode()
    mark = b"\r" if form.new_line == "\r" else b"\n"
    if dropped and re.search(b"(?:^|%b)(?:%b)" % (mark, dropped), block):
        block = re.sub(b"(?:%b)|(%b)" % (dropped, grammar.record(width)), rb"\1", block)
    if quote and (form.escape or b" " + quote in block or quote + b" " in block):
        # Outside of the quoted fields there is no quote, so the first one that is found opens a field.
        double = quote + quote
        return re.sub(
            grammar.quoted, lambda found: quote + _unescape(found[1], form).replace(quote, double) + quote, block
        )
    return block


def _end(records: re.Pattern[bytes], text: bytes) -> int:
    """Return where the last whole record of `text` ends."""
    found = records.match(text)
    return found.end() if found else 0


def cast_column(name: str, type_: str, *, form: CsvFormat | None) -> str:
    """Return the SQL that converts a column of text to the type, and fails for a text that does not fit."""
    column = quote_name(name)
    if form is not None and type_ == "DATE" and form.dateformat:
        column = f"system.main.strptime({column}, {quote_text(form.dateformat)})"
    elif form is not None and type_ == "TIMESTAMP" and form.timestampformat:
        if "%z" in form.timestampformat:  # which reads no Z
            column = f"system.main.regexp_replace({column}, '[Zz]$', '+00:00')"
        column = f"system.main.strptime({column}, {quote_text(form.timestampformat)})"
        if "%z" in form.timestampformat:
            column = f"({column} AT TIME ZONE 'UTC')"
    elif form is not None and type_.startswith(_NUMBERS) and (form.decimal_separator, form.thousands) != (".", ""):
        point, group = re.escape(form.decimal_separator), re.escape(form.thousands)
        whole = rf"([0-9]+|[0-9]{{1,3}}({group}[0-9]{{3}})+)" if group else "[0-9]+"
        number = quote_text(rf" *[+-]?{whole}({point}[0-9]*)?([eE][+-]?[0-9]+)? *")
        plain = f"system.main.replace({column}, {quote_text(form.thousands)}, '')" if group else column
        plain = f"system.main.replace({plain}, {quote_text(form.decimal_separator)}, '.')"
        column = f"CASE WHEN NOT system.main.regexp_full_match({column}, {number}) THEN 'x' ELSE {plain} END"
    return f"CAST({column} AS {type_})"
