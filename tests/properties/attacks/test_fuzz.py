"""Statements of the whole grammar: refused, or one SELECT by DuckDB's own parse that runs and counts as DuckDB does.

`python tests/properties/attacks/fuzz.py --help` says how to try millions.
"""

from __future__ import annotations

import os
from random import Random, SystemRandom

import pytest
from properties.attacks.fuzz import adversarial_tables, corpus_summary, fuzzed
from properties.attacks.sentences import sentence
from properties.attacks.verdicts import PRIVATE, PUBLIC, fault_of
from support.fuzzing import WHOLE
from support.sql_reference import catalog_of

SEED = SystemRandom().getrandbits(63) if os.environ.get("DPSQL_FUZZ") else 5
STATEMENTS = 50_000 if WHOLE else 1_500
EVERY = 15  # of the accepted statements that many are parsed, run and counted once
ANSWERED = 56  # of the 64 that may be refused


SPOKEN = "inner,left,right,full,semi,anti,cross,using,tied,cte,union,union all,intersect,except,distinct"
SPOKEN += ",exists tied,in tied,in public,exists public,scalar,qualify,wrapped,having,order,expression,predicate"
SPOKEN += ",grouped by unit,window by unit,unnest,listed,filter,filtered aggregate,named first,sample"


def test_statements_are_refused_or_become_sql_that_is_as_it_must_be() -> None:
    tally = fuzzed(range(STATEMENTS), seed=SEED, every=EVERY)
    assert tally.failures == []
    assert tally.tried["all"] == STATEMENTS
    assert tally.accepted["all"] > STATEMENTS // 5
    assert tally.checked["run"] > STATEMENTS // 5 // EVERY - 10
    assert tally.checked["equal to the reference"] > tally.checked["run"] // 2, tally.checked
    rarely = {name for name in SPOKEN.split(",") if tally.accepted[name] <= tally.tried[name] // 20}
    assert rarely == set()


def test_every_construct_of_the_language_is_spoken() -> None:
    constructs = set().union(*(sentence(Random(number)).constructs for number in range(3_000)))
    wanted = "inner,left,right,full,semi,anti,cross,using,tied,loose,cte,union,union all,distinct,grouped by unit"
    wanted += ",grouped without unit,window by unit,window global,exists tied,exists loose,in tied,in loose,in public"
    wanted += ",exists public,scalar,qualify,limit inside,sample,wrapped,having,order,options,top first"
    wanted += ",intersect,except,two units,window of a column,unnest,listed,filter,filtered aggregate,named first"
    assert set(wanted.split(",")) <= constructs


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sql", "fault"),
    [
        ('SELECT count(*) FROM "memory"."main"."reads"', "it calls .count_star"),
        ('SELECT 1 FROM "memory"."main"."secret_internal"', "it reads secret_internal"),
        ("SELECT 1 FROM reads", "table reads is not named in full"),
        ("SELECT 1 FROM system.main.range(3)", "it reads a TABLE_FUNCTION"),
        ('SELECT system.main.random() FROM "memory"."main"."reads"', "it calls system.random"),
        ("SELECT 1; SELECT 2", "it is not one SELECT"),
        ("CREATE TABLE x(i INTEGER)", "it is not one SELECT"),
        ("SELECT 'x'", "it carries text"),
        ('WITH a AS (SELECT 1 FROM "memory"."main"."reads") SELECT * FROM a', ""),
    ],
)
def test_what_is_no_sql_of_ours_is_found(sql: str, fault: str) -> None:
    assert fault_of(sql) == fault


@pytest.mark.mutant
def test_a_statement_that_counts_otherwise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("properties.attacks.fuzz.counts_of", lambda *_: {("x",): 1})
    assert len(fuzzed(range(60), seed=1, every=1).failures) > 5


def test_no_fewer_of_the_statements_that_may_be_refused_are_answered() -> None:
    answered, asked, refused = corpus_summary(
        catalog_of(adversarial_tables(), dict.fromkeys(PRIVATE, "user_id"), PUBLIC)
    )
    assert asked == 64
    assert answered >= ANSWERED, refused
