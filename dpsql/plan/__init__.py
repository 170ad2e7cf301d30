"""The bridge between SQL and mathematics: what a query will cost, what the engine runs, what is released."""

from dpsql.plan.balance import Account, Balance, balance_of
from dpsql.plan.choose import draw
from dpsql.plan.plan import Plan
from dpsql.plan.release import MOST_PUBLIC_ROWS, Release, publish, release
from dpsql.plan.shortfall import shortfall
from dpsql.plan.tables import budget_table, columns_table, plan_table, tables_table
from dpsql.plan.terms import Terms

__all__ = ["MOST_PUBLIC_ROWS", "Account", "Balance", "Plan", "Release", "Terms", "balance_of", "budget_table"]
__all__ += ["columns_table", "draw", "plan_table", "publish", "release", "shortfall", "tables_table"]
