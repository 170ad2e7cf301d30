"""Answer for the analyst: the private table, its receipt, and the notes that belong beside it.

Everything here is post-processing of a release: it may be printed, stored and shared within the guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, cast, overload

from dpsql.accounting import ApproximateDP, BudgetVector, Periods
from dpsql.display import (
    MAX_ROWS,
    Cost,
    Ends,
    ReleasedTable,
    SheetColumn,
    format_date,
    format_value,
    released_html,
    replace_unprintable,
    write_csv,
)
from dpsql.engines.arrow_types import narrow_integers, read_values
from dpsql.errors import UsageError
from dpsql.intervals import (
    LEVEL,
    AveragePlace,
    SharedNoise,
    SpreadLaw,
    Steps,
    ValueNoise,
    check_level,
    widen_quotients,
    widen_shares,
)
from dpsql.receipt import NO_MECHANISM, Receipt, Total

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from matplotlib.axes import Axes
    from rich.console import Group


_COUNTS_THRESHOLD = "gaussian_histogram"  # the mechanism whose threshold is a public count
_SHOWN = 30  # EXPLAIN has fewer


@dataclass(frozen=True, slots=True)
class AverageColumns:
    """Positions of the columns of a released average, and the noisy `sums` and numbers of `rows` it is computed from.

    These are in steps, one for each row of the answer, and their noises are known. Averages are distances from the
    centre of their `place`. Those of which one was `adjusted` after the release have no intervals.
    """

    columns: tuple[int, ...]
    sums: tuple[int | Fraction, ...]
    rows: tuple[int | Fraction, ...]
    noises: tuple[ValueNoise, ValueNoise]
    place: AveragePlace = field(default_factory=AveragePlace)
    adjusted: bool = False

    def widen(self, level: float) -> tuple[list[object], list[object]]:
        """Return the ends of the intervals of all rows; None for NULL."""
        pairs = list(zip(self.sums, self.rows, strict=True))
        return widen_quotients(pairs, noises=self.noises, level=level, place=self.place)

    def surround(self, values: Sequence[object]) -> list[Ends]:
        """Return the ends of the 95 % intervals of the first rows, whose values are given; None for NULL."""
        most = len(values)
        low, high = replace(self, sums=self.sums[:most], rows=self.rows[:most]).widen(LEVEL)
        return [None if None in pair else cast("Ends", pair) for pair in zip(low, high, strict=True)]


@dataclass(frozen=True, slots=True)
class SpreadColumns:
    """Positions of the columns of a released spread, and for each row of the answer the noisy steps it is made from.

    Those of which one was `adjusted` after the release have no intervals.
    """

    columns: tuple[int, ...]
    steps: tuple[tuple[Steps, ...], ...]
    law: SpreadLaw
    adjusted: bool = False

    def widen(self, level: float) -> tuple[list[object], list[object]]:
        """Return the ends of the intervals of all rows; None for NULL."""
        check_level(level)
        ends = [self.law.widen(each, level) or (None, None) for each in self.steps]
        return [low for low, _ in ends], [high for _, high in ends]

    def surround(self, values: Sequence[object]) -> list[Ends]:
        """Return the ends of the 95 % intervals of the first rows, whose values are given; None for NULL."""
        low, high = replace(self, steps=self.steps[: len(values)]).widen(LEVEL)
        return [None if None in pair else cast("Ends", pair) for pair in zip(low, high, strict=True)]


@dataclass(frozen=True, slots=True)
class CountColumns:
    """Positions of the columns of a released measure, such as counts, and their noise.

    The noise is discrete Gaussian of the variance or, with a scale, discrete Laplace, whose variance is at most that;
    both are in steps of which each is worth `step`: 1 where units or rows are counted. Counts that were `adjusted`
    after the release (monotone = true) are not the noisy ones. `may_be_negative` says that exact sums may be. `parts`
    are those of the noise where the values share a noisy total, and `counts_units` says that they are numbers of units.
    """

    columns: tuple[int, ...]
    variance: Fraction
    scale: Fraction | None = None
    adjusted: bool = False
    step: Fraction = Fraction(1)
    may_be_negative: bool = False
    parts: SharedNoise | None = None
    counts_units: bool = False

    @property
    def noise(self) -> ValueNoise:
        """Noise of the values."""
        return ValueNoise(self.variance, self.scale, self.step, self.may_be_negative, self.parts)

    def half_width(self, level: float) -> int | float:
        """Return the half width of an interval that holds the exact value with probability `level`, as a value."""
        width = self.reach(level) * self.step
        return int(width) if width.denominator == 1 else float(width)

    def reach(self, level: float) -> int:
        """Return the half width in whole steps of an interval that holds the exact value with probability `level`."""
        return self.noise.reach(level)

    def surround(self, values: Sequence[object]) -> list[Ends]:
        """Return the ends of the 95 % intervals of values, also below 0, where no exact value is; None for NULL."""
        half = self.reach(LEVEL) * self.step
        numbers = [Fraction(each) if isinstance(each, int | float | Decimal) else None for each in values]
        return [None if each is None else (each - half, each + half) for each in numbers]


MeasureColumns = CountColumns | AverageColumns | SpreadColumns


@dataclass(frozen=True, slots=True)
class Promise:
    """What an answer is released within: the privacy unit, its tables, the total and its periods, for its citation.

    `limit` is what is granted to the account.
    """

    unit: str
    table: str
    total: ApproximateDP
    periods: Periods | None = None
    limit: BudgetVector | None = None

    def __str__(self) -> str:
        if self.periods is None:
            return f"over all queries and analysts, within {self.total} in all"
        most = self.periods.most
        end = "without end" if most is None else f"up to {most} of them"
        return (
            f"over all queries and analysts of any one period of {self.periods}, within {self.total} (what several "
            f"periods lose adds up, {end})"
        )


@dataclass(frozen=True, slots=True)
class Advice:
    """Explanation of an answer that is empty or short, and warnings that its charge was likely wasted; all public."""

    explanation: str = ""
    warnings: tuple[str, ...] = ()


class Answer:
    """A private answer: its table, its receipt, and the sentence that cites it; its length is the number of rows.

    >>> for article, readers in answer:
    ...     print(article, readers > 8000)
    moon True
    sun True
    >>> len(answer), answer[0][0], answer.receipt.replayed
    (2, 'moon', False)
    """

    __slots__ = (
        "__weakref__",
        "_advice",
        "_dated",
        "_promise",
        "_ratio_ends",
        "_rows",
        "_table",
        "_values",
        "measures",
        "receipt",
    )

    def __init__(
        self,
        table: pa.Table,
        receipt: Receipt,
        *,
        measures: Sequence[MeasureColumns] = (),
        values: Sequence[int] = (),
        promise: Promise | None = None,
        advice: Advice | None = None,
    ) -> None:
        self._table = table
        self.receipt = receipt
        self.measures = tuple(measures)  # columns whose noise is known: counts and sums, then averages and spreads
        self._values = tuple(values)  # positions of columns that are no keys; those of the measures may be left out
        self._dated: Sequence[int] = ()  # positions of keys of which NULL is the group of rows that have no date
        self._promise = promise
        self._advice = Advice() if advice is None else advice
        self._ratio_ends: Mapping[int, tuple[pa.ChunkedArray, pa.ChunkedArray]] = {}
        self._rows: Iterator[tuple[object, ...]] | None = None  # those that fetchone has not returned

    def arrow(self) -> pa.Table:
        """Return the released table: the columns of the query, typed by the query, in released order.

        Counts are int64 and may be negative, as may sums of whole numbers (decimal128(38, 0), which are `int` in
        Python).

        >>> answer.arrow().column_names
        ['article', 'n']
        """
        return self._table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the released table as a stream of Arrow's PyCapsule protocol, which other libraries read directly."""
        return self._table.__arrow_c_stream__(requested_schema)

    def fetchall(self) -> list[tuple[object, ...]]:
        """Return the rows as Python tuples; dates outside Python's calendar come as text.

        >>> [article for article, _ in answer.fetchall()]
        ['moon', 'sun']
        """
        columns = [read_values(column) for column in self._table.columns]
        return list(zip(*columns, strict=True))

    def fetchone(self) -> tuple[object, ...] | None:
        """Return the next row, from the first on, and None after the last; `fetchall` returns all rows every time.

        >>> answer.fetchone()[0], answer.fetchone()[0], answer.fetchone()
        ('moon', 'sun', None)
        """
        if self._rows is None:
            self._rows = iter(self.fetchall())
        return next(self._rows, None)

    @property
    def counts(self) -> CountColumns | None:
        """The released counts, or those that come first, and their noise; None when none are shown."""
        first = next(iter(self.measures), None)
        return first if isinstance(first, CountColumns) else None

    @property
    def total(self) -> Total | None:
        """The released number of units in all groups, with its interval, where counts share it, at no cost; else None.

        >>> answer.total.low <= answer.total.value <= answer.total.high
        True
        """
        return self.receipt.total

    def shares(self, level: float = 0.95) -> pa.Table:
        """Return the keys with `share`, that of each count of units in `total`, and `low` and `high` of its interval.

        All are from 0 to 1. Raises `UsageError` where counts share no total, and as `intervals` does.

        >>> answer.shares().column_names
        ['article', 'share', 'low', 'high']
        """
        intervals, counts, total = self.intervals(level), self.counts, self.total
        if counts is None or counts.parts is None or total is None or not counts.counts_units:
            hint = "Select COUNT(DISTINCT <privacy unit>) first, of two keys or more; EXPLAIN says whether it has one."
            raise UsageError("no-total", "The counts of this answer share no total.", hint=hint)
        import pyarrow as pa

        values = self._table.column(counts.columns[0]).to_pylist()
        low, high = widen_shares(values, total.value, noise=counts.parts, level=level)
        table = intervals.drop_columns(intervals.column_names[-2:])
        by = max(1, total.value)
        shares = [None if each is None else min(1.0, max(0.0, each / by)) for each in values]
        for name, column in (("share", shares), ("low", low), ("high", high)):
            table = table.append_column(name, pa.array(column, pa.float64()))
        return table

    def difference(self, first: int, second: int, *, level: float = 0.95) -> tuple[float, float, float]:
        """Return the value of row `first` less that of row `second`, and the ends of the interval of the exact one.

        Rows count from 0. What counts share cancels out, so this is narrower than two intervals suggest. Raises as
        `intervals` does, and `IndexError` for a row that is not there.

        >>> value, low, high = answer.difference(0, 1)
        >>> low <= value <= high
        True
        """
        self.intervals(level)
        counts = self.counts
        if counts is None:
            hint = "Select the SUM and the COUNT in its place; their differences have intervals."
            raise UsageError("no-difference", "Averages and spreads have no intervals of differences.", hint=hint)
        values = self._table.column(counts.columns[0]).to_pylist()
        found = [values[first], values[second]]
        if any(each is None for each in found):
            raise UsageError("no-difference", "A row without a value has no difference.", hint="Name other rows.")
        reach = counts.noise.reach_of_difference(level) * counts.step
        if isinstance(found[0], Decimal) or (isinstance(found[0], int) and counts.step != 1):
            reach += max(Fraction(10) ** int(Decimal(each).as_tuple().exponent) for each in found)  # halves rounded
        value = found[0] - found[1]
        return float(value), float(Fraction(value) - reach), float(Fraction(value) + reach)

    @property
    def explanation(self) -> str:
        """Why fewer keys came back than were asked for, and what would bring more; "" where all came back."""
        return self._advice.explanation

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons why the charge of this query was likely wasted."""
        return self._advice.warnings

    @property
    def bounded_by(self) -> int | None:
        """Largest number of groups in which each unit is counted (exact counts can be higher); None without a bound."""
        return self.receipt.bounded_by

    @property
    def bound_note(self) -> str:
        """Words about the bounds of each unit and the buckets that WHERE cuts, to stand beside the values; or ""."""
        return "; ".join(filter(None, [self.receipt.bounds, self.receipt.cut])) if len(self) else ""

    @property
    def note(self) -> str:
        """Words to stand beside the rows: what a ranking leaves out of the groups that SQL means, and `bound_note`."""
        return "; ".join(filter(None, [self.receipt.list_note, self.bound_note]))

    def notes(self) -> list[str]:
        """Return the lines that belong beside the rows: total, explanation of a short answer, receipt, note, warnings.

        >>> answer.notes()  # doctest: +ELLIPSIS
        ['... users in all groups (95 %: ...)', 'answered 2 of 2; used 5 % of the budget; ...']
        """
        warnings = [f"warning: {warning}" for warning in self.warnings]
        total = "" if self.total is None else str(self.total)
        comment = self.explanation.expandtabs(4).splitlines()  # of DESCRIBE it has the SQL of a published table
        return [*filter(None, [total, *comment, str(self.receipt), self.note]), *warnings]

    def df(self, *, intervals: bool = False, level: float = 0.95) -> pd.DataFrame:
        """Return a pandas DataFrame of these rows; raises `UsageError` without the extra dpsql[pandas].

        With `intervals`, each released value `n` is followed by `n_low` and `n_high`, as in `intervals`, which may
        raise.

        >>> answer.df(intervals=True).columns.tolist()
        ['article', 'n', 'n_low', 'n_high']
        """
        _require("pandas")
        table = self._with_intervals(level) if intervals else self._table
        return narrow_integers(table).to_pandas(date_as_object=False)  # Python's dates end where DuckDB's do not

    to_pandas = df  # the name that pandas users look for; `df` is DuckDB's

    def to_csv(
        self,
        path: str | Path | None = None,
        *,
        intervals: bool = False,
        level: float = 0.95,
        quote_formulas: bool = False,
    ) -> str | None:
        """Write the rows as CSV in UTF-8 with a header, and return None; without a path, return the text.

        NULL is an empty field, text is quoted, and control characters but tabs and line feeds become U+FFFD.
        `quote_formulas` puts an apostrophe before text that a spreadsheet would compute. `intervals` and `level` are
        those of `df`.

        >>> answer.to_csv().splitlines()[0]
        '"article","n"'
        >>> answer.to_csv("readers.csv")
        """
        text = write_csv(self._with_intervals(level) if intervals else self._table, quote_formulas=quote_formulas)
        if path is None:
            return text
        Path(path).write_bytes(text.encode())
        return None

    def pl(self) -> pl.DataFrame:
        """Return a polars DataFrame of these rows; raises `UsageError` without the extra dpsql[polars].

        >>> answer.pl().shape
        (2, 2)
        """
        _require("polars")
        import polars as pl

        frame = pl.from_arrow(self._table)
        return frame if isinstance(frame, pl.DataFrame) else frame.to_frame()

    to_polars = pl

    def intervals(self, level: float = 0.95) -> pa.Table:
        """Return the keys with `low` and `high`, between which the exact value lies with probability `level`.

        They are of the first measure, and of the bounded count where there is `bounded_by`; without a measure of one
        release, of the first ratio or value of a UNION ALL, at 95 % alone. Raises `UsageError` where no column has an
        interval, where counts were made monotone, and for a level outside (0, 1).

        >>> answer.intervals(0.99).column_names
        ['article', 'low', 'high']
        """
        low, high = self.column_intervals(level)[self._find_first(level)]
        return self._table.select(self._list_keys()).append_column("low", low).append_column("high", high)

    def _find_first(self, level: float) -> int:
        """Return the position of the column whose intervals are those of the answer; raise where there is none."""
        if self.measures and not self.measures[0].adjusted:
            return self.measures[0].columns[0]
        if self.measures:
            hint = "Ask again without monotone = true: that is the same release, and costs nothing."
            reason = "Intervals are those of the noisy counts as they were drawn."
            raise UsageError("adjusted-counts", reason, hint=hint)
        check_level(level)
        if self._ratio_ends and level == LEVEL:
            return min(self._ratio_ends)
        reason = "This answer has keys alone, which are released as they are and have no intervals."
        hint = "Leave intervals out. COUNT(DISTINCT <privacy unit>) in the select list adds counts, which are charged."
        if self._ratio_ends:
            reason = "Intervals of ratios, and of the rows of ROLLUP or UNION ALL, are known at 95 % alone."
            hint = f"Leave the level out. At another level write WITH (intervals = {level}), or value_low(<ratio>)."
        elif self._values:
            reason = "No column of this answer is a count, sum, average, spread or ratio as it was released."
            hint = (
                "Leave intervals out: notes say how near a median is. The ends of what the outer SELECT computes from "
                "are columns with WITH (intervals = true) in the private query, free."
            )
        raise UsageError("no-counts", reason, hint=hint)

    def _list_keys(self) -> list[int]:
        """Return the positions of the columns of keys."""
        measured = {*self._values, *self._ratio_ends, *(at for each in self.measures for at in each.columns)}
        return [position for position in range(self._table.num_columns) if position not in measured]

    def column_intervals(self, level: float = 0.95) -> dict[int, tuple[pa.Array, pa.Array]]:
        """Return the ends of the intervals of every released column that has them, by the position of the column.

        Ratios, and values of a UNION ALL, have them at 95 % alone.

        >>> [answer.columns[position] for position in answer.column_intervals()]
        ['n']
        """
        measures = {position: each for each in self.measures if not each.adjusted for position in each.columns}
        found = {position: self._find_bounds(position, each, level=level) for position, each in measures.items()}
        return found | ({at: self._type_ends(at) for at in self._ratio_ends} if level == LEVEL else {})

    def _type_ends(self, position: int) -> tuple[pa.Array, pa.Array]:
        """Return the ends of a column of ratios, whole numbers where its values are."""
        import pyarrow as pa
        import pyarrow.compute as pc

        low, high = (end.combine_chunks() for end in self._ratio_ends[position])
        type_ = self._table.column(position).type
        return (pc.floor(low).cast(type_), pc.ceil(high).cast(type_)) if pa.types.is_integer(type_) else (low, high)

    def _find_bounds(self, position: int, measure: MeasureColumns, *, level: float) -> tuple[pa.Array, pa.Array]:
        """Return the ends of the intervals of a column of a measure, NULL where an outer SELECT has no value."""
        import pyarrow as pa

        column = self._table.column(position)
        if isinstance(measure, CountColumns):
            ends = measure.noise.widen(column.to_pylist(), level)
        else:
            ends = measure.widen(level)
        low, high = (pa.array(end, column.type) for end in ends)
        return low, high

    def _with_intervals(self, level: float) -> pa.Table:
        """Return the table in which each released count is followed by its interval, unless the query selects that."""
        self._find_first(level)  # raises where there are none
        table, shown = self._table, dict(zip(self._table.column_names, self._table.columns, strict=True))
        # From the last column to the first: what is added behind a column moves none that is still to come.
        for position, ends in sorted(self.column_intervals(level).items(), reverse=True):
            name = table.column_names[position]
            for end, column in zip(("high", "low"), reversed(ends), strict=True):
                beside = f"{name}_{end}"
                if beside not in shown or shown[beside].to_pylist() != column.to_pylist():
                    table = table.add_column(position + 1, beside, column)
        return table

    def plot(self, axes: Axes | None = None, *, level: float = 0.95) -> Axes:
        """Draw the released counts with their intervals and return the axes: bars, or a line if the key is a time.

        `axes` are matplotlib's, by default of a new figure. Raises `UsageError` without the extra dpsql[plot], and as
        `intervals` does.

        >>> answer.plot().figure.savefig("readers.png")
        """
        intervals = self.intervals(level)
        _require("matplotlib", extra="plot")
        import pyarrow as pa

        from dpsql.display.released_table import Chart, draw_chart

        shown = self._find_first(level)
        present = self._table.column(shown).is_valid()  # an average, or an outer SELECT, may have no value
        table, intervals = self._table.filter(present), intervals.filter(present)
        keys = intervals.columns[:-2]
        low, high = (_to_numbers(column) for column in intervals.columns[-2:])
        formats = [format_date if at in self._dated else format_value for at in self._list_keys()]
        columns = [map(form, read_values(column)) for form, column in zip(formats, keys, strict=True)]
        labels = [", ".join(key) for key in zip(*columns, strict=True)]
        times: list[object] = []
        is_series = len(keys) == 1 and len(table) > 1
        if is_series and (pa.types.is_date(keys[0].type) or pa.types.is_timestamp(keys[0].type)):
            times = read_values(keys[0])
            if any(time is None or isinstance(time, str) for time in times):
                times = []  # NULL, or beyond the calendar: no point on an axis
        chart = Chart(
            labels=labels or [""] * len(table),
            counts=_to_numbers(table.column(shown)),
            low=low,
            high=high,
            key=", ".join(map(replace_unprintable, intervals.column_names[:-2])),
            measure=replace_unprintable(table.column_names[shown]),
            level=level,
            threshold=self._find_threshold(),
            notes=[note for note in (self.note, str(self.receipt)) if note],
            times=times,
        )
        return draw_chart(chart, axes)

    def _find_threshold(self) -> int | None:
        """Return the noisy value that a group needed, where the mechanism makes it public; a sum is rounded down."""
        if self.receipt.mechanism != _COUNTS_THRESHOLD:
            return None
        step = Fraction(1) if self.counts is None else self.counts.step
        return math.floor(self.receipt.threshold_offset * step)

    def statement(self) -> str:
        """Return one sentence to cite: unit, neighbours, the data set's total, what this answer cost, the version.

        >>> answer.statement()[:41]
        'Each user_id of reads is protected: addin'
        """
        if self._promise is None:
            return f"This answer of dpsql {version('dpsql')} read no private row."
        promise, receipt = self._promise, self.receipt
        cost = f"this answer cost {receipt.loss} of that budget"
        if receipt.replayed:
            cost = "this answer was charged when it was first given"
        return (
            f"Each {promise.unit} of {promise.table} is protected: adding or removing all rows of one {promise.unit} "
            f"changes the probability of anything released from this data set, {promise}; {cost}, accounted in "
            f"{receipt.certificate.words} (dpsql {version('dpsql')}, {receipt.mechanism})."
            + (f" Counts are bounded: {receipt.bounds}." if receipt.bounds and len(self) else "")
        )

    @property
    def columns(self) -> list[str]:
        """Names of the columns.

        >>> answer.columns
        ['article', 'n']
        """
        return list(self._table.column_names)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[tuple[object, ...]]:
        return iter(self.fetchall())

    @overload
    def __getitem__(self, index: int) -> tuple[object, ...]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[object, ...]]: ...
    @overload
    def __getitem__(self, index: str) -> list[object]: ...
    def __getitem__(self, index: int | slice | str) -> tuple[object, ...] | list[tuple[object, ...]] | list[object]:
        if not isinstance(index, str):
            return self.fetchall()[index]
        names = self.columns
        if names.count(index) != 1:
            reason = f"This answer has {'no column' if index not in names else 'several columns'} of this name."
            raise UsageError("no-column", reason, hint=f"Its columns are {', '.join(names)}.")
        return read_values(self._table.columns[names.index(index)])

    def __rich__(self) -> Group:
        """Return all rows for a terminal that shows them with rich, with bars and intervals, and the notes below."""
        from rich.console import Group
        from rich.text import Text

        from dpsql.display.released_table import terminal_table

        notes = Text("\n".join(map(replace_unprintable, self.notes())), style="dim")
        return Group(terminal_table(self._release_rows(len(self))), notes)

    def __repr__(self) -> str:
        released = self._release_rows(_SHOWN)
        names = list(map(replace_unprintable, self.columns))
        lines = [" | ".join(row) for row in [names, *released.format_rows(grouped=False)]]
        if len(self) > _SHOWN:
            lines.append(f"... {len(self)} rows")
        receipt = str(self.receipt)
        level = "; ± at 95 %" if released.legend else ""
        return "\n".join([*lines, *(f"{note}{level}" if note == receipt else note for note in self.notes())])

    def _repr_html_(self) -> str:
        """Return the first rows for a notebook, with bars, intervals and what is left of the budget."""
        receipt = self.receipt
        cost = Cost(
            notes=self.notes(),
            details=receipt.details(),
            loss=None if receipt.mechanism == NO_MECHANISM else receipt.loss,
            remaining=receipt.remaining,
            granted=None if self._promise is None else self._promise.limit,
        )
        return released_html(self._release_rows(MAX_ROWS), cost)

    def _release_rows(self, most: int) -> ReleasedTable:
        """Return the first rows, at most so many, with 95 % intervals."""
        import pyarrow as pa

        first, measures = self._table.slice(0, most), self.measures
        values = [read_values(column) for column in first.columns]
        columns, ends = list[SheetColumn](), dict[int, list[Ends]]()
        for name, kind in zip(first.schema.names, first.schema.types, strict=True):
            is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
            columns.append(SheetColumn(name, bool(is_number)))
        for at, (low, high) in self._ratio_ends.items():
            pairs = zip(low[:most].to_pylist(), high[:most].to_pylist(), strict=True)
            found: list[Ends] = [None if None in pair else cast("Ends", pair) for pair in pairs]
            if any(found):
                ends[at] = found
        for measure in measures:
            if not measure.adjusted:
                ends |= {at: measure.surround(values[at]) for at in measure.columns}
        return ReleasedTable(
            columns=columns,
            values=values,
            total=len(self),
            measured=(*self._ratio_ends, *self._values, *(at for each in measures for at in each.columns)),
            dated=self._dated,
            ends=ends,
            barred=None if self.counts is None else self.counts.columns[0],
        )


def show_columns(
    answer: Answer, *, ratio_ends: Mapping[int, tuple[pa.ChunkedArray, pa.ChunkedArray]], dated: Sequence[int]
) -> Answer:
    """Let tables show the 95 % intervals of computed columns, and what NULL is in keys of dates; return the answer.

    Both are by the numbers of columns.
    """
    answer._ratio_ends, answer._dated = ratio_ends, dated  # noqa: SLF001 - of this module
    return answer


def _to_numbers(column: pa.ChunkedArray) -> list[int | float]:
    """Return numbers as they are drawn."""
    return [value if isinstance(value, int) else float(value) for value in column.to_pylist()]


def _require(package: str, *, extra: str | None = None) -> None:
    """Refuse, outside the handler so that no context hangs on it, what needs a package that is not there."""
    with suppress(ImportError):
        import_module(package)
        return
    hint = f"Install it: pip install 'dpsql[{extra or package}]'."
    raise UsageError("not-installed", f"The package {package} is not installed.", hint=hint)
