"""Adapters for SQLAlchemy, sqlglot, Superset and Harlequin, found by entry points."""
