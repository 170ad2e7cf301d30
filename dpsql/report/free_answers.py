"""Answers that read no private row: public queries, SHOW, DESCRIBE, the history, and the columns of any answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpsql.engines import Engine, PublicStatements, ResultEvaluator
from dpsql.engines.pool import within
from dpsql.ledger.base_ledger import Ledger
from dpsql.ledger.record import Entry
from dpsql.plan.outer_select import (
    MOST_PUBLIC_ROWS,
    Columns,
    OuterSelectView,
    ResultView,
    rename_outputs,
    result_view,
)
from dpsql.plan.plan import build_statement
from dpsql.plan.release import publish
from dpsql.report.balance import Balance, describe_outcome, read_balances, trace_rises
from dpsql.report.stored_tables import StoredTables, answers_table
from dpsql.sql.allow_list import AGGREGATES, FUNCTIONS, INTERVAL_ENDS, WINDOWS
from dpsql.sql.analysis.plain_select import remove_rows
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.literals import Clock, system_clock
from dpsql.sql.ir.measures import SPREADS
from dpsql.sql.ir.statements import (
    Describe,
    Explained,
    OuterSelect,
    PrivateQuery,
    PublicQuery,
    ShowAnswers,
    ShowBudget,
    ShowFunctions,
    ShowTables,
    Statement,
)
from dpsql.sql.ir.tree import has_scan
from dpsql.sql.lexer import ascii_lower
from dpsql.sql.rewrite.public_query import rewrite_public
from dpsql.sql.syntax.block import QUANTILES
from dpsql.terms import Terms

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsql.engines.base import Stop


FreeStatement = PublicQuery | ShowAnswers | ShowBudget | ShowTables | ShowFunctions | Describe
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
    stored: StoredTables
    public: PublicStatements | None = None
    clock: Clock = system_clock
    _bound: dict[object, Columns] = field(default_factory=dict, repr=False, compare=False)

    def answer(self, statement: FreeStatement, stop: Stop | None = None) -> pa.Table:
        """Return the answer. Raises `EngineError`, also soon after `stop` returns True, and `Unsupported`."""
        match statement:
            case PublicQuery():
                return self._answer_public(statement, stop)
            case ShowAnswers():
                return answers_table(self.stored, read_balances(self.ledger, self.terms), now=self.clock())
            case ShowBudget():
                return budget_table(read_balances(self.ledger, self.terms))
            case ShowTables():
                return tables_table(self.catalog, self.terms)
            case ShowFunctions():
                return functions_table()
            case Describe():
                return columns_table(self.catalog, self.terms, name=statement.table)

    def find_comment(self, statement: FreeStatement) -> str:
        """Return the comment on the table that DESCRIBE describes; "" for none, and for other statements."""
        table = self.catalog.find(statement.table) if isinstance(statement, Describe) else None
        return "" if table is None else table.comment

    def _answer_public(self, query: PublicQuery, stop: Stop | None) -> pa.Table:
        stored = self.stored.answer(query)
        if stored is not None:
            return stored
        if query.explained:
            is_verbose = query.explained is Explained.VERBOSE
            return free_plan_table(
                rewrite_public(query, MOST_PUBLIC_ROWS, dialect=self.catalog.dialect).sql if is_verbose else ""
            )
        if not has_scan(query):
            # Without a table DuckDB computes it, and its text is DuckDB's, whatever the engine of the tables speaks.
            # One row more than an answer may have shows that there are too many.
            rewritten = build_statement(rewrite_public(query, MOST_PUBLIC_ROWS + 1))
            computed = self.evaluator.compute({}, rewritten, stop=within(_CONSTANT_SECONDS, stop))
            return rename_outputs(query, computed)
        rewritten = build_statement(rewrite_public(query, MOST_PUBLIC_ROWS + 1, dialect=self.catalog.dialect))
        run = self.engine.execute(rewritten) if self.public is None else self.public.execute(rewritten, stop=stop)
        return rename_outputs(query, publish(query, run))

    def bind_view(self, statement: PrivateQuery | OuterSelect) -> ResultView | OuterSelectView:
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
            case PublicQuery() if statement.explained:
                return facts_table([]).schema
            case PublicQuery():  # the catalog has the types, so this waits for no engine
                return self.answer(remove_rows(statement)).schema
            case PrivateQuery() | OuterSelect():
                view = self.bind_view(statement)
                is_plan = isinstance(statement, OuterSelect) and statement.explained
                if is_plan or any(inner.explained for inner in view.inners):
                    return facts_table([]).schema
                return view.fetch(lambda query: self.answer(remove_rows(query))).empty(self.evaluator).schema
        return self.answer(statement).schema


def facts_table(facts: Sequence[tuple[str, str]]) -> pa.Table:
    """Return EXPLAIN as a table of these properties and values."""
    import pyarrow as pa

    names, values = zip(*facts, strict=True) if facts else ((), ())
    return pa.table({"property": pa.array(names, pa.string()), "value": pa.array(values, pa.string())})


def free_plan_table(sql: str = "") -> pa.Table:
    """Return EXPLAIN of a statement that reads no private row, with the query of the engine if one runs it."""
    return facts_table([("reads", "no private row"), ("cost", "nothing"), *([("engine SQL", sql)] if sql else [])])


def budget_table(balance: Balance) -> pa.Table:
    """Return SHOW BUDGET: granted, spent, reserved and remaining amounts, with the period and its end.

    The first row is the one figure to which receipts add up: the used share in percent. How many usual queries fit
    comes after all amounts, and what is free comes last: a reader of the amounts finds each where it always was.
    Where the values of a column have a budget each, that column is NULL in the rows of a query that counts all units.
    """
    import pyarrow as pa

    parts: list[tuple[str | None, Balance]] = [(None, balance), *sorted(balance.values.items())]
    rows = [(value, *row) for value, each in parts for row in each.table_rows()]
    rows += [(value, *row) for value, each in parts for row in each.tile_rows()]
    rows += [(None, *row) for row in balance.free_rows()]
    values, *columns = zip(*rows, strict=True)
    table = pa.table(dict(zip(("measure", "granted", "spent", "reserved", "remaining"), columns, strict=True)))
    if balance.by is not None:
        table = table.append_column(balance.by, pa.array(values, pa.string()))
    if balance.calendar is None:
        return table
    calendar = balance.calendar
    number, until = (None, None) if calendar.is_over else (calendar.number + 1, calendar.next_begins)
    table = table.append_column("period", pa.array([number] * table.num_rows, pa.int64()))
    return table.append_column("until", pa.array([until] * table.num_rows, pa.timestamp("us", "UTC")))


def functions_table() -> pa.Table:
    """Return SHOW FUNCTIONS: the functions by name, and where a statement may call each."""
    import pyarrow as pa

    used = {
        **dict.fromkeys(FUNCTIONS, "everywhere"),
        **dict.fromkeys(WINDOWS, "with OVER, in subqueries and over public tables"),
        **dict.fromkeys(AGGREGATES, "in subqueries that group by the privacy unit, and over public tables"),
        **dict.fromkeys(SPREADS, "as measures of a private query"),
        **dict.fromkeys(INTERVAL_ENDS, "of measures of a private query"),
        **dict.fromkeys(QUANTILES, "in the select list of a private query"),
        "count": "of distinct privacy units; all counts in subqueries and over public tables",
    }
    columns = zip(*sorted(used.items()), strict=True)
    return pa.table(dict(zip(("function", "used"), map(pa.array, columns), strict=True)))


def history_table(entries: Sequence[Entry], balance: Balance, *, account: str | None) -> pa.Table:
    """Return the queries of an account and their outcomes, the oldest first; rho_charged is NULL while one is open.

    The currencies of the certificate name the columns: rho and delta for zcdp. percent_used is by how much each query
    raised the used share of the budget as it is granted now: what receipts showed, and of a period it adds up to SHOW
    BUDGET. Where the values of a column have a budget each, those of a query are listed; NULL is all units. The
    percent_used is then that of a query of the same values, and adds up over queries of the same values alone.
    """
    import pyarrow as pa

    rises = trace_rises(entries, balance.limit, account=account)
    asked, (first, second) = [entry for entry in entries if entry.account == account], balance.certificate.currencies
    by = balance.by
    charged = [None if entry.settlement is None else float(entry.charged) for entry in asked]
    table = pa.table(
        {
            "asked_at": pa.array([entry.opened_at for entry in asked], pa.timestamp("us", "UTC")),
            "query": pa.array([entry.query for entry in asked], pa.string()),
            "data_version": pa.array([entry.data_version for entry in asked], pa.int64()),
            f"{first}_reserved": pa.array([float(entry.worst_case.refundable) for entry in asked], pa.float64()),
            f"{first}_charged": pa.array(charged, pa.float64()),
            f"{second}_charged": pa.array([float(entry.permanent) for entry in asked], pa.float64()),
            "state": pa.array([describe_outcome(entry) for entry in asked], pa.string()),
            "percent_used": pa.array([float(rises[entry.number].percent) for entry in asked], pa.float64()),
        }
    )
    if by is None:
        return table
    return table.append_column(by, pa.array([list(entry.values) or None for entry in asked], pa.list_(pa.string())))


def tables_table(catalog: Catalog, terms: Terms) -> pa.Table:
    """Return SHOW TABLES: what the policy exposes, whose rows each table holds, and what bounds its queries."""
    import pyarrow as pa

    tables = [*catalog.list_tables()]
    private = [terms.tables.get(table.name) for table in tables]
    return pa.table(
        {
            "name": pa.array([table.name for table in tables], pa.string()),
            "kind": pa.array(
                [
                    table.stored_kind or ("public" if known is None else "private")
                    for table, known in zip(tables, private, strict=True)
                ],
                pa.string(),
            ),
            "privacy_unit": pa.array([table.privacy_unit for table in tables], pa.string()),
            "max_groups_contributed": pa.array(
                [table and table.max_groups_contributed for table in private], pa.int64()
            ),
            "min_units": pa.array([table and table.min_units for table in private], pa.int64()),
        }
    )


def columns_table(catalog: Catalog, terms: Terms, *, name: str) -> pa.Table:
    """Return DESCRIBE: the columns for analysts, the privacy unit, and the columns with one value per unit."""
    import pyarrow as pa

    (table,) = (known for known in catalog.tables if known.name == name)
    unit = None if table.privacy_unit is None else ascii_lower(table.privacy_unit)
    single = set(map(ascii_lower, terms.tables[name].one_value_per_unit)) if name in terms.tables else set[str]()
    return pa.table(
        {
            "column_name": pa.array([column for column, _ in table.columns], pa.string()),
            "column_type": pa.array([str(type_) for _, type_ in table.columns], pa.string()),
            "is_privacy_unit": pa.array([ascii_lower(column) == unit for column, _ in table.columns], pa.bool_()),
            "one_value_per_unit": pa.array([ascii_lower(column) in single for column, _ in table.columns], pa.bool_()),
        }
    )
