"""Output of COPY ... TO STDOUT, in text, CSV or binary format; drivers read it faster than rows."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dpsql.server.row_blocks import encode_row, split_pieces
from dpsql.server.wire.codec import Column, message
from dpsql.server.wire.sqlstates import WireError

__all__ = ["CopyLayout", "copy_header", "copy_messages", "parse_layout"]

_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END: Final = struct.pack("!h", -1)
_ESCAPES: Final = [(b"\\", b"\\\\"), (b"\n", b"\\n"), (b"\r", b"\\r"), (b"\t", b"\\t")]
_TRUE, _FALSE = frozenset(["", "true", "on", "1"]), frozenset(["false", "off", "0"])


@dataclass(frozen=True, slots=True)
class CopyLayout:
    """Format and options of a COPY; `kind` is text, csv or binary, and CSV always quotes the `quoted` columns."""

    kind: str = "text"
    delimiter: str = "\t"
    null: str = "\\N"
    header: bool = False
    quote: str = '"'
    escape: str = '"'
    quoted: tuple[str, ...] = ()

    @property
    def format(self) -> int:
        """The format of values: text (0) or binary (1)."""
        return int(self.kind == "binary")


def parse_layout(options: Mapping[str, str]) -> CopyLayout:
    """Return the layout for the options of a COPY; raise `WireError` for unsupported ones."""
    kind = options.get("format", "text").lower()
    if kind not in {"text", "csv", "binary"} or options.keys() - _OPTIONS:
        raise WireError(
            "0A000", "This option of COPY is not supported.", hint="COPY (SELECT ...) TO STDOUT (FORMAT csv, HEADER)."
        )
    if options.get("encoding", "utf8").lower().replace("-", "") != "utf8":
        raise WireError("0A000", "Only UTF-8 is supported.", hint="Leave ENCODING out.")
    header = options.get("header", "false").lower()
    quote = options.get("quote", '"')
    layout = CopyLayout(
        kind,
        options.get("delimiter", "," if kind == "csv" else "\t"),
        options.get("null", "" if kind == "csv" else "\\N"),
        header in _TRUE,
        quote,
        options.get("escape", quote),
        tuple(options["force_quote"].split("\0")) if "force_quote" in options else (),
    )
    signs = layout.delimiter, layout.quote, layout.escape
    if header not in _TRUE | _FALSE or any(len(sign.encode()) != 1 or sign in "\r\n" for sign in signs):
        raise WireError(
            "22023",
            "An option of COPY has an invalid value.",
            hint="DELIMITER, QUOTE and ESCAPE take one ASCII character.",
        )
    return layout


_OPTIONS: Final = frozenset(
    ["format", "delimiter", "null", "header", "quote", "escape", "force_quote", "encoding", "freeze", "oids"]
)


def copy_header(layout: CopyLayout, count: int) -> bytes:
    """Return the message that announces rows of `count` columns."""
    return message(b"H", struct.pack(f"!bh{count}h", layout.format, count, *[layout.format] * count))


def copy_messages(
    rows: Iterator[Sequence[bytes | None]], columns: Sequence[Column], *, layout: CopyLayout
) -> Iterator[bytes]:
    """Yield the messages of rows in pieces that may be sent one by one.

    In binary, the signature and the first row share a message, as clients expect.
    """
    return split_pieces(_copy_messages(rows, columns, layout=layout))


def _copy_messages(
    rows: Iterator[Sequence[bytes | None]], columns: Sequence[Column], *, layout: CopyLayout
) -> Iterator[bytes]:
    if layout.kind == "binary":
        before = _SIGNATURE
        for row in rows:
            yield message(b"d", before, encode_row(row))
            before = b""
        yield message(b"d", before, _END)
        return
    write = _format_csv if layout.kind == "csv" else _format_text
    if layout.header:
        yield message(b"d", write([column.name.encode() for column in columns], columns, layout=layout))
    for row in rows:
        yield message(b"d", write(row, columns, layout=layout))


def _format_text(row: Sequence[bytes | None], _: Sequence[Column], *, layout: CopyLayout) -> bytes:
    delimiter, cells = layout.delimiter.encode(), []
    for value in row:
        cell = layout.null.encode() if value is None else value
        if value is not None:
            for sign, escaped in (*_ESCAPES, (delimiter, b"\\" + delimiter))[: 5 if delimiter != b"\t" else 4]:
                cell = cell.replace(sign, escaped)
        cells.append(cell)
    return delimiter.join(cells) + b"\n"


def _format_csv(row: Sequence[bytes | None], columns: Sequence[Column], *, layout: CopyLayout) -> bytes:
    quote, escape, delimiter = layout.quote.encode(), layout.escape.encode(), layout.delimiter.encode()
    special, cells = (quote, delimiter, b"\n", b"\r"), []
    for value, column in zip(row, columns, strict=True):
        if value is None:
            cells.append(layout.null.encode())
            continue
        is_forced = "*" in layout.quoted or column.name in layout.quoted
        is_end_mark = len(row) == 1 and value == rb"\."  # readers would take it for the end
        if is_forced or is_end_mark or value == layout.null.encode() or any(sign in value for sign in special):
            escaped = value if escape == quote else value.replace(escape, escape * 2)
            cells.append(quote + escaped.replace(quote, escape + quote) + quote)
        else:
            cells.append(value)
    return delimiter.join(cells) + b"\n"
