"""One private query: a SELECT with its clause, which is written or is implied by standard SQL (`plain_select.py`).

This file has two parts: (1) `read_private` reads a SELECT with its clause: keys, measures, unit, domain and order.
ORDER BY, LIMIT and HAVING are over the columns of the released table: post-processing, and free. So are the ends of
intervals in the select list: value_low, value_high, and WITH (intervals = true). (2) From `AnalysisRequest` on, what a
statement is analyzed with, and the checks of a private query that is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, cast

from dpsql.dialects import write_name
from dpsql.errors import Refusal, Unsupported
from dpsql.sql.allow_list import HIGH_ENDS, INTERVAL_ENDS, PatternCheck
from dpsql.sql.analysis.domains import (
    check_groups_known,
    needs_bounds,
    read_assumption,
    read_domain,
    read_group_domain,
    read_partitions,
)
from dpsql.sql.analysis.expressions import READERS
from dpsql.sql.analysis.from_clause import Sources
from dpsql.sql.analysis.known_values import count_values
from dpsql.sql.analysis.measure_forms import couple_measures, set_columns
from dpsql.sql.analysis.measures import (
    RELEASED_AGGREGATES,
    ReadMeasure,
    find_function,
    is_measure,
    is_quantile,
    name_unit,
    read_end_argument,
    read_measure,
    read_quantile,
    refuse_end,
)
from dpsql.sql.analysis.outer_tree import SelectParser
from dpsql.sql.analysis.reader import Reader, read_alias, read_position, read_row_count
from dpsql.sql.analysis.row_facts import find_charged_values, find_item_columns, find_private_columns, find_sole_column
from dpsql.sql.analysis.subqueries import check_alias
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.literals import Clock, UnboundParameter, fill_unbound
from dpsql.sql.ir.measures import DISTINCT_UNITS, Aggregate, Measure, Quantile
from dpsql.sql.ir.scope import Scope
from dpsql.sql.ir.statements import (
    ChargedValues,
    Clause,
    Domain,
    HavingTerm,
    IntervalEnd,
    Option,
    Order,
    Output,
    PrivateQuery,
)
from dpsql.sql.ir.tree import (
    BIGINT,
    Cast,
    ColumnRef,
    Expression,
    Family,
    FromWhere,
    Literal,
    Scan,
    find_read_type,
    join_conjuncts,
    split_conjuncts,
)
from dpsql.sql.lexer import ScannedStatement, Value, ascii_lower
from dpsql.sql.syntax.block import QUANTILES
from dpsql.sql.syntax.clause import PrivacyHeader, SplitStatement
from dpsql.sql.syntax.computed import ComputedSelect
from dpsql.sql.syntax.grammar import allow_only, find_every_column, pair_items_with_text, parse, read_direction, settle
from dpsql.sql.syntax.implied import StandardSQL

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node


MAX_KEYS = 16
_KEY_FAMILIES = frozenset(
    [Family.BOOLEAN, Family.INTEGER, Family.DECIMAL, Family.DOUBLE, Family.TEXT, Family.DATE, Family.TIMESTAMP]
)
_SELECT_PARTS = "with_ expressions from_ joins where group having order limit distinct offset".split()
_COMPARISONS = {"EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_LEVEL = 0.95
_AGGREGATE_NODES = frozenset(["Anonymous", "Count", "Filter"])
_AGGREGATES = RELEASED_AGGREGATES | INTERVAL_ENDS | QUANTILES
ROW_CAP = 1_000  # a LIMIT from here on is a tool's own: no reader of a chart wants so many keys by name


@dataclass(slots=True)
class _Item:
    """One item of the outermost select list; `expression` is None for an aggregate: the `measure` or the `quantile`.

    With `end` it is an end of the interval of the measure. It is `added` if an option puts it beside the written items.
    """

    name: str
    expression: Expression | None
    node: Node
    measure: ReadMeasure | None = None
    end: IntervalEnd | None = None
    added: bool = False
    quantile: Quantile | None = None


def read_private(sources: Sources, lifted: SplitStatement) -> PrivateQuery:  # noqa: C901, PLR0912, PLR0915 - one rule after another
    """Return the private query of a SELECT that has a clause; raise `Refusal` or `Unsupported`."""
    assert lifted.clause is not None  # noqa: S101 - of the caller
    reader, catalog, clause = sources.reader, sources.catalog, lifted.clause
    statement = reader.statement
    select = parse(statement, settle(statement, lifted.tokens, aggregates=_AGGREGATES))
    if read_row_count(reader, select, clause="offset"):
        hint = "Ask for more keys with TOP k and leave the first rows of the answer out."
        reason, where = "OFFSET is not read in a private query.", reader.place(select.args["offset"])
        raise Unsupported("limit", reason, hint=hint, place=where)
    allow_only(statement, select, *_SELECT_PARTS)
    if select.args.get("with_") is not None:
        sources.define(select.args["with_"])
    body, scope = sources.read_from_and_where(select)
    private = scope.private
    if private is None or scope.unit is None:
        hint = "Leave the clause out: public tables are answered exactly, at no cost."
        if clause.shape == "top":
            hint = "Leave TOP k PRIVATE out and write ORDER BY ... LIMIT k: "
            hint += "public tables are answered exactly, at no cost."
        reason = "No table of this query has a privacy unit."
        raise Refusal("nothing-private", reason, hint=hint, place=reader.place(select))
    named = None if clause.stated is None else clause.stated.unit_column
    if named is not None and not (named.word and ascii_lower(str(named.value)) == ascii_lower(private.unit_name or "")):
        hint = f"Write privacy_unit_column = {write_name(private.unit_name or '')}, or leave it out."
        raise Refusal("option", "The policy has another privacy unit here.", hint=hint, place=named.place)
    with reader.correlating():
        items = _read_items(reader, pair_items_with_text(statement, select, tokens=lifted.tokens), scope=scope)
        keys = _read_keys(reader, select, items=items, clause=clause)
        if len(items) > len(keys) or "intervals" in clause.options:
            items = _complete_ends(reader, items, options=clause.options)
    if len(set(map(ascii_lower, map(attrgetter("name"), items)))) < len(items):
        hint, where = "Give each output its own alias.", reader.place(select)
        raise Refusal("output-names", "Two outputs have the same name.", hint=hint, place=where)
    order = () if select.args.get("order") is None else _read_order(reader, select.args["order"], items=items)
    measures: tuple[Measure, ...] = (DISTINCT_UNITS,)
    condition: Expression | None = None
    counted: Expression | None = None
    quantiles: Sequence[Quantile] = ()
    if len(items) > len(keys):
        measures, condition, counted = _choose_measures(reader, items, order=order, clause=clause)
        quantiles = sorted({item.quantile for item in items if item.quantile is not None}, key=repr)
    domain, bucket_note = None, ""
    if clause.shape == "all" or "domain" in clause.options:
        domain, bucket_note = _find_domain(reader, keys, body=body, clause=clause, sources=sources)
    unit, outputs = counted or scope.unit, list[Output]()
    for item in items:
        if item.expression is not None:
            outputs.append(Output(item.name, keys.index(item.expression)))
        elif item.quantile is not None:
            outputs.append(Output(item.name, None, quantile=quantiles.index(item.quantile)))
        elif item.measure is None or measures == (DISTINCT_UNITS,):
            outputs.append(Output(item.name, None, end=item.end))
        else:
            output = Output(item.name, None, end=item.end, statistic=item.measure.statistic)
            outputs.append(output.place([measures.index(each) for each in item.measure.every]))
    charged_values: ChargedValues | None = None
    # A policy has at most one table with `budget_by`.
    for table in catalog.tables:
        if table.budget_by is not None:
            charged_values = find_charged_values(body, unit, table=table)
    assumed, having = clause.options.get("assume"), select.args.get("having")
    query = PrivateQuery(
        text=statement.text,
        table=private.private_table or "",
        unit_name=private.unit_name or "",
        protected=tuple(sorted(sources.protected.items())),
        unit=unit,
        keys=keys,
        body=FromWhere(body.source, join_conjuncts([*split_conjuncts(body.where), *split_conjuncts(condition)])),
        outputs=tuple(outputs),
        order=order,
        limit=read_row_count(reader, select, clause="limit"),
        clause=clause,
        explained=lifted.explained,
        keep=() if having is None else _read_having(reader, having, items=items),
        domain=domain,
        assumed=None if assumed is None else read_assumption(assumed, catalog=catalog),
        dialect=catalog.dialect,
        materialized=catalog.materialized,
        private_tables=catalog.private_tables,
        measures=measures,
        quantiles=tuple(quantiles),
        key_column=find_sole_column(keys[0], body.source, catalog=catalog) if len(keys) == 1 else None,
        bucket_note=bucket_note,
        charged_values=charged_values,
    )
    if len(items) > len(keys):
        query = couple_measures(_find_columns(query, catalog))
    if clause.per is not None or "partitions" in clause.options:
        query = read_partitions(query, _find_per(clause, items, keys=keys, scope=scope), catalog=catalog)
    return _count_key_values(query, catalog)


def _find_columns(query: PrivateQuery, catalog: Catalog) -> PrivateQuery:
    """Return the query with the stored columns that its measures and quantiles are worked out from."""
    source, measures = query.body.source, list[Measure]()
    for each in query.measures:
        find = find_item_columns if each.aggregate is Aggregate.ITEMS else find_private_columns
        found = set_columns(each, partial(find, source=source, catalog=catalog))
        if each.factor is not None:
            columns = find_private_columns(each.factor.argument, source, catalog=catalog)
            found = replace(found, factor=replace(each.factor, columns=columns))
        measures.append(found)
    quantiles = (
        replace(each, columns=find_private_columns(each.argument, source, catalog=catalog)) for each in query.quantiles
    )
    return replace(query, measures=tuple(measures), quantiles=tuple(quantiles))


def _count_key_values(query: PrivateQuery, catalog: Catalog) -> PrivateQuery:
    """Return the query with how many values its keys can have in each partition, of TOP k without a domain."""
    if query.clause.k is None or query.domain is not None:
        return query
    per = None if query.partitions is None else query.partitions.key
    # GROUP BY hour, weekday has at most 24 * 7 groups by the text: TOP 1000 then wants no more than these.
    ranked, is_of_table = list[Expression](), isinstance(query.body.source, Scan)
    for at, key in enumerate(query.keys):
        if at != per and is_of_table and isinstance(key, ColumnRef) and key.type.family is not Family.BOOLEAN:
            return query  # the values of a stored column are not in the text
        ranked += [] if at == per else [key]
    return replace(query, key_values=count_values(ranked, query.body, catalog=catalog))


def _read_items(reader: Reader, pairs: Sequence[tuple[Node, str]], *, scope: Scope) -> list[_Item]:
    """Return the items of the select list, each with its text: measures, ends of intervals, and what may be a key."""
    found = list[_Item]()
    for item, text in pairs:
        alias, node = read_alias(reader, item)
        kind = type(node).__name__
        if kind in _AGGREGATE_NODES:
            measure = read_measure(reader, node) if is_measure(node) else None
            quantile = read_quantile(reader, node) if is_quantile(node) else None
            # of an end the measure may follow: `_complete_ends` finds it
            if measure is not None or quantile is not None or find_function(node) in INTERVAL_ENDS:
                found.append(_Item(alias or text, None, node, measure, quantile=quantile))
                continue
        if kind != "Column" and any(_is_released(cast("Node", part)) for part in node.walk()):
            hint = "Put the query into FROM: SELECT 2 * x.n FROM (SELECT COUNT(*) AS n FROM ... PRIVATE) AS x."
            reason = "Counts and sums are released as they are, and computed with outside of the private query."
            raise Refusal("aggregate", reason, hint=hint, place=reader.place(node))
        if kind == "Star" or (kind == "Column" and type(node.this).__name__ == "Star"):
            hint = "Name the columns to group by."
            raise Refusal("star", "* would release raw columns.", hint=hint, place=reader.place(node))
        if alias:
            check_alias(reader, alias, node=node, scope=scope)
        if kind == "Column" and not reader.means_clock(node):
            column = reader.column(node)
            found.append(_Item(alias or column.name, reader.computed(column.expression, node), node))
        else:
            found.append(_Item(alias or text, reader.read(node), node))
    return found


def _is_released(node: Node) -> bool:
    """Say whether a node is a measure, a quantile, or an end of an interval."""
    return is_measure(node) or is_quantile(node) or find_function(node) in INTERVAL_ENDS


def _read_keys(reader: Reader, select: Node, *, items: list[_Item], clause: Clause) -> tuple[Expression, ...]:  # noqa: C901, PLR0912 - one rule after another
    """Return the group keys, in the order of GROUP BY; each must be selected, and nothing else may be."""
    group, distinct = select.args.get("group"), select.args.get("distinct")
    released: dict[Expression, Node] = {}
    for item in items:
        if item.expression is not None:
            released.setdefault(item.expression, item.node)
    if clause.shape == "total":
        if group is not None or distinct is not None:
            is_one_row = group is None and not released
            k = read_row_count(reader, select, clause="limit") or 10
            hint = f"Write TOP {k} PRIVATE, or ALL PRIVATE where the groups are known."
            hint = "Leave DISTINCT out: a total is one row." if is_one_row else hint
            raise Refusal("clause", "PRIVATE alone is for a total.", hint=hint, place=clause.place)
        if released:
            hint = "End the query with GROUP BY ALL TOP 10 PRIVATE, or leave the column out."
            (first, *_) = released.values()
            raise Refusal("not-a-key", "A total has no keys.", hint=hint, place=reader.place(first))
        return ()
    if distinct is not None:
        allow_only(reader.statement, distinct)
    elif group is None:
        hint = "Add GROUP BY and the columns whose values are to be ranked."
        raise Refusal("no-group", "There is no GROUP BY.", hint=hint, place=reader.place(select))
    if group is not None:
        allow_only(reader.statement, group, "all" if group.args.get("all") else "expressions")
    keys, where = tuple(released), select
    if group is not None and not group.args.get("all"):
        keys = tuple(dict.fromkeys(map(partial(_read_group_key, reader, items=items), group.expressions)))
    if group is not None and group.expressions:
        where = group
    if not keys:
        hint = "Select a column beside the count, or write PRIVATE alone for a total."
        hint = "Leave DISTINCT out: a total is one row." if group is None else hint
        raise Refusal("keys", "GROUP BY has no key.", hint=hint, place=reader.place(where))
    if len(keys) > MAX_KEYS:
        reason = f"A private query groups by 1 to {MAX_KEYS} keys."
        raise Refusal("keys", reason, hint="Group by fewer expressions.", place=reader.place(where))
    if not released.keys() >= set(keys):
        hint = "Select every key, in the same words."
        raise Refusal("key-not-selected", "A group key is not selected.", hint=hint, place=reader.place(where))
    for expression, node in released.items():
        if expression not in keys:
            hint = "Group by it: GROUP BY ALL groups by all that is selected."
            raise Refusal("not-a-key", "This is selected but not a group key.", hint=hint, place=reader.place(node))
        if expression.type.family not in _KEY_FAMILIES:
            hint = "Cast it to a type whose equal values print alike, such as VARCHAR."
            reason = f"A key may not be of type {expression.type}."
            raise Refusal("key-type", reason, hint=hint, place=reader.place(node))
    return keys


def _read_group_key(reader: Reader, node: Node, *, items: list[_Item]) -> Expression:
    """Return the key an item of GROUP BY means: a position, a column, an alias, or an expression, in this order."""
    kind = type(node).__name__
    if kind == "Literal":
        position = read_position(node, len(items))
        if position and (found := items[position - 1].expression) is not None:
            return found
        hint = "Positions count the select list from 1 and may not mean the count."
        raise Refusal("group-position", "This is no position of a key.", hint=hint, place=reader.place(node))
    is_name = kind == "Column" and not node.args.get("table")
    if is_name and reader.scope.find(node.name, "", place=partial(reader.place, node)) is None:
        named = [item for item in items if ascii_lower(item.name) == ascii_lower(node.name)]
        if len(named) == 1 and named[0].expression is not None:
            return named[0].expression
    return reader.read(node)


def _complete_ends(reader: Reader, items: list[_Item], *, options: Mapping[str, Option]) -> list[_Item]:  # noqa: C901 - one rule after another
    """Return the items of a select list with the measure of each end, and with the columns that the option adds.

    Raises `Refusal` for an end of nothing, for a name that is there twice, and for ends of counts that are adjusted.
    """
    option = options.get("intervals")
    adds, level = False, _LEVEL
    if option is not None and option.word and option.value in {"true", "false"}:
        adds = option.value == "true"
    elif option is not None and isinstance(option.value, Decimal) and 0 < float(option.value) < 1:
        adds, level = True, float(option.value)
    elif option is not None:
        hint = "Write intervals = true, for 95 %, or a level such as intervals = 0.9."
        raise Refusal("option", "intervals is true, false, or a level between 0 and 1.", hint=hint, place=option.place)
    found = list[_Item]()
    for item in items:
        name = find_function(item.node)
        if name in INTERVAL_ENDS:
            end = IntervalEnd(name in HIGH_ENDS, level)
            found.append(replace(item, measure=_read_end(reader, item.node, items=items), end=end))
            continue
        found.append(item)
        if adds and item.measure is not None:
            for word, is_high in (("low", False), ("high", True)):
                found.append(replace(item, name=f"{item.name}_{word}", end=IntervalEnd(is_high, level), added=True))
    if adds and not _list_named(items):
        hint = f"Select a measure too, such as COUNT(DISTINCT {name_unit(reader)}) AS n, or leave intervals out."
        reason = "intervals are those of released measures, and none are selected."
        raise Refusal("option", reason, hint=hint, place=option.place if option else None)
    monotone = options.get("monotone")
    if monotone is not None and monotone.value == "true" and any(item.end is not None for item in found):
        hint = "Leave monotone out, or the intervals: either is free once the query is answered."
        reason = "Intervals are those of the counts as they were drawn, and monotone = true changes them."
        raise Refusal("option", reason, hint=hint, place=monotone.place)
    names = [ascii_lower(item.name) for item in found]
    for item in found:
        if item.added and names.count(ascii_lower(item.name)) > 1:
            hint = "Give the output of this name, or the measure, another alias."
            reason = "intervals would add a column of a name that is there already."
            raise Refusal("output-names", reason, hint=hint, place=reader.place(item.node))
    return found


def _read_end(reader: Reader, node: Node, *, items: list[_Item]) -> ReadMeasure:
    """Return the measure of value_low or value_high, which is named or written; refuse an end of a quantile."""
    if len(node.expressions) == 1:
        (argument,) = node.expressions
        quantiles = {ascii_lower(item.name) for item in items if item.quantile is not None}
        is_named = type(argument).__name__ == "Column" and ascii_lower(argument.name) in quantiles
        if is_named or is_quantile(argument):
            raise refuse_end(reader, node, name=find_function(node))
    return read_end_argument(reader, node, named=_list_named(items))


def _list_named(items: list[_Item]) -> list[tuple[str, ReadMeasure]]:
    """Return the measures of a select list, with their names."""
    return [(item.name, item.measure) for item in items if item.measure is not None and item.end is None]


def _read_order(reader: Reader, order: Node, *, items: list[_Item]) -> tuple[Order, ...]:
    """Return the ORDER BY terms; nothing but released columns may be ordered by."""
    allow_only(reader.statement, order, "expressions")
    every = find_every_column(reader.statement, order)
    if every is not None:
        return tuple(Order(at, *read_direction(every)) for at, item in enumerate(items) if not item.added)
    terms = list[Order]()
    for term in order.expressions:
        allow_only(reader.statement, term, "this", "desc", "nulls_first")
        position = _find_output(reader, term.this, items=items)
        if position is None:
            hint = "Order by an output of the query; its rows come in noisy rank order otherwise."
            reason = "Only released columns can be ordered by."
            raise Refusal("order", reason, hint=hint, place=reader.place(term.this))
        terms.append(Order(position, *read_direction(term)))
    return tuple(terms)


def _read_having(reader: Reader, having: Node, *, items: list[_Item]) -> tuple[HavingTerm, ...]:
    """Return the HAVING terms: comparisons of released counts with numbers, joined by AND."""
    allow_only(reader.statement, having, "this")
    terms, rest = list[HavingTerm](), [having.this]
    while rest:
        node = rest.pop()
        kind = type(node).__name__
        if kind == "And":
            rest += [node.expression, node.this]
        elif kind == "Paren":
            rest.append(node.this)
        else:
            terms.append(_read_having_term(reader, node, items=items))
    return tuple(terms)


def _read_having_term(reader: Reader, node: Node, *, items: list[_Item]) -> HavingTerm:
    sign = _COMPARISONS.get(type(node).__name__, "")
    # HAVING 100 <= n is read as n >= 100.
    sides = [(node.this, node.expression, sign), (node.expression, node.this, _MIRRORED.get(sign, sign))]
    for left, right, operator in sides if sign else []:
        is_value = _is_released(left) or type(left).__name__ == "Column"
        output = _find_output(reader, left, items=items) if is_value else None
        value = None
        if type(right).__name__ in {"Literal", "Neg", "Paren"}:
            value = fill_unbound(reader.read(right), BIGINT)
        number = value.value if isinstance(value, Literal) else None
        is_number = isinstance(number, int | float | Decimal) and not isinstance(number, bool)
        if output is not None and items[output].expression is None and is_number:
            return HavingTerm(output, operator, cast("int | float | Decimal", number))
    count = f"COUNT(DISTINCT {name_unit(reader)})"
    hint = f"Select {count} AS n and write HAVING n >= 100, which tests the released count; test keys in WHERE."
    raise Unsupported("having", "This HAVING tests no released count.", hint=hint, place=reader.place(node))


def _find_output(reader: Reader, node: Node, *, items: list[_Item]) -> int | None:
    """Return the position of the output that a position, an alias or an expression names."""
    kind = type(node).__name__
    if kind == "Literal":
        written = [at for at, item in enumerate(items) if not item.added]
        position = read_position(node, len(written))
        return written[position - 1] if position else None
    if kind == "Column" and not node.args.get("table"):
        for position, item in enumerate(items):
            if ascii_lower(item.name) == ascii_lower(node.name):
                return position
    if is_quantile(node):
        quantile = read_quantile(reader, node)
        return next((at for at, item in enumerate(items) if item.quantile == quantile), None)
    measure, is_high, expression = None, None, None
    if find_function(node) in INTERVAL_ENDS:
        measure = _read_end(reader, node, items=items)
        is_high = find_function(node) in HIGH_ENDS
    elif is_measure(node):
        measure = read_measure(reader, node)
    else:
        expression = reader.read(node)
    for position, item in enumerate(items):
        # A key has (expression, None, None), a measure (None, measure, None), an end of an interval (None, measure,
        # is_high).
        found = item.expression, item.measure, item.end and item.end.is_high
        if item.quantile is None and found == (expression, measure, is_high):
            return position
    return None


def _choose_measures(
    reader: Reader, items: list[_Item], *, order: Sequence[Order], clause: Clause
) -> tuple[tuple[Measure, ...], Expression | None, Expression | None]:
    """Return the measures, the one that ranks first, the condition of rows to count, and the unit, if it is counted.

    A group that no counted row is in has the count 0 in SQL, and is nowhere to be released. So where only units are
    counted, under one condition, that may stand in WHERE, where it takes away the same rows, and the group too; not
    beside quantiles, which are of other rows. The others come in the order of their words, so the same measures, listed
    in another order, are the same question. Groups with averages or spreads alone are ranked by the number of rows of
    the first.
    """
    measured = [item for item in items if item.measure is not None]
    found = [item.measure for item in measured if item.measure is not None]
    units = [(each.unit, item.node) for each, item in zip(found, measured, strict=True) if each.unit is not None]
    if any(counted != units[0][0] for counted, _ in units):
        hint = "Count one of them: where both are there they are the same unit."
        raise Refusal("counts", "Two privacy units are counted.", hint=hint, place=reader.place(units[-1][1]))
    unit = units[0][0] if units else None
    if not found:
        return (DISTINCT_UNITS,), None, unit
    conditions = {each.measure.condition for each in found}
    if len(conditions) == 1 and len(units) == len(found):
        condition = found[0].measure.condition
        if condition is not None and any(item.quantile is not None for item in items):
            return (replace(DISTINCT_UNITS, condition=condition),), None, unit
        return (DISTINCT_UNITS,), condition, unit
    first = list[Measure]()
    if clause.shape == "top":  # the first in ORDER BY, or else in the select list, ranks
        ordered = [each for term in order if (each := items[term.output].measure) is not None]
        able = [each.measure for each in (*ordered, *found) if each.divisor is None]
        # what is divided does not rank: where there is nothing else, the number of its rows does, which divides it
        first = (able or [each.divisor for each in found if each.divisor is not None])[:1]
    every = [measure for each in found for measure in each.every]
    return tuple(dict.fromkeys([*first, *sorted(every, key=repr)])), None, unit


def _find_domain(
    reader: Reader, keys: tuple[Expression, ...], *, body: FromWhere, clause: Clause, sources: Sources
) -> tuple[Domain | None, str]:
    """Return the known domain of the options or, for ALL PRIVATE, of the statement, and what WHERE cuts of it."""
    option, catalog = clause.options.get("domain"), sources.catalog
    if clause.shape != "all":
        return (None if option is None or clause.per else read_domain(option, keys, catalog=catalog)), ""
    unbound = [each for each in reader.bound.values() if isinstance(each, UnboundParameter)]
    if unbound and option is None and any(map(needs_bounds, keys)):  # which groups there are is open
        for each in unbound:
            each.is_option = True
        return None, ""
    return read_group_domain(keys, body, option=option, catalog=catalog, place=clause.place)


def _find_per(clause: Clause, items: list[_Item], *, keys: tuple[Expression, ...], scope: Scope) -> int | None:
    """Return the number of the key that PER names, by its output or by its column; None where it names none."""
    per = clause.per
    if per is None:
        return None
    named = [item.expression for item in items if ascii_lower(item.name) == ascii_lower(per.text)]
    if not named and (found := scope.find(per.text, "", place=lambda: per.place)) is not None:
        # The key of a FLOAT, UUID or ENUM column is a cast of the column that PER names.
        named = [found.expression, Cast(found.expression, find_read_type(found.expression.type))]
    return next((keys.index(expression) for expression in named if expression in keys), None)


# Part 2: what a statement is analyzed with, and the checks of what is read.


@dataclass(frozen=True, slots=True)
class AnalysisRequest:
    """A statement with what it is analyzed with; its clock is read once.

    `scanned` is the statement as it was cut into words, before anything was added to it or taken out. `standard` says
    whether standard SQL over private tables is read as private. With a `parser`, the SELECT around private queries may
    be of DuckDB's SQL.
    """

    statement: ScannedStatement
    bound: dict[Value, object]
    catalog: Catalog
    accepts_pattern: PatternCheck
    clock: Clock | None
    header: PrivacyHeader | None
    is_lenient: bool
    scanned: ScannedStatement
    standard: StandardSQL
    parser: SelectParser | None

    def sources(self, statement: ScannedStatement) -> Sources:
        """Return what reads the tables of a statement, which is this one or has a clause more."""
        reader = Reader(statement, self.bound, self.accepts_pattern, READERS, self.clock)
        return Sources(self.catalog, reader)


def check_explicit(request: AnalysisRequest, query: PrivateQuery, *, computed: ComputedSelect | None = None) -> None:
    """Refuse a query with a clause for an order that it cannot have, and for groups that are not known."""
    if query.clause.implied:  # LIMIT k PRIVATE
        check_ranking(query, computed)
    if query.clause.shape == "all" and not any(isinstance(each, UnboundParameter) for each in request.bound.values()):
        check_groups_known(query, catalog=request.catalog)


def check_header(request: AnalysisRequest) -> None:
    """Refuse WITH DIFFERENTIAL_PRIVACY beside a clause that is written."""
    if request.header is not None:
        hint = "Leave WITH DIFFERENTIAL_PRIVACY out, or the clause that ends in PRIVATE."
        raise Refusal("clause", "The query is private in two ways.", hint=hint, place=request.header.place)


def check_ranking(query: PrivateQuery, computed: ComputedSelect | None = None) -> None:
    """Refuse a ranking whose LIMIT gives the number of keys and whose order is not by a measure.

    HAVING is tested on the released groups, so it may only ask for large values of the measure that ranks. With
    `computed`, that has the order and HAVING of the query.
    """
    if not query.clause.implied or query.clause.shape != "top":
        return
    place, is_cut = query.clause.place, query.limit is not None and query.limit < ROW_CAP
    by_measure = "Leave LIMIT out, or order by a count or sum, largest first: ORDER BY COUNT(*) DESC."
    if query.order:
        first = query.order[0]
        output = query.outputs[first.output]
        if output.key is not None and is_cut:
            reason = "The first keys in the order of their names are no private answer: the most frequent ones are."
            raise Refusal("order", reason, hint=by_measure, place=place)
        if output.quantile is not None and is_cut:
            raise Refusal("aggregate", "A quantile does not rank groups.", hint=by_measure, place=place)
        if output.divisor is not None and is_cut:
            raise Refusal("aggregate", f"{output.divided_name} does not rank groups.", hint=by_measure, place=place)
        if output.is_measure and output.divisor is None and not first.descending:
            reason = "The least frequent groups are not found in private."
            name = output.name if "(" in output.name else write_name(output.name)
            ordered = f"TOP {query.clause.k} PRIVATE ORDER BY {name}"
            hint = (
                f"Write ORDER BY {name} DESC, or end the query with {ordered}, which orders the most frequent groups."
            )
            raise Refusal("order", reason, hint=hint, place=place)
    outputs = [(term, query.outputs[term.output]) for term in query.keep]
    tests_others = any(
        term.operator not in {">", ">="} or (output.measure, output.divisor, output.quantile) != (0, None, None)
        for term, output in outputs
    )
    if computed is not None and not tests_others:
        if computed.is_other_order and is_cut:
            reason = "LIMIT takes the first groups in an order that is not that of a count or sum."
            raise Refusal("order", reason, hint=by_measure, place=place)
        tests_others = computed.tests_others
    if tests_others:
        outside = f"filter the first ones: SELECT * FROM (... TOP {query.clause.k} PRIVATE) AS t WHERE ..."  # noqa: S608 - a hint
        hint = f"Write HAVING ... >= 100 of the measure that ranks, or {outside}"
        reason = "HAVING is tested on the most frequent groups alone, and others pass this test, too."
        raise Unsupported("having", reason, hint=hint, place=place)
