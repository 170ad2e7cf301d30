"""Bounds written into the text of a policy: in all forms of TOML, and nothing else changes."""

from __future__ import annotations

import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dpsql.errors import PolicyError
from dpsql.policy.toml import check_writable, edit_bounds, list_bound_lines, write_bounds

NEW: dict[str, Any] = {"rows": 25, "dwell": {"max": Fraction(640)}}
TOP = 'ledger = "ledger.sqlite"  # of all\n\n[budget]\nepsilon = 1\ndelta = 1e-6\n\n'
OWN = "[tables.reads]\nprivacy_unit = 'id'  # of readers\n"
END = "\n# the end\n[tables.other]\npublic = true\n"
DOTTED = "[tables]\nreads.privacy_unit = 'id'\nreads.bounds.rows = 3 # '#'\nother.public = true\n"
BOTH = "rows = 25, dwell = { max = 640 }"
EACH = "each = { min = 0, max = 9 }"
FORMS = {  # what follows the budget before and after
    "no bounds": (OWN + END, f"{OWN}bounds = {{ {BOTH} }}\n{END}"),
    "an inline table": (
        OWN + "bounds = {rows=20, dwell = {max = 500}}  # guesses\nmin_units = 5\n" + END,
        OWN + f"bounds = {{ {BOTH} }}  # guesses\nmin_units = 5\n" + END,
    ),
    "an inline table of other columns": (
        OWN + f"bounds = {{ price = {{ max = 0.5, {EACH} }} }}\n" + END,
        OWN + f"bounds = {{ price = {{ max = 0.5, {EACH} }}, {BOTH} }}\n" + END,
    ),
    "a section": (
        OWN + "[tables.reads.bounds]  # by us\n  rows = 20 # of a day\n  price = { max = 3 }\n" + END,
        OWN + "[tables.reads.bounds]  # by us\n  rows = 25 # of a day\n  price = { max = 3 }\n"
        "  dwell = { max = 640 }\n" + END,
    ),
    "a column with each": (
        OWN + f"[tables.reads.bounds]\ndwell = {{ {EACH}, max = 5 }} # x\n" + END,
        OWN + f"[tables.reads.bounds]\ndwell = {{ {EACH}, max = 640 }} # x\nrows = 25\n" + END,
    ),
    "a section of the column": (
        OWN + "[tables.reads.bounds.dwell]\nmax = 5 # five\nmin = -3\n" + END,
        OWN + "bounds.rows = 25\n[tables.reads.bounds.dwell]\nmax = 640 # five\nmin = -3\n" + END,
    ),
    "dotted keys": (
        DOTTED,
        DOTTED.replace("other", "reads.bounds.dwell = { max = 640 }\nother").replace("rows = 3", "rows = 25"),
    ),
    "dotted keys of each": (
        OWN + "bounds.dwell.each.min = 2 # two\nbounds.dwell.each.max = 7\n" + END,
        OWN + "bounds.dwell.each.min = 2 # two\nbounds.dwell.each.max = 7\n"
        "bounds.dwell.max = 640\nbounds.rows = 25\n" + END,
    ),
    "dotted keys without bounds": (
        "[tables]\nreads.privacy_unit = 'id'\nother.public = true\n",
        f"[tables]\nreads.privacy_unit = 'id'\nreads.bounds = {{ {BOTH} }}\nother.public = true\n",
    ),
    "a name of another case": (
        OWN + "bounds = { Dwell = { max = 1 } }\n" + END,
        OWN + "bounds = { Dwell = { max = 640 }, rows = 25 }\n" + END,
    ),
    "a list of lines before": (
        OWN + "columns = [\n    'id', # ]\n    'dwell',\n]",
        OWN + f"columns = [\n    'id', # ]\n    'dwell',\n]\nbounds = {{ {BOTH} }}",
    ),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("ending", ["\n", "\r\n"], ids=["unix", "windows"])
def test_bounds_are_written_and_the_rest_stays(name: str, ending: str) -> None:
    before, after = ((TOP + each).replace("\n", ending) for each in FORMS[name])
    edited = edit_bounds(before, "reads", bounds=NEW, place="")
    assert edited == after
    bounds = tomllib.loads(edited)["tables"]["reads"]["bounds"]
    assert (bounds["rows"], bounds.get("dwell", bounds.get("Dwell"))["max"]) == (25, 640)
    assert edit_bounds(edited, "reads", bounds=NEW, place="") == edited


@pytest.mark.parametrize(
    "each",
    [
        "bounds.dwell.each.min = 2 # two\nbounds.dwell.each.max = 7\n",
        "[tables.reads.bounds.dwell]\neach.min = 2 # two\neach.max = 7\n",
        "[tables.reads.bounds.dwell]\nmax = 70\n[tables.reads.bounds.dwell.each]\nmin = 2 # two\nmax = 7\n",
    ],
)
def test_both_ends_of_each_are_written_where_they_are(each: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(TOP + OWN + each)
    new = {"dwell": {"max": 9, "each": {"min": Fraction(1, 2), "max": 3}}}
    check_writable(path, "reads", bounds=new)
    write_bounds(path, "reads", bounds=new)
    assert tomllib.loads(path.read_text())["tables"]["reads"]["bounds"]["dwell"] == {
        "max": 9,
        "each": {"min": 0.5, "max": 3},
    }
    assert "min = 0.5 # two" in path.read_text()


def test_what_cannot_be_written_is_refused_before_it_is_charged(tmp_path: Path) -> None:
    """The section of each alone has no place for a max of the same column."""
    path = tmp_path / "policy.toml"
    path.write_text(TOP + OWN + "[tables.reads.bounds.dwell.each]\nmin = 2\nmax = 7\n")
    check_writable(path, "reads", bounds={"dwell": {"each": {"min": 0, "max": 1}}})
    with pytest.raises(PolicyError, match="--no-write") as caught:
        check_writable(path, "reads", bounds={"dwell": {"max": 1}})
    assert caught.value.code == "policy-form"


def test_a_form_that_is_not_known_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(TOP + "[tables]\nreads = { privacy_unit = 'id' }\n")
    before = path.read_bytes()
    for act in (lambda: check_writable(path, "reads", bounds=NEW), lambda: write_bounds(path, "reads", bounds=NEW)):
        with pytest.raises(PolicyError) as caught:
            act()
        assert caught.value.code == "policy-form"
    assert "[tables.reads.bounds]: rows = 25; dwell = { max = 640 }" in str(caught.value.hint)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["policy.toml"]


def test_a_file_is_replaced_with_its_mode_through_links(tmp_path: Path) -> None:
    path, link = tmp_path / "real.toml", tmp_path / "policy.toml"
    path.write_text(TOP + FORMS["no bounds"][0])
    path.chmod(0o640)
    link.symlink_to(path)
    check_writable(link, "reads", bounds=NEW)
    write_bounds(link, "reads", bounds=NEW)
    assert path.read_text() == TOP + FORMS["no bounds"][1]
    assert (link.is_symlink(), path.stat().st_mode & 0o777) == (True, 0o640)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["policy.toml", "real.toml"]


def test_a_file_that_cannot_be_written_is_told_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(TOP + FORMS["no bounds"][0])
    monkeypatch.setattr("os.access", lambda *_: False)  # the tests may run as root, who may write everywhere
    with pytest.raises(PolicyError, match="cannot be written") as caught:
        check_writable(path, "reads", bounds=NEW)
    assert caught.value.code == "policy-unwritable"
    monkeypatch.setattr("tempfile.mkstemp", _refuse)
    with pytest.raises(PolicyError, match="rows = 25"):
        write_bounds(path, "reads", bounds=NEW)


def _refuse(**_: object) -> None:
    raise PermissionError


def test_lines_have_exact_numbers() -> None:
    bounds = {"rows": 7, "two words": {"min": Fraction(-5, 4), "max": Fraction(0)}}
    assert list_bound_lines(bounds) == ("rows = 7", '"two words" = { min = -1.25, max = 0 }')
