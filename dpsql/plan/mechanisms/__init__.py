"""Plans of mechanisms and their records: the rows a mechanism reads, its worst-case loss, and its draw."""
