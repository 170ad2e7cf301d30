"""Comparison of a dialect's forms with DuckDB, over all values of their operands' types and all pairs of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from dpsql.dialects import Dialect
from dpsql.engines import Statement
from dpsql.errors import Error, Unsupported
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.tree import Expression, Joined, Scan
from dpsql.sql.render.portable import writer_for
from dpsql.sql.rewrite.passes import make_total
from dpsql.testing.queries import NOON, OpenEngine, accepts_pattern, describe_error, run_statement
from dpsql.testing.shapes import expand_shape
from dpsql.testing.tables import LEFTS, VALUES

__all__ = [
    "ShapeExpression",
    "TrackedForms",
    "analyze_shapes",
    "find_differences",
    "sample_expressions",
    "track_forms",
    "write_expressions",
]

_MAX_KEYS = 14  # of 16, of which two tell the rows apart
_TOGETHER = 40  # expressions in one statement
_NAMED = re.compile(r"\b([lr])\.(\w+)")


@dataclass(frozen=True)
class ShapeExpression:
    """An expression as text and as analysis reads it, and how many rows of each side bring all values together."""

    text: str
    expression: Expression
    rows: tuple[int, int]


class TrackedForms(Mapping[str, str]):
    """Forms of a dialect that record which of them were looked up."""

    def __init__(self, forms: Mapping[str, str]) -> None:
        self.used: set[str] = set()
        self._forms = forms

    def __getitem__(self, name: str) -> str:
        form = self._forms[name]
        self.used.add(name)
        return form

    def __iter__(self) -> Iterator[str]:
        return iter(self._forms)

    def __len__(self) -> int:
        return len(self._forms)


def track_forms(dialect: Dialect) -> tuple[Dialect, TrackedForms]:
    """Return a dialect that records which of its forms are used, and the record."""
    noted = TrackedForms(dialect.forms)
    return replace(dialect, forms=noted), noted


def analyze_shapes(shapes: Sequence[str], catalog: Catalog) -> list[ShapeExpression]:
    """Return all expressions of the shapes that the language accepts; it must accept one of each shape."""
    (table,) = (each for each in catalog.tables if each.name == "lefts")
    stored = {name: type_.name for name, type_ in table.columns}
    texts = {text: shape for shape in shapes for text in expand_shape(shape, stored)}
    found, written = [], list(texts)
    for at in range(0, len(written), _MAX_KEYS):
        found += _analyze(written[at : at + _MAX_KEYS], catalog)
    unread = {*texts.values()} - {texts[form.text] for form in found}
    if unread:
        raise ValueError(f"The language refuses all expressions of {sorted(unread)}.")
    return found


def _analyze(texts: list[str], catalog: Catalog) -> list[ShapeExpression]:
    keys = ", ".join(f"{text} AS k{at}" for at, text in enumerate(texts))
    sql = f"SELECT l.id, r.id AS other, {keys} FROM lefts AS l CROSS JOIN rights AS r GROUP BY ALL TOP 1 PRIVATE"
    try:
        query = analyze(sql, catalog, accepts_pattern=accepts_pattern, clock=lambda: NOON)
        if not isinstance(query, PrivateQuery):
            raise TypeError(sql)
        expressions = [make_total(query.keys[output.key or 0]) for output in query.outputs[2:]]
    except Error:
        if len(texts) == 1:
            return []
        half = len(texts) // 2
        return _analyze(texts[:half], catalog) + _analyze(texts[half:], catalog)
    return [ShapeExpression(text, key, _count_rows(text)) for text, key in zip(texts, expressions, strict=True)]


def _count_rows(text: str) -> tuple[int, int]:
    """Return how many rows of each side contain all values of the named columns; the first row is NULL."""
    sides: dict[str, int] = {}
    for side, column in _NAMED.findall(text):
        sides[side] = max(sides.get(side, 0), len(VALUES[column]))
    return sides.get("l", 0), sides.get("r", 0)


def write_expressions(expressions: Sequence[ShapeExpression], dialect: Dialect) -> dict[str, frozenset[str]]:
    """Return the texts of the expressions that the dialect can write, each with the forms that this takes."""
    tracked, forms = track_forms(dialect)
    written = {}
    for expression in expressions:
        forms.used.clear()
        try:
            writer_for(tracked).expression(expression.expression)
        except Unsupported:
            continue
        written[expression.text] = frozenset(forms.used)
    return written


def sample_expressions(written: Mapping[str, frozenset[str]], every: int) -> set[str]:
    """Return one expression in `every`, and the first expression with each form."""
    seen: set[str] = set()
    sample = set()
    for at, (text, forms) in enumerate(written.items()):
        if at % every == 0 or not forms <= seen:
            sample.add(text)
        seen |= forms
    return sample


def find_differences(
    expressions: Sequence[ShapeExpression],
    *,
    tested: OpenEngine,
    reference: OpenEngine,
    dialect: Dialect,
    reach: Callable[[pa.Table], pa.Table],
) -> Iterator[tuple[ShapeExpression, str]]:
    """Yield the expressions whose values differ from DuckDB's, and how; the dialect must be able to write all."""
    for rows in sorted({expression.rows for expression in expressions}):
        alike = [expression for expression in expressions if expression.rows == rows]
        for at in range(0, len(alike), _TOGETHER):
            part = alike[at : at + _TOGETHER]
            statement = _statement(part, reference, dialect=reference.catalog.dialect)
            yield from _compare(part, reach(run_statement(reference.engine, statement)), tested=tested, dialect=dialect)


def _compare(
    expressions: Sequence[ShapeExpression], expected: pa.Table, *, tested: OpenEngine, dialect: Dialect
) -> Iterator[tuple[ShapeExpression, str]]:
    """Compare expressions in one statement or, if that fails, in two statements of half as many."""
    try:
        found = run_statement(tested.engine, _statement(expressions, tested, dialect=dialect))
    except Exception as error:  # noqa: BLE001 - reported, whatever it is
        if len(expressions) == 1:
            yield expressions[0], describe_error(error)
            return
        half = len(expressions) // 2
        columns = [range(2 + half), [0, 1, *range(2 + half, 2 + len(expressions))]]
        for part, chosen in zip((expressions[:half], expressions[half:]), columns, strict=True):
            yield from _compare(part, expected.select(chosen), tested=tested, dialect=dialect)
        return
    for at, expression in enumerate(expressions, start=2):
        if difference := _difference(expected, found, at=at, text=expression.text):
            yield expression, difference


def _statement(forms: Sequence[ShapeExpression], held: OpenEngine, *, dialect: Dialect) -> Statement:
    """Return one SELECT of all expressions over every pair of rows that they need."""
    writer = writer_for(dialect)
    columns = ", ".join(f"{writer.expression(form.expression)} AS v{at}" for at, form in enumerate(forms))
    lefts, rights = (Scan(at, held.engine.relation(name)) for at, name in ((1, "lefts"), (2, "rights")))
    source = writer.relation(Joined(lefts, "CROSS", rights, None))
    within = f't1."id" <= {forms[0].rows[0]:d} AND t2."id" <= {forms[0].rows[1]:d}'
    sql = f'SELECT t1."id" AS a, t2."id" AS b, {columns} FROM {source} WHERE {within} ORDER BY a, b'
    types = ("BIGINT", "BIGINT", *(form.expression.type.name for form in forms))
    return Statement(writer.finished(sql), tuple(writer.parameters), types)


def _difference(expected: pa.Table, found: pa.Table, *, at: int, text: str) -> str:
    """Return the first value that differs, or an empty text; all NaN are equal, 0.0 and -0.0 differ."""
    theirs, ours = _plain(expected.column(at)), _plain(found.column(at))
    if theirs.type != ours.type:
        return f"{ours.type}, DuckDB: {theirs.type}"
    one_null = pc.xor(pc.is_null(theirs), pc.is_null(ours))
    differ = pc.or_(one_null, pc.fill_null(pc.not_equal(theirs, ours), fill_value=False))
    row = pc.index(differ, value=True).as_py()
    if row < 0:
        return ""
    places = dict(zip("lr", (found.column(side)[row].as_py() for side in (0, 1)), strict=True))
    operands = ", ".join(
        f"{side}.{column} = {_cell(LEFTS.column(column), places[side])}"
        for side, column in dict.fromkeys(_NAMED.findall(text))
    )
    where = f" where {operands}" if operands else ""
    values = f"{_cell(found.column(at), row)}, DuckDB: {_cell(expected.column(at), row)}"
    return f"{values}{where} ({pc.sum(differ).as_py()} of {len(differ)} rows)"


def _plain(column: pa.ChunkedArray) -> pa.Array:
    """Return values that compare as they print: dates and doubles as whole numbers, texts as bytes."""
    values = column.combine_chunks()
    if pa.types.is_floating(values.type):
        nan = pc.fill_null(pc.is_nan(values), fill_value=False)
        return pc.if_else(nan, pa.scalar(float("nan"), values.type), values).view(pa.int64())
    if pa.types.is_date32(values.type):
        return values.view(pa.int32())
    if pa.types.is_timestamp(values.type):
        return values.view(pa.int64())
    return values.cast(pa.large_binary()) if pa.types.is_string(values.type) or _is_large(values.type) else values


def _is_large(type_: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(type_))


def _cell(column: pa.ChunkedArray, at: int) -> str:
    value = column[at]
    if pa.types.is_date32(column.type) or pa.types.is_timestamp(column.type):
        value = _plain(column)[at]
    return repr(value.as_py())[:60]
