"""`dpsql shell`: piped scripts, and conversations through a real terminal."""

from __future__ import annotations

import re
import stat
import time
from pathlib import Path

import duckdb
import pytest
from support.command_kit import dpsql_command
from support.terminal_kit import conversation

import dpsql
from dpsql.cli.shell import COMMANDS, Shell, ends_with_command, failure_lines, history_file, run_script
from dpsql.curator import read_spending
from dpsql.errors import Place, Refusal

POLICY = """\
ledger = "ledger.sqlite"
[budget]
epsilon = 4.0
delta = 1e-6

[tables.reads]
privacy_unit = "user_id"

[tables.countries]
public = true
"""
COUNTED = "SELECT article, COUNT(DISTINCT user_id) AS readers FROM reads\nGROUP BY article TOP 3 PRIVATE;\n"
ENDLESS = """SELECT a.article FROM reads a JOIN reads b ON a.user_id = b.user_id JOIN reads c ON c.user_id = a.user_id
    WHERE a.n + b.n + c.n = -1 GROUP BY a.article TOP 1 PRIVATE;\n"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shell")
    with duckdb.connect(str(folder / "events.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE reads AS SELECT i AS user_id, 'a' || i % 3 AS article, i AS n FROM range(9000) t(i)"
        )
        connection.execute("INSERT INTO reads SELECT -1, 'a1', i FROM range(20000) t(i)")
        connection.execute("CREATE TABLE countries AS SELECT 'DE' AS country, 'Europe' AS continent")
    (folder / "policy.toml").write_text(POLICY)
    return folder


def piped(folder: Path, script: str, *options: str) -> tuple[int, str, str]:
    arguments = ["shell", "events.duckdb", "--policy", "policy.toml", *options]
    code, out, err = dpsql_command(*arguments, cwd=folder, stdin=script.encode())
    return code, out.decode(), err


def rho_spent(folder: Path) -> float:
    with dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml") as session:
        return float(session.budget.rho.spent)


# piped


def test_a_script_is_answered_in_order_and_asking_again_is_free(folder: Path) -> None:
    by_item = COUNTED.replace("PRIVATE;", "PRIVATE WITH (mechanism = limited_domain);")  # six items of 100
    code, out, err = piped(folder, f"SHOW TABLES;\n{by_item}-- again\n{by_item}.history\n.budget")
    assert (code, err) == (0, "")
    assert out.index("privacy_unit") < out.index("; used ") < out.index("; stored answer, nothing was charged")
    assert out.count("answered 3 of 3; ") == 2
    assert len(re.findall(r"^20.* answered +used 6 % +SELECT article, COUNT", out, re.MULTILINE)) == 1
    budget = out[out.index("6 % of the budget is used, 94 % is left\n") :].splitlines()
    assert budget[2] == "     9  lists of names (TOP 10)"
    assert budget[-2] == "free: 1 stored answer of this data version"


def test_the_last_statement_of_a_script_may_lack_its_semicolon(folder: Path) -> None:
    code, out, _ = piped(folder, "SELECT ';' AS x, continent FROM countries")
    assert code == 0
    assert "Europe" in out


def test_a_script_ends_at_its_first_failure_and_pays_for_nothing_behind_it(folder: Path) -> None:
    script = f"SHOW TABLES;\nSELECT article\n  FROM reads\n  GROUP BY artcle TOP 3 PRIVATE;\n{COUNTED}"
    code, out, err = piped(folder, script)
    assert code == 3
    assert err.splitlines()[:3] == [
        "[unknown-column] There is no such column here.",
        "    GROUP BY artcle TOP 3 PRIVATE",
        "             ^^^^^^",
    ]
    assert err.splitlines()[3].startswith("  Hint: ")
    assert "readers" not in out
    assert rho_spent(folder) == 0


def test_commands_that_there_are_not(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [".nothing", ".mode", ".mode arrow", ".timer 1", ".budget now", ".describe", ".explain"]
    with dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml") as session:
        failures = [run_script(Shell(session), [line]) for line in lines]
    assert [failure and failure.code for failure in failures] == ["shell-command"] * len(lines)
    assert capsys.readouterr().err.count("[shell-command] ") == len(lines)


@pytest.mark.parametrize("command", [".help", "exit", "QUIT;", ".explain SELECT 1", "help"])
def test_a_command_below_an_unfinished_statement_is_noticed(command: str) -> None:
    for text in (f"SELECT 1\n{command}", f"SELECT 1\n\n  {command}\n", f"SELECT 'a'\n{command}", f"-- x\n{command}"):
        assert ends_with_command(text)
    for above in ("", "SELECT '\n", "/*\n", "SELECT 1 AS ", "SELECT 1\nx "):
        assert not ends_with_command(f"{above}{command}")


def test_commands(folder: Path) -> None:
    script = (
        ".mode csv\n.describe reads\n.tables\n.explain SELECT article FROM reads GROUP BY 1 TOP 3 PRIVATE;\nquit\nx;"
    )
    code, out, err = piped(folder, script)
    assert code == 0, err
    assert '"user_id","BIGINT",true,false' in out
    assert '"countries","public"' in out
    assert '"mechanism","two_looks"' in out
    documented = re.findall(
        r"^\| `(\.\w+)", (Path(__file__).parents[3] / "docs" / "how-to" / "shell.md").read_text(), re.MULTILINE
    )
    _, out, _ = piped(folder, ".help\n")
    assert [line.split()[0] for line in out.splitlines()] == documented == [f".{name}" for name in COMMANDS]


def test_formulas_are_quoted_in_csv_on_request(folder: Path) -> None:
    statement = "SELECT '=1' AS a, -1 AS b FROM countries LIMIT 1;\n"
    code, out, err = piped(
        folder, f".mode csv\n{statement}.quote_formulas on\n{statement}.quote_formulas off\n{statement}"
    )
    assert code == 0, err
    assert out == '"a","b"\n"=1",-1\n"a","b"\n"\'=1",-1\n"a","b"\n"=1",-1\n'


def test_details_are_shown_when_they_are_wanted(folder: Path) -> None:
    code, out, _ = piped(folder, f"{COUNTED}.budget\n.details on\n{COUNTED}.budget")
    assert code == 0
    plain, detailed = out.split("stored answer, nothing was charged", 1)
    assert "rho" not in plain
    assert "\n  mechanism " in detailed
    assert "\nrho   granted " in detailed


def test_who_asks_which_ledger_and_in_which_process(folder: Path) -> None:
    code, out, err = piped(
        folder, COUNTED + ".mode json\nSHOW TABLES;", "--ledger", ":memory:", "--isolation", "process"
    )
    assert code == 0, err
    assert '"isolation": "process"' in out
    assert "trial ledger, forgotten when the session ends" in out
    assert not (folder / "ledger.sqlite").exists()


def test_who_asks_sees_their_own_history(folder: Path) -> None:
    assert piped(folder, COUNTED, "--analyst", "eve")[0] == 0
    assert piped(folder, ".history") == (0, "", "")
    assert "TOP 3 PRIVATE" in piped(folder, ".history", "--analyst", "eve")[1]


def test_what_is_piped_must_be_text(folder: Path) -> None:
    code, out, err = dpsql_command("shell", "events.duckdb", "--policy", "policy.toml", cwd=folder, stdin=b"\xe9;")
    assert (code, out) == (2, b"")
    assert "not-text" in err


# what failed, on the terminal


def test_a_place_is_underlined_where_wide_letters_stand_before_it() -> None:
    error = Refusal("code", "No.", hint="Yes.", place=Place(2, 6, "four"))
    assert failure_lines(error, "x\n漢字\t + four") == ["[code] No.", "  漢字  + four", "         ^^^^", "  Hint: Yes."]


def test_nothing_that_a_terminal_obeys_is_shown() -> None:
    text = "a\x1b[31m"
    error = Refusal("code", f"No {text}.", hint=text, place=Place(1, 1, text))
    assert "\x1b" not in "".join(failure_lines(error, text))
    assert "\x1b" not in "".join(failure_lines(Refusal("code", "No.", place=text), text))


# typed


def test_a_conversation(folder: Path) -> None:
    with conversation(folder) as terminal:
        terminal.shows("dpsql>")
        terminal.shows("100 % of the budget is left")
        terminal.types("SELECT article, COUNT(DISTINCT user_id) AS readers FROM rea\t")
        terminal.shows("ds")
        terminal.types("\r")
        terminal.shows("...")
        terminal.types("GROUP BY article TOP 3 PRIVATE;\r")
        terminal.shows("of the budget; about ")
        terminal.shows(" s\r\n")
        terminal.shows("dpsql>")
        terminal.types("SELECT forgotten\x03")
        terminal.shows("dpsql>")
        terminal.types("SELECT 1\r.budget\r")
        terminal.shows("has no semicolon")
        terminal.shows("dpsql>")
        terminal.types("SELECT x FROM reads;\r")
        terminal.shows("[")
        terminal.shows("Hint: ")
        terminal.types("SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY 1 TOP 3 PRIVATE;\r")
        terminal.shows("stored answer, nothing was charged")
        terminal.shows("dpsql>")
        terminal.types("\x04")
        assert terminal.ends() == 0
    history = folder / "state" / "dpsql" / "history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert stat.S_IMODE(history.parent.stat().st_mode) == 0o700
    assert "TOP 3 PRIVATE;" in history.read_text()
    assert "charged" not in history.read_text()
    assert "a1" not in history.read_text()


@pytest.mark.properties
@pytest.mark.parametrize("before", ["pass", "sys.modules['prompt_toolkit'] = None"])
def test_an_interrupt_ends_a_query_and_not_the_shell(folder: Path, before: str) -> None:
    with conversation(folder, before) as terminal:
        terminal.shows("dpsql>")
        terminal.types(ENDLESS.replace("\n", "\r"))
        ends = time.monotonic() + 40
        while not read_spending(folder / "policy.toml").entries:  # nothing is charged before
            assert time.monotonic() < ends
            time.sleep(0.05)
        time.sleep(0.2)  # it reads
        terminal.types("\x03")
        terminal.shows("Interrupted. A query that had begun to read is charged in full")
        terminal.shows("dpsql>")
        terminal.types(".history\r")
        terminal.shows("interrupted")
        terminal.types(".quit\r")
        assert terminal.ends() == 0
    assert rho_spent(folder) > 0


def test_without_prompt_toolkit_lines_are_read_and_the_extra_named(folder: Path) -> None:
    with conversation(folder, "sys.modules['prompt_toolkit'] = None") as terminal:
        terminal.shows("pip install 'dpsql[shell]'")
        terminal.shows("dpsql>")
        terminal.types("SELECT country\n")
        terminal.shows("...")
        terminal.types("FROM countries;\n")
        terminal.shows("DE")
        terminal.shows("dpsql>")
        terminal.types("SELECT 1\nexit\n")
        terminal.shows("has no semicolon")
        terminal.shows("dpsql>")
        terminal.types("\x04")
        assert terminal.ends() == 0


def test_the_history_is_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "dpsql").mkdir()
    (tmp_path / "dpsql" / "history").touch(0o644)
    assert history_file() == tmp_path / "dpsql" / "history"
    assert stat.S_IMODE((tmp_path / "dpsql" / "history").stat().st_mode) == 0o600
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert history_file() == tmp_path / "home" / ".local" / "state" / "dpsql" / "history"
    (tmp_path / "dpsql" / "history").unlink()
    (tmp_path / "dpsql" / "history").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert history_file() is None
    assert not (tmp_path / "elsewhere").exists()


def test_standard_sql_is_read_as_private_where_it_is_turned_on(folder: Path) -> None:
    total = "SELECT COUNT(DISTINCT user_id) AS n FROM reads;\n"
    code, out, err = piped(folder, f".implicit on\n{total}.explain {total}.implicit off\n{total}")
    assert code == 3
    assert "read as PRIVATE" in out
    assert "[not-private]" in err
    assert piped(folder, total, "--implicit")[0] == 0
    assert piped(folder, total)[0] == 3


def test_consent_is_given_where_it_is_turned_on(folder: Path) -> None:
    text = "SELECT article FROM reads WHERE article <> '{}' GROUP BY article TOP 50 PRIVATE;\n"
    policy = folder / "policy.toml"
    policy.write_text(policy.read_text().replace('"user_id"\n', '"user_id"\npopulation = 200\n', 1))
    code, _, err = piped(folder, f".consent on\n{text.format('x')}.consent off\n{text.format('x')}{text.format('y')}")
    assert code == 3
    assert err.count("[consent]") == 1
    assert piped(folder, text.format("x"))[0] == 0  # it is stored
    assert piped(folder, text.format("y"))[0] == 3
    assert piped(folder, text.format("y"), "--no-consent")[0] == 3
