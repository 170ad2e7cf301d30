"""Checks of the hash by which an engine draws the groups of a bounded unit.

The draws are read themselves, by `PortableWriter.draw` over a table in which every unit has every group, and over the
tables of the suite. They have to be a function of salts, unit and group alone, different for different groups, and as
uneven as independent ones: neither more nor less. The tables and salts are fixed, so a check passes always or never.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cache, lru_cache
from itertools import combinations, pairwise
from math import sqrt
from statistics import NormalDist
from types import MappingProxyType

import pyarrow as pa

from dpsql.engines import Statement
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.canonical_keys import canonicalize
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.render.clauses import alias, not_null, select, subquery
from dpsql.sql.render.portable import writer_for
from dpsql.sql.rewrite.contribution_bounding import DRAW, UNIT, Bound
from dpsql.testing.kit import Kit
from dpsql.testing.queries import (
    NOON,
    SALTS,
    OpenEngine,
    SuiteQuery,
    accepts_pattern,
    answer_query,
    list_columns,
    open_kit,
    open_tables,
    run_statement,
)
from dpsql.testing.tables import TABLES

__all__ = ["check_draws", "draw_by_digest", "has_keyed_hash", "read_draws"]

GROUPS, KEPT = 24, 5
_OTHER_SALTS = (0x0123456789ABCDEF, 0xFEDCBA9876543210)
_KEYS_OF_SUITE = ("article", "country, n", "flag, article, small", "price", "day", "big", "amount", "moment")
_FOLDED = 2**32 + 1  # its multiples are one number where 64 bits are folded to 32
_UNLIKELY = 1e-6

Group = tuple[object, ...]
Draws = Mapping[tuple[object, Group], object]


@cache
def draw_by_digest(opened: OpenEngine) -> OpenEngine:
    """Return the engine with a dialect that draws by MD5, as DuckDB behind the portable writer does.

    So what is built around a draw is compared group by group; without MD5 the engine is returned as it is.
    """
    dialect = opened.catalog.dialect
    if "md5 TEXT" not in dialect.forms and "md5" not in dialect.forms:
        return opened
    own = ("keyed_hash", "mix", "draw", "gather")
    forms = {name: form for name, form in dialect.forms.items() if name.split()[0] not in own}
    dialect = replace(dialect, forms=MappingProxyType(forms))
    return OpenEngine(opened.engine, replace(opened.catalog, dialect=dialect))


def has_keyed_hash(opened: OpenEngine) -> bool:
    """Return whether the dialect of the engine has another draw than MD5."""
    return any(name.split()[0] in {"mix", "draw"} for name in opened.catalog.dialect.forms)


def check_draws(kit: Kit, *, units: int = 400) -> list[str]:
    """Return what is wrong with the draws of an engine, each in a line."""
    table = _cross_table(units)
    part = {name: each.take(list(range(each.num_rows - 1, -1, -7))) for name, each in table.items()}
    with _opened(kit, table) as opened, _opened(kit, part) as fewer:
        if read_draws(opened, "likes", "article") is None:
            return []
        found = list(_check_statement(opened))
        for name, columns in (("likes", "article"), ("likes", "big"), ("visits", "page")):
            problems = *_check_cross(opened, name, columns), *_check_alone(opened, fewer, name=name, columns=columns)
            found += [f"{name}({columns}): {problem}" for problem in problems]
    suite = open_kit(kit)
    return [
        *found,
        *(f"reads({columns}): {each}" for columns in _KEYS_OF_SUITE for each in _check_values(suite, columns)),
    ]


@contextmanager
def _opened(kit: Kit, tables: Mapping[str, pa.Table]) -> Iterator[OpenEngine]:
    opened = open_tables(kit, {name: kit.fit(each) for name, each in {**TABLES, **tables}.items()})
    with closing(opened.engine):
        yield opened


@lru_cache(64)
def read_draws(
    opened: OpenEngine, table: str, columns: str, *, salts: tuple[int, int] = SALTS
) -> tuple[tuple[object, Group, object], ...] | None:
    """Return unit, group and draw of each row of a table of the suite; None if the engine cannot draw these groups."""
    statement = _write_draws(opened, table, columns, salts=salts)
    if statement is None:
        return None
    unit, *keys, draws = (column[1:] for column in list_columns(run_statement(opened.engine, statement)))
    return tuple(zip(unit, zip(*keys, strict=True), draws, strict=True))


def _write_draws(opened: OpenEngine, table: str, columns: str, *, salts: tuple[int, int]) -> Statement | None:
    from dpsql.errors import Unsupported

    text = f"SELECT {columns} FROM {table} GROUP BY ALL TOP 9 PRIVATE"
    query = analyze(text, opened.catalog, accepts_pattern=accepts_pattern, clock=lambda: NOON)
    if not isinstance(query, PrivateQuery):
        raise TypeError(text)
    names = [f"dpsql_key_{index}" for index in range(1, len(query.keys) + 1)]
    keys = (*map(canonicalize, query.keys), canonicalize(query.unit))
    types = {name: key.type for name, key in zip((*names, UNIT), keys, strict=True)}
    writer = writer_for(query.dialect, types)
    try:
        unit = writer.expression(keys[-1])
        listed = (alias(writer.expression(key), name) for key, name in zip(keys, (*names, UNIT), strict=True))
        rows = writer.select(list(listed), query.body, where=subquery(not_null(unit)))
        draw = writer.draw(names, UNIT, salts=salts)
        sql = writer.finished(select([UNIT, *names, alias(draw, DRAW)], subquery(rows)))
    except Unsupported as error:
        if error.code != "engine-lacks":
            raise
        return None
    return Statement(sql, tuple(writer.parameters))


def _cross_table(units: int) -> Mapping[str, pa.Table]:
    """Return tables in which each unit has every group; their names, numbers and units differ in few bits."""
    pairs = [(unit, group) for unit in range(units) for group in range(GROUPS)]
    numbered = [unit if unit % 2 else unit * _FOLDED for unit, _ in pairs]
    articles = pa.array([f"item number {group}" for _, group in pairs], pa.string())
    numbers = pa.array([group * _FOLDED for _, group in pairs], pa.int64())
    likes = {"user_id": pa.array(numbered, pa.int64()), "article": articles, "big": numbers}
    members = pa.array([f"member {unit}" for unit, _ in pairs], pa.string())
    return {"likes": pa.table(likes), "visits": pa.table({"member": members, "page": articles})}


def _check_cross(opened: OpenEngine, name: str, columns: str) -> Iterator[str]:
    """Check draws of a table in which every unit has every group, under three pairs of salts."""
    salts = (SALTS, (_OTHER_SALTS[0], SALTS[1]), (SALTS[0], _OTHER_SALTS[1]))
    tables = [_rank_rows(opened, name, columns, salts=each) for each in salts]
    yield from _test_ranks([ranks for ranks, _ in tables])
    for (one, _), (two, _) in combinations(tables, 2):
        same = sum(ours[0] == theirs[0] for ours, theirs in zip(one, two, strict=True))
        if (found := _deviation(same, len(one), 1 / GROUPS)) > _limit(1):
            yield f"the first groups under different salts agree in {same} of {len(one)} units ({found:.1f} sigma)"
    for _, numbers in tables:
        yield from _test_structure(numbers)


def _rank_rows(
    opened: OpenEngine, name: str, columns: str, *, salts: tuple[int, int]
) -> tuple[list[list[object]], list[list[int]]]:
    """Return each unit's groups in the order of their draws, and its draws as numbers in the order of the groups."""
    by_unit: dict[object, list[tuple[object, Group]]] = {}
    for unit, group, draw in read_draws(opened, name, columns, salts=salts) or ():
        by_unit.setdefault(unit, []).append((draw, group))
    ordered = [[group for _, group in sorted(by_unit[unit])] for unit in sorted(by_unit, key=str)]
    by_group = (sorted(by_unit[unit], key=lambda each: str(each[1])) for unit in sorted(by_unit, key=str))
    return [list(each) for each in ordered], [[_number(draw) for draw, _ in each] for each in by_group]


def _number(draw: object) -> int:
    """Return the bits of a draw: a number, the digits of one in base 16, or bytes."""
    if isinstance(draw, str):
        return int(draw, 16)
    return int.from_bytes(draw) if isinstance(draw, bytes) else int(str(draw)) % 2**64


def _test_ranks(tables: Sequence[list[list[object]]]) -> Iterator[str]:
    """Test how often each group has each rank, and how often two groups are among the first together."""
    groups = sorted(tables[0][0], key=str)
    statistic = together = 0.0
    pairs, share = len(tables) * GROUPS * (GROUPS - 1) // 2, KEPT * (KEPT - 1) / (GROUPS * (GROUPS - 1))
    for ordered in tables:
        ranks = Counter((group, rank) for each in ordered for rank, group in enumerate(each))
        units = len(ordered)
        mean = units / GROUPS
        statistic += sum((ranks[group, rank] - mean) ** 2 / mean for group in groups for rank in range(GROUPS))
        kept = Counter(pair for each in ordered for pair in combinations(sorted(each[:KEPT], key=str), 2))
        together += sum(
            (kept[pair] - units * share) ** 2 / (units * share * (1 - share)) for pair in combinations(groups, 2)
        )
    freedom = len(tables) * (GROUPS - 1) ** 2
    if (found := _chi_squared(statistic * (GROUPS - 1) / GROUPS, freedom)) > _limit():
        yield f"the ranks of groups are not those of independent draws ({found:.1f} sigma)"
    if (found := _chi_squared(together, pairs)) > _limit():
        yield f"pairs of groups are not kept as by independent draws ({found:.1f} sigma)"


def _test_structure(numbers: list[list[int]]) -> Iterator[str]:
    """Test that neither XOR nor difference of two draws is one for many units, or for many groups."""
    for name, rows in (("units", numbers), ("groups", list(map(list, zip(*numbers, strict=True))))):
        if len({each for row in rows for each in row}) < len(numbers) * GROUPS:
            yield "different groups have one draw"
            return
        for one, two in pairwise(range(len(rows[0]))):
            if len({row[one] ^ row[two] for row in rows}) < len(rows):
                yield f"the XOR of two draws is one for several {name}"
                return
            if len({(row[one] - row[two]) % 2**64 for row in rows}) < len(rows):
                yield f"the difference of two draws is one for several {name}"
                return


def _check_alone(opened: OpenEngine, fewer: OpenEngine, *, name: str, columns: str) -> Iterator[str]:
    """Check that rows have the draws that they have among others, in another order."""
    among = {(unit, group): draw for unit, group, draw in read_draws(opened, name, columns) or ()}
    alone = read_draws(fewer, name, columns) or ()
    changed = sum(among[unit, group] != draw for unit, group, draw in alone)
    if changed:
        yield f"{changed} of {len(alone)} draws depend on other rows"


def _check_values(opened: OpenEngine, columns: str) -> Iterator[str]:
    """Check that equal groups of a unit have one draw, and different ones different draws, NULL among them."""
    rows = read_draws(opened, "reads", columns)
    if rows is None:
        return
    groups: dict[tuple[object, Group], set[object]] = {}
    for unit, group, draw in rows:
        groups.setdefault((unit, group), set()).add(draw)
    if any(len(draws) > 1 or None in draws for draws in groups.values()):
        yield "equal groups have several draws, or NULL for one"
    if len({draw for draws in groups.values() for draw in draws}) < len(groups):
        yield "different groups have one draw"


def _check_statement(opened: OpenEngine) -> Iterator[str]:
    """Check that a bounded statement keeps the groups of the least draws."""
    for columns in ("article", "big", "article, big"):
        text = f"SELECT {columns} FROM likes GROUP BY ALL TOP 9 PRIVATE"
        answer = answer_query(SuiteQuery("bounded", text, "all", bound=Bound(KEPT, SALTS)), opened)
        if answer is None:
            continue
        by_unit: dict[object, list[tuple[object, Group]]] = {}
        for unit, group, draw in read_draws(opened, "likes", columns) or ():
            by_unit.setdefault(unit, []).append((draw, group))
        kept = Counter(group for each in by_unit.values() for _, group in sorted(each)[:KEPT])
        *keys, counts = (column[1:] for column in list_columns(answer))
        if dict(zip(zip(*keys, strict=True), counts, strict=True)) != kept:
            yield f"likes({columns}): the groups of the least draws are not those that are kept"


def _chi_squared(statistic: float, freedom: int) -> float:
    """Return how far a statistic is from its mean, in either direction, by the approximation of Wilson and Hilferty."""
    spread = 2 / (9 * freedom)
    return abs(float((statistic / freedom) ** (1 / 3)) - (1 - spread)) / sqrt(spread)


def _deviation(found: int, of: int, probability: float) -> float:
    return abs(found - of * probability) / sqrt(of * probability * (1 - probability))


def _limit(sides: int = 2) -> float:
    return NormalDist().inv_cdf(1 - _UNLIKELY / sides)
