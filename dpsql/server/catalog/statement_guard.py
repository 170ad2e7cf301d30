"""What a statement may be before a PostgreSQL sees it: one that reads, and calls nothing that acts.

This is the outer wall. Inside stand PostgreSQL's own: a role without rights, a read-only transaction, limits, and the
question which tables a statement has locked.
"""

from __future__ import annotations

import re

from dpsql.server.catalog.dispatch import LONGEST, words_of
from dpsql.server.catalog.query_result import CatalogError

__all__ = ["MOST_BYTES", "MOST_ROWS", "checked", "not_private", "too_large"]

MOST_BYTES = 64 * 1024 * 1024  # of an answer; thousands of tables have some tens of millions
MOST_ROWS = 100_000

_READING = ("select", "with", "values", "table", "show")
_ACTING = re.compile(
    r"""
      pg_sleep.* | pg_read_.* | pg_ls_.* | pg_stat_file | pg_file_.* | pg_advisory.* | pg_try_advisory.* | pg_notify
    | pg_terminate_backend | pg_cancel_backend | pg_reload_conf | pg_rotate_logfile | pg_export_snapshot | pg_logical.*
    | pg_create_.* | pg_drop_.* | pg_switch_wal | pg_promote | pg_backup_.* | pg_import_.* | pg_clear_.* | pg_restore_.*
    | lo_.* | loread | lowrite | dblink.* | nextval | setval | currtid2? | ts_stat | ts_rewrite
    | (query|cursor|table|schema|database)_to_xml.*
    """,
    re.VERBOSE,
)
# psql 15 and 16 ask every later server for what has another name since 17; the length is kept, for positions in errors.
_NAMES = {"daticulocale": "datlocale", "colliculocale": "colllocale"}
_RENAMED = re.compile(r"(?<=[dc]\.)(?:daticulocale|colliculocale)\b")


def checked(sql: str) -> bytes:
    """Return the statement as bytes; raise `CatalogError` for one that does not read, or calls what it may not."""
    if len(sql) > LONGEST:
        raise CatalogError("54000", "The statement is too long.", hint=f"At most {LONGEST} characters are read.")
    words = None if "\0" in sql else words_of(sql)
    if words is None:
        raise CatalogError("42601", "A string, a name or a comment does not end, or there are too many words.")
    begins = next((word for word in words if word.name != "("), None)
    if begins is None or not begins.says(*_READING):
        hint = "Here only the tables can be looked at; nothing can be set, written or run."
        raise CatalogError("0A000", "This statement is none that reads.", hint=hint)
    spelled = {word.name for word in words}
    if any(_ACTING.fullmatch(name) for name in spelled) or ("u" in spelled and "&" in spelled):
        raise CatalogError("42501", "The statement calls a function that acts, or spells a name in escapes.")
    try:
        return _RENAMED.sub(_today, sql).encode()
    except UnicodeEncodeError:
        raise CatalogError("22021", "The statement is not valid Unicode.") from None


def _today(found: re.Match[str]) -> str:
    return _NAMES[found[0]].ljust(len(found[0]))


def not_private() -> CatalogError:
    """Return the refusal of a statement that reads a table of the policy beside system catalogs."""
    reason = "A table of the policy cannot be read together with system catalogs: what is read there has no rows."
    return CatalogError("42501", reason, hint="Ask it alone, and end the query with: TOP 10 PRIVATE")


def too_large() -> CatalogError:
    """Return the refusal of an answer above the limit."""
    return CatalogError("54000", "The answer is too large.", hint="Add a WHERE or a LIMIT.")
