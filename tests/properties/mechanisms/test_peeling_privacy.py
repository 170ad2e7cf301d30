"""The guarantee of peeling, computed exactly for every neighbour of every small histogram over a known domain.

The checks take a `Variant`: production is the default, and each known mistake is a variant that they must catch.
"""

from __future__ import annotations

import math

import pytest
from properties.mechanisms.laws.peeling import Variant, permute_and_flip, worst

from dpsql.mechanisms import Peeling
from dpsql.quantities import Epsilon


def test_permute_and_flip_is_what_it_is_called() -> None:
    mechanism = Peeling(Epsilon(1), 2)
    assert math.fsum(permute_and_flip(mechanism, (5, 2, 1)).values()) == pytest.approx(1.0, abs=1e-12)
    assert worst("pure", [Peeling(Epsilon(1), 1)], Variant(law=permute_and_flip)) == pytest.approx(1.0, abs=1e-9)
