"""Every form of every dialect gives what DuckDB gives, for all values and pairs of values, and never an error."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest
from support.engine_kits import KITS, kit_of

from dpsql.testing import DUCKDB
from dpsql.testing.queries import analyze_shapes, find_differences, open_kit
from dpsql.testing.suite import compare_forms

ENGINES = [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in KITS if name != "portable"]


@pytest.mark.parametrize("engine", ENGINES)
def test_every_form_gives_what_duckdb_gives_and_none_is_untested(engine: str) -> None:
    results = list(compare_forms(kit_of(engine)))
    assert results[-1].part == "coverage"
    assert not any(result.faults for result in results), "\n".join(result.describe() for result in results)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("shape", "name", "form"),
    [
        ("round({x})", "round", "round_even({0}, 0)"),
        ("lower({t})", "lower", "translate({0}, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'abcdefghijklmnopqrstuvwxyz')"),
        ("{i} + {same}", "+", "({0} + {1})"),
        ("length({t})", "length", "strlen({0})"),
        ("{t} < {same}", "<", "(({0} COLLATE NOCASE) < {1})"),
        ("{b} AND {same} IS NULL", "is_null", "({0} = 0)"),
        ("{x} = {same}", "=", "({0} = {1} AND NOT isnan(CAST({0} AS DOUBLE)))"),
    ],
)
def test_a_wrong_form_is_caught(shape: str, name: str, form: str) -> None:
    kit = kit_of("portable")
    held = open_kit(kit), open_kit(kit, DUCKDB)
    sound, forms = held[0].catalog.dialect, analyze_shapes([shape], held[1].catalog)
    wrong = replace(sound, forms=MappingProxyType({**sound.forms, name: form}))
    found = [
        list(find_differences(forms, tested=held[0], reference=held[1], dialect=each, reach=kit.reach))
        for each in (sound, wrong)
    ]
    assert found[0] == []
    assert found[1]
