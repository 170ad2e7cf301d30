"""Sets of measures that are divided by each other: each unit has one weight for all measures of a set.

A release is known by its measure and its set. AVG(x) is a set of its own, of SUM(x) and COUNT(x), so the same SUM
beside it keeps its own cut. Outputs that meet in one expression of a SELECT around the private query are one set.
A unit is never cut where units are counted: COUNT(DISTINCT unit) is in no set.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from dpsql.sql.ir.measures import Aggregate, Measure, Weight
from dpsql.sql.ir.statements import Output, PrivateQuery

__all__ = ["couple_measures", "merge_meetings"]

_Set = frozenset[Measure]
_ALONE: _Set = frozenset()


def couple_measures(query: PrivateQuery, meetings: Iterable[Collection[int]] = ()) -> PrivateQuery:
    """Return the query with the sets of its measures: of each average, and of outputs that meet, by their positions."""
    found = list(meetings)
    if not found and all(output.divisor is None for output in query.outputs):
        return query
    plain = [replace(measure, weight=None) for measure in query.measures]
    sets = _find_sets(query, plain, meetings=found)
    ordered = sorted({each for each in sets if each}, key=lambda each: sorted(map(repr, each)))
    weights = {each: Weight(number) for number, each in enumerate(ordered, start=1)}
    pairs = [
        []
        if output.key is not None
        else [replace(plain[at], weight=weights.get(within)) for at in _list_places(output)]
        for output, within in zip(query.outputs, sets, strict=True)
    ]
    ranking = [_find_ranking(query, plain[0], pairs=pairs)] if query.clause.shape == "top" else []
    measures = tuple(dict.fromkeys([*ranking, *sorted({each for pair in pairs for each in pair}, key=repr)]))
    outputs = tuple(
        replace(output, measure=measures.index(pair[0]), divisor=measures.index(pair[1]) if pair[1:] else None)
        if pair
        else output
        for output, pair in zip(query.outputs, pairs, strict=True)
    )
    return replace(query, measures=measures, outputs=outputs)


def _list_places(output: Output) -> list[int]:
    """Return the numbers of the measures of an output, the divisor last."""
    return [output.measure] if output.divisor is None else [output.measure, output.divisor]


def _find_sets(query: PrivateQuery, plain: Sequence[Measure], *, meetings: Iterable[Collection[int]]) -> list[_Set]:
    """Return the set of each output, which is empty for a key and for a measure alone."""
    together = dict[int, _Set]()
    for meeting in merge_meetings(meetings):
        met = [at for at in meeting if _may_meet(query.outputs[at], plain)]
        measures = frozenset(plain[query.outputs[at].measure] for at in met)
        together |= dict.fromkeys(met, measures if len(measures) > 1 else _ALONE)
    last = dict[tuple[int, ...], _Set]()
    found = list[_Set]()
    for at, output in enumerate(query.outputs):
        places = tuple(_list_places(output))
        within = _ALONE if output.divisor is None else frozenset(plain[each] for each in places)
        if output.end is not None:  # of the measure before it
            within = last.get(places, within)
        elif output.key is None:
            within = last[places] = together.get(at, within)
        found.append(within)
    return found


def _may_meet(output: Output, plain: Sequence[Measure]) -> bool:
    """Say whether an output is a number of rows or a sum, as it is released."""
    is_alone = output.key is None and output.divisor is None and output.end is None
    return is_alone and plain[output.measure].aggregate is not Aggregate.UNITS


def _find_ranking(query: PrivateQuery, ranking: Measure, *, pairs: Sequence[Sequence[Measure]]) -> Measure:
    """Return the measure that ranks: as it is alone, if an output has it so, else in the set of its first output."""
    able = [pair[0] for output, pair in zip(query.outputs, pairs, strict=True) if pair and output.divisor is None]
    same = [measure for measure in able if replace(measure, weight=None) == ranking]
    return ranking if ranking in same else next(iter(same), ranking)


def merge_meetings(meetings: Iterable[Collection[int]]) -> Iterator[frozenset[int]]:
    """Yield the meetings, those that have an output in common as one."""
    merged = list[frozenset[int]]()
    for meeting in map(frozenset, meetings):
        apart = [each for each in merged if not each & meeting]
        merged = [*apart, meeting.union(*(each for each in merged if each & meeting))]
    yield from merged
