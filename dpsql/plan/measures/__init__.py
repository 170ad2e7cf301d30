"""Measures of a query: how much one unit may add to them, and what of them is released."""
