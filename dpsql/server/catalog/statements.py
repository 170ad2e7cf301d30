"""Recognition of statements over system catalogs, from their text alone.

The session knows no system catalog, and a catalog refuses every statement that names a table of the policy. A statement
that is sent to the wrong one is therefore refused there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from dpsql.sql.lexer import ascii_lower

__all__ = ["MAX_LENGTH", "find_relations", "is_catalog", "is_name_start", "split_words"]

MAX_LENGTH = 128 * 1024  # characters; the session reads no more either
_MAX_WORDS = 16_000
_TOKEN = re.compile(
    r"""
      (?P<space>  \s+ | --[^\n]* )
    | (?P<string> [eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | \$(?P<tag>[A-Za-z_]*)\$.*?\$(?P=tag)\$ )
    | (?P<quoted> "(?:[^"]|"")+" )
    | (?P<open>   ['"] | \$[A-Za-z_]*\$ )
    | (?P<word>   [^\W\d][\w$]* )
    | (?P<other>  \d[\w.]* | :: | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT = re.compile(r"/\*|\*/")
_SCHEMAS = frozenset(["pg_catalog", "information_schema"])
_STARTS = frozenset(["select", "with", "values", "table"])
_BEFORE_TABLES = frozenset(["from", "join", "table"])
_NO_TABLE_YET = frozenset(["only", "lateral", "("])
_AFTER_TABLES = frozenset(
    "where group having order limit offset fetch union intersect except window select for".split()
)
_FROM_INSIDE = frozenset(["extract", "substring", "trim", "overlay", "position"])
_WORDS = frozenset("current_user session_user current_role current_catalog current_schema system_user user".split())
_TYPES = frozenset("regclass regtype regproc regprocedure regnamespace regrole regoper regoperator".split())
_FUNCTIONS = frozenset(
    """
    version current_schema current_schemas current_database current_setting set_config obj_description col_description
    shobj_description format_type quote_ident row_security_active getdatabaseencoding txid_current
    inet_client_addr inet_client_port inet_server_addr inet_server_port
    """.split()
)
_FAMILIES = re.compile(r"pg_\w+|to_reg\w+|has_\w+_privilege|txid_\w+")


@dataclass(frozen=True, slots=True)
class _Word:
    """One token; `name` is folded as in PostgreSQL, and empty for strings and numbers."""

    name: str
    is_quoted: bool = False

    def is_any(self, *keywords: str) -> bool:
        return not self.is_quoted and self.name in keywords


_END = _Word("")


@dataclass(slots=True)
class _Reading:
    """State of a reader of tokens: the words before open parentheses, and the depths inside a FROM."""

    openers: list[str] = field(default_factory=list)
    from_depths: set[int] = field(default_factory=set)
    is_table_next: bool = False


def is_catalog(sql: str, tables: Collection[str] = ()) -> bool:
    """Return whether a statement is for a `Catalog`, not for the session; `tables` are the names of the policy.

    It is if it reads a relation of pg_catalog or information_schema, or if it reads no relation and calls a function
    about the connection or types, such as version(). A statement with TOP k PRIVATE is for the session.
    """
    words = split_words(sql)
    if words is None or _is_private(words):
        return False
    first = next((word for word in words if word.name != "("), _END)
    if not first.is_any(*_STARTS):
        return False
    names = {ascii_lower(name) for name in tables}
    ctes = {word.name for word, then, after in _triples(words) if then.is_any("as") and after.name in {"(", "not"}}
    relations = [parts for parts in _find_relations(words) if len(parts) > 1 or parts[0] not in ctes]
    if any(_is_system(parts, names) for parts in relations):
        return True
    return not relations and any(map(_needs_catalog, _triples([_END, *words])))


def find_relations(sql: str) -> list[tuple[str, ...]]:
    """Return the names, in parts, of the relations that a statement reads; none of one that `split_words` refuses."""
    words = split_words(sql)
    return [] if words is None else list(_find_relations(words))


def split_words(sql: str) -> list[_Word] | None:
    """Return the tokens of a statement except spaces and comments; None if one has no end, and for too many."""
    if len(sql) > MAX_LENGTH:
        return None
    words: list[_Word] = []
    at = 0
    while at < len(sql):
        if sql.startswith("/*", at):
            end = _find_comment_end(sql, at)
            if end is None:
                return None
            at = end
            continue
        found = _TOKEN.match(sql, at)
        if found is None or found["open"] or len(words) > _MAX_WORDS:
            return None
        at = found.end()
        if not found["space"]:
            if found["quoted"]:
                words.append(_Word(found["quoted"][1:-1].replace('""', '"'), is_quoted=True))
            else:
                words.append(_Word(ascii_lower(found[0])) if found["word"] or found["other"] else _END)
    return words


def _find_comment_end(sql: str, start: int) -> int | None:
    """Return the position after a comment, which may contain others; None if it has no end."""
    depth = 0
    for found in _COMMENT.finditer(sql, start):
        depth += 1 if found[0] == "/*" else -1
        if depth == 0:
            return found.end()
    return None


def _triples(words: list[_Word]) -> Iterator[tuple[_Word, _Word, _Word]]:
    ahead = [*words, _END, _END]
    return zip(words, ahead[1:], ahead[2:], strict=False)


def _is_private(words: list[_Word]) -> bool:
    """Return whether TOP k PRIVATE appears anywhere."""
    return any(
        word.is_any("top") and (then.is_any("private") or after.is_any("private"))
        for word, then, after in _triples(words)
    )


def _find_relations(words: list[_Word]) -> Iterator[tuple[str, ...]]:
    """Yield the names, in parts, of the relations after FROM, JOIN, TABLE and their commas."""
    reading, before = _Reading(), _END
    names = iter(range(len(words)))
    for at in names:
        word = words[at]
        if reading.is_table_next and _is_name(word):
            parts = _read_parts(words, at)
            if not _is_sign_at(words, at + 2 * len(parts) - 1, sign="("):
                yield parts
            reading.is_table_next = False
        _advance(reading, word, before=before)
        before = word


def _advance(reading: _Reading, word: _Word, *, before: _Word) -> None:
    """Update the state by one token."""
    depth = len(reading.openers)
    if word.is_any("("):
        reading.openers.append(before.name)
    elif word.is_any(")"):
        reading.from_depths.discard(depth)
        if reading.openers:
            reading.openers.pop()
    elif word.is_any(",") and depth in reading.from_depths:
        reading.is_table_next = True
    elif word.is_any(*_BEFORE_TABLES) and not _is_operator_from(reading, word, before=before):
        reading.is_table_next = True
        reading.from_depths.add(depth)
    elif word.is_any(*_AFTER_TABLES):
        reading.from_depths.discard(depth)
        reading.is_table_next = False
    elif not word.is_any(*_NO_TABLE_YET):
        reading.is_table_next = reading.is_table_next and word.is_any("with", "values")


def _is_operator_from(reading: _Reading, word: _Word, *, before: _Word) -> bool:
    """Return whether a FROM belongs to EXTRACT(... FROM ...) and the like, or to IS DISTINCT FROM."""
    is_argument = bool(reading.openers) and reading.openers[-1] in _FROM_INSIDE
    return word.is_any("from") and (is_argument or before.is_any("distinct"))


def _is_name(word: _Word) -> bool:
    keyword = word.is_any(*_STARTS, *_NO_TABLE_YET, *_AFTER_TABLES)
    return not keyword and (word.is_quoted or is_name_start(word.name))


def is_name_start(word: str) -> bool:
    """Return whether a token begins as names and keywords do, and no number or sign."""
    return word[:1].isalpha() or word[:1] == "_"


def _read_parts(words: list[_Word], at: int) -> tuple[str, ...]:
    """Return the parts of the dotted name that begins at a token."""
    parts = [words[at].name]
    while _is_sign_at(words, at + 1, sign=".") and at + 2 < len(words):
        at += 2
        parts.append(words[at].name)
    return tuple(parts)


def _is_sign_at(words: list[_Word], at: int, *, sign: str) -> bool:
    return at < len(words) and words[at].is_any(sign)


def _is_system(parts: tuple[str, ...], names: Collection[str]) -> bool:
    """Return whether a relation is a system catalog: by its schema, or by a pg_ name that the policy lacks."""
    if len(parts) > 1:
        return parts[-2] in _SCHEMAS
    return parts[0].startswith("pg_") and ascii_lower(parts[0]) not in names


def _needs_catalog(near: tuple[_Word, _Word, _Word]) -> bool:
    """Return whether a word, between its neighbours, calls, names or casts to something that only a catalog has."""
    before, word, after = near
    if after.is_any(".") and word.name in _SCHEMAS:
        return True
    if before.is_any("::", "as") and word.name in _TYPES:
        return True
    if after.is_any("("):
        return word.name in _FUNCTIONS or _FAMILIES.fullmatch(word.name) is not None
    return word.is_any(*_WORDS) and not before.is_any(".", "as")
