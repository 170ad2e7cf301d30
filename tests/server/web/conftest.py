"""A page over a small data set, whose ledger is new for each test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.web_kit import World, made, opened


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    made(folder)
    return folder


@pytest.fixture
def world(data: Path, tmp_path: Path) -> Iterator[World]:
    shutil.copytree(data, tmp_path, dirs_exist_ok=True)
    with opened(tmp_path) as found:
        yield found
