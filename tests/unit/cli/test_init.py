"""`dpsql init` through real processes and real databases: what it writes, what it tells, and what it refuses."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tomllib
import unicodedata
from pathlib import Path

import duckdb
import pytest
from support.child_kit import Child
from support.command_kit import dpsql_command

import dpsql
from dpsql.policy.starter import _LIMIT_EXAMPLES, FoundColumn, FoundTable, decide

SHOP = """
CREATE TABLE countries (code VARCHAR PRIMARY KEY, name VARCHAR);
CREATE TABLE customers (
    customer_id BIGINT PRIMARY KEY, email VARCHAR UNIQUE, country VARCHAR REFERENCES countries(code));
CREATE TABLE orders (
    order_id BIGINT PRIMARY KEY, customer_id BIGINT REFERENCES customers(customer_id), product VARCHAR,
    tags VARCHAR[], created_at TIMESTAMP);
CREATE TABLE events (user_id BIGINT, sales_employee_id BIGINT, session_id VARCHAR, page VARCHAR);
CREATE TABLE messages (
    sender BIGINT REFERENCES customers(customer_id), recipient BIGINT REFERENCES customers(customer_id));
CREATE TABLE order_items (order_id BIGINT REFERENCES orders(order_id), product VARCHAR);
INSERT INTO customers SELECT i, 'SECRET' || i, NULL FROM range(3000) t(i);
INSERT INTO orders SELECT i, i, 'SECRET_ROW', NULL, NULL FROM range(3000) t(i);
"""
TABLES = """\
[tables.customers]
privacy_unit = "customer_id"  # named like the id of a customer; primary key of a table of people: one row for each \
unit; the same name in 1 other table
# not taken: email, named "email": one person may have several addresses; unique: one row for each unit
columns = [
    "customer_id",
    "email",  # looks like an e-mail address: consider leaving it out
    "country",
]
{bounds}

[tables.events]
privacy_unit = "user_id"  # named like the id of a user
# not taken: sales_employee_id, named like the id of an employee (sales)
# not taken: session_id, named "session": a session is not a person: one person has many
columns = [
    "user_id",
    "sales_employee_id",  # looks like the id of another person, who is not protected here: consider leaving it out
    "session_id",
    "page",
]
{bounds}

[tables.orders]
privacy_unit = "customer_id"  # named like the id of a customer; foreign key to customers, a table of people; the \
same name in 1 other table
columns = [
    "order_id",
    "customer_id",
    "product",
    # "tags" is left out: dpsql does not compute with VARCHAR[]
    "created_at",
]
{timed}

# countries is left to you. No column looks like a privacy unit. If a row can say anything about a person, it needs a
# column that names them.
# [tables.countries]
# privacy_unit = "..."  # the column that names the person of each row, if one does
# public = true  # unprotected: your word that no row of it says anything about any unit
# columns = [
#     "code",
#     "name",  # looks like a name: consider leaving it out
# ]
{left}

# messages is left to you. 2 columns could be the privacy unit. Choose one privacy_unit, or public.
# [tables.messages]
# privacy_unit = "sender"  # named like the id of a sender; foreign key to customers, a table of people
# privacy_unit = "recipient"  # named like the id of a recipient; foreign key to customers, a table of people
# public = true  # unprotected: your word that no row of it says anything about any unit
# columns = [
#     "sender",
#     "recipient",
# ]
{left}

# order_items is left to you. Its rows seem to belong to units of another table. They lead to orders by order_id: link
# them, once that table is decided.
# [tables.order_items]
# link = "order_id -> orders.KEY"  # in place of KEY, the unique column that it refers to
# public = true  # unprotected: your word that no row of it says anything about any unit
# columns = [
#     "order_id",
#     "product",
# ]
{left}
"""
BOUNDS = """\
# max_groups_contributed = 10  # count a unit in at most so many groups of a query: thresholds and counts sink
# one_value_per_unit = []  # columns of which a unit has one value: the top of each value costs as one list
# bounds = { rows = 20 }  # of a unit in a group: guesses, which dpsql bounds replaces
# min_units = 100  # release no group of fewer units than about this: a noisy rule, not an exact test
# population = 10_000  # about how many units there are, if that is public: hopeless queries need consent"""
TIMED = BOUNDS.replace(
    "# min_units",
    "# calendar = { created_at = { first = 2025-01-01, last = 2026-12-31 } }"
    "  # days of a time series without bounds in WHERE\n"
    '# not_null = ["created_at"]  # columns that are never NULL: no group of NULL is listed for them\n# min_units',
)
HOSTILE = [
    "two words",
    'quote"d',
    "a.b",
    "back\\slash",
    "new\nline",
    '"]\n[budget]\nepsilon = 100.0 #',
    "\x1b[31mred\x1b]0;title\x07",
    "\u202egnp.exe",
    "\x7f\x85\u2028",
    "\U000e0001",
    "ünï 漢字",
    "É",
    "é",
    "budget",
    "tables",
    "'''",
    "#",
    "select",
]


def made(file: Path, sql: str) -> Path:
    with duckdb.connect(str(file)) as connection:
        connection.execute(sql)
    return file


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return made(tmp_path / "shop.duckdb", SHOP)


def test_the_commented_settings_of_a_dashboard_work_as_they_are(tmp_path: Path) -> None:
    made(
        tmp_path / "shop.duckdb",
        "CREATE TABLE orders AS SELECT i AS order_id, i % 900 AS customer_id, i / 7 AS amount, "
        "TIMESTAMP '2026-01-01' AS ordered_at FROM range(9000) t(i)",
    )
    dpsql_command("init", "shop.duckdb", cwd=tmp_path)
    text = (tmp_path / "policy.toml").read_text()
    for key in ("[sql]", "implicit", "bounds", "calendar"):
        text = text.replace(f"\n# {key}", f"\n{key}")
    (tmp_path / "policy.toml").write_text(text)
    policy = dpsql.Policy.from_toml(tmp_path / "policy.toml")
    with dpsql.connect(tmp_path / "shop.duckdb", policy=policy, ledger=":memory:") as session:
        assert len(session.sql("SELECT COUNT(*), SUM(amount) FROM orders")) == 1
        plan = session.explain("SELECT date_trunc('year', ordered_at) AS year, COUNT(*) FROM orders GROUP BY year")
        assert str(plan.query.clause) == "ALL PRIVATE"


def test_a_realistic_schema(shop: Path) -> None:
    code, out, err = dpsql_command("init", "shop.duckdb", cwd=shop.parent)
    assert (code, err) == (0, "")
    text = (shop.parent / "policy.toml").read_text()
    assert text.startswith('# A starter policy for dpsql, written from the schema of "shop.duckdb": ')
    left = "\n".join(f"# {line}" for line in BOUNDS.splitlines())
    assert text.endswith("\n\n" + TABLES.format(bounds=BOUNDS, timed=TIMED, left=left))
    told = out.decode().splitlines()
    assert told[0] == "Wrote policy.toml: a starter policy from names, types and keys; no row was read."
    assert "    consider leaving out: email" in told
    assert "messages: left to you. 2 columns could be the privacy unit. Choose one privacy_unit, or public." in told
    assert "    sender: named like the id of a sender; foreign key to customers, a table of people" in told
    assert told[-4] == "Decided: 3. Left to you: 3. What is not decided does not exist for analysts."
    assert told[-3].endswith(": dpsql check --db shop.duckdb")
    assert told[-2].endswith(": dpsql bounds customers --db shop.duckdb")
    assert told[-1].startswith("First query: dpsql query --db shop.duckdb 'SELECT ")
    assert "SECRET" not in text + out.decode()
    assert sorted(file.name for file in shop.parent.iterdir()) == ["policy.toml", "shop.duckdb"]


def test_what_is_written_opens_and_answers(shop: Path) -> None:
    dpsql_command("init", "shop.duckdb", cwd=shop.parent)
    policy = dpsql.Policy.from_toml(shop.parent / "policy.toml")
    assert policy.ledger == shop.parent / "ledger.sqlite"
    assert set(policy.tables) == {"customers", "events", "orders"}
    assert policy.budget == dpsql.Budget(1, "1e-6")
    with dpsql.connect(shop, policy=policy) as session:
        answer = session.sql("SELECT product FROM orders GROUP BY product TOP 1 PRIVATE")
        assert answer.fetchall() == [("SECRET_ROW",)]


def test_every_commented_setting_holds_when_its_comment_sign_is_removed(shop: Path) -> None:
    dpsql_command("init", "shop.duckdb", cwd=shop.parent)
    file = shop.parent / "policy.toml"
    settings = ("# [limits]", "# max_", "# min_", "# population")
    lines = file.read_text().splitlines()
    text = "\n".join(line.removeprefix("# ") if line.startswith(settings) else line for line in lines)
    head, _, messages = text.partition("# [tables.messages]")
    block, blank, rest = messages.partition("\n\n")
    lines = [line.removeprefix("# ") for line in block.splitlines() if '"recipient"  #' not in line]
    chosen = "\n".join(line for line in lines if not line.startswith("public"))
    file.write_text(f"{head}[tables.messages]{chosen}{blank}{rest}")
    policy = dpsql.Policy.from_toml(file)
    assert policy.limits == dpsql.Limits(max_delta="5e-7", **_LIMIT_EXAMPLES)
    assert policy.tables["messages"] == dpsql.PrivateTable("sender", ["sender", "recipient"])
    orders = policy.tables["orders"]
    assert isinstance(orders, dpsql.PrivateTable)
    assert (orders.max_groups_contributed, orders.min_units, orders.population) == (10, 100, 10_000)
    dpsql.connect(shop, policy=file).close()


def test_an_existing_file_is_kept_unless_it_is_forced(shop: Path) -> None:
    file = shop.parent / "policy.toml"
    file.write_text("mine")
    code, out, err = dpsql_command("init", "shop.duckdb", cwd=shop.parent)
    assert (code, out) == (2, b"")
    assert err.startswith("dpsql: [output-exists] at policy.toml: ")
    assert file.read_text() == "mine"
    code, _, err = dpsql_command("init", "shop.duckdb", "--force", cwd=shop.parent)
    assert (code, err) == (0, "")
    assert "[tables.orders]" in file.read_text()


@pytest.mark.parametrize("name", ["shop.duckdb", "./link.toml"])
def test_the_database_itself_is_never_replaced(shop: Path, name: str) -> None:
    (shop.parent / "link.toml").symlink_to(shop)
    before = shop.read_bytes()
    code, _, err = dpsql_command("init", "shop.duckdb", "--output", name, "--force", cwd=shop.parent)
    assert code == 2
    assert "[output-exists]" in err
    assert shop.read_bytes() == before


@pytest.mark.parametrize("name", ["nowhere/policy.toml", "folder"])
def test_a_place_that_cannot_be_written(shop: Path, name: str) -> None:
    (shop.parent / "folder").mkdir()
    code, _, err = dpsql_command("init", "shop.duckdb", "--output", name, "--force", cwd=shop.parent)
    assert code == 2
    assert err.startswith(f"dpsql: [output-unwritable] at {name}: ")
    assert len(err.splitlines()) == 1


def test_standard_output(shop: Path) -> None:
    code, out, err = dpsql_command("init", "shop.duckdb", "--output", "-", cwd=shop.parent, PYTHONIOENCODING="ascii")
    assert code == 0
    assert set(tomllib.loads(out.decode())["tables"]) == {"customers", "events", "orders"}
    assert "orders: unit customer_id" in err
    assert not (shop.parent / "policy.toml").exists()


@pytest.mark.properties
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_names(tmp_path: Path, name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    columns = f"user_id BIGINT, {quoted} VARCHAR, e ENUM('\n[budget]', '\x1b[2J')"
    lost = f'CREATE TABLE gone (a INT); CREATE VIEW {quoted[:-1]} lost" AS SELECT * FROM gone; DROP TABLE gone;'
    file = made(
        tmp_path / "data.duckdb",
        f"CREATE TABLE {quoted} ({columns}, s STRUCT({quoted} INT)); CREATE SCHEMA s; "
        f"CREATE TABLE s.{quoted} AS FROM {quoted}; CREATE TABLE other (u BIGINT, {quoted} VARCHAR); {lost}"
        f"INSERT INTO {quoted} SELECT i, 'a', NULL, NULL FROM range(3000) t(i)",
    )
    code, out, err = dpsql_command("init", "data.duckdb", cwd=tmp_path)
    assert (code, err) == (0, "")
    text = (tmp_path / "policy.toml").read_text()
    for shown in (text, out.decode()):
        assert {char for char in shown if unicodedata.category(char)[0] == "C"} == {"\n"}
        assert "\u2028" not in shown
    policy = dpsql.Policy.from_toml(tmp_path / "policy.toml")
    assert policy.budget == dpsql.Budget(1, "1e-6")
    table = f"main.{name}" if "." in name else name
    expected = dpsql.PrivateTable("user_id", ["user_id", name, "e"])
    assert dict(policy.tables) == {table: expected, f"s.{name}": expected}
    with dpsql.connect(file, policy=policy, ledger=":memory:") as session:
        plain = quoted if "." not in name else f"main.{quoted}"
        answer = session.sql(f"SELECT {quoted} AS a FROM {plain} GROUP BY a TOP 1 PRIVATE")
        assert answer.fetchall() == [("a",)]


def test_names_that_no_policy_can_mean_are_listed_and_nothing_else(tmp_path: Path) -> None:
    file = made(
        tmp_path / "data.duckdb",
        'CREATE SCHEMA "x.y"; CREATE TABLE "x.y".t (user_id INT); CREATE TABLE "nul\0" (user_id INT); '
        'CREATE SCHEMA s; CREATE TABLE s.t (user_id INT); CREATE TABLE "s.t" (user_id INT); '
        'CREATE TABLE kept (user_id INT, "n\0" INT)',
    )
    code, _, err = dpsql_command("init", str(file), cwd=tmp_path)
    assert (code, err) == (0, "")
    text = (tmp_path / "policy.toml").read_text()
    for name in ("x.y.t", "main.nul\\u0000", "s.t", "main.kept.n\\u0000"):
        assert f'# "{name}" is left out. No name in a policy would mean it alone' in text
    policy = dpsql.Policy.from_toml(tmp_path / "policy.toml")
    assert dict(policy.tables) == {
        "main.s.t": dpsql.PrivateTable("user_id", ["user_id"]),
        "kept": dpsql.PrivateTable("user_id", ["user_id"]),
    }
    dpsql.connect(file, policy=policy, ledger=":memory:").close()


def test_views_are_tables_and_those_that_do_not_bind_are_named(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("user_id,SECRET\n1,2\n")
    made(
        tmp_path / "data.duckdb",
        "CREATE TABLE t (user_id INT, page VARCHAR); CREATE VIEW pages AS SELECT user_id, page FROM t; "
        "CREATE TABLE gone (a INT); CREATE VIEW broken AS SELECT * FROM gone; DROP TABLE gone; "
        f"CREATE VIEW outside AS SELECT * FROM '{tmp_path / 'rows.csv'}'",
    )
    code, out, err = dpsql_command("init", "data.duckdb", cwd=tmp_path)
    assert (code, err) == (0, "")
    text = (tmp_path / "policy.toml").read_text()
    assert "[tables.pages]" in text
    for view in ("broken", "outside"):
        assert f'# "main.{view}" is left out. This view cannot be read' in text
        assert f'"main.{view}": skipped. This view cannot be read' in out.decode()
    assert "SECRET" not in text + out.decode()


@pytest.mark.parametrize(
    "sql", ["SELECT 1", "CREATE TABLE countries (code VARCHAR)", "CREATE TABLE t (user_id DOUBLE, page VARCHAR)"]
)
def test_nothing_decided_is_said_and_the_file_is_no_policy_yet(tmp_path: Path, sql: str) -> None:
    made(tmp_path / "data.duckdb", sql)
    code, out, err = dpsql_command("init", "data.duckdb", cwd=tmp_path)
    assert (code, err) == (0, "")
    assert "No table was decided, so this policy cannot be used yet: decide at least one in the file." in out.decode()
    code, _, err = dpsql_command("check", "--policy", "policy.toml", cwd=tmp_path)
    assert code == 5
    assert err.startswith("dpsql: [policy-missing-key] at tables (policy.toml): ")


def test_a_database_that_someone_writes(shop: Path) -> None:
    writer = "import sys, duckdb; connection = duckdb.connect(sys.argv[1]); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", writer, str(shop)]
    with Child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        code, _, err = dpsql_command("init", "shop.duckdb", cwd=shop.parent)
        process.communicate()
    assert code == 6
    assert err.startswith("dpsql: [database-locked] at shop.duckdb: ")
    assert not (shop.parent / "policy.toml").exists()


def test_many_tables_and_columns(tmp_path: Path) -> None:
    columns = ", ".join(f"c{number} INT" for number in range(300))
    made(
        tmp_path / "data.duckdb",
        "".join(f"CREATE TABLE t{number} (user_id INT, {columns});" for number in range(40)),
    )
    code, out, _ = dpsql_command("init", "data.duckdb", cwd=tmp_path)
    assert code == 0
    assert "Decided: 40. Left to you: 0." in out.decode()


# other data than a DuckDB file

CSV = "editor_id,page,views,at\n" + "".join(
    f"{editor},page {editor % 3},{editor},2026-01-02 10:00:00\n" for editor in range(6000)
)


def first_query(out: str) -> list[str]:
    """Return the words of the first query that `dpsql init` proposes."""
    (line,) = [line for line in out.splitlines() if line.startswith("First query: ")]
    return shlex.split(line.removeprefix("First query: "))[1:]


def initialized(folder: Path, data: str, *options: str) -> str:
    code, out, err = dpsql_command("init", data, *options, cwd=folder)
    assert (code, err) == (0, ""), err
    return out.decode()


def assert_answers(folder: Path, out: str) -> None:
    """The policy answers its first query as it stands."""
    code, printed, err = dpsql_command(*first_query(out), "--format", "json", cwd=folder)
    assert code == 0, err
    assert json.loads(printed)["receipt"]["mechanism"] == "two_looks"


def test_a_csv_file(tmp_path: Path) -> None:
    (tmp_path / "my edits.csv").write_text(CSV)
    out = initialized(tmp_path, "my edits.csv")
    assert "the rows of CSV files were read, to guess their format, and types, which analysts see." in out
    assert "my_edits: unit editor_id, named like the id of an editor" in out
    policy = tomllib.loads((tmp_path / "policy.toml").read_text())["tables"]["my_edits"]
    assert policy["source"] == "my edits.csv"
    assert policy["columns"] == {"editor_id": "BIGINT", "page": "VARCHAR", "views": "BIGINT", "at": "TIMESTAMP"}
    assert dpsql_command("check", cwd=tmp_path)[0] == 0
    assert_answers(tmp_path, out)


def test_a_second_policy_beside_a_ledger_is_told_of_it(tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_text(CSV)
    for name in ("policy.toml", "other.toml"):
        out = dpsql_command("init", "visits.csv", "--output", name, cwd=tmp_path)[1].decode()
        assert ('write another name, such as ledger = "other-ledger.sqlite".' in out) == (name == "other.toml")
        assert dpsql_command("query", "SELECT COUNT(DISTINCT editor_id) FROM visits PRIVATE", cwd=tmp_path)[0] == 0


def test_what_was_guessed_and_what_the_rows_leave_open_is_on_the_screen(tmp_path: Path) -> None:
    rows = "".join(f"{i},{i},0{i},{i % 2},,0{i}/0{i}/2026\n" for i in range(1, 10))
    (tmp_path / "visits.csv").write_text(",user_id,zip,kind,left,day\n" + rows)
    out = initialized(tmp_path, "visits.csv")
    columns = tomllib.loads((tmp_path / "policy.toml").read_text())["tables"]["visits"]["columns"]
    assert columns == {
        "column0": "BIGINT",
        "user_id": "BIGINT",
        "zip": "VARCHAR",
        "kind": "BIGINT",
        "left": "VARCHAR",
        "day": "DATE",
    }
    for line in (
        "column0: it has no name in the file",
        "zip: left as text: numbers that begin with 0 would lose it.",
        "left: it has no value",
        "day: the rows do not say which number is the day",
    ):
        assert f"visits.{line}" in out
    assert "visits.kind" not in out
    assert "SELECT kind, COUNT(DISTINCT user_id)" in out  # and not of a column with a remark


def test_a_csv_file_of_another_format_from_init_to_a_query(tmp_path: Path) -> None:
    """A mark, a comment, semicolons, single quotes, commas in numbers, days first, offsets, CRLF and empty lines."""
    text = "\ufeff# export\r\nuser_id;page;price;day;ts;\r\n" + "".join(
        f"{i};'p{i % 3}; x';1.{i % 900 + 100},50;{i % 28 + 1:02d}.02.2026;"
        f"2026-01-0{i % 3 + 1}T23:30:00{'+-'[i % 2]}01:00;\r\n\r\n"
        for i in range(6000)
    )
    (tmp_path / "visits.csv").write_bytes(text.encode())
    out = initialized(tmp_path, "visits.csv")
    table = tomllib.loads((tmp_path / "policy.toml").read_text())["tables"]["visits"]
    assert table["csv"] == {
        "delim": ";",
        "quote": "'",
        "skip": 1,
        "decimal_separator": ",",
        "thousands": ".",
        "dateformat": "%d.%m.%Y",
        "timestampformat": "%Y-%m-%dT%H:%M:%S%z",
        "names": ["user_id", "page", "price", "day", "ts", "column5"],
    }
    assert list(table["columns"].values()) == ["BIGINT", "VARCHAR", "DOUBLE", "DATE", "TIMESTAMP", "VARCHAR"]
    assert dpsql_command("check", cwd=tmp_path)[0] == 0
    assert_answers(tmp_path, out)
    counted = "SELECT page, COUNT(DISTINCT user_id) AS n FROM visits WHERE ts::DATE = DATE '2026-01-02'"
    code, printed, err = dpsql_command(
        "query", f"{counted} GROUP BY page TOP 3 PRIVATE WITH (known = false)", "--format", "json", cwd=tmp_path
    )  # of known names one without a row is returned now and then
    assert code == 0, err
    # By UTC the second day has those of the offset +01:00 at i % 3 = 1, and of -01:00 at i % 3 = 0.
    rows = {row[0]: row[1] for row in json.loads(printed)["rows"]}
    assert rows.keys() == {"p0; x", "p1; x"}
    assert all(abs(n - 1000) < 500 for n in rows.values())


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("x.jsonl", b'{"user_id": 1}', "COPY (FROM read_json('x.jsonl')) TO 'x.parquet'"),
        ("x.xlsx", b"PK", "COPY (FROM read_xlsx('x.xlsx')) TO 'x.parquet'"),
        ("x.feather", b"ARROW1", "COPY (FROM rows) TO 'x.parquet'"),
        ("x.csv", b"", "The file is empty."),
        ("x.csv", b"user_id,page\n1,SECRET\nTotal\n", "Line 3 of the file"),
    ],
)
def test_a_file_of_another_kind_has_a_hint_that_helps(tmp_path: Path, name: str, data: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(data)
    code, _, err = dpsql_command("init", name, cwd=tmp_path)
    assert code in {5, 6}
    assert words in err
    assert "SECRET" not in err
    assert not (tmp_path / "policy.toml").exists()


def test_a_parquet_file_and_a_policy_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "rules").mkdir()
    duckdb.sql(
        f"COPY (SELECT i AS uid, 'p' || i % 3 AS page FROM range(6000) t(i)) TO '{tmp_path}/data/Visits 2026.parquet'"
    )
    out = initialized(tmp_path, "data/Visits 2026.parquet", "--output", "rules/visits.toml")
    assert tomllib.loads((tmp_path / "rules" / "visits.toml").read_text())["tables"]["visits_2026"]["source"] == (
        "../data/Visits 2026.parquet"
    )
    assert "no row was read" in out
    assert_answers(tmp_path, out)


def test_a_folder_of_files_and_a_folder_that_is_one_table(tmp_path: Path) -> None:
    mixed, whole = tmp_path / "mixed", tmp_path / "whole"
    mixed.mkdir()
    whole.mkdir()
    (mixed / "edits.csv").write_text(CSV)
    duckdb.sql(f"COPY (SELECT i AS device_id, 'x' AS app FROM range(9) t(i)) TO '{mixed}/sessions.parquet'")
    for part in range(2):
        duckdb.sql(
            f"COPY (SELECT i AS member_no, 'a' || i % 2 AS plan FROM range(6000) t(i)) TO '{whole}/{part}.parquet'"
        )
    out = initialized(tmp_path, "mixed")
    assert "edits: unit editor_id" in out
    assert 'sessions: unit device_id, named "device": a device is not a person' in out
    assert_answers(tmp_path, out)
    out = initialized(tmp_path, "whole", "--force")
    assert list(tomllib.loads((tmp_path / "policy.toml").read_text())["tables"]) == ["whole"]
    assert "whole: unit member_no" in out
    assert_answers(tmp_path, out)


def test_the_hints_for_a_duckdb_file_and_for_an_engine_that_is_not_installed(tmp_path: Path) -> None:
    place = tmp_path / "two words.duckdb"
    duckdb.connect(place).execute("CREATE TABLE visits (user_id INTEGER, page VARCHAR)").close()
    _, _, err = dpsql_command("init", "duckdb:two words.duckdb", cwd=tmp_path)
    words = shlex.split(err.partition("path: ")[2])
    assert dpsql_command(*words[1:], cwd=tmp_path)[0] == 0, err
    code, _, err = dpsql_command("init", "elsewhere:events", cwd=tmp_path)
    assert code != 0
    assert 'install the package that opens "elsewhere:"' in err


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ("nothing.duckdb", "database-missing"),
        ("wrong.duckdb", "database-unreadable"),
        ("nothing.csv", "source-missing"),
        ("empty", "source-missing"),
        ("broken.parquet", "source-unreadable"),
        ("nowhere://db/x", "policy-source"),
        ("md:my_db", "policy-source"),
        ("duckdb:x.duckdb", "database"),
        ("postgresql://nobody@127.0.0.1:1/x", "engine-unreachable"),
    ],
)
def test_data_of_which_no_policy_can_be_made(tmp_path: Path, data: str, code: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.parquet").write_text("no Parquet")
    (tmp_path / "wrong.duckdb").write_text("not a database, but long enough to have a header " * 200)
    exit_code, _, err = dpsql_command("init", data, cwd=tmp_path)
    assert exit_code == 6 if "duckdb" in data and ":" not in data else exit_code in {2, 5, 6}
    assert f"[{code}]" in err
    assert not (tmp_path / "nothing.duckdb").exists()
    assert "Traceback" not in err
    assert not (tmp_path / "policy.toml").exists()


@pytest.mark.parametrize("column", ["editor_id", "uid", "customer", "member_no", "device_id", "userId", "listener"])
def test_columns_that_are_proposed_as_units(column: str) -> None:
    found = FoundColumn(column, "BIGINT", readable=True, may_be_unit=True)
    (decision,) = decide([FoundTable("t", (found, FoundColumn("page", "VARCHAR", readable=True, may_be_unit=True)))])
    assert decision.unit is not None
    assert decision.unit.column == found


# defaults


def test_the_policy_here_and_the_environment_are_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with duckdb.connect(str(tmp_path / "events.duckdb")) as connection:
        connection.execute("CREATE TABLE reads AS SELECT i AS user_id, 'a' || i % 3 AS article FROM range(9000) t(i)")
    out = initialized(tmp_path, "events.duckdb")
    sql = first_query(out)[-1]
    asked = ("query", sql, "--format", "json")
    assert dpsql_command(*asked, "--db", "events.duckdb", cwd=tmp_path)[0] == 0
    code, _, err = dpsql_command(*asked, cwd=tmp_path)
    assert (code, "database" in err or "db" in err) == (6, True)
    assert dpsql_command(*asked, cwd=tmp_path, DPSQL_DB="events.duckdb")[0] == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    code, _, err = dpsql_command("budget", cwd=elsewhere)
    assert code == 5
    assert "[policy-missing]" in err
    named = {"DPSQL_POLICY": str(tmp_path / "policy.toml"), "DPSQL_DB": str(tmp_path / "events.duckdb")}
    assert dpsql_command(*asked, cwd=elsewhere, **named)[0] == 0
    code, out_, _ = dpsql_command("budget", cwd=elsewhere, **named)
    assert (code, b"of the budget is used, " in out_) == (0, True)
    for name, value in {**named, "DPSQL_ANALYST": "ana"}.items():
        monkeypatch.setenv(name, value)
    with dpsql.connect() as session:
        assert session.terms.account is not None
        assert session.terms.account.name == "ana"
        assert not session.sql(sql).receipt.replayed  # of another account
    monkeypatch.setenv("DPSQL_DB", str(tmp_path / "nowhere.duckdb"))
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"t": dpsql.PublicTable(source=tmp_path)})
    assert not policy.needs_database
