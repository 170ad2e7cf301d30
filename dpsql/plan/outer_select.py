"""Views of what was released: the released table itself, or what the outer SELECT computes from it; and public answers.

An outer SELECT is in DuckDB's own SQL: bound before anything is charged, and computed from the released tables.

The evaluator has the released and the public rows that the SELECT reads, and nothing else. What DuckDB says of a SELECT
that it cannot bind is said over empty tables, so it holds no value of the data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, ClassVar, TypeVar

from dpsql.engines import NOT_LOADED, ResultEvaluator, Statement
from dpsql.engines.arrow_types import find_arrow_type
from dpsql.errors import EngineError, Refusal, Unsupported, UsageError
from dpsql.sql.analysis.outer_tree import released_path
from dpsql.sql.analysis.row_facts import is_empty_by_text
from dpsql.sql.ir.statements import OuterSelect, Output, PrivateQuery, PublicQuery
from dpsql.sql.ir.tree import Call, Case, ColumnRef, Expression, Family, walk
from dpsql.sql.render.duckdb import compose

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsql.engines.base import Stop


Path = tuple[str, str, str]
Columns = tuple[tuple[str, str], ...]  # names and types, as DuckDB names them
RatioEnds = Mapping[int, tuple["pa.ChunkedArray", "pa.ChunkedArray"]]  # low and high ends, by the number of a column
Key = TypeVar("Key")
Value = TypeVar("Value")
_QUOTED_OR_PARAMETER = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\$([0-9]+)""")
_PLAIN_TYPES = frozenset(
    "BOOLEAN TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER DOUBLE DATE TIMESTAMP VARCHAR".split()
)
_SHOWN_AS = {"FLOAT": "DOUBLE", "UBIGINT": "DECIMAL(20, 0)"} | {
    f"TIMESTAMP_{unit}": "TIMESTAMP" for unit in ("S", "MS", "NS")
}
MOST_PUBLIC_ROWS = 1_000_000
_DATES = frozenset([Family.DATE, Family.TIMESTAMP])
_MAX_KNOWN = 64  # statements that are remembered
_MAX_KNOWN_LENGTH = 256 * 1024  # characters of one, or of its syntax tree


@dataclass(frozen=True, slots=True)
class EvaluatorParser:
    """Parser and printer of the DuckDB in the evaluator, where an analyst's text can reach nothing.

    It remembers short texts, at most 64: a dashboard repeats statements with other parameters.
    """

    evaluator: ResultEvaluator
    _known: dict[tuple[str, str], str] = field(default_factory=dict, repr=False, compare=False)

    def parse(self, text: str) -> str:
        """Return the syntax trees of the statements of a text as JSON, or why there are none, in the same form.

        Raises `Refusal` for a text that DuckDB cannot take in.
        """
        return self._ask("SELECT json_serialize_sql(CAST($1 AS VARCHAR))", text)

    def write(self, tree: str) -> str:
        """Return the statement of a syntax tree; raise `Refusal` for one that DuckDB cannot print."""
        return self._ask("SELECT json_deserialize_sql(CAST($1 AS JSON))", tree)

    def _ask(self, question: str, text: str) -> str:
        found = self._known.get((question, text))
        if found is not None:
            return found
        try:
            found = str(self.evaluator.compute({}, Statement(question, (text,))).column(0)[0].as_py())
        except EngineError as error:
            if error.code == NOT_LOADED:
                raise
        if found is None:
            hint = "Write a shorter one, with fewer levels of subqueries and functions."
            raise Refusal("too-large", "The SELECT around the private query is too large to be read.", hint=hint)
        if len(text) <= _MAX_KNOWN_LENGTH:
            _remember(self._known, (question, text), value=found)
        return found


@dataclass(frozen=True, slots=True)
class Prepared:
    """Types of a statement's parameters, in order, and columns of its answer, before values are bound.

    A parameter whose type the statement leaves open is UNKNOWN; any value may be bound to it. With `may_change`,
    another table with other columns may take the name of one that the statement reads.
    """

    parameters: tuple[str, ...]
    schema: pa.Schema
    may_change: bool = False

    def fitted(self, table: pa.Table) -> pa.Table:
        """Return an answer in the announced columns; a whole number that was bound may have made them narrower.

        Raises `UsageError` where a value does not fit; values of the types in `parameters` always do.
        """
        import pyarrow as pa

        if table.schema == self.schema:
            return table
        try:
            return table.cast(self.schema)
        except (pa.ArrowInvalid, ValueError):
            hint = "Cast it in the statement, such as CAST(? AS BIGINT) + n."
        raise UsageError(
            "parameter-type",
            "With these values the answer has other columns than the prepared statement.",
            hint=hint,
        )


def empty_result(query: PrivateQuery) -> pa.Table:
    """Return the answer of a query without a row, for which nothing need be drawn."""
    import pyarrow as pa

    # empty_table() would import pandas
    columns = [pa.nulls(0, find_arrow_type(type_.name)) for type_ in query.output_types]
    return pa.Table.from_arrays(columns, names=[output.name for output in query.outputs])


def rename_outputs(query: PublicQuery, table: pa.Table) -> pa.Table:
    """Return computed columns under the names of a public query's outputs; raise `Unsupported` for too many rows."""
    if table.num_rows > MOST_PUBLIC_ROWS:
        hint = f"Add LIMIT {MOST_PUBLIC_ROWS}, or ask for fewer rows."
        raise Unsupported("too-many-rows", f"The answer has more than {MOST_PUBLIC_ROWS} rows.", hint=hint)
    return table.rename_columns(list(query.names))


@dataclass(frozen=True, slots=True)
class ShownColumns:
    """Columns of a view that are outputs of one private query, unchanged, by what is shown there.

    `measures` has the columns of each measure, by its number in the planned query; `averages` those of each pair of sum
    and count, and `spreads` those of each statistic of spread, without its name.
    """

    measures: dict[int, tuple[int, ...]]
    averages: dict[tuple[int, int], tuple[int, ...]]
    spreads: dict[Output, tuple[int, ...]]


def find_columns(outputs: Iterable[tuple[int, Output]]) -> ShownColumns:
    """Return what is shown in the columns that are outputs of a private query, as it is planned."""
    found = ShownColumns({}, {}, {})
    for column, output in outputs:
        if not output.is_measure:
            continue
        if output.divisor is None and output.end is None:
            found.measures[output.measure] = (*found.measures.get(output.measure, ()), column)
            continue
        if output.end is not None or output.divisor is None:
            continue
        if output.statistic is not None:
            unnamed = replace(output, name="")
            found.spreads[unnamed] = (*found.spreads.get(unnamed, ()), column)
        else:
            pair = output.measure, output.divisor
            found.averages[pair] = (*found.averages.get(pair, ()), column)
    return found


def find_dated(query: PrivateQuery) -> tuple[int, ...]:
    """Return the outputs that are keys worked out from a date or time: NULL is the group of rows without one.

    The difference or the comparison of two stays NULL, which does not say which is missing.
    """
    parts = {at: walk(query.keys[each.key]) for at, each in enumerate(query.outputs) if each.key is not None}
    return tuple(
        at
        for at, found in parts.items()
        if not any(isinstance(part, Case) or _is_of_two_dates(part) for part in found)  # NULL is what no branch fits
        and any(isinstance(part, ColumnRef) and part.type.family in _DATES for part in found)
    )


def _is_of_two_dates(expression: Expression) -> bool:
    """Return whether an expression is computed from two dates and is none: a difference, or a comparison."""
    if not isinstance(expression, Call) or expression.type.family in _DATES:
        return False
    return sum(each.type.family in _DATES for each in expression.arguments) > 1


@dataclass(frozen=True, slots=True)
class ResultView:
    """View of the release of a private query without an outer SELECT: the released table.

    The answer is stored under `name`, unless that is "".
    """

    inners: tuple[PrivateQuery]
    stop: Stop | None = None
    name: str = ""
    stored_note: ClassVar[str] = ""
    has_outer_select: ClassVar[bool] = False

    @property
    def is_empty(self) -> bool:
        """Whether the text alone shows that no released row is selected, so that nothing need be released."""
        return is_empty_by_text(self.inners[0])

    @property
    def values(self) -> tuple[int, ...]:
        """Columns that are released values, and so no keys."""
        return tuple(at for at, output in enumerate(self.inners[0].outputs) if output.key is None)

    def find_columns(self, _: int, planned: PrivateQuery) -> ShownColumns:
        """Return what the columns show of the private query as `planned`."""
        return find_columns(enumerate(planned.outputs))

    def fetch(self, _: Callable[[PublicQuery], pa.Table]) -> ResultView:
        """Return the view, which reads no public table."""
        return self

    def empty(self, _: ResultEvaluator) -> pa.Table:
        """Return the view of a release without rows."""
        return empty_result(self.inners[0])

    def compute(self, tables: Sequence[pa.Table], _: ResultEvaluator) -> tuple[pa.Table, RatioEnds]:
        """Return the released table, which has no computed ratios."""
        return tables[0], {}


@dataclass(frozen=True, slots=True)
class OuterSelectView:
    """View of the releases of a statement: the table that its SELECT computes from them, once it is bound.

    The answer is stored under `name`, unless that is "". The `stored_note` says of which day the stored tables are that
    the SELECT reads, "" without any.
    """

    query: OuterSelect
    columns: Columns | None = None
    tables: Mapping[Path, pa.Table] = field(default_factory=dict)
    stop: Stop | None = None
    name: str = ""
    stored_note: str = ""
    has_outer_select: ClassVar[bool] = True

    @property
    def inners(self) -> tuple[PrivateQuery, ...]:
        """The private queries."""
        return self.query.inners

    @property
    def is_empty(self) -> bool:
        """Whether the text alone shows that no released row is selected, so that nothing need be released."""
        return self.query.is_empty or (bool(self.inners) and all(map(is_empty_by_text, self.inners)))

    @property
    def values(self) -> tuple[int, ...]:
        """Columns that are released values or computed from them, and so no keys."""
        return self.query.values

    def find_columns(self, inner: int, planned: PrivateQuery) -> ShownColumns:
        """Return what the columns show, unchanged, of private query `inner` as `planned`."""
        return find_columns(
            (each.column, planned.outputs[each.output]) for each in self.query.measures if each.inner == inner
        )

    def fetch(self, fetch: Callable[[PublicQuery], pa.Table]) -> OuterSelectView:
        """Return the view with the public tables that the SELECT reads; `fetch` returns each of them."""
        return replace(self, tables={path: fetch(query) for path, query in self.query.beside})

    def bind(
        self,
        columns: Callable[[PublicQuery], pa.Table],
        evaluator: ResultEvaluator,
        *,
        known: dict[object, Columns] | None = None,
    ) -> OuterSelectView:
        """Return the view with the columns of its answer; raise `Refusal` where DuckDB cannot bind the SELECT.

        `columns` returns an empty table with the columns of a query over a public table. Columns that were found are
        remembered in `known`.
        """
        # The SELECT is bound over empty tables: what DuckDB says of it can name no value.
        released = self._place([empty_result(inner) for inner in self.inners])
        known = {} if known is None else known
        types = tuple(table.schema.to_string() for table in released.values())
        key = (self.query.sql, repr(self.query.parameters), repr(self.query.beside), types)
        if key in known:
            return replace(self, columns=known[key])
        tables = {path: columns(query) for path, query in self.query.beside}
        tables |= released
        found: pa.Table | None = None
        with suppress(EngineError):
            # SELECT column_name, column_type FROM (DESCRIBE SELECT avg(count) FROM released)
            probe = Statement(_describe(self.query.sql), self.query.parameters)
            found = evaluator.compute(tables, probe, stop=self.stop)
        if found is None:
            otherwise = self.query.otherwise
            # A copy: raising adds a traceback to an exception, and the query may be bound again.
            raise self._refuse(tables, evaluator) if otherwise is None else copy(otherwise)
        bound = tuple(
            (str(name), str(type_)) for name, type_ in zip(*(each.to_pylist() for each in found.columns), strict=True)
        )
        # The last columns are the low and high ends of ratios, which are not shown.
        bound = bound[: len(bound) - 2 * len(self.query.ratios)]
        aliases = [*self.query.aliases, *[None] * len(bound)]
        bound = tuple((name or found, type_) for name, (found, type_) in zip(aliases, bound, strict=False))
        if len(self.query.sql) <= _MAX_KNOWN_LENGTH:
            _remember(known, key, value=bound)
        return replace(self, columns=bound)

    def _refuse(self, tables: Mapping[Path, pa.Table], evaluator: ResultEvaluator) -> Refusal:
        """Return the refusal of a SELECT that cannot be bound, with DuckDB's reason: its tables were empty."""
        reason = "it cannot be computed"
        text = _write_values(self.query.sql, self.query.parameters)
        ask = Statement("SELECT json_serialize_plan(CAST($1 AS VARCHAR))", (text,))
        with suppress(EngineError):
            found = json.loads(str(evaluator.compute(tables, ask).column(0)[0].as_py()))
            reason = " ".join(str(found.get("error_message", reason)).split()).rstrip(".!")
        what = "the SELECT around the private query; nothing was charged" if self.inners else "it; it is free"
        hint = f"Correct {what}."
        end = "" if reason.endswith("?") else "."
        return Refusal("outer-select", f"DuckDB refuses the SELECT: {reason}{end}", hint=hint, place=self.query.place)

    def _place(self, released: Sequence[pa.Table]) -> dict[Path, pa.Table]:
        """Return the released tables at the paths at which the SELECT reads them."""
        found: dict[Path, pa.Table] = {}
        for at, (table, visible) in enumerate(zip(released, self.query.visible, strict=True), start=1):
            found[released_path(at)] = table.select(range(visible))
            if table.num_columns > visible:
                found[released_path(at, with_ends=True)] = table
        return found

    def empty(self, evaluator: ResultEvaluator) -> pa.Table:
        """Return the view of releases without rows."""
        return self.table([empty_result(inner) for inner in self.inners], evaluator)

    def table(self, released: Sequence[pa.Table], evaluator: ResultEvaluator) -> pa.Table:
        """Return what the SELECT makes of the released tables, in types that the text alone decides."""
        return self.compute(released, evaluator)[0]

    def compute(self, released: Sequence[pa.Table], evaluator: ResultEvaluator) -> tuple[pa.Table, RatioEnds]:
        """Return the table, and the ends of the 95 % intervals of its ratios by the numbers of their columns."""
        assert self.columns is not None  # noqa: S101 - bound before anything is released
        number, ratios = len(self.columns), self.query.ratios
        # Two columns and the ends of a ratio, one row more than may be shown, so that too many are noticed:
        # SELECT c1, CAST(c2 AS VARCHAR), CAST(c3 AS DOUBLE), CAST(c4 AS DOUBLE)
        # FROM (SELECT ... ) AS t(c1, c2, c3, c4) LIMIT 1000001
        shown = [_cast(f"c{at}", type_) for at, (_, type_) in enumerate(self.columns, start=1)]
        shown += [f"CAST(c{at} AS DOUBLE)" for at in range(number + 1, number + 2 * len(ratios) + 1)]
        sql = _read_from(self.query.sql, shown, limit=MOST_PUBLIC_ROWS + 1)
        tables = {**self.tables, **self._place(released)}
        found: pa.Table | None = None
        with suppress(EngineError):
            found = evaluator.compute(tables, Statement(sql, self.query.parameters), stop=self.stop)
        if found is None:  # raised here: no context hangs on it
            reason = "The SELECT failed on a value, took too long, or needed too much memory."
            hint = "Write TRY_CAST in place of CAST, or ask for less"
            stored = ": the private answers are stored, and cost nothing again." if self.inners else "."
            raise EngineError("wrapping-failed", reason, hint=hint + stored)
        if found.num_rows > MOST_PUBLIC_ROWS:
            hint = f"The private answer is stored: add LIMIT {MOST_PUBLIC_ROWS}, at no further cost."
            raise EngineError("wrapping-failed", f"The answer has more than {MOST_PUBLIC_ROWS} rows.", hint=hint)
        table = _narrow_texts(found.select(range(number))).rename_columns([name for name, _ in self.columns])
        ends = zip(found.columns[number::2], found.columns[number + 1 :: 2], strict=True)
        return table, {at % number: pair for at, pair in zip(ratios, ends, strict=True)}


def result_view(statement: PrivateQuery | OuterSelect) -> ResultView | OuterSelectView:
    """Return the view of a statement's release."""
    return OuterSelectView(statement) if isinstance(statement, OuterSelect) else ResultView((statement,))


def _remember(known: dict[Key, Value], key: Key, *, value: Value) -> None:
    """Add a value; forget the oldest one when there are too many."""
    known[key] = value
    if len(known) > _MAX_KNOWN:
        with suppress(KeyError, StopIteration, RuntimeError):  # another thread may have
            del known[next(iter(known))]


def _read_from(sql: str, columns: Sequence[str], *, limit: int) -> str:
    """Return a SELECT of columns of a query, which are c1, c2 and so on."""
    names = [f"c{at}" for at in range(1, len(columns) + 1)]
    template = "SELECT {columns} FROM ({sql}) AS t({names}) LIMIT {limit}"
    return compose(template, columns=columns, sql=sql, names=names, limit=limit)


def _describe(sql: str) -> str:
    """Return a SELECT of the names and types of the columns of a query."""
    return compose("SELECT column_name, column_type FROM (DESCRIBE {sql})", sql=sql)


def _write_values(sql: str, values: Sequence[object]) -> str:
    """Return a text of DuckDB's printer with values in place of $1, $2, ...: its plans are of texts without any."""

    def write(found: re.Match[str]) -> str:
        # A quoted text or name, in which `$1` is no parameter.
        if found[1] is None:
            return found[0]
        value = values[int(found[1]) - 1]
        if value is None or isinstance(value, bool):
            return str(value)
        if isinstance(value, int | Decimal):
            return f"({value})"
        text = str(value).replace("'", "''")
        return f"CAST('{text}' AS {'DOUBLE' if isinstance(value, float) else 'VARCHAR'})"

    return _QUOTED_OR_PARAMETER.sub(write, sql)


def _cast(column: str, type_: str) -> str:
    """Return a column in a type that every surface shows: a number, boolean, date or time stamp, all else as text."""
    if type_ in _PLAIN_TYPES or type_.startswith("DECIMAL("):
        return column
    return f"CAST({column} AS {_SHOWN_AS.get(type_, 'VARCHAR')})"


def _narrow_texts(table: pa.Table) -> pa.Table:
    """Return the table with its texts in the width of a plain private answer."""
    import pyarrow as pa

    for at, field_ in enumerate(table.schema):
        if pa.types.is_large_string(field_.type):
            table = table.set_column(at, field_.name, table.column(at).cast(pa.string()))
    return table
