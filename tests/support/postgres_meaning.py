"""Rows, and expressions over them that mean the same in PostgreSQL and over dpsql's port."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

__all__ = ["ALIKE", "COLUMNS", "CONDITIONS", "KEYS", "POLICY", "ROWS", "UNITS"]

UNITS = 400  # of each row
COLUMNS = (
    "id INTEGER, t VARCHAR, i INTEGER, b BIGINT, d DOUBLE PRECISION, m DECIMAL(10, 2), day DATE, ts TIMESTAMP, "
    "z VARCHAR, f BOOLEAN"
)
ROWS = [
    (1, "a_b", 7, 7, 2.5, Decimal("2.50"), date(2026, 1, 1), "2026-01-01 23:59:59", None, True),
    (2, "axb", -7, -7, -2.5, Decimal("-2.50"), date(2024, 12, 30), "2024-12-30 00:00:00", "x", False),
    (3, "100%", 3, 3, 3.5, Decimal("3.45"), date(2024, 2, 29), "2024-02-29 12:30:15", "", True),
    (4, "a\\b", 0, 0, 0.0, Decimal("0.00"), date(1970, 1, 1), "1970-01-01 00:00:00", "\\\\", None),
    (5, "Ärger", 100, 10**12, 1e10, Decimal("99999.99"), date(2000, 2, 29), "2000-02-29 05:05:05", "é", False),
    (6, " x y ", None, None, None, None, None, None, "a.b", None),
    (7, "l1\nl2", -1, 2**31, 0.5, Decimal("0.55"), date(1999, 12, 31), "1999-12-31 23:00:00", "1e3", True),
    (8, "", 12, 9, 1.5, Decimal("1.05"), date(2026, 11, 27), "2026-11-27 17:00:00", "t", False),
]
POLICY = """
ledger = "ledger.sqlite"

[budget]
epsilon = 100
delta = 1e-2
items = 600
queries = 300

[limits]
max_epsilon = 50

[sql]
implicit = true

[tables.visits]
privacy_unit = "user_id"

[tables.visits.bounds]
rows = 1

[tables.facts]
public = true

[server]
users = "users.toml"
statements_per_minute = 100000
"""

# values over the rows of a public table
ALIKE = r"""
t LIKE 'a\_b'
t NOT LIKE 'a\_b'
t ILIKE 'A\_B'
t LIKE 'a_b'
t LIKE '%\%'
t LIKE 'a\\b'
t LIKE 'a\b'
t LIKE 'a\b' ESCAPE ''
t LIKE '100!%' ESCAPE '!'
t ~~ 'a\_b'
t !~~ 'a\_b'
t ~~* 'A\_%'
t !~~* 'A\_%'
t LIKE E'a\\_b'
t LIKE z
t LIKE z || '%'
t ~ 'l1.l2'
t ~ '^a.b$'
t ~* '^A'
t !~ 'b$'
t !~* 'B$'
t ~ 'l1$'
t ~ '\d+'
t ~ '\w'
i / 2
i / 3
b / 2
-i / 2
i / -2
d / 2
m / 2
m / 3
i / 2.0
i / 2e0
7 / 2
-7 / 2
(i + 1) / 2
i / 2 / 2
i * 100 / 3
100 * i / 3.0
i % 3
i % -3
mod(i, 3)
m % 1
i + 1000
i * i
abs(i)
t || z
t || 'x'
z || i
concat(t, z)
concat_ws('-', t, z)
i || 'x'
1 || '2'
length(t)
char_length(t)
upper(t)
trim(t)
ltrim(t)
rtrim(t, 'y ')
trim(both 'a' from t)
trim(leading from t)
position('b' in t)
strpos(t, 'b')
strpos(t, '')
substring(t, 2)
substring(t, 0)
substring(t, -1)
substring(t, 0, 2)
substring(t, -1, 3)
substring(t, -5, 3)
substring(t, 2, 0)
substring(t from 1 for 2)
substring(t from 0 for 2)
substr(t, 0, 2)
left(t, 2)
left(t, -1)
right(t, 2)
right(t, -1)
left(t, 0)
split_part(t, '_', 1)
split_part(t, '_', 2)
split_part(t, '_', -1)
replace(t, 'a', 'bb')
replace(t, '', 'x')
reverse(t)
repeat(t, 2)
lpad(t, 5, 'x')
ascii(t)
chr(65)
md5(t)
translate(t, 'ab', 'x')
starts_with(t, 'a')
regexp_replace(t, '[ab]', 'X')
regexp_replace(t, '[ab]', 'X', 'g')
regexp_replace(t, '(a)', '\1\1')
round(m)
round(m, 1)
round(i)
round(i, -1)
round(2.5)
round(d::numeric, 1)
round(-2.5)
trunc(d)
trunc(m, 1)
ceil(d)
ceiling(m)
floor(d)
floor(m)
floor(i / 2)
sign(d)
power(i, 2)
power(d, 2)
i ^ 2
log(100)
log(2, 8)
cast(m as int)
d::bigint
m::int
2.5::int
3.5::int
(-2.5)::int
cast(i as text)
cast(d as text)
d::text
m::text
f::text
day::text
ts::text
cast(f as int)
cast(i as boolean)
'12'::int
' 12 '::int
'1e3'::double precision
't'::boolean
'yes'::boolean
'1'::boolean
'2026-1-1'::date
'2026-01-01 10:00'::timestamp
extract(dow from day)
extract(isodow from day)
extract(week from day)
extract(isoyear from day)
extract(doy from day)
extract(quarter from day)
extract(epoch from ts)
extract(second from ts)
extract(milliseconds from ts)
extract(hour from ts)
extract(century from day)
extract(decade from day)
extract(millennium from day)
extract(julian from day)
extract(year from day)
date_part('dow', day)
date_part('hour', ts) / 5
extract(month from day) / 5
date_part('second', ts)
date_trunc('week', ts)
date_trunc('day', ts)
date_trunc('quarter', ts)
day + 1
day - 1
1 + day
day - date '2024-01-01'
day + interval '1 month'
ts + interval '1 day'
ts - interval '2 hours'
day + interval '36 hours'
day - interval '1 day'
to_char(ts, 'YYYY-MM-DD')
make_date(2026, 1, 1)
ts::date
day::timestamp
ts > day
day = '2026-01-01'
ts between '2024-01-01' and '2025-01-01'
greatest(i, 3)
least(i, 3)
greatest(i, b)
least(z, 'm')
coalesce(i, 0)
nullif(i, 7)
f and i > 0
f or null
not f
f is true
f is not true
i is distinct from 7
i in (7, null)
i not in (7, null)
case when i > 0 then 'p' end
i between 0 and 10
t = 'a_b '
t < 'b'
'a' < 'B'
z is null
z = ''
i & 3
i | 8
~i
i >> 1
gcd(i, 14)
row_number() over (order by z desc)
row_number() over (order by z)
rank() over (order by i desc)
sum(i) over ()
sum(b) over () / 7
count(*) over () / 3
avg(i) over ()
E'a\tb'
E'a\\b'
'a\b'
'it''s'
$$x$$
f::int
1/2*2.0
bool_and(f) over ()
string_agg(t, ',') over (order by id)
isfinite(day)
nullif(z, '') is null
t COLLATE "C" < 'b'
2 ^ 3 ^ 2
-2 ^ 2
5 / 2 * 2
10 % 3 * 2
i::numeric / 2
i::numeric(10,2) / 4
(i / 2)::numeric
i / 2::double precision
cast(i as double precision) / 2
sum(i) over () / 2
avg(i) over () / 2
length(t) / 2
strpos(t, 'b') / 2
(day - date '2024-01-01') / 7
floor(i) / 2
round(i) / 2
abs(i) / 2
coalesce(i, 0) / 2
case when i > 0 then i else 0 end / 2
greatest(i, 1) / 2
i / nullif(b, 0)
i::bigint / 2
i::smallint / 2
sign(i) / 2
trunc(i) / 2
""".strip().split("\n")

# conditions of private queries
CONDITIONS = r"""
t LIKE ANY (ARRAY['a\_b', '100%'])
t NOT LIKE ALL (ARRAY['a\_b', '100%'])
t ILIKE ALL ('{A%,%B}')
t LIKE 'a\_b'
t NOT LIKE 'a\_b'
t ILIKE 'A\_B'
t LIKE 'a_b'
t LIKE '%\%'
t LIKE 'a\\b'
t LIKE 'a\b'
t LIKE 'a\b' ESCAPE ''
t LIKE '100!%' ESCAPE '!'
t ~~ 'a\_b'
t !~~ 'a\_b'
t ~~* 'A\_%'
t !~~* 'A\_%'
t LIKE E'a\\_b'
t ~ 'l1.l2'
t ~ '^a.b$'
t ~* '^A'
t !~ 'b$'
t !~* 'B$'
t ~ 'l1$'
t ~ '\d+'
t ~ '\w'
starts_with(t, 'a')
cast(i as boolean)
ts > day
day = '2026-01-01'
ts between '2024-01-01' and '2025-01-01'
f and i > 0
not f
f is not true
i is distinct from 7
i in (7, null)
i not in (7, null)
i between 0 and 10
t = 'a_b '
t < 'b'
'a' < 'B'
z is null
z = ''
isfinite(day)
""".strip().split("\n")

# keys of private queries
KEYS = r"""
i / 2
b / 3
(i + 1) / 2
i * 10 / 3
-i / 2
i / -2
m / 2
d / 2
length(t) / 2
coalesce(i, 0) / 2
round(i) / 2
extract(month from day) / 5
substring(t, 0, 3)
substring(t, -1, 3)
substring(t, -2)
i % 3
extract(dow from day)
t LIKE '%\_%'
case when i > 0 then i else 0 end / 2
cast(m as int)
round(m, 1)
split_part(t, '_', -1)
""".strip().split("\n")
