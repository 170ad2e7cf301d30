"""dbt with its adapter of PostgreSQL: debug, show, test, source freshness and docs of a project of sources."""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
from pathlib import Path

from dbt.cli.main import dbtRunner
from dbt.version import get_installed_version
from steps import given, say, step

PROJECT = {
    "dbt_project.yml": """
name: events
version: "1.0"
profile: events
model-paths: [models]
flags: {send_anonymous_usage_stats: false, use_colors: false}
""",
    "profiles.yml": """
events:
  target: dev
  outputs:
    dev: {{type: postgres, host: "{host}", port: {port}, user: "{user}", password: "{password}",
          dbname: "{database}", schema: main, threads: 2}}
""",
    "models/sources.yml": """
sources:
  - name: main
    tables:
      - name: reads
      - name: countries
        loaded_at_field: since::timestamp
        freshness: {warn_after: {count: 1000000, period: day}}
        columns:
          - {name: country, data_tests: [unique, not_null]}
          - {name: continent, data_tests: [{accepted_values: {values: [Europe, Oceania]}}]}
""",
    "models/continents.sql": "SELECT DISTINCT continent FROM {{ source('main', 'countries') }}",
}
folder = Path(tempfile.mkdtemp())
for name, text in PROJECT.items():
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text.format(**given) if name == "profiles.yml" else text)
os.chdir(folder)
runner = dbtRunner()


def run(*words: str) -> object:
    """Run a command of dbt and return its result; raise what it prints otherwise."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        done = runner.invoke([*words, "--profiles-dir", str(folder), "--project-dir", str(folder)])
    if done.exception is not None or not done.success:
        results = getattr(done.result, "results", [])
        raise RuntimeError("; ".join(str(one.message) for one in results) or str(done.exception) or printed.getvalue())
    return done.result


def rows(statement: str) -> list[list[object]]:
    (found,) = run("show", "--inline", statement, "--limit", "-1").results
    return [list(row.values()) for row in found.agate_table.rows]


def introspect() -> dict[str, list[str]]:
    run("docs", "generate", "--no-compile")
    sources = json.loads((folder / "target" / "catalog.json").read_text())["sources"]
    tables = {node["metadata"]["name"]: list(node["columns"]) for node in sources.values()}
    return {"tables": list(tables), "columns": tables["reads"]}


source = "SELECT country, continent FROM {{ source('main', 'countries') }} ORDER BY country"
say("version", {"value": get_installed_version().to_version_string(skip_matcher=True)})
step("connect", lambda: run("debug"))
step("ask", lambda: rows(given["question"]))
step("again", lambda: rows(given["question"]))
step("public", lambda: rows(source))
step("refused", lambda: rows(given["refused"]))
step("after", lambda: rows(given["question"].replace("reads", "{{ source('main', 'reads') }}")))
step("introspect", introspect)
step("show with its LIMIT", lambda: len(run("show", "--inline", given["question"]).results))
step("show of a model", lambda: len(run("show", "--select", "continents").results))
step("test", lambda: len(run("test").results))
step("source freshness", lambda: len(run("source", "freshness").results))
step("compile", lambda: len(run("compile").results))
step("run of a view", lambda: len(run("run").results))
