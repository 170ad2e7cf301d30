"""Advice beside answers: why one is short and what would bring more, and which charges are likely wasted."""

from __future__ import annotations

import re
import warnings
from datetime import UTC, datetime, timedelta

import pytest
from support.session_kit import rebuilt, seeded, session_on, shared, values_rows

import dpsql
from dpsql.report.answer_json import encode_answer
from dpsql.session import Session
from dpsql.sql.ir.measures import Aggregate

FLAT = {f"page {at}": 60 for at in range(30)}
NAMES = "SELECT article AS page FROM reads GROUP BY article TOP 10 PRIVATE"


def session_over(counts: dict[str, int], **table: object) -> Session:
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PrivateTable("user_id", **table)})  # type: ignore[arg-type]
    return session_on(shared(*values_rows(counts)), policy)


def numbers(text: str) -> list[int]:
    return [int(found.replace(",", "")) for found in re.findall(r"about ([\d,]+)", text)]


def test_an_empty_answer_says_why_and_what_would_bring_more() -> None:
    answer = seeded(session_over(FLAT), 1).sql(NAMES)
    assert len(answer) == 0
    found = re.fullmatch(
        r"No page stood out, or there is none\. At this price a page needs about ([\d,]+) users if each "
        r"user is in no other page, and at most about ([\d,]+) more than the 1,001st largest page, if there is one "
        r"\(with max_groups_contributed = 3 about ([\d,]+) to ([\d,]+), with epsilon = 0\.0856 about ([\d,]+) to "
        r"([\d,]+)\)\. "
        r"To see more: raise epsilon, ask for fewer keys at a higher epsilon, set a bound, name a domain or group by "
        r"something coarser than page\.",
        answer.explanation,
    )
    assert found
    need, most, *others = (int(number.replace(",", "")) for number in found.groups())
    assert need < most
    assert all(other < need for other in others[::2])
    assert all(other < most for other in others[1::2])
    explained = str(session_over(FLAT).explain(NAMES))
    for pattern, number in ((r"weight of ([\d.]+)", need), (r"threshold +\|? *([\d.]+) units", most)):
        written = re.search(pattern, explained)
        assert written
        assert round(float(written[1])) == number


@pytest.mark.parametrize(
    ("key", "noun", "coarser"),
    [
        ("article AS articles", "value of articles", "articles"),
        ("article AS addresses", "value of addresses", "addresses"),
        ("length(article) AS seconds", "value of seconds", "seconds"),
        ("article AS page, article || 'x' AS twice", "combination of page and twice", "page and twice"),
    ],
)
def test_advice_has_no_plural_as_one_key(key: str, noun: str, coarser: str) -> None:
    said = session_over(FLAT).sql(f"SELECT {key} FROM reads GROUP BY ALL TOP 10 PRIVATE").explanation
    assert f"a {noun} needs about" in said
    assert said.endswith(f"group by something coarser than {coarser}.")


@pytest.mark.parametrize("option", ["max_groups_contributed = 3", "epsilon = 0.0856"])
def test_an_option_that_is_proposed_works_and_needs_what_was_said(option: str) -> None:
    session = session_over(FLAT)
    said = re.search(rf"with {re.escape(option)} about ([\d,]*\d)", session.sql(NAMES).explanation)
    assert said
    explained = session.sql(f"{NAMES} WITH ({option})").explanation
    assert f"a page needs about {said.group(1)} users" in explained


def test_no_option_is_proposed_with_which_a_group_needs_more_users_than_there_are() -> None:
    text = f"{NAMES} WITH (consent = true)"
    for population, least in ((300, 0), (200, 1)):
        said = session_over(FLAT, population=population).sql(text).explanation
        assert f"; there are about {population} in all (with " in said
        options = numbers(said.partition("(with ")[2].partition(")")[0])
        assert options
        assert max(options) <= population
        assert ("with epsilon" not in said) == least


def test_an_empty_answer_of_rows_says_what_counting_users_would_need() -> None:
    session = session_over(FLAT)
    rows = NAMES.replace("page", "page, COUNT(*, contribution_bounds_per_group => (0, 5)) AS n", 1)
    said = session.sql(rows).explanation
    needed = re.search(
        r"Ranked by COUNT\(DISTINCT user_id\), a page needs about ([\d,]+) users .*: end .* with (.*)\.", said
    )
    assert needed
    by_users = session.explain(rows.replace("TOP 10 PRIVATE", needed[2].partition(". ")[0]))
    assert by_users.query.measures[0].aggregate is Aggregate.UNITS
    assert f"a page needs about {needed[1]} users " in by_users.needs
    assert f"about {needed[1]} rows" not in said
    few = session_over(FLAT, population=200).sql(f"{rows} WITH (consent = true)").explanation
    assert "Ranked by" not in few


@pytest.mark.parametrize(
    ("measure", "change"),
    [
        ("COUNT(*)", "max_rows_contributed = 3"),
        ("COUNT(*) FILTER (WHERE user_id > 0)", "max_rows_contributed = 3"),
        ("COUNT(DISTINCT user_id % 9)", "max_items_contributed = 3"),
        ("COUNT(*, contribution_bounds_per_group => (0, 8))", "COUNT(*, contribution_bounds_per_group => (0, 3))"),
        ("SUM(points)", "SUM(points, contribution_bounds_per_group => (0, 125))"),
        ("AVG(points)", "max_rows_contributed = 3"),
    ],
)
def test_a_smaller_bound_of_what_ranks_is_named_with_what_is_needed_then(measure: str, change: str) -> None:
    bounds = {"rows": 18, "points": {"max": 500, "each": {"min": 0, "max": 100}}}
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PrivateTable("user_id", bounds=bounds)})
    rows = "SELECT i AS user_id, 'page ' || i % 9 AS page, 1e0 AS points FROM range(90) t(i)"
    text = f"SELECT page, {measure} AS n FROM reads GROUP BY page TOP 10 PRIVATE"
    with session_on(shared(f"CREATE TABLE reads AS {rows}"), policy) as session:
        said = re.search(rf"with {re.escape(change)} about ([\d,]*\d)", session.sql(text).explanation)
        assert said
        changed = f"{text} WITH ({change})" if " = " in change else text.replace(measure, change)
        assert re.search(rf"needs (a sum of )?about {said[1]}\b", session.explain(changed).needs)


def test_an_answer_says_how_many_rows_having_left_out() -> None:
    text = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article HAVING n > {} TOP 3 PRIVATE {}"
    with session_over({"a": 9000, "b": 8000, "c": 3000}) as session:
        for least, limit, said in ((5000, "", "1 row"), (8500, "", "2 rows"), (5000, "LIMIT 1", "1 row"), (0, "", "")):
            answer = session.sql(text.format(least, limit))
            assert answer.explanation == (said and f"HAVING left out {said}.")


def test_a_series_is_shown_the_way_to_all_its_dates() -> None:
    session = session_on(shared("CREATE TABLE reads AS SELECT 1 AS user_id, DATE '2026-01-01' AS day"))
    said = session.sql("SELECT day FROM reads GROUP BY day TOP 5 PRIVATE").explanation
    assert "write ALL PRIVATE with the first and last date in WHERE" in said
    assert "name a domain" not in said


def test_a_short_answer_says_how_many_stood_out() -> None:
    answer = session_over({"a": 9000, "b": 8000, "c": 3}).sql(NAMES)
    assert len(answer) == 2
    assert answer.explanation.startswith(
        "Only 2 of 10 pages stood out, or there are no more. At this price a page needs about "
    )
    assert str(answer.receipt).startswith("answered 2 of 10; used ")


@pytest.mark.parametrize(("name", "noun"), [("item_id", "item"), ("pageId", "page"), ("id", "id"), ("day", "day")])
def test_a_key_is_called_by_what_its_name_identifies(name: str, noun: str) -> None:
    answer = session_over(FLAT).sql(f'SELECT article AS "{name}" FROM reads GROUP BY article TOP 10 PRIVATE')
    assert answer.explanation.startswith(f"No {noun} stood out, or there is none.")


@pytest.mark.parametrize("name", ["n", "x", "dt", "h1"])
def test_a_key_whose_name_is_no_word_is_called_a_value_of_it(name: str) -> None:
    answer = session_over({"a": 9000, "b": 8000, "c": 3}).sql(NAMES.replace("page", name))
    lead = f'Only 2 of 10 values of "{name}" stood out, or there are no more. At this price a value of "{name}" needs '
    assert answer.explanation.startswith(lead)


def test_a_key_that_only_a_cast_names_is_called_a_value() -> None:
    answer = session_over(FLAT).sql("SELECT article::VARCHAR FROM reads GROUP BY 1 TOP 10 PRIVATE")
    assert answer.explanation.startswith("No value of article::VARCHAR stood out, or there is none.")


def test_a_bound_is_spoken_of_where_counts_are_shown() -> None:
    text = (
        "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 3 PRIVATE WITH (epsilon = 0.1, "
    )
    text += "max_groups_contributed = 2)"
    assert session_over({"a": 1}).sql(text).bound_note == ""
    assert session_over({"a": 9000}).sql(text).bound_note != ""


def test_an_answer_that_is_whole_needs_no_explanation() -> None:
    answer = session_over({"a": 9000, "b": 8000}).sql(NAMES.replace("10", "2"))
    assert (len(answer), answer.explanation, answer.warnings) == (2, "", ())
    assert answer.notes() == [str(answer.receipt)]


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("SELECT article, user_id % 2 AS half FROM reads GROUP BY article, half TOP 5 PRIVATE", "No combination of"),
        ("SELECT article FROM reads GROUP BY article TOP ADAPTIVE PRIVATE", "No list of articles ended in a wide gap."),
        (
            "SELECT article FROM reads GROUP BY article TOP 5 PRIVATE WITH (mechanism = stable)",
            "No article stood out, or there is none.",
        ),
        (
            "SELECT article FROM reads GROUP BY 1 TOP 5 PRIVATE WITH (mechanism = weighted_gaussian)",
            "No article stood out, or there is none. At this price an article needs about ",
        ),
        (
            "SELECT user_id % 3 AS p, article FROM reads GROUP BY 1, 2 TOP 5 PRIVATE PER p WITH (partitions = ['0'])",
            "No combination of p and article stood out, or there is none. At this price ",
        ),
    ],
)
def test_every_kind_of_query_has_its_words(text: str, start: str) -> None:
    answer = session_over(FLAT).sql(text)
    assert len(answer) == 0
    assert answer.explanation.startswith(start)
    assert answer.explanation.endswith(".")


def test_the_explanation_is_the_same_whatever_the_rows_are() -> None:
    told = {session_over(rows).sql(NAMES).explanation for rows in ({}, {"a": 1}, {"a": 3, "b": 2}, FLAT)}
    assert len(told) == 1


def test_a_lower_bound_is_proposed_where_there_is_one_and_never_above_the_policys() -> None:
    session = session_over(FLAT, max_groups_contributed=10)
    assert "lower the bound" in session.sql(NAMES).explanation
    assert "max_groups_contributed = 3" in session.sql(NAMES).explanation
    least = session_over(FLAT, max_groups_contributed=1).sql(NAMES).explanation
    assert "bound" not in least.split("To see more:")[1]


def test_a_stored_answer_that_was_drawn_on_other_terms_says_what_a_new_one_needs() -> None:
    session = session_over(FLAT)
    first = session.sql(NAMES)
    parts = session._dependencies
    later = rebuilt(session)
    object.__setattr__(
        later._dependencies,
        "terms",
        parts.terms.of_policy(
            dpsql.Policy(dpsql.Budget(1, "1e-6", items=50), {"reads": dpsql.PrivateTable("user_id")})
        ),
    )
    again = later.sql(NAMES)
    assert again.receipt.replayed
    assert "Asked again with fresh = true, which is charged, a page needs about " in again.explanation
    assert numbers(again.explanation)[0] < numbers(first.explanation)[0]


# warnings


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT user_id FROM reads GROUP BY user_id TOP 5 PRIVATE", "Each group is a single user"),
        ("SELECT article, user_id FROM reads GROUP BY 1, 2 TOP 5 PRIVATE", "Each group is a single user"),
        ("SELECT article FROM reads WHERE user_id = 7 GROUP BY article TOP 5 PRIVATE", "leaves at most one user"),
        ("SELECT article FROM reads WHERE 7 = user_id GROUP BY article TOP 5 PRIVATE", "leaves at most one user"),
        ("SELECT article FROM reads WHERE user_id IN (1, 2) GROUP BY article TOP 5 PRIVATE", "leaves at most 2 users"),
        (
            "SELECT article FROM (SELECT * FROM reads WHERE user_id = 7) GROUP BY article TOP 5 PRIVATE",
            "leaves at most one user",
        ),
        ("SELECT article FROM reads GROUP BY article TOP 5 PRIVATE WITH (fresh = true)", "fresh = true is charged"),
        (
            "SELECT article FROM reads WHERE TIMESTAMP '2020-01-01' < now()::TIMESTAMP GROUP BY 1 TOP 5 PRIVATE",
            "reads the clock to the second",
        ),
        (
            "SELECT n FROM (SELECT article AS n FROM reads WHERE user_id = 7 GROUP BY article TOP 5 PRIVATE) LIMIT 3",
            "leaves at most one user",
        ),
    ],
)
def test_a_charge_that_is_likely_wasted_is_warned_of_before_it_is_made(text: str, words: str) -> None:
    session = session_over({"a": 9000})
    (shown,) = [value for name, value in session.sql(f"EXPLAIN {text}").fetchall() if name == "warning"]
    assert words in shown
    with warnings.catch_warnings():
        warnings.simplefilter("error", dpsql.WastedChargeWarning)
        with pytest.raises(dpsql.WastedChargeWarning, match=re.escape(words)):
            session.sql(text, consent=True)
    assert session.budget.rho.spent == session.budget.rho.reserved == 0
    with pytest.warns(dpsql.WastedChargeWarning, match=re.escape(words)) as caught:
        answer = session.sql(text, consent=True)
    assert caught[0].filename == __file__
    assert [words in warning for warning in answer.warnings] == [True]
    assert f"warning: {answer.warnings[0]}" in repr(answer)
    assert answer.warnings[0].split("'")[0] in answer._repr_html_()
    assert encode_answer(answer)["warnings"] == list(answer.warnings)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT article FROM reads GROUP BY article TOP 5 PRIVATE",
        "SELECT user_id % 10 AS digit FROM reads GROUP BY digit TOP 5 PRIVATE",
        "SELECT article FROM reads WHERE user_id <> 7 AND user_id > 3 GROUP BY article TOP 5 PRIVATE",
        "SELECT article FROM reads WHERE user_id = 7 OR article = 'a' GROUP BY article TOP 5 PRIVATE",
        "SELECT article FROM reads WHERE TIMESTAMP '2020-01-01' < current_date GROUP BY 1 TOP 5 PRIVATE",
        "SELECT article FROM reads WHERE TIMESTAMP '2020-01-01' < date_trunc('hour', now()) GROUP BY 1 TOP 5 PRIVATE",
        f"SELECT article FROM reads WHERE user_id IN ({', '.join(map(str, range(900)))}) GROUP BY 1 TOP 5 PRIVATE",
    ],
)
def test_other_queries_are_not_warned_of(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", dpsql.WastedChargeWarning)
        assert session_over({"a": 9000}).sql(text).warnings == ()


def test_a_stored_answer_issues_no_warning_again() -> None:
    session = session_over({"a": 9000})
    text = "SELECT article FROM reads WHERE user_id = 7 GROUP BY article TOP 5 PRIVATE"
    with pytest.warns(dpsql.WastedChargeWarning):
        session.sql(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error", dpsql.WastedChargeWarning)
        assert session.sql(text).warnings != ()


def test_a_k_beyond_the_population_is_warned_of() -> None:
    session = session_over({"a": 9000}, population=9000)
    text = "SELECT article FROM reads GROUP BY article TOP {k} PRIVATE"
    (warning,) = session.explain(text.format(k=50)).warnings
    found = re.match(
        r"TOP 50 is more than is likely to stand out: each needs about ([\d,]+) users, which of about "
        r"9,000 in all perhaps the first ([\d,]+) articles have\.",
        warning,
    )
    assert found
    assert int(found.group(2)) < 50
    assert session.explain(text.format(k=10)).warnings == ()


def test_a_query_that_cannot_be_afforded_says_so_in_its_plan() -> None:
    session = session_over({"a": 9000})
    shown = session.sql("EXPLAIN SELECT article FROM reads GROUP BY article TOP 101 PRIVATE").fetchall()
    (warning,) = [value for name, value in shown if name == "warning"]
    assert warning == "It may cost more than what is left of the budget: it would be refused, and nothing charged."


def test_the_clock_is_told_apart_to_the_second_and_no_finer() -> None:
    moment = datetime(2026, 11, 23, 23, 59, 59, tzinfo=UTC)
    session = session_over({"a": 9000})
    object.__setattr__(session._dependencies, "clock", lambda: moment + timedelta(microseconds=5))
    text = "SELECT article FROM reads WHERE TIMESTAMP '2020-01-01' < {} GROUP BY 1 TOP 5 PRIVATE"
    assert Session(session._dependencies).explain(text.format("today()")).warnings == ()
    assert Session(session._dependencies).explain(text.format("now()::TIMESTAMP")).warnings != ()


def test_a_query_that_groups_by_the_unit_is_not_told_to_spend_more() -> None:
    answer = session_over(FLAT).sql("SELECT user_id FROM reads GROUP BY user_id TOP 5 PRIVATE", consent=True)
    assert answer.explanation == "No user stood out. Each is a single user: group by a column that many users share."


# what lacks PRIVATE


@pytest.mark.parametrize(
    ("text", "follows"),
    [
        ("SELECT AVG(dwell) FROM reads", True),
        ("SELECT COUNT(*), SUM(dwell) AS s FROM reads WHERE article = 'a'", True),
        ("SELECT AVG(ms) FROM reads", False),  # without bounds, as is the range of a row
        ("SELECT STDDEV(dwell) FROM reads", False),
        ("SELECT AVG(dwell) FROM reads LIMIT 1", False),
    ],
)
def test_a_total_that_has_its_bounds_lacks_only_private(text: str, follows: bool) -> None:
    rows = "CREATE TABLE reads AS SELECT i AS user_id, 'a' AS article, i % 9 AS dwell, i AS ms FROM range(3000) t(i)"
    table = dpsql.PrivateTable("user_id", bounds={"rows": 20, "dwell": {"max": 600}})
    session = session_on(shared(rows), dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": table}))
    with pytest.raises(dpsql.Refusal) as caught:
        session.sql(text)
    assert (caught.value.hint == "End the query with PRIVATE.") is follows
    _, _, total = str(caught.value.hint).partition("Ask for a total: ")
    assert len(session.sql(total or f"{text} PRIVATE")) == 1


@pytest.mark.parametrize("text", ["SELECT artcle FROM reads", "SELECT upper(r.artcle), 1 FROM reads r"])
def test_a_misspelt_column_of_rows_is_named(text: str) -> None:
    with pytest.raises(dpsql.Refusal) as caught:
        session_over({"a": 9000}).sql(text)
    assert caught.value.code == "not-private"
    assert "There is no column artcle here. Did you mean article? Ask for" in str(caught.value.hint)
    assert "SELECT article, " in str(caught.value.hint)
