"""Durable ledger in one schema of a PostgreSQL database."""
