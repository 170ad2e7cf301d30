"""The policy's words on which engine has the data: read, refused with a line, and told without a password."""

from __future__ import annotations

import copy
import pickle
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import duckdb
import pytest
from support.command_kit import dpsql_command

import dpsql
from dpsql import (
    Budget,
    DataSource,
    EngineError,
    EngineSettings,
    Policy,
    PolicyError,
    PrivateTable,
    UsageError,
    open_engine,
)
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.policy import is_address

HEAD = "[budget]\nepsilon = 1\ndelta = 1e-6\n"
TABLE = '[tables.reads]\nprivacy_unit = "user_id"\n'
TABLES = {"reads": PrivateTable("user_id")}
ASKED = "SELECT article FROM reads GROUP BY article TOP 2 PRIVATE"


def policy_of(folder: Path, text: str) -> Path:
    file = folder / "policy.toml"
    file.write_text(HEAD + text + TABLE, encoding="utf-8")
    return file


def with_source(**settings: Any) -> Policy:
    url = settings.pop("url", "far:somewhere")
    return Policy(Budget(1, "1e-6"), TABLES, source=DataSource(url, **settings))


def laid(path: Path) -> None:
    with duckdb.connect(str(path)) as database:
        database.execute("CREATE TABLE reads AS SELECT u AS user_id, 'a' || u % 3 AS article FROM range(6000) t(u)")


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Give the address far: an opener, which does and notes what a test says."""
    given: dict[str, Any] = {}

    def open_far(url: str, sources: object, *, options: object, time_limit: float | None) -> object:
        given.update(url=url, sources=sources, options=options, time_limit=time_limit)
        if "raises" in given:
            raise given["raises"]
        return given["engine"]

    class Far(EntryPoint):
        def load(self) -> Any:
            return open_far

    points = EntryPoints([Far("far", "somewhere:open_far", open_engine.GROUP)])
    monkeypatch.setattr(open_engine, "entry_points", points.select)
    return given


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://audit:s3cret@db.example/main", "postgresql://audit:***@db.example/main"),
        ("postgresql://u:s3:cret@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:s3/cret@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:s3?cret@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:s3@cret@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u%3As3cret@h/d", "postgresql://***@h/d"),
        ("postgresql://u:s3cret", "postgresql://u***"),
        ("postgresql://h:5432,[::1]:2/d?password=s3cret", "postgresql://h:5432,[::1]:2/d?***"),
        ("postgresql://h/d?p%61ssword=s3cret@x", "postgresql://***@x"),
        ("postgresql://h/d#s3cret", "postgresql://h/d#***"),
        ("sc://host:15002/;token=s3cret;user_id=a", "sc://host:15002/;***"),
        ("x:password=s3cret", "x:password=***"),
        ("sc://host:15002", "sc://host:15002"),
        ("spark:local-cluster[2,1,1024]", "spark:local-cluster[2,1,1024]"),
        ("clickhouse:/var/lib/events", "clickhouse:/var/lib/events"),
        ("duckdb:a b/\u00fc:x@y.duckdb", "duckdb:a b/\u00fc:x@y.duckdb"),
    ],
)
def test_an_address_is_told_without_what_may_be_a_password(url: str, told: str) -> None:
    source = DataSource(url, options={"password": "s3cret"})
    assert (str(source), f"{source!r}") == (told, f"DataSource({told!r})")
    assert "s3cret" not in repr(Policy(Budget(1, "1e-6"), TABLES, source=source))
    assert source.url == url


@pytest.mark.parametrize(
    ("url", "stored"),
    [
        ("postgresql://audit:s3cret@db.example:5432/main", "postgresql://audit@db.example:5432/main"),
        ("postgresql://u:s3/c?r@et@h/d", "postgresql://u@h/d"),
        ("postgresql://:s3cret@h/d", "postgresql://@h/d"),
        ("postgresql://u@h/d?sslmode=require&password=s3cret&connect_timeout=3", None),
        ("postgresql://h/d?sslmode=require&p%61ssword=s3cret", "postgresql://h/d?sslmode=require"),
        ("postgresql://h/d?sslpassword=s3cret", "postgresql://h/d"),
        ("postgresql://h/d?p%61ssword=s3cret@x", "postgresql://***@x"),
        ("postgresql://u:s3cret", "postgresql://u***"),
        ("postgresql://h/d#s3cret", "postgresql://h/d#***"),
        ("sc://host:15002/;token=s3cret;user_id=a", "sc://host:15002/;user_id=a"),
        ("x://h/d?a=b&apikey=s3cret&passwd=s3cret&pass=s3cret&access_key=s3cret", "x://h/d?a=b"),
        ("x://h/d?a=b#s3cret", "x://h/d"),
        ("postgresql://h/d?passfile=/etc/p&sslkey=/etc/k", "postgresql://h/d?passfile=/etc/p&sslkey=/etc/k"),
        ("spark:local[2]", "spark:local[2]"),
        ("duckdb:a b/x:1@y.duckdb", "duckdb:a b/x:1@y.duckdb"),
    ],
)
def test_an_address_is_stored_without_passwords(url: str, stored: str | None) -> None:
    written = DataSource(url).without_passwords()
    assert written == (stored or "postgresql://u@h/d?sslmode=require&connect_timeout=3")
    assert "s3cret" not in written


def test_a_source_is_a_value() -> None:
    source = DataSource("sc://h", options={"a": "b"})
    assert source == pickle.loads(pickle.dumps(source)) == copy.deepcopy(source) == copy.copy(source)
    assert source != DataSource("sc://h")
    assert source != DataSource("sc://other", options={"a": "b"})
    stored = DataSource("sc://h", options={"a": "b"}, materialized="dpsql")
    assert source != stored == pickle.loads(pickle.dumps(stored))
    with pytest.raises(TypeError):
        source.options["a"] = "c"  # type: ignore[index]
    with pytest.raises(AttributeError):
        source.url = "sc://i"  # type: ignore[misc]


@pytest.mark.parametrize(
    "url", ["", "nothing", "://h", "Sc://h", "sc:", "sc://h h", "sc://\u00fc", "sc://h\n", "duckdb:", "1x:y"]
)
def test_what_is_no_address_is_refused_unseen(url: str) -> None:
    with pytest.raises(PolicyError) as caught:
        DataSource(url)
    assert (caught.value.code, caught.value.place) == ("policy-url", "source.url")
    assert len(url) < 6 or url not in str(caught.value)


@pytest.mark.parametrize(
    "arguments", [{"url": 5}, {"url": None}, {"options": "a=b"}, {"options": {"a": 1}}, {"options": {1: "a"}}]
)
def test_a_value_of_another_type_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(PolicyError) as caught:
        DataSource(**{"url": "sc://h", **arguments})
    assert caught.value.code == "policy-type"
    with pytest.raises(PolicyError):
        Policy(Budget(1, "1e-6"), TABLES, source="sc://h")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("[source]\n", "policy-missing-key", "source.url (policy.toml, below line 4)"),
        ("[source]\nurl = 5\n", "policy-type", "source.url (policy.toml, line 5)"),
        ('[source]\nurl = "no where"\n', "policy-url", "source.url (policy.toml, line 5)"),
        ('[source]\nurl = "sc://h"\noption = {}\n', "policy-unknown-key", "source.option (policy.toml, line 6)"),
        ('[source]\nurl = "sc://h"\noptions = 1\n', "policy-type", "source.options (policy.toml, line 6)"),
        (
            '[source]\nurl = "sc://h"\n[source.options]\na = 1\n',
            "policy-type",
            "source.options.a (policy.toml, line 7)",
        ),
    ],
)
def test_what_is_wrong_in_a_file_has_its_line(tmp_path: Path, text: str, code: str, place: str) -> None:
    with pytest.raises(PolicyError) as caught:
        Policy.from_toml(policy_of(tmp_path, text))
    assert (caught.value.code, caught.value.place) == (code, place)


def test_an_address_is_told_from_a_path() -> None:
    assert all(map(is_address, ["postgresql://h", "sc://h", "spark:local[2]", "duckdb:a b", "x://y"]))
    assert not any(map(is_address, ["events.duckdb", "C:\\events", "a:b", "/a/b://c", "dir/x:y", ""]))


def test_a_duckdb_file_is_found_beside_its_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a b" / "\u00fc"
    folder.mkdir(parents=True)
    laid(folder / "\u00e9v\u00e9nements 1.duckdb")
    monkeypatch.chdir(tmp_path)
    file = policy_of(folder, '[source]\nurl = "duckdb:\u00e9v\u00e9nements 1.duckdb"\n')
    with dpsql.connect(policy=file, ledger=":memory:") as session:
        answer = session.sql(ASKED)
        assert len(answer.fetchall()) == 2
        assert answer.receipt.isolation == "in_process"
    with dpsql.connect(
        f"duckdb:{folder}/\u00e9v\u00e9nements 1.duckdb", policy=policy_of(folder, ""), ledger=":memory:"
    ):
        pass
    with pytest.raises(PolicyError) as caught:
        dpsql.connect(policy=policy_of(folder, '[source]\nurl = "duckdb:x"\noptions = {a = "b"}\n'))
    assert (caught.value.code, caught.value.place) == ("policy-source", "source.options (policy.toml, line 6)")


def test_every_surface_opens_what_the_policy_names(tmp_path: Path) -> None:
    laid(tmp_path / "events.duckdb")
    policy = policy_of(tmp_path, '[source]\nurl = "duckdb:events.duckdb"\n')
    policy.write_text(f'ledger = "ledger.sqlite"\n{policy.read_text()}')
    for words in (["query", ASKED], ["explain", ASKED], ["check"]):
        code, printed, said = dpsql_command(*words, "--policy", str(policy), cwd=tmp_path)
        assert (code, bool(printed)) == (0, True), said
    code, _, said = dpsql_command("query", ASKED, "--policy", str(policy), "--db", "events.duckdb", cwd=tmp_path)
    assert (code, "[source-twice]" in said) == (2, True)
    from sqlalchemy import create_engine, text

    from dpsql import dbapi

    with dbapi.connect(policy=policy) as connection:
        cursor = connection.cursor()
        cursor.execute(ASKED)
        assert len(cursor.fetchall()) == 2
    engine = create_engine(f"dpsql:///?policy={policy}")
    with engine.connect() as other:
        assert len(other.execute(text(ASKED)).all()) == 2
    engine.dispose()
    from dpsql.server.gateway import Service

    service = Service(None, Policy.from_toml(policy))  # what `dpsql serve` opens without --db
    assert service.catalog.find("reads") is not None
    service.close()


def test_check_looks_at_the_tables_of_the_source(tmp_path: Path) -> None:
    laid(tmp_path / "events.duckdb")
    policy = policy_of(tmp_path, '[source]\nurl = "duckdb:events.duckdb"\n')
    policy.write_text(policy.read_text().replace("user_id", "nobody"))
    code, _, said = dpsql_command("check", "--policy", str(policy), cwd=tmp_path)
    assert (code, "nobody" in said) == (5, True)


def test_an_engine_of_another_package_is_opened_by_its_entry_point(far: dict[str, Any], tmp_path: Path) -> None:
    laid(tmp_path / "events.duckdb")
    far["engine"] = DuckDBEngine.open(tmp_path / "events.duckdb", {"reads": None})
    settings = EngineSettings(time_limit=5)
    policy = Policy(Budget(1, "1e-6"), TABLES, source=DataSource("far:x", options={"a": "b"}), engine=settings)
    with dpsql.connect(policy=policy, ledger=":memory:") as session:
        assert len(session.sql(ASKED).fetchall()) == 2
    assert (far["url"], far["sources"], far["options"], far["time_limit"]) == ("far:x", {"reads": None}, {"a": "b"}, 5)


def test_of_what_an_opener_raises_only_our_own_words_are_told(far: dict[str, Any], tmp_path: Path) -> None:
    file = policy_of(tmp_path, '[source]\nurl = "far:x"\n')
    line = "source.url (policy.toml, line 5)"
    for raised, code, place in [
        (ValueError("s3cret"), "engine-unreachable", line),
        (EngineError("engine-unreachable", "No.", place="source.url"), "engine-unreachable", line),
        (
            EngineError("table-missing", "No.", place="table reads"),
            "table-missing",
            "tables.reads (policy.toml, line 6)",
        ),
        (PolicyError("policy-source", "No.", place="source.options.a"), "policy-source", "source.options.a"),
    ]:
        far["raises"] = raised
        with pytest.raises((EngineError, PolicyError)) as caught:
            dpsql.connect(policy=file, ledger=":memory:")
        error = caught.value
        assert (error.code, error.place) == (code, place)
        assert "s3cret" not in str(error)
        assert error.__context__ is None or error.__suppress_context__
    far["raises"] = ModuleNotFoundError("s3cret", name="farlib")
    with pytest.raises(UsageError) as missing:
        dpsql.connect(policy=file, ledger=":memory:")
    assert (missing.value.code, "farlib" in missing.value.reason, missing.value.__context__) == (
        "not-installed",
        True,
        None,
    )


def test_an_address_that_nothing_opens_is_refused_with_those_that_are_known(far: dict[str, Any]) -> None:
    assert not far
    with pytest.raises(PolicyError) as caught:
        dpsql.connect(policy=with_source(url="farther:x"), ledger=":memory:")
    assert caught.value.code == "policy-source"
    known = ", ".join(sorted([*open_engine._ENGINES, "duckdb", "far"]))
    assert caught.value.hint == f"Known here: {known}."


@pytest.mark.parametrize(
    ("url", "reason", "hint"),
    [
        ("md:my_db", "MotherDuck is not supported.", "COPY (FROM events) TO 'events.parquet'"),
        ("motherduck:my_db", "MotherDuck is not supported.", "name the files as sources"),
        ("ducklake:meta.ducklake", "DuckLake is not supported.", "name the files as sources"),
        ("duckdb:md:my_db", "MotherDuck is not supported.", "name the files as sources"),
        ("duckdb:ducklake:postgres:x", "DuckLake is not supported.", "name the files as sources"),
        ("duckdb:s3://bucket/x.duckdb", "A DuckDB file is opened on this machine", "Copy it to this machine"),
        ("duckdb:reads.parquet", "This is the address of files", "as its source"),
        ("duckdb:data/*.parquet", "This is the address of files", "as its source"),
        ("s3://bucket/reads.parquet", "This is the address of files", "as its source"),
        ("hdfs://node/reads", "This is the address of files", "as its source"),
    ],
)
def test_addresses_of_files_and_of_what_is_not_supported_are_refused_by_name(
    tmp_path: Path, url: str, reason: str, hint: str
) -> None:
    found = []
    with pytest.raises(PolicyError) as caught:
        dpsql.connect(policy=policy_of(tmp_path, f'[source]\nurl = "{url}"\n'), ledger=":memory:")
    found.append(caught.value)
    if not url.startswith("duckdb:") and "parquet" not in url:  # in place of the path of a database
        with pytest.raises(PolicyError) as caught:
            dpsql.connect(url, policy=Policy(Budget(1, "1e-6"), TABLES), ledger=":memory:")
        found.append(caught.value)
    for error in found:
        assert error.code == "policy-source"
        assert error.reason.startswith(reason)
        assert hint in error.hint


@pytest.mark.parametrize("database", ["reads.parquet", "data/*.parquet", "reads.csv", "s3://bucket/reads.parquet"])
def test_files_are_no_database(database: str) -> None:
    with pytest.raises(UsageError) as caught:
        dpsql.connect(database, policy=Policy(Budget(1, "1e-6"), TABLES), ledger=":memory:")
    assert caught.value.code == "database"
    assert "as its source" in caught.value.hint


def test_what_is_duckdbs_alone_is_refused_for_other_engines(far: dict[str, Any], tmp_path: Path) -> None:
    assert not far
    source = DataSource("far:x")
    for settings, name in [
        (EngineSettings(memory_limit="1GB"), "memory_limit"),
        (EngineSettings(threads=2), "threads"),
    ]:
        with pytest.raises(PolicyError) as caught:
            dpsql.connect(policy=Policy(Budget(1, "1e-6"), TABLES, source=source, engine=settings), ledger=":memory:")
        assert (caught.value.code, caught.value.place) == ("policy-source", f"engine.{name}")
    with pytest.raises(UsageError) as asked:
        dpsql.connect(policy=with_source(), isolation="process", ledger=":memory:")
    assert asked.value.code == "isolation-remote"
    with pytest.raises(UsageError) as twice:
        dpsql.connect("far://x", policy=with_source(), ledger=":memory:")
    assert twice.value.code == "source-twice"
    tables = {"reads": PrivateTable("user_id", source=tmp_path / "reads.parquet")}
    with pytest.raises(PolicyError) as files:
        dpsql.connect(policy=Policy(Budget(1, "1e-6"), tables, source=source), ledger=":memory:")
    assert files.value.code == "policy-source"


def test_an_open_engine_keeps_what_it_was_opened_with(tmp_path: Path) -> None:
    laid(tmp_path / "events.duckdb")
    engine = DuckDBEngine.open(tmp_path / "events.duckdb", {"reads": None})
    for settings in (EngineSettings(memory_limit="1GB"), EngineSettings(threads=2), EngineSettings(time_limit=1)):
        with pytest.raises(PolicyError) as caught:
            dpsql.connect(engine, policy=Policy(Budget(1, "1e-6"), TABLES, engine=settings), ledger=":memory:")
        assert caught.value.code == "policy-source"
    with pytest.raises(UsageError) as isolated:
        dpsql.connect(engine, policy=Policy(Budget(1, "1e-6"), TABLES), isolation="process", ledger=":memory:")
    assert isolated.value.code == "isolation-connection"
    with dpsql.connect(engine, policy=Policy(Budget(1, "1e-6"), TABLES), ledger=":memory:") as session:
        assert len(session.sql(ASKED).fetchall()) == 2


def test_the_address_of_an_engine_is_no_path_and_is_not_told() -> None:
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PrivateTable("user_id")})
    with pytest.raises(UsageError) as caught:
        dpsql.connect(Path("postgresql://ana:hidden@host/db"), policy=policy)
    assert caught.value.code == "database"
    assert "[source]" in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "name"),
    [("sc://h", ""), ("sc://h", "a b"), ("sc://h", 'x"'), ("sc://h", "x" * 64), ("duckdb:e.db", "dpsql")],
)
def test_a_schema_of_materialized_tables_has_a_plain_name_in_another_engine(url: str, name: str) -> None:
    with pytest.raises(PolicyError) as caught:
        DataSource(url, materialized=name)
    assert (caught.value.code, caught.value.place) == ("policy-prepared", "source.materialized")


def test_tables_are_materialized_where_the_source_is(tmp_path: Path) -> None:
    tables = {"reads": PrivateTable("user_id", materialized=[["article"]])}
    for materialized, schema, place in (
        (tmp_path, None, "materialized"),
        (tmp_path, "dpsql", "materialized"),
        (None, None, "tables.reads.materialized"),
    ):
        source = DataSource("postgresql://h/d", materialized=schema)
        with pytest.raises(PolicyError) as caught:
            Policy(Budget(1, "1e-6"), tables, source=source, materialized=materialized)
        assert (caught.value.code, caught.value.place) == ("policy-prepared", place)
        assert 'materialized = "dpsql" below [source]' in caught.value.hint
    file = tmp_path / "policy.toml"
    file.write_text(
        '[budget]\nepsilon = 1\ndelta = 1e-6\n[source]\nurl = "postgresql://h/d"\nmaterialized = "dpsql"\n'
        '[tables.reads]\nprivacy_unit = "user_id"\nmaterialized = [["article"]]\n'
    )
    source = Policy.from_toml(file).source
    assert source is not None
    assert source.materialized == "dpsql"
