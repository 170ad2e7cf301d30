"""Steps of distances from the middle of the public range of a row."""

from __future__ import annotations

from fractions import Fraction

from dpsql.sql.ir.measures import Measure
from dpsql.sql.ir.tree import Expression
from dpsql.sql.ir.types import Family

FEWEST_STEPS = 256  # from the middle of a range to its end, for values that are no whole steps


def count_half(total: Measure, half: Fraction, *, most: int) -> int | None:
    """Return the steps from the middle of a range to its end, at most `most`; None where they would be too coarse.

    Values of an exact type are whole numbers of steps where these are few enough.
    """
    own = count_own(total.argument, half)
    if own and own <= most:
        return own << ((most // own).bit_length() - 1)
    return most if most >= FEWEST_STEPS else None


def count_own(argument: Expression | None, half: Fraction) -> int:
    """Return how many halves of the last digit of its type are in half of a range; 0 where that is no whole number."""
    if argument is None or argument.type.family is Family.DOUBLE:
        return 0
    own = 2 * half * 10 ** argument.type.precision[1]
    return int(own) if own.denominator == 1 else 0
