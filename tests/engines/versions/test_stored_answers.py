"""Answers that every version stored stay free; what means something else today is asked again, and says so.

The ledgers were written by the real code of these versions, also of this one (`support/ledgers_of_versions.py`).
"""

from __future__ import annotations

import json
import warnings
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from support.ledgers_of_versions import ACTS, IN_POSTGRES, POLICIES, make_database, use_ledger
from support.postgres_kit import server

import dpsql
from dpsql import curator
from dpsql.errors import Refusal
from dpsql.receipt import REREAD
from dpsql.session import Session

ARCHIVES = sorted(Path(__file__).parent.glob("*.zip"))
BEFORE = [path for path in ARCHIVES if path.stem.startswith(("0.10", "0.11"))]
UP_TO_0_11 = [path for path in ARCHIVES if path.stem in {"0.10.1", "0.11.0"}]
LAST = next(path for path in ARCHIVES if path.stem == "0.11.0-8d69a76b")
AGAIN = {  # what of a statement means something else today
    "AVG(": "an average divides measures of one weight",
    "SUM(amount * 2)": "a sum has the bounds of its expression",
    "SUM(CASE": "a sum has the bounds of its expression",
    "SELECT SUM(amount) / COUNT(*)": "measures that are divided have one weight",
    "SELECT 100.0 * COUNT(*) FILTER": "measures that are divided have one weight",
    "COUNT(score)": "NaN is no value",
    "COUNT(*) AS n FROM reads JOIN": "rows of a join have other bounds",
    "COUNT(*) AS n FROM reads r JOIN": "rows of a join have other bounds",
    "SUM(amount) AS s FROM reads JOIN": "rows of a join have other bounds",
    "COUNT(*) AS n FROM reads WHERE user_id IN": "rows of a join have other bounds",
    "SUM(minutes) AS n FROM reads r WHERE EXISTS": "rows of a join have other bounds",
}


REFUSED = "SUM(COUNT(*)) OVER ()"  # a share of all groups, which 0.11 computed from the released ones
VALUES = "values"  # whose ledger is bound to the file of its data by budget_by
DERIVED = " of an answer of "
LEFT = "penalty ="  # an option that left, and with it the questions that named it
WRITTEN_TODAY = {"HAVING PRIVATE_TOP(2, epsilon => 0.5)": "TOP 2 PRIVATE WITH (epsilon = 0.5)"}


def is_asked_again(archive: Path, text: str) -> bool:
    return archive in BEFORE and any(part in text for part in AGAIN)


@lru_cache(maxsize=8)
def answers(archive: Path, case: str) -> list[dict[str, Any]]:
    with zipfile.ZipFile(archive) as file:
        return list(map(json.loads, file.read(f"{case}.jsonl").decode().splitlines()))


def cases(archive: Path) -> Iterator[str]:
    with zipfile.ZipFile(archive) as file:
        yield from (name.removesuffix(".ledger") for name in file.namelist() if name.endswith(".ledger"))


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_database(tmp_path_factory.mktemp("data") / "events.duckdb")


def unpack(archive: Path, case: str, folder: Path) -> Path:
    """Write the policy and the ledger of a case into a folder, and return the policy."""
    policy = folder / "policy.toml"
    policy.write_text(POLICIES[case].policy)
    with zipfile.ZipFile(archive) as file:
        (folder / "spent.ledger").write_bytes(file.read(f"{case}.ledger"))
    return policy


def ask(session: Session, asked: dict[str, Any], *, run: str = "sql") -> dpsql.Answer:
    text = asked["text"]
    for then, today in WRITTEN_TODAY.items():
        text = text.replace(then, today)
    return getattr(session, run)(text, asked["parameters"], implicit=asked["implicit"] or None)  # type: ignore[no-any-return]


def list_rows(answer: dpsql.Answer) -> list[list[str]]:
    return [list(map(str, row)) for row in answer.fetchall()]


def is_stored(session: Session, text: str) -> bool:
    """Say whether the answer is stored; of a mechanism that has left, one that is not is refused."""
    try:
        return session.explain(text).stored
    except Refusal as refused:
        assert refused.code == "option"  # noqa: PT017
        assert refused.reason == "The mechanism relay has left dpsql."  # noqa: PT017
        return False


def check_free(archive: Path, case: str, database: Path, policy: Path) -> None:
    """Ask everything that means the same as then: it is answered as then, and free of charge."""
    stored = answers(archive, case)
    for each in stored:
        if "act" in each:
            assert ACTS[each["act"]](database, policy) == (each["found"], True)
    asked = [each for each in stored if "text" in each]
    for analyst in dict.fromkeys(each["analyst"] for each in asked):
        with dpsql.connect(database, policy=policy, analyst=analyst) as session:
            spent = session.budget.remaining
            for each in asked:
                is_refused = REFUSED in each["text"] or LEFT in each["text"]
                if each["analyst"] == analyst and not is_asked_again(archive, each["text"]) and not is_refused:
                    answer = ask(session, each)
                    # "none" is the mechanism of what is read from a stored table.
                    assert answer.receipt.replayed or each["mechanism"] == "none", each["text"]
                    assert answer.receipt.mechanism == each["mechanism"], each["text"]
                    # What follows from other stored answers follows from the most precise of them.
                    if DERIVED not in str(answer.receipt):
                        assert list_rows(answer) == each["rows"], each["text"]
            assert session.budget.remaining == spent


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda each: each.stem)
def test_every_ledger_is_whole(archive: Path, tmp_path: Path) -> None:
    for case in cases(archive):
        (tmp_path / case).mkdir()
        unpack(archive, case, tmp_path / case)
        assert curator.verify_ledger(tmp_path / case / "spent.ledger").events > 1


@pytest.mark.parametrize(
    ("archive", "case"),
    [pytest.param(each, case, id=f"{each.stem}-{case}") for each in ARCHIVES for case in cases(each) if case != VALUES],
)
def test_what_means_the_same_is_answered_as_it_was_and_free(
    archive: Path, case: str, database: Path, tmp_path: Path
) -> None:
    assert answers(archive, case)
    check_free(archive, case, database, unpack(archive, case, tmp_path))


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda each: each.stem)
def test_so_it_is_from_a_ledger_in_postgresql(archive: Path, database: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(archive) as file:
        dump = file.read("postgres.sql").decode()
    schema = "of_" + "".join(letter if letter.isalnum() else "_" for letter in archive.stem)
    server().run(dump.replace("ledger_of_a_version", schema))
    policy = tmp_path / "policy.toml"
    policy.write_text(use_ledger(POLICIES[IN_POSTGRES].policy, server().url(schema)))
    check_free(archive, "postgres", database, policy)


@pytest.mark.parametrize("archive", [*UP_TO_0_11, *set(ARCHIVES).difference(BEFORE)], ids=lambda each: each.stem)
def test_a_ledger_is_continued(archive: Path, database: Path, tmp_path: Path) -> None:
    policy = unpack(archive, "analysts", tmp_path)
    ledger, new = tmp_path / "spent.ledger", "SELECT city FROM users GROUP BY city TOP 2 PRIVATE"
    with dpsql.connect(database, policy=policy, analyst="ada") as session:
        left, events = session.budget.remaining, session.history.num_rows
        assert not session.sql(new).receipt.replayed
        assert session.budget.remaining.rho < left.rho
        assert session.history.num_rows == events + 1
    curator.grant(ledger, dpsql.Budget(70, "1e-4", items=1500, queries=200), note="more")
    policy.write_text(policy.read_text().replace("epsilon = 60.0", "epsilon = 70.0"))
    check_free(archive, "analysts", database, policy)
    assert curator.bump(ledger, note="monday") == 1
    assert curator.verify_ledger(ledger).events > 0
    with dpsql.connect(database, policy=policy, analyst="ada") as session:
        assert not session.explain(new).stored


@pytest.mark.parametrize("archive", [each for each in BEFORE if each not in UP_TO_0_11], ids=lambda each: each.stem)
def test_what_means_something_else_is_asked_again_and_says_so(archive: Path, database: Path, tmp_path: Path) -> None:
    policy, asked = unpack(archive, "measures", tmp_path), answers(archive, "measures")
    again = [each for each in asked if is_asked_again(archive, each["text"])]
    assert {part for part in AGAIN for each in again if part in each["text"]} == AGAIN.keys()
    with dpsql.connect(database, policy=policy) as session:
        before = session.history.num_rows
        for each in again:
            with pytest.raises(Refusal, match="no stored answer") as refused:
                ask(session, each, run="replay")
            assert refused.value.code == "not-stored"
            plan = session.explain(each["text"])
            assert (plan.stored, plan.reread) == (False, True), each["text"]
            assert dict(plan.facts())["stored"] == REREAD
            assert ("stored", REREAD) in session.sql(f"EXPLAIN {each['text']}").fetchall()
            with warnings.catch_warnings(action="ignore"):
                first, second = ask(session, each), ask(session, each)
            assert first.receipt.reread
            assert not first.receipt.replayed
            assert REREAD in str(first.receipt)
            assert second.receipt.replayed  # from now on
            assert not second.receipt.reread
            assert list_rows(second) == list_rows(first)
            assert not session.explain(each["text"]).reread
        assert session.history.num_rows == before + len(again)  # the earlier answers stay in the history


def test_a_share_of_all_that_was_computed_from_some_is_refused(database: Path, tmp_path: Path) -> None:
    asked = [each for each in answers(LAST, "measures") if REFUSED in each["text"]]
    assert asked
    with dpsql.connect(database, policy=unpack(LAST, "measures", tmp_path)) as session:
        for each in asked:
            with pytest.raises(Refusal) as refused:
                ask(session, each)
            assert refused.value.code == "window"
            with warnings.catch_warnings(action="ignore"):
                assert len(session.sql(refused.value.hint.partition(": ")[2])) > 0


def test_what_the_port_means_otherwise_is_asked_again_and_says_so(database: Path, tmp_path: Path) -> None:
    asked = [each for each in answers(LAST, "plain") if r"LIKE 'a\_1%'" in each["text"]]
    assert asked
    with dpsql.connect(database, policy=unpack(LAST, "plain", tmp_path)) as session:
        for each in asked:
            assert ask(session, each).receipt.replayed  # in dpsql's own SQL a backslash is a letter, as it was
            assert ("stored", REREAD) in session.sql(f"EXPLAIN {each['text']}", postgres=True).fetchall()
            with warnings.catch_warnings(action="ignore"):
                first = session.sql(each["text"], postgres=True)
            assert (first.receipt.reread, first.receipt.replayed) == (True, False)
            assert session.sql(each["text"], postgres=True).receipt.replayed
            other = each["text"].replace("a\\_1", "zz\\_1")
            assert ("stored", REREAD) not in session.sql(f"EXPLAIN {other}", postgres=True).fetchall()


def test_nothing_is_said_of_a_question_that_was_never_asked(database: Path, tmp_path: Path) -> None:
    with dpsql.connect(database, policy=unpack(LAST, "measures", tmp_path)) as session:
        for sql in (
            "SELECT AVG(minutes) AS a FROM reads WHERE country = 'IT' PRIVATE",
            "SELECT SUM(minutes + 1) FROM reads PRIVATE",
        ):
            plan = session.explain(sql)
            assert (plan.stored, plan.reread) == (False, False)
            assert "stored" not in dict(plan.facts())


def test_an_average_after_today_s_sum_and_count_was_not_asked_before(database: Path, tmp_path: Path) -> None:
    """In 0.11 both had one key."""
    with dpsql.connect(database, policy=unpack(LAST, "measures", tmp_path)) as session:
        where = "FROM reads WHERE country = 'IT' PRIVATE"
        session.sql(f"SELECT SUM(minutes) AS s, COUNT(minutes) AS n {where}")
        assert not session.explain(f"SELECT AVG(minutes) AS a {where}").reread


@pytest.mark.parametrize("archive", UP_TO_0_11, ids=lambda each: each.stem)
def test_a_question_that_names_a_mechanism_matches_that_mechanism_alone(
    archive: Path, database: Path, tmp_path: Path
) -> None:
    with dpsql.connect(database, policy=unpack(archive, "large", tmp_path)) as session:
        text = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 4 PRIVATE"
        assert session.explain(text).stored
        by = {
            name: is_stored(session, f"{text} WITH (mechanism = {name})")
            for name in ("limited_domain", "weighted_gaussian", "domain_discovery", "stable", "relay")
        }
        drawn_by = session.sql(text).receipt.mechanism
        assert by == {name: name == drawn_by for name in by}


@pytest.mark.parametrize("archive", UP_TO_0_11, ids=lambda each: each.stem)
@pytest.mark.parametrize(
    "other",
    [
        "TOP 4",
        "TOP 5 PRIVATE WITH (epsilon = 0.51)",
        "TOP 5 PRIVATE WITH (k_bar = 31)",
        "TOP 5 PRIVATE WITH (fresh = true)",
    ],
)
def test_another_question_is_not_answered_by_them(archive: Path, other: str, database: Path, tmp_path: Path) -> None:
    with dpsql.connect(database, policy=unpack(archive, "bumped", tmp_path)) as session:
        text = "SELECT article FROM reads GROUP BY article TOP 5 PRIVATE"
        assert session.explain(text).stored
        plan = session.explain(f"{text.partition('TOP')[0]}{other}{'' if 'PRIVATE' in other else ' PRIVATE'}")
        assert plan.fresh or not plan.stored


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda each: each.stem)
def test_a_new_version_of_the_data_is_asked_again(archive: Path, database: Path, tmp_path: Path) -> None:
    policy = unpack(archive, "bumped", tmp_path)
    policy.write_text(policy.read_text().replace("data_version = 2", "data_version = 3"))
    with dpsql.connect(database, policy=policy) as session:
        assert not any(session.explain(each["text"]).stored for each in answers(archive, "bumped"))


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda each: each.stem)
def test_the_answers_of_another_analyst_are_not_shown(archive: Path, database: Path, tmp_path: Path) -> None:
    policy = unpack(archive, "analysts", tmp_path)
    policy.write_text(policy.read_text() + "\n[analysts.eve]\nepsilon = 10.0\n")
    with dpsql.connect(database, policy=policy, analyst="eve") as session:
        assert not any(session.explain(each["text"]).stored for each in answers(archive, "analysts"))


@pytest.mark.parametrize("archive", UP_TO_0_11, ids=lambda each: each.stem)
def test_the_newest_of_several_mechanisms_answers(archive: Path, database: Path, tmp_path: Path) -> None:
    """The question was asked by name alone, so the earlier version would have chosen none of what is stored."""
    named = [each for each in answers(archive, "plain") if "GROUP BY country, article TOP 4" in each["text"]]
    newest = [each for each in named if " AS n" not in each["text"] and "max_groups" not in each["text"]]
    text, _, _ = newest[0]["text"].partition(" WITH")
    with dpsql.connect(database, policy=unpack(archive, "plain", tmp_path)) as session:
        answer = session.sql(text)
        assert answer.receipt.replayed
        assert answer.receipt.mechanism == "limited_domain"  # which the earlier version would have chosen
        assert list_rows(answer) == newest[0]["rows"]
        bounded = session.sql(f"{text} WITH (max_groups_contributed = 3)")
        assert bounded.receipt.mechanism == "gaussian_histogram"  # laplace_limited_domain was newer, and never chosen
