"""What is said of a plan, a budget and a policy: EXPLAIN, notes, forecasts, balances, and `dpsql check`."""

from dpsql.report.balance import (
    Balance,
    CurrencyBalance,
    compute_balance,
    find_larger_part,
    read_balance,
    read_balances,
)
from dpsql.report.bound_notes import describe_bounds, describe_quantiles
from dpsql.report.consent import find_refusal, warn_of_reach, write_list_note
from dpsql.report.forecast import (
    Forecast,
    check_together,
    count_more,
    count_more_together,
    describe_cost,
    explain_shortfall,
    forecast,
    free_plan_table,
    plan_table,
    simulate_recall,
)
from dpsql.report.free_answers import FreeAnswers, history_table
from dpsql.report.notes import describe_need, explain_short_answer, find_waste, note_ranking

__all__ = [
    "Balance",
    "CurrencyBalance",
    "Forecast",
    "FreeAnswers",
    "check_together",
    "compute_balance",
    "count_more",
    "count_more_together",
    "describe_bounds",
    "describe_cost",
    "describe_need",
    "describe_quantiles",
    "explain_short_answer",
    "explain_shortfall",
    "find_larger_part",
    "find_refusal",
    "find_waste",
    "forecast",
    "free_plan_table",
    "history_table",
    "note_ranking",
    "plan_table",
    "read_balance",
    "read_balances",
    "simulate_recall",
    "warn_of_reach",
    "write_list_note",
]
