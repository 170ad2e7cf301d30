"""How a query is answered: what a plan asks of any mechanism, and each mechanism asked it, one file for one."""

from dpsql.plan.mechanisms.base import (
    Groups,
    ItemLoss,
    MechanismOutput,
    MechanismPlan,
    Named,
    ReleaseSpec,
    sqrt_rounded_down,
)
from dpsql.plan.mechanisms.request import LEAST_DELTA, MechanismRequest

__all__ = [
    "LEAST_DELTA",
    "Groups",
    "ItemLoss",
    "MechanismOutput",
    "MechanismPlan",
    "MechanismRequest",
    "Named",
    "ReleaseSpec",
    "sqrt_rounded_down",
]
