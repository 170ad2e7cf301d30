"""Guarantees as numbers: what a release costs, how costs add up, and what a total promises."""

from dpsql.accounting.adaptive import adaptive_delta, adaptive_epsilon, adaptive_items
from dpsql.accounting.calibration import delta_of_each, discrete_gaussian_offset, discrete_gaussian_tail
from dpsql.accounting.certificates import (
    Amount,
    Certified,
    Columns,
    OptimalFilter,
    PureFilter,
    Rule,
    TheoremTwoFilter,
    Usage,
    item_price,
)
from dpsql.accounting.conversions import delta_of_zcdp, epsilon_of_zcdp, rho_of_total
from dpsql.accounting.filters import Filter, FilterState, check_settlement
from dpsql.accounting.guarantees import ZCDP, ApproximateDP, BoundedRange, Certificate, Loss, PureLoss, Steps
from dpsql.accounting.periods import Periods, total_after, words_of
from dpsql.accounting.purchases import item_epsilon, items_bought
from dpsql.accounting.renyi import RenyiCurve

__all__ = [
    "ZCDP",
    "Amount",
    "ApproximateDP",
    "BoundedRange",
    "Certificate",
    "Certified",
    "Columns",
    "Filter",
    "FilterState",
    "Loss",
    "OptimalFilter",
    "Periods",
    "PureFilter",
    "PureLoss",
    "RenyiCurve",
    "Rule",
    "Steps",
    "TheoremTwoFilter",
    "Usage",
    "adaptive_delta",
    "adaptive_epsilon",
    "adaptive_items",
    "check_settlement",
    "delta_of_each",
    "delta_of_zcdp",
    "discrete_gaussian_offset",
    "discrete_gaussian_tail",
    "epsilon_of_zcdp",
    "item_epsilon",
    "item_price",
    "items_bought",
    "rho_of_total",
    "total_after",
    "words_of",
]
