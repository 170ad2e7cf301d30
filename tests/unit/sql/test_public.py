"""Public queries: what is read is answered as DuckDB answers the text itself; what is not read is refused."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from support.sql_reference import accepts_pattern, as_newest, catalog_of, nasty_tables, with_enums_as_text

from dpsql.errors import Error
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.statements import Describe, PublicQuery, ShowBudget, ShowFunctions, ShowTables
from dpsql.sql.rewrite.public_query import rewrite_public

CON = nasty_tables()
CON.execute(
    "CREATE TABLE parts(id INTEGER, kind VARCHAR, price DECIMAL(9,2), weight DOUBLE, made DATE, tags VARCHAR[])"
)
CON.execute(
    "INSERT INTO parts SELECT i, ['a', 'b', NULL][1 + i % 3], i * 1.25, CASE WHEN i % 7 = 0 THEN 'nan' ELSE i / 3 END, "
    "DATE '2026-01-01' + i::INTEGER, ['x'] FROM range(40) AS t(i)"
)
CON.execute("CREATE TABLE every AS SELECT * FROM test_all_types()")
COPIED = ["id", "b", "i64", "dec18", "tn", "e", "f", "uid", "iv"]
CON.execute("CREATE TABLE copies(id INT, b BOOL, i64 BIGINT, dec18 DECIMAL(18,4), tn VARCHAR COLLATE NOCASE)")
CON.execute("ALTER TABLE copies ADD COLUMN e ENUM('red', 'Red', 'green')")
CON.execute("ALTER TABLE copies ADD COLUMN f FLOAT; ALTER TABLE copies ADD COLUMN uid UUID")
CON.execute("ALTER TABLE copies ADD COLUMN iv INTERVAL")
CON.execute(f"INSERT INTO copies SELECT {', '.join(COPIED)} FROM nasty")
CATALOG = catalog_of(CON, {"nasty": "unit"}, ["public", "names", "parts", "copies", "every"])
REFERENCE = with_enums_as_text(CON)
MANY = 1_000_000

ANSWERED = [
    "SELECT * FROM public",
    "SELECT p.* FROM public AS p WHERE low IS NOT NULL",
    "SELECT code, low FROM public ORDER BY low DESC NULLS FIRST, code",
    "SELECT 1",
    "SELECT 1 AS x, 'public', 1.5 + 2 AS y, NULL AS z, DATE '2026-01-31' AS d",
    "SELECT COUNT(*), COUNT(NULL)",
    "SELECT EXISTS (SELECT 1 FROM public), 3 IN (SELECT low FROM public) AS found",
    "SELECT code AS c, low + 1 AS l FROM public ORDER BY l LIMIT 2 OFFSET 1",
    "SELECT id FROM parts ORDER BY weight, id LIMIT 5",
    "SELECT id FROM parts ORDER BY 1 OFFSET 35",
    "SELECT DISTINCT kind FROM parts ORDER BY kind",
    "SELECT DISTINCT id % 3 AS m FROM parts ORDER BY id % 3 DESC",
    "SELECT COUNT(*) FROM parts",
    "SELECT COUNT(*), COUNT(kind), COUNT(DISTINCT kind) FROM parts",
    "SELECT SUM(id), AVG(id), MIN(id), MAX(made), SUM(price), SUM(weight), AVG(price) FROM parts WHERE id % 7 <> 0",
    "SELECT SUM(id) FROM parts WHERE id < 0",
    "SELECT kind, COUNT(*) AS n FROM parts GROUP BY kind ORDER BY n DESC, kind",
    "SELECT kind, COUNT(*) FROM parts GROUP BY ALL",
    "SELECT kind FROM parts GROUP BY kind HAVING COUNT(*) > 13 ORDER BY MAX(id)",
    "SELECT upper(kind) AS kind, COUNT(*) AS n FROM parts GROUP BY kind ORDER BY n, kind",
    "SELECT substr(kind, 1, 1) AS k, round(AVG(id), 1) AS r, SUM(id) * 2 AS s FROM parts GROUP BY substr(kind, 1, 1)",
    "SELECT id % 3 + 1 AS m, COUNT(*) FROM parts GROUP BY id % 3 HAVING id % 3 < 2 ORDER BY id % 3 DESC",
    "SELECT CASE WHEN id > 10 THEN 'big' ELSE 'small' END AS size, MIN(price) FROM parts GROUP BY 1",
    "SELECT 'all' AS what, COUNT(*) FROM parts GROUP BY what",
    "SELECT 1 AS one FROM parts HAVING COUNT(*) > 3",
    "SELECT a.id, b.kind FROM parts AS a JOIN parts AS b ON a.id + 1 = b.id WHERE a.id < 3",
    "SELECT p.code, n.label FROM public AS p LEFT JOIN names AS n ON n.unit = p.low",
    "SELECT unit, p.label FROM names AS n CROSS JOIN public AS p",
    "WITH cheap AS (SELECT id, price FROM parts WHERE price < 10) SELECT MAX(price) AS p, COUNT(*) FROM cheap",
    "SELECT k FROM (SELECT kind AS k, id FROM parts) AS x WHERE id IN (SELECT low FROM public) ORDER BY k",
    "SELECT id FROM parts WHERE kind NOT IN (SELECT label FROM names WHERE unit > 1)",
    "SELECT e.made, date_trunc('month', made) AS m FROM parts AS e WHERE made BETWEEN '2026-01-03' AND '2026-01-05'",
    "SELECT COUNT(*) FROM parts WHERE kind LIKE 'a%' OR kind IS NULL",
    "SELECT MIN(kind), MAX(kind), MIN(weight), MAX(weight) FROM parts",
    "SELECT MIN(e), MAX(e), MIN((e)), CAST(MIN(e) AS VARCHAR), MIN(CAST(e AS VARCHAR)) FROM copies",
    "SELECT b, MIN(e) AS m FROM copies GROUP BY b ORDER BY m, b",
    "SELECT CAST(MAX(weight) AS INTEGER) AS w, CAST(MIN(id) AS BIGINT) AS i FROM parts WHERE id % 7 <> 0",
    "SELECT CAST(kind AS VARCHAR) AS k, CAST(MAX(price) AS INTEGER) AS p FROM parts GROUP BY kind ORDER BY 2, 1",
    "SELECT (e) AS e, id FROM copies ORDER BY 1 DESC, 2",
    "SELECT AVG(i64), AVG(dec18) FROM copies",
    "SELECT SUM(price) > 1.555 AS a, SUM(price) IN (SELECT price FROM parts) AS b FROM parts",
    "SELECT 'all' AS what, 1 + 1 AS two FROM parts GROUP BY ALL",
    "SELECT 'all' AS what, COUNT(*) AS n FROM parts WHERE FALSE GROUP BY ALL",
    "SELECT id AS k, MAX(price) FROM parts GROUP BY ALL HAVING id + 1 > 3",
    "SELECT id FROM parts ORDER BY (1) DESC LIMIT 3",
    "SELECT id, kind FROM parts ORDER BY ((2)) NULLS FIRST, (1) DESC LIMIT 3",
    "SELECT kind, COUNT(*) AS n FROM parts GROUP BY (1)",
    "SELECT kind IN (SELECT label FROM names) AS k, COUNT(*) AS n FROM parts GROUP BY k",
    "SELECT kind FROM parts GROUP BY kind HAVING COUNT(*) IN (SELECT low + 13 FROM public) ORDER BY kind",
    "SELECT 7 AS seven, COUNT(*) AS n FROM parts GROUP BY seven HAVING COUNT(*) NOT IN (SELECT 7 FROM names)",
    "SELECT id FROM copies WHERE uid IN (SELECT uid FROM copies WHERE b)",
    "SELECT id FROM copies WHERE e IN (SELECT e FROM copies WHERE b) AND f IN (SELECT f FROM copies WHERE b)",
    "SELECT SUM(CASE WHEN kind IN (SELECT code FROM public) THEN 1 ELSE 0 END) AS n FROM parts",
]


def public(text: str, parameters: object = ()) -> PublicQuery:
    query = analyze(text, CATALOG, parameters=parameters, accepts_pattern=accepts_pattern)  # type: ignore[arg-type]
    assert isinstance(query, PublicQuery)
    return query


def answer(text: str, parameters: object = ()) -> list[tuple[object, ...]]:
    counting = rewrite_public(public(text, parameters), MANY)
    return CON.execute(counting.sql, list(counting.parameters)).fetchall()


def spelled(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Return rows with NaN equal to itself and decimals of any width alike."""
    return [tuple("nan" if isinstance(x, float) and math.isnan(x) else x for x in row) for row in rows]


@pytest.mark.parametrize("text", ANSWERED)
def test_an_answer_is_that_of_the_text_itself(text: str) -> None:
    wanted, found = REFERENCE.execute(as_newest(text)).fetchall(), answer(text)
    assert wanted
    if "ORDER BY" in text:
        assert spelled(found) == spelled(wanted)
    assert sorted(map(repr, spelled(found))) == sorted(map(repr, spelled(wanted)))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT tn, COUNT(*) AS n FROM copies GROUP BY ALL",
        "SELECT tn || 'x' AS k, COUNT(*) AS n FROM copies GROUP BY ALL HAVING COUNT(*) > 1 ORDER BY 2, 1",
    ],
)
def test_a_group_of_collated_text_shows_any_of_its_spellings(text: str) -> None:
    """DuckDB keeps the spelling that a thread met first."""
    wanted, found = (
        sorted((str(label).lower(), count) for label, count in rows)
        for rows in (CON.execute(text).fetchall(), answer(text))
    )
    assert found == wanted


def test_the_names_are_those_of_the_text() -> None:
    query = public('SELECT id, price AS "the price", COUNT(*) , lower( kind ) FROM parts GROUP BY ALL')
    assert query.names == ("id", "the price", "COUNT(*)", "lower( kind )")


def test_parameters_stand_wherever_literals_may() -> None:
    text = (
        "SELECT kind, COUNT(*) + ? FROM parts WHERE id > ? GROUP BY 1 HAVING COUNT(*) > ? ORDER BY 1 LIMIT ? OFFSET ?"
    )
    given = [1, 5, 2, 2, 1]
    assert answer(text, given) == CON.execute(text, given).fetchall()


def test_a_cast_gives_null_where_it_fails() -> None:
    assert answer("SELECT CAST(kind AS INTEGER) AS k FROM parts LIMIT 1") == [(None,)]


def test_what_the_engine_runs_holds_nothing_of_the_text() -> None:
    text = 'SELECT kind AS "x""y", COUNT(*) AS secret FROM parts WHERE kind = \'zebra\' GROUP BY kind ORDER BY secret'
    sql = rewrite_public(public(text), MANY).sql
    assert "secret" not in sql
    assert "zebra" not in sql
    assert 'x""y' not in sql


def test_an_answer_is_cut_at_the_most_rows() -> None:
    assert "LIMIT 7 OFFSET 2" in rewrite_public(public("SELECT id FROM parts LIMIT 9 OFFSET 2"), 7).sql
    assert "LIMIT 3 OFFSET 0" in rewrite_public(public("SELECT id FROM parts LIMIT 3"), 7).sql
    assert "LIMIT 7 OFFSET 0" in rewrite_public(public("SELECT id FROM parts"), 7).sql


REFUSED = {
    "SELECT code, COUNT(*) FROM public": "not-a-key",
    "SELECT COUNT(*) FROM public GROUP BY COUNT(*)": "not-a-key",
    "SELECT COUNT(*) AS n FROM public GROUP BY n": "not-a-key",
    "SELECT code FROM public ORDER BY COUNT(*)": "not-a-key",
    "SELECT code FROM public GROUP BY code HAVING low > 1": "not-a-key",
    "SELECT code FROM public GROUP BY 2": "group-position",
    "SELECT code FROM public ORDER BY 0": "group-position",
    "SELECT code FROM public ORDER BY (9)": "group-position",
    "SELECT code FROM public ORDER BY NULL": "order",
    "SELECT code FROM public ORDER BY - -1, 'x'": "order",
    "SELECT upper(code) AS k FROM public GROUP BY ALL HAVING upper(code) > 'A'": "not-a-key",
    "SELECT x.* FROM public AS p": "unknown-table",
    "SELECT p.code FROM public AS p JOIN (SELECT x.* FROM names) AS n ON TRUE": "unknown-table",
    "SELECT p.* EXCLUDE low FROM public AS p": "construct",
    "SELECT FROM public": "syntax",
    "SELECT code FROM public WHERE code IN": "syntax",
    "SELECT code FROM public, (SELECT FROM names) AS n": "syntax",
    "SELECT COUNT(*) AS n FROM public GROUP BY": "syntax",
    "SELECT COUNT(*) AS n FROM public JOIN names USING ()": "syntax",
    "SELECT COUNT(*) AS n FROM public WHERE code = CAST(low AS VARCHAR": "syntax",
    "SELECT SUM(low) AS n FROM public HAVING 1 IN (SELECT low FROM names, public WHERE SUM(low) > 1)": "aggregate",
    "SELECT id FROM copies WHERE iv IN (SELECT iv FROM copies)": "type",
    "SELECT id FROM copies WHERE NULL IN (SELECT iv FROM copies)": "type",
    "SELECT a.id FROM copies AS a JOIN copies AS b USING (iv)": "type",
    "SELECT id FROM copies WHERE b IN ((tn IN (SELECT code FROM public)))": "precedence",
    "SELECT id FROM copies WHERE b NOT IN ((tn IN (SELECT code FROM public)))": "precedence",
    "SELECT DISTINCT code FROM public ORDER BY low": "order",
    "SELECT code, label AS CODE FROM public": "output-names",
    "SELECT * FROM public AS a, public AS b": "output-names",
    "SELECT SUM(COUNT(*)) FROM public": "construct",
    "SELECT MAX(MIN(low)) FROM public": "function",
    "SELECT code FROM public WHERE COUNT(*) > 1": "aggregate",
    "SELECT code FROM public WHERE MAX(low) > 1": "function",
    "SELECT SUM(code) FROM public": "function-arguments",
    "SELECT SUM(low, low) FROM public": "function-arguments",
    "SELECT COUNT(code, low) FROM public": "construct",
    "SELECT COUNT(DISTINCT code, low) FROM public": "function-arguments",
    "SELECT median(low) FROM public": "not-row-local",
    "SELECT random() FROM public": "not-row-local",
    "SELECT row_number() OVER () FROM public": "not-row-local",
    "SELECT read_text('/etc/passwd') FROM public": "function",
    "SELECT * FROM public, duckdb_settings()": "function",
    "SELECT code FROM public UNION SELECT code FROM public": "keyword",
    "SELECT code FROM public LIMIT 10%": "construct",
    "SELECT code FROM public FOR UPDATE": "keyword",
    "SELECT code FROM public QUALIFY true": "keyword",
    "SELECT DISTINCT ON (code) code FROM public": "syntax",
    "SELECT code INTO x FROM public": "keyword",
    "SELECT *": "no-table",
    "SELECT DISTINCT 1": "no-table",
    "SELECT 1 LIMIT 1": "syntax",
    "SELECT code": "unknown-column",
    "SELECT version()": "function",
    "SELECT (SELECT COUNT(*) FROM nasty)": "not-private",
    "SELECT EXISTS (SELECT 1 FROM nasty)": "not-private",
    "SELECT 1 IN (SELECT unit FROM nasty)": "not-private",
    "SELECT 1 IN (SELECT unit FROM nasty), EXISTS (SELECT 1 FROM public)": "subquery-private",
    "WITH n AS (SELECT * FROM nasty) SELECT 1": "not-private",
    "SELECT x FROM (SELECT 1 AS x) AS t": "no-table",
    "SELECT t FROM nasty": "not-private",
    "SELECT COUNT(*) FROM nasty": "not-private",
    "SELECT COUNT(*) FROM nasty, public": "not-private",
    "SELECT COUNT(*) FROM (SELECT unit, COUNT(*) AS n FROM nasty GROUP BY unit) AS public": "not-private",
    "SELECT COUNT(*) FROM (SELECT unit FROM nasty UNION SELECT unit FROM nasty) AS public": "not-private",
    "SELECT code FROM public WHERE low = (SELECT COUNT(*) FROM nasty)": "not-row-local",
    "SELECT code FROM public WHERE low IN (SELECT COUNT(*) FROM nasty GROUP BY unit)": "subquery-private",
    "SELECT code FROM public WHERE low IN (SELECT low FROM public UNION SELECT i32 FROM nasty)": "unit-lost",
    "SELECT public.code FROM public JOIN nasty ON t = code": "not-private",
    "WITH n AS (SELECT * FROM nasty) SELECT COUNT(*) FROM n, public": "not-private",
    "SELECT COUNT(*) FROM (SELECT unit FROM nasty) AS public": "not-private",
    "SELECT COUNT(*) FROM (SELECT t FROM nasty) AS public": "unit-lost",
    "WITH public AS (SELECT unit FROM nasty) SELECT COUNT(*) FROM public": "not-private",
    "SELECT code FROM public WHERE code IN (SELECT t FROM nasty)": "subquery-private",
    "SELECT 1 FROM public WHERE code IN (SELECT t FROM nasty WHERE t IN (SELECT t FROM nasty))": "subquery-private",
    "SELECT MAX(code) FROM public HAVING MAX(code) IN (SELECT t FROM nasty)": "subquery-private",
    "SELECT code FROM public JOIN public AS q ON q.code IN (SELECT t FROM nasty)": "subquery-private",
    "SELECT code FROM public ORDER BY low IN (SELECT i32 FROM nasty)": "subquery-private",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_refusal_has_its_code_and_a_hint(text: str) -> None:
    with pytest.raises(Error) as raised:
        analyze(text, CATALOG, accepts_pattern=accepts_pattern)
    assert raised.value.code == REFUSED[text], raised.value
    assert raised.value.hint


def test_functions_can_be_shown() -> None:
    assert analyze("show functions", CATALOG, accepts_pattern=accepts_pattern) == ShowFunctions()


@pytest.mark.parametrize("text", ["SHOW TABLES", "show tables ;", "/* all */ SHOW\nTABLES -- of them"])
def test_show_tables_is_a_statement(text: str) -> None:
    assert analyze(text, CATALOG, accepts_pattern=accepts_pattern) == ShowTables()


@pytest.mark.parametrize(
    "text", ["DESCRIBE nasty", "desc NASTY;", "describe main.nasty", 'DESCRIBE "nasty"', 'DESC "main"."Nasty"']
)
def test_describe_takes_one_table(text: str) -> None:
    assert analyze(text, CATALOG, accepts_pattern=accepts_pattern) == Describe("nasty")


def test_show_budget_is_a_statement() -> None:
    assert analyze("SHOW BUDGET", CATALOG, accepts_pattern=accepts_pattern) == ShowBudget()


@pytest.mark.parametrize(
    "text",
    [
        "SHOW", "SHOW ALL TABLES", "SHOW nasty", "SHOW TABLES FROM main", "SHOW TABLES; SHOW TABLES", "SHOW 'tables'",
        "DESCRIBE", "DESCRIBE nasty nasty", "DESCRIBE a.main.nasty", "DESCRIBE 'nasty'", "DESCRIBE SELECT 1",
        "DESCRIBE nasty; DROP TABLE nasty", 'SHOW "TABLES"', '"SHOW" TABLES', "DESCRIBE nasty.unit",
        "DESCRIBE duckdb_tables()", "DESCRIBE ?", "SUMMARIZE nasty",
    ],
)  # fmt: skip
def test_nothing_else_is_shown_or_described(text: str) -> None:
    with pytest.raises(Error) as raised:
        analyze(text, CATALOG, parameters=["nasty"] if "?" in text else [], accepts_pattern=accepts_pattern)
    assert raised.value.code in {"not-a-query", "unknown-table", "not-private"}
    assert raised.value.hint


def test_a_sum_of_whole_numbers_is_one_and_a_sum_of_decimals_keeps_its_scale() -> None:
    ((whole, exact, real),) = answer("SELECT SUM(id), SUM(price), AVG(id) FROM parts")
    assert (type(whole), type(exact), type(real)) == (int, Decimal, float)


def test_in_over_a_subquery_may_not_stand_where_duckdb_does_not_bind_it() -> None:
    for text in (
        "SELECT abs(CASE WHEN low IN (SELECT unit FROM names) THEN low END) AS k FROM public",
        "SELECT SUM(low + CASE WHEN code IN (SELECT label FROM names) THEN 1 END) AS k FROM public",
        "SELECT code FROM public WHERE -CASE WHEN low IN (SELECT unit FROM names) THEN 1 END < 0",
    ):
        with pytest.raises(Error) as raised:
            answer(text)
        assert (raised.value.code, bool(raised.value.hint)) == ("subquery", True)
    found = answer(
        "SELECT abs(CASE WHEN k THEN low END) AS a FROM (SELECT low, low IN (SELECT 5 FROM names) AS k FROM public) p"
    )
    assert sorted(map(str, found)) == ["(5,)", "(None,)", "(None,)", "(None,)", "(None,)"]


@pytest.mark.parametrize(
    "name",
    "uhugeint bignum time time_tz timestamp_s timestamp_ns timestamp_tz interval bit date_array map".split(),
)
def test_a_column_that_is_not_computed_with_is_answered_as_duckdb_prints_it(name: str) -> None:
    """As Arrow and Python values zones were lost, 24:00 became 0:00 and the widest number -1."""
    rows = f'SELECT DISTINCT "{name}" AS k FROM every ORDER BY k DESC NULLS FIRST LIMIT 2'
    assert answer(rows) == CON.execute(f"SELECT k::VARCHAR FROM ({rows})").fetchall()


def test_types_that_arrow_holds_exactly_are_answered_as_they_are() -> None:
    (row,) = answer("SELECT hugeint, ubigint, blob, dec38_10 FROM every WHERE int > 0")
    assert list(map(type, row)) == [int, int, bytes, Decimal]
    assert row[:2] == (2**127 - 1, 2**64 - 1)


def test_a_sum_beyond_bigint_is_whole() -> None:
    text = "FROM copies WHERE i64 > 9000000000000000000"
    (exact,) = CON.execute(f"SELECT SUM(i64) {text}").fetchone()
    assert exact > 2**63
    assert answer(f"SELECT SUM(i64) AS s {text}") == [(exact,)]
