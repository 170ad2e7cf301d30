"""Every error that dpsql raises on purpose.

    Error                     anything below; catch this one
    ├── Refusal               the policy, or privacy itself, says no to this statement
    ├── Unsupported           dpsql cannot do this yet; the hint says what to write instead
    ├── BudgetExceeded        the budget that is left cannot cover the worst case
    ├── PolicyError           the curator's policy is missing, malformed or does not fit the data
    ├── EngineError           the engine that holds the data could not answer
    ├── LedgerError           the durable record of what was spent cannot be used
    └── UsageError            a call of the Python API or the shell that cannot mean anything

An error never carries a data value: its words come from dpsql, from the analyst's own statement or from the policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

__all__ = [
    "BudgetExceeded",
    "EngineError",
    "Error",
    "LedgerError",
    "Place",
    "PolicyError",
    "Refusal",
    "Unsupported",
    "UsageError",
]

_LONGEST_FRAGMENT = 60


@dataclass(frozen=True, slots=True)
class Place:
    """Place in the analyst's statement: 1-based line and column of a fragment of it.

    >>> print(Place(2, 6, "reads"))
    line 2, column 6 near 'reads'
    """

    line: int
    column: int
    fragment: str = ""

    def __str__(self) -> str:
        where = f"line {self.line}, column {self.column}"
        if not self.fragment:
            return where
        shown = self.fragment
        if len(shown) > _LONGEST_FRAGMENT:
            shown = shown[: _LONGEST_FRAGMENT - 1] + "…"
        return f"{where} near {shown!r}"


class Error(Exception):
    """The root: a stable `code`, one sentence `reason`, a `hint`, and a `place` in the statement if there is one.

    `charge` is how far the charge for a query may have come before an error of the ledger: "" (nothing was charged),
    "reserving", "settling" or "stored" (the answer is stored, and running the query again is free).

    >>> try:
    ...     session.sql("SELECT nothing FROM reads")
    ... except dpsql.Error as error:
    ...     print(error.code)
    not-private
    """

    boxed = False  # whether a notebook has shown all of it already
    charge = ""

    def __init__(self, code: str, reason: str, *, hint: str = "", place: Place | str | None = None) -> None:
        """`place` is a `Place` in a statement, or words such as a policy's key path and line."""
        self.code = code
        self.reason = reason
        self.hint = hint
        self.place = place
        super().__init__(code, reason, hint, place)

    def __str__(self) -> str:
        where = f" at {self.place}" if self.place else ""
        hint = f" Hint: {self.hint}" if self.hint else ""
        return f"[{self.code}]{where}: {self.reason}{hint}"

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows in place of a traceback: where, why and what to do instead, one line each.

        Where a box has said it already, one line that a log can keep.
        """
        parts = ("where", self.place), ("why", self.reason), ("hint", self.hint)
        kind = type(self).__name__
        lines = [f"{kind}: {self.code}", *(f"  {name:6} {part}" for name, part in parts if part)]
        lines = [f"{kind}: {self}"] if self.boxed else lines
        return ["".join(char if char.isprintable() else "?" for char in line) for line in lines]

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by the keyword arguments that `__init__` wants."""
        restored = partial(type(self), self.code, self.reason, hint=self.hint, place=self.place)
        return (restored, (), {"charge": self.charge}) if self.charge else (restored, ())


class Refusal(Error):
    """The policy, or privacy itself, says no to this statement; nothing was charged.

    >>> try:
    ...     session.sql("SELECT user_id FROM reads")
    ... except dpsql.Refusal as error:
    ...     print(error.code)
    not-private
    """


class Unsupported(Error):
    """dpsql cannot do this yet; nothing was charged.

    >>> try:
    ...     session.sql("SELECT at FROM reads GROUP BY at TOP 5 PRIVATE")
    ... except dpsql.Unsupported as error:
    ...     print(error.code)
    keyword
    """


class BudgetExceeded(Error):
    """The budget that is left cannot cover the worst case of this query; nothing was charged.

    >>> try:
    ...     session.sql("SELECT article FROM reads GROUP BY article TOP 500 PRIVATE")
    ... except dpsql.BudgetExceeded as error:
    ...     print(error.code)
    budget-exceeded
    """


class PolicyError(Error):
    """The policy is missing, malformed, or names what the data does not have.

    >>> try:
    ...     dpsql.Policy.from_toml("nowhere.toml")
    ... except dpsql.PolicyError as error:
    ...     print(error.code)
    policy-missing
    """


class EngineError(Error):
    """The engine could not answer; if it had started reading private rows the query is charged in full.

    >>> try:
    ...     dpsql.connect("nowhere.duckdb", policy=policy)
    ... except dpsql.EngineError as error:
    ...     print(error.code)
    database-missing
    """


class LedgerError(Error):
    """The ledger cannot be opened, trusted or written.

    >>> try:
    ...     dpsql.connect(database, policy=policy, ledger="nowhere/ledger.sqlite")
    ... except dpsql.LedgerError as error:
    ...     print(error.code)
    ledger-directory
    """


class UsageError(Error):
    """A call that cannot mean anything: a wrong type, a closed session, an extra that is not installed.

    >>> try:
    ...     answer.intervals(95)
    ... except dpsql.UsageError as error:
    ...     print(error.code)
    level-range
    """


class MemoryLedgerWarning(UserWarning):
    """The policy names no ledger: what is spent is forgotten when the session ends.

    >>> warnings.simplefilter("ignore", dpsql.MemoryLedgerWarning)  # for a trial
    """


class UngrantedBudgetWarning(UserWarning):
    """The policy grants more than the ledger has: sessions go on with the ledger's smaller budget.

    >>> warnings.simplefilter("error", dpsql.UngrantedBudgetWarning)  # open no session before the grant
    """


class WastedChargeWarning(UserWarning):
    """The charge of a query is likely wasted; issued before the charge, so that a filter can turn it into an error.

    >>> warnings.simplefilter("error", dpsql.WastedChargeWarning)  # run no such query
    """
