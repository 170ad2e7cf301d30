"""Analysis: a parsed statement to a typed private or public query, or a refusal."""
