"""PostgreSQL as an engine, through ADBC."""
