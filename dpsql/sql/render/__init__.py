"""Rendering: typed statements to SQL text of DuckDB or of another dialect."""
