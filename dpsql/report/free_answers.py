"""Answers that read no private row: queries over public tables, SHOW, DESCRIBE, and the columns of any answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpsql.engines import Engine, PublicStatements, ResultEvaluator
from dpsql.engines.pool import within
from dpsql.ledger.base import Ledger
from dpsql.plan.outer_select import Columns, OuterSelectView, ResultView, result_view
from dpsql.plan.plan import build_statement
from dpsql.plan.release import MOST_PUBLIC_ROWS, publish, rename_outputs
from dpsql.report.balance import read_balances
from dpsql.report.tables import (
    budget_table,
    columns_table,
    free_plan_table,
    functions_table,
    plan_columns,
    tables_table,
)
from dpsql.sql.analysis.domains import (
    find_group_query,
    find_guess_query,
    find_partition_query,
    set_guess,
    set_known_groups,
    set_partition_values,
)
from dpsql.sql.analysis.public_query import remove_rows
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.statements import (
    Describe,
    OuterSelect,
    PrivateQuery,
    PublicQuery,
    ShowBudget,
    ShowFunctions,
    ShowTables,
    Statement,
)
from dpsql.sql.ir.tree import has_scan
from dpsql.sql.rewrite.public_query import rewrite_public
from dpsql.terms import Terms

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsql.engines.base import Stop


FreeStatement = PublicQuery | ShowBudget | ShowTables | ShowFunctions | Describe
_CONSTANT_SECONDS = 10.0  # in which a statement without tables is computed


@dataclass(frozen=True, slots=True)
class FreeAnswers:
    """Answers statements that read no private row.

    Statements over public tables are run by `public`, apart from private ones; without it the engine runs both. A
    statement that reads no table never waits for an engine: the evaluator computes it.
    """

    engine: Engine
    ledger: Ledger
    evaluator: ResultEvaluator
    catalog: Catalog
    terms: Terms
    public: PublicStatements | None = None
    _bound: dict[object, Columns] = field(default_factory=dict, repr=False, compare=False)

    def answer(self, statement: FreeStatement, stop: Stop | None = None) -> pa.Table:
        """Return the answer. Raises `EngineError`, also soon after `stop` returns True, and `Unsupported`."""
        match statement:
            case PublicQuery():
                return self._query(statement, stop)
            case ShowBudget():
                return budget_table(read_balances(self.ledger, self.terms))
            case ShowTables():
                return tables_table(self.catalog, self.terms)
            case ShowFunctions():
                return functions_table()
            case Describe():
                return columns_table(self.catalog, self.terms, name=statement.table)

    def _query(self, query: PublicQuery, stop: Stop | None) -> pa.Table:
        if query.explained:
            return free_plan_table(rewrite_public(query, MOST_PUBLIC_ROWS, dialect=self.catalog.dialect).sql)
        if not has_scan(query):
            rewritten = build_statement(rewrite_public(query, MOST_PUBLIC_ROWS + 1))
            computed = self.evaluator.compute({}, rewritten, stop=within(_CONSTANT_SECONDS, stop))
            return rename_outputs(query, computed)
        rewritten = build_statement(rewrite_public(query, MOST_PUBLIC_ROWS + 1, dialect=self.catalog.dialect))
        if self.public is None:
            return publish(query, self.engine.execute(rewritten))
        return publish(query, self.public.execute(rewritten, stop=stop))

    def complete(self, query: PrivateQuery, stop: Stop | None = None) -> PrivateQuery:
        """Return the query with what public tables hold of it, partitions and guessed counts, and the data version."""
        if query.materialized:
            query = query.at(self.ledger.data_version)
        listed = find_partition_query(query)
        if listed is not None:
            query = set_partition_values(query, self.answer(listed, stop).column(0).to_pylist())
        listed = find_group_query(query)
        if listed is not None:
            query = set_known_groups(query, self.answer(listed, stop).column(0).to_pylist())
        guessed = find_guess_query(query) if query.explained else None
        return query if guessed is None else set_guess(query, self.answer(guessed, stop).column(0).to_pylist())

    def view(self, statement: PrivateQuery | OuterSelect) -> ResultView | OuterSelectView:
        """Return the view of a statement's releases; a SELECT of DuckDB's SQL is bound. Reads no row.

        Raises `Refusal` and `Unsupported` for an outer SELECT that cannot be computed.
        """
        view = result_view(statement)
        if isinstance(view, ResultView):
            return view
        return view.bind(lambda query: self.answer(remove_rows(query)), self.evaluator, known=self._bound)

    def schema(self, statement: Statement) -> pa.Schema:
        """Return the columns of the answer to any statement; of public tables at most the types are looked up."""
        match statement:
            case PublicQuery(explained=True):
                return plan_columns()
            case PublicQuery():  # the catalog has the types, so this waits for no engine
                return self.answer(remove_rows(statement)).schema
            case PrivateQuery() | OuterSelect():
                view = self.view(statement)
                is_plan = isinstance(statement, OuterSelect) and statement.explained
                if is_plan or any(inner.explained for inner in view.inners):
                    return plan_columns()
                return view.fetch(lambda query: self.answer(remove_rows(query))).empty(self.evaluator).schema
        return self.answer(statement).schema
