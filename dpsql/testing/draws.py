"""Reference in Python for the groups that a unit keeps under a bound: a digest and sorting, over the plain pairs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import md5, sha256

from dpsql.sql.rewrite.engine_query import Bound
from dpsql.testing.queries import SALTS, OpenEngine, SuiteQuery, answer_query, list_columns

__all__ = ["BOUNDS", "can_draw", "draws_by_sha256", "find_draw_faults"]

BOUNDS = (1, 5, 20)
_KEYS = ["article", "country, n", "flag, article, small"]
Group = tuple[object, ...]
Digest = Callable[[str], str]


def can_draw(opened: OpenEngine) -> bool:
    """Return whether the engine draws by a digest that the reference knows: MD5, or SHA-256 in its place."""
    return opened.catalog.dialect.form("md5", ("TEXT",)) is not None or draws_by_sha256(opened)


def draws_by_sha256(opened: OpenEngine) -> bool:
    """Return whether the dialect of the engine draws by its SHA-256."""
    forms = opened.catalog.dialect.forms
    return "mix" not in forms and "draw TEXT" in forms and forms["draw TEXT"] == forms.get("sha256 TEXT")


def find_draw_faults(opened: OpenEngine) -> Iterator[str]:
    """Yield a line for each query in which other groups than those with the smallest draws are kept."""
    return (fault for columns in _KEYS for groups in BOUNDS if (fault := _find_fault(opened, columns, groups=groups)))


def _find_fault(opened: OpenEngine, columns: str, *, groups: int) -> str:
    text, bound = f"SELECT {columns}, user_id FROM reads GROUP BY ALL TOP 9 PRIVATE", Bound(groups, SALTS)
    everything = answer_query(SuiteQuery("pairs", text, "all"), opened)
    if everything is None or answer_query(SuiteQuery("bounded", text, "all", bound=bound), opened) is None:
        return ""  # the keys are refused
    weights = [round(2**20 / math.sqrt(at)) for at in range(1, groups + 1)]
    pairs = zip(*(column[1:] for column in list_columns(everything)[:-1]), strict=True)
    kept = _draw(pairs, groups, digest=_sha256 if draws_by_sha256(opened) else _md5).values()
    counts = Counter(group for own in kept for group in own)
    weighed: Counter[Group] = Counter()
    for own in kept:
        weighed.update(dict.fromkeys(own, weights[len(own) - 1]))
    bounded = text.replace(", user_id FROM", " FROM")
    for rewrite, expected in (
        ("all", {group: (count,) for group, count in counts.items()}),
        ("weighted", {group: (counts[group], weight) for group, weight in weighed.items()}),
    ):
        found = _read(
            SuiteQuery("bounded", bounded, rewrite, bound=bound), opened, measures=1 + (rewrite == "weighted")
        )
        if found is not None and found != expected:
            wrong = sum(found.get(group) != expected.get(group) for group in {*found, *expected})
            return f"{columns}, bound {groups}, {rewrite}: {wrong} of {len(expected)} groups differ"
    return ""


def _draw(pairs: Iterable[Sequence[object]], groups: int, *, digest: Digest) -> dict[object, list[Group]]:
    """Return the groups that each unit keeps; the unit is the last of each pair."""
    own: dict[object, list[Group]] = {}
    for *group, unit in pairs:
        own.setdefault(unit, []).append(tuple(group))
    return {
        unit: sorted(each, key=lambda group: (_hash_pair(unit, group, digest=digest), _order(group)))[:groups]
        for unit, each in own.items()
    }


def _hash_pair(unit: object, group: Group, *, digest: Digest) -> str:
    """Return the digest of unit and keys, of which each text but the last is hashed before."""
    texts = [digest(value) if isinstance(value, str) else _print(value) for value in group[:-1]]
    keys = zip(group, [*texts, _print(group[-1])], strict=True)
    parts = (";" if value is None else f",{text}" for value, text in keys)
    return digest("".join((*(f"{salt:016x}" for salt in SALTS), _print(unit), *parts)))


def _md5(text: str) -> str:
    return md5(text.encode(), usedforsecurity=False).hexdigest()


def _sha256(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _print(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _order(group: Group) -> list[tuple[bool, object]]:
    """Return a group in a form that can be compared: NULL last, and text by its bytes."""
    return [(value is None, value.encode() if isinstance(value, str) else value or 0) for value in group]


def _read(query: SuiteQuery, opened: OpenEngine, *, measures: int) -> dict[Group, Group] | None:
    table = answer_query(query, opened)
    if table is None:
        return None
    rows = zip(*(column[1:] for column in list_columns(table)), strict=True)
    return {row[:-measures]: row[-measures:] for row in rows}
