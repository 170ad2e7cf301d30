"""Sessions of tools that people use, each a program of its own in tests/server/tools, and what is right in them.

A session connects, lists tables and columns, asks a private query twice and a public one, prepares a statement, is
refused, and cancels: the steps of `CELLS`, as far as the tool has them. Its other steps are further statements that
the tool writes by itself, of which none may fail.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from support.foreign_clients import JDBC, Steps, missing, node, run

__all__ = ["CELLS", "COLUMNS", "PUBLIC", "QUESTION", "REFUSED", "SLOW", "TOOLS", "Tool", "statements"]

SESSIONS = Path(__file__).parents[1] / "server" / "tools"
INSTALLED = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "dpsql-tools"
DEBIANS_PYTHON = Path("/usr/bin/python3")
CELLS: Mapping[str, Sequence[str]] = {  # the steps of each column of the table
    "connect": ("connect",),
    "introspect": ("introspect",),
    "ask": ("ask",),
    "replay": ("again", "after"),
    "public": ("public",),
    "prepared": ("prepared",),
    "error": ("refused",),
    "cancel": ("cancel",),
}
QUESTION = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 3 PRIVATE"
BY_COUNTRY = "SELECT article FROM reads WHERE country = {place} GROUP BY article TOP 2 PRIVATE"
SLOW = "SELECT country FROM reads WHERE article <> 'slow' GROUP BY country TOP 2 PRIVATE"
PUBLIC = "SELECT country, continent FROM countries ORDER BY country"
REFUSED = "SELECT user_id FROM reads"
COLUMNS = ["user_id", "article", "country", "ts"]


@dataclass(frozen=True)
class Tool:
    """A tool: its name, which is also that of its user; how to run its session; and the command that installs it.

    One that is `slow` to install or to start runs only where DPSQL_TOOLS names it, or is "all". `notes` says why a
    step fails, in a sentence for the table.
    """

    name: str
    title: str
    run: Callable[[Mapping[str, str]], Steps]
    install: str
    slow: bool = False
    notes: Mapping[str, str] = field(default_factory=dict)

    def session(self, given: Mapping[str, str]) -> Steps:
        """Run the session and return its steps; skip the test if the tool is not there or was not asked for."""
        wanted = os.environ.get("DPSQL_TOOLS", "")
        if self.slow and self.name not in wanted.split() and wanted != "all":
            pytest.skip(f"runs with DPSQL_TOOLS={self.name}, after: {self.install}")
        return self.run(given)


def statements() -> dict[str, str]:
    """Return the statements of every session by name; parameters are written as each tool writes them."""
    places = {"numbered": "$1", "marked": "?", "formatted": "%s", "named": ":place"}
    return {
        "question": QUESTION,
        "public": PUBLIC,
        "refused": REFUSED,
        "slow": SLOW,
        **{name: BY_COUNTRY.format(place=place) for name, place in places.items()},
    }


def _python(given: Mapping[str, str], *, program: str, python: Path | None = None, module: str = "") -> Steps:
    """Run a session in Python: of this environment, of one of its own, or of Debian's."""
    found = python or Path(sys.executable)
    if not found.exists() or (module and not _imports(found, module)):
        missing(f"{module or found} for {program}", required=python is None)
    return run([found, SESSIONS / program], dict(given), cwd=SESSIONS)


def _imports(python: Path, module: str) -> bool:
    return subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0


def _node(given: Mapping[str, str], *, program: str, folder: str = "node") -> Steps:
    return node(program, dict(given), source=SESSIONS / folder)


def _interpreted(given: Mapping[str, str], *, words: Sequence[str], probe: Sequence[str] = ()) -> Steps:
    """Run a session by an interpreter, if a `probe` of its libraries succeeds."""
    found = shutil.which(words[0])
    if found is None or (probe and subprocess.run([found, *probe], capture_output=True, check=False).returncode):
        missing(f"{words[0]} with its library of PostgreSQL", required=False)
    return run([str(found), *words[1:]], dict(given), cwd=SESSIONS)


def _driver(name: str, given: Mapping[str, str]) -> Steps:
    return _python({**given, "driver": name}, program="ask_drivers.py")


def _in_own(name: str) -> Path:
    return INSTALLED / name / "bin" / "python"


def _apt(*packages: str) -> str:
    return f"apt-get install {' '.join(packages)}"


def _venv(name: str, *packages: str) -> str:
    folder, words = f"~/.cache/dpsql-tools/{name}", " ".join(f"'{package}'" for package in packages)
    return f"python3 -m venv {folder} && {folder}/bin/pip install {words}"


def _npm(name: str, *packages: str) -> str:
    return f"npm install --prefix ~/.cache/dpsql-tools/{name} --ignore-scripts {' '.join(packages)}"


def _slow_node(given: Mapping[str, str], *, program: str, name: str) -> Steps:
    """Run a session of Node.js beside the packages of one tool."""
    found = shutil.which("node")
    if found is None or not (INSTALLED / name / "node_modules").exists():
        missing(f"{INSTALLED / name}", required=False)
    for file in (program, "steps.mjs"):
        shutil.copy(SESSIONS / "node" / file, INSTALLED / name / file)
    return run([str(found), INSTALLED / name / program], dict(given), cwd=INSTALLED / name)


def _with(
    command: str, given: Mapping[str, str], *, program: str, python: Path | None = None, module: str = ""
) -> Steps:
    """Run a session in Python that starts a command."""
    if shutil.which(command) is None:
        missing(command, required=False)
    return _python(given, program=program, python=python, module=module)


def _spark(given: Mapping[str, str]) -> Steps:
    if shutil.which("java") is None or not JDBC.exists():
        missing("Java with pgjdbc", required=False)
    with tempfile.TemporaryDirectory() as scratch:
        return _python({**given, "jar": str(JDBC), "scratch": scratch}, program="ask_spark.py", module="pyspark")


def _go(given: Mapping[str, str], *, driver: str) -> Steps:
    """Build the session in Go with Debian's packages of source, once for each text of it, and run it."""
    found = shutil.which("go")
    if found is None or not (_GO_PATH / "src/github.com/jackc/pgx").exists():
        missing("Go with pgx and lib/pq", required=False)
    binary = _built(SESSIONS / "ask_pgx.go")
    if not binary.exists():
        environment = {**os.environ, "GO111MODULE": "off", "GOPATH": str(_GO_PATH)}
        subprocess.run([str(found), "build", "-o", binary, SESSIONS / "ask_pgx.go"], env=environment, check=True)
    steps = run([binary], {**given, "driver": driver}, cwd=SESSIONS)
    return {**steps, "version": {"value": _debian_version(_GO_PACKAGES[driver == "pq"])}}


def _rust(given: Mapping[str, str]) -> Steps:
    """Build the session in Rust with Debian's packages of source, once for each text of it, and run it."""
    found = shutil.which("cargo")
    if found is None or not any(_CRATES.glob("tokio-postgres-*")):
        missing("cargo with Debian's tokio-postgres", required=False)
    source = SESSIONS / "rust"
    target = _built(source / "src" / "main.rs")
    binary = target / "debug" / "ask-tokio-postgres"
    if not binary.exists():
        shutil.copytree(source, target, dirs_exist_ok=True)
        replaced = f'{{replace-with = "debian"}}\ndebian = {{directory = "{_CRATES}"}}'
        (target / ".cargo").mkdir(exist_ok=True)
        (target / ".cargo" / "config.toml").write_text(f"[source]\ncrates-io = {replaced}\n")
        subprocess.run([str(found), "build", "--offline", "--target-dir", target], cwd=target, check=True)
    return {**run([binary], dict(given), cwd=SESSIONS), "version": {"value": _debian_version(_RUST_PACKAGES[0])}}


def _debian_version(package: str) -> str:
    """Return the version of a package of Debian, without Debian's own part."""
    command = ["dpkg-query", "--show", "--showformat=${Version}", package]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.partition("-")[0]


def _built(source: Path) -> Path:
    """Return where the program of a source is built."""
    version = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    INSTALLED.mkdir(parents=True, exist_ok=True)
    return INSTALLED / f"{source.stem}-{version}"


_GO_PATH = Path("/usr/share/gocode")
_GO_PACKAGES = ("golang-github-jackc-pgx-v4-dev", "golang-github-lib-pq-dev")
_CRATES = Path("/usr/share/cargo/registry")
_RUST_PACKAGES = ("librust-tokio-postgres-dev", "librust-tokio-dev", "librust-serde-json-dev")
_RUBY = ("ruby", "ask_activerecord.rb")
TOOLS = (
    Tool("psql", "psql", partial(_with, "psql", program="ask_psql.py"), _apt("postgresql-client")),
    *(
        Tool(name, title, partial(_driver, name), f"pip install {name}")
        for name, title in (
            ("psycopg", "psycopg 3"),
            ("psycopg2", "psycopg 2"),
            ("asyncpg", "asyncpg"),
            ("pg8000", "pg8000"),
        )
    ),
    Tool(
        "django",
        "Django",
        partial(_python, program="ask_django.py", module="django"),
        "pip install django",
        notes={
            "introspect": "`inspectdb` reads a row to learn the columns (`SELECT * ... LIMIT 1`), "
            "which is refused for a private table."
        },
    ),
    Tool(
        "sqlmodel", "SQLModel", partial(_python, program="ask_sqlmodel.py", module="sqlmodel"), "pip install sqlmodel"
    ),
    Tool("pgcli", "pgcli", partial(_python, program="ask_pgcli.py", module="pgcli"), "pip install pgcli"),
    Tool(
        "sequelize",
        "Sequelize",
        partial(_node, program="ask_sequelize.mjs"),
        "tests/server/tools/node: npm ci",
        notes={
            "a table described without its schema": 'It looks in the schema `public` unless `schema: "main"` is given.'
        },
    ),
    Tool("typeorm", "TypeORM", partial(_node, program="ask_typeorm.mjs"), "tests/server/tools/node: npm ci"),
    Tool("knex", "Knex", partial(_node, program="ask_knex.mjs"), "tests/server/tools/node: npm ci"),
    Tool("drizzle", "Drizzle", partial(_node, program="ask_drizzle.mjs"), "tests/server/tools/node: npm ci"),
    Tool(
        "activerecord",
        "ActiveRecord",
        partial(_interpreted, words=_RUBY, probe=["-e", "require 'active_record'; require 'pg'"]),
        _apt("ruby-activerecord", "ruby-pg"),
    ),
    Tool(
        "qt",
        "Qt",
        partial(_python, program="ask_qt.py", python=DEBIANS_PYTHON, module="PyQt5.QtSql"),
        _apt("python3-pyqt5.qtsql", "libqt5sql5-psql"),
    ),
    Tool(
        "dbd",
        "Perl DBD::Pg",
        partial(_interpreted, words=["perl", "ask_dbd.pl"], probe=["-MDBD::Pg", "-e1"]),
        _apt("libdbd-pg-perl"),
    ),
    Tool(
        "php",
        "PHP PDO",
        partial(
            _interpreted, words=["php", "ask_php.php"], probe=["-r", "exit(extension_loaded('pdo_pgsql') ? 0 : 1);"]
        ),
        _apt("php-cli", "php-pgsql"),
        notes={
            "a table described without its schema": "`pg_meta_data` looks in the schema `public`; write `main.reads`."
        },
    ),
    Tool("pgbench", "pgbench", partial(_with, "pgbench", program="ask_pgbench.py"), _apt("postgresql-contrib")),
    Tool("pgbouncer", "PgBouncer", partial(_with, "pgbouncer", program="ask_pgbouncer.py"), _apt("pgbouncer")),
    Tool("spark", "Spark JDBC", _spark, _apt("libpostgresql-jdbc-java", "default-jre-headless"), slow=True),
    *(
        Tool(f"go-{name}", title, partial(_go, driver=driver), _apt("golang-go", *_GO_PACKAGES), slow=True)
        for name, title, driver in (
            ("pgx", "Go pgx", "pgx"),
            ("pgx-sql", "Go pgx with database/sql", "pgx of database/sql"),
            ("pq", "Go lib/pq", "pq"),
        )
    ),
    Tool("rust", "Rust tokio-postgres", _rust, _apt("cargo", *_RUST_PACKAGES), slow=True),
    Tool(
        "r",
        "R RPostgreSQL and dbplyr",
        partial(_interpreted, words=["Rscript", "--vanilla", "ask_r.R"], probe=["-e", "library(RPostgreSQL)"]),
        _apt("r-cran-rpostgresql", "r-cran-dbplyr", "r-cran-jsonlite"),
        slow=True,
    ),
    Tool(
        "ibis",
        "ibis",
        partial(_python, program="ask_ibis.py", python=_in_own("ibis")),
        _venv("ibis", "ibis-framework[postgres]", "packaging", "sqlglot<30.1"),
        slow=True,
        notes={
            "sql of a private query": "`.sql()` parses the text as PostgreSQL, which has no `TOP k PRIVATE`; use "
            "`.raw_sql()`, or expressions with `dpsql.implicit`.",
        },
    ),
    Tool(
        "pgadmin",
        "pgAdmin 4",
        partial(_python, program="ask_pgadmin.py", python=_in_own("pgadmin")),
        _venv("pgadmin", "pgadmin4"),
        slow=True,
        notes={"Explain Analyze": "It would run the statement; Explain works."},
    ),
    Tool(
        "dbt",
        "dbt-postgres",
        partial(_python, program="ask_dbt.py", python=_in_own("dbt")),
        _venv("dbt", "dbt-core<1.11", "dbt-postgres<1.10"),
        slow=True,
        notes={
            "run of a view": "`dbt run` creates tables and views, and the server is read-only; `show`, `test` and "
            "`docs` work."
        },
    ),
    Tool(
        "libreoffice",
        "LibreOffice Base",
        partial(_with, "soffice", program="ask_libreoffice.py", python=DEBIANS_PYTHON, module="uno"),
        _apt("libreoffice-base", "libreoffice-sdbc-postgresql", "python3-uno"),
        slow=True,
    ),
    Tool(
        "drizzle-kit",
        "drizzle-kit pull",
        partial(_slow_node, program="ask_drizzle_kit.mjs", name="drizzle-kit"),
        _npm("drizzle-kit", "drizzle-kit", "drizzle-orm", "pg"),
        slow=True,
    ),
    Tool(
        "evidence",
        "Evidence",
        partial(_slow_node, program="ask_evidence.mjs", name="evidence"),
        _npm("evidence", "@evidence-dev/postgres"),
        slow=True,
        notes={"refused": "The page shows an error of Evidence itself: it reads the count of a query that failed."},
    ),
    Tool(
        "cube",
        "Cube",
        partial(_slow_node, program="ask_cube.mjs", name="cube"),
        _npm("cube", "@cubejs-backend/postgres-driver"),
        slow=True,
    ),
)
