"""Statements over system catalogs, read by their words alone: whom they are for, and what they may do.

The session knows no system catalog, and a catalog refuses every statement that names a table of the policy. A statement
that is sent to the wrong one is therefore refused there. Before PostgreSQL runs one, it must only read, and call no
function with effects. PostgreSQL limits it further: by a role without rights, a read-only transaction, and the tables
that it locks. An answer is stored only if all functions and relations are on closed lists, whose values depend on the
tables and the user alone: what depends on time, on the connection or on statistics is always run.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from dpsql.server.catalog.protocol import CatalogError, Parameter
from dpsql.sql.lexer import MAX_TEXT_LENGTH, ascii_lower

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
    if len(sql) > MAX_TEXT_LENGTH:
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


MAX_BYTES = 16 * 1024 * 1024  # of an answer as it is sent; a list of 50,000 columns for JDBC takes about 8 million
MAX_ROWS = 50_000  # tools list a row for each column, and for each of PostgreSQL's 3,400 functions

_READING_VERBS = ("select", "with", "values", "table", "show")
_FUNCTIONS_WITH_EFFECTS = re.compile(
    r"""
      pg_sleep.* | pg_read_.* | pg_ls_.* | pg_stat_file | pg_file_.* | pg_advisory.* | pg_try_advisory.* | pg_notify
    | pg_terminate_backend | pg_cancel_backend | pg_reload_conf | pg_rotate_logfile | pg_export_snapshot | pg_logical.*
    | pg_create_.* | pg_drop_.* | pg_switch_wal | pg_promote | pg_backup_.* | pg_import_.* | pg_clear_.* | pg_restore_.*
    | lo_.* | loread | lowrite | dblink.* | nextval | setval | currtid2? | ts_stat | ts_rewrite
    | (query|cursor|table|schema|database)_to_xml.*
    """,
    re.VERBOSE,
)
# psql 15 and 16 use names that changed in version 17; the length stays the same, for the positions of errors.
_NAMES = {"daticulocale": "datlocale", "colliculocale": "colllocale"}
_RENAMED = re.compile(r"(?<=[dc]\.)(?:daticulocale|colliculocale)\b")


def check_statement(sql: str) -> bytes:
    """Return a statement as bytes; raise `CatalogError` unless it only reads."""
    if len(sql) > MAX_TEXT_LENGTH:
        raise CatalogError("54000", "The statement is too long.", hint=f"Send at most {MAX_TEXT_LENGTH} characters.")
    words = None if "\0" in sql else split_words(sql)
    if words is None:
        raise CatalogError("42601", "A string, a name or a comment has no end, or there are too many words.")
    first = next((word for word in words if word.name != "("), None)
    if first is None or not first.is_any(*_READING_VERBS):
        raise CatalogError("0A000", "Only statements that read are supported.", hint="Send a SELECT.")
    names = {word.name for word in words}
    if any(_FUNCTIONS_WITH_EFFECTS.fullmatch(name) for name in names) or ("u" in names and "&" in names):
        reason = "The statement calls a function that may change something or wait, or writes a name with escapes."
        raise CatalogError("42501", reason, hint="Leave the function out, or write the name without U&.")
    try:
        return _RENAMED.sub(lambda found: _NAMES[found[0]].ljust(len(found[0])), sql).encode()
    except UnicodeEncodeError:
        raise CatalogError("22021", "The statement is not valid Unicode.") from None


def private_table_error() -> CatalogError:
    """Return the error for a statement that reads a table of the policy together with system catalogs."""
    reason = "A table of the policy cannot be read together with system catalogs."
    return CatalogError("42501", reason, hint="Query the table alone, and end the query with: TOP 10 PRIVATE")


def too_large_error() -> CatalogError:
    """Return the error for an answer above the limits."""
    return CatalogError("54000", "The answer is too large.", hint="Add a WHERE or a LIMIT.")


Value = TypeVar("Value")
_CONSTANT_FUNCTIONS = frozenset(
    """
    array_agg array_length array_lower array_position array_to_string array_upper bool_and bool_or btrim cardinality
    char_length coalesce concat concat_ws count format generate_series generate_subscripts greatest json_agg
    json_build_object jsonb_agg jsonb_build_object least left length lower ltrim max min nullif parse_ident position
    quote_ident quote_literal regexp_match regexp_replace regexp_split_to_table replace right row_number row_to_json
    rtrim split_part starts_with string_agg string_to_array strpos substr substring sum to_json trim unnest upper

    col_description current_database current_schema current_schemas current_setting format_type getdatabaseencoding
    obj_description pg_char_to_encoding pg_encoding_to_char pg_get_constraintdef pg_get_expr pg_get_function_arguments
    pg_get_function_identity_arguments pg_get_function_result pg_get_function_sqlbody pg_get_functiondef
    pg_get_indexdef pg_get_keywords pg_get_partkeydef pg_get_ruledef pg_get_serial_sequence pg_get_statisticsobjdef
    pg_get_statisticsobjdef_columns pg_get_triggerdef pg_get_userbyid pg_get_viewdef pg_is_in_recovery
    pg_relation_is_publishable pg_tablespace_location row_security_active set_config shobj_description to_regclass
    to_regnamespace to_regproc to_regtype version
    """.split()
)
_CONSTANT_FAMILIES = re.compile(r"_pg_\w+|pg_\w+_is_visible|has_\w+_privilege")
_KEYWORDS_BEFORE_PARENTHESES = frozenset(
    """
    all and any array as bit bpchar case cast char decimal distinct else except exists filter from group having in
    intersect is join lateral like limit not numeric offset on only operator or over partition recursive select some
    then union using values varchar when where with
    """.split()
)
_NAMES_OF_LISTS = frozenset(["as", "with", "recursive"])  # words before a name that has a list of columns
_CLOCK_WORDS = frozenset("current_date current_time current_timestamp localtime localtimestamp".split())
_TIMES = re.compile(r"_?(?:date|time|timetz|time_?stamp|timestamptz|(?:date|ts|tstz)(?:multi)?range)")  # _ of an array
_CLOCK_TEXT = re.compile(r"(?<![a-z])(?:now|today|tomorrow|yesterday)(?![a-z])|\\[0-7xu]", re.IGNORECASE)
_RELATIONS = re.compile(
    r"""
    pg_catalog | pg_toast | pg_get_\w+ | pg_(?:
      am | amop | amproc | attrdef | attribute | auth_members | cast | class | collation | constraint | conversion
    | database | db_role_setting | default_acl | depend | description | enum | event_trigger | extension
    | foreign_data_wrapper | foreign_server | foreign_table | group | index | indexes | inherits | init_privs | language
    | largeobject_metadata | matviews | namespace | opclass | operator | opfamily | parameter_acl | partitioned_table
    | policies | policy | proc | publication | publication_namespace | publication_rel | publication_tables | range
    | rewrite | roles | rules | seclabel | seclabels | sequence | settings | shdepend | shdescription | statistic_ext
    | subscription | tables | tablespace | transform | trigger | ts_\w+ | type | user | user_mapping | user_mappings
    | views )
    """,
    re.VERBOSE,
)


def is_constant(sql: str, parameters: Sequence[Parameter]) -> bool:
    """Return whether a statement has the same answer as long as the tables and the user are the same."""
    texts = [sql, *(each.value.decode(errors="replace") for each in parameters if each.value is not None)]
    if any(_CLOCK_TEXT.search(text) for text in texts):
        return False
    words = split_words(sql)
    if not words or words[0].name == "show":
        return False
    before = ""
    for at, word in enumerate(words):
        name, then = word.name, words[at + 1].name if at + 1 < len(words) else ""
        if name in _CLOCK_WORDS or _TIMES.fullmatch(name):  # a text that is cast to a time may be 'now'
            return False
        if is_name_start(name):
            if then == "(":
                is_known = (
                    name in _CONSTANT_FUNCTIONS
                    or _CONSTANT_FAMILIES.fullmatch(name) is not None
                    or before in _NAMES_OF_LISTS
                )
                is_known = is_known or (name in _KEYWORDS_BEFORE_PARENTHESES and not word.is_quoted)
            else:
                is_known = not name.startswith("pg_") or _RELATIONS.fullmatch(name) is not None
            if not is_known:
                return False
        before = name
    return True
