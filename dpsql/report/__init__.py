"""What is said of a plan, a budget and a policy: EXPLAIN, notes, forecasts, balances, and `dpsql check`."""
