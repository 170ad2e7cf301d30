"""Answers that follow from stored ones: the first rows of a longer one, and sums of released cells.

The text of a question and the stored answer decide whether it is used: no row of the data does. What is used is a
function of the stored answer, so that it costs nothing. It is given unasked only where a new answer would have the same
law, or that of a larger loss; others are offered.

    first rows of                                     are
    ------------------------------------------------  ---------------------------------------------------------
    a limited domain at the same k_bar, also that     given: the draws are one by one, and BOTTOM stands where it
    behind the two looks; peeling; known names        stands for the shorter answer
    above BOTTOM alone (evidence = strict)
    weights, a histogram, or discovery by name        given: they are those of a larger rho
    everything else that comes in one order           offered: another law
    counts beside the names                           no difference: names have the law that they have without
    joint draws and stable sets                       neither: they have no order

A cell is a released number of one group. It answers a question whose rows are those of the group; the sum of several
answers one whose rows are theirs.

    question                                          is
    ------------------------------------------------  ---------------------------------------------------------
    number of all units, by the noisy total that      given if it has no more noise than a new answer, else offered
    counts of the same rows share
    one group, `WHERE key = constant`, or fewer       the same; offered where the noise decided which groups were
    measures of the same groups                       returned
    TOP k of `key IN (constants)`                     offered: the order of those in the list, without the others
    all rows, or those of coarser groups, by the sum  offered, where the text tells that every row is in one of the
    of rows and values of finer ones                  groups: it has more noise, and each unit its bounds in each
    numbers of units in coarser groups, counts with   neither: another number, as a unit can be in several groups,
    a bound of groups, groups of a list, or of TOP k  or rows in none; numbers of units are offered where the policy
                                                      gives each unit one value of the key, in a list of its values

Of several cells that with the least noise is used, and of equal ones the newest.

A new answer is that which the same names would have brought as were known when the stored one was drawn, as for a
question that is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING

from dpsql.display import plural, unit_noun
from dpsql.intervals import LEVEL, SharedNoise
from dpsql.plan.identity.replay_key import MeasuredRows
from dpsql.plan.identity.stored_release import derive_stored, read_stored, read_terms
from dpsql.plan.mechanisms.base import CountNoise, PrefixLaw
from dpsql.plan.mechanisms.names import int64_array, list_rows
from dpsql.plan.plan import Plan, ReusedAnswer
from dpsql.plan.release import COUNT, ReleaseTerms, describe_noise, name_measure
from dpsql.sql.analysis.domains import count_covering_groups
from dpsql.sql.ir.measures import Aggregate, Measure

if TYPE_CHECKING:
    import pyarrow as pa

_OTHER_LAW = "of another law than a new answer"
_LEAST_ADDED = 4  # variance of noise that is added: the masses of a sum of two are off by 4 exp(-pi**2 variance)


@dataclass(frozen=True, slots=True, repr=False)
class DerivedAnswer:
    """The plan of a question with the stored answer to it, made from another, which `is_given` without being asked for.

    The `variance` of a cell is that of its first number.
    """

    plan: Plan
    stored: bytes
    is_given: bool
    variance: Fraction = Fraction(0)

    @property
    def rank(self) -> tuple[bool, Fraction]:
        """Return what is least of the best of several answers from cells."""
        return not self.is_given, self.variance


def take_first_rows(plan: Plan, stored: bytes, *, k: int, build_nameless: Callable[[], Plan]) -> DerivedAnswer | None:
    """Return the first rows of the answer to a question of the same series and a larger k, as the answer to a plan.

    To names alone an answer with counts is one, too, also of the same k.

    None for rows in no order, and for the answer to another question. `build_nameless` returns the plan of the question
    without known names.
    """
    read = read_stored(stored)
    if read is None or plan.series is None or "prefix" not in read[0] or read[0].get("series") != [plan.series[0], k]:
        return None
    facts, canonical = read
    terms = read_terms(facts)
    like = plan if terms.known or not plan.spec.rows.known else build_nameless()  # from the names that were known then
    words = "names" if k == plan.series[1] else f"first {plan.series[1]}"
    words += f" of an answer of {_describe_rows(k, facts['day'])}"
    canonical = canonical.slice(0, plan.k)
    if not plan.query.releases_counts:  # the bound of groups is that of counts; the question has it, too
        canonical, terms = canonical.select(range(len(plan.query.keys))), replace(terms.without_noise, bounded_by=None)
    is_given = _has_law_of(like, terms, law=PrefixLaw(facts["prefix"]))
    bottom = facts["bottom"] and canonical.num_rows < plan.k
    terms = replace(terms, k=plan.k)
    derived = derive_stored(stored, canonical, terms=terms, key=like.key, bottom=bottom, known_before=None)
    return DerivedAnswer(replace(like, reused=ReusedAnswer(words, _OTHER_LAW)), derived, is_given)


def _describe_rows(k: int | None, day: str) -> str:
    return f"{k} {'group' if k == 1 else 'groups'} from {day}"


def _has_law_of(plan: Plan, terms: ReleaseTerms, *, law: PrefixLaw) -> bool:
    """Return whether the first rows of an answer on these terms have the law of a plan, or that of a larger loss."""
    option = plan.query.clause.options.get("mechanism")
    # AUTO may choose another mechanism for fewer rows.
    is_named = option is not None and option.value == terms.mechanism
    own = ReleaseTerms.of(plan)
    return (
        (law is PrefixLaw.EXACT or (law is PrefixLaw.LARGER and is_named))
        and (own.mechanism, own.k_bar, own.chooses) == (terms.mechanism, terms.k_bar, terms.chooses)
        and (own.known, own.evident, own.bounded_by) == (terms.known, terms.evident, terms.bounded_by)
        and terms.epsilon >= own.epsilon
        and terms.delta <= own.delta
        and terms.threshold_offset <= own.threshold_offset
    )


def take_cells(plan: Plan, rows: MeasuredRows, *, stored: bytes) -> DerivedAnswer | None:
    """Return the answer to a total, or to known groups, from numbers of a stored answer that measured `rows`; or None.

    The total, and each group of the plan, is one stored group, or the sum of several.
    """
    import pyarrow as pa

    read, query = read_stored(stored), plan.query
    if read is None or not set(rows.measures) <= set(read[0].get("cells", {"measures": ()})["measures"]):
        return None
    facts, canonical = read
    cells, terms, is_total = facts["cells"], read_terms(facts), query.clause.shape == "total"
    of = f"of an answer of {_describe_rows(terms.k, facts['day'])}"
    if cells["total"] and terms.total is not None and is_total and not rows.fixed:
        table, own = pa.table({COUNT: int64_array([terms.total.value])}), CountNoise(terms.total.variance)
        reused = ReusedAnswer(f"number of all {plural(unit_noun(query.unit_name))} {of}", "")
        return _derive(plan, stored, table=table, terms=replace(terms, counts=own), reused=reused)
    groups = _group_rows(rows, canonical, keys=cells["keys"])
    sizes, is_coarser = {len(each) for each in groups}, len(rows.fixed.keys() | set(rows.keys)) < len(cells["keys"])
    listed = prod(len(values) for key, values in rows.fixed.items() if key not in rows.keys)
    is_sum, is_top, is_disjoint = is_coarser or listed > 1, query.clause.shape == "top", "disjoint" in facts
    places = [cells["measures"].index(each) for each in rows.measures]
    if is_top:
        groups = groups[: plan.k]
        is_found = (
            rows.fixed.keys() <= set(rows.keys)
            and bool(rows.fixed)
            and query.domain is None  # a list of its own can have fewer values
            and places[0] == 0  # the first measure ranks
            and not is_sum
            and "series" in facts
            and bool(groups)
        )
    else:
        is_found = len(groups) == (1 if is_total else count_covering_groups(query))
        is_found = is_found and (len(sizes) == 1 if is_coarser else sizes == {listed})
    if (
        not is_found
        or plan.count_bound is not None
        or not (terms.bounded_by is None or (is_disjoint and terms.bounded_by == 1))  # of one group for each unit
        or (is_coarser and cells["groups"] != canonical.num_rows)
        or (is_sum and not (cells["independent"] and _can_be_added(query.measures, is_disjoint=is_disjoint)))
    ):
        return None
    noises = [_add_noises(terms.noises[at], size=max(sizes)) for at in places]
    if None in noises:
        return None
    first, *others = filter(None, noises)
    columns = dict[str, "pa.Array | pa.ChunkedArray"]()
    for at, key in enumerate(rows.keys):
        columns[f"key_{at + 1}"] = canonical.column(cells["keys"].index(key)).take(
            int64_array(each[0] for each in groups)
        )
    for at, place in enumerate(places):
        values = canonical.column(name_measure(place)).to_pylist()
        columns[name_measure(at)] = int64_array(sum(values[row] for row in each) for each in groups)
    words = f"{'one group' if is_total else 'groups of a list' if is_top else 'groups'} {of}"
    if is_sum:
        noun = unit_noun(query.unit_name)
        bounds = "" if query.counts_units_alone else f", with the bounds of a {noun} in each"
        words = f"{'sum' if is_total else 'sums'} of {max(sizes)} groups {of}{bounds}"
    terms = replace(terms, counts=first, others=tuple(others))
    reused, is_independent = ReusedAnswer(words, "", is_sum), cells["independent"] and not (is_sum or is_top)
    return _derive(plan, stored, table=pa.table(columns), terms=terms, reused=reused, is_independent=is_independent)


def _group_rows(rows: MeasuredRows, canonical: pa.Table, *, keys: Sequence[str]) -> list[list[int]]:
    """Return the rows of a stored table that have fixed keys, by the keys of a question; none of other keys."""
    if not rows.fixed.keys() | set(rows.keys) <= set(keys):
        return []
    places, fixed = [keys.index(key) for key in rows.keys], {keys.index(key): each for key, each in rows.fixed.items()}
    found = dict[tuple[object, ...], list[int]]()
    values = list_rows(canonical.select(range(len(keys)))) if keys else [()] * canonical.num_rows
    for at, row in enumerate(values):
        if all(row[place] in values_of for place, values_of in fixed.items()):
            found.setdefault(tuple(row[place] for place in places), []).append(at)
    return list(found.values())


def _can_be_added(measures: Sequence[Measure], *, is_disjoint: bool) -> bool:
    """Return whether the values of several groups add up to that of all of them, but for the bounds of each unit.

    Numbers of units do where a unit is in one group alone.
    """
    added = {Aggregate.ROWS, Aggregate.SUM, *([Aggregate.UNITS] if is_disjoint else [])}
    return all(each.aggregate in added and each.weight is None for each in measures)


def _add_noises(noise: CountNoise, *, size: int) -> CountNoise | None:
    """Return the noise of the sum of so many numbers, all of which have the shared part of their noise.

    It is discrete Gaussian to within 1e-15, as intervals take it, where each is wide enough; None for other noise.
    """
    parts, own = noise.parts, noise.variance if noise.parts is None else noise.parts.own
    if size == 1:
        return noise
    if noise.scale is not None or own < _LEAST_ADDED:
        return None
    if parts is None:
        return CountNoise(size * own)
    parts = SharedNoise(size * own, parts.shared, size * parts.factor)
    return CountNoise((parts.own + parts.factor**2 * parts.shared) / 4, parts=parts)


def _derive(
    plan: Plan,
    stored: bytes,
    *,
    table: pa.Table,
    terms: ReleaseTerms,
    reused: ReusedAnswer,
    is_independent: bool = True,
) -> DerivedAnswer:
    """Return an answer of released numbers: given if their noise is independent, and no more than that of a new one."""
    new, noises, measures = ReleaseTerms.of(plan), terms.noises, plan.query.measures
    is_given = is_independent and all(
        (noise.scale is None) == (own.scale is None) and noise.variance <= own.variance
        for noise, own in zip(noises, new.noises, strict=True)
    )
    shown = sorted({each.measure for each in plan.query.outputs if each.is_measure and each.divisor is None})
    law = " where a new answer has ".join(
        " and ".join(_write_reach(each[at], measures[at]) for at in shown) for each in (noises, new.noises) if shown
    )
    terms = replace(new, epsilon=terms.epsilon, counts=terms.counts, others=terms.others)
    changed = {"bottom": False, **dict.fromkeys(("known_before", "legs", "chosen", "prefix"))}
    derived = derive_stored(stored, table, terms=terms, key=plan.key, **changed)
    reused = replace(reused, law=law or _OTHER_LAW)
    return DerivedAnswer(replace(plan, reused=reused), derived, is_given, noises[0].variance)


def _write_reach(noise: CountNoise, measure: Measure) -> str:
    """Return the half width of the interval of a number, in its unit."""
    described = describe_noise(noise, measure)
    width = described.reach(LEVEL) * described.step
    return f"± {width.numerator:,}" if width.denominator == 1 else f"± {float(width):,.3g}"
