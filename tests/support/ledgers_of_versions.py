"""Ledgers that earlier versions of dpsql wrote, and the questions that they answered.

`python ledgers_of_versions.py ARCHIVE [URL PG_DUMP]` writes the ledger of each policy and a list of its answers into a
zip file, with the dpsql that is on the path, and one ledger into the schema of PostgreSQL at the URL. The archives in
tests/engines/versions were written by the code of each version, and are never written again:

    git worktree add /tmp/dpsql-0.10.1 de52fe42
    PYTHONPATH=/tmp/dpsql-0.10.1 python tests/support/ledgers_of_versions.py tests/engines/versions/0.10.1.zip

`--case NAME` adds one case to an archive that was written without it.

The other commits are 5e1da425 (0.11.0), and c4f116cd and 8d69a76b, which called themselves 0.11.0 too and have all that
the changelog lists for it; an archive 0.12.0-COMMIT is of that commit. This module works with all of these versions: a
version leaves out the cases whose policy it does not read.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb

import dpsql

__all__ = ["ACTS", "IN_POSTGRES", "POLICIES", "PolicyCase", "Question", "make_database", "use_ledger"]

_TABLES = """
CREATE TABLE reads AS SELECT
    u::INTEGER AS user_id, 'a' || (1 + (u * 7 + r * r * 3) % (2 + r * 3)) AS article,
    ['DE', 'FR', 'IT'][1 + u % 3] AS country, DATE '2026-01-01' + ((u + r) % 60)::INTEGER AS day,
    ((u * 13 + r * 29) % 1000 / 10)::DECIMAL(10, 2) AS amount, ((u + r) % 30)::INTEGER AS minutes,
    CASE WHEN r = 1 THEN NULL ELSE u % 5 * 1.5 END::DOUBLE AS score
  FROM range(1, 401) us(u), range(1, 5) rs(r);
CREATE TABLE users AS SELECT
    u::INTEGER AS user_id, (18 + u % 40)::INTEGER AS age, ['Bonn', 'Lyon', 'Rome'][1 + u % 3] AS city
  FROM range(1, 401) us(u);
CREATE TABLE countries AS SELECT unnest(['DE', 'FR', 'IT', 'ES']) AS country;
CREATE TABLE votes AS SELECT t AS teacher, e AS example, 'L' || l AS label
  FROM range(400) a(t), range(3) b(e), range(3) c(l) WHERE l <= e;
"""


def make_database(path: Path) -> Path:
    """Write the database over which all questions are asked."""
    with duckdb.connect(str(path)) as connection:
        connection.execute(_TABLES)
    return path


@dataclass(frozen=True)
class Question:
    """One statement with its parameters; `since` is the first version that accepts it."""

    text: str
    parameters: tuple[Any, ...] = ()
    since: str = "0.10"
    implicit: bool = False


@dataclass(frozen=True)
class PolicyCase:
    """A policy, and what is asked under it by each of the analysts, after tables were published and acts done."""

    policy: str
    questions: tuple[Question, ...]
    analysts: tuple[str | None, ...] = (None,)
    since: str = "0.10"
    published: tuple[tuple[str, str], ...] = ()
    acts: tuple[str, ...] = ()


def _ask(*texts: str, since: str = "0.10") -> tuple[Question, ...]:
    return tuple(Question(text, since=since) for text in texts)


_TOP = "SELECT article FROM reads GROUP BY article TOP 5 PRIVATE"
_COUNTED = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 4 PRIVATE"
_MECHANISMS = (
    "limited_domain gaussian_histogram laplace_limited_domain weighted_gaussian domain_discovery stable top_stable"
).split()
_NAMED = tuple(
    f"SELECT country, {count}article FROM reads GROUP BY country, article TOP 4 PRIVATE WITH (mechanism = {name}{more})"
    for name in _MECHANISMS
    for count in ("", "COUNT(DISTINCT user_id) AS n, ")
    for more in (
        (", max_groups_contributed = 3",)
        if name in {"gaussian_histogram", "laplace_limited_domain", "top_stable"}
        else ("",)
    )
    + ((", max_groups_contributed = 4",) if name in {"weighted_gaussian", "stable"} else ())
)
_OF_UNITS = (
    *_ask(
        _TOP,
        _COUNTED,
        f"{_TOP} WITH (epsilon = 0.5)",
        f"{_COUNTED} WITH (epsilon = 0.25, delta = 1e-9)",
        f"{_COUNTED} WITH (k_bar = 7)",
        f"{_TOP} WITH (k_bar = auto, epsilon = 0.4)",
        f"{_COUNTED} WITH (monotone = true, epsilon = 0.3)",
        f"{_COUNTED} WITH (max_groups_contributed = 2)",
        f"{_TOP} WITH (max_groups_contributed = 3, epsilon = 0.6)",
        "SELECT article FROM reads GROUP BY article TOP ADAPTIVE PRIVATE",
        "SELECT article FROM reads GROUP BY article TOP ADAPTIVE PRIVATE WITH (prefer = 3)",
        *_NAMED,
        "SELECT country FROM reads GROUP BY country TOP 2 PRIVATE WITH (domain = 'countries.country')",
        "SELECT country, COUNT(DISTINCT user_id) FROM reads GROUP BY country TOP 2 PRIVATE "
        "WITH (domain = 'countries.country')",
        "SELECT country, COUNT(DISTINCT user_id) FROM reads GROUP BY country TOP 1 PRIVATE "
        "WITH (domain = ['FR', 'DE', 'PL', 'ES', 'IT', 'AT', 'BE'])",
        "SELECT country FROM reads GROUP BY country TOP 2 PRIVATE WITH (domain = 'countries.country', mechanism "
        "= joint)",
        "SELECT country, COUNT(DISTINCT user_id) FROM reads GROUP BY country TOP 2 PRIVATE "
        "WITH (domain = 'countries.country', mechanism = peeling)",
        "SELECT country, article FROM reads GROUP BY country, article TOP 2 PRIVATE PER country "
        "WITH (partitions = ['DE', 'FR'])",
        "SELECT country, article, COUNT(DISTINCT user_id) FROM reads GROUP BY country, article TOP 2 PRIVATE "
        "PER country "
        "WITH (partitions = 'countries.country')",
        "SELECT country, article FROM reads GROUP BY country, article TOP 2 PRIVATE PER country "
        "WITH (partitions = ['DE', 'FR'], mechanism = weighted_gaussian)",
        "SELECT article FROM reads WHERE article LIKE 'a1%' GROUP BY article TOP 3 PRIVATE",
        "SELECT article FROM reads WHERE minutes // 7 = 2 GROUP BY article TOP 3 PRIVATE",
        "SELECT article FROM reads WHERE minutes / 7 > 2.5 GROUP BY article TOP 3 PRIVATE",
        "SELECT article FROM reads WHERE country IN ('DE', 'IT') AND day >= DATE '2026-01-10' GROUP BY 1 TOP 3 PRIVATE",
        "SELECT CASE WHEN minutes < 10 THEN 'few' ELSE 'many' END AS minutes, COUNT(DISTINCT user_id) AS n FROM reads "
        "GROUP BY 1 TOP 2 PRIVATE",
        "SELECT date_trunc('month', day) AS month, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY 1 TOP 2 PRIVATE",
        "SELECT city, COUNT(DISTINCT reads.user_id) AS n FROM reads JOIN users ON reads.user_id = users.user_id "
        "GROUP BY city TOP 2 PRIVATE",
        "SELECT article FROM reads WHERE user_id IN (SELECT user_id FROM users WHERE age > 30) GROUP BY article "
        "TOP 3 PRIVATE",
        "SELECT article FROM reads r WHERE EXISTS (SELECT 1 FROM users u WHERE u.user_id = r.user_id AND u.age < 40) "
        "GROUP BY article TOP 3 PRIVATE",
        "WITH few AS (SELECT user_id, article FROM reads WHERE minutes < 20) "
        "SELECT article, COUNT(DISTINCT user_id) FROM few GROUP BY article TOP 3 PRIVATE",
        "SELECT article FROM (SELECT user_id, article, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY day, "
        "article) AS r FROM reads) "
        "WHERE r <= 2 GROUP BY article TOP 3 PRIVATE",
        "SELECT spent, COUNT(DISTINCT user_id) FROM (SELECT user_id, SUM(minutes) // 20 AS spent FROM reads "
        "GROUP BY user_id) "
        "GROUP BY spent TOP 3 PRIVATE",
        "SELECT article, country, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article, country TOP 5 PRIVATE",
        "SELECT upper(article) AS up, n * 2 AS twice FROM (SELECT article, COUNT(DISTINCT user_id) AS n FROM reads "
        "WHERE country = 'DE' GROUP BY article TOP 4 PRIVATE) WHERE n > 3 ORDER BY twice",
        "SELECT lower(article) FROM reads GROUP BY 1 TOP 3 PRIVATE",
        r"SELECT article FROM reads WHERE NOT article LIKE 'a\_1%' GROUP BY article TOP 3 PRIVATE",
        "SELECT country, COUNT(DISTINCT user_id) FROM reads WHERE article ILIKE 'A1%' GROUP BY country "
        "TOP 2 PRIVATE WITH (epsilon = 0.5)",
        "SELECT r.article FROM reads r JOIN reads s ON r.user_id = s.user_id AND s.country = 'DE' "
        "GROUP BY r.article TOP 3 PRIVATE",
        "SELECT article, COUNT(DISTINCT user_id) AS n FROM (SELECT user_id, article FROM reads WHERE country = 'DE' "
        "UNION ALL SELECT user_id, country AS article FROM reads) GROUP BY article TOP 4 PRIVATE",
    ),
    Question(
        "SELECT article FROM reads WHERE country = ? AND minutes > $2 GROUP BY article TOP 3 PRIVATE".replace(
            "?", "$1"
        ),
        ("DE", 4),
    ),
)
_OF_MEASURES = (
    "SELECT COUNT(DISTINCT user_id) AS n FROM reads WHERE country = 'DE' PRIVATE",
    "SELECT COUNT(*) AS n FROM reads PRIVATE",
    "SELECT SUM(amount) AS s FROM reads PRIVATE",
    "SELECT SUM(minutes) AS s, COUNT(*) AS n FROM reads PRIVATE",
    "SELECT AVG(amount) AS a FROM reads PRIVATE",
    "SELECT AVG(score) AS a, COUNT(DISTINCT user_id) AS n FROM reads PRIVATE",
    "SELECT COUNT(score) AS n, SUM(score) AS s FROM reads PRIVATE",
    (
        "SELECT COUNT(*) FILTER (WHERE country = 'DE') AS n, SUM(amount) FILTER (WHERE country = 'FR') AS s FROM "
        "reads PRIVATE"
    ),
    "SELECT SUM(amount * 2) AS s FROM reads PRIVATE",
    "SELECT SUM(CASE WHEN country = 'DE' THEN amount END) AS s FROM reads PRIVATE",
    (
        "SELECT country, COUNT(*) AS n, COUNT(DISTINCT user_id) AS u FROM reads GROUP BY country ALL PRIVATE "
        "WITH (domain = 'countries.country')"
    ),
    "SELECT country, SUM(amount) AS s FROM reads GROUP BY country ALL PRIVATE WITH (domain = ['DE', 'FR', 'IT'])",
    "SELECT country, AVG(amount) AS s FROM reads GROUP BY country ALL PRIVATE WITH (domain = ['DE', 'FR', 'IT'])",
    (
        "SELECT day, COUNT(DISTINCT user_id) AS u FROM reads WHERE day BETWEEN DATE '2026-01-03' AND DATE '2026-01-12' "
        "GROUP BY day ALL PRIVATE"
    ),
    "SELECT country, COUNT(DISTINCT user_id) AS u FROM reads GROUP BY country ALL PRIVATE WITH (domain = ['DE', 'IT'])",
    "SELECT article, COUNT(*) AS n FROM reads GROUP BY article ORDER BY n DESC TOP 3 PRIVATE",
    "SELECT article, SUM(minutes) AS n FROM reads GROUP BY article ORDER BY n DESC TOP 3 PRIVATE",
    (
        "SELECT article, SUM(minutes) AS n, COUNT(*) AS c FROM reads GROUP BY article ORDER BY n DESC TOP 3 PRIVATE "
        "WITH (mechanism = weighted_gaussian)"
    ),
    (
        "SELECT article, COUNT(DISTINCT user_id) AS u, AVG(minutes) AS m FROM reads GROUP BY article ORDER BY u "
        "DESC TOP 3 PRIVATE"
    ),
    "SELECT SUM(amount) / COUNT(*) AS mean FROM reads PRIVATE",
    "SELECT 100.0 * COUNT(*) FILTER (WHERE country = 'DE') / COUNT(*) AS share FROM reads PRIVATE",
    "SELECT COUNT(*) AS n FROM reads WHERE country = 'DE' PRIVATE WITH (max_rows_contributed = 2)",
    "SELECT SUM(minutes::DOUBLE) AS s FROM reads PRIVATE",
    "SELECT COUNT(*) AS n FROM reads r JOIN reads s ON r.user_id = s.user_id PRIVATE",
    "SELECT COUNT(*) * 1.5 AS n FROM reads WHERE country = 'IT' PRIVATE",
    "SELECT COUNT(*) AS n FROM reads JOIN users ON reads.user_id = users.user_id PRIVATE",
    "SELECT SUM(amount) AS s FROM reads JOIN users ON reads.user_id = users.user_id WHERE users.age > 20 PRIVATE",
    "SELECT COUNT(*) AS n FROM reads WHERE user_id IN (SELECT user_id FROM users WHERE age > 30) PRIVATE",
    "SELECT SUM(minutes) AS n FROM reads r WHERE EXISTS (SELECT 1 FROM users u WHERE u.user_id = r.user_id) PRIVATE",
    "SELECT COUNT(DISTINCT reads.user_id) AS n FROM reads JOIN users ON reads.user_id = users.user_id PRIVATE",
    (
        "SELECT city, COUNT(*) AS n FROM reads JOIN users ON reads.user_id = users.user_id GROUP BY city "
        "ORDER BY n DESC TOP 2 PRIVATE"
    ),
    "SELECT COUNT(*) AS n, value_low(n) AS low FROM reads WHERE country <> 'DE' PRIVATE",
    f"{_TOP} WITH (known = false, epsilon = 0.7)",
    f"{_TOP} WITH (known = true, epsilon = 0.8)",
    (
        "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads WHERE day > DATE '2026-02-10' GROUP BY article TOP "
        "3 PRIVATE"
    ),
    (
        "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads WHERE country = 'FR' GROUP BY article ALL PRIVATE "
        "WITH (domain = released)"
    ),
    f"{_COUNTED} WITH (mechanism = relay)",
    (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-8) country, COUNT(DISTINCT user_id) AS n "
        "FROM reads "
        "GROUP BY country"
    ),
    (
        "SELECT article, n, RANK() OVER (ORDER BY n DESC) AS r FROM (SELECT article, COUNT(DISTINCT user_id) AS n "
        "FROM reads "
        "WHERE minutes > 3 GROUP BY article TOP 4 PRIVATE)"
    ),
    (
        "SELECT article, COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*) DESC) AS r FROM reads GROUP BY article "
        "ORDER BY n DESC TOP 5 PRIVATE"
    ),
    (
        "SELECT article, 100.0 * COUNT(*) / SUM(COUNT(*)) OVER () AS share FROM reads GROUP BY article ORDER BY "
        "COUNT(*) DESC "
        "TOP 6 PRIVATE"
    ),
    (
        "SELECT (SELECT COUNT(DISTINCT user_id) FROM reads WHERE country = 'FR' PRIVATE) "
        "/ (SELECT COUNT(DISTINCT user_id) FROM reads PRIVATE) AS share"
    ),
)
_OF_OPTIONS = (
    f"{_TOP} WITH (mechanism = stable, penalty = 3)",
    f"{_COUNTED} WITH (mechanism = stable, k_bar = 30, delta = 1e-8)",
    f"{_COUNTED} WITH (mechanism = top_stable, k_bar = 4)",
    f"{_COUNTED} WITH (mechanism = laplace_limited_domain, max_groups_contributed = 2, k_bar = 9)",
    f"{_COUNTED} WITH (mechanism = gaussian_histogram, max_groups_contributed = 2, monotone = true)",
    f"{_COUNTED} WITH (mechanism = limited_domain, k_bar = auto, delta = 1e-8)",
    f"{_COUNTED} WITH (mechanism = relay, k_bar = 6, epsilon = 0.35)",
    f"{_TOP} WITH (mechanism = relay, max_groups_contributed = 3)",
    f"{_COUNTED} WITH (mechanism = domain_discovery, max_groups_contributed = 3, epsilon = 0.45)",
    "SELECT article, COUNT(DISTINCT user_id) FROM reads GROUP BY article TOP ADAPTIVE PRIVATE WITH (k_bar = 12)",
    (
        "SELECT article FROM reads GROUP BY article TOP ADAPTIVE PRIVATE WITH (prefer = 4, penalty = 0.5, mechanism = "
        "stable)"
    ),
    (
        "SELECT country, COUNT(DISTINCT user_id) FROM reads GROUP BY country TOP 2 PRIVATE WITH (domain = "
        "['DE', 'FR', 'IT', 'ES', 'PL'], mechanism = joint)"
    ),
    (
        "SELECT country, COUNT(DISTINCT user_id) FROM reads GROUP BY country TOP 3 PRIVATE WITH (domain = "
        "['DE', 'FR', 'IT', 'ES', 'PL'], max_groups_contributed = 1)"
    ),
    (
        "SELECT country, COUNT(DISTINCT user_id) FROM reads GROUP BY country TOP 3 PRIVATE WITH (domain = "
        "['IT', 'ES', 'DE', 'FR'], mechanism = peeling, max_groups_contributed = 1)"
    ),
    (
        "SELECT country, article FROM reads GROUP BY country, article TOP 2 PRIVATE PER country "
        "WITH (partitions = ['DE', 'FR'], mechanism = limited_domain, k_bar = 5)"
    ),
    (
        "SELECT country, article FROM reads GROUP BY country, article TOP 2 PRIVATE PER country "
        "WITH (partitions = ['DE', 'FR', 'IT'], mechanism = stable)"
    ),
    (
        "SELECT country, article, COUNT(DISTINCT user_id) FROM reads GROUP BY country, article TOP 2 PRIVATE "
        "PER country WITH (partitions = ['DE', 'FR'], mechanism = gaussian_histogram, max_groups_contributed = 2)"
    ),
    f"{_COUNTED} WITH (known = false)",
    f"{_COUNTED} WITH (known = all)",
    (
        "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads WHERE country = 'IT' GROUP BY article TOP 2 PRIVATE "
        "WITH (domain = released)"
    ),
    (
        "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads WHERE country = 'DE' GROUP BY article TOP 2 PRIVATE "
        "WITH (domain = released, mechanism = joint)"
    ),
    "SELECT article FROM reads WHERE country = 'FR' GROUP BY article TOP 1 PRIVATE WITH (known = all, epsilon = 0.9)",
    "SELECT article FROM reads WHERE country = 'IT' GROUP BY article TOP 1 PRIVATE",
    (
        "SELECT article, n FROM (SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 3 "
        "PRIVATE WITH (mechanism = weighted_gaussian)) ORDER BY n LIMIT 2"
    ),
)
_IMPLICIT = (
    Question(
        "SELECT country, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY country ORDER BY n DESC LIMIT 3",
        (),
        "0.11",
        True,
    ),
    Question("SELECT COUNT(*) FROM reads WHERE country = 'FR'", (), "0.11", True),
    Question(
        "SELECT minutes, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY minutes ORDER BY minutes", (), "0.11", True
    ),
    Question(
        "SELECT COUNT(DISTINCT user_id) AS n FROM reads WHERE article LIKE 'a_' AND minutes / 4 > 3", (), "0.11", True
    ),
)
_SOME = (*_ask(_TOP, _COUNTED, f"{_COUNTED} WITH (epsilon = 0.25)", f"{_TOP} WITH (mechanism = limited_domain)"),)
_TABLE = '[tables.reads]\nprivacy_unit = "user_id"\n'
_OTHERS = '[tables.users]\nprivacy_unit = "user_id"\n{users}[tables.countries]\npublic = true\n'
_BUDGET = "[budget]\nepsilon = 60.0\ndelta = 1e-4\nitems = 1500\nqueries = 200\n"
_FEW = "[budget]\nepsilon = 20.0\ndelta = 1e-4\nitems = 60\nqueries = 20\n"
_HEAD = 'ledger = "spent.ledger"\n'
_BOUNDS = """[tables.reads.bounds]
rows = 4
amount = { max = 150 }
minutes = { max = 60 }
score = { min = -3, max = 12 }
"""


def _policy(*parts: str, head: str = "", budget: str = _BUDGET, users: str = "") -> str:
    return "\n".join((_HEAD + head, budget, *parts, _OTHERS.replace("{users}", users)))


_LISTED = "SELECT country FROM reads GROUP BY country"
_KINDS = (  # of questions that 0.12 brought
    "SELECT MEDIAN(minutes) AS m, QUANTILE(amount, 0.9) AS q FROM reads PRIVATE",
    "SELECT city, PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY age) AS m FROM users GROUP BY city TOP 2 PRIVATE",
    "SELECT country, MEDIAN(minutes) AS m FROM reads GROUP BY country ALL PRIVATE WITH (domain = ['DE', 'FR'])",
    "SELECT STDDEV_POP(minutes) AS s, VAR_SAMP(amount) AS v FROM reads PRIVATE",
    "SELECT COVAR_POP(minutes, score) AS c FROM reads PRIVATE",
    "SELECT AVG(minutes) AS a, SUM(amount * 2) AS s FROM reads PRIVATE",
    "SELECT COUNT(DISTINCT article) AS n FROM reads PRIVATE",
    "SELECT country, COUNT(DISTINCT article) AS n FROM reads GROUP BY country ORDER BY n DESC TOP 2 PRIVATE",
    "SELECT date_trunc('month', day) AS month, COUNT(*) AS n FROM reads GROUP BY 1 ALL PRIVATE",
    "SELECT minutes > 10 AS long, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY 1 ALL PRIVATE",
    (
        "SELECT CASE WHEN minutes < 10 THEN 'few' ELSE 'many' END AS m, COUNT(*) AS n FROM reads "
        "GROUP BY ROLLUP (1) ALL PRIVATE WITH (intervals = true)"
    ),
    f"{_COUNTED} WITH (mechanism = two_looks)",
    f"{_COUNTED} WITH (mechanism = gaussian_histogram, max_groups_contributed = 3, gate = false)",
    f"{_COUNTED} WITH (mechanism = weighted_gaussian, intervals = 0.9)",
    f"{_COUNTED} WITH (evidence = strict, epsilon = 0.3)",
    f"{_TOP} WITH (consent = true, epsilon = 0.2)",
    "SELECT country, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY country TOP 3 PRIVATE WITH (name = 'weekly')",
    "SELECT * FROM answers.weekly ORDER BY n DESC",
    f"{_LISTED} TOP 4 PRIVATE WITH (domain = ['DE', 'FR', 'IT', 'ES', 'PL', 'AT'], mechanism = peeling)",
    f"{_LISTED} TOP 2 PRIVATE WITH (domain = ['DE', 'FR', 'IT', 'ES', 'PL', 'AT'], mechanism = peeling)",  # free
    "SELECT SUM(minutes) AS s, COUNT(*) AS n FROM reads WHERE country = 'IT' PRIVATE",
    "SELECT COUNT(*) AS n FROM reads WHERE country = 'IT' PRIVATE",  # one number of it
    "SELECT country, n FROM by_country ORDER BY n DESC",
    "SELECT * FROM by_month",
)
_PUBLISHED = (
    ("by_country", "SELECT country, COUNT(*) AS n FROM reads GROUP BY country TOP 3 PRIVATE WITH (epsilon = 0.9)"),
    ("by_month", "SELECT date_trunc('month', day) AS month, COUNT(*) AS n FROM reads GROUP BY 1 ALL PRIVATE"),
)
_RANGES = """[tables.reads.bounds]
rows = 4
amount = { max = 150, each = { min = 0, max = 100 } }
minutes = { max = 60, each = { min = 0, max = 30 } }
score = { min = -3, max = 12, each = { min = 0, max = 6 } }
article = { distinct = 3 }
[tables.reads.calendar]
day = { first = 2026-01-01, last = 2026-03-31 }
"""
_VOTES = '[tables.votes]\nprivacy_unit = "teacher"\n'


def _find_bounds(database: Path, policy: Path) -> tuple[Any, bool]:
    found = import_module("dpsql.curator").suggest_bounds(policy, "reads", ["minutes"], database=database)
    return list(found.lines), found.loss == type(found.loss).nothing()


def _label(database: Path, policy: Path) -> tuple[Any, bool]:
    pate = import_module("dpsql.pate")
    with dpsql.connect(database, policy=policy) as session:
        method = pate.Stable(dpsql.Epsilon("0.5"), dpsql.Delta("1e-8"), 5)
        found = pate.label(session, "votes", examples=range(3), method=method)
    return list(map(repr, found.labels)), found.receipt.replayed


# What is charged and stored, and is no statement; each returns what was found, and whether that was free.
ACTS: dict[str, Callable[[Path, Path], tuple[Any, bool]]] = {"bounds": _find_bounds, "labels": _label}
IN_POSTGRES = "analysts"  # whose ledger is written into PostgreSQL too
POLICIES: dict[str, PolicyCase] = {
    "plain": PolicyCase(_policy(_TABLE), _OF_UNITS),
    "measures": PolicyCase(
        _policy(_TABLE, _BOUNDS, users="[tables.users.bounds]\nrows = 1\n"),
        (*_ask(*_OF_MEASURES, since="0.11"), *_IMPLICIT),
        since="0.11",
    ),
    "rules": PolicyCase(
        _policy(
            _TABLE, 'max_groups_contributed = 6\nmin_units = 3\npopulation = 400\none_value_per_unit = ["country"]\n'
        ),
        (
            *_SOME,
            *_ask(
                "SELECT country, article FROM reads GROUP BY country, article TOP 2 PRIVATE PER country "
                "WITH (partitions = ['DE', 'FR'])",
                "SELECT country, COUNT(DISTINCT user_id) FROM reads GROUP BY country TOP 2 PRIVATE "
                "WITH (domain = 'countries.country')",
            ),
        ),
    ),
    "kinds": PolicyCase(
        _policy(
            _TABLE, _RANGES, _VOTES, users="bounds = { rows = 1, age = { max = 99, each = { min = 18, max = 99 } } }\n"
        ),
        _ask(*_KINDS, since="0.12"),
        since="0.12",
        published=_PUBLISHED,
        acts=("bounds", "labels"),
    ),
    "values": PolicyCase(
        _policy(_TABLE + 'budget_by = "country"\n', "[limits]\nconsent = true\n"),
        _ask(
            _COUNTED,
            "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads WHERE country = 'DE' GROUP BY 1 TOP 3 PRIVATE",
            since="0.12",
        ),
        since="0.12",
    ),
    "options": PolicyCase(_policy(_TABLE), _ask(*_OF_OPTIONS)),
    "population": PolicyCase(_policy(_TABLE, "population = 400\n"), _SOME),
    "large": PolicyCase(_policy(_TABLE, "population = 4000000\n"), _SOME),
    "analysts": PolicyCase(
        _policy(_TABLE, "[analysts.ada]\nepsilon = 20.0\n[analysts.bob]\nepsilon = 15.0\nitems = 700\n"),
        _SOME,
        analysts=("ada", "bob"),
    ),
    "shared": PolicyCase(
        _policy(
            _TABLE, "[limits]\nshare_replays = true\n[analysts.ada]\nepsilon = 20.0\n[analysts.bob]\nepsilon = 20.0\n"
        ),
        _SOME,
        analysts=("ada", "bob"),
    ),
    "periods": PolicyCase(_policy(_TABLE, budget=_BUDGET + 'period = "1400w"\nperiods = 3\n'), _SOME),
    "bumped": PolicyCase(_policy(_TABLE, head="data_version = 2\n"), _SOME),
    **{
        certificate: PolicyCase(
            _policy(_TABLE, budget=_FEW + f'certificate = "{certificate}"\n'),
            _ask(
                _TOP,
                _COUNTED,
                "SELECT country FROM reads GROUP BY country TOP 2 PRIVATE WITH (domain = 'countries.country')",
                f"{_COUNTED} WITH (mechanism = limited_domain)",
            ),
        )
        for certificate in ("pure", "theorem2", "optimal")
    },
}


def _write(archive: zipfile.ZipFile, url: str | None) -> None:
    """Write the ledgers of all policies that this version of dpsql reads, and what it answered; one to `url` too."""
    with TemporaryDirectory() as name:
        database = make_database(Path(name) / "events.duckdb")
        for case, each in POLICIES.items():
            _write_case(archive, case, each, database)
        if url is not None:
            case = POLICIES[IN_POSTGRES]
            moved = replace(case, policy=use_ledger(case.policy, url))
            _write_case(archive, "postgres", moved, database)


def _write_case(archive: zipfile.ZipFile, name: str, case: PolicyCase, database: Path) -> None:
    place = database.parent / name
    place.mkdir()
    (place / "policy.toml").write_text(case.policy)
    answers = [each for analyst in case.analysts for each in _ask_all(database, place / "policy.toml", case, analyst)]
    text = "".join(json.dumps(answered) + "\n" for answered in answers if answered)
    if text:
        ledger = place / "spent.ledger"
        for path, content in (
            (f"{name}.jsonl", text.encode()),
            (f"{name}.ledger", ledger.read_bytes() if ledger.exists() else b""),
        ):
            if content:
                archive.writestr(zipfile.ZipInfo(path), content, zipfile.ZIP_DEFLATED)


def use_ledger(policy: str, url: str) -> str:
    """Return a policy with its ledger in PostgreSQL."""
    return policy.replace(_HEAD, f'ledger = "{url}"\n')


def _dump(program: str, url: str) -> str:
    """Return the SQL that makes a schema again, which is called `ledger_of_a_version` in it."""
    address, _, schema = url.rpartition("&schema=")
    command = [program, "--inserts", "--no-owner", "--no-privileges", f"--schema={schema}", address]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [line for line in found.splitlines() if line and not line.startswith(("\\", "--"))]
    return "\n".join(lines).replace(schema, "ledger_of_a_version") + "\n"


def _ask_all(database: Path, policy: Path, case: PolicyCase, analyst: str | None) -> list[dict[str, Any] | None]:
    try:
        session = dpsql.connect(database, policy=policy, analyst=analyst)
    except dpsql.Error as error:
        print(policy.parent.name, error)  # noqa: T201
        return []
    for name, text in case.published:
        import_module("dpsql.curator").publish(policy, name, text, database=database)
    acts = [{"act": name, "found": ACTS[name](database, policy)[0]} for name in case.acts]
    with session:
        return [*acts, *(_ask_one(session, each, analyst) for each in case.questions)]


def _ask_one(session: Any, question: Question, analyst: str | None) -> dict[str, Any] | None:
    more = {"implicit": True} if question.implicit else {}
    try:
        answer = session.sql(question.text, question.parameters, **more)
    except (dpsql.Error, TypeError) as error:
        print(f"{question.text}\n    {type(error).__name__}: {error}")  # noqa: T201
        return None
    return {
        "text": question.text,
        "parameters": question.parameters,
        "implicit": question.implicit,
        "analyst": analyst,
        "rows": [list(map(str, row)) for row in answer.fetchall()],
        "replayed": answer.receipt.replayed,
        "mechanism": answer.receipt.mechanism,
    }


def _main(place: str, *more: str) -> None:
    warnings.simplefilter("ignore")
    if more[:1] == ("--case",):
        with zipfile.ZipFile(place, "a") as archive, TemporaryDirectory() as name:
            _write_case(archive, more[1], POLICIES[more[1]], make_database(Path(name) / "events.duckdb"))
        return
    url, program = more or (None, "")
    with zipfile.ZipFile(place, "w") as archive:
        _write(archive, url)
        if url is not None:
            archive.writestr(zipfile.ZipInfo("postgres.sql"), _dump(program, url), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    _main(*sys.argv[1:])
