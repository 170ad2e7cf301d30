"""Tables, privacy units, the total budget and the ceilings of a query: what a curator states once.

Everything here is frozen and checked when it is made, so whoever holds a `Policy` holds one that can be kept. Whether
the data has these tables and columns is not known here; that is compared when a session opens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType

from dpsql.errors import PolicyError, Refusal
from dpsql.policy.analysts import UNLISTED, Analyst, check_analysts, check_asking, read_analyst
from dpsql.policy.checks import (
    check_certificate,
    check_columns,
    check_count,
    check_delta,
    check_epsilon,
    check_name,
    check_path,
    check_period,
    check_single_valued,
    check_source,
    check_types,
    check_version,
    fill,
    fold,
    wrong_type,
)
from dpsql.policy.engine import EngineSettings, read_engine
from dpsql.policy.limits import Limits, read_limits
from dpsql.policy.suggestion import suggested
from dpsql.policy.toml import Lines, Section, read_toml
from dpsql.policy.url import DatabaseUrl, is_url
from dpsql.quantities import Delta, Epsilon, Number

__all__ = ["Analyst", "Budget", "EngineSettings", "Limits", "Policy", "PrivateTable", "PublicTable", "Table"]

_OF_UNITS = ("max_groups_contributed", "min_units")
_SINGLE = "one_value_per_unit"
Columns = Sequence[str] | Mapping[str, str] | None


@dataclass(frozen=True, slots=True, init=False)
class Budget:
    """The total for every privacy unit, over all queries and analysts, and what it is meant to buy.

    `items` sets the default per-item epsilon and `queries` the default per-query delta. With a `period`, such as "30d",
    all of it is granted anew in each, without carry-over, and `periods` times at most: what holds in all then grows
    with their number, without end where `periods` is None. `certificate` says what the total is proved with: "zcdp",
    "pure", or, with the numbers of items and queries fixed for good and one epsilon for all items, "theorem2" and
    "optimal".
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
        fill(self, periods=_optional_count(periods, "budget.periods"))
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

        Two counts that differ by half the square root of `users`, as much as chance moves the count of a group that
        half of them are in, then come in the right order in 95 of 100 cases; delta is the largest power of ten that
        is at most 1e-6 and 1 / users^1.5. Raises `PolicyError` if that takes an epsilon above 10, a weak guarantee.

        >>> budget = Budget.suggest(100, 20, users=10_000)
        >>> budget.epsilon, budget.delta
        (Epsilon(1.41), Delta(1e-06))
        """
        epsilon, delta = suggested(items, users=users)
        return cls(epsilon, delta, items=items, queries=queries)


@dataclass(frozen=True, slots=True, init=False)
class PrivateTable:
    """A table whose rows belong to privacy units; with `columns`, only these exist for analysts.

    With a CSV file as its `source`, `columns` maps every name to its type; the types are then kept in `types`, in the
    order of `columns`. Every query of the table is bounded so that a unit counts in at most `max_groups_contributed`
    groups; a query may ask for less, not for more. `min_units` raises the threshold so that a released group has at
    least so many units, except with probability delta: a noisy rule, never an exact test on the data. PER a column of
    `one_value_per_unit` a unit counts under one value alone: the engine sees to it, whatever the data holds.
    """

    privacy_unit: str
    columns: tuple[str, ...] | None
    source: Path | None
    max_groups_contributed: int | None
    min_units: int | None
    one_value_per_unit: tuple[str, ...]
    types: tuple[str, ...] | None = field(init=False)

    def __init__(
        self,
        privacy_unit: str,
        columns: Columns = None,
        *,
        source: Path | str | None = None,
        max_groups_contributed: int | None = None,
        min_units: int | None = None,
        one_value_per_unit: Sequence[str] = (),
    ) -> None:
        fill(self, privacy_unit=check_name(privacy_unit, "privacy_unit"))
        fill(self, columns=check_columns(columns))
        fill(self, source=check_source(source))
        fill(self, types=check_types(columns, self.source))
        fill(self, max_groups_contributed=_optional_count(max_groups_contributed, "max_groups_contributed"))
        fill(self, min_units=_optional_count(min_units, "min_units"))
        fill(self, one_value_per_unit=check_single_valued(one_value_per_unit, self.columns, unit=privacy_unit))
        if self.columns is not None and fold(privacy_unit) not in map(fold, self.columns):
            raise PolicyError(
                "policy-columns",
                f'The list does not contain the privacy unit "{privacy_unit}".',
                hint="Add it to the list; counting distinct units needs it.",
                place="columns",
            )


@dataclass(frozen=True, slots=True, init=False)
class PublicTable:
    """A table that says nothing about any privacy unit; it may be joined. `types` are those of a CSV file's columns."""

    columns: tuple[str, ...] | None
    source: Path | None
    types: tuple[str, ...] | None = field(init=False)

    def __init__(self, columns: Columns = None, *, source: Path | str | None = None) -> None:
        fill(self, columns=check_columns(columns))
        fill(self, source=check_source(source))
        fill(self, types=check_types(columns, self.source))


Table = PrivateTable | PublicTable


@dataclass(frozen=True, slots=True, init=False)
class Policy:
    """What is protected and what may be spent; a table that is not named here does not exist.

    Without a `ledger` the record of what was spent lives in memory. `analysts` says who may spend how much of the
    total; "default" stands for the unlisted, who without it may spend all. `data_version` is the operator's public
    counter of the data, counted up by an act or a schedule, never because the data changed. `engine` says where the
    data is open, and what a statement may take.

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
    ) -> None:
        if not isinstance(budget, Budget):
            raise wrong_type("a dpsql.Budget", budget, place="budget")
        if limits is not None and not isinstance(limits, Limits):
            raise wrong_type("dpsql.Limits", limits, place="limits")
        if engine is not None and not isinstance(engine, EngineSettings):
            raise wrong_type("dpsql.EngineSettings", engine, place="engine")
        fill(self, budget=budget, lines=None)
        fill(self, engine=EngineSettings() if engine is None else engine)
        fill(self, tables=_tables(tables))
        fill(self, ledger=_ledger(ledger))
        fill(self, limits=Limits() if limits is None else limits)
        fill(self, analysts=check_analysts(analysts, budget.epsilon, delta=budget.delta))
        fill(self, data_version=check_version(data_version))

    @classmethod
    def from_toml(cls, path: Path | str) -> Policy:
        """Read a policy file; the paths in it are relative to it."""
        file = check_path(path, "policy").absolute()
        root = read_toml(file)
        root.only("ledger", "budget", "limits", "tables", "analysts", "data_version", "engine")
        root.require("budget", "tables")
        ledger, version = root.text("ledger"), root.whole("data_version") if "data_version" in root.values else None
        budget, limits, tables = _read_budget(root), read_limits(root), _read_tables(root, file.parent)
        listed, engine = root.section("analysts"), read_engine(root)
        analysts = {name: read_analyst(listed.section(name)) for name in listed.values}
        with root.placing():
            place = (
                DatabaseUrl.of(ledger) if ledger and is_url(ledger) else _beside(file.parent, ledger, place="ledger")
            )
            policy = cls(
                budget, tables, ledger=place, limits=limits, analysts=analysts, data_version=version, engine=engine
            )
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
            raise Refusal("analyst-disabled", "This analyst may ask nothing.", hint=hint)
        return found

    def only(self, names: Iterable[str]) -> Policy:
        """Return this policy with no tables but these."""
        part = replace(self, tables={name: self.tables[name] for name in names})
        fill(part, lines=self.lines)
        return part

    def where(self, key_path: str) -> str:
        """Return `key_path`, with file and line if this policy came from a file in which the key stands."""
        return key_path if self.lines is None else self.lines.where(key_path)

    def __reduce__(self) -> tuple[object, ...]:
        """Copy and pickle by the arguments: a read-only mapping itself cannot be pickled."""
        make = partial(Policy, self.budget, dict(self.tables), ledger=self.ledger, limits=self.limits)
        make = partial(make, analysts=dict(self.analysts), data_version=self.data_version, engine=self.engine)
        return _placed, (make, self.lines)


def _placed(make: partial[Policy], lines: Lines | None) -> Policy:
    """Return a policy whose errors are placed in the file it came from."""
    policy = make()
    fill(policy, lines=lines)
    return policy


def _optional_count(value: int | None, place: str) -> int | None:
    return None if value is None else check_count(value, place)


def _ledger(given: Path | DatabaseUrl | str | None) -> Path | DatabaseUrl | None:
    if isinstance(given, DatabaseUrl) or given is None:
        return given
    return DatabaseUrl.of(given) if is_url(given) else check_path(given, "ledger")


def _tables(tables: Mapping[str, Table]) -> Mapping[str, Table]:
    """Return an unchangeable copy in which no data stands twice, once guarded and once not."""
    if not isinstance(tables, Mapping):
        raise wrong_type("a mapping of names to tables", tables, place="tables")
    if not tables:
        raise PolicyError("policy-tables", "The policy names no table.", hint="Name at least one.", place="tables")
    data: dict[object, str] = {}
    for name, table in tables.items():
        check_name(name, "tables")
        if not isinstance(table, PrivateTable | PublicTable):
            raise wrong_type("a dpsql.PrivateTable or a dpsql.PublicTable", table, place=f"tables.{name}")
        for identity in _identities(name, table):
            if data.setdefault(identity, name) != name:
                reason = f'The tables "{data[identity]}" and "{name}" are the same; case and "main." do not count.'
                hint = "Declare every table, and every source, once."
                raise PolicyError("policy-duplicate-table", reason, hint=hint, place=f"tables.{name}")
    return MappingProxyType(dict(tables))


def _identities(name: str, table: Table) -> tuple[object, ...]:
    """Return what tells a table apart: its name in statements, where the schema main may be left out, and its file."""
    spoken = fold(name).removeprefix("main.")
    return (spoken,) if table.source is None else (spoken, table.source.resolve())


def _read_budget(root: Section) -> Budget:
    section = root.section("budget")
    section.only("epsilon", "delta", "items", "queries", "period", "periods", "certificate")
    epsilon, delta = section.number("epsilon"), section.number("delta")
    counts = {key: section.whole(key) for key in ("items", "queries", "periods") if key in section.values}
    with root.placing():
        certificate = "zcdp" if (given := section.text("certificate")) is None else given
        return Budget(epsilon, delta, period=section.text("period"), certificate=certificate, **counts)


def _read_tables(root: Section, folder: Path) -> dict[str, Table]:
    tables = root.section("tables")
    return {name: _read_table(tables.section(name), folder) for name in tables.values}


def _read_table(section: Section, folder: Path) -> Table:
    section.only("privacy_unit", "public", "columns", "source", *_OF_UNITS, _SINGLE)
    unit, public = section.text("privacy_unit"), section.flag("public")
    if (unit is None) == (public is None) or public is False:
        raise PolicyError(
            "policy-table",
            "A table must say either who is protected in it or that it is public.",
            hint='Write one of privacy_unit = "..." and public = true.',
            place=section.where("public") if public is not None else section.where(),
        )
    columns, given = section.texts_or_table("columns"), section.text("source")
    counts = {key: section.whole(key) for key in _OF_UNITS if key in section.values}
    single = section.texts(_SINGLE)
    with section.placing():
        source = _beside(folder, given, place="source")
        if unit is not None:
            return PrivateTable(unit, columns, source=source, one_value_per_unit=single or (), **counts)
        for key in counts if single is None else (*counts, _SINGLE):
            reason = f"A public table has no privacy units, so {key} means nothing in it."
            raise PolicyError("policy-public", reason, hint="Leave it out, or name the privacy_unit.", place=key)
        return PublicTable(columns, source=source)


def _beside(folder: Path, given: str | None, *, place: str) -> Path | None:
    """Return a path of the file, which is relative to it; what only `connect` may say is no file."""
    if given == ":memory:":
        hint = 'Leave the ledger out, or pass ledger=":memory:" to connect for a trial.'
        raise PolicyError("policy-path", "A policy names files.", hint=hint, place=place)
    return None if given is None else folder / check_path(given, place)
