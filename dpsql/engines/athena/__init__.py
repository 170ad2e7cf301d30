"""Athena as an engine, through PyAthena."""
