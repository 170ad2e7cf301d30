"""Allow-list of functions, their signatures, and the coercion of their arguments."""
