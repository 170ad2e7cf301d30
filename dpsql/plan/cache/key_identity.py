"""Identity of the keys of a query: two queries with the same keys have the same kind of names.

A key is what is computed from stored columns, whatever the query selects, joins or measures. The columns of subqueries
in FROM are followed to those of the tables that they come from, so that a filter in a subquery makes no difference. It
decides which earlier names are of use and never what is private, since names that were released are public.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

from dpsql.plan.cache.replay_key import encode_value, list_fields
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.tree import Column, Combined, Cut, Derived, Joined, Numbered, Relation, Scan

__all__ = ["identify_keys"]

_FORMAT = "dpsql names 1"
_Relations = dict[int, Scan | Numbered | tuple[Derived, ...]]


def identify_keys(query: PrivateQuery) -> tuple[str, ...]:
    """Return the digest of each key of the query, in their order."""
    relations, expressions = _list_relations(query.body.source), _Expressions()
    return tuple(_digest([_FORMAT, expressions.identify(key, relations)]) for key in query.keys)


@dataclass(slots=True)
class _Expressions:
    """Digests of expressions, each of those of its parts; an output of a subquery is read once, however often named."""

    outputs: dict[tuple[int, int], object] = field(default_factory=dict)

    def identify(self, node: object, relations: _Relations) -> object:
        """Return the digest of a part of an expression, whose columns are those of `relations`, or its plain value."""
        match node:
            case tuple():
                return [self.identify(part, relations) for part in node]
            case Column():
                return self._identify_column(node, relations)
            case Derived():
                inner = relations | _list_relations(node.body.source)
                return _digest(["Derived", *(self.identify(part, inner) for part in (node.outputs, node.body))])
            case Scan():
                return _digest(["Scan", *node.path])
        names = list_fields(node)
        if names is None:
            return encode_value(node)
        return _digest([type(node).__name__, *(self.identify(getattr(node, name), relations) for name in names)])

    def _identify_column(self, column: Column, relations: _Relations) -> object:
        relation = relations[column.relation]
        match relation:
            case Scan(path=path):
                return _digest(["Column", *path, column.name, column.type.name])
            case Numbered():
                return _digest(["Numbered", column.name])
        at = int(column.name.removeprefix("c")) - 1
        found = list(dict.fromkeys(str(self._identify_output(each, at)) for each in relation))
        return found[0] if len(found) == 1 else _digest(["Combined", *found])

    def _identify_output(self, subquery: Derived, at: int) -> object:
        known = self.outputs.get((id(subquery), at))
        if known is None:
            known = self.identify(subquery.outputs[at], _list_relations(subquery.body.source))
            self.outputs[id(subquery), at] = known
        return known


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


def _digest(described: object) -> str:
    return hashlib.sha256(json.dumps(described, separators=(",", ":")).encode("ascii")).hexdigest()
