"""Rows in a file: a JSON object a line. The first tells suite, arguments and machine, the last that it came to its end.

Each row is written when it is measured, so that a run that was cut short leaves what it had, and says so.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from program.machine import described, load
from program.row import Row

__all__ = ["Result", "read", "recorded"]


@dataclass(frozen=True, slots=True)
class Result:
    """One run of a suite."""

    suite: str
    purpose: str
    began: str
    arguments: Mapping[str, object]
    machine: dict[str, object]
    rows: tuple[Row, ...]
    ended: Mapping[str, object] | None

    @classmethod
    def begun(cls, suite: str, purpose: str, arguments: Mapping[str, object]) -> Result:
        """Return a run that has measured nothing yet."""
        began = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(suite, purpose, began, arguments, described(), (), None)

    def head(self) -> dict[str, object]:
        """Return the first line."""
        named = ("suite", "purpose", "began", "arguments", "machine")
        return {name: getattr(self, name) for name in named}


def recorded(result: Result, rows: Iterable[Row], *, folder: Path) -> Iterator[Row]:
    """Yield the rows of a run that has begun, each once it is in the file of its suite; an older file is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    before = time.perf_counter()
    with (folder / f"{result.suite}.jsonl").open("w", encoding="utf-8") as file:
        print(json.dumps(result.head(), default=str), file=file, flush=True)
        for row in rows:
            print(json.dumps(row.told()), file=file, flush=True)
            yield row
        seconds = round(time.perf_counter() - before, 1)
        print(json.dumps({"ended": {"seconds": seconds, "load": load()}}), file=file)


def read(path: Path) -> Result:
    """Return what a file holds."""
    head, *lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    ended = lines.pop()["ended"] if lines and "ended" in lines[-1] else None
    return Result(**head, rows=tuple(Row(**line) for line in lines), ended=ended)
