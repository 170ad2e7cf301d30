"""A marked value of the data is in no error, traceback with local variables, log record, warning or repr."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Callable

import duckdb
import pyarrow as pa
import pytest
from support.session_kit import WatchedLedger, filled, fresh_ledger, rebuilt, session_on

import dpsql
from dpsql.engines import Exact, Statement, open_exact
from dpsql.session import Session

MARK = "VICTIM_SECRET_7f3"
RARE = 4_611_686_018  # a marked number
ASK = (
    "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads WHERE filter <> 'x' "
    "GROUP BY article TOP 5 PRIVATE WITH (mechanism = limited_domain, epsilon = 0.05)"
)
Run = Callable[[Statement], Exact]


@pytest.fixture
def connection() -> duckdb.DuckDBPyConnection:
    return filled(
        "CREATE TABLE reads (user_id VARCHAR, article VARCHAR, filter VARCHAR, number BIGINT)",
        f"INSERT INTO reads SELECT '{MARK}' || i, '{MARK}' || (i % 3), '{MARK}', {RARE} FROM range(12) t(i)",
        "INSERT INTO reads SELECT 'u' || i, 'common', 'y', 1 FROM range(900) t(i)",
    )


@pytest.fixture
def session(connection: duckdb.DuckDBPyConnection) -> Session:
    return session_on(connection)


def everything_said(act: Callable[[], object]) -> str:
    """Return all that an error tells, in every way that it can be asked, with the local variables of its frames."""
    try:
        act()
    except BaseException as error:  # noqa: BLE001 - interrupts too
        told = [str(error), repr(error), repr(error.args), repr(vars(error)), *getattr(error, "__notes__", [])]
        seen = traceback.TracebackException.from_exception(error, capture_locals=True)
        told += list(seen.format(chain=True))
        if isinstance(error, dpsql.Error):
            told.append(repr(pickle.loads(pickle.dumps(error))))
        return "\n".join(told)
    raise AssertionError("nothing was raised")


def silent(told: str) -> bool:
    return MARK not in told and str(RARE) not in told


def engine_words(connection: duckdb.DuckDBPyConnection, sql: str) -> Callable[[Statement, Run], Exact]:
    """Return an engine that lets DuckDB's own error through, cell values and all."""

    def hook(_statement: Statement, _execute: Run) -> Exact:
        return Exact(connection.sql(sql).to_arrow_table())

    return hook


DUCKDB_ERRORS = [
    "SELECT CAST(article AS INTEGER) FROM reads",
    f"SELECT number * number * number FROM reads WHERE number = {RARE}",
    "SELECT strptime(article, '%Y') FROM reads",
    "SELECT error(article) FROM reads",
    "SELECT CAST(filter AS DATE) FROM reads WHERE filter <> 'y'",
]


@pytest.mark.parametrize("sql", DUCKDB_ERRORS)
def test_words_of_the_engine(connection: duckdb.DuckDBPyConnection, session: Session, sql: str) -> None:
    with pytest.raises(duckdb.Error) as original:
        connection.sql(sql).fetchall()
    assert not silent(str(original.value))  # the engine does tell
    broken = rebuilt(session, engine=engine_words(connection.cursor(), sql))
    assert silent(everything_said(lambda: broken.sql(ASK)))


def raising(error: BaseException) -> Callable[[Statement, Run], Exact]:
    def hook(statement: Statement, execute: Run) -> Exact:
        rows = open_exact(execute(statement)).to_pylist()
        raise error from ValueError(str(rows))

    return hook


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(MARK),
        dpsql.EngineError(MARK, MARK, hint=MARK, place=MARK),
        dpsql.UsageError("x", MARK),
        UnicodeDecodeError("utf-8", MARK.encode(), 0, 1, MARK),
        KeyboardInterrupt(),
        SystemExit(3),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_engine_that_tells(session: Session, error: BaseException) -> None:
    broken = rebuilt(session, engine=raising(error))
    assert silent(everything_said(lambda: broken.sql(ASK)))


def reshaped(change: Callable[[pa.Table], pa.Table]) -> Callable[[Statement, Run], Exact]:
    return lambda statement, execute: Exact(change(open_exact(execute(statement))))


CHANGES: dict[str, Callable[[pa.Table], pa.Table]] = {
    "reversed": lambda table: table.take(list(range(table.num_rows))[::-1]),
    "keys as counts": lambda table: table.select([1, 0]),
    "one column more": lambda table: table.append_column("more", table.column(0)),
    "NULL counts": lambda table: table.set_column(1, "n", pa.nulls(table.num_rows, pa.int64())),
    "keys of bytes that are no text": lambda table: table.set_column(
        0, "k", pa.array([MARK.encode() + b"\xff"] * table.num_rows)
    ),
    "keys in lists": lambda table: table.set_column(0, "k", pa.array([[MARK]] * table.num_rows)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_broken_answer(session: Session, change: Callable[[pa.Table], pa.Table]) -> None:
    broken = rebuilt(session, engine=reshaped(change))
    looks = ASK.replace("limited_domain", "two_looks")
    for text in (ASK, looks):
        assert silent(everything_said(lambda text=text: broken.sql(text)))  # type: ignore[misc]


@pytest.mark.parametrize("change", [name for name in CHANGES if name != "reversed"])  # rows come in the order of labels
def test_a_broken_answer_to_the_second_statement(session: Session, change: str) -> None:
    looks, hook, ran = ASK.replace("limited_domain", "two_looks, fresh = true"), reshaped(CHANGES[change]), list[str]()

    def second(statement: Statement, execute: Run) -> Exact:
        ran.append(statement.sql)
        return hook(statement, execute) if "dpsql_weight" in statement.sql else execute(statement)

    for _ in range(60):  # now and then the first look settles it, or leaders answer
        broken, before = rebuilt(session, engine=second, ledger=fresh_ledger(session)), len(ran)
        try:
            told = everything_said(lambda broken=broken: broken.sql(looks))  # type: ignore[misc]
        except AssertionError:
            continue
        assert silent(told)
        assert len(ran) == before + 2
        return
    pytest.fail("nothing was raised")


class FailingNoise:
    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.first = True

    def draw(self, count: int) -> bytes:
        if not self.first:
            raise self.error
        self.first = False
        return bytes(count)


@pytest.mark.parametrize("error", [OSError("no entropy"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_noise_that_fails_while_exact_counts_are_open(session: Session, error: BaseException) -> None:
    broken = rebuilt(session, noise=FailingNoise(error))
    assert silent(everything_said(lambda: broken.sql(ASK)))


def test_a_ledger_that_fails_at_the_settlement(session: Session) -> None:
    def refuse() -> None:
        raise dpsql.LedgerError("ledger-failed", "The disk is gone.")

    ledger = WatchedLedger(fresh_ledger(session), before=refuse, after=lambda: None)
    for hook in (None, raising(RuntimeError(MARK)), raising(KeyboardInterrupt())):
        broken = rebuilt(session, ledger=ledger, engine=hook)  # type: ignore[arg-type]
        assert silent(everything_said(lambda broken=broken: broken.sql(ASK)))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT CAST(article AS INTEGER) AS a FROM reads GROUP BY a TOP 2 PRIVATE",
        "SELECT number * number * number AS p FROM reads GROUP BY p TOP 2 PRIVATE",
        "SELECT CAST(filter AS DATE) AS d FROM reads GROUP BY d TOP 2 PRIVATE",
    ],
)
def test_what_would_fail_on_a_row_gives_null(session: Session, sql: str) -> None:
    assert silent(repr(session.sql(sql)))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT nothing FROM reads GROUP BY nothing TOP 2 PRIVATE",
        "SELECT article, max(filter) FROM reads GROUP BY article TOP 2 PRIVATE",
        "SELECT article FROM reads GROUP BY article",
        "SELECT article FROM reads GROUP BY article TOP 2 PRIVATE WITH (epsilon = 9)",
        "SELECT article FROM reads WHERE article ~ '(' GROUP BY article TOP 2 PRIVATE",
        "SELECT article FROM reads WHERE regexp_matches(article, '(') GROUP BY article TOP 2 PRIVATE",
        "SELECT article FROM reads GROUP BY article TOP 1000 PRIVATE WITH (epsilon = 1)",
    ],
)
def test_refusals(session: Session, sql: str) -> None:
    assert silent(everything_said(lambda: session.sql(sql)))


def test_reprs_logs_and_warnings(
    session: Session, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    with caplog.at_level(logging.DEBUG):
        answer = session.sql(ASK)
        plan = session.explain(ASK)
        for broken in (
            rebuilt(session, engine=raising(RuntimeError(MARK))),
            rebuilt(session, noise=FailingNoise(OSError())),
        ):
            with pytest.raises(dpsql.EngineError):
                broken.sql(ASK.replace("0.05)", "0.05, fresh = true)"))
    parts = session._dependencies
    told = [repr(thing) for thing in (session, plan, plan.counting, parts, answer.receipt, session.budget)]
    told += [str(plan), answer.statement(), caplog.text, *(str(warning.message) for warning in recwarn)]
    told += [repr(entry) for entry in parts.ledger.entries()]
    assert silent("\n".join(told))
    assert answer.fetchall()[0][0] == "common"


def test_a_sealed_result_stays_sealed(session: Session) -> None:
    held: list[Exact] = []

    def keep(statement: Statement, execute: Run) -> Exact:
        held.append(execute(statement))
        return held[0]

    rebuilt(session, engine=keep).sql(ASK)
    assert silent(repr(held) + str(held[0]) + repr(dir(held[0])))
    with pytest.raises(dpsql.UsageError):
        pickle.dumps(held[0])
