"""Quantiles of the groups that a query returns: drawn after all else, one item for each of these groups.

A plan of quantiles is around the plan of the mechanism that answers the rest of the query. Its worst case is that of
the other plan and all quantiles together, reserved before any row is read. When the groups are released, a further
statement for each set of rows returns how much these weigh in each bin, of the released groups alone, and each group's
quantiles are drawn from that. `plan/release.py` opens what the engine returned; what leaves are the values of the bins
that were drawn. What is charged follows from how many groups came back.

A query that releases quantiles of a total or of known groups, and no counts, reads no other private row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from dpsql.accounting import Loss, add_losses
from dpsql.dialects import DUCKDB
from dpsql.errors import Refusal
from dpsql.mechanisms import Noise
from dpsql.mechanisms.quantiles import ExponentialQuantile, find_shift
from dpsql.plan.mechanisms.base import Facts, Groups, MechanismOutput, MechanismPlan, ReadAgain, ReleaseSpec
from dpsql.plan.mechanisms.candidates import count_known
from dpsql.plan.mechanisms.names import number_rows, read_int64, refuse_result
from dpsql.plan.mechanisms.record import MechanismRequest
from dpsql.quantities import Delta, Epsilon
from dpsql.sql.ir.measures import Bins, Quantile, build_bins, round_end
from dpsql.sql.ir.statements import LiteralDomain, PrivateQuery, ProductDomain
from dpsql.sql.ir.tree import Expression, Family, Literal, Type
from dpsql.sql.rewrite.bins import BinCount, rewrite_bins
from dpsql.sql.rewrite.engine_query import Bound, EngineQuery

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

MOST_BINS, MOST_BINS_IN_ALL = 1_024, 10**6
_FEWEST_BINS = 16
_LISTED = frozenset([Family.TEXT, Family.INTEGER, Family.BOOLEAN])  # keys that a statement names on every engine
_STATED = re.compile(r" ?, ?contribution_bounds_per_row ?=> ?\([^)]*\)", re.IGNORECASE)
_SAMPLES: dict[Family, str | int] = {Family.TEXT: "a", Family.INTEGER: 1, Family.BOOLEAN: True}


@dataclass(frozen=True, slots=True)
class DrawnQuantiles:
    """Quantiles of the same rows, by the numbers that they have in the query, with their mechanisms and `bins`."""

    numbers: tuple[int, ...]
    mechanisms: tuple[ExponentialQuantile, ...]
    bins: Bins


@dataclass(frozen=True, slots=True)
class QuantilesPlan(MechanismPlan):
    """Plan of the quantiles of the at most `groups` that the plan `base` returns.

    The price is that of `base` and of the quantiles of each group. `bound` is that of the groups of a unit.
    """

    base: MechanismPlan
    drawn: tuple[DrawnQuantiles, ...]
    groups: int
    bound: Bound | None

    @property
    def release_identity(self) -> tuple[object, ...]:
        drawn = tuple((each.mechanisms, each.bins) for each in self.drawn)
        return (*self.base.release_identity, drawn, self.bound is None)

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        spec = self.base.specify(query, bound)
        sample = [tuple(_write_sample(key.type) for key in query.keys)]
        return replace(
            spec,
            worst_case=add_losses([spec.worst_case, self.loss_after(spec.k)]),
            report=replace(spec.report, charged=f"{spec.report.charged}; one more for each quantile of a group"),
            further=tuple(self.count_bins(query, sample)),
            further_rows=spec.k * max(each.bins.count for each in self.drawn),
        )

    def count_bins(self, query: PrivateQuery, keys: Sequence[Sequence[Expression]]) -> list[EngineQuery]:
        """Return the statement for each set of rows, of the groups with these keys, or of all known groups."""
        is_known = isinstance(query.domain, LiteralDomain | ProductDomain) and query.clause.shape == "all"
        # Known groups are in the statement as its domain, and need not be named again.
        keys = () if is_known or not query.keys else keys
        return [
            rewrite_bins(
                query,
                BinCount(query.quantiles[each.numbers[0]], each.bins, each.mechanisms[0].shift, keys),
                bound=self.bound,
            )
            for each in self.drawn
        ]

    def loss_after(self, groups: int) -> Loss:
        """Return the loss of the quantiles of so many groups."""
        return self.price.loss(self.price.items_after(groups), Delta(0))

    @property
    def loss_of_half(self) -> Loss:
        return add_losses([self.base.loss_of_half, self.loss_after(ceil(self.groups / 2))])

    def describe(self, query: PrivateQuery) -> Facts:
        lines = list(self.base.describe(query))
        for each in self.drawn:
            for at, mechanism in zip(each.numbers, each.mechanisms, strict=True):
                words = describe_quantile(query.quantiles[at], mechanism, bins=each.bins)
                lines.append((f"quantile {name_quantile(query.quantiles[at])}", words))
        return tuple(lines)

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        return self.base.draw(groups, noise)

    def begin(self, groups: Groups, noise: Noise) -> MechanismOutput | ReadAgain:
        return self.base.begin(groups, noise)


def name_quantile(quantile: Quantile) -> str:
    """Return a quantile as the analyst wrote it, without bounds."""
    words = "" if quantile.words is None else " ".join(quantile.words.fragment.split())
    return _STATED.sub("", words) or f"the quantile {float(quantile.wanted):g}"


def describe_quantile(quantile: Quantile, mechanism: ExponentialQuantile, *, bins: Bins) -> str:
    """Return in words what bins a quantile has, between which quantiles its answer lies, and what NULL means."""
    (first, _), (_, last) = bins.find_ends(0), bins.find_ends(bins.count - 1)
    counted = "1 row" if quantile.rows == 1 else f"{quantile.rows:,} rows"
    return (
        f"one of {bins.count:,} bins from {format_value(first)} to {format_value(last)}; a unit weighs as at most "
        f"{counted}; {describe_rank(mechanism)}; {describe_fewest(mechanism, units='users')}"
    )


def describe_rank(mechanism: ExponentialQuantile, *, scale: float = 1.0) -> str:
    """Return how far the answer is from the wanted rank, in rows: `scale` times the error of the mechanism."""
    return f"at most {ceil(mechanism.rank_error() * scale):,} rows from the wanted rank with probability 0.95"


def describe_fewest(mechanism: ExponentialQuantile, *, units: str, scale: float = 1.0) -> str:
    """Return what NULL means."""
    return f"NULL: too few {units} to tell, likely below about {mechanism.fewest_rows * scale:,.0f} rows"


def describe_between(wanted: Fraction, reach: Fraction) -> str:
    """Return between which quantiles an answer lies that is so near the wanted one, rounded outwards."""
    low = round_end(max(Fraction(0), wanted - reach), reach, upwards=False)
    high = round_end(min(Fraction(1), wanted + reach), reach, upwards=True)
    return f"between the quantiles {format_value(low)} and {format_value(high)}"


def format_value(value: Fraction | Decimal | float) -> str:
    """Return a number as answers show it, with commas."""
    return f"{float(value):,}".removesuffix(".0")


def plan_quantiles(base: MechanismPlan, request: MechanismRequest, *, salts: tuple[int, int]) -> QuantilesPlan:
    """Return the plan of the quantiles of a query around that of its groups; refuse those that cannot be answered."""
    query, limit = request.query, request.terms.limits.max_rows_fetched
    _check_keys(query)
    groups = count_known(request) if query.clause.shape != "top" else request.k
    most = min(MOST_BINS, *(each // max(groups, 1) for each in (MOST_BINS_IN_ALL, *([] if limit is None else [limit]))))
    if most < _FEWEST_BINS:
        hint, reason = (
            f"Ask for at most {(limit or MOST_BINS_IN_ALL) // _FEWEST_BINS:,} groups.",
            "Quantiles of so many",
        )
        raise Refusal("rows-fetched", f"{reason} groups need too many rows.", hint=hint, place=query.clause.place)
    own = None if request.own_cap else request.max_groups_contributed
    bound = None if own is None or not query.keys else Bound(own, salts)
    drawn = [_plan_set(query, numbers, epsilon=base.price.epsilon, most=most) for numbers in _list_sets(query)]
    price = replace(base.price, after=(None if bound is None else own,) * len(query.quantiles))
    return QuantilesPlan(base.selection, price, base, tuple(drawn), groups, bound)


def _list_sets(query: PrivateQuery) -> list[tuple[int, ...]]:
    """Return the numbers of the quantiles that count the same rows in the same bins, for each such set."""
    sets = dict[object, list[int]]()
    for at, quantile in enumerate(query.quantiles):
        sets.setdefault(quantile.counted, []).append(at)
    return [tuple(sorted(each, key=lambda at: query.quantiles[at].wanted)) for each in sets.values()]


def _plan_set(query: PrivateQuery, numbers: tuple[int, ...], *, epsilon: Epsilon, most: int) -> DrawnQuantiles:
    """Return the mechanisms and the bins of quantiles of the same rows; the weights of these have one shift."""
    quantiles = [query.quantiles[at] for at in numbers]
    first, shifts = quantiles[0], list[int]()
    for each in quantiles:
        shift = find_shift(each.wanted, each.rows, epsilon=epsilon)
        if shift is None:
            hint = "Lower max_rows_contributed in WITH (...), or raise epsilon."
            reason = f"One user can have {each.rows:,} rows here, which are too many for this quantile at this epsilon."
            raise Refusal("option-range", reason, hint=hint, place=each.words or query.clause.place)
        shifts.append(shift)
    assert first.row_range is not None  # noqa: S101 - of every planned quantile
    bins = build_bins(*first.row_range, type_=first.argument.type, most=most)
    made = (ExponentialQuantile(epsilon, each.wanted, bins.count, each.rows, min(shifts)) for each in quantiles)
    return DrawnQuantiles(numbers, tuple(made), bins)


def _check_keys(query: PrivateQuery) -> None:
    """Refuse keys that a statement for this engine cannot name, where the released ones have to be named."""
    if query.clause.shape != "top" or query.dialect is DUCKDB:
        return
    for key in query.keys:
        if key.type.family not in _LISTED:
            hint = "Group by CAST(key AS VARCHAR), or ask for known groups: ALL PRIVATE WITH (domain = [...])."
            reason = f"Quantiles of TOP k are not released by keys of type {key.type} on {query.dialect.name}."
            raise Refusal("key-type", reason, hint=hint, place=query.clause.place)


def _write_sample(type_: Type) -> Literal:
    """Return some value of a key, by which a statement is written before keys are known."""
    value = _SAMPLES.get(type_.family)
    return Literal(value, type_, len(value)) if isinstance(value, str) else Literal(value, type_)


_TIMES = frozenset([Family.DATE, Family.TIMESTAMP])


def name_quantile_column(at: int) -> str:
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
    # No group came back: no statement is run, and the columns are empty.
    if groups:
        statements = own.count_bins(query, _list_literals(known, [key.type for key in query.keys]))
        for drawn, counting in zip(own.drawn, statements, strict=True):
            weights = _read_bin_weights(read(counting), known, bins=drawn.bins.count)
            for row in range(groups):
                found = _draw_group(drawn, weights[row], noise=noise)
                for at, number in zip(drawn.numbers, found, strict=True):
                    type_ = query.quantiles[at].type
                    values[at][row] = None if number is None else drawn.bins.read_value(number, type_)
    for at, quantile in enumerate(query.quantiles):
        type_ = pa.int64() if quantile.type.family is Family.INTEGER else pa.float64()
        canonical = canonical.append_column(name_quantile_column(at), pa.array(values[at], type_))
    return canonical, own.loss_after(groups), own.price.items_after(groups)


def _draw_group(drawn: DrawnQuantiles, weights: npt.NDArray[np.int64], *, noise: Noise) -> list[int | None]:
    """Return the bins of the quantiles of one group, in ascending order where they are not None: post-processing."""
    found = [mechanism.select(weights, noise) for mechanism in drawn.mechanisms]
    # Draws are independent: the bin of 0.9 may be below that of 0.5, and sorting them costs nothing.
    ordered = iter(sorted(each for each in found if each is not None))
    return [None if each is None else next(ordered) for each in found]


def _read_bin_weights(table: pa.Table, known: pa.Table, *, bins: int) -> npt.NDArray[np.int64]:
    """Return the weight in each bin of each known group, having made sure that the engine kept to the contract.

    Rows of other groups are left out, as those whose key the engine compares otherwise than Arrow.
    """
    keys, weights = known.num_columns, np.zeros((known.num_rows, bins), np.int64)
    numbers = read_int64(table.columns[keys:])
    if len(numbers) != len(("bin", "weight")):
        raise refuse_result()
    places, added = numbers
    if not 0 <= places.min(initial=0) <= places.max(initial=0) < bins or added.min(initial=0) < 0:
        raise refuse_result()
    rows = number_rows(table.columns[:keys], known) if keys else np.zeros(len(places), np.int64)
    present = rows >= 0
    # `weights[rows, places] += added` would keep one of several rows of the same bin.
    np.add.at(weights, (rows[present], places[present]), added[present])
    return weights


def _list_literals(known: pa.Table, types: Sequence[Type]) -> list[tuple[Literal, ...]]:
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
