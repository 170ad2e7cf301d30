"""Cache of answers over system catalogs, which do not change as long as the PostgreSQL that dpsql starts runs.

A statement is cached only if it calls functions and reads relations of a closed list, whose values depend on the tables
and the user alone. What depends on time, on the connection or on statistics is always run.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

from dpsql.server.catalog.protocol import Parameter
from dpsql.server.catalog.statements import is_name_start, split_words

__all__ = ["BoundedCache", "is_constant"]

Value = TypeVar("Value")
_FUNCTIONS = frozenset(
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
_FAMILIES = re.compile(r"_pg_\w+|pg_\w+_is_visible|has_\w+_privilege")
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


class BoundedCache(Generic[Value]):
    """Values of at most `max_size` together; the one that was not used for longest is dropped first."""

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._size = 0
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()

    def find(self, key: Hashable) -> Value | None:
        """Return the value of a key, or None."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def add(self, key: Hashable, value: Value, *, size: int) -> None:
        """Add a value, unless it alone would take a quarter of all."""
        if size > self._max_size // 4:
            return
        with self._lock:
            former = self._values.pop(key, None)
            self._size += size - (former[1] if former is not None else 0)
            self._values[key] = value, size
            while self._size > self._max_size:
                _, (_, dropped) = self._values.popitem(last=False)
                self._size -= dropped


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
                is_known = name in _FUNCTIONS or _FAMILIES.fullmatch(name) is not None or before in _NAMES_OF_LISTS
                is_known = is_known or (name in _KEYWORDS_BEFORE_PARENTHESES and not word.is_quoted)
            else:
                is_known = not name.startswith("pg_") or _RELATIONS.fullmatch(name) is not None
            if not is_known:
                return False
        before = name
    return True
