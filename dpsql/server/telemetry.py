"""What the server tells those who run it: counters for Prometheus, one line of JSON for what happens, refusals seen.

Nothing here may depend on a row beyond what analysts are told anyway. So no text of a statement and no value is kept,
and how long a private statement took is told only where the policy's `answer_grid_ms` rounds it, and as rounded: the
time itself depends on rows, also to somebody who never sees an answer.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TextIO

from dpsql.server.shared_engine import step_of

__all__ = ["PRIVATE", "Refused", "Telemetry"]

PRIVATE = "private"  # the kind of a statement for which rows of privacy units were read
_KEPT = 500
_LONGEST_TEXT = 200
_MOST_LINES = {"login-throttled": 60, "login-failed": 600, "refused": 6000}  # a minute; clients cause them at will
_ONCE_A_MINUTE = frozenset(["fault", "out-of-descriptors"])  # of those with the same fields
_MOST_DIFFERENT = 1000  # lines whose repetitions are counted
_BOUNDS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0)
_HELP = {
    "dpsql_statements_total": "Statements that were answered, by surface and kind.",
    "dpsql_refusals_total": "Statements that were not answered, by surface and code.",
    "dpsql_failed_logins_total": "Logins that failed, by surface.",
    "dpsql_connections_total": "Connections that were made, by surface.",
    "dpsql_charged_items_total": "Items that were returned and charged.",
    "dpsql_faults_total": "Errors of the server itself, by surface.",
}
_MINUTE = 60.0  # seconds
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """A statement that was not answered: when, through which surface, whose, and the code of the error."""

    at: datetime
    surface: str
    code: str
    analyst: str


@dataclass(slots=True)
class _Minute:
    """How many lines of an event were written since a moment, and how many were left out since the last of them."""

    began: datetime
    written: int = 0
    unsaid: int = 0


class Telemetry:
    """Counts and tells what happens; threads may share it. Without a stream nothing is written."""

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
        self._writing = threading.Lock()  # of its own: a reader of the stream who stands still must not stop counting
        self._counts: Counter[tuple[str, Key]] = Counter()
        self._open: Counter[str] = Counter()
        self._times: dict[Key, list[int]] = {}
        self._sums: Counter[Key] = Counter()  # in microseconds
        self._refused: deque[Refused] = deque(maxlen=_KEPT)
        self._minutes: dict[tuple[object, ...], _Minute] = {}

    def told(self, kind: str, seconds: float) -> float | None:
        """Return how long a statement took as far as it may be told; of a private one, the step of the grid or None."""
        if kind != PRIVATE:
            return seconds
        if self._grid is None:
            return None
        return step_of(self._grid / 1000, seconds)

    def on_grid_of(self, milliseconds: int | None) -> None:
        """Tell times on another grid from now on, since the policy was read again."""
        self._grid = milliseconds

    def answered(self, surface: str, kind: str, *, seconds: float) -> None:
        """Count a statement that was answered, and how long it took if that may be told."""
        told, key = self.told(kind, seconds), (surface, kind)
        with self._lock:
            self._counts["dpsql_statements_total", key] += 1
            if told is not None:
                times = self._times.setdefault(key, [0] * (len(_BOUNDS) + 1))
                times[sum(bound < told for bound in _BOUNDS)] += 1
                self._sums[key] += round(told * 1e6)

    def charged(self, items: int) -> None:
        """Count items that were charged."""
        with self._lock:
            self._counts["dpsql_charged_items_total", ()] += items

    def refused(self, surface: str, code: str, *, analyst: str = "") -> None:
        """Count a statement that was not answered, and keep it for the curator's page."""
        with self._lock:
            self._counts["dpsql_refusals_total", (surface, code)] += 1
            self._refused.append(Refused(self._clock(), surface, code, analyst))

    def failed_login(self, surface: str) -> None:
        """Count a login that failed."""
        with self._lock:
            self._counts["dpsql_failed_logins_total", (surface,)] += 1

    def connected(self, surface: str) -> None:
        """Count a connection."""
        with self._lock:
            self._counts["dpsql_connections_total", (surface,)] += 1
            self._open[surface] += 1

    def disconnected(self, surface: str) -> None:
        """Count a connection that ended."""
        with self._lock:
            self._open[surface] -= 1

    def connections(self) -> int:
        """Return how many connections are open."""
        with self._lock:
            return self._open.total()

    def refusals(self, last: int) -> list[Refused]:
        """Return the last statements that were not answered, newest first."""
        with self._lock:
            return list(self._refused)[: -last - 1 : -1] if last > 0 else []

    def metrics(self) -> str:
        """Return every count in the text format of Prometheus, for the curator and this machine alone."""
        with self._lock:
            return "".join(f"{line}\n" for line in self._lines())

    def log(self, event: str, **fields: str | float) -> None:
        """Write one line of JSON, with the time as `at`; a line that cannot be written is lost, and stops no answer.

        Of what clients cause at will so many lines are written a minute, and of faults that are alike one; the next
        line then says how many are `unsaid`.
        """
        now = self._clock()
        if event == "fault":
            with self._lock:
                self._counts["dpsql_faults_total", (str(fields.get("surface", "server")),)] += 1
        unsaid = self._unsaid(event, fields, now=now)
        if self._stream is None or unsaid is None:
            return
        if unsaid:
            fields["unsaid"] = unsaid
        kept = {name: field[:_LONGEST_TEXT] if isinstance(field, str) else field for name, field in fields.items()}
        head = {"at": now.isoformat(timespec="milliseconds"), "event": event}
        line = json.dumps({**head, **kept, **head})  # in this order, and no field takes the place of these
        with self._writing, suppress(OSError, ValueError):
            self._stream.write(line + "\n")
            self._stream.flush()

    def _unsaid(self, event: str, fields: Mapping[str, object], *, now: datetime) -> int | None:
        """Return how many lines of an event were left out before this one, or None where this one is left out too."""
        alike: tuple[object, ...] = (event,)
        most = _MOST_LINES.get(event)
        if event in _ONCE_A_MINUTE:
            alike, most = (event, *sorted(fields.items())), 1
        if most is None:
            return 0
        with self._lock:
            if len(self._minutes) >= _MOST_DIFFERENT:
                self._minutes.clear()
            minute = self._minutes.setdefault(alike, _Minute(now))
            if abs((now - minute.began).total_seconds()) >= _MINUTE:
                minute.began, minute.written = now, 0
            if minute.written >= most:
                minute.unsaid += 1
                return None
            minute.written += 1
            unsaid, minute.unsaid = minute.unsaid, 0
            return unsaid

    def _lines(self) -> Iterator[str]:
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
                    yield f"{name}{_labels(labels[name], key)} {count}"
        yield "# HELP dpsql_connections Connections that are open, by surface."
        yield "# TYPE dpsql_connections gauge"
        for surface, count in sorted(self._open.items()):
            yield f"dpsql_connections{_labels(('surface',), (surface,))} {count}"
        yield from self._histogram()

    def _histogram(self) -> Iterator[str]:
        name = "dpsql_statement_seconds"
        yield f"# HELP {name} How long statements took; private ones only where the policy's answer_grid_ms rounds it."
        yield f"# TYPE {name} histogram"
        for key, times in sorted(self._times.items()):
            total = 0
            for bound, count in zip((*map(str, _BOUNDS), "+Inf"), times, strict=True):
                total += count
                yield f"{name}_bucket{_labels(('surface', 'kind', 'le'), (*key, bound))} {total}"
            yield f"{name}_sum{_labels(('surface', 'kind'), key)} {self._sums[key] / 1e6}"
            yield f"{name}_count{_labels(('surface', 'kind'), key)} {total}"


def _labels(names: Key, values: Key) -> str:
    """Spell labels; values are words of ours, and quoted all the same."""
    pairs = ",".join(f"{name}={json.dumps(value)}" for name, value in zip(names, values, strict=True))
    return f"{{{pairs}}}" if pairs else ""
