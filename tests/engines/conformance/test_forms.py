"""What compares the forms of a dialect with DuckDB sees a form that is wrong for one kind of values."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest
from support.engine_kits import kit_of

from dpsql.testing import DUCKDB
from dpsql.testing.queries import analyze_shapes, find_differences, open_kit


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
