"""Budgets, losses and balances as exact amounts in the two currencies of a certificate (`maths.md` 4 and 6.3)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Self

from dpsql.accounting.guarantees import ZCDP, Certificate
from dpsql.accounting.renyi import RenyiCurve
from dpsql.errors import UsageError
from dpsql.quantities import Delta, Number, Rho, exact

__all__ = ["BudgetState", "BudgetVector"]


@dataclass(frozen=True, slots=True)
class BudgetVector:
    """Amounts in both currencies of a certificate, such as rho and delta for zcdp: a budget, or the price of a query.

    `refundable` is reserved when a query is admitted, and later replaced by what its answer cost. `permanent` is spent
    on admission. Amounts of different certificates are never added or compared: that raises `wrong-certificate`.

    >>> print(BudgetVector("0.5", "1e-6") + BudgetVector("0.25", 0))
    rho 0.75, delta 1e-06
    """

    refundable: Fraction
    permanent: Fraction
    certificate: Certificate = Certificate.zcdp

    def __init__(self, refundable: Number, permanent: Number, *, certificate: Certificate = Certificate.zcdp) -> None:
        """Read both amounts exactly; raise `UsageError` for one below 0."""
        amounts = exact(refundable, "An amount"), exact(permanent, "An amount")
        if min(amounts) < 0:
            raise UsageError("amount-range", "An amount of a budget must be at least 0.", hint="Such as 0.5.")
        object.__setattr__(self, "refundable", amounts[0])
        object.__setattr__(self, "permanent", amounts[1])
        object.__setattr__(self, "certificate", certificate)

    @classmethod
    def of(cls, loss: object) -> Self:
        """Return a loss under zcdp; raise `UsageError` for a loss of another kind."""
        if isinstance(loss, RenyiCurve):
            loss = loss.concentrated()  # raises, with the reason, where no rho bounds the curve
        if not isinstance(loss, ZCDP):
            reason = "This session's certificate adds up rho; a loss of another kind cannot be charged to it."
            raise UsageError("wrong-certificate", reason)
        return cls(loss.rho.value, loss.delta.value)

    @property
    def rho(self) -> Rho:
        """The rho, which only the certificate zcdp counts."""
        return Rho(self._amount("rho"))

    @property
    def delta(self) -> Delta:
        """The delta, which the certificate theorem2 does not count."""
        return Delta(self._amount("delta"))

    def _amount(self, currency: str) -> Fraction:
        for name, amount in zip(self.certificate.currencies, (self.refundable, self.permanent), strict=True):
            if name == currency:
                return amount
        reason = f"The certificate {self.certificate.value} counts no {currency}."
        raise UsageError("wrong-certificate", reason, hint="Read refundable and permanent.")

    def require(self, certificate: Certificate) -> None:
        """Raise `UsageError` unless these are amounts of `certificate`."""
        if self.certificate is not certificate:
            reason = f"Amounts of the certificate {self.certificate.value} cannot be counted by {certificate.value}."
            raise UsageError("wrong-certificate", reason, hint="Use the certificate of the ledger.")

    def share_of(self, limit: BudgetVector) -> Fraction:
        """Return the share of `limit` that these amounts use: of the currency of which they use more."""
        limit.require(self.certificate)
        pairs = (self.refundable, limit.refundable), (self.permanent, limit.permanent)
        return max(used / granted if granted else Fraction(used > 0) for used, granted in pairs)

    def least_share_of(self, limit: BudgetVector) -> Fraction:
        """Return the share of `limit` that these amounts are: of the currency of which they are less."""
        limit.require(self.certificate)
        pairs = (self.refundable, limit.refundable), (self.permanent, limit.permanent)
        return min((part / granted for part, granted in pairs if granted), default=Fraction(0))

    def __add__(self, other: BudgetVector) -> BudgetVector:
        other.require(self.certificate)
        return BudgetVector(
            self.refundable + other.refundable, self.permanent + other.permanent, certificate=self.certificate
        )

    def __str__(self) -> str:
        amounts = zip(self.certificate.currencies, (self.refundable, self.permanent), strict=True)
        return ", ".join(
            f"{amount} {name}" if name in {"items", "queries"} else f"{name} {float(amount):.6g}"
            for name, amount in amounts
        )


@dataclass(frozen=True, slots=True)
class BudgetState:
    """Used part of a budget, in the currencies of its certificate.

    Of the refundable currency, `spent` was settled, and `reserved` belongs to queries that have not settled. Of the
    other currency, `permanent` was spent.
    """

    spent: Fraction = Fraction(0)
    permanent: Fraction = Fraction(0)
    reserved: Fraction = Fraction(0)
