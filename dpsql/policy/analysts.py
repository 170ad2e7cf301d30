"""Analysts, and how much of the total each may spend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from dpsql.errors import PolicyError, UsageError
from dpsql.policy.toml import Section
from dpsql.policy.validation import check_count, check_delta, check_epsilon, check_flag, fill, wrong_type
from dpsql.quantities import Delta, Epsilon, Number

__all__ = ["UNLISTED", "Analyst", "check_analysts", "check_asking", "read_analyst"]

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
