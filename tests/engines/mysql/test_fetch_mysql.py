"""Which packages of Debian a MySQL for the tests needs, and what is said where it cannot be fetched."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import fetch_mysql

PACKAGES = {
    "server": {"Pre-Depends": "libc6 (>= 2.38)", "Depends": "absent:any | icu | other, perl:any, helper"},
    "libc6": {"Depends": "libgcc (= 1)"},
    "libgcc": {"Depends": "libc6"},
    "icu": {},
    "helper": {"Depends": "gone (>= 2)"},
}


def test_what_a_package_needs_is_found_with_what_that_needs() -> None:
    packages = {**PACKAGES, "gone": {}}
    assert sorted(fetch_mysql.list_needed("server", packages)) == sorted(packages)


def test_a_package_that_is_not_there_is_named() -> None:
    with pytest.raises(SystemExit, match="has no gone"):
        list(fetch_mysql.list_needed("server", PACKAGES))


def test_a_mirror_that_cannot_be_reached_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_mysql, "MIRROR", (tmp_path / "nothing").as_uri())
    with pytest.raises(SystemExit, match=r"could not be fetched from file:|needs Linux"):
        fetch_mysql.fetch_mysql(tmp_path / "mysql")


def test_a_package_with_other_bytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_mysql, "MIRROR", tmp_path.as_uri())
    (tmp_path / "a.deb").write_bytes(b"other")
    with pytest.raises(SystemExit, match=r"a\.deb is not what the index"):
        fetch_mysql.unpack({"Filename": "a.deb", "SHA256": "0" * 64}, tmp_path)
