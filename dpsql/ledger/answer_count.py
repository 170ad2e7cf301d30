"""Number of the queries of each account that have a stored answer, and are free to run again.

It is counted from the events of a ledger, each of which is read once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from dpsql.ledger.record import Event


class AnswerCount:
    """The queries with a stored answer on the present data version, by account; `seq` is the last event read.

    Queries of the same words are one, as SHOW ANSWERS lists them: also the private queries of one statement.
    """

    __slots__ = ("_answered", "_asked", "_version", "seq")

    def __init__(self) -> None:
        self.seq = self._version = 0
        # Account and digest of the query of what is open, by the entry's number, and digests of what is answered.
        self._asked: dict[int, tuple[str | None, bytes]] = {}
        self._answered: dict[str | None, set[bytes]] = {}

    def read(self, events: Iterable[Event]) -> None:
        """Take the events that follow those read so far; the ledger has checked them."""
        for event in events:
            if event.kind == "reserved":
                body = json.loads(event.body)
                # Without a key an answer is not found again, and one of an earlier data version is not either.
                if body["key"] and body["data_version"] == self._version:
                    text = body["query"].encode("utf-8", "surrogatepass")
                    self._asked[event.seq] = body["account"], hashlib.sha256(text).digest()
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
        """Return how many queries of an account have a stored answer."""
        return len(self._answered.get(account, ()))
