"""The option `domain`: the public values that the one key of a query may take, listed or held by a public table."""

from __future__ import annotations

import re

from dpsql.errors import Place, Refusal
from dpsql.sql.catalog import Catalog, Table
from dpsql.sql.coerce import as_type, comparable
from dpsql.sql.query import Body, Cast, Column, Domain, Expression, Listed, Literal, Option, Scan, Stored
from dpsql.sql.scope import listed
from dpsql.sql.text import ascii_lower
from dpsql.sql.types import TEXT, Family, Type, read_as

__all__ = ["read_domain"]

_PART = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^".\s]+))\s*')
_HINT = "Write domain = 'countries.country', a column of a public table, or domain = ['DE', 'FR']."
_NUMBER = 0  # tables of the query itself are numbered from 1


def read_domain(option: Option, keys: tuple[Expression, ...], *, catalog: Catalog) -> Domain:
    """Return the domain that the option names, its values in the type of the key."""
    if len(keys) != 1:
        hint = "Group by one key, or leave the option out."
        raise Refusal("domain", "A known domain is that of a single key.", hint=hint, place=option.place)
    (key,) = keys
    if isinstance(option.value, tuple):
        return _listed(option.value, key, place=option.place)
    if not isinstance(option.value, str) or option.word:
        raise Refusal("domain", "This is no domain.", hint=_HINT, place=option.place)
    return _stored(option.value, key, place=option.place, catalog=catalog)


def _listed(texts: tuple[str, ...], key: Expression, *, place: Place) -> Listed:
    if not texts:
        raise Refusal("domain", "The list of candidates is empty.", hint=_HINT, place=place)
    literals = (as_type(Literal(text, TEXT, len(text)), key.type, place=place) for text in texts)
    return Listed(tuple(dict.fromkeys(comparable((key, literal), place)[1] for literal in literals)))


def _stored(name: str, key: Expression, *, place: Place, catalog: Catalog) -> Stored:
    *path, column = _parts(name)
    table = catalog.find(path[-1], ".".join(path[:-1])) if path else None
    if table is None:
        public = [known.name for known in catalog.tables if known.privacy_unit is None]
        hint = listed("The public tables are", public) if public else "The policy has no public table; list the values."
        raise Refusal("domain", "There is no such table for a domain.", hint=hint, place=place)
    if table.privacy_unit is not None:
        reason = "A domain must be public, and this table has a privacy unit."
        raise Refusal("domain", reason, hint=_HINT, place=place)
    found = _column(table, column)
    if found is None:
        hint = listed("Its columns are", [known for known, _ in table.columns])
        raise Refusal("domain", "The table of the domain has no such column.", hint=hint, place=place)
    return Stored(Body(Scan(_NUMBER, table.path), None), _as_key(found, key.type, place=place))


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


def _column(table: Table, name: str) -> Column | None:
    matches = (each for each in table.columns if ascii_lower(each[0]) == ascii_lower(name))
    return next((Column(_NUMBER, column, type_) for column, type_ in matches), None)


def _as_key(column: Column, wanted: Type, *, place: Place) -> Expression:
    """Return the column in the key's type; what the key cannot take becomes NULL, and no candidate."""
    type_ = read_as(column.type)
    value = column if type_ == column.type else Cast(column, type_)
    if type_ == wanted:
        return value
    if type_.family is wanted.family is Family.INTEGER:
        return Cast(value, wanted)
    hint = f"Cast the key: CAST(... AS {type_})."
    raise Refusal("domain", f"The key is {wanted} and the domain's column {type_}.", hint=hint, place=place)
