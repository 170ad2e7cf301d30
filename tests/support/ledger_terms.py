"""Terms of every certificate."""

from __future__ import annotations

from dataclasses import dataclass

from dpsql.accounting import BudgetVector, Certificate, CertificateTerms
from dpsql.ledger import Account, Request
from dpsql.quantities import Delta, Epsilon


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
        return Request("q", self.worst, account, key)


def make_terms(certified: CertificateTerms, *amounts: tuple[int | str, int | str]) -> Terms:
    budget, worst, more = (BudgetVector(*amount, certificate=certified.certificate) for amount in amounts)
    return Terms(certified, budget, worst, more)


ALL = [
    make_terms(CertificateTerms(), ("0.02", "1e-6"), ("0.008", "1e-8"), ("0.03", "2e-6")),
    make_terms(CertificateTerms(Certificate.pure), (1, "2e-6"), ("0.4", "1e-8"), (2, "4e-6")),
    make_terms(CertificateTerms(Certificate.theorem2, Epsilon("0.03"), Delta("2.5e-8")), (100, 20), (40, 1), (200, 40)),
    make_terms(CertificateTerms(Certificate.optimal, Epsilon("0.04")), (100, "1e-6"), (40, "1e-8"), (200, "1e-6")),
]
