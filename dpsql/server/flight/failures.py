"""Errors as Flight has them: one sentence, its code and hint, and nothing of the program that raised it.

An exception of Python that leaves a handler of pyarrow takes its traceback to the client. So every door of the server
lets out only what is made here: an error of Flight, whose text is all that is sent; and, for the two statuses that
Flight has no error for, exceptions that cannot be printed beyond their text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, NoReturn, ParamSpec, Protocol, TypeVar

import pyarrow as pa
import pyarrow.flight as fl

from dpsql.errors import BudgetExceeded, Error, Refusal, Unsupported, UsageError
from dpsql.ledger.charges import MAY_BE_CHARGED

__all__ = ["InvalidArgument", "NotSupported", "cleanly", "flight_error", "unprintably"]

_Given = ParamSpec("_Given")
_Returned = TypeVar("_Returned")
_Owner = TypeVar("_Owner", bound="_Faulty")
_LONGEST = 1_500  # characters: headers of HTTP/2 carry it, and clients bound those
_UNREADABLE = frozenset("character empty escape literal multiple number outer-select syntax".split())
_ENTRANCE = frozenset(["flight-login"])
_BUSY = frozenset(["closed", "engine-busy", "server-busy", "too-many-statements"])


class _Unprintable(Exception):
    """Exception of which pyarrow sends only text and name to the client, because reading its cause fails.

    pyarrow adds the formatted traceback of an exception. Python's `traceback` reads the cause, fails, and leaves only
    the name.
    """

    @property
    def __cause__(self) -> NoReturn:  # type: ignore[override]
        raise AttributeError


class InvalidArgument(_Unprintable, pa.ArrowInvalid):  # type: ignore[misc]  # pyarrow has no types
    """INVALID_ARGUMENT: a statement that cannot be read, or a message that is none."""


class NotSupported(_Unprintable, NotImplementedError):
    """UNIMPLEMENTED: what dpsql cannot do yet."""


class _Faulty(Protocol):
    """Object whose methods may fail, with the telemetry that records it."""

    def fault(self, kind: str) -> None:
        """Record an unexpected exception by its type."""
        ...


def cleanly(
    act: Callable[Concatenate[_Owner, _Given], _Returned],
) -> Callable[Concatenate[_Owner, _Given], _Returned]:
    """Return the method with sanitized errors: of an unexpected exception only the kind is sent, never its text."""

    @wraps(act)
    def acting(owner: _Owner, /, *args: _Given.args, **kwargs: _Given.kwargs) -> _Returned:
        try:
            return act(owner, *args, **kwargs)
        except Error as error:
            failure = flight_error(error)
        except BaseException as error:  # noqa: BLE001 - its text may hold private values
            owner.fault(type(error).__name__)
            failure = fl.FlightInternalError(
                f"[internal]: The server could not do this. {MAY_BE_CHARGED}", b'{"code": "internal"}'
            )
        raise failure  # here and not where it was caught: no context hangs on it

    return acting


def unprintably(
    act: Callable[Concatenate[_Owner, _Given], _Returned],
) -> Callable[Concatenate[_Owner, _Given], _Returned]:
    """Return the same method, for a door at which pyarrow does not know its own errors, and would print them."""
    clean = cleanly(act)

    @wraps(act)
    def acting(owner: _Owner, /, *args: _Given.args, **kwargs: _Given.kwargs) -> _Returned:
        try:
            return clean(owner, *args, **kwargs)
        except NotSupported as error:
            failure: Exception = NotSupported(str(error))
        except Exception as error:  # noqa: BLE001 - these are clean already
            failure = InvalidArgument(str(error))
        raise failure

    return acting


def flight_error(error: Error) -> Exception:
    """Return an error of dpsql as the one that carries its status: text for a person, and JSON in `extra_info`."""
    text, kind = str(error)[:_LONGEST], _classify(error)
    failure: Exception = kind(text, _extra(error)) if issubclass(kind, fl.FlightError) else kind(text)
    return failure


def _classify(error: Error) -> type[Exception]:
    kind: type[Exception]
    match error:
        case UsageError() if error.code in _ENTRANCE:
            kind = fl.FlightUnauthenticatedError
        case Error() if error.code in _BUSY:
            kind = fl.FlightUnavailableError
        case UsageError():
            kind = InvalidArgument
        case Refusal() if error.code in _UNREADABLE:
            kind = InvalidArgument
        case Unsupported():
            kind = NotSupported
        case Refusal() | BudgetExceeded():
            kind = fl.FlightUnauthorizedError
        case _:  # the engine, the ledger, the policy
            kind = fl.FlightInternalError
    return kind


def _extra(error: Error) -> bytes:
    place = None if error.place is None else str(error.place)
    told = {"kind": type(error).__name__, "code": error.code, "reason": error.reason, "hint": error.hint}
    return json.dumps({**told, "place": place})[: 2 * _LONGEST].encode()
