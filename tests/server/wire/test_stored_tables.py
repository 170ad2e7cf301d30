"""Named answers and published tables on PostgreSQL's port, also while a server and a connection are open."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import psycopg
import pytest
from sqlalchemy import create_engine, inspect
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


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Yield a server with a catalog; weekly is published there, and answers.mine is ana's, answers.own ben's."""
    with serving(tmp_path_factory.mktemp("listed"), catalog="auto") as found:
        with psycopg.connect(found.conninfo(), autocommit=True) as client:
            before = "SELECT count(*) FROM information_schema.tables WHERE table_name = 'weekly'"
            assert client.execute(before).fetchone() == (0,)
            publish(found, TOP)
            assert client.execute(before).fetchone() == (1,)
            client.execute(f"{TOP} WITH (name = 'mine')")  # type: ignore[arg-type]
        with psycopg.connect(found.conninfo("ben"), autocommit=True) as client:
            client.execute(f"{TOP} WITH (name = 'own')")  # type: ignore[arg-type]
        yield found


_COLUMNS = ["article|text|", "n|bigint|"]
_POLICY = ["main|countries|table|dpsql", "main|reads|table|dpsql", "main|weekly|table|dpsql"]


@pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed")
@pytest.mark.parametrize(
    ("user", "command", "shown", "hidden"),
    [
        ("bi", r"\d weekly", _COLUMNS, "relation"),
        ("bi", r"\dt+ weekly", ["Published on "], "answers"),
        ("ana", r"\dt", _POLICY, "mine"),
        ("ana", r"\d", _POLICY, "mine"),
        ("ana", r"\d answers.mine", _COLUMNS, "relation"),
        ("ana", r"\dt+ answers.*", ["answers|mine|", "WITH (name = 'mine')"], "own"),
        ("ben", r"\dt+ answers.*", ["answers|own|", "WITH (name = 'own')"], "mine"),
        ("ben", r"\d answers.mine", ["Did not find any relation"], "article"),
        ("bi", r"\dn", ["main|dpsql"], "answers"),
    ],
)
def test_psql_shows_what_its_user_may_read(
    listed: Served, user: str, command: str, shown: list[str], hidden: str
) -> None:
    words = ["psql", listed.conninfo(user), "-X", "-A", "-t", "-c", command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert all(each in done.stdout + done.stderr for each in shown)
    assert hidden not in done.stdout


def test_sqlalchemy_inspects_them(listed: Served) -> None:
    for user, answers in (("ana", ["mine"]), ("ben", ["own"]), ("bi", [])):
        engine = create_engine(listed.url(user, "postgresql+psycopg"))
        found = inspect(engine)
        assert found.get_table_names("main") == ["reads", "countries", "weekly"]
        assert [column["name"] for column in found.get_columns("weekly", "main")] == ["article", "n"]
        assert str(found.get_table_comment("weekly", "main")["text"]).startswith("Published on ")
        schemas = found.get_schema_names()
        assert ("answers" in schemas) == bool(answers)
        assert found.get_table_names("answers") == answers
        for name in answers:
            assert [str(column["type"]) for column in found.get_columns(name, "answers")] == ["TEXT", "BIGINT"]
        engine.dispose()


def test_a_stored_table_keeps_its_oid_and_is_not_read_with_catalogs(listed: Served) -> None:
    with psycopg.connect(listed.conninfo(), autocommit=True) as client:
        oids = {client.execute(f"SELECT 'answers.mine'::regclass::oid, {at}").fetchone()[0] for at in range(3)}  # type: ignore[arg-type, index]
        assert len(oids) == 1
        for name in ("weekly", "answers.mine"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="cannot be read together"):
                client.execute(f"SELECT * FROM {name}, pg_class")  # type: ignore[arg-type]
        assert client.execute("SELECT count(*) FROM weekly").fetchone() == (3,)


def test_a_table_that_is_dropped_is_listed_no_more(listed: Served) -> None:
    count = "SELECT count(*) FROM pg_class WHERE relname = 'weekly'"
    with psycopg.connect(listed.conninfo("cleo"), autocommit=True) as client:
        assert client.execute(count).fetchone() == client.execute(count).fetchone() == (1,)
        listed.front.service.session("ben")._dependencies.ledger.withdraw("weekly")
        assert client.execute(count).fetchone() == client.execute(count).fetchone() == (0,)


@pytest.mark.parametrize("what", sorted(_SHOWS))
def test_each_show_of_dpsql_is_answered(client: psycopg.Connection, what: str) -> None:
    assert client.execute(f"SHOW {what}").description  # type: ignore[arg-type]
