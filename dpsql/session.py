"""The session: the one room where question, budget, data and noise meet.

A query is planned from public numbers, its worst case is reserved durably before a row is read, the answer is drawn,
and what it cost is settled durably before it is handed out. Whatever fails once the data was touched is charged in
full: a failure may depend on one unit's rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self, TypeVar

from dpsql.accounting import BudgetVector
from dpsql.answer import Answer, CountColumns, Promise, Receipt
from dpsql.engines import Engine, Exact, PublicStatements, ResultEvaluator, Statement, read_confinement, turn_of
from dpsql.engines.base import statement_stopped
from dpsql.engines.public_pool import within
from dpsql.errors import EngineError, Refusal, UsageError
from dpsql.ledger.base import Account, Ledger, Request, Reservation, Settled, Shortfall
from dpsql.ledger.failures import FAILED
from dpsql.mechanisms import Noise
from dpsql.plan import (
    MOST_PUBLIC_ROWS,
    Balance,
    ExternalRelease,
    Forecast,
    Plan,
    Prepared,
    Release,
    ReleaseResult,
    ResultView,
    Terms,
    balance_of,
    budget_table,
    columns_table,
    digest_of,
    draw,
    forecast,
    history_table,
    named,
    on_grid,
    pack,
    plan_columns,
    plan_table,
    progress_of,
    publish,
    release,
    shortfall,
    shown_of,
    simulated,
    statement_of,
    tables_table,
    unpack,
)
from dpsql.sql.analysis.assumption import guess_asked, with_guess
from dpsql.sql.analysis.cache import AnalysisCache
from dpsql.sql.analysis.empty_results import without_rows
from dpsql.sql.analysis.partitions import values_asked, with_values
from dpsql.sql.analysis.prepare import prepared
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.clock import Clock, system_clock
from dpsql.sql.ir.statements import Describe, PrivateQuery, PublicQuery, ShowBudget, ShowTables, WrappedQuery
from dpsql.sql.ir.statements import Statement as Question
from dpsql.sql.ir.tree import has_scan
from dpsql.sql.rewrite.public_query import rewrite_public
from dpsql.sql.syntax.parameters import ParameterValues

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsql.engines.base import Stop

__all__ = ["ExternalRelease", "Prepared", "ReleaseResult", "Session", "SessionDependencies", "buy"]

Output = TypeVar("Output")
_LONGEST_CONSTANT = 10.0  # seconds in which a statement without tables is computed


@dataclass(frozen=True, slots=True)
class SessionDependencies:
    """What a session is made of; `dpsql.connect` puts them together.

    Statements over public tables are run by `public`, apart from the private ones; without it the engine runs both.
    """

    engine: Engine
    ledger: Ledger
    catalog: Catalog
    terms: Terms
    noise: Noise
    desk: ResultEvaluator
    clock: Clock = system_clock
    public: PublicStatements | None = None


class Session:
    """Private queries over one data set; made by `dpsql.connect`, closed by `close` or a `with` block."""

    __slots__ = ("_analyses", "_closed", "_parts", "_salts")

    def __init__(self, parts: SessionDependencies) -> None:
        self._parts = parts
        self._analyses = AnalysisCache(parts.catalog, parts.engine.accepts_pattern, clock=parts.clock)
        salt = parts.noise.draw(16)
        self._salts = int.from_bytes(salt[:8]), int.from_bytes(salt[8:])
        self._closed = False

    def sql(self, text: str, parameters: ParameterValues = (), *, stop: Stop | None = None) -> Answer:
        """Answer SELECT ... TOP k PRIVATE, and for nothing: EXPLAIN of one, a SELECT of public tables, SHOW, DESCRIBE.

        A SELECT around a private query is computed from its released rows, and costs what the private query does;
        where LIMIT 0 or WHERE 1 = 0 asks for no row, of any table, nothing is released or charged. `parameters` are the
        values of ? and $1 in their order, or a mapping of those of :name.
        Raises `Refusal` or `Unsupported` for the statement, `BudgetExceeded` when its worst case no longer fits
        (nothing is charged in these cases), and `EngineError` when the engine failed on the data (charged in full).
        What this analyst was answered before, on the same version of the data, is answered again from the ledger, at no
        cost, unless WITH (fresh = true) asks anew; a stored answer that cannot be read is a `LedgerError`.
        What is free is interrupted soon after `stop` returns True, which is called now and then while it runs. A
        private query that waits for the engine is then not begun; one that has begun goes on to its end, since it is
        charged and its answer is stored.
        """
        question = self._analyze(text, parameters)
        if not isinstance(question, PrivateQuery | WrappedQuery):
            return self._free(self._public(question, stop))
        shown = shown_of(question)
        plan, stored = self._draw(shown.inner, stop)
        if plan.query.explained:
            wrapped = shown.outer is not None
            return self._free(plan_table(plan, forecast(plan, self.budget.columns, times=1), wrapped=wrapped))
        shown = replace(shown.fetched(lambda query: self._public(query, stop)), stop=stop)
        if stored is not None and not plan.fresh:
            return self._answer(plan, unpack(plan, stored), shown=shown, replayed=True)
        if shown.is_empty:
            return self._free(shown.nothing(self._parts.desk))
        with turn_of(self._parts.engine, stop):  # an engine that cannot run is found out before anything is reserved
            if stop is not None and stop():
                raise statement_stopped()
            reservation = self._reserve(plan)
            if isinstance(reservation, Settled):  # answered since it was looked for
                released, replayed = unpack(plan, reservation.answer), True
            else:
                released, replayed = self._settled(plan, reservation, drawn=self._release(plan, reservation))
        return self._answer(plan, released, shown=shown, replayed=replayed)

    def _buy(self, purchase: ExternalRelease) -> ReleaseResult:
        self._check_open()
        parts = self._parts
        stored = parts.ledger.stored(purchase.key, self._account)
        if stored is not None:
            return self._bought(stored, replayed=True)
        with turn_of(parts.engine):
            held = parts.ledger.reserve(self._request(purchase.text, purchase.loss, key=purchase.key, repeated=True))
            if isinstance(held, Settled):
                return self._bought(held.answer, replayed=True)
            drawn = self._drawn(
                purchase.statement,
                lambda exact: purchase.draw(exact, noise=parts.noise),
                held=held,
                worst=purchase.loss,
            )
            digest, shared = hashlib.sha256(drawn).hexdigest(), parts.terms.limits.share_replays
            settled = held.settle(purchase.loss.rho, digest, answer=drawn, shared=shared)
        return self._bought(settled.answer, replayed=settled.repeats)

    def explain(self, text: str, parameters: ParameterValues = ()) -> Plan:
        """Return the plan of a private query: engine SQL, mechanism, worst-case loss, threshold; touches no row.

        Raises as `sql` does for a statement that cannot be asked, but not for a budget that is short.
        """
        question = self._analyze(text, parameters)
        if isinstance(question, WrappedQuery):
            question = shown_of(question).inner
        if not isinstance(question, PrivateQuery):
            hint = "Explain a SELECT ... TOP k PRIVATE; what reads no private row costs nothing."
            raise Refusal("not-a-query", "This statement has no plan.", hint=hint)
        return self._draw(replace(question, explained=True))[0]

    def forecast(self, text: str, parameters: ParameterValues = (), *, times: int = 1) -> Forecast:
        """Return whether so many queries of the price of this one still fit, and how many do; touches no row.

        In the worst case, and when half of the items come back. Raises as `explain`, and `UsageError` for `times` < 1.
        """
        return forecast(self.explain(text, parameters), self.budget.columns, times=times)

    def describe(self, text: str, parameters: ParameterValues = ()) -> pa.Schema:
        """Return the columns that the answer of `sql` would have; reads no private row and charges nothing.

        Raises as `sql` does for a statement that cannot be asked, but not for a budget that is short.
        """
        return self._schema(self._analyze(text, parameters))

    def prepare(self, text: str, types: Sequence[str] = ()) -> Prepared:
        """Return the types of the parameters and the columns of the answer, before any value is bound; as `describe`.

        `types` are those that are known already, as SQL names them, in the order of the parameters; UNKNOWN is none.
        Raises as `sql` does for a statement that cannot be asked whatever is bound.
        """
        found, question, is_open = prepared(text, types, read=lambda given: self._analyze(text, given))
        return Prepared(found, self._schema(question, is_open=is_open))

    @property
    def catalog(self) -> Catalog:
        """The tables that exist for the analyst."""
        return self._parts.catalog

    @property
    def terms(self) -> Terms:
        """What is granted, and the ceilings and defaults of a query; `budget` has what is left."""
        return self._parts.terms

    @property
    def budget(self) -> Balance:
        """What was granted, spent and reserved, and what remains, in rho and delta; never a running epsilon.

        That of the analyst's own limit, if they have one; what remains is never more than the total has left.
        """
        self._check_open()
        ledger, account = self._parts.ledger, self._account
        own, total = None if account is None else ledger.state(account), ledger.state()
        # after the states: a grant only ever adds, and a session that is open speaks of it too
        terms = replace(self._parts.terms, budget=ledger.budget, total=ledger.total)
        return balance_of(terms, total, own=own, calendar=ledger.calendar)

    @property
    def progress(self) -> float | None:
        """How much of the statement that runs is done, 0 to 1, to be asked from another thread; None if it is not told.

        It depends on rows, so it is told only where the data is open in this process and nothing protects the time.
        """
        return progress_of(self._parts.engine, self._parts.terms.answer_grid_ms)

    @property
    def history(self) -> pa.Table:
        """What this analyst asked of this ledger, in every session, and what it was charged; newest last."""
        self._check_open()
        entries = (entry for entry in self._parts.ledger.entries() if entry.account == self._account)
        return history_table(entries, self._parts.terms.certificate)

    def close(self) -> None:
        """Close the engine, the evaluator and the ledger; further use raises `UsageError`."""
        if not self._closed:
            self._closed = True
            with ExitStack() as closing:
                closing.callback(self._parts.ledger.close)
                closing.callback(self._parts.engine.close)
                closing.callback(self._parts.desk.close)
                if self._parts.public is not None:
                    closing.callback(self._parts.public.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session({'closed' if self._closed else self._parts.terms.total})"

    def _analyze(self, text: str, parameters: ParameterValues) -> Question:
        self._check_open()
        return self._analyses.read(text, parameters)

    def _public(self, question: PublicQuery | ShowBudget | ShowTables | Describe, stop: Stop | None = None) -> pa.Table:
        """Return the answer to a question that reads no private row.

        One that reads no table either never waits for an engine: it is computed where released rows are.
        """
        parts = self._parts
        match question:
            case PublicQuery() if not has_scan(question):
                statement = statement_of(rewrite_public(question, MOST_PUBLIC_ROWS + 1))
                return named(question, parts.desk.compute({}, statement, stop=within(_LONGEST_CONSTANT, stop)))
            case PublicQuery():
                statement = statement_of(rewrite_public(question, MOST_PUBLIC_ROWS + 1, dialect=parts.catalog.dialect))
                if parts.public is None:
                    return publish(question, parts.engine.execute(statement))
                return publish(question, parts.public.execute(statement, stop=stop))
            case ShowBudget():
                return budget_table(self.budget)
            case ShowTables():
                return tables_table(parts.catalog, parts.terms)
            case Describe():
                return columns_table(parts.catalog, parts.terms, name=question.table)

    def _schema(self, question: Question, *, is_open: bool = False) -> pa.Schema:
        """Return the columns of an answer; a query some of whose options `is_open` has no plan yet to be refused."""
        if isinstance(question, PublicQuery):  # the catalog says the types, so no engine is waited for
            return self._public(without_rows(question)).schema
        if not isinstance(question, PrivateQuery | WrappedQuery):
            return self._public(question).schema
        shown = shown_of(question)
        if not is_open:
            draw(self._known(shown.inner), self._parts.terms, salts=self._salts)
        if shown.inner.explained:
            return plan_columns()
        return shown.fetched(lambda query: self._public(without_rows(query))).nothing(self._parts.desk).schema

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("closed", "This session is closed.", hint="Open another with dpsql.connect.")

    @property
    def _account(self) -> str | None:
        account = self._parts.terms.account
        return None if account is None else account.name

    def _draw(self, question: PrivateQuery, stop: Stop | None = None) -> tuple[Plan, bytes | None]:
        """Return the plan of a query, and what this analyst was answered to it on this version of the data."""
        plan = draw(self._known(question, stop), self._parts.terms, salts=self._salts)
        stored = self._parts.ledger.stored(plan.key, self._account)
        if question.explained:
            plan = simulated(plan, noise=self._parts.noise)
        return replace(plan, stored=stored is not None), stored

    def _known(self, question: PrivateQuery, stop: Stop | None = None) -> PrivateQuery:
        """Return the query with the values of its public tables, and the materialized tables of this data version."""
        question = question.at(self._parts.ledger.data_version) if question.materialized else question
        asked = values_asked(question)
        if asked is not None:
            question = with_values(question, self._public(asked, stop).column(0).to_pylist())
        guessed = guess_asked(question) if question.explained else None
        return question if guessed is None else with_guess(question, self._public(guessed, stop).column(0).to_pylist())

    def _reserve(self, plan: Plan) -> Reservation | Settled:
        worst = plan.columns(plan.worst_case)
        request = self._request(plan.query.text, worst, key=plan.key, repeated=not plan.fresh)
        try:
            return self._parts.ledger.reserve(request)
        except Shortfall as error:
            short = error
        least = self._parts.terms.limits.min_epsilon
        raise shortfall(plan, short, least_epsilon=least, calendar=self._parts.ledger.calendar)

    def _request(self, text: str, worst: BudgetVector, *, key: str, repeated: bool) -> Request:
        terms, limit = self._parts.terms, self._parts.terms.account
        account = None if limit is None else Account(limit.name, limit.budget)
        return Request(text, worst, account, key, terms.certificate, terms.limits.failures_per_day, repeated)

    def _release(self, plan: Plan, reservation: Reservation) -> Release:
        counting, worst, noise = statement_of(plan.counting), plan.columns(plan.worst_case), self._parts.noise
        return self._drawn(counting, lambda exact: release(plan, exact, noise=noise), held=reservation, worst=worst)

    def _drawn(
        self, statement: Statement, draw: Callable[[Exact], Output], *, held: Reservation, worst: BudgetVector
    ) -> Output:
        """Read and draw; charge everything that fails in full, and say nothing of why.

        Words, kind and frames of a failure may hold a row's values, so nothing of it is passed on but that it was an
        interrupt; what is raised is raised outside the handlers, and nothing hangs on it.
        """
        hint = "Ask the curator: the details may hold private values and are not kept."
        failure: BaseException
        failure = EngineError("engine-failed", "The engine could not answer; the query is charged in full.", hint=hint)
        try:
            with on_grid(self._parts.terms.answer_grid_ms):
                exact = self._parts.engine.execute(statement)
                failure = EngineError(
                    "release-failed", "The answer could not be drawn; the query is charged in full.", hint=hint
                )
                return draw(exact)
        except Exception:  # noqa: BLE001, S110 - see above
            pass
        except BaseException as interrupt:  # noqa: BLE001 - passed on below
            failure = interrupt.with_traceback(None)
            failure.__context__ = failure.__cause__ = None
        held.settle(worst.rho, FAILED if isinstance(failure, EngineError) else "interrupted")
        raise failure

    def _settled(self, plan: Plan, reservation: Reservation, *, drawn: Release) -> tuple[Release, bool]:
        """Charge what was drawn and return it, or what stands in its place; and whether that was charged before.

        Where the policy shares answers, that is the first answer to the question. Whether there was another is not for
        the analyst to see or to time: the engine has run, the noise is drawn, the ledger has looked, and one answer is
        unpacked either way; it costs what it cost the first time.
        """
        shared = self._parts.terms.limits.share_replays and not plan.fresh
        loss = plan.columns(drawn.loss).rho
        settled = reservation.settle(loss, digest_of(drawn.table), answer=pack(plan, drawn), shared=shared)
        released = unpack(plan, settled.answer) if shared or settled.repeats else drawn
        return released, settled.repeats

    def _answer(self, plan: Plan, released: Release, *, shown: ResultView, replayed: bool) -> Answer:
        balance = self.budget
        k, k_bar = plan.sizes(released.chosen)
        receipt = Receipt(
            mechanism=plan.mechanism,
            k=k,
            k_bar=k_bar,
            epsilon=plan.epsilon,
            delta=plan.delta,
            threshold_offset=plan.threshold_offset,
            items_charged=0 if replayed else released.items_charged,
            loss=self._parts.terms.nothing if replayed else released.loss,
            remaining=balance.remaining,
            stopped_at_bottom=released.stopped_at_bottom,
            sealed=self._parts.engine.sealed,
            replayed=replayed,
            shared=self._parts.terms.limits.share_replays,
            durable=self._parts.ledger.durable,
            chosen=plan.offer.chooses,
            certificate=plan.certificate,
            isolation=self._parts.engine.isolation,
            confinement=read_confinement(self._parts.engine),
        )
        offer, outputs = plan.offer, shown.counts
        noise = offer.count_variance if outputs else None
        counts = None if noise is None else CountColumns(outputs, noise, offer.count_scale, adjusted=plan.monotone)
        periods = None if balance.calendar is None else balance.calendar.periods
        promise = Promise(plan.query.unit_name, plan.query.holders, balance.granted, periods)
        table = shown.table(released.table, self._parts.desk)
        return Answer(table, receipt, counts=counts, promise=promise, granted=balance.limit)

    def _bought(self, released: bytes, *, replayed: bool) -> ReleaseResult:
        parts = self._parts
        return ReleaseResult(
            released,
            replayed=replayed,
            sealed=parts.engine.sealed,
            isolation=parts.engine.isolation,
            durable=parts.ledger.durable,
            shared=parts.terms.limits.share_replays,
        )

    def _free(self, table: pa.Table) -> Answer:
        engine, nothing, left = self._parts.engine, self._parts.terms.nothing, self.budget.remaining
        where, measures = engine.isolation, read_confinement(engine)
        free = Receipt.free(left, nothing=nothing, sealed=engine.sealed, isolation=where, confinement=measures)
        return Answer(table, free)


def buy(session: Session, purchase: ExternalRelease) -> ReleaseResult:
    """Make a release that another room planned, on the same trip as a query's, or return it from the ledger.

    Its loss is reserved before a row is read and charged before it is returned. Raises `Shortfall` when it does not
    fit (nothing is charged), `EngineError` when it could not be made (charged in full), and `LedgerError`. It takes the
    planner's word for the law and the loss, so it is no method that an analyst's session shows.
    """
    return session._buy(purchase)  # noqa: SLF001 - the same module
