"""Number of the stored answers of each account, which it may ask for again free of charge.

It is counted from the events of a ledger, each of which is read once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from dpsql.ledger.record import Event


class AnswerCount:
    """The questions with a stored answer on the present data version, by account; `seq` is the last event read."""

    __slots__ = ("_answered", "_asked", "_version", "seq")

    def __init__(self) -> None:
        self.seq = self._version = 0
        self._asked: dict[int, tuple[str | None, str]] = {}  # account and key of what is open, by the entry's number
        self._answered: dict[str | None, set[str]] = {}  # keys, so that an answer with fresh noise replaces the earlier

    def read(self, events: Iterable[Event]) -> None:
        """Take the events that follow those read so far; the ledger has checked them."""
        for event in events:
            if event.kind == "reserved":
                body = json.loads(event.body)
                # Without a key an answer is not found again, and one of an earlier data version is not either.
                if body["key"] and body["data_version"] == self._version:
                    self._asked[event.seq] = body["account"], body["key"]
            elif event.kind == "settled":
                body = json.loads(event.body)
                asked = self._asked.pop(body["entry"], None)
                if asked is not None and body["answer"]:
                    self._answered.setdefault(asked[0], set()).add(asked[1])
            elif event.kind == "bumped":
                self._version = json.loads(event.body)["data_version"]
                self._asked, self._answered = {}, {}
            self.seq = event.seq

    def of(self, account: str | None) -> int:
        """Return how many questions of an account have a stored answer."""
        return len(self._answered.get(account, ()))
