"""System catalogs of PostgreSQL, which tools read to learn the tables before they send queries."""

from dpsql.server.catalog.catalog_choice import open_available_catalog, open_catalog, try_confinement
from dpsql.server.catalog.protocol import Catalog, CatalogError, CatalogRows, Column, Description, Parameter
from dpsql.server.catalog.statements import is_catalog

__all__ = ["Catalog", "CatalogError", "CatalogRows", "Column", "Description", "Parameter", "is_catalog"]
__all__ += ["open_available_catalog", "open_catalog", "try_confinement"]
