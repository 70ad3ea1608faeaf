"""Readers that Spark calls for `format("ternmq")`."""
