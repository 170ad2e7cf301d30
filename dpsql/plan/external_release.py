"""Releases that are no statements: what another room plans, and the session reserves, draws, charges and keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dpsql.accounting import BudgetVector
from dpsql.engines import Exact, Statement
from dpsql.mechanisms import Noise

__all__ = ["Draw", "ExternalRelease", "ReleaseResult"]


class Draw(Protocol):
    """What makes a release, as bytes, of the engine's answer; it opens that answer, and nobody else does."""

    def __call__(self, exact: Exact, *, noise: Noise) -> bytes:
        """Return what is released; whatever goes wrong is charged in full."""
        ...


@dataclass(frozen=True, slots=True)
class ExternalRelease:
    """A release that is no statement: what it is called, what it costs whatever comes out, and how it is made.

    `key` is the digest of all that its law depends on, by which it is found again. `draw` makes it of the engine's
    answer to `statement`.
    """

    text: str
    loss: BudgetVector
    key: str
    statement: Statement
    draw: Draw


@dataclass(frozen=True, slots=True)
class ReleaseResult:
    """What was released, and what a receipt says of it besides; `replayed` if it was stored, at no cost."""

    released: bytes
    replayed: bool
    sealed: bool
    isolation: str
    durable: bool
    shared: bool
