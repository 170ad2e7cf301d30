"""Text that is being typed: the ends of statements, and completions."""
