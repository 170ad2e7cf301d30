"""Sizes: each limit of a statement at its boundary, and how long a text an expression can make."""

from __future__ import annotations

import time
from collections.abc import Callable

import duckdb
import pytest
from support.sql_reference import LONGEST, catalog_of, corpus_tables, private

from dpsql.errors import Error, Refusal, Unsupported
from dpsql.sql.allow_list import COLUMN_CAP, MAX_VALUE_LENGTH
from dpsql.sql.ir.catalog import Catalog, Table
from dpsql.sql.ir.tree import BIGINT, TEXT
from dpsql.sql.rewrite.engine_query import rewrite_leaders

CON = corpus_tables()
CATALOG = catalog_of(CON, {"reads": "user_id"}, ["countries", "articles"])
TAIL = " GROUP BY k TOP 9 PRIVATE"


def keyed(expression: str) -> str:
    return f"SELECT {expression} AS k FROM reads{TAIL}"


def filtered(condition: str) -> str:
    return f"SELECT article AS k FROM reads WHERE {condition}{TAIL}"


def padded(size: int, letter: str) -> str:
    text = filtered("TRUE") + " /*"
    return text + letter * ((size - len(text) - 2) // len(letter.encode())) + "*/"


def words(count: int) -> str:
    signs = count - len("SELECT article AS k FROM reads WHERE TRUE GROUP BY k TOP 9 PRIVATE".split()) + 1  # GROUP BY
    return filtered("TRUE" + " OR TRUE" * (signs // 2) + (" OR (TRUE" if signs % 2 else ""))


def tables(count: int) -> str:
    crossed = "".join(f" CROSS JOIN countries AS c{at}" for at in range(count - 2))
    return f"WITH t AS (SELECT user_id, article AS k FROM reads) SELECT k FROM t CROSS JOIN articles{crossed}{TAIL}"


def keys(count: int) -> str:
    return f"SELECT {', '.join(f'dwell + {at} AS k{at}' for at in range(count))} FROM reads GROUP BY ALL TOP 9 PRIVATE"


def columns(count: int) -> str:
    more = ", ".join(f"dwell + {at} AS k{at}" for at in range(count - 2))
    return f"SELECT k FROM (SELECT user_id, {more}, article AS k FROM reads) AS t{TAIL}"


def nested(count: int) -> str:
    around = "(SELECT * FROM " * (count - 1), ") AS t" * (count - 1)
    return f"SELECT k FROM {around[0]}(SELECT user_id, article AS k FROM reads) AS t{around[1]}{TAIL}"


LIMITS: dict[str, tuple[Callable[[int], str], int, str]] = {
    "bytes": (lambda n: padded(n, "x"), 128 * 1024, "too-long"),
    "values": (
        lambda n: filtered(f"article IN ({', '.join(['dwell::VARCHAR', *map(repr, map(str, range(n)))])})"),
        3_100,
        "too-long",
    ),
    "conditions under AND": (lambda n: filtered(" AND ".join(["TRUE"] * n)), 500, "too-large"),
    "conditions under NOT": (lambda n: filtered(f"NOT ({' OR '.join(['TRUE'] * n)})"), 500, "too-large"),
    "columns of a subquery": (columns, 256, "too-long"),
    "items of unnest": (
        lambda n: f"SELECT k FROM reads, unnest([{', '.join(['article'] * n)}]) AS x(k){TAIL}",
        64,
        "too-large",
    ),
    "rows of unnest": (
        lambda n: (
            f"SELECT k FROM reads{''.join(f', unnest([1, 2, 3, 4]) AS x{at}(k{at})' for at in range(n))}, "
            f"(SELECT unnest(['a', 'b']) AS k, unnest(['c', 'd']) AS j FROM countries) AS y{TAIL}"
        ),
        7,
        "too-large",
    ),
    "subqueries": (nested, 63, "too-many-tables"),
    "branches": (
        lambda n: f"SELECT k FROM ({' UNION ALL '.join(['SELECT user_id, article AS k FROM reads'] * n)}) AS t{TAIL}",
        16,
        "too-many-tables",
    ),
    "depth": (lambda n: filtered("(" * n + "TRUE" + ")" * n), 31, "too-deep"),
    "calls": (lambda n: keyed("abs(" * n + "dwell" + ")" * n), 31, "too-deep"),
    "tables": (tables, 16, "too-many-tables"),
    "keys": (keys, 16, "keys"),
    "bytes of a pattern": (lambda n: filtered(f"regexp_matches(article, '{'a' * n}')"), 256, "function-arguments"),
    "bytes of a format": (lambda n: keyed(f"strftime(ts, '{'x' * n}')"), 256, "function-arguments"),
    "positions": (lambda n: keyed(f"left(article, {n})"), 10_000, "function-arguments"),
    "joined texts": (lambda n: keyed(" || ".join(["article"] * n)), MAX_VALUE_LENGTH // COLUMN_CAP, "too-large"),
    "concatenated texts": (lambda n: keyed(f"concat({', '.join(['article'] * n)})"), 16, "function-arguments"),
    "joined items": (
        lambda n: f"SELECT {' || '.join(['item'] * n)} AS k FROM reads, unnest([article, 'a']) AS x(item){TAIL}",
        MAX_VALUE_LENGTH // COLUMN_CAP,
        "too-large",
    ),
    "replacements": (lambda n: keyed(f"replace(article, 'a', '{'b' * n}')"), 16, "too-large"),
    "replaced patterns": (lambda n: keyed(f"regexp_replace(article, 'a', '{'b' * n}', 'g')"), 14, "too-large"),
    "first replaced pattern": (lambda n: keyed(f"regexp_replace(article, 'a', '{'b' * n}')"), 15_360, "too-large"),
    "separators": (lambda n: keyed(f"concat_ws('{'-' * n}', article, country)"), 14_336, "too-large"),
}


def test_there_is_a_limit_of_words() -> None:
    private(words(6_399), CATALOG)
    with pytest.raises(Refusal) as refused:
        private(words(6_405), CATALOG)
    assert refused.value.code == "too-long"


@pytest.mark.parametrize("limit", LIMITS)
def test_a_statement_at_the_limit_is_read_and_one_above_is_refused(limit: str) -> None:
    text, most, code = LIMITS[limit]
    private(text(most), CATALOG)
    with pytest.raises(Error) as refused:
        private(text(most + 1), CATALOG)
    assert refused.value.code == code
    assert refused.value.hint or code == "function-arguments"


def test_bytes_are_counted_not_characters() -> None:
    with pytest.raises(Refusal) as refused:
        private(padded(132_000, "é"), CATALOG)
    assert refused.value.code == "too-long"


@pytest.mark.parametrize("twice", ["x || x", "concat(x, x)", "replace(x, 'a', 'bb')", "if(x = '', x, x || x)"])
@pytest.mark.parametrize(("start", "most"), [("article || article || article", 2), ("left(article, 4000)", 2)])
def test_a_text_cannot_double_from_cte_to_cte(start: str, most: int, twice: str) -> None:
    def nested(levels: int) -> str:
        steps = "".join(f", t{at} AS (SELECT user_id, {twice} AS x FROM t{at - 1})" for at in range(1, levels + 1))
        return f"WITH t0 AS (SELECT user_id, {start} AS x FROM reads){steps} SELECT x AS k FROM t{levels}{TAIL}"

    private(nested(most), CATALOG)
    with pytest.raises(Refusal) as refused:
        private(nested(most + 1), CATALOG)
    assert refused.value.code == "too-large"


def test_what_is_cut_short_may_be_joined_often() -> None:
    private(keyed("replace(left(article, 8), '', 'x') || " + " || ".join(["substring(article, 3, 8)"] * 25)), CATALOG)


def test_a_text_cannot_double_from_subquery_to_subquery() -> None:
    inner = "SELECT user_id, concat(article, article, article, article) AS x FROM reads"
    for _ in range(2):
        inner = f"SELECT user_id, x || x AS x FROM ({inner}) AS t"
    private(f"SELECT x AS k FROM ({inner}) AS t{TAIL}", CATALOG)
    with pytest.raises(Refusal) as refused:
        private(f"SELECT x || x AS k FROM ({inner}) AS t{TAIL}", CATALOG)
    assert refused.value.code == "too-large"


@pytest.mark.parametrize(
    "pattern",
    [
        "(a?){100}(a?){100}(a?){100}(a?){100}",
        "((a{100}){100}){100}",
        "(((a?){30}){30}){30}",
        "(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)x",
        "(x+x+)+y",
        "[^a]{1000}",
        "(?i)" + "(a|b|c|d)*" * 20,
        "\\pL{500}",
        "(" * 60 + "a" + ")*" * 60,
        "(",
        "a{2,1}",
        "(?=a)",
        "\\1",
    ],
)
def test_a_pattern_that_explodes_is_refused_or_answered_at_once(pattern: str) -> None:
    started = time.process_time()
    for text in (
        filtered(f"regexp_matches(article, '{pattern}')"),
        filtered(f"regexp_full_match(article, '{pattern}', 'is')"),
    ):
        try:
            private(text, CATALOG)
        except (Refusal, Unsupported):
            continue
        long = "SELECT regexp_matches(repeat('xa', 512), $1)"
        duckdb.execute(long, [pattern]).fetchall()
    assert time.process_time() - started < LONGEST


LONG = f"concat({', '.join(['article'] * 16)})"
PASSED_ON = [  # a subquery that puts out user_id and m, which can be as long as LONG
    f"SELECT user_id, {LONG} AS m FROM reads",
    f"SELECT DISTINCT user_id, {LONG} AS m FROM reads",
    f"SELECT user_id, MIN({LONG}) AS m FROM reads GROUP BY user_id",
    f"SELECT user_id, {LONG} AS m FROM reads GROUP BY 1, 2",
    f"SELECT user_id, MAX({LONG}) OVER (PARTITION BY user_id) AS m FROM reads",
    f"SELECT user_id, lag({LONG}) OVER (PARTITION BY user_id ORDER BY ts) AS m FROM reads",
    f"SELECT user_id, first_value({LONG}) OVER (PARTITION BY user_id ORDER BY ts) AS m FROM reads",
    f"SELECT user_id, 'x' AS m FROM reads UNION SELECT user_id, {LONG} FROM reads",
    (
        f"SELECT user_id, m FROM (SELECT user_id, {LONG} AS m FROM reads) AS a FULL JOIN (SELECT user_id, m FROM "
        f"(SELECT user_id, {LONG} AS m FROM reads) AS b) AS c USING (user_id, m)"
    ),
]


@pytest.mark.parametrize("inside", PASSED_ON)
def test_a_text_stays_as_long_as_it_may_be_when_a_subquery_passes_it_on(inside: str) -> None:
    private(f"SELECT m AS k FROM ({inside}) AS t{TAIL}", CATALOG)
    with pytest.raises(Refusal, match="too-large"):
        private(f"SELECT m || m AS k FROM ({inside}) AS t{TAIL}", CATALOG)


@pytest.mark.parametrize("levels", [2, 5])
def test_stars_that_multiply_in_subqueries_are_refused_at_once(levels: int) -> None:
    text = "SELECT * FROM reads"
    for level in range(levels):
        text = f"SELECT {', '.join(['*'] * 100)} FROM ({text}) AS t{level}"
    started = time.process_time()
    for origin in (f"({text}) AS a", f"reads WHERE user_id IN ({text})", f"reads WHERE EXISTS ({text})"):
        with pytest.raises(Refusal, match="too-large"):
            private(f"SELECT article FROM {origin} GROUP BY article TOP 5 PRIVATE", CATALOG)
    assert time.process_time() - started < LONGEST


def test_stars_may_stand_for_the_columns_of_wide_tables() -> None:
    columns = tuple((f"c{at}", TEXT) for at in range(1_000))
    wide = Catalog((Table("wide", ("memory", "main", "wide"), (*columns, ("unit", BIGINT)), "unit"),))
    private("SELECT c7 FROM (SELECT * FROM wide) AS w GROUP BY c7 TOP 5 PRIVATE", wide)


@pytest.mark.parametrize(
    "name",
    "json json_extract chr repeat lpad rpad format printf error hash random uuid gen_random_uuid setseed factorial "
    "levenshtein jaccard hamming damerau_levenshtein editdist3 from_base64 unhex decode encode make_date "
    "make_timestamp to_timestamp timezone bar range generate_series list_resize nextval currval txid_current "
    "version current_setting "
    "getvariable sleep_ms pg_sleep query query_table read_text read_csv regexp_split_to_array string_split "
    "current_schema current_user to_json json_value".split(),
)
def test_what_can_raise_grow_or_change_is_not_on_the_list(name: str) -> None:
    for arguments in ("", "article", "article, 3", "article, 3, 'x'"):
        with pytest.raises(Error) as refused:
            private(keyed(f"{name}({arguments})"), CATALOG)
        assert refused.value.code in {"function", "not-row-local", "keyword"}, refused.value


def test_many_conditions_joined_by_or_are_read_and_counted() -> None:
    text = filtered(" OR ".join(f"article = 'a{at}'" for at in range(1_500)))
    counting = rewrite_leaders(private(text, CATALOG), 100)
    found = CON.execute(counting.sql, list(counting.parameters)).fetchall()
    assert len(found) == 15


def test_a_long_text_is_not_written_out_often() -> None:
    once = f"CASE '{'x' * 70_000}' WHEN article THEN 1 END"
    private(keyed(once), CATALOG)
    with pytest.raises(Refusal) as refused:
        private(keyed(once.replace(" END", " WHEN country THEN 2 END")), CATALOG)
    assert refused.value.code == "too-large"


def test_parameters_are_together_no_longer_than_a_message() -> None:
    text = filtered(f"article IN ({', '.join('?' * 600)})")
    private(text, CATALOG, ["x" * 1_000] * 600)
    with pytest.raises(Refusal) as refused:
        private(text, CATALOG, ["x" * 16_000] * 600)
    assert refused.value.code == "too-long"


def test_a_list_that_a_full_join_merges_is_counted_wherever_it_is_named() -> None:
    def named(times: int) -> str:
        items = ", ".join(["'a'"] * 64)
        where = " OR ".join(["continent = 'b'"] * times)
        source = f"reads CROSS JOIN unnest([{items}]) AS x(continent) FULL JOIN countries USING (continent)"
        return f"SELECT article AS k FROM {source} WHERE {where}{TAIL}"

    private(named(1), CATALOG)
    with pytest.raises(Refusal) as refused:
        private(named(20), CATALOG)
    assert refused.value.code == "too-large"
