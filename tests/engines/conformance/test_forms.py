"""Every form of every dialect gives what DuckDB gives, for all values and pairs of values, and never an error."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest
from support.engine_kits import KITS, kit_of

from dpsql.testing import DUCKDB
from dpsql.testing.forms import analyze_shapes, find_differences, track_forms
from dpsql.testing.queries import load_queries, open_kit, rewrite_query
from dpsql.testing.shapes import SHAPES

OF_ROWS = frozenset(
    "md5 lookup canonical count_star count count_distinct sum avg min max sum_sorted avg_sorted".split()
)
OF_ROWS |= {"in_query", "order"}
OF_ROWS |= frozenset("row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value signbit".split())
MAY_BE_MISSING = {"DECIMAL", "TIMESTAMP", "DATE", "BOOLEAN"}  # types that not every engine has

ENGINES = [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in KITS if name != "portable"]


@pytest.mark.parametrize("engine", ENGINES)
def test_every_form_gives_what_duckdb_gives_and_none_is_untested(engine: str) -> None:
    kit = kit_of(engine)
    tested, reference = open_kit(kit), open_kit(kit, DUCKDB)
    dialect, noted = track_forms(tested.catalog.dialect)
    catalog = replace(tested.catalog, dialect=dialect)
    wrong = []
    for shapes in SHAPES.values():
        forms = analyze_shapes(shapes, reference.catalog)
        wrong += find_differences(forms, tested=tested, reference=reference, dialect=dialect, reach=kit.reach)
    assert not wrong, "\n".join(wrong)
    alone = set(noted.used)
    for asked in load_queries():  # aggregates, windows and what the rewriter itself calls are in the suite's queries
        rewrite_query(asked, catalog)
    # a FLOAT is itself where rows are told apart, and is read as a DOUBLE elsewhere
    used = alone | {name for name in noted.used if name.split()[0].partition("/")[0] in OF_ROWS or "FLOAT" in name}
    (table,) = (each for each in reference.catalog.tables if each.name == "lefts")
    missing = {*kit.types, *MAY_BE_MISSING - {type_.family.name for _, type_ in table.columns}}
    unused = {name for name in dialect.forms if not set(name.split()[1:]) & missing}
    assert sorted(unused - used) == [], "no test uses these forms"


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
