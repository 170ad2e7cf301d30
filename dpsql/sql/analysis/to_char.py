"""Rewrite of PostgreSQL's TO_CHAR as strftime, in a SELECT around private queries: DuckDB has no TO_CHAR.

to_char(ts, 'YYYY-MM-DD HH24:MI')    strftime(ts, '%Y-%m-%d %H:%M')
"""

from __future__ import annotations

import re
from typing import cast

from dpsql.errors import Place, Unsupported
from dpsql.sql.lexer import ascii_lower

__all__ = ["PATTERNS", "rewrite_to_char", "translate_format"]

Tree = dict[str, object]
PATTERNS = {
    "YYYY": "%Y",
    "YY": "%y",
    "MM": "%m",
    "Mon": "%b",
    "FMMonth": "%B",
    "DDD": "%j",
    "DD": "%d",
    "Dy": "%a",
    "FMDay": "%A",
    "HH24": "%H",
    "HH12": "%I",
    "HH": "%I",
    "MI": "%M",
    "SS": "%S",
    "MS": "%g",
    "US": "%f",
    "AM": "%p",
    "PM": "%p",
    "IYYY": "%G",
    "IW": "%V",
    "ID": "%u",
}
_TOKEN = re.compile(f'({"|".join(sorted(PATTERNS, key=len, reverse=True))})|"([^"]*)"|([^A-Za-z"])')


def rewrite_to_char(node: Tree, place: Place | None) -> None:
    """Make strftime of a call of to_char in DuckDB's syntax tree; leave any other call as it is.

    Raises `Unsupported` for a format that is no literal, or has a pattern that strftime lacks.
    """
    arguments = cast("list[Tree]", node.get("arguments") or [])
    if ascii_lower(str(node["function_name"])) != "to_char" or len(arguments) != len(("value", "format")):
        return
    literal = cast("Tree", arguments[1]["expression"]).get("literal")
    text = literal.get("text") if isinstance(literal, dict) and literal.get("kind") == "STRING" else None
    form = None if text is None else translate_format(str(text))
    if form is None or not isinstance(literal, dict):
        hint = f"Write strftime(x, '%Y-%m-%d'), or to_char with a literal of {', '.join(sorted(PATTERNS))}."
        raise Unsupported("function", "This format of TO_CHAR is not known.", hint=hint, place=place)
    literal["text"] = form
    node["function_name"] = "strftime"
    node["qualified_name"] = {"path": ["strftime"]}


def translate_format(text: str) -> str | None:
    """Return a format of TO_CHAR as one of strftime; None for one that has no equal."""
    found, at = "", 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            return None
        pattern, quoted, other = token.groups()
        found += PATTERNS[pattern] if pattern else (quoted if quoted is not None else other).replace("%", "%%")
        at = token.end()
    return found
