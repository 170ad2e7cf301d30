"""DuckDB: in this process, or in confined worker processes."""
