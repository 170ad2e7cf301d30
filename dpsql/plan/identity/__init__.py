"""Stored answers: the key that identifies a release, and a release as bytes."""
