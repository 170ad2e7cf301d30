"""`dpsql compare-budgets`: tables, JSON and a plot, through real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.command_kit import dpsql_command

ONE = ("--item-epsilon", "0.1", "--items", "10")


def test_tables() -> None:
    code, out, err = dpsql_command("compare-budgets", *ONE, "--item-epsilon", "0.5")
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.decode().splitlines()]
    assert ["0.1", "10", "12", "19", "22"] in lines
    assert ["0.1", "10", "1.00000", "0.88113", "0.70021", "0.63488", "0.62864", "0.99937"] in lines
    assert ["0.5", "10", "5.00000", "5.00000", "4.01028", "3.58398", "3.56908", "4.99989"] in lines
    assert "(1, 1e-06)-differential privacy" in out.decode()


def test_json() -> None:
    code, out, err = dpsql_command("compare-budgets", *ONE, "--epsilon", "2", "--delta", "1e-5", "--format", "json")
    assert (code, err) == (0, "")
    body = json.loads(out)
    assert body["total"] == {"epsilon": 2.0, "delta": 1e-5}
    (counts,), (costs,) = body["items"], body["totals"]
    assert list(counts) == ["epsilon", "pure", "theorem2", "zcdp", "optimal"]
    assert counts["pure"] == 20 < counts["theorem2"] < counts["zcdp"] < counts["optimal"]
    assert costs["fixed"] < costs["optimal"] < costs["zcdp"] < costs["older_zcdp"] < costs["theorem2"]


@pytest.mark.parametrize(("name", "start"), [("plot.png", b"\x89PNG"), ("plot.svg", b"<?xml")])
def test_a_plot(tmp_path: Path, name: str, start: bytes) -> None:
    code, out, err = dpsql_command("compare-budgets", *ONE, "--plot", name, cwd=tmp_path)
    assert (code, err) == (0, "")
    assert b"12        19        22" in out
    assert [path.name for path in tmp_path.iterdir()] == [name]
    picture = (tmp_path / name).read_bytes()
    assert picture.startswith(start)
    assert len(picture) > 10_000


@pytest.mark.parametrize("name", ["plot.nothing", "no/such/folder/plot.png"])
def test_a_plot_that_cannot_be_written(tmp_path: Path, name: str) -> None:
    code, out, err = dpsql_command("compare-budgets", *ONE, "--plot", name, cwd=tmp_path)
    assert (code, out) == (2, b"")
    assert err.startswith("dpsql: [output-unwritable]")


def test_a_plot_without_matplotlib_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "matplotlib").mkdir()
    (tmp_path / "matplotlib" / "__init__.py").write_text("raise ImportError\n")
    code, out, err = dpsql_command(
        "compare-budgets",
        *ONE,
        "--plot",
        "plot.png",
        cwd=tmp_path,
        PYTHONPATH=f"{tmp_path}:{Path(__file__).parents[3]}",
    )
    assert (code, out) == (2, b"")
    assert "[not-installed]" in err
    assert "pip install 'dpsql[plot]'" in err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--epsilon", "0"), "epsilon-range"),
        (("--delta", "1"), "composition-range"),
        (("--items", "5001"), "composition-range"),
        (("--item-epsilon", "9"), "composition-range"),
    ],
)
def test_wrong_numbers(arguments: tuple[str, ...], code: str) -> None:
    status, out, err = dpsql_command("compare-budgets", *arguments)
    assert (status, out) == (2, b"")
    assert f"[{code}]" in err
