"""Quantiles through SQL: their spellings, what they cost, between which quantiles they lie, and what is refused."""

from __future__ import annotations

import re

import pytest
from support.session_kit import seeded, session_on, shared

import dpsql
from dpsql.report.answer_json import encode_answer
from dpsql.session import Session

CREATE = "CREATE TABLE visits (id BIGINT, page VARCHAR, dwell INTEGER, speed DOUBLE, price DECIMAL(10, 2), day DATE)"
# 3,000 users with 5 visits of 0 to 600 seconds, half of them of each page; one user more has 400 of 600
ROWS = (
    (
        "INSERT INTO visits SELECT i % 3000, if(i % 2 = 0, 'a', 'b'), i * 7 % 601, (i * 7 % 601) / 4, i * 7 % 601, "
        "DATE '2026-01-01' + CAST(i % 30 AS INTEGER) FROM range(15000) t(i)"
    ),
    "INSERT INTO visits SELECT 10000, 'a', 600, 'nan', NULL, NULL FROM range(400)",
)
BOUNDS = {"rows": 5, "dwell": {"each": {"min": 0, "max": 600}}, "price": {"max": 3000, "each": {"min": 0, "max": 600}}}
WITH = "PRIVATE WITH (epsilon = 1)"
LEAST, GREATEST = 280, 320  # of a median: 100 rows of 15,000 are 4 seconds


def session_over(*rows: str, budget: dpsql.Budget | None = None, bounds: object = BOUNDS, **table: object) -> Session:
    private = dpsql.PrivateTable("id", bounds=bounds, **table)  # type: ignore[arg-type]
    policy = dpsql.Policy(
        budget or dpsql.Budget(100, "1e-6"), {"visits": private}, limits=dpsql.Limits(max_epsilon=100)
    )
    return session_on(shared(CREATE, *(rows or ROWS)), policy)


@pytest.fixture(scope="module")
def session() -> Session:
    return seeded(session_over(), 1)


MEDIANS = [
    "MEDIAN(dwell)",
    "median(dwell)",
    "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY dwell)",
    "PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY dwell DESC)",
    "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY dwell ASC NULLS LAST)",
    "QUANTILE_CONT(dwell, 0.5)",
    "QUANTILE_DISC(dwell, 0.50)",
    "QUANTILE(dwell, 0.5)",
    "APPROX_QUANTILE(dwell, 0.5)",
    "PERCENTILE_CONT(dwell, 0.5)",
    "APPROX_QUANTILES(dwell, 100)[OFFSET(50)]",
    "APPROX_QUANTILES(dwell, 2)[ORDINAL(2)]",
]


def test_every_spelling_of_a_median_is_one_draw(session: Session) -> None:
    items = ", ".join(f"{each} AS m{at}" for at, each in enumerate(MEDIANS))
    answer = session.sql(f"SELECT {items} FROM visits {WITH}")
    (row,) = answer.fetchall()
    assert len(set(row)) == 1
    assert LEAST <= row[0] <= GREATEST
    assert answer.receipt.items_charged == 1
    assert isinstance(row[0], int)


@pytest.mark.parametrize("item", MEDIANS)
def test_every_spelling_is_the_same_question(session: Session, item: str) -> None:
    first = session.sql(f"SELECT MEDIAN(dwell) AS other FROM visits {WITH}")
    again = session.sql(f"SELECT {item} AS m FROM visits {WITH}")
    assert again.receipt.replayed
    assert again.receipt.items_charged == 0
    assert again.fetchall() == first.fetchall()


def test_the_wanted_quantile_is_counted_from_the_end_that_is_written(session: Session) -> None:
    items = "PERCENTILE_CONT(0.1) WITHIN GROUP (ORDER BY dwell DESC) AS high, QUANTILE(dwell, 0.1) AS low"
    ((high, low),) = session.sql(f"SELECT {items} FROM visits {WITH}").fetchall()
    assert 520 <= high <= 560
    assert 40 <= low <= 80


def test_quantiles_are_in_order_and_cost_an_item_each(session: Session) -> None:
    wanted = [0.25, 0.5, 0.75, 0.9, 0.95]
    items = ", ".join(f"QUANTILE(speed, {each}, contribution_bounds_per_row => (0, 150))" for each in wanted)
    text = f"SELECT {items} FROM visits {WITH}"
    assert session.explain(text).worst_items == len(wanted)
    answer = session.sql(text)
    assert answer.receipt.items_charged == len(wanted)
    (row,) = answer.fetchall()
    assert list(row) == sorted(row)
    assert all(abs(value - 150 * each) < 5 for value, each in zip(row, wanted, strict=True))


def test_a_filter_and_values_that_are_missing_leave_no_row(session: Session) -> None:
    items = "MEDIAN(dwell) FILTER (WHERE dwell < 100) AS low, MEDIAN(price) AS price, COUNT(*) AS n"
    answer = session.sql(f"SELECT {items} FROM visits {WITH}")
    ((low, price, number),) = answer.fetchall()
    assert 40 <= low <= 60
    assert LEAST <= price <= GREATEST
    assert isinstance(price, float)
    assert number > 14_900
    assert answer.receipt.items_charged == 3


def test_the_condition_of_a_count_beside_a_quantile_is_its_own(session: Session) -> None:
    items = "COUNT(DISTINCT id) FILTER (WHERE dwell < 5) AS n, MEDIAN(dwell) AS m"
    ((number, median),) = session.sql(f"SELECT {items} FROM visits {WITH}").fetchall()
    assert 50 <= number <= 200
    assert LEAST <= median <= GREATEST
    text = f"SELECT page, {items} FROM visits GROUP BY page TOP 2 {WITH}"
    assert all(LEAST <= found <= 340 for _, _, found in session.sql(text).fetchall())


def test_a_user_counts_as_so_many_rows_as_the_policy_says() -> None:
    rows = (
        "INSERT INTO visits SELECT i, 'a', 100, 1, 1, NULL FROM range(1000) t(i)",
        "INSERT INTO visits SELECT 5000, 'a', 600, 1, 1, NULL FROM range(50000)",
    )
    with session_over(*rows) as opened:
        ((median,),) = opened.sql(f"SELECT MEDIAN(dwell) FROM visits {WITH}").fetchall()
    assert median == 100


def test_known_groups_have_each_a_quantile_and_null_where_users_are_too_few(session: Session) -> None:
    text = f"SELECT page, MEDIAN(dwell) AS m FROM visits GROUP BY page ALL {WITH}"
    text = text.replace("epsilon", "domain = ['a', 'b', 'nowhere'], epsilon")
    assert session.explain(text).worst_items == 3
    answer = session.sql(text)
    found = dict(answer.fetchall())
    assert found.keys() == {"a", "b", "nowhere"}
    assert LEAST <= found["a"] <= 340
    assert LEAST <= found["b"] <= GREATEST
    assert found["nowhere"] is None or answer.receipt.items_charged == 3  # NULL in 95 of 100 answers
    assert "NULL: too few users to tell" in answer.bound_note


def test_known_groups_of_days_and_of_several_keys(session: Session) -> None:
    days = "WHERE day >= DATE '2026-01-05' AND day < DATE '2026-01-08'"
    text = f"SELECT day, MEDIAN(dwell) AS m FROM visits {days} GROUP BY day ALL {WITH}"
    assert [str(day) for day, _ in session.sql(text).fetchall()] == ["2026-01-05", "2026-01-06", "2026-01-07"]
    text = f"SELECT day, page = 'a' AS a, MEDIAN(dwell) AS m, COUNT(*) AS n FROM visits {days} GROUP BY 1, 2 ALL {WITH}"
    found = {(str(day), is_a): median for day, is_a, median, _ in session.sql(text).fetchall()}
    assert len(found) == 9
    assert all(LEAST - 60 <= found[f"2026-01-0{day}", day % 2 == 1] <= GREATEST + 60 for day in (5, 6, 7))


def test_names_that_were_released_have_quantiles_beside_their_counts() -> None:
    with session_over() as opened:
        text = f"SELECT page, MEDIAN(dwell) AS m FROM visits GROUP BY page ALL {WITH}"
        text = text.replace("epsilon", "domain = released, epsilon")
        opened.sql(f"SELECT page FROM visits GROUP BY page TOP 2 {WITH}")
        with pytest.raises(dpsql.Refusal, match="Released names are returned with their counts") as caught:
            opened.sql(text)
        assert "Select COUNT(DISTINCT id) too" in str(caught.value)
        found = opened.sql(text.replace(" AS m", " AS m, COUNT(DISTINCT id) AS n")).fetchall()
    assert {page for page, *_ in found} == {"a", "b"}
    assert all(LEAST <= median <= 340 for _, median, _ in found)


@pytest.mark.parametrize("clause", ["TOP ADAPTIVE PRIVATE WITH (", "TOP 2 PRIVATE WITH (domain = ['a', 'b', 'c'], "])
def test_other_choices_of_groups_have_quantiles(session: Session, clause: str) -> None:
    answer = session.sql(f"SELECT page, MEDIAN(dwell) AS m FROM visits GROUP BY page {clause}epsilon = 1)")
    assert all(LEAST <= median <= 340 for _, median in answer.fetchall())


def test_a_bound_on_groups_makes_known_groups_cheaper() -> None:
    with session_over(max_groups_contributed=1) as opened:
        text = f"SELECT page, MEDIAN(dwell) AS m FROM visits GROUP BY page ALL {WITH}"
        text = text.replace("epsilon", "domain = ['a', 'b', 'c'], epsilon")
        plan = opened.explain(text)
        assert plan.worst_items == 1
        assert "dense_rank" in plan.spec.further[0].sql
        answer = opened.sql(text)
        assert answer.receipt.items_charged == 1
        assert LEAST <= dict(answer.fetchall())["b"] <= GREATEST


@pytest.mark.parametrize("mechanism", ["", "mechanism = limited_domain, ", "mechanism = gaussian_histogram, "])
@pytest.mark.parametrize("counts", ["", ", COUNT(DISTINCT id) AS n"])
def test_the_groups_that_rank_first_have_quantiles(mechanism: str, counts: str) -> None:
    with session_over() as opened:
        text = f"SELECT page, MEDIAN(dwell) AS m{counts} FROM visits GROUP BY page TOP 5 {WITH}"
        text = text.replace("epsilon", f"{mechanism}max_groups_contributed = 2, epsilon")
        plan = opened.explain(text)
        without = opened.explain(text.replace(", MEDIAN(dwell) AS m", ""))
        assert plan.worst_items == without.worst_items + 2  # a user is in two of five groups
        before = opened.budget.remaining.refundable
        answer = opened.sql(text)
        assert {row[0] for row in answer.fetchall()} == {"a", "b"}
        assert all(LEAST <= row[1] <= 340 for row in answer.fetchall())
        assert before - opened.budget.remaining.refundable == answer.receipt.loss.rho.value
        assert answer.receipt.loss.rho.value <= plan.worst_case.rho.value


def test_only_groups_that_came_back_are_charged() -> None:
    with session_over() as opened:
        text = f"SELECT page, MEDIAN(dwell) AS m FROM visits GROUP BY page TOP 50 {WITH}"
        text = text.replace("epsilon", "mechanism = limited_domain, epsilon")
        plan, answer = opened.explain(text), opened.sql(text)
        assert plan.worst_items == 100
        assert answer.receipt.items_charged == 2 + 1 + 2  # two names, the end, and two quantiles
        assert answer.receipt.loss.rho.value == 5 * plan.item_loss.rho.value


def test_groups_of_every_type_of_key_are_read_again() -> None:
    with session_over() as opened:
        for key in ["page", "dwell > 300", "CAST(dwell % 2 AS DOUBLE)", "CAST(dwell % 2 AS DECIMAL(5, 1))", "day"]:
            text = f"SELECT {key} AS k, MEDIAN(dwell) AS m FROM visits GROUP BY 1 TOP 2 {WITH}"
            found = opened.sql(text).fetchall()
            assert len(found) == 2, key
            assert all(median is not None for _, median in found), key


def test_a_group_of_null_has_a_quantile(session: Session) -> None:
    text = f"SELECT if(page = 'a', NULL, page) AS k, MEDIAN(dwell) AS m FROM visits GROUP BY 1 TOP 2 {WITH}"
    found = dict(session.sql(text).fetchall())
    assert found.keys() == {None, "b"}
    assert LEAST <= found[None] <= 340


def test_quantiles_are_ordered_filtered_and_computed_with(session: Session) -> None:
    text = f"SELECT page, MEDIAN(dwell) AS m FROM visits GROUP BY page HAVING m > 10 TOP 2 {WITH} ORDER BY m LIMIT 1"
    assert len(session.sql(text).fetchall()) == 1
    text = f"SELECT page, ROUND(MEDIAN(dwell) / 60.0, 1) AS minutes FROM visits GROUP BY page TOP 2 {WITH}"
    assert all(4.6 <= minutes <= 5.6 for _, minutes in session.sql(text).fetchall())
    text = f"SELECT max(t.m) AS m FROM (SELECT page, MEDIAN(dwell) AS m FROM visits GROUP BY page TOP 2 {WITH}) AS t"
    ((value,),) = session.sql(text).fetchall()
    assert LEAST <= value <= 340
    text = f"SELECT page FROM visits GROUP BY page HAVING MEDIAN(dwell) > 10 TOP 2 {WITH}"
    assert {page for (page,) in session.sql(text).fetchall()} == {"a", "b"}


def test_standard_sql_has_quantiles_without_a_word_of_dpsql(session: Session) -> None:
    def ask(text: str) -> dpsql.Answer:
        return session.sql(text, implicit=True)

    ((total,),) = ask("SELECT MEDIAN(dwell) FROM visits").fetchall()
    assert LEAST <= total <= GREATEST
    answer = ask("SELECT page, PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY dwell) AS m FROM visits GROUP BY page")
    assert answer.receipt.read_as.startswith("TOP")
    assert {page for page, _ in answer.fetchall()} <= {"a", "b"}
    with pytest.raises(dpsql.Refusal, match="A quantile does not rank groups") as caught:
        ask("SELECT page, MEDIAN(dwell) AS m FROM visits GROUP BY page ORDER BY m DESC LIMIT 5")
    assert "COUNT(*)" in str(caught.value)
    text = "SELECT WITH DIFFERENTIAL_PRIVACY PERCENTILE_CONT(speed, 0.5, contribution_bounds_per_row => (0, 150)) AS m"
    ((speed,),) = ask(f"{text} FROM visits").fetchall()
    assert 60 <= speed <= 90


def test_explain_has_the_price_the_bins_and_the_interval_in_ranks(session: Session) -> None:
    facts = dict(session.sql(f"EXPLAIN VERBOSE SELECT MEDIAN(dwell) FROM visits {WITH}").fetchall())
    words = facts["quantile MEDIAN(dwell)"]
    assert words.startswith("one of 601 bins from 0 to 600; a unit weighs as at most 5 rows; at most 47 rows from ")
    assert "at most 47 rows from the wanted rank with probability 0.95; NULL: too few users to tell" in words
    assert "NULL: too few users to tell" in words
    assert facts["items at most"].startswith("1 ")
    assert "dpsql_bin" in facts["engine SQL, quantiles"]
    assert facts["rows fetched"] == "at most 1; of quantiles at most 601"
    assert session.explain(f"SELECT MEDIAN(dwell) FROM visits {WITH}").max_rows_fetched == 601


def test_the_wanted_quantile_and_the_range_may_be_parameters(session: Session) -> None:
    text = f"SELECT PERCENTILE_CONT(?) WITHIN GROUP (ORDER BY dwell) AS q FROM visits {WITH}"
    written = session.sql(text.replace("?", "0.9"))
    assert session.sql(text, [0.9]).fetchall() == written.fetchall()
    assert session.prepare(text).parameters == ("DOUBLE",)
    text = f"SELECT MEDIAN(speed, contribution_bounds_per_row => ($1, $2)) AS q FROM visits {WITH}"
    assert session.explain(text, [0, 200]).query.quantiles[0].row_range == (0, 200)
    with pytest.raises(dpsql.Refusal, match="There is no such quantile"):
        session.sql(f"SELECT QUANTILE(dwell, ?) AS q FROM visits {WITH}", [1.5])


def test_quantiles_are_computed_with_counts_that_stay_as_they_are(session: Session) -> None:
    text = f"SELECT MEDIAN(dwell) * COUNT(*) AS seconds, COUNT(*) AS n FROM visits {WITH}"
    measures = session.explain(text).query.measures
    assert all(each.weight is None for each in measures)
    ((seconds, number),) = session.sql(text).fetchall()
    assert LEAST * number <= seconds <= GREATEST * number


def test_few_rows_that_may_be_fetched_make_fewer_bins_and_too_few_are_refused() -> None:
    limits = dpsql.Limits(max_rows_fetched=2_000, max_epsilon=100)
    private = dpsql.PrivateTable("id", bounds=BOUNDS)
    policy = dpsql.Policy(dpsql.Budget(100, "1e-6"), {"visits": private}, limits=limits)
    with session_on(shared(CREATE, *ROWS), policy) as opened:
        text = "SELECT page, MEDIAN(dwell) AS m FROM visits GROUP BY page TOP {k} PRIVATE"
        text += " WITH (mechanism = limited_domain)"
        plan = opened.explain(text.format(k=10))
        assert plan.spec.further_rows == 2_000
        with pytest.raises(dpsql.Refusal, match="too many rows") as caught:
            opened.explain(text.format(k=126))
        assert "at most 125 groups" in str(caught.value)
        assert opened.explain(text.format(k=125)).spec.further_rows == 2_000


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ("MEDIAN(speed, bounds => (0, 10))", "0.0049 means at most 0.0098, and 9.9951 at least 9.9902"),
        ("MEDIAN(speed, bounds => (-1e8, 1e8))", "-99,902,344 means at most -99,804,687, and 99,902,344 at least 99,8"),
        ("MEDIAN(speed, bounds => (1000000, 1000001))", "means at most 1,000,000.00098, and 1,000,000.99951 at least"),
        ("MEDIAN(dwell, bounds => (1, 100000))", "1 means at most 1, and 99,461 at least 98,923"),
    ],
)
def test_the_ends_of_bins_are_rounded_outwards_to_few_digits(session: Session, item: str, words: str) -> None:
    """10 / 1,024 is .009765625, of which a tenth is above .0001; the first bin of a range is no smaller than it is."""
    text = f"SELECT {item.replace('bounds', 'contribution_bounds_per_row')} FROM visits {WITH}"
    assert words in session.sql(text).bound_note


def test_ranks_are_rounded_outwards(session: Session) -> None:
    """5 rows times the logarithm of 20 * 73 are 36.4: 37."""
    text = f"SELECT MEDIAN(dwell, contribution_bounds_per_row => (18, 90)) AS m FROM visits {WITH}"
    assert "at most 37 rows from" in session.sql(text).bound_note
    assert "quantiles" not in session.sql(text).bound_note  # how many rows there are is not public


def test_notes_and_json_say_what_bounds_a_quantile(session: Session) -> None:
    answer = session.sql(f"SELECT MEDIAN(dwell) AS m FROM visits {WITH}")
    assert "each user weighs as at most 5 rows; an answer of 0 means at most 0, and 600 at least" in answer.bound_note
    assert "at most 47 rows from the wanted rank with probability 0.95" in answer.bound_note
    assert encode_answer(answer)["rows"] == [list(row) for row in answer.fetchall()]
    assert str(session.describe("SELECT MEDIAN(dwell) AS m, MEDIAN(price) AS p FROM visits PRIVATE").types) == str(
        [
            answer.arrow().schema.field(0).type,
            session.describe("SELECT MEDIAN(price) AS p FROM visits PRIVATE").types[0],
        ]
    )
    assert [
        str(each)
        for each in session.describe("SELECT MEDIAN(dwell) AS m, MEDIAN(price) AS p FROM visits PRIVATE").types
    ] == ["int64", "double"]


def test_a_count_of_the_same_rows_says_between_which_quantiles_an_answer_lies(session: Session) -> None:
    text = f"SELECT MEDIAN(dwell) AS m, COUNT(dwell) AS n FROM visits {WITH}"
    plan, answer = session.explain(text), session.sql(text)
    found = re.search(
        r"by COUNT, ([0-9,]+) rows or more, between the quantiles ([0-9.]+) and ([0-9.]+)", answer.bound_note
    )
    assert found is not None
    rows, (low, high) = int(found[1].replace(",", "")), map(float, found.groups()[1:])
    assert 14_900 <= rows < answer.fetchall()[0][1]
    (mechanism,) = plan.mechanism_plan.drawn[0].mechanisms
    reach = mechanism.rank_error(0.025) / rows
    assert (low, high) == pytest.approx((0.5 - reach, 0.5 + reach), abs=0.001)
    assert 0 < reach < 0.01
    other = session.sql(f"SELECT MEDIAN(dwell) AS m, COUNT(*) AS n FROM visits {WITH}")  # of rows without a value, too
    assert "by COUNT" not in other.bound_note


@pytest.mark.parametrize("certificate", ["zcdp", "pure", "theorem2", "optimal"])
def test_every_certificate_charges_an_item(certificate: str) -> None:
    budget = dpsql.Budget(50, "1e-6", items=40, queries=10, certificate=certificate)
    with session_over(budget=budget) as opened:
        text = "SELECT MEDIAN(dwell) AS m, QUANTILE(dwell, 0.9) AS q, COUNT(DISTINCT id) AS n FROM visits PRIVATE"
        answer = opened.sql(text)
        assert answer.receipt.items_charged == opened.explain(text).worst_items
        alone = opened.explain("SELECT COUNT(DISTINCT id) AS n FROM visits PRIVATE").worst_items
        assert answer.receipt.items_charged == alone + 2


REFUSED = [
    ("MEDIAN(speed)", "no-bounds", "Write MEDIAN(speed, contribution_bounds_per_row => (0, 500))"),
    (
        "PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY speed)",
        "no-bounds",
        "Write PERCENTILE_CONT(0.9, contribution_bounds_per_row => (0, 500)) WITHIN GROUP (ORDER BY speed)",
    ),
    (
        "APPROX_QUANTILES(speed, 4)[OFFSET(1)]",
        "no-bounds",
        "Write APPROX_QUANTILES(speed, 4, contribution_bounds_per_row => (0, 500))[OFFSET(1)]",
    ),
    ("MAX(dwell)", "not-row-local", "Write PERCENTILE_CONT(0.99) WITHIN GROUP (ORDER BY dwell)"),
    ("MIN(dwell + 1)", "not-row-local", "Write PERCENTILE_CONT(0.01) WITHIN GROUP (ORDER BY dwell + 1)"),
    (
        "MAX(day)",
        "not-row-local",
        "PERCENTILE_CONT(0.99, contribution_bounds_per_row => (0, 365)) WITHIN GROUP (ORDER BY date_diff(",
    ),
    (
        "MIN(visits.page)",
        "not-row-local",
        "SELECT page, COUNT(DISTINCT id) AS n FROM visits GROUP BY page TOP 10 PRIVATE",
    ),
    ("MAX(id)", "not-row-local", "Write COUNT(DISTINCT id)"),
    ("MAX(visits.day)", "not-row-local", "(ORDER BY date_diff('day', DATE '2026-01-01', visits.day))"),
    ("QUANTILE(dwell, 1.0)", "aggregate", "Write 0.99 in place of 1.0"),
    ("QUANTILE(dwell, 0.12345)", "aggregate", "at most three decimals"),
    ("QUANTILE(dwell, 7)", "aggregate", "at most three decimals"),
    ("MEDIAN(DISTINCT dwell)", "aggregate", "Leave DISTINCT out"),
    ("MEDIAN(id)", "aggregate", "another column"),
    ("MEDIAN(page)", "aggregate", "Write MEDIAN(CAST(page AS DOUBLE), contribution_bounds_per_row => (0, 500)),"),
    ("MEDIAN(dwell > 9)", "aggregate", "Write AVG(CAST(dwell > 9 AS INTEGER))"),
    ("QUANTILE(dwell, 1 / 2)", "aggregate", "such as QUANTILE_CONT(dwell, 0.25)"),
    ("QUANTILE(dwell)", "aggregate", "Write QUANTILE(dwell, 0.9)"),
    ("APPROX_QUANTILES(dwell, 4 IGNORE NULLS)", "aggregate", "Write APPROX_QUANTILES(dwell, 100)[OFFSET(50)]"),
    ("APPROX_QUANTILES(dwell, 5000)[OFFSET(1)]", "aggregate", "Write QUANTILE_CONT(dwell, 0.999),"),
    (
        "MEDIAN(day)",
        "aggregate",
        "MEDIAN(date_diff('day', DATE '2026-01-01', day), contribution_bounds_per_row => (0, 365))",
    ),
    ("MEDIAN(dwell, 3)", "aggregate", "Write MEDIAN(dwell)"),
    ("MEDIAN(COUNT(*))", "aggregate", "outer SELECT"),
    ("QUANTILE_CONT(dwell, [0.25, 0.5])", "aggregate", "QUANTILE_CONT(dwell, 0.25) AS q1, QUANTILE_CONT(dwell, 0.5) A"),
    ("QUANTILE(dwell, (.25, .5))", "aggregate", "QUANTILE_CONT(dwell, .25) AS q1, QUANTILE_CONT(dwell, .5) AS q2"),
    (
        "PERCENTILE_CONT(ARRAY[0.1, 0.9]) WITHIN GROUP (ORDER BY dwell + 1)",
        "aggregate",
        "QUANTILE_CONT(dwell + 1, 0.1) AS q1, QUANTILE_CONT(dwell + 1, 0.9) AS q2",
    ),
    ("APPROX_QUANTILES(dwell, 4)", "aggregate", "QUANTILE_CONT(dwell, 0.25) AS q1, QUANTILE_CONT(dwell, 0.5) AS q2"),
    ("APPROX_QUANTILES(dwell, 4)[OFFSET(4)]", "aggregate", "[OFFSET(2)]"),
    (
        "MEDIAN(dwell, contribution_bounds_per_row => (5, 5))",
        "option",
        "Write MEDIAN(dwell, contribution_bounds_per_row => (0, 500))",
    ),
    (
        "MEDIAN(dwell, contribution_bounds_per_group => (0, 5))",
        "aggregate",
        "Write MEDIAN(dwell, contribution_bounds_per_row => (0, 500))",
    ),
    ("MEDIAN(dwell) AS m, value_low(m)", "aggregate", "the interval of a quantile is one of ranks"),
    ("MEDIAN(dwell) AS m, value_high(MEDIAN(dwell))", "aggregate", "the interval of a quantile is one of ranks"),
]


@pytest.mark.parametrize(("item", "code", "hint"), REFUSED, ids=[item for item, _, _ in REFUSED])
def test_what_is_refused_says_what_to_write_and_that_works(session: Session, item: str, code: str, hint: str) -> None:
    with pytest.raises((dpsql.Refusal, dpsql.Unsupported)) as caught:
        session.sql(f"SELECT {item} FROM visits {WITH}")
    assert caught.value.code == code
    assert hint in str(caught.value)
    whole = hint.startswith("Write ") or item in {"MEDIAN(day)", "MAX(day)"}
    if not whole or "(x)" in hint or "in place of" in str(caught.value.hint):
        return
    (written,) = re.findall(
        r"(?:Write|days:) (.*\)(?:\[.*?\])?)(?=[,.])", str(caught.value.hint).partition(" Or ask")[0]
    )
    items = 2 if written.startswith("AVG") else 1
    assert session.explain(f"SELECT {written} FROM visits {WITH}").worst_items == items


def test_the_greatest_text_of_a_public_table_is_refused_with_the_key_to_group_by() -> None:
    tables = {"visits": dpsql.PrivateTable("id", bounds=BOUNDS), "pages": dpsql.PublicTable()}
    rows = "CREATE TABLE pages AS SELECT page AS code, 't' || page AS title FROM (SELECT DISTINCT page FROM visits)"
    with session_on(shared(CREATE, *ROWS, rows), dpsql.Policy(dpsql.Budget(100, "1e-6"), tables)) as opened:
        source = "FROM visits AS v JOIN pages AS p ON v.page = p.code"
        with pytest.raises(dpsql.Refusal) as caught:
            opened.explain(f"SELECT MAX(p.title) AS m {source} PRIVATE")
        assert str(caught.value.hint).startswith("Select p.title alone, with GROUP BY p.title TOP 10 PRIVATE")
        assert opened.explain(f"SELECT p.title {source} GROUP BY p.title TOP 10 PRIVATE").query.keys


def test_rows_of_a_user_come_from_the_policy_or_the_query() -> None:
    text = "SELECT MEDIAN(dwell) AS m FROM visits PRIVATE"
    with session_over(bounds={"dwell": {"each": {"min": 0, "max": 600}}}) as opened:
        with pytest.raises(dpsql.Refusal, match="how many rows of one unit count") as caught:
            opened.sql(text)
        assert "PRIVATE WITH (max_rows_contributed = 20)" in str(caught.value)
        assert opened.explain(f"{text} WITH (max_rows_contributed = 20)").query.quantiles[0].rows == 20
    with session_over() as opened:
        assert opened.explain(f"{text} WITH (max_rows_contributed = 2)").query.quantiles[0].rows == 2
        with pytest.raises(dpsql.Refusal):
            opened.explain(f"{text} WITH (max_rows_contributed = 6)")


def test_a_range_and_rows_that_are_missing_are_said_at_once() -> None:
    with session_over(bounds={"price": {"max": 3000}}) as opened:
        with pytest.raises(dpsql.Refusal, match="how many rows of one unit count") as caught:
            opened.explain("SELECT MEDIAN(dwell) AS m FROM visits PRIVATE")
        written = re.findall(r"Write (MEDIAN\(.*?\)\)|PRIVATE WITH \(.*?\))", str(caught.value.hint))
        assert opened.explain(f"SELECT {written[0]} AS m FROM visits {written[1]}").query.quantiles[0].rows == 20


def test_what_has_no_quantiles_is_refused(session: Session) -> None:
    per = "SELECT page, dwell % 2 AS odd, MEDIAN(dwell) AS m FROM visits GROUP BY ALL TOP 1 PRIVATE PER page"
    with pytest.raises(dpsql.Refusal, match="Quantiles are not released of partitions") as caught:
        session.sql(f"{per} WITH (partitions = ['a', 'b'])")
    assert "with page = 'a' in WHERE" in str(caught.value.hint)
    one = per.replace("visits", "visits WHERE page = 'a'").replace(" PER page", "")
    assert session.explain(one).query.quantiles
    inside = "SELECT COUNT(*) FROM (SELECT id, MEDIAN(dwell) AS m FROM visits GROUP BY id) AS t PRIVATE"
    with pytest.raises((dpsql.Refusal, dpsql.Unsupported)):
        session.sql(inside)


def test_a_quantile_changes_no_key_of_a_statement_without_one(session: Session) -> None:
    plain = session.explain("SELECT COUNT(*) AS n FROM visits PRIVATE")
    both = session.explain("SELECT COUNT(*) AS n, MEDIAN(dwell) AS m FROM visits PRIVATE")
    other = session.explain("SELECT COUNT(*) AS n, QUANTILE(dwell, 0.9) AS m FROM visits PRIVATE")
    stated = "MEDIAN(dwell, contribution_bounds_per_row => (0, 500))"
    narrow = session.explain(f"SELECT COUNT(*) AS n, {stated} AS m FROM visits PRIVATE")
    assert len({each.key for each in (plain, both, other, narrow)}) == 4
    assert len({each.release_key for each in (plain, both, other, narrow)}) == 4
