"""Adapters for SQLAlchemy, sqlglot and Superset, found by entry points."""
