"""Queries of the suite, and the exact answer of an engine to one, before anything is released.

A block of `statements/*.sql` is `# name`, or `# name: rewrite 5` where it is not rewritten to the first k groups, and
a statement. The rewrites are those of `sql/rewrite/engine_query.py`: top, all, total, label, weighted, weighted_all;
and bins, those of the first quantile.
The number is the bound on a unit's groups, "kept" keeps each unit to one partition, and "units" reads the number of
units in any group, too. "own" marks draws of doubles or time stamps as the engine itself prints them: it keeps as many
groups as others, but different ones.
"""

from __future__ import annotations

import atexit
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from functools import cache
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from dpsql.dialects import Dialect
from dpsql.engines import Engine, Statement, open_exact
from dpsql.engines.remote import RemoteEngine
from dpsql.errors import EngineError, Error, Unsupported
from dpsql.plan.measures.bounds import bound_measures, bound_quantiles
from dpsql.policy import Budget, Policy, PrivateTable, PublicTable
from dpsql.registration import build_catalog
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.measures import Aggregate, Measure, build_bins
from dpsql.sql.ir.statements import PrivateQuery, PublicQuery
from dpsql.sql.ir.transforms import make_total
from dpsql.sql.ir.tree import Expression, Joined, Scan, parse_type
from dpsql.sql.render.portable import writer_for
from dpsql.sql.rewrite.bins import BinCount, rewrite_bins
from dpsql.sql.rewrite.engine_query import (
    Bound,
    EngineQuery,
    rewrite_all,
    rewrite_leaders,
    rewrite_total,
    rewrite_unordered,
    rewrite_weighted,
    rewrite_weighted_of_all,
)
from dpsql.sql.rewrite.public_query import rewrite_public
from dpsql.terms import Terms
from dpsql.testing.kit import Kit
from dpsql.testing.tables import LEFTS, TABLES, VALUES, expand_shape

_REFUSED = {"engine-lacks", "type", "unknown-column"}  # what the dialect lacks, or the kit left out of the tables
_FOLDER = Path(__file__).parent / "statements"
_LONGEST = 300  # characters of an error
NOON = datetime(2026, 4, 29, 12, 34, 56, 789_000)  # noqa: DTZ001 - the clock of all queries, in UTC
SALTS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
_BOUNDS: dict[str, int | Mapping[str, int]] = {
    "rows": 3,
    **{name: {"max": largest} for name, largest in (("n", 1_000), ("tiny", 100), ("price", 1_000), ("ratio", 100))},
    **{name: {"max": largest} for name, largest in (("wide", 10**6), ("big", 10**12))},
    "amount": {"min": -100, "max": 500},
}
_TABLES: dict[str, PrivateTable | PublicTable] = {
    **{name: PrivateTable("user_id") for name in ("likes", "nothing")},
    "comments": PrivateTable(link="read_id -> reads.id"),
    **{name: PrivateTable("member") for name in ("visits", "friends")},
    "lefts": PrivateTable("id"),
    **{name: PublicTable() for name in ("countries", "days", "rights")},
}


def _build_policy(columns: Collection[str]) -> Policy:
    """Return the policy of the suite, with the bounds of these columns."""
    bounds = {name: bound for name, bound in _BOUNDS.items() if name == "rows" or name in columns}
    return Policy(Budget(1, "1e-6"), {"reads": PrivateTable("user_id", bounds=bounds), **_TABLES})


POLICY = _build_policy(_BOUNDS)


@dataclass(frozen=True)
class SuiteQuery:
    """One query of the suite, its rewrite and its file.

    With `units` the number of units in any group is read, too; with `items` a few values of each unit are drawn.
    """

    name: str
    text: str
    rewrite: str = "top"
    part: str = ""
    bound: Bound | None = None
    kept: bool = False
    own: bool = False
    units: bool = False
    items: bool = False

    @property
    def draws(self) -> bool:
        """Whether groups or values of a unit are drawn, for which DuckDB uses a hash of its own."""
        return self.bound is not None or self.kept or self.items


@dataclass(frozen=True, eq=False)
class OpenEngine:
    """An engine of a kit over tables, and the catalog of these tables."""

    engine: Engine
    catalog: Catalog


@cache
def load_queries() -> tuple[SuiteQuery, ...]:
    """Return the queries of all files; their names are unique."""
    files = sorted(_FOLDER.glob("*.sql"))
    blocks = [(block, file.stem) for file in files for block in file.read_text("utf-8").split("\n\n")]
    return tuple(_parse_block(block, part) for block, part in blocks if block.strip())


def _parse_block(block: str, part: str) -> SuiteQuery:
    # "# name: weighted 5 kept" and the statement below it: the rewrite, a bound of 5 groups, and flags.
    first, _, text = block.strip().partition("\n")
    name, _, words = first.removeprefix("# ").partition(": ")
    rewrite, *rest = words.split() or ["top"]
    groups = [int(word) for word in rest if word.isdecimal()]
    bound = Bound(groups[0], SALTS) if groups else None
    flags = (word in rest for word in ("kept", "own", "units", "items"))
    return SuiteQuery(name, text.strip().removesuffix(";"), rewrite, part, bound, *flags)


@cache
def open_kit(kit: Kit, through: Kit | None = None) -> OpenEngine:
    """Return an engine of a kit, or of the kit `through`, over the tables of the suite as the first can store them."""
    return open_tables(through or kit, {name: kit.fit(table) for name, table in TABLES.items()})


def open_tables(kit: Kit, tables: Mapping[str, pa.Table]) -> OpenEngine:
    """Return an engine of a kit over the given tables, which is closed at the end of the process at the latest."""
    engine = kit.open(tables)
    atexit.register(engine.close)  # while modules are there: drivers print what a connection left open does later
    numbers = {column.name for column in engine.columns("reads") if parse_type(column.type).is_number}
    return OpenEngine(engine, build_catalog(engine, _build_policy(numbers)))


@cache
def accepts_pattern(pattern: str) -> bool:
    """Return whether DuckDB compiles a regular expression."""
    try:
        duckdb.execute("SELECT regexp_matches('', ?)", [pattern]).fetchall()
    except duckdb.Error:
        return False
    return True


@cache
def rewrite_query(query: SuiteQuery, catalog: Catalog) -> EngineQuery | None:
    """Return the SQL of a query for the engine of the catalog, or None if the engine lacks something it needs."""
    try:
        analyzed = analyze(query.text, catalog, accepts_pattern=accepts_pattern, clock=lambda: NOON)
        if isinstance(analyzed, PublicQuery):
            return rewrite_public(analyzed, 1_000, dialect=catalog.dialect)
        if not isinstance(analyzed, PrivateQuery):
            raise TypeError(query.name)
        if query.kept and analyzed.partitions is not None:
            analyzed = replace(analyzed, partitions=replace(analyzed.partitions, salts=SALTS))
        terms = Terms.of_total(POLICY)
        analyzed = bound_quantiles(replace(bound_measures(analyzed, terms), reads_total=query.units), terms)
        return _rewrite_private(replace(analyzed, item_salts=SALTS), query)
    except Error as error:
        if error.code not in _REFUSED:
            raise
        return None


def count_measures(query: SuiteQuery, catalog: Catalog) -> int:
    """Return the number of measures that are read for a query."""
    return len(_list_measures(query, catalog)) or 1


def find_item_measures(query: SuiteQuery, catalog: Catalog) -> frozenset[int]:
    """Return the places of the measures of a query that are no sums over units: numbers of different values."""
    measures = _list_measures(query, catalog)
    return frozenset(at for at, each in enumerate(measures) if each.aggregate is Aggregate.ITEMS)


def _list_measures(query: SuiteQuery, catalog: Catalog) -> tuple[Measure, ...]:
    """Return the bounded measures of a private query: several outputs may have one in common."""
    analyzed = analyze(query.text, catalog, accepts_pattern=accepts_pattern, clock=lambda: NOON)
    if not isinstance(analyzed, PrivateQuery):
        return ()
    return bound_measures(analyzed, Terms.of_total(POLICY)).measures


def _rewrite_private(analyzed: PrivateQuery, query: SuiteQuery) -> EngineQuery:
    bound, rows = query.bound, analyzed.clause.k or 100
    # 1/sqrt(t) for a unit in t groups, in steps of 2**-20.
    weights = [round(2**20 / math.sqrt(at)) for at in range(1, 1 + (bound.max_groups_contributed if bound else 0))]
    match query.rewrite:
        case "all":
            return rewrite_all(analyzed, bound=bound)
        case "total":
            return rewrite_total(analyzed)
        case "label":
            return rewrite_unordered(analyzed, rows, bound=bound)
        case "weighted":
            return rewrite_weighted(analyzed, bound=bound, weights=weights)
        case "weighted_all":
            return rewrite_weighted_of_all(analyzed, bound=bound, weights=weights)
        case "bins":
            (quantile, *_) = analyzed.quantiles
            low, high = quantile.row_range or (Fraction(0), Fraction(1))
            bins = build_bins(low, high, type_=quantile.argument.type, most=64)
            return rewrite_bins(analyzed, BinCount(quantile, bins, shift=4), bound=bound)
        case "top":
            return rewrite_leaders(analyzed, rows if analyzed.domain is None else None, bound=bound)
    raise ValueError(query.rewrite)


def answer_query(query: SuiteQuery, opened: OpenEngine) -> pa.Table | None:
    """Return the exact counts of the engine, or None if it lacks something that the query needs."""
    rewritten = rewrite_query(query, opened.catalog)
    return None if rewritten is None else run_statement(opened.engine, build_statement(rewritten))


def build_statement(rewritten: EngineQuery) -> Statement:
    """Return the statement that an engine runs."""
    return Statement(rewritten.sql, rewritten.parameters, rewritten.types)


def run_statement(engine: Engine, statement: Statement) -> pa.Table:
    """Return an engine's answer; if it fails, raise the engine's own error: the rows of the suite are not private."""
    try:
        return open_exact(engine.execute(statement))
    except EngineError:
        if isinstance(engine, RemoteEngine):
            engine.fetch(statement)
        raise


def list_columns(table: pa.Table) -> list[list[object]]:
    """Return the columns of an answer, each as its type and its values, which are equal only if they print alike."""
    return [[str(column.type).removeprefix("large_"), *_values(column.combine_chunks())] for column in table.columns]


def _values(column: pa.Array) -> list[object]:
    """Return dates as numbers, because Python's end too early, and doubles as text, because NaN differs from itself."""
    if pa.types.is_date32(column.type):
        return list(column.view(pa.int32()).to_pylist())
    if pa.types.is_timestamp(column.type):
        return list(column.view(pa.int64()).to_pylist())
    return [repr(value) if isinstance(value, float) else value for value in column.to_pylist()]


def describe_difference(query: SuiteQuery, expected: pa.Table, *, found: pa.Table) -> str:
    """Return the first difference between two answers, in a line; empty if keys, counts, order and types agree."""
    theirs, ours = list_columns(expected), list_columns(found)
    if query.own:
        (their_types, their_sum), (our_types, our_sum) = _summary(theirs), _summary(ours)
        if (our_types, our_sum) == (their_types, their_sum):
            return ""
        return f"{our_types} and {our_sum} in all, not {their_types} and {their_sum}"
    if ours == theirs:
        return ""
    if len(ours) != len(theirs) or expected.num_rows != found.num_rows:
        return f"{found.num_rows} rows of {len(ours)} columns, not {expected.num_rows} of {len(theirs)}"
    pairs = (
        (at, row) for at, column in enumerate(ours) for row, value in enumerate(column) if value != theirs[at][row]
    )
    at, row = min(pairs, key=lambda pair: pair[1])
    return f"column {at + 1}, row {row}: {str(ours[at][row])[:60]!r}, not {str(theirs[at][row])[:60]!r}"


def _summary(columns: list[list[object]]) -> tuple[list[object], int]:
    """Return the types of the columns, and the sum of the last."""
    return [column[0] for column in columns], sum(int(str(value)) for value in columns[-1][1:])


def describe_error(error: BaseException) -> str:
    """Return an error in a line, cut to what tells it from others."""
    text = f"{error.code}: {error.reason}" if isinstance(error, Error) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:_LONGEST]


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
    return list(_analyze_shapes(tuple(shapes), catalog))


@cache  # the tables of several kits are the same to DuckDB
def _analyze_shapes(shapes: tuple[str, ...], catalog: Catalog) -> tuple[ShapeExpression, ...]:
    (table,) = (each for each in catalog.tables if each.name == "lefts")
    stored = {name: type_.name for name, type_ in table.columns}
    texts = {text: shape for shape in shapes for text in expand_shape(shape, stored)}
    found, written = list[ShapeExpression](), list(texts)
    for at in range(0, len(written), _MAX_KEYS):
        found += _analyze(written[at : at + _MAX_KEYS], catalog)
    unread = {*texts.values()} - {texts[form.text] for form in found}
    if unread:
        raise ValueError(f"The language refuses all expressions of {sorted(unread)}.")
    return tuple(found)


def _analyze(texts: list[str], catalog: Catalog) -> list[ShapeExpression]:
    keys = ", ".join(f"{text} AS k{at}" for at, text in enumerate(texts))
    sql = f"SELECT l.id, r.id AS other, {keys} FROM lefts AS l CROSS JOIN rights AS r GROUP BY ALL TOP 1 PRIVATE"
    try:
        query = analyze(sql, catalog, accepts_pattern=accepts_pattern, clock=lambda: NOON)
        if not isinstance(query, PrivateQuery):
            raise TypeError(sql)
        expressions = [make_total(query.keys[output.key or 0]) for output in query.outputs[2:]]
    except Error:
        # An expression that the language refuses makes the whole statement fail: halves find it.
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
    # The first rows of either side have all values of its columns, so that no other pairs are needed.
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
        # As whole numbers 0.0 and -0.0 differ, and NaN, of which there are many, is made one before.
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
