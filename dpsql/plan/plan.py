"""The plan of one private query: public in all its parts, and enough to carry the release out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from fractions import Fraction

from dpsql.accounting import BoundedRange, BudgetVector, Certificate, CertificateFilter, Loss, item_price
from dpsql.display import Facts, NotebookRepr, facts_html
from dpsql.engines import Statement
from dpsql.mechanisms import CountRelease
from dpsql.plan.mechanisms.base import MechanismPlan, ReleaseSpec, SelectionMechanism
from dpsql.plan.mechanisms.names import ReleasedNames
from dpsql.plan.mechanisms.record import Auto, Candidate, Mechanism, MechanismRequest, Need, predict
from dpsql.quantities import Delta, Epsilon
from dpsql.receipt import REREAD
from dpsql.sql.ir.measures import Aggregate
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import EngineQuery

ENGINE_SQL = "engine SQL"  # begins the names of the facts that EXPLAIN VERBOSE alone shows
_SHARED = "share one noisy total of units, if enough rows come back for that to make each more precise"


@dataclass(frozen=True, slots=True)
class ReusedAnswer:
    """What is taken of a stored answer, in words, and how it differs from a new answer: by its law or its interval.

    Of a sum of groups each unit had its bounds in each.
    """

    words: str
    law: str
    is_sum: bool = False


@dataclass(frozen=True, slots=True)
class Plan(NotebookRepr):
    """Plan of a private query: engine SQL, mechanism and worst-case loss; made without reading a row.

    `stored` says that this analyst has the answer already, for free. `warnings` say why the charge is likely wasted,
    and `needs` how many units a key needs. `max_groups_contributed` bounds the groups of each unit.

    >>> session.explain("SELECT article FROM reads GROUP BY article TOP 10 PRIVATE").mechanism
    'two_looks'
    """

    query: PrivateQuery
    record: Mechanism
    request: MechanismRequest = field(compare=False)  # whose query is `query` before `reads_total` was set
    mechanism_plan: MechanismPlan
    spec: ReleaseSpec
    max_groups_contributed: int | None
    stored: bool = False
    rule: CertificateFilter | None = None
    considered: tuple[Candidate, ...] = ()
    population: int | None = None
    # digests under which an answer may be stored (`identity/replay_key.py`): of the question, of all that the law of
    # the release depends on, of questions with the same release, of those that name a mechanism, of 0.11's reading
    key: str = ""
    release_key: str = ""
    similar_keys: tuple[str, ...] = ()
    named_keys: tuple[str, ...] = ()
    earlier_key: str = ""
    reread: bool = False
    series: tuple[str, int] | None = None  # the key of the questions that differ in k alone, and k
    reused: ReusedAnswer | None = None
    offered: ReusedAnswer | None = None
    warnings: tuple[str, ...] = ()
    needs: str = ""

    @property
    def charged_values(self) -> tuple[str, ...]:
        """Values of the column of `budget_by` whose units alone are counted and charged; none for all units."""
        return () if self.query.charged_values is None else self.query.charged_values.names

    def describe_charged(self, by: str) -> str:
        """Return in words which values of the column `by`, as table.column, are charged, or that all units are."""
        named = self.charged_values
        if not named:
            column = by.rpartition(".")[2]
            return f"all values of {by}: a query WHERE {column} = constant is charged to that value alone"
        return (
            f"{by} {', '.join(named)}: only units of {'this value' if len(named) == 1 else 'these values'} are counted"
        )

    @property
    def certificate(self) -> Certificate:
        """Certificate of the session."""
        return Certificate.zcdp if self.rule is None else self.rule.certificate

    @property
    def law(self) -> str:
        """Digest of the distribution of the answer among accounts, whose known names differ.

        The `release_key` leaves the names out, so that an answer of this account is found again when more are known.
        """
        names = self.query.names
        if not self.spec.rows.known or not isinstance(names, ReleasedNames):
            return self.release_key
        return hashlib.sha256(f"{self.release_key} {names.digest}".encode("ascii")).hexdigest()

    def price(self, loss: Loss) -> BudgetVector:
        """Return what a loss uses of the budget; raise UsageError for one that the certificate does not cover."""
        return BudgetVector.of(loss) if self.rule is None else self.rule.price(loss)

    @property
    def mechanism(self) -> str:
        """The mechanism's name in SQL."""
        return self.selection.name

    @property
    def selection(self) -> SelectionMechanism:
        """The mechanism with its parameters."""
        selection: SelectionMechanism = self.mechanism_plan.selection
        return selection

    @property
    def counts(self) -> CountRelease | None:
        """Release of the counts, with its price; None without counts."""
        return self.mechanism_plan.price.counts

    @property
    def count_bound(self) -> int | None:
        """Largest number of groups in which the released counts count a unit; None without a bound or without counts.

        A bound that the mechanism sets itself limits weights alone, and its counts are of all groups.
        """
        is_counted = self.counts is not None and not self.spec.report.cap
        return self.max_groups_contributed if is_counted else None

    @property
    def counting(self) -> EngineQuery:
        """Query that the engine runs."""
        return self.spec.rows.counting

    @property
    def k(self) -> int:
        """Number of keys; with ADAPTIVE, the largest number that can be returned."""
        return self.query.clause.k or self.spec.k

    @property
    def k_bar(self) -> int:
        """Number of exact leaders to read; 0 if all groups, or all candidates of a known domain, are read."""
        return self.spec.report.k_bar

    @property
    def fresh(self) -> bool:
        """Whether the query wants new noise, charged again, also where its answer is stored."""
        option = self.query.clause.options.get("fresh")
        return option is not None and option.value == "true"

    @property
    def reuses(self) -> bool | None:
        """Whether the answer may follow from any stored one, or from none; None if only from one of the same law."""
        option = self.query.clause.options.get("reuse")
        return None if option is None else option.value == "true"

    @property
    def monotone(self) -> bool:
        """Whether the counts that are shown are made to fall along the ranking, and to be at least 0."""
        option = self.query.clause.options.get("monotone")
        return option is not None and option.value == "true"

    @property
    def epsilon(self) -> Epsilon:
        """The bounded-range epsilon of one item."""
        return self.mechanism_plan.price.epsilon

    @property
    def delta(self) -> Delta:
        """The delta of this query."""
        return self.spec.worst_case.delta

    @property
    def threshold_offset(self) -> Fraction:
        """Distance above the count of group k_bar + 1, or above 0, at which a group has an even chance."""
        return self.spec.report.threshold_offset

    @property
    def least_threshold(self) -> Fraction:
        """Number of units that a group needs for an even chance by min_units of the policy; 0 without it."""
        return self.spec.report.min_threshold

    @property
    def worst_items(self) -> int:
        """Number of items to reserve: for k keys, and for k counts if they are released (fewer under a bound)."""
        return self.items(self.spec.k)

    def items(self, k: int) -> int:
        """Return how many items this query would cost at most if it asked for `k` keys."""
        return self.mechanism_plan.price.items(k) * self.spec.charged_partitions

    def takes(self, k: int, epsilon: Fraction) -> bool:
        """Say whether the mechanism would take so many keys at such an epsilon of one item."""
        return epsilon**2 / 8 * self.mechanism_plan.price.keys(k) >= self.spec.min_rho

    @property
    def need(self) -> Need | None:
        """With how many units a key has an even chance to be returned; None where nothing is predicted."""
        return predict(self.record, self.request)

    @property
    def item_loss(self) -> BoundedRange:
        """The guarantee of one item."""
        return BoundedRange(self.epsilon)

    @property
    def item_price(self) -> Fraction:
        """What one item takes of the currency that is refunded: of rho, unless the certificate is another."""
        return item_price(self.certificate, self.epsilon)

    @property
    def worst_case(self) -> Loss:
        """The loss that is reserved before a row is read."""
        return self.spec.worst_case

    def _describe_values(self) -> list[tuple[str, str]]:
        """Return how many different values of a unit count, where any are counted."""
        counted = [each.width for each in self.query.measures if each.aggregate is Aggregate.ITEMS]
        most = " and ".join(f"{each:,}" for each in counted)
        words = f"at most {most} different ones in a group, by a draw: the true number can be higher"
        return [("values per unit", words)] if counted else []

    def _describe_stored(self) -> list[tuple[str, str]]:
        """Return what answers the query from the ledger, or could."""
        lines = list[tuple[str, str]]()
        if self.reused is not None:
            lines += [("stored", f"{self.reused.words}; asking shows it and costs nothing")]
        elif self.stored:
            free = "asking again shows that answer and costs nothing"
            again = "fresh = true draws new noise and is charged" if self.fresh else free
            lines += [("stored", f"answered before; {again}")]
        elif self.reread:
            lines += [("stored", REREAD)]
        if self.offered is not None:
            offer = f"{self.offered.words}: free, {self.offered.law}"
            lines += [("offered", f"{offer}; WITH (reuse = true) takes it")]
        return lines

    @property
    def engine_sql(self) -> str:
        """The SQL that the engine runs, its values as parameters."""
        return self.counting.sql

    def facts(self) -> list[tuple[str, str]]:
        """Return the plan as lines of name and value."""
        query, clause, rows = self.query, self.query.clause, self.spec.rows
        bound, cap = self.max_groups_contributed, self.spec.report.cap
        lines = [("warning", warning) for warning in self.warnings]
        lines += [("needs", self.needs)] if self.needs else []
        lines += [("read as", clause.words)] if clause.implied else []
        lines += [("note", query.list_note)] if query.list_note else []
        lines += [("mechanism", self.mechanism), *self._describe_choice()]
        lines += [] if self.rule is None else [("certificate", self.certificate.value)]
        lines += [("privacy unit", f"{query.unit_name} of {query.holders}")]
        if clause.shape == "all":
            lines += [("groups", f"{self.k:,}, all of them")]
        elif clause.shape != "total":
            k = query.k_note.removeprefix("k = ") or str(self.k)
            lines += [("k", f"chosen in private, at most {self.k}" if clause.is_adaptive else k)]
        if query.names is not None and not rows.known:
            unused = f"{query.names.count:,} that earlier answers released; {self.mechanism} uses none of them"
            lines += [("known names", unused)]
        lines += self.mechanism_plan.describe(query)
        lines += [("counts", _SHARED)] if query.reads_total else []
        lines += [
            ("epsilon per item", str(self.epsilon)),
            ("delta", str(self.delta)),
            ("groups per unit", "not bounded" if bound is None else f"at most {bound}{cap and f' ({cap})'}"),
            *self._describe_values(),
            ("items at most", f"{self.worst_items} ({self.spec.report.charged})"),
            ("loss at most", str(self.worst_case)),
        ]
        if query.charged_values is not None:
            by = f"{query.charged_values.table}.{query.charged_values.column}"
            lines += [("charged to", self.describe_charged(by))]
        lines += self._describe_stored()
        fetched = f"{rows.rows_in_words or 'one for each group'}; their number has no bound"
        if rows.most is not None:
            fetched = f"at most {rows.most:,}"
        elif query.domain is not None and not rows.known:
            fetched = "one for each candidate of the domain"
        second = self.spec.second
        if second is not None:
            fetched += f"; in the second look {second.rows_in_words or 'one for each group'}; their number has no bound"
        fetched += f"; of quantiles at most {self.spec.further_rows:,}" if self.spec.further else ""
        lines += [("rows fetched", fetched)]
        lines += [("reads", f"{self.counting.reads}, in place of rows")] if self.counting.reads else []
        lines += [(ENGINE_SQL, self.engine_sql)]
        lines += [] if second is None else [(f"{ENGINE_SQL}, second look", second.counting.sql)]
        return [*lines, *((f"{ENGINE_SQL}, quantiles", each.sql) for each in self.spec.further)]

    @property
    def max_rows_fetched(self) -> int | None:
        """Largest number of rows that the engine returns to dpsql, None where no public number bounds it."""
        most = self.spec.rows.most if self.spec.build_second is None else None
        # None and 0 are returned as they are.
        return most and max(most, self.spec.further_rows)

    def _describe_choice(self) -> list[tuple[str, str]]:
        """Return why this mechanism answers, and what is predicted of each that could."""
        option, why = self.query.clause.options.get("mechanism"), "groups need the fewest units, at the least price"
        if option is not None and option.value != "auto":
            why = "the query names it"
        elif self.query.names is not None and self.spec.rows.known and self.query.domain is None:
            needs = "a lower threshold" if self.spec.rows.evident else "no threshold"
            why = f"known names need {needs}, and their order has the least noise, at the least price"
        elif sum(each.mechanism.auto is not Auto.NEVER for each in self.considered) == 1:
            why = "AUTO knows no other for this query"
        elif self.record.why:
            why = self.record.why
        told = [(f"candidate {each.name}", str(each)) for each in self.considered]
        return [("chosen because", why), *told] if told else []

    def __str__(self) -> str:
        facts = self.facts()
        width = max(len(name) for name, _ in facts)
        return "\n".join(f"{name:{width}}  {value}" for name, value in facts)

    def _repr_html_(self) -> str:
        """Return the plan for a notebook."""
        return facts_html(Facts("Plan: nothing was read, nothing was charged", self.facts()))


def build_statement(counting: EngineQuery) -> Statement:
    """Return what the engine is asked."""
    return Statement(counting.sql, counting.parameters, counting.types)
