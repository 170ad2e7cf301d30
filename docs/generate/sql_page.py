"""Pages of the SQL reference made from dpsql's own tables: functions, types, losses of mechanisms, limits."""

from __future__ import annotations

import re

from functions import signatures
from pages import code, head, table

from dpsql.plan.mechanisms import per_partition, record, rows_fetched
from dpsql.plan.mechanisms.candidates import KNOWN_KEYS
from dpsql.plan.mechanisms.choice import list_records
from dpsql.plan.mechanisms.record import Auto, QueryKind
from dpsql.plan.outer_select import MOST_PUBLIC_ROWS
from dpsql.sql import allow_list as calls
from dpsql.sql import lexer
from dpsql.sql.allow_list import (
    AGGREGATES,
    INSIDE,
    INTERVAL_ENDS,
    NUMBER_FUNCTIONS,
    TEXT_FUNCTIONS,
    TIME_FUNCTIONS,
    WINDOWS,
)
from dpsql.sql.analysis import from_clause, private_select, reader, subqueries
from dpsql.sql.ir.measures import SPREADS
from dpsql.sql.ir.tree import Family, find_read_type, has_one_form, parse_type
from dpsql.sql.syntax import clause, grammar
from dpsql.sql.syntax.block import QUANTILES
from dpsql.sql.syntax.forms import CONDITIONAL_CALLS
from dpsql.sql.syntax.grammar import REFUSED

_STORED = (
    "BOOLEAN TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER UBIGINT HUGEINT DECIMAL(18,2) DECIMAL(38,2) "
    "FLOAT DOUBLE VARCHAR UUID ENUM BLOB DATE TIMESTAMP TIME INTERVAL"
).split()
_STORED += ["TIMESTAMP WITH TIME ZONE", "INTEGER[]", "STRUCT"]
_LIMITS = [
    ("characters of a statement", lexer.MAX_TEXT_LENGTH),
    ("words of a statement", lexer.MAX_TOKENS),
    ("literals of a statement", reader.MAX_LITERALS),
    ("depth of nested expressions", reader.DEEPEST),
    ("tables of a statement", from_clause.MAX_TABLES),
    ("tables and subqueries of a statement", from_clause.MAX_RELATIONS),
    ("keys of a private query", private_select.MAX_KEYS),
    ("values in a list of candidates or partitions", clause.MAX_LISTED),
    ("items of a list in `unnest`", subqueries.MAX_ITEMS),
    ("rows that all lists in `unnest` make of one row", reader.MAX_UNNESTED),
    ("characters of a stored text that enter a function that can make it longer", calls.COLUMN_CAP),
    ("characters of a text that is computed", calls.MAX_VALUE_LENGTH),
    ("bytes of a pattern", calls.MAX_PATTERN_LENGTH),
    ("leaders that are read for each of the k keys, unless `k_bar` is set", record.K_BAR_PER_K),
    ("groups of a user that are weighed, unless `max_groups_contributed` is set", record.OWN_CAP),
    ("known names that a statement lists for an engine other than DuckDB", rows_fetched.MOST_NAMES),
    ("groups that PER reads: partitions times (k_bar + 1)", per_partition.MOST_ROWS),
    ("rows of a SELECT of public tables, or of an outer SELECT", MOST_PUBLIC_ROWS),
]


_TYPES_INTRODUCTION = """\
The types that dpsql reads, and those that a key of a private query may have. A column that is not computed with can be
selected from a public table, and nothing else.

```sql
SELECT dwell::BIGINT AS seconds FROM reads WHERE ts::DATE = '2026-01-01' GROUP BY seconds TOP 5 PRIVATE
```
"""
_TYPES_OF_CASTS = """\
## Names in casts

```text
CAST ( x AS { type | VARCHAR ( n ) | DECIMAL ( width [, scale] ) } )
```

`VARCHAR(n)` is VARCHAR, as in DuckDB.
"""
_TYPES_NOTES = """\
## ENUM

A column of an ENUM is its text everywhere, in public queries too: `MIN`, `MAX`, `ORDER BY`, `<` and `greatest` compare
the text, not the position in the declaration. The labels of an ENUM, and their order, may come from rows. Types are
therefore shown without labels, fields and tags: `ENUM`, `STRUCT`, `UNION`, `ENUM[]`, `MAP(ENUM, VARCHAR)`.

## Collations

The text of a key is compared by its bytes, also if its column has a collation. Texts of two collations that meet, as in
`a = b` or `greatest(a, b)`, are compared by their bytes too: DuckDB does the same.
"""


def functions() -> str:
    """Return the page of functions and aggregates."""
    parts = [
        head("Functions", "dpsql's own tables"),
        "The functions of [expressions](expressions.md). A function that is not on this page is refused.\n",
        "A *number* is an integer, a DECIMAL or a DOUBLE; a *time* is a DATE or a TIMESTAMP. `'text'`, `n`, which is",
        "an integer, and INTERVAL must be literals or [parameters](parameters.md), not columns. Other names of the",
        "same function are in parentheses. A call that would fail in DuckDB returns NULL.\n",
        "```sql",
        "SELECT upper(substr(article, 1, 1)) AS letter FROM reads WHERE year(ts) = 2026 GROUP BY letter TOP 2 PRIVATE",
        "```\n",
    ]
    groups = {
        "Text": TEXT_FUNCTIONS,
        "Numbers, and values of any type": NUMBER_FUNCTIONS,
        "Dates and times": TIME_FUNCTIONS,
    }
    for title, rules in groups.items():
        rows = [[" ".join(names), *signature] for signature, names in signatures(rules).items()]
        parts += [f"## {title}\n", table(["functions", "arguments", "result"], rows)]
    return "\n".join([*parts, _aggregates()])


def _aggregates() -> str:
    released = QUANTILES.union(SPREADS, CONDITIONAL_CALLS, ["approx_count_distinct"])
    rows = [
        [
            "`COUNT(DISTINCT <privacy unit>)` `COUNT(DISTINCT x)` `approx_count_distinct`",
            "in the select list of a private query ([measures](measures.md))",
        ],
        [code(sorted(INTERVAL_ENDS)), "of [measures](measures.md#intervals) of a private query"],
        [code(sorted(QUANTILES)), "[quantiles](quantiles.md) in the select list of a private query"],
        [
            code(["count", *sorted(AGGREGATES)]),
            "in [subqueries](subqueries.md), over public tables, and in an [outer SELECT](outer-select.md)",
        ],
        [code(sorted(SPREADS)), "as [measures](measures.md#variances-deviations-and-covariances) of a private query"],
        [code(sorted(WINDOWS)), "as [windows](windows.md) in subqueries"],
        [code(sorted(CONDITIONAL_CALLS)), "as [other spellings](measures.md#conditions-in-an-aggregate)"],
        [code(sorted(REFUSED - INSIDE - released)), "refused"],
    ]
    return "## Aggregates and windows\n\n" + table(["function", "allowed"], rows)


def losses() -> str:
    """Return the page of the loss of each mechanism, from its record."""
    rows = []
    for mechanism in (*list_records(QueryKind.UNKNOWN, QueryKind.KNOWN, QueryKind.ALL), KNOWN_KEYS):
        words = " ".join((mechanism.theorem.__doc__ or "").split())
        loss, source = (_part(words, part) for part in ("Loss", "Source"))
        chosen = "no" if mechanism.auto is Auto.NEVER else "yes"
        chosen = "for `ALL PRIVATE` and totals" if mechanism.kind is QueryKind.ALL else chosen
        chosen = "for each quantile" if mechanism is KNOWN_KEYS else chosen
        rows.append([f"`{mechanism.name}`", words.partition(". ")[0] + ".", chosen, loss, source.partition("; ")[0]])
    header = ["mechanism", "what it does", "`auto` may choose it", "loss", "source"]
    return "\n".join(
        [
            head("Loss of each mechanism", "the docstrings of the mechanisms"),
            "The loss of one run, for reviewers. [Mechanisms](mechanisms.md) describes their use and price, and",
            "[the mathematics](../../explanation/maths.md) proves each loss.\n",
            table(header, [[cell.replace("|", "\\|") for cell in row] for row in rows]),
        ]
    )


def _part(words: str, name: str) -> str:
    """Return the first sentence of a part of a mechanism's docstring."""
    found = re.search(rf"\b{name}: (.+?)(?:\. [A-Z]|\.? (?:Utility|Cost|Source): |\. >>>|\.?$)", words)
    return found[1].replace("**", "^").replace("*", "\\*") if found else ""


def types() -> str:
    """Return the page of types: how columns are read, which may be keys, and the names that a cast takes."""
    rows = []
    for stored in _STORED:
        type_ = find_read_type(parse_type(stored))
        computed = type_.family is not Family.OPAQUE
        key = computed and type_.family in private_select._KEY_FAMILIES and has_one_form(type_)  # noqa: SLF001
        rows.append([f"`{stored}`", f"`{type_}`" if computed else "not computed with", "yes" if key else "no"])
    names: dict[str, list[str]] = {}
    for name, type_name in grammar._TYPES.items():  # noqa: SLF001
        names.setdefault(type_name, []).append(name.upper())
    return "\n".join(
        [
            head("Types", "dpsql's own tables"),
            _TYPES_INTRODUCTION,
            table(["stored as", "read as", "may be a key"], rows),
            _TYPES_OF_CASTS,
            table(["type", "other names"], [[f"`{first}`", code(others)] for first, *others in names.values()]),
            _TYPES_NOTES,
        ]
    )


def limits() -> str:
    """Return the page of the greatest sizes."""
    return "\n".join(
        [
            head("Limits", "dpsql's own tables"),
            "The greatest sizes. A statement that exceeds one is refused with `too-long`, `too-large`, `too-deep`,",
            "`too-many-tables` or the code of the construct ([errors](../errors.md)); an answer of too many rows",
            "fails. The policy's [`[limits]`](../policy.md#limits) hold the ceilings of k, epsilon and so on.\n",
            table(["what", "at most"], [[what, f"{most:,}"] for what, most in _LIMITS]),
        ]
    )
