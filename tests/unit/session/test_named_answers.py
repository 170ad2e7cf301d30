"""Named answers: WITH (name = '...'), SHOW ANSWERS, and SELECTs over answers."name", which are free."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.ledger import SQLiteLedger

ASK = "SELECT article, COUNT(DISTINCT user_id) AS readers FROM reads GROUP BY article TOP 3 PRIVATE"
NAMED = f"{ASK} WITH (name = 'weekly')"


def policy(folder: Path, **more: dpsql.Analyst) -> dpsql.Policy:
    budget = dpsql.Budget(epsilon=10.0, delta=1e-6, items=60, queries=20)
    tables = {"reads": dpsql.PrivateTable(privacy_unit="user_id"), "names": dpsql.PublicTable()}
    return dpsql.Policy(budget, tables, ledger=folder / "ledger.sqlite", analysts=more)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("named") / "events.duckdb"
    with duckdb.connect(str(place)) as connection:
        connection.execute(
            "CREATE TABLE reads AS SELECT i AS user_id, 'article ' || (i % 3) AS article, 'DE' AS country "
            "FROM range(30000) t(i)"
        )
        connection.execute("CREATE TABLE names AS SELECT 'article ' || i AS article, i AS rank FROM range(3) t(i)")
    return place


@pytest.fixture
def session(database: Path, tmp_path: Path) -> Iterator[dpsql.Session]:
    with dpsql.connect(database, policy=policy(tmp_path)) as session:
        yield session


def refusal(session: dpsql.Session, sql: str) -> dpsql.Error:
    before = session.budget
    with pytest.raises(dpsql.Error) as caught:
        session.sql(sql)
    assert session.budget == before
    assert caught.value.hint
    return caught.value


def test_an_answer_under_a_name_is_a_table_that_is_free(session: dpsql.Session) -> None:
    answer = session.sql(NAMED)
    before = session.budget
    assert session.sql('SELECT * FROM answers."weekly"').fetchall() == answer.fetchall()
    joined = session.sql("SELECT rank, readers FROM answers.weekly JOIN names USING (article) ORDER BY rank")
    assert sorted(row[1] for row in joined.fetchall()) == sorted(row[1] for row in answer.fetchall())
    assert session.sql("SELECT COUNT(*) FROM answers.weekly w WHERE readers > ?", [0]).fetchall() == [(3,)]
    assert session.describe("SELECT * FROM answers.weekly").names == ["article", "readers"]
    assert session.sql("DESCRIBE answers.weekly").arrow().column("column_type").to_pylist() == ["VARCHAR", "BIGINT"]
    assert session.budget == before


def test_what_is_read_of_it_is_said_to_have_noise(session: dpsql.Session) -> None:
    session.sql(NAMED)
    day = f"{session._dependencies.ledger.tables()[1][0].at:%Y-%m-%d}"
    note = f"answers.weekly is of {day}: released numbers have the noise of that day."
    for sql in ("SELECT * FROM answers.weekly", "SELECT readers FROM answers.weekly, names WHERE rank = 1"):
        assert session.sql(sql).explanation == note
        assert note in str(session.sql(sql))
    around = f"SELECT x.article FROM ({ASK}) AS x JOIN answers.weekly USING (article)"
    assert session.sql(around).explanation.endswith(note)
    assert session.sql("SELECT rank FROM names").explanation == ""


def test_a_name_is_no_part_of_the_question(session: dpsql.Session) -> None:
    answer = session.sql(ASK)
    before = session.budget
    named = session.sql(NAMED)
    assert (named.fetchall(), session.budget) == (answer.fetchall(), before)
    assert session.explain(NAMED).key == session.explain(ASK).key
    assert session.sql("SELECT * FROM answers.weekly").fetchall() == answer.fetchall()


def test_the_name_is_that_of_the_whole_statement(session: dpsql.Session) -> None:
    answer = session.sql(f"SELECT readers / 100 AS hundreds FROM ({NAMED}) AS x WHERE readers > 1")
    assert session.sql("SELECT hundreds FROM answers.weekly").fetchall() == answer.fetchall()


def test_a_private_query_stands_beside_it(session: dpsql.Session) -> None:
    session.sql(NAMED)
    around = (
        f"SELECT x.article, w.readers - x.readers AS change FROM ({ASK}) AS x JOIN answers.weekly w USING (article)"
    )
    assert {row[1] for row in session.sql(around).fetchall()} == {0}  # the same answer, from the ledger


def test_show_answers_has_them_in_the_words_they_were_asked(session: dpsql.Session) -> None:
    assert len(session.sql("SHOW ANSWERS")) == 0
    session.sql(NAMED)
    total = "SELECT COUNT(DISTINCT user_id) AS n FROM reads WHERE user_id > 1 PRIVATE"
    session.sql(total)
    shown = session.sql("SHOW ANSWERS").arrow()
    assert shown.column_names == ["name", "query", "asked_at", "days", "columns", "percent_used"]
    assert [(row["name"], row["query"], row["columns"]) for row in shown.to_pylist()] == [
        (None, total, "n"),
        ("weekly", NAMED, "article, readers"),
    ]
    assert sum(shown.column("percent_used").to_pylist()) == pytest.approx(float(session.budget.percent_used))


def test_an_answer_that_is_named_afterwards_is_listed_once_with_its_price(session: dpsql.Session) -> None:
    session.sql(ASK)
    session.sql(NAMED)
    session.sql(f"SELECT COUNT(*) AS n FROM ({ASK} WITH (name = 'how_many')) AS x")  # another question
    rows = session.sql("SHOW ANSWERS").arrow().to_pylist()
    assert [(row["name"], row["columns"]) for row in rows] == [("how_many", "n"), ("weekly", "article, readers")]
    assert [row["percent_used"] for row in rows] == [None, pytest.approx(float(session.budget.percent_used))]


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ("", " WITH (name = 'weekly')"),
        (" WITH (intervals = true)", " WITH (intervals = true, name='weekly')"),
        (" WITH (intervals = true)", "\n  WITH (NAME = 'weekly', intervals = true)"),
    ],
)
@pytest.mark.parametrize("around", ["{}", "SELECT readers / 100 AS hundreds FROM ({}) AS x"])
def test_an_answer_that_is_named_afterwards_is_one(
    session: dpsql.Session, around: str, written: str, named: str
) -> None:
    session.sql(around.format(ASK + written))
    session.sql(around.format(ASK + named))
    (row,) = session.sql("SHOW ANSWERS").arrow().to_pylist()
    assert row["name"] == "weekly"
    assert row["percent_used"] == pytest.approx(float(session.budget.percent_used))


def test_queries_of_the_same_words_are_listed_once_with_what_they_used_together(session: dpsql.Session) -> None:
    fresh = f"{ASK} WITH (fresh = true)"
    parts = f"SELECT (SELECT COUNT(DISTINCT user_id) FROM reads PRIVATE) AS a, article FROM ({ASK}) AS x"
    for text in (fresh, fresh, parts):
        session.sql(text)
    rows = session.sql("SHOW ANSWERS").arrow().to_pylist()
    assert {row["query"] for row in rows} == {fresh, parts}
    assert sum(row["percent_used"] for row in rows) == pytest.approx(float(session.budget.percent_used))


def test_they_are_listed_beside_the_tables_of_the_policy(session: dpsql.Session) -> None:
    session.sql(NAMED)
    listed = session.sql("SHOW TABLES").arrow()
    kinds = dict(zip(listed.column("name").to_pylist(), listed.column("kind").to_pylist(), strict=True))
    assert kinds == {"reads": "private", "names": "public", "answers.weekly": "answer"}
    assert [table.name for table in session.catalog.tables] == ["reads", "names", "answers.weekly"]
    described = session.sql("DESCRIBE answers.weekly").explanation
    assert described.startswith("Answer of ")
    assert described.endswith(f"free to read.\nSQL: {NAMED}")
    assert session.sql("DESCRIBE names").explanation == ""


@pytest.mark.parametrize(
    ("option", "code"),
    [
        ("name = 'two words'", "option"),
        ("name = ''", "option"),
        ("name = weekly", "option"),
        ("name = 5", "option"),
        ("name = '1st'", "option"),
        (f"name = '{'a' * 64}'", "option"),
        ("name = 'a.b'", "option"),
    ],
)
def test_what_can_be_no_name_is_refused_before_it_is_charged(session: dpsql.Session, option: str, code: str) -> None:
    assert refusal(session, f"{ASK} WITH ({option})").code == code


def test_a_name_belongs_to_one_question(session: dpsql.Session) -> None:
    session.sql(NAMED)
    other = "SELECT article FROM reads GROUP BY article TOP 2 PRIVATE WITH (name = 'Weekly')"
    assert refusal(session, other).code == "name-taken"
    assert refusal(session, f"EXPLAIN {other}").code == "name-taken"


def test_one_statement_has_one_name(session: dpsql.Session) -> None:
    total = "SELECT COUNT(DISTINCT user_id) AS n FROM reads PRIVATE WITH (name = 'total')"
    assert refusal(session, f"SELECT x.article, t.n FROM ({NAMED}) AS x, ({total}) AS t").code == "option"


def test_a_private_query_reads_none(session: dpsql.Session) -> None:
    session.sql(NAMED)
    inside = (
        "SELECT article FROM reads WHERE article IN (SELECT article FROM answers.weekly) GROUP BY article TOP 2 PRIVATE"
    )
    assert refusal(session, inside).code == "stored-table"
    joined = "SELECT article FROM reads JOIN answers.weekly USING (article) GROUP BY article TOP 2 PRIVATE"
    assert refusal(session, joined).code == "stored-table"


def test_what_is_wrong_around_it_is_said(session: dpsql.Session) -> None:
    session.sql(NAMED)
    assert 'Candidate bindings: "article"' in refusal(session, "SELECT titel FROM answers.weekly").reason
    assert refusal(session, "SELECT * FROM answers.monthly").code == "unknown-table"
    assert refusal(session, "SELECT * FROM answers.weekly, reads").code == "wrapping"


def test_a_new_version_of_the_data_ends_it(session: dpsql.Session, database: Path, tmp_path: Path) -> None:
    session.sql(NAMED)
    with dpsql.connect(database, policy=policy(tmp_path)) as other:
        other.sql("SELECT * FROM answers.weekly")
        session._dependencies.ledger.bump("tuesday")
        error = refusal(other, "SELECT * FROM answers.weekly")
        assert (error.code, error.hint) == ("answer-ended", f"Run its query again: {NAMED}")
        assert len(other.sql("SHOW ANSWERS")) == 0
        assert "answers.weekly" not in other.sql("SHOW TABLES").arrow().column("name").to_pylist()
        again = other.sql(NAMED)  # as the hint says
        assert again.receipt.items_charged
        assert other.sql("SELECT * FROM answers.weekly").fetchall() == again.fetchall()


def test_names_are_those_of_an_account(database: Path, tmp_path: Path) -> None:
    shared = policy(tmp_path, ana=dpsql.Analyst(epsilon=4), bob=dpsql.Analyst(epsilon=4))
    with (
        dpsql.connect(database, policy=shared, analyst="ana") as ana,
        dpsql.connect(database, policy=shared, analyst="bob") as bob,
    ):
        ana.sql(NAMED)
        assert refusal(bob, "SELECT * FROM answers.weekly").code == "unknown-table"
        assert len(bob.sql("SHOW ANSWERS")) == 0
        bob.sql("SELECT COUNT(DISTINCT user_id) AS n FROM reads PRIVATE WITH (name = 'weekly')")
        assert [len(each.sql("SELECT * FROM answers.weekly")) for each in (ana, bob)] == [3, 1]


def test_what_is_random_around_a_stored_answer_is_stored_once(session: dpsql.Session) -> None:
    random = f"SELECT random() AS r FROM ({NAMED}) AS x"
    first = session.sql(random).fetchall()
    assert session.sql(random).fetchall() != first
    assert session.sql("SELECT * FROM answers.weekly").fetchall() == first


def test_new_noise_takes_the_name(session: dpsql.Session) -> None:
    session.sql(NAMED)
    fresh = session.sql(f"{ASK} WITH (name = 'weekly', fresh = true)")
    assert session.sql("SELECT * FROM answers.weekly").fetchall() == fresh.fetchall()


def test_no_other_answer_is_read_where_a_name_is_like_that_of_a_table(session: dpsql.Session) -> None:
    session.sql(f"{ASK} WITH (name = 'reads')")
    assert len(session.sql("SELECT * FROM answers.reads")) == 3
    assert refusal(session, "SELECT * FROM reads").code == "not-private"


@pytest.mark.parametrize(
    "clause",
    [
        "TOP 2 PRIVATE WITH (domain = 'answers.weekly.article')",
        "ALL PRIVATE WITH (domain = 'answers.weekly.article')",
        "TOP 2 PRIVATE WITH (assume = 'answers.weekly.readers')",
    ],
)
def test_no_option_of_a_private_query_reads_one(session: dpsql.Session, clause: str) -> None:
    session.sql(NAMED)
    ask = f"SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article {clause}"
    assert refusal(session, ask).code == "stored-table"
    assert refusal(session, f"EXPLAIN {ask}").code == "stored-table"


def test_the_replay_of_a_total_looks_for_no_names(session: dpsql.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    total = "SELECT COUNT(DISTINCT user_id) AS n FROM reads PRIVATE"
    session.sql(total)
    ledger, count = session._dependencies.ledger, 0
    reading = type(ledger)._reading

    def read(self: SQLiteLedger) -> object:
        nonlocal count
        count += 1
        return reading(self)

    monkeypatch.setattr(type(ledger), "_reading", read)
    assert session.sql(f"{total} ").receipt.replayed
    assert count == 1  # the stored answer
