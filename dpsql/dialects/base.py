"""Dialect: the text of operators and functions for an engine other than DuckDB, and forms that dialects share.

The language is DuckDB's for every engine. A **form** is the text with which an engine computes what DuckDB would: the
same value for every row that can be stored, NULL where DuckDB gives NULL or would fail, and never an error, which could
depend on one unit's row. Forms are therefore an allow-list: a call without a form is refused, as `Unsupported`, before
anything is read or charged. The conformance tests compare every form with DuckDB, on values chosen to break it.

`STANDARD` has forms with the same meaning in every engine, on which dialects build. An engine whose comparisons of a
type differ (text by a locale, NaN unequal to itself) gives its own form for that type. Forms name an operand as rarely
as they can, so that they can be nested.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType

_INTEGERS = frozenset("TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER".split())


@dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """The SQL of an engine: its `name` in sentences, sqlglot's name for it, and its `forms`.

    The key of a form is the name of an operator or function (`sql/allow_list.py`), followed by the type families of its
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
            rest = range(words, len(families))
            if form is not None and (function == "cast" or "*}" in form or all(f"{{{at}}}" in form for at in rest)):
                return form
        return self.forms.get(f"{function}/{len(families)}")


DUCKDB = Dialect("DuckDB", "duckdb")  # the language itself: written as it is, not by forms


def find_family(type_: str) -> str:
    """Return the word by which forms name a type of a column: TEXT, INTEGER, DECIMAL, or the type's own name."""
    return "TEXT" if type_ == "VARCHAR" else "INTEGER" if type_ in _INTEGERS else type_.partition("(")[0]


SIGNS = ("=", "<>", "<", "<=", ">", ">=")
_ORDERED_ALIKE = ("INTEGER", "DATE", "TIMESTAMP")  # types with the same order everywhere
STANDARD: Mapping[str, str] = MappingProxyType(
    {
        **{sign: f"({{0}} {sign} {{1}})" for sign in SIGNS},
        "not": "(NOT {0})",
        "is_null": "({0} IS NULL)",
        "is_true": "COALESCE({0}, FALSE)",
        "is_false": "COALESCE(NOT {0}, FALSE)",
        "coalesce": "COALESCE({*})",
        "canonical TEXT": "{0}",
        "count_star": "COUNT(*)",
        "count": "COUNT({0})",
        "count_distinct": "COUNT(DISTINCT {0})",
        # types with the same order everywhere
        **{
            f"{end} {kind}": f"{end.upper()}({{0}})"
            for end in ("min", "max")
            for kind in ("INTEGER", "DATE", "TIMESTAMP")
        },
        **{name: f"{name.upper()}()" for name in ("row_number", "rank", "dense_rank")},
    }
)
# further forms that this package's engines have alike, though not every engine
ALIKE: Mapping[str, str] = MappingProxyType(
    {
        **{f"cast {kind} {kind}": "{0}" for kind in ("BOOLEAN", "TEXT", "DATE", "TIMESTAMP", "DOUBLE")},
        **dict.fromkeys(("cast INTEGER BOOLEAN", "cast DECIMAL BOOLEAN"), "({0} <> 0)"),
        "neg DECIMAL": "(-{0})",
        "lag": "LAG({0})",
        "lead": "LEAD({0})",
    }
)
_FINITE = "(CASE WHEN {0} IS NOT NULL THEN TRUE END)"
# what DataFusion, MySQL and Spark have alike
COMPUTED: Mapping[str, str] = MappingProxyType(
    {
        **STANDARD,
        **ALIKE,
        "is_true": "({0} IS TRUE)",
        "is_false": "({0} IS FALSE)",
        "first_value": "FIRST_VALUE({0})",
        **dict.fromkeys(("abs DECIMAL", "abs DOUBLE"), "abs({0})"),
        **dict.fromkeys(("trunc INTEGER", "round INTEGER"), "{0}"),
        **dict.fromkeys(
            [f"cast {kind} DOUBLE" for kind in ("INTEGER", "DECIMAL", "FLOAT")] + ["floor INTEGER", "ceil INTEGER"],
            "CAST({0} AS DOUBLE)",
        ),
        **dict.fromkeys(("isfinite DATE", "isfinite TIMESTAMP"), _FINITE),
        **dict.fromkeys(("isinf DATE", "isinf TIMESTAMP"), _FINITE.replace("TRUE", "FALSE")),
    }
)
# and DataFusion and Spark, which has lent it functions
COMPUTED_AS_SPARK: Mapping[str, str] = MappingProxyType(
    {
        **COMPUTED,
        **{f"{sign} DOUBLE DOUBLE": f"({{0}} {sign} {{1}})" for sign in "+-*"},
        "neg DOUBLE": "(-{0})",
        "& INTEGER": "({0} & {1})",
        "| INTEGER": "({0} | {1})",
        "xor INTEGER": "({0} ^ {1})",
        "pi": "pi()",
        "round DECIMAL": "CAST(round({0}) AS {type})",
        "isinf DOUBLE": "(abs({0}) = CAST('Infinity' AS DOUBLE))",
        "isfinite DOUBLE": "(abs({0}) < CAST('Infinity' AS DOUBLE))",
        "sum INTEGER": "SUM(CAST({0} AS DECIMAL(20, 0)))",
        **dict.fromkeys(("cast INTEGER INTEGER", "cast DECIMAL DECIMAL"), "TRY_CAST({0} AS {type})"),
        "cast BOOLEAN INTEGER": "CAST({0} AS {type})",
        "mix": "xxhash64({0}, {1})",
        "like_backslash TEXT": "({0} LIKE {1})",
        "concat_ws": "concat_ws({*})",
        "strlen TEXT": "CAST(octet_length({0}) AS BIGINT)",
        "ascii TEXT": "ascii({0})",
        "unicode TEXT": "(CASE WHEN {0} = '' THEN -1 ELSE ascii({0}) END)",
        "translate TEXT": "translate({0}, {1}, {2})",
        "replace TEXT": "replace({0}, {1}, {2})",
    }
)
MICROSECONDS = MappingProxyType(
    {
        "microsecond": 1,
        "millisecond": 1_000,
        "second": 1_000_000,
        "minute": 60_000_000,
        "hour": 3_600_000_000,
        "day": 86_400_000_000,
    }
)
FORMATS = (  # of STRFTIME, for which dialects have forms
    *"%Y %m %d %j %b %B %a %A %Y-%m %Y-%m-%d %Y/%m/%d %Y%m%d %Y%m %d/%m/%Y %m/%d/%Y %d.%m.%Y %m-%d %H %M %S".split(),
    *("%H:%M", "%H:%M:%S", "%Y-%m-%d %H", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S"),
)
WEEKDAYS = "'Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'"
MONTHS = "'January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September', 'October', "
MONTHS += "'November', 'December'"
BLANKS = "".join(map(chr, (0x20, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000)))  # that TRIM removes


# Letters and their lower case as in DuckDB: one character for one, in every locale. A run is the first and the last
# character in hexadecimal, their step if it is not 1, and how far their other case is.
_LOWER = """
c0-d6+32 d8-de+32 100-12e/2+1 130-199 132-136/2+1 139-147/2+1 14a-176/2+1 178-121 179-17d/2+1 181+210
182-184/2+1 186+206 187+1 189-18a+205 18b+1 18e+79 18f+202 190+203 191+1 193+205 194+207 196+211 197+209 198+1
19c+211 19d+213 19f+214 1a0-1a4/2+1 1a6+218 1a7+1 1a9+218 1ac+1 1ae+218 1af+1 1b1-1b2+217 1b3-1b5/2+1 1b7+219
1b8+1 1bc+1 1c4+2 1c5+1 1c7+2 1c8+1 1ca+2 1cb-1db/2+1 1de-1ee/2+1 1f1+2 1f2-1f4/2+1 1f6-97 1f7-56 1f8-21e/2+1
220-130 222-232/2+1 23a+10795 23b+1 23d-163 23e+10792 241+1 243-195 244+69 245+71 246-24e/2+1 370-372/2+1 376+1
37f+116 386+38 388-38a+37 38c+64 38e-38f+63 391-3a1+32 3a3-3ab+32 3cf+8 3d8-3ee/2+1 3f4-60 3f7+1 3f9-7 3fa+1
3fd-3ff-130 400-40f+80 410-42f+32 460-480/2+1 48a-4be/2+1 4c0+15 4c1-4cd/2+1 4d0-52e/2+1 531-556+48
10a0-10c5+7264 10c7+7264 10cd+7264 13a0-13ef+38864 13f0-13f5+8 1c90-1cba-3008 1cbd-1cbf-3008 1e00-1e94/2+1
1e9e-7615 1ea0-1efe/2+1 1f08-1f0f-8 1f18-1f1d-8 1f28-1f2f-8 1f38-1f3f-8 1f48-1f4d-8 1f59-1f5f/2-8 1f68-1f6f-8
1f88-1f8f-8 1f98-1f9f-8 1fa8-1faf-8 1fb8-1fb9-8 1fba-1fbb-74 1fbc-9 1fc8-1fcb-86 1fcc-9 1fd8-1fd9-8
1fda-1fdb-100 1fe8-1fe9-8 1fea-1feb-112 1fec-7 1ff8-1ff9-128 1ffa-1ffb-126 1ffc-9 2126-7517 212a-8383 212b-8262
2132+28 2160-216f+16 2183+1 24b6-24cf+26 2c00-2c2f+48 2c60+1 2c62-10743 2c63-3814 2c64-10727 2c67-2c6b/2+1
2c6d-10780 2c6e-10749 2c6f-10783 2c70-10782 2c72+1 2c75+1 2c7e-2c7f-10815 2c80-2ce2/2+1 2ceb-2ced/2+1 2cf2+1
a640-a66c/2+1 a680-a69a/2+1 a722-a72e/2+1 a732-a76e/2+1 a779-a77b/2+1 a77d-35332 a77e-a786/2+1 a78b+1 a78d-42280
a790-a792/2+1 a796-a7a8/2+1 a7aa-42308 a7ab-42319 a7ac-42315 a7ad-42305 a7ae-42308 a7b0-42258 a7b1-42282
a7b2-42261 a7b3+928 a7b4-a7c2/2+1 a7c4-48 a7c5-42307 a7c6-35384 a7c7-a7c9/2+1 a7d0+1 a7d6-a7d8/2+1 a7f5+1
ff21-ff3a+32 10400-10427+40 104b0-104d3+40 10570-1057a+39 1057c-1058a+39 1058c-10592+39 10594-10595+39
10c80-10cb2+64 118a0-118bf+32 16e40-16e5f+32 1e900-1e921+34
"""
# Letters whose upper case has another lower case, or none, such as the micro sign and the two forms of sigma.
_UPPER_ALONE = """
b5+743 131-232 17f-300 1c5-1 1c8-1 1cb-1 1f2-1 345+84 3c2-31 3d0-62 3d1-57 3d5-47 3d6-54 3f0-86 3f1-80 3f5-96
1c80-6254 1c81-6253 1c82-6244 1c83-1c84-6242 1c85-6243 1c86-6236 1c87-6181 1c88+35266 1e9b-59 1fbe-7205
"""


@cache
def list_lower_cases() -> tuple[str, str]:
    """Return the characters beyond ASCII that have a lower case, and those cases, in the same order."""
    cases = _read_runs(_LOWER)
    return "".join(cases), "".join(cases.values())


@cache
def list_upper_cases() -> tuple[str, str]:
    """Return the characters beyond ASCII that have an upper case, and those cases, in the same order."""
    # of several letters with one lower case, such as the angstrom sign and its letter, the first is its upper case
    cases = {small: big for big, small in reversed(_read_runs(_LOWER).items()) if not small.isascii()}
    cases = dict(sorted({**cases, **_read_runs(_UPPER_ALONE)}.items()))
    return "".join(cases), "".join(cases.values())


def _read_runs(runs: str) -> dict[str, str]:
    """Return the other case of each letter, by the letter."""
    cases = dict[str, str]()
    for run in runs.split():
        sign = max(run.rfind("+"), run.rfind("-"))
        ends, _, step = run[:sign].partition("/")
        first, _, last = ends.partition("-")
        for each in range(int(first, 16), int(last or first, 16) + 1, int(step or 1)):
            cases[chr(each)] = chr(each + int(run[sign:]))
    return cases


def fit(value: str) -> str:
    """Return the form of an exact number, NULL where it does not fit the type of the result; {value} is named once."""
    # of SMALLINT, a + b in a wide type becomes NULLIF(NULLIF(LEAST(GREATEST(a + b, -32769), 32768), -32769), 32768)
    return f"NULLIF(NULLIF(LEAST(GREATEST({value}, {{below}}), {{above}}), {{below}}), {{above}})"


def fit_type(value: str, type_: str = "{type}") -> str:
    """Return the form of an exact number in the type of the result, NULL where it does not fit."""
    return f"CAST({fit(value)} AS {type_})"


def list_windows(whole: str) -> dict[str, str]:
    """Return the forms of window functions; `whole` is what makes an operand "@" a whole number for them."""
    forms = {name: f"{name.upper()}()" for name in ("row_number", "rank", "dense_rank", "percent_rank", "cume_dist")}
    forms |= {f"{name}/2": f"{name.upper()}({{0}}, {whole.replace('@', '{1}')})" for name in ("lag", "lead")}
    return {**forms, "first_value": "FIRST_VALUE({0})", "ntile": f"NTILE({whole.replace('@', '{0}')})"}


def list_dates(part: str, names: str, *, form: str, family: str = "") -> dict[str, str]:
    """Return a form for each name of a part or unit, with that name for "@"; names are "ours" or "ours=theirs"."""
    pairs = (name.partition("=") for name in names.split())
    return {f"{part}.{ours} {family}".rstrip(): form.replace("@", theirs or ours) for ours, _, theirs in pairs}


def fold_case(translate: str, *, ascii_alone: str, calls: tuple[str, str]) -> dict[str, str]:
    """Return the forms of LOWER and UPPER, which agree with DuckDB's on ASCII alone: the rest is translated.

    In `translate`, "@" are the characters and "#" those that replace them; `ascii_alone` is the condition of a text
    without others, to which `calls` are applied.
    """
    lower, upper = list_lower_cases(), list_upper_cases()
    big = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    small = big.lower()
    forms = {}
    for name, call, one, other in (
        ("lower", calls[0], big + lower[0], small + lower[1]),
        ("upper", calls[1], small + upper[0], big + upper[1]),
    ):
        mapped = translate.replace("@", one).replace("#", other)
        forms[f"{name} TEXT"] = f"(CASE WHEN {ascii_alone} THEN {call} ELSE {mapped} END)"
    return forms
