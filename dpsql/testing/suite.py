"""The conformance suite over one engine: statements, forms, draws and neighbours, each part with its result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from dpsql.errors import Error, UsageError
from dpsql.testing.draws import (
    BOUNDS,
    can_draw,
    check_draws,
    draw_by_digest,
    draw_by_sha256,
    draws_by_sha256,
    find_draw_faults,
    has_keyed_hash,
)
from dpsql.testing.kit import DUCKDB, Kit
from dpsql.testing.kits.portable import KIT as PORTABLE
from dpsql.testing.neighbours import find_excess, generate_queries, open_neighbours
from dpsql.testing.queries import (
    SuiteQuery,
    analyze_shapes,
    answer_query,
    describe_difference,
    describe_error,
    find_differences,
    load_queries,
    open_kit,
    rewrite_query,
    sample_expressions,
    track_forms,
    write_expressions,
)
from dpsql.testing.tables import SHAPES

_GENERATED = 25  # random queries beside those of the suite
_NOT_EXPRESSIONS = frozenset(
    "avg avg_sorted canonical count count_distinct count_star cume_dist dense_rank divide_wide digested draw "
    "first_value gather in_query keyed_hash lag lead list list_field list_length list_positions list_rows lookup max "
    "md5 min mix ntile order percent_rank rank row_number signbit sum sum_sorted".split()
)  # forms of aggregates, windows and of the rewriter, used by statements
COVERAGE = "coverage"
_MAY_BE_MISSING = {"DECIMAL", "TIMESTAMP", "DATE", "BOOLEAN"}  # types that not every engine has


@dataclass(frozen=True)
class Result:
    """Result of one part of the suite: its cases, those compared, those refused, and what differed, by case."""

    check: str
    part: str
    cases: int
    compared: int
    refused: tuple[str, ...] = ()
    faults: tuple[tuple[str, str], ...] = ()

    def summary(self) -> str:
        """Return the numbers of cases, in words."""
        if self.part == COVERAGE:
            return f"{self.cases - len(self.faults):,} of {self.cases:,} forms used"
        answered = self.cases - len(self.refused)
        words = [f"{answered:,} of {self.cases:,} answered"]
        words += [f"{self.compared:,} compared"] if self.compared < answered else []
        words += [f"{len(self.faults):,} differ"] if self.faults else []
        return ", ".join(words)

    def describe(self) -> str:
        """Return the faults, a line each; several cases with the same fault share a line."""
        cases: dict[str, list[str]] = {}
        for case, fault in self.faults:
            cases.setdefault(fault, []).append(case)
        return "\n".join(
            f"{first}{f' and {len(rest)} more' if rest else ''}: {fault}" for fault, (first, *rest) in cases.items()
        )


def compare_statements(kit: Kit, names: Collection[str] = ()) -> Iterator[Result]:
    """Compare the answers to the statements of each file, or to those with these names, with DuckDB's.

    Of a slow engine's statements a sample is compared; what it refuses is found for all.
    """
    opened = open_kit(kit)
    sampled = {query.name for query in load_queries()[:: kit.every]}
    for part in dict.fromkeys(query.part for query in load_queries()):
        queries = [query for query in load_queries() if query.part == part and (query.name in names or not names)]
        if not queries:
            continue
        refused: list[str] = []
        faults: list[tuple[str, str]] = []
        compared = 0
        for query in queries:
            try:
                if rewrite_query(query, opened.catalog) is None:
                    refused.append(query.name)
                    continue
            except Error as error:
                faults.append((query.name, describe_error(error)))
                continue
            if query.name in sampled and query.name not in kit.unlike:
                compared += 1
                faults += _attempt(query.name, partial(_compare_statement, query, kit))
        yield Result("statements", part, len(queries), compared, tuple(refused), tuple(faults))


def _attempt(case: str, check: Callable[[], str]) -> list[tuple[str, str]]:
    """Return the fault of a case, if there is one; an exception is a fault, and hides no other case."""
    try:
        fault = check()
    except Exception as error:  # noqa: BLE001 - of the adapter
        fault = describe_error(error)
    return [(case, fault)] if fault else []


def _compare_statement(query: SuiteQuery, kit: Kit) -> str:
    opened = draw_by_digest(open_kit(kit)) if query.draws else open_kit(kit)
    found = answer_query(query, opened)
    reference = open_kit(kit, PORTABLE if query.draws else DUCKDB)  # DuckDB draws by a hash of its own
    by_sha256 = query.draws and draws_by_sha256(opened)
    expected = answer_query(query, draw_by_sha256(reference) if by_sha256 else reference)
    if found is None or expected is None:
        raise TypeError(query.name)
    other_draw = query.draws and has_keyed_hash(opened) and not by_sha256
    differs = query.own or query.name in kit.own or other_draw
    own = replace(query, own=differs)
    return describe_difference(own, expected, found=found)


def compare_forms(kit: Kit, parts: Collection[str] = ()) -> Iterator[Result]:
    """Compare the values of all expressions of each kind that the dialect can write, or of these kinds, with DuckDB's.

    The part "coverage" is of the forms that no expression and no statement of the suite uses.
    """
    tested, reference = open_kit(kit), open_kit(kit, DUCKDB)
    dialect = tested.catalog.dialect
    used: set[str] = set()
    for part, shapes in SHAPES.items():
        if parts and not {part, COVERAGE} & {*parts}:
            continue
        expressions = analyze_shapes(shapes, reference.catalog)
        written = write_expressions(expressions, dialect)
        used = used.union(*written.values())
        if parts and part not in parts:
            continue
        chosen = sample_expressions(written, kit.every)
        sample = [each for each in expressions if each.text in chosen]
        differences = find_differences(sample, tested=tested, reference=reference, dialect=dialect, reach=kit.reach)
        faults = [(_label(each.text, written[each.text]), difference) for each, difference in differences]
        refused = [each.text for each in expressions if each.text not in written]
        yield Result("forms", part, len(expressions), len(sample), tuple(refused), tuple(faults))
    if not parts or COVERAGE in parts:
        faults = [(f'"{form}"', "never used") for form in _find_unused(kit, used)]
        yield Result("forms", COVERAGE, len(dialect.forms), len(dialect.forms), (), tuple(faults))


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
    """Compare the groups that units keep under a bound with those of a reference in Python, and test the draws."""
    opened = draw_by_digest(open_kit(kit))
    if not can_draw(opened) and not has_keyed_hash(opened):
        yield Result("draws", "draws", 1, 0, ("bounds",))
        return
    faults = _attempt("hash", lambda: "; ".join(check_draws(kit)))
    if can_draw(opened):
        bounds = BOUNDS if kit.every == 1 else (5,)  # one is like another but for its number
        faults += _attempt("bounds", lambda: "; ".join(find_draw_faults(opened, bounds)))
    yield Result("draws", "draws", 1, 1, (), tuple(faults))


def compare_neighbours(kit: Kit, _parts: Collection[str] = ()) -> Iterator[Result]:
    """Check that a unit changes counts by at most what it has alone, for private statements and for random ones."""
    queries = [query for query in load_queries() if " PRIVATE" in query.text] + generate_queries(_GENERATED)
    pairs = open_neighbours(kit)
    refused = tuple(query.name for query in queries if rewrite_query(query, pairs[0].together.catalog) is None)
    sample = [query for query in queries if query.name not in refused][:: kit.share]
    faults: list[tuple[str, str]] = []
    for query in sample:
        for among in pairs:
            faults += _attempt(f"{query.name}, {among.name} unit", partial(find_excess, query, among, kit=kit))
    yield Result("neighbours", "neighbours", len(queries), len(sample), refused, tuple(faults))


_CHECKS: dict[str, Callable[[Kit, Collection[str]], Iterator[Result]]] = {
    "statements": compare_statements,
    "forms": compare_forms,
    "draws": draw_groups,
    "neighbours": compare_neighbours,
}


def list_parts() -> dict[str, tuple[str, ...]]:
    """Return the parts of each check, in their order."""
    files = tuple(dict.fromkeys(query.part for query in load_queries()))
    return {"statements": files, "forms": (*SHAPES, COVERAGE), "draws": (), "neighbours": ()}


def run_checks(kit: Kit, only: Collection[str] = ()) -> Iterator[Result]:
    """Run all checks, or the checks, parts and statements with these names, and yield a result for each part."""
    parts, queries = list_parts(), {query.name: query for query in load_queries()}
    unknown = sorted({*only} - {*parts, *chain(*parts.values()), *queries})
    if unknown:
        known = ", ".join(chain(parts, *parts.values()))
        reason = f"The suite has no check, part or statement {unknown[0]}."
        raise UsageError("suite-part", reason, hint=f"Name a statement, or one of {known}.")
    for check, run in _CHECKS.items():
        chosen = {part for part in parts[check] if part in only}
        if check in only or not only:
            yield from run(kit, ())
        elif check == "statements":
            named = {name for name, query in queries.items() if name in only or query.part in chosen}
            if named:  # a statement that is named is never left out
                yield from run(kit if chosen else kit.sample(1), named)
        elif chosen:
            yield from run(kit, chosen)
