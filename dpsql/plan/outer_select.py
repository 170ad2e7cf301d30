"""Views of what was released: the released table itself, or what the outer SELECT computes from it.

An outer SELECT is in DuckDB's own SQL: bound before anything is charged, and computed from the released tables.

The evaluator has the released and the public rows that the SELECT reads, and nothing else. What DuckDB says of a SELECT
that it cannot bind is said over empty tables, so it holds no value of the data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, TypeVar

from dpsql.engines import NOT_LOADED, ResultEvaluator, Statement
from dpsql.errors import EngineError, Refusal, UsageError
from dpsql.plan.release import MOST_PUBLIC_ROWS, empty_result
from dpsql.sql.analysis.outer_tree import released_path
from dpsql.sql.analysis.row_facts import is_empty_by_text
from dpsql.sql.ir.statements import OuterSelect, Output, PrivateQuery, PublicQuery
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

    A parameter whose type the statement leaves open is UNKNOWN; any value may be bound to it.
    """

    parameters: tuple[str, ...]
    schema: pa.Schema

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


@dataclass(frozen=True, slots=True)
class ResultView:
    """View of the release of a private query without an outer SELECT: the released table."""

    inner: PrivateQuery
    stop: Stop | None = None

    @property
    def inners(self) -> tuple[PrivateQuery, ...]:
        """The one private query."""
        return (self.inner,)

    @property
    def has_outer_select(self) -> bool:
        """Whether a SELECT is around the private query."""
        return False

    @property
    def is_empty(self) -> bool:
        """Whether the text alone shows that no released row is selected, so that nothing need be released."""
        return is_empty_by_text(self.inner)

    def find_computed(self, _: int) -> tuple[int, ...]:
        """Return the columns that are averages or ends of intervals of the private query."""
        outputs = enumerate(self.inner.outputs)
        return tuple(at for at, output in outputs if output.divisor is not None or output.end is not None)

    def find_averages(self, _: int, planned: PrivateQuery) -> dict[tuple[int, int], tuple[int, ...]]:
        """Return the columns that are averages, for each pair of sum and count of the query as `planned`."""
        found = dict[tuple[int, int], tuple[int, ...]]()
        for position, output in enumerate(planned.outputs):
            if output.divisor is not None and output.end is None and output.statistic is None:
                pair = output.measure, output.divisor
                found[pair] = (*found.get(pair, ()), position)
        return found

    def find_spreads(self, _: int, planned: PrivateQuery) -> dict[Output, tuple[int, ...]]:
        """Return the columns that are statistics of spread, for each of the query as `planned`, without its name."""
        return _find_spreads(list(enumerate(planned.outputs)))

    def find_measures(self, _: int, planned: PrivateQuery) -> dict[int, tuple[int, ...]]:
        """Return the columns that are measures, for each measure that is shown, as numbered in the `planned` query."""
        found = dict[int, tuple[int, ...]]()
        for position, output in enumerate(planned.outputs):
            if output.key is None and output.quantile is None and output.divisor is None and output.end is None:
                found[output.measure] = (*found.get(output.measure, ()), position)
        return found

    def fetch(self, _: Callable[[PublicQuery], pa.Table]) -> ResultView:
        """Return the view, which reads no public table."""
        return self

    def empty(self, _: ResultEvaluator) -> pa.Table:
        """Return the view of a release without rows."""
        return empty_result(self.inner)

    def compute(self, tables: Sequence[pa.Table], _: ResultEvaluator) -> tuple[pa.Table, RatioEnds]:
        """Return the released table, which has no computed ratios."""
        return tables[0], {}


@dataclass(frozen=True, slots=True)
class OuterSelectView:
    """View of the releases of a statement: the table that its SELECT computes from them, once it is bound."""

    query: OuterSelect
    columns: Columns | None = None
    tables: Mapping[Path, pa.Table] = field(default_factory=dict)
    stop: Stop | None = None

    @property
    def inners(self) -> tuple[PrivateQuery, ...]:
        """The private queries."""
        return self.query.inners

    @property
    def has_outer_select(self) -> bool:
        """Whether a SELECT is around the private queries."""
        return True

    @property
    def is_empty(self) -> bool:
        """Whether the text alone shows that no released row is selected, so that nothing need be released."""
        return self.query.is_empty or (bool(self.inners) and all(map(is_empty_by_text, self.inners)))

    def find_measures(self, inner: int, planned: PrivateQuery) -> dict[int, tuple[int, ...]]:
        """Return the columns that are measures of private query `inner`, as `ResultView` does."""
        found = dict[int, tuple[int, ...]]()
        for column, output in self._list_outputs(inner, planned):
            if output.key is None and output.quantile is None and output.divisor is None and output.end is None:
                found[output.measure] = (*found.get(output.measure, ()), column)
        return found

    def find_averages(self, inner: int, planned: PrivateQuery) -> dict[tuple[int, int], tuple[int, ...]]:
        """Return the columns that are averages of private query `inner`, as `ResultView` does."""
        found = dict[tuple[int, int], tuple[int, ...]]()
        for column, output in self._list_outputs(inner, planned):
            if output.is_measure and output.divisor is not None and output.end is None and output.statistic is None:
                pair = output.measure, output.divisor
                found[pair] = (*found.get(pair, ()), column)
        return found

    def find_spreads(self, inner: int, planned: PrivateQuery) -> dict[Output, tuple[int, ...]]:
        """Return the columns that are statistics of spread of private query `inner`, as `ResultView` does."""
        return _find_spreads(self._list_outputs(inner, planned))

    def find_computed(self, inner: int) -> tuple[int, ...]:
        """Return the columns that are averages or ends of intervals of private query `inner`, unchanged."""
        outputs = self._list_outputs(inner, self.inners[inner])
        return tuple(column for column, output in outputs if output.divisor is not None or output.end is not None)

    def _list_outputs(self, inner: int, planned: PrivateQuery) -> list[tuple[int, Output]]:
        """Return the columns that are outputs of private query `inner`, unchanged, each with the output as planned."""
        outputs = planned.outputs
        return [(each.column, outputs[each.output]) for each in self.query.measures if each.inner == inner]

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
            probe = Statement(_describe(self.query.sql), self.query.parameters)
            found = evaluator.compute(tables, probe, stop=self.stop)
        if found is None:
            otherwise = self.query.otherwise
            raise self._refuse(tables, evaluator) if otherwise is None else copy(otherwise)
        bound = tuple(
            (str(name), str(type_)) for name, type_ in zip(*(each.to_pylist() for each in found.columns), strict=True)
        )
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


def _find_spreads(outputs: Sequence[tuple[int, Output]]) -> dict[Output, tuple[int, ...]]:
    found = dict[Output, tuple[int, ...]]()
    for column, output in outputs:
        if output.statistic is not None and output.end is None:
            unnamed = replace(output, name="")
            found[unnamed] = (*found.get(unnamed, ()), column)
    return found


def result_view(statement: PrivateQuery | OuterSelect) -> ResultView | OuterSelectView:
    """Return the view of a statement's release."""
    return OuterSelectView(statement) if isinstance(statement, OuterSelect) else ResultView(statement)


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
