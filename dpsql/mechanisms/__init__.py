"""Mechanisms: exact counts in, private choices out, each with a loss that was proved."""

from dpsql.mechanisms.base import Mechanism, Selection
from dpsql.mechanisms.discrete_gaussian import NoisyCounts, discrete_gaussian
from dpsql.mechanisms.histogram import Histogram
from dpsql.mechanisms.limited_domain import LimitedDomain
from dpsql.mechanisms.noise import Noise, OperatingSystemNoise
from dpsql.mechanisms.peeling import Peeling
from dpsql.mechanisms.stable_top_k import StableSelection, StableTopK

__all__ = [
    "Histogram",
    "LimitedDomain",
    "Mechanism",
    "Noise",
    "NoisyCounts",
    "OperatingSystemNoise",
    "Peeling",
    "Selection",
    "StableSelection",
    "StableTopK",
    "discrete_gaussian",
]
