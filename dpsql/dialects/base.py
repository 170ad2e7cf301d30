"""Dialect: the text of operators and functions for an engine other than DuckDB.

The language is DuckDB's for every engine. A **form** is the text with which an engine computes what DuckDB would: the
same value for every row that can be stored, NULL where DuckDB gives NULL or would fail, and never an error, which could
depend on one unit's row. Forms are therefore an allow-list: a call without a form is refused, as `Unsupported`, before
anything is read or charged. The conformance tests compare every form with DuckDB, on values chosen to break it.
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

    The key of a form is the name of an operator or function (`sql/functions`), followed by the type families of its
    operands where they matter: "<" is for all types, "< TEXT" for text, "cast INTEGER TEXT" from and to. The key with
    the most words is used. In a form, {0} and {1} are the operands, {*} all of them and {1*} those from number 1 on;
    {type} is the type of the result as the engine names it; {least} and {greatest} are the ends of an integer or
    decimal type, {below} and {above} the first values beyond them; {width} and {scale} are the digits, in all and after
    the point, of the DECIMAL that is the result or else {0}.

    A constant that selects the form, as in date_part, follows a point: "date_part.year DATE"; "round.2 DOUBLE" is for 2
    digits. "like_backslash TEXT" is for every LIKE; in its pattern a backslash escapes %, _ and itself.

    Some forms are optional: "column TEXT" reads a column that may hold values outside its type, and "collated TEXT" one
    that the engine would not compare by its bytes, or that a subquery computes (reading either twice must equal reading
    it once). With "collated TEXT" the engine names the `collation` of all columns but those that it compares by their
    bytes, which are then read without this form and "canonical TEXT". "literal TEXT" gives a bound value its type, and
    "order TEXT" is the sort key of ORDER BY.

    A unit's groups are drawn by two more: "keyed_hash TEXT", of a value {0} under the salt {1}, a BIGINT, and "mix", of
    two such hashes. "keyed_hash INTEGER" and the like are for other types, which else are hashed as text; "keyed_hash"
    alone is for all. A hash is anything that sorts, NULL for NULL alone, and a function of its operands: equal values
    have equal ones. "mix" is a hash of both, not a sum or XOR, and of {0} and {1} not that of {1} and {0}. An engine
    without them draws by "draw TEXT", a digest, or else by "md5 TEXT"; with "digested TEXT", the texts that it digests
    are given a collation.

    "divide_wide" is the quotient of two whole numbers in DECIMAL(38, 0), not negative and above 0, rounded down. It is
    written with the remainder where a dialect has no form.

    "gather" is the list of columns by which a SELECT brings the rows of a unit together, before its pairs are made
    distinct and sorted; {0} is the unit.

    An engine that ranks the groups of a unit faster in lists than by a window has five more: "list" is an aggregate of
    rows of {*}, sorted by these; "list_rows" returns each of them as a row, "list_positions" their positions from 1,
    and "list_length" how many they are; "list_field" is the value at position {1}, from 0, of such a row {0}.

    `types` has the types whose names differ from sqlglot's. `parameter` is the text of parameter number {n}, from 1.
    With `materialized`, AS MATERIALIZED stays in the text.

    `lacks` has the joins, set operations and types that the engine lacks or treats differently. "SEMI" and "ANTI" are
    then written as EXISTS where that is equivalent. "FULL unequal" is a FULL JOIN on anything but an equality of its
    two sides, and so on for other kinds; "nested" are joins in parentheses; "avg OVER" is a form of avg that is not a
    single call and cannot be a window; "correlated" are subqueries that name the outer row; "NaN" where values cannot
    be NaN, and "infinity" where they are finite; "IN" where IN treats NULL as a value: it is then written as
    equalities, and IN (SELECT ...) by the form "in_query", which "correlated IN" refuses for a subquery that names the
    outer row; "condition as value" is EXISTS or IN (SELECT ...) outside of WHERE; "ordinal NULLS" is NULLS FIRST or
    LAST after a position in ORDER BY; "//" where / of whole numbers is the quotient; "HAVING" where a name in HAVING is
    that of an output before that of a column: it is then written with its table; "ORDER BY DOUBLE", or another family,
    where the order is not DuckDB's.
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
