"""Options with public values: `domain` (ALL PRIVATE), `partitions` (PER key) and `assume` (EXPLAIN).

The values are in a list or in a public table. Those of a table are read before the query is planned, since the number
of groups or partitions decides its price: `find_..._query` returns the public query for them, and `set_...` puts its
answer into the query. A `domain` has every group of ALL PRIVATE. `partitions` are the values of the key of PER, each
with its first k groups. `assume` is a public guess of the counts, for which EXPLAIN simulates what each mechanism would
find.

This file has two parts: (1) the options; (2) from `needs_bounds` on, the domain of all keys of ALL PRIVATE, of which
the option gives one that the statement does not tell (`known_values.py`). Several keys have all combinations of their
values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from dpsql.errors import Place, Refusal
from dpsql.sql.analysis.known_values import (
    MOST_GROUPS,
    find_bounds,
    find_year_column,
    is_time_bucket,
    list_known_values,
    missing_bounds,
    read_calendar,
)
from dpsql.sql.analysis.row_facts import find_sole_column
from dpsql.sql.coercion import convert, unify_for_comparison
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.scope import STORED, list_names
from dpsql.sql.ir.statements import (
    Assumption,
    Domain,
    KeyDomain,
    LiteralDomain,
    Name,
    Option,
    Partitions,
    PrivateQuery,
    ProductDomain,
    PublicQuery,
    ReleasedDomain,
    TableDomain,
    count_groups,
    list_factors,
)
from dpsql.sql.ir.transforms import canonicalize
from dpsql.sql.ir.tree import (
    TEXT,
    Call,
    Cast,
    ColumnRef,
    Derived,
    Expression,
    Family,
    FromWhere,
    Joined,
    Literal,
    Scan,
    Sorted,
    find_read_type,
    list_scans,
    strip_casts,
    walk,
)
from dpsql.sql.lexer import ascii_lower
from dpsql.sql.syntax.clause import MAX_LISTED

_PART = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^".\s]+))\s*')
_HINT = "Write {0} = 'countries.country', a column of a public table, or {0} = ['DE', 'FR']."
_NUMBER = 0  # tables of the query itself are numbered from 1
MAX_ASSUMED = 20_000  # groups: twice what a limited domain reads at most
MAX_UNITS = 10**9 - 1  # of a group: more is taken for that, and its weight still fits into a BIGINT
_ZIPF = re.compile(r"\s*zipf\s*\(\s*([0-9]{1,2}(?:\.[0-9]{1,6})?)\s*,\s*([0-9]{1,9})\s*\)\s*", re.IGNORECASE)
_ASSUME_HINT = (
    "Write assume = 'zipf(1.0, 5000)', the exponent and the units of the first group, or assume = 'guesses.units', a "
    "column of whole numbers of a public table."
)


def is_released(option: Option) -> bool:
    """Return whether the option names the domain of names that earlier answers released."""
    return option.word and option.value == "released"


def read_domain(option: Option, keys: tuple[Expression, ...], *, catalog: Catalog) -> KeyDomain | ReleasedDomain:
    """Return the domain that the option names, its values in the type of the key."""
    if is_released(option):
        return ReleasedDomain()
    if len(keys) != 1:
        hint = "Group by one key, or leave the option out."
        raise Refusal("domain", "A known domain is that of a single key.", hint=hint, place=option.place)
    return read_values("domain", option, key=keys[0], catalog=catalog)


def find_joined_domain(query: PrivateQuery) -> TableDomain | None:
    """Return the values of a key that is a column of a public table in FROM; None for any other key, or several.

        SELECT item, COUNT(*) FROM orders RIGHT JOIN (SELECT DISTINCT item FROM items) USING (item) GROUP BY item

    Every row has one of these values, so that they are the groups, also those that have no row.
    """
    key = query.keys[0] if len(query.keys) == 1 else None
    if not isinstance(key, ColumnRef):
        return None
    waiting = [query.body.source]
    while waiting:
        relation = waiting.pop()
        if isinstance(relation, Joined):
            waiting += [relation.left, relation.right]
        elif isinstance(relation, Scan | Derived) and relation.number == key.relation:
            body = FromWhere(relation, None)
            is_public = not any(scan.path in query.private_paths for scan in list_scans(body))
            return TableDomain(body, key) if is_public else None
    return None


def read_values(name: str, option: Option, *, key: Expression, catalog: Catalog) -> KeyDomain:
    """Return the public values that the option of that name gives, in the type of the key."""
    if isinstance(option.value, tuple):
        return convert_values(name, option.value, key=key, place=option.place)
    if not isinstance(option.value, str) or option.word:
        hint = _HINT.format(name)
        raise Refusal(name, "This is neither a column nor a list.", hint=hint, place=option.place)
    table, column = find_public_column(name, option, catalog=catalog, hint=_HINT.format(name))
    # the column in the key's type: what the key cannot take becomes NULL, and no candidate
    type_ = find_read_type(column.type)
    value = column if type_ == column.type else Cast(column, type_)
    if type_ != key.type:
        if not type_.family is key.type.family is Family.INTEGER:
            hint = f"Cast the key: CAST(... AS {type_})."
            reason = f"The key is {key.type} and the column of {name} {type_}."
            raise Refusal(name, reason, hint=hint, place=option.place)
        value = Cast(value, key.type)
    return TableDomain(FromWhere(table, None), value)


def convert_values(name: str, texts: tuple[str, ...], *, key: Expression, place: Place) -> LiteralDomain:
    """Return the values that the texts spell, each once, in the type of the key."""
    if not texts:
        raise Refusal(name, "The list of values is empty.", hint=_HINT.format(name), place=place)
    literals = (convert(Literal(text, TEXT, len(text)), key.type, place=place) for text in texts)
    return LiteralDomain(tuple(dict.fromkeys(unify_for_comparison((key, literal), place)[1] for literal in literals)))


def find_values(name: str, source: TableDomain, *, most: int) -> PublicQuery:
    """Return the public query for the distinct values of a domain as text: at most one more than `most`, and NULL."""
    text = source.value if source.value.type == TEXT else Cast(source.value, TEXT)
    outputs = (canonicalize(text),)
    return PublicQuery(names=(name,), outputs=outputs, body=source.body, distinct=True, limit=most + 2)


def find_public_column(name: str, option: Option, *, catalog: Catalog, hint: str) -> tuple[Scan, ColumnRef]:
    """Return the public table and the column that an option names; `hint` says what else may be written."""
    place, (*path, column) = option.place, _parts(str(option.value))
    table = catalog.find_path(path) if path else None
    if table is None:
        public = [known.name for known in catalog.tables if known.is_public]
        known_tables = list_names("The public tables are", public, wanted=path[-1] if path else "")
        proposed = known_tables if public else f"The policy has no public table. {hint}"
        raise Refusal(name, f"There is no such table for {name}.", hint=proposed, place=place)
    if table.stored_kind:
        raise Refusal(STORED, f"{name} cannot name an answer or a published table.", hint=hint, place=place)
    if table.privacy_unit is not None:
        reason = f"The values of {name} must be public, and this table has a privacy unit."
        raise Refusal(name, reason, hint=hint, place=place)
    matches = (each for each in table.columns if ascii_lower(each[0]) == ascii_lower(column))
    found = next((ColumnRef(_NUMBER, *each) for each in matches), None)
    if found is None:
        proposed = list_names("Its columns are", [known for known, _ in table.columns], wanted=column)
        raise Refusal(name, f"The table of {name} has no such column.", hint=proposed, place=place)
    return Scan(_NUMBER, table.path), found


def _parts(name: str) -> list[str]:
    """Return the parts of a dotted name, each plain or in double quotes; none of a name that cannot be read."""
    parts, at = [], 0
    while found := _PART.match(name, at):
        parts.append(found[1].replace('""', '"') if found[1] else found[2])
        at = found.end() + 1
        if found.end() == len(name):
            return parts
        if name[found.end()] != ".":
            break
    return [""]


def find_group_query(query: PrivateQuery) -> PublicQuery | None:
    """Return the public query for the groups that a public table holds, as text; None where they are known."""
    if query.clause.shape != "all" or query.domain is None:
        return None
    stored = next((each for each in list_factors(query.domain) if isinstance(each, TableDomain)), None)
    return None if stored is None else find_values("domain", stored, most=MOST_GROUPS)


def check_number_of_groups(domain: Domain, *, place: Place) -> None:
    """Refuse a domain of more than MOST_GROUPS combinations of values."""
    found = count_groups(domain)
    if found is not None and found > MOST_GROUPS:
        reason = f"The keys have {found:,} combinations of values; ALL PRIVATE returns at most {MOST_GROUPS:,} groups."
        raise Refusal("domain", reason, hint="Group by fewer keys, or set the bounds in WHERE closer.", place=place)


def set_known_groups(query: PrivateQuery, texts: Iterable[str | None]) -> PrivateQuery:
    """Return the query with the groups that its public table holds; NULL is none of them.

    Raises `Refusal` where there are none, or too many.
    """
    if query.domain is None:
        return query
    option = query.clause.options.get("domain")  # else the domain is that of a column of a table in FROM
    place = query.clause.place if option is None else option.place
    known = tuple(text for text in texts if text is not None)
    if len(known) > MOST_GROUPS:
        hint = "List those that matter: domain = ['DE', 'FR']."
        raise Refusal("domain", f"The domain has more than {MOST_GROUPS} values.", hint=hint, place=place)
    factors = tuple(
        convert_values("domain", known, key=key, place=place) if isinstance(each, TableDomain) else each
        for key, each in zip(query.keys, list_factors(query.domain), strict=True)
    )
    domain: Domain = factors[0] if len(factors) == 1 else ProductDomain(factors)
    check_number_of_groups(domain, place=place)
    return replace(query, domain=domain)


def read_partitions(query: PrivateQuery, named: int | None, *, catalog: Catalog) -> PrivateQuery:
    """Return the query with the partitions of its clause; `named` is the key that PER names, if it is one.

    Raises `Refusal` for PER without partitions, and the reverse, and where no other key is left to rank.
    """
    per, option = query.clause.per, query.clause.options.get("partitions")
    if per is None and option is None:
        return query
    if per is None or option is None:
        place = query.clause.place if option is None else option.place
        reason = "PER needs the public list of its partitions." if per is not None else "partitions belong to PER."
        raise Refusal("per", reason, hint=_show_form(query, None if named is None else per), place=place)
    if named is None:
        raise Refusal("per", "PER names no key of this query.", hint=_show_form(query, None), place=per.place)
    if len(query.keys) == 1:
        hint = "Group by another key too, or leave PER out and write domain in place of partitions."
        raise Refusal("per", "There is no other key to rank in each partition.", hint=hint, place=per.place)
    if "domain" in query.clause.options:
        hint = "Leave domain out: partitions says which values PER's key has."
        raise Refusal("domain", "A known domain does not go with PER.", hint=hint, place=per.place)
    key = query.keys[named]
    column = find_sole_column(key, query.body.source, catalog=catalog)
    values = read_values("partitions", option, key=key, catalog=catalog)
    source, listed = (values, ()) if isinstance(values, TableDomain) else (None, _ordered(values))
    return replace(query, partitions=Partitions(named, listed, option.place, source=source, column=column))


def _show_form(query: PrivateQuery, per: Name | None) -> str:
    """Return a hint with a clause of this query: by the key that PER names or, without one, by its first key."""
    shown = [output.name for output in query.outputs if output.key is not None]
    name = per.text if per is not None else next(iter(shown), "country")
    top = "ADAPTIVE" if query.clause.k is None else query.clause.k
    clause = f"TOP {top} PRIVATE PER {name} WITH (partitions = ['first', 'second'])"
    return f"Write {clause}, with the values of {name} that you want."


def find_partition_query(query: PrivateQuery) -> PublicQuery | None:
    """Return the public query for the partitions that a public table holds, as text; None where they are known."""
    source = None if query.partitions is None else query.partitions.source
    return None if source is None else find_values("partitions", source, most=MAX_LISTED)


def set_partition_values(query: PrivateQuery, texts: Iterable[str | None]) -> PrivateQuery:
    """Return the query with the partitions that its public table holds; NULL is none of them.

    Raises `Refusal` where there are none, or too many.
    """
    found = query.partitions
    if found is None:
        return query
    known = tuple(text for text in texts if text is not None)
    if len(known) > MAX_LISTED:
        reason = f"The column of partitions has more than {MAX_LISTED} values."
        hint = "List those that matter: partitions = ['DE', 'FR']."
        raise Refusal("partitions", reason, hint=hint, place=found.place)
    values = convert_values("partitions", known, key=query.keys[found.key], place=found.place)
    return replace(query, partitions=replace(found, values=_ordered(values), source=None))


def _ordered(values: LiteralDomain) -> tuple[Literal, ...]:
    """Return the values, each once, in their natural order."""
    found: dict[object, Literal] = {}
    for value in values.values:
        if isinstance(value, Literal):
            zero = Literal(value.value + 0.0, value.type) if isinstance(value.value, float) else value  # -0.0 is 0.0
            found.setdefault(zero.value, zero)
    return tuple(found[value] for value in sorted(found))  # type: ignore[type-var] # values of one type


def read_assumption(option: Option, *, catalog: Catalog) -> Assumption:
    """Return the guess: counts by Zipf's law, or the column of a public table that holds them."""
    if not isinstance(option.value, str) or option.word:
        raise Refusal("assume", "This is no guess of the counts.", hint=_ASSUME_HINT, place=option.place)
    law = _ZIPF.fullmatch(option.value)
    if law is not None:
        exponent, first, counts = float(law[1]), int(law[2]), list[int]()
        for rank in range(1, MAX_ASSUMED + 1):  # first / rank**exponent, rounded down, while a unit is left
            units = int(first / rank**exponent)
            if units < 1:
                break
            counts.append(units)
        return Assumption(tuple(counts))
    if "(" in option.value:
        raise Refusal("assume", "This is no guess of the counts.", hint=_ASSUME_HINT, place=option.place)
    table, column = find_public_column("assume", option, catalog=catalog, hint=_ASSUME_HINT)
    if column.type.family is not Family.INTEGER:
        reason = f"Counts are whole numbers, and this column is {column.type}."
        raise Refusal("assume", reason, hint=_ASSUME_HINT, place=option.place)
    return Assumption((), TableDomain(FromWhere(table, None), column))


def find_guess_query(query: PrivateQuery) -> PublicQuery | None:
    """Return the public query for the highest counts that a public table holds; None where they are known."""
    source = None if query.assumed is None else query.assumed.source
    if source is None:
        return None
    count = canonicalize(source.value)
    order = (Sorted(count, descending=True, nulls_first=False),)
    return PublicQuery(names=("assume",), outputs=(count,), body=source.body, order=order, limit=MAX_ASSUMED)


def set_guess(query: PrivateQuery, counts: Iterable[int | None]) -> PrivateQuery:
    """Return the query with the counts that the public table holds; only those above 0 are groups."""
    known = sorted((min(count, MAX_UNITS) for count in counts if count is not None and count > 0), reverse=True)
    return replace(query, assumed=Assumption(tuple(known)))


# Part 2: the domain of all keys.


def needs_bounds(key: Expression) -> bool:
    """Return whether bounds in WHERE decide which values a key has."""
    return is_time_bucket(key) or find_year_column(key) is not None


def count_covering_groups(query: PrivateQuery) -> int | None:
    """Return the number of groups of a known domain where the text tells that every row is in one of them; else None.

    It does of CASE, of truth values and of parts of times, and of times whose first and last are in WHERE. It does not
    of a list, of a public table, or of a calendar that the policy has: rows may have other values.
    """
    if query.domain is None or "domain" in query.clause.options:
        return None
    for key in query.keys:
        if needs_bounds(key):
            columns = [each for each in walk(key) if isinstance(each, ColumnRef)]
            if any(None in find_bounds(column, query.body.where) for column in columns):
                return None
        elif isinstance(strip_casts(key), ColumnRef) and key.type.family is not Family.BOOLEAN:
            return None
    return count_groups(query.domain)


def read_group_domain(
    keys: Sequence[Expression], body: FromWhere, *, option: Option | None, catalog: Catalog, place: Place
) -> tuple[Domain | None, str]:
    """Return the domain of the keys, None where one has none, and in words which time buckets WHERE cuts.

    Raises `Refusal` for a calendar without bounds, for an option that no key needs, and for too many groups.
    """
    if option is not None and (len(keys) == 1 or is_released(option)):
        return read_domain(option, tuple(keys), catalog=catalog), ""
    values = [None if is_time_bucket(key) else list_known_values(key, body, catalog=catalog) for key in keys]
    open_keys = [key for key, found in zip(keys, values, strict=True) if found is None and not is_time_bucket(key)]
    if option is not None and not open_keys:
        reason = "The statement determines the values of every key."
        raise Refusal("domain", reason, hint="Leave the domain out.", place=option.place)
    if option is not None and len(open_keys) > 1:
        hint = "Group by one of them, or leave the domain out and write TOP 10 PRIVATE."
        reason = "The domain is that of one key, and more keys have no known values."
        raise Refusal("keys", reason, hint=hint, place=option.place)
    if open_keys and option is None:
        return None, ""
    factors, cuts = list[KeyDomain](), list[str]()
    for key, found in zip(keys, values, strict=True):
        calendar = read_calendar(key, body, catalog=catalog, place=place)
        if calendar is not None:
            factors.append(calendar[0])
            cuts += filter(None, [calendar[1]])
        elif found is not None:
            factors.append(LiteralDomain(found))
        elif option is not None:
            factors.append(read_values("domain", option, key=key, catalog=catalog))
    domain: Domain = factors[0] if len(factors) == 1 else ProductDomain(tuple(factors))
    check_number_of_groups(domain, place=place)
    return domain, "; ".join(cuts)


def check_groups_known(query: PrivateQuery, *, catalog: Catalog) -> None:
    """Refuse ALL PRIVATE with a key whose values are not known, and say what would make them known."""
    if query.clause.shape != "all" or query.domain is not None:
        return
    place = query.clause.place
    for key in query.keys:
        column = find_year_column(key)
        if column is not None:
            raise missing_bounds(column, query.body, catalog=catalog, place=place)
        match strip_casts(key):
            case Call(function="date_part", arguments=(Literal(value=str(part)), _)):
                hint = "Write date_trunc('day', ts) in its place, with ts >= ... AND ts < ... in WHERE."
                reason = f"There are too many values of {part} to release each."
                raise Refusal("domain", reason, hint=hint, place=place)
    if len(query.keys) > 1:
        reason = f"ALL PRIVATE needs every key's values: from bounds, CASE or a domain, {MOST_GROUPS:,} groups at most."
        raise Refusal("keys", reason, hint="Group by one key, or write TOP 10 PRIVATE.", place=place)
