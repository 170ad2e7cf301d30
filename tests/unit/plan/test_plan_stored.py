"""Releases as bytes: what comes back is what was drawn, for every query of the same key, and nothing else is read."""

from __future__ import annotations

import functools
import pickle
from dataclasses import replace
from fractions import Fraction
from random import Random

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fuzzing import examples
from support.laws import SeededNoise
from support.sql_reference import NASTY_COLUMNS, catalog_of, nasty_tables, private

import dpsql
from dpsql.engines import Exact, Statement
from dpsql.errors import LedgerError
from dpsql.plan import Plan, Release, build_plan, release
from dpsql.plan.identity.replay_key import compute_release_key
from dpsql.plan.identity.stored_release import pack_release, unpack
from dpsql.plan.release import present
from dpsql.session import Session
from dpsql.terms import Terms

KEYS = [name for name in NASTY_COLUMNS if name != "iv"]
GENEROUS = dpsql.Policy(  # a group of two units is all but sure to be released
    dpsql.Budget(100, "0.9", items=1, queries=1),
    {"nasty": dpsql.PrivateTable("unit"), "public": dpsql.PublicTable()},
    limits=dpsql.Limits(max_epsilon=100),
)
SALTS = (1, 2)
packed = functools.partial(pack_release, day="2026-11-29", has_one_value=bool)
OPTIONS = ["epsilon = 100, delta = 0.4", "epsilon = 2, delta = 0.4", "epsilon = 20, max_groups_contributed = 3"]


@functools.cache
def session() -> Session:
    """Return a session over the nasty table and as many rows of units of their own, thrice."""
    con = nasty_tables()
    own = "SELECT id, 1000 * copy + id, * EXCLUDE (id, unit, copy) FROM nasty, range(1, 4) AS copies(copy)"
    con.execute(f"INSERT INTO nasty {own}")
    return dpsql.connect(con, policy=GENEROUS, ledger=":memory:")


def plan_of(text: str) -> Plan:
    parts = session()._dependencies
    return build_plan(private(text, parts.catalog), parts.terms, salts=SALTS)


def released(plan: Plan, seed: int) -> Release:
    """Return the release of a plan from the real rows, the same for the same seed."""
    engine = session()._dependencies.engine
    exact = engine.execute(Statement(plan.counting.sql, plan.counting.parameters))
    return release(plan, exact, noise=SeededNoise(seed), execute=engine.execute)


def plain(table: pa.Table) -> str:
    """Return all of a table as text; times as numbers, since Python's do not reach as far."""
    columns = []
    for column in table.columns:
        number = pa.int32() if pa.types.is_date(column.type) else pa.int64()
        columns.append(column.cast(number) if pa.types.is_temporal(column.type) else column)
    return repr((table.schema, [column.to_pylist() for column in columns]))


def shown(random: Random, keys: list[str], *, counts: bool) -> tuple[str, str]:
    """Return a select list and a tail, of the many that one release can be shown by."""
    outputs = [f"{key} AS o{at}" for at, key in enumerate(random.sample(keys, len(keys)))]
    outputs += [f"{key} AS again_{key}" for key in keys if random.random() < 0.2]
    outputs += ["COUNT(DISTINCT unit) AS units"] if counts else []
    outputs += ["COUNT(DISTINCT unit) AS twice"] if counts and random.random() < 0.2 else []
    outputs += [f"value_{end}(units)" for end in ("low", "high") if counts and random.random() < 0.3]
    random.shuffle(outputs)
    having = random.choice(["", f"HAVING units >= {random.randint(0, 4)}", "HAVING units <> 2"]) if counts else ""
    terms = [
        f"{at} {random.choice(['ASC', 'DESC'])} NULLS {random.choice(['FIRST', 'LAST'])}"
        for at in random.sample(range(1, len(outputs) + 1), random.randint(0, len(outputs)))
    ]
    order = f"ORDER BY {', '.join(terms)}" if terms else ""
    limit = random.choice(["", "LIMIT 0", "LIMIT 3", "LIMIT 1000"])
    adds = random.choice(["", ", intervals = true", ", intervals = 0.8"]) if counts else ""
    return ", ".join(outputs), f"GROUP BY ALL {having} TOP {{k}} PRIVATE WITH ({{options}}{adds}) {order} {limit}"


@pytest.mark.properties
@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True),
    st.sampled_from(OPTIONS),
    st.booleans(),
    st.sampled_from([1, 3, 40]),
    st.randoms(use_true_random=False),
)
def test_what_one_query_stored_is_the_direct_answer_to_another_of_its_key(
    keys: list[str], options: str, counts: bool, k: int, random: Random
) -> None:
    plans = []
    for _ in range(2):
        select, tail = shown(random, keys, counts=counts)
        plans.append(plan_of(f"SELECT {select} FROM nasty {tail.format(k=k, options=options)}"))
    asked, again = plans
    assert compute_release_key(asked) == compute_release_key(again)
    seed = random.randrange(2**32)
    first, second = released(asked, seed), released(again, seed)
    found = unpack(again, packed(asked, first).answer)
    assert plain(found.table) == plain(second.table)
    assert plain(found.canonical) == plain(first.canonical) == plain(second.canonical)
    assert (found.loss, found.items_charged, found.stopped_at_bottom) == (
        first.loss,
        first.items_charged,
        first.stopped_at_bottom,
    )
    assert type(found.loss.rho.value) is type(found.loss.delta.value) is Fraction
    assert plain(present(asked, found.canonical, terms=found.terms)[0]) == plain(first.table)


@pytest.mark.parametrize("key", KEYS)
def test_every_type_of_key_comes_back_whole(key: str) -> None:
    plan = plan_of(f"SELECT {key}, COUNT(DISTINCT unit) AS n FROM nasty GROUP BY 1 TOP 60 PRIVATE WITH ({OPTIONS[0]})")
    first = released(plan, 1)
    assert first.canonical.num_rows > 1
    assert first.canonical.column("key_1").null_count == 1
    found = unpack(plan, packed(plan, first).answer)
    assert found.canonical.schema == first.canonical.schema
    assert plain(found.table) == plain(first.table)


def test_infinite_times_and_nan_are_among_them() -> None:
    for key, extreme in (("day", 2**31 - 1), ("ts", 2**63 - 1), ("d", float("nan"))):
        plan = plan_of(f"SELECT {key} FROM nasty GROUP BY 1 TOP 60 PRIVATE WITH ({OPTIONS[0]})")
        assert repr(extreme) in plain(unpack(plan, packed(plan, released(plan, 1)).answer).canonical)


def test_the_canonical_table_is_what_was_drawn_in_its_order() -> None:
    plan = plan_of(
        "SELECT COUNT(DISTINCT unit) AS n, b AS x, i8 AS y FROM nasty GROUP BY x, y HAVING n > 10000 "
        f"TOP 30 PRIVATE WITH ({OPTIONS[0]}) ORDER BY n LIMIT 1"
    )
    found = released(plan, 4)
    assert found.table.num_rows == 0
    assert found.table.column_names == ["n", "x", "y"]
    assert found.canonical.column_names == ["key_1", "key_2", "count"]
    assert found.canonical.num_rows == found.items_charged // 2 > 5


def test_the_canonical_order_of_keys_is_that_of_the_plan() -> None:
    first = plan_of("SELECT t, b, i8 FROM nasty GROUP BY t, b, i8 TOP 5 PRIVATE")
    second = plan_of("SELECT i8 AS z, t, b FROM nasty GROUP BY b, i8, t TOP 5 PRIVATE")
    assert first.query.keys == second.query.keys
    assert first.counting == second.counting
    names = {output.name: output.key for output in first.query.outputs}
    assert names["i8"] == {output.name: output.key for output in second.query.outputs}["z"]


def test_a_known_domain_with_candidates_nobody_is_in() -> None:
    plan = plan_of(
        "SELECT t, COUNT(DISTINCT unit) AS n FROM nasty GROUP BY t "
        "TOP 5 PRIVATE WITH (epsilon = 2, domain = ['nobody', 'a', ''])"
    )
    first = released(plan, 2)
    found = unpack(plan, packed(plan, first).answer)
    assert plain(found.table) == plain(first.table)
    assert (found.items_charged, found.stopped_at_bottom, found.loss.delta.value) == (3, False, 0)


def test_nothing_released_is_stored_and_found() -> None:
    plan = plan_of("SELECT t, COUNT(DISTINCT unit) AS n FROM nasty WHERE unit < 0 GROUP BY t TOP 5 PRIVATE")
    first = released(plan, 3)
    found = unpack(plan, packed(plan, first).answer)
    assert found.canonical.num_rows == 0
    assert found.canonical.schema == first.canonical.schema
    assert (found.items_charged, found.stopped_at_bottom) == (1, True)


def test_nothing_is_stored_but_what_was_released() -> None:
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE seen AS SELECT i AS unit, IF(i = 1, 'VICTIM_SECRET', 'a' || i % 3) AS w FROM range(300) t(i)"
    )
    catalog = catalog_of(con, {"seen": "unit"}, [])
    terms = Terms.of_policy(dpsql.Policy(dpsql.Budget(1, "1e-6"), {"seen": dpsql.PrivateTable("unit")}))
    text = "SELECT w FROM seen GROUP BY w TOP 3 PRIVATE WITH (epsilon = 1, delta = 1e-9)"
    plan = build_plan(private(text, catalog), terms, salts=SALTS)
    exact = con.sql(plan.counting.sql, params=list(plan.counting.parameters)).to_arrow_table()
    assert "VICTIM_SECRET" in exact.column(0).to_pylist()

    def execute(statement: Statement) -> Exact:
        return Exact(con.sql(statement.sql, params=list(statement.parameters)).to_arrow_table())

    stored = packed(plan, release(plan, Exact(exact), noise=SeededNoise(1), execute=execute)).answer
    assert b"a1" in stored
    assert b"VICTIM" not in stored


# --- what pack_release did not write


PLAN_TEXT = f"SELECT t, COUNT(DISTINCT unit) AS n FROM nasty GROUP BY t TOP 5 PRIVATE WITH ({OPTIONS[0]})"


def refused(plan: Plan, stored: bytes) -> LedgerError:
    with pytest.raises(LedgerError) as caught:
        unpack(plan, stored)
    assert caught.value.code == "ledger-answer"
    assert caught.value.hint
    assert caught.value.__cause__ is None
    return caught.value


def test_every_damaged_byte_is_noticed() -> None:
    plan = plan_of(PLAN_TEXT)
    stored = packed(plan, released(plan, 5)).answer
    for at in range(len(stored)):
        refused(plan, stored[:at] + bytes([stored[at] ^ 1]) + stored[at + 1 :])
        refused(plan, stored[:at])
    refused(plan, stored + b"\n")
    assert plain(unpack(plan, stored).table) == plain(released(plan, 5).table)


def test_other_bytes_and_other_versions_are_refused() -> None:
    plan = plan_of(PLAN_TEXT)
    stored, drawn = packed(plan, released(plan, 5)).answer, released(plan, 5)
    alone = packed(plan, replace(drawn, terms=replace(drawn.terms, total=None))).answer
    assert (stored[:15], alone[:15]) == (b"dpsql release 2", b"dpsql release 1")
    for other in (
        b"",
        b"\n",
        b"dpsql release 1 ",
        b"dpsql release 2 ",
        alone.replace(b"release 1", b"release 2", 1),
        stored.replace(b"release 2", b"release 1", 1),
        stored.replace(b"release 2", b"release 3", 1),
        pickle.dumps(plan.selection),
    ):
        assert "damaged" in refused(plan, other).reason


@pytest.mark.parametrize(
    "other",
    [
        PLAN_TEXT.replace("TOP 5", "TOP 6"),
        PLAN_TEXT.replace("SELECT t,", "SELECT tn AS t,").replace("BY t", "BY tn"),
        PLAN_TEXT.replace(", COUNT(DISTINCT unit) AS n", ""),
        PLAN_TEXT.replace("GROUP", "WHERE b GROUP"),
    ],
)
def test_the_release_of_another_query_is_refused(other: str) -> None:
    stored = packed(plan_of(PLAN_TEXT), released(plan_of(PLAN_TEXT), 5)).answer
    assert "another query" in refused(plan_of(other), stored).reason


def test_the_release_of_another_format_of_keys_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(PLAN_TEXT)
    stored = packed(plan, released(plan, 5)).answer
    monkeypatch.setattr("dpsql.plan.identity.replay_key.FORMAT", "dpsql replay 0")
    monkeypatch.setattr("dpsql.plan.identity.replay_key.QUESTION", "dpsql question 0")
    refused(plan_of(PLAN_TEXT), stored)
