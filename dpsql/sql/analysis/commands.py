"""The statements that are no SELECT: SHOW BUDGET, SHOW TABLES, SHOW FUNCTIONS and DESCRIBE of a table."""

from __future__ import annotations

from dpsql.errors import Refusal
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.scope import list_names
from dpsql.sql.ir.statements import Describe, ShowBudget, ShowFunctions, ShowTables
from dpsql.sql.lexer import Statement, ascii_lower

__all__ = ["read_command"]

_Show = ShowBudget | ShowTables | ShowFunctions
_SHOWS: dict[str, _Show] = {"budget": ShowBudget(), "tables": ShowTables(), "functions": ShowFunctions()}


def read_command(statement: Statement, catalog: Catalog) -> _Show | Describe | None:
    """Return the command that the statement is, or None when it does not begin like one."""
    tokens = list(statement.tokens)
    while tokens and tokens[-1].token_type.name == "SEMICOLON":
        tokens.pop()
    words = [ascii_lower(token.text) if token.token_type.name != "IDENTIFIER" else "" for token in tokens]
    if words[:1] == ["show"]:
        if len(words) > 1 and (show := _SHOWS.get(" ".join(words[1:]))):
            return show
        hint = "Write SHOW TABLES, SHOW FUNCTIONS, SHOW BUDGET, or DESCRIBE and a table."
        raise Refusal("not-a-query", "This is nothing that can be shown.", hint=hint, place=statement.place(tokens[0]))
    if words[:1] not in (["describe"], ["desc"]):
        return None
    kinds = [token.token_type.name for token in tokens[1:]]
    names = [token.text for token in tokens[1::2]]
    if len(names) not in {1, 2, 3} or kinds[1::2] != ["DOT"] * (len(names) - 1) or len(kinds) != 2 * len(names) - 1:
        hint = "Write SHOW TABLES for their names; EXPLAIN shows what a query would do."
        raise Refusal("not-a-query", "DESCRIBE takes one table.", hint=hint, place=statement.place(tokens[0]))
    table = catalog.find_path(names)
    if table is None:
        hint = list_names("The policy exposes", [known.name for known in catalog.tables], wanted=names[-1])
        where = statement.place(tokens[1], tokens[-1])
        raise Refusal("unknown-table", "There is no such table.", hint=hint, place=where)
    return Describe(table.name)
