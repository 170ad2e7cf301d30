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
def test_the_page_of_policies_has_every_default(section: str, settings: type) -> None:
    defaults = {each.name: getattr(settings(), each.name) for each in fields(settings)}
    for key, default in defaults.items():
        (written,) = re.findall(rf"^### `\[{section}\] {key}`\n\n`.+?` \((.+?)\)\.", PAGE, re.MULTILINE)
        value = f"{default:,}".removesuffix(".0") if type(default) in {int, float} else str(default).lower()
        assert default is None or f"default {value}" in re.sub('[`"]', "", written), f"{key}: {value}"
