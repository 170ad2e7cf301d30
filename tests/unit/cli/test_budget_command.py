"""`dpsql budget`, `dpsql data bump` and `--analyst`, through the real command on a real ledger."""

from __future__ import annotations

import csv
import json
import math
import re
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest
from support.command_kit import run_command as run

import dpsql
from dpsql.accounting import ApproximateDP, BudgetVector, rho_of_total
from dpsql.ledger import Account, Request, SQLiteLedger
from dpsql.quantities import Delta, Epsilon

POLICY = """\
ledger = "ledger.sqlite"
[budget]
epsilon = 1.0
delta = 1e-6
[tables.reads]
privacy_unit = "user_id"
[analysts.default]
enabled = false
[analysts.alice]
epsilon = 0.5
[analysts.bob]
epsilon = 0.2
items = 10
[analysts.carol]
epsilon = 0.1
items = 10
"""
SQL = "SELECT article FROM reads GROUP BY 1 TOP 3 PRIVATE WITH (epsilon=.02, mechanism=limited_domain)"
# of bob's limit, in percent, rounded up: 3 items of 0.02, of the rho of an epsilon of 0.2
_LIMIT = rho_of_total(ApproximateDP(Epsilon("0.2"), Delta("5e-7"))).value
BOB = math.ceil(10_000 * 3 * Fraction("0.02") ** 2 / 8 / _LIMIT) / 100


FITS = [  # of 100 items and 20 deltas, 8 items and 6 % of the deltas are spent
    "6 % of the budget is used, 94 % is left",
    "enough, at the worst, for any one of these:",
    "     9  lists of names (TOP 10)",
    "     4  lists of names with counts (TOP 10)",
    "    98  totals",
    "     8  series of 12 months",
]


def asked(folder: Path, *words: str, command: str = "query") -> tuple[int, str, str]:
    return run(folder, command, SQL, "--db", "events.duckdb", "--policy", "policy.toml", *words)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A database, a policy of three analysts, and a ledger in which one of them asked, twice."""
    with duckdb.connect(str(tmp_path / "events.duckdb")) as connection:
        connection.execute("CREATE TABLE reads AS SELECT i AS user_id, 'a' || i % 3 AS article FROM range(9000) t(i)")
    (tmp_path / "policy.toml").write_text(POLICY)
    policy = tmp_path / "policy.toml"
    with dpsql.connect(tmp_path / "events.duckdb", policy=policy, analyst="alice") as session:
        session.sql(SQL)
        session.sql(f"-- {'long ' * 30}\x85\n{SQL}".replace("TOP 3", "TOP 2").replace("\x85", ""))
    return tmp_path


def test_a_query_of_an_analyst_is_charged_once(folder: Path) -> None:
    code, out, err = asked(folder, "--analyst", "bob", "--format", "json")
    assert (code, err) == (0, "")
    first = json.loads(out)
    assert (first["receipt"]["replayed"], first["receipt"]["items_charged"]) == (False, 3)
    again = json.loads(asked(folder, "--analyst", "bob", "--format", "json")[1])
    assert (again["receipt"]["replayed"], again["receipt"]["items_charged"]) == (True, 0)
    assert again["rows"] == first["rows"]
    code, out, _ = asked(folder, "--analyst", "bob")
    assert out.strip().splitlines()[-1] == "answered 3 of 3; stored answer, nothing was charged"
    explained = asked(folder, "--analyst", "bob", command="explain")[1]
    assert re.search(r"^stored +answered before", explained, re.MULTILINE)
    assert "stored " not in asked(folder, "--analyst", "carol", command="explain")[1]


@pytest.mark.parametrize("command", ["query", "explain"])
@pytest.mark.parametrize("analyst", [[], ["--analyst", "mallory"]])
def test_whoever_may_not_ask_is_refused(folder: Path, command: str, analyst: list[str]) -> None:
    code, out, err = asked(folder, *analyst, command=command)
    assert (code, out) == (3, "")
    assert "analyst-disabled" in err


def test_the_curator_sees_every_account_and_the_latest_queries(folder: Path) -> None:
    asked(folder, "--analyst", "bob")
    code, out, err = run(folder, "budget", "--policy", "policy.toml", "--details")
    assert (code, err) == (0, "")
    balance, accounts, queries = (part.splitlines() for part in out.split("\n\n"))
    # two queries with a delta of 1/20 of half of all that queries draw from, and one with 1/20 of a fifth
    assert balance[:6] == FITS
    assert balance[6].startswith("guarantee: (1, 1e-06)-differential privacy")
    assert balance[7].startswith("rho   granted 0.0229374, spent 0.0004, ")  # 8 items of 0.02
    assert [line.split("  ")[0].strip() for line in accounts] == ["account", "(the total)", "alice", "bob", "carol"]
    spent = {line.split("  ")[0].strip(): (line.count("█"), line.count("·")) for line in accounts[1:]}
    assert spent["carol"] == (0, 48)
    assert all(solid + left == 48 and (solid > 0) == (name != "carol") for name, (solid, left) in spent.items())
    assert f"{BOB:g} %" in accounts[3]
    assert queries[0] == "the latest 3 of 3 queries, times in UTC"
    asked_by, texts = queries[1::2], queries[2::2]
    assert [line.split()[2] for line in asked_by] == ["alice", "alice", "bob"]
    assert [line.split()[3] for line in asked_by] == ["answered"] * 3
    assert asked_by[0].endswith("  rho 0.00015")
    assert [texts[0], texts[2]] == [f"    {SQL}"] * 2
    assert (texts[1][-1], len(texts[1])) == ("…", 100)
    assert all(len(line) <= 100 for line in out.splitlines())


def test_shares_are_of_the_total_in_force_until_a_larger_one_is_granted(folder: Path) -> None:
    def spent() -> dict[str, str]:
        body = json.loads(run(folder, "budget", "--policy", "policy.toml", "--format", "json")[1])
        return {each["account"]: each["limit"] for each in body["accounts"]}

    before = spent()
    text = (folder / "policy.toml").read_text()
    assert "epsilon = 1.0" in text
    (folder / "policy.toml").write_text(text.replace("epsilon = 1.0", "epsilon = 2.0", 1))
    assert spent() == before


def test_without_details_all_are_shares_of_the_budget(folder: Path) -> None:
    asked(folder, "--analyst", "bob")
    code, out, err = run(folder, "budget", "--policy", "policy.toml")
    assert (code, err) == (0, "")
    assert not re.search(r"\brho\b|\bdelta\b", out)
    balance, accounts, queries = (part.splitlines() for part in out.split("\n\n"))
    # two queries with a delta of 1/20 of half of all that queries draw from, and one with 1/20 of a fifth
    assert balance[:6] == FITS
    assert accounts[0].split()[:2] == ["account", "used"]
    assert [line.split("  ")[0] for line in accounts[1:]] == ["(the total)", "alice", "bob", "carol"]
    assert all(line.count("█") + line.count("·") == 24 for line in accounts[1:])
    assert accounts[1].endswith(" 6 %")
    assert [line.split("  ")[-1].strip() for line in queries[1::2]] == ["used 2.5 %", "used 2.5 %", "used 1 %"]
    code, out, _ = run(folder, "budget", "--policy", "policy.toml", "--analyst", "bob")
    assert out.splitlines()[-2].endswith(f"  used {BOB:g} %")  # of bob's own limit


def test_how_many_queries_are_listed(folder: Path) -> None:
    for last, listed in (("1", 1), ("2", 2), ("99", 2)):
        out = run(folder, "budget", "--policy", "policy.toml", "--last", last)[1]
        assert f"the latest {listed} of 2 queries" in out
        assert out.count("alice      answered") + out.count("alice  answered") == listed
    assert "the latest" not in run(folder, "budget", "--policy", "policy.toml", "--last", "0")[1]
    assert run(folder, "budget", "--policy", "policy.toml", "--last", "-1")[0] == 2


def test_one_analysts_budget_is_theirs_alone(folder: Path) -> None:
    asked(folder, "--analyst", "bob")
    code, out, _ = run(folder, "budget", "--policy", "policy.toml", "--analyst", "bob")
    assert code == 0
    assert "this is the budget of the account bob" in out
    assert "alice" not in out
    assert "(the total)" not in out
    assert "the latest 1 of 1 queries" in out
    code, out, _ = run(folder, "budget", "--policy", "policy.toml", "--analyst", "carol", "--format", "json")
    body = json.loads(out)
    assert (body["measures"][0]["spent"], body["queries"]) == (0.0, [])
    assert [account["account"] for account in body["accounts"]] == ["carol"]
    assert run(folder, "budget", "--policy", "policy.toml", "--analyst", "mallory")[0] == 3


def test_every_format_says_what_still_fits(folder: Path) -> None:
    body = json.loads(run(folder, "budget", "--policy", "policy.toml", "--format", "json")[1])
    assert [(each["words"], each["remaining"]) for each in body["tiles"]] == [
        ("lists of names (TOP 10)", 9),
        ("lists of names with counts (TOP 10)", 4),
        ("totals", 98),
        ("series of 12 months", 8),
    ]
    assert body["free"] == {"stored_answers": None, "published_tables": 0}  # nobody has the answers of all accounts
    alice = json.loads(run(folder, "budget", "--policy", "policy.toml", "--analyst", "alice", "--format", "json")[1])
    assert alice["free"] == {"stored_answers": 2, "published_tables": 0}
    out = run(folder, "budget", "--policy", "policy.toml", "--analyst", "alice", "--format", "csv")[1]
    header, *rows = csv.reader(out.splitlines())
    assert header == ["measure", "granted", "spent", "reserved", "remaining"]
    assert [row[0] for row in rows[:3]] == ["percent of the budget", "rho", "delta"]
    assert [row[0] for row in rows[4:8]] == [each["words"] for each in body["tiles"]]
    assert rows[-1][0] == "stored answers (free)"
    assert [*map(float, rows[-1][1:])] == [2, 0, 0, 2]
    assert len(rows) == 9
    assert "free: 2 stored answers of this data version" in run(folder, "budget", "--analyst", "alice")[1]


def test_json_tells_accounts_and_queries_whole(folder: Path) -> None:
    body = json.loads(run(folder, "budget", "--policy", "policy.toml", "--format", "json")[1])
    assert [account["account"] for account in body["accounts"]] == ["alice", "bob", "carol"]
    alice = body["accounts"][0]
    assert alice["spent"]["rho"] == body["measures"][0]["spent"] == 0.00025
    assert alice["limit"]["rho"] < body["measures"][0]["granted"]
    first, second = body["queries"]
    assert (first["account"], first["query"], first["state"], first["rho_charged"]) == (
        "alice",
        SQL,
        "answered",
        0.00015,
    )
    assert len(second["query"]) > 200


def test_what_was_spent_by_one_who_is_disabled_now_is_still_shown(folder: Path) -> None:
    policy = folder / "policy.toml"
    policy.write_text(POLICY.replace("[analysts.alice]\nepsilon = 0.5", "[analysts.alice]\nenabled = false"))
    assert "alice        may run no query\n" in run(folder, "budget", "--policy", "policy.toml")[1]
    out = run(folder, "budget", "--policy", "policy.toml", "--details")[1]
    assert "alice        may run no query; spent rho 0.00025, delta 2.5e-08, held rho 0" in out
    body = json.loads(run(folder, "budget", "--policy", "policy.toml", "--format", "json")[1])
    assert {account["account"]: account["limit"] for account in body["accounts"]}["alice"] is None


def test_what_is_held_and_what_failed_is_told(folder: Path) -> None:
    worst = BudgetVector("0.002", 0)
    with closing(SQLiteLedger.open(folder / "ledger.sqlite")) as ledger:
        ledger.reserve(Request("SELECT\n\n held", worst))
        account = Account("dave", ledger.budget)
        ledger.reserve(Request("\x1b[31mfailed", worst, account)).settle(Fraction("0.002"), "failed")
    brief = run(folder, "budget", "--policy", "policy.toml")[1].splitlines()
    assert brief[-4].split()[2:] == ["(no", "name)", "open", "used", "0", "%", "so", "far"]
    # rho of 5 items and of what failed, less the delta of two queries, which was the larger share before
    total = rho_of_total(ApproximateDP(Epsilon(1), Delta("5e-7"))).value
    used = math.ceil(10_000 * (5 * Fraction("0.02") ** 2 / 8 + Fraction("0.002")) / total) - 500
    assert brief[-2].split()[2:] == ["dave", "failed", "used", f"{used / 100:g}", "%"]
    _, accounts, queries = run(folder, "budget", "--policy", "policy.toml", "--details")[1].split("\n\n")
    total, *_, unnamed, dave = accounts.splitlines()[1:]
    assert total.count("▓") == 2
    assert unnamed.startswith("(no name)    ▓▓▓···")  # of the total, which limits those without an account
    assert dave.startswith("dave         may run no query; spent rho 0.002")
    *_, held, held_text, failed, failed_text = queries.splitlines()
    assert held.split()[2:] == ["(no", "name)", "open", "holds", "0.002"]
    assert held_text == "    SELECT held"
    assert failed.split()[2:] == ["dave", "failed", "rho", "0.002"]
    assert "\x1b" not in failed_text


def test_no_database_is_needed(folder: Path) -> None:
    (folder / "events.duckdb").unlink()
    assert run(folder, "budget", "--policy", "policy.toml")[0] == 0


def test_a_bump_is_recorded_and_asks_anew(folder: Path) -> None:
    for version in ("1", "2"):
        code, out, err = run(folder, "data", "bump", "ledger.sqlite", "--note", "monday's rows")
        assert (code, out, err) == (0, f"The data version is {version}.\n", "")
    events = [json.loads(line) for line in run(folder, "ledger", "export", "ledger.sqlite")[1].splitlines()]
    assert [event["body"] for event in events if event["kind"] == "bumped"] == [
        {"data_version": 1, "note": "monday's rows"},
        {"data_version": 2, "note": "monday's rows"},
    ]
    answer = json.loads(asked(folder, "--analyst", "alice", "--format", "json")[1])
    assert answer["receipt"]["replayed"] is False
    assert run(folder, "ledger", "verify", "ledger.sqlite")[0] == 0


@pytest.mark.parametrize(
    ("code", "words"),
    [(7, ["data", "bump", "no.sqlite", "--note", "x"]), (2, ["data", "bump", "ledger.sqlite"]), (2, ["data", "drop"])],
)
def test_a_bump_of_nothing_is_refused(folder: Path, code: int, words: list[str]) -> None:
    assert run(folder, *words)[0] == code
    assert not (folder / "no.sqlite").exists()
