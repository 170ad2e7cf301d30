"""Terms of every certificate."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpsql.accounting import BudgetVector, Certificate, CertificateTerms
from dpsql.ledger import Account, Request
from dpsql.quantities import Delta, Epsilon, Rho


def columns(first: Fraction | str | int, second: Fraction | str | int) -> BudgetVector:
    return BudgetVector(Rho(first), Delta(second))


@dataclass(frozen=True)
class Terms:
    """A certificate, a budget that is counted by it, and the worst case of a query; a quarter of it is returned."""

    certified: CertificateTerms
    budget: BudgetVector
    worst: BudgetVector
    more: BudgetVector

    @property
    def certificate(self) -> Certificate:
        return self.certified.certificate

    def ask(self, key: str = "", account: Account | None = None) -> Request:
        return Request("q", self.worst, account, key, self.certificate)


ALL = [
    Terms(CertificateTerms(), columns("0.02", "1e-6"), columns("0.008", "1e-8"), columns("0.03", "2e-6")),
    Terms(CertificateTerms(Certificate.pure), columns(1, "2e-6"), columns("0.4", "1e-8"), columns(2, "4e-6")),
    Terms(
        CertificateTerms(Certificate.theorem2, Epsilon("0.03"), Delta("2.5e-8")),
        columns(100, 20),
        columns(40, 1),
        columns(200, 40),
    ),
    Terms(
        CertificateTerms(Certificate.optimal, Epsilon("0.04")),
        columns(100, "1e-6"),
        columns(40, "1e-8"),
        columns(200, "1e-6"),
    ),
]
