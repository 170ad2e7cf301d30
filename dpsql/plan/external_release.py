"""Releases other than statements: another package plans them, and the session reserves, draws, charges and stores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dpsql.accounting import BudgetVector
from dpsql.engines import Exact, Statement
from dpsql.mechanisms import Noise

__all__ = ["Draw", "ExternalRelease", "ReleaseResult"]


class Draw(Protocol):
    """Function that turns the sealed result of the engine into a release, as bytes."""

    def __call__(self, exact: Exact, *, noise: Noise) -> bytes:
        """Return the release; a failure is charged in full."""
        ...


@dataclass(frozen=True, slots=True)
class ExternalRelease:
    """Release other than a statement: its text for the record, its fixed loss, and how it is drawn.

    `key` is the digest of everything that its distribution depends on, under which it is found again. `draw` makes the
    release from the result of `statement`.
    """

    text: str
    loss: BudgetVector
    key: str
    statement: Statement
    draw: Draw


@dataclass(frozen=True, slots=True)
class ReleaseResult:
    """The release with the facts for its receipt; `replayed` if it was stored before, and free."""

    released: bytes
    replayed: bool
    sealed: bool
    isolation: str
    durable: bool
    shared: bool
