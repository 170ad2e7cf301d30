"""DataFusion as an engine, in this process."""
