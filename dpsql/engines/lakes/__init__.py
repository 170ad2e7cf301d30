"""Folders as tables: Parquet files, Delta Lake and Iceberg."""
