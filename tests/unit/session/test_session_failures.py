"""Whatever fails after the data was touched is charged in full, in fixed words; what cannot be settled stays held."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from support.session_kit import (
    COUNTS,
    NAMES,
    HookedEngine,
    WatchedLedger,
    fresh_ledger,
    rebuilt,
    session_on,
    shared,
    values_rows,
)

import dpsql
from dpsql.engines import Exact, Statement
from dpsql.session import Session

HINT = "Hint: Ask the curator. The details may hold private values, so they are not stored."
CHARGED = "the query is charged in full: {used} of the budget."
FIXED = {
    "engine-failed": f"[engine-failed]: The engine could not answer; {CHARGED} {HINT}",
    "release-failed": f"[release-failed]: The answer could not be drawn; {CHARGED} {HINT}",
}


@pytest.fixture
def session() -> Session:
    return session_on(shared(*values_rows({"a": 900, "b": 800})))


def raising(error: BaseException) -> Callable[[Statement, Callable[[Statement], Exact]], Exact]:
    def hook(_statement: Statement, _execute: Callable[[Statement], Exact]) -> Exact:
        raise error

    return hook


def answering(table: pa.Table) -> Callable[[Statement, Callable[[Statement], Exact]], Exact]:
    return lambda _statement, _execute: Exact(table)


def ints(*counts: int | None) -> pa.Array:
    return pa.array(counts, pa.int64())


BROKEN = {
    "too many rows": pa.table({"k": [str(n) for n in range(102)], "n": ints(*[1] * 102)}),
    "no column": pa.table({}),
    "one column": pa.table({"n": ints(5)}),
    "three columns": pa.table({"k": ["a"], "l": ["a"], "n": ints(5)}),
    "a count of NULL": pa.table({"k": ["a"], "n": ints(None)}),
    "a count of zero": pa.table({"k": ["a"], "n": ints(0)}),
    "a negative count": pa.table({"k": ["a"], "n": ints(-4)}),
    "a count as text": pa.table({"k": ["a"], "n": ["5"]}),
    "a count as a float": pa.table({"k": ["a"], "n": [5.0]}),
    "a count as a truth": pa.table({"k": ["a"], "n": [True]}),
    "an ascending order": pa.table({"k": ["a", "b"], "n": ints(4, 5)}),
    "a count beyond 2**53": pa.table({"k": ["a"], "n": ints(2**60)}),
    "a key of another type": pa.table({"k": pa.array([[1]] * 1), "n": ints(10**6)}),
}


def assert_charged_in_full(session: Session, sql: str, code: str = "engine-failed") -> None:
    worst = session.explain(sql).worst_case
    with pytest.raises(dpsql.EngineError) as caught:
        session.sql(sql)
    assert str(caught.value) == FIXED[code].format(used=f"{session.budget.percent_used.normalize():f} %")
    assert session.history["percent_used"].to_pylist() == [float(session.budget.percent_used)]
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert session.budget.rho.spent == worst.rho.value
    assert session.budget.rho.reserved == 0
    assert session.budget.delta.spent == worst.delta.value
    (entry,) = session._dependencies.ledger.entries()
    assert entry.settlement is not None
    assert entry.settlement.digest == "failed"


@pytest.mark.parametrize("sql", [NAMES, COUNTS])
@pytest.mark.parametrize(
    "error",
    [
        dpsql.EngineError("anything", "Words of an engine."),
        dpsql.UsageError("anything", "Words of a mechanism."),
        RuntimeError("a cell value"),
        MemoryError(),
        RecursionError(),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "a cell value"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_engine_that_fails(session: Session, sql: str, error: BaseException) -> None:
    assert_charged_in_full(rebuilt(session, engine=raising(error)), sql)


@pytest.mark.parametrize("table", BROKEN.values(), ids=BROKEN.keys())
def test_an_engine_that_breaks_the_contract(session: Session, table: pa.Table) -> None:
    assert_charged_in_full(rebuilt(session, engine=answering(table)), COUNTS, "release-failed")


class FailingNoise:
    """Fails at its `at`-th draw, counted from 0."""

    def __init__(self, error: BaseException, at: int) -> None:
        self.error = error
        self.left = at

    def draw(self, count: int) -> bytes:
        if self.left == 0:
            raise self.error
        self.left -= 1
        return bytes(index * 37 % 251 for index in range(count))


@pytest.mark.parametrize("at", [1, 2])  # draw 0 salts the session
def test_noise_that_fails(session: Session, at: int) -> None:
    broken = rebuilt(session, noise=FailingNoise(OSError("no entropy"), at))
    assert_charged_in_full(broken, COUNTS, "release-failed")


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_interrupt_while_the_engine_runs(session: Session, interrupt: type[BaseException]) -> None:
    interrupted = rebuilt(session, engine=raising(interrupt()))
    worst = interrupted.explain(NAMES).worst_case
    with pytest.raises(interrupt):
        interrupted.sql(NAMES)
    assert interrupted.budget.rho.spent == worst.rho.value
    assert interrupted.budget.rho.reserved == 0
    (entry,) = interrupted._dependencies.ledger.entries()
    assert entry.settlement is not None
    assert entry.settlement.digest == "interrupted"


def test_an_interrupt_while_noise_is_drawn(session: Session) -> None:
    interrupted = rebuilt(session, noise=FailingNoise(KeyboardInterrupt(), 1))
    with pytest.raises(KeyboardInterrupt):
        interrupted.sql(NAMES)
    assert interrupted.budget.rho.spent == interrupted.explain(NAMES).worst_case.rho.value


def test_a_settlement_that_fails_leaves_the_worst_case_held(session: Session) -> None:
    def refuse() -> None:
        raise dpsql.LedgerError("ledger-failed", "The disk is gone.")

    memory = fresh_ledger(session)
    broken = rebuilt(session, ledger=WatchedLedger(memory, before=refuse, after=lambda: None))  # type: ignore[arg-type]
    worst = broken.explain(NAMES).worst_case
    with pytest.raises(dpsql.LedgerError):
        broken.sql(NAMES)
    assert (memory.state().reserved, memory.state().permanent) == (worst.rho.value, worst.delta.value)


def test_a_session_closes_its_ledger_though_the_engine_fails(session: Session) -> None:
    class Stubborn(HookedEngine):
        def close(self) -> None:
            raise dpsql.EngineError("stuck", "It does not close.")

    ledger = fresh_ledger(session)
    stubborn = rebuilt(session, ledger=ledger)
    object.__setattr__(stubborn._dependencies, "engine", Stubborn(session._dependencies.engine, raising(OSError())))
    with pytest.raises(dpsql.EngineError):
        stubborn.close()
    with pytest.raises(dpsql.LedgerError):
        ledger.state()
    stubborn.close()


TWO_PARTS = (
    "SELECT (SELECT COUNT(DISTINCT user_id) FROM reads PRIVATE WITH (epsilon = 0.05)) - "
    "(SELECT COUNT(DISTINCT user_id) FROM reads WHERE article = 'a' PRIVATE WITH (epsilon = 0.09)) AS d"
)


def failing_second(error: BaseException) -> Callable[[Statement, Callable[[Statement], Exact]], Exact]:
    run = list[Statement]()

    def hook(statement: Statement, execute: Callable[[Statement], Exact]) -> Exact:
        run.append(statement)
        if len(run) > 1:
            raise error
        return execute(statement)

    return hook


def read_sum(session: Session) -> str:
    assert len(set(session.history["percent_used"].to_pylist()) - {0}) == len(session.history)
    return f"In all this statement used {session.budget.percent_used.normalize():f} % of the budget."


def test_a_failure_of_the_second_part_says_what_both_used(session: Session) -> None:
    broken = rebuilt(session, engine=failing_second(RuntimeError()))
    with pytest.raises(dpsql.EngineError) as caught:
        broken.sql(TWO_PARTS)
    assert read_sum(broken) in caught.value.reason
    assert len(broken.history) == 2


def test_an_interrupt_of_the_second_part_notes_what_both_used(session: Session) -> None:
    broken = rebuilt(session, engine=failing_second(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt) as caught:
        broken.sql(TWO_PARTS)
    assert caught.value.__notes__ == [read_sum(broken)]
    assert len(broken.history) == 2


def test_a_select_that_fails_around_an_answer_says_what_the_answer_used(session: Session) -> None:
    sql = f"SELECT CAST(article AS INTEGER) AS n FROM ({NAMES}) AS x"
    with pytest.raises(dpsql.EngineError) as caught:
        session.sql(sql)
    assert caught.value.code == "wrapping-failed"
    assert caught.value.reason.endswith(read_sum(session))
    with pytest.raises(dpsql.EngineError) as caught:  # of the stored answer
        session.sql(sql)
    assert "this statement used" not in caught.value.reason
