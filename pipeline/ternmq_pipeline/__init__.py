"""Topics in Spark: the data source and the pipeline jobs."""
