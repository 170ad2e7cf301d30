"""Release of quantiles: how much rows weigh in each bin is read for the released groups, and each is drawn.

`plan/release.py` opens what the engine returned. What leaves are the values of the bins that were drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpsql.accounting import Loss
from dpsql.errors import EngineError
from dpsql.mechanisms import Noise
from dpsql.plan.mechanisms.names import number_rows
from dpsql.plan.mechanisms.quantiles import DrawnQuantiles, QuantilesPlan
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.tree import Family, Literal, Type
from dpsql.sql.rewrite.engine_query import EngineQuery

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

_TIMES = frozenset([Family.DATE, Family.TIMESTAMP])


def name_quantile(at: int) -> str:
    """Return the name of the column of a quantile in the canonical table."""
    return f"quantile_{at + 1}"


def add_quantiles(
    own: QuantilesPlan,
    query: PrivateQuery,
    *,
    canonical: pa.Table,
    noise: Noise,
    read: Callable[[EngineQuery], pa.Table],
) -> tuple[pa.Table, Loss, int]:
    """Return the released groups with their quantiles, and what these cost: their loss and their items.

    `read` runs a statement and opens what it returns: how much rows weigh in each bin, by group.
    """
    import pyarrow as pa

    groups = canonical.num_rows
    values: list[list[int | float | None]] = [[None] * groups for _ in query.quantiles]
    keys = [f"key_{at + 1}" for at in range(len(query.keys))]
    known = canonical.select(keys)
    if groups:
        statements = own.count_bins(query, list_literals(known, [key.type for key in query.keys]))
        for drawn, counting in zip(own.drawn, statements, strict=True):
            weights = _read_weights(read(counting), known, bins=drawn.bins.count)
            for row in range(groups):
                found = _draw(drawn, weights[row], noise=noise)
                for at, number in zip(drawn.numbers, found, strict=True):
                    type_ = query.quantiles[at].type
                    values[at][row] = None if number is None else drawn.bins.read_value(number, type_)
    for at, quantile in enumerate(query.quantiles):
        type_ = pa.int64() if quantile.type.family is Family.INTEGER else pa.float64()
        canonical = canonical.append_column(name_quantile(at), pa.array(values[at], type_))
    return canonical, own.loss_after(groups), own.price.items_after(groups)


def _draw(drawn: DrawnQuantiles, weights: npt.NDArray[np.int64], *, noise: Noise) -> list[int | None]:
    """Return the bins of the quantiles of one group, in ascending order where they are not None: post-processing."""
    found = [mechanism.select(weights, noise) for mechanism in drawn.mechanisms]
    ordered = iter(sorted(each for each in found if each is not None))
    return [None if each is None else next(ordered) for each in found]


def _read_weights(table: pa.Table, known: pa.Table, *, bins: int) -> npt.NDArray[np.int64]:
    """Return the weight in each bin of each known group, having made sure that the engine kept to the contract.

    Rows of other groups are left out, as those whose key the engine compares otherwise than Arrow.
    """
    import pyarrow as pa

    keys = known.num_columns
    weights = np.zeros((known.num_rows, bins), np.int64)
    numbers = table.columns[keys:]
    if len(numbers) == len(("bin", "weight")) and all(
        column.type == pa.int64() and not column.null_count for column in numbers
    ):
        places, added = (
            np.concatenate([np.empty(0, np.int64), *(np.from_dlpack(chunk) for chunk in column.chunks)])
            for column in numbers
        )
        if 0 <= places.min(initial=0) <= places.max(initial=0) < bins and added.min(initial=0) >= 0:
            rows = number_rows(table.columns[:keys], known) if keys else np.zeros(len(places), np.int64)
            present = rows >= 0
            np.add.at(weights, (rows[present], places[present]), added[present])
            return weights
    raise EngineError(
        "engine-result",
        "The engine's answer does not have the expected columns.",
        hint="Ask the curator whether the data changed while the session was open.",
    )


def list_literals(known: pa.Table, types: Sequence[Type]) -> list[tuple[Literal, ...]]:
    """Return the keys of the released groups as literals, by which a statement names them."""
    import pyarrow as pa

    columns = list[list[Literal]]()
    for column, type_ in zip(known.columns, types, strict=True):
        texts = column.cast(pa.string()) if type_.family in _TIMES else column
        columns.append(
            [
                Literal(value, type_, len(value))
                if isinstance(value, str) and type_.family is Family.TEXT
                else Literal(value, type_)
                for value in texts.to_pylist()
            ]
        )
    return list(zip(*columns, strict=True))
