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
    "EVERY_AGGREGATE",
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
EVERY_AGGREGATE = frozenset(  # of DuckDB, with the macros that are made of them
    "any_value approx_count_distinct approx_quantile approx_top_k arbitrary arg_max arg_max_null arg_max_nulls_last "
    "arg_min arg_min_null arg_min_nulls_last argmax argmin array_agg avg bit_and bit_or bit_xor bitstring_agg bool_and "
    "bool_or combine_aggr corr count count_if count_star countif covar_pop covar_samp decimal_average entropy favg "
    "first fsum geomean geometric_mean group_concat grouping grouping_id histogram histogram_exact kahan_sum kurtosis "
    "kurtosis_pop last list listagg lttb mad max max_by mean median min min_by mode percentile_cont percentile_disc "
    "product quantile quantile_cont quantile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope "
    "regr_sxx regr_sxy regr_syy reservoir_quantile sem skewness stddev stddev_pop stddev_samp string_agg sum "
    "sum_no_overflow sumkahan var_pop var_samp variance variant_group_array variant_group_object wavg "
    "weighted_avg".split()
)
REFUSED = INSIDE | EVERY_AGGREGATE | {"last_value", "nth_value", "random", "uuid"}


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
