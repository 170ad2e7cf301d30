"""Guess of a CSV file's format and types, for a curator who writes a policy.

DuckDB's sniffer proposes the format. The whole file is then read as the loader will read it: the first proposal with
which every line is a record is taken, and for each column the first type that every value has. Errors have the numbers
of lines and no values.
"""

from __future__ import annotations

import codecs
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import duckdb

from dpsql.dialects import CsvFormat, quote_name, quote_text
from dpsql.engines.duckdb.csv_file import (
    TROUBLE,
    MalformedError,
    cast_column,
    header,
    open_csv,
    positions,
    read_record,
    tables,
)
from dpsql.engines.duckdb.instance import TROUBLE as DUCKDB_TROUBLE
from dpsql.engines.duckdb.instance import connect_bare
from dpsql.engines.scratch import ScratchFolder
from dpsql.engines.sources import Column
from dpsql.errors import EngineError

_SAMPLE = 4 << 20
_DELIMS = ",;\t|"
_STEPS = (5, 1000)  # rows that are read first: most types are excluded by the first values
_NULLS = ("NULL", "null", "NA", "N/A", "n/a", "None", "none", r"\N", "-", "?")
_DAYS = (
    *("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y.%m.%d"),
    *("%d/%m/%y", "%m/%d/%y", "%y/%m/%d", "%d.%m.%y", "%d-%m-%y", "%m-%d-%y", "%y-%m-%d"),
    *("%d %b %Y", "%d-%b-%Y", "%b %d, %Y", "%d %B %Y", "%B %d, %Y"),
)
_HOURS = (" %H:%M:%S", " %H:%M", ", %H:%M:%S", ", %H:%M", " %H:%M:%S.%f", " %I:%M:%S %p", " %I:%M %p")
_WITH_OFFSET = tuple(f"%Y-%m-%d{sign}%H:%M:%S{part}%z" for sign in "T " for part in ("", ".%f"))
_OFFSET = r":[0-9]{2}(?:\.[0-9]+)? *([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)$"
_UTC = ("", "Z", "z", "+00", "+0000", "+00:00")
_UNCLEAR_DAY = "the rows do not say which number is the day, the month and the year: check dateformat in the table csv"
_PADDED = "left as text: numbers that begin with 0 would lose it"
_EMPTY_COLUMN = "it has no value: check the type, or leave it out"
_UNNAMED = "it has no name in the file, as a row number has none: consider leaving it out"
_UNCLEAR_POINT = (
    "the rows do not say which sign is the decimal point and which separates thousands: check decimal_separator and "
    "thousands in the table csv"
)
_DROPPED = "the offsets of these times are dropped"
_OTHERWISE = "left as text: its numbers or times are written otherwise than those of other columns"
_FEW = 3
_NEARLY = "all values but a few are {}: is there a footer, or a word for NULL?"
_CONVERTED = "these times are converted to UTC"


@dataclass(frozen=True, slots=True)
class CsvGuess:
    """Columns of a CSV file, the format for the policy, None for RFC 4180, and notes for the curator by column."""

    columns: tuple[Column, ...]
    form: CsvFormat | None
    notes: Mapping[str, str]


Options = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A type, the options with which values are read, and a condition in SQL beside that: $ is the value."""

    type: str
    options: Options = ()
    condition: str = "true"

    @property
    def family(self) -> str:
        """The types that share the options."""
        return "DOUBLE" if self.type == "BIGINT" else self.type

    @property
    def signs(self) -> set[str]:
        """The signs that every value has: those of its format."""
        formats = "" if self.family == "DOUBLE" else "".join(value for _, value in self.options)
        return set(re.sub("%.", "", formats))


def _list_candidates() -> Iterator[_Candidate]:
    yield _Candidate("BOOLEAN", (), "lower($) IN ('true', 'false')")
    yield _Candidate("BIGINT", (), f"regexp_full_match($, ' *[+-]?[0-9]+ *') AND {_NOT_PADDED}")
    # A whole number that BIGINT does not hold may be an id, of which a DOUBLE would lose digits.
    is_double = f"NOT regexp_full_match($, ' *[+-]?[0-9]{{16,}} *') AND {_NOT_PADDED}"
    yield _Candidate("DOUBLE", (), is_double)
    for point, group in ((".", ","), (",", ""), (",", "."), (".", " "), (",", " "), (".", "'")):
        options = [("decimal_separator", point)] * (point == ",") + [("thousands", group)] * (group != "")
        yield _Candidate("BIGINT", tuple(options), f"NOT contains($, '{point}') AND {_NOT_PADDED}")
        yield _Candidate("DOUBLE", tuple(options), is_double)
    yield _Candidate("DATE", (), "regexp_full_match($, ' *[0-9]{4}[-/ ][0-9]{1,2}[-/ ][0-9]{1,2} *')")
    for day in _DAYS:
        yield _Candidate("DATE", (("dateformat", day),))
    yield _Candidate("TIMESTAMP", (), "regexp_matches($, '^ *[0-9]{4}[-/ ]')")
    for format_ in (*(day + hour for day in _DAYS for hour in _HOURS), *_WITH_OFFSET):
        yield _Candidate("TIMESTAMP", (("timestampformat", format_),))


_NOT_PADDED = "NOT regexp_full_match($, ' *[+-]?0[0-9]+ *')"  # 01234 is a code, of which a number would lose the zero
_CANDIDATES = tuple(_list_candidates())
_WHOLE = _CANDIDATES[1]


class _Values:
    """What the values of a column are: the candidates that all of them fit, and the words for NULL among them."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words = f"[{', '.join(map(quote_text, words))}]::VARCHAR[]"
        self.fits: Sequence[_Candidate] = _CANDIDATES
        self.nulls: set[str] = set()
        self.offsets: set[str] = set()
        self.has_values = False
        self.nearly = ""  # the type of all values but a few
        self.is_code = True  # whether all values are whole numbers, of which some may begin with 0

    @property
    def family(self) -> str:
        """The family of the first type that fits, "" for text."""
        return self.fits[0].family if self.fits and self.has_values else ""

    def leave_out(self, texts: list[str]) -> None:
        """Leave out, without trying them, the formats of times with signs that are not in these values."""
        self.fits = [each for each in self.fits if all(each.signs <= set(text) for text in texts)]

    def read(self, connection: duckdb.DuckDBPyConnection, name: str, *, form: CsvFormat) -> None:
        """Read the column of the rows that are registered."""
        column, fits = quote_name(name), self.fits
        is_null = f"list_contains({self.words}, {column})"
        misses = [
            f"count(*) FILTER (NOT ({is_null} OR coalesce({_test(each, name, form=form)}, false)))" for each in fits
        ]
        offset = f"regexp_extract({column}, {quote_text(_OFFSET)}, 1)"
        is_time = any(each.type == "TIMESTAMP" for each in fits)
        found = connection.execute(
            f"SELECT count(*) FILTER (NOT {is_null}), list(DISTINCT {column}) FILTER ({is_null}), "  # noqa: S608 - quoted
            f"{f'list(DISTINCT {offset})' if is_time else 'NULL'}, [{', '.join(misses)}]::BIGINT[], "
            f"bool_and(regexp_full_match({column}, ' *[+-]?[0-9]+ *')) FILTER (NOT {is_null}) "
            f"FROM rows WHERE {column} IS NOT NULL"
        ).fetchall()[0]
        self.has_values |= found[0] > 0
        self.nulls |= {*(found[1] or ())}
        self.is_code &= found[4] is not False
        self.offsets |= {"Z" if each in _UTC else each for each in found[2] or ()}
        self.fits = [each for each, count in zip(fits, found[3], strict=True) if not count]
        if not self.fits:
            few = (each.type for each, count in zip(fits, found[3], strict=True) if count <= _FEW < found[0] / _FEW)
            self.nearly = next(few, self.nearly)


def _test(candidate: _Candidate, name: str, *, form: CsvFormat) -> str:
    column = quote_name(name)
    value = cast_column(name, candidate.type, form=replace(form, **dict[str, Any](candidate.options)))
    # %Y reads the year 26, which is hardly meant.
    least = "IS NOT NULL" if candidate.family == "DOUBLE" or not candidate.options else ">= TIMESTAMP '1000-01-01'"
    return f"(({candidate.condition.replace('$', column)}) AND TRY({value}) {least})"


def guess_csv(path: Path) -> CsvGuess:
    """Return the guess; raise `EngineError` for a file that is empty, or that no format reads."""
    encoding: str | None = None
    misfits: list[tuple[int, str]] = []
    with suppress(*TROUBLE):
        encoding = _find_encoding(path)
        if encoding not in {"", _EMPTY}:
            form, has_header = _sniff(path, encoding)
            for each in _list_forms(path, form):
                found = _read(path, each, has_header=has_header)
                if isinstance(found, CsvGuess):
                    return found
                misfits.append((found, each.delim))
    raise _refuse(path, encoding, misfits=misfits)


def _refuse(path: Path, encoding: str | None, *, misfits: list[tuple[int, str]]) -> EngineError:
    """Return what is wrong with the file: its first line that is no record, or that it is no text."""
    reason, hint = "The file cannot be read as CSV.", "Write it again as CSV in UTF-8, or as Parquet."
    if encoding == _EMPTY:
        reason = "The file is empty."
        hint = "Name a file whose first line has the names of the columns, such as user_id,page."
    elif encoding == "":
        reason = "The file is text in none of UTF-8, UTF-16 and Latin-1."
        hint = f"Convert it, such as with iconv -f WINDOWS-1252 -t UTF-8 < {shlex.quote(path.name)} > utf8.csv."
    elif misfits:
        line, delim = misfits[0]
        file, target = quote_text(path.name), quote_text(path.name.partition(".")[0] + ".parquet")
        written = quote_text(delim.replace("\t", r"\t"))
        options = f"delim = {written}, header = true, ignore_errors = true"
        reason = f"Line {line} of the file does not have the fields of the first record, or breaks a quote."
        hint = (
            "Correct that line, or remove it if it is a footer. To leave out all lines of its kind, write in DuckDB: "
            f"COPY (FROM read_csv({file}, {options})) TO {target}; null_padding = true in place of ignore_errors fills "
            "fields that are missing."
        )
    return EngineError("source-unreadable", reason, hint=hint, place=str(path))


_EMPTY = "empty"


def _find_encoding(path: Path) -> str:
    """Return the encoding in which all of the file is text, "" for none."""
    decoder, is_utf8, is_latin = codecs.getincrementaldecoder("utf-8")(), True, True
    with open_csv(path, None) as stream:
        chunk = stream.read(_SAMPLE)
        if not chunk.removeprefix(codecs.BOM_UTF8).strip():
            return _EMPTY
        if chunk.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or chunk.count(0) * 3 > len(chunk):
            return "utf-16"
        while chunk:
            try:
                decoder.decode(chunk)
            except UnicodeDecodeError:
                is_utf8 = False
            # In Latin-1 these bytes are controls, which no text has: in Windows-1252 they are letters.
            is_latin = is_latin and not re.search(rb"[\x80-\x9f]", chunk)
            chunk = stream.read(_SAMPLE)
        with suppress(UnicodeDecodeError):
            decoder.decode(b"", final=True)
            return "utf-8" if is_utf8 else "latin-1" if is_latin else ""
    return "latin-1" if is_latin else ""


def _sniff(path: Path, encoding: str) -> tuple[CsvFormat, bool]:
    """Return the format that DuckDB proposes for the beginning of a file, and whether it has a header."""
    form = CsvFormat(encoding=encoding)
    with open_csv(path, form) as stream:
        text = stream.read(_SAMPLE)
        is_whole = not stream.read(1)
    if text.count(b"\r") > 2 * text.count(b"\n"):
        form = replace(form, new_line="\r")
    if not is_whole:
        text = text[: text.rfind(form.new_line.encode()) + 1]
    named = _EXCEL.match(text)  # a line for Excel alone
    found: tuple[str, str, str, str, int, bool] | None = None
    with ScratchFolder() as folder, closing(duckdb.connect(":memory:")) as connection:
        sample = folder.path / "sample.csv"
        sample.write_bytes(text[named.end() :] if named else text)
        with suppress(*DUCKDB_TROUBLE):
            found = connection.execute(_SNIFF, [str(sample)]).fetchone()
    if found is None:
        return form, True
    if named:
        found = (named[1].decode(), *found[1:4], found[4] + 1, found[5])
    delim, quote, escape, comment = ("" if mark == "(empty)" else mark for mark in found[:4])
    if len(delim) != 1 or not delim.isascii():
        delim = ","
    escape = escape if escape != quote else ""
    form = replace(form, delim=delim, quote=quote, escape=escape, comment=comment, skip=found[4])
    return form, found[5]


_EXCEL = re.compile(rb"sep=([,;\t|])(?:\r?\n|\r)")
_SNIFF = """
SELECT Delimiter, Quote, Escape, Comment, SkipRows, HasHeader FROM sniff_csv($1, sample_size = 5000)
"""


def _list_forms(path: Path, form: CsvFormat) -> Iterator[CsvFormat]:
    """Yield the formats to try: that of DuckDB, with other quotes or comments, and others where it found one column."""
    with open_csv(path, form) as stream:
        is_narrow = len(header(stream, replace(form, quote="", escape=""))) == 1
    for each in (is_narrow and list(_widen(path, form))) or [form]:
        for comment in dict.fromkeys((form.comment, "#")):
            # Where DuckDB saw no quotes, those further on may be quotes, or parts of values.
            for quote in dict.fromkeys((form.quote, '"') if form.quote else ('"', "")):
                escape = form.escape if quote == form.quote else ""
                yield replace(each, quote=quote, escape=escape, comment=comment)


def _widen(path: Path, form: CsvFormat) -> Iterator[CsvFormat]:
    """Yield formats of several columns, by what most lines have: a footer lets DuckDB fall back to one column."""
    with open_csv(path, form) as stream:
        lines = stream.read(_SAMPLE).decode(errors="replace").splitlines()
    for mark in _DELIMS:
        counts = [line.count(mark) for line in lines if line]
        most = max(set(counts), key=counts.count)
        if most and 2 * sum(map(bool, counts)) >= len(counts):
            least = max(most - 1, 1)
            first = (at for at, line in enumerate(lines) if line.count(mark) >= least and line[0] != "#")
            yield replace(form, delim=mark, skip=next(first, 0))


def _read(path: Path, form: CsvFormat, *, has_header: bool) -> CsvGuess | int:
    """Return the guess with a format, or the number of the line that is no record of it."""
    if not has_header and form.skip:  # DuckDB skips a header with fewer fields than the rows
        form, has_header = _find_header(path, form)
    try:
        with open_csv(path, form) as stream:
            first = header(stream, form)
            second = read_record(stream, form) if has_header else first
    except ValueError:
        return form.skip + 1
    if has_header and len(first) == 1 < len(second):  # a line above the header
        return form.skip + 1
    names = _name_columns(first, second) if has_header else [f"column{at}" for at in range(len(first))]
    unnamed = {f"column{at}" for at in range(len(names))} - {*first} if has_header else set[str]()
    if names != first or not has_header:
        form = replace(form, names=tuple(names), header=has_header)
    kept: CsvFormat | None = form if form.written() else None
    values = _scan(path, kept, width=len(names), nulls=_NULLS)
    if kept is None and isinstance(values, int):  # empty lines, perhaps, or spaces around quotes
        kept = form
        values = _scan(path, kept, width=len(names), nulls=_NULLS)
    if isinstance(values, int):
        return values
    columns, options, notes = _choose(names, values, form=form)
    nulls = {
        word for column, each in zip(columns, values, strict=True) if column.type != "VARCHAR" for word in each.nulls
    }
    for tried in (replace(form, nullstr=("", *sorted(nulls))), kept) if nulls else ():
        # Where such words are quoted they are no NULL, and the column is text.
        before, values = columns, _scan(path, tried, width=len(names), nulls=())
        if isinstance(values, int):
            return values
        columns, options, notes = _choose(names, values, form=tried or form)
        if columns == before:
            kept = tried
            break
    notes |= {name: _UNNAMED for name in names if name in unnamed and name not in notes}
    return CsvGuess(columns, replace(kept or form, **options) if options else kept, notes)


def _find_header(path: Path, form: CsvFormat) -> tuple[CsvFormat, bool]:
    """Return the format in which the last line that is skipped is the header, if it has about as many fields."""
    above = replace(form, skip=form.skip - 1)
    with suppress(ValueError), open_csv(path, above) as stream:
        first, second = header(stream, above), read_record(stream, above)
        if len(second) > 1 and len(first) in {len(second) - 1, len(second)}:
            return above, True
    return form, False


def _name_columns(first: list[str], second: list[str]) -> list[str]:
    """Return a name of its own for each column, from the header and the first record."""
    width = len(second) or len(first)
    if len(first) < width and second[-1]:  # R leaves out the name of the first column, pandas leaves it empty
        first = [""] * (width - len(first)) + first
    elif len(first) < width:
        first = first + [""] * (width - len(first))
    elif not any(first[width:]):
        first = first[:width]
    names: list[str] = []
    for at, name in enumerate(first):
        plain = name.replace("\0", "").strip() or f"column{at}"
        number, found = 0, plain
        while positions(names, found):
            number += 1
            found = f"{plain}_{number}"
        names.append(found)
    return names


def _scan(path: Path, form: CsvFormat | None, *, width: int, nulls: tuple[str, ...]) -> list[_Values] | int:
    """Read all of the file; return what its columns are, or the number of the line that is no record."""
    found = [_Values(nulls) for _ in range(width)]
    try:
        with open_csv(path, form) as stream, closing(connect_bare()) as connection:
            header(stream, form)
            for block in tables(stream, range(width), width=width, form=form):
                ends = [0, *(end for end in _STEPS if end < block.num_rows), block.num_rows]
                for start, end in pairwise(ends):
                    piece = block.slice(start, end - start)
                    connection.register("rows", piece)
                    for at, each in enumerate(found):
                        if end <= _STEPS[0]:
                            texts = piece.column(at).drop_null().to_pylist()
                            each.leave_out([text for text in texts if text not in nulls])
                        each.read(connection, str(at), form=form or CsvFormat())
    except MalformedError as error:
        rest = error.lines
    else:
        return found
    # The lines up to the first record are those of the file but for those behind it.
    with open_csv(path, form) as stream:
        lines = _count_lines(stream, form)
    with open_csv(path, form) as stream:
        header(stream, form)
        return lines - _count_lines(stream, form) + rest + 1


def _count_lines(stream: BinaryIO, form: CsvFormat | None) -> int:
    mark = b"\r" if form is not None and form.new_line == "\r" else b"\n"
    return sum(chunk.count(mark) for chunk in iter(lambda: stream.read(_SAMPLE), b""))


def _choose(
    names: list[str], values: list[_Values], *, form: CsvFormat
) -> tuple[tuple[Column, ...], dict[str, Any], dict[str, str]]:
    """Return the columns with their types, the options of the format, and notes; a file has one value of each option.

    An option is chosen by the number of columns that it fits, and the first one of several.
    """
    chosen = {family: _vote(family, values, form=form) for family in ("DOUBLE", "DATE", "TIMESTAMP")}
    columns, notes = [], {}
    for name, each in zip(names, values, strict=True):
        options = chosen.get(each.family, ())
        types = [one.type for one in each.fits if each.family and (one.options == options or one == _WHOLE)]
        columns.append(Column(name, types[0] if types else "VARCHAR"))
        note = _find_note(each, options, form=form)
        if not each.has_values:
            note = _EMPTY_COLUMN
        elif not types and each.is_code:
            note = _PADDED
        elif not types:
            note = _OTHERWISE if each.family else each.nearly and _NEARLY.format(each.nearly)
        if note:
            notes[name] = note
    return tuple(columns), {key: value for options in chosen.values() for key, value in options}, notes


def _vote(family: str, values: list[_Values], *, form: CsvFormat) -> Options:
    votes: Counter[Options] = Counter()
    for each in values:
        if each.family == family and _WHOLE not in each.fits:
            options = dict.fromkeys(one.options for one in each.fits if one.family == family)
            if len(each.offsets) > 1 and len(options) > 1:
                options.pop((), None)  # the others convert to UTC
            votes.update(options.keys())
    order = list(dict.fromkeys(one.options for one in _CANDIDATES if one.family == family))
    if form.delim == ";":  # where a comma is the decimal point, it does not separate fields
        order.sort(key=lambda options: bool(options) and ("decimal_separator", ",") not in options)
    return max(votes, key=lambda options: (votes[options], -order.index(options)), default=())


def _find_note(values: _Values, options: Options, *, form: CsvFormat) -> str:
    """Return what the curator should know of a column that is read with these options."""
    others = [one.options for one in values.fits if one.family == values.family]
    if values.family == "TIMESTAMP" and values.offsets - {"Z"}:
        return _CONVERTED if any("%z" in value for _, value in options) else _DROPPED
    is_shown = bool(options) or form.delim == ";"
    if values.family == "DOUBLE" and is_shown and len({("decimal_separator", ",") in other for other in others}) > 1:
        return "" if _WHOLE in values.fits else _UNCLEAR_POINT
    orders = {tuple(_ORDER.findall(str(other).lower())) for other in others}
    return _UNCLEAR_DAY if options and len(orders) > 1 else ""


_ORDER = re.compile(r"(?<=%)[dmby](?![a-z])")
