"""What every session in Python says: a line of JSON for each step, with its value or its error.

A session is a program that gets `name=value` words: where the server is, who logs in, and the statements.
"""

from __future__ import annotations

import json
import sys
import threading
import traceback
from collections.abc import Callable

given = dict(word.split("=", 1) for word in sys.argv[1:])
CANCEL_AFTER = 0.3  # seconds: the slow statement takes several times as long


def say(name: str, told: dict[str, object]) -> None:
    print(json.dumps({"step": name, **told}, default=str), flush=True)  # noqa: T201 - read by the test


def step(name: str, run: Callable[[], object]) -> None:
    """Run a step, and say its value; of an error, the first SQLSTATE among its causes and all their texts."""
    try:
        say(name, {"value": run()})
    except Exception as error:  # noqa: BLE001 - whatever the tool raises is what it shows
        causes = _causes(error)
        say(name, {"state": next(filter(None, map(_state, causes)), None), "message": "; ".join(map(str, causes))})
        if not any(map(_state, causes)):
            traceback.print_exc()


def after_a_moment(cancel: Callable[[], object]) -> None:
    """Call a function while the main thread waits for a slow statement."""
    threading.Timer(CANCEL_AFTER, cancel).start()


def _causes(error: BaseException | None) -> list[BaseException]:
    causes: list[BaseException] = []
    while error is not None and error not in causes:
        causes.append(error)
        error = error.__cause__ or getattr(error, "orig", None)
    return causes


def _state(error: BaseException) -> str | None:
    found = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return str(found) if found else None
