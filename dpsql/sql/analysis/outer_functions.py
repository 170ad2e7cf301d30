"""Recognition of SELECTs in DuckDB's own SQL that return the same from the same rows, whenever they are run.

Functions are known by a list, as DuckDB calls some readings of the clock consistent. A SELECT that is not recognised is
run each time, so a function that is missing here costs time alone.

Rewrite of PostgreSQL's TO_CHAR, TO_TIMESTAMP and TO_DATE with a format, in a SELECT around private queries: DuckDB has
strftime and strptime. A date is compared as its midnight.

to_char(ts, 'YYYY-MM-DD HH24:MI')        strftime(ts, '%Y-%m-%d %H:%M')
to_date('2026-01-02', 'YYYY-MM-DD')      strptime('2026-01-02', '%Y-%m-%d')
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import cast

from dpsql.errors import Place, Unsupported
from dpsql.sql.lexer import ascii_lower

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
Tree = dict[str, object]
PATTERNS = {
    "YYYY": "%Y",
    "YY": "%y",
    "MM": "%m",
    "Mon": "%b",
    "FMMonth": "%B",
    "DDD": "%j",
    "DD": "%d",
    "Dy": "%a",
    "FMDay": "%A",
    "HH24": "%H",
    "HH12": "%I",
    "HH": "%I",
    "MI": "%M",
    "SS": "%S",
    "MS": "%g",
    "US": "%f",
    "AM": "%p",
    "PM": "%p",
    "IYYY": "%G",
    "IW": "%V",
    "ID": "%u",
}
_WITH_FORMAT = {"to_char": "strftime", "to_timestamp": "strptime", "to_date": "strptime"}
_TOKEN = re.compile(f'({"|".join(sorted(PATTERNS, key=len, reverse=True))})|"([^"]*)"|([^A-Za-z"])')


def is_deterministic(nodes: Iterable[Mapping[str, object]]) -> bool:
    """Return whether the nodes of a syntax tree take no sample, and call listed functions alone."""
    return not any(each.get("sample") or _may_change(each) for each in nodes)


def _may_change(node: Mapping[str, object]) -> bool:
    columns = node.get("column_names")
    if isinstance(columns, list):
        return any(ascii_lower(str(name)).startswith(_CLOCK_OR_USER) for name in columns)
    function = node.get("function_name")
    return function is not None and ascii_lower(str(function)) not in DETERMINISTIC


def rewrite_format(node: Tree, place: Place | None) -> None:
    """Make strftime or strptime of a call with PostgreSQL's format in DuckDB's tree; leave any other call as it is.

    Raises `Unsupported` for a format that is no literal, or has a pattern that DuckDB lacks.
    """
    arguments = cast("list[Tree]", node.get("arguments") or [])
    function = ascii_lower(str(node["function_name"]))
    if function not in _WITH_FORMAT or len(arguments) != len(("value", "format")):
        return
    instead = _WITH_FORMAT[function]
    literal = cast("Tree", arguments[1]["expression"]).get("literal")
    text = literal.get("text") if isinstance(literal, dict) and literal.get("kind") == "STRING" else None
    form = None if text is None else translate_format(str(text))
    if form is None or not isinstance(literal, dict):
        hint = f"Write {instead}(x, '%Y-%m-%d'), or {function} with a literal of {', '.join(sorted(PATTERNS))}."
        raise Unsupported("function", f"This format of {function.upper()} is not known.", hint=hint, place=place)
    literal["text"] = form
    node["function_name"] = instead
    node["qualified_name"] = {"path": [instead]}


def translate_format(text: str) -> str | None:
    """Return a format of TO_CHAR as one of strftime; None for one that has no equal."""
    found, at = "", 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            return None
        pattern, quoted, other = token.groups()
        found += PATTERNS[pattern] if pattern else (quoted if quoted is not None else other).replace("%", "%%")
        at = token.end()
    return found
