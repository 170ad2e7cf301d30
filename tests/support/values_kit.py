"""Adversaries against budgets of values: what they ask of a ledger, and what each unit of a tiny universe has lost."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from pathlib import Path

import duckdb

import dpsql
from dpsql.accounting import BudgetVector
from dpsql.errors import BudgetExceeded
from dpsql.ledger import Account, Division, Ledger, Request, Reservation

__all__ = [
    "ROWS",
    "STATEMENTS",
    "VALUES",
    "Adversary",
    "data_file",
    "divide_by",
    "least_values",
    "policy_of",
]

VALUES = ("a", "b", "c")
Row = tuple[int | None, str, str | None]
ROWS: tuple[Row, ...] = (  # units of one value, of several, of none, and rows without a unit
    (1, "sun", "DE"),
    (1, "moon", "DE"),
    (2, "sun", "DE"),
    (2, "moon", "FR"),
    (2, "mars", "AT"),
    (3, "moon", "FR"),
    (3, "mars", "FR"),
    (4, "sun", None),
    (4, "moon", None),
    (5, "sun", "FR"),
    (5, "mars", None),
    (5, "moon", "de"),
    (6, "sun", ""),
    (6, "moon", "DE"),
    (7, "mars", "FR"),
    (7, "sun", "IT"),
    (8, "sun", "DE"),
    (8, "moon", "FR"),
    (None, "sun", "DE"),
)
_TOP = "GROUP BY article TOP 2 PRIVATE WITH (fresh = true)"
STATEMENTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (f"SELECT article FROM reads WHERE country = 'DE' {_TOP}", ("DE",)),
    (f"SELECT article FROM reads WHERE 'FR' = country AND article <> 'x' {_TOP}", ("FR",)),
    (f"SELECT article FROM reads WHERE country IN ('DE', 'FR') {_TOP}", ("DE", "FR")),
    (
        f"SELECT article FROM reads WHERE country = 'DE' OR country = 'IT' OR country IN ('AT') {_TOP}",
        ("AT", "DE", "IT"),
    ),
    (f"SELECT article FROM reads WHERE (country = 'DE' OR country = 'FR') AND country IN ('FR', 'AT') {_TOP}", ("FR",)),
    (f"SELECT article FROM reads WHERE country = 'nowhere' {_TOP}", ("nowhere",)),
    (f"SELECT article FROM reads WHERE country = '' {_TOP}", ("",)),
    (f"SELECT article FROM (SELECT * FROM reads WHERE country = 'FR') AS r {_TOP}", ("FR",)),
    (f"SELECT article FROM (SELECT user_id, article, country AS c FROM reads) AS r WHERE c = 'FR' {_TOP}", ("FR",)),
    (f"WITH r AS (SELECT * FROM reads) SELECT article FROM r WHERE country = 'DE' {_TOP}", ("DE",)),
    (
        (
            "SELECT article FROM (SELECT user_id, article FROM reads WHERE country = 'DE' UNION ALL "
            f"SELECT user_id, article FROM reads WHERE country = 'FR') AS r {_TOP}"
        ),
        ("DE", "FR"),
    ),
    (
        (
            "SELECT article FROM (SELECT user_id, article FROM reads WHERE country = 'DE' EXCEPT "
            f"SELECT user_id, article FROM reads WHERE country IN ('FR', 'DE') AND article = 'sun') AS r {_TOP}"
        ),
        ("DE", "FR"),
    ),
    (
        (
            "SELECT a.article FROM reads AS a JOIN reads AS b ON a.user_id = b.user_id WHERE b.country = 'FR' "
            "GROUP BY a.article TOP 2 PRIVATE WITH (fresh = true)"
        ),
        ("FR",),
    ),
    (
        (
            "SELECT a.article FROM reads AS a LEFT JOIN (SELECT * FROM reads WHERE article = 'mars') AS b ON "
            "a.user_id = b.user_id WHERE a.country = 'FR' GROUP BY a.article TOP 2 PRIVATE WITH (fresh = true)"
        ),
        ("FR",),
    ),
    (
        (
            "SELECT article FROM reads WHERE country = 'DE' AND user_id IN (SELECT user_id FROM reads WHERE "
            f"country = 'FR') {_TOP}"
        ),
        ("DE",),
    ),
    (
        (
            "SELECT article FROM reads AS r WHERE country = 'FR' AND NOT EXISTS (SELECT 1 FROM reads AS o WHERE "
            f"o.user_id = r.user_id AND o.country IS NULL) {_TOP}"
        ),
        ("FR",),
    ),
    (
        (
            "SELECT article FROM (SELECT user_id, article, count(*) AS n FROM reads WHERE country = 'FR' GROUP BY "
            f"user_id, article) AS r WHERE n < 3 {_TOP}"
        ),
        ("FR",),
    ),
    (
        (
            "SELECT article, COUNT(DISTINCT user_id) FROM reads WHERE country = 'FR' GROUP BY article "
            "TOP 2 PRIVATE WITH (fresh = true, max_groups_contributed = 1)"
        ),
        ("FR",),
    ),
    (
        (
            "SELECT article FROM reads WHERE country = 'FR' GROUP BY article TOP 2 PRIVATE "
            "WITH (fresh = true, mechanism = peeling, domain = ['sun', 'moon'])"
        ),
        ("FR",),
    ),
    ("SELECT COUNT(DISTINCT user_id) FROM reads WHERE country = 'FR' PRIVATE WITH (fresh = true)", ("FR",)),
    (
        (
            "SELECT r.article FROM reads AS r JOIN names AS n ON r.country = n.country WHERE n.name = 'France' AND "
            "r.country = 'FR' GROUP BY r.article TOP 2 PRIVATE WITH (fresh = true)"
        ),
        ("FR",),
    ),
    (f"SELECT article FROM reads {_TOP}", ()),
    (f"SELECT article FROM reads WHERE country <> 'DE' {_TOP}", ()),
    (f"SELECT article FROM reads WHERE NOT country = 'DE' {_TOP}", ()),
    (f"SELECT article FROM reads WHERE NOT (country IN ('DE', 'FR')) {_TOP}", ()),
    (f"SELECT article FROM reads WHERE country = 'DE' OR article = 'sun' {_TOP}", ()),
    (f"SELECT article FROM reads WHERE (country = 'DE' AND article = 'sun') OR country = 'FR' {_TOP}", ()),
    (f"SELECT article FROM reads WHERE country IS NULL {_TOP}", ()),
    (f"SELECT article FROM reads WHERE country IN ('DE', NULL) {_TOP}", ()),
    (f"SELECT article FROM reads WHERE country IS NOT DISTINCT FROM 'DE' {_TOP}", ()),
    (f"SELECT article FROM reads WHERE country LIKE 'DE' {_TOP}", ()),
    (f"SELECT article FROM reads WHERE lower(country) = 'de' {_TOP}", ()),
    (f"SELECT article FROM reads WHERE country || '' = 'DE' {_TOP}", ()),
    (f"SELECT article FROM reads WHERE country BETWEEN 'DE' AND 'DE' {_TOP}", ()),
    (f"SELECT article FROM reads WHERE country = article {_TOP}", ()),
    (f"SELECT article FROM reads WHERE country = 'DE' AND country = 'FR' {_TOP}", ()),
    (f"SELECT article FROM reads WHERE coalesce(country = 'DE', TRUE) {_TOP}", ()),
    (f"SELECT article FROM reads WHERE (country = 'DE') IS NOT FALSE {_TOP}", ()),
    (f"SELECT article FROM reads WHERE CASE WHEN article = 'sun' THEN TRUE ELSE country = 'DE' END {_TOP}", ()),
    (f"SELECT article FROM reads WHERE article = 'DE' {_TOP}", ()),
    (
        (
            "SELECT article FROM (SELECT user_id, article FROM reads WHERE country = 'DE' UNION ALL "
            f"SELECT user_id, article FROM reads) AS r {_TOP}"
        ),
        (),
    ),
    (
        (
            "SELECT a.article FROM reads AS a LEFT JOIN reads AS b ON a.user_id = b.user_id AND b.country = 'FR' "
            "GROUP BY a.article TOP 2 PRIVATE WITH (fresh = true)"
        ),
        (),
    ),
    (
        (
            "SELECT a.article FROM reads AS a LEFT JOIN (SELECT * FROM reads WHERE country = 'FR') AS b ON "
            "a.user_id = b.user_id GROUP BY a.article TOP 2 PRIVATE WITH (fresh = true)"
        ),
        (),
    ),
    (f"SELECT article FROM reads WHERE user_id IN (SELECT user_id FROM reads WHERE country = 'DE') {_TOP}", ()),
    (
        (
            "SELECT article FROM reads AS r WHERE EXISTS (SELECT 1 FROM reads AS o WHERE o.user_id = r.user_id AND "
            f"o.country = 'DE') {_TOP}"
        ),
        (),
    ),
    (
        (
            "SELECT article, COUNT(DISTINCT user_id) FILTER (WHERE country = 'DE') FROM reads GROUP BY article "
            "TOP 2 PRIVATE WITH (fresh = true)"
        ),
        (),
    ),
    (
        (
            "SELECT article FROM (SELECT user_id, article, upper(country) AS country FROM reads) AS r "
            f"WHERE country = 'DE' {_TOP}"
        ),
        (),
    ),
)


def least_values(rows: tuple[Row, ...]) -> dict[int, str | None]:
    """Return the value of each unit: the least by its bytes over all its rows, NULL left out."""
    found: dict[int, str | None] = {}
    for unit, _, value in rows:
        if unit is not None:
            known = [each.encode() for each in (found.get(unit), value) if each is not None]
            found[unit] = min(known).decode() if known else None
    return found


def data_file(path: Path, rows: tuple[Row, ...] = ROWS, *, type_: str = "VARCHAR") -> Path:
    """Write the rows to a database file, with a public table beside them."""
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE TABLE reads (user_id BIGINT, article VARCHAR, country {type_})")
        connection.execute("CREATE TABLE names (country VARCHAR, name VARCHAR)")
        connection.executemany("INSERT INTO names VALUES (?, ?)", [("DE", "Germany"), ("FR", "France")])
        if rows:
            connection.executemany("INSERT INTO reads VALUES (?, ?, ?)", list(rows))
    return path


def policy_of(certificate: str = "zcdp", **given: object) -> dpsql.Policy:
    """Return a policy in which each country has a budget."""
    budget = dpsql.Budget(2, "1e-6", items=60, queries=30, certificate=certificate)
    table = dpsql.PrivateTable("user_id", budget_by="country")
    return dpsql.Policy(budget, {"reads": table, "names": dpsql.PublicTable()}, **given)  # type: ignore[arg-type]


def divide_by(rule: str = "rule", data: str = "data") -> Division:
    return Division(rule, data)


@dataclass
class Adversary:
    """Queries over sets of values, some in flight, while versions and rules change; the loss of every unit is exact.

    A unit may have another value in each epoch, or none. Its loss is that of the queries that count it: those of its
    value in the epoch of their reservation, and those of all.
    """

    ledger: Ledger
    account: Account | None = None
    epoch: int = 0
    asked: list[tuple[int, tuple[str, ...], BudgetVector, Reservation | None]] = field(default_factory=list)
    losses: dict[int, Fraction] = field(default_factory=dict)
    refused: int = 0

    def play(self, seed: int, *, acts: int = 40, worst: Callable[[random.Random], BudgetVector]) -> Iterator[None]:
        """Do random acts; yield after each."""
        moments = random.Random(seed)
        self.ledger.divide(divide_by())
        for _ in range(acts):
            match moments.choices(["ask", "settle", "bump", "rule"], [6, 4, 0.6, 0.3])[0]:
                case "ask":
                    values = tuple(sorted(moments.sample(VALUES, moments.choice([0, 1, 1, 1, 2]))))
                    self.ask(values, worst(moments))
                case "settle":
                    self.settle(moments)
                case "bump" if self.epoch < 3:
                    self.ledger.bump("other data")
                    self.ledger.divide(divide_by(data=f"{self.epoch}"))
                    self.epoch += 1
                case "rule" if self.epoch < 3:
                    self.ledger.divide(divide_by(rule=f"rule {self.epoch}"))
                    self.epoch += 1
            yield

    def ask(self, values: tuple[str, ...], worst: BudgetVector) -> bool:
        """Reserve for these values, none for all; return whether it was admitted."""
        division = self.ledger.division
        try:
            held = self.ledger.reserve(Request("q", worst, self.account, values=values, division=division))
        except BudgetExceeded:
            self.refused += 1
            return False
        assert not isinstance(held, dpsql.ledger.base.Settled)
        self.asked.append((self.epoch, values, worst, held))
        return True

    def settle(self, moments: random.Random) -> None:
        """Settle one of the queries in flight, at some loss."""
        open_ = [at for at, (_, _, _, held) in enumerate(self.asked) if held is not None]
        if not open_:
            return
        at = moments.choice(open_)
        epoch, values, worst, held = self.asked[at]
        assert held is not None
        loss = Fraction(moments.randint(0, int(worst.refundable))) if worst.refundable >= 1 else worst.refundable / 2
        held.settle(loss, "d")
        self.asked[at] = epoch, values, worst, None
        self.losses[at] = loss

    def worst_unit(self) -> tuple[Fraction, Fraction]:
        """Return the largest loss of any unit in both currencies, over all values that it may have in each epoch."""
        units = product((*VALUES, None), repeat=self.epoch + 1)
        lost = [self._loss_of(unit) for unit in units]
        return max(first for first, _ in lost), max(second for _, second in lost)

    def _loss_of(self, unit: tuple[str | None, ...]) -> tuple[Fraction, Fraction]:
        refundable = permanent = Fraction(0)
        for at, (epoch, values, worst, _) in enumerate(self.asked):
            if not values or unit[epoch] in values:
                refundable += self.losses.get(at, worst.refundable)
                permanent += worst.permanent
        return refundable, permanent
