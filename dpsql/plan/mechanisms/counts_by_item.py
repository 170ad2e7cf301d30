"""Counts of what was chosen, one item each, drawn after the keys; with one noisy total that they share if that pays.

This is the only place where counts are drawn after a selection. A total pays by a public test of the number of rows
that were chosen, and the price is that of independent noise. Counts of known names must reach an evidence line: what is
below it is left out, for free. `draw_*` only draw; `charge_and_draw_*` also add to loss and items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from dpsql.accounting import ZCDP, discrete_gaussian_offset, laplace_offset
from dpsql.intervals import SharedNoise, find_offset
from dpsql.mechanisms import Noise, SharedTotal
from dpsql.mechanisms.base import Selection
from dpsql.mechanisms.gaussian_threshold import share_false_alarm
from dpsql.plan.mechanisms.base import CountNoise, Groups, ItemLoss, MechanismOutput, NoisyTotal, require_zcdp
from dpsql.quantities import Delta


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
    keys = MechanismOutput(rows, None, price.loss(items, delta), items, stopped_at_bottom=chosen.stopped_at_bottom)
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
