"""`format("ternmq")`: what Spark calls to read."""
