"""Report on a policy as values: who is protected, what is exposed, and what the budget buys."""

from __future__ import annotations

from dataclasses import dataclass

from dpsql.errors import Error

__all__ = ["AccountLimit", "CertificatePurchase", "Check", "CheckedTable", "Exposed", "Finding", "TotalAfter"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found: `severity` is error or warning; `place` is a key path with its line in the file."""

    code: str
    place: str
    message: str
    hint: str
    severity: str = "warning"

    @classmethod
    def from_error(cls, error: Error) -> Finding:
        """Return an error as a finding."""
        return cls(error.code, str(error.place or ""), error.reason, error.hint, "error")


@dataclass(frozen=True, slots=True)
class Exposed:
    """A column that exists for analysts; its type as DuckDB names it, if the data was looked at."""

    name: str
    type: str | None


@dataclass(frozen=True, slots=True)
class CheckedTable:
    """A table of the policy; columns are None, and so is what is hidden, where only the data knows them.

    With a `link` the unit is that of another table, such as "customers.household_id via customer_id -> customers.id".
    `bounds` are lines such as "rows = 20" and "amount = {min = 0, max = 500}", and `calendar`
    lines such as "ts = {first = 2025-01-01, last = 2026-12-31}". Each value of the column `budget_by` has a budget.
    """

    name: str
    privacy_unit: str | None
    source: str | None
    columns: tuple[Exposed, ...] | None
    hidden: tuple[str, ...] | None
    max_groups_contributed: int | None
    min_units: int | None
    checked: bool
    one_value_per_unit: tuple[str, ...] = ()
    link: str | None = None
    population: int | None = None
    materialized: tuple[tuple[str, ...], ...] = ()
    bounds: tuple[str, ...] = ()
    calendar: tuple[str, ...] = ()
    budget_by: str | None = None


@dataclass(frozen=True, slots=True)
class CertificatePurchase:
    """One kind of query, and how often the budget buys it at its worst case.

    `threshold` is how many units above group number k_bar + 1 a group has an even chance, and `least_threshold`, which
    is 0 without min_units, how many it must have at least; `reach` is how far a released count is from the exact one,
    at most, in 95 of 100 cases.
    """

    k: int
    counts: bool
    max_groups_contributed: int | None
    min_units: int | None
    k_bar: int
    worst_items: int
    queries: int
    threshold: float
    least_threshold: float
    reach: int | None


@dataclass(frozen=True, slots=True)
class AccountLimit:
    """Limit of an analyst within the total, and what it should buy; without an epsilon they may run no query.

    The name is None for analysts that the policy does not list. `share` is the part of the total's rho, or of its
    epsilon under the certificate pure.
    """

    name: str | None
    epsilon: float | None
    delta: float
    share: float
    items: int
    queries: int


@dataclass(frozen=True, slots=True)
class TotalAfter:
    """Guarantee after so many periods of a budget that is granted in each, rounded up."""

    periods: int
    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True)
class Check:
    """The whole report, in values that JSON supports.

    With a `period`, such as "30 days", everything is granted in each, at most `periods` times if that is a number. The
    rho is None under a certificate without rho. `isolation` is the place where the data is open, as in receipts, and
    `confinement` names the measures in force against a process of its own, `catalog_confinement` those against the
    PostgreSQL of the server's catalog, None without one. `implicit` says that standard SQL is read as private.
    """

    epsilon: float
    delta: float
    rho: float | None
    delta_of_queries: float
    item_epsilon: float
    items: int
    query_delta: float
    queries: int
    ledger: str | None
    tables: tuple[CheckedTable, ...]
    buys: tuple[CertificatePurchase, ...]
    findings: tuple[Finding, ...]
    period: str | None = None
    periods: int | None = None
    totals: tuple[TotalAfter, ...] = ()
    analysts: tuple[AccountLimit, ...] = ()
    certificate: str = "zcdp"
    isolation: str = "in_process"
    confinement: tuple[str, ...] = ()
    catalog_confinement: tuple[str, ...] | None = None
    implicit: bool = False

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is allowed and seldom meant, a sentence for each."""
        return tuple(finding.message for finding in self.findings)

    @property
    def private(self) -> list[CheckedTable]:
        """The tables whose units are protected."""
        return [table for table in self.tables if table.privacy_unit is not None]

    @property
    def public(self) -> list[CheckedTable]:
        """The tables in which nothing is protected."""
        return [table for table in self.tables if table.privacy_unit is None]
