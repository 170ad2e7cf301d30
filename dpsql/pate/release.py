"""Release of a batch as bytes; besides the planner, only this module opens exact results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.engines import Exact, open_exact
from dpsql.errors import EngineError, LedgerError
from dpsql.mechanisms import Noise
from dpsql.pate.methods import Method
from dpsql.pate.votes import Value

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Batch", "Labels", "release", "unpack"]

Labels = tuple[tuple[Value, ...] | None, ...]
_COLUMNS = 3


@dataclass(frozen=True, slots=True)
class Batch:
    """Examples and the method to label them; `key` is the digest of all that the distribution of labels depends on."""

    examples: tuple[Value, ...]
    method: Method
    key: str


def release(batch: Batch, exact: Exact, *, noise: Noise) -> bytes:
    """Draw the labels of every example of the batch, also of those without votes, and return them as bytes.

    Given: the engine's answer to the method's statement, with the votes of each example in the order of the statement.
    Loss: the method's for every example.
    """
    found: dict[Value, list[tuple[Value, int]]] = {example: [] for example in batch.examples}
    for example, label, votes in _check_rows(batch, open_exact(exact)):
        found[example].append((label, votes))
    labels = [batch.method.draw(votes, noise) for votes in found.values()]
    return json.dumps({"key": batch.key, "labels": labels}).encode("ascii")


def unpack(batch: Batch, released: bytes) -> Labels:
    """Decode the labels that `release` returned for the batch; raise `LedgerError` for any other bytes."""
    reason = "A stored labelling is damaged, or another version of dpsql wrote it."
    damaged = LedgerError(
        "ledger-answer",
        reason,
        hint="Label other examples, or increment the data version: dpsql data bump LEDGER --note REASON",
    )
    try:
        known = json.loads(released)
    except ValueError:
        raise damaged from None
    if not isinstance(known, dict) or known.get("key") != batch.key:
        raise damaged
    return tuple(None if labels is None else tuple(labels) for labels in known["labels"])


def _check_rows(batch: Batch, table: pa.Table) -> Sequence[tuple[Value, Value, int]]:
    """Return the rows; raise `EngineError` if the result violates the contract of the statement."""
    import pyarrow as pa

    is_valid = table.num_columns == _COLUMNS and table.num_rows <= len(batch.examples) * (batch.method.most_labels + 1)
    if is_valid and table.column(2).type == pa.int64() and not any(column.null_count for column in table.columns):
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    raise EngineError(
        "engine-result",
        "The engine returned a result of another shape than the statement defines.",
        hint="Ask the curator whether the data changed while the session was open.",
    )
