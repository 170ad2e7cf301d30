"""The policy's words on where the data is open: read, refused with a place, and kept by copies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dpsql import Budget, EngineSettings, Policy, PolicyError, PrivateTable, UsageError

FILE = """\
[budget]
epsilon = 1
delta = 1e-6
[tables.reads]
privacy_unit = "user_id"
[engine]
"""
ALL = 'isolation = "process"\nmemory_limit = "4GB"\nthreads = 2\ntime_limit = 1.5\nanswer_grid_ms = 250\n'
TABLES = {"reads": PrivateTable("user_id")}


def read(folder: Path, text: str) -> EngineSettings:
    file = folder / "policy.toml"
    file.write_text(FILE + text, encoding="utf-8")
    return Policy.from_toml(file).engine


def test_without_words_the_data_is_open_in_process_and_nothing_is_bounded(tmp_path: Path) -> None:
    assert read(tmp_path, "") == EngineSettings() == Policy(Budget(1, "1e-6"), TABLES).engine
    assert EngineSettings().isolation == "in_process"


def test_settings_of_a_file(tmp_path: Path) -> None:
    asked = EngineSettings(isolation="process", memory_limit="4GB", threads=2, time_limit=1.5, answer_grid_ms=250)
    assert read(tmp_path, ALL) == asked
    assert read(tmp_path, "time_limit = 60").time_limit == 60


@pytest.mark.parametrize(
    ("text", "code", "key"),
    [
        ('isolation = "container"', "policy-isolation", "isolation"),
        ("isolation = true", "policy-type", "isolation"),
        ('memory_limit = "much"', "policy-memory", "memory_limit"),
        ('memory_limit = "-1GB"', "policy-memory", "memory_limit"),
        ("memory_limit = 4", "policy-type", "memory_limit"),
        ("threads = 0", "policy-range", "threads"),
        ("threads = 2.5", "policy-type", "threads"),
        ("time_limit = 0", "policy-range", "time_limit"),
        ("time_limit = nan", "policy-range", "time_limit"),
        ("time_limit = 1e9", "policy-range", "time_limit"),
        ('time_limit = "60"', "policy-type", "time_limit"),
        ("answer_grid_ms = 0", "policy-range", "answer_grid_ms"),
        ("sandbox = true", "policy-unknown-key", "sandbox"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_line(tmp_path: Path, text: str, code: str, key: str) -> None:
    with pytest.raises(PolicyError) as caught:
        read(tmp_path, text)
    assert caught.value.code == code
    assert caught.value.place == f"engine.{key} (policy.toml, line 7)"
    assert caught.value.hint


@pytest.mark.parametrize(
    "make",
    [
        lambda: EngineSettings(isolation=3),  # type: ignore[arg-type]
        lambda: EngineSettings(memory_limit=3),  # type: ignore[arg-type]
        lambda: EngineSettings(time_limit=True),
        lambda: EngineSettings(time_limit="60"),  # type: ignore[arg-type]
        lambda: Policy(Budget(1, "1e-6"), TABLES, engine="process"),  # type: ignore[arg-type]
    ],
)
def test_values_of_another_type_are_refused_in_python(make: Callable[[], object]) -> None:
    with pytest.raises(PolicyError) as caught:
        make()
    assert caught.value.code == "policy-type"


@pytest.mark.parametrize(
    ("demanded", "asked", "isolated"),
    [
        ("in_process", None, False),
        ("in_process", "in_process", False),
        ("in_process", "process", True),
        ("process", None, True),
        ("process", "process", True),
    ],
)
def test_isolation_may_be_asked_for_beyond_the_policy(demanded: str, asked: str | None, *, isolated: bool) -> None:
    assert EngineSettings(isolation=demanded).isolates(asked) is isolated


@pytest.mark.parametrize("asked", ["in_process", "none", ""])
def test_less_than_the_policy_demands_is_refused(asked: str) -> None:
    with pytest.raises(UsageError) as caught:
        EngineSettings(isolation="process").isolates(asked)
    assert caught.value.code == "isolation"
