"""The bridge between SQL and mathematics: what a query will cost, what the engine runs, what is released."""

from dpsql.plan.balance import Account, Balance, balance_of
from dpsql.plan.choose import draw
from dpsql.plan.forecast import Forecast, forecast
from dpsql.plan.grid import on_grid, progress_of
from dpsql.plan.plan import Plan, statement_of
from dpsql.plan.purchase import Bought, Draw, Purchase
from dpsql.plan.release import MOST_PUBLIC_ROWS, Release, named, publish, release
from dpsql.plan.replay import replay_key
from dpsql.plan.shortfall import shortfall
from dpsql.plan.simulation import simulated
from dpsql.plan.stored import digest_of, pack, unpack
from dpsql.plan.tables import budget_table, columns_table, history_table, plan_columns, plan_table, tables_table
from dpsql.plan.terms import Sublimit, Terms
from dpsql.plan.wrapping import Prepared, Shown, shown_of

__all__ = ["MOST_PUBLIC_ROWS", "Account", "Balance", "Forecast", "Plan", "Release", "Sublimit", "Terms", "balance_of"]
__all__ += [
    "budget_table",
    "columns_table",
    "draw",
    "forecast",
    "history_table",
    "named",
    "on_grid",
    "pack",
    "plan_columns",
    "plan_table",
    "progress_of",
    "publish",
    "release",
]
__all__ += ["Bought", "Draw", "Prepared", "Purchase"]
__all__ += ["Shown", "digest_of", "replay_key", "shortfall", "shown_of", "simulated", "statement_of"]
__all__ += ["tables_table", "unpack"]
