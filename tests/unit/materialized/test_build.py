"""`dpsql materialize`: what it makes, what it adds, when what it made is read, and what it refuses."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from support.command_kit import dpsql_command
from support.materialized_kit import BOUNDS, SETS, add_amounts, counted, events, opened, policy

import dpsql
from dpsql.connect import open_session
from dpsql.curator import bump, check_policy, materialize
from dpsql.engines.duckdb.materialization_writer import MaterializationWriter
from dpsql.materialized import build
from dpsql.materialized.lookup import read_state
from dpsql.open_engine import open_engine

ASKED = "SELECT article, COUNT(DISTINCT user_id) FROM reads {} GROUP BY article TOP 5 PRIVATE WITH (mechanism = {})"
PLAIN = ASKED.format("", "limited_domain")
BOUNDED = ASKED.format("", "limited_domain, max_groups_contributed = 2")
PAIRS = ASKED.format("WHERE country IN ('DE', 'FR')", "limited_domain")
ALL = (PLAIN, PAIRS, BOUNDED)
FEW = {"rows": 5, "n": {"max": 6}}
OUTDATED = "What is materialized of reads does not match its data or the policy: run dpsql materialize."


@pytest.fixture
def database(tmp_path: Path) -> Path:
    events(tmp_path / "events.duckdb")
    return tmp_path / "events.duckdb"


def change(database: Path, *statements: str) -> None:
    with duckdb.connect(str(database)) as connection:
        for statement in statements:
            connection.execute(statement)


def reads(database: Path | None, known: dpsql.Policy, text: str = PLAIN) -> str:
    with opened(database, known) as over:
        return counted(over, text)[1]


def everything(folder: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return all rows of all sets; without the ranks, which are drawn."""
    found = {}
    kept = read_state(folder)["reads"]
    with duckdb.connect(str(folder / kept.file), read_only=True) as file:
        for at, columns in enumerate(kept.columns):
            own = f"SELECT * EXCLUDE dpsql_rank FROM pairs_{at} ORDER BY ALL"
            counts = f"SELECT * FROM counts_{at} ORDER BY ALL"
            found[", ".join(columns)] = file.execute(own).fetchall() + file.execute(counts).fetchall()
            ranks = f"SELECT list(dpsql_rank ORDER BY dpsql_rank), count() FROM pairs_{at} GROUP BY user_id"
            assert all(ranked == list(range(1, count + 1)) for ranked, count in file.execute(ranks).fetchall())
    return found


def test_rows_that_are_appended_are_added_to_what_is_there(database: Path, tmp_path: Path) -> None:
    known = policy(tmp_path)
    materialize(known, database=database)
    before = read_state(tmp_path / "materialized")["reads"]
    ranks = "SELECT user_id, article, dpsql_rank FROM pairs_0 WHERE user_id < 998 ORDER BY ALL"
    with duckdb.connect(str(tmp_path / "materialized" / before.file), read_only=True) as file:
        kept = file.execute(ranks).fetchall()
    change(
        database,
        "INSERT INTO reads SELECT 998, 'first', 'DE', DATE '2024-03-01', 'web', 2, 'Zug'",
        "INSERT INTO reads SELECT 999, 'new', 'DE', DATE '2024-03-01', 'web', 1, 'Zug' FROM range(5)",
        "INSERT INTO reads SELECT NULL, 'nobody', 'DE', DATE '2024-03-01', 'web', 1, 'Zug'",
        "INSERT INTO reads SELECT * FROM reads WHERE n = 1",
    )
    assert materialize(known, database=database) == {"reads": "appended"}
    after = read_state(tmp_path / "materialized")["reads"]
    with duckdb.connect(str(tmp_path / "materialized" / after.file), read_only=True) as file:
        assert file.execute(ranks).fetchall() == kept  # who has nothing new keeps their ranks
    added = everything(tmp_path / "materialized")
    materialize(replace(known, materialized=tmp_path / "again"), database=database)
    assert everything(tmp_path / "again") == added
    for text in ALL:
        assert reads(database, known, text).startswith("materialized ")


def test_measures_of_rows_that_are_appended_are_added(database: Path, tmp_path: Path) -> None:
    add_amounts(database)
    known = policy(tmp_path, sets=((), *SETS), bounds=BOUNDS)
    materialize(known, database=database)
    more = "INSERT INTO reads BY NAME SELECT * {} FROM reads WHERE user_id % 3 = 1 AND n > 1"
    change(database, more.format("REPLACE (100 + user_id AS user_id)"), more.format(""), more.format(""))
    assert materialize(known, database=database) == {"reads": "appended"}
    added = everything(tmp_path / "materialized")
    materialize(replace(known, materialized=tmp_path / "again"), database=database)
    assert everything(tmp_path / "again") == added
    (totals,) = added[""][-1:]
    with duckdb.connect(str(database)) as connection:
        rows = connection.execute(
            "SELECT COUNT(*), SUM(least(rows, 5)), SUM(least(prices, 5)), SUM(least(steps, 1250)) FROM ("
            "SELECT COUNT(*), COUNT(price), COALESCE(SUM(least(greatest(price, 0), 12.5) * 100), 0) FROM reads "
            "WHERE user_id IS NOT NULL GROUP BY user_id) AS t(rows, prices, steps)"
        ).fetchone()
    assert rows is not None
    assert (totals[0], totals[1], totals[4], totals[8]) == tuple(map(int, rows))


def test_an_amount_that_changed_is_seen_and_everything_is_made_anew(database: Path, tmp_path: Path) -> None:
    add_amounts(database)
    known = policy(tmp_path, sets=((), ("article",)), bounds=BOUNDS)
    materialize(known, database=database)
    change(database, "UPDATE reads SET price = price + 1 WHERE user_id = 3")
    assert materialize(known, database=database) == {"reads": "made"}


@pytest.mark.parametrize(
    "bounds", [{}, {"rows": 4}, {**BOUNDS, "rows": 6}, {**BOUNDS, "price": {"max": 13}}, {"rows": 5, "n": {"max": 6}}]
)
def test_measures_under_other_bounds_are_made_again(database: Path, tmp_path: Path, bounds: dict[str, object]) -> None:
    add_amounts(database)
    first, then = (policy(tmp_path, sets=((), ("article",)), bounds=each) for each in (BOUNDS, bounds))
    materialize(first, database=database)
    assert OUTDATED not in check_policy(first, database=database).warnings
    assert OUTDATED in check_policy(then, database=database).warnings
    total = "SELECT COUNT(*) FROM reads PRIVATE"
    with opened(database, then) as over:
        if "rows" in bounds:  # the counts were under another bound, the pairs are under none
            same = bounds["rows"] == BOUNDS["rows"]
            assert counted(over, total)[1] == f"materialized {'counts' if same else 'pairs'} of all rows"
        if "price" in bounds:
            same = bounds["price"] == BOUNDS["price"]
            assert bool(counted(over, "SELECT SUM(price) FROM reads PRIVATE")[1]) == same
    assert materialize(then, database=database) == {"reads": "made"}
    with opened(database, then) as over:
        if "rows" in bounds:
            assert counted(over, total)[1] == "materialized counts of all rows"


def test_an_amount_of_another_type_is_not_read(database: Path, tmp_path: Path) -> None:
    add_amounts(database)
    known = policy(tmp_path, sets=((), ("article",)), bounds=BOUNDS)
    materialize(known, database=database)
    change(database, "ALTER TABLE reads ALTER COLUMN price TYPE DECIMAL(7,2)")
    assert reads(database, known, "SELECT SUM(price) FROM reads PRIVATE") == ""
    assert reads(database, known, "SELECT COUNT(DISTINCT user_id) FROM reads PRIVATE")
    assert materialize(known, database=database) == {"reads": "made"}
    assert reads(database, known, "SELECT SUM(price) FROM reads PRIVATE") == "materialized counts of all rows"


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM reads WHERE user_id = 3",
        "UPDATE reads SET country = 'IT' WHERE user_id = 3",
        "UPDATE reads SET user_id = user_id + 1",
        "ALTER TABLE reads ALTER user_id TYPE INTEGER",
    ],
)
def test_rows_that_changed_are_seen_and_everything_is_made_anew(database: Path, tmp_path: Path, statement: str) -> None:
    known = policy(tmp_path)
    materialize(known, database=database)
    change(database, statement, "INSERT INTO reads SELECT * FROM reads LIMIT 5")
    assert materialize(known, database=database) == {"reads": "made"}
    found = everything(tmp_path / "materialized")
    materialize(replace(known, materialized=tmp_path / "again"), database=database)
    assert everything(tmp_path / "again") == found
    assert reads(database, known) == "materialized counts of article"


def test_what_is_materialized_is_read_until_the_data_has_another_version(database: Path, tmp_path: Path) -> None:
    known = policy(tmp_path, data_version=3)
    assert reads(database, known) == ""
    materialize(known, database=database)
    assert materialize(known, database=database) == {"reads": "current"}
    assert reads(database, known) == "materialized counts of article"
    later = policy(tmp_path, data_version=4)
    assert reads(database, later) == ""
    assert materialize(later, database=database) == {"reads": "current"}
    assert (reads(database, known), reads(database, later)) == ("", "materialized counts of article")
    assert materialize(known, database=database) == {"reads": "current"}
    assert (reads(database, known), reads(database, later)) == ("materialized counts of article", "")


def test_that_a_row_was_written_shows_in_no_plan(database: Path, tmp_path: Path) -> None:
    known = policy(tmp_path)
    materialize(known, database=database)
    with opened(database, known) as (_, session):
        before = [str(session.explain(text)) for text in ALL]
    change(database, "INSERT INTO reads SELECT 999, 'new', 'DE', DATE '2024-03-01', 'web', 1, 'Zug'")
    with opened(database, known) as over:
        assert [str(over[1].explain(text)) for text in ALL] == before
        assert "new" not in counted(over, PLAIN)[0].column(0).to_pylist()
    assert materialize(known, database=database) == {"reads": "appended"}
    with opened(database, known) as over:
        assert "new" in counted(over, PLAIN)[0].column(0).to_pylist()


def test_what_is_materialized_of_other_types_is_not_read(database: Path, tmp_path: Path) -> None:
    known = policy(tmp_path)
    materialize(known, database=database)
    change(database, "ALTER TABLE reads ALTER COLUMN user_id TYPE VARCHAR")
    assert [reads(database, known, text) for text in ALL] == ["", "", ""]
    materialize(known, database=database)
    assert reads(database, known) == "materialized counts of article"


def test_a_curator_is_told_that_the_files_have_changed(database: Path, tmp_path: Path) -> None:
    known = policy(tmp_path)
    assert OUTDATED in check_policy(known, database=database).warnings
    materialize(known, database=database)
    assert OUTDATED not in check_policy(known, database=database).warnings
    change(database, "INSERT INTO visits SELECT * FROM visits LIMIT 1")
    assert OUTDATED in check_policy(known, database=database).warnings


def test_a_database_may_be_named_by_its_url(database: Path, tmp_path: Path) -> None:
    known = policy(tmp_path)
    assert materialize(known, database=f"duckdb:{database}") == {"reads": "made"}
    assert OUTDATED not in check_policy(known, database=f"duckdb:{database}").warnings
    assert reads(database, known) == "materialized counts of article"


def test_what_is_materialized_of_one_database_is_not_read_for_another(database: Path, tmp_path: Path) -> None:
    known = policy(tmp_path)
    materialize(known, database=database)
    (tmp_path / "copy.duckdb").write_bytes(database.read_bytes())
    assert reads(tmp_path / "copy.duckdb", known) == ""
    assert reads(Path(os.path.relpath(database)), known) == "materialized counts of article"


def test_a_session_that_is_open_sees_the_version_rise(database: Path, tmp_path: Path) -> None:
    known = policy(tmp_path, ledger=tmp_path / "ledger.sqlite")
    materialize(known, database=database)
    with open_session(open_engine(database, known), known) as session:
        assert "materialized" in str(session.explain(PLAIN))
        bump(tmp_path / "ledger.sqlite", note="the night's load")
        assert "materialized" not in str(session.explain(PLAIN))
    materialize(known, database=database)
    assert read_state(tmp_path / "materialized")["reads"].data_version == 1


def test_what_the_policy_no_longer_lists_is_not_read(database: Path, tmp_path: Path) -> None:
    materialize(policy(tmp_path), database=database)
    fewer = policy(tmp_path, sets=(("country", "day"),))
    assert reads(database, fewer) == ""
    assert materialize(fewer, database=database) == {"reads": "made"}
    assert everything(tmp_path / "materialized").keys() == {"country, day"}


def test_the_order_in_which_the_policy_lists_columns_does_not_matter(database: Path, tmp_path: Path) -> None:
    materialize(policy(tmp_path), database=database)
    turned = policy(tmp_path, sets=tuple(tuple(each[::-1]) for each in SETS[::-1]))
    assert materialize(turned, database=database) == {"reads": "current"}
    assert reads(database, turned) == "materialized counts of article"


def test_the_same_rows_in_another_order_are_the_same_rows(database: Path, tmp_path: Path) -> None:
    known = policy(tmp_path)
    materialize(known, database=database)
    before = everything(tmp_path / "materialized")
    change(database, "CREATE OR REPLACE TABLE reads AS SELECT * FROM reads ORDER BY n, article")
    assert materialize(known, database=database) == {"reads": "appended"}
    assert everything(tmp_path / "materialized") == before


def test_an_open_session_reads_on_while_a_new_file_takes_the_place(database: Path, tmp_path: Path) -> None:
    known = policy(tmp_path)
    materialize(known, database=database)
    with opened(database, known) as over:
        first = counted(over, PLAIN)[0]
        materialize(replace(known, data_version=1), database=database)
        assert counted(over, PLAIN)[0].equals(first)
    change(database, "INSERT INTO reads SELECT * FROM reads LIMIT 1")
    materialize(known, database=database)
    change(database, "INSERT INTO reads SELECT * FROM reads LIMIT 1")
    materialize(known, database=database)
    assert len(list((tmp_path / "materialized").glob("*.duckdb"))) == 2  # the one before stays for who opens it now


def test_a_parquet_file_and_a_folder_of_them_are_materialized(database: Path, tmp_path: Path) -> None:
    folder = tmp_path / "reads"
    folder.mkdir()
    with duckdb.connect(str(database)) as connection:
        connection.execute(f"COPY (SELECT * FROM reads WHERE n < 2) TO '{folder}/1.parquet'")
        connection.execute(f"COPY (SELECT * FROM reads WHERE n >= 2) TO '{tmp_path}/2.parquet'")
    known = policy(tmp_path, sets=((), ("article",)), source=folder, bounds=FEW)
    assert materialize(known) == {"reads": "made"}
    assert OUTDATED not in check_policy(known).warnings
    (tmp_path / "2.parquet").rename(folder / "2.parquet")
    assert OUTDATED in check_policy(known).warnings
    assert reads(None, known) == "materialized counts of article"
    assert materialize(known) == {"reads": "appended"}
    assert reads(None, known) == "materialized counts of article"
    whole = everything(tmp_path / "materialized")
    stored = policy(tmp_path, sets=((), ("article",)), bounds=FEW)
    materialize(replace(stored, materialized=tmp_path / "again"), database=database)
    assert everything(tmp_path / "again") == whole
    (folder / "1.parquet").rename(folder / "3.parquet")  # one is gone, and one has come
    assert materialize(known) == {"reads": "made"}
    assert everything(tmp_path / "materialized") == whole
    (folder / "3.parquet").unlink()
    assert materialize(known) == {"reads": "made"}
    alone = replace(
        policy(tmp_path, sets=((), ("article",)), source=folder / "2.parquet", bounds=FEW),
        materialized=tmp_path / "alone",
    )
    assert materialize(alone) == {"reads": "made"}
    assert reads(None, alone, BOUNDED) == "materialized ranks of article"


def test_it_is_read_in_a_process_of_its_own_too(database: Path, tmp_path: Path) -> None:
    known = policy(tmp_path)
    materialize(known, database=database)
    with opened(database, known, isolation="process") as apart, opened(database, known) as near:
        near[1]._plans.salts = apart[1]._plans.salts
        for text in ALL:
            assert counted(apart, text)[1].startswith("materialized ")
            assert counted(apart, text)[0].equals(counted(near, text)[0])


def test_an_open_connection_reads_its_rows(database: Path, tmp_path: Path) -> None:
    known = policy(tmp_path)
    materialize(known, database=database)
    with duckdb.connect(str(database), read_only=True) as connection:
        engine = open_engine(connection, known)
        with open_session(engine, known, ledger=":memory:") as session:
            assert counted((engine, session), PLAIN)[1] == ""


def test_the_files_are_as_private_as_the_data(database: Path, tmp_path: Path) -> None:
    database.chmod(0o640)
    known = policy(tmp_path)
    materialize(known, database=database)
    change(database, "INSERT INTO reads SELECT * FROM reads LIMIT 1")
    materialize(known, database=database)
    for file in (tmp_path / "materialized").glob("*.duckdb"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o640
    state = (tmp_path / "materialized" / "state.json").read_text()
    assert not any(word in state for word in ("Zug", '"a1"', "salt"))


def test_whether_it_is_read_depends_on_no_row(database: Path, tmp_path: Path) -> None:
    plans = []
    for statement in ("SELECT 1", "DELETE FROM reads WHERE user_id <> 1", "DELETE FROM reads"):
        change(database, statement)
        materialize(policy(tmp_path), database=database)
        with opened(database, policy(tmp_path)) as (_, session):
            plans.append([session.explain(text).counting.sql for text in ALL])
    assert plans[0] == plans[1] == plans[2]


def test_an_answer_costs_and_is_replayed_the_same(database: Path, tmp_path: Path) -> None:
    known = policy(tmp_path, ledger=tmp_path / "ledger.sqlite")
    with dpsql.connect(database, policy=known) as session:
        answer = session.sql(PLAIN)
        key = session.explain(PLAIN).key
    materialize(known, database=database)
    with dpsql.connect(database, policy=known) as session:
        assert session.explain(PLAIN).key == key
        again = session.sql(PLAIN)
        assert again.receipt.replayed
        assert again.arrow().equals(answer.arrow())
        assert session.sql(PAIRS).receipt.items_charged > 0


def broken(state: Callable[[str], str]) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        file = folder / "state.json"
        file.write_text(state(file.read_text()))

    return act


@pytest.mark.parametrize(
    "act",
    [
        broken(lambda _: ""),
        broken(lambda _: "{"),
        broken(lambda _: "[]"),
        broken(lambda text: text.replace('"format": 3', '"format": 2')),
        broken(lambda text: text.replace('"rows": null', '"rows": "many"')),
        broken(lambda text: text.replace('"sums": []', '"sums": [{"column": "n", "type": "TINYINT", "least": "x"}]')),
        broken(lambda text: text.replace('"user_id"', "7")),
        broken(lambda text: text.replace(".duckdb", ".other", 1)),
        lambda folder: (folder / "state.json").unlink(),
        lambda folder: (folder / read_state(folder)["reads"].file).unlink(),
    ],
)
def test_without_a_state_that_can_be_read_the_rows_are(
    database: Path, tmp_path: Path, act: Callable[[Path], None]
) -> None:
    known = policy(tmp_path)
    materialize(known, database=database)
    act(tmp_path / "materialized")
    assert reads(database, known) == ""
    assert materialize(known, database=database) == {"reads": "made"}
    assert reads(database, known) == "materialized counts of article"


def test_a_file_that_is_no_database_is_told(database: Path, tmp_path: Path) -> None:
    known = policy(tmp_path)
    materialize(known, database=database)
    (tmp_path / "materialized" / read_state(tmp_path / "materialized")["reads"].file).write_text("x" * 5000)
    with pytest.raises(dpsql.EngineError) as caught:
        reads(database, known)
    assert (caught.value.code, "dpsql materialize" in caught.value.hint) == ("prepared-unreadable", True)


def test_a_table_in_use_by_a_writer_leaves_what_was_there(database: Path, tmp_path: Path) -> None:
    known = policy(tmp_path)
    materialize(known, database=database)
    before = (tmp_path / "materialized" / "state.json").read_text()
    change(database, "INSERT INTO reads SELECT * FROM reads LIMIT 1")
    (tmp_path / "full").touch()
    with pytest.raises(dpsql.EngineError) as caught:
        materialize(replace(known, materialized=tmp_path / "full" / "inside"), database=database)
    assert caught.value.code == "prepare-failed"
    assert (tmp_path / "materialized" / "state.json").read_text() == before


@pytest.mark.parametrize(
    ("column", "code"),
    [
        ("price DOUBLE", "policy-prepared"),
        ("price STRUCT(a INTEGER)", "policy-prepared"),
        ("dpsql_rank INTEGER", "policy-prepared"),
        ("name VARCHAR COLLATE NOCASE", "policy-prepared"),
        ("other INTEGER", "policy-no-column"),
    ],
)
def test_columns_that_cannot_be_materialized(database: Path, tmp_path: Path, column: str, code: str) -> None:
    name = "price" if code == "policy-no-column" else column.split(maxsplit=1)[0]
    change(database, f"ALTER TABLE reads ADD COLUMN {column}")
    with pytest.raises(dpsql.PolicyError) as caught:
        materialize(policy(tmp_path, sets=((name,),)), database=database)
    assert (caught.value.code, caught.value.place) == (code, "tables.reads.materialized")
    assert read_state(tmp_path / "materialized") == {}


@pytest.mark.parametrize(
    ("columns", "sets", "words"),
    [
        (
            "user_id BIGINT, a VARCHAR COLLATE NOCASE, b VARCHAR COLLATE NOACCENT",
            (("a", "b"),),
            "a, b have a collation",
        ),
        ("user_id BIGINT, a VARCHAR COLLATE NOCASE, b VARCHAR COLLATE NOACCENT", (("b",),), "column b has a collation"),
        ("user_id VARCHAR COLLATE C, a VARCHAR, b VARCHAR", ((),), "column user_id has a collation"),
    ],
)
def test_columns_with_collations_are_named_before_rows_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: str, sets: tuple[tuple[str, ...], ...], words: str
) -> None:
    database = tmp_path / "events.duckdb"
    change(database, f"CREATE TABLE reads({columns})")
    monkeypatch.setattr(MaterializationWriter, "run", None)  # DuckDB 1.4 fails to bind two collations in one call
    with pytest.raises(dpsql.PolicyError, match=words) as caught:
        materialize(policy(tmp_path, sets=sets), database=database)
    assert (caught.value.code, caught.value.place) == ("policy-prepared", "tables.reads.materialized")


def test_a_statement_that_fails_names_the_disk_only_where_that_may_be_the_reason(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        writer = MaterializationWriter(connection, {})
        for sql, words in (
            ("SELECT system.main.hash(nothing)", "Leave materialized out"),
            (f"COPY (SELECT 1) TO '{tmp_path}/missing/file.parquet'", "Free space on the disk"),
        ):
            with pytest.raises(dpsql.EngineError) as caught:
                writer.run([(sql, [])])
            assert (caught.value.code, caught.value.hint.startswith(words)) == ("prepare-failed", True)


def test_tables_of_which_nothing_is_to_be_materialized(database: Path, tmp_path: Path) -> None:
    for known, table, words in (
        (policy(tmp_path), "places", "does not list this table"),
        (policy(tmp_path, sets=()), None, "lists no table"),
        (policy(tmp_path), "x", "It names reads"),
    ):
        with pytest.raises(dpsql.PolicyError) as caught:
            materialize(known, table, database=database)
        assert caught.value.code == "policy-prepared"
        assert words in str(caught.value)


POLICY = """
materialized = "kept"
[budget]
epsilon = 10
delta = 1e-6
[tables.reads]
privacy_unit = "user_id"
materialized = [["article"], ["article", "country"]]
"""


def test_the_command_materializes_and_explain_says_what_is_read(database: Path, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(POLICY)
    given = "--policy", str(tmp_path / "policy.toml"), "--db", str(database)
    assert dpsql_command("materialize", "reads", *given) == (0, b"reads is materialized: all of it was written.\n", "")
    assert dpsql_command("materialize", *given) == (0, b"reads is already materialized.\n", "")
    told = json.loads(dpsql_command("query", *given, "--format", "json", f"EXPLAIN {PLAIN}")[1])
    assert ["reads", "materialized counts of article, in place of rows"] in told["rows"]
    assert b"materialized = (article), (article, country)" in dpsql_command("check", *given)[1]
    code, _, words = dpsql_command("materialize", "places", *given)
    assert (code, "policy-prepared" in words) == (5, True)


@pytest.mark.parametrize("fails", ["write_state", "_copy_permissions"])
def test_a_full_disk_is_one_error_and_charges_nothing(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "secret")

    known = policy(tmp_path)
    materialize(known, database=database)
    before = {file.name: file.read_bytes() for file in (tmp_path / "materialized").iterdir()}
    change(database, "INSERT INTO reads SELECT * FROM reads LIMIT 1")
    monkeypatch.setattr(build, fails, full)
    with pytest.raises(dpsql.EngineError) as caught:
        materialize(known, database=database)
    assert caught.value.code == "prepare-failed"
    assert "nothing was charged" in caught.value.reason
    assert (caught.value.__context__, caught.value.__cause__) == (None, None)
    assert {file.name: file.read_bytes() for file in (tmp_path / "materialized").iterdir()} == before


@pytest.mark.parametrize("place", ["", "tables.reads."])
def test_the_old_key_of_the_policy_is_an_error_that_says_the_new_one(tmp_path: Path, place: str) -> None:
    above, below = ('prepared = "prepared"\n', "") if not place else ("", 'prepared = [["article"]]\n')
    file = tmp_path / "policy.toml"
    file.write_text(f'{above}[budget]\nepsilon = 1\ndelta = 1e-6\n[tables.reads]\nprivacy_unit = "user_id"\n{below}')
    with pytest.raises(dpsql.PolicyError) as caught:
        dpsql.Policy.from_toml(file)
    assert (caught.value.code, '"materialized"' in caught.value.reason) == ("policy-unknown-key", True)


def test_the_old_command_is_an_error_that_says_the_new_one() -> None:
    code, _, words = dpsql_command("prepare", "reads", "--policy", "policy.toml")
    assert (code, 'The command "prepare" is called "materialize"' in words) == (2, True)


@pytest.mark.parametrize("unit", ["dpsql_rank", "DPSQL_ROWS"])
def test_a_unit_with_a_name_of_dpsqls_own_is_not_materialized(tmp_path: Path, unit: str) -> None:
    change(
        tmp_path / "odd.duckdb", f"CREATE TABLE reads AS SELECT i % 4 AS {unit}, i // 4 AS article FROM range(40) t(i)"
    )
    table = dpsql.PrivateTable(unit, materialized=[["article"]])
    known = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": table}, materialized=tmp_path / "materialized")
    with pytest.raises(dpsql.PolicyError) as caught:
        materialize(known, database=tmp_path / "odd.duckdb")
    assert caught.value.code == "policy-prepared"
    assert caught.value.hint.endswith("no name may begin with dpsql_.")


@pytest.mark.parametrize("type_", ["INTEGER", "DOUBLE", "VARCHAR"])
def test_a_column_that_hides_the_numbers_of_rows_is_none(tmp_path: Path, type_: str) -> None:
    database = tmp_path / "odd.duckdb"
    change(database, f"CREATE TABLE reads (user_id INTEGER, article VARCHAR, n INTEGER, rowid {type_})")
    change(database, "INSERT INTO reads VALUES (1, 'a', 2, 5), (2, 'a', 2, 6)")
    known = policy(tmp_path, sets=((), ("article",)), bounds=FEW)
    known = replace(known, tables={"reads": known.tables["reads"]})
    assert materialize(known, database=database) == {"reads": "made"}
    change(database, "INSERT INTO reads VALUES (1, 'a', 2, NULL), (3, 'b', 2, NULL)")
    assert materialize(known, database=database) == {"reads": "made"}
    with opened(database, known) as over:
        found, _ = counted(over, "SELECT COUNT(*), SUM(n), COUNT(DISTINCT user_id) FROM reads PRIVATE")
    assert sorted(column[0].as_py() for column in found.columns) == [3, 4, 8]


def test_a_table_without_units_has_no_group_of_all_rows(tmp_path: Path) -> None:
    database = tmp_path / "odd.duckdb"
    change(database, "CREATE TABLE reads AS SELECT NULL::INTEGER AS user_id, 'a' AS article, 1 AS n FROM range(3)")
    known = policy(tmp_path, sets=((),), bounds=FEW)
    known = replace(known, tables={"reads": known.tables["reads"]})
    materialize(known, database=database)
    one = "SELECT 'x' AS k, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY k TOP 3 PRIVATE"
    with opened(database, known) as over:
        assert counted(over, one)[0].num_rows == 0
        totals, told = counted(over, "SELECT COUNT(DISTINCT user_id), COUNT(*), SUM(n) FROM reads PRIVATE")
        assert [column.to_pylist() for column in totals.columns] == [[0]] * 3
        assert told == "materialized counts of all rows"


def test_a_csv_column_that_gets_another_type_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "reads.csv").write_text("user_id,article,n\n1,a,2\n2,b,3\n")

    def known(type_: str) -> dpsql.Policy:
        columns = {"user_id": "BIGINT", "article": "VARCHAR", "n": type_}
        source, sets = tmp_path / "reads.csv", [[], ["article"]]
        table = dpsql.PrivateTable("user_id", columns, source=source, materialized=sets, bounds={"n": {"max": 9}})
        return dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": table}, materialized=tmp_path / "materialized")

    total = "SELECT SUM(n) FROM reads PRIVATE"
    assert materialize(known("DOUBLE")) == {"reads": "made"}
    assert OUTDATED in check_policy(known("DECIMAL(6,1)")).warnings
    assert reads(None, known("DECIMAL(6,1)"), total) == ""
    assert materialize(known("DECIMAL(6,1)")) == {"reads": "made"}
    assert reads(None, known("DECIMAL(6,1)"), total) == "materialized counts of all rows"


def test_a_column_that_analysts_do_not_see_is_not_added_up(database: Path, tmp_path: Path) -> None:
    table = dpsql.PrivateTable(
        "user_id", ("user_id", "article"), materialized=[["article"]], bounds={"rows": 5, "n": {"max": 6}}
    )
    known = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": table}, materialized=tmp_path / "materialized")
    assert materialize(known, database=database) == {"reads": "made"}
    kept = read_state(tmp_path / "materialized")["reads"]
    assert (kept.rows, kept.sums) == (5, ())
    assert materialize(known, database=database) == {"reads": "current"}
    assert OUTDATED not in check_policy(known, database=database).warnings
