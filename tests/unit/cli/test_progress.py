"""The bar of a query that takes long: on a terminal alone, gone at the end, and what Ctrl-C does."""

from __future__ import annotations

import dataclasses
import io
import sys
import threading
import time
from pathlib import Path

import duckdb
import pytest
from support.command_kit import dpsql_command
from support.terminal_kit import conversation

import dpsql
from dpsql.cli import show

BAR = "\u2501"
POLICY = """\
ledger = "ledger.sqlite"
[budget]
epsilon = 4.0
delta = 1e-6

[tables.reads]
privacy_unit = "user_id"
"""
ENDLESS = """SELECT a.article FROM reads a JOIN reads b ON a.user_id = b.user_id JOIN reads c ON c.user_id = a.user_id
    WHERE a.n + b.n + c.n = -1 GROUP BY a.article TOP 1 PRIVATE"""
SHORT = "SELECT article FROM reads GROUP BY article TOP 1 PRIVATE"
HURRIED = "from dpsql.cli import show; show._FIRST = 0.0"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("progress")
    with duckdb.connect(str(folder / "events.duckdb")) as connection:
        connection.execute("CREATE TABLE reads AS SELECT i AS user_id, 'a' AS article, i AS n FROM range(9000) t(i)")
        connection.execute("INSERT INTO reads SELECT -1, 'a', i FROM range(20000) t(i)")
    (folder / "policy.toml").write_text(POLICY)
    return folder


def test_ctrl_c_wipes_the_bar_ends_the_command_with_130_and_the_query_is_charged_in_full(folder: Path) -> None:
    with conversation(folder, words=["query", ENDLESS]) as terminal:
        terminal.shows(BAR)
        terminal.shows("%")  # the data is open in this process
        terminal.types("\x03")
        terminal.shows("dpsql: Interrupted. A query that had begun to read is charged in full")
        assert BAR not in terminal.seen
        assert terminal.ends() == 130
    with dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml") as session:
        (asked,) = session.history.to_pylist()
        assert asked["state"] == "interrupted"
        assert session.budget.rho.reserved == 0 < session.budget.rho.spent


def test_the_bar_is_gone_before_the_answer_is_shown_and_the_cursor_is_not(folder: Path) -> None:
    slow = f"{HURRIED}\nfrom dpsql.engines.duckdb.engine import DuckDBEngine as E; import time\n"
    slow += "run = E._run; E._run = lambda *given: (time.sleep(1), run(*given))[1]"
    with conversation(folder, slow, ["query", SHORT]) as terminal:
        assert BAR in terminal.shows("of the budget; ")
        drawn = terminal.raw
        assert terminal.ends() == 0
    end = drawn.rindex(BAR)
    assert "\x1b[2K" in drawn[end:]
    assert drawn.rindex("\x1b[?25l") < drawn.index("\x1b[?25h") < drawn.index(BAR)


def test_the_shell_shows_it_too(folder: Path) -> None:
    with conversation(folder) as terminal:
        terminal.shows("dpsql>")
        terminal.types(ENDLESS.replace("\n", " ") + ";\r")
        terminal.shows(BAR)
        terminal.types("\x03")
        terminal.shows("Interrupted.")
        terminal.shows("dpsql>")
        terminal.types("\x04")
        assert terminal.ends() == 0


def test_nothing_is_drawn_into_a_file(folder: Path) -> None:
    code, out, err = dpsql_command(
        "query", SHORT, "--db", "events.duckdb", "--policy", "policy.toml", cwd=folder, FORCE_COLOR="1"
    )
    assert code == 0
    assert BAR not in out.decode() + err


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@dataclasses.dataclass
class Telling:
    told: list[float | None]

    @property
    def progress(self) -> float | None:
        return self.told.pop(0) if len(self.told) > 1 else self.told[0]


def test_the_bar_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """What DuckDB guesses does, from one part of a statement to the next."""
    session, screen = Telling([None, 0.5, 0.25, None, 0.75, 0.1]), Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(show, "_FIRST", 0.0)
    monkeypatch.setattr(show, "_EACH", 0.05)
    monkeypatch.setenv("TERM", "xterm")
    with show.show_progress(session):  # type: ignore[arg-type]
        while len(session.told) > 1:
            time.sleep(0.01)
        time.sleep(0.2)
    shown = [int(words.split()[-1]) for words in screen.getvalue().split("%")[:-1]]
    assert shown == sorted(shown)
    assert {50, 75} <= set(shown)
    assert not [thread for thread in threading.enumerate() if thread.name == "dpsql-progress"]
