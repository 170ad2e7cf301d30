"""Mechanisms: exact counts in, private choices out, each with a loss that was proved."""

from dpsql.mechanisms.base import FullHistogram, Histogram, NoisyRelease, Selection
from dpsql.mechanisms.domain_discovery import Discovery, DomainDiscovery
from dpsql.mechanisms.fixed_stable_top_k import FixedStableSelection, FixedStableTopK
from dpsql.mechanisms.gaussian_threshold import WEIGHT_STEPS, GaussianHistogram, WeightedGaussian, unit_weight
from dpsql.mechanisms.joint import JointExponential
from dpsql.mechanisms.limited_domain import ChooseKBar, CountedSelection, LaplaceLimitedDomain, LimitedDomain
from dpsql.mechanisms.noisy_counts import (
    VOTE_STEPS,
    CountRelease,
    KnownGroups,
    LaplaceCounts,
    NoisyCounts,
    NoisyVotes,
    SharedTotal,
    SharedTotalRelease,
    vote_weight,
)
from dpsql.mechanisms.peeling import EvidenceGate, EvidentPeeling, EvidentSelection, Peeling
from dpsql.mechanisms.report_noisy_max import NoisyMaxGaussian, NoisyMaxGumbel, OneShotLaplace, PermuteAndFlip
from dpsql.mechanisms.sampling.discrete_noise import discrete_gaussian, discrete_laplace
from dpsql.mechanisms.sampling.noise import Noise, OperatingSystemNoise
from dpsql.mechanisms.stable_top_k import (
    GapChoice,
    GaussianGapChoice,
    GaussianStableTopK,
    PTRGaussian,
    PTRLaplace,
    StableSelection,
    StableTopK,
    distance_regulariser,
)
from dpsql.mechanisms.top_stable import TopStable, TopStableSelection

__all__ = [
    "VOTE_STEPS",
    "WEIGHT_STEPS",
    "ChooseKBar",
    "CountRelease",
    "CountedSelection",
    "Discovery",
    "DomainDiscovery",
    "EvidenceGate",
    "EvidentPeeling",
    "EvidentSelection",
    "FixedStableSelection",
    "FixedStableTopK",
    "FullHistogram",
    "GapChoice",
    "GaussianGapChoice",
    "GaussianHistogram",
    "GaussianStableTopK",
    "Histogram",
    "JointExponential",
    "KnownGroups",
    "LaplaceCounts",
    "LaplaceLimitedDomain",
    "LimitedDomain",
    "Noise",
    "NoisyCounts",
    "NoisyMaxGaussian",
    "NoisyMaxGumbel",
    "NoisyRelease",
    "NoisyVotes",
    "OneShotLaplace",
    "OperatingSystemNoise",
    "PTRGaussian",
    "PTRLaplace",
    "Peeling",
    "PermuteAndFlip",
    "Selection",
    "SharedTotal",
    "SharedTotalRelease",
    "StableSelection",
    "StableTopK",
    "TopStable",
    "TopStableSelection",
    "WeightedGaussian",
    "discrete_gaussian",
    "discrete_laplace",
    "distance_regulariser",
    "unit_weight",
    "vote_weight",
]
