"""Which statements ask about the tables and not about their rows, told from the text alone.

Both sides refuse what is not theirs: the session knows no system catalog, and a catalog answers nothing that names a
table of the policy. So a statement that is told wrongly here is refused there, and never answered with rows that the
other side would have had.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from dpsql.sql.lexer import ascii_lower

__all__ = ["LONGEST", "is_catalog", "words_of"]

LONGEST = 128 * 1024  # characters; what is longer is no statement of a tool, and the session reads no more either
_MOST_WORDS = 16_000
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
    """One token; `name` is folded as PostgreSQL folds it, and empty for strings and numbers."""

    name: str
    quoted: bool = False

    def says(self, *keywords: str) -> bool:
        return not self.quoted and self.name in keywords


_END = _Word("")


@dataclass(slots=True)
class _Reading:
    """Where a reader of tokens stands: the words before each parenthesis that is open, and those inside a FROM."""

    opened: list[str] = field(default_factory=list)
    listing: set[int] = field(default_factory=set)
    awaiting: bool = False


def is_catalog(sql: str, tables: Collection[str] = ()) -> bool:
    """Say whether a statement is for a `Catalog`, and not for the session; `tables` are the names of the policy.

    It is if a relation that it reads is one of pg_catalog or information_schema, or if it reads none and calls what
    tells of the connection or of types, such as version(). Whatever holds TOP k PRIVATE is the session's.
    """
    words = words_of(sql)
    if words is None or _is_private(words):
        return False
    begins = next((word for word in words if word.name != "("), _END)
    if not begins.says(*_STARTS):
        return False
    exposed = {ascii_lower(name) for name in tables}
    defined = {word.name for word, then, after in _triples(words) if then.says("as") and after.name in {"(", "not"}}
    read = [parts for parts in _relations(words) if len(parts) > 1 or parts[0] not in defined]
    if any(_is_system(parts, exposed) for parts in read):
        return True
    return not read and any(map(_tells, _triples([_END, *words])))


def words_of(sql: str) -> list[_Word] | None:
    """Return the tokens of a statement without spaces and comments, or None where one does not end, or for too many."""
    if len(sql) > LONGEST:
        return None
    words: list[_Word] = []
    at = 0
    while at < len(sql):
        if sql.startswith("/*", at):
            end = _end_of_comment(sql, at)
            if end is None:
                return None
            at = end
            continue
        found = _TOKEN.match(sql, at)
        if found is None or found["open"] or len(words) > _MOST_WORDS:
            return None
        at = found.end()
        if not found["space"]:
            words.append(_word(found))
    return words


def _word(found: re.Match[str]) -> _Word:
    if found["quoted"]:
        return _Word(found["quoted"][1:-1].replace('""', '"'), quoted=True)
    if found["word"] or found["other"]:
        return _Word(ascii_lower(found[0]))
    return _END


def _end_of_comment(sql: str, start: int) -> int | None:
    """Return where a comment ends, which may hold others, or None if it does not."""
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
    """Say whether TOP k PRIVATE or PRIVATE_TOP(...) stands anywhere, however it is meant."""
    return any(
        word.says("private_top") or (word.says("top") and (then.says("private") or after.says("private")))
        for word, then, after in _triples(words)
    )


def _relations(words: list[_Word]) -> Iterator[tuple[str, ...]]:
    """Yield the names, in parts, of what stands where SQL reads relations: after FROM, JOIN, TABLE and commas."""
    reading, before = _Reading(), _END
    names = iter(range(len(words)))
    for at in names:
        word = words[at]
        if reading.awaiting and _is_name(word):
            parts = _parts(words, at)
            if not _follows(words, at + 2 * len(parts) - 1, sign="("):
                yield parts
            reading.awaiting = False
        _step(reading, word, before=before)
        before = word


def _step(reading: _Reading, word: _Word, *, before: _Word) -> None:
    """Move over one token."""
    depth = len(reading.opened)
    if word.says("("):
        reading.opened.append(before.name)
    elif word.says(")"):
        reading.listing.discard(depth)
        if reading.opened:
            reading.opened.pop()
    elif word.says(",") and depth in reading.listing:
        reading.awaiting = True
    elif word.says(*_BEFORE_TABLES) and not _is_inside(reading, word, before=before):
        reading.awaiting = True
        reading.listing.add(depth)
    elif word.says(*_AFTER_TABLES):
        reading.listing.discard(depth)
        reading.awaiting = False
    elif not word.says(*_NO_TABLE_YET):
        reading.awaiting = reading.awaiting and word.says("with", "values")


def _is_inside(reading: _Reading, word: _Word, *, before: _Word) -> bool:
    """Say whether a FROM belongs to EXTRACT(... FROM ...) and the like, or to IS DISTINCT FROM."""
    called = bool(reading.opened) and reading.opened[-1] in _FROM_INSIDE
    return word.says("from") and (called or before.says("distinct"))


def _is_name(word: _Word) -> bool:
    keyword = word.says(*_STARTS, *_NO_TABLE_YET, *_AFTER_TABLES)
    return not keyword and (word.quoted or word.name[:1].isalpha() or word.name[:1] == "_")


def _parts(words: list[_Word], at: int) -> tuple[str, ...]:
    """Return the parts of the dotted name that begins there."""
    parts = [words[at].name]
    while _follows(words, at + 1, sign=".") and at + 2 < len(words):
        at += 2
        parts.append(words[at].name)
    return tuple(parts)


def _follows(words: list[_Word], at: int, *, sign: str) -> bool:
    return at < len(words) and words[at].says(sign)


def _is_system(parts: tuple[str, ...], exposed: Collection[str]) -> bool:
    """Say whether a relation is one of the system's: by its schema, or by a name that no table of the policy has."""
    if len(parts) > 1:
        return parts[-2] in _SCHEMAS
    return parts[0].startswith("pg_") and ascii_lower(parts[0]) not in exposed


def _tells(near: tuple[_Word, _Word, _Word]) -> bool:
    """Say whether a word, between its neighbours, calls, names or casts to what only a catalog knows."""
    before, word, after = near
    if after.says(".") and word.name in _SCHEMAS:
        return True
    if before.says("::", "as") and word.name in _TYPES:
        return True
    if after.says("("):
        return word.name in _FUNCTIONS or _FAMILIES.fullmatch(word.name) is not None
    return word.says(*_WORDS) and not before.says(".", "as")
