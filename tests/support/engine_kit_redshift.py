"""Kit of Redshift's statements on the PostgreSQL of this run, for the part of the language that both have."""

from support.postgres_kit import server

from dpsql.testing.kits.redshift import create_kit

__all__ = ["KIT"]

KIT = create_kit(server().url("public").partition("&")[0].replace("postgresql:", "redshift:", 1)).sample(24)
