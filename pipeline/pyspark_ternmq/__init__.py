"""Registers `format("ternmq")`: Spark looks into every package named `pyspark_…`."""
