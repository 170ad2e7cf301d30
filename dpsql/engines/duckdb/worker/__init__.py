"""DuckDB in processes of their own: protocol, confinement, engine and evaluator."""
