"""`dpsql init` of warehouses: the policy that it writes is accepted, and what fails says what to write."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import adbc_driver_sqlite.dbapi
import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer
from support.command_kit import dpsql_command
from support.databricks_server import FakeDatabricks
from support.postgres_kit import server
from support.snowflake_kit import PYTHON, fakesnow_address
from support.trino_server import Answer, FakeTrino

import dpsql
from dpsql.curator import check_policy, write_starter
from dpsql.engines.warehouses import SnowflakeEngine
from dpsql.errors import EngineError
from dpsql.policy.starter import Found, starter

from .test_athena import give
from .test_bigquery import serve as serve_bigquery

ASKED = "SELECT article, COUNT(DISTINCT user_id) AS n FROM {} GROUP BY article TOP 3 PRIVATE"
TYPES = {"user_id": "bigint", "article": "varchar"}


def initialize(folder: Path, url: str, *, options: Mapping[str, str] | None = None) -> list[str]:
    """Write a policy, with the password put back into it; return its tables, the last of which can be asked."""
    text = write_starter(url, options=options).text
    written = tomllib.loads(text)["source"]
    assert "secret" not in text
    assert written.get("options", {}) == (options or {})
    file = folder / "policy.toml"
    file.write_text(text.replace(f'"{written["url"]}"', f'"{url}"'))
    tables = [table.name for table in check_policy(file).tables]
    with dpsql.connect(policy=file, ledger=":memory:") as session:
        assert session.explain(ASKED.format(tables[-1]))
    return tables


@pytest.mark.skipif(not PYTHON.exists(), reason="fakesnow is not installed: .ci/run says how")
def test_snowflake(tmp_path: Path) -> None:
    """Name the tables of a schema that is written in another case."""
    url, options = fakesnow_address()
    engine = SnowflakeEngine.open(url, {}, options=options)
    with closing(engine), engine._connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA IF NOT EXISTS started")
        for name in ("reads", "likes"):
            cursor.execute(f"CREATE OR REPLACE TABLE started.{name} (user_id NUMBER(38, 0), article VARCHAR)")
    assert initialize(tmp_path, url.replace("PUBLIC", "started"), options=options) == ["LIKES", "READS"]


def test_bigquery(tmp_path: Path) -> None:
    """Name the tables of the dataset; text with a default collation is no key."""
    with serve_bigquery(tmp_path) as (_, url, options):
        del options["api_endpoint"]
        with pytest.raises(EngineError) as caught:
            initialize(tmp_path, url.replace("shop/web", "shop"), options=options)
        assert caught.value.hint is not None
        assert "bigquery://PROJECT/DATASET" in caught.value.hint
    with serve_bigquery(tmp_path) as (project, url, options):
        project.tables["web.reads"] = [{"name": "user_id", "type": "INTEGER"}, {"name": "article", "type": "STRING"}]
        del project.tables["web.folded"]
        assert initialize(tmp_path, url, options=options) == ["reads"]


def test_redshift_names_tables_of_public_alone_and_others_with_their_schema(tmp_path: Path) -> None:
    database = server().fresh_database()
    with server().session(database) as connection:
        connection.execute("CREATE SCHEMA web")
        connection.execute("CREATE SCHEMA dpsql_empty")
        for name in ("likes", "web.reads"):
            connection.execute(f"CREATE TABLE {name} (user_id bigint, article varchar(20))")
    found = initialize(tmp_path, f"redshift://tester@/{database}?host={server().folder}")
    assert sorted(found) == ["likes", "web.reads"]


def answer_trino(sql: str) -> Answer:
    if "information_schema.tables" in sql:
        return [("table_name", "varchar")], [["likes"], ["reads"]] if "'web'" in sql else []
    if "information_schema" in sql:
        name = "reads" if "'reads'" in sql else "likes"
        return [(each, "varchar") for each in "abcd"], [["web", name, *column] for column in TYPES.items()]
    return [("one", "integer")], [[1]]


@contextmanager
def serve_trino() -> Iterator[str]:
    coordinator = FakeTrino(answer_trino).start()
    try:
        yield f"trino://ada@127.0.0.1:{coordinator.server_address[1]}/lake"
    finally:
        coordinator.shutdown()
        coordinator.server_close()


def test_trino(tmp_path: Path) -> None:
    with serve_trino() as url:
        assert initialize(tmp_path, f"{url}/web") == ["likes", "reads"]


def test_the_command_and_those_that_it_names_take_options(tmp_path: Path) -> None:
    option = "join_distribution_type=BROADCAST"
    with serve_trino() as url:
        commands = [("init", f"{url}/web", "--option", option), ("check",), ("explain", ASKED.format("reads"))]
        for command in commands:
            code, out, err = dpsql_command(*command, cwd=tmp_path)
            assert (code, err) == (0, "")
            assert b"reads" in out
    written = tomllib.loads((tmp_path / "policy.toml").read_text())["source"]["options"]
    assert written == {"join_distribution_type": "BROADCAST"}


def run_databricks(sql: str, values: Mapping[str, str | None]) -> pa.Table:
    if "information_schema.tables" in sql:
        return pa.table({"table_name": ["likes", "reads"] if values["p1"] == "web" else []})
    if "information_schema" in sql:
        kinds = ["bigint", "string"]
        return pa.table([["web"] * 2, [values["p2"]] * 2, [*TYPES], kinds], names=list("abcd"))
    return pa.table({"one": [1]})


def test_databricks(tmp_path: Path) -> None:
    warehouse, authority = FakeDatabricks(run_databricks).start(tmp_path)
    try:
        host = f"localhost:{warehouse.server_address[1]}"
        url = f"databricks://token:secret@{host}/main/web?http_path=/sql/1.0/warehouses/a"
        assert initialize(tmp_path, url, options={"tls_trusted_ca_file": str(authority)}) == ["likes", "reads"]
    finally:
        warehouse.shutdown()
        warehouse.server_close()


@pytest.fixture(scope="module")
def athena() -> Iterator[str]:
    service = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    service.start()
    host, port = service.get_host_and_port()
    variables = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        yield f"http://{host}:{port}"
    service.stop()


def test_athena(tmp_path: Path, athena: str) -> None:
    columns = [["web", "reads", *column] for column in TYPES.items()]
    give(athena, ("varchar",), ["reads"])
    for _ in range(3):  # init, check and explain
        give(athena, ("varchar",) * 4, *columns)
    url = "athena://eu-west-1/AwsDataCatalog/web?s3_staging_dir=s3://answers/dpsql/"
    assert initialize(tmp_path, url, options={"endpoint_url": athena, "poll_interval": "0.01"}) == ["reads"]


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("snowflake://ada:secret@account", "snowflake://ACCOUNT/DATABASE/SCHEMA"),
        ("snowflake://ada:secret@account/shop", "snowflake://ACCOUNT/DATABASE/SCHEMA"),
        ("databricks://token:secret@host/main/web", "HOST/CATALOG/SCHEMA?http_path=/sql/1.0/warehouses/ID"),
        ("databricks://token:secret@host/main/web?http_path=", "HOST/CATALOG/SCHEMA?http_path=/sql/1.0/warehouses/ID"),
        ("databricks://token:secret@host/main?http_path=/sql/1.0/warehouses/a", "databricks://HOST/CATALOG/SCHEMA?"),
        ("trino://ada:secret@127.0.0.1:1/lake", "trino://HOST/CATALOG/SCHEMA"),
        ("trino://127.0.0.1:1/lake/web", "Check the address"),
        ("redshift://ada:secret@127.0.0.1:1/shop", "Check the address"),
        ("athena://eu-west-1/AwsDataCatalog?work_group=w", "athena://REGION/CATALOG/DATABASE"),
        ("athena://eu-west-1/AwsDataCatalog/web", "?work_group=NAME"),
    ],
)
def test_what_init_cannot_reach_says_what_to_write(url: str, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_ATHENA")]:
        monkeypatch.delenv(name)
    with pytest.raises(EngineError) as caught:
        write_starter(url)
    assert caught.value.code == "engine-unreachable"
    assert hint in (caught.value.hint or "")
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_the_address_of_databricks_is_refused_by_the_name_of_what_it_lacks() -> None:
    with pytest.raises(EngineError, match="http_path"):
        write_starter("databricks://token:secret@host/main/web")


def test_a_schema_without_tables_is_missing() -> None:
    with serve_trino() as url, pytest.raises(EngineError) as caught:
        write_starter(f"{url}/empty")
    assert caught.value.code == "source-missing"
    assert "schema" in (caught.value.hint or "")


def test_a_login_of_snowflake_that_runs_nothing_is_told_to_name_a_warehouse() -> None:
    """A session without a warehouse fails in its first statement, as one of SQLite does, which has no catalog."""
    connect = lambda: adbc_driver_sqlite.dbapi.connect(":memory:")  # noqa: E731
    engine = SnowflakeEngine(("shop", "web"), connect=connect, time_limit=None)
    with closing(engine):
        for asked in (engine.list_tables, lambda: engine.found("reads")):
            with pytest.raises(EngineError) as caught:
                asked()
            assert "?warehouse=NAME" in (caught.value.hint or "")


@pytest.mark.parametrize("option", ["auth_type", "=auth_jwt"])
def test_an_option_needs_a_name_and_a_value(tmp_path: Path, option: str) -> None:
    code, _, err = dpsql_command("init", "trino://127.0.0.1:1/lake/web", "--option", option, cwd=tmp_path)
    assert code != 0
    assert "--option NAME=VALUE" in err


def test_options_belong_to_engines_and_secret_ones_are_not_written(tmp_path: Path) -> None:
    code, _, err = dpsql_command("init", "reads.parquet", "--option", "a=b", cwd=tmp_path)
    assert code != 0
    assert "Leave --option out" in err
    options = {"query_group": "dpsql", "adbc.auth_token": "secret", "client_option.jwt_private_key": "/etc/key.p8"}
    source = dpsql.DataSource("redshift://tester@host/shop", options=options)
    written = starter(Found("shop", (), source=source))
    kept = tomllib.loads(written.text)["source"]["options"]
    assert [*kept] == ["query_group", "client_option.jwt_private_key"]
    assert "secret" not in written.text.replace("may be secret", "")
    assert any('"adbc.auth_token"' in line for line in written.lines())
