"""Exceptions of PEP 249; each is also the error of dpsql that it translates.

    Error                      also a dpsql.Error, with its code, reason, hint and place
    ├── InterfaceError         UsageError: a closed connection, an invalid call
    └── DatabaseError
        ├── ProgrammingError   Refusal; and UsageError of a statement's parameters
        ├── NotSupportedError  Unsupported
        ├── OperationalError   BudgetExceeded, PolicyError, EngineError, LedgerError
        └── DataError, IntegrityError, InternalError   never raised

An analyst may catch either `dpsql.Refusal` or `ProgrammingError`. A translated error has no cause and no context, which
could disclose more than dpsql says.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from dpsql import errors

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_PARAMETER_CODES = frozenset(["parameters", "parameter-type"])


class Warning(Exception):
    """Receipt of an answer in `messages`; never raised."""


class Error(errors.Error):
    """Base class of the errors of this module."""


class InterfaceError(Error):
    """Invalid use of the interface."""


class DatabaseError(Error):
    """A statement that the session refused or could not run."""


class DataError(DatabaseError):
    """Never raised: expressions of dpsql are total."""


class OperationalError(DatabaseError):
    """Failure outside the analyst's control: budget, policy, data or ledger."""


class IntegrityError(DatabaseError):
    """Never raised: nothing is written."""


class InternalError(DatabaseError):
    """Never raised on purpose."""


class ProgrammingError(DatabaseError):
    """A statement, or a parameter of one, that is not accepted."""


class NotSupportedError(DatabaseError):
    """A feature that dpsql does not have."""


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
    """Invalid call."""


class ParameterError(ProgrammingError, errors.UsageError):
    """Too many parameters, too few, or a value that cannot be bound."""


_KINDS: tuple[tuple[type[errors.Error], type[Error]], ...] = (
    (errors.Refusal, Refusal),
    (errors.Unsupported, Unsupported),
    (errors.BudgetExceeded, BudgetExceeded),
    (errors.PolicyError, PolicyError),
    (errors.EngineError, EngineError),
    (errors.LedgerError, LedgerError),
    (errors.UsageError, UsageError),
)


def translate_errors(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Decorate a function: translate the errors of dpsql into those of PEP 249."""

    @wraps(function)
    def wrapper(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        try:
            return function(*args, **kwargs)
        except Error as error:
            failure = error
        except errors.Error as error:
            kind = next((kind for known, kind in _KINDS if isinstance(error, known)), DatabaseError)
            if kind is UsageError and error.code in _PARAMETER_CODES:
                kind = ParameterError
            failure = kind(error.code, error.reason, hint=error.hint, place=error.place)
            failure.charge = error.charge
        raise failure  # outside of the except block, so that it has no context

    return wrapper
