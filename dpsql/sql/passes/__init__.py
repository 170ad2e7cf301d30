"""Passes over the private query: one file, one function, one golden file each."""
