"""In a real kernel: outputs have HTML and text, a refused cell fails the run, an interrupt reaches the query."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from threading import Thread

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook
from support.html_pages import page, words

START = ["%load_ext dpsql", "%dpsql connect events.duckdb --policy policy.toml"]
TOP = "SELECT article, COUNT(DISTINCT user_id) AS readers FROM reads GROUP BY article TOP 3 PRIVATE"
SLOW = """
from dpsql.notebook import _LOADED
import dataclasses, time
(notebook, _), = _LOADED.values()
parts = notebook.session._dependencies
class Slow:
    def __getattr__(self, name): return getattr(parts.engine, name)
    def execute(self, statement):
        time.sleep(SECONDS)
        return parts.engine.execute(statement)
notebook.session._dependencies = dataclasses.replace(parts, engine=Slow())
"""


class Watching(NotebookClient):
    """A client that keeps every display, also those that are replaced later."""

    def process_message(self, msg: dict[str, object], cell: NotebookNode, cell_index: int) -> object:
        content = msg["content"]
        if str(msg["msg_type"]).endswith("display_data"):
            self.seen.append(content["data"]["text/plain"])  # type: ignore[index]
        return super().process_message(msg, cell, cell_index)  # type: ignore[no-untyped-call]


def client(folder: Path, *cells: str, allow_errors: bool = False) -> Watching:
    book = new_notebook(cells=[new_code_cell(cell) for cell in cells])
    made = Watching(book, allow_errors=allow_errors, timeout=120, resources={"metadata": {"path": str(folder)}})
    made.seen = []
    return made


def test_a_refused_cell_fails_the_run_and_says_why(folder: Path) -> None:
    refused = "%%dpsql\nSELECT secret\nFROM reads GROUP BY secret TOP 3 PRIVATE"
    made = client(folder, *START, refused)
    with pytest.raises(CellExecutionError, match="There is no such column here"):
        made.execute()
    box, error = made.nb.cells[-1].outputs
    assert "There is no such column here." in words(page(box.data["text/html"]))
    (mark,) = page(box.data["text/html"]).iter("mark")
    assert mark.text == "secret"
    assert error.traceback == [f"Refusal: {error.evalue}"]


def test_errors_of_python_cells_are_told_without_a_traceback(folder: Path) -> None:
    made = client(folder, "import dpsql\ndpsql.connect('nowhere.duckdb', policy='policy.toml')", allow_errors=True)
    made.execute()
    (error,) = made.nb.cells[0].outputs
    assert error.traceback[0] == "EngineError: database-missing"
    assert len(error.traceback) == 4


def test_seconds_are_shown_while_a_query_runs_and_nothing_of_them_stays(folder: Path) -> None:
    made = client(folder, *START, SLOW.replace("SECONDS", "3"), f"%%dpsql top\n{TOP}", f"%%dpsql\n{TOP}")
    made.execute()
    assert [said[:14] for said in made.seen[:2]] == ["running for 1 ", "running for 2 "]
    assert made.seen[-1] == ""
    first, again = made.nb.cells[-2:]
    assert [each.output_type for each in first.outputs] == ["display_data", "execute_result"]
    assert "asking" not in nbformat.writes(made.nb)
    assert "nothing was charged" in words(page(again.outputs[-1].data["text/html"]))


def test_an_interrupt_reaches_the_query_and_the_notebook_goes_on(folder: Path) -> None:
    made = client(folder, *START, SLOW.replace("SECONDS", "60"), f"%%dpsql\n{TOP}", "%dpsql history", allow_errors=True)

    def interrupting() -> None:
        while "running for 2 s" not in " ".join(made.seen):
            time.sleep(0.1)
        os.kill(made.km.provisioner.pid, signal.SIGINT)

    thread = Thread(target=interrupting, daemon=True)
    thread.start()
    begun = time.monotonic()
    made.execute()
    assert time.monotonic() - begun < 50
    *_, asked, history = made.nb.cells
    assert asked.outputs[-1].ename == "KeyboardInterrupt"
    assert "interrupted" in history.outputs[0].data["text/plain"]
