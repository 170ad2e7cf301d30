"""Rows that concern two people, such as a message with its sender and its receiver: refused, with what to do.

A row belongs to one privacy unit. With the sender as the unit, a receiver is not protected: without that receiver all
messages to them are gone, which changes the rows of any number of units. What each unit adds could be bounded for both
only if the rows of one person did not depend on those of others, which sampling or weighing rows by both does.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.dialects import write_name
from dpsql.errors import PolicyError

_PAGE = "docs/how-to/two-people-in-a-row.md"


def refuse_shared_rows(units: Sequence[object], *, table: str = "messages", place: str | None = None) -> PolicyError:
    """Return the refusal of several privacy units of one row; its hint has a view with one row for each person."""
    named = [unit for unit in units if isinstance(unit, str)]
    names = named if len(named) > 1 else ["sender", "receiver"]
    source, left_out = ".".join(map(write_name, table.split("."))), ", ".join(map(write_name, names))
    parts = [
        f"SELECT {write_name(name)} AS person, '{name.replace(chr(39), chr(39) * 2)}' AS role, "  # noqa: S608 - a hint
        f"* EXCLUDE ({left_out}) FROM {source}"
        for name in names
    ]
    hint = (
        f"Make a view with one row for each person: CREATE VIEW people_of_{table.rpartition('.')[2]} AS "
        f'{" UNION ALL ".join(parts)}; and write privacy_unit = "person" of it ({_PAGE}).'
    )
    reason = "A row belongs to one privacy unit: with one of these columns, the people in the other are not protected."
    return PolicyError("policy-two-people", reason, hint=hint, place=place)
