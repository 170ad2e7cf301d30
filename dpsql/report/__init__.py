"""What is said of a plan, a budget and a policy: EXPLAIN, advice, forecasts, balances, and `dpsql check`."""

from dpsql.report.advice import describe_need, explain_short_answer, find_waste
from dpsql.report.balance import Account, Balance, compute_balance, read_balance, read_balances
from dpsql.report.bound_notes import describe_bounds
from dpsql.report.forecast import Forecast, check_together, count_more, explain_shortfall, forecast
from dpsql.report.free_answers import FreeAnswers
from dpsql.report.simulation import simulate_recall
from dpsql.report.tables import free_plan_table, history_table, plan_columns, plan_table

__all__ = [
    "Account",
    "Balance",
    "Forecast",
    "FreeAnswers",
    "check_together",
    "compute_balance",
    "count_more",
    "describe_bounds",
    "describe_need",
    "explain_short_answer",
    "explain_shortfall",
    "find_waste",
    "forecast",
    "free_plan_table",
    "history_table",
    "plan_columns",
    "plan_table",
    "read_balance",
    "read_balances",
    "simulate_recall",
]
