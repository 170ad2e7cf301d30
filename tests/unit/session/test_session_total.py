"""Counts that share a noisy total of users: what is released, how precise it is, what it costs, and when it is not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction

import duckdb
import pyarrow as pa
import pytest
from scipy import stats
from support.session_kit import session_on

import dpsql
from dpsql.answer import Answer, CountColumns
from dpsql.intervals import SharedNoise, ValueNoise, widen_shares
from dpsql.mechanisms import NoisyCounts, SharedTotal
from dpsql.plan.release import decode_steps
from dpsql.quantities import Epsilon
from dpsql.report.answer_json import encode_answer, encode_notes
from dpsql.session import Session
from dpsql.sql.ir.measures import DISTINCT_UNITS

USERS = 900
TEXT = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP {k} PRIVATE WITH ({options})"
FRESH = "fresh = true, epsilon = 0.4"
PER = (
    "SELECT other, article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY other, article TOP {k} PRIVATE PER other "
    "WITH ({options})"
)
CERTIFICATE = dpsql.Budget(5, "1e-6", items=40, queries=10, certificate="pure")


def fill() -> duckdb.DuckDBPyConnection:
    """Return a table in which item i has the users whose number is a multiple of i + 1, or below 300."""
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE reads AS SELECT u AS user_id, 'item ' || i AS article, u % 4 AS dwell, 'a' AS other "
        "FROM range(900) AS users(u), range(12) AS items(i) WHERE u % (i + 1) = 0 OR u < 300"
    )
    return connection


BOUNDS = {"rows": 2, "dwell": {"max": 3}}


def policy(budget: dpsql.Budget | None = None) -> dpsql.Policy:
    table = dpsql.PrivateTable("user_id", bounds=BOUNDS)
    return dpsql.Policy(budget or dpsql.Budget(100, "1e-6", items=4_000, queries=400), {"reads": table})


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with session_on(fill(), policy()) as opened:
        yield opened


def asked(session: Session, k: int = 10, options: str = FRESH) -> Answer:
    return session.sql(TEXT.format(k=k, options=options))


@pytest.mark.filterwarnings("ignore::dpsql.WastedChargeWarning")
@pytest.mark.parametrize(
    "options",
    [
        "mechanism = limited_domain",
        "k_bar = AUTO",
        "mechanism = weighted_gaussian",
        "mechanism = domain_discovery",
        "mechanism = stable",
        "mechanism = top_stable",
        "mechanism = peeling, domain = ['item 0', 'item 1', 'item 2', 'item 3', 'item 4', 'item 5']",
        "mechanism = joint, domain = ['item 0', 'item 1', 'item 2', 'item 3', 'item 4', 'item 5']",
        "max_groups_contributed = 12",
    ],
)
def test_every_mechanism_that_counts_what_it_chose_shares_a_total(session: Session, options: str) -> None:
    answer = asked(session, 5, f"{FRESH}, {options}")
    shared = SharedTotal(Epsilon("0.4"), len(answer), 12 if "contributed" in options else None)
    assert answer.total is not None
    assert answer.total.variance == shared.total_variance
    assert answer.counts is not None
    assert answer.counts.variance == shared.variance < NoisyCounts(Epsilon("0.4")).variance
    assert abs(answer.total.value - USERS) < 8 * float(shared.total_variance) ** 0.5
    exact = {f"item {i}": sum(u % (i + 1) == 0 or u < 300 for u in range(USERS)) for i in range(12)}
    assert all(abs(n - exact[article]) < 9 * float(shared.variance) ** 0.5 + 1 for article, n in answer)


@pytest.mark.filterwarnings("ignore::dpsql.WastedChargeWarning")
def test_the_charge_is_that_of_independent_noise(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    options = f"{FRESH}, mechanism = limited_domain"
    shared = asked(session, options=options).receipt
    assert (shared.items_charged, shared.total is not None) == (20, True)
    monkeypatch.setattr("dpsql.plan.mechanisms.draws._list_sharing", lambda *_: [])
    alone = asked(session, options=options).receipt
    assert (alone.items_charged, alone.loss, alone.total) == (shared.items_charged, shared.loss, None)


@pytest.mark.filterwarnings("ignore::dpsql.WastedChargeWarning")
def test_intervals_of_counts_totals_shares_and_differences_hold() -> None:
    """Of 95 % intervals in 80 releases; the counts of one release depend on each other, so one of each is judged."""
    exact = {f"item {i}": sum(u % (i + 1) == 0 or u < 300 for u in range(USERS)) for i in range(12)}
    held, trials = dict.fromkeys(("counts", "totals", "shares", "differences"), 0), 80
    with session_on(fill(), policy()) as opened:
        for _ in range(trials):
            answer = asked(opened, options="fresh = true, epsilon = 0.2")
            first, last = exact[str(answer[0][0])], exact[str(answer[9][0])]
            low, high = (answer.intervals().column(name)[9].as_py() for name in ("low", "high"))
            held["counts"] += low <= last <= high
            assert answer.total is not None
            held["totals"] += answer.total.low <= USERS <= answer.total.high
            share = answer.shares().to_pylist()[9]
            held["shares"] += share["low"] <= last / USERS <= share["high"]
            value, least, most = answer.difference(0, 9)
            assert value == answer[0][1] - answer[9][1]
            held["differences"] += least <= first - last <= most
    for kind, count in held.items():
        assert stats.binom.cdf(count, trials, 0.95) > 1e-6, kind


def test_a_difference_is_more_certain_than_two_independent_levels() -> None:
    many = ValueNoise(SharedTotal(Epsilon("0.01"), 10).variance, parts=shared_noise("0.01", 10))
    ratio = float(many.reach_of_difference(0.95)) / many.reach(0.95)
    assert ratio == pytest.approx(1.52**0.5, rel=0.02)
    independent = ValueNoise(NoisyCounts(Epsilon("0.01")).variance)
    assert float(independent.reach_of_difference(0.95)) / independent.reach(0.95) == pytest.approx(2**0.5, rel=0.02)


def shared_noise(epsilon: str, labels: int) -> SharedNoise:
    shared = SharedTotal(Epsilon(epsilon), labels)
    return SharedNoise(shared.own_variance, shared.total_variance, shared.centre)


@pytest.mark.parametrize(("labels", "most"), [(10, 0.70), (100, 0.58)])
@pytest.mark.parametrize("epsilon", ["0.01", "0.05", "0.2"])
def test_intervals_are_a_third_narrower_at_10_counts_and_more_at_100(labels: int, most: float, epsilon: str) -> None:
    noise = ValueNoise(Fraction(1), parts=shared_noise(epsilon, labels))
    alone = ValueNoise(NoisyCounts(Epsilon(epsilon)).variance)
    assert noise.reach(0.95) <= most * alone.reach(0.95) + (0.5 if epsilon == "0.2" else 0)


@pytest.mark.parametrize(
    ("k", "options"),
    [
        (1, ""),
        (10, "max_groups_contributed = 1"),
        (10, "mechanism = gaussian_histogram, max_groups_contributed = 5"),
        (10, "mechanism = laplace_limited_domain, max_groups_contributed = 5"),
    ],
)
def test_the_total_is_not_read_where_it_cannot_pay(session: Session, k: int, options: str) -> None:
    plan = session.explain(TEXT.format(k=k, options=options) if options else TEXT.partition(" WITH")[0].format(k=k))
    assert not plan.counting.has_total
    assert "dpsql_total" not in plan.engine_sql
    assert "counts" not in dict(plan.facts())


def test_names_alone_totals_known_groups_and_partitions_read_no_total(session: Session) -> None:
    for text in [
        "SELECT article FROM reads GROUP BY article TOP 10 PRIVATE",
        "SELECT COUNT(DISTINCT user_id) AS n FROM reads PRIVATE",
        TEXT.replace("TOP {k}", "ALL").format(options="domain = ['item 1', 'item 2']"),
        PER.format(k=5, options="partitions = ['a', 'b']"),
    ]:
        assert not session.explain(text).counting.has_total


def test_the_number_of_rows_decides_under_a_bound(session: Session) -> None:
    """Ten rows share a total under a bound of 5, but not under 4; with a bound of 4 fewer rows could."""
    assert asked(session, options="max_groups_contributed = 5, mechanism = limited_domain").total is not None
    plan = session.explain(TEXT.format(k=10, options="max_groups_contributed = 4, mechanism = limited_domain"))
    assert plan.counting.has_total
    answer = asked(session, options="max_groups_contributed = 4, mechanism = limited_domain")
    assert (len(answer), answer.total) == (10, None)
    assert answer.counts is not None
    assert answer.counts.parts is None


def test_other_certificates_have_laplace_noise_and_no_total() -> None:
    with session_on(fill(), policy(CERTIFICATE)) as opened:
        text = TEXT.format(k=3, options="mechanism = limited_domain")
        assert not opened.explain(text).counting.has_total
        assert opened.sql(text).total is None


def test_a_stored_answer_has_its_total_and_one_of_an_earlier_version_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with session_on(fill(), policy()) as opened:
        with monkeypatch.context() as earlier:
            earlier.setattr("dpsql.plan.mechanisms.draws._list_sharing", lambda *_: [])
            old = asked(opened, 3, "epsilon = 0.3")
        new = asked(opened, 4, "epsilon = 0.3")
        ledger = opened._dependencies.ledger
        marks = [
            (ledger.stored(opened.explain(TEXT.format(k=k, options="epsilon = 0.3")).key, None) or b"")[:15]
            for k in (3, 4)
        ]
        assert marks == [b"dpsql release 1", b"dpsql release 2"]
        again, later = asked(opened, 3, "epsilon = 0.3"), asked(opened, 4, "epsilon = 0.3")
        assert (again.fetchall(), again.total, again.receipt.replayed) == (old.fetchall(), None, True)
        assert again.counts is not None
        assert again.counts.variance == NoisyCounts(Epsilon("0.3")).variance
        assert (later.fetchall(), later.total, later.receipt.replayed) == (new.fetchall(), new.total, True)
        assert later.intervals() == new.intervals()
        assert later.shares() == new.shares()


def test_the_total_is_told_on_every_surface(session: Session) -> None:
    answer = asked(session, options="epsilon = 0.5")
    total = answer.total
    assert total is not None
    words = f"{total.value:,} users in all groups (95 %: {total.low:,} to {total.high:,})"
    assert str(total) == words
    assert words in answer.notes()
    assert ("total", words) in answer.receipt.details()
    assert words in answer._repr_html_()
    told = {"value": total.value, "low": total.low, "high": total.high, "level": 0.95, "words": words}
    assert json.loads(json.dumps(encode_answer(answer)))["total"] == told
    assert encode_notes(answer)["total"] == told
    assert total.interval(0.99)[0] <= total.low <= total.value <= total.high <= total.interval(0.99)[1]


def test_measures_of_users_share_one_total_and_others_have_their_own(session: Session) -> None:
    text = (
        "SELECT article, COUNT(DISTINCT user_id) AS n, COUNT(DISTINCT user_id) FILTER (WHERE dwell > 1) AS long, "
        "SUM(dwell) AS s, COUNT(*) AS r, AVG(dwell) AS a FROM reads GROUP BY article TOP 6 PRIVATE "
        "WITH (epsilon = 0.5, mechanism = limited_domain, intervals = true)"
    )
    answer = session.sql(text)
    assert answer.total is not None
    assert answer.total.variance == SharedTotal(Epsilon("0.5"), 6, measures=2).total_variance
    counts = answer.counts
    assert counts is not None
    found = [each.parts for each in answer.measures if isinstance(each, CountColumns)]
    units, sums, rows = (SharedTotal(Epsilon("0.5"), 6, None, 0, high, n) for high, n in ((1, 2), (3, 1), (2, 1)))
    expected = [SharedNoise(each.own_variance, each.total_variance, each.centre) for each in (units, units, sums, rows)]
    assert found == expected
    rows_of = answer.arrow().to_pylist()
    exact = session._dependencies.engine
    assert exact is not None
    assert all(
        row["s_low"] <= row["s"] <= row["s_high"] and row["a_low"] <= row["a"] <= row["a_high"] for row in rows_of
    )


def test_shares_are_refused_without_a_total_or_with_adjusted_counts(session: Session) -> None:
    with pytest.raises(dpsql.UsageError, match="no-total"):
        asked(session, 1, "epsilon = 0.2").shares()
    with pytest.raises(dpsql.UsageError, match="no-counts"):
        session.sql("SELECT article FROM reads GROUP BY article TOP 2 PRIVATE").shares()
    adjusted = asked(session, 10, "epsilon = 0.2, monotone = true")
    assert adjusted.total is not None
    counts = [n for _, n in adjusted]
    assert counts == sorted(counts, reverse=True)
    for refused in (adjusted.shares, lambda: adjusted.difference(0, 1)):
        with pytest.raises(dpsql.UsageError, match="adjusted-counts"):
            refused()
    with pytest.raises(dpsql.UsageError, match="level-range"):
        asked(session, 10, "epsilon = 0.2").shares(95)


def test_halves_are_rounded_to_even_and_lie_within_the_interval() -> None:
    steps = [Fraction(each, 2) for each in (-3, -1, 0, 1, 3, 5, 7)]
    assert decode_steps(steps, DISTINCT_UNITS).to_pylist() == [-2, 0, 0, 0, 2, 2, 4]
    noise = ValueNoise(Fraction(1), parts=SharedNoise(Fraction(6), Fraction(2), 1))
    reach = noise.reach(0.95)
    low, high = noise.widen([10, 0], 0.95)
    assert (low, high) == ([10 - reach, 0], [10 + reach, reach])


def test_shares_of_a_total_that_is_lost_in_noise_are_anything() -> None:
    noise = SharedNoise(Fraction(4_000), Fraction(1_000), 1)
    assert widen_shares([3, None], 20, noise=noise, level=0.95) == ([0.0, None], [1.0, None])
    low, high = widen_shares([500, 1_000], 1_000, noise=noise, level=0.95)
    assert low[0] is not None
    assert high[0] is not None
    assert 0.4 < low[0] < 0.5 < high[0] < 0.6
    assert high[1] == pytest.approx(1.0)


def test_an_outer_select_keeps_the_total(session: Session) -> None:
    inner = TEXT.format(k=4, options="epsilon = 0.45")
    answer = session.sql(f"SELECT article, n FROM ({inner}) WHERE n > 300 ORDER BY article")
    assert answer.total is not None
    assert answer.shares().column_names == ["article", "share", "low", "high"]
    assert isinstance(answer.shares(), pa.Table)


def test_a_short_answer_that_shares_a_total_is_explained_at_its_own_price(session: Session) -> None:
    sql = TEXT.format(k=20, options="epsilon = 0.41, mechanism = limited_domain")
    answer = session.sql(sql)
    assert answer.total is not None
    assert "At this price" in answer.explanation
    assert session.sql(sql).explanation == answer.explanation


def test_the_sum_of_all_counts_is_less_certain_by_a_sixth_at_ten_rows() -> None:
    shared = SharedTotal(Epsilon("0.1"), 10)
    together = (10 * shared.own_variance + 100 * shared.total_variance) / 4  # of half of the sum of all Z_1, and 10 Z_0
    independent = 10 * NoisyCounts(Epsilon("0.1")).variance
    assert float(together / independent) ** 0.5 == pytest.approx(1.17, abs=0.005)
