"""Stored releases: a release as bytes, for the ledger that stores the answer it charged for, and back.

    dpsql release 1 <SHA-256 of the rest>
    {"key": ..., "items": ..., "loss": ..., "bottom": ..., "chosen": ...}
    <an Arrow stream>

The table is the canonical one, as it was drawn; the answer to any query with the same replay key is computed from it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.accounting import ZCDP
from dpsql.errors import LedgerError
from dpsql.plan.plan import Plan
from dpsql.plan.release import Release, present
from dpsql.quantities import Delta, Rho

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PackedRelease", "pack_release", "unpack"]

_MARK = b"dpsql release 1 "


@dataclass(frozen=True, slots=True)
class PackedRelease:
    """A release ready to be settled: the bytes to store, the digest of what is shown, and the amount to charge."""

    answer: bytes
    digest: str
    loss: Fraction


def pack_release(plan: Plan, release: Release) -> PackedRelease:
    """Return the release of `plan` as the ledger settles it."""
    loss = plan.price(release.loss)
    facts = {
        "key": plan.key,
        "items": release.items_charged,
        "loss": [str(loss.refundable), str(loss.permanent)],
        "bottom": release.stopped_at_bottom,
        "chosen": release.chosen,
    }
    content = json.dumps(facts).encode("ascii") + b"\n" + _stream(release.canonical)
    digest = hashlib.sha256(_stream(release.table)).hexdigest()
    return PackedRelease(_head(content) + content, digest, loss.refundable)


def unpack(plan: Plan, stored: bytes) -> Release:
    """Return a stored release as the answer to `plan`, at the cost at which it was drawn.

    Raises `LedgerError` for bytes that `pack_release` did not write, and for the release of another replay key.
    """
    import pyarrow as pa

    head, _, content = stored.partition(b"\n")
    if head + b"\n" != _head(content):
        reason = "A stored answer is damaged, or another version of dpsql wrote it."
        raise LedgerError("ledger-answer", reason, hint="Run it with fresh = true: new noise, charged again.")
    facts, _, stream = content.partition(b"\n")
    known = json.loads(facts)
    if known["key"] != plan.key:
        reason = "The stored answer is that of another query."
        raise LedgerError("ledger-answer", reason, hint="Run it with fresh = true: new noise, charged again.")
    with pa.ipc.open_stream(stream) as reader:
        canonical = reader.read_all()
    rho, delta = known["loss"]
    loss = plan.mechanism_plan.price.loss(known["items"], plan.delta) if plan.rule else ZCDP(Rho(rho), Delta(delta))
    return Release(
        table=present(plan, canonical),
        canonical=canonical,
        loss=loss,
        items_charged=known["items"],
        stopped_at_bottom=known["bottom"],
        chosen=known.get("chosen"),  # older answers have none
    )


def _head(content: bytes) -> bytes:
    return _MARK + hashlib.sha256(content).hexdigest().encode("ascii") + b"\n"


def _stream(table: pa.Table) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
