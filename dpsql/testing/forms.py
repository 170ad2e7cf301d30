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
from dpsql.sql.rewrite.total import make_total
from dpsql.testing.queries import NOON, OpenEngine, accepts_pattern, run_statement
from dpsql.testing.shapes import expand_shape
from dpsql.testing.tables import VALUES

__all__ = ["ShapeExpression", "TrackedForms", "analyze_shapes", "find_differences", "track_forms"]

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
    unread = set(shapes) - {texts[form.text] for form in found}
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


def find_differences(
    forms: Sequence[ShapeExpression],
    *,
    tested: OpenEngine,
    reference: OpenEngine,
    dialect: Dialect,
    reach: Callable[[pa.Table], pa.Table],
) -> Iterator[str]:
    """Yield a line for each expression whose value differs from DuckDB's; skip expressions that the dialect lacks."""
    supported = [form for form in forms if _is_supported(form, dialect)]
    for rows in sorted({form.rows for form in supported}):
        alike = [form for form in supported if form.rows == rows]
        for at in range(0, len(alike), _TOGETHER):
            part = alike[at : at + _TOGETHER]
            wanted = reach(
                run_statement(reference.engine, _statement(part, reference, dialect=reference.catalog.dialect))
            )
            yield from _compare(part, wanted, tested=tested, dialect=dialect)


def _is_supported(form: ShapeExpression, dialect: Dialect) -> bool:
    try:
        writer_for(dialect).expression(form.expression)
    except Unsupported:
        return False
    return True


def _compare(
    forms: Sequence[ShapeExpression], wanted: pa.Table, *, tested: OpenEngine, dialect: Dialect
) -> Iterator[str]:
    """Compare expressions in one statement or, if that fails, in two statements of half as many."""
    try:
        found = run_statement(tested.engine, _statement(forms, tested, dialect=dialect))
    except Exception as error:  # noqa: BLE001 - reported, whatever it is
        if len(forms) == 1:
            yield f"{forms[0].text}: {error}"[:400]
            return
        half = len(forms) // 2
        yield from _compare(forms[:half], wanted.select(range(2 + half)), tested=tested, dialect=dialect)
        rest = [0, 1, *range(2 + half, 2 + len(forms))]
        yield from _compare(forms[half:], wanted.select(rest), tested=tested, dialect=dialect)
        return
    for at, form in enumerate(forms, start=2):
        if difference := _difference(wanted.column(at), found.column(at)):
            yield f"{form.text}: {difference}"


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


def _difference(wanted: pa.ChunkedArray, found: pa.ChunkedArray) -> str:
    """Return the first value that differs, or an empty text; all NaN are equal, 0.0 and -0.0 differ."""
    theirs, ours = _plain(wanted), _plain(found)
    if theirs.type != ours.type:
        return f"{ours.type}, not {theirs.type}"
    one_null = pc.xor(pc.is_null(theirs), pc.is_null(ours))
    differ = pc.or_(one_null, pc.fill_null(pc.not_equal(theirs, ours), fill_value=False))
    at = pc.index(differ, value=True).as_py()
    if at < 0:
        return ""
    return f"{_cell(found, at)}, not {_cell(wanted, at)} ({pc.sum(differ).as_py()} of {len(differ)}, row {at})"


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
