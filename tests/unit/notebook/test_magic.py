"""The magic: what a line and a cell do, that values are bound and never pasted, and that errors fail the cell."""

from __future__ import annotations

from pathlib import Path

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from support.html_pages import page, words

import dpsql
from dpsql.answer import Answer
from dpsql.errors import UsageError
from dpsql.notebook import parse_command, parse_connect
from dpsql.plan import Plan
from dpsql.report.balance import Balance

CONNECT = "%dpsql connect events.duckdb --policy policy.toml"
TOP = "SELECT article, COUNT(DISTINCT user_id) AS readers FROM reads GROUP BY article TOP 3 PRIVATE"


def ran(shell: InteractiveShell, cell: str) -> object:
    result = shell.run_cell(cell)
    result.raise_error()
    return result.result


def refused(shell: InteractiveShell, cell: str) -> dpsql.Error:
    result = shell.run_cell(cell)
    assert isinstance(result.error_in_exec, dpsql.Error), result
    return result.error_in_exec


def test_a_cell_is_answered_and_kept(shell: InteractiveShell) -> None:
    assert isinstance(ran(shell, CONNECT), Balance)
    answer = ran(shell, f"%%dpsql top\n{TOP};\n")
    assert isinstance(answer, Answer)
    assert shell.user_ns["top"] is answer
    assert [row[0] for row in answer.fetchall()] == ["article 5", "article 4", "article 3"]


def test_running_a_cell_again_is_free_and_says_so(shell: InteractiveShell) -> None:
    ran(shell, CONNECT)
    first, again = (ran(shell, f"%%dpsql\n{TOP}") for _ in range(2))
    assert isinstance(first, Answer)
    assert isinstance(again, Answer)
    assert again.receipt.replayed
    assert again.fetchall() == first.fetchall()
    assert "stored answer, nothing was charged" in words(page(again._repr_html_()))
    assert first.receipt.remaining == again.receipt.remaining


def test_one_question_in_every_form_is_one_charge(shell: InteractiveShell) -> None:
    ran(shell, CONNECT)
    ran(shell, "k = 3")
    for form in (
        f"%dpsql {TOP}",
        f"%%dpsql\n-- the same\n{TOP};",
        f"%%dpsql named\n{TOP} LIMIT 1",
        f"%%dpsql\n{TOP.replace('3', ':k')}",
        f"%%dpsql\nSELECT * FROM ({TOP}) AS top WHERE readers > 0",
        f"%dpsql explain {TOP}",
        f"%%dpsql\n{TOP} LIMIT 0",
    ):
        ran(shell, form)
    assert len(ran(shell, "%dpsql history").table) == 1  # type: ignore[attr-defined]


def test_what_a_line_says(shell: InteractiveShell) -> None:
    ran(shell, CONNECT)
    tables, plan = ran(shell, "%dpsql tables"), ran(shell, f"%dpsql explain {TOP}")
    assert isinstance(tables, Answer)
    assert [row[0] for row in tables.fetchall()] == ["reads", "countries"]
    assert isinstance(plan, Plan)
    assert "nothing was asked" not in repr(ran(shell, "%dpsql history"))
    ran(shell, f"kept = %dpsql {TOP}")
    assert len(shell.user_ns["kept"]) == 3
    history = ran(shell, "%dpsql history")
    assert TOP in repr(history)
    assert TOP in words(page(history._repr_html_()))  # type: ignore[attr-defined]
    assert isinstance(ran(shell, "%dpsql budget"), Balance)
    assert ran(shell, "%dpsql close") is None
    assert refused(shell, "%dpsql budget").code == "not-connected"


def test_help_lists_every_command(shell: InteractiveShell) -> None:
    from dpsql.notebook import COMMANDS

    for line in ("%dpsql", "%dpsql help"):
        said = repr(ran(shell, line))
        assert all(f"dpsql {name}" in said for name in COMMANDS if name != "help")
        page(ran(shell, line)._repr_html_())  # type: ignore[attr-defined]


def test_values_of_variables_are_bound_and_never_pasted(shell: InteractiveShell) -> None:
    ran(shell, CONNECT)
    ran(shell, "country = \"DE' OR 'x' = 'x\"; unused = object(); article = 'article 5'; k = 2")
    none = ran(shell, "%%dpsql\nSELECT article FROM reads WHERE country = :country GROUP BY article TOP :k PRIVATE")
    assert isinstance(none, Answer)
    assert len(none) == 0
    line = "%dpsql SELECT article FROM reads WHERE article = :article GROUP BY article TOP :k PRIVATE"
    assert ran(shell, line).fetchall() == [("article 5",)]  # type: ignore[attr-defined]


def test_ipython_pastes_no_variable_into_a_line(shell: InteractiveShell) -> None:
    ran(shell, CONNECT)
    ran(shell, "country = 'DE'; pasted = \"'DE' OR TRUE\"")
    ask = "%dpsql SELECT article FROM reads WHERE country = {} GROUP BY article TOP 2 PRIVATE"
    assert refused(shell, ask.format("{pasted}")).code == "character"
    assert ran(shell, ask.format("$pasted")).fetchall() == []  # type: ignore[attr-defined] - bound, as :pasted is


def test_a_parameter_without_a_variable_is_refused(shell: InteractiveShell) -> None:
    ran(shell, CONNECT)
    assert refused(shell, "%dpsql SELECT continent FROM countries WHERE country = :nowhere").code == "parameters"


def test_numbers_of_numpy_are_numbers(shell: InteractiveShell) -> None:
    ran(shell, CONNECT)
    ran(shell, "import numpy as np; least = np.int64(1)")
    assert ran(shell, "%dpsql SELECT country FROM countries WHERE length(country) > :least").fetchall() == [("DE",)]  # type: ignore[attr-defined]


def test_a_refused_cell_fails_changes_no_variable_and_shows_no_traceback(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    ran(shell, CONNECT)
    ran(shell, "top = 'as it was'")
    capsys.readouterr()
    assert (
        refused(shell, "%%dpsql top\nSELECT secret FROM reads GROUP BY secret TOP 3 PRIVATE").code == "unknown-column"
    )
    assert shell.user_ns["top"] == "as it was"
    shown = "".join(capsys.readouterr())
    assert "Refusal: unknown-column" in shown
    assert "hint" in shown
    assert "Traceback" not in shown
    assert "magic.py" not in shown


def test_in_a_kernel_the_box_comes_first_and_one_line_after_it(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(type(shell), "kernel", object(), raising=False)
    shell.display_formatter.active_types = ["text/plain"]
    error = refused(shell, "%dpsql SELECT secret FROM reads GROUP BY secret TOP 3 PRIVATE")
    assert error._render_traceback_() == [f"UsageError: {error}"]
    box, _, line = capsys.readouterr().out.partition("UsageError: [not-connected]")
    assert "No session is open" in box
    assert "No session is open" in line


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        ("%dpsql SELECT secret FROM reads GROUP BY 1 TOP 3 PRIVATE", 0),
        ("%dpsql explain SELECT secret FROM reads GROUP BY 1 TOP 3 PRIVATE", 0),
        ("%dpsql EXPLAIN  SELECT secret FROM reads GROUP BY 1 TOP 3 PRIVATE", 0),
        ("%%dpsql\n\n  SELECT secret\nFROM reads GROUP BY 1 TOP 3 PRIVATE", 1),
        ("%%dpsql\nEXPLAIN SELECT 'e\u0301', secret FROM reads GROUP BY ALL TOP 3 PRIVATE", 0),
    ],
)
def test_the_box_marks_the_place_in_what_was_written(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch, cell: str, line: int
) -> None:
    shown: list[object] = []
    monkeypatch.setattr(type(shell), "kernel", object(), raising=False)
    monkeypatch.setattr("dpsql.notebook.display", shown.append)
    ran(shell, CONNECT)
    refused(shell, cell)
    (box,) = shown
    root = page(box._repr_html_())  # type: ignore[attr-defined]
    (mark,), (pre,) = root.iter("mark"), root.iter("pre")
    assert mark.text == "secret"
    assert "".join(pre.itertext()) in cell.split("\n", 1)[-1].split("\n")[line]


@pytest.mark.parametrize(
    "line",
    [
        "connect a b --policy p",
        "connect --policy",
        "connect --policy a --policy b",
        "connect --colour red --policy p",
        "connect 'events.duckdb --policy p",
        "budget now",
        "budgets",
        "explain",
        "use",
        "use nothing",
    ],
)
def test_a_line_that_cannot_be_read_says_how_to_write_it(shell: InteractiveShell, line: str) -> None:
    error = refused(shell, f"%dpsql {line}")
    assert error.code == "magic"
    assert "dpsql" in error.hint


@pytest.mark.parametrize("line", ["", "help", "HELP;", "--help", "?"])
def test_who_asks_for_help_gets_it(shell: InteractiveShell, line: str) -> None:
    assert "%dpsql connect DB --policy FILE" in repr(ran(shell, f"%dpsql {line}"))


@pytest.mark.parametrize("name", ["a b", "SELECT 1", "1st", "budget", "a.b", "class"])
def test_a_cell_is_kept_only_in_a_variable(shell: InteractiveShell, name: str) -> None:
    ran(shell, CONNECT)
    assert refused(shell, f"%%dpsql {name}\n{TOP}").code == "magic"
    assert len(ran(shell, "%dpsql history").table) == 0  # type: ignore[attr-defined]


def test_options_of_connect_reach_the_session(shell: InteractiveShell, folder: Path) -> None:
    (folder / "policy.toml").write_text((folder / "policy.toml").read_text() + "[analysts.alice]\nepsilon = 0.5\n")
    balance = ran(
        shell, "%dpsql connect events.duckdb --policy=policy.toml --analyst alice --ledger 'other ledger.sqlite'"
    )
    assert isinstance(balance, Balance)
    assert balance.analyst == "alice"
    assert (folder / "other ledger.sqlite").exists()


def test_a_session_of_ones_own_is_used_and_left_open(shell: InteractiveShell) -> None:
    ran(shell, "import dpsql; mine = dpsql.connect('events.duckdb', policy='policy.toml')")
    ran(shell, "%dpsql use mine")
    ran(shell, "%dpsql close")
    assert isinstance(shell.user_ns["mine"].budget, Balance)
    shell.user_ns["mine"].close()


def test_connecting_again_closes_what_was_open_unless_it_fails(shell: InteractiveShell) -> None:
    from dpsql.notebook import _LOADED

    ran(shell, CONNECT)
    first = _LOADED[shell][0].session
    refused(shell, "%dpsql connect nowhere.duckdb --policy policy.toml")
    assert _LOADED[shell][0].session is first
    ran(shell, CONNECT)
    with pytest.raises(dpsql.UsageError, match="closed"):
        first.budget  # noqa: B018 - the access is the test


def test_loading_twice_is_loading_once_and_unloading_takes_all_away(shell: InteractiveShell) -> None:
    ran(shell, CONNECT)
    shell.run_line_magic("reload_ext", "dpsql")
    assert sum(getattr(each, "matcher_identifier", "") == "dpsql" for each in shell.Completer.custom_matchers) == 1
    shell.run_line_magic("unload_ext", "dpsql")
    assert "dpsql" not in shell.magics_manager.magics["line"]
    assert "dpsql" not in shell.magics_manager.magics["cell"]
    shell.run_line_magic("load_ext", "dpsql")


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("%dpsql bud", {"budget"}),
        ("%dpsql SELECT art", {"article"}),
        ("x = %dpsql SELECT arti", {"article"}),
        ("%%dpsql top\nSELECT article FROM re", {"reads"}),
        ("%%dpsql\nSELECT conti", {"continent"}),
        ("%%dpsql\nSELECT r.artic", {"article"}),
        ("%%dpsql\n... TOP 3 pri", {"PRIVATE"}),
    ],
)
def test_tables_columns_and_commands_are_completed(shell: InteractiveShell, text: str, offered: set[str]) -> None:
    ran(shell, CONNECT)
    with provisionalcompleter():
        assert {each.text for each in shell.Completer.completions(text, len(text))} == offered


def test_nothing_is_offered_elsewhere(shell: InteractiveShell) -> None:
    ran(shell, CONNECT)
    with provisionalcompleter():
        for text in ("readx = 1; rea", "%time artic"):
            assert not {"reads", "article"} & {each.text for each in shell.Completer.completions(text, len(text))}


def test_standard_sql_is_read_as_private_in_a_session_that_was_opened_so(shell: InteractiveShell) -> None:
    total = "%dpsql SELECT COUNT(DISTINCT user_id) AS n FROM reads"
    ran(shell, CONNECT)
    assert refused(shell, total).code == "not-private"
    ran(shell, f"{CONNECT} --implicit")
    assert "read as PRIVATE" in str(ran(shell, total).receipt)  # type: ignore[attr-defined]
    assert refused(shell, f"{CONNECT} --implicit --implicit=1").code == "magic"


def test_consent_is_given_to_a_session_that_was_opened_so(shell: InteractiveShell) -> None:
    policy = Path("policy.toml")
    policy.write_text(policy.read_text().replace('"user_id"\n', '"user_id"\npopulation = 400\n', 1))
    names = "%dpsql SELECT article FROM reads GROUP BY article TOP 50 PRIVATE"
    ran(shell, CONNECT)
    assert refused(shell, names).code == "consent"
    ran(shell, f"{CONNECT} --consent")
    assert ran(shell, names).receipt.k == 50  # type: ignore[attr-defined]
    assert refused(shell, f"{CONNECT} --consent=1").code == "magic"


@pytest.mark.parametrize(("line", "meant"), [("budgett", "budget"), ("explian", "explain"), ("tabels", "tables")])
def test_a_misspelt_command_is_proposed(line: str, meant: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_command(line)
    assert (refused.value.hint or "").startswith(f"Did you mean %dpsql {meant}? ")


def test_connect_takes_the_policy_that_connect_takes_without_one() -> None:
    assert parse_connect("events.duckdb") == {"database": "events.duckdb"}
