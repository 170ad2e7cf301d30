"""Materialized tables in PostgreSQL: the same answers as rows, added rows, rights, and sessions that are open."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from support.command_kit import dpsql_command
from support.fuzzing import part_of
from support.materialized_kit import BOUNDS, SETS, add_amounts, counted, events
from support.materialized_postgres import SCHEMA, Database, fresh_database
from support.materialized_statements import asked, measured

import dpsql
from dpsql.curator import bump, check_policy, materialize

TOP = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 5 PRIVATE WITH (mechanism = {})"
PLAIN = TOP.format("limited_domain")
BOUNDED = TOP.format("limited_domain, max_groups_contributed = 2")
TOTAL = "SELECT COUNT(*), SUM(n) FROM reads PRIVATE"
FEW = {"rows": 5, "n": {"max": 6}}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Database:
    """Return a database of many events whose tables no test changes."""
    folder = tmp_path_factory.mktemp("events")
    events(folder / "events.duckdb", rows=900, seed=3)
    add_amounts(folder / "events.duckdb")
    made = fresh_database()
    made.copy(folder / "events.duckdb")
    return made


@pytest.fixture
def database(tmp_path: Path) -> Database:
    """Return a database of a few events."""
    events(tmp_path / "events.duckdb", rows=300)
    made = fresh_database()
    made.copy(tmp_path / "events.duckdb")
    return made


def make(over: Database, known: dpsql.Policy, *, again: bool = False) -> str:
    (result,) = materialize(known, url=over.url(over.writer), again=again).values()
    return result


def reads(over: Database, known: dpsql.Policy, text: str = PLAIN) -> str:
    with over.opened(known) as session:
        return counted(session, text)[1]


@pytest.mark.parametrize(
    ("texts", "every", "keys"),
    [(asked, 9, {}), (measured, 16, {"sets": ((), *SETS), "bounds": BOUNDS})],
    ids=["distinct", "measures"],
)
def test_what_is_materialized_counts_as_the_rows_do(
    shared: Database, tmp_path: Path, texts: Callable[[], list[str]], every: int, keys: dict[str, object]
) -> None:
    known = shared.policy(tmp_path, **keys)
    assert make(shared, known) == "made"
    read: dict[str, int] = {}
    with shared.opened(known) as short, shared.opened(known, materialized=False) as long:
        short[1]._plans.salts = long[1]._plans.salts = shared.salts()
        for text in [PLAIN, BOUNDED, *part_of(texts(), every=every)]:
            try:
                expected, rows = counted(long, text)
            except (dpsql.Unsupported, dpsql.Refusal):
                continue
            found, told = counted(short, text)
            assert rows == ""
            if not told.startswith("materialized ranks") or "(" not in text.partition(",")[0]:  # drawn with more keys
                assert found.equals(expected), (text, told)
            sql = short[1].explain(text).counting.sql
            read_rows = {name for name in ("reads", "visits") if f'"public"."{name}"' in sql}
            assert bool(told) is not bool(read_rows), (text, told)  # what is stored, or rows, and never both
            kind = " ".join(told.split()[:2])
            read[kind] = read.get(kind, 0) + 1
    assert set(read) == {"", "materialized pairs", "materialized ranks", "materialized counts"}


MORE = """
INSERT INTO reads (user_id, article, country, day, kind, n, city)
SELECT CASE WHEN i % 5 = 0 THEN NULL ELSE i % 60 END, CASE WHEN i % 4 = 0 THEN NULL ELSE 'new' || i % 3 END,
    CASE WHEN i % 3 = 0 THEN NULL ELSE 'DE' END, DATE '2024-02-01', 'web', i % 4, 'Zug'
FROM generate_series(1, 40) AS i
"""


@pytest.mark.parametrize("bounds", [{}, FEW], ids=["distinct", "measures"])
def test_rows_that_are_added_give_what_a_build_of_all_gives(
    database: Database, tmp_path: Path, bounds: dict[str, object]
) -> None:
    known = database.policy(tmp_path, sets=((), *SETS[:2]), bounds=bounds)
    assert (make(database, known), make(database, known)) == ("made", "current")
    salts, before = database.salts(), database.everything()
    ranks = f"SELECT user_id, article, dpsql_rank FROM {SCHEMA}.{{}} WHERE user_id = 998 ORDER BY 2"
    (pairs,) = (table for table in before if table.endswith("_pairs_1"))
    lone = "INSERT INTO reads (user_id, article, n) SELECT 998, 'a' || i, 1 FROM generate_series(1, 9) AS i"
    for statement in (lone, MORE, MORE):  # the second time there are no new pairs
        database.run(statement)
        assert make(database, known) == "appended"
        if statement == lone:
            kept = database.rows(ranks.format(pairs))
    assert database.salts() == salts
    assert database.rows(ranks.format(pairs)) == kept  # who has nothing new keeps their ranks
    added = database.everything()
    assert added != before
    assert make(database, known, again=True) == "made"
    assert database.everything() == added
    assert database.salts() != salts


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM reads WHERE user_id = 3",
        "UPDATE reads SET n = n + 1 WHERE user_id = 3",
        "TRUNCATE reads",
        "CREATE TABLE o AS TABLE reads; DROP TABLE reads; ALTER TABLE o RENAME TO reads; GRANT ALL ON reads TO PUBLIC",
    ],
)
def test_after_other_changes_all_rows_are_read(database: Database, tmp_path: Path, change: str) -> None:
    known = database.policy(tmp_path, sets=((), ("article",)), bounds=FEW)
    assert (make(database, known), make(database, known)) == ("made", "current")
    database.run(*change.split("; "), MORE)
    assert make(database, known) == "made"
    database.run(MORE)
    assert make(database, known) == "appended"


def test_rows_of_transactions_that_ran_during_a_build_are_added_by_the_next(database: Database, tmp_path: Path) -> None:
    known = database.policy(tmp_path, sets=((), ("article",)), bounds=FEW)
    with database.session() as early, database.session() as late:
        for session in (early, late):
            session.execute("BEGIN")
            session.execute("CREATE TEMP TABLE has_a_number (x int)")  # before the build
        early.execute(MORE)
        database.run(MORE)
        assert make(database, known) == "made"
        late.execute(MORE)
        late.execute("COMMIT")
        early.execute("COMMIT")
    assert make(database, known) == "appended"
    added = database.everything()
    assert make(database, known, again=True) == "made"
    assert database.everything() == added
    with database.session() as session:
        session.execute("BEGIN")
        session.execute("SAVEPOINT inner_one")
        session.execute(MORE)
        assert make(database, known) == "current"
        session.execute("COMMIT")
    assert make(database, known) == "appended"  # numbers of subtransactions are in no snapshot
    added = database.everything()
    assert make(database, known, again=True) == "made"
    assert database.everything() == added


def test_partitions_have_rows_to_add_and_views_have_none(database: Database, tmp_path: Path) -> None:
    database.run(
        "ALTER TABLE reads RENAME TO early",
        "CREATE TABLE reads (LIKE early) PARTITION BY LIST (n)",
        "ALTER TABLE reads ATTACH PARTITION early FOR VALUES IN (0, 1, 2, 3)",
        "CREATE TABLE late PARTITION OF reads FOR VALUES IN (7)",
        f"GRANT SELECT ON reads TO {database.reader}, {database.writer}",
    )
    known = database.policy(tmp_path, sets=((), ("article",)), bounds=FEW)
    assert (make(database, known), make(database, known)) == ("made", "current")
    database.run(MORE, MORE.replace("i % 4", "7"), "VACUUM FREEZE early")
    assert make(database, known) == "appended"
    added = database.everything()
    assert make(database, known, again=True) == "made"
    assert database.everything() == added
    database.run(
        "ALTER TABLE reads RENAME TO hidden",
        "CREATE VIEW reads AS SELECT * FROM hidden",
        f"GRANT SELECT ON reads TO {database.reader}, {database.writer}",
    )
    assert (make(database, known), make(database, known)) == ("made", "made")
    assert database.everything() == added


def test_answers_are_those_of_the_build_until_the_data_has_another_version(database: Database, tmp_path: Path) -> None:
    known = replace(database.policy(tmp_path, sets=((), ("article",)), bounds=FEW), ledger=tmp_path / "ledger.sqlite")
    with dpsql.connect(policy=known) as session:
        assert session.explain(PLAIN).counting.reads == ""
        key = session.explain(PLAIN).key
    make(database, known)
    assert not [told for told in check_policy(known).warnings if "materialize" in told]
    with dpsql.connect(policy=known) as session:
        assert session.explain(PLAIN).counting.reads == "materialized counts of article"
        assert session.explain(PLAIN).key == key
    with database.opened(known) as session:
        whole = counted(session, TOTAL)[0]
    database.run("DELETE FROM reads WHERE user_id > 3")
    with database.opened(known) as session:
        assert counted(session, TOTAL)[0].equals(whole)  # the rows are gone, and what was counted is not
    with dpsql.connect(policy=known) as session:
        bump(tmp_path / "ledger.sqlite", note="users were removed")
        assert session.explain(PLAIN).counting.reads == ""
    make(database, known)
    with dpsql.connect(policy=known) as session:
        assert session.explain(PLAIN).counting.reads == "materialized counts of article"


def test_tables_of_other_meaning_have_other_names_and_go_with_the_next_build(
    database: Database, tmp_path: Path
) -> None:
    first, then = (database.policy(tmp_path, sets=((), ("article",)), bounds={"rows": rows}) for rows in (5, 50))
    total = "SELECT COUNT(*) FROM reads PRIVATE"
    make(database, first)
    old = set(database.everything())
    with database.opened(first) as before:
        expected, told = counted(before, total)
        assert make(database, then) == "made"
        assert old < set(database.everything())
        assert counted(before, total)[0].equals(expected)  # under the bound of 5 rows still
        assert told == "materialized counts of all rows"
    assert "materialize" in str(check_policy(first).warnings)
    assert reads(database, first, total) == "materialized pairs of all rows"  # which are under no bound
    assert reads(database, then, total) == "materialized counts of all rows"
    make(database, then)
    assert not old & set(database.everything())


def test_the_role_of_sessions_and_nobody_else_reads_the_tables(database: Database, tmp_path: Path) -> None:
    database.run(
        f"CREATE ROLE {database.name}_other LOGIN",
        f"SET ROLE {database.writer}",
        f"ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO {database.name}_other, PUBLIC",
        f"ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO {database.name}_other, PUBLIC",
    )
    known = database.policy(tmp_path)
    for _ in range(2):
        make(database, known)
        database.run(MORE)
    rights = database.rows(
        "SELECT DISTINCT grantee::text, privilege_type::text, table_name LIKE 'm_%' OR table_name = 'dpsql_state' "
        f"FROM information_schema.role_table_grants WHERE table_schema = '{SCHEMA}' AND grantee <> '{database.writer}'"
    )
    assert rights == [(database.reader, "SELECT", True)]
    assert database.rows(f"SELECT has_schema_privilege('{database.name}_other', '{SCHEMA}', 'CREATE')") == [(False,)]
    with psycopg.connect(database.url(database.reader)) as connection:
        assert connection.execute(f"SELECT COUNT(*) FROM {SCHEMA}.dpsql_state").fetchone() == (1,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(f"SELECT * FROM {SCHEMA}.dpsql_secrets")


def test_a_session_that_is_open_reads_on_while_tables_are_made_again(database: Database, tmp_path: Path) -> None:
    known = database.policy(tmp_path)
    make(database, known)
    stop, counts, failed = threading.Event(), list[int](), list[Exception]()

    def ask() -> None:
        try:
            with database.opened(known) as session:
                while not stop.is_set():
                    found, told = counted(session, PLAIN)
                    counted(session, BOUNDED)
                    assert told == "materialized counts of article"
                    counts.append(found.num_rows)
        except Exception as error:  # noqa: BLE001 - for the assertion below
            failed.append(error)

    asking = [threading.Thread(target=ask) for _ in range(2)]
    for thread in asking:
        thread.start()
    for _ in range(3):
        assert make(database, known, again=True) == "made"
    stop.set()
    for thread in asking:
        thread.join()
    assert failed == []
    assert len(counts) >= 2
    assert len(set(counts)) == 1


def test_a_long_statement_ends_before_its_table_is_replaced(database: Database, tmp_path: Path) -> None:
    known = database.policy(tmp_path)
    make(database, known)
    with database.session() as long:
        long.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        table = next(iter(database.everything()))
        long.execute(f"SELECT COUNT(*) FROM {SCHEMA}.{table}")
        building = threading.Thread(target=make, args=(database, known), kwargs={"again": True})
        building.start()
        building.join(0.5)
        assert building.is_alive()
        assert reads(database, known) == "materialized counts of article"  # others go on meanwhile
        long.execute("COMMIT")
        building.join(30)
        assert not building.is_alive()


def test_values_are_stored_as_queries_read_them(database: Database, tmp_path: Path) -> None:
    database.run(
        "DROP TABLE reads",
        "CREATE TABLE reads "
        "(user_id varchar(9), a text, b char(4), c numeric(6, 2), d timestamptz, e uuid, f boolean, n smallint)",
        "INSERT INTO reads SELECT CASE WHEN i % 2 = 0 THEN 'u' ELSE 'U' END || i % 30, "
        "CASE WHEN i % 3 = 0 THEN 'x' ELSE 'X' END, CASE WHEN i % 5 > 0 THEN 'y' || i % 2 END, "
        "CASE WHEN i % 7 = 0 THEN 'NaN' ELSE i % 4 / 4.0 END, "
        "'2024-01-01 00:00+02'::timestamptz + i % 3 * interval '1 h', "
        "md5((i % 3)::text)::uuid, i % 2 = 0, i % 4 FROM generate_series(1, 400) AS i",
        f"GRANT SELECT ON reads TO {database.reader}, {database.writer}",
    )
    sets = tuple((name,) for name in "abcdef")
    known = database.policy(tmp_path, sets=(*sets, ("a", "b", "c")), bounds=FEW)
    make(database, known)
    with database.opened(known) as short, database.opened(known, materialized=False) as long:
        short[1]._plans.salts = long[1]._plans.salts = database.salts()
        for keys in (*"abcdef", "a, b, c"):
            for option in ("limited_domain", "limited_domain, max_groups_contributed = 2"):
                for measure in ("COUNT(DISTINCT user_id)", "SUM(n)"):
                    text = f"SELECT {keys}, {measure} AS m FROM reads GROUP BY ALL TOP 9 PRIVATE "
                    text += f"WITH (mechanism = {option})"
                    found, told = counted(short, text)
                    assert told.startswith("materialized "), text
                    assert found.equals(counted(long, text)[0]), text
                    assert found.num_rows > 1


def refusal(over: Database, known: dpsql.Policy, *, role: str = "") -> dpsql.Error:
    with pytest.raises(dpsql.Error) as caught:
        materialize(known, url=over.url(role or over.writer))
    assert (caught.value.__context__, caught.value.__cause__) == (None, None)
    return caught.value


def test_what_cannot_be_written_is_an_error_and_the_last_build_stays(database: Database, tmp_path: Path) -> None:
    known = database.policy(tmp_path)
    error = refusal(database, known, role=database.reader)  # it may not make a schema
    assert (error.code, error.place) == ("prepare-failed", "source.materialized")
    make(database, known)
    before = database.everything()
    error = refusal(database, known, role=database.reader)
    assert (error.code, SCHEMA in error.reason) == ("prepare-failed", True)
    database.run(f"REVOKE SELECT ON reads FROM {database.writer}")
    assert refusal(database, known).code == "prepare-failed"
    assert database.everything() == before
    assert reads(database, known) == "materialized counts of article"
    database.run("ALTER TABLE reads ENABLE ROW LEVEL SECURITY")
    error = refusal(database, known)
    assert (error.code, "row-level" in error.reason) == ("policy-prepared", True)


def test_an_address_of_another_database_is_an_error(database: Database, tmp_path: Path) -> None:
    other = fresh_database()
    other.copy(tmp_path / "events.duckdb")
    known = database.policy(tmp_path)
    other.run(
        f"GRANT SELECT ON reads TO {database.writer}", f"GRANT CREATE ON DATABASE {other.name} TO {database.writer}"
    )
    with pytest.raises(dpsql.EngineError) as caught:
        materialize(known, url=other.url(database.writer))
    assert caught.value.code == "prepare-failed"
    assert "address of the database" in caught.value.hint
    assert reads(database, known) == ""
    error = refusal(database, known, role="nobody_of_this_name")
    assert (error.code, error.place) == ("engine-unreachable", "url")
    with pytest.raises(dpsql.UsageError) as wrong:
        materialize(known, url="sc://127.0.0.1:1")
    assert wrong.value.code == "database"


POLICY = """
ledger = "ledger.sqlite"
[budget]
epsilon = 10
delta = 1e-6
[source]
url = "{url}"
materialized = "stored"
[tables.reads]
privacy_unit = "user_id"
materialized = [["article"], []]
"""


def test_the_command_materializes_and_explain_says_what_is_read(database: Database, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(POLICY.format(url=database.url(database.reader)))
    given = "--policy", str(tmp_path / "policy.toml")
    url = "--url", database.url(database.writer)
    told = "What is materialized of reads does not match its data or the policy: run dpsql materialize."
    assert told in check_policy(tmp_path / "policy.toml").warnings
    assert dpsql_command("materialize", *given, *url)[1] == b"reads is materialized: all of it was written.\n"
    database.run(MORE)
    assert dpsql_command("materialize", *given, *url)[1] == b"reads is materialized: the appended rows were added.\n"
    assert (
        dpsql_command("materialize", *given, *url, "--again")[1] == b"reads is materialized: all of it was written.\n"
    )
    assert b"materialized counts of article" in dpsql_command("query", *given, f"EXPLAIN {PLAIN}")[1]
    assert told not in check_policy(tmp_path / "policy.toml").warnings
    assert dpsql_command("init", database.url(database.reader), "--output", "starter.toml", cwd=tmp_path)[0] == 0
    assert SCHEMA not in (tmp_path / "starter.toml").read_text()


def test_a_row_that_a_subtransaction_changes_during_a_build_is_seen(database: Database, tmp_path: Path) -> None:
    known = database.policy(tmp_path, sets=((), ("article",)), bounds=FEW)
    with database.session() as session:
        session.execute("BEGIN")
        session.execute("SAVEPOINT inner_one")
        session.execute("UPDATE reads SET user_id = 999 WHERE user_id = 3")
        assert make(database, known) == "made"
        session.execute("COMMIT")
    assert make(database, known) == "made"
    found = database.everything()
    assert make(database, known, again=True) == "made"
    assert database.everything() == found
