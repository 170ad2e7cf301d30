"""Which groups of a unit an engine keeps, by a reference in Python alone: MD5 and sorting, over the plain pairs."""

from __future__ import annotations

import math
from collections import Counter
from hashlib import md5

import pytest
from support.engine_kits import KITS, kit_of

from dpsql.sql.rewrite.contribution_bounding import Bound
from dpsql.testing.queries import SALTS, SuiteQuery, answer_query, list_columns, open_kit

KEYS = {"one text": "article", "a text and a number": "country, n", "three": "flag, article, small"}
Group = tuple[object, ...]


def hashed(text: str) -> str:
    return md5(text.encode()).hexdigest()


def printed(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def draw(unit: object, group: Group) -> str:
    parts = ("" if value is None else hashed(printed(value)) for value in (unit, *group))
    return hashed("".join((*(f"{salt:016x}" for salt in SALTS), *parts)))


def in_order(group: Group) -> list[tuple[bool, object]]:
    """Return a group as one that is compared, NULL last and text by its bytes."""
    return [(value is None, value.encode() if isinstance(value, str) else value or 0) for value in group]


def kept(pairs: list[Group], groups: int) -> dict[object, list[Group]]:
    """Return the groups that each unit keeps; the unit is the last of each row of `pairs`."""
    own: dict[object, list[Group]] = {}
    for *group, unit in pairs:
        own.setdefault(unit, []).append(tuple(group))
    return {
        unit: sorted(each, key=lambda group: (draw(unit, group), in_order(group)))[:groups]
        for unit, each in own.items()
    }


@pytest.mark.parametrize("groups", [1, 5, 20])
@pytest.mark.parametrize("engine", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in KITS])
def test_an_engine_keeps_the_groups_of_the_least_draws(engine: str, groups: int) -> None:
    held, weights = open_kit(kit_of(engine)), [round(2**20 / math.sqrt(at)) for at in range(1, groups + 1)]
    if held.catalog.dialect.form("md5", ("TEXT",)) is None:
        pytest.skip("it has no MD5, and refuses every bound")
    for columns in KEYS.values():
        text = f"SELECT {columns}, user_id FROM reads GROUP BY ALL TOP 9 PRIVATE"
        everything = answer_query(SuiteQuery("pairs", text, "all"), held)
        assert everything is not None
        if answer_query(SuiteQuery("bounded", text, "all", Bound(groups, SALTS)), held) is None:
            return  # it cannot draw: its file in `gaps` says so
        pairs = list(zip(*(column[1:] for column in list_columns(everything)[:-1]), strict=True))
        chosen = kept(pairs, groups)
        counts = Counter(group for own in chosen.values() for group in own)
        weighed: Counter[Group] = Counter()
        for own in chosen.values():
            weighed.update(dict.fromkeys(own, weights[len(own) - 1]))
        bounded = text.replace(", user_id FROM", " FROM")
        assert found(SuiteQuery("bounded", bounded, "all", Bound(groups, SALTS)), engine) == counts
        both = found(SuiteQuery("weighted", bounded, "weighted", Bound(groups, SALTS)), engine, measures=2)
        assert both == {group: (counts[group], weight) for group, weight in weighed.items()}


def found(asked: SuiteQuery, engine: str, measures: int = 1) -> dict[Group, object]:
    table = answer_query(asked, open_kit(kit_of(engine)))
    assert table is not None
    rows = zip(*(column[1:] for column in list_columns(table)), strict=True)
    return {row[:-measures]: row[-1] if measures == 1 else row[-measures:] for row in rows}
