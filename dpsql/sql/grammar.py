"""The closed vocabulary: which words may stand where, before sqlglot's parser sees them.

sqlglot knows the words of thirty dialects and repairs what it can; DuckDB reserves words that sqlglot takes for
names. So each word is settled here: a keyword of our grammar stays one, a type name is one only where a type is due,
a function of the allow-list gets a name that sqlglot does not know, and any other word is a plain name, or refused
when DuckDB reserves it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.errors import Refusal, Unsupported
from dpsql.sql.functions import FUNCTIONS, REFUSED
from dpsql.sql.text import FUNCTION_PREFIX, STAND_IN, Statement, ascii_lower

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = ["settle"]

_KEYWORDS = frozenset(
    "SELECT DISTINCT FROM WHERE GROUP_BY ORDER_BY LIMIT ALIAS AND OR NOT IN IS NULL TRUE FALSE LIKE ILIKE BETWEEN "
    "ESCAPE CASE WHEN THEN ELSE END JOIN INNER LEFT OUTER CROSS ON USING WITH ASC DESC ALL INTERVAL".split()
)
_SYMBOLS = frozenset("L_PAREN R_PAREN COMMA DOT STAR PLUS DASH SLASH DIV MOD DPIPE EQ NEQ LT LTE GT GTE DCOLON".split())
_RESERVED = frozenset(
    "with where variadic unpivot union true using trailing to then table symmetric summarize create as into do "
    "initially for describe desc window except offset in default column false collate returning constraint all "
    "case placing cast analyse intersect asc analyze check having fetch when and only asymmetric on any array "
    "both group pivot_longer primary lambda foreign lateral unique leading null distinct limit not from or order "
    "some pivot end pivot_wider qualify else references deferrable select show verbose struct full columns "
    "concurrently cross ilike collation try_cast generated anti by at semi asof freeze binary is authorization "
    "tuple glob isnull join overlaps tablesample left outer like unpack map natural similar notnull positional "
    "inner right".split()
)
_TYPES = {
    **dict.fromkeys(["boolean", "bool", "logical"], "BOOLEAN"),
    **dict.fromkeys(["tinyint", "int1"], "TINYINT"),
    **dict.fromkeys(["smallint", "int2", "short"], "SMALLINT"),
    **dict.fromkeys(["integer", "int", "int4", "signed"], "INT"),
    **dict.fromkeys(["bigint", "int8", "long"], "BIGINT"),
    **{name: name.upper() for name in ("utinyint", "usmallint")},
    "uinteger": "UINT",
    **dict.fromkeys(["decimal", "numeric"], "DECIMAL"),
    **dict.fromkeys(["double", "float8"], "DOUBLE"),
    **dict.fromkeys(["varchar", "text", "string", "char", "bpchar"], "TEXT"),
    "date": "DATE",
    **dict.fromkeys(["timestamp", "datetime"], "TIMESTAMP"),
}
_HINTS = {
    "having": "HAVING tests exact counts; keep only keys that matter with WHERE, or filter the answer.",
    "qualify": "Windows over other units' rows cannot be private.",
    "offset": "Ask for more with TOP k and drop the first rows of the answer.",
    "union": "Write the alternatives as one query over one private table.",
    "right": "Write the private table first and use LEFT JOIN.",
    "full": "Write the private table first and use LEFT JOIN.",
    "collate": "Keys are compared by their bytes; use lower() or upper() to fold case.",
    "semi": "Use an inner JOIN with the public table: units are counted once.",
}
_AFTER_NO_ITEM = {"COMMA", "R_PAREN", "FROM", ""}
_MEANING = "Aggregates and windows look at many units' rows; only COUNT(DISTINCT <privacy unit>) is released."


def settle(statement: Statement, tokens: list[Token]) -> list[Token]:
    """Return the tokens with every word settled; raise at the first that has no place in our grammar."""
    from sqlglot import Token, TokenType

    settled: list[Token] = []
    openers: list[str] = []
    for index, token in enumerate(tokens):
        before, after = tokens[index - 1] if index else None, tokens[index + 1] if index + 1 < len(tokens) else None
        kind = token.token_type.name
        _check_neighbours(statement, token, before, after)
        third = tokens[index + 3].token_type.name if index + 3 < len(tokens) else ""
        if ascii_lower(token.text) == "extract" and third != "FROM":
            raise Refusal("syntax", "Write EXTRACT(part FROM x).", place=statement.place(token))
        if kind == "L_PAREN":
            openers.append(ascii_lower(before.text) if before is not None else "")
        elif kind == "R_PAREN" and openers:
            openers.pop()
        if kind in _SYMBOLS or kind in {"NUMBER", "STRING", "IDENTIFIER"}:
            settled.append(token)
            continue
        new_kind, text = _word(statement, token, before, after, in_cast=openers[-1:] in (["cast"], ["try_cast"]))
        settled.append(Token(TokenType[new_kind], text, token.line, token.col, token.start, token.end))
    return settled


def _word(
    statement: Statement, token: Token, before: Token | None, after: Token | None, *, in_cast: bool
) -> tuple[str, str]:
    """Return the token type and text of a word, by what stands around it."""
    word, kind = ascii_lower(" ".join(token.text.split())), token.token_type.name
    calls = after is not None and after.token_type.name == "L_PAREN"
    previous = before.token_type.name if before is not None else ""
    if word in _TYPES and (previous == "DCOLON" or (previous == "ALIAS" and in_cast)):
        return _TYPES[word], token.text
    if word in {"date", "timestamp"} and after is not None and after.text.startswith(STAND_IN):
        return _TYPES[word], token.text
    if calls and (word in FUNCTIONS or word in {"cast", "try_cast", "extract", "count"}):
        return "VAR", token.text if word not in FUNCTIONS else FUNCTION_PREFIX + word
    if kind in _KEYWORDS and (kind != "ALL" or previous == "GROUP_BY"):
        return kind, token.text
    if calls and previous != "ALIAS":
        raise _no_function(statement, token, word)
    if word in _RESERVED or kind in {"SEMICOLON", "COLON", "L_BRACKET", "R_BRACKET"}:
        hint = _HINTS.get(word, "Quote it with double quotes if it is a name.")
        raise Unsupported(
            "keyword", "This word has no place in a private query.", hint=hint, place=statement.place(token)
        )
    if not (word[:1].isalpha() or word[:1] == "_"):
        raise Unsupported("operator", "This sign is not one of dpsql's.", place=statement.place(token))
    return "VAR", token.text


def _no_function(statement: Statement, token: Token, word: str) -> Refusal | Unsupported:
    if word in REFUSED:
        return Refusal(
            "not-row-local", "This function cannot be used here.", hint=_MEANING, place=statement.place(token)
        )
    hint = "The SQL reference lists the functions that dpsql knows to be total and row-local."
    return Unsupported("function", "This function is not on the allow-list.", hint=hint, place=statement.place(token))


def _check_neighbours(statement: Statement, token: Token, before: Token | None, after: Token | None) -> None:
    """Refuse what sqlglot would repair in silence: empty list items, adjacent literals, names that call."""
    kind, following = token.token_type.name, after.token_type.name if after is not None else ""
    previous = before.token_type.name if before is not None else ""
    fault = ""
    if (kind == "COMMA" and following in {"COMMA", "R_PAREN", "FROM", ""}) or (
        kind == "L_PAREN" and following == "COMMA"
    ):
        fault = "A list has an empty item."
    elif kind == "STRING" and following in {"STRING", "IDENTIFIER"}:
        fault = "Two literals stand side by side."
    elif kind == "IDENTIFIER" and following == "L_PAREN":
        fault = "A quoted name may not be called or followed by a list."
    elif kind == "WITH" and following == "L_PAREN":
        fault = "Options stand only after PRIVATE."
    elif kind == "STRING" and following == "DCOLON" and ascii_lower(before.text if before else "") in _TYPES:
        fault = "A typed literal may not be cast without parentheses."
    elif kind == "NUMBER" and following in {"NUMBER", "VAR", "STRING"} and previous != "LIMIT":
        fault = "" if following == "VAR" else "Two literals stand side by side."
    if fault:
        raise Refusal("syntax", fault, place=statement.place(token, after or token))
