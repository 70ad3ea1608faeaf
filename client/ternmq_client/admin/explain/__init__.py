"""Life of one message: `fact_search` reads what a cluster knows of it, `story` says it in words."""
