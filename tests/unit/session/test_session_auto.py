"""mechanism = AUTO in a session: one replay key with the name, what EXPLAIN shows, and a public guess of counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import duckdb
import pytest
from support.session_kit import filled, session_on, shared

import dpsql
from dpsql.plan import Plan, compute_release_key
from dpsql.session import Session
from dpsql.sql.analysis.domains import MAX_ASSUMED, MAX_UNITS

GUESSES = {
    "steep": "SELECT 4 * i * i AS units FROM range(1, 51) t(i)",
    "strange": "SELECT unnest([NULL, -5, 0, 9223372036854775807, 1, NULL, 3])::BIGINT AS units",
    "nothing": "SELECT NULL::INTEGER AS units",
    "empty": "SELECT 1::UTINYINT AS units WHERE false",
    "many": "SELECT CASE WHEN i < 60000 THEN 1 ELSE 1000 END AS units FROM range(60005) t(i)",
    "kinds": "SELECT 1.5::DOUBLE AS d, 'x' AS s, 1.5::DECIMAL(4, 1) AS m, 7::UBIGINT AS u, true AS b",
}
Database = Callable[..., duckdb.DuckDBPyConnection]
LARGE = "INSERT INTO reads SELECT i, 'a' || j FROM range(500) u(i), range(30) v(j) WHERE i < 500 - 10 * j"


def session_over(*statements: str, database: Database = shared, **bounds: int) -> Session:
    public = {name: dpsql.PublicTable() for name in GUESSES}
    tables = {"reads": dpsql.PrivateTable("user_id", **bounds), **public}
    made = [f"CREATE TABLE {name} AS {query}" for name, query in GUESSES.items()]
    connection = database("CREATE TABLE reads (user_id BIGINT, article VARCHAR)", *made, *statements)
    policy = dpsql.Policy(dpsql.Budget(50, "0.5"), tables, limits=dpsql.Limits(max_epsilon=1))
    return session_on(connection, policy)


def names(*more: str, k: int = 3) -> str:
    options = ", ".join(["epsilon = 0.5", "delta = 1e-6", *more])
    return f"SELECT article FROM reads GROUP BY article TOP {k} PRIVATE WITH ({options})"


def counts(*more: str, k: int = 3) -> str:
    return names(*more, k=k).replace("article FROM", "article, COUNT(DISTINCT user_id) AS n FROM", 1)


def shown(session: Session, text: str) -> dict[str, str]:
    return dict(session.sql("EXPLAIN " + text).fetchall())  # type: ignore[arg-type]


def recalls(plan: Plan) -> list[float | None]:
    return [each.recall for each in plan.considered]


@pytest.mark.parametrize(
    ("text", "wins"),
    [
        (names(), "two_looks"),
        (names(k=1), "two_looks"),
        (names(k=40), "two_looks"),
        (counts("max_groups_contributed = 1"), "two_looks"),
        (names("k_bar = AUTO"), "limited_domain"),
        (names("domain = ['a1', 'a2', 'x']").replace(", delta = 1e-6", ""), "peeling"),
    ],
)
def test_auto_and_the_mechanism_that_it_chose_are_one_question(text: str, wins: str) -> None:
    session = session_over(LARGE)
    spelled = [text.replace("WITH (", f"WITH (mechanism = {name}, ") for name in ("AUTO", "'auto'", wins)]
    plans = [session.explain(each) for each in (text, *spelled)]
    assert {plan.mechanism for plan in plans} == {wins}
    assert len({compute_release_key(plan) for plan in plans}) == 1
    first = session.sql(text)
    assert first.receipt.mechanism == wins
    for each in spelled:
        again = session.sql(each)
        assert again.receipt.replayed
        assert again.fetchall() == first.fetchall()
    assert "costs nothing" in shown(session, text)["stored"]


WHAT = [
    "article",
    "country, article",
    "article, COUNT(DISTINCT user_id) AS n",
    "country, article, COUNT(DISTINCT user_id) AS n",
]


@pytest.mark.parametrize("columns", WHAT)
@pytest.mark.parametrize(("k", "groups"), [(2, None), (2, 1), (2, 8), (25, None), (25, 3), (25, 300)])
def test_whichever_was_chosen_answers_and_charges_no_more_than_it_said(
    columns: str, k: int, groups: int | None
) -> None:
    """Two countries of two articles with their own 900 and 500 readers, each in one group alone."""
    made = [
        f"INSERT INTO visits SELECT {first} + i, '{country}', '{article}' FROM range({units}) t(i)"
        for first, country, article, units in (
            (0, "DE", "a", 900),
            (1_000, "DE", "b", 500),
            (2_000, "FR", "c", 900),
            (3_000, "FR", "d", 500),
        )
    ]
    connection = shared("CREATE TABLE visits (user_id BIGINT, country VARCHAR, article VARCHAR)", *made)
    policy = dpsql.Policy(dpsql.Budget(50, "1e-3"), {"visits": dpsql.PrivateTable("user_id")})
    session = session_on(connection, policy)
    per, bound = "country" in columns, "" if groups is None else f", max_groups_contributed = {groups}"
    text = (
        f"SELECT {columns} FROM visits GROUP BY ALL TOP {k} PRIVATE {'PER country' if per else ''} WITH (epsilon = 0.5"
    )
    text += f"{bound}{', partitions = ' + repr(['DE', 'FR']) if per else ''})"
    plan, answer = session.explain(text), session.sql(text)
    assert answer.receipt.mechanism == plan.mechanism
    assert session.sql(text).receipt.replayed
    assert session.sql(text).fetchall() == answer.fetchall()
    assert answer.receipt.items_charged <= plan.worst_items
    assert session.budget.rho.spent <= plan.price(plan.worst_case).rho.value
    at = columns.split(", ").index("article")
    found = [row[at] for row in answer.fetchall()]
    if per:
        assert found == ["a", "b", "c", "d"]
    else:
        assert sorted(found) == (["a", "c"] if k == 2 else ["a", "b", "c", "d"])
    if "AS n" in columns:
        assert all(abs(row[-1] - (900 if row[at] in {"a", "c"} else 500)) < 150 for row in answer.fetchall())  # type: ignore[operator]


def test_explain_shows_the_candidates_and_why_one_won() -> None:
    session = session_over()
    facts = shown(session, counts("max_groups_contributed = 2", k=20))
    assert facts["mechanism"] == "two_looks"
    assert facts["chosen because"] == "it looks first how much stands out, and then answers as that favours"
    candidates = [name.removeprefix("candidate ") for name in facts if name.startswith("candidate ")]
    assert candidates == [
        "limited_domain",
        "two_looks",
        "gaussian_histogram",
        "laplace_limited_domain",
        "weighted_gaussian",
        "domain_discovery",
    ]
    assert all("22 items at most" in value for name, value in facts.items() if name.startswith("candidate "))
    assert "above group number 401" in facts["candidate limited_domain"]
    assert not any("top k" in value for value in facts.values())
    wide = shown(session, names(k=20))
    assert "if each unit is in 40 groups" in wide["candidate weighted_gaussian"]
    assert "candidate gaussian_histogram" not in wide


def test_explain_says_where_the_mechanism_was_asked_for() -> None:
    session = session_over()
    for mechanism in ("limited_domain", "weighted_gaussian", "domain_discovery", "stable", "top_stable"):
        facts = shown(session, names(f"mechanism = {mechanism}", k=20))
        assert facts["mechanism"] == mechanism
        assert facts["chosen because"] == "the query names it"
        assert "candidate weighted_gaussian" in facts


@pytest.mark.parametrize("more", ["k_bar = 50", "k_bar = 50, max_groups_contributed = 1"])
def test_explain_says_where_there_was_no_choice(more: str) -> None:
    facts = shown(session_over(min_units=20), names(more, k=1))
    assert facts["mechanism"] == "limited_domain"
    assert "no other" in facts["chosen because"]


def test_as_many_as_stand_out_has_no_candidates() -> None:
    facts = shown(session_over(), names("assume = 'zipf(1, 100)'").replace("TOP 3", "TOP ADAPTIVE"))
    assert facts["mechanism"] == "stable"
    assert not any(name.startswith(("chosen", "candidate")) for name in facts)


@pytest.mark.parametrize(
    ("guess", "parameters"),
    [
        ("'zipf(1.0, 5000)'", ()),
        ("' Zipf ( 1 , 5000 ) '", ()),
        ("?", ("zipf(1.0, 5000)",)),
        ("'steep.units'", ()),
        ("'STEEP.\"units\"'", ()),
        ("?", ("steep.units",)),
    ],
)
def test_a_guess_is_a_law_or_a_public_column(guess: str, parameters: Sequence[object]) -> None:
    session = session_over()
    text = names(f"assume = {guess}", "max_groups_contributed = 2")
    plan = session.explain(text, parameters)
    assert len(plan.considered) == 6
    assert all(recall == 1 for recall in recalls(plan))
    table = session.sql("EXPLAIN " + text, parameters).fetchall()
    told = [str(value) for name, value in table if str(name).startswith("candidate ")]
    assert len(told) == 6
    assert all(value.endswith("finds 1.00 of the top k if the counts are as assumed") for value in told)
    assert session.budget.rho.spent == 0


def test_a_guess_of_nothing_but_small_groups_finds_nothing() -> None:
    plan = session_over().explain(
        names("assume = 'zipf(0, 1)'", "max_groups_contributed = 2", "delta = 1e-9").replace("delta = 1e-6, ", "")
    )
    assert all(recall is not None and recall < 0.01 for recall in recalls(plan))


@pytest.mark.parametrize("guess", ["nothing.units", "empty.units", "zipf(1, 0)"])
def test_a_guess_without_groups_has_nothing_to_miss(guess: str) -> None:
    plan = session_over().explain(names(f"assume = '{guess}'", "max_groups_contributed = 2"))
    assert plan.query.assumed is not None
    assert plan.query.assumed.counts == ()
    assert set(recalls(plan)) == {1.0}


def test_what_is_no_count_of_a_group_is_left_out_of_the_guess() -> None:
    plan = session_over().explain(names("assume = 'strange.units'", "max_groups_contributed = 2", k=30))
    assert plan.query.assumed is not None
    assert plan.query.assumed.counts == (MAX_UNITS, 3, 1)
    for each in plan.considered:
        looks = each.name == "two_looks" or getattr(each.mechanism.plan(each.request), "gate", None) is not None
        assert each.recall is not None
        assert (0 if looks else 1 / 3) <= each.recall < 1  # one of 30 is often too few for a look


def test_the_highest_counts_of_a_long_table_are_read() -> None:
    plan = session_over().explain(names("assume = 'many.units'"))
    assert plan.query.assumed is not None
    assert plan.query.assumed.counts == (1000,) * 5 + (1,) * (MAX_ASSUMED - 5)


def test_the_law_of_zipf_is_rounded_down_and_ends() -> None:
    session = session_over()

    def guessed(law: str) -> tuple[int, ...]:
        plan = session.explain(names(f"assume = '{law}'"))
        assert plan.query.assumed is not None
        return plan.query.assumed.counts

    assert guessed("zipf(1.0, 10)") == (10, 5, 3, 2, 2, 1, 1, 1, 1, 1)
    assert guessed("zipf(2, 16)") == (16, 4, 1, 1)
    assert guessed("zipf(99, 999999999)") == (999_999_999,)
    assert guessed("zipf(0, 4)") == (4,) * MAX_ASSUMED


def test_listed_candidates_of_whom_nothing_is_said_take_part_with_nothing() -> None:
    """Two counts of one unit among sixty candidates are hardly ever found; where there are but two, always."""
    session = session_over()
    listed = ", ".join(repr(f"v{n}") for n in range(60))
    text = names("domain = [{}]", "assume = 'zipf(0.5, 1)'", k=1).replace(
        "epsilon = 0.5, delta = 1e-6", "epsilon = 0.01"
    )
    assert all(recall is not None and recall < 0.5 for recall in recalls(session.explain(text.format(listed))))
    alone = {each.name: each.recall for each in session.explain(text.format("'v1'")).considered}
    assert alone["peeling"] == 1
    assert alone["joint"] is not None
    assert alone["joint"] < 0.5  # behind its gate


def test_more_than_can_be_tried_is_not_told() -> None:
    text = names("domain = 'kinds.s'", "assume = 'zipf(0, 9)'", k=500).replace(", delta = 1e-6", "")
    found = {each.name: each.recall for each in session_over().explain(text).considered}
    assert (found["peeling"], found["joint"]) == (1, None)


BAD = [
    ("'reads.user_id'", "must be public"),
    ("'reads.article'", "must be public"),
    ("'nowhere.units'", "no such table"),
    ("'units'", "no such table"),
    ("''", "no such table"),
    ("'steep.nothing'", "no such column"),
    ("'kinds.d'", "whole numbers"),
    ("'kinds.s'", "whole numbers"),
    ("'kinds.m'", "whole numbers"),
    ("'kinds.u'", "whole numbers"),
    ("'kinds.b'", "whole numbers"),
    ("'zipf(1.0)'", "no guess"),
    ("'zipf(-1, 10)'", "no guess"),
    ("'zipf(1, 1e3)'", "no guess"),
    ("'zipf(nan, 10)'", "no guess"),
    ("'zipf(1, 10); x'", "no guess"),
    ("'zipf(1.0, 9999999999)'", "no guess"),
    ("['1', '2']", "no guess"),
    ("5", "no guess"),
    ("auto", "no guess"),
]


@pytest.mark.parametrize(("guess", "reason"), BAD)
def test_what_is_no_guess_is_refused_and_the_hint_says_what_is(guess: str, reason: str) -> None:
    session = session_over(LARGE)
    text = names(f"assume = {guess}")
    for statement in (text, "EXPLAIN " + text):
        with pytest.raises(dpsql.Refusal, match=reason) as caught:
            session.sql(statement)
        assert caught.value.code == "assume"
        assert caught.value.place is not None
        assert caught.value.place.fragment.startswith("assume")  # type: ignore[union-attr]
        assert caught.value.hint
        assert "list" not in caught.value.hint.lower()
        assert "['DE'" not in caught.value.hint
        assert "Cast" not in caught.value.hint
    assert session.budget.rho.spent == 0


def test_without_a_public_table_the_hint_names_the_law() -> None:
    session = session_on(filled("CREATE TABLE reads (user_id BIGINT, article VARCHAR)"))
    with pytest.raises(dpsql.Refusal) as caught:
        session.sql("SELECT article FROM reads GROUP BY article TOP 3 PRIVATE WITH (assume = 'guesses.units')")
    assert "zipf(1.0, 5000)" in caught.value.hint


@pytest.mark.parametrize("guess", ["zipf(1.0, 5000)", "steep.units", "empty.units"])
def test_a_guess_changes_nothing_of_an_answer(guess: str) -> None:
    session = session_over(LARGE)
    first = session.sql(counts("max_groups_contributed = 2"))
    again = session.sql(counts("max_groups_contributed = 2", f"assume = '{guess}'"))
    assert again.receipt.replayed
    assert again.fetchall() == first.fetchall()
    assert again.receipt.mechanism == first.receipt.mechanism
    plain, guessed = (
        session.explain(counts("max_groups_contributed = 2", *more)) for more in ((), (f"assume = '{guess}'",))
    )
    assert compute_release_key(plain) == compute_release_key(guessed)
    assert (plain.mechanism, plain.worst_case, plain.counting) == (
        guessed.mechanism,
        guessed.worst_case,
        guessed.counting,
    )


def test_no_guess_is_read_but_to_explain() -> None:
    """The table of the guess is gone since the session opened: the answer does not miss it."""
    session = session_over(LARGE, database=filled)
    session._dependencies.engine._connection.execute("DROP TABLE memory.main.steep")  # type: ignore[attr-defined]
    assert len(session.sql(names("assume = 'steep.units'"))) == 3
    with pytest.raises(dpsql.Error):
        session.sql("EXPLAIN " + names("assume = 'steep.units'"))


def test_the_data_decides_nothing_of_a_plan() -> None:
    text = counts("max_groups_contributed = 2", "assume = 'steep.units'", k=20)
    plans = [session_over(*rows).explain(text) for rows in ((), (LARGE,))]
    assert plans[0].considered == plans[1].considered
    assert plans[0].mechanism_plan == plans[1].mechanism_plan
