"""Access to the tree of sqlglot: parsing of settled tokens, and checks of the arguments of a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from dpsql.errors import Place, Refusal, Unsupported
from dpsql.sql.lexer import FUNCTION_PREFIX, ScannedStatement, make_place
from dpsql.sql.syntax.block import Select, first_token, kinds_of, last_token, nest

if TYPE_CHECKING:
    from sqlglot import Token
    from sqlglot.expressions import Expression as Node

MAX_LISTED = 256
MAX_COMBINED = 32  # each is nested in the one before
_LISTS = frozenset(["Select", "Group", "Order", "Window", "With"])

EVERY_COLUMN = "all\0columns"  # in ORDER BY ALL: a name that no statement can hold


def parse(statement: ScannedStatement, tokens: list[Token]) -> Node:
    """Parse the tokens as one SELECT."""
    from sqlglot.dialects.duckdb import DuckDB
    from sqlglot.errors import ParseError
    from sqlglot.expressions import Select

    where: Place | None = None
    try:
        dialect = DuckDB()
        if statement.postgres:
            dialect.NULL_ORDERING = "nulls_are_large"  # last where an order rises, and first where it falls
        trees = dialect.parser().parse(tokens, statement.text)
        if len(trees) == 1 and isinstance(trees[0], Select):
            _check_breadth(statement, trees[0])
            return trees[0]
    except Refusal:
        raise
    except ParseError as error:
        where = _find_fault(statement, error.errors)
    except Exception:  # noqa: BLE001 - a parser may fail in any way on hostile text
        where = None
    hint = "Check commas, parentheses and keywords up to here, and nest less deeply."
    raise Refusal("syntax", "This is not a SELECT that dpsql can read.", hint=hint, place=where)


def _check_breadth(statement: ScannedStatement, tree: Node) -> None:
    """Refuse long lists of keys, columns, tables and CTEs; some checks are quadratic in their length."""
    combined = 0
    for node in tree.walk():
        kind, reason, hint = type(node).__name__, "", ""
        if kind in {"Union", "Intersect", "Except"}:
            combined += 1
            if combined > MAX_COMBINED:
                reason = f"At most {MAX_COMBINED} UNION, INTERSECT and EXCEPT are allowed in a statement."
                hint = "Combine fewer subqueries."
        elif kind in _LISTS:
            for part in node.args.values():
                if isinstance(part, list) and len(part) > MAX_LISTED:
                    reason, hint = f"This list may have at most {MAX_LISTED} items.", "Shorten the list."
        if reason:
            raise Refusal("too-long", reason, hint=hint, place=place(statement, cast("Node", node)))


def _find_fault(statement: ScannedStatement, faults: list[dict[str, object]]) -> Place | None:
    """Return the place of the fault that sqlglot reports by line and last column."""
    line, column = (faults[0].get("line"), faults[0].get("col")) if faults else (None, None)
    if not isinstance(line, int) or not isinstance(column, int):
        return None
    end = sum(len(part) + 1 for part in statement.text.split("\n")[: line - 1]) + column
    starts = [token.start for token in statement.tokens if token.start < end <= token.end + 1]
    return make_place(statement.text, starts[0] if starts else end - 1, end=end)


def place(statement: ScannedStatement, node: Node) -> Place | None:
    """Return the place of the smallest fragment that covers `node`, or its parent if `node` has no position."""
    spans = [below.meta for below in node.walk() if "start" in below.meta]
    if not spans:
        outer = cast("Node | None", node.parent)
        return None if outer is None or type(outer).__name__ == "Select" else place(statement, outer)
    return make_place(statement.text, min(span["start"] for span in spans), end=max(span["end"] for span in spans) + 1)


def allow_only(statement: ScannedStatement, node: Node, *allowed: str) -> None:
    """Refuse a node with any argument other than the `allowed` ones."""
    for name, value in node.args.items():
        if name not in allowed and value is not None and value is not False and value != []:
            hint = "Leave this part out, or write it in another way."
            where = place(statement, node)
            raise Unsupported("construct", "This construct is not supported.", hint=hint, place=where)


def find_every_column(statement: ScannedStatement, order: Node) -> Node | None:
    """Return the term of ORDER BY ALL; None for another list."""
    terms = order.expressions
    (term, *others) = [term for term in terms if term.this.name == EVERY_COLUMN] or [None]
    if term is None:
        return None
    if others or len(terms) > 1 or type(term.this).__name__ != "Column":
        hint = "Write ORDER BY ALL alone, or name the columns: ORDER BY 1, 2."
        raise Refusal("order", "ALL stands alone in ORDER BY.", hint=hint, place=place(statement, order))
    allow_only(statement, term, "this", "desc", "nulls_first")
    return cast("Node", term)


def read_direction(term: Node) -> tuple[bool, bool]:
    """Return whether a term of ORDER BY falls, and whether it has NULL first."""
    return bool(term.args.get("desc")), bool(term.args.get("nulls_first"))


def is_unnest(node: Node) -> bool:
    """Return whether a node is unnest(...)."""
    return type(node).__name__ == "Anonymous" and node.this == f"{FUNCTION_PREFIX}unnest"


def pair_items_with_text(statement: ScannedStatement, select: Node, *, tokens: list[Token]) -> list[tuple[Node, str]]:
    """Pair the items of the outermost select list with their text, the name of an item without an alias."""
    nodes = nest(tokens).nodes
    kinds = kinds_of(nodes)
    pairs: list[tuple[Node, str]] = []
    items = Select(nodes[kinds.index("SELECT") :]).items if "SELECT" in kinds else []
    if len(items) != len(select.expressions):
        hint, where = "Check its commas and parentheses.", place(statement, select)
        raise Refusal("syntax", "The select list cannot be read.", hint=hint, place=where)
    for node, item in zip(select.expressions, items, strict=True):
        text = statement.text[first_token(item).start : last_token(item).end + 1] if item else ""
        pairs.append((node, " ".join(text.split())))
    return pairs
