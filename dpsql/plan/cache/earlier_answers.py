"""Answers that 0.10 and the first 0.11 stored, found again by the keys that these versions gave them.

Such an answer stands under the digest of its release: the rows, the counted groups, and the mechanism with its
parameters. A question that names a mechanism is looked up under that release alone. One that names none is looked up
under that of the mechanism that the earlier version chose for it, and then of the others that it chose among; of these
the newest answer is found. Both versions released numbers of units alone, as TOP k.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from dpsql.errors import Refusal, Unsupported
from dpsql.plan.cache.replay_key import compute_replay_key
from dpsql.plan.plan import Plan
from dpsql.sql.ir.statements import Option, PrivateQuery

__all__ = ["list_earlier_plans"]

_Build = Callable[[PrivateQuery], Plan]
_CHOICES = ("limited_domain", "gaussian_histogram", "weighted_gaussian", "domain_discovery")
_KNOWN_DOMAIN = ("peeling",)
_WITH_POPULATION = frozenset(["limited_domain", "domain_discovery"])  # those preferred where few units were enough


def list_earlier_plans(query: PrivateQuery, build: _Build, *, stored: Container[str]) -> Iterator[tuple[str, Plan]]:
    """Yield the keys that are `stored` and may have an answer to a question, each with the plan of its release.

    First comes what the earlier version chose. The plans have the clause of the `query`, whatever their mechanism is.
    """
    if query.clause.shape != "top" or not query.counts_units_alone:
        return
    query = replace(query, names=None)
    option = query.clause.options.get("mechanism")
    is_auto = option is None or option.value == "auto"
    names: Sequence[str] = ()
    if is_auto and not query.clause.is_adaptive:
        names = _CHOICES if query.domain is None else _KNOWN_DOMAIN
    plans = list(_build_each(query, names, build=build)) if names else [build(query)]
    found = [(key, plan) for plan in plans if (key := compute_replay_key(plan, as_in_0_10=True)) in stored]
    chosen = _find_chosen(plans) if found else None
    for key, plan in sorted(found, key=lambda each: each[1] is not chosen):
        yield key, replace(plan, query=replace(plan.query, clause=query.clause))


def _build_each(query: PrivateQuery, names: Sequence[str], *, build: _Build) -> Iterator[Plan]:
    """Yield the plan of each mechanism that can answer the query."""
    clause = query.clause
    for name in names:
        options = {**clause.options, "mechanism": Option(name, clause.place, word=True)}
        with suppress(Refusal, Unsupported):
            yield build(replace(query, clause=replace(clause, options=options)))


def _find_chosen(plans: Sequence[Plan]) -> Plan | None:
    """Return the plan that the earlier version chose: the least price, and of that the fewest units a group needs.

    Where the policy says how many units there are, the last of k groups was taken to have one k-th of them, and a
    mechanism that needs no more and ranks by counts went before the others.
    """
    predicted = [(plan, plan.need) for plan in plans]
    needs = [(plan, need) for plan, need in predicted if need is not None]
    usual = [(plan, need) for plan, need in needs if plan.mechanism != "domain_discovery"]
    if not usual:
        return None
    best, least = min(usual, key=lambda each: (each[1].items, each[1].units))
    if best.population is not None:
        for plan, need in needs:
            is_enough = need.units <= best.population / best.k and need.items <= least.items
            if plan.mechanism in _WITH_POPULATION and is_enough:
                return plan
    return best
