"""Materialized columns of private tables: building them, and finding those that are current."""
