"""The shell command through real processes: every command, every format, every exit code."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from support.child_kit import Child
from support.command_kit import dpsql_command

import dpsql

POLICY = """\
ledger = "ledger.sqlite"
[budget]
epsilon = 4.0
delta = 1e-6

[tables.reads]
privacy_unit = "user_id"
"""
LABELS = ["[bold]x[/bold]", "\x1b[31mred\nline\x07", "ünï :smile: 漢字", '=1+1,"q"', ""]
COUNTED = (
    "SELECT article, year, COUNT(DISTINCT user_id) AS readers FROM reads "
    "GROUP BY article, year TOP 7 PRIVATE WITH (epsilon = 0.05)"
)
LEADERS = COUNTED.replace("WITH (", "WITH (mechanism = limited_domain, ")
NOTHING = COUNTED.replace("FROM reads", "FROM reads WHERE user_id < 0")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    with duckdb.connect(str(folder / "events.duckdb")) as connection:
        connection.execute("CREATE TABLE reads (user_id BIGINT, article VARCHAR, year INTEGER, day DATE)")
        for number, label in enumerate(LABELS):
            connection.execute(
                f"INSERT INTO reads SELECT i, ?, 2020, DATE 'infinity' FROM range({6000 - 800 * number}) t(i)", [label]
            )
        connection.execute("INSERT INTO reads SELECT i, NULL, 1999, DATE '2026-01-02' FROM range(1500) t(i)")
    (folder / "policy.toml").write_text(POLICY)
    return folder


def asked(
    folder: Path, command: str, *arguments: str, stdin: bytes = b"", **environment: str
) -> tuple[int, bytes, str]:
    options = [*([] if command == "budget" else ["--db", "events.duckdb"]), "--policy", "policy.toml"]
    return dpsql_command(command, *arguments, *options, cwd=folder, stdin=stdin, **environment)


def test_the_version(tmp_path: Path) -> None:
    code, printed, said = dpsql_command("--version", cwd=tmp_path)
    assert (code, printed.decode(), said) == (0, f"dpsql {dpsql.__version__}\n", "")


def test_the_demo_from_anywhere(tmp_path: Path) -> None:
    code, out, err = dpsql_command("demo", cwd=tmp_path)
    text = out.decode()
    assert (code, err) == (0, "")
    assert "CC BY 4.0" in text
    assert "Breese, Heckerman and Kadie 1998" in text
    for number, question in enumerate(
        ("1. Which areas", "2. And the fifty", "3. And among the 5,000 visitors of"), start=1
    ):
        assert question in text
        assert text.count(" of the budget; ") == 3, number
    assert "TOP 10 PRIVATE" in text
    assert "/msdownload" in text
    assert "██" in text
    assert "░" in text
    assert "answered 10 of 10; used 20 % of the budget; about 4 more like this" in text
    assert "(1, 1e-06)-differential privacy" in text
    assert "of 20 areas stood out, or there are no more." in text
    assert text.strip().splitlines()[-1].startswith("Each user_id of visits is protected: ")
    assert list(tmp_path.iterdir()) == []


def test_a_table(folder: Path) -> None:
    code, out, err = asked(folder, "query", COUNTED)
    assert (code, err) == (0, "")
    lines = out.decode().splitlines()
    assert lines[0].split() == ["#", "article", "year", "readers", "±", "at", "95%"]
    assert " users in all groups (95 %: " in lines[-3]
    assert lines[-2].startswith(
        "Only 6 of 7 combinations of article and year stood out, or there are no more. At this price "
    )
    assert lines[-1] == "answered 6 of 7; used 5 % of the budget; about 19 more like this"
    rows = lines[1:-3]
    assert len(rows) == 6
    assert "[bold]x[/bold]" in rows[0]
    assert "\ufffd[31mred\ufffdline\ufffd" in rows[1]
    assert ":smile: 漢字" in rows[2]
    assert "NULL" in rows[5]
    assert "\x1b" not in out.decode()
    ending = lines[0].index("readers") + len("readers")
    for row in rows:
        if row.isascii():
            assert row[:ending].split()[-1].replace(",", "").isdigit()
            assert row[ending] == " "
            assert row[ending - 1].isdigit()
    assert " 2020 " in rows[0]  # a year is no quantity
    assert all("," in row.split("±")[0] for row in rows)  # a count is one
    (reach,) = {row.split("± ")[1].split()[0] for row in rows}
    assert 40 < int(reach) < 78  # as far as counts reach that share no total
    assert all(row.count("█") + row.count("░") <= 36 for row in rows)


def test_a_wide_label_is_not_folded_into_a_pipe(folder: Path) -> None:
    label = "long label " * 30
    code, out, _ = asked(folder, "query", f"SELECT article || '{label}|' AS a FROM reads GROUP BY a TOP 1 PRIVATE")
    assert code == 0
    assert f"{label}|" in out.decode()


def test_csv(folder: Path) -> None:
    code, out, err = asked(folder, "query", COUNTED, "--format", "csv")
    assert code == 0
    header, *rows = csv.reader(io.StringIO(out.decode(), newline=""))
    assert header == ["article", "year", "readers"]
    shown = {label.replace("\x1b", "\ufffd").replace("\x07", "\ufffd") for label in LABELS}
    assert {row[0] for row in rows} == shown  # NULL and '' read alike here; the file quotes only the text
    assert "\n,1999," in out.decode()
    assert all(int(row[2]) > 1000 for row in rows)
    assert err.splitlines()[-1].startswith("answered 6 of 7; used ")


def test_formulas_are_quoted_in_csv_on_request(folder: Path) -> None:
    code, out, err = asked(folder, "query", COUNTED, "--format", "csv", "--quote-formulas")
    assert code == 0, err
    assert b'\n"\'=1+1,""q""",2020,' in out
    code, out, err = asked(folder, "query", COUNTED, "--quote-formulas")
    assert (code, out) == (2, b"")
    assert "Invalid value for --quote-formulas: Write --format csv beside it." in err


@pytest.mark.parametrize("layout", ["table", "csv"])
def test_details(folder: Path, layout: str) -> None:
    code, out, err = asked(folder, "query", COUNTED, "--details", "--format", layout)
    assert code == 0
    shown = out.decode() if layout == "table" else err
    assert "\n  mechanism     two_looks" in shown
    assert "\n  legs          by counts about " in shown
    _, out, err = asked(folder, "query", LEADERS, "--details", "--format", layout)
    shown = out.decode() if layout == "table" else err
    for line in ("mechanism     limited_domain", "charged       13 items of epsilon 0.05: rho 0.0040625, delta "):
        assert f"\n  {line}" in shown
    assert "rho" not in asked(folder, "query", LEADERS)[1].decode()


def test_json(folder: Path) -> None:
    code, out, err = asked(folder, "query", LEADERS, "--format", "json")
    assert (code, err) == (0, "")
    body = json.loads(out)
    assert body["columns"] == ["article", "year", "readers"]
    assert {row[0] for row in body["rows"]} == {*LABELS, None}
    receipt = body["receipt"]
    assert (receipt["k"], receipt["items_charged"], receipt["stopped_at_bottom"]) == (7, 13, True)
    assert receipt["loss"]["rho"] == 0.0040625
    fields = set(dpsql.Receipt.__dataclass_fields__) - {"rise"}
    assert set(receipt) == {*fields, "words", "used", "percent_used"}
    assert receipt["percent_used"] == pytest.approx(100 * receipt["used"], abs=0.01)
    assert receipt["words"] == "answered 6 of 7; used 5 % of the budget; about 19 more like this"
    assert body["explanation"].startswith(
        "Only 6 of 7 combinations of article and year stood out, or there are no more."
    )
    assert body["warnings"] == []


def test_arrow(folder: Path) -> None:
    code, out, err = asked(folder, "query", COUNTED, "--format", "arrow")
    assert code == 0
    table = pa.ipc.open_stream(out).read_all()
    assert table.schema == pa.schema([("article", pa.string()), ("year", pa.int32()), ("readers", pa.int64())])
    assert set(table.column("article").to_pylist()) == {*LABELS, None}
    assert err.splitlines()[-1].startswith("answered 6 of 7; used ")


@pytest.mark.parametrize("sql", [NOTHING, NOTHING.replace(", COUNT(DISTINCT user_id) AS readers", "")])
@pytest.mark.parametrize("layout", ["table", "csv", "json", "arrow"])
def test_no_rows_in_every_format(folder: Path, layout: str, sql: str) -> None:
    code, out, err = asked(folder, "query", sql, "--format", layout)
    names = ["article", "year", "readers"] if sql is NOTHING else ["article", "year"]
    assert code == 0, err
    if layout == "arrow":
        table = pa.ipc.open_stream(out).read_all()
        assert (table.num_rows, table.column_names) == (0, names)
    elif layout == "json":
        assert json.loads(out)["rows"] == []
        assert json.loads(out)["columns"] == names
    elif layout == "csv":
        assert out.decode() == ",".join(f'"{name}"' for name in names) + "\n"
    else:
        head, explanation, receipt = out.decode().splitlines()
        assert head.split()[: len(names) + 1] == ["#", *names]
        assert explanation.startswith("No combination of article and year stood out, or there is none. At this price ")
        assert receipt.startswith("answered 0 of 7; used ")


@pytest.mark.parametrize("layout", ["table", "csv", "json"])
def test_dates_beyond_the_calendar(folder: Path, layout: str) -> None:
    sql = "SELECT day FROM reads GROUP BY day TOP 2 PRIVATE WITH (epsilon = 0.05)"
    code, out, err = asked(folder, "query", sql, "--format", layout)
    assert code == 0, err
    assert "infinity" in out.decode()
    assert "2026-01-02" in out.decode()
    assert "value out of range" not in out.decode()


def test_a_statement_from_standard_input(folder: Path) -> None:
    sql = "\ufeff-- länger\n" + COUNTED + ";\n"
    code, out, err = asked(folder, "query", "-", "--format", "csv", stdin=sql.encode())
    assert code == 0, err
    assert out.startswith(b'"article"')


def test_standard_input_that_is_no_text(folder: Path) -> None:
    code, out, err = asked(folder, "query", "-", stdin=COUNTED.encode() + b"-- \xe9")
    assert (code, out) == (2, b"")
    assert_one_sentence(err)


def test_parameters(folder: Path) -> None:
    where = "WHERE article = ? OR article = ?"
    sql = f"SELECT article FROM reads {where} GROUP BY article TOP 2 PRIVATE WITH (epsilon = 0.05)"
    code, out, err = asked(folder, "query", sql, "--param", "", "-p", "[bold]x[/bold]", "--format", "json")
    assert code == 0, err
    assert json.loads(out)["rows"] == [["[bold]x[/bold]"], [""]]


def test_explain_of_several_private_queries_says_what_they_cost_together(folder: Path) -> None:
    total = "SELECT COUNT(DISTINCT user_id) AS n FROM reads"
    sql = f"SELECT ({total} WHERE year > 2020 PRIVATE) AS later, ({total} PRIVATE) AS readers"
    code, out, err = asked(folder, "explain", sql)
    assert (code, err) == (0, "")
    lines = [re.split(r" {2,}", line)[:2] for line in out.decode().splitlines()]
    assert [value for name, value in lines if name == "private query"] == ["1 of 2", "2 of 2"]
    assert lines[-1][0] == "together"
    assert re.fullmatch(r"at most .+ % more of the budget; .+ % is left", lines[-1][1])


def test_a_long_line_of_a_table_in_a_pipe_does_not_lengthen_the_others(folder: Path) -> None:
    code, out, err = asked(folder, "query", f"EXPLAIN {COUNTED}")
    assert code == 0, err
    lines = out.decode().split("\n") if isinstance(out, bytes) else out.split("\n")
    assert all(line == line.rstrip(" ") for line in lines)
    assert max(map(len, lines)) > 2 * min(len(line) for line in lines if line)


def test_another_ledger_is_used_by_every_command(folder: Path) -> None:
    other = ("--ledger", "other.sqlite")
    assert asked(folder, "query", COUNTED, *other)[0] == 0
    assert b"answered before" in asked(folder, "explain", COUNTED, *other)[1]
    assert b"answered before" not in asked(folder, "explain", COUNTED)[1]
    unused = b"0 % of the budget is used"
    budgets = [dpsql_command("budget", "--policy", "policy.toml", *ledger, cwd=folder)[1] for ledger in (other, ())]
    assert [unused in budget for budget in budgets] == [False, True]


def test_explain(folder: Path) -> None:
    code, out, err = asked(folder, "explain", COUNTED)
    assert (code, err) == (0, "")
    lines = out.decode().splitlines()
    assert lines[0].split()[:2] == ["needs", "a"]
    assert lines[1].split() == ["mechanism", "two_looks"]
    values = (
        "a combination",
        "two_looks",
        "it looks first",
        "a group needs",
        "a group needs",
        "a group needs",
        "a group needs",
        "user_id of",
    )
    assert len({line.index(value) for line, value in zip(lines, values, strict=False)}) == 1
    assert "engine SQL" not in out.decode()
    _, verbose, _ = asked(folder, "explain", "--verbose", COUNTED)
    assert any(line.startswith("engine SQL ") and "  WITH dpsql_" in line for line in verbose.decode().splitlines())
    _, out, _ = asked(folder, "explain", COUNTED, "--format", "json")
    facts = {row["property"]: row["value"] for row in json.loads(out)}
    assert (facts["k"], facts["k_bar"], facts["epsilon per item"]) == ("7", "1000", "0.05")
    # the default delta is for the 20 queries of the budget
    assert facts["such queries"] == "20 fit"
    _, out, _ = asked(folder, "explain", COUNTED, "--format", "csv")
    assert out.startswith(b'"property","value"\n')
    _, out, _ = asked(folder, "explain", COUNTED, "--format", "arrow")
    assert pa.ipc.open_stream(out).read_all().column_names == ["property", "value"]
    _, out, _ = asked(folder, "budget", "--format", "json")
    assert json.loads(out)["measures"][0]["spent"] == 0.0


def test_budget(folder: Path) -> None:
    asked(folder, "query", NOTHING.replace("WITH (", "WITH (mechanism = limited_domain, "))
    code, out, err = asked(folder, "budget", "--details")
    assert (code, err) == (0, "")
    assert "(4, 1e-06)-differential privacy" in out.decode()
    assert "spent 0.0003125, reserved 0" in out.decode()
    _, out, _ = asked(folder, "budget", "--format", "json")
    body = json.loads(out)
    assert body["total"] == {"epsilon": 4.0, "delta": 1e-6}
    assert [measure["measure"] for measure in body["measures"]][:2] == ["rho", "delta"]
    assert body["measures"][0]["spent"] == 0.0003125
    assert body["items"] == 99
    _, out, _ = asked(folder, "budget", "--format", "csv")
    assert out.decode().splitlines()[0] == '"measure","granted","spent","reserved","remaining"'
    _, out, _ = asked(folder, "budget", "--format", "arrow")
    assert pa.ipc.open_stream(out).read_all().num_rows == 9  # four amounts, four usual queries, and what is free


def assert_one_sentence(err: str) -> None:
    (line,) = err.strip().splitlines()
    assert line.startswith("dpsql: [")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (3, ["query", "SELECT article FROM reads"]),
        (3, ["query", "SELECT article, sum(year) AS s FROM reads GROUP BY article TOP 1 PRIVATE"]),
        (3, ["query", "SELECT 'a\nb\x1b' AS a FROM nothing GROUP BY a TOP 1 PRIVATE"]),
        (3, ["explain", COUNTED.replace("0.05", "1e309")]),
        (3, ["query", COUNTED.replace("TOP 7", "TOP 10000000000000000000000")]),
        (2, ["query", COUNTED, "--param", "x"]),
        (4, ["query", COUNTED.replace("0.05", "1").replace("TOP 7", "TOP 1000")]),
    ],
)
def test_errors_are_one_sentence(folder: Path, code: int, arguments: list[str]) -> None:
    found, out, err = asked(folder, *arguments)
    assert (found, out) == (code, b"")
    assert_one_sentence(err)


def test_a_policy_that_is_not_there(folder: Path) -> None:
    code, out, err = dpsql_command("budget", "--policy", "nothing.toml", cwd=folder)
    assert (code, out) == (5, b"")
    assert_one_sentence(err)


def test_a_database_that_is_not_there(folder: Path) -> None:
    code, out, err = dpsql_command("query", NOTHING, "--policy", "policy.toml", "--db", "nothing.duckdb", cwd=folder)
    assert (code, out) == (6, b"")
    assert_one_sentence(err)


def test_a_ledger_that_is_none(folder: Path) -> None:
    (folder / "ledger.sqlite").write_text("something else, and long enough to be looked at " * 40)
    code, out, err = asked(folder, "budget")
    assert (code, out) == (7, b"")
    assert_one_sentence(err)


@pytest.mark.parametrize(
    "arguments", [["query"], ["nothing"], ["budget", "--policy", "policy.toml", "--format", "xml"]]
)
def test_wrong_use(folder: Path, arguments: list[str]) -> None:
    code, out, err = dpsql_command(*arguments, cwd=folder)
    assert (code, out) == (2, b"")
    assert "Usage: dpsql" in err
    assert "Traceback" not in err


def test_help_names_the_exit_codes() -> None:
    code, out, _ = dpsql_command("--help")
    assert code == 0
    words = " ".join(out.decode().split())
    for part in ("demo", "init", "check", "query", "explain", "budget", "4 budget exceeded", "7 ledger error"):
        assert part in words


def test_a_ledger_in_memory_is_noted(folder: Path) -> None:
    (folder / "policy.toml").write_text(POLICY.removeprefix('ledger = "ledger.sqlite"\n'))
    code, out, err = asked(folder, "query", NOTHING, "--format", "json")
    assert code == 0
    assert json.loads(out)["rows"] == []
    assert err.startswith("dpsql: note: The policy names no ledger: ")
    assert len(err.strip().splitlines()) == 1


def test_a_terminal_that_is_not_unicode_still_gets_what_was_paid_for(folder: Path) -> None:
    code, out, err = asked(folder, "query", COUNTED, PYTHONIOENCODING="ascii")
    assert (code, err) == (0, "")
    assert b"\\xfcn\\xef" in out
    code, out, err = asked(folder, "query", COUNTED, "--format", "json", PYTHONIOENCODING="ascii")
    assert (code, err) == (0, "")
    assert {row[0] for row in json.loads(out)["rows"]} == {*LABELS, None}


def test_an_arrow_stream_is_not_written_to_a_terminal_and_not_charged(folder: Path) -> None:
    leader, follower = pty.openpty()
    code = "import sys; sys.argv[0] = 'dpsql'; from dpsql.cli import main; main()"
    command = [sys.executable, "-c", code, "query", COUNTED, "--format", "arrow", "--policy", "policy.toml"]
    try:
        done = subprocess.run(
            [*command, "--db", "events.duckdb"],
            check=False,
            stdout=follower,
            stderr=subprocess.PIPE,
            cwd=folder,
            timeout=60,
        )
    finally:
        os.close(follower)
        os.close(leader)
    assert done.returncode == 2
    assert_one_sentence(done.stderr.decode())
    with dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml") as session:
        assert session.budget.rho.spent == 0


def test_an_answer_spares_the_collector_the_modules_but_nothing_of_duckdb(folder: Path) -> None:
    code = """
import atexit, gc, sys
from dpsql.cli import main
def say(*words): print(*words, file=sys.stderr)
def freezing(freeze=gc.freeze):
    freeze()
    say("frozen with DuckDB:", "duckdb" in sys.modules)
gc.freeze = freezing
atexit.register(lambda: say("most is spared:", gc.get_freeze_count() > 50_000, "collected:", gc.isenabled()))
main()
"""
    command = [sys.executable, "-c", code, "query", COUNTED, "--policy", "policy.toml", "--db", "events.duckdb"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder, timeout=60)
    assert done.stderr.splitlines() == [
        "frozen with DuckDB: False",
        "most is spared: True collected: False",
    ]


@pytest.mark.parametrize(("stopped", "ended"), [("KeyboardInterrupt", 130), ("EOFError", 1)])
def test_whatever_command_is_interrupted_ends_with_130_and_a_word(stopped: str, ended: int) -> None:
    code = f"""
import sys
import dpsql.cli.shell
def run(): raise {stopped}
dpsql.cli.shell.run_demo = run
sys.argv = ["dpsql", "demo"]
from dpsql.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (ended, "", "dpsql: Interrupted.")


def test_a_reader_that_goes_away(folder: Path) -> None:
    code = "import sys; sys.argv[0] = 'dpsql'; from dpsql.cli import main; main()"
    command = [sys.executable, "-c", code, "query", COUNTED, "--policy", "policy.toml", "--db", "events.duckdb"]
    with Child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        err = process.stderr.read().decode()
    assert "Traceback" not in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
@pytest.mark.parametrize("layout", ["table", "arrow"])
def test_an_answer_that_cannot_be_written_is_one_sentence(folder: Path, layout: str) -> None:
    program = Path(sys.executable).with_name("dpsql")
    arguments = ["query", "--db", "events.duckdb", "--policy", "policy.toml", "--format", layout, COUNTED]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [program, *arguments], cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert done.returncode == 1
    assert "could not be written" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_command_reads_standard_sql_as_private_where_it_is_told(folder: Path) -> None:
    total = "SELECT COUNT(DISTINCT user_id) AS n FROM reads"
    assert asked(folder, "query", total)[0] == 3
    code, out, _ = asked(folder, "explain", total, "--implicit")
    assert code == 0
    assert b"read as" in out
    code, _, err = asked(folder, "query", total, "--implicit", "--format", "csv")
    assert code == 0
    assert "read as PRIVATE" in err
    policy = folder / "policy.toml"
    policy.write_text(policy.read_text() + "[sql]\nimplicit = true\n")
    assert asked(folder, "query", total)[0] == 0
    assert asked(folder, "query", total, "--no-implicit")[0] == 3


def test_a_command_gives_consent_where_it_is_told(folder: Path) -> None:
    text = "SELECT article FROM reads GROUP BY article TOP 50 PRIVATE"
    policy = folder / "policy.toml"
    policy.write_text(policy.read_text().replace('"user_id"\n', '"user_id"\npopulation = 200\n', 1))
    code, _, err = asked(folder, "query", text)
    assert code == 3
    assert "[consent]" in err
    assert "TOP 50 PRIVATE WITH (consent = true)" in err
    code, out, _ = asked(folder, "explain", text)
    assert code == 0
    assert b"run only with consent" in out
    assert asked(folder, "query", text, "--no-consent")[0] == 3
    assert asked(folder, "query", text, "--consent")[0] == 0
    assert asked(folder, "query", text)[0] == 0  # it is stored
    policy.write_text(policy.read_text() + "[limits]\nconsent = true\n")
    other = text.replace(" GROUP", " WHERE article <> 'x' GROUP")
    assert asked(folder, "query", other, "--no-consent")[0] == 3
