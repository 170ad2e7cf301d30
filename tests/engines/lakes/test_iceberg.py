"""Iceberg tables that pyiceberg itself wrote and changed: dpsql reads the rows that pyiceberg reads, or refuses."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import manifest as manifests
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)
from support import materialized_kit
from support.lake_kit import PLACE, counted, opened, refused, rows, table_of, types

import dpsql
from dpsql.curator import check_policy, materialize
from dpsql.engines.duckdb.worker_engine import WorkerEngine
from dpsql.engines.lakes import find_folder
from dpsql.errors import UsageError

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
BY_LAND = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "land"))
LANDS = ["DE", "a b/ü%=", None, "", "DE", "FR"]
READS = pa.table({"user_id": [1, 2, 3, 4, 5, 6], "land": LANDS, "n": pa.array([1] * 6, pa.int32())})


NAMES = (f"ns.t{number}" for number in count())


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlCatalog]:
    folder = tmp_path_factory.mktemp("iceberg")
    made = SqlCatalog("test", uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=f"file://{folder}")
    made.create_namespace("ns")
    yield made
    made.close()


def fields(*types: tuple[str, IcebergType]) -> Schema:
    return Schema(*(NestedField(number, name, type_) for number, (name, type_) in enumerate(types, 1)))


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    schema = fields(("user_id", LongType()), ("land", StringType()), ("n", IntegerType()))
    table = catalog.create_table(next(NAMES), schema, partition_spec=BY_LAND)
    table.append(READS)
    return table


def root(table: Table) -> Path:
    return Path(table.location().removeprefix("file://"))


def data_file(table: Table, part: str = "land=FR") -> Path:
    return next((root(table) / "data" / part).glob("*.parquet"))


def same(table: Table) -> bool:
    """Say whether dpsql reads what pyiceberg reads."""
    return rows(root(table)) == counted(table.scan().to_arrow())


def test_what_is_deleted_overwritten_and_upserted_is_read_as_it_is_now(table: Table) -> None:
    assert same(table)
    table.delete("user_id = 1")
    assert (same(table), sum(rows(root(table)).values())) == (True, 5)
    table.overwrite(
        READS.slice(5, 1).append_column("m", pa.array([0])).drop_columns("m"), overwrite_filter="land = 'FR'"
    )
    table.upsert(
        pa.table({"user_id": [5, 9], "land": ["DE", "IT"], "n": pa.array([7, 8], pa.int32())}), join_cols=["user_id"]
    )
    assert same(table)
    lands = dict(enumerate(LANDS, 1))
    kept = {(number, lands[number], 1): 1 for number in (2, 3, 4, 6)}
    assert rows(root(table)) == Counter({**kept, (5, "DE", 7): 1, (9, "IT", 8): 1})
    assert len(list(root(table).rglob("*.parquet"))) > 6
    table.delete("true")
    assert rows(root(table)) == Counter()
    assert types(root(table)) == {"user_id": "BIGINT", "land": "VARCHAR", "n": "INTEGER"}


def test_columns_are_told_by_their_ids_whatever_they_were_called(table: Table) -> None:
    with table.update_schema() as update:
        update.update_column("n", LongType())
        update.rename_column("n", "land2").rename_column("land", "n")
        update.add_column("more", StringType())
    assert same(table)
    assert types(root(table)) == {"user_id": "BIGINT", "n": "VARCHAR", "land2": "BIGINT", "more": "VARCHAR"}
    table.append(pa.table({"user_id": [7], "n": ["DE"], "land2": [2**40], "more": ["x"]}))
    assert same(table)
    with table.update_schema() as update:
        update.delete_column("more")
    with table.update_schema() as update:
        update.add_column("more", LongType())
    assert same(table)
    assert rows(root(table))[(7, "DE", 2**40, None)] == 1


def test_partitions_may_change(table: Table) -> None:
    with table.update_spec() as update:
        update.remove_field("land")
        update.add_identity("n")
    table.append(READS)
    table.delete("user_id = 2")
    assert same(table)


def test_the_first_format_is_read_too(catalog: SqlCatalog) -> None:
    schema = fields(("user_id", LongType()), ("land", StringType()), ("n", IntegerType()))
    first = {"format-version": "1"}
    table = catalog.create_table(next(NAMES), schema, partition_spec=BY_LAND, properties=first)
    table.append(READS)
    table.delete("user_id = 2")
    assert table.metadata.format_version == 1
    assert same(table)


def test_a_table_without_a_snapshot_is_empty(catalog: SqlCatalog) -> None:
    table = catalog.create_table(next(NAMES), fields(("user_id", LongType()), ("id", UUIDType())))
    assert rows(root(table)) == Counter()
    assert types(root(table)) == {"user_id": "BIGINT", "id": "UUID"}


def test_the_snapshot_is_that_of_when_the_session_opened(table: Table) -> None:
    folder = find_folder(root(table), place=PLACE)
    with (
        closing(opened(root(table))) as engine,
        closing(WorkerEngine.open(None, {"t": folder}, memory_limit="1GB", threads=2)) as worker,
    ):
        table.delete("user_id > 2")
        worker._drop()
        assert table_of(engine).num_rows == table_of(worker).num_rows == 6  # type: ignore[arg-type]
    assert sum(rows(root(table)).values()) == 2


VALUES: dict[str, tuple[IcebergType, pa.DataType, object, str]] = {
    "long": (LongType(), pa.int64(), -(2**63), "BIGINT"),
    "whole": (IntegerType(), pa.int32(), 7, "INTEGER"),
    "day": (DateType(), pa.date32(), date(1969, 12, 31), "DATE"),
    "dec": (DecimalType(9, 2), pa.decimal128(9, 2), Decimal("-1234567.80"), "DECIMAL(9,2)"),
    "flag": (BooleanType(), pa.bool_(), False, "BOOLEAN"),
    "real": (DoubleType(), pa.float64(), 0.1, "DOUBLE"),
    "single": (FloatType(), pa.float32(), 0.5, "FLOAT"),
    "moment": (TimestamptzType(), pa.timestamp("us", "UTC"), NOON, "TIMESTAMP WITH TIME ZONE"),
    "clock": (TimestampType(), pa.timestamp("us"), NOON.replace(tzinfo=None, microsecond=1), "TIMESTAMP"),
    "text": (StringType(), pa.string(), "it's null", "VARCHAR"),
    "bytes": (BinaryType(), pa.binary(), b"\xff\x00", "BLOB"),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_column_that_a_file_lacks_has_the_value_of_its_partition(catalog: SqlCatalog, name: str) -> None:
    type_, arrow, value, stored = VALUES[name]
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
    table = catalog.create_table(next(NAMES), fields(("user_id", LongType()), (name, type_)), partition_spec=spec)
    if name in {"bytes", "real", "single"}:
        table.append(pa.table({"user_id": [1], name: pa.array([value], arrow)}))
        assert refused(root(table)).code == "source-feature"
        return
    table.append(pa.table({"user_id": [1, 2], name: pa.array([value, None], arrow)}))
    expected = rows(root(table))
    assert expected == counted(table.scan().to_arrow())
    for file in root(table).rglob("*.parquet"):
        pq.write_table(pq.read_table(file, partitioning=None).select(["user_id"]), file)
    assert rows(root(table)) == expected == Counter({(1, value): 1, (2, None): 1})
    assert types(root(table))[name] == stored


def test_columns_have_the_types_of_the_table_and_nested_ones_do_not_exist(catalog: SqlCatalog) -> None:
    named = {name: type_ for name, (type_, *_) in VALUES.items()}
    nested = StructType(NestedField(90, "x", IntegerType()))
    table = catalog.create_table(next(NAMES), fields(*named.items(), ("id", UUIDType()), ("s", nested)))
    arrow = table.schema().as_arrow()
    values = {name: pa.array([value], type_) for name, (_, type_, value, _) in VALUES.items()}
    identity = UUID(int=7)
    values |= {"id": pa.array([identity.bytes], pa.uuid()), "s": pa.array([{"x": 1}], arrow.field("s").type)}
    table.append(pa.table(values))
    assert types(root(table)) == {**{name: stored for name, (*_, stored) in VALUES.items()}, "id": "UUID"}
    with closing(opened(root(table))) as engine:
        (row,) = table_of(engine, "SELECT * REPLACE (id::VARCHAR AS id) FROM memory.main.t").to_pylist()
    assert row == {**{name: value for name, (_, _, value, _) in VALUES.items()}, "id": str(identity)}


def with_entry(table: Table, content: DataFileContent, kind: FileFormat) -> None:
    """Add to the current snapshot a manifest with one file more."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    listed = snapshot.manifests(table.io)
    known = listed[0].fetch_manifest_entry(table.io)[0].data_file
    file = manifests.DataFile.from_args(
        content=content,
        file_path=known.file_path + ".more",
        file_format=kind,
        partition=Record("FR"),
        record_count=1,
        file_size_in_bytes=1,
    )

    class Writer(manifests.ManifestWriterV2):
        def content(self) -> ManifestContent:
            return ManifestContent.DATA if content is DataFileContent.DATA else ManifestContent.DELETES

    output = table.io.new_output(f"{table.location()}/metadata/more.avro")
    with Writer(table.spec(), table.schema(), output, snapshot.snapshot_id, "null") as writer:
        entry = ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED, snapshot_id=snapshot.snapshot_id, data_file=file
        )
        writer.add_entry(entry)
    path = Path(snapshot.manifest_list.removeprefix("file://"))
    target = table.io.new_output(snapshot.manifest_list + ".new")
    with manifests.write_manifest_list(2, target, snapshot.snapshot_id, None, 9, "null") as written:
        written.add_manifests([*listed, writer.to_manifest_file()])
    rewritten(table, {"manifest-list": f"file://{path}.new"})


def rewritten(table: Table, snapshot: dict[str, object] | None = None, **words: object) -> None:
    """Write the current metadata again with other words."""
    file = Path(table.metadata_location.removeprefix("file://"))
    told = json.loads(file.read_text())
    told.update({name.replace("_", "-"): value for name, value in words.items()})
    told["snapshots"][-1].update(snapshot or {})
    file.write_text(json.dumps(told))


@pytest.mark.parametrize("content", [DataFileContent.POSITION_DELETES, DataFileContent.EQUALITY_DELETES])
@pytest.mark.parametrize("kind", [FileFormat.PARQUET, FileFormat.AVRO])
def test_a_table_with_files_of_deleted_rows_is_refused(
    table: Table, content: DataFileContent, kind: FileFormat
) -> None:
    with_entry(table, content, kind)
    error = refused(root(table))
    assert (error.code, error.place) == ("source-feature", PLACE)
    assert "deleted rows" in error.reason


def test_data_files_that_are_not_parquet_or_not_there_are_refused(table: Table) -> None:
    with_entry(table, DataFileContent.DATA, FileFormat.ORC)
    assert refused(root(table)).code == "source-feature"
    rewritten(table, format_version=2)


def test_a_data_file_that_is_gone_is_missed(table: Table) -> None:
    data_file(table).unlink()
    assert refused(root(table)).code == "source-missing"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ({"format_version": 3, "next_row_id": 1}, "source-feature"),
        ({"format_version": 9}, "source-unreadable"),
        ({"snapshot": {"manifest-list": "s3://bucket/x.avro"}}, "source-outside"),
        ({"snapshot": {"manifest-list": "https://127.0.0.1:9/x.avro"}}, "source-outside"),
        ({"snapshot": {"manifest-list": "file:///etc/passwd"}}, "source-outside"),
        ({"snapshot": {"manifest-list": "relative/x.avro"}}, "source-outside"),
        ({"current_snapshot_id": 7}, "source-unreadable"),
        ({"schemas": "VICTIM"}, "source-unreadable"),
    ],
)
def test_metadata_that_are_refused(table: Table, words: dict[str, object], code: str) -> None:
    rewritten(table, **words)  # type: ignore[arg-type]
    error = refused(root(table))
    assert error.code == code
    assert "VICTIM" not in str(error)


def test_a_file_whose_columns_have_no_ids_is_refused(table: Table) -> None:
    file = data_file(table)
    pq.write_table(pa.table(pq.read_table(file, partitioning=None).to_pydict()), file)
    assert refused(root(table)).code == "source-schema"


def test_a_file_of_another_type_is_refused(table: Table) -> None:
    file = data_file(table)
    found = pq.read_table(file, partitioning=None)
    wider = found.schema.set(2, pa.field("n", pa.int64(), metadata=found.schema.field("n").metadata))
    pq.write_table(found.cast(wider), file)
    assert refused(root(table)).code == "source-schema"


def test_a_table_that_was_moved_is_refused_and_one_reached_by_a_link_is_read(table: Table, tmp_path: Path) -> None:
    expected = rows(root(table))
    (tmp_path / "link").symlink_to(root(table))
    assert rows(tmp_path / "link") == expected
    shutil.copytree(root(table), tmp_path / "moved")
    assert refused(tmp_path / "moved").code == "source-outside"


def test_the_newest_metadata_file_is_meant_or_the_one_that_is_named(table: Table) -> None:
    folder = root(table) / "metadata"
    older = Path(table.metadata_location.removeprefix("file://"))
    for _ in range(12):
        table.append(READS.slice(0, 1))
    newest = Path(table.metadata_location.removeprefix("file://"))
    assert newest.name > "00010"
    assert sum(rows(root(table)).values()) == 18
    assert sum(rows(older).values()) == 6
    for said, read in (
        (newest.name, True),
        (newest.name.removesuffix(".metadata.json") + "\n", True),
        (older.name, False),
        ("", False),
        ("99", False),
    ):
        (folder / "version-hint.text").write_text(said)
        if read:
            assert sum(rows(root(table)).values()) == 18
        else:
            assert refused(root(table)).code == "source-ambiguous", said
    (folder / "version-hint.text").unlink()
    shutil.copy(newest, folder / f"{newest.name.partition('-')[0]}-other.metadata.json")
    assert refused(root(table)).code == "source-ambiguous"
    assert sum(rows(newest).values()) == 18


def test_metadata_of_a_file_system_catalog_are_found_by_their_version(table: Table) -> None:
    folder = root(table) / "metadata"
    current = Path(table.metadata_location.removeprefix("file://"))
    for number, file in enumerate(sorted(folder.glob("*.metadata.json"))):
        file.rename(folder / f"v{number}.metadata.json")
    assert not current.exists()
    assert sum(rows(root(table)).values()) == 6
    (folder / "version-hint.text").write_text("1")
    assert sum(rows(root(table)).values()) == 6
    (folder / "v10.metadata.json").write_text("{}")
    assert refused(root(table)).code == "source-ambiguous"
    (folder / "version-hint.text").unlink()
    assert refused(root(table)).code == "source-unreadable"
    for file in folder.glob("*.metadata.json"):
        file.rename(folder / f"x{file.name}")
    assert refused(root(table)).code == "source-ambiguous"


def test_a_folder_that_is_two_tables_is_refused(table: Table) -> None:
    (root(table) / "_delta_log").mkdir()
    assert refused(root(table)).code == "source-ambiguous"


def test_the_package_is_asked_for_where_it_is_missing(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = root(table)
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    error = refused(folder)
    assert (type(error), error.code) == (UsageError, "not-installed")
    assert "dpsql[iceberg]" in error.hint


def test_what_is_materialized_is_made_again_when_columns_change_their_names(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    """The files stay as they are: what says which of their columns is which does not."""
    amounts = pa.table({"u": [1, 1, 2, 3], "price": [1] * 4, "cost": [9] * 4})
    table = catalog.create_table(next(NAMES), schema=amounts.schema)
    table.append(amounts)
    source = Path(table.location().removeprefix("file://"))
    bounds = {"price": {"max": 50}, "cost": {"max": 50}}
    tables = {"t": dpsql.PrivateTable("u", source=source, materialized=[[]], bounds=bounds)}
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), tables, materialized=tmp_path / "materialized")

    def price() -> tuple[int, str]:
        with materialized_kit.opened(None, policy) as over:
            found, told = materialized_kit.counted(over, "SELECT SUM(price) FROM t PRIVATE")
        return found.column(0)[0].as_py(), told

    assert materialize(policy) == {"t": "made"}
    assert price() == (4, "materialized counts of all rows")
    for old, new in (("price", "other"), ("cost", "price"), ("other", "cost")):
        with table.update_schema() as changed:
            changed.rename_column(old, new)
    assert price() == (36, "")
    assert any("does not match" in warning for warning in check_policy(policy).warnings)
    assert materialize(policy) == {"t": "made"}
    assert price() == (36, "materialized counts of all rows")
