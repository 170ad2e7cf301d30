"""Confinement of processes by themselves: of workers, which open data, and of the PostgreSQL of the catalog."""
