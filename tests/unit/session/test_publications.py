"""Published tables: dpsql.curator.publish, refresh, due and drop, and who reads them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from fractions import Fraction
from functools import partial
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql import curator
from dpsql.ledger import SQLiteLedger, backup, verify
from dpsql.publications import Publication, PublicationPlan, PublicationRequest

ASK = "SELECT article, COUNT(DISTINCT user_id) AS readers FROM reads GROUP BY article TOP 3 PRIVATE"
TOTAL = "SELECT COUNT(DISTINCT user_id) AS n FROM reads PRIVATE"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("published") / "events.duckdb"
    with duckdb.connect(str(place)) as connection:
        connection.execute(
            "CREATE TABLE reads AS SELECT i AS user_id, 'article ' || (i % 3) AS article, i % 7 AS pages "
            "FROM range(30000) t(i)"
        )
        connection.execute("CREATE TABLE names AS SELECT 'article ' || i AS article, i AS rank FROM range(3) t(i)")
        connection.execute("CREATE TABLE visits AS SELECT i AS user_id, i % 2 AS kind FROM range(9000) t(i)")
    return place


class Curator:
    """The acts of a curator on one ledger."""

    def __init__(self, folder: Path, database: Path) -> None:
        tables = {
            "reads": dpsql.PrivateTable(
                privacy_unit="user_id",
                max_groups_contributed=1,
                bounds={"rows": 1, "pages": {"max": 6}},
            ),
            "visits": dpsql.PrivateTable(privacy_unit="user_id"),
            "names": dpsql.PublicTable(),
        }
        analysts = {
            "ana": dpsql.Analyst(epsilon=4),
            "bob": dpsql.Analyst(epsilon=1, items=6),
            "default": dpsql.Analyst(10),
            "bi": dpsql.Analyst(0),
        }
        budget = dpsql.Budget(epsilon=10.0, delta=1e-6, items=60, queries=20)
        self.ledger, self.database = folder / "ledger.sqlite", database
        self.policy = dpsql.Policy(budget, tables, ledger=self.ledger, analysts=analysts)

    def connect(self, analyst: str = "bob") -> dpsql.Session:
        return dpsql.connect(self.database, policy=self.policy, analyst=analyst)

    def publish(self, name: str, sql: str = ASK, **more: str) -> Publication:
        return curator.publish(self.policy, name, sql, database=self.database, **more)

    def refresh(self, name: str) -> Publication:
        return curator.refresh(self.policy, name, database=self.database)

    def due(self, **more: str) -> dict[str, object]:
        return curator.due(self.policy, database=self.database, **more)

    def bump(self) -> None:
        curator.bump(self.ledger, note="other data")

    def spent(self) -> tuple[Fraction, int]:
        """Return what was spent or reserved, and how many tables are stored."""
        if not self.ledger.exists():
            return Fraction(0), 0
        with closing(SQLiteLedger.open(self.ledger)) as ledger:
            return ledger.state().spent + ledger.state().reserved, len(ledger.tables()[1])

    def refused(self, act: Callable[[], object]) -> dpsql.Error:
        """Return the error of an act, before which nothing was charged or stored."""
        before = self.spent()
        with pytest.raises(dpsql.Error) as caught:
            act()
        assert self.spent() == before
        assert caught.value.hint
        return caught.value


@pytest.fixture
def curator_(tmp_path: Path, database: Path) -> Curator:
    return Curator(tmp_path, database)


def test_a_table_is_charged_once_and_free_to_read_for_all(curator_: Curator) -> None:
    found = curator_.publish("weekly", account="ana", comment="readers of  a week")
    spent = curator_.spent()
    assert spent[0] > 0
    assert (found.name, found.rows, found.data_version) == ("weekly", 3, 0)
    assert found.columns == ("article", "readers", "readers_low", "readers_high")
    with curator_.connect("ana") as ana, curator_.connect("bob") as bob:
        answer = ana.sql(ASK)  # the answer that was published
        ends = answer.column_intervals()[1]
        rows = [(*row, *(end[at].as_py() for end in ends)) for at, row in enumerate(answer.fetchall())]
        whole = bob.budget
        for name in ("weekly", found.version):
            assert bob.sql(f"SELECT * FROM {name}").fetchall() == rows
        joined = bob.sql("SELECT rank, readers FROM weekly JOIN names USING (article) WHERE readers_low > 0")
        assert sorted(row[1] for row in joined.fetchall()) == sorted(row[1] for row in rows)
        assert bob.budget == whole
        assert bob.budget.percent_used == 0
    assert curator_.spent() == spent
    charged = [entry.account for entry in read_entries(curator_.ledger)]
    assert charged == ["ana"]


def read_entries(path: Path) -> tuple[object, ...]:
    with closing(SQLiteLedger.open(path)) as ledger:
        return ledger.entries()


def test_the_comment_says_what_it_is(curator_: Curator) -> None:
    found = curator_.publish("weekly", comment="readers of  a\nweek")
    with curator_.connect() as session:
        comment = session.catalog.find("weekly").comment
    assert comment.splitlines() == [
        "readers of a week",
        f"Published on {found.at:%Y-%m-%d} (UTC) from version 0 of the data; free to read.",
        "readers_low and readers_high: 95 % interval of readers.",
        f"SQL: {ASK}",
    ]
    assert found.version == f'"weekly@{found.at:%Y-%m-%d}"'


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        (TOTAL, ["n", "n_low", "n_high"]),
        ("SELECT SUM(pages) AS s, COUNT(*) AS n FROM reads PRIVATE", ["s", "s_low", "s_high", "n", "n_low", "n_high"]),
        (f"SELECT article, readers / 2 AS half FROM ({ASK}) AS x", ["article", "half"]),
        (
            f"SELECT x.*, rank FROM ({ASK}) AS x JOIN names USING (article)",
            "article readers readers_low readers_high rank".split(),
        ),
        (f"SELECT readers, article AS readers_low FROM ({ASK}) AS x", ["readers", "readers_low"]),
        (f"SELECT (SELECT n FROM ({TOTAL}) AS t) AS total, article FROM ({ASK}) AS x", ["total", "article"]),
        (
            (
                "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY GROUPING SETS ((article), ()) "
                "TOP 3 PRIVATE WITH (intervals = true)"
            ),
            ["article", "n", "n_low", "n_high"],
        ),
    ],
)
def test_one_release_or_several_are_published(curator_: Curator, sql: str, columns: list[str]) -> None:
    found = curator_.publish("weekly", sql)
    with curator_.connect() as session:
        table = session.sql("SELECT * FROM weekly").arrow()
        assert table.column_names == columns == list(found.columns)
        assert table.num_rows == found.rows > 0
        assert session.sql("SELECT count(*) FROM weekly").fetchall() == [(found.rows,)]
        for name in (
            each[: -len("_low")] for each in columns if each.endswith("_low") and f"{each[:-4]}_high" in columns
        ):
            for low, value, high in zip(
                *(table.column(f"{name}{end}").to_pylist() for end in ("_low", "", "_high")), strict=True
            ):
                assert low <= value <= high


@pytest.mark.parametrize(
    ("name", "sql", "code"),
    [
        ("reads", ASK, "name-taken"),
        ("Names", ASK, "name-taken"),
        ("two words", ASK, "publication-name"),
        ("1st", ASK, "publication-name"),
        ("", ASK, "publication-name"),
        ("a.b", ASK, "publication-name"),
        ("weekly@2026-11-27", ASK, "publication-name"),
        ("w" * 64, ASK, "publication-name"),
        ("weekly", "SELECT * FROM names", "not-publishable"),
        ("weekly", "SELECT 1 AS one", "not-publishable"),
        ("weekly", "SHOW TABLES", "not-publishable"),
        ("weekly", f"EXPLAIN {ASK}", "not-publishable"),
        ("weekly", f"SELECT * FROM ({ASK}) AS x LIMIT 0", "not-publishable"),
        ("weekly", f"{ASK} WITH (fresh = true)", "not-publishable"),
        ("weekly", f"SELECT x.article, y.article FROM ({ASK}) AS x, ({ASK}) AS y", "not-publishable"),
        ("weekly", "SELECT article FROM reads", "not-private"),
        ("weekly", "SELECT article FROM nowhere GROUP BY article TOP 3 PRIVATE", "unknown-table"),
        ("weekly", ASK.replace("TOP 3", "TOP 300"), "budget-exceeded"),
    ],
)
def test_what_cannot_be_published_is_refused_before_it_is_charged(
    curator_: Curator, name: str, sql: str, code: str
) -> None:
    assert curator_.refused(lambda: curator_.publish(name, sql)).code == code


def test_a_comment_has_a_length(curator_: Curator) -> None:
    assert curator_.refused(lambda: curator_.publish("weekly", comment="x" * 1001)).code == "publication-comment"


def test_a_name_is_taken_once(curator_: Curator) -> None:
    curator_.publish("weekly")
    assert curator_.refused(lambda: curator_.publish("Weekly", TOTAL)).code == "name-taken"
    assert curator_.refused(lambda: curator_.publish("weekly")).code == "name-taken"
    curator_.publish("total", TOTAL)


def test_a_stored_answer_is_published_free(curator_: Curator) -> None:
    with curator_.connect("ana") as session:
        session.sql(ASK)
    before = curator_.spent()[0]
    assert curator_.publish("weekly", account="ana").receipt.replayed
    assert curator_.spent() == (before, 1)


def test_a_refresh_is_made_for_a_new_version_of_the_data_alone(curator_: Curator) -> None:
    first = curator_.publish("weekly", account="ana", comment="readers")
    before = curator_.spent()
    same = curator_.refresh("WEEKLY")
    assert (same.is_current, same.version) == (True, first.version)
    assert curator_.due() == {}
    assert curator_.spent() == before
    curator_.bump()
    again = curator_.refresh("weekly")
    assert (again.is_current, again.data_version, again.name) == (False, 1, "weekly")
    assert again.version == f'{first.version[:-1]}#2"'  # the second of the day
    assert [entry.account for entry in read_entries(curator_.ledger)] == ["ana", "ana"]
    with curator_.connect() as session:
        first_rows, last_rows = (session.sql(f"SELECT * FROM {name}").fetchall() for name in (first.version, "weekly"))
        assert last_rows == session.sql(f"SELECT * FROM {again.version}").fetchall()
        assert sorted(row[0] for row in first_rows) == sorted(row[0] for row in last_rows)
        comments = [session.catalog.find(each.version.strip('"')).comment for each in (first, again)]
        assert all(comment.startswith("readers\nPublished on ") for comment in comments)
        assert [comment.partition("UTC) ")[2][:14] for comment in comments] == ["from version 0", "from version 1"]


def test_due_refreshes_all_and_one_failure_does_not_stop_the_others(curator_: Curator) -> None:
    curator_.publish("weekly", account="ana")
    curator_.publish("kinds", "SELECT kind, COUNT(DISTINCT user_id) AS n FROM visits GROUP BY kind TOP 2 PRIVATE")
    curator_.publish("total", TOTAL, account="bob")
    curator_.bump()
    tables = {name: table for name, table in curator_.policy.tables.items() if name != "visits"}
    whole = curator_.policy
    curator_.policy = dpsql.Policy(whole.budget, tables, ledger=whole.ledger, analysts=whole.analysts)
    found = curator_.due()
    assert list(found) == ["weekly", "kinds", "total"]
    assert [getattr(each, "code", "done") for each in found.values()] == ["done", "publication-source", "done"]
    assert list(curator_.due()) == ["kinds"]  # the others are current
    curator_.policy = whole
    assert [each.data_version for each in curator_.due().values()] == [1]
    assert curator_.due() == {}
    accounts = [entry.account for entry in read_entries(curator_.ledger)]
    assert accounts == [*accounts[:3], "ana", "bob", accounts[1]]  # each is that which was charged before


def test_a_table_whose_source_is_gone_stays_readable(curator_: Curator) -> None:
    found = curator_.publish(
        "kinds", "SELECT kind, COUNT(DISTINCT user_id) AS n FROM visits GROUP BY kind TOP 2 PRIVATE"
    )
    curator_.bump()
    whole = curator_.policy
    tables = {name: table for name, table in whole.tables.items() if name != "visits"}
    curator_.policy = dpsql.Policy(whole.budget, tables, ledger=whole.ledger, analysts=whole.analysts)
    error = curator_.refused(lambda: curator_.refresh("kinds"))
    assert error.code == "publication-source"
    assert "There is no such table." in error.reason
    with curator_.connect() as session:
        assert len(session.sql("SELECT * FROM kinds")) == found.rows
    # as the hint says
    curator.drop(curator_.policy, "kinds")
    curator_.publish("kinds", TOTAL)


def test_a_table_of_the_policy_comes_before_a_published_one(curator_: Curator) -> None:
    curator_.publish("later", TOTAL)
    curator_.bump()
    whole = curator_.policy
    tables = {**whole.tables, "later": dpsql.PublicTable(source=None)}
    with duckdb.connect(str(curator_.database)) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS later AS SELECT 5 AS five")
    curator_.policy = dpsql.Policy(whole.budget, tables, ledger=whole.ledger, analysts=whole.analysts)
    assert curator_.refused(lambda: curator_.refresh("later")).code == "name-taken"
    with curator_.connect() as session:
        assert session.sql("SELECT * FROM later").fetchall() == [(5,)]
    curator.drop(curator_.policy, "later")


def test_drop_removes_all_versions_and_gives_no_budget_back(curator_: Curator) -> None:
    found = curator_.publish("weekly")
    spent = curator_.spent()[0]
    with curator_.connect() as session:
        session.sql("SELECT * FROM weekly")
        curator.drop(curator_.policy, "WEEKLY")
        for name in ("weekly", found.version):
            with pytest.raises(dpsql.Refusal) as caught:
                session.sql(f"SELECT * FROM {name}")
            assert caught.value.code == "unknown-table"
    assert curator_.spent() == (spent, 0)
    for act in (lambda: curator.drop(curator_.policy, "weekly"), lambda: curator_.refresh("weekly")):
        assert curator_.refused(act).code == "not-published"
    assert curator_.publish("weekly").receipt.replayed  # the answer is stored still


def test_a_policy_without_a_ledger_publishes_nothing(curator_: Curator) -> None:
    whole = curator_.policy
    curator_.policy = dpsql.Policy(whole.budget, whole.tables)
    for act in (lambda: curator_.publish("weekly"), lambda: curator_.refresh("weekly"), curator_.due):
        assert curator_.refused(act).code == "policy-ledger"
    assert curator_.refused(lambda: curator.drop(curator_.policy, "weekly")).code == "policy-ledger"


def test_an_account_without_access_publishes_nothing(curator_: Curator) -> None:
    whole = curator_.policy
    analysts = {"ana": dpsql.Analyst(enabled=False), "default": dpsql.Analyst(4)}
    curator_.policy = dpsql.Policy(whole.budget, whole.tables, ledger=whole.ledger, analysts=analysts)
    error = curator_.refused(lambda: curator_.publish("weekly", account="ana"))
    assert (error.code, "--account" in error.hint) == ("analyst-disabled", True)


def test_an_analyst_without_a_share_reads_all_that_is_free_and_nothing_else(curator_: Curator) -> None:
    curator_.publish("weekly")
    assert curator_.refused(lambda: curator_.publish("other", account="bi")).code == "no-share"
    private = "SELECT article FROM reads GROUP BY article TOP 2 PRIVATE"
    with curator_.connect("bi") as session:
        assert len(session.sql("SELECT rank, readers FROM weekly JOIN names USING (article)")) == 3
        assert len(session.sql("SELECT * FROM names")) == 3
        around = f"SELECT w.readers FROM ({private}) AS p JOIN weekly AS w USING (article)"
        acts = [partial(session.sql, f"{sql}{end}") for sql in (private, around) for end in ("", " LIMIT 0")]
        acts += [partial(session.sql, f"EXPLAIN {private}"), partial(session.sql, f"{private} WITH (consent = true)")]
        for act in (*acts, *(partial(each, private) for each in (session.explain, session.forecast, session.replay))):
            with pytest.raises(dpsql.Refusal, match="bi has no share of the budget") as caught:
                act()
            assert caught.value.code == "no-share"
        assert session.describe(private).names == ["article"]
        for shown in ("SHOW TABLES", "SHOW BUDGET", "SHOW ANSWERS"):
            session.sql(shown)  # as the hint says
        balance = session.budget
        words = str(balance).splitlines()
        assert words[0] == "no share of the budget: public and published tables are free, and no other query is run"
        assert words[1] == "free: 1 published table"
        assert (balance.percent_used, balance.percent_left, balance.items, session.history.num_rows) == (0, 0, 0, 0)
        assert "no share of the budget" in balance._repr_html_()


def test_what_an_analyst_was_charged_for_stays_free_without_a_share(curator_: Curator) -> None:
    with curator_.connect("bob") as session:
        rows = session.sql(TOTAL).fetchall()
    whole = curator_.policy
    curator_.policy = dpsql.Policy(
        whole.budget, whole.tables, ledger=whole.ledger, analysts={**whole.analysts, "bob": dpsql.Analyst(0)}
    )
    with curator_.connect("bob") as session:
        assert session.sql(TOTAL).fetchall() == rows
        with pytest.raises(dpsql.Refusal, match="no share"):
            session.sql(f"{TOTAL} WITH (fresh = true)")


def test_an_analyst_whose_share_is_used_up_reads_it(curator_: Curator) -> None:
    curator_.publish("weekly", account="ana")
    with curator_.connect("bob") as session:
        total = "SELECT COUNT(DISTINCT user_id) AS n FROM reads WHERE user_id <> {} PRIVATE"
        with suppress(dpsql.BudgetExceeded):
            for at in range(20):
                session.sql(total.format(at))
        with pytest.raises(dpsql.BudgetExceeded):
            session.sql(total.format(20))
        assert len(session.sql("SELECT article, readers_low FROM weekly")) == 3


def test_an_account_whose_share_is_short_is_charged_nothing(curator_: Curator) -> None:
    curator_.publish("total", TOTAL, account="bob")
    ask = ASK.replace("TOP 3", "TOP 10")
    assert curator_.refused(lambda: curator_.publish("weekly", ask, account="bob")).code == "budget-exceeded"
    curator_.publish("weekly", ask, account="ana")


def test_several_releases_must_fit_together(curator_: Curator) -> None:
    parts = " UNION ALL ".join(f"SELECT * FROM ({ASK.replace('TOP 3', f'TOP {k}')}) AS x{k}" for k in (16, 17, 18, 19))
    error = curator_.refused(lambda: curator_.publish("weekly", parts))
    assert (error.code, "4 private queries" in error.reason) == ("budget-exceeded", True)


def test_a_new_data_version_in_between_publishes_nothing(curator_: Curator, monkeypatch: pytest.MonkeyPatch) -> None:
    curator_.publish("total", TOTAL)
    asked = dpsql.Session.sql

    def bumped(session: dpsql.Session, text: str) -> dpsql.Answer:
        answer = asked(session, text)
        curator_.bump()
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(dpsql.Session, "sql", bumped)
        with pytest.raises(dpsql.Refusal) as caught:
            curator_.publish("weekly")
        assert caught.value.code == "answer-ended"
        curator_.bump()
        with pytest.raises(dpsql.Refusal):
            curator_.refresh("total")
    assert curator_.spent()[1] == 1
    assert curator_.publish("weekly").data_version == 3  # as the hint says
    assert curator_.refresh("total").data_version == 3


def test_two_refreshes_at_once_make_one_table(curator_: Curator) -> None:
    curator_.publish("weekly", account="ana")
    curator_.bump()
    with curator_.connect("ana") as one, curator_.connect("ana") as other:
        plans = [PublicationPlan(each, PublicationRequest("weekly")) for each in (one, other)]
        found = [plan.publish() for plan in plans]
    assert [each.is_current for each in found] == [False, True]
    assert curator_.spent()[1] == 2
    assert len(read_entries(curator_.ledger)) == 2


def test_two_that_take_one_name_at_once_do_not_mix(curator_: Curator) -> None:
    with curator_.connect("ana") as one, curator_.connect("bob") as other:
        first = PublicationPlan(one, PublicationRequest("weekly", ASK))
        second = PublicationPlan(other, PublicationRequest("weekly", TOTAL))
        first.publish()
        with pytest.raises(dpsql.Refusal) as caught:
            second.publish()
    assert caught.value.code == "name-taken"
    with closing(SQLiteLedger.open(curator_.ledger)) as ledger:
        (stored,) = ledger.tables()[1]
        assert ledger.read_table(stored.number).text == ASK
    other_name = curator_.publish("total", TOTAL, account="bob")  # as the hint says
    assert other_name.receipt.replayed


def test_an_open_session_sees_what_another_process_publishes(curator_: Curator) -> None:
    with curator_.connect() as session:
        assert session.catalog.find("weekly") is None
        curator_.publish("weekly")
        assert session.catalog.find("weekly") is not None
        assert len(session.sql("SELECT * FROM weekly")) == 3
        curator_.bump()
        curator_.refresh("weekly")
        assert len([table for table in session.catalog.tables if table.stored_kind]) == 3


def test_a_backup_from_before_has_no_table(curator_: Curator, tmp_path: Path) -> None:
    curator_.publish("total", TOTAL)
    copy = tmp_path / "copy.ledger"
    backup(curator_.ledger, copy)
    curator_.publish("weekly")
    verify(copy)
    whole = curator_.policy
    curator_.policy = dpsql.Policy(whole.budget, whole.tables, ledger=copy, analysts=whole.analysts)
    curator_.ledger = copy
    error = curator_.refused(lambda: curator_.refresh("weekly"))
    assert (error.code, "restored from a backup" in error.hint) == ("not-published", True)
    with curator_.connect() as session:
        assert len(session.sql("SELECT * FROM total")) == 1
        with pytest.raises(dpsql.Refusal) as caught:
            session.sql("SELECT * FROM weekly")
    assert caught.value.code == "unknown-table"
    curator_.publish("weekly")
    verify(copy)
