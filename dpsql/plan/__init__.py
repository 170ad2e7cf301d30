"""The bridge between SQL and mathematics: what a query will cost, what the engine runs, what is released."""

from dpsql.plan.balance import Account, Balance, balance_of
from dpsql.plan.choose import draw
from dpsql.plan.plan import Plan
from dpsql.plan.release import Release, release
from dpsql.plan.shortfall import shortfall
from dpsql.plan.terms import Terms

__all__ = ["Account", "Balance", "Plan", "Release", "Terms", "balance_of", "draw", "release", "shortfall"]
