"""What `dpsql init` finds out of a CSV file, the loader reads by it: the rows are those that were written."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from contextlib import closing
from datetime import date, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyarrow.feather import write_feather
from support.duckdb_kit import run

from dpsql.curator import check_policy, write_starter
from dpsql.dialects import CsvFormat
from dpsql.engines.duckdb import csv_guess
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.sources import Column, CsvFile, digest_versions
from dpsql.errors import EngineError, PolicyError
from dpsql.open_engine import list_sources, open_engine
from dpsql.policy import load_policy

ROWS = 200
SECRET = "VICTIM_SECRET"
Line, Row, Code = Callable[[int], str], Callable[[int], tuple[object, ...]], Callable[[str], bytes]


def pages(i: int) -> tuple[object, ...]:
    return i, f"p{i % 3}"


def zstd(text: str) -> bytes:
    return pa.compress(text.encode(), codec="zstd", asbytes=True)


def day(i: int) -> date:
    return date(2026, 2, i % 28 + 1)


CASES: dict[str, tuple[str, Line, Row, Code]] = {
    "good.csv": ("user_id,page\n", lambda i: f"{i},p{i % 3}\n", pages, str.encode),
    "semicolon.csv": ("user_id;page\n", lambda i: f"{i};p{i % 3}\n", pages, str.encode),
    "tab.tsv": ("user_id\tpage\n", lambda i: f"{i}\tp{i % 3}\n", pages, str.encode),
    "pipe.csv": ("user_id|page\r\n", lambda i: f"{i}|p{i % 3}\r\n", pages, str.encode),
    "packed.csv.gz": ("user_id|page\n", lambda i: f"{i}|p{i % 3}\n", pages, lambda text: gzip.compress(text.encode())),
    "packed.tsv.zst": ("user_id\tpage\n", lambda i: f"{i}\tp{i % 3}\n", pages, zstd),
    "index.csv": (",user_id,v\n", lambda i: f"{i},{i},7\n", lambda i: (i, i, 7), str.encode),
    "row_names.csv": ("user_id,v\n", lambda i: f'"{i}",{i},7\n', lambda i: (i, i, 7), str.encode),
    "trailing.csv": ("user_id,page,\n", lambda i: f"{i},p{i % 3},\n", lambda i: (*pages(i), None), str.encode),
    "trailing_rows.csv": ("user_id,page\n", lambda i: f"{i},p{i % 3},\n", lambda i: (*pages(i), None), str.encode),
    "trailing_header.csv": ("user_id,page,\n", lambda i: f"{i},p{i % 3}\n", pages, str.encode),
    "spaces.csv": ("user_id , page\n", lambda i: f'{i}, "p{i % 3}" \n', pages, str.encode),
    "comment.csv": ("# of 2026\nuser_id,page\n", lambda i: f"{i},p{i % 3}\n", pages, str.encode),
    "comments.csv": ("user_id;page\n", lambda i: f"{i};p{i % 3}\n# {i}\n", pages, str.encode),
    "preamble.csv": ("Report\nby x, y\n\nuser_id;v;w\n", lambda i: f"{i};1;2\n", lambda i: (i, 1, 2), str.encode),
    "excel.csv": ("sep=;\r\nuser_id;page\r\n", lambda i: f"{i};'p{i % 3}'\r\n", pages, str.encode),
    "empty_lines.csv": ("\nuser_id,page\n\n", lambda i: f"{i},p{i % 3}\n\n", pages, str.encode),
    "single.csv": ("user_id,v\n", lambda i: f"{i},'it''s, {i}'\n", lambda i: (i, f"it's, {i}"), str.encode),
    "backslash.csv": ("user_id,v\n", lambda i: f'{i},"a \\"{i}\\", b"\n', lambda i: (i, f'a "{i}", b'), str.encode),
    "inches.csv": ("user_id,v\n", lambda i: f'{i},{i}" pipe\n', lambda i: (i, f'{i}" pipe'), str.encode),
    "breaks.csv": ("user_id,v\n", lambda i: f'{i},"a\n""{i}"""\n', lambda i: (i, f'a\n"{i}"'), str.encode),
    "repeated.csv": ("user_id,v,V,v\n", lambda i: f"{i},1,2,3\n", lambda i: (i, 1, 2, 3), str.encode),
    "mac.csv": ("user_id,v\r", lambda i: f'{i},"a\r{i}"\r', lambda i: (i, f"a\r{i}"), str.encode),
    "latin.csv": ("user_id,v\n", lambda i: f"{i},Käse\n", lambda i: (i, "Käse"), lambda text: text.encode("latin-1")),
    "wide.csv": ("user_id;v\n", lambda i: f"{i};Käse €\n", lambda i: (i, "Käse €"), lambda text: text.encode("utf-16")),
    "bare.csv": ("user_id,v\n", lambda i: f"{i},Käse\n", lambda i: (i, "Käse"), lambda text: text.encode("utf-16-le")),
    "days.csv": ("user_id,d\n", lambda i: f"{i},{day(i):%d/%m/%Y}\n", lambda i: (i, day(i)), str.encode),
    "months.csv": ("user_id,d\n", lambda i: f"{i},{day(i):%m/%d/%y}\n", lambda i: (i, day(i)), str.encode),
    "combined.csv": (
        "\ufeff# export\r\nuser_id;price;'paid, on'\r\n",
        lambda i: f"{i};'{i + 1}.234,50';{day(i):%d.%m.%Y}\r\n\r\n",
        lambda i: (i, (i + 1) * 1000 + 234.5, day(i)),
        str.encode,
    ),
    "thousands.csv": ("user_id,v\n", lambda i: f'{i},"{i},000,500"\n', lambda i: (i, i * 10**6 + 500), str.encode),
    "decimal.csv": ("user_id;v\n", lambda i: f"{i};{i},25\n", lambda i: (i, i + 0.25), str.encode),
    "missing.csv": (
        "user_id,v,d,c\n",
        lambda i: f"{i},{'NA' if i % 2 else i},{'-' if i % 2 else '2026-02-01'},NULL\n",
        lambda i: (i, None if i % 2 else i, None if i % 2 else date(2026, 2, 1), "NULL"),
        str.encode,
    ),
    "quoted_na.csv": (
        "user_id,v\n",
        lambda i: f'{i},"{"NA" if i % 2 else i}"\n',
        lambda i: (i, "NA" if i % 2 else f"{i}"),
        str.encode,
    ),
    "wide_ids.csv": ("user_id,v\n", lambda i: f"{10**19 + i},7\n", lambda i: (f"{10**19 + i}", 7), str.encode),
    "one_column.csv": ("user_id\n", lambda i: f"{i}\n", lambda i: (i,), str.encode),
    "times.csv": (
        "user_id,ts\n",
        lambda i: f"{i},{day(i):%Y-%m-%d}T10:00:00Z\n",
        lambda i: (i, datetime(2026, 2, i % 28 + 1, 10)),  # noqa: DTZ001
        str.encode,
    ),
    "minutes.csv": (
        "user_id,ts\n",
        lambda i: f"{i},{day(i):%d/%m/%Y} 10:05\n",
        lambda i: (i, datetime(2026, 2, i % 28 + 1, 10, 5)),  # noqa: DTZ001
        str.encode,
    ),
    "one_offset.csv": (
        "user_id,ts\n",
        lambda i: f"{i},2026-02-01 23:00:00+02:00\n",
        lambda i: (i, datetime(2026, 2, 1, 23)),  # noqa: DTZ001
        str.encode,
    ),
    "offsets.csv": (
        "user_id,ts\n",
        lambda i: f"{i},2026-02-01T23:00:00{('Z', '-05:00')[i % 2]}\n",
        lambda i: (i, datetime(2026, 2, 1 + i % 2, (23, 4)[i % 2])),  # noqa: DTZ001
        str.encode,
    ),
}


PLAIN = ("good.csv", "breaks.csv", "quoted_na.csv", "wide_ids.csv", "one_column.csv", "times.csv", "one_offset.csv")


def propose(path: Path) -> Path:
    """Write the policy that `dpsql init` proposes beside the file."""
    policy = path.with_name("policy.toml")
    policy.write_text(write_starter(path, beside=path.parent).text)
    return policy


def load(policy: Path) -> list[tuple[object, ...]]:
    """Return the rows of the only table, as the session has them."""
    with closing(open_engine(None, load_policy(policy))) as engine:
        (name,) = load_policy(policy).tables
        relation = ".".join(f'"{part}"' for part in engine.relation(name))
        return [tuple(row.values()) for row in run(engine, f"SELECT * FROM {relation}").to_pylist()]


@pytest.mark.parametrize("name", CASES)
def test_what_init_proposes_is_what_the_loader_reads(tmp_path: Path, name: str) -> None:
    head, line, row, code = CASES[name]
    path = tmp_path / name
    path.write_bytes(code(head + "".join(map(line, range(ROWS)))))
    policy = propose(path)
    check_policy(policy)
    assert load(policy) == list(map(row, range(ROWS)))
    assert (".csv]" in policy.read_text()) == (name not in PLAIN)


@pytest.mark.parametrize("name", ["semicolon.csv", "decimal.csv", "comment.csv", "days.csv", "single.csv", "mac.csv"])
def test_the_rows_are_those_that_duckdb_reads(tmp_path: Path, name: str) -> None:
    head, line, _, code = CASES[name]
    path = tmp_path / name
    path.write_bytes(code(head + "".join(map(line, range(ROWS)))))
    options = ", decimal_separator = ','" if name == "decimal.csv" else ""
    plain = duckdb.execute(f"FROM read_csv('{path}'{options})").fetchall()
    assert load(propose(path)) == plain
    assert len(plain) == ROWS


@pytest.mark.parametrize("name", ["semicolon.csv", "days.csv", "combined.csv", "missing.csv", "offsets.csv", "mac.csv"])
def test_later_rows_change_nothing_that_was_guessed(tmp_path: Path, name: str) -> None:
    """A row is read as the policy says, or the file is refused, in words that do not depend on it."""
    head, line, row, code = CASES[name]
    path = tmp_path / name
    text = head + "".join(map(line, range(ROWS)))
    path.write_bytes(code(text))
    policy = propose(path)
    path.write_bytes(code(text + line(ROWS)))
    assert load(policy) == list(map(row, range(ROWS + 1)))
    sep = next(mark for mark in "|;," if mark in line(0))
    reasons = set()
    for last in (f"{SECRET}{sep}x", SECRET, f"1{sep}{SECRET}{sep * 9}2", f"{sep * 9}", f"1{sep}2\r3{sep}4\r\n"):
        path.write_bytes(code(text + last + "\n"))
        with pytest.raises(EngineError) as caught:
            load(policy)
        assert SECRET not in repr(caught.value)
        reasons.add(str(caught.value))
    assert len(reasons) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("user_id,d\n" + "3,01/02/2026\n" * 9, "which number is the day"),
        ("user_id,v\n" + '3,"1,500"\n' * 9, "which sign is the decimal point"),
        ("user_id;v\n" + "3;1.500\n" * 9, "which sign is the decimal point"),
        ("user_id,ts\n" + "3,2026-01-01T00:00:00+02:00\n" * 9, "offsets of these times are dropped"),
        ("user_id,ts\n3,2026-01-01T00:00:00+02:00\n3,2026-01-01T00:00:00-02:00\n", "converted to UTC"),
        ("user_id,d,e\n" + "3,31/01/2026,2026-01-31\n" * 9, "written otherwise"),
        ("user_id,v\n" + "3,7\n" * 50 + f"3,{SECRET}\n", "all values but a few are BIGINT"),
    ],
)
def test_the_policy_says_what_the_rows_do_not(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(text)
    policy = propose(path).read_text()
    assert words in policy
    assert SECRET not in policy
    assert check_policy(tmp_path / "policy.toml") is not None


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("empty.csv", b"", "The file is empty"),
        ("blank.csv", b"\xef\xbb\xbf\r\n\r\n", "The file is empty"),
        ("empty.csv.gz", gzip.compress(b"", mtime=0), "The file is empty"),
        ("cut.csv.gz", gzip.compress(b"user_id,v\n" + b"1,2\n" * 9999, mtime=0)[:-9], "cannot be read as CSV"),
        ("windows.csv", "user_id,v\n1,“x”\n".encode("cp1252"), "iconv -f WINDOWS-1252"),
        ("footer.csv", b"user_id,v\n" + b"1,2\n" * 50 + b"\n\nTotal\n", "Line 54 of the file"),
        ("fields.csv", b"user_id,v,w\n1,2\n3,4,5\n", "Line 2 of the file"),
        ("both.csv", b"Report, 2026\n\nuser_id,v\n" + b"1,2\n" * 50 + b"\n\nTotal\n", "Line 56 of the file"),
        ("quote.csv", b'# a\nuser_id,v\n1,"x\n"\n2,"VICTIM_SECRET\n', "Line 5 of the file"),
    ],
)
def test_a_file_that_no_format_reads(tmp_path: Path, name: str, data: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(EngineError) as caught:
        propose(tmp_path / name)
    assert caught.value.code == "source-unreadable"
    assert words in str(caught.value)
    assert SECRET not in repr(caught.value)


def test_the_hint_for_a_footer_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "it's.csv").write_text("user_id;v\n" + "".join(f"{i};p{i}\n" for i in range(ROWS)) + "Total of all\n")
    with pytest.raises(EngineError) as caught:
        propose(Path("it's.csv"))
    copy = caught.value.hint.partition("DuckDB: ")[2].partition("; null_padding")[0]
    duckdb.execute(copy)
    assert duckdb.execute('SELECT count(*), min(user_id) FROM "it\'s.parquet"').fetchall() == [(ROWS, 0)]
    assert 'source = "it\'s.parquet"' in write_starter(Path("it's.parquet"), beside=tmp_path).text


@pytest.mark.parametrize(
    ("name", "data"),
    [("x.jsonl", b'{"user_id": 1}\n'), ("it's.json", b'[{"user_id": 1}]'), ("x.txt", b"user_id;v\n1;2\n3;4\n")],
)
def test_the_hint_for_another_kind_of_file_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, data: bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(data)
    with pytest.raises(PolicyError) as caught:
        write_starter(Path(name))
    duckdb.execute(caught.value.hint.partition("DuckDB: ")[2].partition(";")[0].rstrip("."))
    assert "user_id" in write_starter(Path(name).with_suffix(".parquet")).text


def test_feather_and_excel_have_hints_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_feather(pa.table({"user_id": [1, 2]}), "x.feather")
    with pytest.raises(PolicyError) as caught:
        write_starter(Path("x.feather"))
    exec(caught.value.hint.partition("Python: ")[2].rstrip("."), {})
    assert "user_id" in write_starter(Path("x.parquet")).text
    (tmp_path / "x.xlsx").write_bytes(b"PK\x03\x04")
    with pytest.raises(PolicyError, match=r"COPY \(FROM read_xlsx\('x.xlsx'\)\) TO 'x.parquet'"):
        write_starter(Path("x.xlsx"))


def test_files_in_folders(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("x.csv", "x.tsv", "b/y.csv"):
        (tmp_path / "a" / name).write_text("user_id;v\n1;2\n3;4\n")
    text = write_starter(tmp_path / "a", beside=tmp_path).text
    assert "[tables.x]" in text
    assert "[tables.x_2.csv]" in text
    assert "a/b/y.csv" not in text
    (tmp_path / "top").mkdir()
    (tmp_path / "a").rename(tmp_path / "top" / "a")
    for place in (tmp_path / "top", tmp_path / "top" / "a" / "*.csv"):
        with pytest.raises(EngineError) as caught:
            write_starter(place)
        copy = caught.value.hint.partition("DuckDB: ")[2].rstrip(".")
        assert len(duckdb.execute(copy.removeprefix("COPY (").partition(") TO ")[0]).fetchall()) in {2, 4}


def test_another_format_is_other_data(tmp_path: Path) -> None:
    """Answers that were stored are of the rows as they were read, so a new format is a new version of the data."""
    (tmp_path / "x.csv").write_text("user_id,v,w\n1,2,3\n")
    columns, found = (Column("user_id", "BIGINT"), Column("v", "BIGINT")), set()
    for form in (None, CsvFormat(), CsvFormat(names=("user_id", "w", "v"))):
        found.add(digest_versions(None, {"x": CsvFile(tmp_path / "x.csv", columns, form)})["x"])
    assert len(found) == 3


def test_the_worker_reads_by_the_format(tmp_path: Path) -> None:
    head, line, row, code = CASES["combined.csv"]
    path = tmp_path / "combined.csv"
    path.write_bytes(code(head + "".join(map(line, range(ROWS)))))
    policy = load_policy(propose(path))
    with closing(open_engine(None, policy, isolation="process")) as engine:
        relation = ".".join(engine.relation("combined"))
        found = run(engine, f'SELECT count(*) AS n, sum(price) AS s, max("paid, on") AS d FROM {relation}').to_pylist()
    rows = list(map(row, range(ROWS)))
    assert found == [{"n": ROWS, "s": sum(each[1] for each in rows), "d": date(2026, 2, 28)}]


def test_the_users_time_zone_changes_no_value(tmp_path: Path) -> None:
    head, line, row, code = CASES["offsets.csv"]
    path = tmp_path / "offsets.csv"
    path.write_bytes(code(head + "".join(map(line, range(ROWS)))))
    sources = list_sources(load_policy(propose(path)))
    with closing(duckdb.connect()) as lender:
        lender.execute("SET TimeZone = 'Asia/Tokyo'")
        with closing(DuckDBEngine.borrow(lender, sources)) as engine:
            relation = ".".join(engine.relation("offsets"))
            found = run(engine, f"SELECT * FROM {relation}").to_pylist()
    assert [tuple(each.values()) for each in found] == list(map(row, range(ROWS)))


def test_a_long_file_is_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB's sniffer sees the first part of a file; what comes behind it counts, too."""
    monkeypatch.setattr(csv_guess, "_SAMPLE", 1000)
    (tmp_path / "x.csv").write_text("user_id;v\n" + "1;2\n" * 5000 + '1;"a;\nb"\n')
    assert load(propose(tmp_path / "x.csv"))[-2:] == [(1, "2"), (1, "a;\nb")]
