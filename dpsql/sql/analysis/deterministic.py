"""Recognition of SELECTs in DuckDB's own SQL that return the same from the same rows, whenever they are run.

Functions are known by a list, as DuckDB calls some readings of the clock consistent. A SELECT that is not recognised is
run each time, so a function that is missing here costs time alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dpsql.sql.lexer import ascii_lower

__all__ = ["DETERMINISTIC", "is_deterministic"]

DETERMINISTIC = frozenset(
    """
    + - * / // % ** ^ || ~~ !~~ ~~* !~~* & | << >> ~ !
    abs array_contains array_extract array_length avg bool_and bool_or ceil ceiling char_length concat concat_ws
    contains count count_star date_diff date_part date_trunc datediff datepart datetrunc day dense_rank exp
    first_value floor generate_series greatest if ifnull instr isnan lag last_value lead least left len length
    like_escape list_aggregate list_avg list_contains list_count list_extract list_max list_min list_sort list_sum
    list_value ln log log10 lower lpad ltrim max md5 median min mod month not_like_escape nullif power pow
    quantile_cont quantile_disc quarter range rank regexp_extract regexp_full_match regexp_matches regexp_replace
    repeat replace reverse right round row row_number rpad rtrim sign split_part sqrt starts_with stddev stddev_pop
    stddev_samp strftime string_split string_to_array strlen struct_extract struct_pack strptime substr substring
    sum to_days to_hours to_minutes to_months to_seconds to_years trim trunc ucase lcase unnest upper var_pop
    var_samp variance week weekday year
    """.split()
)
_CLOCK_OR_USER = ("current_", "local", "user", "session_user", "now", "today")  # beginnings of words without ( )


def is_deterministic(nodes: Iterable[Mapping[str, object]]) -> bool:
    """Return whether the nodes of a syntax tree take no sample, and call listed functions alone."""
    return not any(each.get("sample") or _may_change(each) for each in nodes)


def _may_change(node: Mapping[str, object]) -> bool:
    columns = node.get("column_names")
    if isinstance(columns, list):
        return any(ascii_lower(str(name)).startswith(_CLOCK_OR_USER) for name in columns)
    function = node.get("function_name")
    return function is not None and ascii_lower(str(function)) not in DETERMINISTIC
