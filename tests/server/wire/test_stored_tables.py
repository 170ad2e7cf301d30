"""Named answers and published tables on PostgreSQL's port, also while a server and a connection are open."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from support.server_kit import TOP, Served, serving

from dpsql.ledger.record import TableContent
from dpsql.report.stored_tables import write_stream
from dpsql.sql.analysis.analyze import _SHOWS


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("stored")) as found:
        yield found


@pytest.fixture
def client(served: Served) -> Iterator[psycopg.Connection]:
    with psycopg.connect(served.conninfo(), autocommit=True) as connection:
        yield connection


def publish(served: Served, answer: str, *, again: bool = False) -> None:
    """Publish what ben's session answers, as another process does."""
    session = served.front.service.session("ben")
    content = TableContent(answer, write_stream(session.sql(answer).arrow()), answer)
    session._dependencies.ledger.publish("weekly", content, account="ben", again=again)


def test_a_named_answer_is_read_and_joined(client: psycopg.Connection, served: Served) -> None:
    rows = client.execute(f"{TOP} WITH (name = 'mine')").fetchall()  # type: ignore[arg-type]
    before = served.charges()
    assert client.execute("SELECT * FROM answers.mine").fetchall() == rows
    assert client.execute('SELECT count(*) FROM answers."mine"').fetchall() == [(len(rows),)]
    assert client.execute("SHOW ANSWERS").fetchall()[0][0] == "mine"
    assert served.charges() == before


def test_a_published_table_is_seen_by_all_at_once(client: psycopg.Connection, served: Served) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable):
        client.execute("SELECT * FROM weekly")
    publish(served, "SELECT COUNT(DISTINCT user_id) AS users FROM reads PRIVATE")
    ((users,),) = client.execute("SELECT * FROM weekly").fetchall()
    with psycopg.connect(served.conninfo("cleo"), autocommit=True) as other:
        assert other.execute("SELECT users FROM weekly").fetchall() == [(users,)]
    assert served.charges("cleo") == served.charges("ana") == 0


def test_columns_are_described_anew_where_another_table_takes_the_name(
    client: psycopg.Connection, served: Served
) -> None:
    publish(served, "SELECT COUNT(DISTINCT user_id) AS users FROM reads PRIVATE")
    for prepare in (True, False):
        cursor = client.execute("SELECT * FROM weekly", prepare=prepare)
        assert [column.name for column in cursor.description or ()] == ["users"]
    served.front.service.session("ben")._dependencies.ledger.withdraw("weekly")
    publish(served, TOP)
    with psycopg.connect(served.conninfo(), autocommit=True) as other:
        for connection in (client, other):
            connection.execute("DEALLOCATE ALL")
            for binary in (False, True):
                cursor = connection.execute("SELECT * FROM weekly", binary=binary)
                assert [column.name for column in cursor.description or ()] == ["article", "n"]
                assert cursor.fetchall()


@pytest.mark.parametrize("sql", [TOP, f"EXPLAIN {TOP}", f"SELECT * FROM ({TOP}) AS x LIMIT 0"])
@pytest.mark.parametrize("prepare", [True, False])
def test_an_analyst_without_a_share_reads_what_is_free(served: Served, sql: str, prepare: bool) -> None:
    publish(served, "SELECT COUNT(DISTINCT user_id) AS users FROM reads PRIVATE")
    with psycopg.connect(served.conninfo("bi"), autocommit=True) as client:
        assert client.execute("SELECT users > 1000, continent FROM weekly, countries", prepare=prepare).rowcount == 3
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="bi has no share of the budget"):
            client.execute(sql, prepare=prepare)  # type: ignore[arg-type]
        assert "no share" not in str(client.execute("SHOW BUDGET").fetchall())
    assert served.charges("bi") == 0


def test_a_notice_says_that_the_numbers_have_noise(served: Served) -> None:
    publish(served, "SELECT COUNT(DISTINCT user_id) AS users FROM reads PRIVATE")
    with psycopg.connect(served.conninfo(), autocommit=True) as client:
        heard = list[str | None]()
        client.add_notice_handler(lambda notice: heard.append(notice.message_primary))
        client.execute("SELECT users FROM weekly")
        client.execute("DESCRIBE weekly")
        client.execute("SELECT country FROM countries")
    noise, comment = heard
    assert str(noise).endswith("released numbers have the noise of that day.")
    assert str(comment).startswith("Published on ")


@pytest.mark.parametrize("what", sorted(_SHOWS))
def test_each_show_of_dpsql_is_answered(client: psycopg.Connection, what: str) -> None:
    assert client.execute(f"SHOW {what}").description  # type: ignore[arg-type]
