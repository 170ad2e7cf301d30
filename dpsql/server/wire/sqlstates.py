"""Errors as a client of PostgreSQL knows them: SQLSTATE, message, hint and position; nothing of any row."""

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
from dpsql.server.wire.codec import Malformed, fields

__all__ = ["WireError", "error_message", "failure_of", "notice", "where"]

_OF_CODE: Mapping[str, str] = {
    "alias": "42712",
    "ambiguous-column": "42702",
    "analyst-disabled": "42501",
    "character": "42601",
    "clause": "42601",
    "closed": "57P01",
    "cte": "42712",
    "empty": "42601",
    "function-arguments": "22023",
    "key-not-selected": "42803",
    "literal": "22P02",
    "multiple": "42601",
    "not-a-key": "42803",
    "number": "22003",
    "option": "22023",
    "option-range": "22023",
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
_OF_KIND: tuple[tuple[type[Error], str], ...] = (
    (BudgetExceeded, "53400"),
    (Refusal, "42501"),
    (Unsupported, "0A000"),
    (UsageError, "22023"),
    (EngineError, "58000"),
    (LedgerError, "58030"),
    (PolicyError, "F0000"),
)


class WireError(Exception):
    """An error for the client; `position` counts characters of the text it sent, from 1, and 0 is none.

    One that is `fatal` ends the connection.
    """

    def __init__(self, sqlstate: str, reason: str, *, hint: str = "", position: int = 0, fatal: bool = False) -> None:
        self.sqlstate = sqlstate
        self.reason = reason
        self.hint = hint
        self.position = position
        self.fatal = fatal
        super().__init__(sqlstate, reason)


def failure_of(error: Exception, text: str = "", *, before: int = 0) -> WireError:
    """Return what the client is told of an error of a statement, which stands behind so many characters of its text.

    Of an error that dpsql does not raise on purpose nothing is said: its words may come from anywhere.
    """
    if isinstance(error, WireError):
        return error
    if isinstance(error, Malformed):
        return WireError(error.sqlstate, str(error))
    if not isinstance(error, Error):
        return WireError("XX000", "The server failed.", hint="Ask the curator.")
    state = _OF_CODE.get(error.code) or next((state for kind, state in _OF_KIND if isinstance(error, kind)), "XX000")
    position = _position(text, error.place) + before if isinstance(error.place, Place) else 0
    return WireError(state, f"[{error.code}] {error.reason}", hint=error.hint, position=position)


def _position(text: str, place: Place) -> int:
    """Return the character, from 1, of a place in a text."""
    at = 0
    for _ in range(place.line - 1):
        at = text.find("\n", at) + 1
    return at + place.column


def where(error: Exception) -> str:
    """Return module and line of the innermost frame of an error, for the log; no name and no value."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}"


def error_message(error: WireError) -> bytes:
    """Return an error as a message."""
    severity = "FATAL" if error.fatal else "ERROR"
    position = str(error.position) if error.position else ""
    return fields(
        b"E",
        {"S": severity, "V": severity, "C": error.sqlstate, "M": error.reason, "H": error.hint, "P": position},
    )


def notice(text: str, *, sqlstate: str = "00000", severity: str = "NOTICE") -> bytes:
    """Return a notice or warning as a message."""
    return fields(b"N", {"S": severity, "V": severity, "C": sqlstate, "M": text})
