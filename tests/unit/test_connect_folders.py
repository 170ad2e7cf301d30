"""A folder as the source of a table, asked through a session and the shell as any other table is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from support.command_kit import dpsql_command

import dpsql
from dpsql.errors import EngineError, PolicyError, UsageError
from dpsql.open_engine import open_engine

POLICY = """\
[budget]
epsilon = 90
delta = 1e-6
[tables.reads]
privacy_unit = "user_id"
columns = ["user_id", "land"]
source = "reads"
[tables.lands]
public = true
source = "lands"
"""
LANDS = ("DE", "a b", "ü", "%")
READS = duckdb.sql(
    f"SELECT range AS user_id, {list(LANDS)}[1 + range % 4] AS land, range % 7 AS n FROM range(4000) ORDER BY ALL"
).to_arrow_table()
GONE = "user_id < 2000 AND land <> '%'"  # leaves 500 of each land, and 1000 of the last
SQL = (
    "SELECT land, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY land TOP 4 PRIVATE WITH (epsilon = 1, fresh = true)"
)


def parquet(folder: Path) -> None:
    kept = duckdb.sql(f"FROM READS WHERE NOT ({GONE})").to_arrow_table()
    ds.write_dataset(
        kept, folder, format="parquet", partitioning=ds.partitioning(pa.schema([("land", pa.string())]), flavor="hive")
    )


def delta(folder: Path) -> None:
    write_deltalake(folder, READS, partition_by=["land"])
    DeltaTable(folder).delete(GONE)


def iceberg(folder: Path) -> None:
    catalog = SqlCatalog("test", uri="sqlite:///:memory:", warehouse=f"file://{folder.parent}")
    catalog.create_namespace("ns")
    table = catalog.create_table("ns.t", READS.schema, location=f"file://{folder}")
    table.append(READS)
    table.delete("user_id < 2000 and land != '%'")
    catalog.close()


KINDS = {"parquet": parquet, "delta": delta, "iceberg": iceberg}


@pytest.fixture(scope="module", params=KINDS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    KINDS[request.param](folder / "reads")
    (folder / "lands").mkdir()
    table = pa.table({"land": ["DE", "ü"], "name": ["Germany", "Umlaut"]})
    ds.write_dataset(table, folder / "lands", format="parquet")
    (folder / "policy.toml").write_text(POLICY)
    return folder


def near(answer: dict[str, int]) -> bool:
    exact = {"DE": 500, "a b": 500, "ü": 500, "%": 1000}
    return answer.keys() == exact.keys() and all(abs(answer[land] - n) < 100 for land, n in exact.items())


@pytest.mark.parametrize("isolation", [None, "process"])
@pytest.mark.filterwarnings("ignore::dpsql.connect.MemoryLedgerWarning")
def test_private_answers_count_the_rows_that_are_there(made: Path, isolation: str | None) -> None:
    with dpsql.connect(policy=made / "policy.toml", isolation=isolation) as session:
        assert near(dict(session.sql(SQL).fetchall()))
        joined = session.sql(
            "SELECT name, COUNT(DISTINCT user_id) AS n FROM reads JOIN lands USING (land) "
            "GROUP BY name TOP 2 PRIVATE WITH (epsilon = 1)"
        )
        assert {name for name, _ in joined.fetchall()} == {"Germany", "Umlaut"}
        assert session.sql("SELECT name FROM lands ORDER BY name").fetchall() == [("Germany",), ("Umlaut",)]
        with pytest.raises(dpsql.Refusal):
            session.sql("SELECT n FROM reads GROUP BY n TOP 1 PRIVATE")


@pytest.mark.filterwarnings("ignore::dpsql.connect.MemoryLedgerWarning")
def test_a_borrowed_connection_reads_a_folder_too(made: Path) -> None:
    with duckdb.connect() as connection, dpsql.connect(connection, policy=made / "policy.toml") as session:
        assert near(dict(session.sql(SQL).fetchall()))


def test_the_shell_asks_and_checks(made: Path) -> None:
    code, out, err = dpsql_command("query", SQL, "--policy", "policy.toml", "--format", "json", cwd=made)
    assert code == 0, err
    assert near(dict(json.loads(out)["rows"]))
    code, out, err = dpsql_command("check", "--policy", "policy.toml", cwd=made)
    assert (code, err) == (0, "")
    said = out.decode()
    assert "reads (folder " in said
    assert "Not checked" not in said


def test_what_is_wrong_with_a_folder_is_said_at_its_table(tmp_path: Path) -> None:
    (tmp_path / "reads").mkdir()
    (tmp_path / "policy.toml").write_text(POLICY)
    with pytest.raises(EngineError) as caught:
        dpsql.connect(policy=tmp_path / "policy.toml")
    assert caught.value.code == "source-empty"
    assert str(caught.value.place).endswith("tables.reads (policy.toml, line 4)")


def test_no_package_is_loaded_that_no_table_needs(tmp_path: Path) -> None:
    packages = {"deltalake", "pyiceberg", "pyarrow", "duckdb"}
    code = f"import sys, dpsql.engines.lakes; print({packages} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert found.stdout == "set()\n"


@pytest.mark.parametrize(
    "source",
    ["s3://bucket/reads/*.parquet", "https://example.com/reads.parquet", "abfss://a@b/c", "file:///data/reads"],
)
def test_an_address_is_a_source_that_stays_as_it_is(tmp_path: Path, source: str) -> None:
    (tmp_path / "policy.toml").write_text(POLICY.replace('"reads"', f'"{source}"'))
    table = dpsql.Policy.from_toml(tmp_path / "policy.toml").tables["reads"]
    assert str(table.source) == source
    assert dpsql.PublicTable(source=source).source == table.source


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("hdfs://node/reads", "name a Spark in [source]"),
        ("abfss://a@b/c.parquet", "name a Spark in [source]"),
        ("s3a://bucket/reads.parquet", "Write s3:// in place of s3a://."),
        ("http://host/reads.parquet", "Write https://"),
        ("file:///data/reads.parquet", "Write the path alone"),
        ("https://host/*.parquet", "Write the address of one file."),
        ("https://host/reads", "Write the rows as Parquet"),
        ("s3://bucket/reads", 'Write source = "s3://bucket/reads/*.parquet"'),
        ("s3://bucket/reads/", 'Write source = "s3://bucket/reads/*.parquet"'),
        ("s3://bucket/reads.json", "Write the rows as Parquet"),
    ],
)
def test_addresses_that_duckdb_is_not_given_are_refused_before_anything_is_loaded(source: str, hint: str) -> None:
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PublicTable(source=source)})
    with pytest.raises(PolicyError) as caught:
        open_engine(None, policy)
    assert (caught.value.code, caught.value.place) == ("policy-source", "tables.reads")
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "source",
    [
        "https://user:s3cret@host/reads.parquet",
        "https://s3cret@host/reads.parquet",
        "https://host/reads.parquet?X-Amz-Signature=s3cret",
        "s3://bucket/reads.parquet?s3_secret_access_key=s3cret",
        "s3://bucket/a b.parquet",
        "s3://bucket/reads.csv",
        "s3://bucket/reads.csv.gz",
        "s3://bucket/reads/*.tsv",
        Path("s3://bucket/reads.parquet"),
    ],
)
def test_credentials_and_what_is_no_parquet_are_refused_unseen(source: str | Path) -> None:
    with pytest.raises(PolicyError) as caught:
        dpsql.PublicTable(source=source)
    assert caught.value.code == "policy-source"
    assert "s3cret" not in str(caught.value) + caught.value.hint


def test_a_pattern_of_names_on_this_machine_is_refused(tmp_path: Path) -> None:
    (tmp_path / "reads").mkdir()
    with pytest.raises(PolicyError) as caught:
        dpsql.PublicTable(source=tmp_path / "reads" / "*.parquet")
    assert caught.value.code == "policy-source"
    assert caught.value.hint.startswith("Name the folder")
    duckdb.sql(f"COPY (SELECT 1 AS a) TO '{tmp_path}/reads/x[1].parquet'")
    assert dpsql.PublicTable(source=tmp_path / "reads" / "x[1].parquet").source is not None  # a file has this name


def test_an_address_needs_httpfs_and_no_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # without extensions
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PublicTable(source="s3://bucket/reads.parquet")})
    with pytest.raises(UsageError) as caught:
        open_engine(None, policy)
    assert caught.value.code == "not-installed"
    assert "INSTALL httpfs" in caught.value.hint
    with pytest.raises(UsageError) as caught:
        open_engine(None, policy, isolation="process")
    assert caught.value.code == "isolation-network"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("lake", "lake/reads"),
        ("lake", "lake/a.parquet"),
        ("lake/k=1", "lake"),
        ("lake", "lake/metadata/v1.metadata.json"),
        ("lake/metadata/v1.metadata.json", "lake/metadata/v2.metadata.json"),
    ],
)
def test_no_source_lies_in_another(one: str, other: str) -> None:
    tables = {"a": dpsql.PrivateTable("user_id", source=one), "b": dpsql.PublicTable(source=other)}
    with pytest.raises(PolicyError) as caught:
        dpsql.Policy(dpsql.Budget(1, 1e-6), tables)
    assert caught.value.code == "policy-duplicate-table"


def test_a_folder_may_have_any_name_if_it_is_there(tmp_path: Path) -> None:
    with pytest.raises(PolicyError):
        dpsql.PublicTable(source=tmp_path / "v1.2")
    (tmp_path / "v1.2").mkdir()
    for name in ("v1.2", "reads", "x.delta", "x.iceberg", "x.parquet", "00003-x.metadata.json"):
        assert dpsql.PublicTable(source=tmp_path / name).source == tmp_path / name
