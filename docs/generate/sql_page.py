"""Pages of the SQL reference made from dpsql's own tables: functions, types and limits, and losses of mechanisms."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from functions import signatures
from pages import code, fill, head, table

from dpsql.plan.mechanisms import per_partition, record, rows_fetched
from dpsql.plan.mechanisms.candidates import KNOWN_KEYS
from dpsql.plan.mechanisms.choice import list_records
from dpsql.plan.mechanisms.record import QueryKind
from dpsql.plan.outer_select import MOST_PUBLIC_ROWS
from dpsql.sql import allow_list as calls
from dpsql.sql import lexer
from dpsql.sql.allow_list import (
    AGGREGATES,
    NUMBER_FUNCTIONS,
    TEXT_FUNCTIONS,
    TIME_FUNCTIONS,
)
from dpsql.sql.analysis import from_clause, private_select, reader, subqueries
from dpsql.sql.ir.tree import Family, find_read_type, has_one_form, parse_type
from dpsql.sql.syntax import clause, grammar

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
    ("largest groups that are read for each of the k keys, unless `k_bar` is set", record.K_BAR_PER_K),
    ("groups of a user that are weighed, unless `max_groups_contributed` is set", record.OWN_CAP),
    ("known names that a statement lists for an engine other than DuckDB", rows_fetched.MOST_NAMES),
    ("groups that PER reads: partitions times (k_bar + 1)", per_partition.MOST_ROWS),
    ("rows of a SELECT of public tables, or of an outer SELECT", MOST_PUBLIC_ROWS),
]


_FUNCTIONS_INTRODUCTION = """\
The functions of [expressions](expressions.md), the types, and the greatest sizes. A function that is not on this page
is refused in a private query.

A *number* is an integer, a DECIMAL or a DOUBLE; a *time* is a DATE or a TIMESTAMP. `'text'`, `n`, which is an integer,
and INTERVAL must be literals or [parameters](expressions.md#parameters), not columns. Other names of the same function
are in parentheses. A call that would fail in DuckDB returns NULL.

```sql
SELECT upper(substr(article, 1, 1)) AS letter FROM reads WHERE year(ts) = 2026 GROUP BY letter TOP 2 PRIVATE
```
"""
_AGGREGATES = f"""\
## Aggregates and windows

In the select list of a private query [measures](measures.md), with [intervals](measures.md#intervals) and
[quantiles](measures.md#quantiles), and [windows over groups](outer-select.md#windows-over-groups). In
[subqueries](from.md#subqueries) and over public tables {code(["count", *sorted(AGGREGATES)])} and
[windows](from.md#windows). All of DuckDB's [around a private query](outer-select.md).
"""
_TYPES_INTRODUCTION = """\
## Types

A column that is not computed with can be selected from a public table, and nothing else. The others may be keys.

```sql
SELECT dwell::BIGINT AS seconds FROM reads WHERE ts::DATE = '2026-01-01' GROUP BY seconds TOP 5 PRIVATE
```
"""
_TYPES_NOTES = """\
`VARCHAR(n)` is VARCHAR, as in DuckDB; DECIMAL may have a width and a scale, `DECIMAL(18, 2)`.

### ENUM

A column of an ENUM is its text everywhere: `MIN`, `MAX`, `ORDER BY`, `<` and `greatest` compare the text, not the
position in the declaration. Labels may come from rows, so types are shown without labels, fields and tags: `ENUM`,
`STRUCT`, `UNION`, `ENUM[]`, `MAP(ENUM, VARCHAR)`.

Text of a column with a collation is compared by its bytes, also as a key.
"""


def functions() -> str:
    """Return the page of functions, aggregates, types and limits."""
    groups = {
        "Text": TEXT_FUNCTIONS,
        "Numbers, and values of any type": NUMBER_FUNCTIONS,
        "Dates and times": TIME_FUNCTIONS,
    }
    parts = [head("Functions, types and limits", "dpsql's own tables"), _FUNCTIONS_INTRODUCTION]
    for title, rules in groups.items():
        rows = [[" ".join(names), *signature] for signature, names in signatures(rules).items()]
        parts += [f"## {title}\n", table(["functions", "arguments", "result"], rows)]
    return "\n".join([*parts, _AGGREGATES, *_types(), *_limits()])


def options() -> str:
    """Return the page of TOP k PRIVATE with its table of options, of which some name mechanisms."""
    texts = tomllib.loads(Path(__file__).with_name("options.toml").read_text(encoding="utf-8"))
    if texts.keys() != clause.OPTIONS:
        raise SystemExit(f"docs/generate/options.toml: {', '.join(sorted(texts.keys() ^ clause.OPTIONS))}.")
    every = {kind: list_records(kind) for kind in (QueryKind.UNKNOWN, QueryKind.KNOWN)}
    gated = [each for records in every.values() for each in records if "gate" in each.options]
    names = {"mechanisms": every[QueryKind.UNKNOWN], "known": every[QueryKind.KNOWN], "gated": gated}
    words = {of: ", ".join(f"`{each.name}`" for each in records) for of, records in names.items()}
    rows = [[f"`{name}`", *(cell.format(**words) for cell in texts[name].values())] for name in sorted(texts)]
    return fill("sql/top-k-private.md", table(["option", "value", "meaning", "default"], rows))


def mechanisms() -> str:
    """Return the page of mechanisms with its table of losses, from their records."""
    rows = []
    for mechanism in (*list_records(QueryKind.UNKNOWN, QueryKind.KNOWN, QueryKind.ALL), KNOWN_KEYS):
        words = " ".join((mechanism.theorem.__doc__ or "").split())
        loss, source = (_part(words, part) for part in ("Loss", "Source"))
        rows.append([f"`{mechanism.name}`", loss, source.partition("; ")[0]])
    header = ["mechanism", "loss of one run", "source"]
    return fill("sql/mechanisms.md", table(header, [[cell.replace("|", "\\|") for cell in row] for row in rows]))


def _part(words: str, name: str) -> str:
    """Return the first sentence of a part of a mechanism's docstring."""
    found = re.search(rf"\b{name}: (.+?)(?:\. [A-Z]|\.? (?:Utility|Cost|Source): |\. >>>|\.?$)", words)
    return found[1].replace("**", "^").replace("*", "\\*") if found else ""


def _types() -> list[str]:
    """Return the section on types: how columns are read, which may be keys, and the names that a cast takes."""
    read: dict[str, list[str]] = {}
    for stored in _STORED:
        type_ = find_read_type(parse_type(stored))
        computed = type_.family is not Family.OPAQUE
        is_key = computed and type_.family in private_select._KEY_FAMILIES and has_one_form(type_)  # noqa: SLF001
        if is_key != computed:
            raise SystemExit(f"{stored} is computed with and is no key: say so on the page.")
        how = "not computed with" if not computed else "itself" if str(type_) == stored else f"`{type_}`"
        read.setdefault(how, []).append(stored)
    names: dict[str, list[str]] = {}
    for name, type_name in grammar._TYPES.items():  # noqa: SLF001
        names.setdefault(type_name, []).append(name.upper())
    return [
        _TYPES_INTRODUCTION,
        table(["stored as", "read as"], [[code(types), how] for how, types in read.items()]),
        table(
            ["type in a cast", "other names"], [[f"`{first}`", code(rest)] for first, *rest in names.values() if rest]
        ),
        _TYPES_NOTES,
    ]


def _limits() -> list[str]:
    """Return the section on the greatest sizes."""
    return [
        "## Limits\n",
        "A statement that exceeds one is refused with `too-long`, `too-large`, `too-deep`, `too-many-tables` or the",
        "code of the construct ([errors](../errors.md)); an answer of too many rows fails. The policy's",
        "[`[limits]`](../policy.md#limits) hold the ceilings of k, epsilon and so on.\n",
        table(["what", "at most"], [[what, f"{most:,}"] for what, most in _LIMITS]),
    ]
