"""Plans of mechanisms and their records: the rows a mechanism reads, its worst-case loss, and its draw."""

from dpsql.plan.mechanisms.base import (
    CountNoise,
    Groups,
    ItemLoss,
    MechanismOutput,
    MechanismPlan,
    NoisyTotal,
    ReleaseSpec,
    RowsRead,
    SelectionMechanism,
)
from dpsql.plan.mechanisms.record import LEAST_DELTA, MechanismRequest

__all__ = [
    "LEAST_DELTA",
    "CountNoise",
    "Groups",
    "ItemLoss",
    "MechanismOutput",
    "MechanismPlan",
    "MechanismRequest",
    "NoisyTotal",
    "ReleaseSpec",
    "RowsRead",
    "SelectionMechanism",
]
