"""Errors as HTTP statuses and application/problem+json (RFC 9457), without tracebacks and values."""

from __future__ import annotations

from http import HTTPStatus

from dpsql.errors import BudgetExceeded, EngineError, Error, LedgerError, Place, PolicyError, UsageError
from dpsql.ledger.failures import MAY_BE_CHARGED, RESERVING, SETTLING

__all__ = ["choose_status", "fault", "plain_problem", "stopping", "without_paths"]

_STATUS = {
    "analyst-disabled": HTTPStatus.FORBIDDEN,
    "closed": HTTPStatus.SERVICE_UNAVAILABLE,
    "curators-only": HTTPStatus.FORBIDDEN,
    "engine-busy": HTTPStatus.SERVICE_UNAVAILABLE,
    "foreign-origin": HTTPStatus.FORBIDDEN,
    "form-expired": HTTPStatus.FORBIDDEN,
    "ledger-grant": HTTPStatus.CONFLICT,
    "login-failed": HTTPStatus.UNAUTHORIZED,
    "login-required": HTTPStatus.UNAUTHORIZED,
    "no-analyst": HTTPStatus.FORBIDDEN,
    "no-such-method": HTTPStatus.METHOD_NOT_ALLOWED,
    "no-such-page": HTTPStatus.NOT_FOUND,
    "not-stored": HTTPStatus.NOT_FOUND,
    "request-length": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "request-malformed": HTTPStatus.BAD_REQUEST,
    "request-slow": HTTPStatus.REQUEST_TIMEOUT,
    "request-type": HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    "server-busy": HTTPStatus.TOO_MANY_REQUESTS,
    "server-failed": HTTPStatus.INTERNAL_SERVER_ERROR,
    "token-scope": HTTPStatus.FORBIDDEN,
    "too-many-statements": HTTPStatus.TOO_MANY_REQUESTS,
    "unread-answers": HTTPStatus.TOO_MANY_REQUESTS,
    "user-removed": HTTPStatus.UNAUTHORIZED,
}


def choose_status(error: Error) -> HTTPStatus:
    """Return the HTTP status of an error: 422 for a refused statement, 409 for a short budget.

    It is 500, which no proxy sends again, where a repetition may be charged a second time.
    """
    if error.charge in {RESERVING, SETTLING}:
        return HTTPStatus.INTERNAL_SERVER_ERROR
    known = _STATUS.get(error.code)
    if known is not None:
        return known
    match error:
        case BudgetExceeded():
            return HTTPStatus.CONFLICT
        case EngineError():
            return HTTPStatus.INTERNAL_SERVER_ERROR
        case LedgerError():
            return HTTPStatus.SERVICE_UNAVAILABLE
        case _:
            return HTTPStatus.UNPROCESSABLE_ENTITY


def plain_problem(error: Error) -> dict[str, object]:
    """Return an error as values that JSON has; the place is that of a `Place`, or words."""
    status, place = choose_status(error), error.place
    where: object = None if place is None else str(place)
    if isinstance(place, Place):
        where = {"line": place.line, "column": place.column, "fragment": place.fragment}
    return {
        "type": f"urn:dpsql:{error.code}",
        "title": type(error).__name__,
        "status": int(status),
        "detail": error.reason,
        "code": error.code,
        "reason": error.reason,
        "hint": error.hint,
        "place": where,
    }


def without_paths(error: Error) -> Error:
    """Return an error without places of the curator, such as the path of the ledger, unless the user is one."""
    if isinstance(error, EngineError | LedgerError | PolicyError) and error.place is not None:
        shown = type(error)(error.code, error.reason, hint=error.hint)
        shown.charge = error.charge
        return shown
    return error


def fault() -> EngineError:
    """Return the problem of an unexpected error: the same text every time."""
    hint = f"{MAY_BE_CHARGED} Ask the curator: what happened is in the server's log, without values."
    return EngineError("server-failed", "The server could not answer.", hint=hint)


def stopping(*, may_be_charged: bool) -> UsageError:
    """Return the problem of a request that the server, which is stopping, does not wait for any longer."""
    hint = f"{MAY_BE_CHARGED} Send it when the server is there again." if may_be_charged else "Send it again later."
    error = UsageError("closed", "The server is stopping, and did not wait for the answer.", hint=hint)
    error.charge = SETTLING if may_be_charged else ""
    return error
