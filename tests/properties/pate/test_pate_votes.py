"""What is read of a table of votes, against a count in Python, and how far a teacher moves it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import duckdb
import pytest
from support.session_kit import filled, rebuilt, session_on

import dpsql
from dpsql import Delta, Epsilon
from dpsql.engines import Exact, Statement, open_exact
from dpsql.mechanisms import VOTE_STEPS, vote_weight
from dpsql.pate import Argmax, Majority, Method, Stable, label

Row = tuple[object, object, object]
Read = list[tuple[object, object, int]]
POLICY = dpsql.Policy(dpsql.Budget(100, "1e-3"), {"votes": dpsql.PrivateTable("teacher")})
LABELS = ("a", "b", "c", "d", "e")
EXAMPLES = (0, 1, 2, 3)


def table_of(
    rows: Sequence[Row], types: str = "teacher BIGINT, example SMALLINT, label VARCHAR"
) -> duckdb.DuckDBPyConnection:
    connection = filled(f"CREATE TABLE votes ({types})")
    if rows:
        connection.executemany("INSERT INTO votes VALUES (?, ?, ?)", rows)
    return connection


def read(connection: duckdb.DuckDBPyConnection, method: Method, examples: Sequence[int | str] = EXAMPLES) -> Read:
    """Return the rows that the engine returns for a batch."""
    seen: list[Exact] = []

    def watching(statement: Statement, execute: object) -> Exact:
        seen.append(execute(statement))  # type: ignore[operator]
        return seen[-1]

    with rebuilt(session_on(connection, POLICY), engine=watching) as session:
        label(session, "votes", examples=examples, method=method)
    table = open_exact(seen[0])
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def random_rows(seed: int) -> list[Row]:
    """Return votes of six teachers, some of them twice, with others that lack something or are of no interest."""
    draw = random.Random(seed)
    rows: list[Row] = [
        (draw.randrange(6), draw.randrange(5), draw.choice([*LABELS, "unlisted"])) for _ in range(draw.randrange(90))
    ]
    return [*rows, *rows[:7], (None, 1, "a"), (1, None, "a"), (1, 1, None)]


def ballots(rows: Sequence[Row], labels: Sequence[str] | None) -> dict[tuple[object, object], set[object]]:
    """Return the labels that each teacher gives each example."""
    found: dict[tuple[object, object], set[object]] = {}
    for teacher, example, name in rows:
        known = name is not None if labels is None else name in labels
        if teacher is not None and example in EXAMPLES and known:
            found.setdefault((teacher, example), set()).add(name)
    return found


def stable(k_bar: int) -> Stable:
    return Stable(Epsilon(1), Delta("1e-6"), k_bar)


def majority(max_labels: int | None) -> Majority:
    return Majority(Epsilon(1), LABELS, 6, max_labels)


@pytest.mark.parametrize("k_bar", [1, 3, 7])
@pytest.mark.parametrize("seed", range(4))
def test_the_leading_labels_of_each_example_are_read(seed: int, k_bar: int) -> None:
    rows = random_rows(seed)
    counts: dict[tuple[object, object], int] = {}
    for (_, example), names in ballots(rows, None).items():
        for name in names:
            counts[example, name] = counts.get((example, name), 0) + 1
    expected: Read = []
    for example in EXAMPLES:
        own = [(-votes, str(name)) for (at, name), votes in counts.items() if at == example]
        expected += [(example, name, -votes) for votes, name in sorted(own)[: k_bar + 1]]
    assert read(table_of(rows), stable(k_bar)) == expected


@pytest.mark.parametrize("max_labels", [None, 1, 2, 4])
@pytest.mark.parametrize("seed", range(4))
def test_votes_for_listed_labels_are_weighed(seed: int, max_labels: int | None) -> None:
    rows = random_rows(seed)
    expected: dict[tuple[object, object], int] = {}
    for (_, example), names in ballots(rows, LABELS).items():
        for name in names:
            weight = vote_weight(len(names), max_labels or len(LABELS))
            expected[example, name] = expected.get((example, name), 0) + weight
    got = read(table_of(rows), majority(max_labels))
    assert {(example, name): votes for example, name, votes in got} == expected


def vector(rows: Sequence[Row], method: Method) -> dict[tuple[object, object], int]:
    return {(example, name): votes for example, name, votes in read(table_of(rows), method)}


@pytest.mark.parametrize("seed", range(6))
def test_a_teacher_exchanged_moves_the_votes_no_further_than_is_charged(seed: int) -> None:
    draw = random.Random(100 + seed)
    rows = random_rows(seed)
    others = [row for row in rows if row[0] != 3]
    instead: list[Row] = [(3, draw.randrange(5), draw.choice(LABELS)) for _ in range(draw.randrange(25))]
    for after in (others, [*others, *instead]):  # a teacher less, and another in their place
        for method in (majority(None), majority(2), Argmax(Epsilon(1), LABELS)):
            here, there = vector(rows, method), vector(after, method)
            for example in EXAMPLES:
                moved = sum((here.get((example, name), 0) - there.get((example, name), 0)) ** 2 for name in LABELS)
                assert Fraction(moved) / (2 * method.mechanism.variance) <= method.loss.rho.value
        whole = stable(7)
        here, there = vector(rows, whole), vector(after, whole)
        for example in EXAMPLES:
            names = [name for at, name in {*here, *there} if at == example]
            moves = sorted(here.get((example, name), 0) - there.get((example, name), 0) for name in names)
            assert not moves or moves[-1] - moves[0] <= 2
            ends = [
                [*sorted((v for (at, _), v in votes.items() if at == example), reverse=True), *[0] * 9]
                for votes in (here, there)
            ]
            gaps = [[one - two for one, two in pairwise(each)] for each in ends]
            assert all(abs(one - two) <= 2 for one, two in zip(*gaps, strict=False))


def test_text_is_told_apart_by_its_bytes_whatever_its_collation() -> None:
    types = "teacher VARCHAR COLLATE NOCASE, example VARCHAR COLLATE NOCASE, label VARCHAR COLLATE NOCASE"
    rows: list[Row] = [("t", "x", "a"), ("T", "x", "A"), ("T", "x", "a"), ("t", "X", "b")]
    connection = table_of(rows, types)
    assert read(connection, stable(3), examples=("x",)) == [("x", "a", 2), ("x", "A", 1)]
    assert read(connection, Majority(Epsilon(1), ("a",), 2), examples=("x", "X")) == [("x", "a", 2 * VOTE_STEPS)]


def test_an_empty_table_is_read() -> None:
    assert read(table_of([]), stable(3)) == []
    assert read(table_of([]), majority(2)) == []
