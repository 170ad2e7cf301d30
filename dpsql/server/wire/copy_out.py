"""COPY (statement) TO STDOUT: as text, CSV or binary, which drivers read faster than rows."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dpsql.server.wire.codec import Column, message, tuple_of
from dpsql.server.wire.sqlstates import WireError

__all__ = ["Layout", "copied", "copy_header", "layout_of"]

_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END: Final = struct.pack("!h", -1)
_ESCAPES: Final = [(b"\\", b"\\\\"), (b"\n", b"\\n"), (b"\r", b"\\r"), (b"\t", b"\\t")]
_YES, _NO = frozenset(["", "true", "on", "1"]), frozenset(["false", "off", "0"])


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows are written; `kind` is text, csv or binary, and `quoted` names the columns that CSV always quotes."""

    kind: str = "text"
    delimiter: str = "\t"
    null: str = "\\N"
    header: bool = False
    quote: str = '"'
    escape: str = '"'
    quoted: tuple[str, ...] = ()

    @property
    def code(self) -> int:
        """The format of values: 1 where they are binary."""
        return int(self.kind == "binary")


def layout_of(options: Mapping[str, str]) -> Layout:
    """Return the layout that options ask for; raises `WireError` for those that there are not."""
    kind = options.get("format", "text").lower()
    if kind not in {"text", "csv", "binary"} or options.keys() - _KNOWN:
        raise WireError("0A000", "COPY is asked for in a way that there is not.", hint="FORMAT text, csv or binary.")
    if options.get("encoding", "utf8").lower().replace("-", "") != "utf8":
        raise WireError("0A000", "Texts are UTF-8 here.", hint="Leave ENCODING out.")
    header = options.get("header", "false").lower()
    quote = options.get("quote", '"')
    found = Layout(
        kind,
        options.get("delimiter", "," if kind == "csv" else "\t"),
        options.get("null", "" if kind == "csv" else "\\N"),
        header in _YES,
        quote,
        options.get("escape", quote),
        tuple(options["force_quote"].split("\0")) if "force_quote" in options else (),
    )
    signs = found.delimiter, found.quote, found.escape
    if header not in _YES | _NO or any(len(sign.encode()) != 1 or sign in "\r\n" for sign in signs):
        raise WireError("22023", "An option of COPY has an impossible value.", hint="Signs are single characters.")
    return found


_KNOWN: Final = frozenset(
    ["format", "delimiter", "null", "header", "quote", "escape", "force_quote", "encoding", "freeze", "oids"]
)


def copy_header(layout: Layout, count: int) -> bytes:
    """Return what says that rows of so many columns follow."""
    return message(b"H", struct.pack(f"!bh{count}h", layout.code, count, *[layout.code] * count))


def copied(rows: Iterator[Sequence[bytes | None]], columns: Sequence[Column], *, layout: Layout) -> Iterator[bytes]:
    """Yield the messages of the rows; in binary the signature shares the first with the first row, as clients need."""
    if layout.kind == "binary":
        before = _SIGNATURE
        for row in rows:
            yield message(b"d", before, tuple_of(row))
            before = b""
        yield message(b"d", before, _END)
        return
    write = _csv if layout.kind == "csv" else _text
    if layout.header:
        yield message(b"d", write([column.name.encode() for column in columns], columns, layout=layout))
    for row in rows:
        yield message(b"d", write(row, columns, layout=layout))


def _text(row: Sequence[bytes | None], _: Sequence[Column], *, layout: Layout) -> bytes:
    delimiter, cells = layout.delimiter.encode(), []
    for value in row:
        cell = layout.null.encode() if value is None else value
        if value is not None:
            for sign, escaped in (*_ESCAPES, (delimiter, b"\\" + delimiter))[: 5 if delimiter != b"\t" else 4]:
                cell = cell.replace(sign, escaped)
        cells.append(cell)
    return delimiter.join(cells) + b"\n"


def _csv(row: Sequence[bytes | None], columns: Sequence[Column], *, layout: Layout) -> bytes:
    quote, delimiter = layout.quote.encode(), layout.delimiter.encode()
    special, cells = (quote, delimiter, b"\n", b"\r"), []
    for value, column in zip(row, columns, strict=True):
        if value is None:
            cells.append(layout.null.encode())
            continue
        forced = "*" in layout.quoted or column.name in layout.quoted
        ends = len(row) == 1 and value == rb"\."  # which would end the rows for a reader
        if forced or ends or value == layout.null.encode() or any(sign in value for sign in special):
            cells.append(quote + _escaped(value, layout) + quote)
        else:
            cells.append(value)
    return delimiter.join(cells) + b"\n"


def _escaped(value: bytes, layout: Layout) -> bytes:
    escape, quote = layout.escape.encode(), layout.quote.encode()
    if escape != quote:
        value = value.replace(escape, escape * 2)
    return value.replace(quote, escape + quote)
