"""Names that answers of one account have released, found again by the keys of a query.

A name that an answer released is public for good, on every version of the data and in every period. The answers are
those stored for the account alone: the guarantee against one analyst says nothing of names that another was given.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dpsql.ledger.base import Ledger
from dpsql.plan.arrow_schema import arrow_type
from dpsql.plan.cache.key_identity import identify_keys
from dpsql.plan.cache.replay_key import order_canonically
from dpsql.plan.cache.stored_release import read_names
from dpsql.plan.released_names import ReleasedNames, drop_repeated
from dpsql.sql.ir.statements import PrivateQuery, ReleasedDomain

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MOST_NAMES", "NamesOfAccount"]

MOST_NAMES = 100_000  # of the same keys: the oldest of them
_UNREADABLE = "\N{REPLACEMENT CHARACTER}"  # what an engine writes for bytes that are no text: several labels look alike


@dataclass(slots=True)
class NamesOfAccount:
    """Names of one account, read from the ledger once; a later look reads what was stored since.

    `found` has the tables of names by the identity of their keys in ascending order, `joined` the same as one table.
    """

    ledger: Ledger
    account: str | None
    _position: int = 0
    _found: dict[tuple[str, ...], list[pa.Table]] = field(default_factory=dict)
    _joined: dict[tuple[str, ...], pa.Table] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def complete(self, query: PrivateQuery) -> PrivateQuery:
        """Return the query with the names of its keys that are known, if it may use any."""
        if not _uses_names(query):
            return query
        with self._lock:
            self._read()
            if not self._found:
                return query
            query = order_canonically(query)
            keys = identify_keys(query)
            names = self._join(tuple(sorted(keys)))
        if names is None:
            return query
        order = sorted(range(len(keys)), key=keys.__getitem__)
        names = names.select([order.index(at) for at in range(len(keys))])
        if list(names.schema.types) != [arrow_type(key.type) for key in query.keys]:
            return query
        return replace(query, names=ReleasedNames(names))

    def _read(self) -> None:
        """Read the answers that were stored since the last look."""
        self._position, answers = self.ledger.answers(self.account, self._position)
        for answer in answers:
            released = read_names(answer)
            if released is None or not released[1].num_rows:
                continue
            keys, table = released
            order = sorted(range(len(keys)), key=keys.__getitem__)
            found = tuple(keys[at] for at in order)
            table = table.select(order).rename_columns([f"key_{at + 1}" for at in range(len(keys))])
            self._found.setdefault(found, []).append(table)
            self._joined.pop(found, None)

    def _join(self, keys: tuple[str, ...]) -> pa.Table | None:
        """Return the names of these keys, each once, the oldest first; None without any."""
        import pyarrow as pa

        tables = self._found.get(keys)
        if tables is None:
            return None
        if keys not in self._joined:
            same = [each for each in tables if each.schema.types == tables[0].schema.types]
            names = drop_repeated(_drop_unreadable(pa.concat_tables(same))).slice(0, MOST_NAMES).combine_chunks()
            self._found[keys], self._joined[keys] = [names], names
        return self._joined[keys] if self._joined[keys].num_rows else None


def _uses_names(query: PrivateQuery) -> bool:
    """Return whether the query may use known names: TOP k of all groups, or any query of the domain of names."""
    known = query.clause.options.get("known")
    if isinstance(query.domain, ReleasedDomain):
        return True
    is_ranked = query.clause.shape == "top" and not query.clause.is_adaptive
    return is_ranked and query.domain is None and query.partitions is None and (known is None or known.value != "false")


def _drop_unreadable(table: pa.Table) -> pa.Table:
    """Return the names without those in which an engine could not read some bytes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for column in table.column_names:
        if pa.types.is_string(table.schema.field(column).type):
            readable = pc.invert(pc.match_substring(table.column(column), _UNREADABLE))
            table = table.filter(pc.fill_null(readable, fill_value=True))
    return table
