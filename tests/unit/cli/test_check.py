"""`dpsql check` through real processes: the words, the JSON, the numbers of a session, and what goes wrong."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb
import pytest
from support.command_kit import dpsql_command

import dpsql
from dpsql.accounting import BudgetState, Filter
from dpsql.answer import CountColumns
from dpsql.confinement import MEASURES
from dpsql.curator import change_units, check_policy, publish, read_history, read_promise, verify_ledger
from dpsql.plan import Plan
from dpsql.report.policy_text import describe_policy, write_promise

DOCS = Path(__file__).parents[3] / "docs"
POLICY_PAGE = (DOCS / "reference" / "policy.md").read_text()
POLICY = """\
ledger = "ledger.sqlite"
[budget]
epsilon = 2.0
delta = 1e-7
items = 60
queries = 12

[tables.reads]
privacy_unit = "user_id"
columns = ["user_id", "article", "author_id"]
max_groups_contributed = 5
min_units = 40

[tables.orders]
privacy_unit = "customer"

[tables.people]
public = true
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with duckdb.connect(str(tmp_path / "events.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE reads (user_id BIGINT, article VARCHAR, author_id INT, email VARCHAR, country VARCHAR, "
            "ts TIMESTAMP, is_member BOOLEAN, mood ENUM('SECRET_MOOD'));"
            "CREATE TABLE orders (customer BIGINT, total DOUBLE, user_agent VARCHAR);"
            "CREATE TABLE people (USER_ID BIGINT, patient_no INT, city VARCHAR);"
            "CREATE TABLE countries (country VARCHAR);"
            "INSERT INTO reads SELECT i, 'SECRET', i, 'SECRET', 'SECRET', NULL, TRUE, NULL FROM range(3000) t(i)"
        )
        connection.execute(f"COPY (SELECT 1 AS user_id, 'SECRET' AS page) TO '{tmp_path}/visits.parquet'")
    (tmp_path / "policy.toml").write_text(POLICY)
    return tmp_path


def checked(folder: Path, *arguments: str) -> str:
    before = sorted(file.name for file in folder.iterdir())
    code, out, err = dpsql_command("check", "--policy", "policy.toml", *arguments, cwd=folder)
    assert (code, err) == (0, "")
    assert sorted(file.name for file in folder.iterdir()) == before
    assert "SECRET" not in out.decode()
    return out.decode()


def facts(folder: Path, *arguments: str) -> dict[str, Any]:
    body = json.loads(checked(folder, "--format", "json", *arguments))
    assert isinstance(body, dict)
    return body


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_the_words(folder: Path) -> None:
    text = checked(folder, "--db", "events.duckdb")
    assert all(len(line) <= 100 for line in text.splitlines())
    assert re.findall(r"^[A-Z ]+$", text, re.MULTILINE) == [
        "WHO IS PROTECTED",
        "WHO MAY ASK",
        "WHAT IS EXPOSED",
        "WHAT THE BUDGET BUYS",
        "THE LEDGER",
        "THE PROCESS",
        "LOOK AGAIN",
    ]
    words = one_line(text)
    for sentence in (
        "reads: every user_id, all rows with the same user_id together.",
        "Each has (2, 1e-07)-differential privacy as one total over all queries and all analysts.",
        "people: public, so UNPROTECTED",
        "reads: user_id BIGINT, article VARCHAR, author_id INTEGER. not exposed: email, country, ts, is_member, mood.",
        "max_groups_contributed = 5: a unit counts in at most so many groups of a query, so true counts can be higher.",
        "min_units = 40: smaller groups are not released; a noisy rule, not an exact test.",
        "Where max_groups_contributed = 5 and min_units = 40:",
        f'"{folder / "ledger.sqlite"}". dpsql budget shows',
    ):
        assert sentence in words, sentence
    assert "Not checked" not in words


def test_what_confines_a_worker_is_said_and_what_is_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "THE WORKER" not in checked(folder)
    (folder / "policy.toml").write_text(POLICY + '[engine]\nisolation = "process"\ntime_limit = 9\n')
    for arguments in ([], ["--db", "events.duckdb"]):
        found = facts(folder, *arguments)
        assert found["isolation"] == "process"
        assert set(found["confinement"]) <= set(MEASURES)
        text = one_line(checked(folder, *arguments))
        assert "THE WORKER Data is opened, and released rows are computed with, in processes" in text
        if sys.platform == "linux":
            assert text.count("MISSING.") == len(MEASURES) - len(found["confinement"])
    check = replace(check_policy(folder / "policy.toml"), confinement=())
    monkeypatch.setattr(sys, "platform", "linux")
    text = one_line("\n".join(describe_policy(check)))
    assert "* MISSING. System calls are not filtered: the kernel has no seccomp" in text
    assert text.count("MISSING.") == len(MEASURES)
    monkeypatch.setattr(sys, "platform", "darwin")
    text = one_line("\n".join(describe_policy(check)))
    assert "only Linux can do that" in text
    assert "MISSING." not in text


def test_what_confines_the_catalog_of_a_server_is_tried_and_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert facts(folder)["catalog_confinement"] is None
    server = '[server]\nusers = "users.toml"\n'
    (folder / "policy.toml").write_text(POLICY + server + 'catalog = "none"\n')
    assert facts(folder)["catalog_confinement"] is None
    (folder / "policy.toml").write_text(POLICY + server)
    found = facts(folder)["catalog_confinement"]
    assert set(found) <= set(MEASURES)
    assert sys.platform != "linux" or "capabilities" in found
    monkeypatch.setattr(sys, "platform", "linux")
    for measures in (found, ()):
        check = replace(check_policy(folder / "policy.toml"), catalog_confinement=tuple(measures))
        text = one_line("\n".join(describe_policy(check)))
        assert "THE CATALOG A PostgreSQL that has the tables' columns and no rows" in text
        assert text.count("MISSING.") == len(MEASURES) - len(measures)
        assert ("It has no network." in text) is ("network" in measures)


def test_labels_and_fields_that_came_from_data_are_warned_of(folder: Path) -> None:
    with duckdb.connect(str(folder / "events.duckdb")) as connection:
        connection.execute("CREATE TABLE seen(who BIGINT, mood ENUM('SECRET')[], page STRUCT(secret INT), day DATE)")
    (folder / "policy.toml").write_text(f'{POLICY}[tables.seen]\nprivacy_unit = "who"\n')
    labels, fields = facts(folder, "--db", "events.duckdb")["warnings"][-2:]
    assert labels.startswith("seen: the labels of mood came from data; they are not shown: analysts see the type ENUM")
    assert fields == "seen: the fields of page may have come from data; they are not shown."


def test_the_warnings(folder: Path) -> None:
    author, *others = facts(folder, "--db", "events.duckdb")["warnings"]
    assert author.startswith("reads: author_id (named like the id of an author) may name a person other than user_id")
    assert others == [
        "orders: no columns are listed, so all of them exist for analysts, also those added later.",
        "people is public, but USER_ID is called like a privacy unit: is nothing in it private?",
        "people is public, but patient_no is named like the id of a patient: is nothing in it private?",
    ]


def test_findings_have_codes_places_and_hints(folder: Path) -> None:
    body = json.loads(checked(folder, "--json", "--db", "events.duckdb"))
    assert body == facts(folder, "--db", "events.duckdb")
    assert [finding["message"] for finding in body["findings"]] == body["warnings"]
    assert {finding["severity"] for finding in body["findings"]} == {"warning"}
    assert [(finding["code"], finding["place"], finding["hint"]) for finding in body["findings"]] == [
        (
            "other-person",
            "tables.reads.columns (policy.toml, line 10)",
            "Leave author_id out of columns, unless analysts need it.",
        ),
        (
            "all-columns",
            "tables.orders (policy.toml, line 14)",
            'Write columns = ["customer", "total", "user_agent"] below [tables.orders].',
        ),
        (
            "public-unit",
            "tables.people (policy.toml, line 17)",
            'If something is, write privacy_unit = "USER_ID" in place of public = true.',
        ),
        (
            "public-person",
            "tables.people (policy.toml, line 17)",
            'If something is, write privacy_unit = "patient_no" in place of public = true.',
        ),
    ]


@pytest.mark.parametrize(
    ("settings", "codes"),
    [
        ("", ["no-ledger", "large-delta", "large-epsilon", "no-end", "share-replays", "no-time-limit", "many-rows"]),
        ("dwell = {max = 9, each = {min = 0, max = 10}}", ["bounds-contradict"]),
        ("dwell = {max = 9999999}", ["bounds-no-min"]),
    ],
)
def test_hints_of_findings_hold(folder: Path, settings: str, codes: list[str]) -> None:
    """A policy in which each hint was followed has no such finding."""
    text = '[budget]\nepsilon = 11\ndelta = 1e-5\nperiod = "1h"\n[limits]\nshare_replays = true\n'
    text += '[engine]\nisolation = "process"\n[tables.t]\nprivacy_unit = "u"\ncolumns = ["u", "dwell"]\n'
    text += "[tables.t.bounds]\nrows = 2000\n"
    with duckdb.connect(str(folder / "events.duckdb")) as connection:
        connection.execute("CREATE TABLE t(u INT, dwell INT)")

    def found(text: str) -> dict[str, str]:
        (folder / "policy.toml").write_text(text)
        check = check_policy(folder / "policy.toml", database=folder / "events.duckdb")
        return {each.code: each.hint for each in check.findings}

    before = found(text + settings)
    assert set(codes) <= set(before)
    for code in codes:
        hint = before[code]
        if code == "no-ledger":
            text = hint.removeprefix("Write ").removesuffix(" at the top of the policy.") + "\n" + text
        elif code == "no-time-limit":
            text = text.replace("[engine]\n", "[engine]\n" + hint.removeprefix("Write ").partition(" below")[0] + "\n")
        elif code == "no-end":
            text = text.replace("period =", f"{hint.removeprefix('Write ').partition(',')[0]}\nperiod =")
        elif code == "share-replays":
            text = text.replace("share_replays = true\n", "")
        elif code == "bounds-no-min":
            settings = settings.replace("{", "{" + hint.removeprefix("Write ").partition(",")[0] + ", ")
        elif code == "bounds-contradict":
            assert hint.startswith("Raise max")
            settings = settings.replace("max = 9,", "max = 20000,")
        else:
            key, _, value = hint.removeprefix("Write ").removesuffix(".").partition(" = ")
            text = re.sub(rf"^{key} = .*$", f"{key} = {value}", text, flags=re.MULTILINE)
    assert not set(codes) & set(found(text + settings))


def test_a_policy_of_listed_analysts_alone_is_doubted(folder: Path) -> None:
    text = POLICY.partition("[tables.orders]")[0].replace(', "author_id"', "") + "[analysts.ana]\nepsilon = 1\n"
    (folder / "policy.toml").write_text(text)
    (found,) = facts(folder, "--db", "events.duckdb")["findings"]
    assert (found["code"], "misspelt" in found["message"]) == ("no-default-analyst", True)
    (folder / "policy.toml").write_text(f"{text}[analysts.default]\nenabled = false\n")
    assert facts(folder, "--db", "events.duckdb")["findings"] == []


def test_a_policy_without_doubts(folder: Path) -> None:
    (folder / "policy.toml").write_text(POLICY.partition("[tables.orders]")[0].replace(', "author_id"', ""))
    assert facts(folder, "--db", "events.duckdb")["warnings"] == []
    assert one_line(checked(folder)).endswith(
        'No warnings. You must judge what a schema cannot say: see "Decide, table by table" in '
        "docs/how-to/write-a-policy.md."
    )
    assert "\n## Decide, table by table\n" in (DOCS / "how-to" / "write-a-policy.md").read_text()


def test_a_ledger_that_was_deleted_is_an_error(folder: Path) -> None:
    dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml").close()
    (folder / "ledger.sqlite").unlink()
    for command in ("check", "promise", "ledger verify ledger.sqlite"):
        code, out, err = dpsql_command(*command.split(), cwd=folder)
        assert (code, out) == (7, b"")
        assert "[ledger-rolled-back]" in err
    (folder / "ledger.sqlite.mark").unlink()
    assert dpsql_command("check", cwd=folder)[0] == 0


def test_large_parameters_and_no_ledger_are_doubted(folder: Path) -> None:
    text = POLICY.replace('ledger = "ledger.sqlite"', "").replace("2.0", "10.5").replace("1e-7", "1e-5")
    (folder / "policy.toml").write_text(text)
    body = facts(folder)
    assert body["ledger"] is None
    assert [warning.partition(":")[0] for warning in body["warnings"]][:3] == [
        "No ledger is named",
        "delta 1e-05 is large",
        "epsilon 10.5 is a weak guarantee",
    ]
    assert "recorded in memory and lost" in checked(folder)


def test_parameters_at_the_limit_are_not_doubted(folder: Path) -> None:
    (folder / "policy.toml").write_text(POLICY.replace("2.0", "10.0").replace("1e-7", "9.9e-6"))
    assert not any(warning.startswith(("delta", "epsilon")) for warning in facts(folder)["warnings"])


def planned(session: dpsql.Session, bought: dict[str, Any], *, table: str, unit: str, key: str) -> Plan:
    counts = f", COUNT(DISTINCT {unit}) AS n" if bought["counts"] else ""
    bound = bought["max_groups_contributed"]
    options = " WITH (mechanism = limited_domain"
    options += ")" if bound is None else f", max_groups_contributed = {bound})"
    return session.explain(f"SELECT {key}{counts} FROM {table} GROUP BY {key} TOP {bought['k']} PRIVATE{options}")


@pytest.mark.parametrize(
    "limits", ["", "[limits]\nmax_k = 40\nmax_k_bar = 500\nmax_epsilon = 0.02\nmax_delta = 1e-9\n"]
)
def test_the_numbers_are_those_of_a_session(folder: Path, limits: str) -> None:
    (folder / "policy.toml").write_text(POLICY + limits)
    body = facts(folder, "--db", "events.duckdb")
    with dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml", ledger=":memory:") as session:
        balance = session.budget
        assert (body["epsilon"], body["delta"]) == (float(balance.granted.epsilon), float(balance.granted.delta))
        assert body["rho"] == float(balance.rho.granted)
        assert body["delta_of_queries"] == float(balance.delta.granted)
        assert body["items"] == balance.items
        assert [(kind["max_groups_contributed"], kind["counts"]) for kind in body["buys"]] == [
            (5, False),
            (5, True),
            (5, True),
            (None, False),
            (None, True),
            (None, True),
        ]
        assert [kind["k"] for kind in body["buys"]][:3] == [10, 10, 40 if limits else 100]
        budget = session._dependencies.terms.budget
        for kind in body["buys"]:
            where = (
                ("reads", "user_id", "article")
                if kind["max_groups_contributed"]
                else ("orders", "customer", "user_agent")
            )
            plan = planned(session, kind, **dict(zip(("table", "unit", "key"), where, strict=True)))
            assert (kind["k_bar"], kind["worst_items"]) == (plan.k_bar, plan.worst_items)
            assert kind["threshold"] == float(plan.threshold_offset)
            assert (body["item_epsilon"], body["query_delta"]) == (float(plan.epsilon), float(plan.delta))
            expected = None if plan.counts is None else CountColumns((1,), plan.counts.variance).reach(0.95)
            assert kind["reach"] == expected
            state = BudgetState()
            for _ in range(kind["queries"]):
                state = Filter(budget).reserve(state, plan.price(plan.worst_case))
            assert not Filter(budget).admits(state, plan.price(plan.worst_case))


def test_a_k_below_ten_is_asked_once(folder: Path) -> None:
    (folder / "policy.toml").write_text(POLICY.partition("[tables.orders]")[0] + "[limits]\nmax_k = 3\n")
    assert [(kind["k"], kind["counts"]) for kind in facts(folder)["buys"]] == [(3, False), (3, True)]


def test_the_keys_of_the_json(folder: Path) -> None:
    body = facts(folder, "--db", "events.duckdb")
    assert set(body) == set(
        "epsilon delta rho delta_of_queries item_epsilon items query_delta queries ledger tables buys warnings "
        "findings certificate period periods totals analysts isolation confinement catalog_confinement "
        "implicit".split()
    )
    reads, _, people = body["tables"]
    assert reads == {
        "name": "reads",
        "privacy_unit": "user_id",
        "source": None,
        "columns": [
            {"name": "user_id", "type": "BIGINT"},
            {"name": "article", "type": "VARCHAR"},
            {"name": "author_id", "type": "INTEGER"},
        ],
        "hidden": ["email", "country", "ts", "is_member", "mood"],
        "max_groups_contributed": 5,
        "min_units": 40,
        "population": None,
        "one_value_per_unit": [],
        "materialized": [],
        "bounds": [],
        "calendar": [],
        "budget_by": None,
        "not_null": [],
        "link": None,
        "checked": True,
    }
    assert (people["privacy_unit"], people["hidden"], people["checked"]) == (None, [], True)
    assert set(body["buys"][0]) == set(
        "k counts max_groups_contributed min_units k_bar worst_items queries threshold least_threshold reach".split()
    )


def test_without_a_database_it_says_what_was_not_checked(folder: Path) -> None:
    text = one_line(checked(folder))
    assert "Not checked without a database (--db): whether reads, orders, people exist with these columns" in text
    assert "orders: every column of the database's table." in text
    assert [table["checked"] for table in facts(folder)["tables"]] == [False, False, False]
    assert [table["hidden"] for table in facts(folder)["tables"]] == [None, None, None]


def test_the_example_of_the_reference(folder: Path) -> None:
    (folder / "policy.toml").write_text(re.findall(r"```toml\n(.*?)```", POLICY_PAGE, re.DOTALL)[0])
    body = facts(folder)
    assert [table["checked"] for table in body["tables"]] == [False, True, False]
    visits = body["tables"][1]
    assert visits["columns"] == [{"name": "user_id", "type": "INTEGER"}, {"name": "page", "type": "VARCHAR"}]
    assert visits["source"] == str(folder / "visits.parquet")
    assert "Not checked without a database (--db): whether reads, countries exist" in one_line(checked(folder))
    text = checked(folder, "--db", "events.duckdb")
    assert "reads: user_id BIGINT, article VARCHAR, country VARCHAR, ts TIMESTAMP." in one_line(text)
    assert [table["checked"] for table in facts(folder, "--db", "events.duckdb")["tables"]] == [True, True, True]


def test_the_policy_of_the_demo(folder: Path) -> None:
    (folder / "policy.toml").write_text(
        "[budget]\nepsilon = 1.0\ndelta = 1e-6\nitems = 100\nqueries = 5\n"
        f'[tables.visits]\nprivacy_unit = "user_id"\nsource = "{files("dpsql.cli") / "data" / "msweb.parquet"}"\n'
    )
    body = facts(folder)
    assert [column["name"] for column in body["tables"][0]["columns"]] == ["user_id", "area", "split"]
    assert (body["items"], body["queries"]) == (100, 5)
    assert [warning.partition(":")[0] for warning in body["warnings"]] == ["No ledger is named", "visits"]


@pytest.mark.parametrize(
    ("old", "new", "exit_code", "code", "place"),
    [
        ("[tables.people]", "[tables.none]", 6, "table-missing", "tables.none (policy.toml, line 17)"),
        ('"article"', '"nothing"', 5, "policy-no-column", "tables.reads.columns (policy.toml, line 10)"),
        ('"customer"', '"total"', 5, "policy-unit-type", "tables.orders.privacy_unit (policy.toml, line 15)"),
        ("items = 60", "items = 1000000\n[limits]\nmin_epsilon = 0.1", 5, "policy-items", "budget.items (policy.toml,"),
        ("epsilon", "epsilom", 5, "policy-unknown-key", "budget.epsilom (policy.toml, line 3)"),
    ],
)
def test_a_policy_that_does_not_hold(folder: Path, old: str, new: str, exit_code: int, code: str, place: str) -> None:
    text = POLICY.replace("queries = 12\n", "") if "limits" in new else POLICY
    (folder / "policy.toml").write_text(text.replace(old, new, 1))
    found, out, err = dpsql_command("check", "--policy", "policy.toml", "--db", "events.duckdb", cwd=folder)
    assert (found, out) == (exit_code, b"")
    assert err.startswith(f"dpsql: [{code}] at {place}")
    assert len(err.splitlines()) == 1
    given = "--policy", "policy.toml", "--db", "events.duckdb", "--json"
    found, out, same = dpsql_command("check", *given, cwd=folder)
    assert (found, same) == (exit_code, err)
    (finding,) = json.loads(out)["findings"]
    assert (finding["severity"], finding["code"]) == ("error", code)
    assert finding["place"].startswith(place)
    assert finding["message"] in err
    assert err.endswith(f"Hint: {finding['hint']}\n")
    assert not (folder / "ledger.sqlite").exists()


def test_a_source_that_is_not_there_is_found_without_a_database(folder: Path) -> None:
    (folder / "policy.toml").write_text(POLICY.replace("public = true", 'public = true\nsource = "none.parquet"'))
    code, _, err = dpsql_command("check", "--policy", "policy.toml", cwd=folder)
    assert code == 6
    assert err.startswith("dpsql: [source-missing] at tables.people (policy.toml, line 17): ")


def test_what_is_no_ledger_is_refused_and_left_alone(folder: Path) -> None:
    (folder / "ledger.sqlite").write_text("no ledger at all")
    code, _, err = dpsql_command("check", "--policy", "policy.toml", "--db", "events.duckdb", cwd=folder)
    assert code == 7
    assert err.startswith(f"dpsql: [not-a-ledger] at {folder / 'ledger.sqlite'}: ")
    assert (folder / "ledger.sqlite").read_text() == "no ledger at all"


ASKED = "SELECT article FROM reads GROUP BY article TOP 1 PRIVATE"


def codes(folder: Path) -> list[str]:
    found = facts(folder, "--db", "events.duckdb")["findings"]
    return [each["code"] for each in found if each["code"] in {"budget-low", "data-changed"}]


def test_a_ledger_is_read_beside_a_session_that_has_it_open(folder: Path) -> None:
    with dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml") as session:
        assert codes(folder) == []
        session.sql(ASKED)
        assert codes(folder) == []
        for number in range(60):  # a total is an item of 60
            if session.budget.used >= Fraction(4, 5):
                break
            session.sql(f"SELECT COUNT(DISTINCT customer) FROM orders WHERE total > {number} PRIVATE")
            assert number != 40 or codes(folder) == []
        assert codes(folder) == ["budget-low"]


def test_data_that_was_written_after_its_version_is_told(folder: Path) -> None:
    visits = '[tables.visits]\nprivacy_unit = "user_id"\nsource = "visits.parquet"\n'
    (folder / "policy.toml").write_text(POLICY + visits)
    dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml").close()
    assert codes(folder) == []
    bump = ("data", "bump", "ledger.sqlite", "--note", "monday")
    for file in ("visits.parquet", "events.duckdb"):
        copy = folder / "copy"
        shutil.copy(folder / file, copy)
        os.utime(copy, (0, 0))
        copy.replace(folder / file)  # an older file in its place
        assert codes(folder) == ["data-changed"]
        assert dpsql_command(*bump, cwd=folder)[0] == 0
        assert codes(folder) == []
    later = time.time() + 5
    os.utime(folder / "visits.parquet", (later, later))
    assert codes(folder) == ["data-changed"]


def test_a_folder_with_one_file_more_or_less_is_told(folder: Path) -> None:
    (folder / "policy.toml").write_text(f'{POLICY}[tables.visits]\nprivacy_unit = "user_id"\nsource = "visits"\n')
    part = folder / "visits" / "day=1"
    part.mkdir(parents=True)
    for name in ("one.parquet", "two.parquet"):
        shutil.copy(folder / "visits.parquet", part / name)
    dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml").close()
    assert codes(folder) == []
    (part / "two.parquet").unlink()
    assert codes(folder) == ["data-changed"]


def test_another_unit_in_a_used_ledger_is_refused_unless_it_is_said(folder: Path) -> None:
    dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml").close()
    changed = POLICY.replace('privacy_unit = "user_id"', 'privacy_unit = "author_id"', 1)
    (folder / "policy.toml").write_text(changed)
    with dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml") as session:  # nothing was asked before
        session.sql(ASKED)
        spent = session.budget.rho.spent
    (folder / "policy.toml").write_text(POLICY)
    code, _, err = dpsql_command("check", "--policy", "policy.toml", "--db", "events.duckdb", cwd=folder)
    assert (code, err.startswith("dpsql: [ledger-unit] at tables.reads.privacy_unit: ")) == (5, True)
    with pytest.raises(dpsql.LedgerError, match="was author_id, and the policy says user_id") as caught:
        dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml")
    assert caught.value.code == "ledger-unit"
    assert "dpsql ledger units" in caught.value.hint
    said = dpsql_command("ledger", "units", "--policy", "policy.toml", "--note", "merged", cwd=folder)
    assert said == (0, b"The privacy unit of reads is user_id.\n", "")
    assert codes(folder) == []
    with dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml") as session:
        assert session.budget.rho.spent == spent


def test_a_private_table_of_a_used_ledger_becomes_public_only_if_it_is_said(folder: Path) -> None:
    with dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml") as session:
        session.sql(ASKED)
    private = POLICY[POLICY.index('privacy_unit = "user_id"') : POLICY.index("[tables.orders]")]
    (folder / "policy.toml").write_text(POLICY.replace(private, 'public = true\ncolumns = ["article"]\n\n'))
    code, _, err = dpsql_command("check", "--policy", "policy.toml", "--db", "events.duckdb", cwd=folder)
    assert (code, err.startswith("dpsql: [ledger-unit] at tables.reads.public: ")) == (5, True)
    with pytest.raises(dpsql.LedgerError, match="was user_id, and the policy says that the table is public"):
        dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml")
    said = dpsql_command("ledger", "units", "--policy", "policy.toml", "--note", "published", cwd=folder)
    assert said == (0, b"reads is public: nobody in it is protected.\n", "")
    for policy in (None, POLICY):  # what was public may become private
        (folder / "policy.toml").write_text(policy or (folder / "policy.toml").read_text())
        with dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml") as session:
            assert session.budget.rho.spent > 0
    assert codes(folder) == []
    promised = dpsql_command("promise", "--policy", "policy.toml", cwd=folder)[1].decode()
    assert "`reads`, until " in promised


def test_hostile_names_stay_on_their_line(folder: Path) -> None:
    with duckdb.connect(str(folder / "odd.duckdb")) as connection:
        connection.execute('CREATE TABLE "a\nb" (user_id INT, "\x1b[31m" ENUM(\'x\ny\'), "h\x07" INT)')
    (folder / "policy.toml").write_text(
        POLICY.partition("[tables")[0]
        + '[tables."a\\nb"]\nprivacy_unit = "user_id"\ncolumns = ["user_id", "\\u001b[31m"]\n'
    )
    text = checked(folder, "--db", "odd.duckdb")
    assert {char for char in text if not char.isprintable()} == {"\n"}
    assert '"a\\u000ab": user_id INTEGER, "\\u001b[31m" ENUM.' in text
    assert 'not exposed: "h\\u0007".' in text


def test_wrong_use(folder: Path) -> None:
    for arguments in (["check", "--policy", "policy.toml", "--format", "csv"], ["init"]):
        code, out, err = dpsql_command(*arguments, cwd=folder)
        assert (code, out) == (2, b"")
        assert "Usage: dpsql" in err


def test_shared_answers_are_worth_another_look(folder: Path) -> None:
    policy = folder / "policy.toml"
    assert "share_replays" not in checked(folder)
    policy.write_text(policy.read_text() + "\n[limits]\nshare_replays = true\n")
    assert "share_replays: one draw answers a question for all analysts" in checked(folder)


def test_a_worker_that_nothing_ends_is_worth_another_look(folder: Path) -> None:
    policy, text = folder / "policy.toml", (folder / "policy.toml").read_text()
    for engine, doubted in (("", False), ("time_limit = 60\n", False), ("threads = 1\n", True)):
        policy.write_text(f'{text}\n[engine]\nisolation = "process"\n{engine}' if engine else text)
        assert ("a statement that does not end is not killed" in checked(folder)) is doubted


def test_who_may_ask_is_read_back(folder: Path) -> None:
    policy = folder / "policy.toml"
    assert "Anybody who can open a session may spend all of the total." in checked(folder)
    unlisted, alice = "\n[analysts.default]\nenabled = false\n", "[analysts.alice]\nepsilon = 0.5\nitems = 40\n"
    policy.write_text(
        policy.read_text() + unlisted + alice + "[analysts.bob]\nepsilon = 0.1\n[analysts.bi]\nepsilon = 0\n"
    )
    told = one_line(checked(folder))
    assert (
        "alice: at most epsilon 0.5 and delta 2.5e-08 (7.3 % of the total's rho and 25 % of its delta), meant for 40 "
        "items and 12 queries." in told
    )
    assert "bob: at most epsilon 0.1 and delta 5e-09 (0.34 % of the total's rho and 5 % of its delta)" in told
    assert "bi: no share of the budget, so public and published tables alone." in told
    assert "Each of the unlisted: nothing." in told
    assert "may spend all" not in told
    asked = facts(folder)["analysts"]
    limits = [(analyst["name"], analyst["epsilon"]) for analyst in asked]
    assert limits == [("alice", 0.5), ("bob", 0.1), ("bi", 0.0), (None, None)]
    policy.write_text(policy.read_text().replace(unlisted, "\n"))
    assert "An analyst who is not listed may spend all of the total." in one_line(checked(folder))


def check_shares(
    certificate: str = "zcdp", code: str = "policy-shares", **analysts: dpsql.Analyst
) -> list[tuple[str, str]]:
    """Return the severity and the message of what is found about shares; raise where one is refused."""
    budget = dpsql.Budget(1, "1e-6", certificate=certificate)
    checked = check_policy(dpsql.Policy(budget, {"reads": dpsql.PrivateTable("user_id")}, analysts=analysts))
    return [(found.severity, found.message) for found in checked.findings if found.code == code]


@pytest.mark.parametrize("certificate", ["zcdp", "pure"])
def test_shares_of_which_one_can_use_up_anothers_are_refused(certificate: str) -> None:
    half, most = dpsql.Analyst("0.5"), dpsql.Analyst("0.6")
    assert not check_shares(certificate, ana=half, ben=half, cem=half, default=dpsql.Analyst("0.4"))
    assert not check_shares(certificate, ana=most, ben=dpsql.Analyst(enabled=False))
    with pytest.raises(
        dpsql.PolicyError, match=r"\[policy-shares\] .*ana and ben have more .* alone can use up a part"
    ):
        check_shares(certificate, ana=most, ben=half)
    with pytest.raises(dpsql.PolicyError, match="ana and an unlisted analyst have more"):
        check_shares(certificate, ana=most, default=half)
    ((severity, message),) = check_shares(certificate, default=most)
    assert severity == "warning"
    assert message.startswith("Two unlisted analysts have more ")


def test_shares_that_fit_in_pairs_and_not_together_are_warned_of() -> None:
    half, third = dpsql.Analyst("0.5"), dpsql.Analyst("0.333")
    ((severity, message),) = check_shares(code="shares-sum", ana=half, ben=half, cem=half)
    assert (severity, message.startswith("The limits of all 3 analysts together are more delta")) == ("warning", True)
    assert not check_shares(code="shares-sum", ana=third, ben=third, cem=third)


def test_where_the_policy_says_the_delta_itself_it_is_a_warning() -> None:
    half, said = dpsql.Analyst("0.5"), dpsql.Analyst("0.5", "1e-6")
    ((severity, message),) = check_shares(ana=said, ben=half)
    assert (severity, message.split(" together")[0]) == ("warning", "ana and ben have more delta")
    with pytest.raises(dpsql.PolicyError, match="ana and ben have more epsilon together"):
        check_shares(ana=dpsql.Analyst("0.9", "1e-6"), ben=dpsql.Analyst("0.9"))  # rho does not fit either
    ((severity, _),) = check_shares(ana=dpsql.Analyst("0.6", "1e-6"), ben=dpsql.Analyst("0.6"))
    assert severity == "warning"


READ_BACK: dict[str, tuple[dict[str, Any], str, str]] = {  # what a table says, a word of it, and what is told
    "population": (
        {"population": 2_000_000},
        "population = ",
        "population = 2,000,000: about so many units, in public; queries that can hardly return a row are warned of",
    ),
    "bounds": (
        {"bounds": {"rows": 20, "dwell": {"min": -0.5, "max": 600}}},
        "bounds: ",
        "bounds: rows = 20, dwell = {min = -0.5, max = 600}: COUNT(*), COUNT(DISTINCT x), SUM and AVG count no more",
    ),
    "one_value_per_unit": (
        {"one_value_per_unit": ["country", "sex"]},
        "one_value_per_unit",
        "one_value_per_unit = country, sex: PER one of these costs as one partition",
    ),
}


@pytest.mark.parametrize("key", READ_BACK)
def test_what_a_table_says_is_read_back(key: str) -> None:
    given, word, told = READ_BACK[key]
    tables = {"reads": dpsql.PrivateTable("user_id", **given), "visits": dpsql.PrivateTable("user_id")}
    check = check_policy(dpsql.Policy(dpsql.Budget(1, "1e-6"), tables))
    said, plain = (getattr(table, key) for table in check.tables)
    assert said in {2_000_000, ("rows = 20", "dwell = {min = -0.5, max = 600}"), ("country", "sex")}
    assert plain in {None, ()}
    text = one_line("\n".join(describe_policy(check)))
    assert told in text
    assert text.count(word) == 1


def test_standard_sql_is_read_back() -> None:
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PrivateTable("user_id")})
    told = [one_line("\n".join(describe_policy(check_policy(replace(policy, implicit=on))))) for on in (True, False)]
    words = "standard SQL over private tables is read as private"
    assert [words in text for text in told] == ["implicit" in text for text in told] == [True, False]


PROMISED = """\
ledger = "ledger.sqlite"
[budget]
epsilon = 1.0
delta = 1e-6
[tables.visits]
privacy_unit = "user_id"
columns = ["user_id", "area"]
[tables.orders]
privacy_unit = "customer_id"
columns = ["customer_id", "total"]
"""


HEAD = """\
`dpsql promise` prints this page with the numbers of your policy and the state of its ledger. Here it is for a policy
with two tables and a ledger that is not made yet. It says what is technical. What follows in law is for you to decide.
"""


def promised(folder: Path, *arguments: str) -> str:
    code, out, err = dpsql_command("promise", "--policy", "policy.toml", *arguments, cwd=folder)
    assert code == 0, err
    return one_line(out.decode().replace("\n> ", "\n"))


def test_the_page_for_a_data_protection_officer_is_what_promise_prints(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(PROMISED)
    page = DOCS / "explanation" / "legal-reading.md"
    policy = dpsql.Policy.from_toml(tmp_path / "policy.toml")
    found, state = read_promise(policy)
    whole = write_promise(policy, found, state=state)
    head = f"dpsql {dpsql.__version__} printed this page on {datetime.now(UTC):%Y-%m-%d} (UTC) for the policy `policy."
    assert f"\n\n{head}" in whole
    shown = one_line(re.sub(r"dpsql \S+ printed .*?decide\.\n", HEAD, whole, count=1, flags=re.DOTALL))
    link = "The guarantee and its limits"
    expanded = page.read_text().replace(f"[{link}](guarantee.md)", f"{link} (docs/explanation/guarantee.md)")
    assert one_line(expanded) == shown.replace(f"{tmp_path}/", "")
    printed = promised(tmp_path)
    assert f"{link} (docs/explanation/guarantee.md) says" in printed
    assert "](" not in printed
    assert all(len(line) <= 120 for line in whole.splitlines() if not line.startswith("|"))


def test_the_promise_has_the_numbers_of_the_policy(tmp_path: Path) -> None:
    period = PROMISED.replace("delta = 1e-6", 'delta = 1e-7\nperiod = "30d"').replace("epsilon = 1.0", "epsilon = 0.5")
    (tmp_path / "policy.toml").write_text(period)
    text, factor = promised(tmp_path), math.exp(0.5)
    two = math.ceil(100 * (1 + factor)) / 100
    for words in (
        "* `visits`: one unit is one `user_id` * `orders`: one unit is one `customer_id`",
        "The answers of one period of 30 days together satisfy (0.5, 1e-07)-differential privacy, and within any 30",
        " and within any 30 days at most two such budgets are used.",
        "WITHOUT END: all answers together have no limit.",
        f"e^0.5 = {math.ceil(100 * factor) / 100} times as likely",
        f"with at most {math.ceil(1e4 * factor / (99 + factor)) / 100} %",
        f"the epsilon, 1 in each period, and 1 + e^0.5 = {two} times the delta, {two}e-07.",
        "The unit of protection is `customer_id` and `user_id`",
    ):
        assert words in text, words
    (tmp_path / "policy.toml").write_text(period.replace("period =", "periods = 4\nperiod ="))
    last = check_policy(tmp_path / "policy.toml").totals[-1]
    text = promised(tmp_path)
    assert text.count(f"All answers of all periods together satisfy ({last.epsilon:g}, 4e-07).") == 2
    assert f"result is at most e^{last.epsilon:g} = " in text


def test_a_promise_that_protects_nobody_says_so(tmp_path: Path) -> None:
    weak = PROMISED.replace("1.0", "10.5").replace("1e-6", "0.01").replace('"area"', '"area", "author_id"')
    (tmp_path / "policy.toml").write_text(weak)
    text, factor = promised(tmp_path), f"{math.ceil(10 * math.exp(10.5)) / 10:,}"
    assert f"at most e^10.5 = {factor} times as likely" in text
    assert f"1 + e^10.5 = {math.ceil(10 * math.exp(10.5) + 10) / 10:,} times the delta, which promises nothing." in text
    assert text.count(f"**A factor of e^10.5 = {factor} protects a unit hardly or not at all**") == 2
    assert text.count("**0.01 is large**") == 2
    quoted = text.partition("Text for an impact assessment")[2]
    assert "`dpsql check` says: visits: author_id (" in quoted
    (tmp_path / "policy.toml").write_text(weak + "population = 5_000\n")
    assert (
        promised(tmp_path).count("**0.01 is more than 1 divided by 5,000, the population that the policy names**") == 2
    )
    many = PROMISED.replace("epsilon = 1.0", 'epsilon = 100\nperiod = "1h"\nperiods = 1_000_000').replace(
        "1e-6", "1e-7"
    )
    (tmp_path / "policy.toml").write_text(many)
    assert re.search(r"= \d\.\d{5}e\+\d{7,} protects", promised(tmp_path))  # more than a double can be


def test_the_promise_reads_the_ledger(folder: Path) -> None:
    policy, place, data = folder / "policy.toml", folder / "ledger.sqlite", folder / "events.duckdb"
    sql = "SELECT country, COUNT(DISTINCT article) FROM reads GROUP BY country TOP 1 PRIVATE"
    text = POLICY.replace('"author_id"', '"country"')
    policy.write_text(text.replace('privacy_unit = "user_id"', 'privacy_unit = "article"'))
    with dpsql.connect(data, policy=policy) as session:
        session.sql(sql)
        used = session.budget.percent_used
    assert f"{used:g} % is used." in promised(folder, "--db", "events.duckdb")
    policy.write_text(text)
    assert change_units(policy, note="merged") == {"reads": "user_id"}
    publish(policy, "weekly", sql.replace("article", "user_id"), database=data)
    policy.write_text(text.replace("epsilon = 2.0", "epsilon = 3.0"))
    text = promised(folder, "--db", "events.duckdb")
    until = [event.at for event in read_history(place) if event.kind == "registered"][-1]
    for words in (
        "* `reads`: one unit is one `user_id`",
        f"* `reads`, until {until[:16].replace('T', ' ')} UTC: one unit was one `article`.",
        "satisfy (2, 1e-07)-differential privacy",
        f"head of the chain: {verify_ledger(place).head}. Data version 0.",
        "The policy says (3, 1e-07), which does not hold before the curator runs `dpsql ledger grant`.",
        "* people is public, but USER_ID is called like a privacy unit",
        "Nothing is protected in the public tables: `people`.",
        "| published tables | in the ledger | `weekly`:",
    ):
        assert words in text, words
    assert "Not checked" not in text
    until = until[:16].replace("T", " ")
    assert text.count(f"Except: answers until {until} UTC protect the former units alone (`article` of `reads`).") == 2


def test_the_steps_of_a_deletion_depend_on_the_policy(tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_text("user_id,area\n1,a\n")
    settings = 'materialized = "stored"\n' + PROMISED.partition("columns")[0]
    (tmp_path / "policy.toml").write_text(
        f'{settings}source = "visits.csv"\ncolumns = {{user_id = "BIGINT", area = "VARCHAR"}}\n'
        '[server]\nusers = "u.toml"\n'
    )
    text = promised(tmp_path)
    for words in (
        f'2. Run `dpsql data bump {tmp_path}/ledger.sqlite --note "rows deleted"`. 3. Delete the folder',
        f"folder `{tmp_path}/stored`, or run `dpsql materialize --policy policy.toml` twice in the policy's folder:",
        "folder: until then it holds these rows. 4. Restart",
        "open sessions have those of CSV files in memory",
        f"| users | `{tmp_path}/u.toml` |",
        "| log of the server |",
    ):
        assert words in text, words
    (tmp_path / "policy.toml").write_text(settings)
    assert "twice in the policy's folder, with the `--db` of the data: until then" in promised(tmp_path)


def test_nothing_is_promised_without_a_ledger(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(PROMISED.partition("\n")[2])
    code, out, err = dpsql_command("promise", cwd=tmp_path)
    assert (code, out) == (2, b"")
    assert "[no-promise]" in err
    line = PROMISED.partition("\n")[0]
    assert f"Write {line} at the top of the policy." in one_line(err)
    promised_text = (tmp_path / "policy.toml").read_text()
    (tmp_path / "policy.toml").write_text(f"{line}\n{promised_text}")
    promised(tmp_path)


def test_nothing_is_promised_without_a_private_table(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(
        PROMISED.partition("[tables")[0] + "[tables.c]\npublic = true\ncolumns = ['x']\n"
    )
    code, out, err = dpsql_command("promise", cwd=tmp_path)
    assert (code, out) == (2, b"")
    assert err.startswith("dpsql: [no-promise]: ")
