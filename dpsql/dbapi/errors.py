"""PEP 249's exceptions, each of which is also the error of dpsql that it translates.

    Error                      also a dpsql.Error, with its code, reason, hint and place
    ├── InterfaceError         UsageError: a closed connection, a call that cannot mean anything
    └── DatabaseError
        ├── ProgrammingError   Refusal; and UsageError of a statement's parameters
        ├── NotSupportedError  Unsupported
        ├── OperationalError   BudgetExceeded, PolicyError, EngineError, LedgerError
        └── DataError, IntegrityError, InternalError   never raised

What an analyst catches, `dpsql.Refusal` or `ProgrammingError`, is theirs to choose. A translated error hangs on no
other one: neither a cause nor a context of it could say more than dpsql says.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from dpsql import errors

__all__ = [
    "DataError",
    "DatabaseError",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "Warning",
    "translates",
]

_Given = ParamSpec("_Given")
_Returned = TypeVar("_Returned")
_OF_A_STATEMENT = frozenset(["parameters", "parameter-type"])


class Warning(Exception):
    """A word on an answer, in `messages`; never raised."""


class Error(errors.Error):
    """The root of what this module raises."""


class InterfaceError(Error):
    """The interface was used in a way that cannot mean anything."""


class DatabaseError(Error):
    """The session could not, or would not, answer."""


class DataError(DatabaseError):
    """Never raised: dpsql's expressions are total."""


class OperationalError(DatabaseError):
    """What is not under the analyst's control: the budget, the policy, the data, the ledger."""


class IntegrityError(DatabaseError):
    """Never raised: nothing is written."""


class InternalError(DatabaseError):
    """Never raised on purpose."""


class ProgrammingError(DatabaseError):
    """The statement, or what was bound to it, is not one that is answered."""


class NotSupportedError(DatabaseError):
    """Dpsql cannot do this, or not yet."""


class Refusal(ProgrammingError, errors.Refusal):
    """The policy, or privacy itself, says no to this statement; nothing was charged."""


class Unsupported(NotSupportedError, errors.Unsupported):
    """Dpsql cannot do this yet; nothing was charged."""


class BudgetExceeded(OperationalError, errors.BudgetExceeded):
    """The budget that is left cannot cover the worst case of this query; nothing was charged."""


class PolicyError(OperationalError, errors.PolicyError):
    """The policy is missing, malformed, or names what the data does not have."""


class EngineError(OperationalError, errors.EngineError):
    """The engine could not answer; if it had started reading private rows the query is charged in full."""


class LedgerError(OperationalError, errors.LedgerError):
    """The ledger cannot be opened, trusted or written."""


class UsageError(InterfaceError, errors.UsageError):
    """A call that cannot mean anything."""


class ParameterError(ProgrammingError, errors.UsageError):
    """Too many parameters, too few, or one whose value cannot be bound."""


_KINDS: tuple[tuple[type[errors.Error], type[Error]], ...] = (
    (errors.Refusal, Refusal),
    (errors.Unsupported, Unsupported),
    (errors.BudgetExceeded, BudgetExceeded),
    (errors.PolicyError, PolicyError),
    (errors.EngineError, EngineError),
    (errors.LedgerError, LedgerError),
    (errors.UsageError, UsageError),
)


def translates(act: Callable[_Given, _Returned]) -> Callable[_Given, _Returned]:
    """Return the same act, whose errors are those of PEP 249."""

    @wraps(act)
    def acting(*args: _Given.args, **kwargs: _Given.kwargs) -> _Returned:
        try:
            return act(*args, **kwargs)
        except errors.Error as error:
            failure = _translated(error)
        raise failure  # here and not where it was caught: no context hangs on it

    return acting


def _translated(error: errors.Error) -> Error:
    if isinstance(error, Error):
        return error
    kind = next((kind for known, kind in _KINDS if isinstance(error, known)), DatabaseError)
    if kind is UsageError and error.code in _OF_A_STATEMENT:
        kind = ParameterError
    return kind(error.code, error.reason, hint=error.hint, place=error.place)
