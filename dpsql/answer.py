"""What the analyst holds: the private table, and the receipt that says what it cost.

Everything here is post-processing of a release: it may be printed, stored and shared within the guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import version
from typing import TYPE_CHECKING

from dpsql.accounting import ZCDP, ApproximateDP, discrete_gaussian_offset
from dpsql.errors import UsageError
from dpsql.quantities import Delta, Epsilon

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

__all__ = ["Answer", "CountColumns", "Receipt"]

NO_MECHANISM = "none"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one statement released and cost; a statement that reads no private row has mechanism "none"."""

    mechanism: str
    k: int
    k_bar: int
    epsilon: Epsilon | None
    delta: Delta
    threshold_offset: Fraction
    items_charged: int
    loss: ZCDP
    remaining: ZCDP
    stopped_at_bottom: bool
    sealed: bool
    replayed: bool = False

    @classmethod
    def free(cls, remaining: ZCDP, *, sealed: bool) -> Receipt:
        """Return the receipt of a statement that reads no private row."""
        nothing = ZCDP.nothing()
        return cls(
            mechanism=NO_MECHANISM,
            k=0,
            k_bar=0,
            epsilon=None,
            delta=nothing.delta,
            threshold_offset=Fraction(0),
            items_charged=0,
            loss=nothing,
            remaining=remaining,
            stopped_at_bottom=False,
            sealed=sealed,
        )

    def __str__(self) -> str:
        if self.mechanism == NO_MECHANISM:
            return "no private row was read; nothing was charged"
        ending = "stopped at BOTTOM: nothing else stands out" if self.stopped_at_bottom else "all k were returned"
        return (
            f"{self.mechanism}: charged {self.items_charged} items of epsilon {self.epsilon} "
            f"({self.loss}); {ending}; remaining {self.remaining}"
        )


@dataclass(frozen=True, slots=True)
class CountColumns:
    """Which columns are released counts, and the variance of their discrete Gaussian noise."""

    names: tuple[str, ...]
    variance: Fraction


@dataclass(frozen=True, slots=True)
class Promise:
    """What the answer's citation speaks of: the protected unit, its table and the data set's total."""

    unit: str
    table: str
    total: ApproximateDP


class Answer:
    """A private answer: its table, its receipt, and the sentence that cites it."""

    __slots__ = ("_counts", "_promise", "_table", "receipt")

    def __init__(
        self, table: pa.Table, receipt: Receipt, *, counts: CountColumns | None = None, promise: Promise | None = None
    ) -> None:
        self._table = table
        self.receipt = receipt
        self._counts = counts
        self._promise = promise

    def arrow(self) -> pa.Table:
        """Return the released table: exactly the columns asked for, typed by the query, in noisy rank order."""
        return self._table

    def fetchall(self) -> list[tuple[object, ...]]:
        """Return the rows as Python tuples; dates outside Python's calendar come as text."""
        columns = [_to_python(column) for column in self._table.columns]
        return list(zip(*columns, strict=True))

    @property
    def counts(self) -> CountColumns | None:
        """The released counts and their noise; None when only keys were released."""
        return self._counts

    def df(self) -> pd.DataFrame:
        """Return a pandas DataFrame; needs the extra dpsql[pandas]."""
        try:
            import pandas  # noqa: F401, ICN001 - only whether it is there
        except ImportError:
            missing = True
        else:
            missing = False
        if missing:
            raise _not_installed("pandas")
        return self._table.to_pandas()

    def pl(self) -> pl.DataFrame:
        """Return a polars DataFrame; needs the extra dpsql[polars]."""
        try:
            import polars as pl
        except ImportError:
            missing = True
        else:
            missing = False
        if missing:
            raise _not_installed("polars")
        frame = pl.from_arrow(self._table)
        return frame if isinstance(frame, pl.DataFrame) else frame.to_frame()

    def intervals(self, level: float = 0.95) -> pa.Table:
        """Return the keys with `low` and `high`, between which the exact count lies with probability `level`.

        Per row, for the noise of the released count; with bounded contributions, of the bounded count.
        """
        import pyarrow as pa

        if self._counts is None:
            hint = "Select COUNT(DISTINCT <privacy unit>) to release counts; each costs one item."
            raise UsageError("no-counts", "This answer released no counts.", hint=hint)
        if not 0 < level < 1:
            raise UsageError("level-range", "The level of an interval must lie strictly between 0 and 1.")
        reach = discrete_gaussian_offset(self._counts.variance, (1.0 - level) / 2.0) - 1
        centre = self._table.column(self._counts.names[0]).to_pylist()
        keys = [name for name in self._table.column_names if name not in self._counts.names]
        low = pa.array([max(0, count - reach) for count in centre], pa.int64())
        high = pa.array([max(0, count + reach) for count in centre], pa.int64())
        return self._table.select(keys).append_column("low", low).append_column("high", high)

    def statement(self) -> str:
        """Return one sentence to cite: unit, neighbours, the data set's total, what this answer cost, the version."""
        if self._promise is None:
            return f"This answer of dpsql {version('dpsql')} read no private row."
        promise, receipt = self._promise, self.receipt
        return (
            f"Each {promise.unit} of {promise.table} is protected: adding or removing all rows of one {promise.unit} "
            f"changes the probability of anything released from this data set, over all queries and analysts, within "
            f"{promise.total} in all; this answer cost {receipt.loss} of that budget, accounted in zero-concentrated "
            f"differential privacy (dpsql {version('dpsql')}, {receipt.mechanism})."
        )

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __repr__(self) -> str:
        lines = [" | ".join(self._table.column_names)]
        lines += [" | ".join(map(str, row)) for row in self.fetchall()[:_SHOWN]]
        if len(self) > _SHOWN:
            lines.append(f"... {len(self)} rows")
        return "\n".join([*lines, str(self.receipt)])


_SHOWN = 20


def _to_python(column: pa.ChunkedArray) -> list[object]:
    """Return Python values, or text where Python's calendar ends before Arrow's."""
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        return [_scalar(value) for value in column]


def _scalar(value: pa.Scalar) -> object:
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        return str(value.value)


def _not_installed(package: str) -> UsageError:
    hint = f"Install it: pip install 'dpsql[{package}]'."
    return UsageError("not-installed", f"The package {package} is not installed.", hint=hint)
