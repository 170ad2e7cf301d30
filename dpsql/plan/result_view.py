"""View of the release of a statement: the released table itself, or what its outer SELECT computes from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.engines import ResultEvaluator
from dpsql.errors import UsageError
from dpsql.plan.outer_select import OuterSelectView, RatioEnds
from dpsql.plan.release import empty_result
from dpsql.sql.analysis.public_query import is_empty_by_text
from dpsql.sql.ir.statements import OuterSelect, PrivateQuery, PublicQuery

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsql.engines.base import Stop

__all__ = ["Prepared", "ResultView", "result_view"]


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
            if output.divisor is not None and output.end is None:
                pair = output.measure, output.divisor
                found[pair] = (*found.get(pair, ()), position)
        return found

    def find_measures(self, _: int, planned: PrivateQuery) -> dict[int, tuple[int, ...]]:
        """Return the columns that are measures, for each measure that is shown, as numbered in the `planned` query."""
        found = dict[int, tuple[int, ...]]()
        for position, output in enumerate(planned.outputs):
            if output.key is None and output.divisor is None and output.end is None:
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


def result_view(statement: PrivateQuery | OuterSelect) -> ResultView | OuterSelectView:
    """Return the view of a statement's release."""
    return OuterSelectView(statement) if isinstance(statement, OuterSelect) else ResultView(statement)
