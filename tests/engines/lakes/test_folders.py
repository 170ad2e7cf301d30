from __future__ import annotations

from collections import Counter
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.lake_kit import PLACE, opened, refused, rows, table_of, types, write

from dpsql.engines import lakes
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.duckdb.worker_engine import WorkerEngine
from dpsql.engines.lakes import find_folder
from dpsql.engines.sources import decode_folder, encode_folder
from dpsql.errors import EngineError


def test_all_parquet_files_below_a_folder_are_one_table(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", user_id=[1], page=["x"])
    write(tmp_path / "deep" / "er" / "b.PARQUET", user_id=[2], page=["y"])
    write(tmp_path / "deep.parquet" / "part-0.snappy.parquet", user_id=[2], page=["y"])
    assert rows(tmp_path) == Counter({(1, "x"): 1, (2, "y"): 2})


def test_what_spark_leaves_out_is_left_out(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", user_id=[1])
    for name in ("_b.parquet", ".c.parquet", "_temporary/0/d.parquet", ".trash/e.parquet", "f.parquet.tmp", "g.txt"):
        write(tmp_path / name, user_id=[666])
    (tmp_path / "_SUCCESS").touch()
    assert rows(tmp_path) == Counter({(1,): 1})
    write(tmp_path / "keyed" / "_land=DE" / "h.parquet", user_id=[2])
    assert rows(tmp_path / "keyed") == Counter({(2, "DE"): 1})


def test_keys_of_folders_are_columns_of_text_whatever_they_look_like(tmp_path: Path) -> None:
    """A type that is guessed from the names would change with one row."""
    for land, day in (
        ("DE", "1"),
        ("a%20b%2F%C3%BC%25", "02"),
        ("é = ü", "x"),
        ("__HIVE_DEFAULT_PARTITION__", ""),
        ("null", "2"),
    ):
        write(tmp_path / f"land={land}" / "sub" / f"day={day}" / "x.parquet", user_id=[1, 2])
    assert rows(tmp_path) == Counter(
        {
            (user, *keys): 1
            for user in (1, 2)
            for keys in (("DE", "1"), ("a b/ü%", "02"), ("é = ü", "x"), (None, ""), ("null", "2"))
        }
    )
    assert types(tmp_path) == {"user_id": "BIGINT", "land": "VARCHAR", "day": "VARCHAR"}


def test_each_row_has_the_keys_of_its_own_file(tmp_path: Path) -> None:
    for number in range(300):
        write(tmp_path / f"part={number}" / "x.parquet", user_id=[number] * 3, n=[1, 2, 3])
    with closing(opened(tmp_path)) as engine:
        (wrong,) = table_of(
            engine, "SELECT count(*) AS n FROM memory.main.t WHERE user_id::VARCHAR <> part"
        ).to_pylist()
        (all_,) = table_of(engine, "SELECT count(*) AS n, count(DISTINCT part) AS p FROM memory.main.t").to_pylist()
    assert (wrong["n"], all_["n"], all_["p"]) == (0, 900, 300)


def test_duckdb_and_pyarrow_write_partitions_that_are_read(tmp_path: Path) -> None:
    made = "SELECT range AS user_id, ['DE', 'a b', 'x/y=%', NULL, ''][1 + range % 5] AS land FROM range(50)"
    duckdb.execute(f"COPY ({made}) TO '{tmp_path / 'duckdb'}' (FORMAT parquet, PARTITION_BY (land))")
    expected = Counter(duckdb.sql(made).fetchall())
    null = None if duckdb.__version__ >= "1.5" else "NULL"  # which older ones write as they write that text
    assert rows(tmp_path / "duckdb") == Counter((n, null if land is None else land) for n, land in expected)
    table = duckdb.sql(made).to_arrow_table().filter(pa.compute.field("land") != "")
    pq.write_to_dataset(table, tmp_path / "arrow", partition_cols=["land"])
    assert rows(tmp_path / "arrow") == Counter({row: n for row, n in expected.items() if row[1]})


@pytest.mark.parametrize(
    "name", ["k=*/a.parquet", "k=1/*.parquet", "k=1/[ab].parquet", "k=1/?.parquet", "k=1/a\\b.parquet"]
)
def test_a_name_that_could_be_a_pattern_is_refused(tmp_path: Path, name: str) -> None:
    for plain in ("a", "b"):
        write(tmp_path / "k=1" / f"{plain}.parquet", user_id=[1])
    assert rows(tmp_path) == Counter({(1, "1"): 2})
    write(tmp_path / name, user_id=[1])
    assert refused(tmp_path).code == "source-unreadable"


def test_other_odd_names_are_read(tmp_path: Path) -> None:
    for number, name in enumerate(["it's", "{a,b}", "a b", "ü%20", "$x", '"']):
        write(tmp_path / f"k={name}" / f"{name}.parquet", user_id=[number])
    keys = ["it's", "{a,b}", "a b", "ü ", "$x", '"']
    assert rows(tmp_path) == Counter(dict.fromkeys(enumerate(keys), 1))


def test_columns_are_matched_by_name_and_must_be_alike(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", user_id=[1], page=["x"])
    write(tmp_path / "b.parquet", page=["y"], user_id=[2])
    assert rows(tmp_path) == Counter({(1, "x"): 1, (2, "y"): 1})
    for odd in (
        {"user_id": [3]},
        {"user_id": [3], "page": [1]},
        {"user_id": [3], "page": ["z"], "more": [1]},
        {"user_id": [3], "Page": ["z"]},
        {"user_id": [None], "page": ["z"]},
    ):
        write(tmp_path / "c.parquet", **odd)
        assert refused(tmp_path).code == "source-schema", odd


def test_types_are_those_that_duckdb_reads(tmp_path: Path) -> None:
    noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
    table = pa.table(
        {
            "d": pa.array([Decimal("1.10")], pa.decimal128(10, 2)),
            "f": pa.array([float("nan")], pa.float32()),
            "b": pa.array([b"\xff"]),
            "ts": pa.array([noon.replace(tzinfo=None)], pa.timestamp("us")),
            "tz": pa.array([noon], pa.timestamp("us", "UTC")),
            "s": pa.array([{"x": 1}]),
        }
    )
    (tmp_path / "x").mkdir()
    pq.write_table(table, tmp_path / "x" / "a.parquet")
    pq.write_table(table, tmp_path / "x" / "b.parquet", compression="zstd", use_dictionary=False)
    assert types(tmp_path / "x") == {
        "d": "DECIMAL(10,2)",
        "f": "FLOAT",
        "b": "BLOB",
        "ts": "TIMESTAMP",
        "tz": "TIMESTAMP WITH TIME ZONE",
        "s": "STRUCT",
    }
    with closing(opened(tmp_path / "x")) as engine:
        found = table_of(
            engine,
            "SELECT count(*) AS n, min(d)::VARCHAR AS d, min(f)::VARCHAR AS f, min(b)::VARCHAR AS b, "
            "min(tz) = TIMESTAMPTZ '2026-01-02 12:00:00+00' AS tz FROM memory.main.t",
        )
    assert found.to_pylist() == [{"n": 2, "d": "1.10", "f": "nan", "b": "\\xFF", "tz": True}]


def test_the_files_are_those_of_when_the_session_opened_and_are_read_anew(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", user_id=[1])
    with closing(opened(tmp_path)) as engine:
        write(tmp_path / "b.parquet", user_id=[2])
        assert table_of(engine).to_pylist() == [{"user_id": 1}]
        write(tmp_path / "a.parquet", user_id=[3, 4])
        assert table_of(engine).to_pylist() == [{"user_id": 3}, {"user_id": 4}]
        (tmp_path / "a.parquet").unlink()
        with pytest.raises(EngineError) as caught:
            table_of(engine)
    assert caught.value.code == "engine-failed"
    assert rows(tmp_path) == Counter({(2,): 1})


def test_nothing_but_its_files_can_be_read(tmp_path: Path) -> None:
    write(tmp_path / "t" / "a.parquet", user_id=[1])
    write(tmp_path / "t" / "_b.parquet", user_id=[2])
    with closing(opened(tmp_path / "t")) as engine:
        for name in ("_b.parquet", "*.parquet"):
            with pytest.raises(EngineError):
                table_of(engine, f"SELECT * FROM read_parquet('{tmp_path / 't' / name}')")


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (lambda _: None, "source-empty"),
        (lambda root: (root / "notes.txt").touch(), "source-empty"),
        (lambda root: (root / "a.parquet").write_text("VICTIM_SECRET"), "source-unreadable"),
        (
            lambda root: write(root / "b.parquet", user_id=[1]).with_name("a.parquet").write_bytes(b"PAR1PAR1"),
            "source-unreadable",
        ),
        (
            lambda root: (
                write(root / "x" / "a.parquet", user_id=[1]) and write(root / "k=1" / "a.parquet", user_id=[1])
            ),
            "source-schema",
        ),
        (
            lambda root: (
                write(root / "k=1" / "a.parquet", user_id=[1]) and write(root / "j=1" / "a.parquet", user_id=[1])
            ),
            "source-schema",
        ),
        (lambda root: write(root / "k=1" / "K=2" / "a.parquet", user_id=[1]), "source-schema"),
        (lambda root: write(root / "=1" / "a.parquet", user_id=[1]), "source-schema"),
        (lambda root: write(root / "k=%ff" / "a.parquet", user_id=[1]), "source-schema"),
        (lambda root: write(root / "user_id=1" / "a.parquet", user_id=[1]), "source-schema"),
        (lambda root: write(root / "USER_ID=1" / "a.parquet", user_id=[1]), "source-schema"),
        (lambda root: write(root / "k=1" / "a.parquet", user_id=[1], file_index=[7]), "source-schema"),
        (lambda root: write(root / "a.parquet", page=[1], Page=[1]), "source-schema"),
        (lambda root: (root / "_delta_log").mkdir(), "source-unreadable"),
        (
            lambda root: write(root / "sub" / "a.parquet", user_id=[1]) and (root / "sub" / "_delta_log").mkdir(),
            "source-ambiguous",
        ),
        (lambda root: (root / ".hoodie").mkdir(), "source-ambiguous"),
        (
            lambda root: write(root / "sub" / "a.parquet", user_id=[1]) and (root / "sub" / ".hoodie").mkdir(),
            "source-ambiguous",
        ),
    ],
)
def test_a_folder_that_is_refused(tmp_path: Path, made: object, code: str) -> None:
    root = tmp_path / "t"
    root.mkdir()
    made(root)  # type: ignore[operator]
    error = refused(root)
    assert error.code == code
    assert error.place == PLACE
    assert "VICTIM" not in str(error)


@pytest.mark.parametrize(
    "log",
    [
        "_delta_log",
        "metadata/v1.metadata.json",
        "metadata/v1.metadata.json.gz",
        "metadata/snap-1.avro",
        "metadata/version-hint.text",
    ],
)
def test_a_part_of_a_table_is_no_folder_of_parquet_files(tmp_path: Path, log: str) -> None:
    """Files of deleted rows lie there too."""
    write(tmp_path / "lake" / "t" / "data" / "k=1" / "a.parquet", user_id=[1])
    assert rows(tmp_path / "lake" / "t" / "data")
    (tmp_path / "lake" / "t" / log).mkdir(parents=True)
    for part in ("t/data/k=1", "t/data", ""):
        assert refused(tmp_path / "lake" / part).code == "source-ambiguous"


def test_links_below_a_folder_are_refused_and_the_folder_itself_may_be_one(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "a.parquet", user_id=[1])
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert rows(tmp_path / "link") == Counter({(1,): 1})
    for name, target in (("b.parquet", "a.parquet"), ("sub", "."), ("c.parquet", "../other.parquet")):
        link = tmp_path / "elsewhere" / name
        write(tmp_path / "other.parquet", user_id=[2])
        link.symlink_to(target)
        assert refused(tmp_path / "elsewhere").code == "source-outside"
        link.unlink()


def test_a_folder_that_is_not_there_or_may_not_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused(tmp_path / "none").code == "source-missing"
    write(tmp_path / "a.parquet", user_id=[1])

    def forbidden(*_: object, onerror: object, **__: object) -> list[object]:
        onerror(PermissionError("VICTIM"))  # type: ignore[operator]
        return []

    monkeypatch.setattr(lakes.os, "walk", forbidden)
    assert refused(tmp_path).code == "source-unreadable"
    monkeypatch.setattr(lakes, "_kinds", lambda _: forbidden(onerror=_raised))
    assert refused(tmp_path).code == "source-unreadable"


def _raised(error: OSError) -> None:
    raise error


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lakes, "MOST_FILES", 2)
    for name in "abc":
        write(tmp_path / f"{name}.parquet", user_id=[1])
    assert refused(tmp_path).code == "source-files"
    (tmp_path / "c.parquet").unlink()
    assert rows(tmp_path) == Counter({(1,): 2})


def test_a_folder_in_words_is_the_folder(tmp_path: Path) -> None:
    for key in ("1", "__HIVE_DEFAULT_PARTITION__"):
        write(tmp_path / f"k={key}" / "a.parquet", user_id=[1])
    folder = find_folder(tmp_path, place=PLACE)
    assert decode_folder(encode_folder(folder)) == folder


def test_a_worker_and_a_borrowed_connection_read_the_same(tmp_path: Path) -> None:
    for number in range(60):
        write(tmp_path / "t" / f"k={number}" / "a.parquet", user_id=[number, number])
    folder = find_folder(tmp_path / "t", place=PLACE)
    five = " UNION ALL ".join(["SELECT user_id, k FROM {t}"] * 5)
    with closing(WorkerEngine.open(None, {"t": folder}, memory_limit="1GB", threads=2)) as worker:
        assert table_of(
            worker, f"SELECT count(*) AS n, count(DISTINCT k) AS k FROM ({five.format(t='memory.main.t')})"
        ).to_pylist() == [{"n": 600, "k": 60}]  # type: ignore[arg-type]
        write(tmp_path / "t" / "k=60" / "a.parquet", user_id=[60])
        worker._drop()
        assert table_of(worker, "SELECT count(*) AS n FROM memory.main.t").to_pylist() == [{"n": 120}]  # type: ignore[arg-type]
    with closing(duckdb.connect()) as connection:
        connection.execute(
            "CREATE MACRO parquet_schema(x) AS TABLE SELECT 1; "
            "CREATE MACRO read_parquet(x) AS TABLE SELECT 1 AS user_id"
        )
        connection.execute("CREATE MACRO list_extract(a, b) AS 'x'; SET TimeZone = 'Asia/Tokyo'")
        with closing(DuckDBEngine.borrow(connection, {"t": folder})) as engine:
            assert table_of(engine, "SELECT count(*) AS n, count(DISTINCT k) AS k FROM temp.main.t").to_pylist() == [
                {"n": 120, "k": 60}
            ]
        assert connection.execute("SELECT count(*) FROM duckdb_views() WHERE view_name = 't'").fetchall() == [(0,)]
