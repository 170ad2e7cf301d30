"""Every function and operator of the allow-list over extreme values: none raises, each has the type it promises."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import duckdb
import pytest
from support.sql_expressions import Answer, ours
from support.sql_reference import EVERYTHING, NASTY_COLUMNS, accepts_pattern, catalog_of, nasty_tables, private

from dpsql.errors import Error
from dpsql.sql.allow_list import FUNCTIONS
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.rewrite.engine_query import rewrite_leaders
from dpsql.sql.syntax.grammar import REFUSED

CON = nasty_tables()
CATALOG = catalog_of(CON, {"nasty": "unit"}, ["public", "names"])
COLUMNS = tuple(NASTY_COLUMNS)
ROWS = CON.execute("SELECT COUNT(*) FROM nasty WHERE unit IS NOT NULL").fetchall()[0][0]
LONGEST_STORED = max(len(text) for text in NASTY_COLUMNS["t"][1])
UNITS = "microsecond millisecond second minute hour day week month quarter year".split()
CLOCK = ["now", "today", "get_current_timestamp", "transaction_timestamp", "current_timestamp", "localtimestamp"]
CLOCK += ["current_date", "pi"]
PARTS = [*UNITS, "yearweek", "decade", "century", "millennium", "era", "dow", "isodow", "doy", "isoyear", "epoch"]
POSITIONS = ["0", "1", "-1", "2", "10000", "-10000"]
FORMATS = [
    "%Y-%m-%d %H:%M:%S",
    "%a %A %b %B %p %y",
    "%U %W %u %w",
    "%V %G %f %g",
    "%-d %-m %-H %-I %-M %-S %-j",
    "%d%I%j",
    "%%",
    "x",
]


def each(names: list[str], shapes: list[str]) -> dict[str, list[str]]:
    return dict.fromkeys(names, shapes)


SHAPES = {  # how the arguments after the first are written; any other function takes one
    **each(["substr", "substring"], [f"{{}}, {at}, {to}" for at, to in product(POSITIONS, POSITIONS[:4])]),
    **each(["left", "right"], [f"{{}}, {at}" for at in POSITIONS]),
    "split_part": [f"{{}}, {cut}, {at}" for cut, at in product(["'b'", "''"], POSITIONS)],
    "translate": ["{}, 'ab', 'x'", "{}, '', 'x'", "{}, 'a', ''"],
    "concat_ws": ["',', {}", "'', {}, {}", "',', 'a', {}, NULL"],
    "if": ["b, {}, {}", "b, {}, 1", "{}, 1, 2", "b, NULL, {}"],
    "try": ["{}", "{} + 1", "-{}", "1 // {}"],
    "atan2": ["{}, 1", "0, {}", "{}, {}"],
    "width_bucket": ["{}, 0, 10, 4", "{}, -1.5, 1e300, 9999", "{}, 1, 2, 1"],
    "mod": ["{}, 0", "{}, 3", "{}, -1", "{}, {}", "7, {}", "{}, 1.5"],
    "xor": ["{}, {}", "{}, 3", "{}, -1", "{}, i8", "u16, {}"],
    "log": ["{}", "2, {}", "{}, {}", "{}, 10", "1, {}"],
    **each(["gcd", "greatest_common_divisor", "lcm", "least_common_multiple"], ["{}, {}", "{}, 2", "0, {}", "{}, -1"]),
    "date_add": [f"{{}}, INTERVAL {n} {unit}" for n, unit in product([1, 999_999], UNITS[2:])],
    "time_bucket": [f"INTERVAL {n} {unit}, {{}}" for n, unit in product([1, 15, 999_999], UNITS[2:])],
    "replace": ["{}, 'a', 'bcd'", "{}, '', 'x'", "{}, 'a', ''"],
    **each(
        ["regexp_matches", "regexp_full_match"],
        ["{}, '^a'", "{}, ''", "{}, '(?s).*'", "{}, '[^a]{1,50}'", "{}, 'A.B', 'si'"],
    ),
    "regexp_extract": ["{}, 'a(.)'", "{}, 'a(.)', 0", "{}, 'a(.)', 1", "{}, 'a(.)', 9", "{}, ''", "{}, 'A(.)', 1, 'i'"],
    "regexp_replace": ["{}, 'a', 'bb'", "{}, '', 'z'", "{}, '(.)', ''", "{}, '', 'z', 'g'", "{}, 'A', '', 'gis'"],
    **each(["pow", "power"], ["{}, 2", "{}, {}", "2, {}", "{}, -1", "{}, 0.5", "0, {}"]),
    **each(["round", "floor", "ceil", "ceiling", "trunc"], ["{}", "{}, 0", "{}, 2", "{}, -3", "{}, 400", "{}, -400"]),
    **each(["trim", "ltrim", "rtrim"], ["{}", "{}, 'a'", "{}, ''"]),
    **each(["date_part", "datepart"], [f"'{part}', {{}}" for part in PARTS]),
    **each(["date_trunc", "datetrunc"], [f"'{unit}', {{}}" for unit in UNITS]),
    **each(
        ["date_diff", "datediff", "date_sub", "datesub"],
        [f"'{unit}', {{}}, {to}" for unit, to in product(UNITS, ["{}", "DATE '2000-02-29'"])],
    ),
    **each(["strftime", "strptime", "try_strptime"], [f"{{}}, '{layout}'" for layout in FORMATS]),
    "concat": ["{}", "{}, 'a', {}", "{}, 1, 2.5"],
    **each(CLOCK, [""]),
    **each(
        ["coalesce", "ifnull", "greatest", "least", "nullif"],
        ["{}, {}", "{}, 0", "0, {}", "{}, 'a'", "{}, 1.5", "{}, NULL"],
    ),
    **each(
        ["starts_with", "prefix", "ends_with", "suffix", "contains", "strpos", "instr"],
        ["{}, 'a'", "{}, ''", "'a', {}", "{}, {}"],
    ),
}
OPERATORS = ["=", "<>", "<", ">=", "+", "-", "*", "/", "//", "%", "||", "IS DISTINCT FROM"]
OTHERS = [
    "0",
    "-1",
    "2",
    "1.5",
    "3000000000",
    "'a'",
    "NULL",
    "1e300",
    "DATE '2026-01-01'",
    "TIMESTAMP '2026-01-01 10:00:00'",
]
TYPES = "BOOLEAN TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER DECIMAL(4,1)".split()
TYPES += ["DECIMAL(18,0)", "DOUBLE", "VARCHAR", "DATE", "TIMESTAMP"]
FORMS = [
    "-{}",
    "NOT {}",
    "{} IS NULL",
    "{} IS NOT TRUE",
    "{} IN ({}, NULL)",
    "{} IN (0, 1)",
    "{} NOT IN ('a', 'b')",
    "{} BETWEEN {} AND {}",
    "{} NOT BETWEEN 0.5 AND 100",
    "{} LIKE 'a%'",
    "{} NOT ILIKE '%A_'",
    "{} LIKE '\\'",
    "{} LIKE '%b#%c#_%' ESCAPE '#'",
    "CASE {} WHEN {} THEN 1 ELSE 3000000000 END",
    "CASE WHEN b THEN {} ELSE {} END",
    "CASE WHEN b THEN {} ELSE 1 END",
    "{} + INTERVAL 999999 YEAR",
    "{} - INTERVAL '1 month'",
    "{} + 100000",
    "{} - {}",
]


def expressions_of(name: str) -> list[str]:
    return [f"{name}({shape.replace('{}', column)})" for shape, column in product(SHAPES.get(name, ["{}"]), COLUMNS)]


def accepted(expressions: list[str]) -> Iterator[str]:
    """Yield those that dpsql accepts, having checked each alone as a key: no error, and the promised type."""
    for expression in expressions:
        try:
            meant, answer = ours(CON, CATALOG, expression)
        except Error:
            continue
        except duckdb.Error as error:
            pytest.fail(f"{expression} raises: {error}")
        assert meant == answer.type, expression
        check_length(expression, answer)
        yield expression


def check_length(expression: str, answer: Answer) -> None:
    """Check that no text is longer than analysis bounds it; what has no bound is as long as a stored text."""
    if answer.type != "VARCHAR":
        return
    longest = private(f"SELECT {expression} AS k FROM nasty GROUP BY k TOP 10 PRIVATE", CATALOG).keys[0].longest
    found = max(len(str(value or "")) for ((_, value),) in answer.values.values())
    assert found <= (LONGEST_STORED if longest is None else longest), expression


def check_in_filters(expressions: list[str]) -> None:
    """Evaluate all in WHERE, a few at a time, in a condition that holds on every row and that nothing folds away."""
    for at in range(0, len(expressions), 40):
        tests = " AND ".join(f"(({each}) IS NULL OR i32 IS DISTINCT FROM 54321)" for each in expressions[at : at + 40])
        query = private(f"SELECT id FROM nasty WHERE {tests} GROUP BY id TOP 10 PRIVATE", CATALOG)
        counting = rewrite_leaders(query, EVERYTHING)
        assert len(CON.execute(counting.sql, list(counting.parameters)).fetchall()) == ROWS


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_function_never_raises_and_has_the_type_it_promises(name: str) -> None:
    found = list(accepted(expressions_of(name)))
    assert found, "No column suits it: write its arguments in SHAPES of tests/properties/sql/test_totality.py."
    check_in_filters(found)


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator_never_raises_and_has_the_type_it_promises(operator: str) -> None:
    pairs = [*product(COLUMNS, COLUMNS), *product(COLUMNS, OTHERS), *product(OTHERS, COLUMNS)]
    found = list(accepted([f"{left} {operator} {right}" for left, right in pairs]))
    assert len(found) > 10
    check_in_filters(found)


@pytest.mark.parametrize("type_", TYPES)
def test_a_cast_never_raises_and_has_the_type_it_promises(type_: str) -> None:
    found = list(accepted([f"CAST({column} AS {type_})" for column in COLUMNS]))
    assert len(found) > 10
    check_in_filters(found)


@pytest.mark.parametrize("form", FORMS)
def test_a_form_never_raises_and_has_the_type_it_promises(form: str) -> None:
    found = list(accepted([form.replace("{}", column) for column in COLUMNS]))
    assert found
    check_in_filters(found)


# What is released of one column of numbers, by the arguments.
SINGLE = "approx_count_distinct avg median stddev stddev_pop stddev_samp sum var_pop var_samp variance"
MEASURES = {"count": {"i32", "DISTINCT i32"}} | {name: {"i32"} for name in SINGLE.split()}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_mixes_rows_or_changes_is_refused(name: str) -> None:
    measure = MEASURES.get(name, set())
    for arguments in [each for each in ("", "i32", "DISTINCT i32", "i32, t") if each not in measure]:
        with pytest.raises(Error) as refused:
            analyze(
                f"SELECT t, {name}({arguments}) AS k FROM nasty GROUP BY t TOP 10 PRIVATE",
                CATALOG,
                accepts_pattern=accepts_pattern,
            )
        assert refused.value.hint
