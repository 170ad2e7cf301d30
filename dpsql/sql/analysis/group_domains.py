"""Domains of the keys of ALL PRIVATE: from the statement, or by the option `domain` for one key that it does not tell.

Several keys have all combinations of their values.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.errors import Place, Refusal
from dpsql.sql.analysis.calendar import is_time_bucket, missing_bounds, read_calendar
from dpsql.sql.analysis.domain import is_released, read_domain, read_values
from dpsql.sql.analysis.known_groups import MOST_GROUPS, check_number_of_groups
from dpsql.sql.analysis.known_values import find_year_column, list_known_values
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.statements import Domain, KeyDomain, LiteralDomain, Option, PrivateQuery, ProductDomain
from dpsql.sql.ir.tree import Call, Expression, FromWhere, Literal, strip_casts

__all__ = ["check_groups_known", "needs_bounds", "read_group_domain"]


def needs_bounds(key: Expression) -> bool:
    """Return whether bounds in WHERE decide which values a key has."""
    return is_time_bucket(key) or find_year_column(key) is not None


def read_group_domain(
    keys: Sequence[Expression], body: FromWhere, *, option: Option | None, catalog: Catalog, place: Place
) -> tuple[Domain | None, str]:
    """Return the domain of the keys, None where one has none, and in words which time buckets WHERE cuts.

    Raises `Refusal` for a calendar without bounds, for an option that no key needs, and for too many groups.
    """
    if option is not None and (len(keys) == 1 or is_released(option)):
        return read_domain(option, tuple(keys), catalog=catalog), ""
    values = [None if is_time_bucket(key) else list_known_values(key, body, catalog=catalog) for key in keys]
    open_keys = [key for key, found in zip(keys, values, strict=True) if found is None and not is_time_bucket(key)]
    if option is not None and not open_keys:
        reason = "The statement determines the values of every key."
        raise Refusal("domain", reason, hint="Leave the domain out.", place=option.place)
    if option is not None and len(open_keys) > 1:
        hint = "Group by one of them, or leave the domain out and write TOP 10 PRIVATE."
        reason = "The domain is that of one key, and more keys have no known values."
        raise Refusal("keys", reason, hint=hint, place=option.place)
    if open_keys and option is None:
        return None, ""
    factors, cuts = list[KeyDomain](), list[str]()
    for key, found in zip(keys, values, strict=True):
        calendar = read_calendar(key, body, catalog=catalog, place=place)
        if calendar is not None:
            factors.append(calendar.domain)
            cuts += filter(None, [calendar.cut])
        elif found is not None:
            factors.append(LiteralDomain(found))
        elif option is not None:
            factors.append(read_values("domain", option, key=key, catalog=catalog))
    domain: Domain = factors[0] if len(factors) == 1 else ProductDomain(tuple(factors))
    check_number_of_groups(domain, place=place)
    return domain, "; ".join(cuts)


def check_groups_known(query: PrivateQuery, *, catalog: Catalog) -> None:
    """Refuse ALL PRIVATE with a key whose values are not known, and say what would make them known."""
    if query.clause.shape != "all" or query.domain is not None:
        return
    place = query.clause.place
    for key in query.keys:
        column = find_year_column(key)
        if column is not None:
            raise missing_bounds(column, query.body, catalog=catalog, place=place)
        match strip_casts(key):
            case Call(function="date_part", arguments=(Literal(value=str(part)), _)):
                hint = "Write date_trunc('day', ts) in its place, with ts >= ... AND ts < ... in WHERE."
                reason = f"There are too many values of {part} to release each."
                raise Refusal("domain", reason, hint=hint, place=place)
    if len(query.keys) > 1:
        reason = f"ALL PRIVATE needs every key's values: from bounds, CASE or a domain, {MOST_GROUPS:,} groups at most."
        raise Refusal("keys", reason, hint="Group by one key, or write TOP 10 PRIVATE.", place=place)
