"""The outer SELECT around a private query, applied to the released table: post-processing, free of charge.

Refusals are raised when the view is built, before anything is reserved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dpsql.engines import ResultEvaluator, Statement
from dpsql.errors import EngineError, UsageError
from dpsql.plan.arrow_tables import arrow_type, int64_array
from dpsql.plan.evaluated_select import EvaluatedView, RatioEnds
from dpsql.plan.plan import build_statement
from dpsql.plan.release import MOST_PUBLIC_ROWS, empty_result
from dpsql.sql.analysis.empty_results import is_empty_by_text
from dpsql.sql.analysis.outer_select import PATH, RANK, find_unchanged_outputs
from dpsql.sql.ir.statements import EvaluatedQuery, PrivateQuery, PublicQuery, WrappedQuery
from dpsql.sql.ir.types import TEXT
from dpsql.sql.rewrite.public_query import rewrite_public

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsql.engines.base import Stop


Path = tuple[str, str, str]
_NO_LIMIT = 1 << 62  # a row for each of the released ones at most: nothing is left to cut


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
    """View of a release: the released table of `inner` or, with an outer SELECT, the table computed from it."""

    inner: PrivateQuery
    outer: PublicQuery | None = None
    statement: Statement | None = None
    beside: Mapping[Path, PublicQuery] = field(default_factory=dict)
    tables: Mapping[Path, pa.Table] = field(default_factory=dict)
    stop: Stop | None = None
    ratios: tuple[int, ...] = ()

    @property
    def inners(self) -> tuple[PrivateQuery, ...]:
        """The one private query."""
        return (self.inner,)

    @property
    def is_wrapped(self) -> bool:
        """Whether a SELECT is around the private query."""
        return self.outer is not None

    @property
    def max_rows(self) -> int:
        """Largest number of rows to show; a join with public tables may have more than a release."""
        return MOST_PUBLIC_ROWS if self.beside else _NO_LIMIT

    @property
    def is_empty(self) -> bool:
        """Whether the text alone shows that no released row is selected, so that nothing need be released."""
        return is_empty_by_text(self.inner) or (self.outer is not None and is_empty_by_text(self.outer))

    def find_computed(self, inner: int) -> tuple[int, ...]:
        """Return the columns that are averages or ends of intervals of private query `inner`, unchanged."""
        assert not inner  # noqa: S101 - it is the only one
        found = [
            at for at, output in enumerate(self.inner.outputs) if output.divisor is not None or output.end is not None
        ]
        if self.outer is None:
            return tuple(found)
        return tuple(shown for at in found for shown in find_unchanged_outputs(self.outer, at))

    def find_averages(self, inner: int, planned: PrivateQuery) -> dict[tuple[int, int], tuple[int, ...]]:
        """Return the columns that are averages, unchanged, for each pair of sum and count of the query as `planned`."""
        assert not inner  # noqa: S101 - it is the only one
        found = dict[tuple[int, int], tuple[int, ...]]()
        for position, output in enumerate(planned.outputs):
            if output.divisor is not None and output.end is None:
                pair = output.measure, output.divisor
                shown = (position,) if self.outer is None else tuple(find_unchanged_outputs(self.outer, position))
                if shown:
                    found[pair] = (*found.get(pair, ()), *shown)
        return found

    def find_measures(self, inner: int, planned: PrivateQuery) -> dict[int, tuple[int, ...]]:
        """Return the columns that are measures of private query `inner`, unchanged, for each measure that is shown.

        Measures have the places that they have in the query as it was `planned`.
        """
        assert not inner  # noqa: S101 - it is the only one
        found = dict[int, tuple[int, ...]]()
        for position, output in enumerate(planned.outputs):
            if output.key is not None or output.divisor is not None or output.end is not None:
                continue
            shown = (position,) if self.outer is None else tuple(find_unchanged_outputs(self.outer, position))
            if shown:
                found[output.measure] = (*found.get(output.measure, ()), *shown)
        return found

    def fetch(self, fetch: Callable[[PublicQuery], pa.Table]) -> ResultView:
        """Return the view with the public tables that the outer SELECT reads; `fetch` returns each of them."""
        return replace(self, tables={path: fetch(query) for path, query in self.beside.items()})

    def empty(self, evaluator: ResultEvaluator) -> pa.Table:
        """Return the view of a release without rows."""
        return self.table([empty_result(self.inner)], evaluator)

    def compute(self, tables: Sequence[pa.Table], evaluator: ResultEvaluator) -> tuple[pa.Table, RatioEnds]:
        """Return the view, and the ends of the 95 % intervals of its ratios by the numbers of their columns."""
        found = self._compute(tables, evaluator)
        number = found.num_columns - 2 * len(self.ratios)
        ends = zip(found.columns[number::2], found.columns[number + 1 :: 2], strict=True)
        return found.select(range(number)) if self.ratios else found, dict(zip(self.ratios, ends, strict=True))

    def table(self, tables: Sequence[pa.Table], evaluator: ResultEvaluator) -> pa.Table:
        """Return the view of the released table, in types that the text alone decides; `evaluator` computes it."""
        return self.compute(tables, evaluator)[0]

    def _compute(self, tables: Sequence[pa.Table], evaluator: ResultEvaluator) -> pa.Table:
        (released,) = tables
        if self.outer is None or self.statement is None:
            return released
        names = [f"c{at}" for at in range(1, released.num_columns + 1)]
        numbered = released.rename_columns(names).append_column(RANK, int64_array(range(released.num_rows)))
        computed = evaluator.compute({**self.tables, PATH: numbered}, self.statement, stop=self.stop)
        computed = computed.rename_columns(list(self.outer.names))
        if computed.num_rows > self.max_rows:
            hint = f"The private answer is stored: add LIMIT {self.max_rows}, at no further cost."
            raise EngineError("wrapping-failed", f"The answer has more than {self.max_rows} rows.", hint=hint)
        for at, (name, output) in enumerate(zip(self.outer.names, self.outer.outputs, strict=True)):
            if output.type == TEXT:  # in the width of a plain private answer
                computed = computed.set_column(at, name, computed.column(at).cast(arrow_type(TEXT)))
        return computed


def result_view(statement: PrivateQuery | WrappedQuery | EvaluatedQuery) -> ResultView | EvaluatedView:
    """Return the view of a statement's release; raise `Unsupported` for an outer SELECT that cannot be computed."""
    if isinstance(statement, EvaluatedQuery):
        return EvaluatedView(statement)
    if isinstance(statement, PrivateQuery):
        return ResultView(statement)
    rewritten = rewrite_public(statement.outer, (MOST_PUBLIC_ROWS if statement.beside else _NO_LIMIT) + 1)
    built = build_statement(rewritten)
    return ResultView(statement.inner, statement.outer, built, dict(statement.beside), ratios=statement.ratios)
