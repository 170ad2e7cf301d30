"""Keys of private answers: the question, under which an answer is stored and found again, and its release.

The question is what the analyst wrote: the typed query, its options, and the rules of its tables, which decide what is
counted. Defaults of the day, such as the epsilon that a larger budget brings, are no part of it, so a grant leaves
stored answers free. The stored answer says with which parameters it was drawn.

The release is the law by which an answer is drawn: the rows, the counted groups, and the mechanism with its parameters.
Analysts who share answers share those of one release alone. It is the key under which answers were stored before 0.11.

No key depends on what the planner prefers today: a question that names no mechanism has a key without one. A class of
the tree has in a key the name and the fields that it had in 0.11; a later field is there, by its name, only where it
says something. What means something else today has the number of its reading besides.

Names and order of outputs, ends of intervals, ORDER BY, LIMIT and HAVING apply after the release, and the salts of a
bound belong to the session; no key contains them. The answer of one query may therefore be shown for every query with
its key, as post-processing. A repeated query is recognized by its text, never by the data.

The digest is that of JSON in which every value but None, booleans, integers and texts names its class. Two values have
the same JSON only if they are equal, in every process and version of Python.

The keys of a query have an identity, too: two queries with the same keys have the same kind of names. A key is what is
computed from stored columns, whatever the query selects, joins or measures. The columns of subqueries in FROM are
followed to those of the tables that they come from, so that a filter in a subquery makes no difference. It decides
which earlier names are of use and never what is private, since names that were released are public.

A statement of which a part is in the table below means something else than it did in an earlier version, and is another
question: its key has the numbers of these readings, so that an answer stored under the earlier meaning is not shown for
it. Every other statement has the key
that 0.11 gave it, and its stored answers stay free. A change of the meaning or the arithmetic of a measure adds a line,
or increments a number; a change that releases the same value with less noise, or under another type, does not.

    reading      since   what changed
    -----------  ------  -----------------------------------------------------------------------------------
    average      0.12    AVG divides a sum and a count in which each unit has one weight
    ratio        0.12    measures that are divided by each other have one weight for each unit
    expression   0.12    SUM of an expression has the bounds of the expression, not those of the column in it
    join         0.12    rows of several private tables are bounded by the tables whose rows are counted
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import date
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import cache
from itertools import combinations

from dpsql.plan.plan import Plan
from dpsql.sql.ir.measures import Aggregate, ContributionRange, Measure
from dpsql.sql.ir.statements import LiteralDomain, Partitions, PrivateQuery, ProductDomain, TableDomain
from dpsql.sql.ir.tree import (
    DOUBLE,
    Call,
    Cast,
    ColumnRef,
    Combined,
    Cut,
    Derived,
    Exists,
    Expression,
    Family,
    FromWhere,
    In,
    InQuery,
    Joined,
    Literal,
    Numbered,
    Relation,
    Scan,
    find_collations,
    is_column,
    join_conjuncts,
    list_scans,
    split_conjuncts,
)
from dpsql.terms import Terms

_AUTO_SINCE_0_11 = ("limited_domain", "two_looks", "relay", "weighted_gaussian", "gaussian_histogram")
_OF_A_DOMAIN = ("peeling",)
FORMAT, QUESTION, SERIES = "dpsql replay 1", "dpsql question 1", "dpsql series 2"
_ELSEWHERE = frozenset(
    "assume consent domain fresh intervals max_groups_contributed max_items_contributed max_rows_contributed monotone "
    "name partitions reuse".split()
)  # options that are no part of a release, or that the key has in another form
_WITH_DEFAULTS = frozenset("delta epsilon k_bar mechanism".split())
_RECORDED: dict[
    type, str
] = {  # classes by the names that stored keys were made with; a new name here needs a new FORMAT
    LiteralDomain: "Listed",
    TableDomain: "Stored",
    FromWhere: "Body",
    ColumnRef: "Column",
}
_RECORDED_FIELDS: dict[type, tuple[str, ...]] = {  # those that classes had when stored keys were made, in their order
    Measure: ("aggregate", "argument", "condition", "columns", "bounds"),
}
_MOST_FIXED = 3  # conditions `key = constant` that are left out of the rows, one or more at a time
UNREADABLE = "\N{REPLACEMENT CHARACTER}"  # what an engine writes for bytes that are no text: several labels look alike
_NUMBER: dict[type, str] = {
    ColumnRef: "relation",
    Scan: "number",
    Derived: "number",
    Combined: "number",
    Numbered: "number",
}


class _Numbers(dict[int, int]):
    """The numbers of a block's relations in the order of first mention; `outer` are those of the block around it."""

    def __init__(self, outer: _Numbers | None = None) -> None:
        super().__init__()
        self.outer = outer

    def of(self, relation: int) -> object:
        """Return the JSON of a relation: its number, or that of an enclosing block."""
        if self.outer is not None and self.outer.knows(relation):
            return ["outer", self.outer.of(relation)]
        return self.setdefault(relation, len(self) + 1)

    def knows(self, relation: int) -> bool:
        """Say whether it is a relation of this block or of one around it."""
        return relation in self or (self.outer is not None and self.outer.knows(relation))


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys of a question and of its release, and those under which an equivalent text may have stored the answer.

    The answer under one of the `similar` keys is that to the question if it was drawn as it would be drawn now. Those
    under the `named` keys are of the same words with a mechanism of those that AUTO chooses among, or of the condition
    as 0.11 read it. `earlier` is the key that 0.11 gave to the question, where its statement means something else
    today; "" where it does not. The `series` is the key of the questions
    that differ in k alone, or in whether counts are released, and this k; None for a question without one.
    """

    question: str
    release: str
    similar: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    earlier: str = ""
    series: tuple[str, int] | None = None


def compute_keys(
    plan: Plan,
    *,
    k: int | None,
    bound: int | None,
    min_units: int,
    uses_names: bool = True,
    reread: Reread | None = None,
) -> Keys:
    """Return the keys of what the analyst wrote: the digests of its own words, and of others with the same answer.

    `k` is that of the text, also where the plan has a smaller one, because the keys have fewer values. The rules of the
    tables are part of it: the bound of units, and min_units. Other words leave out the mechanism,
    leave out all options that have defaults, or name the mechanism that answers. `uses_names` says whether queries use
    known names by default. The query must be in the order of `order_canonically`. It is `reread` if its statement means
    something else than it did in 0.11.
    """
    query = plan.query
    default = ("known", str(uses_names).lower())  # known = its default is the same question as without it
    # a text with whether it is a bare word: auto and 'auto' differ
    written = {
        name: option.value if not isinstance(option.value, str) else (option.value, option.word)
        for name, option in query.clause.options.items()
        if name not in _ELSEWHERE and (option.value, option.word) != ("auto", True) and (name, option.value) != default
    }
    first = k if query.clause.shape == "top" else query.clause.shape
    rules = (
        query.releases_counts,
        bound,
        min_units,
        *_partition_fields(query.partitions),
        query.protected,
    )
    own = tuple(sorted(written.items()))
    similar, named = list[tuple[object, ...]](), list[tuple[object, ...]]()
    if not _WITH_DEFAULTS.isdisjoint(written):
        bare = tuple(option for option in own if option[0] not in _WITH_DEFAULTS)
        similar = list(dict.fromkeys([tuple(option for option in own if option[0] != "mechanism"), bare]))
    if "mechanism" not in written and query.clause.shape == "top":
        choices = _AUTO_SINCE_0_11 if query.domain is None else _OF_A_DOMAIN
        for name in dict.fromkeys((plan.record.name, *choices)):
            named.append(tuple(sorted((*own, ("mechanism", (name, True))))))
    # Relations are named in `counted` alone, so that parts which number them for themselves can be joined as text.
    counted = _write(_counted_fields(query))  # once: it walks over the whole of the query
    readings = (reread.readings,) if reread is not None and reread.readings else ()
    rest = _write((*rules, *readings))
    start = f'"{QUESTION}",{counted},{json.dumps(first)},{rest}'
    ending = _write((own,))
    question = hashlib.sha256(f"[{start},{ending}]".encode("ascii")).hexdigest()
    others = [_digest(start, (options,)) for options in (*similar, *named)]
    series = None
    if isinstance(first, int) and query.partitions is None and not query.quantiles:
        alike = rest.partition(",")[2]  # whether or not counts are released
        series = hashlib.sha256(f'["{SERIES}",{counted},{alike},{ending}]'.encode("ascii")).hexdigest(), first
    earlier = ""
    if reread is not None and reread.measures is not None:
        as_in_0_11 = _write((QUESTION, *_counted_fields(replace(query, measures=reread.measures)), first, *rules))
        # If 0.11 counted the same rows the answer under its key is the answer, and else it tells that the meaning
        # changed.
        earlier = _digest(as_in_0_11, (own,))
        if reread.is_same:
            others, earlier = [*others, earlier], ""
    release = _digest(f"{_write((FORMAT,))},{counted}", _release_fields(plan))
    return Keys(question, release, tuple(others[: len(similar)]), tuple(others[len(similar) :]), earlier, series)


def compute_release_key(plan: Plan, *, as_in_0_10: bool = False) -> str:
    """Return the digest, in hexadecimal, of what `plan` releases: the same digest as `Keys.release`.

    Plans that share it release by the same law.

    The digest `as_in_0_10` is the one by which the versions before question keys stored a release of units alone.
    """
    numbers = _Numbers()
    described: object = [
        _encode(part, numbers) for part in (FORMAT, *_counted_fields(plan.query), *_release_fields(plan))
    ]
    if as_in_0_10:
        described = _rename_as_in_0_10(described)
    return _digest_json(described)


def _release_fields(plan: Plan) -> tuple[object, ...]:
    """Return the part of the key for the mechanism with its parameters, which names no relation."""
    query = plan.query
    return (
        *plan.mechanism_plan.release_identity,
        plan.max_groups_contributed,
        *_partition_fields(query.partitions),
        *((query.protected,) if len(query.protected) > 1 else ()),
    )


def _write(parts: Sequence[object]) -> str:
    """Return the JSON of parts without the brackets around them."""
    numbers = _Numbers()
    return _to_json([_encode(part, numbers) for part in parts])[1:-1]


def _digest(start: str, parts: Sequence[object]) -> str:
    """Return the digest of a JSON list that starts with what is written, and goes on with parts."""
    return hashlib.sha256(f"[{start},{_write(parts)}]".encode("ascii")).hexdigest()


def _rename_as_in_0_10(described: object) -> object:
    """Return the JSON of a release in which classes of mechanisms have the names and the fields that they had then."""
    match described:
        case list():
            return [_rename_as_in_0_10(part) for part in described]
        case {"ItemLoss": [*parts, []]}:  # without contributions of other measures
            return {"Price": [_rename_as_in_0_10(part) for part in parts]}
        case {"StableTopK": parts}:
            return {"StableTopK": [*map(_rename_as_in_0_10, parts), 1]}  # its sensitivity
        case dict():
            return {name: _rename_as_in_0_10(part) for name, part in described.items()}
    return described


def _counted_fields(query: PrivateQuery) -> tuple[object, ...]:
    """Return the part of the key for the groups that are counted."""
    measures = () if query.counts_units_alone else (query.measures,)
    quantiles = (("quantiles", query.quantiles),) if query.quantiles else ()
    return query.table, query.unit_name, query.body, query.unit, query.keys, query.domain, *measures, *quantiles


def _partition_fields(partitions: Partitions | None) -> tuple[object, ...]:
    """Return the part of the key for partitions: key, values, and whether each unit counts in only one of them."""
    return () if partitions is None else (partitions.key, partitions.values, partitions.salts is not None)


def order_canonically(query: PrivateQuery) -> PrivateQuery:
    """Return the query with its keys, and the values of a listed domain, once each and in the order of their encoding.

    Keys break ties at the cut and are hashed together for a bound, so queries of one release need one order of them.
    """
    if len(query.keys) <= 1 and not isinstance(query.domain, LiteralDomain | ProductDomain):
        return query
    numbers = _Numbers()
    _encode(query.body, numbers)
    encoded = [_to_json(_encode(key, numbers)) for key in query.keys]
    # GROUP BY a, b and GROUP BY b, a, a have one order of keys here, that of their JSON; outputs follow it by number.
    order = sorted(set(encoded))
    outputs = tuple(
        replace(output, key=None if output.key is None else order.index(encoded[output.key]))
        for output in query.outputs
    )
    domain = query.domain
    if isinstance(domain, LiteralDomain):
        domain = _sort_values(domain, numbers)
    elif isinstance(domain, ProductDomain):
        factors = (domain.factors[encoded.index(key)] for key in order)
        domain = ProductDomain(
            tuple(_sort_values(each, numbers) if isinstance(each, LiteralDomain) else each for each in factors)
        )
    partitions = query.partitions
    if partitions is not None:
        partitions = replace(partitions, key=order.index(encoded[partitions.key]))
    keys = tuple(query.keys[encoded.index(key)] for key in order)
    return replace(query, keys=keys, outputs=outputs, domain=domain, partitions=partitions)


def _sort_values(domain: LiteralDomain, numbers: _Numbers) -> LiteralDomain:
    return LiteralDomain(tuple(sorted(domain.values, key=lambda value: _to_json(_encode(value, numbers)))))


def encode_value(value: object) -> object:
    """Return a value that names no relation as JSON holds it."""
    return _encode(value, _Numbers())


def _to_json(encoded: object) -> str:
    return json.dumps(encoded, separators=(",", ":"), allow_nan=False)


def _encode(value: object, numbers: _Numbers) -> object:
    """Return `value` as JSON holds it; `numbers` are those of the block's relations, in the order of first mention."""
    match value:
        # bool is a subclass of int, and an Enum can be one: both are matched before int().
        case None | bool() | str():
            return value
        case tuple():
            return [_encode(part, numbers) for part in value]
        case Enum():
            return {type(value).__name__: value.name}
        case int():
            return int(value)
        case float():
            # The hexadecimal form is exact, and tells -0.0 from 0.0.
            return {"float": value.hex()}
        case Decimal() | Fraction():
            exact = Fraction(value)
            return {type(value).__name__: f"{exact.numerator}/{exact.denominator}"}
    return {_RECORDED.get(type(value), type(value).__name__): _encode_fields(value, numbers)}


def _encode_fields(node: object, numbers: _Numbers, *, inside: _Numbers | None = None) -> list[object]:
    """Return the fields of a frozen value: all that decide anything.

    A subquery numbers its relations again, in `inside`; one in an expression may name those around it, too.
    """
    if inside is None:
        inside = _Numbers(numbers.outer) if isinstance(node, Derived) else numbers
    parts: list[object] = []
    kind: type = type(node)
    numbered, nested = _NUMBER.get(kind), isinstance(node, InQuery | Exists)
    recorded = _RECORDED_FIELDS.get(kind)
    for name in _compared_fields(kind):
        content = getattr(node, name)
        if name == "sensitivity" and content == 1:
            continue  # stored keys of counts of units were made without it
        # A field that 0.11 did not have: without a value it leaves the key as it was.
        if recorded is not None and name not in recorded:
            if content is not None:
                parts.append([name, _encode(content, inside)])
        elif name == numbered:
            parts.append(numbers.of(content))
        elif nested and name == "source":  # x IN (SELECT ...): its relations are numbered again, beside those around it
            parts.append({Derived.__name__: _encode_fields(content, _Numbers(), inside=_Numbers(numbers))})
        else:
            parts.append(_encode(content, inside))
    return parts


@cache
def _compared_fields(kind: type) -> tuple[str, ...]:
    """Return the fields of a class of frozen values: all but `longest`, which decided what is in it and does no more.

    Anything else has no encoding, and is a TypeError.
    """
    return tuple(field.name for field in fields(kind) if field.compare and field.name != "longest")


# The identity of the keys of a query, by which earlier names are found
_NAMES_FORMAT = "dpsql names 1"
_Relations = dict[int, Scan | Numbered | tuple[Derived, ...]]


def identify_keys(query: PrivateQuery) -> tuple[str, ...]:
    """Return the digest of each key of the query, in their order."""
    relations, expressions = _list_relations(query.body.source), _Expressions()
    return tuple(_digest_json([_NAMES_FORMAT, expressions.identify(key, relations)]) for key in query.keys)


@dataclass(slots=True)
class _Expressions:
    """Digests of expressions, each of those of its parts; an output of a subquery is read once, however often named."""

    outputs: dict[tuple[int, int], object] = field(default_factory=dict)

    def identify(self, node: object, relations: _Relations) -> object:
        """Return the digest of a part of an expression, whose columns are those of `relations`, or its plain value."""
        match node:
            case tuple():
                return [self.identify(part, relations) for part in node]
            case ColumnRef():
                return self._identify_column(node, relations)
            case Derived():
                inner = relations | _list_relations(node.body.source)
                return _digest_json(["Derived", *(self.identify(part, inner) for part in (node.outputs, node.body))])
            case Scan():
                return _digest_json(["Scan", *node.path])
        if not is_dataclass(node) or isinstance(node, type):
            return encode_value(node)
        parts = (self.identify(getattr(node, name), relations) for name in _compared_fields(type(node)))
        return _digest_json([type(node).__name__, *parts])

    def _identify_column(self, column: ColumnRef, relations: _Relations) -> object:
        relation = relations[column.relation]
        match relation:
            case Scan(path=path):
                return _digest_json(["Column", *path, column.name, column.type.name])
            case Numbered():
                return _digest_json(["Numbered", column.name])
        # The outputs of a subquery are c1, c2, ... A UNION has several subqueries: of one digest if all branches read
        # the same column.
        at, found = int(column.name.removeprefix("c")) - 1, dict[str, None]()
        for subquery in relation:
            known = self.outputs.get((id(subquery), at))
            if known is None:
                known = self.identify(subquery.outputs[at], _list_relations(subquery.body.source))
                self.outputs[id(subquery), at] = known
            found[str(known)] = None
        return next(iter(found)) if len(found) == 1 else _digest_json(["Combined", *found])


def _list_relations(relation: Relation) -> _Relations:
    """Return the relations of one FROM by their numbers: for a subquery the SELECTs that its rows come from."""
    match relation:
        case Joined():
            return _list_relations(relation.left) | _list_relations(relation.right)
        case Derived():
            return {relation.number: (relation,)}
        case Combined():
            return {relation.number: relation.branches}
        case Cut():
            return {relation.number: (relation.source,)}
        case Scan() | Numbered():
            return {relation.number: relation}


def _digest_json(described: object) -> str:
    return hashlib.sha256(_to_json(described).encode("ascii")).hexdigest()


# Parts of a query with the rows that it reads, by which one question follows from the answer to another
_ROWS_FORMAT = "dpsql rows 1"


@dataclass(frozen=True, slots=True)
class MeasuredRows:
    """Digests of what is measured, and of the keys, each with the rows that it is of; and the keys of listed values.

    Some `fixed` keys have one of these values by WHERE, which is then left out of the rows.
    """

    measures: tuple[str, ...]
    keys: tuple[str, ...]
    fixed: Mapping[str, tuple[object, ...]]


def list_measured_rows(query: PrivateQuery) -> Iterator[MeasuredRows]:
    """Yield what a query measures, of its own rows first, then of those without `key = constant` and IN."""
    where = split_conjuncts(query.body.where)
    values = [(part, *fixed) for part in where if (fixed := _read_fixed(part)) is not None][:_MOST_FIXED]
    for number in range(len(values) + 1):
        for chosen in combinations(values, number):
            out = [part for part, _, _ in chosen]
            body = replace(query.body, where=join_conjuncts([part for part in where if part not in out]))
            rows = query.table, query.unit_name, body, query.unit, query.protected
            parts = (*query.measures, *query.keys, *(key for _, key, _ in chosen))
            found = [hashlib.sha256(_write((_ROWS_FORMAT, *rows, part)).encode("ascii")).hexdigest() for part in parts]
            measured, keyed = len(query.measures), len(query.measures) + len(query.keys)
            given = dict(zip(found[keyed:], (listed for _, _, listed in chosen), strict=True))
            if len(given) == number:  # `key = 1 AND key = 2` has no rows, and those of no group
                yield MeasuredRows(tuple(found[:measured]), tuple(found[measured:keyed]), given)


def _read_fixed(condition: Expression) -> tuple[Expression, tuple[object, ...]] | None:
    """Return the expression to which a condition leaves some values, and these as the key of a group has them.

    None for other conditions, and for types of which equal values can look different.
    """
    match condition:
        case Call(function="is_null", arguments=(key,)):
            return key, (None,)
        case Call(function="=", arguments=(Literal() as literal, key) | (key, Literal() as literal)):
            choices: tuple[Expression, ...] = (literal,)
        case In(argument=key, choices=choices):
            pass
        case _:
            return None
    values = [_read_constant(each, key) for each in choices]
    return None if None in values or find_collations(key) else (key, tuple(dict.fromkeys(values)))


def _read_constant(choice: Expression, key: Expression) -> object:
    """Return a constant as a key has it; None for one of another type, or of a type with several looks of one value."""
    family, value = key.type.family, choice.value if isinstance(choice, Literal) else None
    if choice.type != key.type:
        return None
    if family is Family.DATE:  # as the number of the day, which `list_values` returns
        with suppress(ValueError):
            return (date.fromisoformat(str(value)) - date(1970, 1, 1)).days
        return None
    is_plain = family in {Family.BOOLEAN, Family.INTEGER} or (family is Family.TEXT and UNREADABLE not in str(value))
    return value if is_plain else None


# Readings: what a statement means otherwise than in 0.11
READING = 2  # of the answers that are stored now; those of 0.11 have none


@dataclass(frozen=True, slots=True)
class Reread:
    """What of a statement is read otherwise than in 0.11: the `readings` that changed, with their numbers.

    There is none where only the bounds or the condition of a measure are others, which are in the key anyway. The
    `measures` are those of the statement as 0.11 read it; None where it did not accept the statement. It `is_same` if
    these count the same rows, in other words, so that the answer is that to the statement.
    """

    readings: tuple[tuple[str, int], ...]
    measures: tuple[Measure, ...] | None
    is_same: bool = False


def find_changed_readings(query: PrivateQuery, terms: Terms) -> Reread | None:
    """Return what a query with bounded measures is read otherwise than in 0.11; None where it means the same."""
    if any(output.statistic is not None for output in query.outputs):
        return None  # which 0.11 did not have
    found = tuple((name, number) for name, number, is_in in _CHANGED if is_in(query))
    earlier = _measure_as_0_11(query, terms)
    if not found and earlier in (None, query.measures):
        return None
    return Reread(found, earlier, not found and earlier is not None and _count_same_rows(query.measures, earlier))


def _count_same_rows(measures: Sequence[Measure], earlier: Sequence[Measure]) -> bool:
    """Say whether measures are those that 0.11 had, of which some count the same rows by another condition."""
    return len(measures) == len(earlier) and all(
        then == now
        or (
            now.former is not None
            and (then.aggregate, then.condition, then.bounds) == (Aggregate.ROWS, now.former.condition, now.bounds)
        )
        for now, then in zip(measures, earlier, strict=True)
    )


def _has_ratio(query: PrivateQuery) -> bool:
    averaged = {at for output in query.outputs if output.divisor is not None for at in (output.measure, output.divisor)}
    return any(measure.weight is not None for at, measure in enumerate(query.measures) if at not in averaged)


def _is_column(expression: Expression) -> bool:
    """Say whether an expression is a column, read as DOUBLE or as it is."""
    while isinstance(expression, Cast) and expression.type == DOUBLE and expression.argument.type.is_number:
        expression = expression.argument
    return is_column(expression)


def _counts_rows_of_join(query: PrivateQuery) -> bool:
    """Return whether rows, or their values, are measured where private tables are joined, or looked up in others."""
    if all(measure.aggregate is Aggregate.UNITS for measure in query.measures):
        return False
    return len(query.protected) > 1 or sum(scan.path in query.private_paths for scan in list_scans(query.body)) > 1


_CHANGED: tuple[tuple[str, int, Callable[[PrivateQuery], bool]], ...] = (
    ("average", 2, lambda query: any(output.divisor is not None for output in query.outputs)),
    ("ratio", 2, _has_ratio),
    (
        "expression",
        2,
        lambda query: any(
            each.aggregate is Aggregate.SUM and each.argument is not None and not _is_column(each.argument)
            for each in query.measures
        ),
    ),
    ("join", 2, _counts_rows_of_join),
)


def _measure_as_0_11(query: PrivateQuery, terms: Terms) -> tuple[Measure, ...] | None:
    """Return the measures as 0.11 bounded them; None where it refused one."""
    earlier = dict[Measure, None]()
    for now in query.measures:
        measure = now.former or now
        condition = measure.condition
        match condition:  # of COUNT(x) a value was not NULL, and could be NaN
            # COUNT(x) of a DOUBLE has today the condition x IS NOT NULL AND NOT isnan(x), and had x IS NOT NULL.
            case Call(function="and", arguments=(*others, Call(function="not", arguments=(Call(function="isnan"),)))):
                condition = join_conjuncts(others)
        earlier[Measure(measure.aggregate, measure.argument, condition, measure.columns)] = None
    bounded = [_bound_as_0_11(measure, query, terms=terms) for measure in earlier]
    found = tuple(measure for measure in bounded if measure is not None)
    return found if len(found) == len(bounded) else None


def _bound_as_0_11(measure: Measure, query: PrivateQuery, *, terms: Terms) -> Measure | None:
    """Return a measure with the bounds that it had: the fewest rows of any table, or the sum of the one column."""
    match measure.aggregate:
        case Aggregate.UNITS:
            return measure
        case Aggregate.ITEMS:
            return None
        case Aggregate.ROWS:
            rows = [most for name in query.tables if (most := terms.tables[name].bounds.rows) is not None]
            if not rows:
                return None
            most = min(rows)
            option = query.clause.options.get("max_rows_contributed")
            if option is not None and isinstance(option.value, Decimal):
                most = min(most, int(option.value))
            return replace(measure, bounds=ContributionRange(0, most))
        case Aggregate.SUM:
            every = [terms.tables[table].bounds.find(column) for table, column in dict.fromkeys(measure.columns)]
            found = [bounds for bounds in every if bounds is not None]
            if len(found) != 1 or measure.argument is None:
                return None
            (bounds,) = found
            if bounds.max is None:  # `each` alone, which 0.11 did not have
                return None
            low, high = bounds.min or Fraction(0), bounds.max
            return replace(measure, bounds=ContributionRange.of_values(low, high, type_=measure.argument.type))
