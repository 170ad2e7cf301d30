"""Trino as an engine, through its own client."""
