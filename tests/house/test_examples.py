"""Every example runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from nbclient import NotebookClient
from support.html_pages import page

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LEARNING = ROOT / "examples" / "02_pate.py"  # which needs data, and has a test of its own
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
PATE = ["--teachers", "200", "--examples", "30", "--epsilon", "0.2", "90"]
METHODS = ["stable", "pate", "pate-tau"]


def instances(path: Path) -> Path:
    """Write 5,000 instances with one to three of five labels that a linear model can tell."""
    draw = np.random.default_rng(7)
    truth = draw.random((5_000, 5)) < [0.6, 0.3, 0.3, 0.2, 0.2]
    truth[:, 0] |= ~truth.any(axis=1)
    features = truth @ draw.normal(size=(5, 12)) + 0.2 * draw.normal(size=(5_000, 12))
    labels = [[f"label {at}" for at in np.flatnonzero(row)] for row in truth]
    pq.write_table(pa.table({"features": features.tolist(), "labels": labels}), path)
    return path


def run(example: Path, folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(example), *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_are_examples_and_each_has_a_number_of_its_own() -> None:
    numbers = [int(each.name[:2]) for each in sorted([*EXAMPLES, *NOTEBOOKS], key=lambda path: path.name)]
    assert numbers == list(range(1, 1 + len(numbers)))
    listed = (ROOT / "examples" / "README.md").read_text()
    assert all(f"]({each.name})" in listed for each in [*EXAMPLES, *NOTEBOOKS])


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    """It fails where a cell does that says nothing else, and every page that it shows is a safe one."""
    book = nbformat.read(notebook, as_version=4)
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in cells), "notebooks are kept without outputs"
    NotebookClient(book, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    failed = [cell for cell in cells if any(each.output_type == "error" for each in cell.outputs)]
    assert failed == [cell for cell in cells if "raises-exception" in cell.metadata.get("tags", [])]
    assert not [each for cell in cells for each in cell.outputs if each.get("name") == "stderr"]
    shown = [each.data for cell in cells for each in cell.outputs if "data" in each and "text/html" in each.data]
    assert len(shown) >= 5
    for data in shown:
        page(data["text/html"])
        assert data["text/plain"]
    replays = [data for data in shown if "stored answer, nothing was charged" in data["text/plain"]]
    assert replays or notebook.name == "06_choosing_a_budget.ipynb"


@pytest.mark.parametrize("example", [each for each in EXAMPLES if each != LEARNING], ids=lambda path: path.name)
def test_example_runs(example: Path, tmp_path: Path) -> None:
    assert run(example, tmp_path)


def test_a_student_learns_from_private_labels_what_the_budget_allows(tmp_path: Path) -> None:
    """Nearly what the teachers teach it where the total is generous; PATE with less noise is nearer to them."""
    _, _, head, *lines, receipt = run(LEARNING, tmp_path, str(instances(tmp_path / "data.parquet")), *PATE).splitlines()
    assert head.split()[:4] == ["method", "epsilon", "delta", "answered"]
    rows = {(line[:22].strip(), line[22:].split()[0]): line[22:].split()[1:] for line in lines}
    assert list(rows) == [
        ("true labels", "-"),
        ("teachers, not private", "inf"),
        *((method, total) for total in ("0.2", "90") for method in METHODS),
    ]
    taught = float(rows["teachers, not private", "inf"][4])
    assert taught > 0.8
    for method in METHODS:
        assert float(rows[method, "90"][4]) > 0.9 * taught
        assert float(rows[method, "90"][1]) == 1
    assert float(rows["stable", "0.2"][1]) < 0.5
    noisy, near = (float(rows["pate", total][3]) for total in ("0.2", "90"))
    assert noisy < 0.8 < near
    assert receipt.startswith("the last receipt: pate-tau: charged rho ")
    assert "remaining rho" in receipt


ROW = re.compile(r"^(\d+)  Page \d+ .*$", re.MULTILINE)
LOOK = re.compile(r"by counts about \d of 5")
HISTOGRAM = "Gaussian histogram: 5"  # what answers but for 2 runs of 100, by the noise of the looks


def run_first_hour(folder: Path) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    return subprocess.run(
        ["bash", str(ROOT / "examples" / "first_hour.sh")],
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_first_hour_is_as_it_is_shown(tmp_path: Path) -> None:
    """All words are held, and all numbers but the released ones, which are drawn anew."""
    for number in range(4):
        done = run_first_hour(tmp_path / str(number))
        assert (done.returncode, done.stderr) == (0, "")
        if HISTOGRAM in done.stdout:
            break
    shown = (ROOT / "examples" / "first_hour.txt").read_text()
    plain, wanted = (LOOK.sub("by counts", ROW.sub(r"\1  Page", text)) for text in (done.stdout, shown))
    assert [line.rstrip() for line in plain.splitlines()] == [line.rstrip() for line in wanted.splitlines()]
    answers = [ROW.findall(part) for part in done.stdout.split("== ")]
    assert [len(rows) for rows in answers] == [0, 0, 0, 0, 0, 0, 5, 5, 0, 5]
    released = [[match[0] for match in ROW.finditer(part)] for part in done.stdout.split("== ") if ROW.search(part)]
    assert released[0] == released[1] == released[2]  # the first one, and then the stored one
