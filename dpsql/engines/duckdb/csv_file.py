"""Check of a CSV file against one fixed grammar: RFC 4180 in UTF-8, with or without a byte order mark.

Readers of CSV repair errors. DuckDB's strict mode still drops an extra empty field, empty lines and spaces around
quotes; Arrow's reader closes an open quote. Every byte is therefore checked first; a file that passes can be parsed in
one way only.
"""

from __future__ import annotations

import codecs
import csv
import re
import string
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import pyarrow as pa
from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, read_csv

TROUBLE = (OSError, ValueError, csv.Error, pa.ArrowException)

# *+ never gives back what it took, so that each byte is looked at once; *, on a field that is not closed, would try all
# ways.
_FIELD = rb'(?:"[^"]*+(?:""[^"]*+)*+"|[^",\r\n]*+)'
_HEADER = re.compile(_FIELD + rb"(?:," + _FIELD + rb")*+\r?\n")
_LONGEST_HEADER = 1 << 20
_BLOCK = 8 << 20
_LONGEST_RECORD = 16 << 20  # an open quote would otherwise bring the rest of the file into memory
_FOLD = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def header(stream: BinaryIO) -> list[str]:
    """Return the names in the first line; raise one of `TROUBLE` if it cannot be one."""
    line = stream.readline(_LONGEST_HEADER).removeprefix(codecs.BOM_UTF8)
    if not line.endswith(b"\n"):
        line += b"\n"
    if len(line) > _LONGEST_HEADER or not _HEADER.fullmatch(line):
        raise ValueError
    return next(csv.reader([line.decode()], strict=True)) or [""]


def positions(names: Sequence[str], name: str) -> list[int]:
    """Return the positions of `name` in a header, compared without regard to ASCII case."""
    return [place for place, found in enumerate(names) if found.translate(_FOLD) == name.translate(_FOLD)]


def tables(stream: BinaryIO, wanted: Sequence[int], *, width: int) -> Iterator[pa.Table]:
    """Yield the fields at the `wanted` positions of every record, as text or NULL, some megabytes at a time.

    An empty field is NULL where it is not quoted and the empty text where it is. Raises one of `TROUBLE` where the file
    stops being records of `width` fields.
    """
    names = [str(position) for position in range(width)]
    chosen = [str(position) for position in wanted]
    convert = ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        include_columns=chosen,
        check_utf8=True,
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    parse = ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
    for block in _blocks(stream, width):
        marked = codecs.BOM_UTF8 + block  # Arrow drops one from the front, and it may not be that of a field
        read = ReadOptions(column_names=names, block_size=len(marked))
        yield read_csv(pa.BufferReader(marked), read_options=read, parse_options=parse, convert_options=convert)


def _blocks(stream: BinaryIO, width: int) -> Iterator[bytes]:
    """Cut the rest of the file where records end; the last line break may be missing."""
    records = re.compile(rb"(?:" + _FIELD + rb"(?:," + _FIELD + rb"){%d}+\r?\n)*+" % (width - 1))
    rest = b""
    while chunk := stream.read(_BLOCK):
        rest += chunk
        end = _end(records, rest)
        if end:
            yield rest[:end]
        rest = rest[end:]
        if len(rest) > _LONGEST_RECORD:
            raise ValueError
    if rest:
        rest += b"\n"
        # A file that ends in \r has half of a line break, which the added \n would complete.
        if rest.endswith(b"\r\n") or _end(records, rest) != len(rest):
            raise ValueError
        yield rest


def _end(records: re.Pattern[bytes], text: bytes) -> int:
    """Return where the last whole record of `text` ends."""
    found = records.match(text)
    return found.end() if found else 0
