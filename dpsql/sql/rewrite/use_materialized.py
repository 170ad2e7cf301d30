"""Pass that reads materialized tables in place of the rows of a table, with the same answers.

Where a private query counts distinct units or values, rows that agree in the unit and in every column that the query
names can be read once. The materialized pairs replace the rows of a table everywhere except below aggregates, windows
and set operations, which count rows. Three short forms are faster still. They need a query of one table whose keys,
with the columns that WHERE fixes to one value, identify one stored row of a unit:

* COUNTS: the groups of a unit are unbounded and the query does not name the unit. The counts are stored:
  SELECT city, count(DISTINCT user_id) FROM visits GROUP BY city      becomes      SELECT city, dpsql_units FROM counts
* PAIRS: as COUNTS, but WHERE names the unit. Each row of the pairs is one unit of a group:
  SELECT city, count() FROM pairs WHERE user_id <> 7 GROUP BY city
* RANKS: the groups are bounded and the rows are unfiltered. The first groups of a unit are those of its first ranks:
  SELECT city, count() FROM pairs WHERE dpsql_rank <= 2 GROUP BY city

Rows and sums can be read in a query of one table whose sets have them. Both tables of a set have the same columns of
measures. In the pairs they are of one unit: the number of its rows (ROWS), and for each summed column, by its position,
the number of rows where it is not NULL and the steps of these rows added up. These are not clamped, so that pairs can
be added up and clamped like rows; in the short forms there is one pair of a unit and a group. In the counts they are of
all units of a group, each clamped to the bounds of the policy; without a bound of rows, sums alone.

The text of the query and the order of the policy decide the choice, never the data.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from dpsql.dialects import DUCKDB
from dpsql.sql.ir.catalog import Form, MaterializedSet, StoredMeasures
from dpsql.sql.ir.measures import Aggregate, ContributionRange, Measure
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.transforms import rebuild
from dpsql.sql.ir.tree import (
    BIGINT,
    Call,
    Case,
    Cast,
    ColumnRef,
    Derived,
    Expression,
    FromWhere,
    In,
    Joined,
    Literal,
    Relation,
    Scan,
    Window,
    find_read_type,
    is_aggregate,
    is_column,
    join_conjuncts,
    list_scans,
    split_conjuncts,
    walk,
)

UNITS = "dpsql_units"
ROWS = "dpsql_rows"
Named = defaultdict[int, set[str]]
_OF_DISTINCT_ROWS = frozenset([Aggregate.UNITS, Aggregate.ITEMS])


@dataclass(frozen=True, slots=True)
class QuerySource:
    """Query over its chosen source, the form of the source, and a description: "" where it reads only rows.

    `steps` are the expressions over the source that have the steps of each measure, none where rows are read. Where the
    form is COUNTS, `of_units` is the query over the pairs that the counts were made from.
    """

    query: PrivateQuery
    form: Form = Form.ROWS
    description: str = ""
    steps: tuple[Expression, ...] = ()
    of_units: PrivateQuery | None = None


def use_materialized(query: PrivateQuery, *, bounded: bool) -> QuerySource:
    """Choose the source of a query: the first materialized table with a short form, else pairs, else rows.

    Where the data is in another engine than DuckDB, its tables change while they are materialized. A query that would
    read the rows of a private table beside what is materialized reads rows alone.
    """
    if not query.materialized:
        return QuerySource(query)
    found = _use_short_form(query, bounded=bounded)
    if found is None and not all(measure.aggregate in _OF_DISTINCT_ROWS for measure in query.measures):
        found = _use_pairs_with_measures(query)
    elif found is None:
        measured = [part for each in query.measures for part in (each.argument, each.condition) if part is not None]
        named, used = _collect_columns((*query.keys, query.unit, *measured), query.body), list[MaterializedSet]()
        source = _replace_tables(query.body.source, named, query=query, used=used)
        description = "; ".join(dict.fromkeys(_describe("pairs", each) for each in used))
        found = QuerySource(replace(query, body=replace(query.body, source=source)), description=description)
    if query.dialect is not DUCKDB:
        read = found.query.unit, found.query.keys, found.query.body, found.query.measures
        if any(scan.path in query.private_paths for scan in list_scans(read)):
            return QuerySource(query)
    return found


def _use_short_form(query: PrivateQuery, *, bounded: bool) -> QuerySource | None:
    """Return the query in a short form; None if no materialized table fits."""
    scan, unit, conditions = query.body.source, query.unit, split_conjuncts(query.body.where)
    if not isinstance(scan, Scan) or not is_column(unit) or query.partitions is not None:
        return None
    if bounded and (conditions or query.domain is not None):  # the ranks also number the groups that a filter drops
        return None
    # WHERE country = 'IT' GROUP BY city is answered by the set (city, country):
    # each city has one row of a unit there
    fixed = set(map(_find_fixed_column, conditions))
    # `columns <= identified` below: with (city, country) and no condition on country, a unit may have two rows of a
    # city.
    identified = set(map(_find_column_name, query.keys)) | fixed
    keys, filters = _collect_columns(query.keys)[scan.number], _collect_columns(conditions)[scan.number]
    for path, each in query.materialized:
        columns = set(each.columns)
        fits = path == scan.path and keys <= columns <= identified and filters <= {*columns, each.unit}
        if not fits:
            continue
        form = Form.RANKS if bounded else Form.PAIRS if each.unit in filters else Form.COUNTS
        steps = _find_steps(query, each, counted=form is Form.COUNTS)
        if form is Form.COUNTS and not steps:
            form, steps = Form.PAIRS, _find_steps(query, each, counted=False)
        if steps:
            return _read_set(query, each, form=form, steps=steps)
    return None


def _use_pairs_with_measures(query: PrivateQuery) -> QuerySource:
    """Return the query over the narrowest pairs that have its measures and every named column, else over rows."""
    scan = query.body.source
    if not isinstance(scan, Scan):
        return QuerySource(query)
    # WHERE age > 18 GROUP BY city reads the set (city, age), and adds up the rows of a unit in a city; (city) lacks age
    named = _collect_columns((*query.keys, query.unit), query.body)[scan.number]
    fits = [
        (each, steps)
        for path, each in query.materialized
        if path == scan.path and named <= {each.unit, *each.columns}
        if (steps := _find_steps(query, each, counted=False))
    ]
    if not fits:
        return QuerySource(query)
    least, steps = min(fits, key=lambda fit: len(fit[0].columns))
    return _read_set(query, least, form=Form.ROWS, steps=steps)


def _find_steps(query: PrivateQuery, each: MaterializedSet, *, counted: bool) -> tuple[Expression, ...]:
    """Return the expressions that have the steps of all measures in one set; none if it lacks one."""
    scan, found = query.body.source, list[Expression]()
    if not isinstance(scan, Scan):
        return ()
    for measure in query.measures:
        steps = find_stored_steps(measure, each.measures, relation=scan.number, counted=counted)
        conditions = [steps.branches[0][0]] if isinstance(steps, Case) else []
        if steps is None or not _collect_columns(conditions)[scan.number] <= {each.unit, *each.columns}:
            return ()
        found.append(steps)
    return tuple(found)


def _read_set(query: PrivateQuery, each: MaterializedSet, *, form: Form, steps: tuple[Expression, ...]) -> QuerySource:
    """Return the query of one table over a materialized set."""
    number = query.body.source.number if isinstance(query.body.source, Scan) else 0
    description = _describe("pairs" if form is Form.ROWS else form.name.lower(), each)
    pairs = replace(query, body=replace(query.body, source=Scan(number, each.pairs)))
    if form is not Form.COUNTS:
        return QuerySource(pairs, form, description, steps)
    counts = replace(query, body=replace(query.body, source=Scan(number, each.counts)))
    return QuerySource(counts, form, description, steps, pairs)


def _describe(what: str, each: MaterializedSet) -> str:
    return f"materialized {what} of {', '.join(each.columns) or 'all rows'}"


def _replace_tables(relation: Relation, named: Named, *, query: PrivateQuery, used: list[MaterializedSet]) -> Relation:
    """Replace each table of the relation by its narrowest pairs that have every named column, if there are any."""
    match relation:
        case Scan(number=number, path=path):
            fits = [
                each
                for table, each in query.materialized
                if table == path and named[number] <= {each.unit, *each.columns}
            ]
            if not fits:
                return relation
            used.append(least := min(fits, key=lambda each: len(each.columns)))
            return Scan(number, least.pairs)
        case Joined(left=left, right=right):
            left = _replace_tables(left, named, query=query, used=used)
            return replace(relation, left=left, right=_replace_tables(right, named, query=query, used=used))
        case Derived(outputs=outputs, body=body):
            parts = [part for output in outputs for part in walk(output)]
            # COUNT(*) of a subquery over pairs would count each different row once.
            if not any(isinstance(part, Window) or is_aggregate(part) for part in parts):  # which count rows
                source = _replace_tables(body.source, named, query=query, used=used)
                return replace(relation, body=replace(body, source=source))
    return relation


def _find_fixed_column(condition: Expression) -> str:
    """Return the column that a condition fixes to one value; "" for none."""
    match condition:
        case Call(function="=", arguments=(column, Literal()) | (Literal(), column)):
            return _find_column_name(column)
        case Call(function="is_null", arguments=(column,)) | In(argument=column, choices=(Literal(),)):
            return _find_column_name(column)
    return ""


def _find_column_name(expression: Expression) -> str:
    """Return the name of an expression that is a column or the text of an ENUM column; "" for all else."""
    column = expression.argument if isinstance(expression, Cast) else expression
    return column.name if isinstance(column, ColumnRef) and is_column(expression) else ""


def _collect_columns(expressions: Iterable[Expression], body: FromWhere | None = None) -> Named:
    """Collect the names of the columns that the expressions use of each relation, in subqueries too."""
    found: Named = defaultdict(set)

    def note(expression: Expression) -> Expression:
        if isinstance(expression, ColumnRef):
            found[expression.relation].add(expression.name)
        return rebuild(expression, note)

    for expression in expressions:
        note(expression)
    if body is not None:
        rebuild(body, note)
    return found


def name_values(at: int) -> str:
    """Return the column with the number of values that are not NULL of summed column number `at`, from 0."""
    return f"dpsql_values_{at + 1}"


def name_sum(at: int) -> str:
    """Return the column with the sum, in steps, of summed column number `at`, from 0."""
    return f"dpsql_sum_{at + 1}"


def read_number(column: ColumnRef) -> Expression:
    """Return a column of numbers as every query reads it."""
    read = find_read_type(column.type)
    return column if read == column.type else Cast(column, read)


def find_stored_steps(
    measure: Measure, stored: StoredMeasures | None, *, relation: int, counted: bool
) -> Expression | None:
    """Return the expression over pairs that has the steps of a measure, or None if they are not stored.

    With `counted` it is over the counts, which have measures without a condition, and only under the policy's bounds.
    A condition of FILTER remains, but for IS NOT NULL of a summed column: its columns must be those of the set. What a
    unit adds to coupled measures is found from all of its rows, before the bounds of any measure.
    """
    weight, sums = measure.weight, () if stored is None else stored.sums
    # With `counted` each unit was clamped for one measure alone, and the weight of a set needs all sums of the unit.
    if measure.row_range is not None or (weight is not None and (counted or weight.centre is not None)):
        return None  # rows are not stored with the values that they have in this measure
    conditions, name = split_conjuncts(measure.condition), ""
    if measure.aggregate is Aggregate.UNITS:
        name = UNITS
    elif stored is not None and measure.aggregate is Aggregate.ROWS:
        name = ROWS
        for at, (column, _) in enumerate(sums):
            # COUNT(amount) is COUNT(*) FILTER (WHERE amount IS NOT NULL) here: dpsql_values_1 has that number.
            rest = [each for each in conditions if not _is_present(each, column, relation=relation)]
            if len(rest) < len(conditions):
                name, conditions = name_values(at), rest
                break
        if counted and measure.bounds != ContributionRange(0, stored.rows or 0):
            return None
    elif measure.aggregate is Aggregate.SUM:
        found = [
            name_sum(at)
            for at, (column, bounds) in enumerate(sums)
            if _is_stored_column(measure.argument, column, relation=relation) and measure.row_bounds == bounds
        ]
        name = next(iter(found), "")
    if not name or (counted and conditions):
        return None
    one_unit = name == UNITS and not counted
    # SUM(amount) FILTER (WHERE city = 'Rome') becomes CASE WHEN city = 'Rome' THEN dpsql_sum_1 ELSE 0 END
    steps: Expression = Literal(1, BIGINT) if one_unit else ColumnRef(relation, name, BIGINT)
    condition = join_conjuncts(conditions)
    return steps if condition is None else Case(((condition, steps),), Literal(0, BIGINT), BIGINT)


def _is_present(condition: Expression, column: str, *, relation: int) -> bool:
    match condition:
        case Call(function="not", arguments=(Call(function="is_null", arguments=(argument,)),)):
            return _is_stored_column(argument, column, relation=relation)
    return False


def _is_stored_column(expression: Expression | None, column: str, *, relation: int) -> bool:
    """Say whether an expression is the stored column, read as every query reads it."""
    inner = expression.argument if isinstance(expression, Cast) else expression
    if not isinstance(inner, ColumnRef) or (inner.relation, inner.name) != (relation, column):
        return False
    return expression in {inner, read_number(inner)}
