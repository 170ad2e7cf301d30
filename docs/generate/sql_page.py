"""The reference of SQL from dpsql's own tables: functions, aggregates, options, mechanisms, types, limits."""

from __future__ import annotations

import re

from functions import signatures
from pages import code, described, head, table

from dpsql.mechanisms import (
    DomainDiscovery,
    FixedStableTopK,
    GaussianHistogram,
    JointExponential,
    LaplaceLimitedDomain,
    LimitedDomain,
    Peeling,
    TopStable,
    WeightedGaussian,
)
from dpsql.plan.auto import CHOSEN
from dpsql.plan.mechanisms import per_partition, request
from dpsql.plan.planner import MECHANISMS
from dpsql.plan.release import MOST_PUBLIC_ROWS
from dpsql.sql import lexer
from dpsql.sql.analysis import analyze, expressions, from_clause, reader
from dpsql.sql.functions import signatures as calls
from dpsql.sql.functions.allow_list import AGGREGATES, INSIDE, REFUSED, WINDOWS
from dpsql.sql.functions.numeric import NUMBER_FUNCTIONS
from dpsql.sql.functions.temporal import TIME_FUNCTIONS
from dpsql.sql.functions.text import TEXT_FUNCTIONS
from dpsql.sql.ir.types import Family, has_one_form, of_column, read_as
from dpsql.sql.syntax import options

_CLASSES = {
    "limited_domain": LimitedDomain,
    "gaussian_histogram": GaussianHistogram,
    "laplace_limited_domain": LaplaceLimitedDomain,
    "weighted_gaussian": WeightedGaussian,
    "domain_discovery": DomainDiscovery,
    "stable": FixedStableTopK,
    "top_stable": TopStable,
    "peeling": Peeling,
    "joint": JointExponential,
}
_STORED = (
    "BOOLEAN TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER UBIGINT HUGEINT DECIMAL(18,2) DECIMAL(38,2) "
    "FLOAT DOUBLE VARCHAR UUID ENUM BLOB DATE TIMESTAMP TIME INTERVAL"
).split()
_STORED += ["TIMESTAMP WITH TIME ZONE", "INTEGER[]", "STRUCT"]
_LIMITS = [
    ("characters of a statement", lexer.LONGEST_TEXT),
    ("words of a statement", lexer.MAX_TOKENS),
    ("literals of a statement", expressions.MAX_LITERALS),
    ("depth of nested expressions", reader.DEEPEST),
    ("tables of a statement", from_clause.MAX_TABLES),
    ("keys of a private query", analyze.MAX_KEYS),
    ("values in a list of candidates or partitions", options.MAX_LISTED),
    ("characters of a stored text that enter a function which can make it longer", calls.COLUMN_CAP),
    ("characters of a text that is computed", calls.MAX_VALUE_LENGTH),
    ("bytes of a pattern", calls.MAX_PATTERN_LENGTH),
    ("leaders that are read for each key asked for, unless `k_bar` says otherwise", request.K_BAR_PER_K),
    ("groups of a unit that are weighed, unless something else bounds them", request.OWN_CAP),
    ("groups that PER reads: partitions times leaders", per_partition.MOST_ROWS),
    ("rows of a public answer", MOST_PUBLIC_ROWS),
]


def page() -> str:
    """Return the page."""
    return "\n".join(
        [
            head("SQL: functions, options, limits", "dpsql's own tables"),
            "What the code itself accepts; [the SQL of dpsql](../sql.md) explains it.\n",
            _functions(),
            _aggregates(),
            _options(),
            _mechanisms(),
            _types(),
            _limits(),
        ]
    )


def _functions() -> str:
    parts = [
        "## Functions\n",
        "A *number* is an integer, a DECIMAL or a DOUBLE; a *time* is a DATE or a TIMESTAMP. What stands in quotes, as",
        "`'text'`, and `n`, a whole number, and INTERVAL must be written in the statement or given as a parameter: a",
        "column cannot stand there. Other names of the same function stand in brackets.\n",
    ]
    groups = {"text": TEXT_FUNCTIONS, "numbers, and of any type": NUMBER_FUNCTIONS, "dates and times": TIME_FUNCTIONS}
    for of, rules in groups.items():
        rows = [[" ".join(names), *signature] for signature, names in signatures(rules).items()]
        parts += [f"### Of {of}\n", table(["functions", "arguments", "gives"], rows)]
    return "\n".join(parts)


def _aggregates() -> str:
    rows = [
        ["`COUNT(DISTINCT <privacy unit>)`", "in the select list of a private query"],
        [code(["count", *sorted(AGGREGATES)]), "in subqueries that keep to one unit, and over public tables"],
        [code(sorted(WINDOWS)), "as windows with the unit in PARTITION BY, in subqueries"],
        [code(sorted(REFUSED - INSIDE)), "nowhere; refused by name, as is every function that this page does not list"],
    ]
    return "## Aggregates and windows\n\n" + table(["function", "where"], rows)


def _options() -> str:
    rows = [[f"`{name}`", *cells] for name, cells in sorted(described(options.OPTIONS).items())]
    return "## Options\n\n" + table(["option", "meaning", "default"], rows)


def _mechanisms() -> str:
    if ("auto", *_CLASSES) != MECHANISMS:
        raise SystemExit("The mechanisms of this page are not those of dpsql.plan.planner.")
    rows = []
    for name, kind in _CLASSES.items():
        words = " ".join((kind.__doc__ or "").split())
        loss, source = (_part(words, part) for part in ("Loss", "Source"))
        chosen = "yes" if name in CHOSEN else "no"
        rows.append([f"`{name}`", words.partition(". ")[0] + ".", chosen, loss, source.partition("; ")[0]])
    header = ["mechanism", "what it does", "`auto` may choose it", "loss", "source"]
    return "## Mechanisms\n\n" + table(header, [[cell.replace("|", "\\|") for cell in row] for row in rows])


def _part(words: str, name: str) -> str:
    """Return the first sentence of a part of a mechanism's docstring."""
    found = re.search(rf"\b{name}: (.+?)(?:\. [A-Z]|\.? (?:Utility|Cost|Source): |\. >>>|\.?$)", words)
    return found[1].replace("**", "^").replace("*", "\\*") if found else ""


def _types() -> str:
    rows = []
    for stored in _STORED:
        type_ = read_as(of_column(stored))
        computed = type_.family is not Family.OPAQUE
        key = computed and type_.family in analyze._KEY_FAMILIES and has_one_form(type_)  # noqa: SLF001
        rows.append([f"`{stored}`", f"`{type_}`" if computed else "not computed with", "yes" if key else "no"])
    return "## Types of columns\n\n" + table(["stored as", "read as", "may be a key"], rows)


def _limits() -> str:
    return "## Limits\n\nAt most:\n\n" + table(["what", "how many"], [[what, f"{most:,}"] for what, most in _LIMITS])
