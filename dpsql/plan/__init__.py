"""The bridge between SQL and mathematics: what a query will cost, what the engine runs, what is released."""

from dpsql.plan.cache.replay_key import replay_key
from dpsql.plan.cache.stored_release import digest_of, pack, unpack
from dpsql.plan.external_release import Draw, ExternalRelease, ReleaseResult
from dpsql.plan.grid import on_grid, progress_of
from dpsql.plan.outer_select import Prepared, ResultView, shown_of
from dpsql.plan.plan import Plan, statement_of
from dpsql.plan.planner import draw
from dpsql.plan.release import MOST_PUBLIC_ROWS, Release, named, publish, release
from dpsql.plan.report.balance import Account, Balance, balance_of
from dpsql.plan.report.forecast import Forecast, forecast
from dpsql.plan.report.shortfall import shortfall
from dpsql.plan.report.simulation import simulated
from dpsql.plan.report.tables import budget_table, columns_table, history_table, plan_columns, plan_table, tables_table
from dpsql.plan.terms import Sublimit, Terms

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
__all__ += ["Draw", "ExternalRelease", "Prepared", "ReleaseResult"]
__all__ += ["ResultView", "digest_of", "replay_key", "shortfall", "shown_of", "simulated", "statement_of"]
__all__ += ["tables_table", "unpack"]
