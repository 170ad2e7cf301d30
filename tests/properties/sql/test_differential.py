"""What dpsql reads in an expression is what DuckDB reads in its text: the value on every row, and the type."""

from __future__ import annotations

from random import Random

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.fuzzing import examples
from support.sql_expressions import differences, ours
from support.sql_grammar import expression
from support.sql_reference import catalog_of, nasty_tables

from dpsql.errors import Error

CON = nasty_tables()
CON.execute("UPDATE nasty SET t = 'short' WHERE length(t) > 1000")  # concatenation cuts what is stored, on purpose
CATALOG = catalog_of(CON, {"nasty": "unit"}, ["public", "names"])
HAND_WRITTEN = """
NOT b IS NULL
NOT b = TRUE
b = TRUE IS NULL
1 < 2 IS NULL
b AND b OR NOT b
b OR b AND FALSE
NOT b AND NOT b OR b
i32 IN (1, 2) AND b
t IN ('a') OR b
i32 BETWEEN 1 + 1 AND 2 * 3 OR b
t BETWEEN 'a' AND 'b' || 'c'
'a' || t = 'ab'
t || 'b' LIKE 'a%'
i32 + 1 IN (1, 2)
i8 & u8
i32 & 3 | i64 & i16
i32 + 1 & 3 * 2 = 4
i32 & 1 = 1 AND NOT u8 | 1 IS NULL
i32 BETWEEN i8 & 7 AND 300 | u16
~i64
- ~i32
(~u8) | i8
i8 & ~u8
1 + ~ ~i8
~i8::BIGINT
@ dec
(@ -i64) & 5
@ i32::TINYINT > 1
DATE '2026-01-31 23:59:59'::TIMESTAMP = ts
DATE '2026-01-31'::VARCHAR || t
TIMESTAMP '2026-01-31 12:00:00'::DATE = day
-i32 % 3
-7 // 2
- 7 % 3
2 - -3
i32 - -1
- - 1
+i32
- '12'::BIGINT
-2147483648
-(2147483648)
- -2147483648
i32::VARCHAR || 'x'
-i32::VARCHAR::INTEGER
ts::DATE + 1
ts::DATE = '2026-01-31'
day + INTERVAL 1 DAY
day + INTERVAL (7) DAY
ts - INTERVAL '-3 months'
date_trunc('month', ts) = DATE '2026-01-01'
i64 = 9007199254740992.0
i64 > 9007199254740992.5
dec18 > 3000000000
dec > 1.555
f = 1.1
f > 3.4e38
f::VARCHAR
d::DOUBLE::VARCHAR
uid = 'FFFFFFFF-ffff-4fff-bfff-ffffffffffff'
e < 'green'
tn = 'ABC'
prefix(tn, 'a')
starts_with(tn, 'a')
b = 'true'
i8 = '1'
u8 = -1
i8 = 200
u32 = i32
i8 + u8
CASE WHEN b THEN 1 ELSE 1.5 END
CASE WHEN b THEN dec ELSE i16 END
CASE i32 WHEN 1 THEN 'x' WHEN 0 THEN 'y' END
nullif(i8, 1.5)
coalesce('1', 2)
greatest(dec, 1.555, 1)
round(dec, 1)
round(i64, -1)
NULL = NULL
NULL IS NULL
NULL IN (NULL, 1)
NULL AND b
i8 + NULL
1_000 + 1
00012
0.25::VARCHAR
1.e3
5.
.5 > 0
E'a\\tb' || t
$$it's$$ || t
'it''s' || t
t LIKE 'a\\%'
i32 || ':' || t
t || d || f || dec || b || day || ts
1 || 2
(i32 + 1) || 'x'
i32::VARCHAR || uid || e
concat(i32, NULL, d, t)
concat_ws('-', i32, NULL, 'a', f)
dec + 1
dec - dec
dec * 2
dec * 1.19
dec * dec18
dec + i32
i16 - dec
dec % 1.5
dec18 % dec
-dec18
u16 * dec
dec / 3
mod(i32, 7)
mod(i8, u8)
try(i32 // i8)
try(CAST(t AS INTEGER) + 1)
try(i32 + 1)
if(b, i8, 2.5)
if(NULL, 1, 2)
if(i32 > 0, 'x', t)
md5(t)
sha256(t)
sha1(tn)
reverse(t)
strip_accents(t)
translate(t, 'ab', 'x')
unicode(t)
ascii(t)
strlen(t)
bit_length(t)
regexp_matches(t, 'A.B', 'is')
regexp_matches(t, 'a', 'c')
regexp_full_match(t, 'A', 'i')
regexp_extract(t, 'A(.)', 1, 'i')
regexp_replace(t, 'A', '-', 'gi')
regexp_replace(t, '', '-', 'g')
regexp_replace(t, 'a', '-', 's')
sin(d) + cos(i32)
asin(d)
atan2(d, 2)
log(2, d)
degrees(d)
even(d)
gcd(i64, i32)
lcm(i32, 12)
isfinite(day)
isinf(ts)
isfinite(f)
date(ts)
date_add(day, INTERVAL 1 MONTH)
date_add(ts, INTERVAL '15 minutes')
date_sub('month', day, ts)
time_bucket(INTERVAL 15 MINUTE, ts)
time_bucket(INTERVAL '1 week', day)
time_bucket(INTERVAL 1 QUARTER, ts)
epoch_ms(ts)
epoch_ms(i64)
epoch_us(day)
epoch_ns(ts)
yearweek(day)
decade(ts)
date_part('century', day)
EXTRACT(era FROM ts)
d > 'NaN'::DOUBLE
d = 'nan'::DOUBLE
f = 'inf'::DOUBLE
d < '-Infinity'::DOUBLE
d > 'inf'
CAST('NaN' AS DOUBLE)
-'NaN'::DOUBLE
i32 < 'inf'::DOUBLE
t COLLATE C
(tn || 'x') COLLATE "C"
lower(tn) COLLATE "C"
tn COLLATE POSIX
t LIKE 'ab\\%%' ESCAPE '\\'
"""


OLDER = (
    duckdb.__version__ < "1.5"
)  # which takes -2147483648 for a BIGINT, and a IS NOT DISTINCT FROM b IS NULL otherwise
WRITTEN = [
    text
    for text in HAND_WRITTEN.replace("\\\\", "\\").strip().split("\n")
    if not OLDER or text not in {"-2147483648", "-(2147483648)"}
]


@pytest.mark.parametrize("text", WRITTEN)
def test_an_expression_means_what_duckdb_means(text: str) -> None:
    assert differences(CON, CATALOG, text) == []


@pytest.mark.skipif(OLDER, reason="some expressions mean something else to it, and dpsql means what the newest does")
@settings(
    max_examples=examples(600), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
@given(st.integers(0, 2**63), st.integers(1, 4))
def test_random_expressions_mean_what_duckdb_means(seed: int, depth: int) -> None:
    text = expression(Random(seed), depth)
    assert not differences(CON, CATALOG, text), text


@pytest.mark.parametrize("text", ["0 < i32 < 100", "b = NOT b", "t IN ('a') = b", "t LIKE 'a' IS NULL", "i32 = 1 = b"])
def test_what_the_two_parsers_may_read_differently_is_refused(text: str) -> None:
    with pytest.raises(Error) as refused:
        ours(CON, CATALOG, text)
    assert refused.value.code == "precedence"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "i32 < ?"),
        (2.5, "d < ?"),
        ("a", "t = ?"),
        (None, "t IS DISTINCT FROM ?"),
        (True, "b = ?"),
        (-(2**63), "i64 = ?"),
    ],
)
def test_a_parameter_means_what_duckdb_means(value: object, text: str) -> None:
    assert differences(CON, CATALOG, text, [value]) == []
