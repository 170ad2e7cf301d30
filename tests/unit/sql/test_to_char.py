"""TO_CHAR around private queries: what PostgreSQL prints, DuckDB prints under the format that is made of it."""

from __future__ import annotations

import duckdb
import pytest

from dpsql.errors import Unsupported
from dpsql.sql.analysis.outer_tree import rewrite_format

PRINTED = {  # as PostgreSQL 15 prints 2026-03-05 07:08:09.012345, a Thursday
    "YYYY-MM-DD": "2026-03-05",
    "YYYY-MM-DD HH24:MI:SS": "2026-03-05 07:08:09",
    "YYYY-MM-DD HH24:MI:SS.US": "2026-03-05 07:08:09.012345",
    "YYYY-MM-DD HH24:MI:SS.MS": "2026-03-05 07:08:09.012",
    "Mon YY": "Mar 26",
    "FMMonth YYYY": "March 2026",
    "FMDay, DDD": "Thursday, 064",
    "Dy HH12:MI AM": "Thu 07:08 AM",
    "IYYY-IW-ID": "2026-10-4",
    'YYYY"-Q"MM%': "2026-Q03%",
}


def call(form: object, *, kind: str = "STRING") -> dict[str, object]:
    """DuckDB's node of to_char(ts, form)."""
    column = {"expression": {"class": "COLUMN_REF", "type": "COLUMN_REF", "column_names": ["ts"]}}
    return {
        "function_name": "TO_CHAR",
        "arguments": [column, {"expression": {"literal": {"kind": kind, "text": form}}}],
    }


@pytest.mark.parametrize("form", PRINTED)
def test_a_format_prints_what_postgresql_prints(form: str) -> None:
    node = call(form)
    rewrite_format(node, None)
    assert node["function_name"] == "strftime"
    (_, written) = node["arguments"]  # type: ignore[misc]
    moment = "SELECT strftime(TIMESTAMP '2026-03-05 07:08:09.012345', $1)"
    assert duckdb.execute(moment, [written["expression"]["literal"]["text"]]).fetchall() == [(PRINTED[form],)]  # type: ignore[has-type]


@pytest.mark.parametrize("form", ["Q", "YYYY-Month", "month", "fm999", "J", 'a"b'])
def test_a_pattern_without_an_equal_is_refused(form: str) -> None:
    with pytest.raises(Unsupported, match="TO_CHAR") as refused:
        rewrite_format(call(form), None)
    assert "strftime" in refused.value.hint


def test_a_format_that_is_no_text_is_refused_and_other_functions_are_left_alone() -> None:
    with pytest.raises(Unsupported):
        rewrite_format(call("1", kind="INTEGER"), None)
    other = call("x") | {"function_name": "strftime"}
    rewrite_format(other, None)
    assert other == call("x") | {"function_name": "strftime"}


@pytest.mark.parametrize("function", ["to_timestamp", "TO_DATE"])
def test_a_text_with_a_format_is_read_by_strptime(function: str) -> None:
    node = call("YYYY-MM-DD HH24:MI:SS.US") | {"function_name": function}
    rewrite_format(node, None)
    assert node["function_name"] == "strptime"
    (_, written) = node["arguments"]  # type: ignore[misc]
    read = "SELECT strptime('2026-03-05 07:08:09.012345', $1) = TIMESTAMP '2026-03-05 07:08:09.012345'"
    assert duckdb.execute(read, [written["expression"]["literal"]["text"]]).fetchall() == [(True,)]  # type: ignore[has-type]
