"""Snowflake as an engine, through ADBC."""
