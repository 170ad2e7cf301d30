"""Names that answers of one account have released, found again by the keys of a query.

A name that an answer released is public for good, on every version of the data and in every period. The answers are
those stored for the account alone: the guarantee against one analyst says nothing of names that another was given.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dpsql.ledger.base_ledger import Ledger
from dpsql.plan.identity.replay_key import identify_keys, order_canonically
from dpsql.plan.identity.stored_release import read_earlier_key, read_names
from dpsql.plan.mechanisms.names import ReleasedNames, arrow_type, int64_array, list_rows
from dpsql.sql.ir.statements import PrivateQuery, ReleasedDomain

if TYPE_CHECKING:
    import pyarrow as pa


MOST_NAMES = 100_000  # of the same keys: the oldest of them
_UNREADABLE = "\N{REPLACEMENT CHARACTER}"  # what an engine writes for bytes that are no text: several labels look alike


@dataclass(slots=True)
class _Names:
    """Names of the same keys, each once, the oldest first; `seen` has their values."""

    table: pa.Table
    seen: set[tuple[object, ...]] = field(default_factory=set)

    def add(self, table: pa.Table) -> None:
        """Add the names of another answer that are new."""
        import pyarrow as pa

        if table.schema.types != self.table.schema.types:
            return
        new = list[int]()
        for at, row in enumerate(list_rows(table)):
            if row in self.seen or len(self.seen) >= MOST_NAMES:
                continue
            if not any(isinstance(value, str) and _UNREADABLE in value for value in row):
                self.seen.add(row)
                new.append(at)
        if new:
            self.table = pa.concat_tables([self.table, table.take(int64_array(new))]).combine_chunks()


@dataclass(slots=True)
class NamesOfAccount:
    """Names of one account, read from the ledger once; a later look reads what was stored since.

    The names stand under the identity of their keys in ascending order, which is the order of their columns, too. A
    query that does not say whether it uses names does so `by_default`, or not.
    """

    ledger: Ledger
    account: str | None
    by_default: bool = True
    _earlier: dict[str, None] | None = None
    _position: int = 0
    _found: dict[tuple[str, ...], _Names] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def complete(self, query: PrivateQuery) -> PrivateQuery:
        """Return the query with the names of its keys that are known, if it may use any."""
        known = query.clause.options.get("known")
        if not isinstance(query.domain, ReleasedDomain):  # of other queries, TOP k of all groups may use names
            is_ranked = query.clause.shape == "top" and not query.clause.is_adaptive
            is_wanted = self.by_default if known is None else known.value != "false"
            if not (is_wanted and is_ranked) or query.domain is not None or query.partitions is not None:
                return query
        with self._lock:
            self._read()
            if not self._found:
                return query
            query = order_canonically(query)
            keys = identify_keys(query)
            found = self._found.get(tuple(sorted(keys)))
            table = None if found is None else found.table
        if table is None or not table.num_rows:
            return query
        order = sorted(range(len(keys)), key=keys.__getitem__)
        table = table.select([order.index(at) for at in range(len(keys))])
        if list(table.schema.types) != [arrow_type(key.type) for key in query.keys]:
            return query
        return replace(query, names=ReleasedNames(table, evident=known is None or known.value != "all"))

    def earlier_keys(self) -> Collection[str]:
        """Return the keys of the answers that versions before 0.11 stored, on any version of the data."""
        if self._earlier is None:
            with self._lock:
                self._read()
        return self._earlier or ()

    def _read(self) -> None:
        """Read the answers that were stored since the last look."""
        position, answers = self.ledger.answers(self.account, self._position)
        earlier = {} if self._earlier is None else self._earlier
        for answer in answers:
            released = read_names(answer)
            if released is None:
                key = read_earlier_key(answer)
                earlier.update({} if key is None else {key: None})
                continue
            keys, table = released
            order = sorted(range(len(keys)), key=keys.__getitem__)
            table = table.select(order).rename_columns([f"key_{at + 1}" for at in range(len(keys))])
            self._found.setdefault(tuple(keys[at] for at in order), _Names(table.slice(0, 0))).add(table)
        self._position, self._earlier = position, earlier
