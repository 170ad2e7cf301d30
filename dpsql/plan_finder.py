"""Plan of a private query, and the answer to it that the ledger has stored for this analyst.

A plan is made from public numbers and reads no private row. The stored answer is found by the keys of the plan, in
these words or in others, also where an earlier version of dpsql stored it under another key.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dpsql import plan as planning
from dpsql.engines import Stop
from dpsql.errors import Refusal, Unsupported
from dpsql.report.consent import Reach, find_reach, write_list_note
from dpsql.report.forecast import simulate_recall
from dpsql.report.free_answers import FreeAnswers
from dpsql.report.notes import describe_need, find_waste, note_ranking
from dpsql.session_dependencies import SessionDependencies
from dpsql.sql.analysis.domains import (
    find_group_query,
    find_guess_query,
    find_partition_query,
    set_guess,
    set_known_groups,
    set_partition_values,
)
from dpsql.sql.ir.statements import PrivateQuery, PublicQuery


@dataclass(frozen=True, slots=True, repr=False)
class PlannedQuery:
    """A plan, and the stored answer to it, if there is one: without a `repr`, as it is one analyst's.

    `stored` is None also of a query that asks for new noise. `reach` says how much of a population a group needs, where
    the policy declares one.
    """

    plan: planning.Plan
    stored: bytes | None
    reach: Reach | None = None


@dataclass(slots=True)
class PlanFinder:
    """Plans of a session's queries, with the stored answers to them.

    `free` answers what public tables hold of a query, and `names` are those that earlier answers released. The `salts`
    are the session's own: which of several equal choices are made must not tell the same thing in all sessions.
    """

    own: SessionDependencies
    free: FreeAnswers
    names: planning.NamesOfAccount
    salts: tuple[int, int]

    def build(self, query: PrivateQuery) -> planning.Plan:
        """Return the plan of a complete query. Raises `Refusal` and `Unsupported`."""
        return planning.build_plan(query, self.own.terms, salts=self.salts)

    def complete(self, query: PrivateQuery, stop: Stop | None = None) -> PrivateQuery:
        """Return the query with the values that public tables hold of it, and with the names that are known.

        The values are those of partitions, of groups of ALL PRIVATE and of guessed counts; the names are key values
        that earlier answers released.
        """
        if query.charged_values is not None and self.own.ledger.division != self.own.division:
            query = replace(query, charged_values=None)  # the ledger no longer knows which value each unit has here
        # Materialized tables are used only if they were made of this version of the data.
        if query.materialized:
            query = query.at(self.own.ledger.data_version)
        listed = None if query.partitions is None else find_partition_query(query)
        if listed is not None:
            query = set_partition_values(query, self._list_values(listed, stop))
        listed = None if query.domain is None else find_group_query(query)
        if listed is not None:
            query = set_known_groups(query, self._list_values(listed, stop))
        guessed = find_guess_query(query) if query.explained else None
        if guessed is not None:
            query = set_guess(query, self._list_values(guessed, stop))
        return self.names.complete(query)

    def _list_values(self, query: PublicQuery, stop: Stop | None) -> list[Any]:
        """Return the first column of a public query."""
        return list(self.free.answer(query, stop).column(0).to_pylist())

    def find(self, query: PrivateQuery, stop: Stop | None = None) -> PlannedQuery:
        """Return the plan of a query, and the stored answer of this analyst to it on this version of the data."""
        query = self.complete(query, stop)
        plan = self.build(query)
        stored, is_reread = self.find_stored(plan), False
        # with the names that are known now; without them; as versions before 0.11 planned it; as 0.11 read it
        uses_names = plan.spec.rows.known and query.domain is None and not plan.fresh
        if uses_names and (stored is None or not planning.is_same_release(plan, stored)):
            # it may have been answered before the names were known, when another mechanism was chosen
            nameless = self.build(replace(query, names=None))
            stored_before = self.find_stored(nameless)
            if stored_before is not None:
                plan, stored = nameless, stored_before
        if stored is None and not plan.fresh:
            if self.names.has_answers():
                plan, stored = self._find_otherwise(query, plan)
            if plan.earlier_key:  # it is not returned, but said: the statement means something else today
                answer = self.own.ledger.stored(plan.earlier_key, self.own.account)
                is_reread = answer is not None and planning.is_of_0_11(answer)
        is_restricted = "mechanism" in query.clause.options or self.own.terms.account is not None
        if is_restricted and (stored is None or plan.fresh):
            self._check_charged(query)
        if query.explained:
            plan = simulate_recall(plan, noise=self.own.noise)
        if plan.query.cut_list is not None:
            plan = write_list_note(plan, self.own.terms)
        if len(plan.query.measures) > 1:
            plan = note_ranking(plan)
        reach = find_reach(plan)
        described = replace(
            plan,
            stored=stored is not None,
            reread=is_reread,
            warnings=find_waste(plan, reach),
            needs=describe_need(plan) if query.explained else "",
        )
        return PlannedQuery(described, None if plan.fresh else stored, reach)

    def _check_charged(self, query: PrivateQuery) -> None:
        """Raise `Refusal` for a new query with a retired mechanism, or of an analyst without a share of the budget."""
        option = query.clause.options.get("mechanism")
        if option is not None and option.value in planning.RETIRED:
            raise planning.refuse_retired(option)
        if not self.own.terms.has_share:
            reason = f"{self.own.account} has no share of the budget, and this query would be charged."
            hint = "Read public and published tables, which are free: SHOW TABLES lists them. The curator gives shares."
            raise Refusal("no-share", reason, hint=hint, place=query.clause.place)

    def find_stored(self, plan: planning.Plan) -> bytes | None:
        """Return the stored answer of this analyst to a query, in these words or in others; None without one."""
        ledger, account = self.own.ledger, self.own.account
        stored = ledger.stored(plan.key, account)
        if stored is None and plan.named_keys:
            stored = ledger.stored(plan.named_keys[0], account, *plan.named_keys[1:])
        for key in plan.similar_keys if stored is None else ():
            similar = ledger.stored(key, account)
            if similar is not None and (key == plan.release_key or planning.is_same_release(plan, similar)):
                return similar  # of another query it is refused, and not charged again in silence
        return stored

    def _find_otherwise(self, query: PrivateQuery, plan: planning.Plan) -> tuple[planning.Plan, bytes | None]:
        """Return what an earlier version stored for a question, or a stored answer from which that to it follows.

        What is found comes with its plan; without it the plan is that of the question, and may have an answer that is
        offered.
        """
        if self.names.earlier_keys():
            before = self._find_before_0_11(query, plan)
            if before.stored is not None:
                return before.plan, before.stored
        if plan.reuses is False:
            return plan, None
        derived = (self._take_first_rows(query, plan) if query.clause.shape == "top" else None) or self._take_cells(
            plan
        )
        if derived is None:
            return plan, None
        if derived.is_given or plan.reuses:
            return derived.plan, derived.stored
        return replace(plan, offered=derived.plan.reused), None

    def _take_first_rows(self, query: PrivateQuery, plan: planning.Plan) -> planning.DerivedAnswer | None:
        """Return the first rows of a longer answer: of one that is given, or else of one that is offered."""
        offered: planning.DerivedAnswer | None = None
        has_counts = query.releases_counts
        for k, key in () if plan.series is None else self.names.list_longer(*plan.series, has_counts=has_counts):
            stored = self.own.ledger.stored(key, self.own.account)  # on this version of the data
            if stored is None:
                continue
            derived = planning.take_first_rows(
                plan, stored, k=k, build_nameless=lambda: self.build(replace(query, names=None))
            )
            if derived is not None and derived.is_given:
                return derived
            offered = offered or derived
        return offered

    def _take_cells(self, plan: planning.Plan) -> planning.DerivedAnswer | None:
        """Return an answer from released numbers: one that is given if there is one, of the least noise, the newest."""
        best: planning.DerivedAnswer | None = None
        is_measured = plan.query.releases_counts and not plan.query.quantiles
        for rows, key in self.names.list_measured(plan.query) if is_measured else ():
            stored = self.own.ledger.stored(key, self.own.account)  # on this version of the data
            found = None if stored is None else planning.take_cells(plan, rows, stored=stored)
            if found is not None and (best is None or found.rank <= best.rank):
                best = found
        return best

    def mark_reread(self, parts: list[PlannedQuery], queries: Sequence[PrivateQuery]) -> list[PlannedQuery]:
        """Return the parts, with a mark on those that 0.11 answered when it read the text otherwise, as `queries`."""
        # The two readings of a text cannot be compared part by part.
        if len(parts) != len(queries):
            return parts
        marked = list[PlannedQuery]()
        for part, query in zip(parts, queries, strict=True):
            is_reread = part.plan.reread
            if part.stored is None and not part.plan.fresh:
                with suppress(Refusal, Unsupported):  # as names of one reading are those of no key in the other
                    then = self.build(self.complete(query))
                    answer = None if then.key == part.plan.key else self.find_stored(then)
                    is_reread |= answer is not None and planning.is_of_0_11(answer)
            marked.append(replace(part, plan=replace(part.plan, reread=is_reread)))
        return marked

    def _find_before_0_11(self, query: PrivateQuery, plan: planning.Plan) -> PlannedQuery:
        """Return the answer that a version before 0.11 stored for a question, with its plan; else `plan` and None."""
        terms = self.own.terms
        before = [] if terms.earlier_delta is None else [replace(terms, delta=terms.earlier_delta)]
        for each in (terms, *before):
            build = partial(planning.build_plan, terms=each, salts=self.salts)
            for key, earlier in planning.list_earlier_plans(query, build, stored=self.names.earlier_keys()):
                stored = self.own.ledger.stored(key, self.own.account)
                if stored is not None:
                    return PlannedQuery(replace(earlier, key=key), stored)
        return PlannedQuery(plan, None)
