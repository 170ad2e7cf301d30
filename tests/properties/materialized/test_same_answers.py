"""Counts from materialized tables equal counts from rows: keys, counts, weights, order and types."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.fuzzing import part_of
from support.materialized_kit import (
    BOUNDS,
    SETS,
    add_amounts,
    counted,
    counted_by_each,
    events,
    opened,
    policy,
    salts_of,
)
from support.materialized_statements import asked, measured

import dpsql
from dpsql.curator import materialize


@pytest.mark.parametrize("seed", [3])
def test_what_is_materialized_counts_as_the_rows_do(tmp_path: Path, seed: int) -> None:
    events(tmp_path / "events.duckdb", seed=10 * seed)
    known = policy(tmp_path)
    assert materialize(known, database=tmp_path / "events.duckdb") == {"reads": "made"}
    read, twice = dict[str, int](), 0
    with (
        opened(tmp_path / "events.duckdb", known) as short,
        opened(tmp_path / "events.duckdb", known, materialized=False) as long,
    ):
        long[1]._plans.salts = salts_of(tmp_path)  # ranks are drawn as a session with these salts draws
        short[1]._plans.salts = long[1]._plans.salts
        for text in asked():
            try:
                by_rows = counted_by_each(long, text)
            except (dpsql.Unsupported, dpsql.Refusal):
                continue
            by_tables = counted_by_each(short, text)
            twice += len(by_tables) == 2
            for (expected, rows), (found, reads) in zip(by_rows, by_tables, strict=True):
                assert rows == ""
                if (
                    not reads.startswith("materialized ranks") or "(" not in text.partition(",")[0]
                ):  # hashed with more, drawn again
                    assert found.equals(expected), (text, reads)
                kind = " ".join(reads.split()[:2])
                read[kind] = read.get(kind, 0) + 1
    assert twice >= 10  # statements of two looks
    assert min(read[kind] for kind in ("", "materialized pairs", "materialized ranks", "materialized counts")) >= 10, (
        read
    )


def test_measures_that_are_materialized_are_those_of_the_rows(tmp_path: Path) -> None:
    events(tmp_path / "events.duckdb", rows=900, seed=3)
    add_amounts(tmp_path / "events.duckdb")
    known = policy(tmp_path, sets=((), *SETS), bounds=BOUNDS)
    assert materialize(known, database=tmp_path / "events.duckdb") == {"reads": "made"}
    read: dict[str, int] = {}
    with (
        opened(tmp_path / "events.duckdb", known) as short,
        opened(tmp_path / "events.duckdb", known, materialized=False) as long,
    ):
        long[1]._plans.salts = short[1]._plans.salts = salts_of(tmp_path)
        for text in part_of(measured(), every=2):
            try:
                expected, _ = counted(long, text)
            except (dpsql.Unsupported, dpsql.Refusal) as error:
                assert error.code in {"bounds", "no-bounds", "option"}, text  # noqa: PT017
                continue
            found, reads = counted(short, text)
            assert [*found.to_pydict().values()] == [*expected.to_pydict().values()], (text, reads)
            kind = " ".join(reads.split()[:2])
            read[kind] = read.get(kind, 0) + bool(found.num_rows)
            if "JOIN" in text or "(SELECT" in text:
                assert reads == "", text
            elif "country" not in text and "COUNT(amount)" not in text and "AVG(amount)" not in text:
                assert reads, text  # the counts of values that are stored have those that are NaN, too
    assert set(read) == {"", "materialized pairs", "materialized ranks", "materialized counts"}, read
    assert min(read.values()) >= 10, read


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dpsql.Policy]:
    """Return a database whose measures are materialized, and its policy."""
    folder = tmp_path_factory.mktemp("least")
    events(folder / "events.duckdb", rows=90)
    add_amounts(folder / "events.duckdb")
    known = policy(folder, sets=((), *SETS), bounds=BOUNDS)
    materialize(known, database=folder / "events.duckdb")
    return folder / "events.duckdb", known


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("SELECT COUNT(DISTINCT user_id) FROM reads PRIVATE", "materialized counts of all rows"),
        ("SELECT COUNT(*), SUM(price) FROM reads PRIVATE", "materialized counts of all rows"),
        ("SELECT SUM(price) FROM reads WHERE user_id > 5 PRIVATE", "materialized pairs of all rows"),
        ("SELECT COUNT(*) FROM reads WHERE article = 'a1' PRIVATE", "materialized counts of article"),
        ("SELECT COUNT(*) FROM reads WHERE n = 1 PRIVATE", ""),
        ("SELECT SUM(price) FROM reads WHERE price > 1 PRIVATE", ""),
        ("SELECT SUM(price + 1) FROM reads PRIVATE", ""),
        ("SELECT SUM(price::INTEGER) FROM reads PRIVATE", ""),
        ("SELECT SUM(score), SUM(amount), SUM(n) FROM reads PRIVATE", "materialized counts of all rows"),
        ("SELECT SUM(score + 0) FROM reads PRIVATE", ""),
        ("SELECT COUNT(*) FILTER (WHERE price > 1) FROM reads PRIVATE", ""),
        ("SELECT COUNT(*) FROM reads PRIVATE WITH (max_rows_contributed = 4)", "materialized pairs of all rows"),
        ("SELECT COUNT(*) FROM reads PRIVATE WITH (max_rows_contributed = 5)", "materialized counts of all rows"),
        (
            "SELECT article, COUNT(*) FROM reads GROUP BY 1 TOP 3 PRIVATE WITH (mechanism = limited_domain)",
            "materialized counts of article",
        ),
        ("SELECT article, COUNT(*) FROM reads GROUP BY 1 TOP 1 PRIVATE", "materialized counts of article"),
        ("SELECT article, COUNT(*) FROM reads GROUP BY 1 TOP 3 PRIVATE", "materialized counts of article"),
        (
            "SELECT article, COUNT(*) FROM reads GROUP BY 1 TOP 3 PRIVATE WITH (mechanism = weighted_gaussian)",
            "materialized ranks of article",
        ),  # for weights
        ("SELECT upper(article), COUNT(*) FROM reads GROUP BY 1 TOP 3 PRIVATE", "materialized pairs of article"),
        ("SELECT n, COUNT(*) FROM reads GROUP BY 1 TOP 3 PRIVATE", ""),
        ("SELECT COUNT(DISTINCT article) FROM reads PRIVATE", "materialized pairs of article"),
        ("SELECT COUNT(DISTINCT article), COUNT(*) FROM reads PRIVATE", ""),
    ],
)
def test_a_measure_is_read_from_the_least_that_has_it(built: tuple[Path, dpsql.Policy], text: str, reads: str) -> None:
    with opened(*built) as over:
        assert counted(over, text)[1] == reads


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(DISTINCT article) AS m FROM reads PRIVATE",
        "SELECT COUNT(DISTINCT article) FILTER (WHERE country = 'DE') AS m, COUNT(DISTINCT user_id) FROM reads PRIVATE",
        "SELECT country, COUNT(DISTINCT article) FROM reads GROUP BY 1 TOP 9 PRIVATE WITH (max_groups_contributed = 2)",
        "SELECT country, COUNT(DISTINCT article) AS m FROM reads WHERE user_id > 3 GROUP BY country TOP 9 PRIVATE",
    ],
)
def test_different_values_are_read_from_pairs(tmp_path: Path, text: str) -> None:
    """The same values of each user are kept, as they depend on its values alone and not on its rows."""
    events(tmp_path / "events.duckdb", rows=900, seed=5)
    known = policy(tmp_path, sets=((), *SETS), bounds={"rows": 2})
    materialize(known, database=tmp_path / "events.duckdb")
    with (
        opened(tmp_path / "events.duckdb", known) as short,
        opened(tmp_path / "events.duckdb", known, materialized=False) as long,
    ):
        long[1]._plans.salts = short[1]._plans.salts = salts_of(tmp_path)
        (found, reads), (expected, _) = counted(short, text), counted(long, text)
        assert reads.startswith("materialized pairs of "), text
        assert found.num_rows
        assert found.to_pydict() == expected.to_pydict()
