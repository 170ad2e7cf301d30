"""A certificate in a policy, and what a check, the shell and a grant then say."""

from __future__ import annotations

import dataclasses
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pytest
from support.command_kit import run_command as run

import dpsql
from dpsql.accounting import Certificate
from dpsql.curator import check_policy, grant
from dpsql.errors import Error, PolicyError
from dpsql.policy.validation import CERTIFICATES
from dpsql.report.policy_text import describe_policy
from dpsql.terms import Terms

TABLES = {"reads": dpsql.PrivateTable("user_id")}
OTHERS = ["pure", "theorem2", "optimal"]
POLICY = """\
ledger = "ledger.sqlite"
[budget]
epsilon = 1.0
delta = 1e-6
items = 30
queries = 10
certificate = "CERTIFICATE"
[tables.reads]
privacy_unit = "user_id"
"""
SQL = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 3 PRIVATE"


def policy_of(certificate: str, analysts: dict[str, dpsql.Analyst] | None = None, **budget: Any) -> dpsql.Policy:
    given = {"epsilon": 1, "delta": "1e-6", "certificate": certificate, **budget}
    return dpsql.Policy(dpsql.Budget(**given), TABLES, analysts=analysts)


def error_of(act: Callable[[], object]) -> Error:
    with pytest.raises(Error) as caught:
        act()
    assert caught.value.hint
    return caught.value


@pytest.fixture(params=OTHERS)
def certificate(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(tmp_path: Path, certificate: str) -> Path:
    with duckdb.connect(str(tmp_path / "events.duckdb")) as connection:
        connection.execute("CREATE TABLE reads AS SELECT i AS user_id, 'a' || i % 3 AS article FROM range(90000) t(i)")
    (tmp_path / "policy.toml").write_text(POLICY.replace("CERTIFICATE", certificate))
    return tmp_path


def test_the_names_are_those_of_the_accounting() -> None:
    assert sorted(CERTIFICATES) == sorted(each.value for each in Certificate)
    assert dpsql.Budget(1, "1e-6").certificate == "zcdp"


@pytest.mark.parametrize("wrong", ["", "Pure", "rdp", "zcdp "])
def test_another_name_is_refused_in_python_and_in_toml(tmp_path: Path, wrong: str) -> None:
    error = error_of(lambda: policy_of(wrong))
    assert (error.code, error.place) == ("policy-certificate", "budget.certificate")
    file = tmp_path / "policy.toml"
    file.write_text(POLICY.replace("CERTIFICATE", wrong))
    error = error_of(lambda: dpsql.Policy.from_toml(file))
    assert (error.code, error.place) == ("policy-certificate", "budget.certificate (policy.toml, line 7)")


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    assert error_of(lambda: policy_of(None)).code == "policy-type"  # type: ignore[arg-type]
    file = tmp_path / "policy.toml"
    file.write_text(POLICY.replace('"CERTIFICATE"', "2"))
    assert error_of(lambda: dpsql.Policy.from_toml(file)).code == "policy-type"


def test_a_file_says_what_python_says(folder: Path, certificate: str) -> None:
    read = dpsql.Policy.from_toml(folder / "policy.toml")
    assert read.budget == dpsql.Budget(1, "1e-6", items=30, queries=10, certificate=certificate)
    assert pickle.loads(pickle.dumps(read)).budget == read.budget


def test_a_budget_that_cannot_buy_its_items_is_refused_and_one_of_fewer_is_taken(certificate: str) -> None:
    error = error_of(lambda: Terms.of_policy(policy_of(certificate, items=10**6, epsilon="0.01")))
    assert (error.code, type(error)) == ("policy-items", PolicyError)
    assert Terms.of_policy(policy_of(certificate, items=30)).epsilon.value > Fraction(1, 100)


def test_the_limits_cap_what_is_fixed(certificate: str) -> None:
    limits = dpsql.Limits(max_epsilon="0.02", max_delta="1e-9")
    known = dpsql.Policy(dpsql.Budget(1, "1e-6", items=10, certificate=certificate), TABLES, limits=limits)
    terms = Terms.of_policy(known)
    assert float(terms.epsilon) == 0.02
    if certificate == "theorem2":
        assert float(terms.delta) == 1e-9
        assert terms.certified.delta == terms.delta
    if certificate != "pure":
        assert terms.certified.epsilon == terms.epsilon
    # A ledger with what was fixed is taken. Where the delta is none of that, a smaller ceiling excludes no ledger.
    assert terms.held_to(terms.certified).certified == terms.certified
    smaller = dataclasses.replace(terms, limits=dpsql.Limits(max_epsilon="0.02", max_delta="1e-10"))
    if certificate == "theorem2":
        assert error_of(lambda: smaller.held_to(terms.certified)).code == "ledger-certificate"
    else:
        assert smaller.held_to(terms.certified).epsilon == terms.epsilon


def test_limits_of_analysts_are_refused_where_items_are_for_all(certificate: str) -> None:
    limited = policy_of(certificate, {"alice": dpsql.Analyst("0.5")}, items=30)
    if certificate == "pure":
        assert Terms.of_policy(limited, "alice").account is not None
        return
    for name in ("alice", "bob", None):
        error = error_of(lambda name=name: Terms.of_policy(limited, name))  # type: ignore[misc]
        assert (error.code, error.place) == ("policy-certificate", "analysts.alice")
    barred = policy_of(certificate, {"alice": dpsql.Analyst(enabled=False)}, items=30)
    assert Terms.of_policy(barred, "bob").certificate is Certificate(certificate)


def test_a_check_says_what_is_counted(certificate: str) -> None:
    found = check_policy(policy_of(certificate, items=30, queries=10))
    assert (found.certificate, found.rho) == (certificate, None)
    assert found.queries == 10
    assert found.items == 30
    told = " ".join(" ".join(describe_policy(found)).split())
    assert f"(certificate {certificate})" in told
    assert " rho" not in told
    terms = Terms.of_policy(policy_of(certificate, items=30, queries=10))
    assert f"{float(terms.epsilon):g}" in told
    assert {kind.queries for kind in found.buys} == {3, 1, 0}  # 10 names, 10 with counts, 100


def test_a_check_of_periods_tells_their_total(certificate: str) -> None:
    found = check_policy(policy_of(certificate, items=30, period="30d", periods=4))
    (total,) = found.totals
    assert total.delta == 4e-6
    assert (total.epsilon == 4) == (certificate == "pure")
    assert 1.5 < total.epsilon <= 4


def test_the_shell_speaks_the_currency(folder: Path, certificate: str) -> None:
    first, second = Certificate(certificate).currencies
    where = ("--db", "events.duckdb", "--policy", "policy.toml")
    code, out, err = run(folder, "query", SQL, *where, "--format", "json")
    assert code == 0, err
    receipt = json.loads(out)["receipt"]
    assert receipt["certificate"] == certificate
    assert receipt["remaining"].keys() == {first, second}
    assert "rho" not in out
    code, out, err = run(folder, "budget", "--policy", "policy.toml", "--details")
    assert code == 0, err
    assert "rho" not in out
    assert f"{first} " in out
    code, out, err = run(folder, "budget", "--policy", "policy.toml", "--format", "json")
    body = json.loads(out)
    assert body["certificate"] == certificate
    assert [row["measure"] for row in body["measures"]][:2] == [first, second]
    assert body["queries"][0][f"{first}_charged"] == body["measures"][0]["spent"] > 0
    assert body["accounts"][0]["spent"].keys() == {first, second}
    for words_ in (
        ["explain", SQL, *where],
        ["check", "--policy", "policy.toml"],
        ["check", "--policy", "policy.toml", "--format", "json"],
    ):
        code, out, err = run(folder, *words_)
        assert code == 0, err
        assert certificate in out
    code, out, err = run(folder, "ledger", "export", "ledger.sqlite")
    assert code == 0, err
    events = [json.loads(line) for line in out.splitlines()]
    assert events[0]["body"]["certificate"] == certificate
    assert not any("rho" in event["body"] or "budget_rho" in event["body"] for event in events)
    assert run(folder, "ledger", "verify", "ledger.sqlite")[0] == 0


def test_a_grant_from_the_shell(folder: Path, certificate: str) -> None:
    dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml").close()
    more = ("ledger", "grant", "ledger.sqlite", "--epsilon", "2", "--delta", "1e-6", "--note", "more")
    code, out, err = run(folder, *more)
    if certificate != "pure":
        assert code == 7
        assert "[ledger-grant]" in err
        return
    assert code == 0, err
    assert "The total was (1, 1e-06)" in out
    text = (folder / "policy.toml").read_text().replace("epsilon = 1.0", "epsilon = 2.0")
    (folder / "policy.toml").write_text(text)
    with dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml") as session:
        assert session.budget.refunded.granted == 2


def test_a_smaller_grant_speaks_no_rho(tmp_path: Path) -> None:
    known = dpsql.Policy(dpsql.Budget(1, "1e-6", certificate="pure"), TABLES, ledger=tmp_path / "a.ledger")
    connection = duckdb.connect()
    connection.execute("CREATE TABLE reads AS SELECT 1 AS user_id")
    dpsql.connect(connection, policy=known).close()
    error = error_of(lambda: grant(tmp_path / "a.ledger", dpsql.Budget("0.5", "1e-6"), note="less"))
    assert error.code == "ledger-grant"
    assert "(epsilon 1, delta 1e-06 for queries)" in error.reason


def test_help_does_not_wait_for_the_accounting() -> None:
    code = "import sys; import dpsql.policy, dpsql.cli; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
