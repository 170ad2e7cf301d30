"""Telemetry for those who run the server: counters for Prometheus, a log of JSON lines, and the last refusals.

It depends on no row beyond what analysts see anyway. It contains no text of a statement and no value, and the duration
of a private statement only as rounded by `answer_grid_ms` of the policy, as the duration itself depends on rows.
"""

from __future__ import annotations

import json
import threading
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TextIO

from dpsql.server.shared_engine import round_to_grid

__all__ = ["PRIVATE", "Refused", "Telemetry"]

PRIVATE = "private"  # the kind of a statement for which rows of privacy units were read
_MAX_REFUSALS = 500
_MAX_FIELD = 200  # characters
_MAX_LINES = {"login-throttled": 60, "login-failed": 600, "refused": 6000}  # a minute; clients cause them at will
_ONCE_A_MINUTE = frozenset(["fault", "out-of-descriptors"])  # of those with the same fields
_MAX_DIFFERENT = 1000  # kinds of lines whose repetitions are counted
_BOUNDS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0)
_HELP = {
    "dpsql_statements_total": "Answered statements, by surface and kind.",
    "dpsql_refusals_total": "Refused statements, by surface and code.",
    "dpsql_failed_logins_total": "Failed logins, by surface.",
    "dpsql_connections_total": "Connections, by surface.",
    "dpsql_charged_items_total": "Items returned and charged.",
    "dpsql_faults_total": "Errors of the server itself, by surface.",
}
_MINUTE = 60.0  # seconds
Key = tuple[str, ...]


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
        self._counts: Counter[tuple[str, Key]] = Counter()
        self._open: Counter[str] = Counter()
        self._times: dict[Key, list[int]] = {}
        self._sums: Counter[Key] = Counter()  # in microseconds
        self._refused: deque[Refused] = deque(maxlen=_MAX_REFUSALS)
        self._minutes: dict[tuple[object, ...], _Minute] = {}

    def reportable_seconds(self, kind: str, seconds: float) -> float | None:
        """Return the duration of a statement as it may be reported: for a private one, rounded to the grid, or None."""
        if kind != PRIVATE:
            return seconds
        if self._grid is None:
            return None
        return round_to_grid(self._grid / 1000, seconds)

    def set_grid(self, milliseconds: int | None) -> None:
        """Round durations to another grid, as the policy was reloaded."""
        self._grid = milliseconds

    def count_answer(self, surface: str, kind: str, *, seconds: float, items: int = 0) -> float | None:
        """Count an answered statement and its charged items, and return its duration if it may be reported."""
        reportable, key = self.reportable_seconds(kind, seconds), (surface, kind)
        with self._lock:
            self._counts["dpsql_statements_total", key] += 1
            self._counts["dpsql_charged_items_total", ()] += items
            if reportable is not None:
                times = self._times.setdefault(key, [0] * (len(_BOUNDS) + 1))
                times[bisect_left(_BOUNDS, reportable)] += 1
                self._sums[key] += round(reportable * 1e6)
        return reportable

    def count_refusal(self, surface: str, code: str, *, analyst: str = "") -> None:
        """Count a refused statement, and store it for the curator's page."""
        with self._lock:
            self._counts["dpsql_refusals_total", (surface, code)] += 1
            self._refused.append(Refused(self._clock(), surface, code, analyst))

    def count_failed_login(self, surface: str) -> None:
        """Count a failed login."""
        with self._lock:
            self._counts["dpsql_failed_logins_total", (surface,)] += 1

    def count_connection(self, surface: str) -> None:
        """Count a connection."""
        with self._lock:
            self._counts["dpsql_connections_total", (surface,)] += 1
            self._open[surface] += 1

    def count_disconnection(self, surface: str) -> None:
        """Count the end of a connection."""
        with self._lock:
            self._open[surface] -= 1

    def open_connections(self) -> int:
        """Return the number of open connections."""
        with self._lock:
            return self._open.total()

    def refusals(self, last: int) -> list[Refused]:
        """Return the last refused statements, newest first."""
        with self._lock:
            return list(self._refused)[: -last - 1 : -1] if last > 0 else []

    def metrics(self) -> str:
        """Return all counters in the text format of Prometheus, for the curator and this machine only."""
        with self._lock:
            return "".join(f"{line}\n" for line in self._format_metrics())

    def log(self, event: str, **fields: str | float) -> None:
        """Write one line of JSON, with the time as `at`; a line that cannot be written is lost.

        The lines of events that clients can cause at will are limited a minute, and equal faults to one a minute. The
        next line then has the number of lines left out as `unsaid`.
        """
        now = self._clock()
        if event == "fault":
            with self._lock:
                self._counts["dpsql_faults_total", (str(fields.get("surface", "server")),)] += 1
        unsaid = self._count_line(event, fields, now=now)
        if self._stream is None or unsaid is None:
            return
        if unsaid:
            fields["unsaid"] = unsaid
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

    def _count_line(self, event: str, fields: Mapping[str, object], *, now: datetime) -> int | None:
        """Return the number of lines of an event that were left out before this one, or None if this one is, too."""
        alike: tuple[object, ...] = (event,)
        max_lines = _MAX_LINES.get(event)
        if event in _ONCE_A_MINUTE:
            alike, max_lines = (event, *sorted(fields.items())), 1
        if max_lines is None:
            return 0
        with self._lock:
            if len(self._minutes) >= _MAX_DIFFERENT:
                self._minutes.clear()
            minute = self._minutes.setdefault(alike, _Minute(now))
            if abs((now - minute.began).total_seconds()) >= _MINUTE:
                minute.began, minute.written = now, 0
            if minute.written >= max_lines:
                minute.unsaid += 1
                return None
            minute.written += 1
            unsaid, minute.unsaid = minute.unsaid, 0
            return unsaid

    def _format_metrics(self) -> Iterator[str]:
        labels = {
            "dpsql_statements_total": ("surface", "kind"),
            "dpsql_refusals_total": ("surface", "code"),
            "dpsql_failed_logins_total": ("surface",),
            "dpsql_connections_total": ("surface",),
            "dpsql_charged_items_total": (),
            "dpsql_faults_total": ("surface",),
        }
        for name, words in _HELP.items():
            yield f"# HELP {name} {words}"
            yield f"# TYPE {name} counter"
            for (counted, key), count in sorted(self._counts.items()):
                if counted == name:
                    yield f"{name}{_format_labels(labels[name], key)} {count}"
        yield "# HELP dpsql_connections Open connections, by surface."
        yield "# TYPE dpsql_connections gauge"
        for surface, count in sorted(self._open.items()):
            yield f"dpsql_connections{_format_labels(('surface',), (surface,))} {count}"
        name = "dpsql_statement_seconds"
        yield f"# HELP {name} Duration of statements; private ones only as rounded by answer_grid_ms of the policy."
        yield f"# TYPE {name} histogram"
        for key, times in sorted(self._times.items()):
            total = 0
            for bound, count in zip((*map(str, _BOUNDS), "+Inf"), times, strict=True):
                total += count
                yield f"{name}_bucket{_format_labels(('surface', 'kind', 'le'), (*key, bound))} {total}"
            yield f"{name}_sum{_format_labels(('surface', 'kind'), key)} {self._sums[key] / 1e6}"
            yield f"{name}_count{_format_labels(('surface', 'kind'), key)} {total}"


def _format_labels(names: Key, values: Key) -> str:
    """Format labels."""
    pairs = ",".join(f"{name}={json.dumps(value)}" for name, value in zip(names, values, strict=True))
    return f"{{{pairs}}}" if pairs else ""
