"""Answers that follow from stored ones: the first rows of a longer one, by public numbers alone.

The text of a question and the terms with which an answer is stored decide whether it is used: no row of the data does.
What is used is a function of the stored answer, so that it costs nothing. It is given unasked only where a new answer
would have the same law, or that of a larger loss; others are offered.

    first rows of                                     are
    ------------------------------------------------  ---------------------------------------------------------
    a limited domain at the same k_bar, also that     given: the draws are one by one, and BOTTOM stands where it
    behind the two looks; peeling; known names        stands for the shorter answer
    above BOTTOM alone (evidence = strict)
    weights, a histogram, or discovery by name        given: they are those of a larger rho
    everything else that comes in one order           offered: another law
    joint draws and stable sets                       neither: they have no order

A new answer is that which the same names would have brought as were known when the stored one was drawn, as for a
question that is repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from dpsql.plan.identity.stored_release import read_facts, read_terms
from dpsql.plan.mechanisms.base import PrefixLaw
from dpsql.plan.plan import Plan, ReusedAnswer
from dpsql.plan.release import ReleaseTerms


@dataclass(frozen=True, slots=True, repr=False)
class DerivedAnswer:
    """The plan of a question with the stored answer that it reuses, which `is_given` without being asked for."""

    plan: Plan
    stored: bytes
    is_given: bool


def take_first_rows(
    plan: Plan, stored: bytes, *, k: int, key: str, build_nameless: Callable[[], Plan]
) -> DerivedAnswer | None:
    """Return the first rows of the answer to a question of the same series and a larger k, as the answer to a plan.

    None for rows in no order, and for the answer to another question. `build_nameless` returns the plan of the question
    without known names.
    """
    facts = read_facts(stored)
    if facts is None or plan.series is None or "prefix" not in facts or facts.get("series") != [plan.series[0], k]:
        return None
    terms = read_terms(facts)
    like = plan if terms.known or not plan.spec.rows.known else build_nameless()  # from the names that were known then
    words = f"first {plan.series[1]} of an answer of {k} of {facts['day']}"
    is_given = _has_law_of(like, terms, law=PrefixLaw(facts["prefix"]))
    return DerivedAnswer(replace(like, reused=ReusedAnswer(key, words)), stored, is_given)


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
