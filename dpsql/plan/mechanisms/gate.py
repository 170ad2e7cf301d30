"""The gate in front of a mechanism that costs the same whatever it returns: with WITH (gate = false) there is none.

Known names take part without it: most of them have been found, and the line that they must reach is their evidence.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpsql.accounting import ZCDP
from dpsql.errors import Refusal
from dpsql.mechanisms import Noise
from dpsql.mechanisms.gate import LOOK_SHARE, Gate, find_open_probability
from dpsql.plan.mechanisms.base import Facts, ItemLoss, MechanismOutput
from dpsql.plan.mechanisms.request import MechanismRequest
from dpsql.quantities import Delta, Rho

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
    return MechanismOutput((), (), ZCDP(gate.rho, delta), items, stopped_at_bottom=True, legs=_CLOSED)


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
