"""The tables of limits and settings: what the code has is in the starter policy and in the documentation."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from dpsql.errors import PolicyError
from dpsql.policy import EngineSettings, Limits, Policy, ServerSettings
from dpsql.policy.starter import _LIMIT_EXAMPLES, Found, starter

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "policy.md").read_text("utf-8")


def documented(section: str) -> set[str]:
    """Return the keys in the tables of the sections of the page whose text names `[section]`."""
    parts = [part for part in re.split(r"^## ", PAGE, flags=re.MULTILINE) if f"`[{section}]`" in part]
    rows = [row for part in parts for row in re.findall(r"^\| (`.*?) \|", part, re.MULTILINE)]
    return {key for row in rows for key in re.findall(r"`(\w+)`", row)}


def test_the_starter_policy_has_every_limit_and_each_is_read(tmp_path: Path) -> None:
    text = starter(Found("events.duckdb", ())).text
    written = text[text.index("# [limits]") :].split("\n\n")[0].replace("\n# ", "\n").removeprefix("# ")
    names = re.findall(r"^(\w+) = ", written, re.MULTILINE)
    todo = "Explain each limit in _LIMIT_NOTES of dpsql/policy/starter.py."
    assert sorted(names) == sorted(field.name for field in fields(Limits)), todo
    file = tmp_path / "policy.toml"
    file.write_text(f'[budget]\nepsilon = 1\ndelta = 1e-6\n[tables.t]\nprivacy_unit = "u"\n{written}')
    try:
        limits = Policy.from_toml(file).limits
    except PolicyError as error:
        pytest.fail(f"{error}\nIs it in _LIMIT_KEYS of dpsql/policy/settings.py, or in _LIMIT_EXAMPLES of starter.py?")
    assert limits == Limits(max_delta="5e-7", **_LIMIT_EXAMPLES)


@pytest.mark.parametrize(
    ("section", "settings"), [("limits", Limits), ("engine", EngineSettings), ("server", ServerSettings)]
)
def test_the_page_of_policies_has_every_key(section: str, settings: type) -> None:
    keys = {field.name for field in fields(settings)}
    todo = f"Give each key its row below [{section}] in docs/reference/policy.md."
    assert keys <= documented(section), todo
