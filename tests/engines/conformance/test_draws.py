"""The groups that an engine keeps of a bounded unit are drawn by a hash of salts, unit and group alone, and evenly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pytest
from support.engine_kits import KITS, kit_of
from support.fuzzing import WHOLE

from dpsql.engines import Engine
from dpsql.testing import Kit
from dpsql.testing.draws import check_draws, has_keyed_hash
from dpsql.testing.kit import PORTABLE, PortableEngine
from dpsql.testing.queries import open_kit

HASH, MIX = "hash(xor(hash({0}), hash({1})))", "hash(xor({0}, hash({1})))"


def drawing_by(keyed_hash: str, mix: str) -> Kit:
    """Return the kit of DuckDB as another engine, with a keyed hash."""
    dialect = replace(PORTABLE, forms={**PORTABLE.forms, "keyed_hash": keyed_hash, "mix": mix})

    def open_portable(tables: Mapping[str, pa.Table]) -> Engine:
        engine = kit_of("portable").open(tables)
        assert isinstance(engine, PortableEngine)
        engine._dialect = dialect
        return engine

    return Kit("keyed", open_portable)


@pytest.mark.skipif(not WHOLE, reason="the suite does it with fewer units")
@pytest.mark.parametrize("engine", KITS)
def test_an_engine_draws_evenly_for_thousands_of_units(engine: str) -> None:
    assert check_draws(kit_of(engine), units=4_000) == []


def test_a_keyed_hash_of_the_dialect_is_what_draws() -> None:
    kit = drawing_by(HASH, MIX)
    assert has_keyed_hash(open_kit(kit))
    assert check_draws(kit) == []


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("keyed_hash", "mix", "problem"),
    [
        (HASH, "xor({0}, {1})", "the XOR of two draws is one for several units"),
        (HASH, "({0} // 2 + {1} // 2)", "the difference of two draws is one for several"),
        (HASH.replace("{1}", "{1} * 0"), MIX, "the first groups under different salts agree"),
        (f"{HASH} % 100_000", MIX, "different groups have one draw"),
        (HASH.replace("{0}", "md5_number(CAST({0} AS VARCHAR)) % 7"), MIX, "different groups have one draw"),
        (f"hash({HASH}, row_number() OVER ())", MIX, "draws depend on other rows"),
        (f"hash({HASH}, count(*) OVER ())", MIX, "draws depend on other rows"),
        (HASH, f"({MIX} // 4 + {{0}} // 2)", "the ranks of groups are not"),
        (
            f"CASE WHEN {{0}} IS NULL THEN {HASH.replace('{0}', '0')} ELSE {HASH} END",
            MIX,
            "different groups have one draw",
        ),
        ("hash(xor(hash(COALESCE(CAST({0} AS VARCHAR), '')), hash({1})))", MIX, "different groups have one draw"),
    ],
)
def test_a_hash_that_is_not_fit_to_draw_by_is_caught(keyed_hash: str, mix: str, problem: str) -> None:
    assert [found for found in check_draws(drawing_by(keyed_hash, mix)) if problem in found]
