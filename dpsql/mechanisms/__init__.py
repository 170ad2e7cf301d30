"""Mechanisms: exact counts in, private choices out, each with a loss that was proved."""

from dpsql.mechanisms.base import Mechanism, Selection
from dpsql.mechanisms.choose_k_bar import ChooseKBar
from dpsql.mechanisms.discrete_gaussian import NoisyCounts, discrete_gaussian
from dpsql.mechanisms.discrete_laplace import discrete_laplace
from dpsql.mechanisms.fixed_stable_top_k import FixedStableSelection, FixedStableTopK
from dpsql.mechanisms.gap_choice import GapChoice, distance_regulariser
from dpsql.mechanisms.histogram import Histogram
from dpsql.mechanisms.laplace_limited_domain import CountedSelection, LaplaceLimitedDomain
from dpsql.mechanisms.limited_domain import LimitedDomain
from dpsql.mechanisms.noise import Noise, OperatingSystemNoise
from dpsql.mechanisms.peeling import Peeling
from dpsql.mechanisms.propose_test_release import PTRGaussian, PTRLaplace
from dpsql.mechanisms.report_noisy_max import NoisyMaxGaussian, NoisyMaxGumbel, OneShotLaplace, PermuteAndFlip
from dpsql.mechanisms.stable_top_k import StableSelection, StableTopK
from dpsql.mechanisms.top_stable import TopStable, TopStableSelection

__all__ = [
    "ChooseKBar",
    "CountedSelection",
    "FixedStableSelection",
    "FixedStableTopK",
    "GapChoice",
    "Histogram",
    "LaplaceLimitedDomain",
    "LimitedDomain",
    "Mechanism",
    "Noise",
    "NoisyCounts",
    "NoisyMaxGaussian",
    "NoisyMaxGumbel",
    "OneShotLaplace",
    "OperatingSystemNoise",
    "PTRGaussian",
    "PTRLaplace",
    "Peeling",
    "PermuteAndFlip",
    "Selection",
    "StableSelection",
    "StableTopK",
    "TopStable",
    "TopStableSelection",
    "discrete_gaussian",
    "discrete_laplace",
    "distance_regulariser",
]
