"""The options `domain` and `partitions`: the public values of a key, from a list or a public table."""

from __future__ import annotations

import re

from dpsql.errors import Place, Refusal
from dpsql.sql.functions.coercion import convert, unify_for_comparison
from dpsql.sql.ir.canonical_keys import canonicalize
from dpsql.sql.ir.catalog import Catalog, Table
from dpsql.sql.ir.scope import list_names
from dpsql.sql.ir.statements import KeyDomain, LiteralDomain, Option, PublicQuery, ReleasedDomain, TableDomain
from dpsql.sql.ir.tree import Cast, Column, Expression, FromWhere, Literal, Scan
from dpsql.sql.ir.types import TEXT, Family, Type, find_read_type
from dpsql.sql.lexer import ascii_lower

__all__ = ["convert_values", "find_public_column", "find_values", "is_released", "read_domain", "read_values"]

_PART = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^".\s]+))\s*')
_HINT = "Write {0} = 'countries.country', a column of a public table, or {0} = ['DE', 'FR']."
_NUMBER = 0  # tables of the query itself are numbered from 1


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


def read_values(name: str, option: Option, *, key: Expression, catalog: Catalog) -> KeyDomain:
    """Return the public values that the option of that name gives, in the type of the key."""
    if isinstance(option.value, tuple):
        return convert_values(name, option.value, key=key, place=option.place)
    if not isinstance(option.value, str) or option.word:
        hint = _HINT.format(name)
        raise Refusal(name, "This is neither a column nor a list.", hint=hint, place=option.place)
    table, column = find_public_column(name, option, catalog=catalog, hint=_HINT.format(name))
    return TableDomain(FromWhere(table, None), _as_key(name, column, wanted=key.type, place=option.place))


def convert_values(name: str, texts: tuple[str, ...], *, key: Expression, place: Place) -> LiteralDomain:
    """Return the values that the texts spell, each once, in the type of the key."""
    if not texts:
        raise Refusal(name, "The list of values is empty.", hint=_HINT.format(name), place=place)
    literals = (convert(Literal(text, TEXT, len(text)), key.type, place=place) for text in texts)
    return LiteralDomain(tuple(dict.fromkeys(unify_for_comparison((key, literal), place)[1] for literal in literals)))


def find_values(name: str, source: TableDomain, *, most: int) -> PublicQuery:
    """Return the public query for the distinct values of a domain as text: at most one more than `most`, and NULL."""
    text = source.value if source.value.type == TEXT else Cast(source.value, TEXT)
    return PublicQuery(
        names=(name,),
        outputs=(canonicalize(text),),
        distinct=True,
        body=source.body,
        keys=None,
        by_all=False,
        having=None,
        order=(),
        limit=most + 2,
        offset=0,
    )


def find_public_column(name: str, option: Option, *, catalog: Catalog, hint: str) -> tuple[Scan, Column]:
    """Return the public table and the column that an option names; `hint` says what else may be written."""
    place, (*path, column) = option.place, _parts(str(option.value))
    table = catalog.find_path(path) if path else None
    if table is None:
        public = [known.name for known in catalog.tables if known.privacy_unit is None]
        told = (
            list_names("The public tables are", public, wanted=path[-1] if path else "")
            if public
            else f"The policy has no public table. {hint}"
        )
        raise Refusal(name, f"There is no such table for {name}.", hint=told, place=place)
    if table.privacy_unit is not None:
        reason = f"The values of {name} must be public, and this table has a privacy unit."
        raise Refusal(name, reason, hint=hint, place=place)
    found = _column(table, column)
    if found is None:
        told = list_names("Its columns are", [known for known, _ in table.columns], wanted=column)
        raise Refusal(name, f"The table of {name} has no such column.", hint=told, place=place)
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


def _column(table: Table, name: str) -> Column | None:
    matches = (each for each in table.columns if ascii_lower(each[0]) == ascii_lower(name))
    return next((Column(_NUMBER, column, type_) for column, type_ in matches), None)


def _as_key(name: str, column: Column, *, wanted: Type, place: Place) -> Expression:
    """Return the column in the key's type; what the key cannot take becomes NULL, and no candidate."""
    type_ = find_read_type(column.type)
    value = column if type_ == column.type else Cast(column, type_)
    if type_ == wanted:
        return value
    if type_.family is wanted.family is Family.INTEGER:
        return Cast(value, wanted)
    hint = f"Cast the key: CAST(... AS {type_})."
    raise Refusal(name, f"The key is {wanted} and the column of {name} {type_}.", hint=hint, place=place)
