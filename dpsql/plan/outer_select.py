"""What is shown of a release: its table as it is, or what the SELECT around the private query makes of it, for nothing.

All that can be refused is refused when this is prepared, which is before anything is reserved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dpsql.engines import ResultEvaluator, Statement
from dpsql.errors import EngineError, UsageError
from dpsql.plan.arrow_schema import arrow_type, integers
from dpsql.plan.plan import statement_of
from dpsql.plan.release import MOST_PUBLIC_ROWS, nothing
from dpsql.sql.analysis.empty_results import asks_for_no_row
from dpsql.sql.analysis.outer_select import PATH, RANK, passed
from dpsql.sql.ir.statements import PrivateQuery, PublicQuery, WrappedQuery
from dpsql.sql.ir.types import TEXT
from dpsql.sql.rewrite.public_query import rewrite_public

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsql.engines.base import Stop

__all__ = ["Prepared", "ResultView", "shown_of"]

Path = tuple[str, str, str]
_MOST_ROWS = 1 << 62  # a row for each of the released ones at most: nothing is left to cut


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a statement says before values are bound: the types of its parameters, in order, and its answer's columns.

    A parameter of which the statement says nothing is UNKNOWN; any value may be bound, and a text is as good as any.
    """

    parameters: tuple[str, ...]
    schema: pa.Schema

    def fitted(self, table: pa.Table) -> pa.Table:
        """Return an answer in the columns that were told: a whole number that was bound may have made them narrower.

        Raises `UsageError` where a value does not fit, which those of the types of `parameters` do.
        """
        import pyarrow as pa

        if table.schema == self.schema:
            return table
        try:
            return table.cast(self.schema)
        except (pa.ArrowInvalid, ValueError):
            hint = "Cast it in the statement, such as CAST(? AS BIGINT) + n."
        raise UsageError("parameter-type", "With these values the answer has other columns than were told.", hint=hint)


@dataclass(frozen=True, slots=True)
class ResultView:
    """What an answer to `inner` shows: its released table or, with an outer SELECT, what that computes of it."""

    inner: PrivateQuery
    outer: PublicQuery | None = None
    statement: Statement | None = None
    beside: Mapping[Path, PublicQuery] = field(default_factory=dict)
    tables: Mapping[Path, pa.Table] = field(default_factory=dict)
    stop: Stop | None = None

    @property
    def most_rows(self) -> int:
        """How many rows may be shown; a join with public tables may have more than any release."""
        return MOST_PUBLIC_ROWS if self.beside else _MOST_ROWS

    @property
    def is_empty(self) -> bool:
        """Whether the text alone decides that no released row is asked for, so that nothing need be released."""
        return asks_for_no_row(self.inner) or (self.outer is not None and asks_for_no_row(self.outer))

    @property
    def counts(self) -> tuple[int, ...]:
        """The columns that are the released counts, unchanged, by position."""
        released = [position for position, output in enumerate(self.inner.outputs) if output.key is None]
        if self.outer is None:
            return tuple(released)
        return tuple(at for position in released for at in passed(self.outer, position))

    def fetched(self, fetch: Callable[[PublicQuery], pa.Table]) -> ResultView:
        """Return the same with the public tables that the outer SELECT reads, for which `fetch` asks."""
        return replace(self, tables={path: fetch(query) for path, query in self.beside.items()})

    def nothing(self, desk: ResultEvaluator) -> pa.Table:
        """Return what is shown where no released row is asked for."""
        return self.table(nothing(self.inner), desk)

    def table(self, released: pa.Table, desk: ResultEvaluator) -> pa.Table:
        """Return what is shown of a released table, in types that the text decides; `desk` computes it."""
        if self.outer is None or self.statement is None:
            return released
        names = [f"c{at}" for at in range(1, released.num_columns + 1)]
        laid = released.rename_columns(names).append_column(RANK, integers(range(released.num_rows)))
        computed = desk.compute({**self.tables, PATH: laid}, self.statement, stop=self.stop)
        computed = computed.rename_columns(list(self.outer.names))
        if computed.num_rows > self.most_rows:
            hint = f"The private answer is stored: add LIMIT {self.most_rows}, at no further cost."
            raise EngineError("wrapping-failed", f"The answer has more than {self.most_rows} rows.", hint=hint)
        for at, (name, output) in enumerate(zip(self.outer.names, self.outer.outputs, strict=True)):
            if output.type == TEXT:  # in the width of a plain private answer
                computed = computed.set_column(at, name, computed.column(at).cast(arrow_type(TEXT)))
        return computed


def shown_of(question: PrivateQuery | WrappedQuery) -> ResultView:
    """Return what the answer to a question shows. Raises `Unsupported` for an outer SELECT that cannot be computed."""
    if isinstance(question, PrivateQuery):
        return ResultView(question)
    written = rewrite_public(question.outer, (MOST_PUBLIC_ROWS if question.beside else _MOST_ROWS) + 1)
    statement = statement_of(written)
    return ResultView(question.inner, question.outer, statement, dict(question.beside))
