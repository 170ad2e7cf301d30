"""Delta Lake tables that deltalake itself wrote and changed: dpsql reads the rows that deltalake reads, or refuses."""

from __future__ import annotations

import base64
import json
import shutil
import string
import sys
from collections import Counter
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyroaring import BitMap
from support.lake_kit import PLACE, counted, opened, refused, rows, table_of, types

from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.duckdb.worker_engine import WorkerEngine
from dpsql.engines.lakes import find_folder
from dpsql.errors import UsageError

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
READS = pa.table({"user_id": [1, 2, 3, 4, 5, 6], "land": ["DE", "a b/ü%=", None, "FR", "DE", "FR"], "n": [1] * 6})


def same(path: Path) -> bool:
    """Say whether dpsql reads what deltalake reads, and how many."""
    theirs = pa.table(DeltaTable(path).to_pyarrow_table())
    return rows(path) == counted(theirs)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    write_deltalake(tmp_path / "t", READS, partition_by=["land"])
    return tmp_path / "t"


def test_what_is_deleted_updated_and_merged_is_read_as_it_is_now(table: Path) -> None:
    assert same(table)
    DeltaTable(table).delete("user_id = 1")
    assert (same(table), sum(rows(table).values())) == (True, 5)
    DeltaTable(table).update({"n": "n + 10"}, predicate="land = 'FR'")
    source = pa.table({"user_id": [4, 9], "land": ["FR", "IT"], "n": [7, 8]})
    merge = DeltaTable(table).merge(source, "t.user_id = s.user_id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    write_deltalake(table, READS.slice(0, 1), mode="append")
    assert same(table)
    expected = {(1, "DE", 1), (2, "a b/ü%=", 1), (3, None, 1), (4, "FR", 7), (5, "DE", 1), (6, "FR", 11), (9, "IT", 8)}
    assert rows(table) == Counter(expected)
    DeltaTable(table).optimize.compact()
    DeltaTable(table).create_checkpoint()
    assert rows(table) == Counter(expected)
    DeltaTable(table).delete()
    assert rows(table) == Counter()
    assert types(table) == {"user_id": "BIGINT", "land": "VARCHAR", "n": "BIGINT"}


def test_files_of_deleted_rows_and_of_other_versions_are_not_read(table: Path) -> None:
    DeltaTable(table).delete("land = 'DE'")
    shutil.copy(next(table.glob("land=FR/*.parquet")), table / "land=FR" / "stray.parquet")
    assert len(list(table.rglob("*.parquet"))) > len(rows(table))
    assert same(table)


def test_the_version_is_that_of_when_the_session_opened(table: Path) -> None:
    with closing(opened(table)) as engine:
        DeltaTable(table).delete("user_id > 2")
        assert table_of(engine).num_rows == 6
    assert sum(rows(table).values()) == 2


def test_a_column_that_was_added_is_null_in_older_files(table: Path) -> None:
    write_deltalake(
        table, pa.table({"user_id": [7], "land": ["DE"], "n": [1], "more": ["x"]}), mode="append", schema_mode="merge"
    )
    assert same(table)
    with closing(opened(table)) as engine:
        more = counted(table_of(engine, "SELECT user_id, more FROM memory.main.t"))
    assert more == Counter({**{(number, None): 1 for number in range(1, 7)}, (7, "x"): 1})


def test_partition_values_have_the_types_of_the_table(tmp_path: Path) -> None:
    values = {
        "long": pa.array([1, -(2**63), None]),
        "small": pa.array([1, -128, None], pa.int8()),
        "day": [date(2026, 1, 2), date(1969, 12, 31), None],
        "dec": pa.array([Decimal("1.10"), Decimal("9999999.99"), None], pa.decimal128(9, 2)),
        "flag": [True, False, None],
        "real": [0.1, float("inf"), None],
        "moment": pa.array([NOON, NOON, None], pa.timestamp("us", "UTC")),
        "clock": pa.array([NOON.replace(tzinfo=None)] * 2 + [None], pa.timestamp("us")),
        "text": ["it's", "null", None],
    }
    write_deltalake(tmp_path, pa.table({"user_id": [1, 2, 3], **values}), partition_by=list(values))
    assert same(tmp_path)
    assert list(types(tmp_path).values()) == [
        *["BIGINT", "BIGINT", "TINYINT", "DATE", "DECIMAL(9,2)", "BOOLEAN", "DOUBLE", "TIMESTAMP WITH TIME ZONE"],
        *["TIMESTAMP", "VARCHAR"],
    ]


@pytest.mark.parametrize(("values", "code"), [([b"x"], "source-feature"), ([{"x": 1}], "source-unreadable")])
def test_partitions_of_other_types_are_refused(tmp_path: Path, values: list[object], code: str) -> None:
    write_deltalake(tmp_path, pa.table({"user_id": [1], "part": values}))
    rewritten(tmp_path, metaData={"partitionColumns": ["part"]}, add={"partitionValues": {"part": "x"}})
    assert refused(tmp_path).code == code


def test_columns_have_the_types_of_the_table_and_nested_ones_do_not_exist(tmp_path: Path) -> None:
    table = pa.table(
        {
            "a": pa.array([1], pa.int16()),
            "f": pa.array([float("nan")], pa.float32()),
            "d": pa.array([Decimal("1.10")], pa.decimal128(20, 2)),
            "b": [b"\xff\x00"],
            "tz": pa.array([NOON], pa.timestamp("us", "UTC")),
            "ts": pa.array([NOON.replace(tzinfo=None)], pa.timestamp("us")),
            "s": [{"x": 1}],
            "l": [[1]],
        }
    )
    write_deltalake(tmp_path, table)
    assert types(tmp_path) == {
        "a": "SMALLINT",
        "f": "FLOAT",
        "d": "DECIMAL(20,2)",
        "b": "BLOB",
        "tz": "TIMESTAMP WITH TIME ZONE",
        "ts": "TIMESTAMP",
    }
    theirs = pa.table(DeltaTable(tmp_path).to_pyarrow_table()).drop_columns(["s", "l", "f"]).to_pylist()
    with closing(opened(tmp_path)) as engine:
        assert table_of(engine, "SELECT a, d, b, tz, ts FROM memory.main.t WHERE isnan(f)").to_pylist() == theirs


def test_moments_as_spark_writes_them_are_the_same_moments(tmp_path: Path) -> None:
    table = pa.table({"user_id": [1], "tz": pa.array([NOON], pa.timestamp("us", "UTC"))})
    write_deltalake(tmp_path, table)
    write_deltalake(tmp_path, table, mode="append")
    file = next(tmp_path.glob("*.parquet"))
    pq.write_table(table, file, use_deprecated_int96_timestamps=True)
    assert rows(tmp_path) == Counter({(1, NOON): 2})
    with closing(duckdb.connect()) as connection:
        connection.execute("SET GLOBAL TimeZone = 'America/New_York'")
        with closing(DuckDBEngine.borrow(connection, {"t": find_folder(tmp_path, place=PLACE)})) as engine:
            (row,) = table_of(
                engine, "SELECT count(DISTINCT tz) AS n, max(epoch_us(tz)) AS us FROM temp.main.t"
            ).to_pylist()
    assert row == {"n": 1, "us": int(NOON.timestamp()) * 10**6}


def test_files_may_have_narrower_numbers_each_its_own(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        write_deltalake(
            tmp_path, pa.table({"user_id": [number], "d": pa.array([Decimal(1)], pa.decimal128(9, 2))}), mode="append"
        )
    narrow = [(pa.int8(), pa.decimal128(4, 2)), (pa.int32(), pa.decimal128(9, 2)), (pa.int16(), pa.decimal128(5, 2))]
    for number, (file, (whole, exact)) in enumerate(zip(sorted(tmp_path.glob("*.parquet")), narrow, strict=True)):
        values = {"user_id": pa.array([100**number], whole), "d": pa.array([Decimal(10**number)], exact)}
        pq.write_table(pa.table({**values, f"dropped{number}": [1]}), file)
    assert rows(tmp_path) == Counter({(100**number, Decimal(10**number)): 1 for number in range(3)})
    pq.write_table(pa.table({"user_id": [1.5], "d": [Decimal(1)]}), file)
    assert refused(tmp_path).code == "source-schema"


def test_the_log_says_what_a_file_is_partitioned_by_whatever_stands_in_it(table: Path) -> None:
    expected = rows(table)
    for file in table.rglob("*.parquet"):
        found = pq.read_table(file, partitioning=None)
        pq.write_table(found.append_column("land", pa.array(["XX"] * found.num_rows)), file)
    assert rows(table) == expected


def rewritten(path: Path, *, add: dict[str, object] | None = None, **actions: dict[str, object]) -> None:
    """Write the first version of the log again, with other words in its actions."""
    log = path / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        for kind, words in {**actions, "add": add or {}}.items():
            if kind in line:
                line[kind] = {**line[kind], **words}
    log.write_text("\n".join(map(json.dumps, lines)) + "\n")


def features(*names: str) -> dict[str, object]:
    words = {"readerFeatures": list(names), "writerFeatures": list(names)}
    return {"minReaderVersion": 3, "minWriterVersion": 7, **words}


VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "offset": 4,
    "sizeInBytes": 40,
    "cardinality": 6,
}
ID = "delta.columnMapping.id"
NAME = "delta.columnMapping.physicalName"
MAPPED = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"}


def schema(*fields: tuple[str, str, dict[str, object]]) -> str:
    described = [{"name": name, "type": type_, "nullable": True, "metadata": more} for name, type_, more in fields]
    return json.dumps({"type": "struct", "fields": described})


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"protocol": features("deletionVectors"), "add": {"deletionVector": VECTOR}}, "source-feature"),
        ({"add": {"deletionVector": VECTOR}}, "source-feature"),
        (
            {
                "protocol": {"minReaderVersion": 2, "minWriterVersion": 5},
                "metaData": {
                    "configuration": MAPPED,
                    "schemaString": schema(
                        ("user_id", "long", {ID: 1, NAME: "n"}), ("n", "long", {ID: 2, NAME: "user_id"})
                    ),
                },
            },
            "source-feature",
        ),
        ({"protocol": features("columnMapping")}, "source-feature"),
        ({"protocol": features("typeWidening")}, "source-feature"),
        ({"protocol": features("vacuumProtocolCheck")}, "source-feature"),
        ({"protocol": features("wonderful")}, "source-unreadable"),
        ({"protocol": {"minReaderVersion": 9}}, "source-unreadable"),
        ({"add": {"path": "file:///etc/passwd"}}, "source-outside"),
        ({"add": {"path": "../other.parquet"}}, "source-outside"),
        ({"add": {"path": "s3://bucket/other.parquet"}}, "source-outside"),
        ({"add": {"path": "none.parquet"}}, "source-missing"),
        ({"metaData": {"schemaString": schema(("user_id", "integer", {}))}}, "source-schema"),
        ({"metaData": {"schemaString": schema(("USER_ID", "long", {}))}}, "source-schema"),
        ({"metaData": {"schemaString": schema(("user_id", "long", {}), ("User_Id", "long", {}))}}, "source-unreadable"),
        (
            {"metaData": {"schemaString": schema(("user_id", "long", {"delta.columnMapping.physicalName": "n"}))}},
            "source-feature",
        ),
        ({"metaData": {"schemaString": schema(("user_id", "long", {"delta.typeChanges": []}))}}, "source-feature"),
        ({"metaData": {"schemaString": "VICTIM"}}, "source-unreadable"),
        ({"metaData": {"schemaString": schema(("s", {"type": "struct", "fields": []}, {}))}}, "source-schema"),  # type: ignore[arg-type]
    ],
)
def test_a_table_that_is_refused(tmp_path: Path, changes: dict[str, dict[str, object]], code: str) -> None:
    write_deltalake(tmp_path / "t", READS)
    rewritten(tmp_path / "t", **changes)
    pq.write_table(READS, tmp_path / "other.parquet")
    error = refused(tmp_path / "t")
    assert (error.code, error.place) == (code, PLACE)
    assert "VICTIM" not in str(error)


def vector(*positions: int) -> dict[str, object]:
    """Return a deletion vector that stands in the log itself: a bitmap of positions in the file, in Z85."""
    bitmap = BitMap(positions).serialize()
    data = (1681511377).to_bytes(4, "little") + (1).to_bytes(8, "little") + bytes(4) + bitmap
    padded = data + bytes(-len(data) % 4)
    z85 = string.digits + string.ascii_lowercase + string.ascii_uppercase + ".-:+=^!/*?&<>()[]{}@%$#"
    b85 = string.digits + string.ascii_uppercase + string.ascii_lowercase + "!#$%&()*+-;<=>?@^_`{|}~"
    text = base64.b85encode(padded).decode().translate(str.maketrans(b85, z85))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data), "cardinality": len(positions)}


def test_rows_that_a_vector_deletes_are_never_counted(tmp_path: Path) -> None:
    """The package lists such a file like any other; that it has deleted rows is asked apart."""
    write_deltalake(tmp_path, READS)
    rewritten(tmp_path, protocol=features("deletionVectors"), add={"deletionVector": vector(0, 5)})
    table = DeltaTable(tmp_path)
    assert len(table.file_uris()) == len(pa.table(table.get_add_actions())) == 1
    ((mask,),) = (row.values() for row in pa.table(table.deletion_vectors().read_all()).select([1]).to_pylist())
    assert mask == [False, True, True, True, True, False]
    assert refused(tmp_path).code == "source-feature"


@pytest.mark.parametrize(
    "protocol",
    [
        features("deletionVectors", "timestampNtz", "v2Checkpoint"),
        features(),
        {"minReaderVersion": 2, "minWriterVersion": 5},
    ],
)
def test_a_table_that_may_have_deletion_vectors_and_has_none_is_read(
    tmp_path: Path, protocol: dict[str, object]
) -> None:
    write_deltalake(tmp_path, READS)
    rewritten(tmp_path, protocol=protocol)
    assert rows(tmp_path) == counted(READS)


def test_a_file_that_is_named_twice_or_is_a_link_is_refused(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", READS)
    file = next((tmp_path / "t").glob("*.parquet"))
    shutil.move(file, tmp_path / "other.parquet")
    file.symlink_to(tmp_path / "other.parquet")
    assert refused(tmp_path / "t").code == "source-outside"


def test_a_table_that_was_moved_is_read_where_it_is(table: Path, tmp_path: Path) -> None:
    expected = rows(table)
    shutil.move(table, tmp_path / "it's (moved) ü")
    assert rows(tmp_path / "it's (moved) ü") == expected
    (tmp_path / "link").symlink_to(tmp_path / "it's (moved) ü")
    assert rows(tmp_path / "link") == expected


@pytest.mark.parametrize("name", ["x%20y", "a#b", "q?", "ü", "a+b"])
def test_a_folder_whose_name_means_something_in_an_address_is_that_folder(tmp_path: Path, name: str) -> None:
    """Its neighbour has files of the same names, and a row more."""
    write_deltalake((tmp_path / "x y").as_uri(), READS)
    shutil.copytree(tmp_path / "x y", tmp_path / name)
    if name in {"x%20y", "q?"}:
        assert refused(tmp_path / name).code == "source-unreadable"
    else:
        DeltaTable((tmp_path / name).as_uri()).delete("user_id = 1")
        assert sum(rows(tmp_path / name).values()) == 5


def test_a_worker_reads_the_version_that_was_found_and_so_does_the_one_that_replaces_it(table: Path) -> None:
    with closing(
        WorkerEngine.open(None, {"t": find_folder(table, place=PLACE)}, memory_limit="1GB", threads=2)
    ) as worker:
        assert counted(table_of(worker)) == counted(READS.select(["user_id", "land", "n"]))  # type: ignore[arg-type]
        DeltaTable(table).delete("user_id > 2")
        worker._drop()
        assert table_of(worker).num_rows == 6  # type: ignore[arg-type]


def test_the_package_is_asked_for_where_it_is_missing(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    error = refused(table)
    assert (type(error), error.code) == (UsageError, "not-installed")
    assert "dpsql[delta]" in error.hint
