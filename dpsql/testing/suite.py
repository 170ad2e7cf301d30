"""The conformance suite over one engine: statements, forms, draws and neighbours, each part with its result.

Neighbours are tables with and without one privacy unit. For all that a plan counts, weighs or bounds, the groups of all
units together are the sum of the groups of each unit alone. A unit therefore changes only groups that contain it, and
no counts of others. A number of different values is no such sum: a unit adds at most as many as it has alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from itertools import chain
from random import Random

import pyarrow as pa
import pyarrow.compute as pc

from dpsql.errors import Error, UsageError
from dpsql.sql.rewrite.engine_query import Bound
from dpsql.testing.draws import (
    can_draw,
    check_draws,
    draw_by_digest,
    draw_by_sha256,
    draws_by_sha256,
    find_draw_faults,
    has_keyed_hash,
)
from dpsql.testing.kit import DUCKDB, PORTABLE_KIT, Kit
from dpsql.testing.queries import (
    SALTS,
    OpenEngine,
    SuiteQuery,
    TrackedForms,
    analyze_shapes,
    answer_query,
    build_statement,
    count_measures,
    describe_difference,
    describe_error,
    find_differences,
    find_item_measures,
    list_columns,
    load_queries,
    open_kit,
    open_tables,
    rewrite_query,
    run_statement,
    sample_expressions,
    track_forms,
    write_expressions,
)
from dpsql.testing.tables import SHAPES, TABLES

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

    Of a slow engine's statements a sample is compared, one of each kind among them; what it refuses is found for all.
    """
    opened, _ = _track_statements(kit)
    sampled = _sample_queries(kit.every)
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


def _sample_queries(every: int) -> set[str]:
    """Return the names of one query in `every`, and of the first with each rewrite, with and without draws."""
    first: dict[object, str] = {}
    for query in load_queries():
        first.setdefault((query.rewrite, query.bound is None, query.items), query.name)
    return {*first.values(), *(query.name for query in load_queries()[::every])}


@cache
def _track_statements(kit: Kit) -> tuple[OpenEngine, TrackedForms]:
    """Return an engine of the kit with a dialect that records the forms that statements use, and the record."""
    opened = open_kit(kit)
    dialect, forms = track_forms(opened.catalog.dialect)
    return replace(opened, catalog=replace(opened.catalog, dialect=dialect)), forms


def _attempt(case: str, check: Callable[[], str]) -> list[tuple[str, str]]:
    """Return the fault of a case, if there is one; an exception is a fault, and hides no other case."""
    try:
        fault = check()
    except Exception as error:  # noqa: BLE001 - of the adapter
        fault = describe_error(error)
    return [(case, fault)] if fault else []


def _compare_statement(query: SuiteQuery, kit: Kit) -> str:
    opened = draw_by_digest(open_kit(kit)) if query.draws else _track_statements(kit)[0]
    found = answer_query(query, opened)
    reference = open_kit(kit, PORTABLE_KIT if query.draws else DUCKDB)  # DuckDB draws by a hash of its own
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
    opened, forms = _track_statements(kit)
    dialect = opened.catalog.dialect
    for query in load_queries():  # aggregates, windows and what the rewriter itself calls
        rewrite_query(query, opened.catalog)
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
        faults += _attempt("bounds", lambda: "; ".join(find_draw_faults(opened)))
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


_UNITS = {"reads": "user_id", "likes": "user_id", "visits": "member", "friends": "member"}
HEAVY, LIGHT = (1, "a "), (5, "\u00e9")  # a unit of whole numbers and one of text, which are removed together
_KEYS = [
    "article",
    "country",
    "n",
    "flag",
    "day",
    "amount",
    "price",
    "small",
    "n > 0",
    "country = 'DE'",
    "article IS NULL",
]
_KEYS += ["coalesce(country, 'none')", "CASE WHEN flag THEN n END", "price IS DISTINCT FROM 0", "price < 2"]
_FILTERS = ["n > 0", "article <> 'a'", "flag IS NOT TRUE", "price >= 0", "n BETWEEN 0 AND 5", "country IN ('DE', 'de')"]
_FILTERS += ["country IS NULL", "reads.user_id <> 1", "day >= DATE '2026-01-01'", "amount > 1.5", "big <> 0"]
_MEASURES = ["COUNT(*)", "COUNT(country)", "SUM(n)", "SUM(price)", "SUM(tiny)", "COUNT(DISTINCT reads.user_id)"]
_MEASURES += ["SUM(n) FILTER (WHERE flag)", "COUNT(*) FILTER (WHERE price > 1)"]
_SPREAD = "COVAR_POP(price, n, contribution_bounds_per_row => (-2, 40)) AS spread"
_SOURCES = ["reads", "reads JOIN countries AS c USING (country)", "reads LEFT JOIN days AS d USING (day)"]
_SOURCES += ["reads SEMI JOIN likes AS l ON reads.user_id = l.user_id", "(SELECT * FROM reads WHERE n <> 1) AS reads"]


Measures = Counter[tuple[object, ...]]  # by the keys of a group, and 0 for its count or 1 for its weight


@dataclass(frozen=True, eq=False)
class Neighbours:
    """An engine over the tables of all units, of all but the unit `name`, and of that unit alone."""

    name: str
    together: OpenEngine
    without: OpenEngine
    alone: OpenEngine


def _split(tables: Mapping[str, pa.Table], unit: tuple[int, str], *, kept: bool) -> dict[str, pa.Table]:
    """Return the tables with the rows of one unit alone, or without them, in another order."""
    found = dict(tables)
    for name, column in _UNITS.items():
        value = unit[column == "member"]
        same = pc.fill_null(pc.equal(tables[name].column(column), pa.scalar(value)), fill_value=False)
        rows = tables[name].filter(same if kept else pc.invert(same))
        order = list(range(rows.num_rows))
        # The order of the rows, of which no answer may depend, changes as well.
        Random(7).shuffle(order)
        found[name] = rows.take(pa.array(order, pa.int64()))
    return found


@cache
def open_neighbours(kit: Kit) -> tuple[Neighbours, ...]:
    """Return the neighbours of an engine: without a unit that has half of all rows, and without one of few rows."""
    everybody = {name: kit.fit(table) for name, table in TABLES.items()}
    fewer = _split(everybody, HEAVY, kept=False)
    parts = [everybody, fewer, _split(everybody, HEAVY, kept=True)]
    parts += [_split(fewer, LIGHT, kept=False), _split(fewer, LIGHT, kept=True)]
    held = [open_tables(kit, part) for part in parts]
    return Neighbours("heavy", held[0], held[1], held[2]), Neighbours("light", held[1], held[3], held[4])


def find_excess(query: SuiteQuery, among: Neighbours, *, kit: Kit) -> str:
    """Return, in a line, by how much a unit changes a group beyond what it has alone; empty if it does not."""
    written = open_neighbours(kit)[0].together
    # The first k groups of neighbours may be others, so that all groups are compared.
    cut = query.rewrite in {"top", "label"} and "TOP 1000 " not in query.text
    whole = replace(query, rewrite="all") if cut else query
    found = rewrite_query(whole, written.catalog)
    if found is None:
        return ""
    read = [_read(whole, held, kit=kit) for held in (among.together, among.without, among.alone)]
    if found.has_total:
        totals = [table.column(table.num_columns - 1).to_pylist() for table in read]
        # The number of units is the same in every row, and one unit raises it by 1 or, without a row that counts, by 0.
        if any(len(set(each)) > 1 for each in totals) or (
            all(totals) and not totals[0][0] - totals[1][0] == totals[2][0] <= 1
        ):
            return f"the number of units is {' and '.join(str(set(each)) for each in totals)}"
        read = [table.select(range(table.num_columns - 1)) for table in read]
    known = count_measures(query, written.catalog)
    together, without, alone = (_measured(table, whole, known=known) for table in read)
    shared = find_item_measures(query, written.catalog)
    return _beyond(whole, together, without=without, alone=alone, shared=shared)


@lru_cache(maxsize=8)
def _read(query: SuiteQuery, held: OpenEngine, *, kit: Kit) -> pa.Table:
    """Return an answer; that without the heavy unit is read again beside the light one."""
    written = open_neighbours(kit)[0].together
    found = rewrite_query(query, written.catalog)
    if found is None:
        raise TypeError(query.name)
    statement = build_statement(found)
    return run_statement(held.engine, replace(statement, sql=_addressed(statement.sql, written, held=held)))


def _beyond(
    query: SuiteQuery, together: Measures, *, without: Measures, alone: Measures, shared: frozenset[int]
) -> str:
    for *group, measure in sorted({*together, *without, *alone}):
        key = (*group, measure)
        added = together[key] - without[key]
        # that plan counts all units of the groups that somebody keeps
        if query.rewrite == "weighted_all" and not measure:
            # A group that only the unit has a weight in comes or goes with all of its units.
            fair = 0 <= added <= _most_added(query) or key not in without or key not in together
        elif measure in shared and not query.rewrite.startswith("weighted"):  # where 1 is the weight
            fair = 0 <= added <= alone[key]
        else:
            fair = added == alone[key]
        if not fair:
            return f"{group} has {together[key]} with the unit, {without[key]} without and {alone[key]} alone"
    counts = [count for (*_, measure), count in alone.items() if not measure]
    if _adds_sums(query):  # they have bounds of their own, which the reference of the measures checks
        return ""
    bound = None if query.rewrite == "weighted_all" else query.bound
    if max(counts, default=0) > 1 or (bound is not None and sum(counts) > bound.max_groups_contributed):
        return f"the unit alone counts {sum(counts)}, and {max(counts)} in one group"
    return ""


def _most_added(query: SuiteQuery) -> int:
    """Return how much one unit adds to one group at most: 1 where units are counted, else that of any measure."""
    return 2**20 if _adds_sums(query) else 1


def _adds_sums(query: SuiteQuery) -> bool:
    return query.name.startswith("measure_") or query.name in {"units_of_sums", "units_of_bounded_sums"}


def _addressed(sql: str, written: OpenEngine, *, held: OpenEngine) -> str:
    """Return SQL that was written for the tables of one engine with the addresses of another's."""
    for name in TABLES:  # a kit may give each set of tables a schema of its own, or names of their own
        for own, other in zip(written.engine.relation(name), held.engine.relation(name), strict=True):
            sql = sql.replace(own, other) if own != other else sql
    return sql


def _measured(table: pa.Table, query: SuiteQuery, *, known: int) -> Measures:
    """Return counts and weights, each by its keys and 0 for a count or 1 for a weight.

    For a ranking by several measures, only the first is compared: the others are not read where the first is 0.
    """
    columns = [column[1:] for column in list_columns(table)]
    weighted = query.rewrite.startswith("weighted")
    per = "PER " in query.text  # the last column is then the position of the partition
    keys = len(columns) - known - weighted - per
    measures = 1 + weighted if " TOP " in query.text else known
    found: Measures = Counter()
    for row in zip(*columns, strict=True):
        for at in range(measures):
            found[(*map(repr, row[:keys]), at)] += int(str(row[keys + at]))
    return found


def generate_queries(number: int) -> list[SuiteQuery]:
    """Return random queries, the same in every run; some are bounded or weighted, and some have sums."""
    random, found = Random(20_26), []
    for at in range(number):
        keys = [f"{key} AS k{place}" for place, key in enumerate(random.sample(_KEYS, random.randint(1, 3)))]
        condition = random.choice(["{0}", "{0} AND {1}", "{0} OR {1}", "NOT ({0} AND {1})"])
        where = condition.format(*random.sample(_FILTERS, 2))
        source = random.choice(_SOURCES)
        rest = f"FROM {source} WHERE {where} GROUP BY ALL TOP 9 PRIVATE"
        text = f"SELECT {', '.join(keys)} {rest}"
        kind = random.choice(["all", "all", "weighted", "weighted_all"])
        bound = Bound(random.choice([1, 2, 5]), SALTS) if kind != "all" or random.random() < 0.6 else None
        found.append(SuiteQuery(f"generated {at}: {text}", text, kind, bound=bound))
        measures = [f"{each} AS m{place}" for place, each in enumerate(random.sample(_MEASURES, random.randint(1, 2)))]
        measures += ["AVG(price) AS mean"] if at % 3 == 0 else []  # which ranks nothing
        measures += [_SPREAD] if at % 7 == 0 else []
        summed = f"SELECT {', '.join([*keys, *measures])} {rest}"
        if "(SELECT" not in source:  # columns of a subquery are none that the policy bounds
            found.append(SuiteQuery(f"measure_generated {at}: {summed}", summed, kind, bound=bound))
    return found
