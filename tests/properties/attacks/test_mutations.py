"""Mutants of every statement of the corpus get the verdict of the statement; hostile characters get none."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random, SystemRandom

import pytest
from properties.attacks.mutations import (
    HOMOGLYPHS,
    INVISIBLE,
    KNOWN_EXCEPTIONS,
    MUTATIONS,
    cut,
    homoglyph,
    invisible,
    mutants,
)
from properties.attacks.verdicts import PRIVATE, PUBLIC, outcome, verdict
from support.fuzzing import WHOLE
from support.sql_reference import catalog_of, corpus_tables

from dpsql.errors import Error

STATEMENTS = [json.loads(line) for line in Path(__file__).with_name("statements.jsonl").read_text().splitlines()]
CATALOG = catalog_of(corpus_tables(), dict.fromkeys(PRIVATE, "user_id"), PUBLIC)
NUMBER, OF_LONG_ONES = (50, 50) if WHOLE else (8, 2)  # mutants of a statement
HIDDEN = 12 if WHOLE else 2  # hostile characters, one at a time
BASE = SystemRandom().getrandbits(63) if os.environ.get("DPSQL_FUZZ") else 6
CATEGORIES = sorted({statement["category"] for statement in STATEMENTS})


def of(category: str) -> list[dict[str, str]]:
    return [statement for statement in STATEMENTS if statement["category"] == category]


@pytest.mark.parametrize("category", CATEGORIES)
def test_a_mutant_gets_the_verdict_of_its_statement(category: str) -> None:
    for statement in of(category):
        wanted = verdict(statement["sql"], CATALOG)
        random, leave = Random(f"{BASE} {statement['id']}"), KNOWN_EXCEPTIONS.get(statement["id"], ())
        number = OF_LONG_ONES if category == "resource/size" else NUMBER
        for mutant, names in mutants(random, statement["sql"], number, leave=leave):
            found = verdict(mutant, CATALOG)
            assert found == wanted, f"{statement['id']} with {names}: {mutant[:600]!r} is {found}, not {wanted}"


def test_every_mutation_changes_statements_that_are_answered() -> None:
    answered = [each["sql"] for each in STATEMENTS if verdict(each["sql"], CATALOG).is_answered]
    for name, mutate in MUTATIONS.items():
        changed = [text for text in answered if "".join(mutate(Random(text), cut(text))) != text]
        assert len(changed) >= 10, name


@pytest.mark.parametrize("hide", [invisible, homoglyph])
def test_a_hostile_character_outside_strings_is_refused(hide: object) -> None:
    tried = 0
    for statement in STATEMENTS:
        if statement["expect"] == "reject" or statement["id"] == "resource-size-014":
            continue
        random = Random(f"{BASE} {statement['id']}")
        for _ in range(HIDDEN):
            text = hide(random, statement["sql"])  # type: ignore[operator]
            if text is not None:
                tried += 1
                assert isinstance(outcome(text, CATALOG), Error), repr(text)
    assert tried > 125 * HIDDEN


def test_the_hostile_characters_are_what_they_seem() -> None:
    assert not any(char.isascii() and char.isprintable() for char in INVISIBLE)
    assert not any(char.isascii() for char in HOMOGLYPHS.values())


def test_half_of_a_line_break_is_no_white_space() -> None:
    assert isinstance(outcome("SELECT article\rFROM reads GROUP BY article TOP 10 PRIVATE", CATALOG), Error)
