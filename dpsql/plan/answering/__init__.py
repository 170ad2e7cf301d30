"""How a query is answered: what a plan asks of any mechanism, and each mechanism asked it, one file for one."""

from dpsql.plan.answering.asked import LEAST_DELTA, Asked
from dpsql.plan.answering.base import Answering, Drawn, Groups, Named, Offer, Price, root_below

__all__ = ["LEAST_DELTA", "Answering", "Asked", "Drawn", "Groups", "Named", "Offer", "Price", "root_below"]
