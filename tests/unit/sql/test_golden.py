"""Every pass, on its golden file: the text it makes, and the counts that text finds on the nasty tables."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import pytest
from support.sql_golden import Case, check, load
from support.sql_reference import accepts_pattern, catalog_of, counts, nasty_tables, private, reference_counts, same

from dpsql.dialects import quote_name
from dpsql.dialects.duckdb_releases import DuckDBRelease
from dpsql.errors import Error, Place
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir import transforms
from dpsql.sql.ir.catalog import Catalog, Link, Table
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.transforms import Change
from dpsql.sql.ir.tree import BIGINT, TEXT, Expression, Family, Type
from dpsql.sql.lexer import scan
from dpsql.sql.render import duckdb as write
from dpsql.sql.render.duckdb import Writer
from dpsql.sql.rewrite.engine_query import (
    Bound,
    EngineQuery,
    rewrite_all,
    rewrite_leaders,
    rewrite_unordered,
    rewrite_weighted,
    rewrite_weighted_of_all,
)
from dpsql.sql.syntax.clause import extract_clause

NAMES = ("clause", "analyze", "total", "canonical", "rewrite")
TABLES = nasty_tables()
EMPTY = nasty_tables(empty=True)
PLAIN = nasty_tables(plain=True)
KNOWN = catalog_of(TABLES, {"nasty": "unit"}, ["public", "names"])
ABOUT = Link("about", "id", Type(Family.INTEGER, "INTEGER"), ("memory", "main", "nasty"), "unit", BIGINT)
NOTES = Table("notes", ("memory", "main", "notes"), (("word", TEXT), ("unit", BIGINT)), "unit", ABOUT)
CATALOG = Catalog((*KNOWN.tables, NOTES))


def ids(cases: list[Case]) -> list[pytest.param]:
    return [pytest.param(case, id=str(case)) for case in cases]


ACCEPTED = [case for name in NAMES for case in load(name)]
REFUSED = [case for name in NAMES for case in load(f"{name}__refused")]


def spelled(writer: Writer, text: str) -> str:
    """Put the parameters back in their places, which only a test may do."""
    for number in range(len(writer.parameters), 0, -1):
        text = text.replace(f"${number}", repr(writer.parameters[number - 1]))
    return text


def shown(*expressions: Expression) -> str:
    writer = Writer()
    return spelled(writer, ", ".join(f"{writer.expression(each)}: {each.type}" for each in expressions))


def clause(text: str) -> str:
    lifted = extract_clause(scan(text), lambda _: 7)
    options = ", ".join(f"{name} = {option.value!r}" for name, option in sorted(lifted.clause.options.items()))
    values = scan(text).values
    words = [values[int(token.text[1:])].content if token.text[0] == "\0" else token.text for token in lifted.tokens]
    per = f" PER {lifted.clause.per.text}" if lifted.clause.per else ""
    return f"{'EXPLAIN ' * lifted.explained}TOP {lifted.clause.k or 'ADAPTIVE'}{per} ({options})\n{' '.join(words)}"


def analyzed(text: str) -> str:
    query = private(text, CATALOG)
    writer = Writer()
    body = spelled(writer, writer.body(query.body))
    outputs = ", ".join(
        f"{quote_name(output.name)} = {'count' if output.key is None else f'key {output.key + 1}'}"
        for output in query.outputs
    )
    order = "".join(
        f"\nORDER BY output {each.output + 1}{' DESC' * each.descending}{' NULLS FIRST' * each.nulls_first}"
        for each in query.order
    )
    limit = f"\nLIMIT {query.limit}" if query.limit is not None else ""
    limit += "".join(f"\nHAVING output {each.output + 1} {each.operator} {each.value}" for each in query.keep)
    return f"unit {shown(query.unit)}\nkeys {shown(*query.keys)}\noutputs {outputs}\n{body}{order}{limit}"


def keys_after(query: PrivateQuery, step: Change) -> str:
    return shown(*map(step, query.keys))


def counting_of(query: PrivateQuery) -> EngineQuery:
    """Return what the mechanism that is named reads, a unit being in two groups at most where it needs a bound."""
    option, two = query.clause.options.get("mechanism"), Bound(2, (1, 2))
    match None if option is None else option.value:
        case "gaussian_histogram":
            return rewrite_all(query, bound=two)
        case "weighted_gaussian":
            return rewrite_weighted(query, bound=two, weights=[1000, 707])
        case "domain_discovery":
            return rewrite_weighted_of_all(query, bound=two, weights=[1000, 707])
    if option is not None or query.clause.k is None:
        return rewrite_unordered(query, 100)
    return rewrite_leaders(query, 100 if query.domain is None else None)


def rewritten(text: str) -> str:
    counting = counting_of(private(text, CATALOG))
    return f"{counting.sql}\n-- {list(counting.parameters)!r}"


ACTS = {
    "clause": clause,
    "analyze": analyzed,
    "total": lambda text: keys_after(private(text, CATALOG), transforms.make_total),
    "canonical": lambda text: keys_after(private(text, CATALOG), transforms.canonicalize),
    "rewrite": rewritten,
}


@pytest.mark.parametrize("case", ids(ACCEPTED))
def test_a_pass_makes_the_golden_text(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (transforms, write):  # the text for the newest DuckDB, whichever is installed
        monkeypatch.setattr(module, "release", DuckDBRelease)
    check(case, ACTS[case.file])


def refusal(text: str) -> str:
    try:
        analyze(text, CATALOG, accepts_pattern=accepts_pattern)
    except Error as error:
        place = error.place
        where = f"{place.line}:{place.column} {place.fragment}" if isinstance(place, Place) else "nowhere"
        return f"{error.code} {where}"
    pytest.fail("it was accepted")


@pytest.mark.parametrize("case", ids(REFUSED))
def test_a_refusal_names_its_code_and_place(case: Case) -> None:
    check(case, refusal)


@pytest.mark.parametrize("case", ids(ACCEPTED))
@pytest.mark.parametrize("tables", [(TABLES, PLAIN), (EMPTY, EMPTY)], ids=["nasty", "empty"])
def test_what_is_counted_equals_the_reference(case: Case, tables: tuple[object, object]) -> None:
    """Text keys are compared by their bytes whatever the column declares, so the reference runs without collations."""
    parameters = [7] if "?" in case.given or "$1" in case.given else {"k": 7} if ":k " in case.given else []
    query = private(case.given, CATALOG, parameters)
    asked = replace(query, text=case.note("reference", query.text))
    wanted = reference_counts(tables[1], asked, case.note("unit", "unit"))  # type: ignore[arg-type]
    found = counts(tables[0], query)  # type: ignore[arg-type]
    if query.partitions is not None:
        listed = same(value.value for value in query.partitions.values)
        wanted = {key: count for key, count in wanted.items() if key[query.partitions.key] in listed}
    if query.domain is not None:
        wanted = {key: wanted.get(key, 0) for key in found}
        assert 0 in wanted.values()
    assert found == wanted
    assert counts(tables[0], query, Bound(10_000, (1, 2))) == found, "a wide bound changes no count"  # type: ignore[arg-type]
    assert bool(wanted) or tables[0] is EMPTY or "nobody" in "".join(case.notes)


@pytest.mark.properties
@pytest.mark.parametrize("case", ids([case for case in ACCEPTED if "domain" not in case.given]))
@pytest.mark.parametrize("tables", [TABLES, EMPTY], ids=["nasty", "empty"])
def test_with_a_weight_of_one_each_group_weighs_its_count(case: Case, tables: duckdb.DuckDBPyConnection) -> None:
    parameters = [7] if "?" in case.given or "$1" in case.given else {"k": 7} if ":k " in case.given else []
    query = private(case.given, CATALOG, parameters)
    counted = counts(tables, query)
    for act in (rewrite_weighted, rewrite_weighted_of_all):
        counting = act(query, bound=Bound(100, (1, 2)), weights=[1] * 100)
        rows = tables.execute(counting.sql, list(counting.parameters)).fetchall()
        keys = len(query.keys)
        assert {same(row[:keys]): row[keys] for row in rows} == counted
        assert [row[keys] for row in rows] == [row[keys + 1] for row in rows]


def test_every_pass_has_both_files() -> None:
    assert {str(case).rsplit("-", 1)[0] for case in ACCEPTED} == set(NAMES)
    assert {str(case).rsplit("-", 1)[0] for case in REFUSED} == {f"{name}__refused" for name in NAMES}
