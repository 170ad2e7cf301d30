"""Telemetry for those who run the server: counters for Prometheus, a log of JSON lines, and the last refusals.

It depends on no row beyond what analysts see anyway. It contains no text of a statement and no value, and the duration
of a private statement only as rounded by `answer_grid_ms` of the policy, as the duration itself depends on rows.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TextIO

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from dpsql.server.queues import round_to_grid

PRIVATE = "private"  # the kind of a statement for which rows of privacy units were read
REPLAY, FREE, DESCRIBE = "replay", "free", "describe"
CATALOG, SHOW, CONSTANT = "catalog", "show", "constant"  # kinds that read neither public nor private rows
_MAX_REFUSALS = 500
_MAX_FIELD = 200  # characters
_MAX_LINES = {  # a minute, of an event or of one kind of it; clients cause them at will
    ("login-throttled", ""): 60,
    ("login-failed", ""): 600,
    ("refused", ""): 6000,
    **{("answered", kind): 600 for kind in (CATALOG, SHOW, CONSTANT)},
}
_ONCE_A_MINUTE = frozenset(["fault", "out-of-descriptors"])  # of those with the same fields
_MAX_DIFFERENT = 1000  # kinds of lines whose repetitions are counted
_BOUNDS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0)
_MINUTE = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class Refused:
    """A refused statement: its time, surface and analyst, and the code of the error."""

    at: datetime
    surface: str
    code: str
    analyst: str


@dataclass(slots=True)
class _Minute:
    """The lines of an event that were written since a time, and those left out since the last of them."""

    began: datetime
    written: int = 0
    unsaid: int = 0


class _Metrics:
    """The exported metrics of one server; no label has the text of a statement."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry()
        by_kind, by_surface = ("surface", "kind"), ("surface",)
        self.statements = Counter("dpsql_statements", "Answered statements.", by_kind, registry=registry)
        self.refusals = Counter("dpsql_refusals", "Refused statements.", ("surface", "code"), registry=registry)
        self.failed_logins = Counter("dpsql_failed_logins", "Failed logins.", by_surface, registry=registry)
        self.connections = Counter("dpsql_connections", "Connections since the start.", by_surface, registry=registry)
        self.items = Counter("dpsql_charged_items", "Items returned and charged.", registry=registry)
        self.faults = Counter("dpsql_faults", "Errors of the server itself.", by_surface, registry=registry)
        self.gauges = CollectorRegistry()  # of its own, as the counter of connections reserves this name
        self.open = Gauge("dpsql_connections", "Open connections.", by_surface, registry=self.gauges)
        self.seconds = Histogram(
            "dpsql_statement_seconds",
            "Duration of statements; private ones only as rounded by answer_grid_ms of the policy.",
            by_kind,
            registry=registry,
            buckets=_BOUNDS,
        )

    def format(self) -> str:
        """Return all of them in the text format of Prometheus."""
        return "".join(generate_latest(each).decode() for each in (self.registry, self.gauges))


class Telemetry:
    """Counters and log of the server; threads may share it. Without a stream, no log is written."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        grid_ms: int | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._stream = stream
        self._grid = grid_ms
        self._clock = clock
        self._lock = threading.Lock()
        self._writing = threading.Lock()  # separate, as a blocked stream must not stop the counters
        self._metrics = _Metrics()
        self.open_connections = 0
        self._refused: deque[Refused] = deque(maxlen=_MAX_REFUSALS)
        self._minutes: dict[tuple[object, ...], _Minute] = {}

    def set_grid(self, milliseconds: int | None) -> None:
        """Round durations to another grid, as the policy was reloaded."""
        self._grid = milliseconds

    def count_answer(self, surface: str, kind: str, *, seconds: float, items: int = 0) -> float | None:
        """Count an answered statement and its charged items, and return its duration as it may be reported.

        That of a private statement is rounded to the grid; None without a grid.
        """
        reportable: float | None = seconds
        if kind == PRIVATE:
            reportable = None if self._grid is None else round_to_grid(self._grid / 1000, seconds)
        self._metrics.statements.labels(surface, kind).inc()
        self._metrics.items.inc(items)
        if reportable is not None:
            self._metrics.seconds.labels(surface, kind).observe(reportable)
        return reportable

    def count_refusal(self, surface: str, code: str, *, analyst: str = "") -> None:
        """Count a refused statement, and store it for the curator's page unless the catalog refused it."""
        self._metrics.refusals.labels(surface, code).inc()
        if code == CATALOG:
            return
        with self._lock:
            self._refused.append(Refused(self._clock(), surface, code, analyst))

    def count_failed_login(self, surface: str) -> None:
        """Count a failed login."""
        self._metrics.failed_logins.labels(surface).inc()

    def count_connection(self, surface: str) -> None:
        """Count a connection."""
        self._metrics.connections.labels(surface).inc()
        self._metrics.open.labels(surface).inc()
        with self._lock:
            self.open_connections += 1

    def count_disconnection(self, surface: str) -> None:
        """Count the end of a connection."""
        self._metrics.open.labels(surface).dec()
        with self._lock:
            self.open_connections -= 1

    def refusals(self, last: int) -> list[Refused]:
        """Return the last refused statements, newest first."""
        with self._lock:
            # last = 2: [:-3:-1] is the last one and the one before it.
            return list(self._refused)[: -last - 1 : -1] if last > 0 else []

    def metrics(self) -> str:
        """Return all counters in the text format of Prometheus, for the curator and this machine only."""
        return self._metrics.format()

    def log(self, event: str, **fields: str | float) -> None:
        """Write one line of JSON, with the time as `at`; a line that cannot be written is lost.

        The lines of events that clients can cause at will are limited a minute, and equal faults to one a minute. The
        next line then has the number of lines left out as `unsaid`.
        """
        now = self._clock()
        if event == "fault":
            self._metrics.faults.labels(str(fields.get("surface", "server"))).inc()
        kind = str(fields.get("kind", "")) if event == "answered" else ""
        alike: tuple[object, ...] = (event, kind)
        max_lines = _MAX_LINES.get((event, kind))
        if event in _ONCE_A_MINUTE:
            alike, max_lines = (event, *sorted(fields.items())), 1
        if max_lines is not None:
            with self._lock:
                if len(self._minutes) >= _MAX_DIFFERENT:
                    # Faults differ by analyst and place. The counts of all begin again, so that some lines more are
                    # written.
                    self._minutes.clear()
                minute = self._minutes.setdefault(alike, _Minute(now))
                # The absolute value, as the clock may be set back.
                if abs((now - minute.began).total_seconds()) >= _MINUTE:
                    minute.began, minute.written = now, 0
                if minute.written >= max_lines:
                    minute.unsaid += 1
                    return
                minute.written += 1
                if minute.unsaid:
                    fields["unsaid"], minute.unsaid = minute.unsaid, 0
        if self._stream is None:
            return
        short = {name: field[:_MAX_FIELD] if isinstance(field, str) else field for name, field in fields.items()}
        head = {"at": now.isoformat(timespec="milliseconds"), "event": event}
        line = json.dumps({**head, **short, **head})  # the head comes first, and no field replaces it
        with self._writing, suppress(OSError, ValueError):
            self._stream.write(line + "\n")
            self._stream.flush()

    def log_fault(self, error: Exception, **fields: str) -> None:
        """Log an unexpected error: its type, and the module and line that raised it, but not its text."""
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        where = "" if trace is None else f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}"
        self.log("fault", **fields, kind=type(error).__name__, where=where)
