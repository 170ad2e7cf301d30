"""Sessions over PostgreSQL: all that one can be asked, from a policy that says where the data is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.command_kit import dpsql_command
from support.postgres_kit import fresh_schema, server

import dpsql
from dpsql.pate import Argmax, label
from dpsql.quantities import Epsilon
from dpsql.session import Session

SECRET = "s3cret"
TOP = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 3 PRIVATE WITH (epsilon = 1)"
FRESH = TOP.replace("epsilon", "fresh = true, epsilon")
POLICY = """\
ledger = "budget.ledger"
[budget]
epsilon = 100
delta = 1e-6
[source]
url = "postgresql://tester:{secret}@/postgres?host={host}"
[source.options]
work_mem = "8MB"
[engine]
time_limit = 20
[tables."{schema}.reads"]
privacy_unit = "user_id"
one_value_per_unit = ["country"]
[tables."{schema}.comments"]
link = "read_id -> {schema}.reads.id"
[tables."{schema}.articles"]
public = true
"""
MAKE = [
    'CREATE SCHEMA "{0}"',
    'CREATE TABLE "{0}".articles (article text, kind text)',
    (
        'INSERT INTO "{0}".articles '
        "SELECT 'a' || i, CASE WHEN i < 3 THEN 'few' ELSE 'more' END FROM generate_series(0, 5) i"
    ),
    'CREATE TABLE "{0}".reads (id bigint PRIMARY KEY, user_id bigint, article text, country char(2), ts timestamptz)',
    (
        'INSERT INTO "{0}".reads '
        "SELECT i, i % 4000, 'a' || (i % 4000) % 4, CASE WHEN i % 2 = 0 THEN 'DE' ELSE 'FR' END, "
        "'2026-01-01'::timestamptz + i * interval '1 minute' FROM generate_series(1, 8000) i"
    ),
    'CREATE TABLE "{0}".comments (read_id bigint, word text)',
    "INSERT INTO \"{0}\".comments SELECT i, 'w' || i % 2 FROM generate_series(1, 8000) i",
]


@pytest.fixture(scope="module")
def schema() -> str:
    name = fresh_schema()
    server().run(*(statement.format(name) for statement in MAKE))
    return name


@pytest.fixture
def folder(tmp_path: Path, schema: str) -> Path:
    text = POLICY.format(secret=SECRET, host=server().folder, schema=schema)
    (tmp_path / "pg.toml").write_text(text)
    return tmp_path


@pytest.fixture
def session(folder: Path) -> Iterator[Session]:
    with dpsql.connect(policy=folder / "pg.toml") as opened:
        yield opened


def spelled(sql: str, schema: str) -> str:
    for name in ("reads", "comments", "articles"):
        sql = sql.replace(f"FROM {name}", f"FROM {schema}.{name}").replace(f"JOIN {name}", f"JOIN {schema}.{name}")
    return sql


ANSWERS = {
    TOP: ["a0", "a1", "a2"],
    TOP.replace("epsilon = 1", "epsilon = 1, mechanism = limited_domain"): ["a0", "a1", "a2"],
    TOP.replace("epsilon = 1", "epsilon = 1, max_groups_contributed = 1"): ["a0", "a1", "a2"],
    "SELECT lower(article) || '!' AS k FROM reads WHERE ts >= '2026-01-02' GROUP BY k TOP 2 PRIVATE": ["a0!", "a1!"],
    "SELECT country, article FROM reads GROUP BY ALL TOP 1 PRIVATE PER country WITH (partitions = ['DE', 'FR'])": [
        "DE",
        "FR",
    ],
    "SELECT word FROM comments GROUP BY word TOP 2 PRIVATE": ["w0", "w1"],
    "SELECT kind FROM reads JOIN articles USING (article) GROUP BY kind TOP 2 PRIVATE": ["few", "more"],
}


@pytest.mark.parametrize("sql", ANSWERS)
def test_questions_are_answered(session: Session, schema: str, sql: str) -> None:
    answer = session.sql(spelled(sql, schema))
    names = sorted(str(row[0]) for row in answer.fetchall())
    assert len(names) == len(ANSWERS[sql])
    assert set(names) <= {*ANSWERS[sql], "a3", "a2!", "a3!"}
    assert answer.receipt.isolation == "remote"


def test_a_domain_of_a_public_table_and_a_public_query(session: Session, schema: str) -> None:
    sql = TOP.replace("epsilon = 1", f"epsilon = 1, domain = '{schema}.articles.article'").replace("TOP 3", "TOP 6")
    assert {row[0] for row in session.sql(spelled(sql, schema)).fetchall()[4:]} == {"a4", "a5"}
    public = session.sql(spelled("SELECT kind, COUNT(*) AS n FROM articles GROUP BY kind ORDER BY kind", schema))
    assert public.fetchall() == [("few", 3), ("more", 3)]


def test_an_answer_is_stored_in_the_ledger_and_repeated_for_nothing(folder: Path, schema: str) -> None:
    with dpsql.connect(policy=folder / "pg.toml") as session:
        first = session.sql(spelled(TOP, schema))
        spent = session.budget.rho.spent
    with dpsql.connect(policy=folder / "pg.toml") as session:
        assert session.sql(spelled(TOP, schema)).fetchall() == first.fetchall()
        assert session.budget.rho.spent == spent


ENDED = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
    "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
)


def test_a_failing_statement_is_charged_in_full_and_the_next_is_answered(session: Session, schema: str) -> None:
    first = session.sql(spelled(FRESH, schema))
    whole = 6 * Epsilon(1).value ** 2 / 8  # three keys and their counts
    with server().session() as holder, ThreadPoolExecutor(1) as threads, holder.transaction():
        holder.execute(f'LOCK TABLE "{schema}".reads IN ACCESS EXCLUSIVE MODE')
        going = threads.submit(session.sql, spelled(FRESH, schema))
        while not server().rows("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
            time.sleep(0.01)
        server().rows(f"{ENDED} AND wait_event_type = 'Lock'")
        with pytest.raises(dpsql.EngineError) as caught:
            going.result(60)
    assert caught.value.code == "engine-failed"
    assert session.budget.rho.spent == first.receipt.loss.rho.value + whole
    assert len(session.sql(spelled(FRESH, schema))) == 3


def test_a_connection_that_broke_between_two_statements_charges_none_for_it(session: Session, schema: str) -> None:
    first = session.sql(spelled(FRESH, schema))
    server().rows(ENDED)
    second = session.sql(spelled(FRESH, schema))
    assert len(second) == 3
    assert session.budget.rho.spent == first.receipt.loss.rho.value + second.receipt.loss.rho.value


def test_explain_and_describe_show_what_is_asked_and_what_there_is(session: Session, schema: str) -> None:
    shown = str(session.explain(spelled(TOP, schema)))
    assert f'FROM "{schema}"."reads"' in shown
    assert 'COLLATE "C"' in shown
    columns = [row[:2] for row in session.sql(f"DESCRIBE {schema}.reads").fetchall()]
    assert ("country", "VARCHAR") in columns
    assert ("ts", "TIMESTAMP") in columns


def test_what_it_cannot_do_is_refused_at_no_cost(session: Session, schema: str) -> None:
    sql = "SELECT regexp_extract(article, '[0-9]+') AS k FROM reads GROUP BY k TOP 2 PRIVATE"
    with pytest.raises(dpsql.Unsupported) as caught:
        session.sql(spelled(sql, schema))
    assert caught.value.code == "engine-lacks"
    assert "PostgreSQL" in caught.value.reason
    with pytest.raises(dpsql.Unsupported) as caught:
        label(session, f"{schema}.reads", examples=[1], method=Argmax(Epsilon(1), ("a", "b")))
    assert caught.value.code == "engine-lacks"
    assert session.budget.rho.spent == 0


def test_the_commands_take_the_policy_alone(folder: Path, schema: str) -> None:
    for words in (["check", "--policy", "pg.toml"], ["query", "--policy", "pg.toml", spelled(TOP, schema)]):
        code, out, err = dpsql_command(*words, cwd=folder)
        assert (code, err) == (0, "")
        assert SECRET not in out.decode()
    assert "of the budget; about " in out.decode()


def test_check_finds_a_table_that_is_not_there(folder: Path, schema: str) -> None:
    policy = folder / "pg.toml"
    policy.write_text(policy.read_text().replace(f"{schema}.articles", f"{schema}.nothing"))
    code, _, err = dpsql_command("check", "--policy", "pg.toml", cwd=folder)
    assert code == 6
    assert "table-missing" in err
    assert "pg.toml" in err


def test_a_starter_policy_from_the_address_of_a_database(tmp_path: Path, schema: str) -> None:
    url = f"postgresql://tester:{SECRET}@/postgres?host={server().folder}"
    code, out, err = dpsql_command("init", url, cwd=tmp_path)
    assert (code, err) == (0, ""), err
    written = (tmp_path / "policy.toml").read_text()
    assert SECRET not in written + out.decode()
    for said in (written, out.decode()):
        assert "which is not written here. Put it into $PGPASSWORD or ~/.pgpass." in said.replace("\n# ", " ")
    policy = dpsql.Policy.from_toml(tmp_path / "policy.toml")
    assert policy.source is not None
    table = policy.tables[f"{schema}.reads"]
    assert isinstance(table, dpsql.PrivateTable)
    assert table.privacy_unit == "user_id"
    assert f"{schema}.articles" not in policy.tables
    asked = f"SELECT article, COUNT(DISTINCT user_id) AS n FROM {schema}.reads GROUP BY article TOP 3 PRIVATE"
    code, shown, err = dpsql_command("query", asked, cwd=tmp_path, PGPASSWORD=SECRET)
    assert code == 0, err
    assert b"answered 3 of 3; used " in shown


def test_a_starter_policy_shows_no_password_in_an_error(tmp_path: Path) -> None:
    for url in (f"postgresql://tester:{SECRET}@127.0.0.1:1/postgres", f"mysql://tester:{SECRET}@host/main"):
        code, out, err = dpsql_command("init", url, cwd=tmp_path)
        assert code != 0
        assert SECRET not in out.decode() + err
        assert not (tmp_path / "policy.toml").exists()


def test_a_starter_policy_leaves_out_tables_without_columns(tmp_path: Path, schema: str) -> None:
    url = f"postgresql://tester:{SECRET}@/postgres?host={server().folder}"
    server().run(f'CREATE TABLE "{schema}".empty_handed ()')
    code, _, err = dpsql_command("init", url, cwd=tmp_path)
    assert (code, err) == (0, "")
    assert "empty_handed" not in (tmp_path / "policy.toml").read_text()
