"""Check of statements before PostgreSQL runs them: they must read only, and call no function with effects.

PostgreSQL limits them further: by a role without rights, a read-only transaction, and the tables that they lock.
"""

from __future__ import annotations

import re

from dpsql.server.catalog.protocol import CatalogError
from dpsql.server.catalog.statements import MAX_LENGTH, split_words

__all__ = ["MAX_BYTES", "MAX_ROWS", "check_statement", "private_table_error", "too_large_error"]

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
    if len(sql) > MAX_LENGTH:
        raise CatalogError("54000", "The statement is too long.", hint=f"Send at most {MAX_LENGTH} characters.")
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
