"""Ceilings and defaults of queries, and the limits of analysts within the total."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from dpsql.errors import PolicyError, UsageError
from dpsql.policy.toml import Section
from dpsql.policy.validation import check_count, check_delta, check_epsilon, check_flag, fill, wrong_type
from dpsql.quantities import Delta, Epsilon, Number

_DEFAULT_K = 10
_COUNTS = ("default_k", "max_k", "max_k_bar", "max_rows_fetched", "failures_per_day")


@dataclass(frozen=True, slots=True, init=False)
class Limits:
    """Limits of one query; a `max_delta` of None means all the delta that queries draw from.

    The two epsilons are those of an item. Raises `PolicyError` for limits that contradict each other. With
    `share_replays`, the first answer to a query is the answer for all analysts, each of whom is charged in full. An
    analyst with `failures_per_day` failed queries within a day is refused until the day is over. Standard SQL that is
    read as private has `default_k` keys where it does not say how many: 10, or `max_k` if that is less. With
    `max_rows_fetched` only mechanisms answer for which the engine returns at most so many rows for all data.

    >>> Limits(max_k=50).max_k
    50
    """

    max_epsilon: Epsilon
    min_epsilon: Epsilon
    max_delta: Delta | None
    max_k: int
    max_k_bar: int
    share_replays: bool
    failures_per_day: int
    default_k: int
    max_rows_fetched: int | None

    def __init__(  # noqa: PLR0913 - the keys of the table [limits]
        self,
        *,
        max_epsilon: Number | Epsilon = 1,
        min_epsilon: Number | Epsilon = "1e-4",
        max_delta: Number | Delta | None = None,
        max_k: int = 1000,
        max_k_bar: int = 10_000,
        share_replays: bool = False,
        failures_per_day: int = 3,
        default_k: int | None = None,
        max_rows_fetched: int | None = None,
    ) -> None:
        fill(self, max_epsilon=check_epsilon(max_epsilon, "limits.max_epsilon"))
        fill(self, min_epsilon=check_epsilon(min_epsilon, "limits.min_epsilon"))
        fill(self, max_delta=None if max_delta is None else check_delta(max_delta, "limits.max_delta"))
        fill(self, max_k=check_count(max_k, "limits.max_k"))
        fill(self, max_k_bar=check_count(max_k_bar, "limits.max_k_bar"))
        fill(self, share_replays=check_flag(share_replays, "limits.share_replays"))
        usual = min(_DEFAULT_K, self.max_k)
        fill(self, default_k=usual if default_k is None else check_count(default_k, "limits.default_k"))
        rows = max_rows_fetched
        fill(self, max_rows_fetched=None if rows is None else check_count(rows, "limits.max_rows_fetched"))
        fill(self, failures_per_day=check_count(failures_per_day, "limits.failures_per_day"))
        if self.min_epsilon > self.max_epsilon:
            reason = f"The smallest epsilon, {self.min_epsilon}, is above the largest, {self.max_epsilon}."
            raise PolicyError("policy-range", reason, hint="Lower min_epsilon or raise max_epsilon.", place="limits")
        if self.default_k > self.max_k:
            reason = f"default_k = {self.default_k} is above max_k = {self.max_k}, the largest k of a query."
            raise PolicyError("policy-range", reason, hint="Lower default_k or raise max_k.", place="limits")
        if self.max_k > self.max_k_bar:
            reason = (
                f"max_k = {self.max_k} is above max_k_bar = {self.max_k_bar}, the largest number of groups to read."
            )
            raise PolicyError("policy-range", reason, hint="Lower max_k or raise max_k_bar.", place="limits")
        if self.max_rows_fetched is not None and self.max_k >= self.max_rows_fetched:
            reason = (
                f"max_rows_fetched = {self.max_rows_fetched} is too few for max_k = {self.max_k} keys and one more."
            )
            hint = f"Lower max_k or set max_rows_fetched to {self.max_k + 1} or more."
            raise PolicyError("policy-range", reason, hint=hint, place="limits")

    @property
    def most_k_bar(self) -> int:
        """Largest k_bar of a query: of the groups that it reads, one more than k_bar may cross."""
        return self.max_k_bar if self.max_rows_fetched is None else min(self.max_k_bar, self.max_rows_fetched - 1)


def read_limits(root: Section) -> Limits:
    """Return the ceilings that the table [limits] of a policy file describes."""
    section = root.section("limits")
    section.only("max_epsilon", "min_epsilon", "max_delta", *_COUNTS, "share_replays")
    counts = {key: section.whole(key) for key in _COUNTS if key in section.values}
    ceilings = Limits()
    with root.placing():
        return Limits(
            max_epsilon=section.number_or("max_epsilon", ceilings.max_epsilon),
            min_epsilon=section.number_or("min_epsilon", ceilings.min_epsilon),
            max_delta=section.number_or("max_delta", ceilings.max_delta),
            share_replays=section.flag("share_replays") or False,
            **counts,
        )


UNLISTED = "default"  # the name under which a policy says what holds for all whom it does not list
_LONGEST_NAME = 100
_NAME = f"An analyst's name has 1 to {_LONGEST_NAME} printable characters."


@dataclass(frozen=True, slots=True, init=False)
class Analyst:
    """Limit of one analyst within the total, and what it should buy; one who is not `enabled` may run no query.

    An enabled analyst has an `epsilon`. A `delta` of None means that of the total; `items` and `queries` of None mean
    those of the budget.

    >>> Analyst(0.25, items=25).epsilon
    Epsilon(0.25)
    """

    epsilon: Epsilon | None
    delta: Delta | None
    items: int | None
    queries: int | None
    enabled: bool

    def __init__(
        self,
        epsilon: Number | Epsilon | None = None,
        delta: Number | Delta | None = None,
        *,
        items: int | None = None,
        queries: int | None = None,
        enabled: bool = True,
    ) -> None:
        fill(self, epsilon=None if epsilon is None else check_epsilon(epsilon, "epsilon"))
        fill(self, delta=None if delta is None else check_delta(delta, "delta"))
        fill(self, items=None if items is None else check_count(items, "items"))
        fill(self, queries=None if queries is None else check_count(queries, "queries"))
        fill(self, enabled=check_flag(enabled, "enabled"))
        if enabled and epsilon is None:
            hint = "Give the most that the analyst may spend, or write enabled = false."
            raise PolicyError("policy-missing-key", "An analyst has no epsilon.", hint=hint, place="epsilon")


def check_analysts(analysts: Mapping[str, Analyst] | None, epsilon: Epsilon, *, delta: Delta) -> Mapping[str, Analyst]:
    """Return a read-only copy; refuse a limit above the total, (`epsilon`, `delta`)."""
    if analysts is None:
        return MappingProxyType({})
    if not isinstance(analysts, Mapping):
        raise wrong_type("a mapping of names to analysts", analysts, place="analysts")
    for name, analyst in analysts.items():
        if not isinstance(name, str):
            raise wrong_type("text", name, place="analysts")
        if not _is_name(name):
            raise PolicyError("policy-name", _NAME, hint="Write a shorter or plainer name.", place="analysts")
        place = f"analysts.{name}"
        if not isinstance(analyst, Analyst):
            raise wrong_type("a dpsql.Analyst", analyst, place=place)
        for what, limit, total in (("epsilon", analyst.epsilon, epsilon), ("delta", analyst.delta, delta)):
            if limit is not None and limit.value > total.value:
                reason = f"The {what} of an analyst, {limit}, is above the total, {total}."
                hint = "The total holds for all analysts together: lower the one or raise the other."
                raise PolicyError("policy-range", reason, hint=hint, place=f"{place}.{what}")
    return MappingProxyType(dict(analysts))


def check_asking(name: str | None) -> None:
    """Raise `UsageError` unless an analyst may be called so; None is one who gives no name."""
    if name == UNLISTED:
        reason = f'"{UNLISTED}" means all analysts that the policy does not list, and cannot be a name.'
        raise UsageError("analyst-name", reason, hint="Give a name of your own, or none.")
    if name is not None and not _is_name(name):
        raise UsageError("analyst-name", _NAME, hint='Such as analyst="alice".')


def read_analyst(section: Section) -> Analyst:
    """Return the analyst that a table of a policy file describes."""
    section.only("epsilon", "delta", "items", "queries", "enabled")
    enabled = section.flag("enabled")
    limit = section.number_or("epsilon", None), section.number_or("delta", None)
    counts = {key: section.whole(key) for key in ("items", "queries") if key in section.values}
    with section.placing():
        return Analyst(*limit, enabled=enabled is not False, **counts)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 1 <= len(name) <= _LONGEST_NAME and name.isprintable()
