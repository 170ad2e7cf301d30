"""The release of a query: the one place where its exact result is opened and its noise is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpsql.accounting import ZCDP
from dpsql.engines import Exact, open_exact
from dpsql.errors import EngineError, Unsupported
from dpsql.mechanisms import Noise
from dpsql.plan.answering import Groups
from dpsql.plan.arrow import arrow_type, kept, ordered
from dpsql.plan.monotone import monotone
from dpsql.plan.plan import Plan
from dpsql.sql.query import PublicQuery

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

__all__ = ["MOST_PUBLIC_ROWS", "Release", "presented", "publish", "release"]

MOST_PUBLIC_ROWS = 1_000_000
COUNT = "count"


@dataclass(frozen=True, slots=True)
class Release:
    """What leaves: the private table as the query shows it, the same as it was drawn, and what it cost.

    `canonical` has the keys in the plan's order and then the counts, if any were drawn, in released order. `chosen` is
    the k or k_bar that the mechanism chose, where it was left to it.
    """

    table: pa.Table
    canonical: pa.Table
    loss: ZCDP
    items_charged: int
    stopped_at_bottom: bool
    chosen: int | None = None


def release(plan: Plan, exact: Exact, *, noise: Noise) -> Release:
    """Draw the private answer of `plan` from the exact groups.

    Given: the engine's answer to `plan.counting`, keys first, then the count and, if asked for, the weight: at most
    k_bar + 1 groups, every candidate of a known domain, or all groups.
    Loss: for every key, count and BOTTOM returned one item, or all of them at once; delta once.
    """
    import pyarrow as pa

    table = open_exact(exact)
    drawn = plan.answering.draw(Groups(*_measures(plan, table)), noise)
    canonical = _canonical(plan, table.take(pa.array(drawn.rows, pa.int64())), private=drawn.counts)
    return Release(
        presented(plan, canonical), canonical, drawn.loss, drawn.items, drawn.stopped_at_bottom, drawn.chosen
    )


def _measures(plan: Plan, table: pa.Table) -> list[npt.NDArray[np.int64]]:
    """Return the counts, and the weights if asked for, having made sure that the engine kept to the contract."""
    import pyarrow as pa

    offer, keys = plan.offer, len(plan.query.keys)
    shaped = table.num_columns == keys + 1 + offer.weighted and (
        offer.most_rows is None or table.num_rows <= offer.most_rows
    )
    columns = table.columns[keys:] if shaped else []
    if columns and all(column.type == pa.int64() and not column.null_count for column in columns):
        measures = [_integers(column) for column in columns]
        if all(measure.min(initial=offer.least_count) >= offer.least_count for measure in measures):
            return measures
    raise EngineError(
        "engine-result",
        "The engine's answer does not have the shape that was asked for.",
        hint="Ask the curator whether the data changed while the session was open.",
    )


def _integers(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return the values as they stand in memory; to_numpy would import pandas, which swallows an interrupt."""
    return np.concatenate([np.empty(0, np.int64), *(np.from_dlpack(chunk) for chunk in column.chunks)])


def _canonical(plan: Plan, chosen: pa.Table, *, private: tuple[int, ...] | None) -> pa.Table:
    """Return all that is released, its types from the query: every key, then the noisy counts, if any were drawn."""
    import pyarrow as pa

    keys = plan.query.keys
    columns = {f"key_{at}": chosen.column(at - 1).cast(arrow_type(key.type)) for at, key in enumerate(keys, start=1)}
    return pa.table(columns if private is None else {**columns, COUNT: pa.array(private, pa.int64())})


def presented(plan: Plan, canonical: pa.Table) -> pa.Table:
    """Return the released columns that were asked for, by their names, adjusted, filtered, ordered and cut as asked.

    Post-processing alone: `canonical` may be the release of any plan with the same replay key.
    """
    import pyarrow as pa

    query = plan.query
    if plan.monotone:
        counts = pa.array(monotone(canonical.column(COUNT).to_pylist()), pa.int64())
        canonical = canonical.set_column(canonical.column_names.index(COUNT), COUNT, counts)
    columns = [canonical.column(COUNT if output.key is None else f"key_{output.key + 1}") for output in query.outputs]
    released = pa.Table.from_arrays(columns, names=[output.name for output in query.outputs])
    released = ordered(kept(released, query.keep), query.order)
    return released if query.limit is None else released.slice(0, min(query.limit, released.num_rows))


def publish(query: PublicQuery, exact: Exact) -> pa.Table:
    """Return the answer to a query over public tables, which protect nobody, under the names of its outputs."""
    table = open_exact(exact)
    if table.num_rows > MOST_PUBLIC_ROWS:
        hint = f"Add LIMIT {MOST_PUBLIC_ROWS}, or ask for fewer rows."
        raise Unsupported("too-many-rows", f"The answer has more than {MOST_PUBLIC_ROWS} rows.", hint=hint)
    return table.rename_columns(list(query.names))
