"""Kit of Redshift's statements on the PostgreSQL of this run, for the part of the language that both have."""

from support.postgres_kit import server
from support.redshift_kit import RedshiftOnPostgres

from dpsql.testing.warehouse_kits import create_redshift

__all__ = ["KIT"]

_URL = server().url("public").partition("&")[0].replace("postgresql:", "redshift:", 1)
KIT = create_redshift(_URL, engine=RedshiftOnPostgres).sample(48)
