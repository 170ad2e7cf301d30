"""Policy and total budget, as the curator states them.

Everything here is frozen and checked on creation, so every `Policy` is consistent. Whether the data has these tables
and columns is checked when a session opens.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import timedelta
from fractions import Fraction
from functools import partial
from pathlib import Path

from dpsql.errors import PolicyError, Refusal
from dpsql.policy.settings import (
    UNLISTED,
    Analyst,
    EngineSettings,
    Limits,
    ServerSettings,
    check_analysts,
    check_asking,
    read_analyst,
    read_engine,
    read_limits,
    read_server,
)
from dpsql.policy.source import DatabaseUrl, DataSource, is_url, read_source
from dpsql.policy.tables import Table, beside, check_folder, check_links, check_tables, read_tables
from dpsql.policy.toml import Lines, Section, read_toml
from dpsql.policy.validation import (
    check_certificate,
    check_count,
    check_delta,
    check_epsilon,
    check_flag,
    check_path,
    check_period,
    check_version,
    fill,
    optional_count,
    wrong_type,
)
from dpsql.quantities import Delta, Epsilon, Number


@dataclass(frozen=True, slots=True, init=False)
class Budget:
    """The total for every privacy unit, over all queries and analysts, and what it is meant to buy.

    The arguments are the keys of docs/reference/policy.md#budget. Raises `PolicyError` for what cannot be a budget.

    >>> Budget(1, "1e-6", items=60).epsilon
    Epsilon(1)
    """

    epsilon: Epsilon
    delta: Delta
    items: int
    queries: int
    period: timedelta | None
    periods: int | None
    certificate: str

    def __init__(  # noqa: PLR0913 - the keys of the table [budget]
        self,
        epsilon: Number | Epsilon,
        delta: Number | Delta,
        *,
        items: int = 100,
        queries: int = 20,
        period: timedelta | str | None = None,
        periods: int | None = None,
        certificate: str = "zcdp",
    ) -> None:
        fill(self, epsilon=check_epsilon(epsilon, "budget.epsilon"))
        fill(self, delta=check_delta(delta, "budget.delta"))
        fill(self, items=check_count(items, "budget.items"))
        fill(self, queries=check_count(queries, "budget.queries"))
        fill(self, period=None if period is None else check_period(period, "budget.period"))
        fill(self, periods=optional_count(periods, "budget.periods"))
        fill(self, certificate=check_certificate(certificate, "budget.certificate"))
        if self.periods is not None and self.period is None:
            reason = "Without a period there is nothing to count."
            raise PolicyError("policy-period", reason, hint="Add period, or leave periods out.", place="budget.periods")
        if self.delta.value * (self.periods or 1) >= 1:
            reason = f"After {self.periods} periods the deltas come to 1, and nothing is promised any more."
            raise PolicyError("policy-range", reason, hint="Grant a smaller delta.", place="budget.periods")

    @classmethod
    def suggest(cls, items: int, queries: int, users: int) -> Budget:
        """Return a budget to begin with, for so many items and queries and about so many users, a public number.

        docs/reference/budget.md#suggested-totals says how. Raises `PolicyError` if that takes an epsilon above 10.

        >>> budget = Budget.suggest(100, 20, users=10_000)
        >>> budget.epsilon, budget.delta
        (Epsilon(1.41), Delta(1e-06))
        """
        epsilon, delta = suggested(items, users=users)
        return cls(epsilon, delta, items=items, queries=queries)


@dataclass(frozen=True, slots=True, init=False)
class Policy:
    """Policy: what is protected, and what may be spent. A table that is not named here does not exist for analysts.

    The arguments are the keys and tables of a policy file (docs/reference/policy.md). Without a `ledger`, spending is
    recorded in memory.

    >>> from dpsql.policy import PrivateTable, PublicTable
    >>> policy = Policy(Budget(1, "1e-6"), {"reads": PrivateTable("user_id"), "countries": PublicTable()})
    >>> policy.budget.delta
    Delta(1e-06)
    """

    budget: Budget
    tables: Mapping[str, Table]
    ledger: Path | DatabaseUrl | None
    limits: Limits
    analysts: Mapping[str, Analyst]
    data_version: int | None
    engine: EngineSettings
    server: ServerSettings
    source: DataSource | None
    materialized: Path | None
    implicit: bool
    lines: Lines | None = field(init=False, repr=False, compare=False)

    def __init__(  # noqa: PLR0913 - the keys of a policy file
        self,
        budget: Budget,
        tables: Mapping[str, Table],
        *,
        ledger: Path | DatabaseUrl | str | None = None,
        limits: Limits | None = None,
        analysts: Mapping[str, Analyst] | None = None,
        data_version: int | None = None,
        engine: EngineSettings | None = None,
        server: ServerSettings | None = None,
        source: DataSource | None = None,
        materialized: Path | str | None = None,
        implicit: bool = False,
    ) -> None:
        if not isinstance(budget, Budget):
            raise wrong_type("a dpsql.Budget", budget, place="budget")
        parts = {"limits": limits, "engine": engine, "server": server, "source": source}
        kinds = {"limits": Limits, "engine": EngineSettings, "server": ServerSettings, "source": DataSource}
        for name, part in parts.items():
            if part is not None and not isinstance(part, kinds[name]):
                raise wrong_type(f"dpsql.{kinds[name].__name__}", part, place=name)
        fill(self, budget=budget, lines=None, source=source)
        fill(self, engine=EngineSettings() if engine is None else engine)
        fill(self, server=ServerSettings() if server is None else server)
        fill(self, tables=check_tables(tables))
        check_links(self.tables)
        fill(self, ledger=_ledger(ledger))
        fill(self, limits=Limits() if limits is None else limits)
        fill(self, analysts=check_analysts(analysts, budget.epsilon, delta=budget.delta))
        fill(self, data_version=check_version(data_version))
        fill(self, materialized=None if materialized is None else check_path(materialized, "materialized"))
        fill(self, implicit=check_flag(implicit, "sql.implicit"))
        check_folder(self.tables, self.materialized, source=self.source)

    @classmethod
    def from_toml(cls, path: Path | str) -> Policy:
        """Read a policy file; paths in it are relative to it. Raises `PolicyError`, with the line of what is wrong."""
        file = check_path(path, "policy").absolute()
        root = read_toml(file)
        root.only(
            *"ledger budget limits tables analysts data_version engine server source materialized sql".split(),
        )
        root.require("budget", "tables")
        ledger, version = root.text("ledger"), root.whole("data_version") if "data_version" in root.values else None
        budget, limits, tables = _read_budget(root), read_limits(root), read_tables(root, file.parent)
        listed, engine, server = root.section("analysts"), read_engine(root), read_server(root, file.parent)
        source, sql = read_source(root, file.parent), root.section("sql")
        sql.only("implicit")
        analysts = {name: read_analyst(listed.section(name)) for name in listed.values}
        with root.placing():
            place = DatabaseUrl.of(ledger) if ledger and is_url(ledger) else beside(file.parent, ledger, place="ledger")
            materialized = beside(file.parent, root.text("materialized"), place="materialized")
            make = partial(cls, budget, tables, ledger=place, limits=limits, analysts=analysts, data_version=version)
            implicit = sql.flag("implicit") or False
            policy = make(engine=engine, server=server, source=source, materialized=materialized, implicit=implicit)
        fill(policy, lines=root.lines)
        return policy

    def analyst(self, name: str | None) -> Analyst | None:
        """Return the limit of an analyst, or of one who gives no name: their own, the unlisted's, or None, the total.

        Raises `Refusal` for one who may not ask, and `UsageError` for what is no name.
        """
        check_asking(name)
        found = self.analysts.get(name or UNLISTED, self.analysts.get(UNLISTED))
        if found is not None and not found.enabled:
            hint = "Ask the curator: the policy says who may."
            raise Refusal("analyst-disabled", "This analyst may not run queries.", hint=hint)
        return found

    def only(self, names: Iterable[str]) -> Policy:
        """Return this policy with no tables but these."""
        part = replace(self, tables={name: self.tables[name] for name in names})
        fill(part, lines=self.lines)
        return part

    @property
    def needs_database(self) -> bool:
        """Whether it leaves open where a table is: it names neither an engine nor a file for it."""
        return self.source is None and any(table.source is None for table in self.tables.values())

    def with_budget(self, budget: Budget) -> Policy:
        """Return this policy with another budget; limits of analysts may exceed it."""
        # Not replace(), which would check the limits of analysts against the new total.
        other = copy(self)
        fill(other, budget=budget)
        return other

    def with_implicit(self, implicit: bool) -> Policy:  # noqa: FBT001 - the value of a setting
        """Return this policy, with standard SQL over private tables read as private or not."""
        other = copy(self)
        fill(other, implicit=check_flag(implicit, "sql.implicit"))
        return other

    def with_consent(self, consent: bool) -> Policy:  # noqa: FBT001 - the value of a setting
        """Return this policy, with queries that can hardly return a row run without asking for consent or not."""
        other = copy(self)
        fill(other, limits=replace(self.limits, consent=consent))
        return other

    def where(self, key_path: str) -> str:
        """Return `key_path`, with file and line if this policy was read from a file that has the key."""
        return key_path if self.lines is None else self.lines.where(key_path)

    def __reduce__(self) -> tuple[object, ...]:
        """Copy and pickle by the arguments: a read-only mapping itself cannot be pickled."""
        make = partial(Policy, self.budget, dict(self.tables), ledger=self.ledger, limits=self.limits)
        make = partial(make, analysts=dict(self.analysts), data_version=self.data_version, engine=self.engine)
        make = partial(make, server=self.server, source=self.source, materialized=self.materialized)
        make = partial(make, implicit=self.implicit)
        return _placed, (make, self.lines)


def _placed(make: partial[Policy], lines: Lines | None) -> Policy:
    """Return a policy whose errors are placed in the file it came from."""
    policy = make()
    fill(policy, lines=lines)
    return policy


def _ledger(given: Path | DatabaseUrl | str | None) -> Path | DatabaseUrl | None:
    if isinstance(given, DatabaseUrl) or given is None:
        return given
    return DatabaseUrl.of(given) if is_url(given) else check_path(given, "ledger")


def _read_budget(root: Section) -> Budget:
    section = root.section("budget")
    section.only(*_BUDGET_KEYS)
    section.require("epsilon", "delta")
    values = section.read(_BUDGET_KEYS)
    with root.placing():
        return Budget(**values)


_BUDGET_KEYS = {
    "epsilon": "number",
    "delta": "number",
    "items": "whole",
    "queries": "whole",
    "period": "text",
    "periods": "whole",
    "certificate": "text",
}


def load_policy(given: Policy | str | Path | None) -> Policy:
    """Return a policy as it is given, from the TOML file at a path, or from the default one.

    Raises `PolicyError`, also if there is none.
    """
    return given if isinstance(given, Policy) else Policy.from_toml(default_policy() if given is None else given)


def default_policy() -> Path:
    """Return $DPSQL_POLICY, or policy.toml where it exists; raise `PolicyError` if there is neither."""
    named = os.environ.get("DPSQL_POLICY")
    if named:
        return Path(named)
    here = Path("policy.toml")
    if here.is_file():
        return here
    hint = (
        "Name a policy file (policy=... in Python, --policy on the command line), set DPSQL_POLICY, or run dpsql init."
    )
    raise PolicyError("policy-missing", "No policy is given, and there is no policy.toml here.", hint=hint)


def default_database() -> str | None:
    """Return $DPSQL_DB, or None."""
    return os.environ.get("DPSQL_DB") or None


def default_analyst() -> str | None:
    """Return $DPSQL_ANALYST, or None."""
    return os.environ.get("DPSQL_ANALYST") or None


# Suggestion of epsilon and delta for a start, from public numbers alone. An item of epsilon e ranks two counts that
# differ by g units in their right order with probability 1 / (1 + exp(-e g)). The total is what so many items of
# e^2 / 8 come to, by the conversion of Canonne, Kamath and Steinke 2020 (arXiv:2004.00010, Corollary 13; `maths.md`
# 2.3) at the best of a few orders alpha, each of which is sound. This package cannot import the accounting; tests check
# that the two agree.
_ODDS = 19  # 95 of 100
_LARGEST_DELTA = 6  # as a negative power of ten
_WEAK = 10
_MOST_USERS = 10**9
_DIGITS = 3
_STEPS = 20


def separated(users: int) -> int:
    """Return the difference of counts that an item of a suggested budget ranks correctly in 95 of 100 cases.

    The count of a group that a share p of n users is in has by chance a standard deviation of sqrt(n p (1 - p)), at
    most half of sqrt(n).
    """
    if isinstance(users, bool) or not isinstance(users, int):
        raise wrong_type("a whole number", users, place="users")
    if not 1 <= users <= _MOST_USERS:
        reason = f"The number of users must be at least 1 and at most {_MOST_USERS}."
        raise PolicyError("policy-range", reason, hint="A rough number is enough, and a public one.", place="users")
    # sqrt(users) / 2, rounded up without a float: 10,000 and 9,999 users come to 50, 10,001 to 51.
    return math.isqrt(users - 1) // 2 + 1


def suggested(items: int, *, users: int) -> tuple[Fraction, Fraction]:
    """Return epsilon and delta for so many items; raise `PolicyError` if that epsilon is above 10."""
    item = math.log(_ODDS) / separated(users)
    delta = Fraction(1, 10 ** max(_LARGEST_DELTA, _least_power(users)))
    rho = check_count(items, "budget.items") * item**2 / 8
    epsilon = _rounded_up(_epsilon(rho, math.log(2 / delta)))
    if epsilon > _WEAK:
        reason = f"To rank {items} items among {users} users takes an epsilon of {float(epsilon):g}, a weak guarantee."
        raise PolicyError(
            "policy-suggestion", reason, hint="Plan for fewer items, or choose a budget yourself.", place="items"
        )
    return epsilon, delta


def _least_power(users: int) -> int:
    """Return the least m with 10^-m <= users^-1.5."""
    # Both sides are squared, so that whole numbers are compared.
    return next(m for m in range(15) if 10 ** (2 * m) >= users**3)


def _epsilon(rho: float, level: float) -> float:
    largest = math.sqrt(level / rho)  # alpha - 1 of Bun and Steinke's bound
    return min(_at(rho, level, order=largest * step / _STEPS) for step in range(1, _STEPS + 1))


def _at(rho: float, level: float, *, order: float) -> float:
    # alpha rho + (log(2 / delta) + (alpha - 1) log(1 - 1 / alpha) - log(alpha)) / (alpha - 1); one half of delta is for
    # this, the other one for the queries.
    return (1 + order) * rho + (level - order * math.log1p(1 / order) - math.log1p(order)) / order


def _rounded_up(value: float) -> Fraction:
    grid = Fraction(10) ** (_DIGITS - 1 - math.floor(math.log10(value)))
    return math.ceil(Fraction(value) * grid) / grid
