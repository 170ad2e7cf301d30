"""System catalogs of PostgreSQL, which tools read to learn the tables before they send queries."""

from dpsql.server.catalog.catalog_choice import open_available_catalog, open_catalog, try_confinement
from dpsql.server.catalog.statements import is_catalog
from dpsql.server.catalog.system_catalog import CatalogError, CatalogRows, Description, Parameter, SystemCatalog

__all__ = ["CatalogError", "CatalogRows", "Description", "Parameter", "SystemCatalog", "is_catalog"]
__all__ += ["open_available_catalog", "open_catalog", "try_confinement"]
