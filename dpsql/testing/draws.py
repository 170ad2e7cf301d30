"""Checks of the groups that a unit keeps under a bound, and of the hash by which an engine draws them.

The groups are compared with a reference in Python: a digest and sorting, over the plain pairs. The draws are read
themselves, by `PortableWriter.draw` over a table in which every unit has every group, and over the tables of the suite.
They have to be a function of salts, unit and group alone, different for different groups, and as uneven as independent
ones: neither more nor less. The tables and salts are fixed, so a check passes always or never.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cache
from hashlib import md5, sha256
from itertools import combinations, pairwise
from math import sqrt
from statistics import NormalDist
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from dpsql.engines import Statement
from dpsql.errors import Unsupported
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.transforms import canonicalize
from dpsql.sql.ir.tree import Expression, Type
from dpsql.sql.render.duckdb import compose
from dpsql.sql.render.portable import writer_for
from dpsql.sql.rewrite.bounding import DRAW, UNIT, Bound
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
    rewrite_query,
    run_statement,
)
from dpsql.testing.tables import TABLES

BOUNDS = (1, 5, 20)
_KEYS = ["article", "country, n", "flag, article, small"]
_PAIRS = "SELECT {} FROM reads GROUP BY ALL TOP 9 PRIVATE"
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
    for columns in _KEYS:
        pairs = answer_query(SuiteQuery("pairs", _PAIRS.format(f"{columns}, user_id"), "all"), opened)
        for groups in BOUNDS if pairs is not None else ():
            if fault := _find_fault(opened, columns, pairs=list_columns(pairs)[:-1], groups=groups):
                yield fault


def _find_fault(opened: OpenEngine, columns: str, *, pairs: list[list[object]], groups: int) -> str:
    """Compare one bound; `pairs` are the columns of all keys and units, of which each begins with its type."""
    bound = Bound(groups, SALTS)
    if (
        rewrite_query(SuiteQuery("bounded", _PAIRS.format(f"{columns}, user_id"), "all", bound=bound), opened.catalog)
        is None
    ):
        return ""  # the keys are refused
    # The squares of a unit's weights add up to 2**40 about, as those of the weighted Gaussian do.
    weights = [round(2**20 / math.sqrt(at)) for at in range(1, groups + 1)]
    rows = zip(*(column[1:] for column in pairs), strict=True)
    kept = _draw(rows, groups, digest=_sha256 if draws_by_sha256(opened) else _md5).values()
    counts = Counter(group for own in kept for group in own)
    weighed: Counter[Group] = Counter()
    for own in kept:
        weighed.update(dict.fromkeys(own, weights[len(own) - 1]))
    bounded = _PAIRS.format(columns)
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


GROUPS, KEPT = 24, 5
_SALTS = (SALTS, (0x0123456789ABCDEF, SALTS[1]), (SALTS[0], 0xFEDCBA9876543210))  # each of the two is another once
_CROSSED = {"likes": ("article", "big"), "visits": ("page",)}
_KEYS_OF_SUITE = ("article", "country, n", "flag, article, small", "price", "day", "big", "amount", "moment")
_FOLDED = 2**32 + 1  # its multiples are one number where 64 bits are folded to 32
_UNLIKELY = 1e-6

Rows = list[tuple[object, Group, object]]  # unit, group and draw


@cache
def draw_by_digest(opened: OpenEngine) -> OpenEngine:
    """Return the engine with a dialect that draws by MD5, as DuckDB behind the portable writer does.

    So what is built around a draw is compared group by group; without MD5 the engine is returned as it is.
    """
    dialect = opened.catalog.dialect
    if dialect.form("md5", ("TEXT",)) is None:
        return opened
    own = ("keyed_hash", "mix", "draw", "gather")
    forms = {name: form for name, form in dialect.forms.items() if name.split()[0] not in own}
    dialect = replace(dialect, forms=MappingProxyType(forms))
    return OpenEngine(opened.engine, replace(opened.catalog, dialect=dialect))


@cache
def draw_by_sha256(opened: OpenEngine) -> OpenEngine:
    """Return the engine with a dialect that draws by SHA-256, for comparison with one that has no MD5."""
    dialect = opened.catalog.dialect
    forms = MappingProxyType({**dialect.forms, "draw TEXT": str(dialect.form("sha256", ("TEXT",)))})
    return OpenEngine(opened.engine, replace(opened.catalog, dialect=replace(dialect, forms=forms)))


def has_keyed_hash(opened: OpenEngine) -> bool:
    """Return whether the dialect of the engine has another draw than MD5."""
    return any(name.split()[0] in {"mix", "draw"} for name in opened.catalog.dialect.forms)


def check_draws(kit: Kit, *, units: int = 400) -> list[str]:
    """Return what is wrong with the draws of an engine, each in a line."""
    tables = _cross_tables(units)
    part = {name: table.take(list(range(table.num_rows - 1, -1, -7))) for name, table in tables.items()}
    found: list[str] = []
    with _opened(kit, tables) as opened, _opened(kit, part) as fewer:
        for name, keys in _CROSSED.items():
            draws, alone = (
                _read_draws(opened, name, keys=keys, salts=_SALTS),
                _read_draws(fewer, name, keys=keys, salts=_SALTS[:1]),
            )
            for columns in draws:
                problems = *_check_cross(draws[columns]), *_check_alone(draws[columns][0], alone[columns][0])
                found += [f"{name}({columns}): {problem}" for problem in problems]
            found += _check_statements(opened, name, draws=draws)
    for columns, (rows,) in _read_draws(open_kit(kit), "reads", keys=_KEYS_OF_SUITE, salts=_SALTS[:1]).items():
        found += [f"reads({columns}): {problem}" for problem in _check_values(rows)]
    return found


@contextmanager
def _opened(kit: Kit, tables: Mapping[str, pa.Table]) -> Iterator[OpenEngine]:
    opened = open_tables(kit, {name: kit.fit(each) for name, each in {**TABLES, **tables}.items()})
    with closing(opened.engine):
        yield opened


def _read_draws(
    opened: OpenEngine, table: str, *, keys: Sequence[str], salts: Sequence[tuple[int, int]]
) -> dict[str, list[Rows]]:
    """Return unit, group and draw of each row of a table, for each of the keys that the engine can draw by, and salts.

    One statement has them all.
    """
    columns = list(dict.fromkeys(column for each in keys for column in each.split(", ")))
    query = analyze(
        f"SELECT {', '.join(columns)} FROM {table} GROUP BY ALL TOP 9 PRIVATE",
        opened.catalog,
        accepts_pattern=accepts_pattern,
        clock=lambda: NOON,
    )
    if not isinstance(query, PrivateQuery):
        raise TypeError(table)
    types = {name: key.type for name, key in zip((*columns, UNIT), (*query.keys, query.unit), strict=True)}
    written = dict(zip((*columns, UNIT), map(canonicalize, (*query.keys, query.unit)), strict=True))
    keys = [
        each
        for each in keys
        if _can_draw(opened, types, expressions=[written[name] for name in (*each.split(", "), UNIT)])
    ]
    if not keys:
        return {}
    writer = writer_for(query.dialect, types)
    listed = dict.fromkeys([UNIT, *(column for each in keys for column in each.split(", "))])
    rows = writer.select(
        [f"{writer.expression(written[name])} AS {name}" for name in listed],
        query.body,
        where=f"({writer.expression(written[UNIT])} IS NOT NULL)",
    )
    draws = [
        f"{writer.draw(each.split(', '), UNIT, salts=salt)} AS {DRAW}_{at}_{number}"
        for at, each in enumerate(keys)
        for number, salt in enumerate(salts)
    ]
    sql = writer.finished(compose("SELECT {columns} FROM ({rows})", columns=[*listed, *draws], rows=rows))
    found = list_columns(run_statement(opened.engine, Statement(sql, tuple(writer.parameters))))
    read = dict(zip(listed, (column[1:] for column in found), strict=False))
    drawn = iter(column[1:] for column in found[len(listed) :])
    groups = {each: list(zip(*(read[name] for name in each.split(", ")), strict=True)) for each in keys}
    return {each: [list(zip(read[UNIT], groups[each], next(drawn), strict=True)) for _ in salts] for each in keys}


def _can_draw(opened: OpenEngine, types: Mapping[str, Type], *, expressions: Sequence[Expression]) -> bool:
    """Return whether the engine has the forms of the keys and of the draw."""
    writer = writer_for(opened.catalog.dialect, types)
    try:
        for each in expressions:
            writer.expression(each)
        writer.draw(list(types)[:1], UNIT, salts=SALTS)
    except Unsupported as error:
        if error.code != "engine-lacks":
            raise
        return False
    return True


def _cross_tables(units: int) -> Mapping[str, pa.Table]:
    """Return tables in which each unit has every group; their names, numbers and units differ in few bits."""
    pairs = [(unit, group) for unit in range(units) for group in range(GROUPS)]
    # A hash that folds 64 bits to 32 by XOR gives all multiples of 2**32 + 1 one value.
    numbered = [unit if unit % 2 else unit * _FOLDED for unit, _ in pairs]
    articles = pa.array([f"item number {group}" for _, group in pairs], pa.string())
    numbers = pa.array([group * _FOLDED for _, group in pairs], pa.int64())
    likes = {"user_id": pa.array(numbered, pa.int64()), "article": articles, "big": numbers}
    members = pa.array([f"member {unit}" for unit, _ in pairs], pa.string())
    return {"likes": pa.table(likes), "visits": pa.table({"member": members, "page": articles})}


def _check_cross(tables: Sequence[Rows]) -> Iterator[str]:
    """Check draws of a table in which every unit has every group, under several pairs of salts."""
    ranked = [_rank_rows(rows) for rows in tables]
    yield from _test_ranks([ranks for ranks, _ in ranked])
    for (one, _), (two, _) in combinations(ranked, 2):
        same = sum(ours[0] == theirs[0] for ours, theirs in zip(one, two, strict=True))
        if (found := _deviation(same, len(one), probability=1 / GROUPS)) > _limit(1):
            yield f"the first groups under different salts agree in {same} of {len(one)} units ({found:.1f} sigma)"
    for _, numbers in ranked:
        yield from _test_structure(numbers)


def _rank_rows(rows: Rows) -> tuple[list[list[object]], list[list[int]]]:
    """Return each unit's groups in the order of their draws, and its draws as numbers in the order of the groups."""
    by_unit = _collect(rows)
    ordered = [[group for _, group in sorted(by_unit[unit])] for unit in sorted(by_unit, key=str)]
    by_group = (sorted(by_unit[unit], key=lambda each: str(each[1])) for unit in sorted(by_unit, key=str))
    return [list(each) for each in ordered], [[_number(draw) for draw, _ in each] for each in by_group]


def _collect(rows: Rows) -> dict[object, list[tuple[Any, Group]]]:
    """Return draw and group of each unit's rows."""
    by_unit: dict[object, list[tuple[Any, Group]]] = {}
    for unit, group, draw in rows:
        by_unit.setdefault(unit, []).append((draw, group))
    return by_unit


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
    # Each unit has every rank once and every group once, so that the statistic has the mean G (G - 1) for G groups:
    # G / (G - 1) times that of a chi-squared of (G - 1)**2 degrees.
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
            # A draw hash(unit) ^ hash(group) has one XOR of two groups for all units.
            if len({row[one] ^ row[two] for row in rows}) < len(rows):
                yield f"the XOR of two draws is one for several {name}"
                return
            if len({(row[one] - row[two]) % 2**64 for row in rows}) < len(rows):
                yield f"the difference of two draws is one for several {name}"
                return


def _check_alone(rows: Rows, fewer: Rows) -> Iterator[str]:
    """Check that rows have the draws that they have among others, in another order."""
    among = {(unit, group): draw for unit, group, draw in rows}
    changed = sum(among[unit, group] != draw for unit, group, draw in fewer)
    if changed:
        yield f"{changed} of {len(fewer)} draws depend on other rows"


def _check_values(rows: Rows) -> Iterator[str]:
    """Check that equal groups of a unit have one draw, and different ones different draws, NULL among them."""
    groups: dict[tuple[object, Group], set[object]] = {}
    for unit, group, draw in rows:
        groups.setdefault((unit, group), set()).add(draw)
    if any(len(draws) > 1 or None in draws for draws in groups.values()):
        yield "equal groups have several draws, or NULL for one"
    if len({draw for draws in groups.values() for draw in draws}) < len(groups):
        yield "different groups have one draw"


def _check_statements(opened: OpenEngine, name: str, *, draws: Mapping[str, Sequence[Rows]]) -> Iterator[str]:
    """Check that bounded statements keep the groups of the least draws."""
    for columns, (rows, *_) in draws.items():
        text = f"SELECT {columns} FROM {name} GROUP BY ALL TOP 9 PRIVATE"
        answer = answer_query(SuiteQuery("bounded", text, "all", bound=Bound(KEPT, SALTS)), opened)
        kept = Counter(group for each in _collect(rows).values() for _, group in sorted(each)[:KEPT])
        *keys, counts = ((),) if answer is None else (column[1:] for column in list_columns(answer))
        if dict(zip(zip(*keys, strict=True), counts, strict=True)) != kept:
            yield f"{name}({columns}): the groups of the least draws are not those that are kept"


def _chi_squared(statistic: float, freedom: int) -> float:
    """Return how far a statistic is from its mean, in either direction, by the approximation of Wilson and Hilferty."""
    spread = 2 / (9 * freedom)
    return abs(float((statistic / freedom) ** (1 / 3)) - (1 - spread)) / sqrt(spread)


def _deviation(found: int, of: int, *, probability: float) -> float:
    return abs(found - of * probability) / sqrt(of * probability * (1 - probability))


def _limit(sides: int = 2) -> float:
    return NormalDist().inv_cdf(1 - _UNLIKELY / sides)
