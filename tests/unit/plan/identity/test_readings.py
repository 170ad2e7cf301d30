"""Readings: what means something else than in 0.11 has another key, and everything else the key of 0.11."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import pytest
from support.sql_reference import catalog_of, private

import dpsql
from dpsql.plan import Plan, build_plan
from dpsql.plan.identity import replay_key
from dpsql.plan.identity.replay_key import encode_value, find_changed_readings
from dpsql.sql.ir.measures import Aggregate, ContributionRange, Measure
from dpsql.terms import Terms

CON = duckdb.connect()
CON.execute("""
    CREATE TABLE reads(user_id INTEGER, article VARCHAR, amount DECIMAL(9, 2), minutes INTEGER, score DOUBLE);
    CREATE TABLE users(user_id INTEGER, city VARCHAR, age INTEGER);
    CREATE TABLE places(city VARCHAR);
""")
CATALOG = catalog_of(CON, {"reads": "user_id", "users": "user_id"}, ["places"])
TERMS = Terms.of_policy(
    dpsql.Policy(
        dpsql.Budget(1, "1e-6"),
        {
            "reads": dpsql.PrivateTable(
                "user_id",
                bounds={"rows": 4, "amount": {"max": 150}, "minutes": {"max": 60}, "score": {"min": -3, "max": 12}},
            ),
            "users": dpsql.PrivateTable("user_id", bounds={"rows": 1, "age": {"max": 90}}),
            "places": dpsql.PublicTable(),
        },
    )
)
JOINED = "FROM reads JOIN users ON reads.user_id = users.user_id"


def plan_of(text: str) -> Plan:
    return build_plan(private(text, CATALOG, ()), TERMS, salts=(1, 2))


def readings(text: str) -> set[str]:
    found = find_changed_readings(plan_of(text).query, TERMS)
    return set() if found is None else {name for name, _ in found.readings}


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("SELECT COUNT(*) AS n FROM reads PRIVATE", set()),
        ("SELECT COUNT(minutes) AS n, SUM(minutes) AS s FROM reads PRIVATE", set()),
        ("SELECT SUM(amount) AS s FROM reads WHERE article LIKE 'a%' PRIVATE", set()),
        ("SELECT SUM(minutes) AS s FROM (SELECT user_id, minutes FROM reads) PRIVATE", set()),
        ("SELECT COUNT(*) AS n FROM users JOIN places ON users.city = places.city PRIVATE", set()),
        (f"SELECT COUNT(DISTINCT reads.user_id) AS n {JOINED} PRIVATE", set()),
        ("SELECT AVG(minutes) AS a FROM reads PRIVATE", {"average"}),
        ("SELECT SUM(minutes) AS s, COUNT(*) AS n, AVG(score) AS a FROM reads PRIVATE", {"average"}),
        ("SELECT SUM(amount * 2) AS s FROM reads PRIVATE", {"expression"}),
        ("SELECT SUM(-minutes) AS s FROM reads PRIVATE", {"expression"}),
        ("SELECT SUM(CASE WHEN article = 'a' THEN amount ELSE -amount END) AS s FROM reads PRIVATE", {"expression"}),
        ("SELECT AVG(minutes - 10) AS a FROM reads PRIVATE", {"average", "expression"}),
        (f"SELECT COUNT(*) AS n {JOINED} PRIVATE", {"join"}),
        (f"SELECT SUM(amount) AS s {JOINED} PRIVATE", {"join"}),
        (f"SELECT AVG(amount) AS s {JOINED} PRIVATE", {"average", "join"}),
        ("SELECT COUNT(*) AS n FROM reads r JOIN reads s ON r.user_id = s.user_id PRIVATE", {"join"}),
        (
            "SELECT COUNT(*) AS n FROM reads WHERE user_id IN (SELECT user_id FROM users WHERE age > 9) PRIVATE",
            {"join"},
        ),
        (
            (
                "SELECT COUNT(*) AS n FROM reads r "
                "WHERE EXISTS (SELECT 1 FROM users u WHERE u.user_id = r.user_id) PRIVATE"
            ),
            {"join"},
        ),
    ],
)
def test_what_changed_is_known_from_the_statement_alone(text: str, changed: set[str]) -> None:
    assert readings(text) == changed
    plan = plan_of(text)
    assert bool(plan.earlier_key) == bool(changed)
    assert plan.earlier_key not in {plan.key, *plan.similar_keys, *plan.named_keys}


def test_what_did_not_change_has_the_key_of_0_11(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of 0.11 is that without readings; where bounds alone are in them, the earlier key is the same."""
    texts = [
        "SELECT COUNT(*) AS n FROM reads PRIVATE",
        "SELECT SUM(score) AS s, COUNT(minutes) AS n FROM reads PRIVATE",
        "SELECT SUM(minutes + 0) AS s FROM reads PRIVATE",
        f"SELECT COUNT(DISTINCT reads.user_id) AS n {JOINED} PRIVATE",
    ]
    keys = [plan.earlier_key or plan.key for plan in map(plan_of, texts)]
    monkeypatch.setattr("dpsql.plan.planner.find_changed_readings", lambda *_: None)
    assert [plan_of(text).key for text in texts] == keys


def test_a_count_of_values_had_no_condition_on_nan() -> None:
    """COUNT(x) of a DOUBLE leaves NaN out today, as does the same condition in FILTER."""
    today = plan_of("SELECT COUNT(*) FILTER (WHERE score IS NOT NULL AND NOT isnan(score)) AS n FROM reads PRIVATE")
    count = plan_of("SELECT COUNT(score) AS n FROM reads PRIVATE")
    assert readings("SELECT COUNT(score) AS n FROM reads PRIVATE") == set()  # what changed is in the key anyway
    assert count.key == today.key
    assert count.earlier_key == today.earlier_key != count.key
    assert count.earlier_key


STORED_BY_0_11 = {  # keys that the code of 0.11.0 gave to these texts, with this policy
    "SELECT COUNT(CASE WHEN article = 'a' THEN 1 END) AS n FROM reads PRIVATE": (
        "184932884c949390152d63717f6e6ec8cd1af7948a488f013f5b807c8e9ec73c"
    ),
    "SELECT article, COUNT(CASE WHEN minutes > 3 THEN minutes END) AS n FROM reads GROUP BY article TOP 5 PRIVATE": (
        "479718101b126593dac3d0b40bea15cf11e753cb757a7842f7953c0acf5214d0"
    ),
}
OTHER_IN_0_11 = {
    "SELECT SUM(CASE WHEN article = 'a' THEN minutes END) AS n FROM reads PRIVATE": (
        "fc77ecc05637ad4251d45b311f99b3cf49bd827b5c5b37419527a1a5677bbb1c"
    ),
    "SELECT COUNT(CASE WHEN article = 'a' THEN score END) AS n FROM reads PRIVATE": (  # NaN was counted
        "4be0960d4fbb418ad6921e8d0ca145f1ae765d2abdf74e2b200f4b5accd0936d"
    ),
}


def test_a_count_of_a_case_is_that_of_its_condition_and_its_stored_answers_stay_free() -> None:
    for text, key in STORED_BY_0_11.items():
        plan = plan_of(text)
        assert key in plan.named_keys
        assert not plan.earlier_key
    filtered = plan_of("SELECT COUNT(*) FILTER (WHERE article = 'a') AS n FROM reads PRIVATE")
    assert plan_of(next(iter(STORED_BY_0_11))).key == filtered.key
    assert filtered.named_keys == ()


def test_a_sum_of_a_case_was_another_question() -> None:
    for text, key in OTHER_IN_0_11.items():
        plan = plan_of(text)
        assert plan.earlier_key == key
        assert key not in {plan.key, *plan.named_keys, *plan.similar_keys}


def test_a_sum_that_0_11_refused_has_no_earlier_key() -> None:
    query = plan_of("SELECT SUM(minutes * 2) AS s FROM reads PRIVATE").query
    (measure,) = query.measures
    both = replace(measure, columns=(("reads", "minutes"), ("reads", "amount")))  # two bounds: it was refused
    for columns in (both.columns, ()):
        found = find_changed_readings(replace(query, measures=(replace(measure, columns=columns),)), TERMS)
        assert found is not None
        assert found.measures is None


def test_a_later_field_of_a_measure_is_in_the_key_only_where_it_says_something(monkeypatch: pytest.MonkeyPatch) -> None:
    bare, bounded = Measure(Aggregate.ROWS), Measure(Aggregate.ROWS, bounds=ContributionRange(0, 4))
    fields = ("aggregate", "argument", "condition", "columns")  # as if bounds were new
    monkeypatch.setattr(replay_key, "_RECORDED_FIELDS", {Measure: fields})
    assert encode_value(bare) == {"Measure": [{"Aggregate": "ROWS"}, None, None, []]}
    known = encode_value(bounded)
    assert known == {"Measure": [{"Aggregate": "ROWS"}, None, None, [], ["bounds", encode_value(bounded.bounds)]]}
