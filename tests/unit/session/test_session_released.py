"""Names that earlier answers released: who may use them, which groups take part, and what the analyst is told."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.session_kit import filled, session_on, shared, values_rows

import dpsql
from dpsql.engines import open_exact
from dpsql.errors import Refusal
from dpsql.mechanisms import Noise
from dpsql.plan import build_statement, release
from dpsql.plan.mechanisms.base import Groups, MechanismOutput
from dpsql.plan.mechanisms.choice import list_records
from dpsql.plan.mechanisms.names import ReleasedNames, list_rows, match_names
from dpsql.plan.mechanisms.record import QueryKind
from dpsql.session import Session

EXACT = "epsilon = 1"
WEIGHTED = "mechanism = weighted_gaussian, gate = false"


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Gaussian noise be 0, so that what the engine read can be seen; thresholds and choices stay as they are."""
    for module in ("gaussian_threshold", "noisy_counts", "sampling.above"):
        monkeypatch.setattr(f"dpsql.mechanisms.{module}.discrete_gaussian", lambda *_, count: [0] * count)


def policy(**tables: dpsql.PrivateTable) -> dpsql.Policy:
    return dpsql.Policy(dpsql.Budget(100, "0.01"), tables or {"reads": dpsql.PrivateTable("user_id")})


def know(session: Session, names: Sequence[str]) -> None:
    """Make names known by an answer over a declared domain."""
    listed = ", ".join(f"'{name}'" for name in names)
    query = f"SELECT article FROM reads GROUP BY article TOP {len(names)} PRIVATE"
    session.sql(f"{query} WITH (epsilon = 0.01, domain = [{listed}])")


def opened(*statements: str, own: dpsql.Policy | None = None) -> Session:
    return session_on(shared(*statements), policy() if own is None else own)


def top(k: int, options: str, *, where: str = "", keys: str = "article") -> str:
    return (
        f"SELECT {keys}, COUNT(DISTINCT user_id) AS n FROM reads {where} GROUP BY ALL TOP {k} PRIVATE WITH ({options})"
    )


READS = (*values_rows({"moon": 900, "sun": 800, "star": 700}), "INSERT INTO reads VALUES (5000, 'dust'), (1, NULL)")
FEW = "WHERE user_id >= 698"  # sun and moon have some, star has two


@pytest.fixture
def session() -> Session:
    session = opened(*READS)
    session.sql(top(3, f"{EXACT}, {WEIGHTED}"))
    return session


AWKWARD = {  # values that an engine, Arrow or Python may take for one another
    "DOUBLE": "0.0 -0.0 nan -nan inf -inf 5e-324 -5e-324 0.1 0.3 0.30000000000000004 9007199254740993",
    "VARCHAR": "a A a\u0301 \u00e1 \u00c1 a\u00a0 \u017f s \u00df ss nan NULL 1 01 1.0",
    "TIMESTAMP": "infinity -infinity 1970-01-01 1970-01-01T00:00:00.000001 0001-01-01 290000-01-01",
    "DATE": "infinity -infinity 1970-01-01 0001-01-01 5000000-01-01",
    "DECIMAL(18,2)": "0 -0 0.01 9999999999999999.99 9999999999999999.98",
    "BIGINT": "0 -0 1 -1 9223372036854775807 9223372036854775806 -9223372036854775808",
    "BOOLEAN": "true false",
}


@pytest.mark.parametrize(("type_", "words"), AWKWARD.items())
@pytest.mark.parametrize("keys", ["article", "article, other"])
def test_every_group_has_a_name_of_its_own(type_: str, words: str, keys: str) -> None:
    """Two groups of one name would make a release fail, which groups there are being private (`maths.md` 9.4.1)."""
    values = [f"CAST('{word}' AS {type_})" for word in words.split(" ")]
    values += ["NULL", *(["''", "' '", "'a' || chr(0)"] if type_ == "VARCHAR" else [])]
    rows = ", ".join(f"({n}, {one}, {other})" for n, (one, other) in enumerate(product(values, values)))
    table = f"CREATE TABLE reads (user_id BIGINT, article {type_}, other {type_})"
    session = opened(table, f"INSERT INTO reads VALUES {rows}")
    plan = session.explain(top(20, "epsilon = 1, mechanism = limited_domain, k_bar = 900", keys=keys))
    found = open_exact(session._dependencies.engine.execute(build_statement(plan.counting)))
    names = ReleasedNames(found.select(list(range(len(plan.query.keys)))))
    merged = len(values) - 2 * (type_ == "DOUBLE") - (type_ in {"BIGINT", "DECIMAL(18,2)"})  # -0 is 0, -nan is nan
    assert names.count == (merged if keys == "article" else merged**2)
    numbers = np.arange(names.count)
    assert match_names(names.table.columns, names).tolist() == numbers.tolist()
    reverse = names.table.take(pa.array(numbers[::-1]))
    assert match_names(reverse.columns, names).tolist() == numbers[::-1].tolist()
    assert len(set(list_rows(names.table))) == names.count


@pytest.mark.mutant
def test_groups_that_names_take_for_one_are_caught() -> None:
    """Names that ignore case: two groups of the engine have one name."""
    groups = pa.table({"article": ["sun", "moon", "Sun"]})
    names = ReleasedNames(groups.slice(0, 2))
    assert match_names(groups.columns, names).tolist() == [0, 1, -1]
    lower = pa.chunked_array([pc.utf8_lower(chunk) for chunk in groups.column(0).chunks])
    with pytest.raises(dpsql.EngineError, match="engine-result"):
        match_names([lower], names)


def test_a_name_that_may_stand_for_several_labels_is_never_known() -> None:
    session = opened(*values_rows({"moon": 900, "x\ufffd": 800}))
    assert {name for (name, _) in session.sql(top(3, f"{EXACT}, {WEIGHTED}"))} == {"moon", "x\ufffd"}
    names = session.explain(top(3, f"epsilon = 0.5, {WEIGHTED}, known = all")).query.names
    assert isinstance(names, ReleasedNames)
    assert names.table.column(0).to_pylist() == ["moon"]


@pytest.mark.parametrize("mechanism", [WEIGHTED, "mechanism = gaussian_histogram, max_groups_contributed = 4"])
def test_known_names_need_no_threshold_and_take_part_without_rows(session: Session, mechanism: str) -> None:
    """Of one unit with two names nothing could stand out: with known = all they come, also one that no row has."""
    query = top(10, f"{EXACT}, {mechanism}, known = all", where="WHERE user_id BETWEEN 750 AND 760 OR user_id = 5000")
    plan = session.explain(query)
    assert plan.query.names is not None
    assert plan.query.names.count == 3
    answer = session.sql(query)
    assert dict(answer.fetchall()) == {"sun": 11, "moon": 11, "star": 0}
    assert answer.receipt.known == 3
    told = "3 that earlier answers released took part without a threshold, rows or not"
    assert ("known names", told) in answer.receipt.details()


@pytest.mark.parametrize("mechanism", [WEIGHTED, "mechanism = gaussian_histogram, max_groups_contributed = 4"])
def test_a_name_that_was_never_released_must_clear_the_threshold(session: Session, mechanism: str) -> None:
    low = f"epsilon = 0.5, delta = 1e-9, {mechanism}, known = all"
    plan = session.explain(top(10, low))
    assert plan.spec.report.threshold_offset > 5
    names = {name for _ in range(3) for name, _ in session.sql(top(10, f"{low}, fresh = true")).fetchall()}
    assert names == {"sun", "moon", "star"}  # neither dust nor NULL, of one unit each


def test_known_false_asks_a_threshold_of_all_names(session: Session) -> None:
    where = "WHERE user_id BETWEEN 750 AND 752"
    with_names, without = (
        session.sql(top(3, f"epsilon = 0.5, {WEIGHTED}{also}", where=where))
        for also in (", known = all", ", known = false")
    )
    assert len(with_names) == 3
    assert len(without) == 0
    assert without.receipt.known == 0


def test_explain_says_how_many_names_are_known(session: Session) -> None:
    facts = dict(session.explain(top(3, f"{WEIGHTED}, known = all")).facts())
    assert facts["known names"] == "3 that earlier answers released need no threshold, also with no unit at all"
    facts = dict(session.explain(top(3, "mechanism = limited_domain")).facts())
    assert facts["known names"] == "3 that earlier answers released; limited_domain uses none of them"
    assert "known names" not in dict(session.explain(top(3, f"{WEIGHTED}, known = false")).facts())


def test_a_replay_stays_a_replay_when_more_names_are_known(session: Session) -> None:
    first = session.sql(top(2, WEIGHTED, where=FEW))
    know(session, ["earth"])
    for also in ("", ", known = true"):
        again = session.sql(top(2, f"{WEIGHTED}{also}", where=FEW))
        assert again.receipt.replayed
        assert again.fetchall() == first.fetchall()
        assert again.receipt.known == first.receipt.known == 3
    assert not session.sql(top(2, f"{WEIGHTED}, known = false", where=FEW)).receipt.replayed


def test_an_answer_of_the_mechanism_that_would_be_chosen_without_names_is_found_again() -> None:
    """Its own names would make AUTO choose another mechanism now; the question was answered before."""
    session = many(9)
    query = "SELECT article FROM reads GROUP BY article TOP 3 PRIVATE WITH (epsilon = 0.9{more})"
    first = session.sql(query.format(more=", mechanism = two_looks"))
    assert len(first) == 3
    again = session.sql(query.format(more=""))
    assert again.receipt.replayed
    assert again.fetchall() == first.fetchall()
    fresh = session.sql(query.format(more=", fresh = true"))
    assert fresh.receipt.mechanism == "weighted_gaussian"
    assert not fresh.receipt.replayed


def test_the_domain_of_released_names_is_the_same_question_with_each_new_release(session: Session) -> None:
    query = top(2, f"{EXACT}, domain = released", where=FEW)
    first = session.sql(query)
    assert first.receipt.mechanism == "peeling"
    assert first.receipt.delta == dpsql.Delta(0)
    assert dict(first.fetchall()) == {"moon": 202, "sun": 102}
    know(session, ["earth"])
    assert session.explain(query).query.names.count > 3  # type: ignore[union-attr]
    again = session.sql(query)
    assert again.receipt.replayed
    assert again.fetchall() == first.fetchall()


@pytest.mark.parametrize("mechanism", ["", *(f", mechanism = {each.name}" for each in list_records(QueryKind.KNOWN))])
def test_the_domain_restricts_to_known_names(session: Session, mechanism: str) -> None:
    answer = session.sql(top(10, f"{EXACT}, known = all, domain = released{mechanism}", where="WHERE user_id > 4000"))
    assert sorted(name for name, _ in answer.fetchall()) == ["moon", "star", "sun"]
    assert [n for _, n in answer.fetchall()] == [0, 0, 0]


def test_all_known_names_are_counted(session: Session) -> None:
    query = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads WHERE user_id > 798 GROUP BY article ALL PRIVATE"
    answer = session.sql(f"{query} WITH ({EXACT}, domain = released)")
    assert dict(answer.fetchall()) == {"moon": 101, "sun": 1, "star": 0}
    bounded = session.explain(f"{query} WITH ({EXACT}, domain = released, max_groups_contributed = 1)")
    assert bounded.max_groups_contributed == 1
    assert bounded.worst_items == 1


def test_without_known_names_the_domain_is_refused_and_the_hint_works() -> None:
    session = opened(*READS)
    with pytest.raises(Refusal, match="No stored answer of yours has names of these keys") as refused:
        session.sql(top(3, f"{EXACT}, domain = released"))
    assert refused.value.code == "domain"
    assert "Leave the domain out" in (refused.value.hint or "")
    session.sql(top(3, f"{EXACT}, {WEIGHTED}"))
    assert len(session.sql(top(3, f"{EXACT}, domain = released"))) == 3


def test_the_words_are_checked(session: Session) -> None:
    for value in ("3", "'all'", "maybe", "none"):
        with pytest.raises(Refusal, match="known is true, false or all"):
            session.sql(top(3, f"known = {value}"))
    with pytest.raises(Refusal, match="known = false ignores the names"):
        session.sql(top(3, "known = false, domain = released"))


@pytest.fixture
def sessions(tmp_path: Path) -> Iterator[Callable[..., Session]]:
    """Open sessions of analysts on one ledger in a file."""
    connection = filled(*READS)
    analysts = {name: dpsql.Analyst(40) for name in ("alice", "bob")}
    with ExitStack() as opened_ones:

        def open_one(analyst: str | None = None, *, share: bool = False) -> Session:
            tables, limits = {"reads": dpsql.PrivateTable("user_id")}, dpsql.Limits(share_replays=share)
            own = dpsql.Policy(dpsql.Budget(100, "0.01"), tables, limits=limits, analysts=analysts)
            opening = dpsql.connect(connection, policy=own, ledger=tmp_path / "ledger.sqlite", analyst=analyst)
            return opened_ones.enter_context(opening)

        yield open_one


BROAD = top(3, f"{EXACT}, {WEIGHTED}")
NARROW = top(3, f"epsilon = 0.5, {WEIGHTED}", where="WHERE user_id BETWEEN 750 AND 752")
KNOWING = NARROW.replace("WITH (", "WITH (known = all, ")


@pytest.mark.parametrize("share", [False, True])
def test_names_of_another_account_are_not_used(sessions: Callable[..., Session], share: bool) -> None:
    """Also where answers are shared: bob has not asked, so that he paid for nothing that alice was given."""
    alice, bob, total = (sessions(who, share=share) for who in ("alice", "bob", None))
    alice.sql(BROAD)
    for other in (bob, total):
        assert other.explain(KNOWING).query.names is None
        assert other.sql(KNOWING).receipt.known == 0
    assert alice.explain(KNOWING).query.names.count == 3  # type: ignore[union-attr]
    bob.sql(BROAD)
    assert bob.explain(KNOWING).query.names.count == 3  # type: ignore[union-attr]


def test_where_answers_are_shared_names_are_used_if_the_query_says_so(sessions: Callable[..., Session]) -> None:
    """By default all analysts are to see the same numbers, whatever each was given before."""
    alice, bob = (sessions(who, share=True) for who in ("alice", "bob"))
    alice.sql(BROAD)
    assert alice.explain(NARROW).query.names is None
    assert alice.explain(NARROW).key == alice.explain(NARROW.replace("WITH (", "WITH (known = false, ")).key
    assert alice.explain(NARROW).key != alice.explain(KNOWING).key
    assert alice.sql(NARROW).fetchall() == bob.sql(NARROW).fetchall() == []
    assert len(alice.sql(KNOWING)) == 3


def test_a_shared_answer_makes_its_names_known_to_those_who_paid_for_it(sessions: Callable[..., Session]) -> None:
    alice, bob = (sessions(who, share=True) for who in ("alice", "bob"))
    rough = top(3, f"epsilon = 0.5, {WEIGHTED}")
    first, second = alice.sql(rough), bob.sql(rough)
    assert first.fetchall() == second.fetchall()
    for who in (alice, bob):
        assert who.explain(KNOWING).query.names.count == len(first)  # type: ignore[union-attr]
    assert alice.explain(KNOWING).law == bob.explain(KNOWING).law


def test_accounts_with_other_known_names_share_no_draw(sessions: Callable[..., Session]) -> None:
    """The law of the answer differs, and the guarantee of one account says nothing of the other's names."""
    alice, bob = (sessions(who, share=True) for who in ("alice", "bob"))
    alice.sql(BROAD)
    assert alice.explain(KNOWING).release_key == bob.explain(KNOWING).release_key
    assert alice.explain(KNOWING).law != bob.explain(KNOWING).law
    assert len(alice.sql(KNOWING)) == 3
    assert len(bob.sql(KNOWING)) == 0
    know(bob, ["moon", "star", "earth"])
    other = KNOWING.replace("752", "753")
    assert alice.explain(other).release_key == bob.explain(other).release_key
    assert alice.explain(other).law != bob.explain(other).law


def test_another_session_of_the_account_knows_the_names_on_every_version(sessions: Callable[..., Session]) -> None:
    sessions("alice").sql(BROAD)
    later = sessions("alice")
    later._dependencies.ledger.bump("new rows")
    assert later.explain(NARROW).query.names.count == 3  # type: ignore[union-attr]
    assert not later.sql(BROAD).receipt.replayed


TYPED = """CREATE TABLE reads AS SELECT i AS user_id, v.* FROM range(300) AS r(i), (VALUES
('a', DATE '2024-02-29', TIMESTAMP '2024-01-01 10:00:00', 1.50::DECIMAL(9, 2), TRUE,
    -7::BIGINT, 0.1::DOUBLE, 3::UTINYINT),
(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
('Ä', DATE '0001-01-01', TIMESTAMP '9999-12-31 23:59:59', -0.01::DECIMAL(9, 2), FALSE,
    9::BIGINT, 'nan'::DOUBLE, 255::UTINYINT)
) AS v(text, day, ts, price, flag, number, real, small)"""


@pytest.mark.parametrize("key", ["text", "day", "ts", "price", "flag", "number", "real", "small", "text, day, real"])
def test_names_of_every_type_come_back_where_no_row_has_them(key: str) -> None:
    session = opened(TYPED)
    first = session.sql(top(3, f"{EXACT}, {WEIGHTED}", keys=key))
    absent = session.sql(top(3, f"{EXACT}, {WEIGHTED}, known = all", keys=key, where="WHERE user_id < 0"))
    assert absent.arrow().schema == first.arrow().schema
    assert sorted(map(str, absent.arrow().drop("n").to_pylist())) == sorted(
        map(str, first.arrow().drop("n").to_pylist())
    )
    assert [row[-1] for row in absent.fetchall()] == [0, 0, 0]
    some = session.sql(top(3, f"{EXACT}, {WEIGHTED}, known = all", keys=key, where="WHERE user_id < 5"))
    assert [row[-1] for row in some.fetchall()] == [5, 5, 5]
    assert [answer.total and answer.total.value for answer in (absent, some)] == [0, 5]  # of what is read of all names


def test_combinations_of_keys_are_known_in_any_order_of_the_keys() -> None:
    session = opened(TYPED)
    session.sql(top(3, f"{EXACT}, {WEIGHTED}", keys="text, day"))
    turned = session.sql(
        top(5, f"{EXACT}, known = all, domain = released", keys="day, text", where="WHERE user_id < 2")
    )
    assert set(turned.fetchall()) == {
        (dt.date(2024, 2, 29), "a", 2),
        (None, None, 2),
        (dt.date(1, 1, 1), "Ä", 2),
    }


KEYS = [
    ("article", "reads", True),
    ("r.article", "reads AS r", True),
    ("article", "(SELECT article, user_id FROM reads WHERE user_id > 3) AS x", True),
    ("article", "(SELECT * FROM reads UNION ALL SELECT * FROM reads) AS x", True),
    ("upper(article)", "reads", False),
    ("CAST(user_id % 3 AS VARCHAR)", "reads", False),
    ("article", "(SELECT upper(article) AS article, user_id FROM reads) AS x", False),
]


@pytest.mark.parametrize(("key", "source", "known"), KEYS)
def test_names_are_known_where_the_key_is_the_same_column(session: Session, key: str, source: str, known: bool) -> None:
    query = f"SELECT {key} AS k FROM {source} GROUP BY 1 TOP 2 PRIVATE WITH ({WEIGHTED})"
    assert (session.explain(query).query.names is not None) is known


def test_a_group_whose_units_are_in_too_many_groups_to_be_weighed_keeps_its_count() -> None:
    """Weight 0 is no count of 0: read as one, the first weight of a unit would bring all its units at once."""
    session = opened(
        "CREATE TABLE reads AS SELECT i // 400 AS user_id, (i % 400)::VARCHAR AS article FROM range(4000) AS t(i)"
    )
    know(session, list(map(str, range(400))))
    answer = session.sql(top(400, f"epsilon = 0.1, {WEIGHTED}, known = all"))
    assert answer.receipt.known == 400
    assert {n for _, n in answer.fetchall()} == {10}  # none has lost its units, weighed or not


def test_other_groups_without_weight_do_not_take_part() -> None:
    """One unit of 4000 groups has a weight in 100 of them; the others are read for the sake of known names alone."""
    session = opened("CREATE TABLE reads AS SELECT 1 AS user_id, i::VARCHAR AS article FROM range(4000) AS t(i)")
    know(session, ["0", "1"])
    plan, seen = session.explain(top(5, WEIGHTED)), list[int]()
    mechanism = plan.mechanism_plan

    class Watched:
        def __getattr__(self, name: str) -> object:
            return getattr(mechanism, name)

        def begin(self, groups: Groups, noise: Noise) -> MechanismOutput:
            seen.extend([groups.known, len(groups.weights), int((groups.weights[groups.known :] > 0).sum())])
            return mechanism.draw(groups, noise)

    own = session._dependencies
    exact = own.engine.execute(build_statement(plan.counting))
    release(replace(plan, mechanism_plan=Watched()), exact, noise=own.noise)  # type: ignore[arg-type]
    known, groups, weighed = seen
    assert known == 2
    assert groups - known == weighed <= 100


@pytest.mark.parametrize("mechanism", [WEIGHTED, "mechanism = gaussian_histogram, max_groups_contributed = 2"])
def test_a_known_group_to_which_units_add_nothing_keeps_its_other_measures(mechanism: str) -> None:
    own = policy(reads=dpsql.PrivateTable("user_id", bounds={"price": {"max": 10}}))
    session = opened(
        "CREATE TABLE reads AS SELECT i AS user_id, 'a' AS article, 0.0 AS price FROM range(50) AS t(i)", own=own
    )
    session.sql(top(1, f"{EXACT}, {WEIGHTED}"))
    query = "SELECT article, SUM(price) AS s, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY 1 TOP 1 PRIVATE"
    query = f"{query} WITH ({EXACT}, {mechanism}, known = all)"
    [(_, total, n)] = session.sql(query).fetchall()
    assert (round(float(total)), n) == (0, 50)


def test_with_min_units_known_names_are_not_used() -> None:
    own = policy(reads=dpsql.PrivateTable("user_id", min_units=20))
    session = opened(*READS, own=own)
    session.sql(top(3, EXACT))
    plan = session.explain(top(3, "epsilon = 0.5"))
    assert plan.query.names is None
    assert plan.mechanism == "limited_domain"
    with pytest.raises(Refusal, match="at least so many units"):
        session.sql(top(3, "domain = released"))


def test_per_uses_no_known_names_and_its_own_names_are_known() -> None:
    session = opened(TYPED)
    per = "SELECT text, number, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY ALL TOP 2 PRIVATE PER text"
    answer = session.sql(f"{per} WITH ({EXACT}, partitions = ['a', 'Ä'])")
    assert len(answer) == 2
    assert answer.receipt.known == 0
    plan = session.explain(top(2, WEIGHTED, keys="text, number"))
    assert plan.query.names.count == 2  # type: ignore[union-attr]
    assert session.explain(f"{per} WITH ({EXACT}, partitions = ['a', 'Ä'], fresh = true)").query.names is None


def many(names: int) -> Session:
    return opened(
        f"CREATE TABLE reads AS SELECT u AS user_id, 'a' || i AS article FROM range(90) AS t(u), range({names}) AS s(i)"
    )


@pytest.mark.parametrize(
    ("names", "k", "more", "mechanism"),
    [
        (4, 5, "", "two_looks"),
        (5, 5, "", "weighted_gaussian"),
        (25, 5, "", "peeling"),
        (25, 5, ", delta = 1e-7", "weighted_gaussian"),
        (25, 5, ", known = false", "two_looks"),
        (25, 5, ", max_groups_contributed = 2", "weighted_gaussian"),
        (25, 5, ", known = all", "peeling"),
    ],
)
def test_auto_chooses_among_what_asks_no_threshold_of_known_names(
    names: int, k: int, more: str, mechanism: str
) -> None:
    session = many(names)
    know(session, [f"a{number}" for number in range(names)])
    query = f"SELECT article FROM reads WHERE user_id < 3 GROUP BY article TOP {k} PRIVATE WITH (epsilon = 0.5{more})"
    plan = session.explain(query)
    assert plan.mechanism == mechanism
    answer = session.sql(query)
    assert answer.receipt.mechanism == mechanism
    if plan.spec.rows.known:
        facts = dict(plan.facts())
        least = "no threshold" if more == ", known = all" else "a lower threshold"
        if "the least noise" in facts["chosen because"]:
            assert f"known names need {least}" in facts["chosen because"]
        assert "the least noise" in facts["chosen because"] if more == "" else True
        assert answer.receipt.evident is (more != ", known = all")
        assert len(answer) == k or answer.receipt.evident


def test_an_answer_stored_by_an_earlier_version_is_of_no_use_and_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    session = opened(*READS)
    monkeypatch.setattr("dpsql.plan.identity.stored_release.identify_keys", lambda _: ())
    session.sql(BROAD)
    monkeypatch.undo()
    assert session.explain(NARROW).query.names is None
    assert session.sql(BROAD).receipt.replayed


def test_the_oldest_names_are_kept_up_to_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsql.plan.identity.stored_release.MOST_NAMES", 2)
    session = opened(*READS)
    session.sql(top(1, f"{EXACT}, {WEIGHTED}"))
    session.sql(BROAD)
    names = session.explain(NARROW).query.names
    assert names is not None
    assert names.count == 2
    assert names.table.column(0)[0].as_py() == "moon"  # type: ignore[attr-defined]


def test_describe_refuses_what_sql_refuses() -> None:
    session = opened(*READS)
    with pytest.raises(Refusal, match="No stored answer of yours"):
        session.describe(top(3, "domain = released"))
    session.sql(BROAD)
    assert session.describe(top(3, "domain = released")).names == ["article", "n"]
