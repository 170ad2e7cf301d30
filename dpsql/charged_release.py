"""One release that is charged: its worst case is reserved, the engine runs, noise is drawn, and the cost is settled.

Where the policy says so, results that depend on rows are returned on a grid of times that is fixed before a row is
read; only the choice among them depends on rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dpsql import engines, errors
from dpsql import plan as planning
from dpsql.ledger import base as ledgers
from dpsql.session_dependencies import SessionDependencies

_LIBRARIES = ("pyarrow", "pyarrow.compute", "pyarrow.ipc")  # of every release
Execute = Callable[[engines.Statement], engines.Exact]


def reserve_run_settle(
    request: ledgers.Request,
    draw: Callable[[Execute], planning.PackedRelease],
    *,
    own: SessionDependencies,
    shared: bool,
    log: ledgers.ChargeLog,
    stop: engines.Stop | None = None,
) -> ledgers.Settled:
    """Make one release: reserve its worst case, run statements, draw, and settle; return the answer to show.

    `draw` runs statements by the function that it gets, and draws from what they return.

    Once the reservation is made, every failure is charged in full and none is explained: its words, kind and frames
    may hold a row's values. Only an interrupt is passed on as one. What is raised is raised outside the handlers,
    so that nothing hangs on it.

    The answer to show may be an earlier one: that of another process of this account to the same query, free of
    charge; or, where the policy shares answers (`shared`), the first of any account, which costs what it cost then.
    Whether there was one must not be seen or timed: by then the engine has run and the noise is drawn either way.
    """
    grid_ms = own.terms.answer_grid_ms
    # an engine that cannot run is found out before anything is reserved
    with (
        ledgers.mark_charge(ledgers.SETTLING) as charged,
        # A failed statement is settled, and its turn left, within this grid: neither can be timed.
        hold_failure_to_grid(grid_ms) as start_clock,
        engines.take_turn(own.engine, stop),
    ):
        if stop is not None and stop():
            raise engines.statement_stopped()
        # An import that fails has to fail before anything is reserved.
        engines.load_libraries(*_LIBRARIES)
        reservation = own.ledger.reserve(request)  # durable: from here on a failure costs the whole worst case
        if isinstance(reservation, ledgers.Settled):  # answered since it was looked up
            return reservation
        charged.append(True)  # errors from here on say that they are charged
        hint = "Ask the curator. The details may hold private values, so they are not stored."
        reason = "The engine could not answer; the query is charged in full."
        # Both errors are made before a row is read, so that no frame, cause or context with rows can hang on them.
        engine_failure = errors.EngineError("engine-failed", reason, hint=hint)
        reason = "The answer could not be drawn; the query is charged in full."
        draw_failure = errors.EngineError("release-failed", reason, hint=hint)
        failure: BaseException = engine_failure

        def execute(statement: engines.Statement) -> engines.Exact:
            nonlocal failure
            failure = engine_failure
            exact = own.engine.execute(statement)
            # What fails from here on is no longer the engine's fault.
            failure = draw_failure
            return exact

        try:
            start_clock()
            with hold_to_grid(grid_ms):
                drawn = draw(execute)
        except Exception:  # noqa: BLE001, S110 - see above
            pass
        except BaseException as interrupt:  # noqa: BLE001 - passed on below
            failure = interrupt.with_traceback(None)
            # The frames of an interrupt, and what it interrupted, hold rows.
            failure.__context__ = failure.__cause__ = None
        else:
            # Settled before it is returned: an answer that was seen is always in the ledger, with its charge.
            settled = reservation.settle(drawn.loss, drawn.digest, answer=drawn.answer, shared=shared)
            log.rises.append(settled.rise)
            return settled
        settled = reservation.settle(
            request.worst_case.refundable,
            ledgers.FAILED if isinstance(failure, errors.EngineError) else "interrupted",
        )
        log.rises.append(settled.rise)
        if isinstance(failure, errors.EngineError):
            ledgers.restate(failure, f"{failure.reason[:-1]}: {ledgers.describe_charge(settled.rise.percent)}.")
        raise failure


def run_external_release(release: planning.ExternalRelease, own: SessionDependencies) -> planning.ReleaseResult:
    """Make a release that another room planned, or return it from the ledger, free of charge."""
    stored, replayed = own.ledger.stored(release.key, own.account), True

    def draw(execute: Execute) -> planning.PackedRelease:
        return planning.pack_bytes(release.draw(execute(release.statement), noise=own.noise), release.loss.refundable)

    if stored is None:
        request, log = own.request(release.text, release.loss, key=release.key), ledgers.ChargeLog()
        try:
            shared = own.terms.limits.share_replays
            settled = reserve_run_settle(request, draw, own=own, shared=shared, log=log)
        except errors.Error as error:
            log.describe(error)
            raise
        stored, replayed = settled.answer, settled.repeats
    return planning.ReleaseResult(
        stored,
        replayed=replayed,
        sealed=own.engine.sealed,
        isolation=own.engine.isolation,
        durable=own.ledger.durable,
        shared=own.terms.limits.share_replays,
    )


@contextmanager
def hold_failure_to_grid(milliseconds: int | None) -> Iterator[Callable[[], None]]:
    """Hold an error of the body to the grid that began when the body called what it is given; others leave at once.

    After a failure an engine may be made ready again, which takes longer where more of it broke.
    """
    began = list[float]()
    try:
        yield lambda: began.append(time.monotonic())
    except Exception:
        if began:
            _wait(began[0], milliseconds)
        raise


@contextmanager
def hold_to_grid(milliseconds: int | None) -> Iterator[None]:
    """Leave, with or without an error, no sooner than 1, 2, 4, 8 ... times so many milliseconds after entering.

    An interrupt leaves at once: it comes from the one who waits. Without a number everything does.
    """
    began = time.monotonic()
    try:
        yield
    except Exception:
        _wait(began, milliseconds)
        raise
    _wait(began, milliseconds)


def read_progress(engine: engines.Engine, milliseconds: int | None) -> float | None:
    """Return the progress of a statement; None where times are on a grid or the data is in another process.

    Progress reveals about rows what running time reveals, and earlier. It is therefore hidden where the time is hidden,
    and shown only by an engine in the process of the analyst, whose code could read the data itself.
    """
    if milliseconds is not None or engine.isolation != "in_process" or not isinstance(engine, engines.Watchable):
        return None
    return engine.progress()


def _wait(began: float, milliseconds: int | None) -> None:
    if milliseconds is None:
        return
    leaves = milliseconds / 1000
    passed = time.monotonic() - began
    while leaves < passed:
        leaves *= 2
    # The clock is read again, so that the loop above does not add to the time.
    time.sleep(max(0.0, began + leaves - time.monotonic()))
