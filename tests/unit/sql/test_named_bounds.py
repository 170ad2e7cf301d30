"""Named arguments of aggregates: which function has which bounds, and what is refused with the words to write."""

from __future__ import annotations

import pytest

from dpsql.errors import Refusal
from dpsql.sql.lexer import scan
from dpsql.sql.syntax.aggregate_forms import PER_GROUP, PER_ROW, STATED, state_bounds

OF_GROUP = ["SUM(x", "AVG(x", "COUNT(*", "COUNT(x"]
OF_ROW = [
    *("PERCENTILE_CONT(x, 0.5", "PERCENTILE_DISC(x, 0.5", "QUANTILE_CONT(x, 0.5", "QUANTILE(x, 0.5"),
    *("MEDIAN(x", "APPROX_QUANTILES(x, 4", "VAR_POP(x", "VAR_SAMP(x", "VARIANCE(x"),
    *("STDDEV_POP(x", "STDDEV_SAMP(x", "STDDEV(x"),
]


def read(call: str) -> list[str]:
    """Return the words of a SELECT with the call, as sqlglot gets them."""
    statement = scan(f"SELECT {call} AS v FROM t")
    return [token.text for token in state_bounds(statement, list(statement.tokens))]


@pytest.mark.parametrize("called", [f"{each}, {PER_GROUP}" for each in OF_GROUP] + [f"{e}, {PER_ROW}" for e in OF_ROW])
def test_each_function_has_one_of_the_two(called: str) -> None:
    words = read(f"{called} => (0, 9))")
    assert words[words.index(STATED) :][:6] == [STATED, "(", "0", ",", "9", ")"]
    assert "=>" not in words


REFUSED = [
    *(f"{each}, {PER_ROW} => (0, 9))" for each in OF_GROUP),
    *(f"{each}, {PER_GROUP} => (0, 9))" for each in OF_ROW),
    f"MAX(x, {PER_ROW} => (0, 9))",
    f"MAX(x, {PER_GROUP} => (0, 9))",
    f"SUM(x, {PER_GROUP} => 9)",
    f"SUM(x, {PER_GROUP} => (0, 1, 2))",
    f"VAR_POP(x, {PER_ROW} => (0, 1), x)",
    "SUM(x, bounds => (0, 1))",
]


@pytest.mark.parametrize("call", REFUSED)
def test_the_other_is_refused_with_a_call_that_is_read(call: str) -> None:
    with pytest.raises(Refusal) as refused:
        read(call)
    hint = refused.value.hint or ""
    proposed = hint[hint.rindex("Write ") + len("Write ") :].rstrip(".").replace("...", "x")
    assert STATED in read(proposed)
    if call in REFUSED[: len(OF_GROUP) + len(OF_ROW)]:
        assert proposed.split("(")[0] in {
            call.split("(", maxsplit=1)[0],
            "SUM",
        }  # of the same function where it has bounds
