"""Guarantees as numbers: what a release costs, how costs add up, and what a total promises."""

from dpsql.accounting.budget import BudgetState, BudgetVector
from dpsql.accounting.calibration import delta_of_each, discrete_gaussian_offset, discrete_gaussian_tail
from dpsql.accounting.certificates.filters import (
    CertificateFilter,
    CertificateTerms,
    OptimalFilter,
    PureFilter,
    TheoremTwoFilter,
    item_price,
)
from dpsql.accounting.certificates.optimal import adaptive_delta, adaptive_epsilon, adaptive_items
from dpsql.accounting.certificates.purchases import item_epsilon, items_bought
from dpsql.accounting.conversions import delta_of_zcdp, epsilon_of_zcdp, rho_of_total
from dpsql.accounting.filter import Filter, add_largest, add_worst_case, check_settlement, fold_values
from dpsql.accounting.guarantees import (
    ZCDP,
    ApproximateDP,
    BoundedRange,
    Certificate,
    Loss,
    PureLoss,
    Steps,
    add_losses,
)
from dpsql.accounting.periods import Periods, describe_periods, total_after
from dpsql.accounting.renyi import RenyiCurve

__all__ = [
    "ZCDP",
    "ApproximateDP",
    "BoundedRange",
    "BudgetState",
    "BudgetVector",
    "Certificate",
    "CertificateFilter",
    "CertificateTerms",
    "Filter",
    "Loss",
    "OptimalFilter",
    "Periods",
    "PureFilter",
    "PureLoss",
    "RenyiCurve",
    "Steps",
    "TheoremTwoFilter",
    "adaptive_delta",
    "adaptive_epsilon",
    "adaptive_items",
    "add_largest",
    "add_losses",
    "add_worst_case",
    "check_settlement",
    "delta_of_each",
    "delta_of_zcdp",
    "describe_periods",
    "discrete_gaussian_offset",
    "discrete_gaussian_tail",
    "epsilon_of_zcdp",
    "fold_values",
    "item_epsilon",
    "item_price",
    "items_bought",
    "rho_of_total",
    "total_after",
]
