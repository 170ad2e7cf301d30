"""Public facts as tables: the budget, a plan, the tables of the policy, the columns of one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dpsql.ledger.base import Entry
from dpsql.ledger.failures import FAILED
from dpsql.plan.plan import Plan
from dpsql.report.balance import Balance
from dpsql.report.forecast import describe_together
from dpsql.report.forecast import forecast as make_forecast
from dpsql.sql.functions.allow_list import AGGREGATES, FUNCTIONS, INTERVAL_ENDS, WINDOWS
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.lexer import ascii_lower
from dpsql.terms import Terms

if TYPE_CHECKING:
    import pyarrow as pa


_UNANSWERED = frozenset([FAILED, "interrupted"])  # in place of the digest of an answer


def budget_table(balance: Balance) -> pa.Table:
    """Return SHOW BUDGET: granted, spent, reserved and remaining amounts, with the period and its end.

    Where the values of a column have a budget each, that column is NULL in the rows of a query that counts all units.
    """
    import pyarrow as pa

    rows: list[tuple[str | None, str, float, float, float, float]] = [(None, *row) for row in balance.rows()]
    rows += [(value, *row) for value, each in sorted(balance.values.items()) for row in each.rows()]
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
        **dict.fromkeys(INTERVAL_ENDS, "of measures of a private query"),
        "count": "of distinct privacy units; all counts in subqueries and over public tables",
    }
    columns = zip(*sorted(used.items()), strict=True)
    return pa.table(dict(zip(("function", "used"), map(pa.array, columns), strict=True)))


def history_table(entries: Iterable[Entry], currencies: tuple[str, str], *, by: str | None = None) -> pa.Table:
    """Return the queries and their outcomes in the order of `entries`; rho_charged is NULL while a query is open.

    `currencies` are those of the certificate, which name the columns: rho and delta for zcdp. Where the values of the
    column `by` have a budget each, those of a query are listed; NULL is all units.
    """
    import pyarrow as pa

    asked, (first, second) = list(entries), currencies
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
        }
    )
    if by is None:
        return table
    return table.append_column(by, pa.array([list(entry.values) or None for entry in asked], pa.list_(pa.string())))


def describe_outcome(entry: Entry) -> str:
    """Return what became of a query: open, failed, interrupted or answered."""
    if entry.settlement is None:
        return "open"
    return entry.settlement.digest if entry.settlement.digest in _UNANSWERED else "answered"


def plan_columns() -> pa.Schema:
    """Return the columns of EXPLAIN."""
    import pyarrow as pa

    return pa.schema([("property", pa.string()), ("value", pa.string())])


def plan_table(plans: Sequence[Plan], balance: Balance, *, has_outer_select: bool = False) -> pa.Table:
    """Return EXPLAIN as a table; `has_outer_select` says that a SELECT is around the private queries."""
    import pyarrow as pa

    names, values = zip(*describe_plans(plans, balance, has_outer_select=has_outer_select), strict=True)
    return pa.table({"property": names, "value": values}, schema=plan_columns())


def free_plan_table(sql: str = "") -> pa.Table:
    """Return EXPLAIN of a statement that reads no private row, with the query of the engine if one runs it."""
    import pyarrow as pa

    facts = [("reads", "no private row"), ("cost", "nothing"), *([("engine SQL", sql)] if sql else [])]
    names, values = zip(*facts, strict=True)
    return pa.table({"property": names, "value": values}, schema=plan_columns())


def describe_plans(plans: Sequence[Plan], balance: Balance, *, has_outer_select: bool = False) -> list[tuple[str, str]]:
    """Return the facts of each plan, how many such queries the budget still buys, and what all cost together."""
    facts = list[tuple[str, str]]()
    for at, plan in enumerate(plans, start=1):
        facts += [("private query", f"{at} of {len(plans)}")] if len(plans) > 1 else []
        facts += plan.facts()
        if balance.by is not None and not plan.charged_values:
            facts.append(("charged to", plan.describe_charged(balance.by)))
        facts += make_forecast(plan, balance.of(plan.charged_values).remaining, times=1).facts()
    if len(plans) > 1:
        facts.append(("together", describe_together(plans, balance)))
    if has_outer_select:
        facts.append(("around it", "a SELECT of the released rows, which costs nothing"))
    return facts


def tables_table(catalog: Catalog, terms: Terms) -> pa.Table:
    """Return SHOW TABLES: what the policy exposes, whose rows each table holds, and what bounds its queries."""
    import pyarrow as pa

    private = [terms.tables.get(table.name) for table in catalog.tables]
    return pa.table(
        {
            "name": pa.array([table.name for table in catalog.tables], pa.string()),
            "kind": pa.array(["public" if table is None else "private" for table in private], pa.string()),
            "privacy_unit": pa.array([table.privacy_unit for table in catalog.tables], pa.string()),
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
