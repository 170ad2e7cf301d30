"""A policy of each earlier version is read, once the lines are changed that errors name, as their hints say."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from support.policies_of_versions import BEFORE

from dpsql import Epsilon, Policy, PolicyError


def change(file: Path) -> list[str]:
    """Follow the hints of errors until a policy is read; return the lines that were changed."""
    changed = []
    while True:
        try:
            Policy.from_toml(file)
        except PolicyError as error:
            lines, hint = file.read_text().splitlines(), str(error.hint)
            place = re.search(rf"\({file.name}, line (\d+)\)$", str(error.place))
            assert place is not None
            at = int(place[1]) - 1
            changed.append(lines[at])
            if renamed := re.match(r"Write (\w+) = \.\.\. in place of (\w+) = \.\.\.", hint):
                lines[at] = re.sub(rf"^{renamed[2]}\b", renamed[1], lines[at])
            elif hint.startswith(f"Delete the line {lines[at]}."):
                del lines[at]
            else:
                lines[at] = re.findall(r"^Write (\w+ = \S+)", hint)[0]
            file.write_text("\n".join(lines))
        else:
            return changed


@pytest.mark.parametrize("version", BEFORE)
def test_every_key_is_read_or_its_line_is_named_with_what_to_write(version: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(BEFORE[version])
    assert change(file) == ['prepared = "quick"', 'prepared = [["city"]]', 'flight = "off"', 'catalog = "minimal"']
    policy = Policy.from_toml(file)
    assert policy.materialized == tmp_path / "quick"
    assert (policy.tables["users"].materialized, policy.tables["users"].min_units) == ((("city",),), 3)
    assert (policy.budget.period, policy.budget.items) == (timedelta(days=30), 1500)
    assert (policy.limits.max_k, policy.engine.answer_grid_ms, policy.server.catalog) == (100, 100, "auto")
    assert policy.analysts["ada"].epsilon == Epsilon(20)
