"""Answer of a statement from what was released: its table, its receipt, and the noise of its columns.

All of it is post-processing: a release is unpacked, seen through the outer SELECT, and described. The receipt says what
the release cost, and what is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING

from dpsql import engines
from dpsql import plan as planning
from dpsql.accounting import NO_RISE, Rise
from dpsql.answer import (
    Advice,
    Answer,
    AverageColumns,
    CountColumns,
    MeasureColumns,
    Promise,
    SpreadColumns,
    show_columns,
)
from dpsql.receipt import Receipt, Total
from dpsql.report.balance import Balance, count_admitted, find_larger_part, read_balance
from dpsql.report.bound_notes import describe_bounds, describe_quantiles
from dpsql.report.notes import explain_short_answer
from dpsql.session_dependencies import SessionDependencies
from dpsql.sql.ir.statements import Output

if TYPE_CHECKING:
    import pyarrow as pa

_COUNT_NULLS = attrgetter("null_count")
View = planning.ResultView | planning.OuterSelectView


@dataclass(frozen=True, slots=True, repr=False)
class AnswerPart:
    """A plan, its answer as drawn or as stored, and whether that was stored before, so that it costs nothing.

    `rise` is by how much the answer raised the used share of the account.
    """

    plan: planning.Plan
    answer: planning.Release | bytes
    is_replayed: bool
    rise: Rise = NO_RISE


def build_answer(
    view: View,
    parts: Sequence[AnswerPart],
    *,
    own: SessionDependencies,
    salts: tuple[int, int],
) -> Answer:
    """Return released answers, unpacked and seen through the outer SELECT, with their receipt."""
    releases, receipts = list[planning.Release](), list[Receipt]()
    protected, explanations, warned = dict[tuple[str, str], None](), list[str](), list[str]()
    tables: list[pa.Table] = []
    shows_noise = has_values = False
    for part in parts:
        plan, answer = part.plan, part.answer
        released = planning.unpack(plan, answer) if isinstance(answer, bytes) else answer
        balance = read_balance(own.ledger, own.terms, values=plan.charged_values)
        releases.append(released)
        tables.append(released.table)
        shows_noise |= bool(released.terms.noises)
        has_values |= bool(released.terms.noises or plan.query.quantiles)
        receipts.append(_build_receipt(part, released, own=own, balance=balance))
        if released.stopped_at_bottom:
            explanations.append(
                explain_short_answer(plan, released, terms=own.terms, remaining=balance.remaining, salts=salts)
            )
        if plan.query.keep and (left_out := planning.count_left_out(plan, released)):
            explanations.append(f"HAVING left out {left_out:,} {'row' if left_out == 1 else 'rows'}.")
        protected |= dict.fromkeys(plan.query.protected)
        warned += plan.warnings
    # `balance` is of the last part: what was granted is the same for all
    query = replace(parts[0].plan.query, protected=tuple(protected))
    periods = None if balance.calendar is None else balance.calendar.periods
    table, ratio_ends = view.compute(tables, own.evaluator)
    measures = _describe_measures(view, parts, releases=releases, table=table) if shows_noise else []
    shown = Answer(
        table,
        receipts[0] if len(receipts) == 1 else _combine(receipts, parts, releases=releases, own=own),
        measures=measures,
        values=view.values if has_values else (),
        promise=Promise(query.unit_name, query.holders, balance.granted, periods, balance.limit),
        advice=Advice(" ".join(filter(None, [*explanations, view.stored_note])), tuple(warned)),
    )
    is_dated = any(map(_COUNT_NULLS, table.columns)) and not view.has_outer_select
    if not (ratio_ends or is_dated):
        return shown
    return show_columns(shown, ratio_ends=ratio_ends, dated=planning.find_dated(query) if is_dated else ())


def _combine(
    receipts: Sequence[Receipt],
    parts: Sequence[AnswerPart],
    *,
    releases: Sequence[planning.Release],
    own: SessionDependencies,
) -> Receipt:
    """Return the receipt of a statement with several private queries, and how many more such statements fit."""
    drawn = [each for each in zip(parts, releases, strict=True) if not each[0].is_replayed]
    plans, counts = [part.plan for part, _ in drawn], list[int]()
    # a unit loses what the queries that count its value cost
    for value in dict.fromkeys([None, *(value for plan in plans for value in plan.charged_values)]):
        counting = [each for each in drawn if value in each[0].plan.charged_values or not each[0].plan.charged_values]
        losses = [part.plan.price(released.loss) for part, released in counting]
        if any(loss.refundable for loss in losses):
            worst = [part.plan.price(part.plan.worst_case) for part, _ in counting]
            left = read_balance(own.ledger, own.terms, values=() if value is None else (value,)).remaining
            loss = sum(losses[1:], losses[0])
            counts.append(count_admitted(left, sum(worst[1:], worst[0]), loss=loss))
    return Receipt.combine(receipts, more=min(counts, default=None))


def build_free_answer(table: pa.Table, own: SessionDependencies, *, note: str = "") -> Answer:
    """Return the answer of a statement that reads no private row, and costs nothing; a `note` is shown beside it."""
    receipt = Receipt.free(
        read_balance(own.ledger, own.terms).remaining,
        nothing=own.terms.nothing,
        sealed=own.engine.sealed,
        isolation=own.engine.isolation,
        confinement=engines.read_confinement(own.engine),
    )
    return Answer(table, receipt, advice=Advice(note))


def _build_receipt(
    part: AnswerPart, released: planning.Release, *, own: SessionDependencies, balance: Balance
) -> Receipt:
    """Return the receipt of one release; one that is replayed is charged nothing."""
    plan, is_replayed = part.plan, part.is_replayed
    drawn, query, total, by = released.terms, plan.query, released.terms.total, own.terms.budget_by
    answered, is_short = released.canonical.num_rows, released.stopped_at_bottom
    bounds = ""
    has_own_bounds = plan.reused is None or not plan.reused.is_sum  # else each group had them, as its words say
    if drawn.bounded_by is not None or (not query.counts_units_alone and has_own_bounds):
        bounds = describe_bounds(query, drawn.bounded_by)
    if query.quantiles:
        bounds = "; ".join(filter(None, [bounds, describe_quantiles(plan, released)]))
    more = None
    if not is_replayed and (price := plan.price(released.loss)).refundable:
        more = count_admitted(balance.remaining, plan.price(plan.worst_case), loss=price)
    return Receipt(
        mechanism=drawn.mechanism,
        k=drawn.k,
        k_bar=drawn.k_bar,
        epsilon=drawn.epsilon,
        delta=drawn.delta,
        threshold_offset=drawn.threshold_offset,
        items_charged=0 if is_replayed else released.items_charged,
        loss=own.terms.nothing if is_replayed else released.loss,
        remaining=balance.remaining,
        stopped_at_bottom=is_short,
        sealed=own.engine.sealed,
        replayed=is_replayed,
        shared=own.terms.limits.share_replays,
        durable=own.ledger.durable,
        chosen=drawn.chooses,
        certificate=plan.certificate,
        isolation=own.engine.isolation,
        confinement=engines.read_confinement(own.engine),
        answered=answered,
        wanted=max(answered, drawn.k * drawn.partitions) if is_short else answered,
        read_as=query.clause.words if query.clause.implied else "",
        bounded_by=drawn.bounded_by,
        bounds=bounds,
        cut=query.bucket_note,
        list_note="; ".join(filter(None, [query.k_note if drawn.k == plan.k else "", query.list_note])),
        legs=released.legs,
        charged_to="" if by is None else plan.describe_charged(by),
        known=drawn.known,
        evident=drawn.evident,
        known_before=released.known_before,
        reread=plan.reread and not is_replayed,
        reused="" if plan.reused is None else plan.reused.words,
        total=None if total is None else Total(total.value, total.variance, query.unit_name),
        rise=part.rise,
        outdone_by="" if is_replayed or part.rise.share else find_larger_part(balance),
        more=more,
    )


def _describe_measures(
    view: View, parts: Sequence[AnswerPart], *, releases: Sequence[planning.Release], table: pa.Table
) -> list[MeasureColumns]:
    """Return the columns of the measures that an answer shows, with their noise."""
    counts, averages = list[MeasureColumns](), list[MeasureColumns]()
    for at, (part, released) in enumerate(zip(parts, releases, strict=True)):
        shown, around = view.find_columns(at, part.plan.query), table if view.has_outer_select else None
        counts += _describe_counts(part.plan, shown.measures, released=released)
        averages += _describe_averages(part.plan, shown.averages, released=released, table=around)
        averages += _describe_spreads(part.plan, shown.spreads, released=released, table=around)
    return counts + averages


def _describe_counts(
    plan: planning.Plan, shown: Mapping[int, tuple[int, ...]], *, released: planning.Release
) -> Iterator[CountColumns]:
    """Yield the columns of the measures of one release that are `shown`: first that which ranks, then from the left."""
    noises, ranks = released.terms.noises, plan.query.clause.shape == "top"
    ordered = sorted(shown.items(), key=lambda each: (not (ranks and each[0] == 0), each[1]))
    for at, columns in ordered if noises else ():
        described = planning.describe_noise(noises[at], plan.query.measures[at])
        yield CountColumns(
            columns,
            noises[at].variance,
            noises[at].scale,
            plan.monotone and at == 0,
            step=described.step,
            may_be_negative=described.may_be_negative,
            parts=described.parts,
            counts_units=plan.query.measures[at].bounds is None,
        )


def _describe_averages(
    plan: planning.Plan,
    shown: Mapping[tuple[int, int], tuple[int, ...]],
    *,
    released: planning.Release,
    table: pa.Table | None,
) -> Iterator[AverageColumns]:
    """Yield the columns of the averages of one release, of those that are `shown`.

    A SELECT around the query has made the rows of the `table`, each of which has a released average by its value; of
    several groups with one value, the interval is that of the group with the fewest rows, which is the widest.
    """
    noises, measures = released.terms.noises, plan.query.measures
    for (dividend, divisor), columns in shown.items():
        sums, rows = (
            tuple(noises[at].read(released.canonical.column(planning.name_measure(at)).take(released.rows).to_pylist()))
            for at in (dividend, divisor)
        )
        both = tuple(planning.describe_noise(noises[at], measures[at]) for at in (dividend, divisor))
        place, is_adjusted = planning.find_place(measures[dividend]), plan.monotone and 0 in {dividend, divisor}
        described = AverageColumns(columns, sums, rows, (both[0], both[1]), place, is_adjusted)
        if table is None:
            yield described
            continue
        # the SELECT around it may filter and sort: a row is found by its value, and its interval is that of its group
        values = planning.divide_steps(sums, rows, measures=(measures[dividend], measures[divisor])).to_pylist()
        # In a dict the last of equal values stays: the group with the fewest rows, whose interval is the widest.
        found = sorted(zip(values, sums, rows, strict=True), key=lambda each: each[2], reverse=True)
        pairs = {value: (total, number) for value, total, number in found}
        for column in columns:
            # A value of no group was computed by the SELECT: 0 rows give it no interval.
            chosen = [pairs.get(value, (0, 0)) for value in table.column(column).to_pylist()]
            sums, rows = tuple(total for total, _ in chosen), tuple(number for _, number in chosen)
            yield replace(described, columns=(column,), sums=sums, rows=rows)


def _describe_spreads(
    plan: planning.Plan,
    shown: Mapping[Output, tuple[int, ...]],
    *,
    released: planning.Release,
    table: pa.Table | None,
) -> Iterator[SpreadColumns]:
    """Yield the columns of the statistics of spread of one release that are `shown`.

    A SELECT around the query has made the rows of the `table`, as for averages.
    """
    canonical = released.canonical.take(released.rows)
    for output, columns in shown.items():
        law, steps = planning.read_spread(plan.query, canonical, output=output, terms=released.terms)
        described = SpreadColumns(columns, tuple(steps), law, plan.monotone and 0 in output.places)
        if table is None:
            yield described
            continue
        # Of equal values that with the fewest rows stays, and a value of no group gets 0 rows, and no interval.
        found = sorted(((law.compute(each), each) for each in steps), key=lambda each: each[1][0], reverse=True)
        of_values = dict(found)
        for column in columns:
            chosen = [of_values.get(value, (0,) * len(law.noises)) for value in table.column(column).to_pylist()]
            yield replace(described, columns=(column,), steps=tuple(chosen))
