"""Registers `format("ternmq")`: Spark looks into every package named `pyspark_…`."""

from ternmq_pipeline.data_source import TernmqDataSource as DefaultSource

__all__ = ["DefaultSource"]
