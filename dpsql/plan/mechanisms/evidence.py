"""Evidence line of counts that were drawn after a choice among known names: what is below it is left out, for free."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from dpsql.accounting import discrete_gaussian_offset
from dpsql.intervals import find_offset
from dpsql.mechanisms.known_names import share_false_alarm
from dpsql.mechanisms.sampling.laplace_tails import laplace_offset
from dpsql.plan.mechanisms.base import CountNoise, MechanismOutput

__all__ = ["GATE_CLOSED", "GATE_OPEN", "leave_out_below_line"]

GATE_CLOSED = "gate closed: the rest of the items was not charged"
GATE_OPEN = "gate open, so that some name has rows"


def leave_out_below_line(drawn: MechanismOutput, k: int) -> MechanismOutput:
    """Return what was drawn without the names whose first noisy measure is below the line of k names.

    The largest noise of k names reaches the line with probability 0.05 at most: k of them, and not all that are known,
    since this noise does not depend on the choice. Post-processing: what was drawn is charged, and `legs` says how many
    names were left out. Without counts nothing is.
    """
    if drawn.counts is None:
        return drawn
    noise = drawn.noises[0]
    line = _find_line(noise, share_false_alarm(k))
    kept = [at for at, value in enumerate(noise.read(drawn.counts)) if value >= line]
    left_out = len(drawn.rows) - len(kept)
    if not left_out:
        return drawn
    return replace(
        drawn,
        rows=tuple(drawn.rows[at] for at in kept),
        counts=tuple(drawn.counts[at] for at in kept),
        others=tuple(tuple(values[at] for at in kept) for values in drawn.others),
        stopped_at_bottom=True,
        legs="; ".join(filter(None, [drawn.legs, f"left out, as their counts are below the line: {left_out}"])),
    )


def _find_line(noise: CountNoise, probability: float) -> Fraction:
    """Return the least value, whole or half, that the noise alone reaches with at most this probability."""
    if noise.parts is not None:
        return Fraction(find_offset(noise.parts, probability), 2)
    if noise.scale is not None:
        return Fraction(laplace_offset(noise.scale, Fraction(probability)))
    return Fraction(discrete_gaussian_offset(noise.variance, probability))
