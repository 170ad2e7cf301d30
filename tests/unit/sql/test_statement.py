"""One statement at a time: clause, options, parameters, names, lineage and places, as the analyst meets them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from support.sql_reference import (
    accepts_pattern,
    catalog_of,
    corpus_catalog,
    corpus_tables,
    counts,
    nasty_tables,
    private,
    select_parser,
)

import dpsql.sql
from dpsql.errors import Error, Place, Refusal, Unsupported, UsageError
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.coercion import MAX_PARAMETER_BYTES
from dpsql.sql.ir.catalog import Catalog, Table
from dpsql.sql.ir.measures import Aggregate
from dpsql.sql.ir.statements import Order, PrivateQuery, ShowBudget
from dpsql.sql.ir.tree import Family, find_read_type, parse_type
from dpsql.sql.lexer import ascii_lower
from dpsql.sql.rewrite.engine_query import rewrite_leaders

CON = corpus_tables()
CATALOG = corpus_catalog(CON)
READS = "FROM reads GROUP BY article"


def error_of(text: str, parameters: object = ()) -> Error:
    with pytest.raises(Error) as raised:
        analyze(text, CATALOG, parameters=parameters, accepts_pattern=accepts_pattern)  # type: ignore[arg-type]
    return raised.value


def names_of(query: PrivateQuery) -> list[str]:
    return [output.name for output in query.outputs]


# ---- the clause and its options


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT article {READS} TOP 10 PRIVATE WITH (epsilon = 0.5)",
        "select Top 10 Private article from reads group by article with (EPSILON=.5);",
        f"SELECT article {READS} ORDER BY article TOP 10 PRIVATE WITH (epsilon = 5e-1) LIMIT 3;;",
        f"/* a */ SELECT article {READS}\n\tTOP 10 PRIVATE -- b\r\n WITH (epsilon = 0.50)",
    ],
)
def test_the_clause_stands_at_either_end(text: str) -> None:
    clause = private(text, CATALOG).clause
    assert clause.k == 10
    assert {name: option.value for name, option in clause.options.items()} == {"epsilon": Decimal("0.5")}


def test_every_option_is_read_with_its_kind_and_place() -> None:
    text = f"""SELECT article {READS} TOP 10 PRIVATE
WITH (epsilon = 2.5e-8, delta = 1, k_bar = AUTO, mechanism = 'stable',
      max_groups_contributed = 5, domain = ['a', 'it''s'], fresh = true)"""
    options = private(text, CATALOG).clause.options
    assert {name: (option.value, option.word) for name, option in options.items()} == {
        "epsilon": (Decimal("2.5e-8"), False),
        "delta": (Decimal(1), False),
        "k_bar": ("auto", True),
        "mechanism": ("stable", False),
        "max_groups_contributed": (Decimal(5), False),
        "domain": (("a", "it's"), False),
        "fresh": ("true", True),
    }
    assert options["k_bar"].place == Place(2, 36, "k_bar = AUTO")
    with pytest.raises(TypeError):
        options["epsilon"] = options["delta"]  # type: ignore[index]


@pytest.mark.parametrize(
    "options",
    ["epsilon = 1, epsilon = 2", '"epsilon" = 1', "seed = 1", "epsilon 1", "epsilon = -1", "epsilon = 1 + 1", "",
     "epsilon =", "= 1", "epsilon = 1,", "epsilon = ? ?", "epsilon = 0x1", "epsilon = 1e", "domain = [1]",
     "domain = ['a',]",
     "domain = ['a' 'b']", "epsilon = (1)", "epsilon := 1", "mechanism = a b", "k_bar = ä"],
)  # fmt: skip
def test_an_option_that_cannot_be_read_is_refused_by_name(options: str) -> None:
    error = error_of(f"SELECT article {READS} TOP 10 PRIVATE WITH ({options})", [1, 1] if "?" in options else [])
    assert error.code in {"option", "character", "operator", "syntax"}
    assert error.place


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (0.05, Decimal("0.05")),
        (0.1 + 0.2, Decimal("0.30000000000000004")),
        (1e-30, Decimal("1e-30")),
        (7, Decimal(7)),
        (Decimal("2.5E-8"), Decimal("2.5E-8")),
        ("auto", "auto"),
        (["a", "it's"], ("a", "it's")),
        (("a",), ("a",)),
    ],
)
def test_the_value_of_an_option_may_be_a_parameter(given: object, value: object) -> None:
    for text in (
        f"SELECT article {READS} TOP 10 PRIVATE WITH (epsilon = ?)",
        f"SELECT TOP 10 PRIVATE article {READS} WITH (epsilon = ?)",
    ):
        option = private(text, CATALOG, [given]).clause.options["epsilon"]
        assert (option.value, option.word) == (value, False)


def test_true_and_false_may_be_parameters() -> None:
    option = private(f"SELECT article {READS} TOP 10 PRIVATE WITH (fresh = :f)", CATALOG, {"f": True}).clause.options
    assert (option["fresh"].value, option["fresh"].word) == ("true", True)


@pytest.mark.parametrize(
    "given",
    [
        *(None, float("nan"), float("inf"), -1, Decimal("NaN"), Decimal("sNaN"), Decimal("1E+999999"), b"x", [1], {}),
        *(["a", None], ["a"] * 1_001, 10**13, 10**5_000, -(10**5_000), range(3)),
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_parameter_that_is_no_value_of_an_option_is_refused(given: object) -> None:
    error = error_of(f"SELECT article {READS} TOP 10 PRIVATE WITH (epsilon = ?)", [given])
    assert error.code == "option"
    assert "1000" not in str(error)


@pytest.mark.parametrize("text", ["a\0", "\ud800", "x" * 20_000])
@pytest.mark.parametrize("domain", ["?", "['a', ?]"])
def test_a_candidate_must_be_a_text_that_can_be_bound(text: str, domain: str) -> None:
    error = error_of(
        f"SELECT article {READS} TOP 9 PRIVATE WITH (domain = {domain})", [[text] if domain == "?" else text]
    )
    assert error.code == "parameter-type"
    assert text not in str(error)


CALLED = {
    f"SELECT article {READS} HAVING PRIVATE_TOP(10)": "TOP 10 PRIVATE",
    f"SELECT article {READS} having private_top ( 10 , EPSILON=>.05, domain=>['a'] , fresh => TRUE ) ;": (
        "TOP 10 PRIVATE WITH (EPSILON = .05, domain = ['a'], fresh = TRUE)"
    ),
    f"EXPLAIN SELECT article {READS} HAVING PRIVATE_TOP(ADAPTIVE, k_bar => 9) ORDER BY article LIMIT 3": (
        "TOP ADAPTIVE PRIVATE WITH (k_bar = 9) ORDER BY article LIMIT 3"
    ),
    "SELECT country, article FROM reads GROUP BY ALL HAVING PRIVATE_TOP(3, partitions => ['DE'], per => country)": (
        "TOP 3 PRIVATE PER country WITH (partitions = ['DE'])"
    ),
    f"SELECT * FROM (SELECT article {READS}\nHAVING PRIVATE_TOP(3)) AS x LIMIT 2": "TOP 3 PRIVATE) AS x LIMIT 2",
}


@pytest.mark.parametrize(("text", "ending"), CALLED.items())
def test_the_hint_for_private_top_is_the_statement_to_write(text: str, ending: str) -> None:
    error = error_of(text)
    assert (error.code, error.reason) == ("clause", "PRIVATE_TOP(...) is not supported.")
    assert isinstance(error.place, Place)
    assert error.place.fragment.lower().startswith("private_top")
    assert error.hint is not None
    written = error.hint.removeprefix("Write TOP k PRIVATE in its place: ")
    assert written.endswith(ending)
    analyze(written, CATALOG, accepts_pattern=accepts_pattern, parser=select_parser())


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT article {READS} HAVING (PRIVATE_TOP(10))",
        f"SELECT article {READS} HAVING NOT PRIVATE_TOP(10)",
        f"SELECT article {READS} HAVING PRIVATE_TOP()",
        f"SELECT article {READS} HAVING PRIVATE_TOP(10,)",
        f"SELECT article {READS} HAVING PRIVATE_TOP(10, 0.05)",
        f"SELECT article {READS} HAVING PRIVATE_TOP(10 + 1)",
        f"SELECT article {READS} HAVING PRIVATE_TOP(10",
        f"SELECT article {READS} HAVING PRIVATE_TOP(10) TOP 10 PRIVATE",
        "SELECT PRIVATE_TOP(10) FROM reads GROUP BY article",
        "SELECT article FROM reads WHERE PRIVATE_TOP(10) GROUP BY article",
    ],
)
def test_any_other_private_top_is_refused_too(text: str) -> None:
    error = error_of(text)
    assert (error.code, error.reason) == ("clause", "PRIVATE_TOP(...) is not supported.")
    assert "TOP 10 PRIVATE" in (error.hint or "")


@pytest.mark.parametrize("first", ["SELECT PRIVATE", "SELECT DISTINCT private"])
def test_private_behind_select_is_told_its_place(first: str) -> None:
    error = error_of(f"{first} COUNT(DISTINCT user_id) FROM reads")
    assert (error.code, error.reason) == ("clause", "PRIVATE does not stand behind SELECT.")
    assert isinstance(error.place, Place)
    assert error.place.fragment.lower() == "private"
    assert private("SELECT COUNT(DISTINCT user_id) FROM reads PRIVATE", CATALOG).clause.shape == "total"


@pytest.mark.parametrize("name", ["MODE", "product", "BIT_XOR"])
def test_an_aggregate_of_each_unit_that_is_not_computed_is_told_from_a_measure(name: str) -> None:
    error = error_of(
        f"SELECT SUM(m) FROM (SELECT user_id, {name}(dwell) AS m FROM reads GROUP BY user_id) AS t PRIVATE"
    )
    assert error.reason == f"{name.lower()} is not computed in a subquery: COUNT, SUM, AVG, MIN and MAX are."
    assert error.hint == "Write AVG(x), MIN(x) or MAX(x) there."


def test_limit_may_be_a_parameter() -> None:
    assert private(f"SELECT article {READS} TOP 9 PRIVATE LIMIT ?", CATALOG, [0]).limit == 0
    for given in (-1, 1.0, True, "3", None, 2**63):
        error = error_of(f"SELECT article {READS} TOP 9 PRIVATE LIMIT ?", [given])
        assert error.code == "limit"


@pytest.mark.parametrize(("k", "given"), [("?", [25]), ("$1", [25]), (":k", {"k": 25}), ("$k", {"k": 25})])
def test_k_may_be_a_parameter(k: str, given: object) -> None:
    assert private(f"SELECT article {READS} TOP {k} PRIVATE", CATALOG, given).clause.k == 25


@pytest.mark.parametrize("k", [0, -1, 2.0, "5", None, True])
def test_a_parameter_for_k_is_a_whole_number(k: object) -> None:
    assert error_of(f"SELECT article {READS} TOP ? PRIVATE", [k]).code == "k"


def test_explain_and_show_budget() -> None:
    assert private(f"EXPLAIN SELECT article {READS} TOP 10 PRIVATE", CATALOG).explained
    assert private(f" -- why\nexplain\tselect article {READS} top 10 private;", CATALOG).explained
    assert not private(f"SELECT article {READS} TOP 10 PRIVATE", CATALOG).explained
    for text in ("SHOW BUDGET", "show budget;", " Show /* my */ Budget ; "):
        assert analyze(text, CATALOG, accepts_pattern=accepts_pattern) == ShowBudget()
    assert error_of("SHOW BUDGETS").code == "not-a-query"
    assert error_of(f"EXPLAIN ANALYZE SELECT article {READS} TOP 10 PRIVATE").code == "not-a-query"
    assert error_of("EXPLAIN SHOW BUDGET").code == "not-a-query"


def test_columns_may_be_called_as_the_words_of_the_clause() -> None:
    query = private(
        "SELECT article AS top, country AS private FROM reads GROUP BY top, private TOP 10 PRIVATE", CATALOG
    )
    assert names_of(query) == ["top", "private"]


# ---- what is released


@pytest.mark.parametrize(
    "group", ["GROUP BY 1, 2", "GROUP BY ALL", "GROUP BY u, country", "GROUP BY upper(article), reads.country"]
)
def test_keys_are_grouped_by_position_alias_expression_or_all(group: str) -> None:
    query = private(f"SELECT upper(article) AS u, country FROM reads {group} TOP 10 PRIVATE", CATALOG)
    assert query.keys == private("SELECT DISTINCT upper(article) AS u, country FROM reads TOP 10 PRIVATE", CATALOG).keys
    assert names_of(query) == ["u", "country"]
    assert not query.releases_counts


def test_outputs_are_named_as_the_analyst_spelled_them() -> None:
    text = 'SELECT Article, upper( country ), count(distinct user_id), "dwell" FROM reads GROUP BY ALL TOP 10 PRIVATE'
    query = private(text, CATALOG)
    assert names_of(query) == ["article", "upper( country )", "count(distinct user_id)", "dwell"]
    assert [output.key for output in query.outputs] == [0, 1, None, 2]
    assert query.releases_counts


def test_order_and_limit_are_of_the_released_table() -> None:
    text = f"SELECT article, COUNT(DISTINCT user_id) AS n {READS} ORDER BY n DESC NULLS FIRST, 1 TOP 10 PRIVATE LIMIT 4"
    query = private(text, CATALOG)
    assert query.order == (Order(1, descending=True, nulls_first=True), Order(0, descending=False, nulls_first=False))
    assert query.limit == 4
    ordered = private(
        f"SELECT article, COUNT(DISTINCT user_id) {READS} TOP 10 PRIVATE ORDER BY COUNT(DISTINCT user_id)", CATALOG
    )
    assert ordered.order[0].output == 1


# ---- names and lineage


@pytest.mark.parametrize(
    "text",
    [
        "SELECT article FROM main.reads GROUP BY article TOP 9 PRIVATE",
        'SELECT "ARTICLE" FROM "Reads" AS "r" GROUP BY R.article TOP 9 PRIVATE',
        "SELECT article FROM (SELECT user_id AS who, article FROM reads) AS r GROUP BY article TOP 9 PRIVATE",
        (
            "WITH a AS (SELECT user_id AS who, article FROM reads), b AS (SELECT a.who AS "
            "whom, article FROM a) SELECT article FROM b GROUP BY ALL TOP 9 PRIVATE"
        ),
        (
            "SELECT article FROM (SELECT x.* FROM (SELECT * FROM reads) AS x JOIN countries "
            "USING (country)) AS y GROUP BY article TOP 9 PRIVATE"
        ),
    ],
)
def test_the_unit_is_followed_by_identity(text: str) -> None:
    query = private(text, CATALOG)
    assert query.table == "reads"
    assert query.unit_name == "user_id"
    assert counts(CON, query)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("SELECT article FROM (SELECT article FROM reads) AS r GROUP BY article TOP 9 PRIVATE", "unit-lost"),
        (("SELECT article FROM (SELECT user_id + 0 AS u, article FROM reads) AS r GROUP BY "
          "article TOP 9 PRIVATE"), "unit-lost"),
        (("SELECT article FROM (SELECT user_id::BIGINT AS u, article FROM reads) AS r "
          "GROUP BY article TOP 9 PRIVATE"), "unit-lost"),
        (("SELECT article FROM (SELECT dwell AS user_id, article FROM reads) AS r GROUP BY "
          "article TOP 9 PRIVATE"), "unit-name"),
        ("SELECT dwell AS USER_ID FROM reads GROUP BY ALL TOP 9 PRIVATE", "unit-name"),
        (("SELECT article, COUNT(DISTINCT (user_id, u)) FROM (SELECT user_id, dwell AS u, article "
          "FROM reads) AS r GROUP BY ALL TOP 9 PRIVATE"), "aggregate"),
        ("SELECT article, COUNT(DISTINCT reads.user_id, dwell) FROM reads GROUP BY ALL TOP 9 PRIVATE", "aggregate"),
        (("SELECT r.article FROM reads AS r JOIN likes AS l ON r.article = l.article GROUP "
          "BY ALL TOP 9 PRIVATE"), "join-private"),
        ("SELECT r.article FROM reads AS r, users GROUP BY ALL TOP 9 PRIVATE", "join-private"),
        (("SELECT article FROM articles JOIN reads USING (article) JOIN countries AS c "
          "USING (continent) GROUP BY 1 TOP 9 PRIVATE"), "unknown-column"),
        (("SELECT article FROM reads JOIN articles ON reads.article = articles.article "
          "GROUP BY 1 TOP 9 PRIVATE"), "ambiguous-column"),
        ("SELECT topic FROM reads JOIN articles USING (topic) GROUP BY 1 TOP 9 PRIVATE", "unknown-column"),
        (("SELECT articles.continent FROM reads JOIN articles USING (article) GROUP BY 1 "
          "TOP 9 PRIVATE"), "unknown-column"),
        ("SELECT x FROM secret_internal GROUP BY x TOP 9 PRIVATE", "unknown-table"),
        ("SELECT article FROM other.reads GROUP BY article TOP 9 PRIVATE", "unknown-table"),
        ("SELECT article FROM memory.main.reads GROUP BY article TOP 9 PRIVATE", "unknown-table"),
    ],
)  # fmt: skip
def test_a_name_or_a_unit_that_does_not_hold_is_refused(text: str, code: str) -> None:
    assert error_of(text).code == code


def test_another_column_is_never_counted_as_the_unit() -> None:
    inner = "SELECT user_id, dwell AS u, article FROM reads"
    text = f"SELECT article, COUNT(DISTINCT u) AS n, COUNT(DISTINCT user_id) AS m FROM ({inner}) AS r GROUP BY 1"
    query = private(f"{text} TOP 9 PRIVATE", CATALOG)
    assert [measure.aggregate for measure in query.measures] == [Aggregate.ITEMS, Aggregate.UNITS]
    assert [query.measures[output.measure].columns for output in query.outputs[1:]] == [(("reads", "dwell"),), ()]


def test_using_gives_the_name_to_the_left_and_both_stay_reachable() -> None:
    text = (
        "SELECT article, articles.article AS other FROM reads JOIN articles USING (article) GROUP BY ALL TOP 9 PRIVATE"
    )
    assert all(key[0] == key[1] for key in counts(CON, private(text, CATALOG)))


def test_an_alias_is_read_after_the_columns() -> None:
    error = error_of("SELECT upper(country) AS article FROM reads GROUP BY article TOP 9 PRIVATE")
    assert error.code == "key-not-selected"


# ---- parameters


@pytest.mark.parametrize(
    ("where", "given"),
    [
        ("country = ? AND dwell > ?", ["DE", 1.5]),
        ("country = $2 AND dwell > $1", [1.5, "DE"]),
        ("country = :c AND dwell > :d", {"c": "DE", "d": 1.5}),
        ("country = $c AND dwell > $d", {":c": "DE", "$d": Decimal("1.5")}),
        ("country = ? AND ts > ? AND ts::DATE > ?", ["DE", datetime(2026, 1, 1), date(2026, 1, 1)]),  # noqa: DTZ001
        ("country = $1 AND $1 = country", ["DE"]),
        ("country = ? OR ? IS NULL", ["DE", None]),
        ("country IN ($1,$2) AND dwell > $3", ["DE", "FR", 1.5]),  # sqlglot sees the quote $1,$ in it
    ],
)
def test_parameters_bind_in_every_style(where: str, given: Sequence[object] | Mapping[str, object]) -> None:
    query = private(f"SELECT country FROM reads WHERE {where} GROUP BY country TOP 9 PRIVATE", CATALOG, given)
    assert counts(CON, query)
    assert "DE" in rewrite_leaders(query, 9).parameters


def test_tables_of_one_name_in_two_schemas_are_told_apart_by_them() -> None:
    columns = (("user_id", parse_type("BIGINT")), ("article", parse_type("VARCHAR")))
    both = Catalog(tuple(Table(f"{home}.reads", ("db", home, "reads"), columns, "user_id") for home in ("web", "shop")))
    inner = "SELECT 1 FROM shop.reads WHERE shop.reads.user_id = web.reads.user_id AND shop.reads.article = 'x'"
    text = f"SELECT web.reads.article FROM web.reads WHERE EXISTS ({inner}) GROUP BY ALL TOP 1 PRIVATE"
    written = rewrite_leaders(private(text, both), 9).sql
    tied = '((t3."user_id" = t1."user_id") AND (t3."article" = CAST($2 AS VARCHAR)))'
    assert f'FROM "db"."shop"."reads" AS t3 WHERE {tied}' in written
    with pytest.raises(Refusal) as refused:
        private(text.replace("SELECT web.", "SELECT shop."), both)
    assert refused.value.code == "unknown-column"


@pytest.mark.parametrize(
    ("where", "given", "pattern"),
    [
        ("article LIKE '%' || ? || '%'", ["a"], "%a%"),
        ("article LIKE ? || '%'", ["a"], "a%"),
        ("article LIKE ('%' || (:a)) || :b", {"a": "", "b": "a_%"}, "%a_%"),
        ("article LIKE ?", ["x" * MAX_PARAMETER_BYTES], "x" * MAX_PARAMETER_BYTES),
        ("article LIKE '' || ?", ["x" * MAX_PARAMETER_BYTES], "x" * MAX_PARAMETER_BYTES),
    ],
)
def test_a_pattern_in_parts_is_the_pattern_that_they_make(where: str, given: object, pattern: str) -> None:
    texts = (
        f"SELECT country FROM reads WHERE {each} GROUP BY country TOP 9 PRIVATE" for each in (where, "article LIKE ?")
    )
    parts, whole = (private(text, CATALOG, values) for text, values in zip(texts, (given, [pattern]), strict=True))
    assert parts.body == whole.body


@pytest.mark.parametrize(
    ("where", "given", "code"),
    [
        ("country = ?", [], "parameters"),
        ("article LIKE '%' || ?", ["x" * MAX_PARAMETER_BYTES], "too-large"),
        ("article LIKE ? || ?", ["é" * 5_000, "é" * 5_000], "too-large"),
        ("article LIKE ? || '%'", [7], "pattern"),
        ("article LIKE ? || ? ESCAPE '#'", ["%", "b#"], "pattern"),
        ("country = ?", ["a", "b"], "parameters"),
        ("country = ? AND country = $1", ["a"], "parameters"),
        ("country = :c", ["a"], "parameters"),
        ("country = :c", {"d": "a"}, "parameters"),
        ("country = :c", {"c": "a", 10**5_000: "b"}, "parameters"),
        ("article LIKE ?", [date(2026, 1, 1)], "pattern"),
        ("country = ?", "a", "parameters"),
        ("country = 'x'", ["a"], "parameters"),
        ("country = ?", [b"a"], "parameter-type"),
        ("country = ?", ["a\0"], "parameter-type"),
        ("country = ?", ["\ud800"], "parameter-type"),
        ("country = ?", ["x" * 20_000], "parameter-type"),
        ("dwell = ?", [float("nan")], "parameter-type"),
        ("dwell = ?", [Decimal("Infinity")], "parameter-type"),
        ("dwell = ?", [Decimal("1E+1000000")], "parameter-type"),
        ("dwell = ?", [2**63], "parameter-type"),
        ("ts = ?", [datetime(2026, 1, 1, tzinfo=UTC)], "parameter-type"),
        ("country IN ?", [["a"]], "construct"),
    ],
)
def test_a_parameter_that_does_not_fit_is_refused(where: str, given: object, code: str) -> None:
    error = error_of(f"SELECT country FROM reads WHERE {where} GROUP BY country TOP 9 PRIVATE", given)
    assert error.code == code
    assert isinstance(error, UsageError) or code in {"construct", "number", "pattern", "too-large"}
    assert "\ud800" not in str(error)


def test_a_parameter_that_is_misspelt_is_named() -> None:
    error = error_of("SELECT country FROM reads WHERE country = :land GROUP BY country TOP 9 PRIVATE", {"lnd": "DE"})
    assert error.place is not None
    assert "The statement has no parameter 'lnd'." in str(error.hint)


def test_minus_the_least_integer_does_not_overflow() -> None:
    text = "SELECT -? AS k FROM reads GROUP BY k TOP 9 PRIVATE"
    assert error_of(text, [-(2**63)]).code == "number"
    assert counts(CON, private(text, CATALOG, [-(2**31)])) == {(("int", 2**31),): 23}


# ---- refusals


HELPED = {
    "SELECT article FROM reads GROUP BY article": "TOP 10 PRIVATE",
    "SELECT article FROM reads TOP 10 PRIVATE": "GROUP BY",
    "SELECT article FROM reads GROUP BY article TOP 10": "TOP 10 PRIVATE",
    "SELECT article FROM reads GROUP BY article HAVING COUNT(*) > 3 TOP 9 PRIVATE": "AS n and write HAVING",
    "SELECT article FROM reads GROUP BY article HAVING COUNT(DISTINCT user_id) > 3 TOP 9 PRIVATE": "AS n and",
    "SELECT article FROM reads GROUP BY article HAVING article > 'a' TOP 9 PRIVATE": "WHERE",
    "SELECT article FROM reads GROUP BY article TOP 10 PRIVATE WITH (epsilon => 1)": "epsilon = 0.05",
    "SELECT article, row_number() OVER () AS r FROM reads GROUP BY article TOP 9 PRIVATE": "PRIVATE PER country",
    "SELECT article FROM reads GROUP BY article TOP 9 PRIVATE LIMIT 3 OFFSET 2": "TOP k",
    "SELECT article, MAX(dwell) AS s FROM reads GROUP BY article TOP 9 PRIVATE": "PERCENTILE_CONT(0.99) WITHIN",
    "SELECT article, SUM(user_id) AS s FROM reads GROUP BY article TOP 9 PRIVATE": "COUNT(DISTINCT user_id)",
    "SELECT article, SUM(country) AS s FROM reads GROUP BY article TOP 9 PRIVATE": "SUM(CAST(x AS DOUBLE))",
    "SELECT article, SUM(SUM(dwell)) AS s FROM reads GROUP BY article TOP 9 PRIVATE": "in an outer SELECT",
    "SELECT article, COUNT(DISTINCT (country, ts)) AS n FROM reads GROUP BY article TOP 9 PRIVATE": "VARCHAR) || ', '",
    "SELECT article, COUNT(user_id) AS n FROM reads GROUP BY article TOP 9 PRIVATE": "COUNT(DISTINCT user_id)",
    "SELECT * FROM reads GROUP BY ALL TOP 9 PRIVATE": "columns",
    "SELECT r.article FROM reads r JOIN likes l ON r.article = l.article GROUP BY 1 TOP 9 PRIVATE": "ON r.user_id = l.",
    "SELECT k.article FROM (SELECT article FROM reads) AS k GROUP BY 1 TOP 9 PRIVATE": "Select user_id",
    "SELECT article FROM reads GROUP BY article LIMIT 3 TOP 9 PRIVATE": "after TOP k PRIVATE",
    "SELECT article FROM reads GROUP BY article TOP 9 PRIVATE; SELECT 1": "one statement",
    "SELECT article FROM reads QUALIFY 1 = 1 GROUP BY article TOP 9 PRIVATE": "PRIVATE PER country",
    "SELECT article FROM reads UNION SELECT article FROM likes GROUP BY article TOP 9 PRIVATE": "Put it into FROM",
    "SELECT article FROM articles GROUP BY article TOP 9 PRIVATE": "ORDER BY ... LIMIT k",
    "SELECT artikle FROM reads GROUP BY 1 TOP 9 PRIVATE": "The columns here are",
    "SELECT article FROM read GROUP BY 1 TOP 9 PRIVATE": "The policy exposes",
    "SELECT article FROM events.main.reads GROUP BY 1 TOP 9 PRIVATE": "Did you mean reads? The policy exposes",
    "SELECT no_such(article, 'a') AS k FROM reads GROUP BY 1 TOP 9 PRIVATE": "SHOW FUNCTIONS",
    "SELECT article FROM reads WHERE article IN (SELECT article FROM likes) GROUP BY 1 TOP 9 PRIVATE": "r.unit AND",
    "SELECT article FROM reads WHERE article IN (SELECT * FROM likes) GROUP BY 1 TOP 9 PRIVATE": "one column",
    "SELECT article FROM reads WHERE article IN (SELECT * FROM articles) GROUP BY 1 TOP 9 PRIVATE": "one column",
    "SELECT article FROM reads WHERE dwell GROUP BY 1 TOP 9 PRIVATE": "comparison",
    "SELECT article FROM reads WHERE dwell = 'much' GROUP BY 1 TOP 9 PRIVATE": "numbers",
    "SELECT r.article FROM reads r, likes l WHERE r.article = l.article GROUP BY 1 TOP 9 PRIVATE": "JOIN ... ON r.",
    "SELECT dwell FROM (SELECT * FROM reads), likes GROUP BY 1 TOP 9 PRIVATE": "Name the subqueries",
    "SELECT article FROM (SELECT * FROM reads), articles GROUP BY 1 TOP 9 PRIVATE": "Name the subquery",
    "SELECT COUNT(*) FROM reads WHERE EXTRACT(hour FROM ts) = 3": "EXTRACT(hour FROM ts) = 3 PRIVATE",
    "SELECT COUNT(*) FROM reads WHERE dwell > 3 ORDER BY 1 LIMIT 3": "AS n FROM reads WHERE dwell > 3 PRIVATE",
    "SELECT country, article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY ALL ALL PRIVATE": "Group by one key",
    "SELECT COUNT(DISTINCT user_id) AS n FROM reads GROUP BY ALL TOP 3 PRIVATE": "PRIVATE alone for a total",
    "DROP TABLE reads": "SELECT",
    "": "SHOW TABLES",
}


@pytest.mark.parametrize("text", HELPED)
def test_a_refusal_says_what_to_write_instead(text: str) -> None:
    error = error_of(text)
    assert isinstance(error, Refusal | Unsupported)
    assert HELPED[text] in error.hint, error


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("SELECT article FROM reads\r\nWHERE a ^ 1 GROUP BY 1 TOP 9 PRIVATE", (2, 9, "^")),
        ("SELECT article FROM reads WHERE (dwell = 1 GROUP BY 1 TOP 9 PRIVATE", None),
    ],
)
def test_a_refusal_points_at_its_culprit(text: str, place: tuple[int, int, str] | None) -> None:
    found = error_of(text).place
    assert isinstance(found, Place)
    if place is not None:
        assert (found.line, found.column, found.fragment) == place
    else:
        assert text.split("\n")[found.line - 1][found.column - 1 :].startswith(found.fragment)


def test_an_error_shows_only_words_of_the_statement() -> None:
    error = error_of("SELECT article FROM reads WHERE dwell = 'zqxsecret' GROUP BY 1 TOP 9 PRIVATE")
    assert "zqxsecret" in str(error)  # the analyst's own word, as the fragment
    assert "zqxsecret" not in error.reason + error.hint


# ---- small things


def test_names_are_folded_as_ascii_only() -> None:
    assert ascii_lower("ABC\u212aÄ\u0130") == "abc\u212aÄ\u0130"
    assert error_of("SELECT article FROM reads WHERE \u212aey = 1 GROUP BY 1 TOP 9 PRIVATE").code == "unknown-column"


@pytest.mark.parametrize(
    ("name", "family", "read"),
    [
        ("BIGINT", Family.INTEGER, "BIGINT"),
        ("UTINYINT", Family.INTEGER, "UTINYINT"),
        ("DECIMAL(18,3)", Family.DECIMAL, "DECIMAL(18,3)"),
        ("DECIMAL(19,3)", Family.OPAQUE, "DECIMAL(19,3)"),
        ("FLOAT", Family.OPAQUE, "DOUBLE"),
        ("UUID", Family.OPAQUE, "VARCHAR"),
        ("ENUM('a', 'b')", Family.OPAQUE, "VARCHAR"),
        ("HUGEINT", Family.OPAQUE, "HUGEINT"),
        ("VARCHAR[]", Family.OPAQUE, "VARCHAR[]"),
        ("TIMESTAMP WITH TIME ZONE", Family.OPAQUE, "TIMESTAMP WITH TIME ZONE"),
    ],
)
def test_a_stored_type_is_computed_with_or_opaque(name: str, family: Family, read: str) -> None:
    assert parse_type(name).family is family
    assert find_read_type(parse_type(name)).name == read


@pytest.mark.parametrize("unit", ["uid", "e", "tn", "i8", "d", "day"])
def test_a_unit_may_be_of_any_type(unit: str) -> None:
    con = nasty_tables()
    query = private("SELECT b FROM nasty GROUP BY b TOP 9 PRIVATE", catalog_of(con, {"nasty": unit}, []))
    wanted = con.execute(
        f"SELECT b, COUNT(DISTINCT {unit} {'COLLATE C' * (unit == 'tn')}) FROM nasty GROUP BY b"
    ).fetchall()
    assert sorted(counts(con, query).values()) == sorted(row[1] for row in wanted if row[1])


def codes() -> set[str]:
    """Return every error code that the sources of `dpsql.sql` raise."""
    raised = re.compile(r"(?:Refusal|Unsupported|UsageError)\(\s*\"([^\"]+)\"")
    folder = Path(str(dpsql.sql.__file__)).parent
    return {code for file in folder.rglob("*.py") for code in raised.findall(file.read_text())}


def test_a_code_is_a_few_lower_case_words() -> None:
    assert len(codes()) > 40
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in codes())


@pytest.mark.parametrize(
    ("interval", "given", "meant"),
    [
        ("INTERVAL ?", ["7 days"], "7 day"),
        ("INTERVAL ? DAY", [7], "7 day"),
        ("INTERVAL (?) HOUR", [3], "3 hour"),
        ("INTERVAL ? MONTH", ["-2"], "-2 month"),
    ],
)
def test_an_interval_may_be_a_parameter(interval: str, given: list[object], meant: str) -> None:
    query = private(f"SELECT article FROM reads WHERE ts > ts + {interval} GROUP BY 1 TOP 9 PRIVATE", CATALOG, given)
    assert meant in rewrite_leaders(query, 10).parameters


@pytest.mark.parametrize(
    "given",
    [None, 1.5, True, "soon", "7 days 3 hours", 10**9, 10**5_000, ["7 days"]],
    ids=lambda given: type(given).__name__,
)
def test_what_is_no_interval_is_refused(given: object) -> None:
    for interval in ("INTERVAL ?", "INTERVAL ? DAY"):
        error = error_of(f"SELECT article FROM reads WHERE ts > ts + {interval} GROUP BY 1 TOP 9 PRIVATE", [given])
        assert error.code == "interval"


@pytest.mark.parametrize(
    ("condition", "given"),
    [
        ("ts > DATE ?", ["2026-01-31"]),
        ("ts > TIMESTAMP ?", ["2026-01-31 10:00:00"]),
        ("ts > CAST(? AS DATE)", ["2026-01-31"]),
        ("ts > ?::TIMESTAMP", ["2026-01-31"]),
        ("?||article = ?||?", ["a", "b", "c"]),
        ("dwell>?+?-?*?", [1, 2, 3, 4]),
        ("dwell IN(?,?)AND dwell=?", [1, 2, 3]),
        ("article LIKE ? ESCAPE ?", ["10!%", "!"]),
        ("date_trunc(?, ts) = ?", ["week", "2026-01-26"]),
        ("strftime(ts, ?) = ?", ["%Y", "2026"]),
        ("split_part(article, ?, ?) = ?", ["-", 1, "a"]),
        ("CASE WHEN dwell > ? THEN ? ELSE ? END = ?", [1, "x", "y", "x"]),
        ("round(dwell, ?) = ?", [1, 2.5]),
        ("coalesce(country, ?) IN (?, ?)", ["DE", "DE", None]),
        ("dwell BETWEEN ? AND ?", [1, 2.5]),
        ("-? < dwell + ? * 2", [1, 2]),
    ],
)
def test_parameters_stand_wherever_literals_may(condition: str, given: list[object]) -> None:
    query = private(f"SELECT article FROM reads WHERE {condition} GROUP BY 1 TOP 9 PRIVATE", CATALOG, given)
    CON.execute(rewrite_leaders(query, 10).sql, list(rewrite_leaders(query, 10).parameters))


@pytest.mark.parametrize(
    "condition",
    [
        "dwell = ?5",
        "dwell = ?.5",
        "dwell = ?e5",
        "dwell = ?x",
        "dwell = ?_1",
        "dwell = ??",
        "dwell = 1.?",
        "dwell = 1.?5",
    ],
)
@pytest.mark.parametrize("mark", ["?", "$1"])
def test_a_parameter_that_runs_into_something_is_refused(condition: str, mark: str) -> None:
    text = f"SELECT article FROM reads WHERE {condition} GROUP BY 1 TOP 9 PRIVATE".replace("?", mark)
    for given in ([1] * text.count("?"), [] if "1." in condition else [1]):
        assert error_of(text, given).code in {"syntax", "character", "parameters"}
