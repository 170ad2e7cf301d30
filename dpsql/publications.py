"""Published tables: answers that are charged once, and that the ledger keeps under a name for all analysts.

    request ──▶ checked, planned and priced ──▶ run as a query of one account ──▶ stored under the name

The statement goes the way of every query: it is reserved, charged and settled before its table is stored. So nothing is
lost where a run ends between the two: the next one finds the stored answer, free of charge, and publishes it.

This file has two parts: (1) `PublicationPlan`; (2) from `make_consistent` on, totals that agree with their parts.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Context, Decimal
from fractions import Fraction
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.errors import Refusal, Unsupported
from dpsql.intervals import WeightedNoise, check_level, round_outwards
from dpsql.ledger.base import Shortfall
from dpsql.ledger.base_ledger import find_published, refuse_taken, refuse_unpublished
from dpsql.ledger.record import NamedTable, TableContent
from dpsql.plan import Plan, Release, name_measure
from dpsql.plan.measures.bounds import Bounding
from dpsql.plan.measures.rows import TableRows, count_rows
from dpsql.plan.mechanisms.names import arrow_type, list_values
from dpsql.plan.planner import has_one_value
from dpsql.receipt import NO_MECHANISM, Receipt
from dpsql.report.forecast import check_together, describe_together, explain_shortfall
from dpsql.report.stored_tables import AGREES, NAME, StoredTables, add_intervals, name_versions, write_stream
from dpsql.session import Session, find_ledger, recompute
from dpsql.sql.analysis.domains import read_group_domain
from dpsql.sql.analysis.known_values import MOST_GROUPS
from dpsql.sql.analysis.row_facts import find_sole_column
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.measures import Aggregate, Measure
from dpsql.sql.ir.statements import LiteralDomain, PrivateQuery, list_factors
from dpsql.sql.ir.tree import (
    ColumnRef,
    Expression,
    Family,
    In,
    Joined,
    Relation,
    Scan,
    list_scans,
    split_conjuncts,
    walk,
)
from dpsql.sql.lexer import ascii_lower
from dpsql.terms import Terms

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsql.answer import Answer

_NOT_THERE = frozenset(["unknown-table", "unknown-column"])  # what is said of a statement whose table is gone
_MAX_COMMENT = 1000


@dataclass(frozen=True, slots=True)
class PublicationRequest:
    """Table to publish: its name, its statement and a comment; without a statement, one that is to be refreshed."""

    name: str
    sql: str | None = None
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Publication:
    """Published table: `version` names it with its day; `receipt` is that of its answer.

    One that `is_current` was of this version of the data already, and nothing was made or charged.
    """

    name: str
    version: str
    data_version: int
    at: datetime
    columns: tuple[str, ...]
    rows: int
    receipt: Receipt | None = None
    is_current: bool = False

    def __str__(self) -> str:
        if self.is_current:
            return (
                f"{self.name} is current: {self.version} is of this version of the data ({self.data_version}). "
                "Nothing was made, and nothing charged."
            )
        rows = "1 row" if self.rows == 1 else f"{self.rows:,} rows"
        shown = f"{self.name} is published: {rows} of version {self.data_version} of the data, also as {self.version}."
        lines = [f"{shown} {self.receipt}."]
        if not any(name.endswith("_low") for name in self.columns):
            lines.append("No column has an interval: WITH (intervals = true) in a private query adds them.")
        return "\n".join(lines)


class PublicationPlan:
    """Table to publish over an open session: checked and priced; nothing is charged before `publish`."""

    __slots__ = ("_account", "_comment", "_is_refresh", "_ledger", "_plans", "_session", "is_current", "name", "sql")

    def __init__(self, session: Session, request: PublicationRequest) -> None:
        self._session = session
        self._ledger, self._account = find_ledger(session)
        version, tables = self._ledger.tables()
        known = find_published(tables, request.name)
        self._is_refresh, self.is_current = request.sql is None, False
        self._plans = list[Plan]()
        if request.sql is None:
            if known is None:
                raise refuse_unpublished(request.name)
            self.name, self.is_current = known.name, known.data_version == version
            first = next(each for each in tables if each.is_published and _is_same(each.name, known.name))
            content = self._ledger.read_table(first.number)
            self.sql, self._comment = content.text, content.comment
            _check_policy(session, self.name)
            if not self.is_current:
                self._plans = _plan_again(session, self.name, sql=self.sql)
            return
        self.name, self.sql, self._comment = request.name, request.sql, _check_comment(request.comment)
        if not NAME.fullmatch(self.name):
            reason = "The name of a published table is a word of at most 63 letters, digits and underscores."
            raise Refusal("publication-name", reason, hint="Write one that does not begin with a digit, as weekly.")
        _check_policy(session, self.name)
        if known is not None:
            hint = (
                "Take another name. To make this table again for a new version of the data, add --refresh in place "
                "of the SQL; --drop removes it."
            )
            taken = refuse_taken(self.name)
            taken.hint = hint
            raise taken
        self._plans = _plan_statement(session, self.sql)

    def describe_price(self) -> str:
        """Return in one sentence what is published, and what it costs of the budget."""
        if self.is_current:
            return f"{self.name}: it is of this version of the data already, and nothing is made."
        whose = self._session.terms.whose
        cost = describe_together(self._plans, self._session.budget, whose=whose)
        is_limited = whose != "the budget" and not self.is_free
        more = " An account with a larger share buys more exact numbers: --account NAME." if is_limited else ""
        return f"{self.name}: {cost}.{more}"

    @property
    def worst_case(self) -> str:
        """Exact amounts that the releases can cost, in their order: percentages are rounded, and of what is granted."""
        losses = [plan.price(plan.worst_case) for plan in self._plans if not plan.stored]
        return ", ".join(f"{each.refundable} and {each.permanent}" for each in losses)

    @property
    def is_free(self) -> bool:
        """Whether nothing is charged: the answer is stored, or nothing is made."""
        return all(plan.stored for plan in self._plans)

    def check_budget(self) -> None:
        """Raise `BudgetExceeded` where the budget is too small; nothing is charged then."""
        drawn = [plan for plan in self._plans if not plan.stored]
        terms = self._session.terms
        if len(drawn) > 1:
            check_together(drawn, self._session.budget, terms=terms)
        for plan in drawn:
            balance = self._session.budget.of(plan.charged_values)
            worst, left = plan.price(plan.worst_case), balance.remaining
            if worst.refundable > left.refundable or worst.permanent > left.permanent:
                account = None if terms.account is None else terms.account.name
                short = Shortfall(worst, left, account=account)
                raise explain_shortfall(plan, short, terms=terms, calendar=balance.calendar)

    def publish(self) -> Publication:
        """Run the statement and store its table under the name; return what was published.

        Raises as `Session.sql`, and `Refusal` where another process took the name, or the data version, meanwhile.
        """
        if self.is_current:
            return self._describe(self._find_last())
        self.check_budget()
        version = self._ledger.tables()[0]  # before the answer, which is of this version if it is still the present one
        answer = self._session.sql(self.sql)
        content = self._build_content(answer)
        is_new = self._ledger.publish(
            self.name, content, account=self._account, again=self._is_refresh, data_version=version
        )
        self.is_current = not is_new
        return self._describe(self._find_last(), answer.receipt)

    def _build_content(self, answer: Answer) -> TableContent:
        """Return the table of an answer with the intervals of its numbers, as the ledger stores it."""
        table = None
        if len(self._plans) > 1 and not answer.measures:  # of the rows of several releases, as those of ROLLUP
            table = make_consistent(self._session, self.sql)
        table = add_intervals(answer) if table is None else table
        question = hashlib.sha256("\n".join([*(plan.key for plan in self._plans), self.sql]).encode()).hexdigest()
        return TableContent(self.sql, write_stream(table), question, self._comment)

    def _find_last(self) -> NamedTable:
        found = find_published(self._ledger.tables()[1], self.name)
        if found is None:  # dropped by another process just now
            raise refuse_unpublished(self.name)
        return found

    def _describe(self, stored: NamedTable, receipt: Receipt | None = None) -> Publication:
        return describe_publication(self._session, stored, receipt=receipt, is_current=self.is_current)


def describe_publication(
    session: Session, stored: NamedTable, *, receipt: Receipt | None = None, is_current: bool = False
) -> Publication:
    """Return what there is of a published table."""
    ledger, _ = find_ledger(session)
    table = StoredTables(ledger, None).read(stored.number)
    names = [name for name, each in name_versions(ledger.tables()[1]) if each.number == stored.number and "@" in name]
    return Publication(
        stored.name,
        f'"{names[0]}"',
        stored.data_version,
        stored.at,
        tuple(table.column_names),
        table.num_rows,
        receipt,
        is_current=is_current,
    )


def list_due(version: int, tables: Sequence[NamedTable]) -> list[NamedTable]:
    """Return the published tables whose last one is of an earlier data version, the last of each, by first name."""
    last = dict[str, NamedTable]()
    for each in tables:
        if each.is_published:
            last[ascii_lower(each.name)] = each
    return [each for each in last.values() if each.data_version < version]


def _is_same(name: str, other: str) -> bool:
    return name.lower() == other.lower()


def _check_comment(comment: str) -> str:
    """Return a comment on one line; raise `Refusal` for one that is too long."""
    line = " ".join(comment.split())
    if len(line) > _MAX_COMMENT or not line.isprintable():
        reason = f"A comment is a text of at most {_MAX_COMMENT} printable characters."
        raise Refusal("publication-comment", reason, hint="Write a shorter or plainer one.")
    return line


def _check_policy(session: Session, name: str) -> None:
    """Refuse the name of a table of the policy: it hides a published one."""
    table = session.catalog.find(name)
    if table is not None and not table.stored_kind:
        reason = f'The policy has a table "{table.name}".'
        hint = "Take another name: a statement that reads this one reads the table of the policy."
        raise Refusal("name-taken", reason, hint=hint)


def _plan_statement(session: Session, sql: str) -> list[Plan]:
    """Return the plans of a statement that can be published; charge nothing."""
    try:
        answer: Answer | None = session.replay(sql)
    except Refusal as error:
        if error.code != "not-stored":
            raise
        answer = None
    if answer is not None and answer.receipt.mechanism == NO_MECHANISM:
        reason = "This statement releases nothing: it has no private query, and every analyst may run it, free."
        hint = "Publish a statement with a private query, such as SELECT ... GROUP BY article TOP 10 PRIVATE."
        raise Refusal("not-publishable", reason, hint=hint)
    plans = session.explain_all(sql)
    if any(plan.fresh for plan in plans):
        reason = "With fresh = true a run that was interrupted would be charged again."
        hint = "Leave fresh = true out: each new version of the data is drawn with new noise."
        raise Refusal("not-publishable", reason, hint=hint, place=plans[0].query.clause.place)
    names = [ascii_lower(name) for name in session.describe(sql).names]
    if len(set(names)) < len(names) or "" in names:
        hint = "Give each column a name of its own: SELECT ... AS users."
        raise Refusal("not-publishable", "Two columns of this statement have one name.", hint=hint)
    return plans


def _plan_again(session: Session, name: str, *, sql: str) -> list[Plan]:
    """Return the plans of the statement of a published table, for a refresh."""
    try:
        return _plan_statement(session, sql)
    except (Refusal, Unsupported) as error:
        if error.code not in _NOT_THERE:
            raise
        gone = error.with_traceback(None)
    reason = f"{name} was made from a table or column that the policy does not have any more: {gone.reason}"
    hint = (
        "What was published stays readable. Put the table back into the policy, or drop this one with --drop and "
        "publish it with other SQL."
    )
    raise Refusal("publication-source", reason, hint=hint)


# Part 2: totals that agree with their parts.

_Set = frozenset[int]  # of keys, by their numbers
# For each set an array of numbers with one axis for each key, of length 1 for a key that the set does not have.
_Cells = Mapping[_Set, Any]
_OUTER = frozenset(["LEFT", "RIGHT", "FULL"])
_WIDTH = 38  # digits of a DECIMAL


def make_consistent(session: Session, sql: str) -> pa.Table | None:
    """Return the table of a statement in which totals are the sums of their parts; None where nothing is changed.

    Post-processing: the counts of rows and sums that the releases of one statement have in common are replaced by those
    that are nearest to them, by the variances of their noise, among all that add up (least squares). The columns that
    have them say so. Only those are replaced that add up in the exact data for sure (`maths.md` 10.8).
    """
    shown = list[tuple[Any, set[object]]]()
    change = partial(_change, catalog=session.catalog, terms=session.terms, shown=shown)
    table = recompute(session, sql, change=change)
    if table is None:
        return None
    is_shown = False
    for at, each in enumerate(table.schema):
        values = set(table.column(at).to_pylist())
        if values and any(each.type == type_ and values <= known for type_, known in shown):
            table, is_shown = table.set_column(at, each.with_metadata({AGREES: "1"}), table.column(at)), True
    return table if is_shown else None


def _change(
    plans: Sequence[Plan],
    releases: Sequence[Release],
    *,
    catalog: Catalog,
    terms: Terms,
    shown: list[tuple[Any, set[object]]],
) -> list[pa.Table] | None:
    """Return the released tables with what agrees in place of what was drawn, None where nothing does.

    The values that are shown are added to `shown`, with their type.
    """
    found = dict[object, list[_Part]]()
    for at, (plan, released) in enumerate(zip(plans, releases, strict=True)):
        for number, measure in enumerate(plan.query.measures):
            if _may_agree(plan, released, number=number):
                same = plan.query.protected, plan.query.unit, plan.query.body, measure
                found.setdefault(same, []).append(_Part(at, number, plan, released))
    tables, is_changed = [released.table for released in releases], False
    for parts in found.values():
        fit = _Fit.read(parts) if all(_adds_up(each, catalog=catalog, terms=terms) for each in parts) else None
        if fit is None:
            continue
        is_changed, known = True, set[object]()
        for each in parts:
            values = fit.show(each)
            known |= set(values.to_pylist())
            for column, output in enumerate(each.plan.query.outputs):
                if (output.is_measure, output.measure, output.divisor) != (True, each.number, None):
                    continue
                end = output.end
                array = values if end is None else fit.find_ends(each, end.level, is_high=end.is_high)
                tables[each.at] = tables[each.at].set_column(column, output.name, array.take(each.released.rows))
        shown.append((values.type, known))
    return tables if is_changed else None


@dataclass(frozen=True, slots=True)
class _Part:
    """Measure of a release: the numbers of the release and of the measure, both from 0."""

    at: int
    number: int
    plan: Plan
    released: Release

    @property
    def measure(self) -> Measure:
        return self.plan.query.measures[self.number]

    @property
    def variance(self) -> Fraction:
        """Variance of the noise, in steps."""
        return self.released.terms.noises[self.number].variance


def _may_agree(plan: Plan, released: Release, *, number: int) -> bool:
    """Say whether a measure of a release is a sum over units of which all rows are shown, with Gaussian noise.

    Sums of groups of a stored answer have the noise of these groups, which is not independent of that of other sums.
    """
    query, measure = plan.query, plan.query.measures[number]
    if plan.reused is not None and plan.reused.is_sum:
        return False
    if query.clause.shape == "top" or query.keep or query.limit is not None or not released.terms.noises:
        return False
    noise = released.terms.noises[number]
    is_sum = measure.aggregate in {Aggregate.ROWS, Aggregate.SUM} and measure.weight is None
    return is_sum and measure.bounds is not None and noise.scale is None and noise.parts is None


def _adds_up(part: _Part, *, catalog: Catalog, terms: Terms) -> bool:
    """Say whether what is counted of each unit in the groups adds up to what is counted of it in all of them.

    So it is where every row is in a group that is released, and each unit has all its rows in one of them: then the
    same rows of it are cut at the same bounds. That is so where the policy says that a unit has one value of the column
    of each key, or where FROM makes one row of each unit. Of more rows, those are counted that no bound can cut.
    """
    query, most = part.plan.query, part.plan.max_groups_contributed
    known, scans = Bounding(query, terms.tables).table_rows, list_scans(query.body.source)
    # Neither a table of the policy nor a public one that is joined has a number of rows for each unit.
    units = {each.path: known[each.path].unit if each.path in known else "" for each in scans}
    rows = count_rows(query.body.source, {path: TableRows("", math.inf, unit) for path, unit in units.items()}).total
    of_one = rows == 1 or all(_has_one_value(key, query, catalog=catalog, terms=terms) for key in query.keys)
    is_whole = part.measure.aggregate is Aggregate.ROWS and rows <= part.measure.width and rows <= (most or math.inf)
    return (of_one or is_whole) and _covers_rows(query, catalog)


def _has_one_value(key: Expression, query: PrivateQuery, *, catalog: Catalog, terms: Terms) -> bool:
    """Say whether a key has one value in all rows of a unit, by the policy: its column is read as it is stored."""
    sources = dict[int, Relation](_list_sources(query.body.source))
    columns = [part for part in walk(key) if isinstance(part, ColumnRef)]
    is_stored = all(isinstance(sources.get(each.relation), Scan) for each in columns)
    column = find_sole_column(key, query.body.source, catalog=catalog)
    return bool(columns) and is_stored and has_one_value(column, terms)


def _list_sources(relation: Relation) -> Iterator[tuple[int, Relation]]:
    """Yield the relations of one FROM by their numbers, but for those below an outer join, which may lack rows."""
    match relation:
        case Joined(left=left, right=right, kind=kind):
            yield from () if kind in _OUTER else chain(_list_sources(left), _list_sources(right))
        case _:
            yield relation.number, relation


def _covers_rows(query: PrivateQuery, catalog: Catalog) -> bool:
    """Say whether every row is in a group, by the statement alone: not by the first and last day of the policy."""
    factors = () if query.domain is None else list_factors(query.domain)
    bare = Catalog(tuple(replace(each, calendar=()) for each in catalog.tables), catalog.dialect)
    for key, factor in zip(query.keys, factors, strict=False):
        conditions = split_conjuncts(query.body.where)
        possible = [each.choices for each in conditions if isinstance(each, In) and each.argument == key]
        with suppress(Refusal):  # of a calendar that WHERE does not bound
            known, _ = read_group_domain((key,), query.body, option=None, catalog=bare, place=query.clause.place)
            possible += [known.values] if isinstance(known, LiteralDomain) else []
        if not isinstance(factor, LiteralDomain) or not any(set(each) <= set(factor.values) for each in possible):
            return False
    return len(factors) == len(query.keys)


@dataclass(frozen=True, slots=True)
class _Fit:
    """Least squares of one measure over sets of keys: numbers that add up, and the variances of what was released.

    `sizes` are the numbers of values of the keys. `cells` are in values of the measure, or, of `digits`, in units of
    the last of so many decimals; `digits` is None for DOUBLE. Each row of a part is at one of its `places`.
    """

    sizes: tuple[int, ...]
    cells: _Cells
    variances: Mapping[_Set, Fraction]
    places: Mapping[int, tuple[_Set, list[tuple[int, ...]]]]
    digits: int | None

    @classmethod
    def read(cls, parts: Sequence[_Part]) -> _Fit | None:
        """Return the least squares of releases; None where they are no total and its parts, all groups of each."""
        keys = list(dict.fromkeys(key for part in parts for key in part.plan.query.keys))
        values = [dict[object, int]() for _ in keys]
        places = dict[int, tuple[_Set, list[tuple[int, ...]]]]()
        by_set, question = dict[_Set, dict[tuple[int, ...], int]](), dict[_Set, tuple[str, int]]()
        for part in parts:
            own = [keys.index(key) for key in part.plan.query.keys]
            canonical = part.released.canonical
            columns = [list_values(canonical.column(f"key_{at + 1}")) for at in range(len(own))]
            rows = list[tuple[int, ...]]()
            for row in range(canonical.num_rows):
                at = [0] * len(keys)
                for key, column in zip(own, columns, strict=True):
                    at[key] = values[key].setdefault(column[row], len(values[key]))
                rows.append(tuple(at))
            chosen = frozenset(own)
            drawn_as = part.plan.key, part.number
            if question.setdefault(chosen, drawn_as) != drawn_as:
                return None  # two draws of one number
            places[part.at] = chosen, rows
            by_set[chosen] = dict(zip(rows, canonical.column(name_measure(part.number)).to_pylist(), strict=True))
        sizes = tuple(map(len, values))
        whole = math.prod(sizes)
        is_complete = all(len(cells) == _size(sizes, chosen) for chosen, cells in by_set.items())
        if len(by_set) == 1 or not is_complete or not 0 < whole <= MOST_GROUPS:
            return None
        drawn = dict[_Set, Any]()
        for chosen, cells in by_set.items():
            drawn[chosen] = np.empty([size if at in chosen else 1 for at, size in enumerate(sizes)], object)
            for place, value in cells.items():
                drawn[chosen][place] = Fraction(value)
        variances = {places[part.at][0]: part.variance for part in parts}
        fitted = fit_totals(drawn, {chosen: 1 / each for chosen, each in variances.items()}, sizes=sizes)
        measure, digits = parts[0].measure, None
        bounds = measure.bounds
        assert bounds is not None  # noqa: S101 - of the parts
        unit = Fraction(1)
        if measure.type.family is not Family.DOUBLE:
            # Each cell is rounded once, in so many decimals that all of them move their sum by a twentieth of a step at
            # most, and the totals are the sums of what is rounded.
            digits = measure.type.precision[1] + len(str(whole)) + 1
            unit = Fraction(1, 10**digits)
            fitted = np.frompyfunc(lambda cell: round(cell * bounds.step / unit), 1, 1)(fitted)
            if digits > _WIDTH or np.abs(fitted).sum() >= 10**_WIDTH:
                return None
        else:
            fitted = fitted * bounds.step
        return cls(sizes, {chosen: _add_up(fitted, chosen) for chosen in drawn}, variances, places, digits)

    def show(self, part: _Part) -> pa.Array:
        """Return the values of all canonical rows of a part, each as a DECIMAL or a DOUBLE."""
        import pyarrow as pa

        chosen, rows = self.places[part.at]
        found = [self.cells[chosen][row] for row in rows]
        if self.digits is None:
            return pa.array(list(map(float, found)), pa.float64())
        digits = Context(prec=_WIDTH)
        return pa.array(
            [Decimal(each).scaleb(-self.digits, digits) for each in found], pa.decimal128(_WIDTH, self.digits)
        )

    def find_ends(self, part: _Part, level: float, *, is_high: bool) -> pa.Array:
        """Return one end of the intervals of all canonical rows of a part, in the type of the measure.

        The exact values are whole numbers of steps: the interval has those within reach of the value.
        """
        import pyarrow as pa

        check_level(level)
        chosen, rows = self.places[part.at]
        bounds, type_ = part.measure.bounds, part.measure.type
        assert bounds is not None  # noqa: S101 - of the parts
        noise = find_noise(
            chosen, {each: float(variance) for each, variance in self.variances.items()}, sizes=self.sizes
        )
        reach = Fraction(noise.find_reach((1.0 - level) / 2.0))
        unit = Fraction(1) if self.digits is None else Fraction(1, 10**self.digits)
        if self.digits is not None:  # of the cells that were rounded
            reach += Fraction(math.prod(self.sizes), 2 * _size(self.sizes, chosen)) * unit / bounds.step
        found = list[object]()
        for row in rows:
            value = self.cells[chosen][row] * unit / bounds.step
            steps = max(math.floor(value + reach), math.ceil(value))
            if not is_high:
                steps = min(math.ceil(value - reach), math.floor(value))
            end = (steps if bounds.low < 0 else max(0, steps)) * bounds.step
            if type_.family is Family.DOUBLE:
                found.append(round_outwards(end, 1 if is_high else -1))
                continue
            is_whole, scale = type_.family is Family.INTEGER, type_.precision[1]
            most = 2**63 - 1 if is_whole else 10**_WIDTH - 1
            last = min(max((math.ceil if is_high else math.floor)(end * 10**scale), -most), most)
            found.append(last if is_whole else Decimal(last).scaleb(-scale, Context(prec=_WIDTH)))
        return pa.array(found, arrow_type(type_))


def _size(sizes: Sequence[int], chosen: _Set) -> int:
    """Return the number of groups of a set of keys."""
    return math.prod(size for at, size in enumerate(sizes) if at in chosen)


def _add_up(cells: Any, chosen: _Set) -> Any:  # noqa: ANN401 - an array of any numbers
    """Return the sums of cells over all keys that are not in a set."""
    return cells.sum(axis=tuple(at for at in range(cells.ndim) if at not in chosen), keepdims=True)


def fit_totals(drawn: _Cells, weights: Mapping[_Set, Any], *, sizes: Sequence[int]) -> Any:  # noqa: ANN401 - as `_add_up`
    """Return numbers of all combinations of values whose sums are nearest to the `drawn` ones of each set of keys.

    Nearest in least squares by the `weights` of the sets, exact for fractions. Of a table over all keys the part that
    depends on some of them alone, and on no fewer, is orthogonal to the other parts, in every set. Each set with these
    keys has it, n times as large where n combinations add up to one of its groups, so the best estimate is a weighted
    mean over these sets (`maths.md` 10.8). Parts that the same sets have share one mean, and are taken together.
    """
    shared = set(drawn)
    while True:  # all that some of the sets have in common
        more = {one & other for one in shared for other in drawn} - shared
        if not more:
            break
        shared |= more
    whole, found = math.prod(sizes), np.zeros(sizes, next(iter(drawn.values())).dtype)
    known = {chosen: dict[_Set, Any]() for chosen in drawn}
    for part in sorted(shared, key=len):
        among = [chosen for chosen in drawn if part <= chosen]
        for chosen in among:
            mean = _add_up(drawn[chosen], part) / (_size(sizes, chosen) // _size(sizes, part))
            known[chosen][part] = mean - sum(each for less, each in known[chosen].items() if less < part)
        sums = sum(weights[chosen] * known[chosen][part] for chosen in among)
        found = found + sums / sum(weights[chosen] * (whole // _size(sizes, chosen)) for chosen in among)
    return found


def find_noise(chosen: _Set, variances: Mapping[_Set, float], *, sizes: Sequence[int]) -> WeightedNoise:
    """Return the noise of what `fit_totals` makes of one group of a set, the same for all groups of it.

    Its factors are found from what one such group, drawn, adds to all others: the covariances are the same both ways.
    """
    weights = {each: 1.0 / variance for each, variance in variances.items()}
    drawn = {each: np.zeros([size if at in each else 1 for at, size in enumerate(sizes)]) for each in variances}
    drawn[chosen].flat[0] = 1.0
    moved = fit_totals(drawn, weights, sizes=sizes)
    parts = list[tuple[float, float, int]]()
    for each, variance in variances.items():
        factors, numbers = np.unique(
            np.round(_add_up(moved, each) * variances[chosen] / variance, 12), return_counts=True
        )
        parts += [(factor, variance, int(n)) for factor, n in zip(factors.tolist(), numbers, strict=True) if factor]
    return WeightedNoise(tuple(parts))
