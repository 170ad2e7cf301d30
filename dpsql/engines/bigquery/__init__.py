"""BigQuery as an engine, through its own client."""
