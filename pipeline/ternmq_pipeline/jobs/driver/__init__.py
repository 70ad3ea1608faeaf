"""Driver of a job: its session of Spark, its streaming query, interruptions and errors."""
