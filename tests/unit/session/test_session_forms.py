"""Sessions that are asked in DuckDB's forms: colons around a private query, ORDER BY ALL, aliases without AS."""

from __future__ import annotations

import pytest
from support.session_kit import filled, session_on, shared

import dpsql

READS = "CREATE TABLE reads AS SELECT i AS user_id, 'k' || i % 3 AS k, DATE '2026-01-01' AS d FROM range(3000) t(i)"
INNER = "SELECT k, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY k"
TABLES = {"reads": dpsql.PrivateTable("user_id")}


def ask(text: str, parameters: object = ()) -> list[tuple[object, ...]]:
    policy = dpsql.Policy(dpsql.Budget(50, "1e-2"), TABLES, limits=dpsql.Limits(max_epsilon=20))
    session = session_on(shared(READS), policy)
    return session.sql(text, parameters).fetchall()  # type: ignore[arg-type]


@pytest.mark.parametrize("ending", ["TOP 3 PRIVATE", "LIMIT 3"])
@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("k[1:1]", "k"),
        ("k[:1]", "k"),
        ("{'a': 1}", "{'a': 1}"),
        ("{'a':k}", None),
        ("{a:k}", None),
        ("map {'a': 1}", "{a=1}"),
        ("'12:30'::TIME", "12:30:00"),
        ("[1, 2, 3, 4][1:4:2]", "[1, 3]"),
        ("list_transform([1], lambda x: x + 1)", "[2]"),
        ("('{\"a\": 7}'::JSON)->>'$.a'", "7"),
    ],
)
def test_a_colon_around_a_private_query(expression: str, found: str | None, ending: str) -> None:
    text = f"SELECT {expression} AS x FROM ({INNER} {ending}) AS q"
    policy = dpsql.Policy(dpsql.Budget(50, "1e-2"), TABLES, limits=dpsql.Limits(max_epsilon=20))
    implicit = ending == "LIMIT 3"
    with session_on(shared(READS), policy, implicit=implicit) as session:
        rows = [str(value) for (value,) in session.sql(text).fetchall()]
    assert sorted(rows) == ([found] * 3 if found else [f"{{'a': k{at}}}" for at in range(3)])


def test_a_named_parameter_beside_the_colon_of_a_struct() -> None:
    text = f"SELECT {{'a':k, 'b': :word}} AS x FROM ({INNER} TOP 3 PRIVATE) AS q"
    assert sorted(ask(text, {"word": "w"})) == [(f"{{'a': k{at}, 'b': w}}",) for at in range(3)]


def test_order_by_all_puts_the_released_rows_in_order() -> None:
    assert [key for key, _ in ask(f"{INNER} TOP 3 PRIVATE ORDER BY ALL DESC")] == ["k2", "k1", "k0"]
    computed = INNER.replace(" AS n", " * 2 AS n")
    assert [key for key, _ in ask(f"{computed} TOP 3 PRIVATE ORDER BY ALL")] == ["k0", "k1", "k2"]


def test_an_interval_may_be_followed_by_an_alias() -> None:
    found = ask("SELECT d - INTERVAL '1 day' x, COUNT(DISTINCT user_id) n FROM reads GROUP BY x TOP 1 PRIVATE")
    assert str(found[0][0]) == "2025-12-31 00:00:00"


def test_text_in_double_quotes_is_told_from_a_name() -> None:
    with pytest.raises(dpsql.Refusal, match="write 'k1' for text"):
        ask('SELECT k, COUNT(DISTINCT user_id) n FROM reads WHERE k = "k1" GROUP BY k TOP 3 PRIVATE')
    with pytest.raises(dpsql.Refusal, match="write 'big' for text"):
        ask('SELECT k, CASE WHEN COUNT(DISTINCT user_id) > 5 THEN "big" END x FROM reads GROUP BY k TOP 3 PRIVATE')


@pytest.mark.parametrize("condition", ["a.id = b.cid", "a.id <> b.cid", "a.id IN (b.cid, 'x')", "a.id || b.cid = 'xx'"])
@pytest.mark.parametrize("grouped", ["SELECT DISTINCT u, cid, p FROM o", "SELECT u, cid, p FROM o GROUP BY ALL"])
def test_a_collated_column_meets_the_keys_of_a_subquery(condition: str, grouped: str) -> None:
    """They are compared by their bytes, as texts of two collations are: A is not a."""
    tables = (
        "CREATE TABLE c AS SELECT ['A', 'b'][1 + u % 2] AS plain, u AS u FROM range(400) t(u)",
        "ALTER TABLE c ADD COLUMN id VARCHAR COLLATE NOCASE",
        "UPDATE c SET id = plain",
        "CREATE TABLE o AS SELECT ['a', 'b'][1 + u % 2] AS cid, 'p' || u % 2 AS p, u AS u FROM range(400) t(u)",
    )
    policy = dpsql.Policy(
        dpsql.Budget(50, "1e-4", items=20), {"c": dpsql.PrivateTable("u"), "o": dpsql.PrivateTable("u")}
    )
    with dpsql.connect(filled(*tables), policy=policy, ledger=":memory:") as session:
        sql = f"SELECT p FROM c AS a JOIN ({grouped}) AS b ON a.u = b.u AND {condition} GROUP BY 1 TOP 5 PRIVATE"
        found = {value for (value,) in session.sql(sql).fetchall()}
    assert found == {"a.id <> b.cid": {"p0"}, "a.id || b.cid = 'xx'": set()}.get(condition, {"p1"})
