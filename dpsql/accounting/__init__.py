"""Guarantees as numbers: what a release costs, how costs add up, and what a total promises."""

from dpsql.accounting.calibration import discrete_gaussian_offset, discrete_gaussian_tail
from dpsql.accounting.conversions import delta_of_zcdp, epsilon_of_zcdp, rho_of_total
from dpsql.accounting.filters import Filter, FilterState, check_settlement
from dpsql.accounting.guarantees import ZCDP, ApproximateDP, BoundedRange
from dpsql.accounting.periods import Periods, total_after, words_of

__all__ = [
    "ZCDP",
    "ApproximateDP",
    "BoundedRange",
    "Filter",
    "FilterState",
    "Periods",
    "check_settlement",
    "delta_of_zcdp",
    "discrete_gaussian_offset",
    "discrete_gaussian_tail",
    "epsilon_of_zcdp",
    "rho_of_total",
    "total_after",
    "words_of",
]
