"""The allow-list: every function a statement may call, with its types, its growth and whether it can raise.

Every function here is deterministic, reads one row only, and is total, or made total by TRY. What does not follow from
the types is required of the text: patterns, formats, parts and positions must be literals, which are checked before any
row is read. DuckDB has no such list; the tests check ours on adversarial values.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from dpsql.errors import Place
from dpsql.sql.functions.numeric import NUMBER_FUNCTIONS
from dpsql.sql.functions.signatures import COLUMN_CAP, MAX_VALUE_LENGTH, PatternCheck, Rule, Site
from dpsql.sql.functions.temporal import TIME_FUNCTIONS, date_part
from dpsql.sql.functions.text import TEXT_FUNCTIONS
from dpsql.sql.ir.tree import Expression

__all__ = [
    "AGGREGATES",
    "COLUMN_CAP",
    "FUNCTIONS",
    "INSIDE",
    "INTERVAL_ENDS",
    "MAX_VALUE_LENGTH",
    "REFUSED",
    "TAKES_INTERVAL",
    "WINDOWS",
    "PatternCheck",
    "call",
    "date_part",
]

FUNCTIONS: dict[str, Rule] = {**TEXT_FUNCTIONS, **NUMBER_FUNCTIONS, **TIME_FUNCTIONS}
TAKES_INTERVAL = frozenset(["time_bucket", "date_add"])

AGGREGATES = frozenset(["sum", "avg", "min", "max"])  # besides count, and over public tables alone
WINDOWS = frozenset("row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value".split())
INTERVAL_ENDS = frozenset(["value_low", "value_high"])  # of measures that a private query releases
INSIDE = AGGREGATES | WINDOWS  # what subqueries may call
REFUSED = INSIDE | {"last_value", "nth_value"}
REFUSED |= frozenset(
    "mean median mode stddev variance quantile any_value first last arg_min arg_max min_by max_by array_agg list "
    "string_agg group_concat histogram bool_or bool_and bit_or bit_and count_if approx_count_distinct random "
    "uuid".split()
)


def call(
    name: str,
    arguments: tuple[Expression, ...],
    *,
    place: Place,
    accepts_pattern: PatternCheck,
    now: Callable[[], datetime],
) -> Expression:
    """Return the typed call of an allow-listed function; refuse arguments that could raise or grow without bound.

    `now` reads the clock of the statement.
    """
    return FUNCTIONS[name](Site(name, arguments, place, accepts_pattern, now))
