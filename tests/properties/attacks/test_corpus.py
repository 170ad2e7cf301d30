"""Every statement of the corpus of hostile and ordinary statements: refused, or answered as the reference answers."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.sql_reference import (
    LONGEST,
    NOON,
    analyze_unbounded,
    corpus_catalog,
    corpus_tables,
    counts,
    private,
    reference_counts,
)

from dpsql.errors import Error

STATEMENTS = [json.loads(line) for line in Path(__file__).with_name("statements.jsonl").read_text().splitlines()]
CON = corpus_tables()
CATALOG = corpus_catalog(CON)
# DuckDB raises on the text of these; their reference gives NULL there.
TOTAL_REFERENCES = {
    "error-data-dependent-001": "CAST(article AS INTEGER)",
    "error-data-dependent-015": "dwell::DECIMAL(3,1)",
    "error-data-dependent-016": "dwell::BIGINT",
}
VALUES_OF_ROWS = ("31.5", "-3.25", "Berlin", "Paris")
PLAN_DECIDES = ("epsilon", "delta", "max_groups_contributed", "k_bar", "mechanism", "domain", "fresh")


def is_option_range(statement: dict[str, str]) -> bool:
    """Say whether a statement's only fault is the value of an option: a well-formed number or word, out of range.

    `sql` reads such an option and the planner judges it, so the planner's own tests must see these refused.
    """
    if statement["category"] != "options/values" or statement["expect"] != "reject":
        return False
    try:
        query = private(statement["sql"], CATALOG)
    except Error:
        return False
    return bool(query.clause.options) and set(query.clause.options) <= set(PLAN_DECIDES)


def of(*expectations: str) -> list[pytest.param]:
    chosen = [statement for statement in STATEMENTS if statement["expect"] in expectations]
    return [pytest.param(statement, id=statement["id"]) for statement in chosen]


def refusal(statement: dict[str, str]) -> Error | None:
    started = time.thread_time()
    try:
        analyze_unbounded(statement["sql"], CATALOG, clock=lambda: NOON)
    except Error as error:
        return error
    finally:
        assert time.thread_time() - started < LONGEST
    return None


def check_equal(statement: dict[str, str]) -> None:
    query = private(statement["sql"], CATALOG)
    found = counts(CON, query)
    raising = TOTAL_REFERENCES.get(statement["id"], "")
    total = statement["sql"].replace(raising, f"TRY({raising})") if raising else statement["sql"]
    total = total.replace("now()", f"TIMESTAMP '{NOON}'")
    assert found == reference_counts(CON, replace(query, text=total), unit_of(statement["sql"]))


def unit_of(text: str) -> str:
    """Return a name of the privacy unit that is clear in the text: with the first table's alias, if there are two."""
    aliased = re.search(r"FROM \w+ (?:AS )?(\w) (?:LEFT |RIGHT |FULL )?JOIN (?:reads|likes|users) \w ON", text)
    return f"{aliased[1]}.user_id" if aliased else "user_id"


def test_the_whole_corpus_is_here() -> None:
    assert len(STATEMENTS) == 424
    (measured,) = of("measured")
    assert len(private(measured.values[0]["sql"], CATALOG).measures) == 2
    assert sum(map(is_option_range, STATEMENTS)) == 11


@pytest.mark.parametrize("statement", of("reject"))
def test_what_must_be_refused_is_refused_with_a_clear_error(statement: dict[str, str]) -> None:
    error = refusal(statement)
    if is_option_range(statement):
        assert error is None
        return
    assert error is not None
    assert error.code
    assert error.code == error.code.lower()
    assert error.reason.endswith((".", "!")), error.reason
    assert len(error.reason) > 10
    assert not any(value in str(error) and value not in statement["sql"] for value in VALUES_OF_ROWS)


@pytest.mark.parametrize("statement", of("ok"))
def test_what_must_be_answered_equals_the_reference(statement: dict[str, str]) -> None:
    check_equal(statement)


@pytest.mark.parametrize("statement", of("ok_if_equivalent"))
def test_what_may_be_answered_is_refused_or_equals_the_reference(statement: dict[str, str]) -> None:
    error = refusal(statement)
    if error is None:
        check_equal(statement)
    else:
        assert error.reason.endswith(".")
