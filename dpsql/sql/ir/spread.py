"""Statistics of spread: variance, standard deviation and covariance, each by the names that SQL has for it."""

from __future__ import annotations

from enum import Enum


class Statistic(Enum):
    """Statistic of the rows of a group that is computed from several released measures.

    All are of distances from the middle of the public range of a row. A sample's is N / (N - 1) times the population's.
    """

    VAR_POP = "VAR_POP"
    VAR_SAMP = "VAR_SAMP"
    STDDEV_POP = "STDDEV_POP"
    STDDEV_SAMP = "STDDEV_SAMP"
    COVAR_POP = "COVAR_POP"
    COVAR_SAMP = "COVAR_SAMP"

    @property
    def is_of_sample(self) -> bool:
        """Whether it estimates the spread of what the rows are a sample of: it needs two rows."""
        return self.value.endswith("_SAMP")

    @property
    def is_root(self) -> bool:
        """Whether it is the square root of a variance."""
        return self.value.startswith("STDDEV")

    @property
    def is_of_pairs(self) -> bool:
        """Whether it is of two arguments."""
        return self.value.startswith("COVAR")

    @property
    def fewest_rows(self) -> int:
        """Number of rows below which it is NULL."""
        return 2 if self.is_of_sample else 1


SPREADS = {
    **{each.value.lower(): each for each in Statistic},
    "variance": Statistic.VAR_SAMP,
    "var": Statistic.VAR_SAMP,
    "stddev": Statistic.STDDEV_SAMP,
}
