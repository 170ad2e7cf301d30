"""Redshift as an engine, through ADBC."""
