"""Each algorithm of the papers is run as the reference says: a clause, a call, or a certificate of the policy."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest
from support.groups_kit import session_over

from dpsql.accounting import Certificate

PAGE = Path(__file__).parents[3] / "docs/reference/sql/mechanisms.md"
SECTION = PAGE.read_text().partition("## Algorithms of the papers\n")[2]
WAYS = re.findall(r"^\| [^|]+ \| [^|]+ \| `([^`]+)`[^|]*\|$", SECTION, re.MULTILINE)


def test_every_row_is_read() -> None:
    assert len(WAYS) == SECTION.count("\n| ") - 1 == 19


@pytest.mark.parametrize("way", [way for way in WAYS if way.startswith("TOP ")])
def test_a_clause_runs_the_mechanism_that_it_names(way: str) -> None:
    named = re.search(r"mechanism = (\w+)", way)
    plan = session_over().explain(f"SELECT article FROM reads GROUP BY article {way}")
    assert plan.mechanism == ("stable" if named is None else named[1])


@pytest.mark.parametrize("way", [way for way in WAYS if way.startswith("dpsql.")])
def test_a_call_is_there_and_documented(way: str) -> None:
    module, _, name = way.rpartition(".")
    assert getattr(import_module(module), name).__doc__


def test_the_certificate_is_there() -> None:
    (way,) = [way for way in WAYS if way.startswith("certificate")]
    assert Certificate(way.split('"')[1]) is Certificate.theorem2
