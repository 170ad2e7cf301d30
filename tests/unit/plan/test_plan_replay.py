"""The replay key: the same for all that is released by one law, another for all else, on any machine."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from itertools import combinations
from random import Random

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.fuzzing import examples
from support.sql_reference import catalog_of, private

import dpsql
from dpsql.plan import Plan, build_plan
from dpsql.plan.identity import replay_key as replay
from dpsql.plan.identity.replay_key import compute_release_key
from dpsql.terms import Terms

CON = duckdb.connect()
CON.execute("""
    CREATE TABLE events(unit BIGINT, w VARCHAR, c VARCHAR COLLATE NOCASE, n BIGINT, x DOUBLE, b BOOLEAN,
        d DATE, t TIMESTAMP, p DECIMAL(9,2));
    CREATE TABLE likes AS FROM events;
    CREATE TABLE tags(w VARCHAR, tag VARCHAR, n BIGINT);
    CREATE TABLE more AS FROM tags;
""")
CATALOG = catalog_of(CON, {"events": "unit", "likes": "unit"}, ["tags", "more"])
TABLES: dict[str, dpsql.PrivateTable | dpsql.PublicTable] = {
    "events": dpsql.PrivateTable("unit"),
    "likes": dpsql.PrivateTable("unit"),
    "tags": dpsql.PublicTable(),
    "more": dpsql.PublicTable(),
}
BUDGET = dpsql.Budget(1, "1e-6")
TERMS = Terms.of_policy(dpsql.Policy(BUDGET, TABLES))
NOON = datetime(2026, 1, 31, 12)  # noqa: DTZ001 - DuckDB's TIMESTAMP has no zone
SALTS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
Given = Sequence[object] | Mapping[str, object]


def plan_of(text: str, parameters: Given = (), *, terms: Terms = TERMS, salts: tuple[int, int] = SALTS) -> Plan:
    return build_plan(private(text, CATALOG, parameters), terms, salts=salts)


def key_of(text: str, parameters: Given = ()) -> str:
    return compute_release_key(plan_of(text, parameters))


def law(plan: Plan) -> tuple[object, ...]:
    """Return all that decides what is drawn from given rows; tables are numbered in the order of the text."""
    read = list[object]()
    for each in filter(None, [plan.spec.rows, plan.spec.second]):
        numbers: dict[str, str] = {}
        sql = re.sub(
            r"\bt(\d+)\b",
            lambda found, numbers=numbers: numbers.setdefault(found[1], f"t{len(numbers)}"),  # type: ignore[misc]
            each.counting.sql,
        )
        read += [sql, tuple(identity(value) for value in each.counting.parameters)]
    return *read, plan.selection, plan.counts, plan.max_groups_contributed


BASE = "SELECT w, n, COUNT(DISTINCT unit) AS units FROM events WHERE n > 5 AND w = 'a' GROUP BY w, n TOP 10 PRIVATE"
PLAIN = "SELECT w, n FROM events WHERE n > 5 AND w = 'a' GROUP BY w, n TOP 10 PRIVATE"
OTHER_WORDS: list[tuple[str, Given]] = [
    (BASE.replace("AS units", ""), ()),
    (BASE.replace("SELECT w, n,", "SELECT w AS word, n AS number,").replace("units", "u"), ()),
    (BASE.replace("SELECT w, n,", "SELECT n, w,"), ()),
    (BASE.replace("GROUP BY w, n", "GROUP BY n, w"), ()),
    (BASE.replace("GROUP BY w, n", "GROUP BY 2, 1"), ()),
    (BASE.replace("GROUP BY w, n", "GROUP BY ALL"), ()),
    (BASE.replace("GROUP BY w, n", "GROUP BY events.n, w, n, events.w"), ()),
    (BASE.replace("SELECT w, n,", "SELECT w AS a, w AS b, n, n AS m,"), ()),
    ("SELECT COUNT(DISTINCT unit) AS units, n, w" + BASE.partition("units")[2], ()),
    ("SELECT COUNT(DISTINCT e.unit), e.w, n FROM events AS e" + BASE.partition("events")[2], ()),
    (BASE.replace("FROM events", "FROM EVENTS").replace("SELECT", "select").replace("PRIVATE", "Private"), ()),
    (BASE.replace(" ", "\n\t").replace("WHERE", "/* why */ WHERE -- not\n") + " ; ", ()),
    (f"EXPLAIN {BASE}", ()),
    (f"{BASE} ORDER BY units DESC", ()),
    (f"{BASE} ORDER BY 1, n DESC NULLS FIRST LIMIT 3", ()),
    (f"{BASE} LIMIT 0", ()),
    (BASE.replace("TOP", "HAVING units >= 100 AND units < 1e3 TOP"), ()),
    (BASE.replace("TOP 10 PRIVATE", "").replace("SELECT", "SELECT TOP 10 PRIVATE"), ()),
    (BASE.replace("n > 5", "n > ?").replace("'a'", "?").replace("10", "?"), (5, "a", 10)),
    (BASE.replace("n > 5", "n > :low").replace("'a'", ":word"), {"low": 5, "word": "a"}),
    (BASE.replace("'a'", "E'a'").replace("n > 5", "(n > 0005)"), ()),
    (BASE.replace("'a'", "$$a$$"), ()),
    (f"{BASE} WITH (epsilon = {TERMS.epsilon}, delta = 2.5e-8, k_bar = 1000)", ()),
    (f"{BASE} WITH (K_BAR = 1000, mechanism = auto, Epsilon = 0.042830, fresh = true)", ()),
    (f"{BASE} WITH (mechanism = two_looks, delta = ?)", (Decimal("0.000000025"),)),
]


@pytest.mark.parametrize(("text", "parameters"), OTHER_WORDS, ids=range(len(OTHER_WORDS)))
def test_the_same_release_in_other_words_has_the_same_key(text: str, parameters: Given) -> None:
    assert text != BASE
    assert key_of(text, parameters) == key_of(BASE)
    assert law(plan_of(text, parameters)) == law(plan_of(BASE))


@pytest.mark.parametrize(
    ("first", "second", "parameters"),
    [
        ("SELECT w, n FROM events GROUP BY w, n", "SELECT DISTINCT n AS a, w AS b FROM events", ()),
        (
            "WITH e AS (SELECT unit, w FROM events WHERE b) SELECT w FROM e GROUP BY w",
            "SELECT w AS v FROM (SELECT unit, w AS w FROM events AS z WHERE b) AS y GROUP BY 1",
            (),
        ),
        ("SELECT w FROM events WHERE d = DATE '2026-01-31' GROUP BY w", "WHERE d = ?", [date(2026, 1, 31)]),
        ("SELECT w FROM events WHERE t > '2026-01-31 12:00' GROUP BY w", "WHERE t > ?", [NOON]),
        ("SELECT w FROM events WHERE x > 1e0 GROUP BY w", "WHERE x > ?", [1.0]),
        ("SELECT w FROM events WHERE p = 1.5 GROUP BY w", "WHERE p = 1.50", ()),
        ("SELECT w FROM events WHERE b = TRUE GROUP BY w", "WHERE b = ?", [True]),
        ("SELECT w FROM events WHERE coalesce(w, NULL) = 'a' GROUP BY w", "WHERE coalesce(w, ?) = 'a'", [None]),
        (
            "SELECT w IN (SELECT w FROM tags) AS a, c IN (SELECT w FROM more) AS z FROM events GROUP BY ALL",
            "SELECT c IN (SELECT w FROM more) AS z, w IN (SELECT w FROM tags) AS a FROM events GROUP BY ALL",
            (),
        ),
        (
            (
                "SELECT w IN (SELECT w FROM tags WHERE n = 1) AS a, w IN (SELECT w FROM tags WHERE n = 2) AS z "
                "FROM events GROUP BY ALL"
            ),
            (
                "SELECT w IN (SELECT w FROM tags WHERE n = 2) AS z, w IN (SELECT w FROM tags WHERE n = 1) AS a "
                "FROM events GROUP BY ALL"
            ),
            (),
        ),
    ],
)
def test_other_forms_of_one_query(first: str, second: str, parameters: Given) -> None:
    where = re.compile(r"WHERE .* (?=GROUP)")
    second = where.sub(f"{second} ", first) if second.startswith("WHERE") else second
    plans = [plan_of(f"{first} TOP 5 PRIVATE"), plan_of(f"{second} TOP 5 PRIVATE", parameters)]
    assert compute_release_key(plans[0]) == compute_release_key(plans[1])
    assert law(plans[0]) == law(plans[1])


def test_the_order_of_a_listed_domain_does_not_matter() -> None:
    text = "SELECT w FROM events GROUP BY w TOP 2 PRIVATE WITH (domain = {})"
    first, second = (plan_of(text.format(values)) for values in ("['b', 'a', 'c']", "['c', 'c', 'b', 'a']"))
    assert compute_release_key(first) == compute_release_key(second)
    assert law(first) == law(second)


def test_the_salts_of_a_session_are_in_no_key() -> None:
    text = f"{BASE} WITH (max_groups_contributed = 3)"
    first, second = plan_of(text), plan_of(text, salts=(1, 2))
    assert first.counting != second.counting
    assert compute_release_key(first) == compute_release_key(second)


INSIDE = [
    "SELECT DISTINCT unit, w FROM events",
    "SELECT DISTINCT unit, w, n FROM events",
    "SELECT unit, w FROM events GROUP BY unit, w HAVING COUNT(*) > 1",
    "SELECT unit, w FROM events GROUP BY unit, w HAVING COUNT(*) > 2",
    "SELECT unit, w FROM events GROUP BY unit, w HAVING COUNT(n) > 1",
    "SELECT unit, w FROM events GROUP BY unit, w HAVING SUM(n) > 1",
    "SELECT unit, w FROM events GROUP BY unit, w HAVING SUM(x) > 1",
    "SELECT unit, w FROM events GROUP BY unit, w HAVING AVG(x) > 1",
    "SELECT unit, MIN(w) AS w FROM events GROUP BY unit",
    "SELECT unit, MAX(w) AS w FROM events GROUP BY unit",
    "SELECT unit, MAX(w) AS w FROM events GROUP BY unit, n",
    "SELECT unit, w FROM events QUALIFY row_number() OVER (PARTITION BY unit ORDER BY n) = 1",
    "SELECT unit, w FROM events QUALIFY row_number() OVER (PARTITION BY unit ORDER BY n DESC) = 1",
    "SELECT unit, w FROM events QUALIFY row_number() OVER (PARTITION BY unit ORDER BY n NULLS FIRST) = 1",
    "SELECT unit, w FROM events QUALIFY row_number() OVER (PARTITION BY unit ORDER BY x) = 1",
    "SELECT unit, w FROM events QUALIFY row_number() OVER (PARTITION BY unit, c ORDER BY n) = 1",
    "SELECT unit, w FROM events QUALIFY rank() OVER (PARTITION BY unit ORDER BY n) = 1",
    "SELECT unit, lag(w) OVER (PARTITION BY unit ORDER BY n) AS w FROM events",
    "SELECT unit, lag(w, 2) OVER (PARTITION BY unit ORDER BY n) AS w FROM events",
    "SELECT unit, w FROM events UNION ALL SELECT unit, c FROM events",
    "SELECT unit, w FROM events UNION SELECT unit, c FROM events",
    "SELECT unit, c AS w FROM events UNION SELECT unit, w FROM events",
    "SELECT unit, w FROM events INTERSECT SELECT unit, c FROM events",
    "SELECT unit, w FROM events EXCEPT SELECT unit, c FROM events",
    "SELECT unit, w FROM events WHERE n > (SELECT MAX(n) FROM tags)",
    "SELECT unit, w FROM events WHERE n > (SELECT MIN(n) FROM tags)",
    "SELECT unit, w FROM events WHERE n > (SELECT MIN(n) FROM more)",
    "SELECT unit, w FROM events WHERE n IN (SELECT n FROM tags ORDER BY n LIMIT 2)",
    "SELECT unit, w FROM events WHERE n IN (SELECT n FROM tags ORDER BY n LIMIT 3)",
    "SELECT unit, w FROM events WHERE n IN (SELECT n FROM tags ORDER BY n LIMIT 3 OFFSET 1)",
    "SELECT unit, w FROM events WHERE n IN (SELECT n FROM tags ORDER BY n DESC LIMIT 3)",
]


def test_a_cte_has_the_key_of_the_subquery_it_stands_for() -> None:
    named = "WITH a AS (SELECT DISTINCT unit, w FROM events) SELECT w FROM (SELECT * FROM a UNION SELECT * FROM a) AS b"
    once = "(SELECT DISTINCT e.unit, w AS v FROM events AS e ORDER BY 1)"
    spelled = f"SELECT v AS w FROM (SELECT * FROM {once} AS x UNION SELECT y.* FROM {once} AS y)"
    first, second = (f"{text} GROUP BY 1 TOP 10 PRIVATE" for text in (named, spelled))
    assert key_of(first) == key_of(second)
    assert law(plan_of(first)) == law(plan_of(second))


DIFFERENT: list[tuple[str, Given]] = [
    (BASE, ()),
    *((f"SELECT w FROM ({inside}) AS a GROUP BY w TOP 10 PRIVATE", ()) for inside in INSIDE),
    (PLAIN, ()),
    (PLAIN.replace("events", "likes"), ()),
    (PLAIN.replace("w, n", "w"), ()),
    (PLAIN.replace("w, n", "w, c"), ()),
    (PLAIN.replace("w, n", "w, n, c"), ()),
    (PLAIN.replace("w, n", "upper(w), n"), ()),
    (PLAIN.replace("w, n", "lower(w), n"), ()),
    (PLAIN.replace(" WHERE n > 5 AND w = 'a'", ""), ()),
    (PLAIN.replace("n > 5 AND ", ""), ()),
    (PLAIN.replace("AND", "OR"), ()),
    (PLAIN.replace("n > 5", "n >= 5"), ()),
    (PLAIN.replace("n > 5", "n > 6"), ()),
    (PLAIN.replace("n > 5", "n > -5"), ()),
    (PLAIN.replace("n > 5", "x > 5"), ()),
    (PLAIN.replace("n > 5", "n > CAST(5 AS BIGINT)"), ()),
    (PLAIN.replace("n > 5", "n > 5e0"), ()),
    (PLAIN.replace("n > 5", "n > 5.0"), ()),
    (PLAIN.replace("n > 5", "n > ?"), (5.5,)),
    (PLAIN.replace("n > 5", "n > NULL"), ()),
    (PLAIN.replace("n > 5", "n IN (1, 5)"), ()),
    (PLAIN.replace("n > 5", "n IN (SELECT n FROM tags)"), ()),
    (PLAIN.replace("n > 5", "n IN (SELECT n FROM more)"), ()),
    (PLAIN.replace("n > 5", "n IN (SELECT n FROM tags WHERE tag = 'a')"), ()),
    (PLAIN.replace("n > 5", "b"), ()),
    (PLAIN.replace("n > 5", "b IS NOT TRUE"), ()),
    (PLAIN.replace("'a'", "'A'"), ()),
    (PLAIN.replace("'a'", "'a '"), ()),
    (PLAIN.replace("'a'", "''"), ()),
    (PLAIN.replace("w = 'a'", "w = NULL"), ()),
    (PLAIN.replace("w = 'a'", "c = 'a'"), ()),
    (PLAIN.replace("w = 'a'", "1e0 / (x * 0e0) > 0"), ()),
    (PLAIN.replace("w = 'a'", "1e0 / (x * -0e0) > 0"), ()),
    (PLAIN.replace("FROM events", "FROM (SELECT unit, w, n FROM events) AS events"), ()),
    (PLAIN.replace("FROM events", "FROM (SELECT unit, w, n FROM events WHERE b) AS events"), ()),
    ("SELECT e.w FROM events e JOIN tags g ON e.w = g.w GROUP BY e.w TOP 10 PRIVATE", ()),
    ("SELECT e.w FROM events e LEFT JOIN tags g ON e.w = g.w GROUP BY e.w TOP 10 PRIVATE", ()),
    ("SELECT e.w FROM events e JOIN more g ON e.w = g.w GROUP BY e.w TOP 10 PRIVATE", ()),
    ("SELECT e.w FROM events e JOIN tags g ON e.n = g.n GROUP BY e.w TOP 10 PRIVATE", ()),
    ("SELECT e.w FROM events e CROSS JOIN tags g GROUP BY e.w TOP 10 PRIVATE", ()),
    ("SELECT g.w FROM events e JOIN tags g ON e.w = g.w GROUP BY g.w TOP 10 PRIVATE", ()),
    ("SELECT a.tag FROM events e JOIN tags a ON e.w = a.w JOIN tags z ON e.n = z.n GROUP BY 1 TOP 10 PRIVATE", ()),
    ("SELECT z.tag FROM events e JOIN tags a ON e.w = a.w JOIN tags z ON e.n = z.n GROUP BY 1 TOP 10 PRIVATE", ()),
    (PLAIN.replace("10", "11"), ()),
    *(
        (f"{PLAIN} WITH ({option})", ())
        for option in [
            "epsilon = 0.05",
            "epsilon = 0.050001",
            "delta = 1e-9",
            "k_bar = 10",
            "k_bar = 200",
            "k_bar = 201",
            "max_groups_contributed = 1",
            "max_groups_contributed = 2",
            "epsilon = 0.05, delta = 1e-9",
        ]
    ),
    *(
        (f"SELECT w FROM events GROUP BY w TOP 2 PRIVATE {options}", ())
        for options in [
            "",
            "WITH (domain = ['a', 'b'])",
            "WITH (domain = ['a', 'B'])",
            "WITH (domain = ['a', 'b', 'c'])",
            "WITH (domain = 'tags.w')",
            "WITH (domain = 'tags.tag')",
            "WITH (domain = 'more.w')",
            "WITH (domain = 'more.w', max_groups_contributed = 4)",
        ]
    ),
]


def test_any_change_of_what_is_released_changes_the_key() -> None:
    assert len(DIFFERENT) > 55
    keys = [key_of(*query) for query in DIFFERENT]
    same = [pair for pair in combinations(range(len(keys)), 2) if keys[pair[0]] == keys[pair[1]]]
    assert [(DIFFERENT[one], DIFFERENT[other]) for one, other in same] == []


def test_what_the_policy_says_of_the_release_is_in_the_key() -> None:
    def key(**said: object) -> str:
        table = dpsql.PrivateTable("unit", **said)  # type: ignore[arg-type]
        return compute_release_key(
            plan_of(PLAIN, terms=Terms.of_policy(dpsql.Policy(BUDGET, {**TABLES, "events": table})))
        )

    keys = [key(), key(min_units=50), key(max_groups_contributed=5), key(max_groups_contributed=6)]
    assert len(set(keys)) == 4
    assert key(columns=["unit", "w", "n"]) == keys[0]


def test_another_unit_is_another_key() -> None:
    other = catalog_of(CON, {"events": "c"}, [])
    plan = build_plan(private("SELECT w FROM events GROUP BY w TOP 5 PRIVATE", other), TERMS, salts=SALTS)
    assert compute_release_key(plan) != key_of("SELECT w FROM events GROUP BY w TOP 5 PRIVATE")


PINNED = {
    "SELECT w FROM events GROUP BY w TOP 10 PRIVATE": (  # two looks
        "a6e5226034ad5172ead93d5e2ce9319f46d4e51d970fb989220122f349e5bf68"
    ),
    f"{BASE} WITH (mechanism = limited_domain)": "cde078c832fdf1ef411a959247c10f2a687ff752849e640bf649f5d241c7280e",
    "SELECT w FROM events GROUP BY w TOP 2 PRIVATE WITH (domain = ['b', 'a'], max_groups_contributed = 4)": (
        "68b1f2cd1b7e16a096d173b490823d7164482396c2f54d7377cfd81f0f2b9891"
    ),
    "SELECT p, x * -2.5e0 AS y FROM events LEFT JOIN (SELECT w AS v FROM tags) g ON c = v "
    "WHERE p <> 1.50 AND b AND d < '2026-01-31' GROUP BY ALL TOP 7 PRIVATE WITH (mechanism = limited_domain)": (
        "20920231e405afb2ff236109f4476ee6fcda3a03316fa4447ec3cbb3e082d5d4"
    ),
}


def test_keys_are_the_same_as_ever() -> None:
    """A change here forgets every answer that a ledger keeps: change FORMAT with it, and mean it."""
    assert {text: key_of(text) for text in PINNED} == PINNED


def test_another_process_finds_the_same_key() -> None:
    code = (
        "import sys; sys.path += sys.argv[1:3]\n"
        "from test_plan_replay import DIFFERENT, key_of\n"
        "print(*(key_of(*query) for query in DIFFERENT))"
    )
    here = __file__.rpartition("/")[0]
    done = subprocess.run(
        [sys.executable, "-c", code, here, here.rpartition("/")[0]],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={"PYTHONHASHSEED": "1", "PYTHONPATH": ":".join(filter(None, sys.path))},
    )
    assert done.stdout.split() == [key_of(*query) for query in DIFFERENT]


def test_another_format_is_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key_of(BASE)
    monkeypatch.setattr(replay, "FORMAT", "dpsql replay 2")
    assert key_of(BASE) != before


# --- random values and random statements


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.1, float("nan"), float("inf"), float("-inf"), 5e-324]),
    st.sampled_from([Decimal(text) for text in ("0", "1", "1.0", "-1", "0.1", "0.10")]),
    st.sampled_from([Fraction(0), Fraction(1), Fraction(-1), Fraction(1, 10)]),
    st.sampled_from(
        ["", "0", "1", "None", "true", "null", "[]", '"', "\\", "1/1", "nan", "0x0.0p+0", "a\n", "\ud800", "é"]
    ),
)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=5)


def identity(value: object) -> object:
    """Return the value with its types, so that equal means the same."""
    if isinstance(value, tuple):
        return tuple(map(identity, value))
    if isinstance(value, Decimal):
        return "Decimal", Fraction(value)
    return type(value).__name__, repr(value)


@settings(max_examples=examples(500), deadline=None)
@given(VALUES, VALUES)
@example(0.0, "0x0.0p+0")
@example(Fraction(1), Decimal(1))
def test_values_are_spelled_alike_only_if_they_are_the_same(first: object, second: object) -> None:
    spelled = [replay._to_json(replay._encode(value, {})) for value in (first, second)]
    assert (spelled[0] == spelled[1]) == (identity(first) == identity(second))


def test_what_has_no_spelling_is_no_key() -> None:
    for value in ({1}, {"a": 1}, [1], object(), b"a"):
        with pytest.raises(TypeError):
            replay._encode(value, {})


KEYS = ["w", "c", "n", "x", "b", "upper(w)", "n % 3", "n > 0", "coalesce(w, c)", "w IN (SELECT w FROM tags)"]
FILTERS = [("n > {}", 5), ("n > {}", 6), ("w <> {}", "a"), ("c = {}", "a"), ("x >= {}", 0.5), ("unit <> {}", 1)]
SOURCES = ["events", "likes", "(SELECT * FROM events WHERE b) AS events", "(SELECT * FROM events) AS events"]
OPTIONS = ["", "epsilon = 0.05", "epsilon = 0.06", "k_bar = 300", "max_groups_contributed = 4", "delta = 1e-9"]
RELEASES = st.tuples(
    st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True).map(frozenset),
    st.lists(st.sampled_from(FILTERS), max_size=2).map(tuple),
    st.sampled_from(SOURCES),
    st.sampled_from(OPTIONS),
    st.booleans(),
    st.integers(4, 6),
)
Release = tuple[frozenset[str], tuple[tuple[str, object], ...], str, str, bool, int]


def said(release: Release, random: Random) -> tuple[str, dict[str, object]]:
    """Return one of the many statements that ask for a release, and its parameters."""
    keys, filters, source, options, counts, k = release
    items = [(f"k{at}{random.choice('abc')}", key) for at, key in enumerate(sorted(keys))]
    outputs = [(name, f"{key} AS {name}") for name, key in items]
    outputs += [(name + "z", f"{key} AS {name}z") for name, key in items if "IN" not in key and random.random() < 0.2]
    outputs += [("units", "COUNT(DISTINCT unit) AS units")] if counts else []
    random.shuffle(outputs)
    given_values: dict[str, object] = {}
    conditions = []
    for at, (condition, value) in enumerate(filters):
        if random.random() < 0.5:
            given_values[f"p{at}"] = value
            conditions.append(condition.format(f":p{at}"))
        else:
            conditions.append(condition.format(f"{value}e0" if isinstance(value, float) else repr(value)))
    group = random.choice(["ALL", ", ".join(random.sample([name for name, _ in items], len(items)))])
    tail = random.choice(["", f"ORDER BY {random.choice(outputs)[0]} DESC", "LIMIT 2", "ORDER BY 1 LIMIT 1"])
    having = "HAVING units > 3" if counts and random.random() < 0.3 else ""
    clause = f"{having} TOP {k} PRIVATE" + (f" WITH ({options})" if options else "")
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    select = ", ".join(written for _, written in outputs)
    text = f"SELECT {select} FROM {source} {where} GROUP BY {group} {clause} {tail}"
    # comments inside GROUP BY and ORDER BY are not read
    return re.sub(
        r"'[^']*'|:\w+|GROUP BY|ORDER BY|\w+|\s+", lambda found: restyled(found[0], random), text
    ), given_values


def restyled(word: str, random: Random) -> str:
    if word.isspace():
        return random.choice([" ", " ", "\n", "\t ", " /* x */ ", " -- y\n"])
    return word if word[0] in "':" else random.choice([word, word.lower(), word.upper()])


@pytest.mark.properties
@settings(max_examples=examples(300), deadline=None)
@given(RELEASES, RELEASES, st.randoms(use_true_random=False))
def test_random_statements_share_a_key_when_and_only_when_they_share_the_law(
    one: Release, other: Release, random: Random
) -> None:
    first, again, second = (plan_of(*said(release, random)) for release in (one, one, other))
    assert compute_release_key(first) == compute_release_key(again)
    assert law(first) == law(again)
    assert (compute_release_key(first) == compute_release_key(second)) == (one == other) == (law(first) == law(second))
