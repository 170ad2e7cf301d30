from __future__ import annotations

import csv
import io

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dpsql.dialects import CsvFormat
from dpsql.engines.duckdb import csv_file

Row = tuple[str | None, ...]


def read(data: bytes, width: int, wanted: list[int] | None = None, form: CsvFormat | None = None) -> list[Row] | None:
    """Return the rows of `data`, or None if it is refused."""
    try:
        blocks = list(csv_file.tables(io.BytesIO(data), wanted or list(range(width)), width=width, form=form))
    except csv_file.TROUBLE:
        return None
    return [tuple(row.values()) for block in blocks for row in block.to_pylist()]


def names(data: bytes) -> list[str] | None:
    try:
        return csv_file.header(io.BytesIO(data))
    except csv_file.TROUBLE:
        return None


def slowly(data: bytes, width: int) -> list[Row] | None:
    """Return what RFC 4180 says of `data`, byte by byte; None where it says nothing."""
    rows, row, at = [], [], 0
    while at < len(data) or row:
        end = field_end(data, at)
        field = data[at:end]
        quoted = field.startswith(b'"')
        if quoted and (len(field) < 2 or not field.endswith(b'"')):
            return None
        row.append(field[1:-1].replace(b'""', b'"').decode() if quoted else field.decode() or None)
        mark = next(mark for mark in (b",", b"\r\n", b"\n", b"") if data.startswith(mark, end))
        at = end + len(mark)
        if mark != b",":
            if len(row) != width or (not mark and end < len(data)):
                return None
            rows.append(tuple(row))
            row = []
    return rows


def field_end(data: bytes, at: int) -> int:
    """Return where a field ends: after its closing quote, or before what ends an unquoted one; an open quote is cut."""
    if data[at : at + 1] != b'"':
        return next((end for end in range(at, len(data)) if data[end] in b'",\r\n'), len(data))
    end = at + 1
    while end < len(data):
        if data[end : end + 2] == b'""':
            end += 2
        elif data[end : end + 1] == b'"':
            return end + 1
        else:
            end += 1
    return at + 1


PIECES = st.sampled_from([*"aé\ufeff \t\0\\#;'", ",", ",", '"', '"', '""', "\n", "\n", "\r\n", "\r", ',"', '"\n'])


@given(st.lists(PIECES, max_size=25).map("".join), st.integers(1, 3), st.sampled_from([1, 2, 3, 7, 1000]))
def test_any_text_is_read_as_the_rfc_says_or_refused(text: str, width: int, block: int) -> None:
    data = text.encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_file, "_BLOCK", block)
        assert read(data, width) == slowly(data, width)


FORMS = [
    CsvFormat(),
    CsvFormat(delim=";", comment="#"),
    CsvFormat(delim="\t", quote="'", nullstr=("", "a")),
    CsvFormat(escape="\\", comment="#"),
    CsvFormat(quote="'", escape="\\", new_line="\r"),
    CsvFormat(quote="", delim=";", nullstr=()),
    CsvFormat(new_line="\r", comment=";"),
    CsvFormat(delim=" "),
]


class Slow:
    """What a format says of a text, character by character."""

    def __init__(self, text: str, width: int, form: CsvFormat) -> None:
        self.text, self.width, self.form = text, width, form
        self.ends = ("\r",) if form.new_line == "\r" else ("\r\n", "\n")

    def rows(self) -> list[Row] | None:
        """Return the rows, None where the text is not of the format."""
        found, at = list[Row](), 0
        while at < len(self.text):
            row: list[str | None] = []
            start = at
            if self.form.comment and self.text.startswith(self.form.comment, at):
                start = next((end for end in range(at, len(self.text)) if self.text[end] in "\r\n"), len(self.text))
            if start > at or (self.width > 1 and self.text.startswith(self.ends, at)):
                at = self.after_end(start)
            else:
                while not row or self.text.startswith(self.form.delim, at):
                    value, at = self.field(at + bool(row))
                    row.append(value)
                    if at < 0:
                        return None
                at = self.after_end(at)
                if len(row) != self.width:
                    return None
                found.append(tuple(row))
            if at < 0:
                return None
        return found

    def after_end(self, at: int) -> int:
        """Return the place behind a line break, or the end of the text; -1 where neither is there."""
        ends = (at + len(end) for end in self.ends if self.text.startswith(end, at))
        return at if at == len(self.text) else next(ends, -1)

    def field(self, at: int) -> tuple[str | None, int]:
        """Return a field and the place behind it; -1 for a quote that is not closed."""
        quote, escape = self.form.quote, self.form.escape or self.form.quote
        start = at if self.form.delim == " " else at + len(self.text[at:]) - len(self.text[at:].lstrip(" "))
        if not quote or not self.text.startswith(quote, start):
            stops = {self.form.delim, "\r", "\n", quote}
            end = next((end for end in range(at, len(self.text)) if self.text[end] in stops), len(self.text))
            value = self.text[at:end]
            return None if value in self.form.nullstr else value, end
        value, at = "", start + 1
        while at < len(self.text):
            pair = self.text[at : at + 2]
            if pair in {escape + quote, escape + escape}:
                value, at = value + pair[1], at + 2
            elif pair[0] == quote:
                at += 1
                while self.form.delim != " " and self.text.startswith(" ", at):
                    at += 1
                return value, at
            elif pair[0] == escape and len(pair) == 1:
                break
            else:
                step = 2 if pair[0] == escape else 1
                value, at = value + pair[:step], at + step
        return None, -1


MARKS = st.sampled_from(
    [*"aé #;'\\\t", ",", ",", '"', '"', "'", "''", "\n", "\n", "\r\n", "\r", "\r", ',"', '"\n', "\\'"]
)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: repr(form.written()))
@given(st.lists(MARKS, max_size=25).map("".join), st.integers(1, 3), st.sampled_from([1, 2, 3, 7, 1000]))
@example("\n", 3, 1)
@example('#,"\r"\n', 2, 1000)
@example('"a""b" ,1\n', 2, 1000)
@example('1,"#\n#", "\\"" \n', 3, 2)
def test_any_text_is_read_as_the_format_says_or_refused(form: CsvFormat, text: str, width: int, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_file, "_BLOCK", block)
        assert read(text.encode(), width, form=form) == Slow(text, width, form).rows()


FIELDS = st.none() | st.text(st.sampled_from('aé\ufeff ,"\n\r\0\\x'), max_size=6)


@given(
    st.lists(st.tuples(FIELDS, FIELDS, FIELDS), max_size=8),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.integers(1, 40),
)
def test_what_a_writer_wrote_comes_back(rows: list[Row], line: str, final: bool, block: int) -> None:
    spelled = [["" if field is None else '"' + field.replace('"', '""') + '"' for field in row] for row in rows]
    text = line.join(map(",".join, spelled)) + (line if final and rows else "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_file, "_BLOCK", block)
        assert read(text.encode(), 3) == rows
        assert read(text.encode(), 3, [2, 0]) == [(last, first) for first, _, last in rows]


@pytest.mark.parametrize(
    "data",
    [
        b"1,2\n",
        b"1,2,3,4\n",
        b"1,2,3,\n",
        b"1,2,3\n\n4,5,6\n",
        b"1,2,3\n\n",
        b"\n1,2,3\n",
        b"1,2,3\n   \n",
        b'1,2,"3\n4,5,6\n',
        b'1,2,"3',
        b'1,2,"',
        b'1,2"x,3\n',
        b'1,"2"x,3\n',
        b'1,"2" ,3\n',
        b'1, "2",3\n',
        b'1,"2\\"x",3\n',
        b"1,2,3\r4,5,6\r",
        b"1,2,3\r",
        b"1,x\ry,3\n",
        b"1,\xff,3\n",
        b'1,"\xc3\x28",3\n',
        b"1,2,\xc3",
        b"1,\xed\xa0\x80,3\n",
        b"1;2;3\n",
        "1,2,3\n".encode("utf-16"),
    ],
)
def test_what_is_not_rfc_4180_is_refused_wherever_it_stands(data: bytes) -> None:
    assert read(b"1,2,3\n", 3) == [("1", "2", "3")]
    for before in (b"", b"4,5,6\n", b'"x\ny",,\n' * 1000):
        assert read(before + data, 3) is None


def test_an_empty_field_is_null_only_where_it_is_not_quoted() -> None:
    assert read(b',"",NULL\n,,\n"\\N",nan,""""\n', 3) == [(None, "", "NULL"), (None, None, None), ("\\N", "nan", '"')]
    assert read(b'\n""\n1\n\n', 1) == [(None,), ("",), ("1",), (None,)]


def test_both_line_breaks_may_stand_in_one_file() -> None:
    assert read(b'1,2\r\n3,4\n"5\r","6\r\n7"\r\n', 2) == [("1", "2"), ("3", "4"), ("5\r", "6\r\n7")]


def test_quoted_lines_that_look_like_records_stay_in_their_field() -> None:
    """DuckDB's parallel reader takes such lines for records and fails; here no block begins inside a field."""
    inner = "1,2\n" * 700_000
    data = "".join(f'{number},"{inner}"\n' for number in range(9)).encode()
    assert len(data) > 2 * csv_file._BLOCK
    assert read(data, 2) == [(str(number), inner) for number in range(9)]


def test_a_long_field_is_read_and_an_endless_one_is_refused() -> None:
    assert read(b"1," + b"x" * (12 << 20) + b"\n", 2) == [("1", "x" * (12 << 20))]
    assert read(b'1,"' + b"x" * (40 << 20) + b'"\n', 2) is None


def test_a_mark_at_the_front_of_a_later_block_belongs_to_its_field() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_file, "_BLOCK", 8)
        assert read("\ufeff1,2\n\ufeff3,4\n\ufeff\ufeff5,6\n".encode(), 2, [0]) == [
            ("\ufeff1",),
            ("\ufeff3",),
            ("\ufeff\ufeff5",),
        ]


def test_a_column_that_is_not_wanted_is_not_decoded() -> None:
    assert read(b"1,\xff\n", 2, [0]) == [("1",)]
    assert read(b"1,\xff\n", 2, [1]) is None


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a,b\n1,2\n", ["a", "b"]),
        (b"a,b\r\n", ["a", "b"]),
        (b"a,b", ["a", "b"]),
        (b'\xef\xbb\xbf"a ""b""",b\n', ['a "b"', "b"]),
        (b" a ,\n", [" a ", ""]),
        (b"", [""]),
        (b"\n", [""]),
        (b'""\n', [""]),
        (b'"a\nb",c\n', None),
        (b'"a,b\n', None),
        (b'a"b,c\n', None),
        (b"a\rb\r", None),
        (b"\xff\n", None),
        (b"x" * (2 << 20), None),
        (b"x" * 200_000 + b"\n", None),
        ("a,b\n".encode("utf-16"), None),
    ],
)
def test_the_first_line_names_the_columns(data: bytes, expected: list[str] | None) -> None:
    assert names(data) == expected


def test_the_rest_of_the_file_begins_after_the_header() -> None:
    stream = io.BytesIO(b"\xef\xbb\xbfa,b\n\xef\xbb\xbf1,2\n")
    csv_file.header(stream)
    (block,) = csv_file.tables(stream, [0], width=2)
    assert block.to_pylist() == [{"0": "\ufeff1"}]


def test_names_are_found_by_ascii_case_alone() -> None:
    found = ["User_ID", "ä", "user_id", "Ä", "\u212a"]
    assert csv_file.positions(found, "USER_id") == [0, 2]
    assert csv_file.positions(found, "Ä") == [3]
    assert csv_file.positions(found, "k") == []


def test_pythons_own_reader_agrees_where_it_can() -> None:
    text = 'a,"b ""x""",c\r\n"1\n2",,3\r\n'
    expected = [tuple(field or None for field in row) for row in csv.reader(io.StringIO(text, newline=""))]
    assert read(text.encode(), 3) == expected
