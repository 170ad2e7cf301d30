"""Kit of the PostgreSQL server of this run of the tests."""

from dataclasses import replace

from support.postgres_kit import server

from dpsql.testing.kits import create_postgres

__all__ = ["KIT"]

KIT = replace(create_postgres(server().url("public").partition("&")[0]), share=4)
