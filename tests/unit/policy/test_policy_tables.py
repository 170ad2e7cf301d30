"""The tables of limits and settings: what the code has is in the starter policy and in the documentation."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from dpsql.policy import EngineSettings, Limits, ServerSettings
from dpsql.policy.starter import Found, starter

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "policy.md").read_text("utf-8")


def documented(section: str) -> set[str]:
    """Return the keys in the tables of the sections of the page whose text names `[section]`."""
    parts = [part for part in re.split(r"^## ", PAGE, flags=re.MULTILINE) if f"`[{section}]`" in part]
    rows = [row for part in parts for row in re.findall(r"^\| (`.*?) \|", part, re.MULTILINE)]
    return {key for row in rows for key in re.findall(r"`(\w+)`", row)}


def test_the_starter_policy_has_every_limit() -> None:
    text = starter(Found("events.duckdb", ())).text
    _, _, limits = text.partition("[limits]")
    written = re.findall(r"^# (\w+) = ", limits.split("\n\n")[0], re.MULTILINE)
    assert sorted(written) == sorted(field.name for field in fields(Limits))


@pytest.mark.parametrize(
    ("section", "settings"), [("limits", Limits), ("engine", EngineSettings), ("server", ServerSettings)]
)
def test_the_page_of_policies_has_every_key(section: str, settings: type) -> None:
    keys = {field.name for field in fields(settings)}
    assert keys <= documented(section)
