"""Answers and receipts made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pyarrow as pa

from dpsql.accounting import ZCDP, ApproximateDP, BudgetVector, Rise
from dpsql.answer import Answer, CountColumns, Promise
from dpsql.quantities import Delta, Epsilon, Rho
from dpsql.receipt import Receipt

LOSS = ZCDP(Rho("0.00625"), Delta("2.5e-8"))


LEFT = BudgetVector("0.0166875", "4.75e-7")


def receipt(*, stopped: bool = False, bounded_by: int | None = None, bounds: str = "") -> Receipt:
    return Receipt(
        mechanism="limited_domain",
        k=10,
        k_bar=200,
        epsilon=Epsilon("0.05"),
        delta=Delta("2.5e-8"),
        threshold_offset=Fraction(457),
        items_charged=20,
        loss=LOSS,
        remaining=LEFT,
        stopped_at_bottom=stopped,
        sealed=True,
        answered=10,
        wanted=10,
        rise=Rise.between(Fraction(0), Fraction(3, 11)),
        more=2,
        bounded_by=bounded_by,
        bounds=bounds,
    )


def answer_of(
    columns: dict[str, pa.Array], *, measures: Sequence[CountColumns] = (), bounded_by: int | None = None
) -> Answer:
    promise = Promise("user_id", "reads", ApproximateDP(Epsilon(1), Delta("1e-6")))
    bounds = (
        "" if bounded_by is None else f"each user counted in at most {bounded_by} groups: true counts can be higher"
    )
    return Answer(pa.table(columns), receipt(bounded_by=bounded_by, bounds=bounds), measures=measures, promise=promise)


def counted(counts: list[int], variance: object = 1600) -> Answer:
    columns = {"key": pa.array([f"k{at}" for at in range(len(counts))], pa.string()), "n": pa.array(counts, pa.int64())}
    return answer_of(columns, measures=[CountColumns((1,), Fraction(variance))])  # type: ignore[arg-type]
