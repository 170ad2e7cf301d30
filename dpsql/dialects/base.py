"""A dialect: how the calls of the language are written for an engine that is not DuckDB.

The language is DuckDB's, whatever holds the data. A **form** is the text by which an engine computes what DuckDB would:
the same value for every row that can be stored, NULL where DuckDB gives NULL or would fail, and never an error, which
could depend on one unit's row. So forms are an allow-list: what a dialect has no form for is refused, as `Unsupported`,
before anything is read or charged. The conformance tests hold every form against DuckDB, on values chosen to break it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

__all__ = ["DUCKDB", "Dialect", "find_family"]

_INTEGERS = frozenset("TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER".split())


@dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """The SQL of an engine: its `name` in sentences, sqlglot's name for it, and its `forms`.

    A form stands under the name of an operator or function (`sql/functions.py`), with the families of its operands'
    types behind it where they matter: "<" is for any, "< TEXT" for text, "cast INTEGER TEXT" from and to; that of the
    most words is taken. In it {0}, {1} are the operands, {*} all of them and {1*} those from number 1 on, {type} is the
    type of the result as the engine names it, {least} and {greatest} the ends of an integer or decimal type, {below}
    and {above} the first values beyond them, {width} and {scale} the digits, in all and behind the point, of
    the DECIMAL that is the result or else {0}.

    What a word tells, as in date_part, stands behind a point: "date_part.year DATE"; "round.2 DOUBLE" is for 2 digits.
    "like_backslash TEXT" is for any LIKE, its pattern one in which a backslash escapes %, _ and itself.

    Three are left out where SQL says it: "column TEXT" is how a column is read that may hold what its type does not say
    (read twice, it must be as if read once), "literal TEXT" how a bound value gets its type, "order TEXT" what ORDER BY
    sorts by. `types` are those that the engine names otherwise than sqlglot thinks. `parameter` is how the value number
    {n} is written, from 1. With `materialized`, AS MATERIALIZED is kept.

    `lacks` are the joins, set operations and types that the engine does not have, or has otherwise, of which "SEMI"
    and "ANTI" are written as EXISTS where that says the same; "FULL unequal" for a FULL JOIN by anything but an
    equality of its two sides, and so for other kinds; "nested" for joins in parentheses; "avg OVER" for a form of
    avg that is no one call, and so none in a window; "correlated" for subqueries that name the row outside; "NaN"
    where a value cannot be that; and "IN" where IN takes NULL for a value: it is then written as equalities, and IN
    (SELECT ...) by the form "in_query".
    """

    name: str
    sqlglot: str
    forms: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    parameter: str = "${n}"
    materialized: bool = False
    lacks: frozenset[str] = frozenset()
    types: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def form(self, function: str, families: tuple[str, ...]) -> str | None:
        """Return the form of a call whose operands' types are of these families; None where there is none.

        One of fewer words is for any operands behind those that it names, but must have a place for each. The last
        that is looked for is "lag/2", for two operands of any types.
        """
        for words in range(len(families), -1, -1):
            form = self.forms.get(" ".join((function, *families[:words])))
            if form is not None and (function == "cast" or _has_room(form, range(words, len(families)))):
                return form
        return self.forms.get(f"{function}/{len(families)}")


DUCKDB = Dialect("DuckDB", "duckdb")  # the language itself: written as it is, not by forms


def find_family(type_: str) -> str:
    """Return the word by which forms name a type of a column: TEXT, INTEGER, DECIMAL, or the type's own name."""
    return "TEXT" if type_ == "VARCHAR" else "INTEGER" if type_ in _INTEGERS else type_.partition("(")[0]


def _has_room(form: str, operands: range) -> bool:
    """Say whether a form has a place for these operands."""
    return "*}" in form or all(f"{{{at}}}" in form for at in operands)
