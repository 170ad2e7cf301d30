"""SQL in, a private query out: text, clause, analysis, and the engine SQL that counts."""
