"""The conformance suite over one engine: statements, forms, draws and neighbours, each part with its result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from dpsql.testing.draws import BOUNDS, find_draw_faults
from dpsql.testing.forms import analyze_shapes, find_differences, sample_expressions, track_forms, write_expressions
from dpsql.testing.kit import DUCKDB, Kit
from dpsql.testing.kits.portable import KIT as PORTABLE
from dpsql.testing.neighbours import find_excess, generate_queries, open_neighbours
from dpsql.testing.queries import (
    SuiteQuery,
    answer_query,
    describe_difference,
    describe_error,
    load_queries,
    open_kit,
    rewrite_query,
)
from dpsql.testing.shapes import SHAPES

__all__ = ["CHECKS", "Result", "compare_forms", "compare_neighbours", "compare_statements", "draw_groups", "list_parts"]

_GENERATED = 25  # random queries beside those of the suite
_NOT_EXPRESSIONS = frozenset(
    "avg avg_sorted canonical count count_distinct count_star cume_dist dense_rank first_value in_query lag lead "
    "lookup max md5 min ntile order percent_rank rank row_number signbit sum sum_sorted".split()
)  # forms of aggregates, windows and of the rewriter, used by statements
_MAY_BE_MISSING = {"DECIMAL", "TIMESTAMP", "DATE", "BOOLEAN"}  # types that not every engine has


@dataclass(frozen=True)
class Result:
    """Result of one part of the suite: how many cases were compared, which were refused, and what differed, by case."""

    check: str
    part: str
    compared: int
    refused: tuple[str, ...] = ()
    faults: tuple[tuple[str, str], ...] = ()

    def describe(self) -> str:
        """Return the faults, a line each."""
        return "\n".join(f"{case}: {fault}" for case, fault in self.faults)


def compare_statements(kit: Kit, names: Collection[str] = ()) -> Iterator[Result]:
    """Compare the answers to the statements of each file, or to those with these names, with DuckDB's."""
    sampled = {query.name for query in load_queries()[:: kit.every]}
    for part in dict.fromkeys(query.part for query in load_queries()):
        queries = [query for query in load_queries() if query.part == part and (query.name in names or not names)]
        refused, faults, compared = [], [], 0
        for query in queries:
            try:
                if rewrite_query(query, open_kit(kit).catalog) is None:
                    refused.append(query.name)
                    continue
                if query.name not in sampled and query.name not in names:
                    continue
                compared += 1
                difference = _compare_statement(query, kit)
            except Exception as error:  # noqa: BLE001 - one failure is to hide no other
                difference = describe_error(error)
            if difference:
                faults.append((query.name, difference))
        yield Result("statements", part, compared, tuple(refused), tuple(faults))


def _compare_statement(query: SuiteQuery, kit: Kit) -> str:
    found = answer_query(query, open_kit(kit))
    # DuckDB draws by a hash of its own
    expected = answer_query(query, open_kit(kit, PORTABLE if query.draws else DUCKDB))
    if found is None or expected is None:
        raise TypeError(query.name)
    own = replace(query, own=query.own or query.name in kit.own)
    return describe_difference(own, expected, found=found)


def compare_forms(kit: Kit, parts: Collection[str] = ()) -> Iterator[Result]:
    """Compare the values of all expressions of each kind that the dialect can write, or of these kinds, with DuckDB's.

    Without `parts`, the last result is of the forms that no expression and no statement of the suite uses.
    """
    tested, reference = open_kit(kit), open_kit(kit, DUCKDB)
    dialect = tested.catalog.dialect
    used: set[str] = set()
    for part, shapes in SHAPES.items():
        if parts and part not in parts:
            continue
        expressions = analyze_shapes(shapes, reference.catalog)
        written = write_expressions(expressions, dialect)
        used = used.union(*written.values())
        chosen = sample_expressions(written, kit.every)
        sample = [each for each in expressions if each.text in chosen]
        differences = find_differences(sample, tested=tested, reference=reference, dialect=dialect, reach=kit.reach)
        faults = [(_label(each.text, written[each.text]), difference) for each, difference in differences]
        refused = [each.text for each in expressions if each.text not in written]
        yield Result("forms", part, len(sample), tuple(refused), tuple(faults))
    if not parts:
        unused = _find_unused(kit, used)
        yield Result("forms", "unused", len(dialect.forms), (), tuple((f'"{form}"', "never used") for form in unused))


def _label(text: str, forms: Collection[str]) -> str:
    return f"{text} [{', '.join(sorted(forms))}]" if forms else text


def _find_unused(kit: Kit, used: Collection[str]) -> list[str]:
    """Return the forms of the dialect that nothing in the suite uses."""
    catalog = open_kit(kit).catalog
    dialect, forms = track_forms(catalog.dialect)
    for query in load_queries():  # aggregates, windows and what the rewriter itself calls
        rewrite_query(query, replace(catalog, dialect=dialect))
    # a FLOAT is itself where rows are told apart, and is read as a DOUBLE elsewhere
    by_statements = {
        name for name in forms.used if name.split()[0].partition("/")[0] in _NOT_EXPRESSIONS or "FLOAT" in name
    }
    (table,) = (each for each in open_kit(kit, DUCKDB).catalog.tables if each.name == "lefts")
    missing = {*kit.types, *_MAY_BE_MISSING - {type_.family.name for _, type_ in table.columns}}
    testable = {name for name in dialect.forms if not set(name.split()[1:]) & missing}
    return sorted(testable - by_statements.union(used))


def draw_groups(kit: Kit, _parts: Collection[str] = ()) -> Iterator[Result]:
    """Compare the groups that units keep under a bound with those of a reference in Python."""
    faults = find_draw_faults(open_kit(kit))
    if faults is None:
        yield Result("draws", "draws", 0, ("bounds",))
    else:
        yield Result("draws", "draws", len(BOUNDS), (), tuple(("bounds", fault) for fault in faults))


def compare_neighbours(kit: Kit, _parts: Collection[str] = ()) -> Iterator[Result]:
    """Check that a unit changes counts by at most what it has alone, for private statements and for random ones."""
    queries = [query for query in load_queries() if " PRIVATE" in query.text] + generate_queries(_GENERATED)
    sample = queries[:: kit.share]
    faults = [
        (f"{query.name}, {among.name} unit", excess)
        for among in open_neighbours(kit)
        for query in sample
        if (excess := find_excess(query, among, kit=kit))
    ]
    yield Result("neighbours", "neighbours", len(sample), (), tuple(faults))


CHECKS: dict[str, Callable[[Kit, Collection[str]], Iterator[Result]]] = {
    "statements": compare_statements,
    "forms": compare_forms,
    "draws": draw_groups,
    "neighbours": compare_neighbours,
}


def list_parts() -> dict[str, tuple[str, ...]]:
    """Return the parts of each check, in their order."""
    files = tuple(dict.fromkeys(query.part for query in load_queries()))
    return {"statements": files, "forms": tuple(SHAPES), "draws": ("draws",), "neighbours": ("neighbours",)}
