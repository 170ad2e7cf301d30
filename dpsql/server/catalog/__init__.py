"""What tools ask about tables before anybody asks about rows: the statements over PostgreSQL's system catalogs."""

from dpsql.server.catalog.dispatch import is_catalog
from dpsql.server.catalog.open_catalog import open_catalog
from dpsql.server.catalog.query_result import Catalog, CatalogError, CatalogRows, Column, Description, Parameter

__all__ = ["Catalog", "CatalogError", "CatalogRows", "Column", "Description", "Parameter", "is_catalog"]
__all__ += ["open_catalog"]
