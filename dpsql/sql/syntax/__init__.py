"""Tokens to clause, options, parameters and a tree of sqlglot: syntax that dpsql reads or adds."""
