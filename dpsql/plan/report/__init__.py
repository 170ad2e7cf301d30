"""Reports from public numbers: balance, forecast, EXPLAIN, and `dpsql check`."""
