"""Steps of distances from the middle of the public range of a row."""

from __future__ import annotations

from fractions import Fraction

from dpsql.sql.ir.measures import Measure
from dpsql.sql.rewrite.row_steps import count_own

FEWEST_STEPS = 256  # from the middle of a range to its end, for values that are no whole steps


def count_half(total: Measure, half: Fraction, *, most: int) -> int | None:
    """Return the steps from the middle of a range to its end, at most `most`; None where they would be too coarse.

    Values of an exact type are whole numbers of steps where these are few enough.
    """
    own = count_own(total.argument, half)
    if own and own <= most:
        return own << ((most // own).bit_length() - 1)
    return most if most >= FEWEST_STEPS else None
