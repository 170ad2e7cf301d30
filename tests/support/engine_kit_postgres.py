"""Kit of the PostgreSQL server of this run of the tests."""

from dataclasses import replace

from support.postgres_kit import server

from dpsql.testing.kits.postgres import create_kit

__all__ = ["KIT"]

KIT = replace(create_kit(server().url("public").partition("&")[0]), share=4)
