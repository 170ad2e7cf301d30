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
from itertools import islice

from sqlglot import Token

from dpsql.server.catalog.protocol import CatalogError, Parameter
from dpsql.sql.lexer import MAX_TEXT_LENGTH, ascii_lower, read_words
from dpsql.sql.syntax.block import Block, kind_of, nest, walk

_MAX_WORDS = 16_000
_SCHEMAS = frozenset(["pg_catalog", "information_schema"])
_STRINGS = frozenset(["STRING", "HEREDOC_STRING"])
_STARTS = frozenset(["select", "with", "values", "table"])
_BEFORE_TABLES = frozenset(["from", "join", "table"])
_NO_TABLE_YET = frozenset(["only", "lateral"])
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


def is_catalog(sql: str, tables: Collection[str] = ()) -> bool:
    """Return whether a statement is for a `Catalog`, not for the session; `tables` are the names of the policy.

    It is if it reads a relation of pg_catalog or information_schema, or if it reads no relation and calls a function
    about the connection or types, such as version(). A statement with TOP k PRIVATE is for the session.
    """
    tokens = split_words(sql)
    if tokens is None:
        return False
    names, words = [*map(_name, tokens), "", ""], [*map(_word, tokens), "", ""]
    if any(words[at] == "top" and "private" in words[at + 1 : at + 3] for at in range(len(tokens))):
        return False
    if next((word for word in words if word != "("), "") not in _STARTS:
        return False
    relations, is_system = list[tuple[str, ...]](), False
    ctes = {names[at] for at in range(len(tokens)) if words[at + 1] == "as" and words[at + 2] in {"(", "not"}}
    private = {ascii_lower(name) for name in tables}
    for parts in _find_relations(tokens):
        if len(parts) > 1:
            is_system |= parts[-2] in _SCHEMAS
        elif parts[0] in ctes:
            continue
        else:  # a system catalog, unless the policy has the name
            is_system |= parts[0].startswith("pg_") and ascii_lower(parts[0]) not in private
        relations.append(parts)
    if relations:
        return is_system
    for at, name in enumerate(names[:-2]):  # does it call, name or cast to something that only a catalog has?
        before, after = words[at - 1] if at else "", words[at + 1]
        is_called = after == "(" and (name in _FUNCTIONS or _FAMILIES.fullmatch(name) is not None)
        is_word = after != "(" and words[at] in _WORDS and before not in {".", "as"}
        is_type = before in {"::", "as"} and name in _TYPES
        if is_called or is_word or is_type or (after == "." and name in _SCHEMAS):
            return True
    return False


def find_relations(sql: str) -> list[tuple[str, ...]]:
    """Return the names, in parts, of the relations that a statement reads; none of one that `split_words` refuses."""
    tokens = split_words(sql)
    return [] if tokens is None else list(_find_relations(tokens))


def split_words(sql: str) -> list[Token] | None:
    """Return the tokens of a statement except spaces and comments; None if one has no end, and for too many."""
    if len(sql) > MAX_TEXT_LENGTH:
        return None
    try:
        tokens = list(islice(read_words(sql, postgres=True), _MAX_WORDS + 2))
    except ValueError:
        return None
    is_empty = any(token.token_type.name == "IDENTIFIER" and not token.text for token in tokens)
    return None if is_empty or len(tokens) > _MAX_WORDS + 1 else tokens


def _name(token: Token) -> str:
    """Return a name, a word or a sign as PostgreSQL folds it; "" for a string."""
    kind = token.token_type.name
    return token.text if kind == "IDENTIFIER" else "" if kind in _STRINGS else ascii_lower(token.text)


def _word(token: Token) -> str:
    """Return a word that is not quoted, or a sign; "" for anything else."""
    return "" if token.token_type.name == "IDENTIFIER" else _name(token)


def _find_relations(tokens: Sequence[Token]) -> Iterator[tuple[str, ...]]:
    """Yield the names, in parts, of the relations after FROM, JOIN, TABLE and their commas."""
    listed, called, is_next = set[int](), dict[int, str](), False  # `listed` are the nodes within whose FROM we are
    for nodes, at in walk(nest(tokens).nodes):
        node, before = nodes[at], nodes[at - 1] if at else None
        if isinstance(node, Block):  # a relation may also be due in parentheses
            called[id(node.nodes)] = "" if before is None or isinstance(before, Block) else _name(before)
            is_next = is_next and node.kind == "L_PAREN"
            continue
        word = _word(node)
        if is_next and _is_relation(node):
            parts = [_name(node)]
            while kind_of(nodes, at + 1) == "DOT" and at + 2 < len(nodes):
                at += 2  # noqa: PLW2901 - the last part
                part = nodes[at]
                parts.append("" if isinstance(part, Block) else _name(part))
            if kind_of(nodes, at + 1) != "L_PAREN":
                yield tuple(parts)
            is_next = False
        # FROM of EXTRACT(... FROM ...) and the like, and of IS DISTINCT FROM, has no relation
        is_operator = word == "from" and (
            called.get(id(nodes)) in _FROM_INSIDE
            or (before is not None and not isinstance(before, Block) and _word(before) == "distinct")
        )
        if word == ",":
            is_next = id(nodes) in listed
        elif word in _BEFORE_TABLES and not is_operator:
            is_next = True
            listed.add(id(nodes))
        elif word in _AFTER_TABLES or word == ")":
            listed.discard(id(nodes))
            is_next = is_next and word == ")"
        elif word not in _NO_TABLE_YET:
            is_next = is_next and word in {"with", "values"}


def _is_relation(token: Token) -> bool:
    """Say whether a token can name a relation: it is quoted, or no keyword."""
    if token.token_type.name == "IDENTIFIER":
        return True
    word = _word(token)
    return is_name_start(word) and word not in _STARTS | _NO_TABLE_YET | _AFTER_TABLES


def is_name_start(word: str) -> bool:
    """Return whether a token begins as names and keywords do, and no number or sign."""
    return word[:1].isalpha() or word[:1] == "_"


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
    if next((word for word in map(_word, words) if word != "("), "") not in _READING_VERBS:
        raise CatalogError("0A000", "Only statements that read are supported.", hint="Send a SELECT.")
    names = {_name(word) for word in words}
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
    if not words or _name(words[0]) == "show":
        return False
    names = list(map(_name, words))
    for at, name in enumerate(names):
        before, then = names[at - 1] if at else "", names[at + 1] if at + 1 < len(names) else ""
        if name in _CLOCK_WORDS or _TIMES.fullmatch(name):  # a text that is cast to a time may be 'now'
            return False
        if is_name_start(name):
            if then == "(":
                is_known = (
                    name in _CONSTANT_FUNCTIONS
                    or _CONSTANT_FAMILIES.fullmatch(name) is not None
                    or before in _NAMES_OF_LISTS
                )
                is_known = is_known or (name in _KEYWORDS_BEFORE_PARENTHESES and _word(words[at]) == name)
            else:
                is_known = not name.startswith("pg_") or _RELATIONS.fullmatch(name) is not None
            if not is_known:
                return False
    return True
