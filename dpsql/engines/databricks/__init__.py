"""Databricks SQL as an engine, through its own connector."""
