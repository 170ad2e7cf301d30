"""Draws that several mechanisms share: counts of what was chosen, and the gate in front of a fixed price.

Counts cost one item each and are drawn after the keys; with one noisy total that they share if that pays. This is the
only place where counts are drawn after a selection. A total pays by a public test of the number of rows that were
chosen, and the price is that of independent noise. Counts of known names must reach an evidence line: what is below it
is left out, for free. `draw_*` only draw; `charge_and_draw_*` also add to loss and items.

The gate is in front of a mechanism that costs the same whatever it returns: with WITH (gate = false) there is none.
Known names take part without it: most of them have been found, and the line that they must reach is their evidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dpsql.accounting import ZCDP, discrete_gaussian_offset, laplace_offset
from dpsql.errors import Refusal
from dpsql.intervals import SharedNoise, find_offset
from dpsql.mechanisms import Noise, SharedTotal
from dpsql.mechanisms.base import Selection
from dpsql.mechanisms.gate import LOOK_SHARE, Gate, find_open_probability
from dpsql.mechanisms.gaussian_threshold import share_false_alarm
from dpsql.plan.mechanisms.base import (
    CountNoise,
    Facts,
    Groups,
    ItemLoss,
    MechanismOutput,
    NoisyTotal,
    PrefixLaw,
    require_zcdp,
)
from dpsql.plan.mechanisms.record import MechanismRequest
from dpsql.quantities import Delta, Rho


def pays_total(price: ItemLoss, k: int) -> bool:
    """Say whether counts of some number of rows up to `k` have less noise with a shared total; False without counts."""
    return price.counts is not None and any(_list_sharing(price, labels) for labels in range(2, k + 1))


def _list_sharing(price: ItemLoss, labels: int) -> list[tuple[tuple[int, ...], SharedTotal]]:
    """Return the measures, by number, that share a total where `labels` rows are counted, and how: units all one."""
    if price.counts is None or not price.contributions or labels < 1:
        return []
    units = tuple(at for at, each in enumerate(price.contributions) if each.units)
    alone = [(at,) for at, each in enumerate(price.contributions) if not each.units]
    bound, found = price.counts.max_groups_contributed, []
    for positions in filter(None, (units, *alone)):
        added = price.contributions[positions[0]]
        # With low = -high the number of units has no part in a Y (`SharedTotal.centre` is 0), and a total would help
        # nothing.
        if added.low + added.high:
            shared = SharedTotal(price.epsilon, labels, bound, added.low, added.high, len(positions))
            found += [(positions, shared)] if shared.pays else []
    return found


def draw_measures(keys: MechanismOutput, groups: Groups, *, price: ItemLoss, noise: Noise) -> MechanismOutput:
    """Return the rows that an earlier draw chose with the noisy values of all measures, if any are released.

    Of a measure that shares a total the values are doubled.
    """
    if price.counts is None:
        return keys
    chosen, releases = list(keys.rows), (price.counts, *price.others)
    exact = [each[chosen].tolist() for each in (groups.counts, *groups.others)]
    values, noises, total = dict[int, tuple[int, ...]](), dict[int, CountNoise](), None
    for positions, shared in [] if groups.total is None else _list_sharing(price, len(chosen)):
        drawn = shared.release([exact[at] for at in positions], groups.total or 0, noise=noise)
        values |= zip(positions, drawn.doubled, strict=True)
        parts = SharedNoise(shared.own_variance, shared.total_variance, shared.centre)
        noises |= dict.fromkeys(positions, CountNoise(shared.variance, parts=parts))
        # Each set of measures has a noisy total of its own; the receipt shows the first, which is that of the units if
        # they share one.
        total = total or NoisyTotal(drawn.total, shared.total_variance)
    for at, release in enumerate(releases):
        if at not in values:
            values[at] = tuple(release.release(exact[at], noise))
            noises[at] = CountNoise(release.variance, release.scale)
    first, *others = (values[at] for at in range(len(releases)))
    own = tuple(noises[at] for at in range(len(releases)))
    return replace(keys, counts=first, others=tuple(others), noises=own, total=total)


def charge_and_draw_selection(
    chosen: Selection, price: ItemLoss, *, groups: Groups, delta: Delta, noise: Noise
) -> MechanismOutput:
    """Return the chosen rows, with their counts and other measures if the query releases them."""
    rows = chosen.positions
    items = chosen.steps + price.count_items(len(rows))
    keys = MechanismOutput(
        rows,
        None,
        price.loss(items, delta),
        items,
        stopped_at_bottom=chosen.stopped_at_bottom,
        prefix=PrefixLaw.EXACT,  # the draws are one by one, and none depends on how many follow
    )
    return draw_measures(keys, groups, price=price, noise=noise)


def draw_others(rows: Sequence[int], price: ItemLoss, *, groups: Groups, noise: Noise) -> tuple[tuple[int, ...], ...]:
    """Return the noisy values of the measures after the first, of these rows, each with noise of its own."""
    pairs = zip(price.others, groups.others, strict=True)
    return tuple(tuple(release.release(exact[list(rows)].tolist(), noise)) for release, exact in pairs)


def add_count_loss(loss: ZCDP, keys: int, *, price: ItemLoss) -> ZCDP:
    """Return the loss, plus that of the counts, and further measures, of so many keys if the query releases any."""
    return loss if price.counts is None else loss + ZCDP(price.rho(price.count_items(keys)), Delta(0))


def charge_and_draw_counts(keys: MechanismOutput, groups: Groups, *, price: ItemLoss, noise: Noise) -> MechanismOutput:
    """Return what was drawn with counts and other measures of its rows, drawn and paid for."""
    if price.counts is None:
        return keys
    items = price.count_items(len(keys.rows))
    loss = require_zcdp(keys.loss) + ZCDP(price.rho(items), Delta(0))
    keys = replace(keys, loss=loss, items=keys.items + items)
    return draw_measures(keys, groups, price=price, noise=noise)


def charge_and_draw_others(drawn: MechanismOutput, groups: Groups, *, price: ItemLoss, noise: Noise) -> MechanismOutput:
    """Return what was drawn with the measures after the first of its rows, drawn and paid for."""
    if not price.others:
        return drawn
    items = price.other_items(len(drawn.rows))
    return replace(
        drawn,
        loss=require_zcdp(drawn.loss) + ZCDP(price.rho(items), Delta(0)),
        items=drawn.items + items,
        others=draw_others(drawn.rows, price, groups=groups, noise=noise),
    )


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
    noise, probability = drawn.noises[0], share_false_alarm(k)
    if noise.parts is not None:  # the least value that the noise alone reaches with at most this probability
        line = Fraction(find_offset(noise.parts, probability), 2)
    elif noise.scale is not None:
        line = Fraction(laplace_offset(noise.scale, Fraction(probability)))
    else:
        line = Fraction(discrete_gaussian_offset(noise.variance, probability))
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


_CLOSED = "looked first: nothing stands out, so that the rest of the price was not charged"
_OPEN = "looked first: something stands out"


def find_gate_rho(request: MechanismRequest) -> Rho | None:
    """Return what the gate of a query costs, a share of the rho of the keys; None where it has none.

    Raises `Refusal` for a gate that is asked for where there can be none.
    """
    option = request.query.clause.options.get("gate")
    if option is not None and option.value == "false":
        return None
    if request.known or request.query.partitions is not None:
        if option is not None:
            beside = "PER" if request.query.partitions is not None else "known names"
            hint = "Leave it out, or write gate = false."
            raise Refusal("option", f"There is no gate beside {beside}.", hint=hint, place=option.place)
        return None
    return Rho(request.price.rho(request.price.keys(request.k)).value * LOOK_SHARE)


def build_gate(rho: Rho | None, k: int, *, threshold: int, sensitivity: int) -> Gate | None:
    """Return the gate of this rho before a threshold; None without a rho."""
    if rho is None:
        return None
    return Gate(rho, k, threshold, sensitivity, find_open_probability(k, looks=1))


def leave_behind(rho: Rho, gate: Rho | None) -> Rho:
    """Return the rho of the mechanism behind a gate."""
    return rho if gate is None else Rho(rho.value - gate.value)


def close(
    gate: Gate | None, values: npt.NDArray[np.int64], *, delta: Delta, price: ItemLoss, noise: Noise
) -> MechanismOutput | None:
    """Draw the gate; return the answer without a row if it stays closed, and None where it opens or there is none."""
    if gate is None or gate.draw(values, noise) >= gate.height:
        return None
    item = price.rho(1).value
    items = math.ceil(gate.rho.value / item)
    loss = ZCDP(gate.rho, delta)
    return MechanismOutput((), (), loss, items, stopped_at_bottom=True, legs=_CLOSED, prefix=PrefixLaw.OTHER)


def add_gate_loss(loss: ZCDP, gate: Gate | None) -> ZCDP:
    """Return the loss of a mechanism behind a gate, with that of the gate."""
    return loss if gate is None else ZCDP(loss.rho + gate.rho, loss.delta)


def describe_gate(gate: Gate | None) -> Facts:
    """Return for EXPLAIN what a closed gate costs, as lines of name and value."""
    if gate is None:
        return ()
    cost, opens = float(100 * LOOK_SHARE), float(100 * gate.probability)
    price = f"{cost:.0f} % of the keys' price, but for {opens:.0f} of 100 such queries"
    return (("if nothing stands out", price),)


def describe_opened(gate: Gate | None) -> str:
    """Return in words that a gate opened; "" where there is none."""
    return "" if gate is None else _OPEN
