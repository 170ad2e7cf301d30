"""Errors for clients of PostgreSQL: SQLSTATE, message, hint and position, and nothing of any row."""

from __future__ import annotations

from collections.abc import Mapping

from dpsql.errors import (
    BudgetExceeded,
    EngineError,
    Error,
    LedgerError,
    Place,
    PolicyError,
    Refusal,
    Unsupported,
    UsageError,
)
from dpsql.ledger.base import MAY_BE_CHARGED, RESERVING, SETTLING

_STATES_BY_CODE: Mapping[str, str] = {
    "alias": "42712",
    "ambiguous-column": "42702",
    "analyst-disabled": "42501",
    "character": "42601",
    "clause": "42601",
    "closed": "57P01",
    "cte": "42712",
    "empty": "42601",
    "engine-busy": "53000",
    "function-arguments": "22023",
    "key-not-selected": "42803",
    "literal": "22P02",
    "multiple": "42601",
    "not-a-key": "42803",
    "number": "22003",
    "option": "22023",
    "option-range": "22023",
    "outer-select": "42601",
    "output-names": "42701",
    "parameter-type": "22P02",
    "parameters": "08P01",
    "source": "42P01",
    "syntax": "42601",
    "server-failed": "XX000",
    "too-deep": "54001",
    "too-large": "54000",
    "too-long": "54000",
    "too-many-statements": "53000",
    "too-many-tables": "54000",
    "type": "42804",
    "user-removed": "28000",
    "unknown-column": "42703",
    "unknown-table": "42P01",
}
_STATES_BY_TYPE: tuple[tuple[type[Error], str], ...] = (
    (BudgetExceeded, "53400"),
    (Refusal, "42501"),
    (Unsupported, "0A000"),
    (UsageError, "22023"),
    (EngineError, "58000"),
    (LedgerError, "58030"),
    (PolicyError, "F0000"),
)
_UNKNOWN_COMPLETION = "40003"  # statement_completion_unknown: a driver does not send it again by itself


class Malformed(Exception):
    """A message that is not read: it does not fit its own lengths, is not UTF-8, or is too long, as `sqlstate` says.

    `is_simple` is set for a message of the simple protocol, which waits for no Sync.
    """

    def __init__(self, reason: str, *, sqlstate: str = "08P01", hint: str = "") -> None:
        self.sqlstate, self.hint, self.is_simple = sqlstate, hint, False
        super().__init__(reason)


class WireError(Exception):
    """An error for the client; `position` counts the characters of its text from 1, and 0 is none.

    A `fatal` error ends the connection.
    """

    def __init__(self, sqlstate: str, reason: str, *, hint: str = "", position: int = 0, fatal: bool = False) -> None:
        self.sqlstate, self.reason, self.hint = sqlstate, reason, hint
        self.position, self.fatal = position, fatal
        super().__init__(sqlstate, reason)


def full_error() -> WireError:
    """Return the error of a user for whom the server holds as much as it may."""
    reason = "The server holds too much for this user: rows to be fetched, cursors, statements or values."
    return WireError("53200", reason, hint="Fetch the rows, close cursors and prepared statements, or try again later.")


def to_wire_error(error: Exception, text: str = "", *, before: int = 0) -> WireError:
    """Return the error for the client, of a statement with `before` characters of the client's text before it.

    It contains nothing of an unexpected error, whose text could contain values.
    """
    if isinstance(error, WireError):
        return error
    if isinstance(error, Malformed):
        return WireError(error.sqlstate, str(error), hint=error.hint)
    if not isinstance(error, Error):
        return WireError("XX000", "The server failed.", hint=f"{MAY_BE_CHARGED} Ask the curator.")
    state = _STATES_BY_CODE.get(error.code) or next(
        (state for kind, state in _STATES_BY_TYPE if isinstance(error, kind)), "XX000"
    )
    if error.charge in {RESERVING, SETTLING}:
        state = _UNKNOWN_COMPLETION
    position = 0
    if isinstance(error.place, Place):  # as a character of the text, from 1
        start = 0
        for _ in range(error.place.line - 1):
            start = text.find("\n", start) + 1
        position = max(start + error.place.column + before, 1)  # `before` may be negative, of a text made from it
    return WireError(state, f"[{error.code}] {error.reason}", hint=error.hint, position=position)
