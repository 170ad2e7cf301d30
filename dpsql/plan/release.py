"""The release of a query: the one place where its exact result is opened and its noise is drawn.

Then come what the query shows of it, and its measures as values: quotients, and intervals around them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np

from dpsql.accounting import BudgetVector, Loss, add_losses
from dpsql.engines import Exact, Statement, open_exact
from dpsql.errors import UsageError
from dpsql.intervals import AveragePlace, SpreadLaw, ValueNoise, widen_quotients
from dpsql.mechanisms import Noise
from dpsql.mechanisms.base import ReadPlaces
from dpsql.plan.mechanisms.base import CountNoise, Groups, MechanismOutput, NoisyTotal, PrefixLaw, ReadAgain
from dpsql.plan.mechanisms.names import (
    ReleasedNames,
    arrow_type,
    int64_array,
    list_values,
    match_names,
    read_int64,
    refuse_result,
)
from dpsql.plan.plan import Plan, build_statement
from dpsql.quantities import Delta, Epsilon
from dpsql.sql.ir.measures import Measure
from dpsql.sql.ir.statements import HavingTerm, Order, Output, PrivateQuery, PublicQuery
from dpsql.sql.ir.tree import DOUBLE, Family

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa


COUNT = "count"
_LARGEST = 2**63 - 1  # which the rows of 2**33 units are far below
_COMPARISONS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ROW = ""  # the column that says which row of the canonical table it is, beside outputs of any name


@dataclass(frozen=True, slots=True)
class ReleaseTerms:
    """Terms on which a release was drawn, for its receipt: all of them public.

    The defaults of the policy may have changed since, so a stored release has its own. `partitions` is how many answers
    of at most `k` keys it consists of. `chooses` is that of the report of the mechanism, `bounded_by` the bound of the
    groups in which the counts count each unit. `counts` is the noise of the first measure, `others` that of the others.
    So many names that were `known` from earlier answers took part, above an evidence line if `evident`.
    `total` is the released number of units, if there is one.
    """

    mechanism: str
    k: int
    k_bar: int
    epsilon: Epsilon
    delta: Delta
    threshold_offset: Fraction
    chooses: str
    partitions: int
    counts: CountNoise | None
    bounded_by: int | None
    others: tuple[CountNoise, ...] = ()
    known: int = 0
    evident: bool = False
    total: NoisyTotal | None = None

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """Return the terms of a plan."""
        spec, price = plan.spec, plan.mechanism_plan.price
        return cls(
            mechanism=plan.mechanism_plan.selection.name,
            k=plan.k,
            k_bar=spec.report.k_bar,
            epsilon=price.epsilon,
            delta=spec.worst_case.delta,
            threshold_offset=spec.report.threshold_offset,
            chooses=spec.report.chooses,
            partitions=max(1, spec.rows.partitions),
            counts=spec.counts,
            bounded_by=plan.count_bound,
            others=tuple(map(CountNoise.of_release, price.others)),
            known=spec.rows.known,
            evident=spec.rows.evident,
        )

    @property
    def noises(self) -> tuple[CountNoise, ...]:
        """Noise of each measure, in their order; empty where none is released."""
        return () if self.counts is None else (self.counts, *self.others)

    @property
    def without_noise(self) -> Self:
        """Terms without the noises and the total, which the number of released rows decides with them."""
        return replace(self, counts=None, others=(), total=None)

    def choose(self, chosen: int | None) -> Self:
        """Return the terms with the k or k_bar that the mechanism chose, if it chose one."""
        if chosen is None:
            return self
        return replace(self, k=chosen) if self.chooses == "k" else replace(self, k_bar=chosen)


@dataclass(frozen=True, slots=True)
class Release:
    """What leaves: the private table as the query shows it, the same as it was drawn, and what it cost.

    `canonical` has the keys in the plan's order and then the counts, if any were drawn, in released order, doubled
    where their noise has parts; `rows` says which of its rows each row of the table is. `chosen` is the k or k_bar that
    the mechanism chose, where it was left to it. `legs` says what each part of a mechanism of several parts did.
    `known_before` of the returned names were known from earlier answers, None where that was not stored. `prefix` says
    what its first rows are worth as an answer.
    """

    table: pa.Table
    canonical: pa.Table
    rows: pa.Array
    terms: ReleaseTerms
    loss: Loss
    items_charged: int
    stopped_at_bottom: bool
    chosen: int | None = None
    legs: str = ""
    known_before: int | None = None
    prefix: PrefixLaw | None = None


def draw_places(plan: Plan, noise: Noise) -> Plan:
    """Return the plan of one release, with places drawn for its cut if it has one: for each release again."""
    rows = plan.spec.rows
    if rows.cut is None:
        return plan
    places = rows.cut.draw(noise)
    counting = rows.counting.select_places((*places.drawn, places.last))
    return replace(plan, spec=replace(plan.spec, rows=replace(rows, counting=counting, places=places)))


def release(plan: Plan, exact: Exact, *, noise: Noise, execute: Callable[[Statement], Exact] | None = None) -> Release:
    """Draw the private answer of `plan` from the exact groups.

    Given: the engine's answer to `plan.counting`, keys first, then the count, the weight if asked for, the position of
    the partition if there are any, and the number of units if it is read, the same in every row: at most k_bar + 1
    groups (of each partition), every candidate of a known domain, or all groups but for those that its cut leaves out.
    A mechanism that reads twice has `execute` run the second statement.
    Loss: for every key, count and BOTTOM returned one item, or all of them at once; delta once.
    """
    import pyarrow as pa

    read = _join_names(plan, open_exact(exact))
    drawn = plan.mechanism_plan.begin(read.groups, noise)
    if isinstance(drawn, ReadAgain):
        second = plan.spec.second
        if second is None or execute is None:
            hint = "Give release() the engine's execute."
            raise UsageError("second-read", "This mechanism reads the groups twice.", hint=hint)
        # The places of the second read are drawn before it is run, as those of the first were: they are noise.
        again = draw_places(replace(plan, spec=replace(plan.spec, rows=second)), noise)
        read_again = _join_names(again, open_exact(execute(build_statement(again.counting))))
        drawn = drawn.resume(read_again.groups, noise)
        read = read_again if drawn.of_second_read else read
    columns = dict[str, "pa.Array | pa.ChunkedArray"]()  # all that is released, its types from the query
    for at, key in enumerate(plan.query.keys):
        columns[f"key_{at + 1}"] = read.take_keys(at, drawn.rows, type_=arrow_type(key.type))
    for at, values in enumerate(() if drawn.counts is None else (drawn.counts, *drawn.others)):
        columns[name_measure(at)] = int64_array(values)
    canonical = pa.table(columns)
    if plan.query.quantiles:
        drawn, canonical = _draw_quantiles(plan, drawn, canonical=canonical, noise=noise, execute=execute)
    terms = ReleaseTerms.of(plan).choose(drawn.chosen)
    if drawn.noises:  # they depend on how many rows there are
        terms = replace(terms, counts=drawn.noises[0], others=drawn.noises[1:], total=drawn.total)
    shown, rows = present(plan, canonical, terms=terms)
    return Release(
        table=shown,
        canonical=canonical,
        rows=rows,
        terms=terms,
        loss=drawn.loss,
        items_charged=drawn.items,
        stopped_at_bottom=drawn.stopped_at_bottom,
        chosen=drawn.chosen,
        legs=drawn.legs,
        known_before=sum(row < read.groups.known for row in drawn.rows) if terms.known else None,
        prefix=drawn.prefix,
    )


def _draw_quantiles(
    plan: Plan,
    drawn: MechanismOutput,
    *,
    canonical: pa.Table,
    noise: Noise,
    execute: Callable[[Statement], Exact] | None,
) -> tuple[MechanismOutput, pa.Table]:
    """Return what was drawn, with the cost of the quantiles of its groups, and the canonical table with these."""
    from dpsql.plan.mechanisms.quantiles import QuantilesPlan, add_quantiles

    if execute is None:
        reason, hint = "Quantiles are read after the groups.", "Give release() the engine's execute."
        raise UsageError("second-read", reason, hint=hint)
    if not canonical.num_columns:  # which would have no rows either
        import pyarrow as pa

        canonical = pa.table({_ROW: int64_array(range(len(drawn.rows)))})
    own = plan.mechanism_plan
    assert isinstance(own, QuantilesPlan)  # noqa: S101 - of a query with quantiles
    canonical, loss, items = add_quantiles(
        own,
        plan.query,
        canonical=canonical,
        noise=noise,
        read=lambda counting: open_exact(execute(build_statement(counting))),
    )
    canonical = canonical.select([name for name in canonical.column_names if name != _ROW])
    return replace(drawn, loss=add_losses([drawn.loss, loss]), items=drawn.items + items), canonical


@dataclass(frozen=True, slots=True, repr=False)
class _ReadRows:
    """What was read: the groups, and their keys, those of the known names first, then those of `rows` of the table."""

    groups: Groups
    table: pa.Table
    names: pa.Table | None
    rows: npt.NDArray[np.int64] | None

    def take_keys(self, at: int, rows: Sequence[int], *, type_: pa.DataType) -> pa.Array | pa.ChunkedArray:
        """Return key number `at` of some groups in a type."""
        import pyarrow as pa

        column = self.table.column(at)
        if self.names is None or self.rows is None:
            return column.take(int64_array(rows)).cast(type_)
        known = self.names.num_rows
        unknown = column.take(int64_array(self.rows[row - known] for row in rows if row >= known))
        named = self.names.column(at).take(int64_array(row for row in rows if row < known))
        both = pa.chunked_array([*named.cast(type_).chunks, *unknown.cast(type_).chunks], type_)
        # rows [7, 1, 9, 0] with known = 5 are in both as [1, 0, 7, 9]: taken from the places [2, 0, 3, 1]
        order = np.argsort(np.array(rows, np.int64) >= known, kind="stable")
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        return both.take(int64_array(places))


def _join_names(plan: Plan, table: pa.Table) -> _ReadRows:
    """Return the groups that were read, joined to the known names if any take part.

    A name that no row has is a group of 0: whether there are rows decides neither whether a name takes part nor its
    place. Of the other groups those remain to which some unit adds something, as without known names. Behind a cut the
    engine says of which groups it takes the names for known: groups of which it says otherwise than Arrow never take
    part, whatever is in them.
    """
    groups, expected, names = _read_groups(plan, table), plan.spec.rows, plan.query.names
    if not expected.known or not isinstance(names, ReleasedNames):
        return _ReadRows(groups, table, None, None)
    # each row has the number of its name by Arrow, -1 without one, and whether the engine takes it for a known name
    found = match_names(table.columns[: len(plan.query.keys)], names)
    named = found >= 0 if groups.read is None else groups.read.is_named
    present = np.flatnonzero((found >= 0) & named)
    measured = groups.weights if expected.weighted else groups.counts
    others = np.flatnonzero((found < 0) & ~named & (measured > 0))[: 0 if expected.alone else None]

    def join(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        own = np.zeros(names.count, np.int64)
        own[found[present]] = values[present]
        return np.concatenate([own, values[others]])

    weights = join(groups.weights) if expected.weighted else groups.weights
    further = tuple(join(each) for each in groups.others)
    joined = replace(
        groups,
        counts=join(groups.counts),
        weights=weights,
        others=further,
        known=names.count,
        read=None if groups.read is None else groups.read.take(others),
    )
    return _ReadRows(joined, table, names.table, others)


def _read_groups(plan: Plan, table: pa.Table) -> Groups:
    """Return what was read of the groups, having made sure that the engine kept to the contract."""
    expected, columns = plan.spec.rows, table.columns[len(plan.query.keys) :]
    has_total = expected.counting.has_total
    beside = (expected.partitions > 0) + (expected.cut is not None) + has_total
    if len(columns) != 1 + expected.others + expected.weighted + beside:
        raise refuse_result()
    # count[, weight][, further measures][, number of units][, place of the cut][, partition], taken from the end
    measures = read_int64(columns)
    partitions = measures.pop() if expected.partitions else None
    read = None if expected.cut is None else ReadPlaces(expected.places or expected.cut.open, measures.pop())
    totals = measures.pop() if has_total else None
    counts, weights = measures[0], measures[1] if expected.weighted else np.empty(0, np.int64)
    others = tuple(measures[1 + expected.weighted :])
    # Without a row there is no total to read, and no unit is in a group: the sum of nothing is 0.
    total = None if totals is None else int(totals[:1].sum())
    sizes = np.array([table.num_rows])  # of each partition, all of which are known, or of all rows
    fits = True
    if partitions is not None:
        fits = 0 <= partitions.min(initial=0) <= partitions.max(initial=0) < expected.partitions
        sizes = np.bincount(partitions, minlength=expected.partitions) if fits else sizes
    for values, least in ((counts, expected.min_count), (weights, expected.min_weight)):
        fits = fits and (least is None or values.min(initial=least) >= least)
    if totals is not None:
        fits = fits and 0 <= totals.min(initial=0) <= totals.max(initial=0) <= total
    if not fits or (expected.max_rows is not None and int(sizes.max()) > expected.max_rows):
        raise refuse_result()
    return Groups(counts, weights, partitions, others, total=total, read=read)


def name_measure(at: int) -> str:
    """Return the name of the column of a measure in the canonical table."""
    return COUNT if at == 0 else f"measure_{at + 1}"


def present(plan: Plan, canonical: pa.Table, *, terms: ReleaseTerms) -> tuple[pa.Table, pa.Array]:
    """Return the released columns of the query under their names, adjusted, filtered, ordered and cut as it says.

    Also return which row of `canonical` each row is. Post-processing alone: `canonical` may be the release, on these
    terms, of any plan with the same release key.
    """
    import pyarrow as pa

    query = plan.query
    if plan.monotone:  # doubled counts become twice what they would be
        counts = canonical.column(COUNT).to_pylist()
        if query.partitions is None:
            fitted = fit_monotone(counts)
        else:  # of each partition, whose rows stand together
            labels = canonical.column(f"key_{query.partitions.key + 1}").to_pylist()
            ranked = groupby(zip(labels, counts, strict=True), key=operator.itemgetter(0))
            fitted = [count for _, pairs in ranked for count in fit_monotone([count for _, count in pairs])]
        canonical = canonical.set_column(canonical.column_names.index(COUNT), COUNT, int64_array(fitted))
    names, columns = list[str](), list["pa.Array | pa.ChunkedArray"]()
    for output in query.outputs:
        names.append(output.name)
        if output.is_measure:
            columns.append(_show_measure(query, canonical, output=output, terms=terms))
        else:
            shown = f"quantile_{(output.quantile or 0) + 1}" if output.key is None else f"key_{output.key + 1}"
            columns.append(canonical.column(shown))
    released = pa.Table.from_arrays([*columns, int64_array(range(canonical.num_rows))], names=[*names, _ROW])
    released = filter_rows(released, query.keep) if query.keep else released
    released = order_rows(released, query.order) if query.order else released
    released = released if query.limit is None else released.slice(0, min(query.limit, released.num_rows))
    return released.select(range(len(names))), released.column(len(names)).combine_chunks()


def count_left_out(plan: Plan, released: Release) -> int:
    """Return how many released rows HAVING leaves out."""
    uncut = replace(plan, query=replace(plan.query, order=(), limit=None))
    table, _ = present(uncut, released.canonical, terms=released.terms)
    return int(released.canonical.num_rows - table.num_rows)


def _show_measure(
    query: PrivateQuery, canonical: pa.Table, *, output: Output, terms: ReleaseTerms
) -> pa.ChunkedArray | pa.Array:
    """Return a released measure, or what several make, or an end of its interval, in the type of the output."""
    import pyarrow as pa

    column, measure = canonical.column(name_measure(output.measure)), query.measures[output.measure]
    noise, end = terms.noises[output.measure], output.end
    if output.statistic is not None:
        law, every = read_spread(query, canonical, output=output, terms=terms)
        shown = (
            law.compute(each) if end is None else law.find_end(each, end.level, is_high=end.is_high) for each in every
        )
        return pa.array(shown, arrow_type(DOUBLE))
    if output.divisor is None:
        is_shown = measure.bounds is None and noise.parts is None
        values = column if is_shown else decode_steps(noise.read(column.to_pylist()), measure)
        if end is None:
            return values
        return compute_interval(values, measure, noise=noise, level=end.level)[end.is_high]
    divisor, of_rows = query.measures[output.divisor], terms.noises[output.divisor]
    sums = noise.read(column.to_pylist())
    rows = of_rows.read(canonical.column(name_measure(output.divisor)).to_pylist())
    if end is None:
        return divide_steps(sums, rows, measures=(measure, divisor))
    noises = describe_noise(noise, measure), describe_noise(of_rows, divisor)  # NULL where an average is
    pairs = list(zip(sums, rows, strict=True))
    ends = widen_quotients(pairs, noises=noises, level=end.level, place=find_place(measure))
    return pa.array(ends[end.is_high], arrow_type(DOUBLE))


def read_spread(
    query: PrivateQuery, canonical: pa.Table, *, output: Output, terms: ReleaseTerms
) -> tuple[SpreadLaw, list[tuple[int | Fraction, ...]]]:
    """Return the law of a statistic of spread, and the noisy steps that it is made from in each canonical row."""
    from dpsql.plan.measures.coupled import describe_law

    first, divisor, *others = output.places
    places = [divisor, first, *others]
    measures = [query.measures[at] for at in places]
    noises = [describe_noise(terms.noises[at], measure) for at, measure in zip(places, measures, strict=True)]
    steps = [terms.noises[at].read(canonical.column(name_measure(at)).to_pylist()) for at in places]
    assert output.statistic is not None  # noqa: S101 - of the caller
    return describe_law(output.statistic, measures, noises=noises), list(zip(*steps, strict=True))


def filter_rows(table: pa.Table, keep: tuple[HavingTerm, ...]) -> pa.Table:
    """Return the rows whose released counts pass every comparison; NULL, as an average may be, passes none."""
    for term in keep:
        compare = _COMPARISONS[term.operator]
        counts = table.column(term.output).to_pylist()
        rows = [row for row, count in enumerate(counts) if count is not None and compare(count, term.value)]
        table = table.take(int64_array(rows))
    return table


def order_rows(table: pa.Table, order: tuple[Order, ...]) -> pa.Table:
    """Return the rows by the ORDER BY terms, ties in the order they came; NaN is the greatest number."""
    rows = list(range(table.num_rows))
    # From the last term to the first: each sort is stable, also with reverse=True, so that ties keep the later terms'
    # order.
    for term in reversed(order):
        values = list_values(table.column(term.output))
        present = [row for row in rows if values[row] is not None]
        absent = [row for row in rows if values[row] is None]
        # NaN != NaN puts it behind all numbers.
        present.sort(key=lambda row: (values[row] != values[row], values[row]), reverse=term.descending)
        rows = absent + present if term.nulls_first else present + absent
    return table.take(int64_array(rows))


def decode_steps(steps: Sequence[int | Fraction], measure: Measure) -> pa.Array:
    """Return noisy steps as values in the type of the measure, which holds all sums: if exact, rounded half to even."""
    import pyarrow as pa

    step = _find_step(measure)
    values = steps if step == 1 else [each * step for each in steps]
    if measure.type.family is Family.INTEGER:
        return int64_array(min(max(round(value), -_LARGEST), _LARGEST) for value in values)
    if measure.type.family is Family.DOUBLE:
        return pa.array(list(map(float, values)), pa.float64())
    width, scale = measure.type.precision
    most, digits = 10**width - 1, Context(prec=width)
    whole = (min(max(round(value * 10**scale), -most), most) for value in values)  # beyond it is noise alone
    return pa.array([Decimal(each).scaleb(-scale, digits) for each in whole], arrow_type(measure.type))


def divide_steps(
    steps: Sequence[int | Fraction], divisors: Sequence[int | Fraction], *, measures: tuple[Measure, Measure]
) -> pa.Array:
    """Return noisy steps of a sum as averages, divided by noisy steps of a count; NULL where that is below 1.

    An average is within the range of its rows, where that is known.
    """
    import pyarrow as pa

    (step, by_step), place = map(_find_step, measures), find_place(measures[0])
    found = [
        float(place.put(each * step / (by * by_step))) if by * by_step >= 1 else None
        for each, by in zip(steps, divisors, strict=True)
    ]
    return pa.array(found, arrow_type(DOUBLE))


def find_place(measure: Measure) -> AveragePlace:
    """Return where averages of a measure are: around which number, and in what range."""
    centre = None if measure.weight is None else measure.weight.centre
    return AveragePlace(Fraction(0) if centre is None else centre, measure.row_range)


def _find_step(measure: Measure) -> Fraction:
    return Fraction(1) if measure.bounds is None else measure.bounds.step


def describe_noise(noise: CountNoise, measure: Measure) -> ValueNoise:
    """Return the noise of the values of a measure, by the terms of its release."""
    bounds = measure.bounds
    if bounds is None:
        return ValueNoise(noise.variance, noise.scale, parts=noise.parts)
    return ValueNoise(noise.variance, noise.scale, bounds.step, bounds.low < 0, noise.parts)


def compute_interval(
    values: pa.Array | pa.ChunkedArray, measure: Measure, *, noise: CountNoise, level: float
) -> tuple[pa.Array, pa.Array]:
    """Return the lower and upper ends for released values of a measure, NULL for NULL.

    `values` are those that are shown, in the type of the measure, and `noise` is that of the terms of their release:
    each exact value, within the bounds of each unit, lies between the ends with probability `level`.
    """
    import pyarrow as pa

    low, high = describe_noise(noise, measure).widen(values.to_pylist(), level)
    return pa.array(low, values.type), pa.array(high, values.type)


def publish(_: PublicQuery, exact: Exact) -> pa.Table:
    """Return the result of a query that reads no private row."""
    return open_exact(exact)


def fit_monotone(counts: Sequence[int]) -> list[int]:
    """Return the integers nearest, in least squares, that never rise along the ranking and are at least 0.

    Post-processing of noisy counts: nearer to the exact ones in all, if the ranking is that of the exact counts.
    Neighbours that rise are replaced by their mean until none do (pool adjacent violators); means are exact and then
    rounded, halves up, which keeps their order.
    Source: Ayer, Brunk, Ewing, Reid and Silverman 1955; Barlow and others 1972 for the bound at 0.

    >>> fit_monotone([9, 4, 6, -3])
    [9, 5, 5, 0]
    """
    pools: list[tuple[int, int]] = []  # sum and size
    for count in counts:
        total, size = count, 1
        # Means are compared by their fractions, without a division.
        while pools and pools[-1][0] * size < total * pools[-1][1]:
            before, more = pools.pop()
            total, size = total + before, size + more
        pools.append((total, size))
    return [max(0, (2 * total + size) // (2 * size)) for total, size in pools for _ in range(size)]


class Draw(Protocol):
    """Function that turns the sealed result of the engine into a release, as bytes."""

    def __call__(self, exact: Exact, *, noise: Noise) -> bytes:
        """Return the release; a failure is charged in full."""
        ...


@dataclass(frozen=True, slots=True)
class ExternalRelease:
    """Release other than a statement: its text for the record, its fixed loss, and how it is drawn.

    `key` is the digest of everything that its distribution depends on, under which it is found again. `draw` makes the
    release from the result of `statement`.
    """

    text: str
    loss: BudgetVector
    key: str
    statement: Statement
    draw: Draw


@dataclass(frozen=True, slots=True)
class ReleaseResult:
    """The release with the facts for its receipt; `replayed` if it was stored before, and free."""

    released: bytes
    replayed: bool
    sealed: bool
    isolation: str
    durable: bool
    shared: bool
