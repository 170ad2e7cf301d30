"""Which catalog a server opens, by what is installed and what the policy says."""

from __future__ import annotations

import tempfile

import pytest

from dpsql.errors import UsageError
from dpsql.server.catalog import cluster, open_catalog
from dpsql.server.catalog.minimal import Minimal
from dpsql.sql.ir.catalog import Catalog as Tables


def test_without_the_extra_the_small_one_is_opened(monkeypatch: pytest.MonkeyPatch, tables: Tables) -> None:
    monkeypatch.setattr("dpsql.server.catalog.catalog_choice.is_installed", lambda: False)
    assert isinstance(open_catalog("auto", tables), Minimal)


def test_an_address_needs_the_driver(monkeypatch: pytest.MonkeyPatch, tables: Tables) -> None:
    monkeypatch.setattr("dpsql.server.catalog.catalog_choice.importlib.util.find_spec", lambda _: None)
    with pytest.raises(UsageError) as caught:
        open_catalog("postgresql://ana@/x", tables)
    assert caught.value.code == "not-installed"


def test_a_postgresql_that_cannot_be_run_is_told_and_leaves_no_folder(
    monkeypatch: pytest.MonkeyPatch, tables: Tables
) -> None:
    made = []
    mkdtemp = tempfile.mkdtemp
    monkeypatch.setattr(cluster, "_PROGRAMS", "nowhere")
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **given: made.append(mkdtemp(**given)) or made[-1])
    with pytest.raises(UsageError) as caught:
        open_catalog("auto", tables)
    assert caught.value.code == "catalog-unavailable"
    assert [cluster.Path(folder).exists() for folder in made] == [False]
