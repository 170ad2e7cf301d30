"""Sessions: query, budget, data and noise meet here.

A query is planned from public numbers, its worst case is reserved durably before a row is read, the answer is drawn,
and its cost is settled durably before the answer is returned. A failure after the data was read is charged in full,
because it may depend on one unit's rows.

An answer may come back without a charge at five points, in this order:

1. `_answers`: the same words, and nothing was written to the ledger since.
2. `_charged`: the same words, which this session paid for (`_replay_charged`).
3. `PlanFinder.find`: any words with the same key in the ledger.
4. `ledger.reserve`, which returns `Settled` where another process answered in between.
5. `settle`, which returns an earlier answer of this account.

A query that is charged and can hardly return a row is refused without consent (`report/consent.py`), after the third
point. With fresh = true there is none of the five. Where the policy shares answers, `settle` may also return the first
answer of any account, which costs what it cost then.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Self

from dpsql import engines, errors
from dpsql import plan as planning
from dpsql.accounting import NO_RISE
from dpsql.answer import Answer
from dpsql.build_answer import AnswerPart, View, build_answer, build_free_answer
from dpsql.charged_release import Execute, read_progress, reserve_run_settle, run_external_release
from dpsql.errors import WastedChargeWarning
from dpsql.ledger import base as ledgers
from dpsql.plan_finder import PlanFinder, PlannedQuery
from dpsql.report import forecast as forecasts
from dpsql.report import free_answers
from dpsql.report.balance import Balance, read_balance, read_balance_by_values, read_balances
from dpsql.report.consent import find_refusal
from dpsql.report.forecast import Forecast
from dpsql.report.stored_tables import StoredTables, digest_question, find_name, is_stored, store_answer
from dpsql.session_dependencies import SessionDependencies
from dpsql.sql.analysis import analyze as analysis
from dpsql.sql.ir import statements
from dpsql.sql.ir.catalog import Catalog, Table
from dpsql.sql.lexer import ParameterValues
from dpsql.terms import Terms

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsql.ledger.base_ledger import Ledger
    from dpsql.ledger.record import NamedTable

_WITH_VIEW = (statements.PrivateQuery, statements.OuterSelect)


class Session:
    """Private queries over one data set; opened by `dpsql.connect`, closed by `close` or the end of a `with` block.

    Threads may share a session.

    >>> with dpsql.connect(database, policy=policy) as session:
    ...     answer = session.sql("SELECT article FROM reads GROUP BY article TOP 1 PRIVATE")
    >>> answer.fetchall()
    [('moon',)]
    """

    __slots__ = (
        "_analyses",
        "_answers",
        "_charged",
        "_closed",
        "_dependencies",
        "_free_answers",
        "_listed",
        "_plans",
        "_policy_tables",
        "_stored",
    )

    def __init__(self, dependencies: SessionDependencies) -> None:
        own = self._dependencies = dependencies
        self._policy_tables = own.catalog.tables
        self._stored: tuple[int, tuple[NamedTable, ...]] = (0, ())  # what the catalog has beside them, and when
        self._analyses = self._open_cache()
        stored = StoredTables(own.ledger, own.account)
        self._free_answers = free_answers.FreeAnswers(
            own.engine, own.ledger, own.evaluator, own.catalog, own.terms, stored, own.public, own.clock
        )
        names = planning.NamesOfAccount(own.ledger, own.account, by_default=own.terms.uses_known_names)
        salt = own.noise.draw(16)
        salts = int.from_bytes(salt[:8]), int.from_bytes(salt[8:])
        self._plans = PlanFinder(own, self._free_answers, names, salts)
        self._answers: planning.AnswerCache[Answer] = planning.AnswerCache(own.ledger)
        self._charged: planning.AnswerCache[tuple[View, list[planning.Plan]]] = planning.AnswerCache(own.ledger)
        self._listed: tuple[Hashable, tuple[Table, ...]] = (None, ())  # the stored tables, and when
        self._closed = False

    def sql(
        self,
        text: str,
        parameters: ParameterValues = (),
        *,
        stop: engines.Stop | None = None,
        implicit: bool | None = None,
        postgres: bool = False,
        consent: bool | None = None,
    ) -> Answer:
        """Run SELECT ... TOP k PRIVATE or, free of charge, EXPLAIN, a SELECT of public tables, SHOW or DESCRIBE.

        `parameters` are the values of ? and $1 in order, or a mapping with those of :name. `implicit` and `consent` are
        as in `dpsql.connect`, for this statement. With `postgres`, the text means what it means on the PostgreSQL port:
        a backslash escapes in LIKE, and `/` of integers is whole. Work that is free stops soon after `stop` returns
        True; a private query that has started runs to its end.

        A query that this analyst ran before on the same version of the data returns the stored answer, free of charge,
        unless WITH (fresh = true) asks for new noise. A `WastedChargeWarning` comes before a charge that is likely
        wasted.

        Raises `Refusal`, `Unsupported` or `BudgetExceeded` (nothing was charged), `EngineError` when the engine failed
        on the data (charged in full), and `LedgerError`, whose words say what was charged. Ctrl-C charges a private
        query that has begun to read in full; a note of the `KeyboardInterrupt` says how much.

        >>> len(session.sql("SELECT article FROM reads GROUP BY article TOP 1 PRIVATE"))
        1
        """
        log = ledgers.ChargeLog()
        try:
            found = self._answer_free(
                text, parameters, stop=stop, implicit=implicit, postgres=postgres, consent=consent
            )
            if isinstance(found, Answer):
                return found
            key, view, asked = found
            parts = list[PlannedQuery]()
            for part in asked:
                may_run = part.stored is not None or part.reach is None
                parts.append(part if may_run else self._require_consent(part, given=consent, postgres=postgres))
            for part in parts:
                # Before anything is charged: a filter of warnings may turn one into an error.
                for warning in part.plan.warnings if part.stored is None else ():
                    warnings.warn(warning, WastedChargeWarning, stacklevel=2)
            answered = self._release_parts(parts, stop, log=log)
            answer = build_answer(view, answered, own=self._dependencies, salts=self._plans.salts)
            if view.name:
                self._name_answer(view, parts, text=text, answer=answer, is_charged=True)
        except errors.Error as error:
            log.describe(error)
            raise
        except BaseException as interrupt:
            log.annotate(interrupt)
            raise
        plans = [part.plan for part in parts if not part.plan.fresh]
        if key is not None and len(plans) == len(parts):
            # the next time these words are run, the ledger has the answers to these plans
            with suppress(errors.Error):
                # The answer is paid for: an error of the ledger in looking for its stamp must not lose it.
                self._charged.add(key, (view, plans), stamp=self._dependencies.ledger.peek_stamp())
        return answer

    execute = sql

    def replay(
        self,
        text: str,
        parameters: ParameterValues = (),
        *,
        stop: engines.Stop | None = None,
        implicit: bool | None = None,
    ) -> Answer:
        """Return the answer of `sql` if it is stored or free; never charge.

        Raises `Refusal` with the code `not-stored` for a query that would be charged, and otherwise as `sql`.

        >>> query = "SELECT article FROM reads GROUP BY article TOP 1 PRIVATE"
        >>> session.sql(query).fetchall() == session.replay(query).fetchall()
        True
        """
        found = self._answer_free(text, parameters, stop=stop, implicit=implicit)
        if isinstance(found, Answer):
            return found
        hint = "Run the query: it is charged. EXPLAIN says how much."
        raise errors.Refusal(
            "not-stored", "There is no stored answer to this query on this version of the data.", hint=hint
        )

    def peek(
        self,
        text: str,
        parameters: ParameterValues = (),
        *,
        implicit: bool | None = None,
        postgres: bool = False,
    ) -> Answer | None:
        """Return the answer of `sql` at once if it was returned before, is free and is still right, else None.

        >>> query = "SELECT article FROM reads GROUP BY article TOP 1 PRIVATE"
        >>> session.peek(query) is None, session.sql(query).fetchall() == session.replay(query).fetchall()
        (True, True)
        >>> session.peek(query).fetchall()
        [('moon',)]
        """
        return self._answers.peek(self._find_key(text, parameters, implicit=implicit, postgres=postgres))

    def _answer_free(
        self,
        text: str,
        parameters: ParameterValues,
        *,
        stop: engines.Stop | None,
        implicit: bool | None,
        postgres: bool = False,
        consent: bool | None = None,
    ) -> Answer | tuple[Hashable, View, list[PlannedQuery]]:
        """Return the answer to a statement that is free or stored; of another, its view, plans and stored answers.

        The first is the key of the statement in caches, None for one that may mean something else the next time.
        """
        key = self._find_key(text, parameters, implicit=implicit, postgres=postgres)
        earlier = (lambda: self._read_as_0_11(text, parameters, implicit=implicit)) if postgres else None
        if key is None:
            statement = self._analyze(text, parameters, implicit=implicit, postgres=postgres)
            found = self._answer_analyzed(statement, stop, text=text, earlier=earlier, consent=consent)
            return found if isinstance(found, Answer) else (None, *found)
        known = self._answers.find(key)
        if known is not None:
            return known
        # before the answer is looked for: what another process writes meanwhile then outdates what is remembered
        stamp, charged = self._dependencies.ledger.stamp(), self._charged.find(key)
        answer = None if charged is None else self._replay_charged(*charged, stop=stop)
        if answer is None:
            statement = self._analyze(text, parameters, implicit=implicit, postgres=postgres, stamp=stamp)
            found = self._answer_analyzed(statement, stop, text=text, earlier=earlier, consent=consent)
            # a statement that reads a clock is not in the cache of analyses
            is_repeatable = self._analyses.has(key) and planning.is_repeatable(statement)
            if not isinstance(found, Answer):
                return key if is_repeatable else None, *found
            if not is_repeatable:
                return found
            answer = found
        self._answers.add(key, answer, stamp=stamp, size=answer.arrow().nbytes)
        return answer

    def _replay_charged(
        self, view: View, plans: Sequence[planning.Plan], *, stop: engines.Stop | None
    ) -> Answer | None:
        """Return the answer of plans that this session was charged for, where nothing was written to the ledger since.

        The plans need not be made again: the same words mean the same, and no names became known.
        """
        parts = list[AnswerPart]()
        for plan in plans:
            stored = self._plans.find_stored(plan)
            if stored is None:  # another process incremented the data version just after the charge
                return None
            parts.append(AnswerPart(plan, stored, is_replayed=True))
        return build_answer(replace(view, stop=stop), parts, own=self._dependencies, salts=self._plans.salts)

    def _answer_analyzed(
        self,
        statement: statements.Statement,
        stop: engines.Stop | None,
        *,
        text: str,
        earlier: Callable[[], Sequence[statements.PrivateQuery]] | None = None,
        consent: bool | None = None,
    ) -> Answer | tuple[View, list[PlannedQuery]]:
        """Return the answer to an analyzed statement that is free or stored, as `_answer_free` does.

        `earlier` returns its private queries as 0.11 read the text, for a text of the PostgreSQL port.
        """
        if not isinstance(statement, _WITH_VIEW):
            note = self._free_answers.find_comment(statement)
            return build_free_answer(self._free_answers.answer(statement, stop), self._dependencies, note=note)
        view = self._free_answers.bind_view(statement)
        parts = [self._plans.find(query, stop) for query in view.inners]
        if earlier is not None and any(part.stored is None for part in parts):
            parts = self._plans.mark_reread(parts, earlier())
        name = find_name(parts, view, stored=self._free_answers.stored)
        # EXPLAIN, of a SELECT over public tables alone and of private queries
        if not parts and isinstance(statement, statements.OuterSelect) and statement.explained:
            return build_free_answer(free_answers.free_plan_table(), self._dependencies)
        explained = parts[0].plan.query.explained if parts else statements.Explained.NO
        if explained:
            plans = [part.plan for part in parts]
            balance = read_balance_by_values(self._dependencies.ledger, self._dependencies.terms)
            is_verbose, is_wrapped = explained is statements.Explained.VERBOSE, view.has_outer_select
            facts = forecasts.describe_plans(
                plans, balance, is_wrapped=is_wrapped, consent=consent, is_verbose=is_verbose
            )
            return build_free_answer(free_answers.facts_table(facts), self._dependencies)
        # the public tables that a SELECT reads beside released rows: fetched first, as they may fail free of charge
        view = replace(view.fetch(lambda query: self._free_answers.answer(query, stop)), stop=stop, name=name)
        if isinstance(view, planning.OuterSelectView):
            queries = [query for _, query in view.query.beside]
            view = replace(view, stored_note=self._free_answers.stored.describe_days(queries))
        kept = [AnswerPart(part.plan, part.stored, is_replayed=True) for part in parts if part.stored is not None]
        if kept and len(kept) == len(parts):
            answer = build_answer(view, kept, own=self._dependencies, salts=self._plans.salts)
            if name:
                self._name_answer(view, parts, text=text, answer=answer, is_charged=False)
            return answer
        if view.is_empty or not parts:
            table = view.empty(self._dependencies.evaluator)
            return build_free_answer(table, self._dependencies, note=view.stored_note)
        return view, parts

    def _name_answer(
        self, view: View, parts: Sequence[PlannedQuery], *, text: str, answer: Answer, is_charged: bool
    ) -> None:
        """Store the answer of a statement under the name that it gives."""
        table, question, stored = answer.arrow(), digest_question(parts, view), self._free_answers.stored
        store_answer(view.name, text, table=table, question=question, stored=stored, is_charged=is_charged)

    def _require_consent(self, part: PlannedQuery, *, given: bool | None, postgres: bool) -> PlannedQuery:
        """Return a query that is charged and may be run; raise `Refusal` for one that can hardly return a row.

        Where the budget is short, besides, it raises `BudgetExceeded`. An answer that was stored since is returned in
        any case.
        """
        own, plan = self._dependencies, part.plan
        refusal = find_refusal(
            plan,
            part.reach,
            read_left=lambda: read_balance(own.ledger, own.terms, values=plan.charged_values).remaining,
            terms=own.terms,
            given=given,
            postgres=postgres,
        )
        if refusal is None:
            return part
        # another session of this account may have been answered since the plan was made
        stored = None if plan.fresh else self._plans.find_stored(plan)
        if stored is None and isinstance(refusal, ledgers.Shortfall):
            raise forecasts.explain_shortfall(plan, refusal, terms=own.terms, calendar=own.ledger.calendar)
        if stored is None:
            raise refusal
        return replace(part, stored=stored)

    def _release_parts(
        self, parts: Sequence[PlannedQuery], stop: engines.Stop | None, *, log: ledgers.ChargeLog
    ) -> list[AnswerPart]:
        """Return the plans of a statement with their answers; release those that are not stored."""
        if len(parts) > 1:
            ledger, terms = self._dependencies.ledger, self._dependencies.terms
            charged = [part.plan for part in parts if part.stored is None]
            forecasts.check_together(charged, read_balance_by_values(ledger, terms), terms=terms)
        answered = list[AnswerPart]()
        for part in parts:
            plan = part.plan
            answer: planning.Release | bytes | None = part.stored
            if answered and answer is None and not plan.fresh:
                # an answer of this very statement may be that to the same question, in other words
                answer = self._plans.find_stored(plan)
            if answer is None:
                log.is_fresh = plan.fresh
                answered.append(self._release_query(plan, stop, log=log))
                log.answers += not answered[-1].is_replayed
            else:
                answered.append(AnswerPart(plan, answer, is_replayed=True))
        log.is_complete = True
        return answered

    def _release_query(self, asked: planning.Plan, stop: engines.Stop | None, *, log: ledgers.ChargeLog) -> AnswerPart:
        """Make the release of a plan; return it with the answer to show."""
        own, plan = self._dependencies, planning.draw_places(asked, self._dependencies.noise)
        made, counting = list[planning.Release](), planning.build_statement(plan.counting)

        def draw(execute: Execute) -> planning.PackedRelease:
            made.append(planning.release(plan, execute(counting), noise=own.noise, execute=execute))
            is_single = partial(planning.has_one_value, plan.query.key_column, own.terms)
            return planning.pack_release(plan, made[0], day=own.ledger.today(), has_one_value=is_single)

        worst, shared = plan.price(plan.worst_case), own.terms.limits.share_replays and not plan.fresh
        law, values = plan.law if shared else "", plan.charged_values
        request = own.request(plan.query.text, worst, key=plan.key, repeated=not plan.fresh, law=law, values=values)
        short = None
        try:
            settled = reserve_run_settle(request, draw, own=own, shared=shared, stop=stop, log=log)
        except ledgers.Shortfall as error:
            short = error  # explained outside the handler, so that no context hangs on the error
        if short is not None:
            raise forecasts.explain_shortfall(plan, short, terms=own.terms, calendar=own.ledger.calendar)
        # where accounts share answers the stored bytes are read in any case: whether they are its own is not timed
        if made and plan.rule is None and not shared and not settled.repeats:
            return AnswerPart(asked, made[0], is_replayed=False, rise=settled.rise)
        # an equal query that was faster may have lowered what this one holds: its charge is never less than nothing
        rise = settled.rise.larger(NO_RISE) if settled.repeats else settled.rise
        return AnswerPart(asked, settled.answer, settled.repeats, rise)

    def explain(self, text: str, parameters: ParameterValues = (), *, implicit: bool | None = None) -> planning.Plan:
        """Return the plan of a private query: engine SQL, mechanism, worst-case loss, threshold; reads no row.

        Raises as `sql`, but not for a budget that is short.

        >>> session.explain("SELECT article FROM reads GROUP BY article TOP 10 PRIVATE").worst_items
        10
        """
        plans = self.explain_all(text, parameters, implicit=implicit)
        if len(plans) > 1:
            hint = "Call explain_all, or run it with EXPLAIN before it: both are free."
            raise errors.Refusal("not-a-query", f"This statement has {len(plans)} private queries.", hint=hint)
        return plans[0]

    def explain_all(
        self, text: str, parameters: ParameterValues = (), *, implicit: bool | None = None
    ) -> list[planning.Plan]:
        """Return the plan of each private query of a statement, in the order of the text; reads no row.

        Raises as `explain`.

        >>> some = "SELECT COUNT(DISTINCT user_id) FROM reads WHERE article = 'sun' PRIVATE"
        >>> len(session.explain_all(f"SELECT ({some}) / (SELECT COUNT(DISTINCT user_id) FROM reads PRIVATE)"))
        2
        """
        inners = self._list_inners(self._analyze(text, parameters, implicit=implicit))
        if not inners:
            hint = "Explain a SELECT ... TOP k PRIVATE; what reads no private row costs nothing."
            raise errors.Refusal("not-a-query", "This statement has no plan.", hint=hint)
        return [self._plans.find(replace(inner, explained=statements.Explained.PLAN)).plan for inner in inners]

    def forecast(
        self,
        text: str,
        parameters: ParameterValues = (),
        *,
        times: int = 1,
        implicit: bool | None = None,
        consent: bool | None = None,
    ) -> Forecast:
        """Return whether `times` queries of this price still fit into the budget, and how many do; reads no row.

        Raises as `explain`, and `UsageError` for `times` < 1.

        >>> session.forecast("SELECT article FROM reads GROUP BY article TOP 10 PRIVATE").at_worst
        9
        """
        plan = self.explain(text, parameters, implicit=implicit)
        own = self._dependencies
        balance = read_balance(own.ledger, own.terms, values=plan.charged_values)
        cost = forecasts.describe_cost(plan, balance)
        return forecasts.forecast(plan, balance.remaining, times=times, cost=cost, consent=consent)

    def describe(self, text: str, parameters: ParameterValues = (), *, implicit: bool | None = None) -> pa.Schema:
        """Return the columns that the answer of `sql` would have; free. Raises as `explain`.

        >>> session.describe("SELECT article FROM reads GROUP BY article TOP 10 PRIVATE").names
        ['article']
        """
        return self._schema(self._analyze(text, parameters, implicit=implicit))

    def prepare(
        self, text: str, types: Sequence[str] = (), *, implicit: bool | None = None, postgres: bool = False
    ) -> planning.Prepared:
        """Return the types of a statement's parameters and the columns of its answer, before any value is bound; free.

        `types` are the known types, as SQL names them, in the order of the parameters; UNKNOWN is one that is not known
        yet. Raises as `sql` does for a statement that cannot be run with any values.

        >>> session.prepare("SELECT article FROM reads WHERE article <> ? GROUP BY 1 TOP 3 PRIVATE").parameters
        ('VARCHAR',)
        """
        found, statement, is_open = analysis.prepare_statement(
            text,
            types,
            read=lambda values: self._analyze(text, values, implicit=implicit, postgres=postgres),
        )
        beside = statement.beside if isinstance(statement, statements.OuterSelect) else ()
        reads_stored = any(is_stored(query) for _, query in beside)
        return planning.Prepared(found, self._schema(statement, is_open=is_open), may_change=reads_stored)

    @property
    def catalog(self) -> Catalog:
        """Tables that exist for the analyst: those of the policy, and those that the ledger stores."""
        with suppress(errors.LedgerError, errors.UsageError):  # those of the last time, where there is no ledger now
            self._check_open()
            self._read_stored_tables()
        return self._dependencies.catalog

    @property
    def tables(self) -> list[str]:
        """Names of the tables of the catalog; SHOW TABLES says more of each."""
        return [table.name for table in self.catalog.tables]

    @property
    def terms(self) -> Terms:
        """Total that is granted, and the ceilings and defaults of a query; `budget` has what is left."""
        return self._dependencies.terms

    @property
    def budget(self) -> Balance:
        """What is granted, spent, reserved and left, of the analyst's own limit or else of the total."""
        self._check_open()
        return read_balances(self._dependencies.ledger, self._dependencies.terms)

    @property
    def progress(self) -> float | None:
        """Share of the running statement that is done, 0 to 1, for another thread to read; None if it is not shown.

        It depends on rows, so it is shown only where the data is open in this process and there is no `answer_grid_ms`.
        """
        return read_progress(self._dependencies.engine, self._dependencies.terms.answer_grid_ms)

    @property
    def history(self) -> pa.Table:
        """Queries of this analyst on this ledger, in every session, and what each was charged; newest last.

        What a query was charged is None while it runs, and if its process was killed: it then holds its worst case.
        """
        self._check_open()
        own = self._dependencies
        balance = read_balance_by_values(own.ledger, own.terms)
        return free_answers.history_table(own.ledger.entries(), balance, account=own.account)

    def close(self) -> None:
        """Close the engine, the evaluator and the ledger; further use raises `UsageError`."""
        if not self._closed:
            self._closed = True
            own = self._dependencies
            # All are closed, also where closing one fails; the ledger, which was added first, comes last.
            with ExitStack() as closing:
                closing.callback(own.ledger.close)
                closing.callback(own.engine.close)
                closing.callback(own.evaluator.close)
                if own.public is not None:
                    closing.callback(own.public.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session({'closed' if self._closed else self._dependencies.terms.total})"

    def _check_open(self) -> None:
        if self._closed:
            raise errors.UsageError("closed", "This session is closed.", hint="Open another with dpsql.connect.")

    def _find_key(self, text: str, parameters: ParameterValues, *, implicit: bool | None, postgres: bool) -> Hashable:
        """Return the key of a statement in caches; None for one that may mean something else the next time."""
        self._check_open()
        known = self._dependencies.implicit if implicit is None else implicit
        return analysis.find_key(text, parameters, implicit=known, postgres=postgres)

    def _open_cache(self) -> analysis.AnalysisCache:
        """Return an empty cache of analyses over the present catalog."""
        own = self._dependencies
        return analysis.AnalysisCache(
            own.catalog,
            own.engine.accepts_pattern,
            clock=own.clock,
            default_k=own.terms.limits.default_k,
            max_k=own.terms.limits.max_k,
            parser=planning.EvaluatorParser(own.evaluator),
        )

    def _read_stored_tables(self, stamp: Hashable = None) -> None:
        """Bring the catalog to what the ledger stores under names now; `stamp` is that of the ledger if it is known."""
        stored = self._dependencies.ledger.tables(stamp)
        if stored == self._stored or not (stored[1] or self._stored[1]):
            return
        own = self._dependencies
        tables = (*self._policy_tables, *self._free_answers.stored.list_tables(stored))
        self._dependencies = own = replace(own, catalog=replace(own.catalog, tables=tables))
        self._free_answers = replace(self._free_answers, catalog=own.catalog)
        self._plans = replace(self._plans, own=own, free=self._free_answers)
        self._analyses, self._stored = self._open_cache(), stored

    def _analyze(
        self,
        text: str,
        parameters: ParameterValues,
        *,
        implicit: bool | None = None,
        postgres: bool = False,
        stamp: Hashable = None,
    ) -> statements.Statement:
        self._check_open()
        self._read_stored_tables(stamp)
        known = self._dependencies.implicit if implicit is None else implicit
        return self._analyses.read(text, parameters, implicit=known, postgres=postgres)

    def _read_as_0_11(
        self, text: str, parameters: ParameterValues, *, implicit: bool | None
    ) -> Sequence[statements.PrivateQuery]:
        """Return the private queries of a text of the PostgreSQL port as 0.11 read it; none where it refused it."""
        try:
            statement = self._analyze(text, parameters, implicit=implicit)
        except (errors.Refusal, errors.Unsupported):
            return ()
        return self._list_inners(statement)

    def _list_inners(self, statement: statements.Statement) -> Sequence[statements.PrivateQuery]:
        """Return the private queries of a statement."""
        return self._free_answers.bind_view(statement).inners if isinstance(statement, _WITH_VIEW) else ()

    def _schema(self, statement: statements.Statement, *, is_open: bool = False) -> pa.Schema:
        """Return the columns of an answer; plan the query too, so that it is refused here, unless options are open."""
        if isinstance(statement, _WITH_VIEW) and not is_open:
            for query in planning.result_view(statement).inners:
                self._plans.build(self._plans.complete(query))
        return self._free_answers.schema(statement)


def hurry(session: Session) -> None:
    """Let a session wait no longer than a few seconds for the ledger's server, because the process is ending."""
    session._dependencies.ledger.hurry()  # noqa: SLF001 - the same module


def list_stored(session: Session) -> tuple[Table, ...]:
    """Return the tables that the ledger stores for an analyst: published ones, and answers under a name."""
    session._check_open()  # noqa: SLF001 - the same module
    stamp = session._dependencies.ledger.stamp()  # noqa: SLF001 - the same module
    session._read_stored_tables(stamp)  # noqa: SLF001 - the same module
    listed = session._dependencies.catalog.list_tables()  # noqa: SLF001 - the same module
    session._listed = stamp, tuple(each for each in listed if each.stored_kind)  # noqa: SLF001 - the same module
    return session._listed[1]  # noqa: SLF001 - the same module


def peek_stored(session: Session) -> tuple[Table, ...] | None:
    """Return what `list_stored` returned if that is still right, else None; never wait."""
    stamp, tables = session._listed  # noqa: SLF001 - the same module
    now = session._dependencies.ledger.peek_stamp()  # noqa: SLF001 - the same module
    return tables if stamp is not None and stamp == now else None


def release_external(session: Session, release: planning.ExternalRelease) -> planning.ReleaseResult:
    """Make a release that another room planned, on the same trip as a query's, or return it from the ledger.

    Its loss is reserved before a row is read and charged before it is returned. Raises `Shortfall` when it does not
    fit (nothing is charged), `EngineError` when it could not be made (charged in full), and `LedgerError`. It trusts
    the caller's loss and output law, so it is no method of an analyst's session.
    """
    session._check_open()  # noqa: SLF001 - the same module
    return run_external_release(release, session._dependencies)  # noqa: SLF001 - the same module


def has_release(session: Session, release: planning.ExternalRelease) -> bool:
    """Return whether `release_external` would return this release from the ledger, free of charge."""
    own = session._dependencies  # noqa: SLF001 - the same module
    return own.ledger.stored(release.key, own.account) is not None


def find_ledger(session: Session) -> tuple[Ledger, str | None]:
    """Return the ledger of a session, and the account that its queries are charged to, for the acts of a curator."""
    own = session._dependencies  # noqa: SLF001 - the same module
    return own.ledger, own.account


def recompute(
    session: Session,
    text: str,
    *,
    change: Callable[[Sequence[planning.Plan], Sequence[planning.Release]], Sequence[pa.Table] | None],
) -> pa.Table | None:
    """Return the table of a statement of several releases, all stored, with other tables in their place.

    None where `change` returns none, and where the SELECT around them cannot be computed from what it returns.
    """
    own, free = session._dependencies, session._free_answers  # noqa: SLF001 - the same module
    statement = session._analyze(text, ())  # noqa: SLF001
    parts = [session._plans.find(query) for query in session._list_inners(statement)]  # noqa: SLF001
    stored = [(part.plan, planning.unpack(part.plan, part.stored)) for part in parts if part.stored is not None]
    if not isinstance(statement, statements.OuterSelect) or len(stored) < len(parts):
        return None
    tables = change([plan for plan, _ in stored], [released for _, released in stored])
    if tables is not None:
        with suppress(errors.EngineError):
            return free.bind_view(statement).fetch(free.answer).compute(tables, own.evaluator)[0]
    return None
