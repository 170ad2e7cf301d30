"""Random small databases, random accepted statements, each unit dropped in turn: no count moves further than it may."""

from __future__ import annotations

import os
from random import Random, SystemRandom

import pytest
from properties.attacks.fuzz import adversarial_tables, stable
from properties.attacks.stability import moved_too_far, opened, small
from properties.attacks.verdicts import PRIVATE, PUBLIC
from support.fuzzing import WHOLE
from support.sql_reference import catalog_of

from dpsql.sql.rewrite.engine_query import EngineQuery

SEED = SystemRandom().getrandbits(63) if os.environ.get("DPSQL_FUZZ") else 4
DATABASES = 1_000 if WHOLE else 100
FEW = 200  # databases in which any unstable query must be found
UNSTABLE = {
    "a window over all": """SELECT article, count(DISTINCT user_id) FROM (
        SELECT *, row_number() OVER (ORDER BY ts, article, user_id) AS rn FROM reads) WHERE rn <= 3 GROUP BY 1""",
    "a join that is not tied": """SELECT l.article, count(DISTINCT r.user_id) FROM reads r
        JOIN likes l ON r.article = l.article GROUP BY 1""",
    "a tie under OR": """SELECT u.city, count(DISTINCT r.user_id) FROM reads r
        JOIN users u ON r.user_id = u.user_id OR r.country = u.city GROUP BY 1""",
    "EXISTS that is not tied": """SELECT article, count(DISTINCT user_id) FROM reads r
        WHERE EXISTS (SELECT 1 FROM likes l WHERE l.article = r.article) GROUP BY 1""",
    "NOT IN that is not tied": """SELECT article, count(DISTINCT user_id) FROM reads
        WHERE country NOT IN (SELECT city FROM users WHERE city IS NOT NULL) GROUP BY 1""",
    "a scalar over all": """SELECT article, count(DISTINCT user_id) FROM reads
        WHERE ts >= (SELECT max(ts) FROM likes) GROUP BY 1""",
    "LIMIT inside": """SELECT article, count(DISTINCT user_id) FROM (
        SELECT * FROM reads ORDER BY ALL LIMIT 3) GROUP BY 1""",
    "groups without the unit": """SELECT article, n FROM (SELECT article, count(*) AS n FROM reads
        WHERE user_id IS NOT NULL GROUP BY 1)""",
    "EXCEPT of units": """SELECT article, count(DISTINCT user_id) FROM (SELECT article, user_id FROM reads
        EXCEPT SELECT article, user_id + 1 FROM likes) WHERE user_id IS NOT NULL GROUP BY 1""",
    "the unit of the other side": """SELECT u.city, count(DISTINCT r.user_id + u.user_id) FROM reads r
        JOIN users u ON r.user_id <= u.user_id GROUP BY 1""",
}


def test_dropping_a_unit_takes_one_from_its_own_groups_and_nothing_else() -> None:
    tally = stable(range(DATABASES), seed=SEED, asked=1)
    assert tally.failures == []
    assert tally.checked["databases"] == DATABASES


@pytest.mark.mutant
@pytest.mark.parametrize("name", UNSTABLE)
def test_an_unstable_query_is_found(name: str) -> None:
    con = opened(1)
    queries = [EngineQuery(UNSTABLE[name], ())]
    assert any(moved_too_far(con, small(Random(number)), queries) for number in range(FEW))


def test_a_stable_query_is_not() -> None:
    con = opened(2)
    tied = """SELECT u.city, count(DISTINCT r.user_id) FROM reads r JOIN users u ON r.user_id = u.user_id GROUP BY 1"""
    for number in range(20):
        assert moved_too_far(con, small(Random(number)), [EngineQuery(tied, ())]) == {}


@pytest.mark.mutant
def test_an_analysis_that_takes_a_private_table_for_a_public_one_is_found() -> None:
    fooled = catalog_of(adversarial_tables(), {"reads": "user_id"}, [*PRIVATE[1:], *PUBLIC])
    assert any(stable([number], seed=SEED, catalog=fooled, asked=2).failures for number in range(40))


def test_the_rows_of_small_databases_have_ties_and_rows_without_a_unit() -> None:
    rows = [row for number in range(50) for row in small(Random(number)).rows["reads"]]
    assert any(row[0] is None for row in rows)
    assert len(rows) > len({str(row) for row in rows})
