"""A policy of each earlier version is read, once the lines are changed that errors name, as their hints say."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from support.policies_of_versions import BEFORE, follow_hints

from dpsql import Epsilon, Policy


@pytest.mark.parametrize("version", BEFORE)
def test_every_key_is_read_or_its_line_is_named_with_what_to_write(version: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(BEFORE[version])
    assert follow_hints(file) == [
        'prepared = "quick"',
        'prepared = [["city"]]',
        'flight = "off"',
        'catalog = "minimal"',
    ]
    policy = Policy.from_toml(file)
    assert policy.materialized == tmp_path / "quick"
    assert (policy.tables["users"].materialized, policy.tables["users"].min_units) == ((("city",),), 3)
    assert (policy.budget.period, policy.budget.items) == (timedelta(days=30), 1500)
    assert (policy.limits.max_k, policy.engine.answer_grid_ms, policy.server.catalog) == (100, 100, "auto")
    assert policy.analysts["ada"].epsilon == Epsilon(20)
