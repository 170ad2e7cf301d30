"""dpsql: private top-k analytics in SQL.

    session = dpsql.connect("events.duckdb", policy="policy.toml")
    answer = session.sql("SELECT article FROM reads GROUP BY article TOP 10 PRIVATE")

What needs Arrow or sqlglot is loaded when it is first used, so that `dpsql --help` starts quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from dpsql.connect import connect
from dpsql.errors import (
    BudgetExceeded,
    EngineError,
    Error,
    LedgerError,
    MemoryLedgerWarning,
    Place,
    PolicyError,
    Refusal,
    UngrantedBudgetWarning,
    Unsupported,
    UsageError,
    WastedChargeWarning,
)
from dpsql.policy import (
    Analyst,
    Budget,
    DataSource,
    EngineSettings,
    Limits,
    Policy,
    PrivateTable,
    PublicTable,
    ServerSettings,
)
from dpsql.quantities import Delta, Epsilon, Rho

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from dpsql.answer import Answer
    from dpsql.plan import Plan
    from dpsql.receipt import Receipt
    from dpsql.report.balance import Balance
    from dpsql.report.forecast import Forecast
    from dpsql.session import Session

    __version__: str

__all__ = [
    "Analyst",
    "Answer",
    "Balance",
    "Budget",
    "BudgetExceeded",
    "DataSource",
    "Delta",
    "EngineError",
    "EngineSettings",
    "Epsilon",
    "Error",
    "Forecast",
    "LedgerError",
    "Limits",
    "MemoryLedgerWarning",
    "Place",
    "Plan",
    "Policy",
    "PolicyError",
    "PrivateTable",
    "PublicTable",
    "Receipt",
    "Refusal",
    "Rho",
    "ServerSettings",
    "Session",
    "UngrantedBudgetWarning",
    "Unsupported",
    "UsageError",
    "WastedChargeWarning",
    "connect",
]

_LATER = {
    "Answer": "answer",
    "Balance": "report.balance",
    "Forecast": "report.forecast",
    "Plan": "plan",
    "Receipt": "receipt",
}
_LATER |= {"Session": "session"}


def __getattr__(name: str) -> object:
    value: object
    if name == "__version__":
        value = import_module("importlib.metadata").version("dpsql")
    elif name in _LATER:
        value = getattr(import_module(f"dpsql.{_LATER[name]}"), name)
    else:
        raise AttributeError(f"module 'dpsql' has no attribute {name!r}")
    globals()[name] = value
    return value


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Handle `%load_ext dpsql`: register `%dpsql` and `%%dpsql`; needs the extra dpsql[notebook]."""
    from dpsql.notebook import load

    load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Handle `%unload_ext dpsql`: remove the magics, and close the session that they opened."""
    from dpsql.notebook import unload

    unload(shell)


def __dir__() -> list[str]:
    return sorted(__all__)
