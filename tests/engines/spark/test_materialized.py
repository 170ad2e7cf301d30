"""Materialized tables of Spark: Parquet in the warehouse, the same answers as rows, and one build after another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from support.engine_kit_spark import OPTIONS, URL, folder
from support.fuzzing import part_of
from support.materialized_kit import BOUNDS, SETS, add_amounts, counted, events, policy
from support.materialized_statements import asked, measured

import dpsql
from dpsql.connect import open_session
from dpsql.curator import check_policy, materialize
from dpsql.engines import Engine
from dpsql.engines import spark as spark_engine
from dpsql.materialized import build
from dpsql.open_engine import open_engine

SALTS = 11, 7
TOP = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 5 PRIVATE WITH (mechanism = {})"
PLAIN = TOP.format("limited_domain")
BOUNDED = TOP.format("limited_domain, max_groups_contributed = 2")
OF_OTHERS = PLAIN.replace("GROUP BY", "WHERE user_id <> 3 GROUP BY")
TOTAL = "SELECT COUNT(*) FROM reads PRIVATE"


def spark_policy(
    place: Path, *, schema: str, sets: tuple[tuple[str, ...], ...], bounds: dict[str, object]
) -> dpsql.Policy:
    """Write the events as Parquet, and return the policy of the kit over these."""
    if not (place / "reads.parquet").exists():
        events(place / "events.duckdb", rows=400, seed=3)
        add_amounts(place / "events.duckdb")
        with duckdb.connect(str(place / "events.duckdb")) as connection:
            for table in ("reads", "visits", "places"):
                kind = "* REPLACE (kind::VARCHAR AS kind)" if table != "places" else "*"
                connection.execute(f"COPY (SELECT {kind} FROM {table}) TO '{place / table}.parquet'")
    known = policy(place, sets=sets, bounds=bounds)
    tables = {name: replace(table, source=place / f"{name}.parquet") for name, table in known.tables.items()}
    options = {**OPTIONS, "spark.sql.warehouse.dir": str(folder())}
    return dpsql.Policy(known.budget, tables, source=dpsql.DataSource(URL, options=options, materialized=schema))


@contextmanager
def opened(known: dpsql.Policy, *, materialized: bool = True) -> Iterator[tuple[Engine, dpsql.Session]]:
    engine = open_engine(None, known, materialized=materialized)
    with open_session(engine, known, ledger=":memory:") as session:
        session._plans.salts = SALTS
        yield engine, session


def test_what_is_materialized_counts_as_the_rows_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_draw_salts", lambda _: SALTS)
    known = spark_policy(tmp_path, schema="same", sets=((), *SETS[:1]), bounds=BOUNDS)
    assert materialize(known) == {"reads": "made"}
    read = dict[str, int]()
    with opened(known) as short, opened(known, materialized=False) as long:
        for text in [PLAIN, BOUNDED, OF_OTHERS, *part_of(asked(), every=300), *part_of(measured(), every=300)]:
            try:
                expected, rows = counted(long, text)
            except (dpsql.Unsupported, dpsql.Refusal):
                continue
            found, told = counted(short, text)
            assert rows == ""
            if not told.startswith("materialized ranks") or "(" not in text.partition(",")[0]:  # drawn with more keys
                assert found.to_pylist() == expected.to_pylist(), (text, told)
            kind = " ".join(told.split()[:2])
            read[kind] = read.get(kind, 0) + 1
    assert {*read} >= {"materialized pairs", "materialized ranks", "materialized counts"}, read


def test_builds_follow_each_other_and_old_ones_are_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = spark_policy(tmp_path, schema="follow", sets=((),), bounds={"rows": 5})
    assert "materialize" in str(check_policy(known).warnings)
    materialize(known)
    assert "materialize" not in str(check_policy(known).warnings)
    with opened(known) as before:
        first, told = counted(before, TOTAL)
        assert told == "materialized counts of all rows"
        with duckdb.connect(str(tmp_path / "events.duckdb")) as connection:
            rows = "SELECT * REPLACE (kind::VARCHAR AS kind) FROM reads WHERE user_id < 5"
            connection.execute(f"COPY ({rows}) TO '{tmp_path}/reads.parquet'")
        assert materialize(known) == {"reads": "made"}
        assert counted(before, TOTAL)[0].equals(first)  # an open session reads its build
    with opened(known) as after:
        second = counted(after, TOTAL)[0]
        assert second.column(0)[0].as_py() < first.column(0)[0].as_py()
    monkeypatch.setattr(spark_engine, "_KEPT", -1)
    materialize(known)
    sizes = [
        sum(duckdb.sql(f"SELECT 1 FROM '{file}'").fetchall() != [] for file in place.glob("*.parquet"))
        for place in sorted((folder() / "follow").glob("m_*_counts_0"))
    ]
    assert sorted(sizes) == [0, 0, 1]
    with opened(known) as last:
        assert counted(last, TOTAL)[0].equals(second)


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    known = spark_policy(tmp_path, schema="full", sets=((),), bounds={"rows": 5})
    (folder() / "full").write_text("no folder")
    with pytest.raises(dpsql.EngineError) as caught:
        materialize(known)
    assert (caught.value.code, caught.value.__context__) == ("prepare-failed", None)
