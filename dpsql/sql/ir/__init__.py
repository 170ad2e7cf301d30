"""Intermediate representation: typed, closed and frozen statements, expressions and scopes."""
