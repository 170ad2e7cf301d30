"""Certificates other than zCDP: pure, Theorem 2 and optimal composition."""
