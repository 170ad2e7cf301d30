"""Rewriting passes: a query to the statement that the engine runs."""
