"""Tables of the suite, in Arrow: the extremes of every type, units with many rows, an empty table.

Infinite dates and time stamps are the ends of their integers, as DuckDB returns them. A kit replaces what its engine
cannot store, by `fit_table`, for the engine and for the DuckDB that it is compared with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import product

import pyarrow as pa
import pyarrow.compute as pc

_NAN, _INF = float("nan"), float("inf")
_LAST_DAY, _LAST_MOMENT = 2**31 - 1, 2**63 - 1  # infinity, as DuckDB writes it
_DAY = 86_400_000_000  # microseconds
TYPES: Mapping[str, pa.DataType] = {
    "flag": pa.bool_(),
    "tiny": pa.int8(),
    "small": pa.int16(),
    "n": pa.int32(),
    "big": pa.int64(),
    "u8": pa.uint8(),
    "u16": pa.uint16(),
    "u32": pa.uint32(),
    "amount": pa.decimal128(10, 2),
    "wide": pa.decimal128(18, 4),
    "price": pa.float64(),
    "ratio": pa.float32(),
    "article": pa.string(),
    "day": pa.date32(),
    "moment": pa.timestamp("us"),
}
VALUES: Mapping[str, Sequence[object]] = {
    "flag": [True, False],
    "tiny": [0, 1, -1, 127, -128, 7, 100],
    "small": [0, 1, -1, 32767, -32768, 255, 10],
    "n": [0, 1, -1, 2**31 - 1, -(2**31), 10, -7, 4, 2026],
    "big": [0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1, -(2**53) - 1, 999_999, 12, -5, 2**31, 3_037_000_500],
    "u8": [0, 1, 255, 2, 128],
    "u16": [0, 1, 65535, 300],
    "u32": [0, 1, 2**32 - 1, 12, 2**31],
    "amount": list(
        map(Decimal, "0.00 1.50 -1.50 99999999.99 -99999999.99 2.00 0.01 -0.01 0.05 2.50 -2.50 1.25".split())
    ),
    "wide": list(
        map(Decimal, "0.0000 0.0001 -0.0001 99999999999999.9999 -99999999999999.9999 2.5000 0.5000 -0.5000".split())
    ),
    "price": [
        *(0.0, -0.0, 1.5, -1.5, 2.5, -2.5, 0.5, -0.5, 3.5, 0.1, 0.3, 1e-7, 123456.789, 0.49999999999999994),
        *(_NAN, _INF, -_INF, 1.7976931348623157e308, -1.7976931348623157e308, 5e-324, 2.2250738585072014e-308),
        *(1e18, 9.223372036854775e18, 9.223372036854776e18, -9.223372036854776e18, 2147483647.5, 4503599627370497.5),
        *(1.005, 2.675, 1e16, 1e15, 1e17, 1e-5, 1e22, 100.0, 1e23, 12345678.9, -1e-300, 255.5, 127.5, -128.5, 3e9),
    ],
    "ratio": [0.0, -0.0, 1.1, -2.5, _NAN, _INF, -_INF, 3.4028234663852886e38, 1e-45, 16777217.0],
    "article": [
        *(
            "",
            "a",
            "A",
            "b",
            "ab%c_d",
            "a\\b",
            "it's",
            'say "hi"',
            "a ",
            " a",
            "  a b  ",
            "a\nb",
            "\ta\r",
            "%",
            "_",
            "\\",
        ),
        *("\u00e9", "e\u0301", "\u00c9", "Stra\u00dfe", "STRASSE", "\u1e9e", "\u0130", "\u0131", "\u01c6", "\u01c5"),
        *("\u039f\u03b4\u03c5\u03c3\u03c3\u03b5\u03cd\u03c2", "\ufb01n", "\uff21", "\u10d0", "\U00010400", "\u00b5"),
        *("\U0001f642", "\U0001f642\u200d", "\U0001f1e9\U0001f1ea", "\u65e5\u672c\u8a9e", "\uffff", "\U0010ffff"),
        *(
            "\ue000",
            "\u00a0a",
            "\u2003",
            "a\x00b",
            "\x7f",
            "aa",
            "aB",
            "Ab",
            "AB",
            "ba",
            "abcabc",
            "a,b,,c",
            ",",
            "a.b",
        ),
        *("0", "-0", "12", " 12 ", "+12", "-7", "1.5", ".5", "5.", "1e3", "1E400", "-1e-400", "0x10", "1_000", "12abc"),
        *(
            "NaN",
            "nan",
            "Infinity",
            "-inf",
            "inf",
            "infinity",
            "-infinity",
            "true",
            "TRUE",
            "t",
            "f",
            "no",
            "yes",
            "on",
        ),
        *(
            "2147483647",
            "2147483648",
            "9223372036854775807",
            "9223372036854775808",
            "-9223372036854775808",
            "2.5",
            "-2.5",
        ),
        *(
            "99999999.99",
            "99999999.995",
            "1.005",
            "0.1",
            "9" * 30,
            "2.675",
            "1e18",
            "-129",
            "128",
            "65536",
            "\u0661\u0662",
        ),
        *(
            "2026-01-31",
            "2026-02-30",
            "2024-02-29",
            "1582-10-10",
            "0001-01-01",
            "10000-01-01",
            "2026-1-3",
            "2026/01/31",
        ),
        *(
            "2026-01-31 10:20:30",
            "2026-01-31T10:20:30.123456",
            "2026-01-31 10:20:30+02",
            "2026-01-31 24:00:00",
            "20260131",
        ),
        *(
            "0001-01-01 (BC)",
            "epoch",
            "today",
            "now",
            "10:20:30",
            "2026-01-31 25:00:00",
            "2026-01-31 10:20:30.1234567Z",
        ),
        *("x" * 3000, "\u00e9" * 1025, "DE", "de", "DE ", "10:00", "31/01/2026", "January", "00:00:00", "1"),
    ],
    "day": [
        *(
            20484,
            0,
            -1,
            19782,
            11016,
            -25509,
            -141428,
            -141434,
            -719162,
            -719163,
            2932896,
            2932897,
            -682944,
            20453,
            20818,
        ),
        *(_LAST_DAY, -_LAST_DAY, 106_751_991, -2_451_545, 365, 59, 60, 18262, 18261, 18627, 17896, 19722, 23845),
    ],
    "moment": [
        *(20484 * _DAY + 86_399_999_999, 0, -1, 1, 19782 * _DAY + 43_200_000_000, 20484 * _DAY, -141428 * _DAY + 1),
        *(
            -719162 * _DAY,
            -719162 * _DAY - 1,
            2932897 * _DAY - 1,
            2932897 * _DAY,
            1_234_567_890_123_456,
            -62_135_596_800_000_001,
        ),
        *(
            _LAST_MOMENT,
            -_LAST_MOMENT,
            9_223_372_022_400_000_000,
            -9_223_372_022_400_000_000,
            18262 * _DAY - 1,
            999_999,
        ),
        *(20484 * _DAY + 37_230_123_000, 20818 * _DAY + 500_000, -25509 * _DAY - 500_000, 11016 * _DAY + 3_599_999_999),
    ],
}
COUNTRIES = ["DE", "FR", "de", "US", "DE ", "\u00d6", "O\u0308", "\U0001f1e9\U0001f1ea", ""]
_PLAIN_DAYS = [20454, 20455, 20460, 20484, 20485, 20513, 19782, 18262, 18261, 0]


def _array(values: Sequence[object], type_: pa.DataType) -> pa.Array:
    if pa.types.is_date32(type_):
        return pa.array(values, pa.int32()).view(type_)
    if pa.types.is_timestamp(type_):
        return pa.array(values, pa.int64()).view(type_)
    return pa.array(values, type_)


def _cycled(values: Sequence[object], at: int, *, step: int) -> object:
    """Go through the values, and NULL, at another phase in every column."""
    position = (at + (at // (len(values) + 1)) * step) % (len(values) + 1)
    return None if position == len(values) else values[position]


def _column(name: str, rows: int, *, step: int) -> pa.Array:
    return _array([_cycled(VALUES[name], at, step=step) for at in range(rows)], TYPES[name])


def _lefts() -> pa.Table:
    """Row i has value i of every column, row 0 NULL in all: crossed with itself, each value meets each other."""
    rows = max(map(len, VALUES.values()))
    columns = {
        name: _array([None, *(VALUES[name][at % len(VALUES[name])] for at in range(rows))], type_)
        for name, type_ in TYPES.items()
    }
    return pa.table({"id": pa.array(range(rows + 1), pa.int64()), **columns})


def _reads() -> pa.Table:
    """Rows of 40 units, of which 1 has every other row, some have no unit, and ties are plenty."""
    rows = 480
    units = [None if at % 17 == 16 else 1 if at % 2 else at % 41 - 1 for at in range(rows)]
    columns = {name: _column(name, rows, step=step) for step, name in enumerate(TYPES)}
    columns["day"] = _array([_cycled([*_PLAIN_DAYS, *VALUES["day"]], at, step=3) for at in range(rows)], pa.date32())
    country = [_cycled(COUNTRIES, at * 7 + at // 5, step=1) for at in range(rows)]
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "user_id": pa.array(units, pa.int64()),
            "country": pa.array(country, pa.string()),
            **columns,
        }
    )


def _likes() -> pa.Table:
    rows = 120
    articles = [*list(VALUES["article"][:14]), None]
    return pa.table(
        {
            "user_id": pa.array([None if at % 13 == 5 else at % 29 for at in range(rows)], pa.int64()),
            "article": pa.array([articles[(at * 4 + at // 7) % len(articles)] for at in range(rows)], pa.string()),
            "stars": pa.array([_cycled([1, 2, 3, 5], at, step=1) for at in range(rows)], pa.int16()),
            "weight": pa.array([_cycled([0.5, -0.0, 0.1, 0.2, 0.3, 1e16, _NAN], at, step=2) for at in range(rows)]),
        }
    )


def _comments() -> pa.Table:
    """Rows that belong to the unit of the row of `reads` that they name; some name none, or one without a unit."""
    rows = 150
    return pa.table(
        {
            "read_id": pa.array([None if at % 31 == 7 else (at * 11) % 500 for at in range(rows)], pa.int64()),
            "word": pa.array([_cycled(["good", "Good", "bad", "", "\U0001f642"], at, step=2) for at in range(rows)]),
            "votes": pa.array([_cycled([0, 1, 5, -3], at, step=1) for at in range(rows)], pa.int32()),
        }
    )


def _visits(rows: int, *, step: int) -> pa.Table:
    """Rows of units of text, of which some differ in case, in blanks at the end or in how an accent is written."""
    units = [*list(VALUES["article"][:30]), None, "\U0001f642", "\U0001f642\u200d", "x" * 3000]
    return pa.table(
        {
            "member": pa.array([units[(at * step) % len(units)] for at in range(rows)], pa.string()),
            "page": pa.array([_cycled(["p", "P", "q", "p ", ""], at, step=1) for at in range(rows)], pa.string()),
            "seconds": pa.array([_cycled([0, 1, 60, 3600], at, step=3) for at in range(rows)], pa.int32()),
        }
    )


def _countries() -> pa.Table:
    names = ["DE", "FR", "US", "US", "de", "\u00d6", None, "", "ZZ"]
    continents = ["Europe", "Europe", "America", "Twice", "Lower", "Europe", "None", None, "Nowhere"]
    return pa.table(
        {
            "country": pa.array(names, pa.string()),
            "continent": pa.array(continents, pa.string()),
            "people": pa.array([83_000_000, 68_000_000, 340_000_000, 1, 5, None, 0, -1, 2**62], pa.int64()),
            "area": pa.array([357.5, _NAN, 9834.0, -0.0, 0.0, None, _INF, 1.0, 0.1]),
        }
    )


def _days() -> pa.Table:
    days = [20454, 20455, 20460, 20484, 19782, 0, None]
    return pa.table(
        {
            "day": _array(days, pa.date32()),
            "holiday": pa.array([True, False, None, True, False, True, False]),
            "week": pa.array([1, 1, 2, 5, 9, 1, None], pa.int16()),
        }
    )


LEFTS = _lefts()
TABLES: Mapping[str, pa.Table] = {
    "reads": _reads(),
    "likes": _likes(),
    "comments": _comments(),
    "visits": _visits(170, step=3),
    "friends": _visits(28, step=7),
    "nothing": _reads().slice(0, 0),
    "countries": _countries(),
    "days": _days(),
    "lefts": LEFTS,
    "rights": LEFTS,
}


def fit_table(
    table: pa.Table,
    *,
    stored: Mapping[pa.DataType, pa.DataType] | None = None,
    days: tuple[int, int] = (-_LAST_DAY, _LAST_DAY),
    moments: tuple[int, int] = (-_LAST_MOMENT, _LAST_MOMENT),
    infinite: bool = True,
    zero_bytes: bool = True,
) -> pa.Table:
    """Return a table as an engine can store it: types by `stored`, and NULL for what is beyond its calendar.

    `days` and `moments` are the first and last finite ones, since 1970 and in microseconds; `infinite` says whether the
    engine has dates without end, `zero_bytes` whether a text may have a character of code 0.
    """
    for at, field in enumerate(table.schema):
        column = table.column(at).combine_chunks()
        if field.type in (stored or {}):
            column = column.cast((stored or {})[field.type])
        elif pa.types.is_date32(field.type):
            column = _within(column, pa.int32(), ends=days, last=_LAST_DAY, infinite=infinite)
        elif pa.types.is_timestamp(field.type):
            column = _within(column, pa.int64(), ends=moments, last=_LAST_MOMENT, infinite=infinite)
        elif pa.types.is_string(field.type) and not zero_bytes:
            column = pa.array([None if "\0" in (text or "") else text for text in column.to_pylist()], pa.string())
        table = table.set_column(at, field.name, column)
    return table


def _within(column: pa.Array, plain: pa.DataType, *, ends: tuple[int, int], last: int, infinite: bool) -> pa.Array:
    numbers = column.view(plain)
    endless = pc.is_in(numbers, pa.array([-last, last], plain))
    kept = pc.and_(pc.greater_equal(numbers, ends[0]), pc.less_equal(numbers, ends[1]))
    kept = pc.or_(kept, endless) if infinite else pc.and_not(kept, endless)
    return pc.if_else(kept, numbers, pa.scalar(None, plain)).view(column.type)


# Shapes: expressions of every function and operator of the language, over columns of all types that it accepts.
#
# In a shape, {any} stands for each column in turn, {same} for the same column of the other row, and {other} for a
# number of another type there. {i} {d} {x} {num} {t} {b} {day} {ts} {time} stand for the columns of one kind, and with
# a 2 behind the name for those of the other row. Expressions that the language refuses are left out.
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
        # {any} = {same} becomes l.price = r.price, and {num} < {other} becomes l.price < r.n.
        first = columns[0] if columns else ""
        for other in _partners(text, first, stored=stored):
            yield text.replace("{same}", f"r.{first}").replace("{other}", f"r.{other}")


def _partners(text: str, column: str, *, stored: Mapping[str, str]) -> Iterable[str]:
    return [other for other in _OTHERS if other != column and other in stored] if "{other}" in text else [""]
