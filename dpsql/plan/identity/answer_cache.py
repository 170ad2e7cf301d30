"""Cache of answers that cost nothing, for dashboards that repeat them.

An answer is returned again only while the ledger has the stamp that it had before the answer was made: no process has
charged, granted, stored or deleted anything since.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from dpsql.ledger.base_ledger import Ledger
from dpsql.sql.analysis.domains import find_group_query, find_partition_query
from dpsql.sql.ir.statements import OuterSelect, PrivateQuery, PublicQuery, Statement
from dpsql.sql.ir.tree import has_scan

Value = TypeVar("Value")
_MAX_ANSWERS = 64
_MAX_BYTES = 256 * 1024  # of the rows of one


@dataclass(frozen=True, slots=True)
class AnswerCache(Generic[Value]):
    """Answers of one session, at most 64, by the keys of their statements; threads may share it."""

    ledger: Ledger
    _known: dict[Hashable, tuple[Hashable, Value]] = field(default_factory=dict)

    def find(self, key: Hashable) -> Value | None:
        """Return the answer of a statement, or None if there is none that is right now."""
        known = self._known.get(key)  # once, as another thread may be replacing it
        return None if known is None else _choose(known, self.ledger.stamp())

    def peek(self, key: Hashable) -> Value | None:
        """Return the answer without waiting for the ledger; None also where the ledger cannot be read at once."""
        known = self._known.get(key)
        return None if known is None else _choose(known, self.ledger.peek_stamp())

    def add(self, key: Hashable, answer: Value, *, stamp: Hashable, size: int = 0) -> None:
        """Add an answer of `size` bytes; `stamp` is that of the ledger before the answer was made."""
        if stamp is None or size > _MAX_BYTES:
            return
        self._known.pop(key, None)
        self._known[key] = stamp, answer
        if len(self._known) > _MAX_ANSWERS:
            with suppress(KeyError, StopIteration, RuntimeError):  # another thread may have
                del self._known[next(iter(self._known))]


def _choose(known: tuple[Hashable, Value], stamp: Hashable) -> Value | None:
    return known[1] if stamp is not None and known[0] == stamp else None


def is_repeatable(statement: Statement) -> bool:
    """Return whether the text and the ledger alone decide the answer of a statement that is free or stored.

    Rows of public tables may change, DuckDB's own functions may read a clock, and EXPLAIN draws noise.
    """
    match statement:
        case PublicQuery():
            return not has_scan(statement)
        case PrivateQuery(explained=explained):
            return not explained and find_partition_query(statement) is None and find_group_query(statement) is None
        case OuterSelect(inners=inners, beside=beside, is_deterministic=is_deterministic):
            return is_deterministic and not beside and all(map(is_repeatable, inners))
    return True
