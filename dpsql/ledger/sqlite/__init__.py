"""Durable ledger in one SQLite file."""
