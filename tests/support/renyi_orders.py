"""The Renyi order at which the conversion of zero-concentration takes its bound."""

from __future__ import annotations

import math

from dpsql.accounting.guarantees import _epsilon, _log_inverse, find_minimum
from dpsql.quantities import Delta, Rho


def best_alpha(rho: Rho, delta: Delta) -> float:
    level = _log_inverse(delta)
    return 1.0 + math.exp(find_minimum(lambda x: _epsilon(lambda alpha: alpha * float(rho), level, x=x)))
