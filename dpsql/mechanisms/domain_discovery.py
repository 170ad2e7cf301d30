"""Domain discovery: names first, by weighted Gaussian; then a top-k among them, as over a known domain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpsql.accounting import ZCDP
from dpsql.errors import UsageError
from dpsql.mechanisms.base import FullHistogram, Histogram, LabelPosition, NoisyRelease
from dpsql.mechanisms.gaussian_threshold import WeightedGaussian
from dpsql.mechanisms.peeling import Peeling
from dpsql.mechanisms.sampling.noise import Noise
from dpsql.quantities import Delta, Epsilon, Rho


@dataclass(frozen=True, slots=True)
class Discovery:
    """The groups that were discovered, in the order of their labels, and those chosen among them, in noisy order.

    With at most k discovered there is nothing to choose: these are all of them, in the order of their noisy weights.
    """

    domain: tuple[LabelPosition, ...]
    positions: tuple[LabelPosition, ...]


@dataclass(frozen=True, slots=True)
class DomainDiscovery:
    """Discover the groups whose noisy weight reaches a public threshold; of more than k, peel k by their own counts.

    Given: rho and delta of the discovery, with `max_groups_contributed` and the weights as for `WeightedGaussian`;
    epsilon is the bounded-range parameter of one draw of the peeling. The counts are those of the same groups in the
    same order; one unit changes each by at most `sensitivity` (1 where units are counted), and nothing bounds how many
    groups it is in where it is counted.
    Returns: a `Discovery` of min(k, discovered) positions in noisy rank order; fewer than k tell that no more groups
    passed. The discovered groups are a release too, whether or not they are shown.
    Loss: rho and delta for the discovery, also if it finds nothing; where more than k groups were discovered, k times
    epsilon**2 / 8 besides.
    Utility: the two stages' own; a count that the discovery missed cannot be chosen.
    Cost: one pass over the weights, a draw for each near the threshold, and O(d log d) for d groups discovered.
    Source: Raman, Dick and Joseph 2026, arXiv:2603.14016, weighted Gaussian mechanism and peeling; Delta_0 =
    max_groups_contributed, k = k. The paper gives each stage half of epsilon and delta and pays for k items; here the
    stages add up in rho, and the second takes place, and is charged, only where the first found more than k groups:
    its domain is an earlier answer, and so is the number of them (`maths.md` 9.3, 5.4).

    >>> mechanism = DomainDiscovery(Rho("0.01"), Delta("1e-7"), 100, Epsilon("0.1"), k=8)
    >>> mechanism.worst_case.rho, mechanism.loss(Discovery((0, 3), (3, 0))).rho
    (Rho(0.02), Rho(0.01))
    """

    name: ClassVar[str] = "domain_discovery"  # in SQL
    rho: Rho
    delta: Delta
    max_groups_contributed: int
    epsilon: Epsilon
    k: int
    sensitivity: int = 1

    def __post_init__(self) -> None:
        _ = self.discovery, self.peeling  # which refuse what means nothing

    @property
    def discovery(self) -> WeightedGaussian:
        """Return the first stage."""
        return WeightedGaussian(self.rho, self.delta, self.k, self.max_groups_contributed)

    @property
    def peeling(self) -> Peeling:
        """Return the second stage."""
        return Peeling(self.epsilon, self.k, self.sensitivity)

    @property
    def worst_case(self) -> ZCDP:
        """The loss of the discovery and of k draws."""
        return self.discovery.loss + self.peeling.worst_case

    def select(self, weights: FullHistogram, counts: FullHistogram, *, noise: Noise) -> Discovery:
        """Draw both stages."""
        if len(weights.counts) != len(counts.counts):
            raise UsageError("histogram-size", "Weights and counts must be those of the same groups.")
        passed = self.discovery.passed(weights, noise)
        domain = sorted(at for at, _ in passed)
        if len(domain) <= self.k:
            return Discovery(tuple(domain), NoisyRelease.leading(passed, self.k).positions)
        # A `Histogram` wants descending counts. This exact order never leaves: what is shown is the order of the draws.
        ranked = sorted(domain, key=lambda at: -int(counts.counts[at]))
        known = Histogram(tuple(int(counts.counts[at]) for at in ranked), following=0)
        chosen = self.peeling.select(known, noise)
        return Discovery(tuple(domain), tuple(ranked[at] for at in chosen.positions))

    def loss(self, discovery: Discovery) -> ZCDP:
        """Return what `discovery` cost, at most `worst_case`."""
        return self.worst_case if len(discovery.domain) > self.k else self.discovery.loss
