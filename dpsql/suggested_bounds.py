"""Suggested bounds: `rows`, `max`, `min` and `each` of a table's columns, from noisy ranks of users' totals.

    request ──▶ one draw for each bound, priced ──▶ reserved, read, drawn and settled, one after another ──▶ suggestion

Each draw is a release of its own (`release_external`): it is reserved before a row is read, stored in the ledger, and
free when it is made again on the same version of the data. So nothing that was charged is lost where a later draw fails
or is interrupted. Numbers of users per bin are opened here; only the bin that `RankFromTop` draws leaves.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import count, islice
from typing import Any

from dpsql.accounting import ZCDP, BoundedRange, BudgetVector, Certificate, Loss, PureLoss, Steps, add_losses
from dpsql.dialects import write_name
from dpsql.engines import Exact, Statement, open_exact
from dpsql.errors import BudgetExceeded, EngineError, LedgerError, Refusal, UsageError
from dpsql.mechanisms import Noise
from dpsql.mechanisms.quantiles import RankFromTop
from dpsql.plan import ExternalRelease
from dpsql.plan.mechanisms.base import sqrt_rounded_down
from dpsql.policy import Bounds, ColumnBounds
from dpsql.policy.tables import check_bounds
from dpsql.policy.toml import list_bound_lines, merge_bounds, spell
from dpsql.quantities import Delta, Epsilon
from dpsql.report.forecast import describe_at_most
from dpsql.session import Session, has_release, release_external
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.catalog import Link, Table
from dpsql.sql.ir.measures import MOST_STEPS, ContributionRange
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.tree import Family, Type
from dpsql.sql.lexer import ascii_lower
from dpsql.sql.rewrite.bins import UnitStatistic, rewrite_unit_totals
from dpsql.terms import Terms

FORMAT = "dpsql bounds 1"
ITEMS_EPSILON = 4  # of a draw, in epsilons of an item: 16 items of rho
_BINS = 128
_SERIES = (100, 125, 160, 200, 250, 320, 400, 500, 640, 800)  # ten ends in each power of ten
_FINER = (100, 112, 125, 140, 160, 180, 200, 225, 250, 280, 320, 360, 400, 450, 500, 560, 640, 720, 800, 900)
_SMALLEST = 3  # decimals of the least step of a DOUBLE


def list_ends(series: Sequence[int], number: int) -> tuple[int, ...]:
    """Return the first whole numbers of a series in every power of ten, rounded up, from 1.

    >>> list_ends((100, 125, 160, 200, 250, 320, 400, 500, 640, 800), 14)
    (1, 2, 3, 4, 5, 7, 8, 10, 13, 16, 20, 25, 32, 40)
    """
    # Rounded up. Among the smallest some are equal, as 1.25 and 1.6 are both 2: fromkeys() leaves each of them once.
    numbers = (-(-each * 10**power // 100) for power in count() for each in series)
    return tuple(islice(dict.fromkeys(islice(numbers, 2 * number)), number))


ENDS = list_ends(_SERIES, _BINS - 2)  # besides 0, and the last bin, which has no end
_ROWS = tuple(each for each in list_ends(_FINER, _BINS) if each < MOST_STEPS)
_SIGNED = (*(-each for each in reversed(ENDS)), 0, *ENDS)


@dataclass(frozen=True, slots=True)
class BoundsRequest:
    """Bounds to suggest: `rows` unless it is False, `max` of each column, and `min` and `each` where they are wanted.

    Without `by` they are for totals of the whole table, and so for any groups; with it, for the groups of that column,
    of which people ask for so many at a time. `epsilon` is that of each draw.
    """

    table: str
    columns: tuple[str, ...] = ()
    epsilon: Epsilon | None = None
    by: str | None = None
    groups: int | None = None
    each: bool = False
    below_zero: bool = False
    rows: bool = True


@dataclass(frozen=True, slots=True)
class _Draw:
    """One draw: which end of which bound, in whole steps of `step`, and its release."""

    name: str
    column: str
    step: Fraction
    ends: tuple[int, ...]
    mechanism: RankFromTop
    release: ExternalRelease

    @property
    def sign(self) -> int:
        """Return -1 for a lower end, which is found as the upper end of the negated values."""
        return -1 if self.name in {"min", "each.min"} else 1


class BoundsPlan:
    """Draws for suggested bounds over an open session: priced, and then made; reading nothing before `draw`."""

    __slots__ = ("_current", "_draws", "_scope", "_session", "epsilon", "table")

    def __init__(self, session: Session, request: BoundsRequest) -> None:
        terms = session.terms
        table = _find_table(session, request)
        request = replace(request, by=_find_name(table, request.by))
        self.epsilon = choose_epsilon(terms, request.epsilon)
        self.table = table.name
        self._session, self._current = session, terms.tables[table.name].bounds
        groups = request.groups or terms.limits.default_k
        self._scope = "for totals, and so wide enough for any groups"
        if request.by is not None:
            self._scope = f"for groups by {request.by}, {groups} of them in one query; each for all rows"
        self._draws = tuple(_plan_draws(session, request, table=table, epsilon=self.epsilon))
        _check_names(self._draws, self._current)

    @property
    def example(self) -> dict[str, Any]:
        """Bounds of the form that the draws may find, with other numbers."""
        return collect_bounds([FoundBound(each.name, each.column, Fraction(each.sign), 0) for each in self._draws])

    @property
    def loss(self) -> Loss:
        """What the draws cost that are not stored."""
        new = [each for each in self._draws if not has_release(self._session, each.release)]
        return add_losses([self._session.terms.nothing, *(_find_loss(self._session.terms, self.epsilon) for _ in new)])

    def describe_price(self) -> str:
        """Return in one sentence what is drawn, and what it costs of the budget."""
        names = [" of ".join(filter(None, (each.name, each.column))) for each in self._draws]
        stored = sum(has_release(self._session, each.release) for each in self._draws)
        cost = describe_at_most(
            _price(self._session.terms, self.loss), self._session.budget, whose=self._session.terms.whose
        )
        if stored == len(names):
            cost = "stored, and free"
        free = (
            f" {stored} of them {'is' if stored == 1 else 'are'} stored, and free." if 0 < stored < len(names) else ""
        )
        draws = "1 draw" if len(names) == 1 else f"{len(names)} draws"
        return f"{draws} of epsilon {self.epsilon}, for {', '.join(names)}: {cost}.{free}"

    def draw(self) -> BoundsSuggestion:
        """Draw the bounds; those that are stored are free.

        Raises `BudgetExceeded` before anything is charged where the budget is too small for all of them.
        """
        terms, loss, found = self._session.terms, self.loss, list[FoundBound]()
        self.check_budget()
        for each in self._draws:
            result = release_external(self._session, each.release)
            found.append(_read_bound(each, _unpack(each.release.key, result.released)))
        new, current = collect_bounds(found), map_bounds(self._current)
        # noise may have swapped the range of one row and that of the sum: the policy refuses such bounds
        new = widen_bounds(new, merge_bounds(current, new))
        bounds = check_bounds(merge_bounds(current, new))
        charged = loss if found else terms.nothing
        lines = list_bound_lines(new)
        return BoundsSuggestion(self.table, bounds, new, lines, tuple(found), charged, self.epsilon, self._scope)

    def check_budget(self) -> None:
        """Raise `BudgetExceeded` where the draws that are not stored do not fit into what is left."""
        terms, balance = self._session.terms, self._session.budget
        price, left = _price(terms, self.loss), balance.remaining
        if price.refundable <= left.refundable:
            return
        cost = describe_at_most(price, balance, whose=terms.whose)
        reason = f"These bounds cost {cost}, and {balance.percent_left} % is left."
        # none of another epsilon is stored
        every = len(self._draws) * _price(terms, _find_loss(terms, self.epsilon)).refundable
        fits = _find_fitting(terms, self.epsilon, share=left.refundable / every)
        hint = "Ask for fewer bounds: --no-rows, or fewer columns. Nothing was charged."
        if fits is not None:
            hint = f"Set --epsilon {fits}, or ask for fewer bounds: --no-rows, or fewer columns. Nothing was charged."
        raise BudgetExceeded("budget-exceeded", reason, hint=hint)


def _find_fitting(terms: Terms, epsilon: Epsilon, *, share: Fraction) -> Epsilon | None:
    """Return an epsilon of draws that cost so small a share of what they do; None where there is none."""
    if terms.certified.epsilon is not None:
        return None
    rest = share if terms.certificate is Certificate.pure else sqrt_rounded_down(share)
    fits = Fraction(math.floor(epsilon.value * rest * 1000), 1000)
    return Epsilon(fits) if fits >= terms.limits.min_epsilon.value and fits > 0 else None


def choose_epsilon(terms: Terms, given: Epsilon | None) -> Epsilon:
    """Return the epsilon of a draw: as given, or four times that of an item; raise `Refusal` outside of the limits."""
    limits = terms.limits
    if terms.certified.epsilon is not None:  # all items have one epsilon
        if given is not None and given != terms.epsilon:
            reason = f"With the certificate {terms.certificate.value} each draw is an item of epsilon {terms.epsilon}."
            raise Refusal("certificate", reason, hint="Leave --epsilon out.")
        return terms.epsilon
    chosen = given or Epsilon(min(ITEMS_EPSILON * terms.epsilon.value, limits.max_epsilon.value))
    if not limits.min_epsilon <= chosen <= limits.max_epsilon:
        reason = f"epsilon must be at least {limits.min_epsilon} and at most {limits.max_epsilon}."
        raise Refusal("option-range", reason, hint="The policy sets the ceilings.")
    return chosen


def _find_loss(terms: Terms, epsilon: Epsilon) -> Loss:
    """Return the loss of one draw under the certificate of the session: one step of bounded range."""
    step = Steps(1, BoundedRange(epsilon), Delta(0))
    match terms.certificate:
        case Certificate.zcdp:
            return ZCDP(step.each.rho, Delta(0))
        case Certificate.pure:
            return PureLoss(epsilon.value, Delta(0))
        case Certificate.theorem2 | Certificate.optimal:
            return step


def _price(terms: Terms, loss: Loss) -> BudgetVector:
    return BudgetVector.of(loss) if terms.rule is None else terms.rule.price(loss)


def _find_table(session: Session, request: BoundsRequest) -> Table:
    table = session.catalog.find(request.table)
    if table is None:
        raise UsageError("bounds-table", "The policy has no such table.", hint="dpsql check lists its tables.")
    if table.name not in session.terms.tables:
        raise UsageError("bounds-table", "A public table has no bounds.", hint="Name a private table.")
    if request.groups is not None and (request.by is None or request.groups < 1):
        hint = "Write --by COLUMN --groups 10, or leave both out."
        raise UsageError("bounds-groups", "A number of groups is for bounds by a column.", hint=hint)
    if not (request.rows or request.columns):
        raise UsageError("bounds-nothing", "No bound is asked for.", hint="Name a column, or leave --no-rows out.")
    return table


def _check_names(draws: Sequence[_Draw], current: Bounds) -> None:
    """Refuse both the rows of a table and a column of the name rows: bounds have one place for the two."""
    columns = [*(each.column for each in draws), *(name for name, _ in current.columns)]
    of_column = any(ascii_lower(name) == "rows" for name in columns)
    of_table = current.rows is not None or any(not each.column for each in draws)
    if of_column and of_table:
        reason = "A column of this table has the name rows, which bounds use for the number of rows."
        hint = "Leave its bounds out, or have the number of rows left out: --no-rows."
        raise UsageError("bounds-column", reason, hint=hint)


def _find_name(table: Table, name: str | None) -> str | None:
    """Return the name of a column as the table has it, so that it is the same draw whatever the case of its letters."""
    same = (own for own, _ in table.columns if name is not None and ascii_lower(own) == ascii_lower(name))
    return next(same, name)


def _find_column(table: Table, name: str) -> tuple[str, Type]:
    """Return a column of numbers, by its name without regard to ASCII case."""
    found = next(((own, type_) for own, type_ in table.columns if ascii_lower(own) == ascii_lower(name)), None)
    numbers = [spell(own) for own, type_ in table.columns if type_.is_number and own != table.privacy_unit]
    hint = f"Columns of numbers here: {', '.join(numbers)}." if numbers else "This table has no column of numbers."
    if found is None:
        reason = "The policy has no such column in this table."
        raise UsageError("bounds-column", reason, hint=hint, place=name)
    if not found[1].is_number or found[0] == table.privacy_unit:
        reason = "Only columns of numbers other than the privacy unit have bounds."
        raise UsageError("bounds-column", reason, hint=hint, place=name)
    return found


def _plan_draws(session: Session, request: BoundsRequest, *, table: Table, epsilon: Epsilon) -> Iterator[_Draw]:
    """Yield the draws of a request, each end of a bound for itself."""
    planner = _Planner(session, request, table, epsilon)
    if request.rows:
        yield planner.plan("rows", UnitStatistic.ROWS, ends=_ROWS)
    columns = [_find_column(table, name) for name in request.columns]  # all of them before the first draw is planned
    for name, type_ in dict(columns).items():
        step = Fraction(1, 10 ** (_SMALLEST if type_.family is Family.DOUBLE else type_.precision[1]))
        yield planner.plan("max", UnitStatistic.SUM, ends=(0, *ENDS), column=name, step=step)
        if request.below_zero:
            yield planner.plan("min", UnitStatistic.SUM, ends=(0, *ENDS), column=name, step=step)
        if request.each:
            yield planner.plan("each.min", UnitStatistic.LARGEST, ends=_SIGNED, column=name, step=step)
            yield planner.plan("each.max", UnitStatistic.LARGEST, ends=_SIGNED, column=name, step=step)


@dataclass(frozen=True, slots=True)
class _Planner:
    """Planner of the draws over one table."""

    session: Session
    request: BoundsRequest
    table: Table
    epsilon: Epsilon

    def plan(
        self,
        name: str,
        statistic: UnitStatistic,
        *,
        ends: tuple[int, ...],
        column: str = "",
        step: Fraction = Fraction(1),
    ) -> _Draw:
        """Return one draw with its statement; `ends` are the ends of the bins but the last, in steps."""
        terms, request = self.session.terms, self.request
        by = None if name.startswith("each") else request.by  # a row is in one group
        groups = 1 if by is None else request.groups or terms.limits.default_k
        mechanism = RankFromTop.for_sums(self.epsilon, bins=len(ends) + 1, item=terms.epsilon, groups=groups)
        beyond = ends[-1] + 1
        counting = rewrite_unit_totals(
            self._analyze(column, by),
            statistic,
            edges=ContributionRange(-beyond if statistic is UnitStatistic.LARGEST else 0, beyond, step),
            ends=ends,
            negated=name in {"min", "each.min"},
        )
        unit = [self.table.privacy_unit, _identify_link(self.table.link)]
        # The key has all that the law of the draw depends on besides the rows: one stored under it is the same draw.
        identity: list[object] = [FORMAT, self.table.name, list(self.table.path), unit, name, column, str(step), by]
        identity += [list(ends), mechanism.rank, str(self.epsilon.value)]
        key = hashlib.sha256(json.dumps(identity).encode("ascii")).hexdigest()
        words = " of ".join(filter(None, (name, column)))
        text = f"BOUNDS {words} of {self.table.name}{f' by {by}' if by else ''}, epsilon {self.epsilon}"
        release = ExternalRelease(
            text,
            _price(terms, _find_loss(terms, self.epsilon)),
            key,
            Statement(counting.sql, counting.parameters, counting.types),
            partial(_release, mechanism=mechanism, key=key),
        )
        return _Draw(name, column, step, ends, mechanism, release)

    def _analyze(self, column: str, by: str | None) -> PrivateQuery:
        """Return the query of what is added up: it says where the rows, the unit and the groups are."""
        measure = f"SUM({write_name(column)})" if column else "COUNT(*)"
        source = ".".join(map(write_name, self.table.name.split(".")))
        text = f"SELECT {measure} FROM {source} PRIVATE"  # noqa: S608 - names alone, and quoted
        if by is not None:
            key = write_name(by)
            text = f"SELECT {key}, {measure} FROM {source} GROUP BY {key} TOP 1 PRIVATE"  # noqa: S608 - as above
        query = analyze(text, self.session.catalog, accepts_pattern=lambda _: False)
        assert isinstance(query, PrivateQuery)  # noqa: S101 - by its text
        return query


def _identify_link(link: Link | None) -> list[object]:
    """Return what a link of rows to their unit consists of, as JSON."""
    if link is None:
        return []
    return [link.column, link.key, list(link.path), link.unit, _identify_link(link.beyond)]


def _release(exact: Exact, *, mechanism: RankFromTop, key: str, noise: Noise) -> bytes:
    """Draw the bin from the numbers of users per bin."""
    table = open_exact(exact)
    columns = [column.to_pylist() for column in table.columns]
    users: dict[object, object] = dict(zip(*columns, strict=True)) if len(columns) == 2 else {}  # noqa: PLR2004 - bin and count
    known = {at: each for at, each in users.items() if isinstance(at, int) and isinstance(each, int) and each >= 0}
    # Two rows of one bin, or a value of another type, leave fewer bins than rows.
    is_whole = len(columns) == 2 and len(known) == table.num_rows  # noqa: PLR2004 - as above
    if not is_whole or not all(0 <= at < mechanism.bins for at in known):
        raise EngineError(
            "engine-result",
            "The engine's answer does not have the expected columns.",
            hint="Ask the curator whether the data changed while the session was open.",
        )
    counts = [known.get(at, 0) for at in range(mechanism.bins)]
    return json.dumps({"key": key, "bin": mechanism.select(counts, noise)}).encode("ascii")


def _unpack(key: str, released: bytes) -> int | None:
    """Decode a stored draw; raise `LedgerError` for any other bytes."""
    try:
        known = json.loads(released)
        if known["key"] == key and (known["bin"] is None or type(known["bin"]) is int):
            bin_: int | None = known["bin"]
            return bin_
    except (ValueError, KeyError, TypeError):
        pass
    reason = "A stored bound is damaged, or another version of dpsql wrote it."
    hint = "Increment the data version: dpsql data bump LEDGER --note REASON"
    raise LedgerError("ledger-answer", reason, hint=hint)


def _read_bound(draw: _Draw, at: int | None) -> FoundBound:
    """Return the bound of the bin that was drawn: its end away from 0, or for each its outer end."""
    rank = draw.mechanism.rank
    if at is None:
        note = f"too few users to tell: it takes about {draw.mechanism.units_needed}, or a larger epsilon"
        return FoundBound(draw.name, draw.column, None, rank, note)
    if at == len(draw.ends):
        beyond = draw.sign * draw.ends[-1] * draw.step
        note = f"beyond {float(beyond):.6g}, the end of the bins: choose it by hand"
        return FoundBound(draw.name, draw.column, None, rank, note)
    return FoundBound(draw.name, draw.column, draw.sign * draw.ends[at] * draw.step, rank)


@dataclass(frozen=True, slots=True)
class FoundBound:
    """One end of a bound: `value`, or None with the reason in `note`; about `rank` users are beyond it.

    `name` is rows, max, min, each.min or each.max; `column` is "" for rows.
    """

    name: str
    column: str
    value: Fraction | None
    rank: int
    note: str = ""

    def __str__(self) -> str:
        name = f"{self.name} of {self.column}" if self.column else self.name
        if self.value is None:
            return f"{name}: {self.note}"
        return f"{name} = {float(self.value):.15g}: at most about {self.rank} users are beyond it{self.note}"


@dataclass(frozen=True, slots=True)
class BoundsSuggestion:
    """Bounds of a table, their lines for the policy, what they cost, and how each was found.

    `bounds` are those of the policy with the suggested ones put in, and `new` the suggested ones alone, as a policy
    file has them. `lines` are those of `new` below [tables.<table>.bounds]. The `loss` is what was charged: that of no
    draw where all of them were stored before. `epsilon` is that of each draw. `scope` says for which groups they are.
    """

    table: str
    bounds: Bounds
    new: dict[str, Any]
    lines: tuple[str, ...]
    found: tuple[FoundBound, ...]
    loss: Loss
    epsilon: Epsilon
    scope: str = "for totals, and so wide enough for any groups"

    def __str__(self) -> str:
        found = [f"# {self.scope}, at epsilon {self.epsilon} each", *(f"# {each}" for each in self.found)]
        return "\n".join([f"[tables.{spell(self.table)}.bounds]", *self.lines, *found])


def collect_bounds(found: Sequence[FoundBound]) -> dict[str, Any]:
    """Return found bounds as a policy file has them; those that mean nothing there are left out."""
    ends = {(each.column, each.name): each.value for each in found if each.value is not None}
    new: dict[str, Any] = {}
    for column in dict.fromkeys(each.column for each in found):
        if not column:
            if ("", "rows") in ends:
                new["rows"] = int(ends["", "rows"])
            continue
        low, high = ends.get((column, "min")), ends.get((column, "max"))
        own: dict[str, Any] = {}
        if high is not None and (high or low):  # both 0: there is nothing to add up
            own = {"min": low, "max": high} if low is not None else {"max": high}
        least, most = ends.get((column, "each.min")), ends.get((column, "each.max"))
        if least is not None and most is not None:
            own["each"] = {"min": min(least, most), "max": max(least, most)}
            if least == most:  # one value in all rows: the range has to have two ends
                own["each"] = {"min": min(least, Fraction(0)), "max": max(most, Fraction(0))} if most else None
        own = {key: value for key, value in own.items() if value is not None}
        if own:
            new[column] = own
    return new


def widen_bounds(new: dict[str, Any], merged: dict[str, Any]) -> dict[str, Any]:
    """Return new bounds such that a single value of `each` is within `max` and `min`, which noise may have swapped."""
    widened = dict(new)
    for column, own in merged.items():
        if column == "rows" or not {"max", "each"} <= own.keys():
            continue
        low, high, each = own.get("min", 0), own["max"], own["each"]
        if max(low, each["min"]) < min(high, each["max"]):
            continue
        wider: dict[str, Any] = {"max": max(high, each["max"])}
        if each["min"] < low:
            wider["min"] = each["min"]
        widened = merge_bounds(widened, {column: wider})
    return widened


def map_bounds(bounds: Bounds) -> dict[str, Any]:
    """Return bounds of a policy as its file has them."""
    rows = {} if bounds.rows is None else {"rows": bounds.rows}
    return {**rows, **{name: _column_mapping(own) for name, own in bounds.columns}}


def _column_mapping(own: ColumnBounds) -> dict[str, Any]:
    pairs = {"min": own.min, "max": own.max}
    found: dict[str, Any] = {key: value for key, value in pairs.items() if value is not None}
    if own.each is not None:
        found["each"] = dict(zip(("min", "max"), own.each, strict=True))
    return found if own.distinct is None else {**found, "distinct": own.distinct}
