"""The mechanisms that a query can name, in the order in which they are listed and, of equal ones, chosen."""

from __future__ import annotations

from collections.abc import Iterable

from dpsql.plan.mechanisms.domain_discovery import DOMAIN_DISCOVERY
from dpsql.plan.mechanisms.gaussian_histogram import GAUSSIAN_HISTOGRAM
from dpsql.plan.mechanisms.joint import JOINT
from dpsql.plan.mechanisms.known_groups import KNOWN_GROUPS
from dpsql.plan.mechanisms.laplace_limited_domain import LAPLACE_LIMITED_DOMAIN
from dpsql.plan.mechanisms.limited_domain import LIMITED_DOMAIN
from dpsql.plan.mechanisms.peeling import PEELING
from dpsql.plan.mechanisms.record import Domain, Mechanism
from dpsql.plan.mechanisms.relay import RELAY
from dpsql.plan.mechanisms.stable import ADAPTIVE, STABLE, TOP_STABLE
from dpsql.plan.mechanisms.weighted_gaussian import WEIGHTED_GAUSSIAN

RECORDS = (
    LIMITED_DOMAIN,
    RELAY,
    GAUSSIAN_HISTOGRAM,
    LAPLACE_LIMITED_DOMAIN,
    WEIGHTED_GAUSSIAN,
    DOMAIN_DISCOVERY,
    STABLE,
    TOP_STABLE,
    PEELING,
    JOINT,
    ADAPTIVE,
    KNOWN_GROUPS,
)


def list_records(*domains: Domain) -> list[Mechanism]:
    """Return the mechanisms for queries of one of these domains, in their order; without domains all of them."""
    return [each for each in RECORDS if not domains or each.domain in domains]


def list_names() -> tuple[str, ...]:
    """Return the values of the option `mechanism`."""
    return ("auto", *names_of(list_records(Domain.UNKNOWN, Domain.KNOWN)))


def names_of(records: Iterable[Mechanism]) -> list[str]:
    """Return the names of mechanisms in SQL."""
    return [each.name for each in records]
