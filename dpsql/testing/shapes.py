"""Shapes: expressions of every function and operator of the language, over columns of all types that it accepts.

In a shape, {any} stands for each column in turn, {same} for the same column of the other row, and {other} for a number
of another type there. {i} {d} {x} {num} {t} {b} {day} {ts} {time} stand for the columns of one kind, and with a 2
behind the name for those of the other row. Expressions that the language refuses are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import product

__all__ = ["SHAPES", "expand_shape"]

_INTEGERS = "tiny small n big u8 u16 u32".split()
_DECIMALS = ["amount", "wide"]
_DOUBLES = ["price", "ratio"]
_NUMBERS = [*_INTEGERS, *_DECIMALS, *_DOUBLES]
_COLUMNS = {
    "i": _INTEGERS,
    "d": _DECIMALS,
    "x": _DOUBLES,
    "num": _NUMBERS,
    "t": ["article"],
    "b": ["flag"],
    "day": ["day"],
    "ts": ["moment"],
    "time": ["day", "moment"],
    "any": [*_NUMBERS, "article", "flag", "day", "moment"],
}
_NATURAL = {"tiny": "TINYINT", "u8": "UTINYINT", "u16": "USMALLINT", "u32": "UINTEGER"}
_OTHERS = ["n", "amount", "price"]
_HOLE = re.compile(r"\{(\w+?)2?\}")
_UNITS = "microsecond millisecond second minute hour day week month quarter year".split()
_PARTS = "year month day dow isodow doy quarter week isoyear yearweek decade century millennium era".split()
_CLOCK_PARTS = "hour minute second millisecond microsecond epoch".split()
_POSITIONS = [0, 1, -1, 2, -3, 10_000, -10_000]
_TYPES = "BOOLEAN TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER DECIMAL(4,1) DECIMAL(10,2) DECIMAL(18,0) "
_TYPES += "DECIMAL(18,4) DOUBLE VARCHAR DATE TIMESTAMP"
_FORMATS = [
    "%Y-%m-%d %H:%M:%S",
    "%a %A %b %B %p %y",
    "%U %W %u %w",
    "%V %G %f %g",
    "%-d %-m %-H %-I %-M %-S %-j",
    "%d%I%j",
    "%%",
    "x",
]
_FORMATS += "%Y %m %d %j %b %B %a %A %Y-%m %Y-%m-%d %Y/%m/%d %Y%m%d %Y%m %d/%m/%Y %m/%d/%Y %d.%m.%Y %m-%d".split()
_FORMATS += ["%H", "%M", "%S", "%H:%M", "%H:%M:%S", "%Y-%m-%d %H", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S"]


def _of(names: str, *arguments: str) -> list[str]:
    return [f"{name}({given})" for name, given in product(names.split(), arguments)]


def _between(signs: str, *operands: str) -> list[str]:
    return [pair.replace("@", sign) for sign, pair in product(signs.split(), operands)]


COMPARED = [
    *_between("= <> < <= > >=", "{any} @ {same}"),
    *_between("= < >=", "{num} @ {other}"),
    *("{any} IS DISTINCT FROM {same}", "{any} IS NOT DISTINCT FROM {same}", "{any} IS NULL", "{any} IS NOT NULL"),
    *("{num} IS DISTINCT FROM {other}", "{day} < {ts2}", "{ts} = {day2}", "{day} IS NOT DISTINCT FROM {ts2}"),
    *_between("= <> < <= > >=", "{num} @ 0", "{num} @ 1.5", "{x} @ 'NaN'::DOUBLE", "{x} @ 'inf'::DOUBLE", "{t} @ 'a '"),
    *_between("= < >=", "{day} @ DATE '2026-01-31'", "{ts} @ TIMESTAMP '2026-01-31 23:59:59.999999'", "{b} @ TRUE"),
    *_between(
        "= < >=", "{day} @ TIMESTAMP '2026-01-31 00:00:00'", "{ts} @ DATE '1970-01-01'", "{t} @ ''", "{num} @ 3e9"
    ),
    *("{any} IN ({same}, NULL)", "{num} IN (0, 1, 2)", "{x} IN ('NaN', 0, 1.5)", "{t} IN ('a', 'A', '', 'a ')"),
    *("{t} NOT IN ('a', 'b')", "{day} IN ('2026-01-31', '0001-01-01')", "{any} BETWEEN {same} AND {any}"),
    *("{same} BETWEEN {any} AND {same}", "{num} NOT BETWEEN 0.5 AND 100", "{x} BETWEEN 0 AND 'NaN'::DOUBLE"),
    *("{t} BETWEEN 'A' AND 'b'", "{b} IS TRUE", "{b} IS FALSE", "{b} IS NOT TRUE", "{b} IS NOT FALSE", "NOT {b}"),
    *("{b} AND {b2}", "{b} OR {b2}", "({num} > 0) IS TRUE", "{b} AND {x2} > 1 OR {t} = 'a'"),
]
CHOSEN = [
    *("CASE WHEN {b} THEN {any} ELSE {same} END", "CASE {any} WHEN {same} THEN 1 ELSE 3000000000 END"),
    *("CASE WHEN {b} THEN {num} END", "CASE WHEN {b} THEN {num} ELSE 1 END", "if({b}, {any}, {same})"),
    *("nullif({any}, {same})", "nullif({num}, 0)", "nullif({t}, '')", "nullif({x}, 'NaN')", "ifnull({num}, 0)"),
    *("coalesce({any}, {same})", "coalesce({num}, {other})", "coalesce({any}, {same}, NULL)", "coalesce({t}, 'none')"),
    *_of("greatest least", "{any}, {same}", "{num}, {other}", "{num}, 0", "{x}, 'NaN'::DOUBLE", "{any}, NULL, {same}"),
    *_of("greatest least", "{t}, 'a', {t2}", "{x}, {x2}, 1.5"),
    *("width_bucket({num}, 0, 10, 4)", "width_bucket({x}, -1.5, 1e3, 7)"),
]
NUMBERS = [
    *_between("+ - * / // %", "{num} @ {same}", "{num} @ {other}"),
    *_between("/ // %", "{num} @ 3", "{num} @ -1", "{num} @ 0", "7 @ {num}"),
    *_between("+ - * / %", "{d} @ 1.5", "{i} @ 3000000000", "{x} @ 1e300", "1 @ {i}"),
    *_between("& |", "{i} @ {same}", "{i} @ 5", "{i} @ -1"),
    *("-{num}", "~{i}", "@{num}", "xor({i}, {same})", "xor({i}, 3)", "mod({num}, {same})", "mod({num}, 7)"),
    *_of("abs sign floor ceil ceiling round trunc", "{num}"),
    *("round({num}, 0)", "round({num}, 1)", "round({num}, 2)", "round({x}, -2)", "round({i}, -1)", "round({x}, 17)"),
    *(f"round({{x}}, {digits})" for digits in range(-9, 16)),
    *("round({x}, 400)", "round({x}, -400)", "round({i}, 3)"),
    *_of("sqrt cbrt ln log2 log10 log exp", "{num}"),
    *_of("sin cos tan cot asin acos atan sinh cosh tanh radians degrees even", "{num}"),
    *("log(2, {num})", "log({x}, {x2})", "atan2({x}, {x2})", "pi()", "atan2({num}, 1)"),
    *_of("pow power", "{num}, 2", "{x}, {x2}", "2, {num}", "{num}, 0.5", "{num}, -1"),
    *_of("gcd lcm", "{i}, {same}", "{i}, 6", "0, {i}", "{i}, -1"),
    *_of("isnan isinf isfinite", "{num}"),
    *_of("isinf isfinite", "{time}"),
]
TEXTS = [
    *_of("lower upper length strlen bit_length ascii unicode reverse strip_accents md5 sha1 sha256", "{t}"),
    *_of("trim ltrim rtrim", "{t}", "{t}, 'a'", "{t}, 'xa '", "{t}, ''", "{t}, '%_'"),
    *_of("left right", *(f"{{t}}, {at}" for at in _POSITIONS)),
    *_of("substr", *(f"{{t}}, {at}" for at in _POSITIONS)),
    *_of("substr", *(f"{{t}}, {at}, {long}" for at, long in product(_POSITIONS, [0, 1, 2, -1, 10_000]))),
    *_of("starts_with ends_with contains strpos", "{t}, {t2}", "{t}, 'a'", "{t}, ''", "{t}, 'e'", "'abc', {t}"),
    *("{t} || {t2}", "{t} || 'x'", "concat({t}, {t2})", "concat({t}, 'a', {any})", "concat({t})", "{t} || {any}"),
    *("concat_ws(',', {t}, {t2})", "concat_ws('', {t}, NULL, 'b')", "concat_ws(', ', {any}, {t})"),
    *("replace({t}, 'a', 'bcd')", "replace({t}, '', 'x')", "replace({t}, 'b', '')", "replace({t}, '\\', '/')"),
    *(
        "translate({t}, 'ab', 'x')",
        "translate({t}, '', 'x')",
        "translate({t}, 'a', '')",
        "translate({t}, 'aab', 'xyz')",
    ),
    *_of("split_part", *(f"{{t}}, '{cut}', {at}" for cut, at in product(["b", ",", "", " "], [0, 1, 2, -1, 9]))),
    *("{t} LIKE 'a%'", "{t} LIKE '%b%'", "{t} LIKE '_'", "{t} LIKE '%\\%'", "{t} LIKE ''", "{t} LIKE '%'"),
    *("{t} LIKE 'a_'", "{t} LIKE '%\n%'", "{t} NOT LIKE '%a%b'", "{t} LIKE '%b#%c#_d' ESCAPE '#'", "{t} LIKE '\\'"),
    *(
        "{t} LIKE 'a\\b'",
        "{t} LIKE '!%%' ESCAPE '!'",
        "{t} LIKE '%\\_%' ESCAPE '\\'",
        "{t} LIKE 'a\\b%' ESCAPE '\\'",
        "{t} LIKE '\U0001f642%'",
    ),
    *("{t} ILIKE 'A%'", "{t} ILIKE 'stra\u00dfe'", "{t} ILIKE '\u00c9'", "{t} ILIKE '%\u01c5%'", "{t} ILIKE '%i%'"),
    *("{t} ILIKE '\u03bf%\u03c2'", "{t} ILIKE '#A%' ESCAPE '#'", "{t} ILIKE '\uff41'", "{t} ILIKE '_'"),
    *_of(
        "regexp_matches", "{t}, '^a'", "{t}, ''", "{t}, '[^a]{1,5}'", "{t}, 'A.B', 'si'", "{t}, '\\d+'", "{t}, '\\bb'"
    ),
    *_of("regexp_matches", "{t}, '(?i)\u00e9'", "{t}, 'a$'", "{t}, '^.$'", "{t}, '\\w\\s'", "{t}, '[[:upper:]]'"),
    *_of("regexp_full_match", "{t}, '(?s).*'", "{t}, 'a+'", "{t}, '.'", "{t}, '[a-c]*'", "{t}, 'a|ab'"),
    *("regexp_extract({t}, 'a(.)')", "regexp_extract({t}, 'a(.)', 1)", "regexp_extract({t}, 'a(.)?', 1)"),
    *("regexp_extract({t}, 'a(.)', 9)", "regexp_extract({t}, 'A(.)', 1, 'i')", "regexp_extract({t}, 'a|ab')"),
    *("regexp_replace({t}, 'a', 'bb')", "regexp_replace({t}, '', 'z', 'g')", "regexp_replace({t}, '[ab]', '', 'g')"),
    *("regexp_replace({t}, 'A', '$1&', 'gi')", "regexp_replace({t}, '(.)', '')"),
]
TIMES = [
    *_of("date_part", *(f"'{part}', {{time}}" for part in _PARTS)),
    *_of("date_part", *(f"'{part}', {{ts}}" for part in _CLOCK_PARTS)),
    *_of("date_trunc", *(f"'{unit}', {{time}}" for unit in _UNITS)),
    *_of("date_diff date_sub", *(f"'{unit}', {{time}}, {{same}}" for unit in _UNITS)),
    *_of("date_diff", "'day', {day}, {ts2}", "'month', {time}, DATE '2000-02-29'", "'hour', {ts}, {ts2}"),
    *("{day} + 1", "{day} - 100000", "{day} - {day2}", "{day} + 2147483647", "{day} - DATE '1970-01-01'"),
    *(f"{{time}} + INTERVAL {n} {unit}" for n, unit in product([1, 13, 999_999], _UNITS[2:])),
    *(f"{{time}} - INTERVAL {n} {unit}" for n, unit in product([1, 999_999], _UNITS[2:])),
    *(f"time_bucket(INTERVAL {n} {unit}, {{time}})" for n, unit in product([1, 15], _UNITS[2:])),
    *_of("epoch_ms epoch_us epoch_ns last_day dayname monthname date", "{time}"),
    *_of("epoch_ms", "{i}"),
    *_of("strftime", *(f"{{time}}, '{layout}'" for layout in _FORMATS)),
    *_of(
        "strptime", *(f"{{t}}, '{layout}'" for layout in ["%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%H:%M", "%d/%m/%Y", "%B"])
    ),
    *("TIMESTAMP '2026-01-31 12:00:00' > {ts}", "{ts} > {day2} + INTERVAL 1 DAY"),
]
CASTS = [
    *(f"CAST({{any}} AS {type_})" for type_ in _TYPES.split()),
    *("CAST({num} AS DECIMAL(3,3))", "CAST({t} AS DECIMAL(3,3))"),  # of TRUE DuckDB makes 0.001
]
SHAPES = {
    "comparisons": COMPARED,
    "choices": CHOSEN,
    "numbers": NUMBERS,
    "texts": TEXTS,
    "times": TIMES,
    "casts": CASTS,
}


def expand_shape(shape: str, stored: Mapping[str, str]) -> Iterator[str]:
    """Yield the expressions of a shape over columns of the rows l and r, whose types are `stored`, by name.

    Columns that the engine does not store are left out, and those of TINYINT and unsigned integers that it stores as
    another type.
    """
    holes = [*dict.fromkeys(hole.group(1) for hole in _HOLE.finditer(shape) if hole.group(1) in _COLUMNS)]
    for columns in product(*(_COLUMNS[hole] for hole in holes)):
        if any(_NATURAL.get(column, stored.get(column, "")) != stored.get(column) for column in columns):
            continue
        text = shape
        for hole, column in zip(holes, columns, strict=True):
            text = text.replace(f"{{{hole}}}", f"l.{column}").replace(f"{{{hole}2}}", f"r.{column}")
        first = columns[0] if columns else ""
        for other in _partners(text, first, stored=stored):
            yield text.replace("{same}", f"r.{first}").replace("{other}", f"r.{other}")


def _partners(text: str, column: str, *, stored: Mapping[str, str]) -> Iterable[str]:
    return [other for other in _OTHERS if other != column and other in stored] if "{other}" in text else [""]
