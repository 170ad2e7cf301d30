"""Supported releases of DuckDB, and all differences of the older ones in one place.

The language is that of the newest release. Where an older one raises an error, the value is NULL; where its result has
another type, it is cast. `.ci/versions` runs the tests on the oldest and on the newest release, and finds omissions. It
was not tested whether a row can make a statement fail on other releases, so they are refused; 1.5 is excluded because
it fails to plan some statements with TRY.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from types import MappingProxyType

from dpsql.errors import EngineError

Number = tuple[int, int]
_OUTSIDE_THEIR_DOMAIN = frozenset("sqrt ln log log2 log10 sin cos tan cot asin acos".split())


@dataclass(frozen=True, slots=True)
class DuckDBRelease:
    """Differences of a release from the newest.

    `lacks` are settings that it does not have; `raises` functions that fail on some row where the newest gives a value;
    `casts` functions whose result is of another type, and the type that it is to be. `footers` is the
    ORDER BY that returns the columns of Parquet files in the order of their footers.
    """

    lacks: frozenset[str] = frozenset()
    raises: frozenset[str] = frozenset()
    casts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    footers: str = "ORDER BY file_name, column_id"


RELEASES: Mapping[Number, DuckDBRelease] = MappingProxyType(
    {
        (1, 4): DuckDBRelease(
            lacks=frozenset(["allow_extension_repositories"]),
            raises=_OUTSIDE_THEIR_DOMAIN | {"date_trunc"},  # which casts, and a DATE may be no TIMESTAMP
            casts=MappingProxyType({"date_trunc": "TIMESTAMP"}),  # where it gives days, it gives a DATE
            footers="",  # one thread reads them, and so in order
        ),
        (2, 0): DuckDBRelease(),
    }
)


@cache
def release() -> DuckDBRelease:
    """Return what is so of the DuckDB that is installed. Raises `EngineError` for one that was never tried."""
    installed = version("duckdb")
    found = re.match(r"(\d+)\.(\d+)", installed)
    if found is None or (int(found[1]), int(found[2])) not in RELEASES:
        tried = ", ".join(f"{major}.{minor}" for major, minor in RELEASES)
        raise EngineError(
            "duckdb-version",
            f"This is DuckDB {installed}, with which dpsql was not tested.",
            hint=f"Install DuckDB {tried} or a later patch of one of them.",
        )
    return RELEASES[int(found[1]), int(found[2])]
