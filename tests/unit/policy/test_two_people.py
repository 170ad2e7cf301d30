"""Rows of two people: why one privacy unit does not protect both, and what the reshaped table of the page protects."""

from __future__ import annotations

import re
from itertools import combinations, product
from pathlib import Path

import duckdb
import pytest
from support.session_kit import session_on

import dpsql
from dpsql.errors import PolicyError
from dpsql.policy import Policy

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "two-people-in-a-row.md").read_text()
REFUSED, TABLE = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
VIEW, *QUERIES = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
BUDGET = '[budget]\nepsilon = 50\ndelta = 1e-6\n\n[source]\npath = "data.duckdb"\n\n'
Message = tuple[int, int]
PEOPLE = range(3)
PAIRS = [(one, other) for one in PEOPLE for other in PEOPLE if one != other]
WORLDS = [frozenset(each) for size in range(len(PAIRS) + 1) for each in combinations(PAIRS, size)]


def open_messages(messages: list[Message]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE messages (sender BIGINT, receiver BIGINT, topic VARCHAR, words INTEGER)")
    if messages:
        rows = [(*each, "abc"[sum(each) % 3], 10 + each[0] % 7) for each in messages]
        connection.executemany("INSERT INTO messages VALUES (?, ?, ?, ?)", rows)
    connection.execute(VIEW)
    return connection


@pytest.mark.parametrize("unit", ['privacy_units = ["sender", "receiver"]', 'privacy_unit = ["sender", "receiver"]'])
def test_several_units_are_refused_with_the_view_to_make(unit: str, tmp_path: Path) -> None:
    assert 'privacy_units = ["sender", "receiver"]' in REFUSED
    with pytest.raises(PolicyError) as refused:
        Policy.from_toml(_written(tmp_path, f"[tables.messages]\n{unit}\n"))
    assert refused.value.code == "policy-two-people"
    hint = refused.value.hint or ""
    assert "docs/how-to/two-people-in-a-row.md" in hint
    view = re.search(r"(CREATE VIEW .*?); and write privacy_unit = \"person\"", hint)
    assert view is not None
    connection = duckdb.connect()
    connection.execute("CREATE TABLE messages (sender BIGINT, receiver BIGINT, topic VARCHAR, words INTEGER)")
    connection.execute("INSERT INTO messages VALUES (1, 2, 'a', 3)")
    connection.execute(view[1])  # as the hint says
    rows = connection.execute("SELECT * FROM people_of_messages ORDER BY ALL").fetchall()
    assert rows == [(1, "sender", "a", 3), (2, "receiver", "a", 3)]


def test_a_list_of_one_unit_is_not_two_people(tmp_path: Path) -> None:
    for unit, code, hint in [
        ('privacy_units = "user_id"', "policy-unknown-key", 'Did you mean "privacy_unit"?'),
        ('privacy_units = ["user_id"]', "policy-type", 'Write privacy_unit = "user_id".'),
        ("privacy_unit = []", "policy-type", 'Write privacy_unit = "user_id".'),
    ]:
        with pytest.raises(PolicyError) as refused:
            Policy.from_toml(_written(tmp_path, f"[tables.reads]\n{unit}\n"))
        assert (refused.value.code, refused.value.hint) == (code, hint)


def test_in_python_they_are_refused_too() -> None:
    with pytest.raises(PolicyError, match="policy-two-people"):
        dpsql.PrivateTable(["payer", "payee"])  # type: ignore[arg-type]


def _written(folder: Path, text: str) -> Path:
    path = folder / "policy.toml"
    path.write_text(BUDGET + text)
    return path


def test_the_page_runs() -> None:
    messages = [(person, 500 + (person * 7 + at) % 400) for person in range(400) for at in range(3)]
    bounds = {"rows": 20, "words": {"max": 2000}}
    assert "rows = 20\nwords = { max = 2000 }" in TABLE
    table = dpsql.PrivateTable("person", max_groups_contributed=5, bounds=bounds)
    policy = dpsql.Policy(dpsql.Budget(50, "1e-6"), {"people_of_messages": table})
    session = session_on(open_messages(messages), policy)
    groups, totals = map(session.sql, QUERIES)
    assert groups.receipt.items_charged > 0
    assert {topic for topic, _ in groups.fetchall()} <= {"a", "b", "c"}
    assert totals.columns == ["messages", "words"]
    plan = session.explain(QUERIES[1])
    counts = [each for each in plan.query.measures if each.argument is None]
    assert {each.row_bounds.high for each in counts} == {20}


def rows_of(messages: frozenset[Message]) -> dict[int, list[tuple[str, Message]]]:
    """Return the rows of the view by person: the role and the message."""
    return {
        person: sorted([("sender", each) for each in messages if each[0] == person])
        + sorted([("receiver", each) for each in messages if each[1] == person])
        for person in PEOPLE
    }


def count_changed(one: frozenset[Message], other: frozenset[Message]) -> int:
    before, after = rows_of(one), rows_of(other)
    return sum(before[person] != after[person] for person in PEOPLE)


def test_what_changes_is_what_the_table_of_the_page_says() -> None:
    """All sets of messages among three people, and all removals: of a message, and of a person with all messages."""
    reached = set[int]()
    for messages in WORLDS:
        for message in messages:
            assert count_changed(messages, messages - {message}) == 2
        for person in PEOPLE:
            own = {each for each in messages if person in each}
            others = {each for pair in own for each in pair} - {person}
            changed = count_changed(messages, messages - own)
            assert changed == (1 + len(others) if own else 0)
            reached.add(changed)
    assert reached == {0, 2, 3}


COUNTS = {
    "COUNT(DISTINCT person)": "SELECT COUNT(DISTINCT person) FROM people_of_messages",
    "COUNT(DISTINCT sender)": "SELECT COUNT(DISTINCT sender) FROM messages",
}


def run(messages: frozenset[Message], sql: str) -> int:
    (found,) = open_messages(sorted(messages)).execute(sql).fetchone() or (0,)
    return int(found)


def test_a_unit_of_the_sender_leaves_the_receiver_unprotected() -> None:
    """Without one receiver a count of senders, with noise for a change of 1, changes by as many as wrote to them."""
    senders, people = COUNTS["COUNT(DISTINCT sender)"], COUNTS["COUNT(DISTINCT person)"]
    for number in (1, 5, 40):
        messages = frozenset((1 + at, 0) for at in range(number))
        without = frozenset(each for each in messages if 0 not in each)
        assert run(messages, senders) - run(without, senders) == number
        copies = f"{people} WHERE person <> 0"  # without the rows of one person
        assert run(messages, people) - run(messages, copies) == 1


@pytest.mark.parametrize("kept", ["first", "sampled"])
def test_a_cut_of_each_persons_messages_depends_on_others(kept: str) -> None:
    """Keep a message where it is among the first, or the lowest draws, of both people: removing one moves others."""
    order = {pair: at if kept == "first" else (at * 5 + 3) % 7 for at, pair in enumerate(PAIRS)}

    def cut(messages: frozenset[Message]) -> frozenset[Message]:
        taken, used = set[Message](), dict.fromkeys(PEOPLE, 0)
        for each in sorted(messages, key=order.__getitem__):
            if all(used[person] < 1 for person in each):
                taken.add(each)
                used[each[0]] += 1
                used[each[1]] += 1
        return frozenset(taken)

    moved = 0
    for messages, person in product(WORLDS, PEOPLE):
        without = frozenset(each for each in messages if person not in each)
        moved += cut(without) != frozenset(each for each in cut(messages) if person not in each)
    assert moved > 0
