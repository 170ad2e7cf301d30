"""Refusal of a query over private tables without TOP k PRIVATE, with a hint that makes a private query of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpsql.dialects import propose_query, write_name
from dpsql.errors import Place, Refusal, Unsupported
from dpsql.sql.functions.allow_list import EVERY_AGGREGATE, FUNCTIONS
from dpsql.sql.ir.catalog import Catalog, Table
from dpsql.sql.ir.scope import propose_name
from dpsql.sql.ir.types import Family
from dpsql.sql.lexer import Statement, ascii_lower
from dpsql.sql.syntax.block import Block, find_calls, find_selects, first_token, nest
from dpsql.sql.syntax.clause import CLAUSE_HINT
from dpsql.sql.syntax.implied import ImpliedClause, groups_by_any

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = ["add_clause_hint", "find_misspelt", "find_private_table", "name_unit", "not_private"]

_LONGEST_QUOTED = 200  # characters of a statement in a hint
_AFTER_ROWS = frozenset(["GROUP_BY", "ORDER_BY", "LIMIT", "OFFSET"])
_CALLED = ("count", "sum", "avg", *sorted(FUNCTIONS))
_UNREAD = frozenset([Family.OPAQUE, Family.INTERVAL])  # no group keys


def not_private(
    statement: Statement, tokens: Sequence[Token], *, catalog: Catalog, clause: ImpliedClause | None = None
) -> Refusal | Unsupported:
    """Return the refusal of a statement that would show exact values of a private table.

    `tokens` are those of its SELECT, without EXPLAIN. With the `clause` that it lacks it would be answered.
    """
    table, outer = find_private_table(tokens, catalog), _find_outermost(tokens)
    unit, place = "" if table is None else table.privacy_unit or "", statement.place(statement.tokens[-1])
    first = next((select for select in find_selects(nest(tokens)) if first_token(select.nodes) is tokens[0]), None)
    if unit and first is not None and groups_by_any(first, names={ascii_lower(unit)}):
        reason = f"Each group would be one {unit}, and what belongs to one is never released."
        hint = _propose_total(statement, tokens, table=table)
        return Refusal("not-private", reason, hint=hint, place=place)
    reason = "This query does not end in PRIVATE, and exact answers are not given."
    hint = _make_hint(statement, tokens, catalog=catalog)
    if _has_raw_rows(tokens, outer):
        if (misspelt := _find_misspelt_call(list(tokens))) is not None:
            word = tokens[misspelt].text
            hint = f"{propose_name(word, _CALLED)}SHOW FUNCTIONS lists those that there are."
            reason = "This function is not on the allow-list."
            return Unsupported("function", reason, hint=hint, place=statement.place(tokens[misspelt]))
        reason = "Rows are not released as they are: counts, sums and averages of many are."
    if clause is not None and clause.is_inside:
        hint = f"{_propose_clause(clause)}."
    return Refusal("not-private", reason, hint=hint, place=place)


def add_clause_hint(
    refused: Refusal | Unsupported, clause: ImpliedClause, *, place: Place | str | None
) -> Refusal | Unsupported:
    """Return a refusal that the clause which a statement lacks would not mend, with that clause in its hint.

    It is at the `place` given if it has none.
    """
    hint = refused.hint or ""
    hint = hint if "PRIVATE" in hint else f"{hint} {_propose_clause(clause)}, too.".lstrip()
    return type(refused)(refused.code, refused.reason, hint=hint, place=refused.place or place)


def name_unit(refused: Refusal | Unsupported, statement: Statement, *, catalog: Catalog) -> Refusal | Unsupported:
    """Return a refusal with the privacy unit in its hint, where that speaks of one."""
    spoken, hint = "COUNT(DISTINCT ...) of the privacy unit, which DESCRIBE names,", refused.hint or ""
    table = find_private_table(statement.tokens, catalog) if spoken in hint else None
    if table is None or table.privacy_unit is None:
        return refused
    hint = hint.replace(spoken, f"COUNT(DISTINCT {write_name(table.privacy_unit)}),")
    return type(refused)(refused.code, refused.reason, hint=hint, place=refused.place)


def find_misspelt(refused: Refusal | Unsupported, catalog: Catalog) -> frozenset[str]:
    """Return the name of a table that is not there, in lower case, where it is near to that of a private one."""
    if refused.code != "unknown-table" or not isinstance(refused.place, Place):
        return frozenset()
    written = refused.place.fragment.split(" ")[0].rpartition(".")[2].strip('"')
    near = propose_name(written, [table.name for table in catalog.tables if table.privacy_unit is not None])
    return frozenset([ascii_lower(written)] if near else [])


def _propose_clause(clause: ImpliedClause) -> str:
    """Return where to write the clause that a statement lacks."""
    words = "PRIVATE" if clause.is_total else f"TOP {clause.k} PRIVATE"
    limit = [token.text.upper() for token in clause.tail[:2]]
    query = "the inner query" if clause.is_inside else "the query"
    if not clause.is_total and limit == ["LIMIT", str(clause.k)]:
        return f"Write {words} in place of LIMIT {clause.k} in {query}"
    return f"End {query} with {words}"


def find_private_table(tokens: Sequence[Token], catalog: Catalog) -> Table | None:
    """Return the first private table that a word of the statement names."""
    private = {
        ascii_lower(table.name.rpartition(".")[2]): table for table in catalog.tables if table.privacy_unit is not None
    }
    return next((private[word] for token in tokens if (word := ascii_lower(token.text)) in private), None)


def _make_hint(statement: Statement, tokens: Sequence[Token], *, catalog: Catalog) -> str:
    outer = _find_outermost(tokens)
    kinds = [token.token_type.name for token in outer]
    if "GROUP_BY" not in kinds and find_calls(nest(tokens).nodes):
        return _propose_total(statement, tokens, table=find_private_table(tokens, catalog))
    if _has_raw_rows(tokens, outer):
        return _propose_query(find_private_table(tokens, catalog), selected=tokens[1:])
    if kinds[-2:] == ["LIMIT", "NUMBER"]:
        return f"Write TOP {outer[-1].text} PRIVATE in place of {_read_ending(statement, outer[-2])}."
    return CLAUSE_HINT


def _has_raw_rows(tokens: Sequence[Token], outer: Sequence[Token]) -> bool:
    """Say whether a SELECT has neither groups nor an aggregate, so that its rows are those of its tables."""
    kinds = [token.token_type.name for token in outer]
    has_groups = "GROUP_BY" in kinds or "DISTINCT" in kinds[:2]
    return not has_groups and not find_calls(nest(tokens).nodes)


def _find_misspelt_call(tokens: list[Token]) -> int | None:
    """Return where a SELECT calls a function that is not there, with a name near to that of one that is."""
    for at, token in enumerate(tokens[:-1]):
        if token.token_type.name == "VAR" and tokens[at + 1].token_type.name == "L_PAREN":
            word = ascii_lower(token.text)
            if word not in _CALLED and word not in EVERY_AGGREGATE and propose_name(word, _CALLED):
                return at
    return None


def _read_ending(statement: Statement, limit: Token) -> str:
    """Return the LIMIT that ends a statement as it is written, which may be FETCH FIRST 3 ROWS ONLY."""
    return " ".join(statement.text[limit.start : statement.tokens[-1].end + 1].rstrip("; \n").split())


def _propose_total(statement: Statement, tokens: Sequence[Token], *, table: Table | None) -> str:
    """Return a hint with the total of a query, its FROM and WHERE as they are written."""
    simple = "End the query with PRIVATE."
    unit = "" if table is None else table.privacy_unit or ""
    outer = _find_outermost(tokens)
    start = next((token.start for token in outer if token.token_type.name == "FROM"), None)
    end = next((token.start for token in outer if token.token_type.name in _AFTER_ROWS), tokens[-1].end + 1)
    words = [ascii_lower(token.text) for token in tokens]
    counts_units = words[:6] == ["select", "count", "(", "distinct", ascii_lower(unit), ")"]
    if not unit or start is None or (counts_units and end > tokens[-1].end):
        return simple
    asked = statement.text[start:end].strip()
    if "\n" in asked or len(asked) > _LONGEST_QUOTED:
        return simple
    return f"Ask for a total: SELECT COUNT(DISTINCT {write_name(unit)}) AS n {asked} PRIVATE"


def _find_outermost(tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens outside of all parentheses."""
    return [node for node in nest(tokens).nodes if not isinstance(node, Block)]


def _propose_query(table: Table | None, *, selected: Sequence[Token]) -> str:
    """Return a hint with a query of a table: the most frequent values of a column that can be a key.

    It is the first one that the statement names, else the first of text, else the first.
    """
    unit = "" if table is None else table.privacy_unit or ""
    columns = () if table is None else table.columns
    keys = [name for name, type_ in columns if ascii_lower(name) != ascii_lower(unit) and type_.family not in _UNREAD]
    if table is None or not keys:
        return "Add GROUP BY and a column, and end the query with TOP 10 PRIVATE."
    named = {ascii_lower(name): name for name in keys}
    texts = [name for name, type_ in columns if name in keys and type_.family is Family.TEXT]
    key = next((named[word] for token in selected if (word := ascii_lower(token.text)) in named), (texts or keys)[0])
    query = propose_query(table.name, key=key, unit=unit)
    return f"Ask for the most frequent values of a column: {query}"
